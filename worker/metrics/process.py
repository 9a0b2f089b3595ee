"""Threads, garbage collection and the event loop of this process."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from worker.metrics.windows import Maximum
from worker.protocol import ProcessStats

if TYPE_CHECKING:
    from collections.abc import Callable

#: Records in flight are freed by their reference counts: with Python's own thresholds the collector would run after every 700
#: of them. The middle generation is kept small, because it grows by all that thousands of tasks that start set up, and a
#: collection of it holds the event loop for as long as it takes.
_THRESHOLDS: Final = (50_000, 3, 700)
_BEAT_S: Final = 0.25


def settle_heap() -> None:
    """Exclude all objects that are loaded now from garbage collection, since they stay. Blocks for about 100 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


class GcWatch:
    """Times Python's garbage collector from ``start`` on; one per process. Costs two clock reads per collection."""

    def __init__(self) -> None:
        self._began = 0.0
        self._runs = [0, 0, 0]
        self._seconds = [0.0, 0.0, 0.0]

    def start(self) -> None:
        """Begin to count."""
        gc.callbacks.append(self._count_run)

    def stop(self) -> None:
        """Count no more."""
        if self._count_run in gc.callbacks:
            gc.callbacks.remove(self._count_run)

    def _count_run(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        elif self._began:
            generation = info["generation"]
            self._runs[generation] += 1
            self._seconds[generation] += time.perf_counter() - self._began

    def stats(self) -> ProcessStats:
        """The process's numbers now."""
        return ProcessStats(threading.active_count(), tuple(self._runs), tuple(self._seconds))


class LoopLag:
    """The longest time in seconds that the running event loop was late in the last 30 to 60 seconds.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat = clock()
        self._longest = Maximum(self._beat)
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure; on the event loop."""
        self._beat = self._clock()
        self._handle = asyncio.get_running_loop().call_later(_BEAT_S, self._note_tick)

    def stop(self) -> None:
        """Measure no more."""
        if self._handle is not None:
            self._handle.cancel()

    def seconds(self) -> float:
        """As of now."""
        return self._longest.value(self._clock())

    def _note_tick(self) -> None:
        now = self._clock()
        self._longest.add(max(0.0, now - self._beat - _BEAT_S), now)
        self.start()
