"""The counts of findings that files may have: read, compare and rewrite ``tests/wording/waivers.txt``.

A line is a path and a count. Git merges the file by keeping the lines of both sides (``.gitattributes``), so after a merge a
path may be there twice; the larger count holds until the file is rewritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

REWRITE = "./millrace lint --waive"


@dataclass(frozen=True)
class Growth:
    """A count that may not be written: it is larger than the waiver."""

    path: str
    waived: int
    count: int


def parse_waivers(text: str) -> dict[str, int]:
    """Return the largest count per path.

    Raises:
        ValueError: A line is not a path and a count.
    """
    waivers: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        path, _, count = line.rpartition(" ")
        if not path or not count.isdecimal():
            raise ValueError(
                f"waivers.txt, line {number}: expected a path and a count, got {line!r}; repair it with {REWRITE}"
            )
        waivers[path] = max(int(count), waivers.get(path, 0))
    return waivers


def format_waivers(counts: Mapping[str, int]) -> str:
    """Return the file's content for these counts."""
    return "".join(f"{path} {count}\n" for path, count in sorted(counts.items()) if count)


def excess(counts: Mapping[str, int], waivers: Mapping[str, int]) -> dict[str, int]:
    """Return the paths with more findings than their waivers allow, and by how many."""
    return {path: count - waivers.get(path, 0) for path, count in counts.items() if count > waivers.get(path, 0)}


def slack(counts: Mapping[str, int], waivers: Mapping[str, int]) -> dict[str, int]:
    """Return the paths with fewer findings than their waivers allow, and by how many; of deleted files too."""
    return {path: waived - counts.get(path, 0) for path, waived in waivers.items() if waived > counts.get(path, 0)}


def growths(counts: Mapping[str, int], waivers: Mapping[str, int]) -> list[Growth]:
    """Return the counts that a rewrite must not accept without a flag.

    A file that has a waiver may not get a larger one. Files without one were renamed or split off: together they may have as
    many findings as other files have lost, so that moving code needs no permission.
    """
    grown = [
        Growth(path, waivers[path], count)
        for path, count in counts.items()
        if path in waivers and count > waivers[path]
    ]
    new = {path: count for path, count in counts.items() if count and path not in waivers}
    if sum(new.values()) > sum(slack(counts, waivers).values()):
        grown += [Growth(path, 0, count) for path, count in new.items()]
    return sorted(grown, key=lambda growth: growth.path)
