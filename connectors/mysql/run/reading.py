"""The reading of the stream, next to snapshots, heartbeats and signals, until something fails or the run ends."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from connectors.mysql.source import event_types

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from connectors.api import Batch
    from connectors.mysql.model import StreamSettings
    from connectors.mysql.run.batching import BatchMaker
    from connectors.mysql.run.heartbeats import RunHeartbeats
    from connectors.mysql.run.reporting import RunReport
    from connectors.mysql.run.signalling import RunSignals
    from connectors.mysql.run.statements import RunStatements
    from connectors.mysql.source.binlog import BinlogClient
    from connectors.mysql.stream.binlog_stream import BinlogStream

#: Events after which there is nothing to hand over that was not there before: half of those of a transaction of one row.
_HERALDS: Final = frozenset({event_types.GTID, event_types.MARIADB_GTID, event_types.TABLE_MAP})


class StreamReading:
    """Reads from an open source. ``read`` may be called once.

    Args:
        settings: of the stream.
        client: receives events.
        stream: turns them into records.
        batches: makes batches, also of snapshots.
        statements: takes statements.
        signals: takes signals.
        heartbeats: sends heartbeats.
        report: reports numbers.
    """

    def __init__(
        self,
        settings: StreamSettings,
        client: BinlogClient,
        stream: BinlogStream,
        batches: BatchMaker,
        statements: RunStatements,
        signals: RunSignals,
        heartbeats: RunHeartbeats,
        report: RunReport,
    ) -> None:
        self.snapshots = batches.snapshots
        self.signals = signals
        self._settings = settings
        self._client = client
        self._stream = stream
        self._cursor = stream.cursor
        self._batches = batches
        self._statements = statements
        self._heartbeats = heartbeats
        self._report = report
        #: Events that were received before the first batch.
        self._received: list[bytes] = []
        self._ended = False

    @property
    def file(self) -> str:
        """The binlog file that is read."""
        return self._cursor.file

    async def start(self) -> Batch:
        """Start what runs in the background; return the first batch.

        Raises:
            Retriable: the server is unavailable.
            ConfigInvalid: it refuses the account.
        """
        # The first event says where in its files the server begins: after a failover the position was another server's until
        # then, with which no view of this one may be compared.
        self._received = self._client.take()
        if self._received and self._received[0][4] == event_types.ROTATE:
            await self._stream.feed(self._received.pop(0))
        await self.snapshots.start()
        self._heartbeats.start()
        self._report.start(self._cursor)
        self.signals.start()
        return self._batches.begin(self._cursor)

    async def close(self) -> None:
        """Stop what runs in the background; may be repeated."""
        await self.signals.close()
        await self._report.close()
        await self._heartbeats.close()
        await self.snapshots.close()

    async def read(self) -> AsyncGenerator[Batch, None]:
        """See ``SourceTask.batches``."""
        snapshots, client, stream, cursor = self.snapshots, self._client, self._stream, self._cursor
        stream.attach(snapshots.reader, snapshots.reached, snapshots.emit_early)
        held_rows, output, statements = self._batches.held_rows, stream.output, self._statements
        max_records, encoded = self._settings.max_batch, output.encoded
        accept, watched = stream.accept, snapshots.reader.watched
        heralds = _HERALDS if held_rows is None else frozenset()
        reading: asyncio.Task[None] | None = None
        try:
            while not self._ended:
                snapshots.begin_scheduled()
                await snapshots.agree()
                raws, self._received = self._received or client.take(), []
                if not raws:
                    reading = reading or asyncio.ensure_future(client.wait())
                    await snapshots.wait_for(reading, self._settings.poll_s)
                    if reading.done():
                        reading.result()
                        reading = None
                    raws = client.take()
                else:
                    await asyncio.sleep(0)  # a long run of skipped events must not block other tasks
                for raw in raws:
                    if (unfinished := accept(raw)) is not None:
                        await unfinished
                        async for partial_batch in self._take_parts():
                            yield partial_batch
                            del partial_batch
                    elif raw[4] in heralds:
                        continue
                    if statements.waiting:
                        statements.make_records(stream)  # before a batch may save the position behind them
                    waiting = len(output.records) + encoded.count + (0 if held_rows is None else held_rows.rows)
                    if waiting >= max_records and (batch := self._batches.fill(stream)) is not None:
                        yield batch
                        del batch  # not kept while the next one is waited for
                    if watched and not cursor.open:
                        # Also in the middle of a read: a busy stream may never end one between two transactions.
                        for batch in self._batches.take_chunks(stream):
                            yield batch
                            del batch
                for batch in self._finish_read():
                    yield batch
                    del batch
        finally:
            if reading is not None:
                reading.cancel()

    def leave_file(self, file: str) -> Batch | None:
        """The batch that lets the next run begin with ``file``, because the present one has no end.

        Raises:
            Fatal: a part of the transaction that has no end was sent.
        """
        self._stream.leave_file(file)
        return self._batches.flush(self._stream) or self._batches.save_quiet_position(self._stream)

    async def _take_parts(self) -> AsyncGenerator[Batch, None]:
        """Batches of a compressed transaction, of which the stream has taken a part."""
        stream, output, held_rows = self._stream, self._stream.output, self._batches.held_rows
        while stream.unfinished:
            if self._statements.waiting:
                self._statements.make_records(stream)
            waiting = len(output.records) + output.encoded.count + (0 if held_rows is None else held_rows.rows)
            if waiting >= self._settings.max_batch and (batch := self._batches.fill(stream)) is not None:
                yield batch
            await asyncio.sleep(0)
            await stream.proceed()

    def _finish_read(self) -> Iterator[Batch]:
        """All events that were received are done: what is there is sent, and what is due besides."""
        batches, snapshots, cursor = self._batches, self.snapshots, self._cursor
        if not self._client.pending and (batch := batches.flush(self._stream)) is not None:
            yield batch
        if not cursor.open:
            yield from batches.take_chunks(self._stream)
            if changes := snapshots.changes():
                yield batches.save_offsets(*changes)
        idle = not cursor.open and not self._stream.output.pending
        signals = self.signals
        if idle and signals.moved_to is not None:
            yield batches.move(cursor, signals.moved_to, signals.moved_by, signals.moved_by_record)
            self._ended = True
            return
        now = time.monotonic()
        if idle:
            yield from self._use_pause(now)
        if self._report.send(now, self._client, cursor, snapshots):
            if (saved := batches.save_quiet_position(self._stream)) is not None:
                yield saved
            if idle and (lag_offset := self._report.lag_offset(now)) is not None:
                yield batches.save_offsets(lag_offset)
            if idle and not self._settings.plan.stream and snapshots.finished:
                if records := snapshots.records(last=True):
                    yield batches.send_records(records)
                self._ended = True

    def _use_pause(self, now: float) -> Iterator[Batch]:
        """Nothing waits: records that are no rows may be sent."""
        if records := self.snapshots.records():
            yield self._batches.send_records(records)
        if self._heartbeats.is_due(now):
            offset = self._cursor.now()
            yield self._batches.add_records(offset, self._heartbeats.make_record(offset))
        if records := self._heartbeats.make_table_records(self._cursor, self.snapshots):
            yield self._batches.add_records(self._cursor.now(), *records)
