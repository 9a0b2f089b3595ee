"""Limits the speed of snapshots: to a number of rows per second, and further while the server answers more slowly."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: The least latency seen is forgotten slowly, so that it follows a server that has become slower for good.
_FORGET: Final = 1.01
#: A few ms are the event loop's, not the server's.
_NOISE_S: Final = 0.02
_SLOWER: Final = 4.0
_MOST_REST: Final = 16.0


class SnapshotThrottle:
    """Says how many queries may be in flight and how long to rest after one.

    Args:
        threads: queries in flight at most.
        rows_per_s: 0: no bound.
        adaptive: whether the server's latency counts.
        clock: seconds, monotonic.
    """

    def __init__(
        self, threads: int, rows_per_s: int = 0, *, adaptive: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = float(threads)
        self._allowed = float(threads)
        self._rows_per_s = rows_per_s
        self._adaptive = adaptive
        self._clock = clock
        self._best: float | None = None
        self._free_at = 0.0
        self._rest = 0.0
        #: The last probe's latency in seconds.
        self.latency_s = 0.0

    @property
    def allowed(self) -> int:
        """Queries that may be in flight."""
        return max(1, int(self._allowed))

    def probed(self, latency_s: float) -> None:
        """A query that costs the server nothing took so long."""
        self.latency_s = latency_s
        if not self._adaptive:
            return
        best = self._best = latency_s if self._best is None else min(self._best * _FORGET, latency_s)
        if latency_s > _SLOWER * best + _NOISE_S:
            if self._allowed > 1:
                self._allowed = max(1.0, self._allowed * 0.7)
            else:
                self._rest = min(_MOST_REST, max(1.0, self._rest * 2))
        elif self._rest:
            self._rest = self._rest / 2 if self._rest > 1 else 0.0
        else:
            self._allowed = min(self._most, self._allowed + 0.25)

    def rows(self, count: int) -> None:
        """Count ``count`` rows that were read."""
        if self._rows_per_s:
            self._free_at = max(self._free_at, self._clock()) + count / self._rows_per_s

    def pause_s(self, busy_s: float) -> float:
        """How long to wait before the next query, the last of which took ``busy_s``."""
        rest_s = busy_s * self._rest
        return max(rest_s, self._free_at - self._clock()) if self._rows_per_s else rest_s

    async def pause(self, busy_s: float) -> None:
        """Wait that long."""
        wait = self.pause_s(busy_s)
        if wait > 0:
            await asyncio.sleep(wait)
