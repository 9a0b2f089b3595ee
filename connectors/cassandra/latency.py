"""How long changes take from stage to stage: written, readable in the log, read, acknowledged by Kafka.

Write times are the clients' or the coordinators', all else is this machine's clock: where they differ, a stage shows the
difference; nothing is shown as less than 0. A write with a timestamp of its own (``USING TIMESTAMP``) counts by that.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.cassandra import metrics

if TYPE_CHECKING:
    from connectors.api import TaskMetrics
    from connectors.cassandra.model import LogChunk, LogPosition

#: Batches under way whose times are kept; beyond it the oldest are forgotten.
_MOST_BATCHES: Final = 1000


class _ReadBatch(NamedTuple):
    position: LogPosition
    read_ms: int
    written_ms: int


class CassandraLatency:
    """The stages of the newest changes of one node. Not thread-safe; does not block."""

    def __init__(self, to: TaskMetrics, node: str) -> None:
        self._metrics = to
        self._labels = {"node": node}
        self._batches: deque[_ReadBatch] = deque(maxlen=_MOST_BATCHES)
        self._shown: dict[str, float] = {}

    def read(self, chunk: LogChunk, written: int | None, position: LogPosition) -> None:
        """A chunk was taken up to ``position``.

        Args:
            chunk: of the log.
            written: write time of the newest change in it, ms since 1970; None: not known, or no change.
            position: in the log.
        """
        if written is None:
            return
        now = time.time_ns() // 1_000_000
        readable = chunk.written_ms or now
        self._batches.append(_ReadBatch(position, now, written))
        self._shown[metrics.LATENCY_WRITE_TO_LOG] = max(0, readable - written) / 1000
        self._shown[metrics.LATENCY_LOG_TO_READ] = max(0, now - readable) / 1000
        self._shown[metrics.LAST_EVENT] = written / 1000

    def delivered(self, position: LogPosition) -> None:
        """Kafka has everything up to ``position``."""
        now = time.time_ns() // 1_000_000
        while self._batches and self._batches[0].position <= position:
            stage = self._batches.popleft()
            self._shown[metrics.LATENCY_READ_TO_TOPIC] = max(0, now - stage.read_ms) / 1000
            self._shown[metrics.LATENCY_WRITE_TO_TOPIC] = max(0, now - stage.written_ms) / 1000

    def report(self) -> None:
        """Hand the numbers over."""
        shown, self._shown = self._shown, {}
        for name, value in shown.items():
            self._metrics.set(name, value, self._labels)
