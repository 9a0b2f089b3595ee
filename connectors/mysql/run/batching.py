"""Batches of what the stream and the snapshots have given, with the offsets that are saved with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from connectors.api import Batch
from connectors.mysql.position import start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connectors.api import Position, SourceRecord
    from connectors.mysql.model import StreamSettings
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.run.records import RunRecords
    from connectors.mysql.snapshot.model import SnapshotChunk
    from connectors.mysql.snapshots import RunSnapshots
    from connectors.mysql.stream.binlog_stream import BinlogStream
    from connectors.mysql.stream.counters import StreamCounters
    from connectors.mysql.stream.latency import HeartbeatLatency
    from connectors.mysql.stream.signals import SignalPosition

    Offsets = list[tuple[Position, Position | None]]


class BatchMaker:
    """Decides how much a batch holds, and up to where it is saved. Not thread-safe.

    Args:
        settings: of the stream.
        records: how records are made.
        snapshots: the snapshots.
        latency: hears when something is yielded.
        counters: numbers go there.
        atomic: whether the connector says where transactions of Kafka end.

    Attributes:
        partition: the source partition of the stream's positions.
        snapshots: the snapshots.
        held_rows: keeps rows that are not records yet, or None.
        saved: the offset that was yielded last.
    """

    def __init__(
        self,
        settings: StreamSettings,
        records: RunRecords,
        snapshots: RunSnapshots,
        latency: HeartbeatLatency,
        counters: StreamCounters,
        *,
        atomic: bool,
    ) -> None:
        self.partition = records.context.partition
        self.snapshots = snapshots
        self.saved: Position = {}
        self._settings = settings
        self.held_rows = records.context.held_rows
        self._versions = records.versions
        self._latency = latency
        self._counters = counters
        self._atomic = atomic

    @property
    def _boundary(self) -> Literal["", "commit"]:
        return "commit" if self._atomic else ""

    # Of the stream.

    def fill(self, stream: BinlogStream) -> Batch | None:
        """A batch while the events of one read still come; None: more of them have to come first."""
        cursor, output = stream.cursor, stream.output
        output.flush_held()
        hold = max(self._settings.rollback_rows, self._settings.max_batch if self._atomic else 0)
        if cursor.open and ((hold and output.settled) or output.whole):
            return self._take_settled(stream)
        # A message has many rows: messages don't wait for one another.
        waiting = len(output.records) + output.encoded.count
        if cursor.open and waiting < (max(hold, self._settings.max_batch) if self.held_rows is None else hold):
            return None
        return self._take(stream, len(output.records), None if cursor.open else cursor.now())

    def flush(self, stream: BinlogStream) -> Batch | None:
        """A batch of what is there, when nothing more comes at once."""
        cursor, output = stream.cursor, stream.output
        output.flush_held()
        if not output.records and not output.encoded.count and not output.bad:
            return None
        if cursor.open and (self._atomic or output.whole or self._settings.rollback_rows > len(output.records)):
            return self._take_settled(stream)
        return self._take(stream, len(output.records), None if cursor.open else cursor.now())

    def _take_settled(self, stream: BinlogStream) -> Batch | None:
        """A batch of what belongs to finished transactions; None where there is nothing, or bytes that belong to both."""
        output = stream.output
        if not output.settled or output.encoded.count:
            return None
        return self._take(stream, output.settled, stream.cursor.offset(0, 0, 0))

    def _take(self, stream: BinlogStream, count: int, offset: Position | None) -> Batch:
        records, bad = stream.output.take(count)
        encoded = stream.output.encoded.collect()
        offsets: Offsets = []
        if encoded and offset is None:
            # Records tell their own positions, bytes don't; the open transaction's are behind its last event.
            offsets.append((self.partition, stream.cursor.now()))
        if offset is not None and offset != self.saved:
            self.saved = offset
            offsets.append((self.partition, offset))
        complete, offsets = self._with_versions(records, offsets)
        for part in encoded if len(complete) > len(records) else ():
            part.after += len(complete) - len(records)  # versions come first
        self._latency.yielded()
        return Batch(complete, bad, tuple(offsets), "" if offset is None else self._boundary, encoded=encoded)

    def _with_versions(self, records: list[SourceRecord], offsets: Offsets) -> tuple[list[SourceRecord], Offsets]:
        versions, books = self._versions.take()
        decided = self.snapshots.decided()
        if versions or books or decided:
            # The next run of a task gets what offsets say, not what records do.
            saved = [(record.source_partition, record.source_offset) for record in versions]
            return [*versions, *records], [*offsets, *saved, *books, *decided]
        return records, offsets

    def save_quiet_position(self, stream: BinlogStream) -> Batch | None:
        """The position, after events that were all skipped; None: it is saved, or records will say it."""
        if stream.output.pending or stream.cursor.open:
            return None
        offset = stream.cursor.now()
        records, offsets = self._with_versions([], [])
        if (
            not records
            and not offsets
            and all(offset.get(name) == self.saved.get(name) for name in ("file", "pos", "gtids"))
        ):
            return None
        self.saved = offset
        self._latency.yielded()
        return Batch(records, offsets=((self.partition, offset), *offsets), transaction=self._boundary)

    # Between transactions.

    def begin(self, cursor: BinlogCursor) -> Batch:
        """The first batch: the position, and what has been decided about snapshots."""
        offsets = ((self.partition, cursor.now()), *self.snapshots.first_offsets(), *self.snapshots.decided())
        return Batch([], offsets=offsets)

    def add_records(self, offset: Position, *records: SourceRecord) -> Batch:
        """A batch of records that are no rows, at a position."""
        self.saved = offset
        batch_records, offsets = self._with_versions(list(records), [(self.partition, offset)])
        return Batch(batch_records, offsets=tuple(offsets), transaction=self._boundary)

    def send_records(self, records: list[SourceRecord]) -> Batch:
        """A batch of records that have nothing to do with a position."""
        return Batch(records, transaction=self._boundary)

    def save_offsets(self, *offsets: tuple[Position, Position | None]) -> Batch:
        """A batch of offsets that are no positions in the stream."""
        return Batch([], offsets=offsets, transaction=self._boundary)

    def move(self, cursor: BinlogCursor, target: SignalPosition, signal_at: str, record: str) -> Batch:
        """The batch that lets the next run begin at the position that a signal names.

        Args:
            cursor: where the stream is.
            target: where it continues.
            signal_at: where the signal is in the binlog; "": it has come another way.
            record: where it is in the signal topic; "": it has come another way.
        """
        offset = {
            name: value
            for name, value in cursor.now().items()
            if name not in {"file", "pos", "gtids", start.DONE, start.BY_GTID}
        }
        if target.gtids:
            # The file means nothing then: by GTIDs the server finds the place itself.
            offset.update({"file": cursor.file, "pos": cursor.pos, "gtids": target.gtids, start.SOURCE_SERVER: 0})
        else:
            offset.update({"file": target.file, "pos": target.pos})
        if signal_at:
            offset[start.MOVED_BY] = f"{cursor.source_server}:{signal_at}"
        if record:
            offset[start.MOVED_BY_RECORD] = record
        return self.add_records(offset)

    # Of snapshots.

    def take_chunks(self, stream: BinlogStream) -> Iterator[Batch]:
        """Batches of the chunks whose place the stream has reached, after what the stream has given before."""
        while (chunk := self.snapshots.ready()) is not None:
            if (batch := self.flush(stream)) is not None:
                yield batch
            yield self._make_chunk_batch(chunk, stream.cursor)

    def _make_chunk_batch(self, chunk: SnapshotChunk, cursor: BinlogCursor) -> Batch:
        records: list[SourceRecord] = []
        offset = cursor.now()
        encoded = self.snapshots.emit(chunk, offset, records)
        offsets: Offsets = list(self.snapshots.done(chunk))
        if encoded is not None:
            offsets.insert(0, (self.partition, offset))  # records have it themselves
        batch_records, batch_offsets = self._with_versions(records, offsets)
        if encoded is not None:
            encoded.after = len(batch_records)
        bad = self.snapshots.bad(chunk, self.partition, cursor.now())
        self._counters.snapshot_bad += len(bad)
        return Batch(
            batch_records,
            bad,
            tuple(batch_offsets),
            self._boundary,
            encoded=() if encoded is None else (encoded,),
        )
