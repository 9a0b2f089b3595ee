"""Counts of a producer's records, acknowledged by Kafka or not, and what a task reports of them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from worker.metrics import topics

if TYPE_CHECKING:
    from worker.host.delivery.chunk import RecordChunk
    from worker.host.delivery.producer import Producer
    from worker.host.delivery.routes import ProducerSettings
    from worker.host.task_metrics import Metrics
    from worker.protocol import TaskStats


class UnackedRecords:
    """Records that were appended and are not acknowledged, and whether more may come.

    Attributes:
        rows: how many.
        rows_max: the most there were since it was last set.
        bytes: of them, before compression.
        room: set while more may be appended.
        empty: set while no record is left.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self.rows = 0
        self.rows_max = 0
        self.bytes = 0
        self.room = asyncio.Event()
        self.room.set()
        self.empty = asyncio.Event()
        self.empty.set()

    def add(self, rows: int, size: int) -> None:
        """Count what was appended."""
        self.rows += rows
        self.bytes += size
        self.rows_max = max(self.rows_max, self.rows)
        if self.rows:
            self.empty.clear()
        if self.rows >= self._settings.max_rows or self.bytes >= self._settings.max_bytes:
            self.room.clear()

    def release_chunk(self, chunk: RecordChunk) -> None:
        """A chunk is done with: make room, and release its units."""
        self.rows -= chunk.count
        self.bytes -= chunk.accounted
        if self.rows < self._settings.max_rows and self.bytes < self._settings.max_bytes:
            self.room.set()
        for unit in chunk.units:
            unit.release()
        if self.rows == 0:
            self.empty.set()

    def wake_all(self) -> None:
        """Wake all who wait: the producer ends."""
        self.empty.set()
        self.room.set()


class TopicTally:
    """The records of a topic that Kafka has acknowledged.

    Attributes:
        records: how many.
        bytes: of their batches, compressed.
        latest_ms: timestamp of the last record of the latest poll, milliseconds since 1970; None if it has none.
        delay_ms: its age when it was acknowledged.
    """

    __slots__ = ("bytes", "delay_ms", "latest_ms", "records")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.latest_ms: int | None = None
        self.delay_ms = 0.0

    def add(self, chunk: RecordChunk) -> None:
        """Count a chunk, which was acknowledged now."""
        self.records += chunk.count
        self.bytes += chunk.size()
        timestamp = chunk.units[-1].timestamp if chunk.units else None
        if timestamp is not None:
            self.latest_ms = timestamp
            self.delay_ms = max(0.0, time.time() * 1000 - timestamp)


class AckedRecords:
    """Counts of what Kafka has acknowledged since a producer began.

    Attributes:
        rows: records, without those of ``uncounted`` topics.
        bytes: of their batches, compressed.
        batches: of all topics.
        latency_s: seconds that all batches together were on their way.
        uncounted: topics whose records are not the source's (offsets).
    """

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.batches = 0
        self.latency_s = 0.0
        self.uncounted: set[str] = set()
        self._topics: dict[str, TopicTally] = {}

    def add(self, topic: str, chunk: RecordChunk, latency_s: float) -> None:
        """Count a chunk, which was acknowledged now."""
        if topic not in self.uncounted:
            self.rows += chunk.count
            self.bytes += chunk.size()
            tally = self._topics.get(topic)
            if tally is None:
                tally = self._topics[topic] = TopicTally()
            tally.add(chunk)
        self.batches += 1
        self.latency_s += latency_s

    def take_topics(self) -> dict[str, TopicTally]:
        """Return the counts since the last call, by topic."""
        tallies, self._topics = self._topics, {}
        return tallies


class ProducerFigures:
    """Adds what a task's producers count to the numbers of the task.

    Args:
        metrics: of the task, for what is counted by topic.
        stats: of the task.
    """

    def __init__(self, metrics: Metrics, stats: TaskStats) -> None:
        self._metrics = metrics
        self._stats = stats
        self._counted = (0, 0, 0, 0.0)

    def begin(self) -> None:
        """Another producer begins, which counts from zero."""
        self._counted = (0, 0, 0, 0.0)

    def refresh(self, producer: Producer) -> None:
        """Add what the producer counted since the last call."""
        acked, unacked = producer.acked, producer.unacked
        now = (acked.rows, acked.bytes, acked.batches, acked.latency_s)
        before, self._counted = self._counted, now
        stats = self._stats
        for topic, tally in acked.take_topics().items():
            self._report_topic(topic, tally)
        stats.written += now[0] - before[0]
        stats.bytes_written += now[1] - before[1]
        stats.produce_batches += now[2] - before[2]
        stats.produce_latency_s += now[3] - before[3]
        stats.active = unacked.rows
        stats.active_bytes = unacked.bytes
        stats.active_limit = producer.settings.max_rows
        stats.active_limit_bytes = producer.settings.max_bytes
        stats.active_max = max(stats.active_max, unacked.rows_max)
        unacked.rows_max = unacked.rows

    def _report_topic(self, topic: str, tally: TopicTally) -> None:
        numbers, labels = self._metrics, {"topic": topic}
        numbers.add(topics.RECORDS, tally.records, labels)
        numbers.add(topics.BYTES, tally.bytes, labels)
        if tally.latest_ms is not None:
            numbers.set(topics.DELAY, tally.delay_ms / 1000, labels)
            numbers.set(topics.LAST, tally.latest_ms / 1000, labels)
