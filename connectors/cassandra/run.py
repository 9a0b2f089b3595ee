"""One run of a task: reads the log of its node as it grows, and its share of snapshots, until something fails."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

from connectors.api import Batch, SourceRecord
from connectors.cassandra import metrics, server
from connectors.cassandra.capture import waiting_text
from connectors.cassandra.config import settings
from connectors.cassandra.events import build_events
from connectors.cassandra.events.contract import Where
from connectors.cassandra.latency import CassandraLatency
from connectors.cassandra.log.follower import LogFollower
from connectors.cassandra.model import LogPosition
from connectors.cassandra.schema import saved
from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter, id_bytes
from connectors.cassandra.snapshots import CassandraSnapshots
from connectors.cassandra.stream import CassandraStream, Missing, StreamCounts
from connectors.cql.cluster.session import CqlSession
from connectors.debezium_metrics import Mirror, report_snapshots
from connectors.errors import Retriable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import BadRecord, Instruction, Position, TaskContext
    from connectors.cassandra.events.contract import CassandraTableEvents
    from connectors.cassandra.model import LogChunk
    from connectors.cql.mutations.definition import CqlTableDefinition

#: How often numbers are reported.
_REPORT_S: Final = 1.0
#: How often the loop looks around while there is nothing to do.
_IDLE_S: Final = 1.0
#: Looks at definitions for something that an entry needs, and the pause between them: a node knows a table before others do.
_LOOKS: Final = 4
_LOOK_S: Final = 0.25
#: How long a change of definitions may take until every node tells it.
_SPREAD_MS: Final = 10_000
#: Pause between attempts to reach the cluster while the log is read without it.
_AGAIN_S: Final = 5.0
#: How long a table may wait for its last segment before the nodes that prevent it are named.
_WAIT_MS: Final = 60_000
#: Times of files are not more exact than this.
_TICK_MS: Final = 20
#: The version of ids that are made of names: those of the server's own tables. Users' tables have ids of time.
_OF_NAMES: Final = 3


class CassandraRun:
    """The state of one run of a task. ``batches`` may be called once."""

    def __init__(self, context: TaskContext) -> None:
        """Does not block."""
        self._context = context
        self._log = context.log
        config = context.config
        self._settings = settings.task_settings(config)
        self._events = settings.event_settings(config)
        self._node = settings.task_node(config)
        self._node_name = self._node.name if self._node is not None else ""
        self._metrics = Mirror(context.metrics, "cassandra", self._settings.prefix, metrics.DEBEZIUM)
        self._shard = settings.parse_shard(config)
        self._saved = context.offsets.items()
        self._session: CqlSession | None = None
        self._follower: LogFollower | None = None
        self._backfills: CassandraSnapshots | None = None
        self._instructions: Sequence[Instruction] = ()
        self._watch: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        #: Offsets that are to be saved with the next batch: definitions.
        self._unsaved: list[tuple[Position, Position | None]] = []
        #: What is saved of each table's definition, by table id.
        self._kept: dict[str, Position] = {}
        self.latency = CassandraLatency(self._metrics, self._node_name)
        self._reported = 0.0
        self._labels = {"node": self._node.name} if self._node is not None else {}
        self._stream: CassandraStream | None = None
        self._session_ready = False
        self._connecting = asyncio.Lock()
        #: When definitions were read last, and when they were known to be still the same, ms since 1970; 0: they were not.
        self._defined_ms = self._sure_ms = 0
        #: When looks began that did not find what they were for.
        self._looked_ms = 0
        #: When a position was given last, and whether there is a newer one.
        self._saved_at = time.monotonic()
        self._late = False
        self._skipped = self._decoded = 0
        #: The tables that wait for their last segment, and the nodes that prevent it, as the log named them last.
        self._warned: tuple[list[str], list[str]] = ([], [])
        #: Whether a snapshot had rows at the last look: there may be more of them.
        self._more = False
        self._partition = settings.log_partition(self._settings.prefix, self._node_name)

    # What the runtime tells.

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """The operator's standing requests, complete. Does not block."""
        self._instructions = instructions
        if self._backfills is not None:
            self._backfills.instruct(instructions)

    async def committed(self, offsets: Sequence[tuple[Position, Position]]) -> None:
        """Positions have become durable: what is before them may be deleted."""
        for partition, offset in offsets:
            if partition == self._partition and self._follower is not None:
                position = LogPosition.of(offset)
                self.latency.delivered(position)
                await self._follower.acknowledged(position)

    async def close(self) -> None:
        """Release everything, also if it is cancelled meanwhile; may be repeated."""
        async with AsyncExitStack() as last_first:
            last_first.push_async_callback(self._release_session)
            for part in (self._follower, self._backfills):
                if part is not None:
                    last_first.push_async_callback(part.close)
            if self._watch is not None:
                self._watch.cancel()
                await asyncio.gather(self._watch, return_exceptions=True)

    async def _release_session(self) -> None:
        self._metrics.disconnected()
        session, self._session = self._session, None
        if session is not None:
            await session.release()

    # The run.

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """See ``SourceTask.batches``."""
        config = self._context.config
        definitions = saved.read_definitions(self._settings.prefix, self._saved)
        self._catalog = CassandraCatalog(CassandraTableFilter(*settings.table_lists(config)), self._log, self._metrics)
        captures = saved.read_captures(self._settings.prefix, self._node_name, self._saved)
        self._catalog.remember(definitions, captures)
        self._kept = {
            definition.table_id: saved.definition_offset(definition, 0, captures[definition.table_id])
            for definition in definitions
        }
        await self._connect_cluster(required=not definitions)
        self._metrics.connected()
        for name in metrics.FROM_ZERO:
            self._metrics.add(name, 0, self._labels)
        position = self._saved_position()
        if self._node is not None:
            self._follower = LogFollower(settings.log_settings(config, self._node), position, self._metrics, self._log)
        where = Where(partition=self._partition, node=self._node_name, segment=0, version=0)
        stream = self._stream = CassandraStream(
            where, position, self._catalog, self._build_events, self._log, self._context.wire
        )
        backfills = self._backfills = CassandraSnapshots(
            settings.snapshot_settings(config),
            self._shard,
            self._saved,
            catalog=self._catalog,
            builder=self._build_events,
            refresh=self._refresh_catalog,
            metrics=self._metrics,
            log=self._log,
        )
        backfills.instruct(self._instructions)
        await self._begin_backfills()
        self._watch = asyncio.create_task(self._keep_watch())
        yield Batch([], offsets=self._take_unsaved())
        reading: asyncio.Task[LogChunk | None] | None = None
        try:
            while True:
                if reading is None and self._follower is not None:
                    reading = asyncio.create_task(self._follower.read())
                await self._wait_any(backfills, reading)
                if self._failed is not None:
                    raise self._failed
                if reading is not None and reading.done():
                    done, reading = reading, None
                    stretch = done.result()
                    if stretch is not None:
                        async with aclosing(self._deliver_chunk(stream, stretch)) as delivered:
                            async for batch in delivered:
                                yield batch
                    elif self._unsaved or (self._late and self._is_save_due()):
                        yield self._make_batch(stream.place, [], [])
                snapshot_batch = backfills.batch()
                self._more = snapshot_batch is not None and bool(snapshot_batch.records)
                if snapshot_batch is not None:
                    yield snapshot_batch
                self._report_counts()
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _wait_any(self, backfills: CassandraSnapshots, reading: asyncio.Task[Any] | None) -> None:
        """Wait until the log was looked at or a snapshot has rows."""
        if self._more:
            await asyncio.sleep(0)
            return
        waiting = asyncio.ensure_future(backfills.wait())
        try:
            await asyncio.wait(
                {waiting, *((reading,) if reading is not None else ())},
                timeout=_IDLE_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    def _saved_position(self) -> LogPosition | None:
        saved = self._context.offsets.get(self._partition) if self._node is not None else None
        return LogPosition.of(saved) if saved else None

    # The log.

    async def _deliver_chunk(self, stream: CassandraStream, stretch: LogChunk) -> AsyncGenerator[Batch, None]:
        """Yield the records of a chunk of the log, divided into batches."""
        number, total = 0, len(stretch.entries)
        stream.sure = stretch.written_ms + _TICK_MS <= self._sure_ms
        while True:
            out: list[SourceRecord] = []
            bad: list[BadRecord] = []
            await stream.agree()
            try:
                number = stream.take(stretch, number, self._settings.max_batch, out, bad)
            except Missing as missing:
                number = stream.number
                before = self._catalog.by_id(missing.table_id)
                if out or bad or stream.encoded.count:
                    yield self._make_batch(stream.place, out, bad)
                if missing.doubt:
                    await self._make_sure(stream)
                else:
                    await self._look_for(stream, missing, before, stretch.written_ms)
                continue
            self.latency.read(stretch, out, stream.place)
            has_records = out or bad or stream.encoded.count
            if number < total or has_records or stretch.finished or self._unsaved or self._is_save_due():
                yield self._make_batch(stream.place, out, bad)
            else:
                self._late = True
            if number >= total:
                return

    def _is_save_due(self) -> bool:
        """Whether a position is to be saved though nothing of captured tables came."""
        return time.monotonic() - self._saved_at >= self._settings.heartbeat_s

    def _make_batch(self, position: LogPosition, out: list[SourceRecord], bad: list[BadRecord]) -> Batch:
        self._late, self._saved_at = False, time.monotonic()
        unsaved = self._take_unsaved()
        offset = position.offset()
        # Behind records that were delivered and passed over again (done), the place that is saved already is the right one.
        if not position.done and position.segment and not (out and out[-1].source_offset == offset):
            unsaved = (*unsaved, (self._partition, offset))
        return Batch(out, tuple(bad), unsaved, encoded=() if self._stream is None else self._stream.encoded.collect())

    async def _make_sure(self, stream: CassandraStream) -> None:
        """Get definitions that are newer than the chunk: a table that had no cdc may have it now.

        Raises:
            Retriable: the cluster can't be asked.
        """
        if self._session is None:
            await self._connect_cluster(required=True)
        else:
            await self._follow_schema()
        stream.sure = True

    async def _look_for(
        self, stream: CassandraStream, missing: Missing, before: CqlTableDefinition | None, written_ms: int
    ) -> None:
        """Read definitions until one has what an entry needs, or give it up.

        What was written well before definitions were read, and is of a table that they don't have, is of one that was dropped.

        Args:
            stream: which needs it.
            missing: what it needs.
            before: the definition with which it did not get on.
            written_ms: when the entry was there.

        Raises:
            Retriable: the cluster can't be asked.
        """
        if self._session is None and missing.column is None and missing.table_id[6] >> 4 == _OF_NAMES:
            stream.give_up(missing, by_table=True)
            return
        if (definition := self._catalog.by_id(missing.table_id)) is not None and definition != before:
            return  # read meanwhile
        if missing.column is None and 0 < written_ms < self._defined_ms - _SPREAD_MS:
            stream.give_up(missing, old=True)
            return
        if missing.column is None and 0 < written_ms <= self._looked_ms:
            stream.give_up(missing)  # the looks for another one were for this one too
            return
        began = time.time_ns() // 1_000_000
        for attempt in range(_LOOKS):
            if attempt:
                await asyncio.sleep(_LOOK_S)
            await self._connect_cluster(required=True)
            definition = self._catalog.by_id(missing.table_id)
            if definition is not None and definition != before:
                stream.changed({definition.table_id})
                return
        self._looked_ms = began
        stream.give_up(missing)

    def _build_events(self, table: CqlTableDefinition, version: int) -> CassandraTableEvents:
        return build_events(table, version, self._events)

    # Definitions.

    async def _connect_cluster(self, *, required: bool) -> None:
        """Reach the cluster and read definitions; without it the log can be read as far as they are known.

        Raises:
            Retriable: it is unavailable, and ``required``.
        """
        try:
            async with self._connecting:
                if self._session is None:
                    self._session = await CqlSession.acquire(settings.session_settings(self._context.config))
                self._catalog.session = self._session
            await self._refresh_catalog()
        except Retriable as error:
            if required:
                raise
            self._log.warning(
                "the cluster is away (%s): the log is read on with the definitions that were saved", error
            )

    async def _refresh_catalog(self) -> None:
        began = time.time_ns() // 1_000_000
        self._apply_changes(await self._catalog.refresh())
        self._defined_ms = self._sure_ms = began

    async def _follow_schema(self) -> None:
        """Read definitions if they have changed."""
        began = time.time_ns() // 1_000_000
        if await self._catalog.moved():
            await self._refresh_catalog()
        self._sure_ms = max(self._sure_ms, began)

    async def _end_captures(self) -> None:
        """Set the last segment of tables whose cdc is off for good.

        Raises:
            Retriable: the directory can't be listed.
        """
        captures = self._catalog.captures
        settled = captures.settled(time.time_ns() // 1_000_000) if self._catalog.agreed else {}
        newest = await self._follower.newest_segment() if settled and self._follower is not None else None
        if newest is None:
            return
        for key in captures.end(settled, newest):
            self._log.info("cdc of %s is off: its updates count up to segment %d", self._catalog.by_id(key), newest)
        self._apply_changes(set())

    def _name_nodes_apart(self) -> None:
        """Say which nodes prevent that tables without cdc get their last segment."""
        captures, nodes = self._catalog.captures, self._catalog.nodes_apart()
        self._metrics.set(metrics.NODES_APART, len(nodes))
        now_ms = time.time_ns() // 1_000_000
        self._metrics.set(metrics.TABLES_WAITING, len(captures.waiting(now_ms)))
        tables = sorted(str(self._catalog.by_id(key)) for key in captures.waiting(now_ms - _WAIT_MS))
        if tables and nodes and (tables, nodes) != self._warned:
            self._log.warning("%s", waiting_text(tables, nodes))
        self._warned = (tables, nodes)

    def _add_new_tables(self) -> None:
        if self._backfills is not None:
            self._backfills.add_new_tables()

    def _apply_changes(self, ids: set[str]) -> None:
        """Definitions are new or others: the stream forgets the old ones, and what is to be kept is saved.

        Kept are all tables of keyspaces with tables that are or were captured: they share mutations, not readable in part.
        """
        if self._stream is not None:
            self._stream.changed(ids)
        if self._node is None:
            return
        tables = self._catalog.known()
        keyspaces = {definition.keyspace for definition in tables if self._catalog.captured(definition)}
        for table in tables:
            if table.keyspace not in keyspaces:
                continue
            offset = saved.definition_offset(table, 0, self._catalog.captures.of(id_bytes(table.table_id)))
            if self._kept.get(table.table_id) != offset:
                self._kept[table.table_id] = offset
                self._unsaved.append(
                    (
                        saved.definition_partition(self._settings.prefix, self._node_name, table.table_id),
                        {**offset, saved.SEEN_MS: time.time_ns() // 1_000_000},
                    )
                )

    def _take_unsaved(self) -> tuple[tuple[Position, Position | None], ...]:
        unsaved, self._unsaved = tuple(self._unsaved), []
        return unsaved

    async def _keep_watch(self) -> None:
        """Reach the cluster once it is available again, start the snapshots, and follow changes of definitions."""
        try:
            while not self._session_ready:
                try:
                    await self._connect_cluster(required=True)
                    await self._begin_backfills()
                except Retriable as error:
                    self._log.debug("the cluster is away: %s", error)
                    await asyncio.sleep(_AGAIN_S)
            while True:
                await asyncio.sleep(self._settings.refresh_s)
                try:
                    await self._follow_schema()
                    await self._end_captures()
                    self._name_nodes_apart()
                    self._add_new_tables()
                except Retriable as error:
                    self._log.debug("definitions can't be read: %s", error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task has to tell
            self._failed = error

    async def _begin_backfills(self) -> None:
        if self._session is None or self._backfills is None:
            return
        self._backfills.start(self._session)
        if self._follower is not None and self._node is not None:
            with suppress(Retriable):
                self._follower.total_space(await server.total_space(self._session, self._node.directory))
        self._session_ready = True

    # Numbers.

    def _report_counts(self) -> None:
        now = time.monotonic()
        if now - self._reported < _REPORT_S or self._stream is None:
            return
        self._reported = now
        counts, self._stream.counts = self._stream.counts, StreamCounts()
        for name, value in (
            (metrics.ENTRIES, counts.entries),
            (metrics.UPDATES, counts.updates),
            (metrics.EVENTS, counts.events),
            (metrics.IGNORED, counts.ignored),
            (metrics.UNKNOWN_TABLES, counts.unknown),
            (metrics.COUNTERS, counts.counters),
            (metrics.BAD, counts.bad),
            (metrics.DROPPED_CHANGES, self._stream.skipped() - self._skipped),
            (metrics.FULL_DECODES, self._stream.full_decodes() - self._decoded),
        ):
            if value > 0:
                self._metrics.add(name, value, self._labels)
        self._skipped, self._decoded = self._stream.skipped(), self._stream.full_decodes()
        self.latency.report()
        progress = self._backfills.progress() if self._backfills is not None else None
        if progress is not None:
            report_snapshots(self._metrics.debezium, progress, time.time_ns() // 1_000_000)
