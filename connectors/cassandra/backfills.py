"""Backfills as a run uses them: who asks for what, and the records of what was read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.api import SNAPSHOT_ENDED, BadRecord, Batch
from connectors.cassandra.backfill.model import INITIAL, SnapshotRequest, new_request, new_table_id
from connectors.cassandra.backfill.puller import Backfiller
from connectors.cassandra.backfill.views import partition, request_of
from connectors.cassandra.catalog import id_bytes
from connectors.cassandra.model import CLUSTER, SHARD, SNAPSHOT
from connectors.errors import Skippable

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Sequence

    from connectors.api import Instruction, Position, SourceRecord, TaskMetrics
    from connectors.cassandra.backfill.model import BackfillSettings
    from connectors.cassandra.catalog import Catalog
    from connectors.cassandra.events.contract import TableEvents
    from connectors.cql.mutations.definition import TableDefinition
    from connectors.cql.session import CqlSession

#: The log's version in whose form backfills are written; all readers know it.
_VERSION: Final = 8


class Backfills:
    """The backfills of one run of a task.

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
        settings: BackfillSettings,
        shard: tuple[int, int],
        offsets: Sequence[tuple[Position, Position]],
        *,
        catalog: Catalog,
        builder: Callable[[TableDefinition, int], TableEvents],
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
        #: Of each request what is saved of this task's share.
        self._saved: dict[str, Position] = {}
        #: Partitions of shares of earlier divisions among tasks, which nobody writes any more, by request.
        self._left: dict[str, list[Position]] = {}
        for source, offset in offsets:
            request = source.get(SNAPSHOT)
            if source.get(CLUSTER) != settings.prefix or not isinstance(request, str):
                continue
            if source == partition(settings.prefix, request, shard):
                self._saved[request] = offset
            elif shard[0] == 0 and not str(source.get(SHARD)).endswith(f"/{shard[1]}"):
                self._left.setdefault(request, []).append(source)
        self._requests: dict[str, SnapshotRequest] = {}
        #: What the operator wants of requests that the connector has made itself.
        self._steered: dict[str, Any] = {}
        self._unsaved: list[tuple[Position, Position | None]] = []
        self._events: dict[str, TableEvents] = {}
        self._backfiller: Backfiller | None = None
        self._started = asyncio.Event()
        if settings.mode != "never":
            self._requests[INITIAL] = SnapshotRequest(id=INITIAL, tables=list(settings.tables), origin="initial")
        if settings.mode == "always":
            # The first backfill reads all tables again.
            for name in [name for name in (*self._saved, *self._left) if new_table_id(name)]:
                self._forget(name)
        elif settings.mode == "initial":
            # Also those of tables that are gone by now: they come to their end.
            self._requests |= {
                name: request
                for name, offset in self._saved.items()
                if (request := request_of(name, offset)) and offset.get("state") not in SNAPSHOT_ENDED
            }

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """The operator's complete list of requests, over what the connector has begun itself."""
        listed = {INITIAL, *(name for name in (*self._requests, *self._saved, *self._left) if new_table_id(name))}
        self._steered = {
            str(each["id"]): each["state"] for each in instructions if each.get("origin", "rest") != "rest"
        }
        for each in instructions:
            name = str(each["id"])
            listed.add(name)
            if each.get("origin", "rest") == "rest":
                self._requests[name] = msgspec.convert({**each, "origin": "rest"}, SnapshotRequest, strict=False)
            elif name in self._requests:
                self._requests[name] = msgspec.structs.replace(self._requests[name], state=each["state"])
        for name in (self._requests.keys() | self._saved.keys() | self._left.keys()) - listed:
            self._requests.pop(name, None)  # deleted by the operator
            self._forget(name)
        if self._backfiller is not None:
            self._backfiller.set_requests(list(self._requests.values()))

    def _forget(self, name: str) -> None:
        """Keep nothing of a request."""
        if self._saved.pop(name, None) is not None:
            self._unsaved.append((partition(self._settings.prefix, name, self._shard), None))
        self._unsaved += [(source, None) for source in self._left.pop(name, ())]

    def add_new_tables(self) -> None:
        """Begin backfills of captured tables that came after the first one, if that is wanted. Does not block."""
        if self._backfiller is None or not self._settings.new_tables or self._settings.mode == "never":
            return
        found = [new_request(each.table_id, str(each)) for each in self._backfiller.uncovered()]
        again = self._backfiller.reopened(
            (table, again_us)
            for table in self._catalog.tables(self._settings.tables)
            if (again_us := self._catalog.captures.of(id_bytes(table.table_id)).again_us)
        )
        for request in found:
            self._log.info(
                "%s came after the first backfill: it is read on its own (%s)", request.tables[0], request.id
            )
        for request in again:
            self._log.info("cdc of %s was off for a while: it is read again (%s)", request.tables[0], request.id)
        found += again
        for request in found:
            self._requests[request.id] = msgspec.structs.replace(
                request, state=self._steered.get(request.id, "running")
            )
        if found:
            self._backfiller.set_requests(list(self._requests.values()))

    def start(self, session: CqlSession) -> None:
        """Begin to read; the cluster is there. Does not block."""
        self._backfiller = Backfiller(
            self._settings,
            session,
            self._catalog.tables,
            self._shard,
            self._offsets,
            self._metrics,
            self._log,
            refresh=self._refresh,
        )
        self._backfiller.set_requests(list(self._requests.values()))
        self._backfiller.start()
        self._started.set()

    async def close(self) -> None:
        """Stop reading; may be repeated."""
        if self._backfiller is not None:
            await self._backfiller.close()

    def progress(self) -> list[dict[str, Any]] | None:
        """How far each request of this task is (``backfill.state.progress``); None: nothing is known before ``start``."""
        return None if self._backfiller is None else self._backfiller.progress()

    async def wait(self) -> None:
        """Until there may be something to hand over."""
        await self._started.wait()
        if self._backfiller is not None:
            await self._backfiller.wait()

    def batch(self) -> Batch | None:
        """The next chunk, or what else is to be saved; None: nothing.

        Raises:
            Fatal: the cluster refuses to be read.
        """
        reader = self._backfiller
        unsaved, self._unsaved = self._unsaved, []
        chunk = reader.ready() if reader is not None else None
        if reader is None or chunk is None:
            changes = reader.changes() if reader is not None else []
            self._note(changes)
            return Batch([], offsets=(*unsaved, *changes)) if unsaved or changes else None
        source = partition(self._settings.prefix, chunk.request, self._shard)
        before = dict(self._saved.get(chunk.request) or {"state": "running"})
        offsets = reader.done(chunk)
        out: list[SourceRecord] = []
        bad = [BadRecord(source, before, Skippable(text)) for text in chunk.bad]
        events = self._table_events(chunk.table)
        for update in chunk.updates:
            try:
                events.backfill(update, source, before, out)
            except Skippable as error:
                bad.append(BadRecord(source, before, error, topic=events.topic))
        self._note(offsets)
        return Batch(out, tuple(bad), (*unsaved, *offsets))

    def _note(self, offsets: Sequence[tuple[Position, Position | None]]) -> None:
        for source, offset in offsets:
            if offset is not None:
                self._saved[str(source[SNAPSHOT])] = offset

    def _table_events(self, table: TableDefinition) -> TableEvents:
        known = self._events.get(table.table_id)
        if known is None or known.table != table:
            known = self._events[table.table_id] = self._builder(table, _VERSION)
        return known
