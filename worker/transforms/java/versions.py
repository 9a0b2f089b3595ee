"""Maven version ranges, as ``plugin.version`` properties use them (KIP-891): ``1.2``, ``[1.2,2.0)``, ``(,3],[4,)``.

A version without brackets must be met exactly, as in Kafka Connect.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable

_PART: Final = re.compile(r"\d+|[a-zA-Z]+")
# Maven's order of qualifiers; the release itself is the empty one, and words it doesn't know come after.
_QUALIFIERS: Final = {
    "alpha": -5,
    "a": -5,
    "beta": -4,
    "b": -4,
    "milestone": -3,
    "m": -3,
    "rc": -2,
    "cr": -2,
    "snapshot": -1,
    "": 0,
    "ga": 0,
    "final": 0,
    "release": 0,
    "sp": 1,
}


def version_key(version: str) -> tuple[tuple[int, int | Decimal, str], ...]:
    """A key by which versions sort as Maven sorts them."""
    parts: list[tuple[int, int | Decimal, str]] = []
    for part in _PART.findall(version):
        if part.isdigit():
            parts.append((1, Decimal(part), ""))  # an int has 4,300 digits at most
        else:
            while parts and parts[-1] == (1, 0, ""):
                parts.pop()  # 1.0-rc1 is a candidate of 1 as well
            word = part.lower()
            rank = _QUALIFIERS.get(word, 2)
            parts.append((0, rank, word if rank == 2 else ""))
    while parts and parts[-1] in ((1, 0, ""), (0, 0, "")):
        parts.pop()
    # The end of a version lies between its pre-releases and anything that goes beyond it.
    return (*parts, (0, 0, ""))


class _Interval(NamedTuple):
    """One part of a range; an empty bound means no bound, unless the part is a single version."""

    opening: str
    low: str
    high: str
    closing: str
    single: bool = False

    def __contains__(self, version: object) -> bool:
        key = version_key(str(version))
        if self.single:
            return key == version_key(self.low)
        above = not self.low or (key >= version_key(self.low) if self.opening == "[" else key > version_key(self.low))
        below = not self.high or (
            key <= version_key(self.high) if self.closing == "]" else key < version_key(self.high)
        )
        return above and below

    def __str__(self) -> str:
        return f"{self.opening}{self.low},{self.high}{self.closing}"


def _parse_interval(interval: str) -> _Interval:
    opening, inside, closing = interval[0], interval[1:-1].strip(), interval[-1]
    low, comma, high = (part.strip() for part in inside.partition(","))
    if not comma:
        if (opening, closing) != ("[", "]"):
            raise ConfigInvalid(f"Single version must be surrounded by []: {interval}")
        return _Interval(opening, inside, inside, closing, single=True)
    if low and high:
        first, last = version_key(low), version_key(high)
        if last < first or (last == first and (opening, closing) != ("[", "]")):
            raise ConfigInvalid(f"Range defies version ordering: {interval}")
    return _Interval(opening, low, high, closing)


def _parse_range(version_range: str) -> list[_Interval]:
    whole = version_range.strip()
    if not whole.startswith(("[", "(")):
        whole = f"[{whole}]"
    intervals: list[_Interval] = []
    remaining = whole
    while remaining.startswith(("[", "(")):
        ends = [at for at in (remaining.find(")"), remaining.find("]")) if at >= 0]
        if not ends:
            raise ConfigInvalid(f"Unbounded range: {whole}")
        part = _parse_interval(remaining[: min(ends) + 1])
        if (
            intervals
            and intervals[-1].high
            and (not part.low or version_key(part.low) < version_key(intervals[-1].high))
        ):
            raise ConfigInvalid(f"Ranges overlap: {whole}")
        intervals.append(part)
        remaining = remaining[min(ends) + 1 :].strip().removeprefix(",").strip()
    if remaining:
        raise ConfigInvalid(f"Only fully-qualified sets allowed in multiple set scenario: {whole}")
    return intervals


def _is_any(version: str | None) -> bool:
    return version is None or version.strip() == "latest"


def version_matches(version_range: str | None, version: str) -> bool:
    """Whether ``version`` lies in the range ``version_range``; None and ``latest`` take any.

    Raises:
        ConfigInvalid: ``version_range`` is no version range; the text is Maven's, as in Kafka Connect's answers.
    """
    return (
        version_range is None or _is_any(version_range) or any(version in part for part in _parse_range(version_range))
    )


def in_range(version_range: str | None, version: str) -> bool:
    """``version_matches``, but nothing matches a range that can't be read."""
    try:
        return version_matches(version_range, version)
    except ConfigInvalid:
        return False


def range_problem(version_range: str | None) -> str | None:
    """Why ``version_range`` is no version range, or None if it is one."""
    try:
        version_matches(version_range, "")
    except ConfigInvalid as error:
        return str(error)
    return None


def not_found(class_name: str, version_range: str | None, versions: Iterable[str]) -> str | None:
    """Kafka Connect's complaint if ``version_range`` is no range, or none of ``versions`` is in it; else None."""
    if version_range is None or _is_any(version_range):
        return None
    try:
        parts = _parse_range(version_range)
    except ConfigInvalid as error:
        return str(error)
    there = list(versions)
    if any(version in part for version in there for part in parts):
        return None
    return (
        f"Plugin {class_name} not found that matches the version range {','.join(map(str, parts))}, available versions: "
        f"[{', '.join(there)}]"
    )
