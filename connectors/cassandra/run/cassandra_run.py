"""One run of a task: reads the log of its node as it grows, and its share of snapshots, until something fails."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

from connectors.api import Batch
from connectors.cassandra import metrics, server
from connectors.cassandra.config import settings
from connectors.cassandra.events import build_events
from connectors.cassandra.events.contract import Where
from connectors.cassandra.latency import CassandraLatency
from connectors.cassandra.log.follower import LogFollower
from connectors.cassandra.model import LogPosition
from connectors.cassandra.run.batching import LogBatches
from connectors.cassandra.run.definitions import RunDefinitions
from connectors.cassandra.run.heartbeats import CassandraHeartbeats
from connectors.cassandra.run.reporting import CaptureReport, LogReport
from connectors.cassandra.snapshots import CassandraSnapshots
from connectors.cassandra.stream import CassandraStream
from connectors.debezium_metrics import Mirror
from connectors.errors import Retriable
from connectors.source_options.table_heartbeats import HEARTBEAT_TO_TABLES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import Instruction, Position, TaskContext
    from connectors.cassandra.events.contract import CassandraTableEvents
    from connectors.cassandra.model import LogChunk
    from connectors.cql.mutations.definition import CqlTableDefinition

#: How often the loop looks around while there is nothing to do.
_IDLE_S: Final = 1.0
#: Pause between attempts to reach the cluster while the log is read without it.
_RETRY_S: Final = 5.0


class CassandraRun:
    """The state of one run of a task. ``batches`` may be called once.

    Attributes:
        latency: of the log.
    """

    def __init__(self, context: TaskContext) -> None:
        """Does not block."""
        self._context = context
        self._log = context.log
        config = context.config
        self._settings = settings.task_settings(config)
        self._events = settings.event_settings(config)
        self._node = settings.task_node(config)
        self._node_name = self._node.name if self._node is not None else ""
        self._partition = settings.log_partition(self._settings.prefix, self._node_name)
        self._metrics = Mirror(context.metrics, "cassandra", self._settings.prefix, metrics.DEBEZIUM)
        self.latency = CassandraLatency(self._metrics, self._node_name)
        self._definitions = RunDefinitions(config, self._node_name, self._metrics, self._log)
        self._follower: LogFollower | None = None
        self._heartbeats = self._make_heartbeats()
        self._snapshots: CassandraSnapshots | None = None
        self._instructions: Sequence[Instruction] = ()
        self._watch: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._session_ready = False
        self._settings_asked = False
        #: Whether a snapshot had rows at the last look: there may be more of them.
        self._more = False

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """The operator's standing requests, complete. Does not block."""
        self._instructions = instructions
        if self._snapshots is not None:
            self._snapshots.instruct(instructions)

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
            last_first.push_async_callback(self._definitions.release)
            last_first.callback(self._metrics.disconnected)
            for part in (self._follower, self._snapshots):
                if part is not None:
                    last_first.push_async_callback(part.close)
            if self._watch is not None:
                self._watch.cancel()
                await asyncio.gather(self._watch, return_exceptions=True)

    # The loop.

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """See ``SourceTask.batches``."""
        offsets = self._context.offsets.items()
        has_saved = self._definitions.restore(offsets)
        await self._definitions.connect(required=not has_saved)
        self._metrics.connected()
        labels = {"node": self._node_name} if self._node_name else {}
        for name in metrics.FROM_ZERO:
            self._metrics.add(name, 0, labels)
        stream = self._open_log()
        snapshots = self._snapshots = self._make_snapshots(offsets)
        log_batches = LogBatches(stream, self._definitions, self._settings, self._partition, self.latency)
        report = LogReport(stream, self.latency, self._metrics, labels)
        await self._begin_snapshots()
        self._watch = asyncio.create_task(self._keep_watch())
        yield Batch([], offsets=self._definitions.take_unsaved())
        reading: asyncio.Task[LogChunk | None] | None = None
        try:
            while True:
                if reading is None and self._follower is not None:
                    reading = asyncio.create_task(self._follower.read())
                await self._wait_any(snapshots, reading)
                if self._failed is not None:
                    raise self._failed
                if reading is not None and reading.done():
                    done, reading = reading, None
                    chunk = done.result()
                    if chunk is not None:
                        async with aclosing(log_batches.deliver(chunk)) as delivered:
                            async for batch in delivered:
                                yield batch
                                del batch  # not kept while the next one is waited for
                    elif (quiet := log_batches.save_quiet_position()) is not None:
                        yield quiet
                    if (beats := self._beat(stream)) is not None:
                        yield beats
                snapshot_batch = snapshots.batch()
                self._more = snapshot_batch is not None and bool(snapshot_batch.records)
                if snapshot_batch is not None:
                    yield snapshot_batch
                    del snapshot_batch
                report.send(snapshots)
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _wait_any(self, snapshots: CassandraSnapshots, reading: asyncio.Task[Any] | None) -> None:
        """Wait until the log was looked at or a snapshot has rows."""
        if self._more:
            await asyncio.sleep(0)
            return
        waiting = asyncio.ensure_future(snapshots.wait())
        try:
            await asyncio.wait(
                {waiting, *((reading,) if reading is not None else ())},
                timeout=_IDLE_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    def _beat(self, stream: CassandraStream) -> Batch | None:
        """Heartbeats behind what was yielded, where they are due."""
        if self._heartbeats is None or self._follower is None or not self._heartbeats.is_due():
            return None
        return self._heartbeats.make_batch(
            self._definitions.catalog.tables, self._follower.complete_ms, stream.position
        )

    # Parts.

    def _make_heartbeats(self) -> CassandraHeartbeats | None:
        if not self._settings.heartbeat_to_tables or self._node is None:
            return None
        part = settings.log_part(self._context.config, self._node)
        return CassandraHeartbeats(self._settings, self._partition, part)

    def _open_log(self) -> CassandraStream:
        """Begin at the saved position."""
        position: LogPosition | None = None
        if self._node is not None:
            offset = self._context.offsets.get(self._partition)
            position = LogPosition.of(offset) if offset else None
            log_settings = settings.log_settings(self._context.config, self._node)
            self._follower = LogFollower(log_settings, position, self._metrics, self._log)
        where = Where(partition=self._partition, node=self._node_name, segment=0, version=0)
        stream = self._definitions.stream = CassandraStream(
            where, position, self._definitions.catalog, self._build_events, self._log, self._context.wire
        )
        return stream

    def _make_snapshots(self, offsets: Sequence[tuple[Position, Position]]) -> CassandraSnapshots:
        snapshots = CassandraSnapshots(
            settings.snapshot_settings(self._context.config),
            settings.parse_shard(self._context.config),
            offsets,
            catalog=self._definitions.catalog,
            builder=self._build_events,
            refresh=self._definitions.refresh,
            metrics=self._metrics,
            log=self._log,
        )
        snapshots.instruct(self._instructions)
        return snapshots

    def _build_events(self, table: CqlTableDefinition, version: int) -> CassandraTableEvents:
        return build_events(table, version, self._events)

    # In the background.

    async def _keep_watch(self) -> None:
        """Reach the cluster once it is available again, start the snapshots, and follow changes of definitions."""
        captures = CaptureReport(self._definitions.catalog, self._metrics, self._log)
        try:
            while not self._session_ready:
                try:
                    await self._definitions.connect(required=True)
                    await self._begin_snapshots()
                except Retriable as error:
                    self._log.debug("the cluster is unavailable: %s", error)
                    await asyncio.sleep(_RETRY_S)
            while True:
                await asyncio.sleep(self._settings.refresh_s)
                try:
                    await self._definitions.follow()
                    await self._definitions.end_captures(self._follower)
                    captures.send()
                    if self._snapshots is not None:
                        self._snapshots.add_new_tables()
                    await self._ask_settings()
                except Retriable as error:
                    self._log.debug("definitions can't be read: %s", error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task has to tell
            self._failed = error

    async def _begin_snapshots(self) -> None:
        session = self._definitions.session
        if session is None or self._snapshots is None:
            return
        self._snapshots.start(session)
        with suppress(Retriable):
            await self._ask_settings()
        self._session_ready = True

    async def _ask_settings(self) -> None:
        """Ask for the settings of the log's node, once.

        Raises:
            Retriable: nodes are unavailable, busy or too slow.
        """
        session = self._definitions.session
        if self._settings_asked or session is None or self._follower is None or self._node is None:
            return
        nodes = await server.directory_settings(session, self._node.directory)
        self._settings_asked = True
        self._follower.total_space(server.smallest_space(nodes))
        if self._heartbeats is None:
            return
        self._heartbeats.sync_s = server.longest_sync_s(nodes)
        if self._heartbeats.sync_s is None:
            self._log.warning(
                "%s: no heartbeats are sent, since it is not known how late the node writes its log "
                "(commitlog_sync_period): GRANT SELECT ON system_views.settings TO the connector's role, and restart the task",
                HEARTBEAT_TO_TABLES,
            )
