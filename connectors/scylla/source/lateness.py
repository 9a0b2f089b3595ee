"""The confidence window: how old a change has to be before it is read. Pure: the caller brings the clock.

What can be observed: after a time range was read as soon as the confidence window allowed, it is looked at once more when it is
older than the longest confidence window (``Recheck`` in ``recheck.py``). A row that is there now and was not there then was
late: it became visible *after* the age that the time range had at its first reading, and before the age at the second. So
lateness above the window in force is seen (its lower bound), lateness below it is not, and rows that come even later than the
second look are never seen.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: Half-life of an observation: a quiet day brings the window back to its floor.
HALF_LIFE_S: Final = 3_600.0
#: The window is this many times the lateness that was seen at least.
_MARGIN: Final = 1.5
#: A server that has not answered for this long is gone, or does not matter for now.
_FORGET_MS: Final = 600_000.0


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

    The local clock must be one that is never set, such as ``time.monotonic``: one that jumps ahead would take "now" ahead of
    the servers until all samples from before are forgotten.

    Args:
        keep: as many samples of each server are remembered, so that a server's clock that was set is believed after as many.
        unknown_ms: the offset while no server has said its time.
    """

    def __init__(self, keep: int = 8, unknown_ms: float = 0.0) -> None:
        self._keep = keep
        self._unknown_ms = unknown_ms
        self._samples: dict[str, deque[float]] = {}
        self._heard_ms: dict[str, float] = {}

    def sample(self, server: str, answered_ms: float, server_ms: float) -> None:
        """``server`` said that it was ``server_ms`` in an answer that came at ``answered_ms`` of the local clock.

        The answer was made before it came, so the server's clock is at least ``server_ms - answered_ms`` from this one. Each
        sample is such a lower bound, and the highest is the best: slow answers (of a first question, of a server that is
        busy) say less, and take nothing away. Any other guess might put "now" before the server's time, and a window would
        end after changes that are still to be written.
        """
        self._samples.setdefault(server, deque(maxlen=self._keep)).append(server_ms - answered_ms)
        self._heard_ms[server] = answered_ms
        for other in [name for name, heard in self._heard_ms.items() if answered_ms - heard > _FORGET_MS]:
            del self._samples[other], self._heard_ms[other]

    def offset_ms(self) -> float:
        """The offset to add to the local clock: that of the slowest server; ``unknown_ms`` without any."""
        return min(map(max, self._samples.values()), default=self._unknown_ms)
