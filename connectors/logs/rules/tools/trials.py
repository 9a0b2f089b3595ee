"""Answers to requests that try rules: lines through a rule set, and lines through two. Bounded in lines, steps and time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import ConfigInvalid
from connectors.logs.rules.built import BuiltRules, build_any
from connectors.logs.rules.records import LineOrigin
from connectors.logs.rules.tools.preview import check_golden, check_versions, diff_rules, preview_rules
from connectors.logs.rules.tools.proposals import propose_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.logs.rules.records import Record

#: Lines times steps of one preview: each is in the answer with its records.
MOST_LINE_STEPS: Final = 100_000
#: The longest line, characters: a step may make a record of each part of it.
MOST_CHARACTERS: Final = 65_536
#: Characters of names and values in the records of an answer. A preview shows each record before and after a step.
MOST_SHOWN: Final = 16_000_000
#: How long a trial may take, seconds.
MOST_SECONDS: Final = 10.0


def preview_lines(
    rules: Any, lines: Sequence[str], seconds: float = MOST_SECONDS, origins: Sequence[Mapping[str, Any]] = ()
) -> bytes:
    """The JSON answer to a preview: each group with its steps, each line with its rows, and golden lines that fail.

    Blocks while it computes.

    Args:
        rules: a rule set as text or as a decoded document.
        lines: raw lines.
        seconds: how long it may take; asked between steps.
        origins: where each line comes from, as ``LineOrigin`` in JSON; () for nowhere, and from now.

    Raises:
        ConfigInvalid: the rules can't work, or the lines, their steps or their records are too many.
    """
    built = build_any(rules, "rules")
    limits = _Limits(seconds)
    limits.check("Line", lines)
    limits.check("Golden line", [golden.line for golden in built.golden])
    steps = sum(len(group.steps) for group in built.groups)
    if steps * len(lines) > MOST_LINE_STEPS:
        raise ConfigInvalid(
            f"{len(lines)} lines through {steps} steps are too many: lines times steps may be {MOST_LINE_STEPS} at most; "
            "send fewer lines, or the rules of one table"
        )
    shown = preview_rules(built, lines, _line_origins(lines, origins), limits.clock, limits.spend)
    return msgspec.json.encode({"groups": shown.groups, "lines": shown.lines, "golden": _find_failures(built, limits)})


def compare_lines(
    before: Any,
    after: Any,
    lines: Sequence[str],
    seconds: float = MOST_SECONDS,
    origins: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """The JSON answer to a diff: lines whose rows differ, versions that must rise, and golden lines of ``after`` that fail.

    Blocks and raises as ``preview_lines``.
    """
    first, second = build_any(before, "before"), build_any(after, "after")
    limits = _Limits(seconds)
    limits.check("Line", lines)
    limits.check("Golden line", [golden.line for golden in second.golden])
    changed = []
    for number, (line, origin) in enumerate(zip(lines, _line_origins(lines, origins), strict=True)):
        limits.clock()
        for change in diff_rules(first, second, [line], [origin]):
            for rows in (*change.before.values(), *change.after.values()):
                limits.spend(rows)
            changed.append(msgspec.structs.replace(change, number=number))
    versions = [str(problem) for problem in check_versions(first, second)]
    return msgspec.json.encode({"lines": changed, "versions": versions, "golden": _find_failures(second, limits)})


def check_saved(rules: Any, earlier: Any = None) -> list[str]:
    """The objections to saving a rule set that can work; [] if there are none. Blocks while it computes.

    Golden lines of the earlier version count too, unless the rule set has the same lines with other rows.

    Args:
        rules: the rule set as text or as a decoded document.
        earlier: the version that it follows; None for none.

    Raises:
        ConfigInvalid: the rules can't work, or take too long.
    """
    built = build_any(rules)
    before = None if earlier is None else build_any(earlier)
    limits = _Limits(MOST_SECONDS)
    problems: list[str] = []
    if before is not None:
        problems += [str(problem) for problem in check_versions(before, built)]
        lines = {golden.line for golden in built.golden}
        kept = tuple(golden for golden in before.golden if golden.line not in lines)
        problems += _golden_problems(
            built._replace(golden=kept), limits, "of the version before, which is left out now, "
        )
    return problems + _golden_problems(built, limits, "")


def _golden_problems(rules: BuiltRules, limits: _Limits, origin: str) -> list[str]:
    return [
        f"the golden line {failure['line']!r} {origin}must make {failure['expected']} and makes {failure['actual']}"
        for failure in _find_failures(rules, limits)
    ]


def propose_for_lines(lines: Sequence[str], table: str) -> bytes:
    """The JSON answer to a request for rules: the patterns of lines, those with the most lines first, each with a rule.

    Blocks while it computes.

    Raises:
        ConfigInvalid: a line is too long.
    """
    _Limits(MOST_SECONDS).check("Line", lines)
    return msgspec.json.encode({"patterns": propose_rules(lines, table)})


class _Limits:
    """Limits of one request: its time, and the size of its answer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.perf_counter() + seconds
        self._left = MOST_SHOWN

    def check(self, kind: str, lines: Sequence[str]) -> None:
        """Refuse lines that are too long."""
        for number, line in enumerate(lines):
            if len(line) > MOST_CHARACTERS:
                raise ConfigInvalid(
                    f"{kind} {number} has {len(line)} characters; rules are tried on {MOST_CHARACTERS} at most"
                )

    def clock(self) -> float:
        """The time, until it is over."""
        now = time.perf_counter()
        if now > self._end:
            raise ConfigInvalid(f"The rules took longer than {self._seconds:g} s for these lines; send fewer lines")
        return now

    def spend(self, records: Sequence[Record]) -> None:
        """Count records that the answer will show, until they are too many."""
        for record in records:
            self._left -= sum(len(name) + len(str(value)) for name, value in record.items())
            if self._left < 0:
                raise ConfigInvalid(
                    f"The records of these lines have more than {MOST_SHOWN} characters together; send fewer lines"
                )


def _find_failures(rules: BuiltRules, limits: _Limits) -> list[dict[str, Any]]:
    failures = []
    for golden in rules.golden:
        limits.clock()
        for failure in check_golden(rules._replace(golden=(golden,))):
            for rows in failure.actual.values():
                limits.spend(rows)
            failures.append(failure._asdict())
    return failures


def _line_origins(lines: Sequence[str], documents: Sequence[Mapping[str, Any]]) -> list[LineOrigin]:
    """Of given lines: from nowhere, and from now, which gives dates without a year their year."""
    if documents:
        return [msgspec.convert(origin, LineOrigin) for origin in documents]
    return [LineOrigin(timestamp=int(time.time() * 1000))] * len(lines)
