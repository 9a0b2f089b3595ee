"""One run of a task: connect, find the position, and read from there until something fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.debezium_metrics import Labelled
from connectors.errors import Retriable
from connectors.mysql import metrics
from connectors.mysql.config.settings import (
    connection_settings,
    gtid_source,
    heartbeat_settings,
    replica_settings,
    snapshot_settings,
    stream_settings,
)
from connectors.mysql.position import start
from connectors.mysql.position.cursor import BinlogCursor
from connectors.mysql.position.positions import file_number, next_log
from connectors.mysql.position.promises import HeartbeatPromises
from connectors.mysql.run.batching import BatchMaker
from connectors.mysql.run.file_ends import FileEnds
from connectors.mysql.run.heartbeats import RunHeartbeats
from connectors.mysql.run.opening import OpenedSource, RunSource
from connectors.mysql.run.reading import StreamReading
from connectors.mysql.run.records import RunRecords, make_records
from connectors.mysql.run.reporting import RunReport
from connectors.mysql.run.signalling import RunSignals
from connectors.mysql.run.statements import RunStatements
from connectors.mysql.schema.known_tables import KnownTables
from connectors.mysql.snapshot.tables import SnapshotAccess, SnapshotTables, StreamPosition
from connectors.mysql.snapshots import RunSnapshots
from connectors.mysql.source import connection, gtid
from connectors.mysql.source.binlog import TornFileError
from connectors.mysql.stream.binlog_stream import BinlogStream
from connectors.mysql.stream.counters import StreamCounters
from connectors.mysql.stream.heartbeat import HeartbeatWriter
from connectors.mysql.stream.latency import HeartbeatLatency
from connectors.mysql.stream.options import StreamListener, StreamOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import Batch, Instruction, Position, TaskContext
    from connectors.mysql.stream.signals import SignalPosition


class MySqlRun:
    """The state that belongs to one connection to the source. ``batches`` may be called once.

    Attributes:
        latency: of heartbeats.
    """

    def __init__(self, context: TaskContext, newer: Sequence[tuple[Position, Position | None]] = ()) -> None:
        """Does not block; ``newer`` are offsets that replace the saved ones (None: the offset was deleted)."""
        self._context = context
        self._offsets = [
            (partition, offset)
            for partition, offset in context.offsets.items()
            if all(partition != newer_partition for newer_partition, _ in newer)
        ]
        self._offsets += [(partition, offset) for partition, offset in newer if offset is not None]
        self._settings = stream_settings(context.config)
        self._heartbeat_settings = heartbeat_settings(context.config)
        self._partition = start.stream_partition(self._settings.prefix, self._settings.shard)
        self._source = RunSource(connection_settings(context.config), self._settings, context.log)
        self.latency = HeartbeatLatency(self._heartbeat_settings.late_s)
        self._instructions: Sequence[Instruction] = ()
        self._reading: StreamReading | None = None
        #: What is committed: (file number, position).
        self._durable = (0, 0)

    @property
    def moved_to(self) -> SignalPosition | None:
        """Where the stream must continue because of a signal: the run ends then."""
        return None if self._reading is None else self._reading.signals.moved_to

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """The operator's standing requests, complete. Does not block."""
        self._instructions = instructions
        if self._reading is not None:
            self._reading.snapshots.instruct(instructions)

    def committed(self, offsets: Sequence[tuple[Position, Position]]) -> None:
        """Positions have become durable."""
        for partition, offset in offsets:
            if partition == self._partition and offset.get("file"):
                self._durable = (file_number(offset["file"]), offset["pos"])
        self.latency.acknowledged(lambda position: position <= self._durable)
        if self._reading is not None:
            self._reading.signals.committed(offsets)

    async def close(self) -> None:
        """Release everything; may be repeated."""
        if self._reading is not None:
            await self._reading.close()
        await self._source.close()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """See ``SourceTask.batches``."""
        reading = self._reading = self._prepare(await self._source.open(self._offsets))
        reading.snapshots.instruct(self._instructions)
        yield await reading.start()
        try:
            async for batch in reading.read():
                yield batch
                del batch  # not kept while the next one is waited for
        except TornFileError as error:
            file = reading.file
            next_file = next_log(file, [other for other, _ in await self._source.server.logs()])
            if next_file is None:
                raise  # the server has not been started since
            if (last := reading.leave_file(next_file)) is not None:
                yield last
            raise Retriable(
                f"{file} ends in the middle of a write, because the server broke down: the stream continues in {next_file}"
            ) from error
        if self.moved_to is None:
            self._context.log.info("the snapshot is done, and snapshot.mode asks for nothing more")

    def _prepare(self, opened: OpenedSource) -> StreamReading:
        context, settings, log = self._context, self._settings, self._context.log
        atomic = context.transaction_boundary == "connector"
        options = StreamOptions(
            wants_gtid=gtid_source(settings) if settings.gtid_filter else None,
            queries=settings.query,
            keep_going=settings.failures != "fail",
            fold_names=opened.info.stores_lower_case,
            apart=atomic or settings.rollback_rows > 0,
        )
        records = make_records(context, settings, opened, self._source.server, apart=options.apart)
        cursor = _make_cursor(opened)
        numbers = Labelled(context.metrics, opened.info.flavor, settings.prefix, metrics.CONTEXTS)
        counters = StreamCounters()
        history = metrics.SchemaHistory(records.versions.version_count)
        snapshots = self._make_snapshots(opened, records, cursor, numbers)
        batches = BatchMaker(settings, records, snapshots, self.latency, counters, atomic=atomic)
        statements = RunStatements(records, snapshots, history)
        signals = RunSignals(settings, batches, self.latency, cursor, log)
        stream = BinlogStream(
            cursor,
            start.ConnectionStart(opened.begin.start, opened.begin.position, opened.same_server),
            records.tables,
            records.context,
            options,
            StreamListener(
                signals.take_rows,
                statements.take_statement,
                FileEnds(self._source.server).complete_transactions if opened.info.mariadb else None,
            ),
            counters,
            log,
        )
        return StreamReading(
            settings,
            opened.client,
            stream,
            batches,
            statements,
            signals,
            self._make_heartbeats(opened, records),
            RunReport(settings, numbers, self.latency, counters, history, self._source.server, log),
        )

    def _make_snapshots(
        self, opened: OpenedSource, records: RunRecords, cursor: BinlogCursor, numbers: Labelled
    ) -> RunSnapshots:
        replica = replica_settings(self._context.config)
        settings, info = self._settings, opened.info
        known_tables = KnownTables(
            settings.prefix,
            settings.shard,
            opened.begin.start.layout,
            opened.offsets,
            records.table_filter.matches,
            fold=info.variables.get("lower_case_table_names", "0") != "0",
        )
        target = replica or self._source.connection
        return RunSnapshots(
            settings=settings,
            source=SnapshotAccess(
                snapshot_settings(self._context.config),
                lambda: connection.connect_first(target),
                SnapshotTables(self._source.server, records.tables, records.table_filter.matches),
                StreamPosition(cursor, info.flavor, by_gtid=replica is not None),
            ),
            offsets=opened.offsets,
            initial=opened.begin.initial,
            known_tables=known_tables,
            signals=records.context.signals,
            metrics=numbers,
            log=self._context.log,
        )

    def _make_heartbeats(self, opened: OpenedSource, records: RunRecords) -> RunHeartbeats:
        interval_s, log = self._settings.heartbeat_s, self._context.log
        writer = (
            HeartbeatWriter(self._source.connect, self._heartbeat_settings, log, self.latency)
            if self._heartbeat_settings.enabled and self._settings.shard.index == 0
            else None
        )
        promises = (
            HeartbeatPromises(self._source.server, opened.info, interval_s, log)
            if interval_s and (records.context.signals is not None or self._settings.heartbeat_to_tables)
            else None
        )
        return RunHeartbeats(interval_s, records, writer, promises, self._settings.shard)


def _make_cursor(opened: OpenedSource) -> BinlogCursor:
    flavor, position = opened.info.flavor, opened.begin.position
    executed = gtid.parse_gtids(flavor, position.gtids) if position.gtids or opened.info.mariadb else None
    return BinlogCursor(opened.begin.start, position, opened.server_id, executed, asked_until=opened.asked_until)
