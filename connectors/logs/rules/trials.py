"""Answers to requests that try rules: lines through a rule set, and lines through two. Bounded in lines, steps and time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import ConfigInvalid
from connectors.logs.rules.built import BuiltRules, build_rules
from connectors.logs.rules.model import parse_rules, read_rules
from connectors.logs.rules.preview import check_golden, check_versions, diff_rules, preview_rules
from connectors.logs.rules.records import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Lines times steps of one preview: each is in the answer with its records.
MOST_LINE_STEPS: Final = 100_000
#: How long a trial may take, seconds.
MOST_SECONDS: Final = 10.0


def preview_lines(rules: Any, lines: Sequence[str], seconds: float = MOST_SECONDS) -> bytes:
    """The JSON answer to a preview: each group with its steps, each line with its rows, and golden lines that fail.

    Blocks while it computes.

    Args:
        rules: a rule set as text or as a decoded document.
        lines: raw lines.
        seconds: how long it may take.

    Raises:
        ConfigInvalid: the rules can't work, or lines and steps are too many.
    """
    built = _read(rules, "rules")
    steps = sum(len(group.steps) for group in built.groups)
    if steps * len(lines) > MOST_LINE_STEPS:
        raise ConfigInvalid(
            f"{len(lines)} lines through {steps} steps are too many: lines times steps may be {MOST_LINE_STEPS} at most; "
            "send fewer lines, or the rules of one table"
        )
    shown = preview_rules(built, lines, [_origin()] * len(lines), _limited_clock(seconds))
    golden = [failure._asdict() for failure in check_golden(built)]
    return msgspec.json.encode({"groups": shown.groups, "lines": shown.lines, "golden": golden})


def compare_lines(before: Any, after: Any, lines: Sequence[str], seconds: float = MOST_SECONDS) -> bytes:
    """The JSON answer to a diff: lines whose rows differ, versions that must rise, and golden lines of ``after`` that fail.

    Blocks and raises as ``preview_lines``.
    """
    first, second = _read(before, "before"), _read(after, "after")
    clock = _limited_clock(seconds)
    origin = _origin()
    changed = []
    for number, line in enumerate(lines):
        clock()
        changed += [
            msgspec.structs.replace(change, number=number) for change in diff_rules(first, second, [line], [origin])
        ]
    return msgspec.json.encode(
        {
            "lines": changed,
            "versions": [str(problem) for problem in check_versions(first, second)],
            "golden": [failure._asdict() for failure in check_golden(second)],
        }
    )


def _read(rules: Any, name: str) -> BuiltRules:
    return build_rules(parse_rules(rules, name) if isinstance(rules, str) else read_rules(rules, name))


def _origin() -> Origin:
    """Of given lines: from nowhere, and from now, which gives dates without a year their year."""
    return Origin(timestamp=int(time.time() * 1000))


def _limited_clock(seconds: float) -> Callable[[], float]:
    """A clock that refuses to be asked after a time."""
    end = time.perf_counter() + seconds

    def clock() -> float:
        now = time.perf_counter()
        if now > end:
            raise ConfigInvalid(f"The rules took longer than {seconds:g} s for these lines; send fewer lines")
        return now

    return clock
