"""The confidence window: how old a change has to be before it is read. Pure: the caller brings the clock.

What can be observed: after a time range was read as soon as the confidence window allowed, it is looked at once more when it is
older than the longest confidence window (``Recheck`` in ``recheck.py``). A row that is there now and was not there then was
late: it became visible *after* the age that the time range had at its first reading, and before the age at the second. So
lateness above the window in force is seen (its lower bound), lateness below it is not, and rows that come even later than the
second look are never seen.
"""

from __future__ import annotations

from typing import Final

#: Half-life of an observation: a quiet day brings the window back to its floor.
HALF_LIFE_S: Final = 3_600.0
#: The window is this many times the lateness that was seen at least.
_MARGIN: Final = 1.5

#: An answer that took longer says little: it counts until there is a better one.
_LONGEST_TRIP_MS: Final = 100.0


class Confidence:
    """The confidence window between a floor and a ceiling, or a fixed one.

    Args:
        floor_ms, ceiling_ms: bounds of the adaptive window.
        fixed_ms: ``scylla.confidence.window.size`` if it was given: the window is always this.
    """

    def __init__(self, floor_ms: int = 2_000, ceiling_ms: int = 30_000, fixed_ms: int | None = None) -> None:
        self.floor_ms = floor_ms
        self.ceiling_ms = max(floor_ms, ceiling_ms)
        self.fixed_ms = fixed_ms
        self._seen_ms = 0.0
        self._seen_at = 0.0
        #: Rows that came late so far.
        self.late_rows = 0

    def observe(self, lateness_ms: float, now_s: float, rows: int = 1) -> None:
        """``rows`` rows became visible at least ``lateness_ms`` after their time."""
        self.late_rows += rows
        current = self.lateness_ms(now_s)
        # Whatever window was in force was too short: each late row takes the window up from there.
        self._seen_ms = max(current, min(lateness_ms, self.ceiling_ms))
        self._seen_at = now_s

    def lateness_ms(self, now_s: float) -> float:
        """The lateness that counts now: the largest seen, fading with time."""
        if not self._seen_ms:
            return 0.0
        return float(self._seen_ms * 0.5 ** ((now_s - self._seen_at) / HALF_LIFE_S))

    def window_ms(self, now_s: float) -> int:
        """The window in force."""
        if self.fixed_ms is not None:
            return self.fixed_ms
        return int(min(max(self.lateness_ms(now_s) * _MARGIN, self.floor_ms), self.ceiling_ms))


class ServerClock:
    """How far the servers' clocks are from this one, so that "now" is never later than the slowest server's.

    Args:
        keep: as many samples are remembered.
    """

    def __init__(self, keep: int = 16) -> None:
        self._keep = keep
        self._samples: list[float] = []
        #: Whether the samples are of quick answers.
        self._quick = False

    def sample(self, sent_ms: float, answered_ms: float, server_ms: float) -> None:
        """The server said ``server_ms`` to a question sent and answered at these times of the local clock.

        The answer was made between the two. It is taken to be of their end: the server's clock is that far at least. With
        any other guess an answer that was slow to be made (a first question, a server that is busy) would put "now" before
        the server's time, and a window would end after changes that are still to be written.
        """
        quick = answered_ms - sent_ms <= _LONGEST_TRIP_MS
        if self._quick and not quick:
            return
        kept = self._samples if quick == self._quick else []
        self._quick = quick
        self._samples = [*kept[1 - self._keep :], server_ms - answered_ms]

    def offset_ms(self) -> float:
        """The offset to add to the local clock: the lowest of the samples; 0 without any."""
        return min(self._samples, default=0.0)
