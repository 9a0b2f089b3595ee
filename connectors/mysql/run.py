"""One run of a task: connect, find the position, and read from there until something fails."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.api import Batch
from connectors.debezium_metrics import Behind, Labelled
from connectors.errors import Fatal, MillraceError, Retriable, Skippable
from connectors.mysql import events, metrics
from connectors.mysql.config.filters import MySqlTableFilter
from connectors.mysql.config.settings import (
    connection_settings,
    event_settings,
    gtid_source,
    heartbeat_settings,
    replica_settings,
    snapshot_settings,
    stream_settings,
    value_options,
)
from connectors.mysql.events.contract import EventContext
from connectors.mysql.events.headers import context_headers
from connectors.mysql.events.heartbeats import MySqlHeartbeats
from connectors.mysql.events.schema_changes import SchemaChanges
from connectors.mysql.events.transactions import Transactions
from connectors.mysql.events.ums_signals import MySqlUmsSignals
from connectors.mysql.schema.known_tables import KnownTables
from connectors.mysql.schema.tables import StreamTables, TableSelection
from connectors.mysql.schema.versions import VersionBook
from connectors.mysql.snapshots import RunSnapshots
from connectors.mysql.source import connection, event_types, gtid
from connectors.mysql.source.binlog import BinlogClient, PurgedError
from connectors.mysql.source.server import SourceServer
from connectors.mysql.stream import lag, positions, shards, signals, start
from connectors.mysql.stream.begin import Beginning, find_start
from connectors.mysql.stream.binlog_stream import BinlogStream
from connectors.mysql.stream.counters import StreamCounters
from connectors.mysql.stream.cursor import BinlogCursor
from connectors.mysql.stream.heartbeat import HeartbeatWriter, parse
from connectors.mysql.stream.latency import HeartbeatLatency, TableLags
from connectors.mysql.stream.options import StreamListener, StreamOptions
from connectors.mysql.stream.positions import file_number
from connectors.mysql.stream.promises import HeartbeatPromises
from connectors.mysql.stream.signals import KafkaSignals, Signal, parse_row
from connectors.mysql.stream.start import ConnectionStart
from connectors.snapshot.requests import INITIAL

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from connectors.api import Instruction, Position, SourceRecord, TaskContext
    from connectors.mysql.model import RowSource
    from connectors.mysql.schema.tables import MySqlTableState
    from connectors.mysql.snapshot.model import SnapshotChunk
    from connectors.mysql.source.connection import ServerInfo
    from connectors.mysql.source.statements import SqlStatement

#: How often numbers are reported, and positions of quiet times saved.
_REPORT_S: Final = 1.0
#: Events after which there is nothing to hand over that was not there before: half of those of a transaction of one row.
_HERALDS: Final = frozenset({event_types.GTID, event_types.MARIADB_GTID, event_types.TABLE_MAP})
#: What is received at once: about 10 ms of work.
_READ_BYTES: Final = 1 << 18
#: How often latency is reported.
_LAG_S: Final = 5.0
#: How often the server is asked for its binlogs.
_WATCH_S: Final = 10.0
#: Pause before a read of the signal topic is retried.
_SIGNAL_RETRY_S: Final = 5.0


class MySqlRun:
    """The state that belongs to one connection to the source. ``batches`` may be called once."""

    def __init__(self, context: TaskContext, newer: Sequence[tuple[Position, Position | None]] = ()) -> None:
        """Does not block; ``newer`` are offsets that replace the saved ones (None: the offset was deleted)."""
        self._context = context
        self._offsets = [
            (partition, offset)
            for partition, offset in context.offsets.items()
            if all(partition != newer_partition for newer_partition, _ in newer)
        ]
        self._offsets += [(partition, offset) for partition, offset in newer if offset is not None]
        self._log = context.log
        config = context.config
        self._settings = stream_settings(config)
        self._connection = connection_settings(config)
        self._server = SourceServer(self._connection)
        self._client: BinlogClient | None = None
        self._heartbeat_settings = heartbeat_settings(config)
        self.latency = HeartbeatLatency(self._heartbeat_settings.late_s)
        self._lags = TableLags()
        self._writer: HeartbeatWriter | None = None
        self._pulls: RunSnapshots | None = None
        self._instructions: Sequence[Instruction] = ()
        self._counters = StreamCounters(self._lags)
        self._behind_source = Behind()
        #: Where numbers go once it is known what kind of server it is.
        self._metrics: Labelled | None = None
        self._partition = start.stream_partition(self._settings.prefix, self._settings.shard)
        self._statements: list[tuple[SqlStatement, RowSource]] = []
        self._reported = self._told = 0.0
        self._lag: Position = {}
        self._saved: Position = {}
        #: What is committed: (file number, position).
        self._durable = (0, 0)
        self._atomic = context.transaction_boundary == "connector"
        #: Where the stream must continue because of a signal: the run ends then.
        self.moved_to: signals.SignalPosition | None = None
        self._signals: MySqlUmsSignals | None = None
        self._promises: HeartbeatPromises | None = None
        self._channel: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        #: Bytes of the binlog that were not read when that was last asked; None: unknown.
        self._behind: int | None = None

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """The operator's standing requests, complete. Does not block."""
        self._instructions = instructions
        if self._pulls is not None:
            self._pulls.instruct(instructions)

    def committed(self, offsets: Sequence[tuple[Position, Position]]) -> None:
        """Positions have become durable."""
        for partition, offset in offsets:
            if partition == self._partition and offset.get("file"):
                self._durable = (file_number(offset["file"]), offset["pos"])
        self.latency.acknowledged(lambda mark: mark <= self._durable)

    async def close(self) -> None:
        """Release everything; may be repeated."""
        if self._channel is not None:
            self._channel.cancel()
            await asyncio.gather(self._channel, return_exceptions=True)
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        for part in (self._writer, self._promises, self._pulls, self._client, self._server):
            if part is not None:
                await part.close()
        if self._metrics is not None:
            numbers, self._metrics = self._metrics, None
            metrics.report_stopped(numbers)

    # The beginning.

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """See ``SourceTask.batches``."""
        info = await self._server.info()
        await self._server.stay(info.address)
        try:
            run_start = await find_start(self._settings, self._offsets, self._server, info)
            client = await self._open_client(info, run_start)
        except PurgedError as error:
            if not self._settings.plan.on_purged:
                raise
            self._log.warning("%s; the tables are read again (snapshot.mode=when_needed)", error)
            self._offsets = [
                (partition, offset)
                for partition, offset in self._offsets
                if not (start.is_stream(self._settings.prefix, partition) or partition.get(start.SNAPSHOT) == INITIAL)
            ]
            run_start = await find_start(self._settings, self._offsets, self._server, info)
            client = await self._open_client(info, run_start)
        stream, cursor = self._prepare_stream(info, run_start, client)
        pulls = self._pulls = self._make_pulls(info, run_start, cursor)
        pulls.instruct(self._instructions)
        await pulls.start()
        self._start_heartbeats()
        if self._promises is not None:
            self._promises.start()
        self._watch = asyncio.create_task(self._watch_binlog(cursor))
        settings = self._settings
        if "kafka" in settings.channels and settings.signal_brokers:
            group = (
                f"{settings.signal_group}-{settings.prefix}-{shards.format_shard(settings.shard).replace('/', '-of-')}"
            )
            self._channel = asyncio.create_task(
                self._kafka_signals(
                    KafkaSignals(settings.signal_brokers, settings.signal_topic, group, settings.prefix)
                )
            )
        yield Batch([], offsets=((self._partition, cursor.now()), *pulls.first_offsets(), *pulls.decided()))
        async for batch in self._stream_batches(client, stream, cursor, pulls):
            yield batch

    async def _open_client(self, info: ServerInfo, run_start: Beginning) -> BinlogClient:
        # A position is valid only on the server that reported it; with GTIDs any of the servers can continue.
        target = self._connection if run_start.by_gtid else msgspec.structs.replace(self._connection, host=info.address)
        client = self._client = BinlogClient(
            target,
            run_start.place,
            use_gtid=run_start.by_gtid,
            log=self._log,
            annotate=self._settings.query,
            read_bytes=_READ_BYTES,
        )
        stream_info = await client.start()
        if stream_info.flavor != info.flavor:
            raise Fatal(
                f"{stream_info.address} is {stream_info.flavor}, the server that answered questions is {info.flavor}: "
                "database.hostname must name copies of one server"
            )
        # Positions and definitions are those of this server from now on; with another one a new run begins.
        self._connection = msgspec.structs.replace(self._connection, host=str(client.address))
        await self._server.stay(str(client.address))
        return client

    def _prepare_stream(
        self, info: ServerInfo, run_start: Beginning, client: BinlogClient
    ) -> tuple[BinlogStream, BinlogCursor]:
        settings, config = self._settings, self._context.config
        reached = client.info or info
        same = not client.by_gtid or (run_start.same_server and reached.server_id == info.server_id)
        executed = (
            gtid.parse_gtids(info.flavor, run_start.place.gtids) if run_start.place.gtids or info.mariadb else None
        )
        cursor = BinlogCursor(run_start.start, run_start.place, reached.server_id, executed)
        self._event_settings = event_settings(config, info.flavor)
        self._options = value_options(config, info.flavor)
        self._metrics = Labelled(self._context.metrics, info.flavor, settings.prefix, metrics.CONTEXTS)
        self._filter = MySqlTableFilter(self._event_settings)
        self._transactions = (
            Transactions(self._event_settings, self._partition) if self._event_settings.transactions else None
        )
        if self._transactions is not None:
            own_offsets = [offset for partition, offset in self._offsets if partition == self._partition]
            self._transactions.load(own_offsets[-1] if own_offsets else {})
        self._held = events.make_holder(self._event_settings)
        self._headers = context_headers(self._event_settings, self._context.task, str(uuid.uuid4()))
        first = settings.shard.index == 0
        self._schema_changes = (
            SchemaChanges(self._event_settings, self._partition, self._headers)
            if self._event_settings.schema_changes and first
            else None
        )
        self._heartbeats = MySqlHeartbeats(self._event_settings, self._partition)
        if self._event_settings.output_format == "ums":
            self._signals = MySqlUmsSignals(self._event_settings, self._partition, settings.shard)
            if settings.heartbeat_s:
                self._promises = HeartbeatPromises(self._server, info, settings.heartbeat_s, self._log)
        self._versions = VersionBook(settings.prefix, settings.version_topic, self._offsets, owner=lambda _name: first)
        self._history = metrics.SchemaHistory(self._versions.known)
        special = {}
        if settings.signal_table is not None:
            special[settings.signal_table] = "signal"
        if settings.heartbeat_table is not None:
            special[settings.heartbeat_table] = "heartbeat"
        apart = self._atomic or settings.rollback_rows > 0
        context = EventContext(
            settings=self._event_settings,
            partition=self._partition,
            transactions=self._transactions,
            held_rows=self._held,
            headers=self._headers,
            signals=self._signals,
        )
        self._tables = StreamTables(
            TableSelection(self._filter, special, settings.shard),
            context,
            self._options,
            self._versions,
            self._server.definitions,
            self._log,
            lenient=settings.inconsistent != "fail",
            wire=None if apart else self._context.wire,  # rows that are bytes can't be held back
        )
        stream = BinlogStream(
            cursor,
            ConnectionStart(run_start.start, run_start.place, same),
            self._tables,
            context,
            StreamOptions(
                wants_gtid=gtid_source(settings) if settings.gtid_filter else None,
                queries=settings.query,
                keep_going=settings.failures != "fail",
                apart=apart,
            ),
            StreamListener(self._special_rows, self._handle_statement),
            self._counters,
            self._log,
        )
        return stream, cursor

    def _make_pulls(self, info: ServerInfo, run_start: Beginning, cursor: BinlogCursor) -> RunSnapshots:
        replica = replica_settings(self._context.config)
        prefix, shard = self._settings.prefix, self._settings.shard
        known_tables = KnownTables(
            prefix,
            shard,
            run_start.start.layout,
            self._offsets,
            self._filter.matches,
            fold=info.variables.get("lower_case_table_names", "0") != "0",
        )
        settings = replica or self._connection
        return RunSnapshots(
            settings=self._settings,
            options=snapshot_settings(self._context.config),
            shard=self._settings.shard,
            connect_to=lambda: connection.connect_first(settings),
            server=self._server,
            tables=self._tables,
            is_captured=self._filter.matches,
            offsets=self._offsets,
            initial=run_start.initial,
            cursor=cursor,
            flavor=info.flavor,
            by_gtid=replica is not None,
            known_tables=known_tables,
            signals=self._signals,
            metrics=self._metrics or self._context.metrics,
            log=self._log,
        )

    def _start_heartbeats(self) -> None:
        if self._heartbeat_settings.enabled and self._settings.shard.index == 0:
            self._writer = HeartbeatWriter(
                lambda: connection.connect_first(self._connection), self._heartbeat_settings, self._log, self.latency
            )
            self._writer.start()

    # The stream.

    async def _stream_batches(
        self, client: BinlogClient, stream: BinlogStream, cursor: BinlogCursor, pulls: RunSnapshots
    ) -> AsyncGenerator[Batch, None]:
        settings = self._settings
        stream.attach(pulls.puller, pulls.reached, pulls.emit_early)
        max_records, held_rows, output = settings.max_batch, self._held, stream.output
        encoded = output.encoded
        accept, watched = stream.accept, pulls.puller.watched
        heralds = _HERALDS if held_rows is None else frozenset()
        beat = time.monotonic()
        reading: asyncio.Task[None] | None = None
        try:
            while True:
                pulls.begin_scheduled()
                await pulls.agree()
                raws = client.take()
                if not raws:
                    reading = reading or asyncio.ensure_future(client.wait())
                    await pulls.wait_for(reading, settings.poll_s)
                    if reading.done():
                        reading.result()
                        reading = None
                    raws = client.take()
                else:
                    await asyncio.sleep(0)  # a long run of skipped events must not block other tasks
                for raw in raws:
                    if (unfinished := accept(raw)) is not None:
                        await unfinished
                    elif raw[4] in heralds:
                        continue
                    waiting = len(output.records) + encoded.count + (0 if held_rows is None else held_rows.rows)
                    if waiting >= max_records and (batch := self._full_batch(stream, cursor)) is not None:
                        yield batch
                    if self._statements:
                        self._schema_records(stream, cursor)
                    if watched and not cursor.open:
                        # Also in the middle of a read: a busy stream may never end one between two transactions.
                        for batch in self._chunk_batches(stream, cursor, pulls):
                            yield batch
                if not client.pending and (batch := self._flush_batch(stream, cursor)) is not None:
                    yield batch
                if not cursor.open:
                    for batch in self._chunk_batches(stream, cursor, pulls):
                        yield batch
                    if changes := pulls.changes():
                        yield Batch([], offsets=changes, transaction=self._transaction_mark())
                idle = not cursor.open and not self._has_pending(stream)
                if self.moved_to is not None and idle:
                    yield self._batch_alone(self._offset_elsewhere(cursor, self.moved_to))
                    return
                if idle and (records := pulls.records()):
                    yield Batch(records, transaction=self._transaction_mark())
                now = time.monotonic()
                if settings.heartbeat_s and now - beat >= settings.heartbeat_s and idle:
                    beat = now
                    offset = cursor.now()
                    yield self._batch_alone(offset, self._heartbeats.record(offset))
                if idle and (beats := self._make_heartbeats(cursor, pulls)):
                    yield self._batch_alone(cursor.now(), *beats)
                if now - self._reported >= _REPORT_S:
                    self._reported = now
                    self._report_metrics(client, cursor, pulls)
                    if (batch := self._quiet_offset(stream, cursor)) is not None:
                        yield batch
                    if idle and now - self._told >= _LAG_S:
                        self._told = now
                        if (lag_offset := self._lag_offset()) is not None:
                            yield Batch([], offsets=(lag_offset,), transaction=self._transaction_mark())
                    if not settings.plan.stream and pulls.finished and idle:
                        if records := pulls.records(last=True):
                            yield Batch(records, transaction=self._transaction_mark())
                        self._log.info("the full pull is done, and snapshot.mode asks for nothing more")
                        return
        finally:
            if reading is not None:
                reading.cancel()

    def _make_heartbeats(self, cursor: BinlogCursor, pulls: RunSnapshots) -> list[SourceRecord]:
        """Heartbeats of the tables' namespaces, where there are any to be sent."""
        if self._promises is None or self._signals is None or (time_us := self._promises.due(pulls.reached)) is None:
            return []
        offset = cursor.now()
        return [
            self._signals.heartbeat(name, self._versions.current(name), time_us, offset) for name in pulls.streamed()
        ]

    def _batch_alone(self, offset: Position, *records: SourceRecord) -> Batch:
        """A batch between transactions."""
        self._saved = offset
        batch_records, offsets = self._with_versions(list(records), [(self._partition, offset)])
        return Batch(batch_records, offsets=tuple(offsets), transaction=self._transaction_mark())

    @staticmethod
    def _offset_elsewhere(cursor: BinlogCursor, to: signals.SignalPosition) -> Position:
        """The offset of the place that a signal names."""
        offset = {
            name: value for name, value in cursor.now().items() if name not in {"file", "pos", "gtids", start.DONE}
        }
        if to.gtids:
            # The file means nothing then: by GTIDs the server finds the place itself.
            return {**offset, "file": cursor.file, "pos": cursor.pos, "gtids": to.gtids, start.SOURCE_SERVER: 0}
        return {**offset, "file": to.file, "pos": to.pos}

    def _transaction_mark(self) -> Any:
        return "commit" if self._atomic else ""

    def _has_pending(self, stream: BinlogStream) -> bool:
        return stream.output.pending

    def _full_batch(self, stream: BinlogStream, cursor: BinlogCursor) -> Batch | None:
        """A batch while the events of one read still come."""
        output = stream.output
        output.flush_held()
        hold = max(self._settings.rollback_rows, self._settings.max_batch if self._atomic else 0)
        if cursor.open and hold and output.settled:
            # Only what belongs to finished transactions.
            return self._make_batch(stream, cursor, output.settled, cursor.offset(0, 0, 0))
        # A message has many rows: messages don't wait for one another.
        waiting = len(output.records) + output.encoded.count
        if cursor.open and waiting < (max(hold, self._settings.max_batch) if self._held is None else hold):
            return None
        return self._make_batch(stream, cursor, len(output.records), None if cursor.open else cursor.now())

    def _flush_batch(self, stream: BinlogStream, cursor: BinlogCursor) -> Batch | None:
        """A batch of what is there, when nothing more comes at once."""
        output = stream.output
        output.flush_held()
        if not output.records and not output.encoded.count and not output.bad:
            return None
        if cursor.open and (self._atomic or self._settings.rollback_rows > len(output.records)):
            offset = cursor.offset(0, 0, 0)
            return self._make_batch(stream, cursor, output.settled, offset) if output.settled else None
        return self._make_batch(stream, cursor, len(output.records), None if cursor.open else cursor.now())

    def _make_batch(self, stream: BinlogStream, cursor: BinlogCursor, count: int, offset: Position | None) -> Batch:
        output, settled = stream.output, offset is not None
        records, bad = output.take(count)
        encoded = output.encoded.collect()
        offsets: list[tuple[Position, Position | None]] = []
        if encoded and offset is None:
            # Records tell their own positions, bytes don't; the open transaction's are behind its last event.
            offsets.append((self._partition, cursor.now()))
        if offset is not None and offset != self._saved:
            self._saved = offset
            offsets.append((self._partition, offset))
        complete, offsets = self._with_versions(records, offsets)
        for part in encoded if len(complete) > len(records) else ():
            part.after += len(complete) - len(records)  # versions come first
        self.latency.yielded()
        return Batch(complete, bad, tuple(offsets), "commit" if self._atomic and settled else "", encoded=encoded)

    def _with_versions(
        self,
        records: list[SourceRecord],
        offsets: list[tuple[Position, Position | None]],
    ) -> tuple[list[SourceRecord], list[tuple[Position, Position | None]]]:
        versions, books = self._versions.take()
        decided = self._pulls.decided() if self._pulls is not None else ()
        if versions or books or decided:
            return [*versions, *records], [*offsets, *books, *decided]
        return records, offsets

    def _quiet_offset(self, stream: BinlogStream, cursor: BinlogCursor) -> Batch | None:
        """The position, after events that were all skipped."""
        if self._has_pending(stream) or cursor.open:
            return None
        offset = cursor.now()
        records, offsets = self._with_versions([], [])
        if (
            not records
            and not offsets
            and all(offset.get(name) == self._saved.get(name) for name in ("file", "pos", "gtids"))
        ):
            return None
        self._saved = offset
        self.latency.yielded()
        return Batch(records, offsets=((self._partition, offset), *offsets), transaction=self._transaction_mark())

    def _lag_offset(self) -> tuple[Position, Position] | None:
        """Return the latency that REST reports, if it has changed."""
        offset = lag.lag_offset(self.latency, self._lags)
        if {**offset, "ts_ms": 0} == {**self._lag, "ts_ms": 0}:
            return None
        self._lag = offset
        return lag.lag_partition(self._settings.prefix, self._settings.shard), offset

    # What is not rows of tables.

    def _special_rows(self, state: MySqlTableState, op: str, rows: list[Any], at: str, written_s: int) -> None:
        if state.kind == "heartbeat":
            for row in rows[1::2] if op == "u" else rows if op == "c" else ():
                heartbeat = parse(row)
                if heartbeat.source == self._settings.prefix:
                    file, _, pos = at.rpartition(":")
                    self.latency.read(heartbeat.sent_us, (file_number(file), int(pos)))
        elif op == "c":
            for row in rows:
                try:
                    signal = parse_row(row, at, written_s * 1000)
                    if signal is not None:
                        self._obey_signal(signal)
                except Skippable as error:
                    self._log.warning("a signal is ignored: %s", error)

    def _obey_signal(self, signal: Signal) -> None:
        if self._pulls is None:
            return
        outcome = self._pulls.signal(signal)
        if outcome.message:
            self._log.info("%s", outcome.message.replace("{}", str(self._saved)))
        self.moved_to = outcome.position or self.moved_to

    async def _kafka_signals(self, channel: KafkaSignals) -> None:
        """Carry out the signals of the topic; retry where it can't be read."""
        while True:
            try:
                await channel.start()
                while True:
                    for signal in await channel.read():
                        try:
                            self._obey_signal(signal)
                        except Skippable as error:
                            self._log.warning("a signal is ignored: %s", error)
                    await channel.commit()
            except Retriable as error:
                self._log.warning("%s; trying again", error)
                await asyncio.sleep(_SIGNAL_RETRY_S)
            finally:
                await channel.close()

    async def _handle_statement(self, statement: SqlStatement, source: RowSource) -> None:
        if statement.changes_structure or statement.kind == "truncate":
            captured = [name for name in statement.tables if self._filter.matches(name)]
            if captured and statement.kind != "truncate":
                self._history.applied(str(name) for name in captured)
            if captured and (statement.kind == "truncate" or self._schema_changes is not None):
                await self._tables.read(captured)
            if self._pulls is not None:
                await self._pulls.altered(statement)
            self._statements.append((statement, source))

    def _schema_records(self, stream: BinlogStream, cursor: BinlogCursor) -> None:
        output = stream.output
        waiting, self._statements = self._statements, []
        for statement, source in waiting:
            gone = [name for name in statement.gone if self._filter.matches(name)]
            if gone and self._signals is not None:
                output.flush_held()
                output.records += [
                    self._signals.ended(name, self._versions.current(name), source.ts_us, cursor.now()) for name in gone
                ]
            source.thread = None  # as Debezium: only rows tell their connection
            for name in statement.tables if statement.kind == "truncate" else ():
                state = self._tables.of(name)
                if state is not None and state.owned:
                    state.events.truncate(source, cursor.now(), output.records)
            if self._schema_changes is None or statement.kind == "truncate" or not self._about_captured(statement):
                continue
            output.flush_held()
            output.records.append(
                self._schema_changes.record(
                    source,
                    statement.database,
                    statement.text,
                    self._tables.changes(statement),
                    cursor.now(),
                    table="" if statement.kind == "index" else None,
                )
            )
        if not cursor.open:
            output.settled = len(output.records)

    def _about_captured(self, statement: SqlStatement) -> bool:
        if statement.tables:
            return any(self._filter.matches(name) for name in statement.tables)
        return self._filter.database(statement.database)

    # Snapshots.

    def _chunk_batches(self, stream: BinlogStream, cursor: BinlogCursor, pulls: RunSnapshots) -> Iterator[Batch]:
        """Batches of the chunks whose place the stream has reached, after what the stream has given before."""
        while (chunk := pulls.ready()) is not None:
            if (batch := self._flush_batch(stream, cursor)) is not None:
                yield batch
            yield self._chunk_batch(chunk, cursor, pulls)

    def _chunk_batch(self, chunk: SnapshotChunk, cursor: BinlogCursor, pulls: RunSnapshots) -> Batch:
        records: list[SourceRecord] = []
        offset = cursor.now()
        encoded = pulls.emit(chunk, offset, records)
        offsets: list[tuple[Position, Position | None]] = list(pulls.done(chunk))
        if encoded is not None:
            offsets.insert(0, (self._partition, offset))  # records have it themselves
        batch_records, batch_offsets = self._with_versions(records, offsets)
        if encoded is not None:
            encoded.after = len(batch_records)
        bad = pulls.bad(chunk, self._partition, cursor.now())
        self._counters.snapshot_bad += len(bad)
        return Batch(
            batch_records,
            bad,
            tuple(batch_offsets),
            self._transaction_mark(),
            encoded=() if encoded is None else (encoded,),
        )

    # Numbers.

    async def _watch_binlog(self, cursor: BinlogCursor) -> None:
        """Ask now and then how much of the binlog there is."""
        while True:
            try:
                self._behind = positions.bytes_behind(cursor.place(), await self._server.logs())
            except MillraceError as error:
                self._log.debug("the server does not tell its binlogs: %s", error)
            await asyncio.sleep(_WATCH_S)

    def _report_metrics(self, client: BinlogClient, cursor: BinlogCursor, pulls: RunSnapshots) -> None:
        if self._metrics is None:
            return
        metrics.report_task(
            self._metrics,
            counters=self._counters,
            cursor=cursor,
            client=client,
            latency=self.latency.numbers(),
            pulls=pulls.progress(),
            behind=self._behind_source,
            keep_going=self._settings.failures != "fail",
            behind_bytes=self._behind,
        )
        self._history.report(self._metrics)
