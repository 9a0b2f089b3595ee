"""JSON documents and paths into them: ``$.user.name``, ``$.items[0]``, ``$['a key']``; ``[*]`` and ``.*`` give all members."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.records import StepFailed
from connectors.logs.rules.types import read_text

_STEP: Final = re.compile(r"\.([A-Za-z0-9_@$-]+)|\[(-?\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|(\[\*\]|\.\*)")
_decode: Final = msgspec.json.Decoder().decode


def read_document(value: Any) -> Any:
    """The JSON document in a field, which may hold it decoded already.

    Raises:
        StepFailed: it is not JSON.
    """
    if isinstance(value, dict | list):
        return value
    try:
        return _decode(read_text(value))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise StepFailed(f"this is not JSON: {error}") from None


class JsonPathReader(NamedTuple):
    """A compiled path.

    Attributes:
        source: as it was written.
        steps: a key, an index, or None for all members.
    """

    source: str
    steps: tuple[str | int | None, ...]

    def document(self, value: Any) -> Any:
        """As ``read_document``."""
        return read_document(value)

    def read(self, document: Any) -> Any:
        """The value at the path; None if it leads nowhere. Where the path has ``*``, a list of all values."""
        return _follow(document, self.steps)


def _follow(value: Any, steps: tuple[str | int | None, ...]) -> Any:
    for number, step in enumerate(steps):
        if step is None:
            members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            results = (_follow(member, steps[number + 1 :]) for member in members)
            return [result for result in results if result is not None]
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
        if value is None:
            return None
    return value


def parse_path(option: str, source: str) -> JsonPathReader:
    """The compiled path of an option.

    Raises:
        OperatorOptionInvalid: it is not one.
    """
    path = source.removeprefix("$")
    if path and path[0] not in ".[":
        path = f".{path}"
    steps: list[str | int | None] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise OperatorOptionInvalid(
                option,
                f"{source!r} is no JSON path after {path[:position]!r}; write it as $.user.name, $.items[0] or $['a key']",
            )
        name, index, quoted, _ = match.groups()
        if name is not None:
            steps.append(name)
        elif index is not None:
            steps.append(int(index))
        elif quoted is not None:
            steps.append(re.sub(r"\\(.)", r"\1", quoted))
        else:
            steps.append(None)
        position = match.end()
    return JsonPathReader(source, tuple(steps))
