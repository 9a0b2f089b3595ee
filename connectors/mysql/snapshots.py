"""Snapshots as a run uses them: who asks for what, what is saved of it, and the records of their rows."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from connectors.api import SNAPSHOT_ENDED, BadRecord
from connectors.mysql.config import filters
from connectors.mysql.model import RowSource
from connectors.mysql.position import shards, start
from connectors.mysql.schema.known_tables import snapshot_id
from connectors.mysql.snapshot.reader import MySqlSnapshotReader
from connectors.mysql.snapshot.reading.chunks import SnapshotSource
from connectors.mysql.stream import signals
from connectors.snapshot.progress import ProgressRecords
from connectors.snapshot.requests import (
    INITIAL,
    NEW,
    PROGRESS,
    REQUEST,
    STATE,
    RequestList,
    SnapshotRequest,
    decode_request,
    encode_request,
)
from connectors.snapshot.state import shown_state
from connectors.source_options.new_tables import NEW_TABLES

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence

    from connectors.api import Instruction, Position, SourceRecord, TaskMetrics
    from connectors.mysql.events.contract import Marker
    from connectors.mysql.events.ums_signals import MySqlUmsSignals
    from connectors.mysql.model import StreamSettings, TableName
    from connectors.mysql.schema.known_tables import KnownTables
    from connectors.mysql.schema.tables import MySqlTableState
    from connectors.mysql.snapshot.model import Early, SnapshotChunk
    from connectors.mysql.snapshot.tables import SnapshotAccess
    from connectors.mysql.source.statements import SqlStatement
    from connectors.wire import EncodedBatch


class RunSnapshots:
    """The snapshots of one run of a task.

    Attributes:
        reader: reads the tables.
    """

    def __init__(
        self,
        *,
        settings: StreamSettings,
        source: SnapshotAccess,
        offsets: Sequence[tuple[Position, Position]],
        initial: bool,
        known_tables: KnownTables,
        signals: MySqlUmsSignals | None,
        metrics: TaskMetrics,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        shard = self._shard = settings.shard
        self._settings = settings
        self._tables = source.tables
        self._server = source.tables.server
        self._known_tables = known_tables
        self._signals = signals
        self._log = log
        #: Whether the stream has come to a position.
        self.reached = source.position.reached
        self._list = RequestList(self._make_partition, self._set_requests)
        self._requests, self._saved = self._list.requests, self._list.saved
        repeats_initial = initial and settings.plan.snapshot == "always"
        for partition, offset in offsets:
            request = partition.get(start.SNAPSHOT)
            if (
                request is not None
                and partition == start.snapshot_partition(settings.prefix, request, shard)
                and not (repeats_initial and request == INITIAL)
            ):
                self._saved[request] = offset
        if initial and not self._list.ended(INITIAL):
            self._requests[INITIAL] = SnapshotRequest(
                id=INITIAL,
                tables=list(settings.snapshot_tables) or [".*"],
                conditions=dict(settings.overrides.conditions),
                selects=dict(settings.overrides.selects),
                origin="initial",
                created_ms=int(time.time() * 1000),
            )
        # Everything is read now; or the tables of a former division into tasks are new again for this one.
        self._all_read = INITIAL in self._requests and PROGRESS not in self._saved.get(INITIAL, {})
        for request, offset in list(self._saved.items()):
            asked = None if self._list.ended(request) else decode_request(offset)
            if asked is not None and asked.origin == NEW and (self._all_read or known_tables.inherited):
                self._list.forget(request)
            elif asked is not None:  # asked for in the past; no one asks again
                self._requests[request] = asked
        self.reader = MySqlSnapshotReader(
            source.options,
            SnapshotSource(
                source.connect,
                source.tables.find,
                source.tables.decoder,
                source.position.seen,
                self._server.prepared_transactions,
            ),
            shard,
            partition=self._make_partition,
            saved=self._saved,
            metrics=metrics,
            log=log,
        )
        self._progress = ProgressRecords(
            settings.progress_topic,
            settings.progress_s,
            name="io.millrace.mysql",
            shard=shards.format_shard(shard),
            position=lambda name: (self._make_partition(name), dict(self._saved.get(name, {STATE: "running"}))),
        )

    async def start(self) -> None:
        """Start to read.

        Looks up the tables of the initial snapshot and new tables first: the stream's changes of those without a key must not
        be missed.

        Raises:
            Retriable: the server is unavailable.
            ConfigInvalid: it refuses the account.
        """
        names = await self._server.names(self._tables.is_captured)
        await self._read_new(self._known_tables.discover(names, all_read=self._all_read))
        if INITIAL in self._requests:
            await self.reader.resolve()
        self.reader.start()

    async def close(self) -> None:
        """Stop reading."""
        await self.reader.close()

    # Who asks.

    def first_offsets(self) -> tuple[tuple[Position, Position], ...]:
        """Return the offsets to save before all others: they say that the initial snapshot has started."""
        if INITIAL not in self._requests or INITIAL in self._saved:
            return ()
        return ((self._make_partition(INITIAL), {STATE: "running"}),)

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """Apply the operator's complete list of requests to the snapshots that the connector and signals have started."""
        self._list.instruct(instructions, self._is_own)

    def _is_own(self, name: str) -> bool:
        """Whether the connector or a signal has made a request."""
        request = self._requests.get(name)
        return (
            name == INITIAL
            or REQUEST in self._saved.get(name, {})
            or (request is not None and request.origin != "rest")
        )

    def begin_scheduled(self) -> None:
        """Start the snapshots whose time has come."""
        self._list.start_due()

    def _set_requests(self, requests: list[SnapshotRequest]) -> None:
        self.reader.set_requests(requests)

    async def altered(self, statement: SqlStatement) -> tuple[TableName, ...]:
        """The stream came by a statement that changes structures, or a TRUNCATE; return the captured tables that are gone.

        Raises:
            Retriable: a new table's structure can't be read now.
        """
        if statement.kind != "database":
            for name in statement.tables or (None,):
                self.reader.altered(name)
        elif statement.drops_database:
            self.reader.database_altered(statement.database)
        effect = self._known_tables.statement(statement)
        for name in effect.complete:
            self._drop_new(name)
        await self._read_new(effect.new)
        return effect.gone

    async def _read_new(self, names: Sequence[TableName]) -> None:
        """Begin a snapshot of each of these tables, which the connector captures from now on."""
        listed = filters.compile_patterns(self._settings.snapshot_tables or (".*",))
        names = [name for name in names if self._settings.new_tables and filters.matches_any(listed, str(name))]
        if not names:
            return
        definitions = await self._server.definitions(names)
        for name in names:
            self._drop_new(name)
            if name not in definitions:
                # Dropped or renamed since, which the stream comes to; or MariaDB's RENAME TABLE IF EXISTS has renamed nothing.
                self._known_tables.forget(name)
                continue
            overrides = self._settings.overrides
            request = SnapshotRequest(
                id=snapshot_id(name, self._saved),
                tables=[filters.quote_expression(name)],
                conditions=dict(overrides.conditions),
                selects=dict(overrides.selects),
                origin=NEW,
                created_ms=int(time.time() * 1000),
            )
            self._log.info(
                "%s is captured from now on: snapshot %s reads what it holds (%s)", name, request.id, NEW_TABLES
            )
            self._list.add(request)
            self._list.save(request.id, {STATE: "running", REQUEST: encode_request(request)})
            self.reader.preset(request.id, [definitions[name]])
        self._list.hand_over()

    def _drop_new(self, name: TableName) -> None:
        """End an unfinished snapshot of a new table: all of its rows are in the binlog, or it is another table now."""
        for request in [
            known_request.id
            for known_request in self._requests.values()
            if known_request.origin == NEW
            and known_request.tables == [filters.quote_expression(name)]
            and not self._list.ended(known_request.id)
        ]:
            self._list.forget(request)
            self._list.hand_over()

    def signal(self, order: signals.Signal) -> signals.SignalOutcome:
        """Carry out an order of a signal channel.

        Raises:
            Skippable: it is no order; the message says why.
        """
        signal_requests = [
            known_request for known_request in self._requests.values() if known_request.origin == "signal"
        ]
        outcome = signals.apply_signal(order, signal_requests, int(time.time() * 1000))
        for known_request in outcome.requests if outcome.changed else ():
            if self._list.ended(known_request.id):
                continue  # met again after a restart
            self._requests[known_request.id] = known_request
            self._list.save(
                known_request.id,
                {STATE: "waiting", **self._saved.get(known_request.id, {}), REQUEST: encode_request(known_request)},
            )
        self._list.hand_over()
        return outcome

    def ended(self, request_id: str) -> bool:
        """Whether the task's share of a request is over."""
        return self._list.ended(request_id)

    def request_json(self, request_id: str) -> str:
        """A request as offsets have it now; "": it is forgotten."""
        request = self._requests.get(request_id)
        return "" if request is None else encode_request(request)

    @property
    def finished(self) -> bool:
        """Whether all that was asked for is done."""
        return all(
            shown_state(snapshot["state"]) in SNAPSHOT_ENDED
            for snapshot in self.reader.progress()
            if snapshot["id"] in self._requests
        )

    # What comes of it.

    def ready(self) -> SnapshotChunk | None:
        """The next chunk that may be sent now."""
        return self.reader.ready(self.reached)

    async def agree(self) -> None:
        """Ask the runtime whether it takes the rows of tables that are read for the first time as bytes."""
        await self._tables.agree()

    def emit(self, chunk: SnapshotChunk, offset: Position, out: list[SourceRecord]) -> EncodedBatch | None:
        """Append the records of a chunk's rows, or return them as bytes."""
        state = self._tables.state(chunk.table)
        rows = chunk.take(len(chunk) or 1)
        batch = self._batch_id(chunk.request.id, chunk.request.origin)
        source = RowSource(
            ts_ms=chunk.read_ms, ts_us=chunk.read_ms * 1000, server_id=0, file=chunk.low.file, pos=chunk.low.pos
        )
        marker: Marker = "incremental"
        first: Marker | None = None
        last: Marker | None = None
        if chunk.request.origin == "initial":
            marker = "true"
            first = "first" if chunk.first_of_request else "first_in_data_collection" if chunk.first_of_table else None
            last = "last" if chunk.last_of_request else "last_in_data_collection" if chunk.last_of_table else None
        if state.snapshot is not None:
            encoded = state.snapshot.encode(rows, source, marker, offset, first, last)
            if encoded is not None:
                return encoded
        state.events.snapshot(rows, source, marker, offset, out, first=first, last=last, batch=batch)
        if chunk.last_of_table and self._signals is not None:
            out.append(self._signals.read(chunk.name, state.version, source.ts_us, offset, batch))
        return None

    def emit_early(self, state: MySqlTableState, early: Early, offset: Position, out: list[SourceRecord]) -> None:
        """Append the records of rows that have to come before their change."""
        read_ms = int(time.time() * 1000)
        source = RowSource(ts_ms=read_ms, ts_us=read_ms * 1000, server_id=0, file=early.low.file, pos=early.low.pos)
        state.events.snapshot(
            early.rows,
            source,
            "true" if early.origin == "initial" else "incremental",
            offset,
            out,
            batch=self._batch_id(early.request, early.origin),
        )

    def _batch_id(self, name: str, origin: str) -> int:
        """The id of a snapshot on request, the same for all tasks; 0 for a table's first one."""
        request = self._requests.get(name)
        return 0 if origin in {"initial", NEW} or request is None else signals.batch_id(request)

    def streamed(self) -> list[TableName]:
        """Tables of which the stream alone has all changes: their first snapshot is over, or they have none."""
        reading = {
            table["table"]
            for snapshot in self.reader.progress()
            for table in snapshot["tables"]
            if snapshot["id"] in self._requests
            and self._requests[snapshot["id"]].origin in {"initial", NEW}
            and table["state"] in {"waiting", "running"}
        }
        if INITIAL in self._requests and not any(
            snapshot["id"] == INITIAL and snapshot["tables"] for snapshot in self.reader.progress()
        ):
            return []  # its tables are not known yet
        return [name for name in self._known_tables.names() if str(name) not in reading]

    def bad(self, chunk: SnapshotChunk, partition: Position, offset: Position) -> tuple[BadRecord, ...]:
        """The chunk's rows that can't be decoded."""
        topic = self._tables.state(chunk.table).events.topic if chunk.bad else None
        return tuple(BadRecord(partition, offset, error, raw, topic) for error, raw in chunk.bad)

    def done(self, chunk: SnapshotChunk) -> tuple[tuple[Position, Position], ...]:
        """The chunk's records are on their way: what is to be saved with the last of them."""
        return self._keep(self.reader.done(chunk))

    def changes(self) -> tuple[tuple[Position, Position | None], ...]:
        """Return all other offsets to save."""
        return (*self.decided(), *self._keep(self.reader.changes()))

    def decided(self) -> tuple[tuple[Position, Position | None], ...]:
        """Return the offsets of decisions about tables and requests.

        They must be saved no later than the position in the stream that led to the decision.
        """
        return (*self._list.take_unsaved(), *self._known_tables.take())

    def progress(self) -> list[dict[str, Any]]:
        """The progress of each snapshot of this task."""
        return self.reader.progress()

    def records(self, *, last: bool = False) -> list[SourceRecord]:
        """The records of the progress topic that are due; all of them before the run ends (``last``)."""
        now = time.monotonic()
        if not self._progress.due(now, last=last):
            return []
        return self._progress.records(self.progress(), now, int(time.time() * 1000))

    async def wait_for(self, reading: asyncio.Task[Any], limit_s: float) -> None:
        """Wait until events were read, or a chunk may be ready, or ``limit_s`` seconds have passed."""
        waiting = asyncio.ensure_future(self.reader.wait())
        try:
            await asyncio.wait({reading, waiting}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def _keep(self, offsets: Sequence[tuple[Position, Position]]) -> tuple[tuple[Position, Position], ...]:
        """The offsets of shares, with the requests that no one repeats after a restart."""
        for partition, offset in offsets:
            name = partition[start.SNAPSHOT]
            request = self._requests.get(name)
            if request is not None and request.origin in {"signal", NEW}:
                offset[REQUEST] = encode_request(request)
            self._saved[name] = offset
        return tuple(offsets)

    def _make_partition(self, request: str) -> Position:
        return start.snapshot_partition(self._settings.prefix, request, self._shard)
