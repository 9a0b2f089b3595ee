"""Pauses between tries: each twice as long as the one before, up to a longest, spread at random so that callers don't meet."""

from __future__ import annotations

import random

#: More doublings change nothing: the longest pause is reached long before.
_MOST_DOUBLINGS = 60


class Backoff:
    """The pauses of one operation that is retried.

    Args:
        first_s: the first pause, seconds.
        longest_s: no pause is longer, but for the spread.
        low: the least factor of the spread.
        high: the greatest.
    """

    __slots__ = ("_first_s", "_high", "_low", "longest_s", "pause_s")

    def __init__(self, first_s: float, longest_s: float, *, low: float = 1.0, high: float = 1.0) -> None:
        self._first_s = first_s
        self._low = low
        self._high = high
        self.longest_s = longest_s
        #: The next pause, without the spread.
        self.pause_s = min(first_s, longest_s)

    def next_s(self) -> float:
        """Seconds to wait now; the pause after it is twice as long."""
        pause_s = self.pause_s
        self.pause_s = min(pause_s * 2, self.longest_s)
        return pause_s if self._low == self._high == 1.0 else pause_s * random.uniform(self._low, self._high)  # noqa: S311

    def reset(self) -> None:
        """Begin with the first pause again: the operation succeeded."""
        self.pause_s = min(self._first_s, self.longest_s)


def pause_after(failures: int, first_s: float, longest_s: float) -> float:
    """Seconds to wait after that many failures, 1 or more. Pure."""
    return min(first_s * 2.0 ** min(max(failures - 1, 0), _MOST_DOUBLINGS), longest_s)
