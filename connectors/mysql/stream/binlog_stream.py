"""The stream of changes: raw binlog events in, records and places out. Only definitions of new tables are waited for."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Literal

from connectors.api import BadRecord
from connectors.errors import Fatal, Skippable
from connectors.formats.masking import hide_reason
from connectors.mysql.model import RowSource
from connectors.mysql.rows.decode import BadRow
from connectors.mysql.schema.tables import Structure
from connectors.mysql.source import binlog_events as parse
from connectors.mysql.source import event_types as types
from connectors.mysql.source.payload import transaction_payload
from connectors.mysql.source.statements import SqlStatement, classify_statement
from connectors.mysql.stream.delivered import DeliveredRows
from connectors.mysql.stream.encoded import EncodedRows

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Mapping

    from connectors.api import Position, SourceRecord
    from connectors.mysql.events.contract import Held
    from connectors.mysql.events.transactions import Transactions
    from connectors.mysql.events.ums_signals import MySqlUmsSignals
    from connectors.mysql.model import BinlogPosition, TableName
    from connectors.mysql.schema.tables import MySqlTableState, StreamTables
    from connectors.mysql.snapshot.model import Early
    from connectors.mysql.snapshot.puller import Puller
    from connectors.mysql.stream.cursor import BinlogCursor
    from connectors.mysql.stream.latency import TableLags
    from connectors.mysql.stream.start import Start

    SendEarly = Callable[[MySqlTableState, Early, Position, list[SourceRecord]], None]

_HEADER: Final = struct.Struct("<IBIIIH")
_ID: Final = struct.Struct("<IH")
_NO_TABLE: Final = 0xFFFFFF
_WHOLE: Final = 1 << 32
_HALF: Final = 1 << 31
_PLACES: Final = frozenset({types.ROTATE, types.HEARTBEAT, types.HEARTBEAT_V2})


class StreamCounters:
    """Counts of events and rows since the task was started."""

    def __init__(self) -> None:
        self.events = self.creates = self.updates = self.deletes = self.filtered = self.bad = 0
        self.transactions = self.rolled_back = self.large = self.unended = 0
        self.last_ts_ms = 0
        self.snapshot_bad = 0


class BinlogStream:
    """Turns the events of one connection into records.

    Feed it every event in order; take ``out`` and ``bad`` away between two calls. Not thread-safe.

    Args:
        cursor: where the stream is; only this class moves it.
        tables: knows the tables.
        run_start: where the task began.
        position: where this connection begins.
        same_server: whether ``position`` counts events of the server that is read now.
        partition: the source partition of records.
        counters: numbers go there.
        log: for what is left out.
        on_rows: called with the rows of signal and heartbeat tables: state, operation, rows, place of the event, its time
            (seconds since 1970).
        on_statement: called for statements that are no part of a transaction's frame.
        transactions: gives records of begins and ends, or None.
        lags: keeps numbers per table.
        wants_gtid: whether rows of transactions from this source (uuid, or domain-server) are captured; None: all are.
        queries: whether records carry the statement behind their rows.
        keep_going: whether a row that can't be decoded is left out with a log line; else it goes to ``bad``.
        held_rows: keeps rows that are not records yet, or None.
        signals: makes UMS messages without rows, or None.
        apart: whether records never hold rows of several transactions, because batches end between them.
        masked: whether columns are masked: then the log does not say why a row can't be decoded.

    Attributes:
        out: records that were not taken yet.
        settled: how many of them belong to finished transactions.
        bad: rows that can't be decoded.
        encoded: rows that are bytes already and were not taken yet.
    """

    def __init__(
        self,
        *,
        cursor: BinlogCursor,
        tables: StreamTables,
        run_start: Start,
        position: BinlogPosition,
        same_server: bool,
        partition: Position,
        counters: StreamCounters,
        log: logging.LoggerAdapter[logging.Logger],
        on_rows: Callable[[MySqlTableState, str, list[Any], str, int], None],
        on_statement: Callable[[SqlStatement, RowSource], Awaitable[None]],
        transactions: Transactions | None = None,
        lags: TableLags | None = None,
        wants_gtid: Callable[[str], bool] | None = None,
        queries: bool = False,
        keep_going: bool = False,
        held_rows: Held | None = None,
        apart: bool = False,
        signals: MySqlUmsSignals | None = None,
        masked: bool = False,
    ) -> None:
        self.cursor = cursor
        self.encoded = EncodedRows(cursor)
        self.out: list[SourceRecord] = []
        self.bad: list[BadRecord] = []
        self.settled = 0
        self._tables = tables
        self._partition = partition
        self._puller: Puller | None = None
        #: The puller's mappings: what it reads by turns, and what it keeps back.
        self._watched: Mapping[TableName, object] = {}
        self._withheld: Mapping[TableName, object] = {}
        self._reached: Callable[[BinlogPosition], bool] = lambda _place: False
        self._send_early: SendEarly = lambda *_: None
        self._counters = counters
        self._log = log
        self._on_rows = on_rows
        self._on_statement = on_statement
        self._transactions = transactions
        self._lags = lags
        self._wants_gtid = wants_gtid
        self._queries = queries
        self._keep_going = keep_going
        self._masked = masked
        self._held = held_rows
        self._signals = signals
        self._apart = apart
        self._maps: dict[int, MySqlTableState | None] = {}
        self._delivered = DeliveredRows(cursor, run_start, position, same_server=same_server, log=log)
        self._wanted = True
        #: Rows of the present event so far: of a transaction payload, over all that is in it.
        self._unit_rows = 0
        self._in_payload = False
        self._thread: int | None = None
        self._query: str | None = None
        self._commit_us = 0
        #: Whether the open transaction ends by a commit; one that doesn't is a single statement.
        self._framed = False
        self._ended = False
        #: Where the open transaction's records begin in ``out``; -1: some of them have been taken.
        self._began = 0
        self._statement = ""
        self._handlers: dict[int, Callable[[bytes, int, int, int], Awaitable[None] | None]] = {
            types.TABLE_MAP: self._table_map,
            types.QUERY: self._statement_event,
            types.XID: self._handle_xid,
            types.XA_PREPARE: self._handle_xid,
            types.TRANSACTION_PAYLOAD: self._handle_payload,
            types.INCIDENT: self._handle_incident,
            types.FORMAT_DESCRIPTION: self._handle_description,
            types.ROWS_QUERY: self._rows_query,
            types.ANNOTATE_ROWS: self._rows_query,
            **dict.fromkeys(
                (types.GTID, types.ANONYMOUS_GTID, types.GTID_TAGGED, types.MARIADB_GTID), self._handle_gtid
            ),
            **dict.fromkeys(types.ROWS, self._handle_rows),
            **dict.fromkeys(types.COMPRESSED, self._handle_compressed),
        }

    async def feed(self, raw: bytes) -> None:
        """Take one event; as ``accept``, waited for."""
        waiting = self.accept(raw)
        if waiting is not None:
            await waiting

    def accept(self, raw: bytes) -> Awaitable[None] | None:
        """Take one event; what is returned has to be awaited before the next one.

        Raises:
            Fatal: it can't be understood.
            Retriable: a table's definition can't be read now.
        """
        ts, kind, server_id, size, next_pos, flags = _HEADER.unpack_from(raw)
        cursor = self.cursor
        handler = self._handlers.get(kind)
        if handler is None and kind in _PLACES:
            self._follow_position(raw, kind)
            return None
        at = cursor.pos
        if next_pos:
            if next_pos != at + size:
                # The header has 32 bits of the place: in files beyond 4 GiB the upper ones are the cursor's.
                at += ((next_pos - size - at + _HALF) % _WHOLE) - _HALF
        elif not cursor.open and (at + size) % _WHOLE:
            # MariaDB gives no position within transactions, and 0 for an event that ends where the 32 bits overflow.
            return None  # made by the server for this connection: part of no file
        if flags & types.ARTIFICIAL:
            return None
        if ts:
            cursor.ts_sec = ts
        cursor.server_id = server_id
        if handler is not None:
            waiting = handler(raw, at, ts, size)
            if waiting is not None:
                return self._accept_late(waiting, at + size)
        elif kind not in types.IDLE:
            self._handle_unknown(kind, at, flags)
        # As ``_pass_event``, without the call: a transaction of one row has four events.
        cursor.pos = at + size
        if self._ended:
            self._end_transaction()
        elif cursor.open:
            cursor.events += 1
            cursor.tx_rows += self._unit_rows
        else:
            cursor.settle()
            self.settled = len(self.out)
        self._unit_rows = 0
        return None

    async def _accept_late(self, waiting: Awaitable[None], end: int) -> None:
        await waiting
        self._pass_event(end)

    def _pass_event(self, end: int) -> None:
        """The event is done; the next one begins at ``end``."""
        cursor = self.cursor
        cursor.pos = end
        if self._ended:
            self._end_transaction()
        elif cursor.open:
            cursor.events += 1
            cursor.tx_rows += self._unit_rows
        else:
            cursor.settle()
            self.settled = len(self.out)
        self._unit_rows = 0

    def _handle_unknown(self, kind: int, at: int, flags: int) -> None:
        if flags & types.MAY_IGNORE:
            return
        raise Fatal(
            f"the event at {self.cursor.file}:{at} is of type {types.type_name(kind)}, which may change rows and can't "
            "be read: let the server write row images (binlog_format=ROW), and no types newer than this version knows; "
            "then set the offset behind the event and start a new snapshot of its tables"
        )

    def _follow_position(self, raw: bytes, kind: int) -> None:
        cursor = self.cursor
        if kind == types.ROTATE:
            target = parse.read_rotate(raw)
            cursor.rotate(target.file, target.pos)
        else:
            target = parse.read_heartbeat(raw)
            # It tells how far the server has read, over what it has left out.
            if not cursor.open and target.file == cursor.file and target.pos > cursor.pos:
                cursor.rotate(target.file, target.pos)
        if not cursor.open:
            self.settled = len(self.out)

    # Transactions.

    def _handle_gtid(self, raw: bytes, at: int, ts: int, size: int) -> None:
        del ts, size
        cursor = self.cursor
        if cursor.open and self._framed:
            self._lose_transaction()
        elif cursor.open:
            self._end_transaction()  # of a standalone statement
        mariadb = raw[4] == types.MARIADB_GTID
        gtid_name = parse.plain_gtid(raw)
        if gtid_name:
            self._thread, self._commit_us, self._framed = None, 0, True
        else:
            event = parse.read_gtid(raw)
            gtid_name = event.text
            self._thread = event.thread
            self._commit_us = event.immediate_us
            self._framed = mariadb and not event.standalone
        if mariadb and self._delivered.half_done:
            self._delivered.check_domain(gtid_name)
        self._begin_transaction(at, gtid_name)
        if self._wants_gtid is not None and gtid_name:
            self._wanted = self._wants_gtid(gtid_name.rpartition("-")[0] if mariadb else gtid_name.partition(":")[0])

    def _begin_transaction(self, at: int, gtid: str) -> None:
        if self._held is not None:
            if self._apart and self._held.rows:
                self._held.flush(self.out)
                self.settled = len(self.out)
            self._held.mark()
        self.cursor.begin(at, gtid)
        # What was sent of it before cannot be called back.
        self._began = len(self.out)
        if self._delivered.half_done:
            if self._delivered.is_open_transaction():
                self._began = -1
            self._delivered.count_begin(at)
        self.encoded.began = self.encoded.count
        self._wanted = True
        if self._transactions is not None:
            self._transactions.begin(
                self._make_source(at, 0, self.cursor.ts_sec), self.cursor.offset(0, 0, 0), self.out
            )

    def _end_transaction(self) -> None:
        """The open transaction ended with the event before ``cursor.pos``."""
        cursor = self.cursor
        self._ended = False
        if self._delivered.half_done:
            self._delivered.end_transaction()
        if self._transactions is not None and self._framed:
            self._transactions.end(
                self._make_source(cursor.pos, 0, cursor.ts_sec),
                cursor.offset(cursor.events, 0, cursor.tx_rows),
                self.out,
            )
        elif self._transactions is not None:
            self._transactions.abort()  # as Debezium: a standalone statement has only a BEGIN
        if self.encoded.count:
            self.encoded.finished.append(cursor.gtid)
        cursor.end()
        self._counters.transactions += 1
        self._query = None
        self._maps.clear()
        self.settled = len(self.out)
        if self._puller is not None:
            self._puller.advance(self._reached)

    def _handle_xid(self, raw: bytes, at: int, ts: int, size: int) -> None:
        del raw, at, ts, size
        self._ended = True

    def _statement_event(self, raw: bytes, at: int, ts: int, size: int) -> Awaitable[None] | None:
        thread = parse.begin_thread(raw)
        if thread is not None:
            self._open_transaction(thread, at)
            return None
        query = parse.read_query(raw)
        sql = query.statement
        word = sql[:12].upper()
        if word == "BEGIN":
            self._open_transaction(query.thread, at)
            return None
        if word.startswith(("COMMIT", "XA COMMIT", "XA ROLLBACK")):
            self._ended = True
            if word == "XA ROLLBACK ":
                self._log.error(
                    "%s at %s:%d takes back a transaction whose rows were sent when it was prepared, as replicas "
                    "do it: start a new snapshot of the tables that it has changed",
                    sql,
                    self.cursor.file,
                    at,
                )
            return None
        if word == "ROLLBACK":
            self._roll_back()
            return None
        if word.startswith("XA START"):
            self._framed = True
            return None
        if word.startswith(("SAVEPOINT", "XA END", "RELEASE SAVE")):
            return None
        if word.startswith("ROLLBACK "):
            if not self.cursor.tx_rows:
                return None  # of changes that are not captured
            raise Fatal(
                f"the transaction at {self.cursor.restart_file}:{self.cursor.restart_pos} took back a part of its "
                "changes after it had changed a table without transactions (MyISAM ...): the binlog does not tell "
                "which rows are valid; move the offset behind it and start a new snapshot of its tables"
            )
        return self._handle_other(query, at, ts, size)

    def _open_transaction(self, thread: int, at: int) -> None:
        """A statement begins the transaction."""
        self._thread = thread
        self._framed = True
        if not self.cursor.open:
            self._begin_transaction(at, "")

    def _handle_description(self, raw: bytes, at: int, ts: int, size: int) -> None:
        del raw, at, ts, size
        if self.cursor.open:
            self._lose_transaction()

    def _lose_transaction(self) -> None:
        """The open transaction has no end: the server broke down while writing it, and has forgotten it since."""
        cursor = self.cursor
        self._log.warning(
            "the transaction at %s:%d has no end, because the server broke down: it counts as rolled back",
            cursor.restart_file,
            cursor.restart_pos,
        )
        self._counters.unended += 1
        self._roll_back()
        cursor.gtid = ""  # the server gives its number to another one
        self._end_transaction()

    def _roll_back(self) -> None:
        self._ended = True
        if self.cursor.tx_rows and self._puller is not None:
            self._puller.altered(None)  # rows that were left out of its chunks count after all
        held_rows = self._held
        if held_rows is not None:
            held_rows.take_back()
        if len(self.out) > self._began or self._began < 0 or self.encoded.count > self.encoded.began:
            self._counters.rolled_back += 1
            if self._began < 0 or (held_rows is not None and held_rows.mixed):
                raise Fatal(
                    f"the transaction at {self.cursor.restart_file}:{self.cursor.restart_pos} was rolled back after a "
                    "part of its rows had been sent: set binlog.buffer.size above the number of its rows, or move the "
                    "offset behind it"
                )
            del self.out[self._began :]
            self.encoded.roll_back()
        if self._transactions is not None:
            self._transactions.abort()

    async def _handle_other(self, query: parse.QueryEvent, at: int, ts: int, size: int) -> None:
        statement = classify_statement(query.statement, query.schema)
        if statement.changes_structure:
            self._statement = statement.text
            self._tables.forget(statement)
        elif statement.kind == "rows" and self._tables.concerns(statement):
            self._without_rows(statement, at)
        source = self._make_source(at, size, ts)
        if query.micros is not None:
            source.ts_us = ts * 1_000_000 + query.micros
            source.ts_ms = source.ts_us // 1000
        source.thread = query.thread
        await self._on_statement(statement, source)
        if self.cursor.open and not self._framed:
            self._ended = True

    def _without_rows(self, statement: SqlStatement, at: int) -> None:
        message = (
            f"the statement at {self.cursor.file}:{at} in database {statement.database} has changed rows that are not "
            f"in the binlog ({statement.text[:200]}): SET GLOBAL binlog_format=ROW, also in the server's configuration, "
            "and let no session set another one; then move the offset behind it and start a new snapshot of the tables"
        )
        if not self._keep_going:
            raise Fatal(message)
        self._log.warning("%s", message)

    # Tables and rows.

    def _table_map(self, raw: bytes, at: int, ts: int, size: int) -> Awaitable[None] | None:
        del size
        if not self.cursor.open:
            self._begin_transaction(at, "")  # the place was inside a transaction
            self._framed = True
        low, high = _ID.unpack_from(raw, parse.HEADER_SIZE)
        try:
            self._maps[low | high << 32] = self._tables.cached(raw[types.AFTER_ID :])
        except KeyError:
            return self._learn_table(low | high << 32, raw, at, ts)
        return None

    async def _learn_table(self, number: int, raw: bytes, at: int, ts: int) -> None:
        cursor = self.cursor
        context = Structure(ts * 1000, cursor.file, at, cursor.gtid, self._statement)
        self._maps[number] = await self._tables.learn(raw, context)
        replaced = self._tables.take_replaced()
        if replaced and self._signals is not None:
            if self._held is not None:
                self._held.flush(self.out)  # rows of the structures that end
            offset = cursor.offset(cursor.events, self._unit_rows, cursor.tx_rows)
            self.out += [self._signals.ended(name, version, ts * 1_000_000, offset) for name, version in replaced]

    def _handle_compressed(self, raw: bytes, at: int, ts: int, size: int) -> Awaitable[None] | None:
        plain = parse.uncompress_event(raw)
        if plain[4] == types.QUERY:
            return self._statement_event(plain, at, ts, size)
        self._handle_rows(plain, at, ts, size)
        return None

    async def _handle_payload(self, raw: bytes, at: int, ts: int, size: int) -> None:
        self._in_payload = True
        try:
            for inner in transaction_payload(raw):
                handler = self._handlers.get(inner[4])
                if handler is not None:
                    waiting = handler(inner, at, int.from_bytes(inner[:4], "little") or ts, size)
                    if waiting is not None:
                        await waiting
                elif inner[4] not in types.IDLE:
                    self._handle_unknown(inner[4], at, inner[17] | inner[18] << 8)
        finally:
            self._in_payload = False

    def _handle_rows(self, raw: bytes, at: int, ts: int, size: int) -> None:
        number = parse.table_id(raw)
        try:
            state = self._maps[number]
        except KeyError:
            if number == _NO_TABLE:
                return  # only closes a statement
            raise Fatal(
                f"rows at {self.cursor.file}:{at} belong to table number {number}, of which nothing was told "
                "before: the offset is inside a transaction; set it to where the transaction begins"
            ) from None
        if state is None or not self._wanted or not (state.owned or state.kind):
            self._counters.filtered += 1
            if self._in_payload and state is not None and self._wanted:
                # Rows of a payload are numbered over all captured tables, so that every task numbers them alike.
                head = parse.rows_header(raw)
                count = state.counter(types.row_kind(raw[4]), head.present, head.present_after)
                self._unit_rows += count(raw, head.start, len(raw))
            return
        kind = raw[4]
        op: Literal["c", "u", "d"] = "c" if kind in types.WRITES else "u" if kind in types.UPDATES else "d"
        if state.fast is not None and self._take_encoded(state, op, raw, at, ts, size):
            return
        start, decode = state.reader(raw, kind)
        rows: list[Any]
        try:
            rows = decode(raw, start, len(raw))
        except BadRow as error:
            rows = error.rows
            self._refuse_rows(error, state, at)
        if state.owned:
            self._take_rows(state, op, rows, at, ts, size)
        if state.kind:
            self._on_rows(state, op, rows, f"{self.cursor.file}:{at}", ts)

    def _take_rows(
        self, state: MySqlTableState, op: Literal["c", "u", "d"], rows: list[Any], at: int, ts: int, size: int
    ) -> None:
        cursor = self.cursor
        width = 2 if op == "u" else 1
        count, before = len(rows) // width, self._unit_rows
        self._unit_rows = before + count
        first = self._delivered.count_rows(before, count)
        puller = self._puller
        if puller is not None:
            early = puller.changed(state.name, op, rows) if state.name in self._watched else ()
            if state.name in self._withheld:
                return
            for rows_before in early:
                self._send_early(state, rows_before, cursor.offset(cursor.events, before, cursor.tx_rows), self.out)
        if self._delivered.by_others:
            rows = self._delivered.mask_rows(state, rows, width, before)
        if first == count:
            return
        if first:
            rows = rows[first * width :]
        source = self._make_source(at, size, ts)
        base = cursor.offset(cursor.events, before, cursor.tx_rows)
        after = (
            cursor.moved(base, cursor.events, before + count, cursor.tx_rows)
            if self._in_payload
            else cursor.moved(base, cursor.events + 1, 0, cursor.tx_rows + count)
        )
        state.events.changes(op, rows, source, before + first, base, after, self.out)
        self._count_rows(op, count - first, source)
        if self._lags is not None:
            self._lags.saw(state.text, count, size, source.ts_ms)

    def _take_encoded(
        self, state: MySqlTableState, op: Literal["c", "u", "d"], raw: bytes, at: int, ts: int, size: int
    ) -> bool:
        """Take a rows event straight to bytes; False: it has to go the general way, and nothing has happened."""
        delivered = self._delivered
        if delivered.half_done or delivered.by_others:
            return False
        watched, withheld = self._watched, self._withheld  # nearly always empty, and a name's hash costs more
        if (watched and state.name in watched) or (withheld and state.name in withheld):
            return False
        source = self._make_source(at, size, ts)
        before = self._unit_rows
        count = self.encoded.take(state, op, raw, before, source, len(self.out), whole=not self._in_payload)
        if count is None:
            return False
        self._unit_rows = before + count
        self._count_rows(op, count, source)
        if self._lags is not None:
            self._lags.saw(state.text, count, size, source.ts_ms)
        return True

    def _count_rows(self, op: Literal["c", "u", "d"], rows: int, source: RowSource) -> None:
        counters = self._counters
        counters.events += rows
        if op == "c":
            counters.creates += rows
        elif op == "u":
            counters.updates += rows
        else:
            counters.deletes += rows
        counters.last_ts_ms = source.ts_ms

    def _refuse_rows(self, error: BadRow, state: MySqlTableState, at: int) -> None:
        """Rows of the event can't be decoded; in ``error.rows`` there is None in their places."""
        cursor = self.cursor
        done = self._delivered.count_rows(self._unit_rows, len(error.rows))
        for number, column, reason, raw in error.bad:
            if number < done:
                continue  # it was sent before the restart
            self._counters.bad += 1
            where = f" column {column}" if column else ""
            message = f"{state.name}: row {number} of the event at {cursor.file}:{at}{where} can't be decoded: {reason}"
            if self._keep_going:
                shown = message.replace(reason, str(hide_reason(error))) if self._masked else message
                self._log.warning("a row is left out: %s", shown)
                continue
            offset = cursor.offset(cursor.events, self._unit_rows + number + 1, cursor.tx_rows)
            self.bad.append(BadRecord(self._partition, offset, Skippable(message), raw, state.events.topic))

    def _rows_query(self, raw: bytes, at: int, ts: int, size: int) -> None:
        del at, ts, size
        if self._queries:
            self._query = parse.rows_query(raw)

    def _handle_incident(self, raw: bytes, at: int, ts: int, size: int) -> None:
        del ts, size
        raise Fatal(
            f"the server's binlog has a gap at {self.cursor.file}:{at} ({parse.describe_incident(raw)}): changes are missing "
            "in "
            "it; move the offset behind it and start a new snapshot of all tables"
        )

    def _make_source(self, at: int, size: int, ts: int) -> RowSource:
        cursor = self.cursor
        us = self._commit_us or ts * 1_000_000
        return RowSource(
            ts_ms=ts * 1000,
            ts_us=us,
            server_id=cursor.server_id,
            file=cursor.file,
            pos=at,
            gtid=cursor.gtid or None,
            thread=self._thread,
            query=self._query,
            size=size,
        )

    def attach(self, puller: Puller, reached: Callable[[BinlogPosition], bool], send_early: SendEarly) -> None:
        """From now on tell the puller which keys change, and ask ``reached`` for it whether the stream has got somewhere.

        Args:
            puller: reads the tables.
            reached: whether the stream has come to a place.
            send_early: appends the records of a snapshot's rows that have to come before their change.
        """
        self._puller = puller
        self._watched, self._withheld = puller.watched, puller.withheld
        self._reached = reached
        self._send_early = send_early

    def take(self, count: int) -> tuple[list[SourceRecord], tuple[BadRecord, ...]]:
        """The first ``count`` records, and all bad rows; they are not the stream's any more.

        Where there are ``encoded`` rows, ``count`` must be all records, and ``encoded.collect`` takes them afterwards.
        """
        sent = self.encoded.count > self.encoded.began
        records = self.out[:count] if count < len(self.out) else self.out
        self.out = self.out[count:] if count < len(self.out) else []
        bad, self.bad = tuple(self.bad), []
        self.settled = max(0, self.settled - count)
        if self.cursor.open:
            # A part of the open transaction that is on its way can't be called back.
            if 0 <= count <= self._began and not sent:
                self._began -= count
            else:
                self._counters.large += self._began >= 0
                self._began = -1
        return records, bad
