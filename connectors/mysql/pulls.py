"""Full pulls as a run uses them: who asks for what, what is saved of it, and the records of their rows."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors import schema as connect
from connectors.api import SNAPSHOT_ENDED, BadRecord, SourceRecord
from connectors.mysql import filters, positions, shards, signals, start
from connectors.mysql.begin import INITIAL
from connectors.mysql.known_tables import NEW, snapshot_id
from connectors.mysql.model import MARIADB, Place, Source
from connectors.mysql.snapshot.model import RowDecoder, SnapshotRequest
from connectors.mysql.snapshot.puller import Puller
from connectors.mysql.text_rows import compile_text, select_list
from connectors.new_tables import NEW_TABLES
from connectors.schema import struct

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from connectors.api import Instruction, Position, TaskMetrics
    from connectors.mysql.config_stream import StreamSettings
    from connectors.mysql.cursor import Cursor
    from connectors.mysql.events.contract import Marker
    from connectors.mysql.events.ums_signals import UmsSignals
    from connectors.mysql.known_tables import KnownTables
    from connectors.mysql.model import Shard, Table, TableName
    from connectors.mysql.snapshot.model import Chunk, Early, SnapshotSettings
    from connectors.mysql.source import Server
    from connectors.mysql.statements import Statement
    from connectors.mysql.tables import Tables, TableState
    from connectors.wire import EncodedBatch

_STATE: Final = "state"
_PROGRESS: Final = "progress"
_REQUEST: Final = "request"
_NAMES: Final = {"done": "completed"}
_FIELDS: Final = ("table", "state", "rows_total", "rows_done", "rows_per_s", "percent", "eta_s", "error")
_KEY: Final = struct("io.millrace.mysql.Progress.Key", {"snapshot": connect.STRING, "table": connect.STRING})
_VALUE: Final = struct(
    "io.millrace.mysql.Progress",
    {
        "snapshot": connect.STRING,
        "table": connect.STRING,
        "shard": connect.STRING,
        "state": connect.STRING,
        "rows_total": connect.OPTIONAL_INT64,
        "rows_done": connect.INT64,
        "rows_per_s": connect.OPTIONAL_FLOAT64,
        "percent": connect.OPTIONAL_FLOAT64,
        "eta_s": connect.OPTIONAL_FLOAT64,
        "error": connect.OPTIONAL_STRING,
        "ts_ms": connect.INT64,
    },
)


class Pulls:
    """The full pulls of one run of a task.

    Attributes:
        puller: reads the tables.
    """

    def __init__(
        self,
        *,
        settings: StreamSettings,
        options: SnapshotSettings,
        shard: Shard,
        connect_to: Callable[[], Awaitable[Any]],
        server: Server,
        tables: Tables,
        wanted: Callable[[TableName], bool],
        offsets: Sequence[tuple[Position, Position]],
        initial: bool,
        cursor: Cursor,
        flavor: str,
        by_gtid: bool,
        known: KnownTables,
        signals: UmsSignals | None,
        metrics: TaskMetrics,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._settings = settings
        self._shard = shard
        self._server = server
        self._tables = tables
        self._wanted = wanted
        self._cursor = cursor
        self._flavor = flavor
        self._by_gtid = by_gtid
        self._known = known
        self._signals = signals
        self._log = log
        self._saved: dict[str, Position] = {}
        again = initial and settings.plan.pull == "always"
        for partition, offset in offsets:
            request = partition.get(start.SNAPSHOT)
            if (
                request is not None
                and partition == start.snapshot_partition(settings.prefix, request, shard)
                and not (again and request == INITIAL)
            ):
                self._saved[request] = offset
        self._requests: dict[str, SnapshotRequest] = {}
        if initial and self._saved.get(INITIAL, {}).get(_STATE) not in SNAPSHOT_ENDED:
            self._requests[INITIAL] = SnapshotRequest(
                id=INITIAL,
                tables=list(settings.snapshot_tables) or [".*"],
                conditions=dict(settings.overrides.conditions),
                selects=dict(settings.overrides.selects),
                origin="initial",
                created_ms=int(time.time() * 1000),
            )
        #: When the next snapshot begins that waits for its time, milliseconds since 1970.
        self._next_start_ms: int | None = None
        #: What is to be saved of requests that the connector or a signal has begun or ended.
        self._unsaved: list[tuple[Position, Position | None]] = []
        # Everything is read now; or the tables of a former division into tasks are new again for this one.
        self._all_read = INITIAL in self._requests and _PROGRESS not in self._saved.get(INITIAL, {})
        for request, offset in list(self._saved.items()):
            if (
                (self._all_read or known.inherited)
                and _origin(offset) == NEW
                and offset.get(_STATE) not in SNAPSHOT_ENDED
            ):
                self._forget(request)
            # Asked for in the past; nobody asks again.
            elif offset.get(_STATE) not in SNAPSHOT_ENDED and _REQUEST in offset:
                self._requests[request] = msgspec.json.decode(offset[_REQUEST], type=SnapshotRequest)
        self._states: dict[TableName, tuple[Table, TableState]] = {}
        #: Of tables about which ``agree`` has not asked the runtime yet.
        self._new_states: list[TableState] = []
        self.puller = Puller(
            options,
            connect=connect_to,
            tables=self._find,
            decoder=self._decoder,
            shard=shard,
            saved={name: offset[_PROGRESS] for name, offset in self._saved.items() if _PROGRESS in offset},
            seen=self._seen,
            metrics=metrics,
            log=log,
        )

    async def start(self) -> None:
        """Begin to read.

        Tables of the first pull and new ones are found before: what the stream gives of those without a key counts.

        Raises:
            Retriable: the server is away.
            ConfigInvalid: it refuses the account.
        """
        names = await self._server.names(self._wanted)
        await self._read_new(self._known.discover(names, all_read=self._all_read))
        if INITIAL in self._requests:
            await self.puller.resolve()
        self.puller.start()

    async def close(self) -> None:
        """Stop reading."""
        await self.puller.close()

    # Who asks.

    def first_offsets(self) -> tuple[tuple[Position, Position], ...]:
        """What is to be saved before anything else: that the first full pull has begun."""
        if INITIAL not in self._requests or INITIAL in self._saved:
            return ()
        return ((self._partition(INITIAL), {_STATE: "running"}),)

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """The operator's complete list of requests, over what the connector and signals have begun."""
        seen = set()
        for each in instructions:
            name = each["id"]
            seen.add(name)
            if each.get("origin", "rest") == "rest":
                if self._saved.get(name, {}).get(_STATE) not in SNAPSHOT_ENDED:
                    self._requests[name] = msgspec.convert(dict(each), SnapshotRequest, strict=False)
            elif name in self._requests:
                self._requests[name] = msgspec.structs.replace(self._requests[name], state=each["state"])
        listed = seen | {name for name, each in self._requests.items() if each.origin != "rest"}
        for name in {name for name, each in self._requests.items() if each.origin == "rest"} | self._saved.keys():
            if name not in listed and name != INITIAL and _REQUEST not in self._saved.get(name, {}):
                # Deleted by the operator: nothing of it is kept.
                self._forget(name)
        self._hand_over()

    def begin_scheduled(self) -> None:
        """Begin the snapshots whose time has come."""
        if self._next_start_ms is not None and time.time() * 1000 >= self._next_start_ms:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the puller the complete list of requests. Those that wait for their time are paused ones for it."""
        now_ms = int(time.time() * 1000)
        waiting = {
            name: each.start_ms
            for name, each in self._requests.items()
            if each.state == "running" and each.start_ms > now_ms
        }
        self._next_start_ms = min(waiting.values(), default=None)
        self.puller.set_requests(
            [
                msgspec.structs.replace(each, state="paused") if name in waiting else each
                for name, each in self._requests.items()
            ]
        )

    async def altered(self, statement: Statement) -> None:
        """The stream came by a statement that changes structures, or a TRUNCATE.

        Raises:
            Retriable: a new table's structure can't be read now.
        """
        for name in statement.tables or (None,):
            self.puller.altered(name)
        effect = self._known.statement(statement)
        for name in effect.complete:
            self._drop_new(name)
        await self._read_new(effect.new)

    async def _read_new(self, names: Sequence[TableName]) -> None:
        """Begin a snapshot of each of these tables, which the connector captures from now on."""
        listed = filters.patterns(",".join(self._settings.snapshot_tables) or ".*")
        names = [name for name in names if self._settings.new_tables and filters.matches(listed, str(name))]
        if not names:
            return
        definitions = await self._server.definitions(names)
        for name in names:
            self._drop_new(name)
            if name not in definitions:
                continue  # dropped or renamed since: the stream comes to that
            overrides = self._settings.overrides
            request = SnapshotRequest(
                id=snapshot_id(name, self._saved),
                tables=[filters.exactly(name)],
                conditions=dict(overrides.conditions),
                selects=dict(overrides.selects),
                origin=NEW,
                created_ms=int(time.time() * 1000),
            )
            self._log.info(
                "%s is captured from now on: snapshot %s reads what it holds (%s)", name, request.id, NEW_TABLES
            )
            self._requests[request.id] = request
            self._saved[request.id] = {_STATE: "running", _REQUEST: msgspec.json.encode(request).decode()}
            self._unsaved.append((self._partition(request.id), self._saved[request.id]))
            self.puller.preset(request.id, [definitions[name]])
        self._hand_over()

    def _drop_new(self, name: TableName) -> None:
        """End an unfinished snapshot of a new table: all of its rows are in the binlog, or it is another table now."""
        for request in [
            each.id
            for each in self._requests.values()
            if each.origin == NEW
            and each.tables == [filters.exactly(name)]
            and self._saved.get(each.id, {}).get(_STATE) not in SNAPSHOT_ENDED
        ]:
            self._forget(request)
            self._hand_over()

    def _forget(self, request: str) -> None:
        self._requests.pop(request, None)
        if self._saved.pop(request, None) is not None:
            self._unsaved.append((self._partition(request), None))

    def signal(self, found: signals.Signal) -> signals.Outcome:
        """Carry out an order of a signal channel.

        Raises:
            Skippable: it is no order; the message says why.
        """
        own = [each for each in self._requests.values() if each.origin == "signal"]
        outcome = signals.apply(found, own, int(time.time() * 1000))
        for each in outcome.requests if outcome.changed else ():
            known = self._saved.get(each.id, {})
            if known.get(_STATE) in SNAPSHOT_ENDED:
                continue  # met again after a restart
            self._requests[each.id] = each
            self._saved[each.id] = {_STATE: "waiting", **known, _REQUEST: msgspec.json.encode(each).decode()}
            self._unsaved.append((self._partition(each.id), self._saved[each.id]))
        self._hand_over()
        return outcome

    @property
    def finished(self) -> bool:
        """Whether all that was asked for is done."""
        return all(
            _NAMES.get(each[_STATE], each[_STATE]) in SNAPSHOT_ENDED
            for each in self.puller.progress()
            if each["id"] in self._requests
        )

    # What comes of it.

    def ready(self) -> Chunk | None:
        """The next chunk that may be sent now."""
        return self.puller.ready(self.reached)

    async def agree(self) -> None:
        """Ask the runtime whether it takes the rows of tables that are read for the first time as bytes."""
        states, self._new_states = self._new_states, []
        for state in states:
            await self._tables.agree_on_snapshot(state)

    def emit(self, chunk: Chunk, offset: Position, out: list[SourceRecord]) -> EncodedBatch | None:
        """Append the records of a chunk's rows, or return them as bytes."""
        state = self._state(chunk.table)
        rows = chunk.take(len(chunk) or 1)
        batch = self._batch(chunk.request, chunk.origin)
        source = Source(
            ts_ms=chunk.read_ms, ts_us=chunk.read_ms * 1000, server_id=0, file=chunk.low.file, pos=chunk.low.pos
        )
        marker: Marker = "incremental"
        first: Marker | None = None
        last: Marker | None = None
        if chunk.origin == "initial":
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

    def emit_early(self, state: TableState, early: Early, offset: Position, out: list[SourceRecord]) -> None:
        """Append the records of rows that have to come before their change."""
        read_ms = int(time.time() * 1000)
        source = Source(ts_ms=read_ms, ts_us=read_ms * 1000, server_id=0, file=early.low.file, pos=early.low.pos)
        state.events.snapshot(
            early.rows,
            source,
            "true" if early.origin == "initial" else "incremental",
            offset,
            out,
            batch=self._batch(early.request, early.origin),
        )

    def _batch(self, name: str, origin: str) -> int:
        """The id of a snapshot on request, the same for all tasks; 0 for a table's first one."""
        request = self._requests.get(name)
        return 0 if origin in {"initial", NEW} or request is None else signals.batch_id(request)

    def streamed(self) -> list[TableName]:
        """Tables of which the stream alone has all changes: their first snapshot is over, or they have none."""
        reading = {
            table["table"]
            for each in self.puller.progress()
            for table in each["tables"]
            if each["id"] in self._requests
            and self._requests[each["id"]].origin in {"initial", NEW}
            and table["state"] in {"waiting", "running"}
        }
        if INITIAL in self._requests and not any(
            each["id"] == INITIAL and each["tables"] for each in self.puller.progress()
        ):
            return []  # its tables are not known yet
        return [name for name in self._known.names() if str(name) not in reading]

    def bad(self, chunk: Chunk, partition: Position, offset: Position) -> tuple[BadRecord, ...]:
        """The chunk's rows that can't be decoded."""
        topic = self._state(chunk.table).events.topic if chunk.bad else None
        return tuple(BadRecord(partition, offset, error, raw, topic) for error, raw in chunk.bad)

    def done(self, chunk: Chunk) -> tuple[tuple[Position, Position], ...]:
        """The chunk's records are on their way: what is to be saved with the last of them."""
        return self._offsets(self.puller.done(chunk))

    def changes(self) -> tuple[tuple[Position, Position | None], ...]:
        """What else is to be saved."""
        return (*self.decided(), *self._offsets(self.puller.changes()))

    def decided(self) -> tuple[tuple[Position, Position | None], ...]:
        """What was decided about tables and requests: to be saved no later than the place of the stream that led to it."""
        unsaved, self._unsaved = self._unsaved, []
        return (*unsaved, *self._known.take())

    def progress(self) -> list[dict[str, Any]]:
        """How far each full pull of this task is."""
        return self.puller.progress()

    def records(self) -> list[SourceRecord]:
        """How far every table is, for the progress topic."""
        found = []
        now_ms = int(time.time() * 1000)
        for request in self.puller.progress():
            for table in request["tables"]:
                name = request["id"]
                value = {
                    "snapshot": name,
                    "shard": shards.text(self._shard),
                    "ts_ms": now_ms,
                    **{field: table.get(field) for field in _FIELDS},
                }
                found.append(
                    SourceRecord(
                        self._partition(name),
                        dict(self._saved.get(name, {_STATE: "running"})),
                        self._settings.progress_topic,
                        value,
                        _VALUE,
                        {"snapshot": name, "table": table["table"]},
                        _KEY,
                    )
                )
        return found

    async def wait_for(self, reading: asyncio.Task[Any], limit_s: float) -> None:
        """Until events were read, or a chunk may be ready, or so many seconds have passed."""
        waiting = asyncio.ensure_future(self.puller.wait())
        try:
            await asyncio.wait({reading, waiting}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def _offsets(self, texts: Mapping[str, str]) -> tuple[tuple[Position, Position], ...]:
        states = {each["id"]: _NAMES.get(each[_STATE], each[_STATE]) for each in self.puller.progress()}
        found = []
        for name, text in texts.items():
            request = self._requests.get(name)
            offset: Position = {_STATE: states.get(name, "completed"), _PROGRESS: text}
            if request is not None and request.origin in {"signal", NEW}:
                offset[_REQUEST] = msgspec.json.encode(request).decode()
            self._saved[name] = offset
            found.append((self._partition(name), offset))
        return tuple(found)

    def _partition(self, request: str) -> Position:
        return start.snapshot_partition(self._settings.prefix, request, self._shard)

    # What the puller asks.

    async def _find(self, expressions: list[str]) -> Sequence[Table]:
        expected = filters.patterns(",".join(expressions))
        names = await self._server.names(lambda name: self._wanted(name) and filters.matches(expected, str(name)))
        definitions = await self._server.definitions(names)
        return [definitions[name] for name in names if name in definitions]

    def _state(self, table: Table) -> TableState:
        known = self._states.get(table.name)
        if known is not None and known[0] == table:
            return known[1]
        state = self._tables.state(table, None)
        self._states[table.name] = (table, state)
        self._new_states.append(state)
        return state

    def _decoder(self, table: Table) -> RowDecoder:
        state = self._state(table)
        plans = state.layout.plans
        shown = {plan.column.name for plan in plans if plan is not None}
        return RowDecoder(
            select_list(table, plans),
            compile_text(table, plans, self._tables.options),
            table.key if set(table.key) <= shown else (),
            len(shown),
        )

    def _seen(self) -> Place:
        cursor = self._cursor
        gtids = cursor.seen_gtids() if self._by_gtid or self._flavor != MARIADB else ""
        return Place(file=cursor.file, pos=cursor.pos, gtids=gtids)

    def reached(self, place: Place) -> bool:
        """Whether the stream has come to a place; of a replica's only the GTIDs count."""
        return positions.reached(self._cursor.place(), place, self._flavor, by_gtid=not place.file)


def _origin(offset: Position) -> str:
    """Who asked for a snapshot, by what is saved of it; "": it is not said."""
    if _REQUEST not in offset:
        return ""
    return str(msgspec.json.decode(offset[_REQUEST], type=SnapshotRequest).origin)
