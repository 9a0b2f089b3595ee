"""Batches of what a node's log holds, with the positions that are saved with them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from connectors.api import Batch, SourceRecord
from connectors.cassandra.stream import Missing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from connectors.api import BadRecord, Position
    from connectors.cassandra.config.settings import TaskSettings
    from connectors.cassandra.latency import CassandraLatency
    from connectors.cassandra.model import LogChunk
    from connectors.cassandra.run.definitions import RunDefinitions
    from connectors.cassandra.stream import CassandraStream

#: Times of files are not more exact than this.
_TICK_MS: Final = 20


class LogBatches:
    """Divides chunks of the log into batches. Not thread-safe.

    Args:
        stream: makes the records.
        definitions: are looked up for entries that the stream can't read.
        settings: of the task.
        partition: the source partition of the log's positions.
        latency: hears of what was read.
    """

    def __init__(
        self,
        stream: CassandraStream,
        definitions: RunDefinitions,
        settings: TaskSettings,
        partition: Position,
        latency: CassandraLatency,
    ) -> None:
        self._stream = stream
        self._definitions = definitions
        self._settings = settings
        self._partition = partition
        self._latency = latency
        #: When a position was given last, and whether there is a newer one.
        self._saved_at = time.monotonic()
        self._late = False

    async def deliver(self, chunk: LogChunk) -> AsyncGenerator[Batch, None]:
        """Yield the records of a chunk of the log, divided into batches.

        Raises:
            Retriable: the cluster can't be asked for a definition.
        """
        stream = self._stream
        number, total = 0, len(chunk.entries)
        stream.sure = chunk.written_ms + _TICK_MS <= self._definitions.sure_ms
        while True:
            out: list[SourceRecord] = []
            bad: list[BadRecord] = []
            await stream.agree()
            try:
                number = stream.take(chunk, number, self._settings.max_batch, out, bad)
            except Missing as missing:
                number = stream.number
                before = self._definitions.catalog.by_id(missing.table_id)
                if out or bad or stream.encoded.count:
                    yield self._make_batch(out, bad)
                if missing.doubt:
                    await self._definitions.make_sure(stream)
                else:
                    await self._definitions.find(stream, missing, before, chunk.written_ms)
                continue
            # Records carry their write times as timestamps.
            written = max(out[-1].timestamp or 0 if out else 0, stream.encoded.last_timestamp or 0)
            self._latency.read(chunk, written or None, stream.position)
            has_records = out or bad or stream.encoded.count
            if number < total or has_records or chunk.finished or self._definitions.unsaved or self._is_save_due():
                yield self._make_batch(out, bad)
            else:
                self._late = True
            if number >= total:
                return

    def save_quiet_position(self) -> Batch | None:
        """The position, where nothing came of what was read; None: there is nothing to save yet."""
        if self._definitions.unsaved or (self._late and self._is_save_due()):
            return self._make_batch([], [])
        return None

    def _is_save_due(self) -> bool:
        """Whether a position is to be saved though nothing of captured tables came."""
        return time.monotonic() - self._saved_at >= self._settings.heartbeat_s

    def _make_batch(self, out: list[SourceRecord], bad: list[BadRecord]) -> Batch:
        self._late, self._saved_at = False, time.monotonic()
        unsaved = self._definitions.take_unsaved()
        position = self._stream.position
        offset = position.offset()
        # Behind records that were delivered and passed over again (done), the place that is saved already is the right one.
        if not position.done and position.segment and not (out and out[-1].source_offset == offset):
            unsaved = (*unsaved, (self._partition, offset))
        return Batch(out, tuple(bad), unsaved, encoded=self._stream.encoded.collect())
