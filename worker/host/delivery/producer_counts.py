"""Counts of a producer's records: those that Kafka has not acknowledged yet, and those that it has."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.host.delivery.chunk import RecordChunk
    from worker.host.delivery.routes import ProducerSettings


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
