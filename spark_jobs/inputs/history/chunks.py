"""How a history is cut into batches: ranges of order numbers with about as many rows each. Pure."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Span(NamedTuple):
    """The rows of a file: their smallest and largest order number, and how many there are."""

    low: int
    high: int
    rows: int


class OrderRange(NamedTuple):
    """The rows of a chunk: those with ``low <= ums_id_ <= high``."""

    low: int
    high: int


def cut_ranges(spans: Iterable[Span], target: int) -> list[OrderRange]:
    """Ranges that together hold every number of ``spans`` once, in order, each with about ``target`` rows.

    Numbers are taken to be spread evenly within a span; rows of one number are never parted.
    """
    waiting = sorted(spans, reverse=True)
    points = sorted({span.low for span in waiting} | {span.high + 1 for span in waiting})
    if not points:
        return []
    active: list[Span] = []
    begin, rows = points[0], 0.0
    ranges: list[OrderRange] = []
    for point, following in itertools.pairwise(points):
        active = [span for span in active if span.high >= point]
        while waiting and waiting[-1].low == point:
            active.append(waiting.pop())
        density = sum(span.rows / (span.high - span.low + 1) for span in active)
        at = point
        while density and rows + density * (following - at) >= target:
            at = min(following, max(at + 1, at + int((target - rows) / density)))
            ranges.append(OrderRange(begin, at - 1))
            begin, rows = at, 0.0
        rows += density * (following - at)
    if begin < points[-1]:
        ranges.append(OrderRange(begin, points[-1] - 1))
    return ranges
