"""Snapshots as a run uses them: who asks for what, and the records of what was read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.api import BadRecord, Batch
from connectors.cassandra.model import CLUSTER, SHARD, SNAPSHOT
from connectors.cassandra.schema.catalog import id_bytes
from connectors.cassandra.snapshot.model import new_request, new_table_id
from connectors.cassandra.snapshot.reader import CapturedTables, CassandraSnapshotReader
from connectors.cassandra.snapshot.views import request_of, share_partition
from connectors.errors import Skippable
from connectors.snapshot.requests import INITIAL, RequestList, SnapshotRequest

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Sequence

    from connectors.api import Instruction, Position, SourceRecord, TaskMetrics
    from connectors.cassandra.events.contract import CassandraTableEvents
    from connectors.cassandra.schema.catalog import CassandraCatalog
    from connectors.cassandra.snapshot.model import CassandraSnapshotSettings
    from connectors.cql.cluster.session import CqlSession
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.formats.partition_update import PartitionUpdate

#: Version of the log's format in which snapshots are written; all readers know it.
_VERSION: Final = 8


class CassandraSnapshots:
    """The snapshots of one run of a task.

    Args:
        settings: how tables are read.
        shard: the task's share: index, count.
        offsets: what was saved before.
        catalog: the tables.
        builder: makes the events of a definition.
        refresh: reads definitions again.
        metrics: for the numbers of ``metrics``.
        log: the task's.
    """

    def __init__(
        self,
        settings: CassandraSnapshotSettings,
        shard: tuple[int, int],
        offsets: Sequence[tuple[Position, Position]],
        *,
        catalog: CassandraCatalog,
        builder: Callable[[CqlTableDefinition, int], CassandraTableEvents],
        refresh: Callable[[], Awaitable[object]],
        metrics: TaskMetrics,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._settings = settings
        self._shard = shard
        self._catalog = catalog
        self._builder = builder
        self._metrics = metrics
        self._log = log
        self._refresh = refresh
        self._offsets = list(offsets)
        self._list = RequestList(self._share_partition, self._set_requests, keeps_ended=True)
        self._requests, self._saved = self._list.requests, self._list.saved
        #: Source partitions of shares of earlier numbers of tasks, which no task writes any more, by request.
        self._left: dict[str, list[Position]] = {}
        for source, offset in offsets:
            request = source.get(SNAPSHOT)
            if source.get(CLUSTER) != settings.prefix or not isinstance(request, str):
                continue
            if source == share_partition(settings.prefix, request, shard):
                self._saved[request] = offset
            elif shard[0] == 0 and not str(source.get(SHARD)).endswith(f"/{shard[1]}"):
                self._left.setdefault(request, []).append(source)
        #: Partitions that are to be deleted.
        self._deleted: list[tuple[Position, None]] = []
        self._events: dict[str, CassandraTableEvents] = {}
        self._reader: CassandraSnapshotReader | None = None
        self._started = asyncio.Event()
        if settings.mode != "never":
            self._requests[INITIAL] = SnapshotRequest(id=INITIAL, tables=list(settings.tables), origin="initial")
        if settings.mode == "always":
            # The first snapshot reads all tables again.
            for name in [name for name in (*self._saved, *self._left) if new_table_id(name)]:
                self._forget_request(name)
        elif settings.mode == "initial":
            # Also those of tables that are gone by now: they come to their end.
            for name, offset in self._saved.items():
                if not self._list.ended(name) and (request := request_of(name, offset)):
                    self._list.add(request)

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """Take the operator's complete list of requests, in addition to those that the connector has started itself."""
        deleted = self._list.instruct(instructions, _is_own_request)
        listed = {str(row["id"]) for row in instructions}
        for name in {*deleted, *(name for name in self._left if name not in listed and not _is_own_request(name))}:
            self._forget_request(name)

    def _share_partition(self, name: str) -> Position:
        return share_partition(self._settings.prefix, name, self._shard)

    def _set_requests(self, requests: list[SnapshotRequest]) -> None:
        if self._reader is not None:
            self._reader.set_requests(requests)

    def _forget_request(self, name: str) -> None:
        """Keep nothing of a request."""
        self._list.forget(name)
        self._deleted += [(source, None) for source in self._left.pop(name, ())]

    def add_new_tables(self) -> None:
        """Start snapshots of captured tables that were added after the first one, if that is configured. Does not block."""
        if self._reader is None or not self._settings.new_tables or self._settings.mode == "never":
            return
        requests = [new_request(new_table.table_id, str(new_table)) for new_table in self._reader.uncovered()]
        reopened_requests = self._reader.reopened(
            (table, again_us)
            for table in self._catalog.tables(self._settings.tables)
            if (again_us := self._catalog.captures.of(id_bytes(table.table_id)).again_us)
        )
        for request in requests:
            self._log.info(
                "%s came after the first snapshot: it is read on its own (%s)", request.tables[0], request.id
            )
        for request in reopened_requests:
            self._log.info("cdc of %s was off for a while: it is read again (%s)", request.tables[0], request.id)
        requests += reopened_requests
        if requests:
            self._list.add(*requests)
            self._list.hand_over()

    def start(self, session: CqlSession) -> None:
        """Begin to read; the cluster is there. Does not block."""
        self._reader = CassandraSnapshotReader(
            self._settings,
            session,
            CapturedTables(self._catalog.tables, self._refresh),
            self._shard,
            self._offsets,
            self._metrics,
            self._log,
        )
        self._list.hand_over()
        self._reader.start()
        self._started.set()

    async def close(self) -> None:
        """Stop reading; may be repeated."""
        if self._reader is not None:
            await self._reader.close()

    def progress(self) -> list[dict[str, Any]] | None:
        """How far each request of this task is (``state.show_progress``); None: nothing is known before ``start``."""
        return None if self._reader is None else self._reader.progress()

    async def wait(self) -> None:
        """Until there may be something to hand over."""
        await self._started.wait()
        if self._reader is not None:
            await self._reader.wait()

    def batch(self) -> Batch | None:
        """The next chunk, or what else is to be saved; None: nothing.

        Raises:
            Fatal: the cluster refuses to be read.
        """
        reader = self._reader
        self._list.start_due()
        unsaved = [*self._list.take_unsaved(), *self._deleted]
        self._deleted = []
        chunk = reader.ready() if reader is not None else None
        if reader is None or chunk is None:
            changes = reader.changes() if reader is not None else []
            self._note_offsets(changes)
            return Batch([], offsets=(*unsaved, *changes)) if unsaved or changes else None
        source = self._share_partition(chunk.request)
        before = dict(self._saved.get(chunk.request) or {"state": "running"})
        offsets = reader.done(chunk)
        out: list[SourceRecord] = []
        bad = [BadRecord(source, before, Skippable(complaint)) for complaint in chunk.bad]
        events = self._table_events(chunk.table)
        for update in chunk.updates:
            add_rows(events, update, (source, before), out, bad)
        self._note_offsets(offsets)
        return Batch(out, tuple(bad), (*unsaved, *offsets))

    def _note_offsets(self, offsets: Sequence[tuple[Position, Position | None]]) -> None:
        for source, offset in offsets:
            if offset is not None:
                self._saved[str(source[SNAPSHOT])] = offset

    def _table_events(self, table: CqlTableDefinition) -> CassandraTableEvents:
        table_events = self._events.get(table.table_id)
        if table_events is None or table_events.table != table:
            table_events = self._events[table.table_id] = self._builder(table, _VERSION)
        return table_events


def add_rows(
    events: CassandraTableEvents,
    update: PartitionUpdate,
    at: tuple[Position, Position],
    out: list[SourceRecord],
    bad: list[BadRecord],
) -> None:
    """Add the records of rows of one partition; where one has no form, of each row alone, so that the others come."""
    try:
        events.add_snapshot_rows(update, *at, out)
    except Skippable as error:
        if len(update.rows) <= 1:
            bad.append(BadRecord(*at, error, topic=events.topic))
            return
        for row in update.rows:
            add_rows(events, msgspec.structs.replace(update, rows=(row,)), at, out, bad)


def _is_own_request(name: str) -> bool:
    """Whether the connector has made a request itself, by its id."""
    return name == INITIAL or bool(new_table_id(name))
