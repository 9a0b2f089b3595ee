"""Watermarks, and which windows are closed. Pure; all times are whole microseconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MS: Final = 1000


def next_watermark(previous: int | None, newest: Sequence[int | None], delay: int, idle: int) -> int | None:
    """The watermark after a batch: rows of smaller times are late from then on.

    Args:
        previous: the watermark before; None before the first one. It never goes back.
        newest: the largest time so far of each input; None for an input without a row.
        delay: by which rows may come late.
        idle: an input that is behind the furthest one by more than this does not hold the watermark; negative: it always does.
    """
    known_times = [time for time in newest if time is not None]
    if not known_times:
        return previous
    candidates = [time for time in (previous,) if time is not None]
    if len(known_times) == len(newest):
        candidates.append(min(known_times) - delay)
    if idle >= 0 and len(newest) > 1:
        candidates.append(max(known_times) - idle - delay)
    return max(candidates, default=None)


def choose_later(first: int | None, second: int | None) -> int | None:
    """The larger one of two bounds; None is before every time."""
    return second if first is None else first if second is None else max(first, second)


def subtract_span(time: int | None, span: int) -> int | None:
    """A bound that is earlier by ``span``."""
    return None if time is None else time - span


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of one size that start every ``slide``, at multiples of it. A row may be in several.

    Attributes:
        size: of a window.
        slide: from one start to the next; at most ``size``.
    """

    size: int
    slide: int

    def last_end(self, watermark: int | None) -> int | None:
        """The end of the last window that is closed: windows end at or before the watermark."""
        return None if watermark is None else (watermark - self.size) // self.slide * self.slide + self.size

    def oldest_kept(self, watermark: int | None) -> int | None:
        """The smallest time whose rows are still in an open window."""
        if watermark is None:
            return None
        return ((watermark - self.size) // self.slide + 1) * self.slide

    def first_start(self, column: str) -> str:
        """SQL: the start of the first window that has the time ``column``."""
        return f"(({column}) - {self.size} - pmod(({column}) - {self.size}, {self.slide}) + {self.slide})"

    def last_start(self, column: str) -> str:
        """SQL: the start of the last window that has the time ``column``."""
        return f"(({column}) - pmod(({column}), {self.slide}))"
