"""A task of the Scylla connector: the groups of streams that it was given, read side by side."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from connectors.api import Batch, SourceTask
from connectors.cql.cluster.session import CqlSession
from connectors.debezium_metrics import Mirror
from connectors.errors import Retriable
from connectors.scylla import metrics
from connectors.scylla.config.keys import TASK_PARTS
from connectors.scylla.config.settings import event_settings, read_settings, session_settings
from connectors.scylla.events import build_events
from connectors.scylla.events.table_heartbeats import ScyllaTableHeartbeats
from connectors.scylla.positions import (
    GENERATION,
    KEYSPACE,
    TABLE,
    find_superseded,
    first_position,
    saved_position,
    source_partition,
)
from connectors.scylla.reader import ScyllaReader
from connectors.scylla.schema import tables
from connectors.scylla.source import discovery
from connectors.scylla.source.feeds import TableFeed
from connectors.scylla.source.lanes import GroupState, find_expired
from connectors.source_options.table_heartbeats import HEARTBEAT_TO_TABLES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, KeysView, Sequence

    from connectors.api import Instruction, Position, TaskContext
    from connectors.scylla.config.settings import ScyllaReadSettings
    from connectors.scylla.events.contract import EventBuilder, ScyllaEventSettings, ScyllaPromises
    from connectors.scylla.events.ums_signals import ScyllaUmsSignals
    from connectors.scylla.model import StreamGroup, TableId, TableVersion
    from connectors.scylla.snapshot.hook import ScyllaSnapshot

#: How often the servers are asked for the version of the schema (and their clock): one small query.
_SCHEMA_S: Final = 1.0
#: Lanes plan again when the servers' time jumps ahead by more than this.
_JUMP_MS: Final = 1_000
#: What a node may know later than the one that was asked.
_AGREEMENT_MS: Final = 500
_PULSE: Final = "SELECT host_id, schema_version, toTimestamp(now()) AS now FROM system.local"


class _Pulse(NamedTuple):
    """The answer of a server about itself; when it was asked and answered is by ``time.monotonic``."""

    server: str
    version: str
    sent_ms: float
    answered_ms: float
    server_ms: float


class ScyllaTask(SourceTask):
    """Reads groups of streams of one or more tables."""

    aliases = ("com.scylladb.cdc.debezium.connector.ScyllaConnectorTask",)

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        #: Tables and generations of which a position has been saved by this task.
        self._saved: set[tuple[str, str, str]] = set()
        self._instructions: Sequence[Instruction] = ()
        self._run: _ScyllaRun | None = None

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """See ``SourceTask.instruct``."""
        self._instructions = list(instructions)
        if self._run is not None and self._run.snapshots is not None:
            self._run.snapshots.instruct(self._instructions)

    @property
    def instructions(self) -> Sequence[Instruction]:
        """The operator's requests, complete."""
        return self._instructions

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """See ``SourceTask.batches``.

        Raises:
            Retriable: the cluster is unavailable, or a table is not there (yet).
            ConfigInvalid: a saved offset can't be understood.
            Fatal: the server refuses a query for good.
        """
        config = self.context.config
        numbers: Mirror | None = None
        session = await CqlSession.acquire(session_settings(config))
        try:
            options = read_settings(config)
            events = event_settings(config)
            numbers = Mirror(self.context.metrics, "scylla", events.topic_prefix, metrics.DEBEZIUM)
            run = self._run = _ScyllaRun(self, session, options, events, numbers)
            reader = await run.start()
            numbers.connected()
            for name in metrics.FROM_ZERO:
                numbers.add(name, 0)
            old = find_superseded(run.groups, self.context.offsets.items())
            async with aclosing(reader.batches()) as stream:
                async for batch in stream:
                    yield batch
                    del batch  # not kept while the next one is waited for
                    if old and self._newer_is_saved(run.groups):
                        yield Batch([], offsets=tuple((partition, None) for partition in old))
                        old = []
        finally:
            self._run = None
            if numbers is not None:
                numbers.disconnected()
            await session.release()

    async def committed(self, offsets: Sequence[tuple[Position, Position]]) -> None:
        """See ``SourceTask.committed``: what is saved decides when positions of finished generations may go."""
        self._saved |= {_section_key(partition) for partition, _ in offsets if KEYSPACE in partition}

    def _newer_is_saved(self, groups: Sequence[StreamGroup]) -> bool:
        """Whether a position is saved for every table's present generation, which says that those before it are done."""
        return {_section_key(source_partition(group)) for group in groups} <= self._saved


def _section_key(partition: Position) -> tuple[str, str, str]:
    return partition[KEYSPACE], partition.get(TABLE, ""), partition.get(GENERATION, "")


class _ScyllaRun:
    """One run of a task over one session."""

    def __init__(
        self,
        task: ScyllaTask,
        session: CqlSession,
        options: ScyllaReadSettings,
        events: ScyllaEventSettings,
        numbers: Mirror,
    ) -> None:
        self._metrics = numbers
        self._task = task
        self._context = task.context
        self._log = task.context.log
        self._session = session
        self._options = options
        self._events = events
        self._histories: dict[TableId, tables.TableHistory] = {}
        self._feeds: dict[TableId, TableFeed] = {}
        self._loading: dict[TableId, asyncio.Lock] = {}
        self._reader: ScyllaReader | None = None
        self.snapshots: ScyllaSnapshot | None = None
        self.groups: list[StreamGroup] = []
        #: Version of the schema that the definitions are of.
        self._schema_version = ""
        #: Tables of which rows expired before they were read, as far as that was reported.
        self._expired: KeysView[TableId] = {}.keys()
        #: Whether they are read once more: the nodes that were asked for them may have known less than the one that said the
        #: version, or a look failed.
        self._is_unsettled = True

    async def start(self) -> ScyllaReader:
        """Everything is read that has to be known, and a reader made."""
        context, session = self._context, self._session
        pulse = await self._ask_pulse()
        groups = self.groups = await discovery.task_groups(session, context.config)
        for table in dict.fromkeys(group.table for group in groups):
            await self._load_history(table)
        signals = None
        promises: ScyllaPromises | None = None
        parts = msgspec.json.decode(context.config[TASK_PARTS] or "{}", type=dict[str, str])
        if self._events.output_format == "ums":
            from connectors.scylla.events.ums_signals import ScyllaUmsSignals

            promises = signals = ScyllaUmsSignals(self._events, parts)
        elif context.config[HEARTBEAT_TO_TABLES]:
            promises = ScyllaTableHeartbeats(self._events.topic_prefix, parts)
        hook = self.snapshots = self._make_snapshot(signals)
        hook.instruct(self._task.instructions)
        reader = self._reader = ScyllaReader(
            session, self._options, self._metrics, self._log, refresh=self.refresh, hook=hook, signals=promises
        )
        if pulse is not None:
            self._schema_version = pulse.version
            self._note_pulse(reader, pulse)
        sections: dict[tuple[TableId, int], list[StreamGroup]] = {}
        for group in groups:
            sections.setdefault((group.table, group.generation.start_ms), []).append(group)
        for (table, _), members in sections.items():
            states = self._group_states(table, members)
            reader.add(self._feeds[table], states)
        self._report_expired(reader)
        reader.background(self._watch_schema(reader), "scylla schema watch")
        reader.background(self._watch_generations(reader), "scylla generation watch")
        return reader

    def _make_snapshot(self, signals: ScyllaUmsSignals | None) -> ScyllaSnapshot:
        from connectors.scylla.snapshot.feeds import SnapshotFeeds
        from connectors.scylla.snapshot.hook import ScyllaSnapshot
        from connectors.scylla.snapshot.report import SnapshotReport

        return ScyllaSnapshot(
            self._session,
            self._options,
            self._context.offsets,
            self.groups,
            feeds=SnapshotFeeds(self._feeds.__getitem__, self.refresh),
            now_ms=self._now_ms,
            report=SnapshotReport(self._metrics, self._log),
            signals=signals,
        )

    def _now_ms(self) -> float:
        return self._reader.now_ms() if self._reader is not None else time.time() * 1000

    # Positions.

    def _group_states(self, table: TableId, groups: list[StreamGroup]) -> list[GroupState]:
        ttl_s = self._feeds[table].newest.options.ttl_s
        now_ms = int(self._now_ms())
        kept_ms = now_ms - ttl_s * 1000 if ttl_s else 0
        states = []
        for group in groups:
            saved = saved_position(group, self._context.offsets)
            position = saved or first_position(group, kept_ms)
            states.append(GroupState(group, source_partition(group), position, unsaved=saved is None))
        return states

    def _report_expired(self, reader: ScyllaReader) -> None:
        """Warn, once each time, of tables that are read so late that rows of their logs have expired."""
        now_ms = int(reader.now_ms())
        ttls_ms = {table: feed.newest.options.ttl_s * 1000 for table, feed in self._feeds.items()}
        oldest_ms = find_expired(reader.states, ttls_ms, now_ms)
        for table in oldest_ms.keys() - self._expired:
            self._log.warning(
                "%s: its log is read only up to %.0f s before now, and its rows expire after %d s: changes between may be "
                "gone. Take a snapshot of the table; a longer ttl in its cdc options keeps changes longer",
                table,
                (now_ms - oldest_ms[table]) / 1000,
                ttls_ms[table] / 1000,
            )
        self._expired = oldest_ms.keys()

    # Definitions.

    async def refresh(self, feed: TableFeed) -> None:
        """Read a table's definition again."""
        await self._load_history(feed.table)

    async def _load_history(self, table: TableId) -> None:
        lock = self._loading.setdefault(table, asyncio.Lock())
        async with lock:
            previous = self._histories.get(table)
            history = await tables.load_history(self._session, table, previous, now_us=int(time.time() * 1_000_000))
            if previous is None or previous.newest.options != history.newest.options:
                self._check_options(history.newest)
            self._histories[table] = history
            feed = self._feeds.get(table)
            if feed is None:
                self._feeds[table] = TableFeed(table, history.versions, self._build_builder, history.log_columns)
            elif feed.update(history.versions, history.log_columns):
                self._log.info("%s: its definition has changed, now version %s", table, history.newest.version)
                self._metrics.add(metrics.SCHEMA_CHANGES, 1, {"table": str(table)})
            await self._agree_form(self._feeds[table])

    def _check_options(self, version: TableVersion) -> None:
        """Whether the output form can have the table with its CDC options, which may have changed since the validation.

        Raises:
            Fatal: it can't.
        """
        from connectors.scylla.config.checks import check_images

        self._build_builder(version)
        for problem in check_images(self._context.config, version.id, version.options):
            self._log.warning("%s", problem.message)

    async def _agree_form(self, feed: TableFeed) -> None:
        """Agree with the runtime on how rows of the newest definition become bytes; those of older ones become records."""
        wire, version = self._context.wire, feed.newest
        if wire is None or version.definition in feed.fast or self._events.output_format not in {"legacy", "advanced"}:
            return
        from connectors.scylla.events.fast_rows import fast_feed

        fast = await fast_feed(wire, feed.builder(version))
        if fast is not None:
            feed.fast[version.definition] = fast
            self._log.info("%s: rows are written straight to bytes (fast.path)", feed.table)

    def _build_builder(self, version: TableVersion) -> EventBuilder:
        return build_events(version, self._events)

    async def _ask_pulse(self) -> _Pulse | None:
        sent_s = time.monotonic()
        rows = await self._session.query(_PULSE, consistency="ONE", timeout_s=5.0)
        if not rows:
            return None
        row = rows[0]
        return _Pulse(
            str(row["host_id"]), str(row["schema_version"]), sent_s * 1000, time.monotonic() * 1000, row["now"]
        )

    async def _check_pulse(self, reader: ScyllaReader) -> None:
        """Ask for clock and version of the schema; if that is another one, definitions are read again, now and next time."""
        pulse = await self._ask_pulse()
        if pulse is not None:
            is_newer = pulse.version != self._schema_version
            if reader.stale.is_set() or is_newer or self._is_unsettled:
                reader.stale.clear()
                self._is_unsettled = True
                for table in list(self._feeds):
                    try:
                        await self._load_history(table)
                    except tables.TableUnavailable as error:
                        self._log.warning("%s", error)
                self._is_unsettled = is_newer
            self._schema_version = pulse.version
            self._note_pulse(reader, pulse)
            self._report_expired(reader)

    @staticmethod
    def _note_pulse(reader: ScyllaReader, pulse: _Pulse) -> None:
        before_ms = reader.clock.offset_ms()
        reader.clock.sample(pulse.server, pulse.answered_ms, pulse.server_ms)
        if reader.clock.offset_ms() > before_ms + _JUMP_MS:
            reader.wake()  # lanes wait for a time that is nearer than they thought
        # What definitions were when the question was asked holds for all that was written before.
        reader.defined_ms = int(pulse.sent_ms + reader.clock.offset_ms()) - _AGREEMENT_MS

    async def _watch_schema(self, reader: ScyllaReader) -> None:
        while True:
            await asyncio.sleep(_SCHEMA_S)
            try:
                await self._check_pulse(reader)
            except Retriable as error:
                self._log.debug("the version of the schema can't be read: %s", error)

    # Generations.

    async def _watch_generations(self, reader: ScyllaReader) -> None:
        while True:
            # Asked for in each round: an upgrade of the cluster moves the lists, and no new generation comes to the old ones.
            source: discovery.Source | None = None
            ends: dict[int, int | None] = {}
            for section in list(reader.sections()):
                if section.end_ms is not None or not section.lanes:
                    continue
                table = section.feed.table
                try:
                    if section.tablets:
                        end = await discovery.generation_end(self._session, table, section.start_ms, "tablets")
                    else:
                        source = source or await discovery.vnode_source(self._session)
                        if section.start_ms not in ends:
                            ends[section.start_ms] = await discovery.generation_end(
                                self._session, table, section.start_ms, source
                            )
                        end = ends[section.start_ms]
                except Retriable as error:
                    self._log.debug("generations can't be read: %s", error)
                    break
                if end is not None:
                    self._log.info("%s: the generation that began at %d ends at %d", table, section.start_ms, end)
                    reader.ends(section, end)
            await asyncio.sleep(self._options.discovery_ms / 1000)
