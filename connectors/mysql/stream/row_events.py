"""Rows in the stream: which table they belong to, what they say, and what the task gives for them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Literal

from connectors.api import BadRecord
from connectors.errors import Fatal, Skippable
from connectors.formats.masks.masking import hide_reason
from connectors.mysql.rows.decode import BadRow
from connectors.mysql.schema.tables import Structure
from connectors.mysql.source import binlog_events as parse
from connectors.mysql.source import event_types as types

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable

    from connectors.mysql.events.contract import EventContext
    from connectors.mysql.model import RowSource
    from connectors.mysql.schema.tables import MySqlTableState, StreamTables
    from connectors.mysql.stream.open_transaction import OpenTransaction
    from connectors.mysql.stream.state import StreamState

_ID: Final = struct.Struct("<IH")
_NO_TABLE: Final = 0xFFFFFF


class RowEvents:
    """Turns table maps and rows events into records. Not thread-safe.

    Args:
        state: of the stream.
        transaction: the open transaction.
        tables: knows the tables.
        context: what records have in common.
        take_rows: called with the rows of signal and heartbeat tables.
        log: for rows that are left out.
        keep_going: whether a row that can't be decoded is left out with a log line; else it goes to the output's ``bad``.

    Attributes:
        in_payload: whether the present event is inside of a transaction payload.
    """

    def __init__(
        self,
        state: StreamState,
        transaction: OpenTransaction,
        tables: StreamTables,
        context: EventContext,
        take_rows: Callable[[MySqlTableState, str, list[Any], str, int], None],
        log: logging.LoggerAdapter[logging.Logger],
        *,
        keep_going: bool,
    ) -> None:
        self.in_payload = False
        self._cursor = state.cursor
        self._output = state.output
        self._encoded = state.output.encoded
        self._delivered = state.delivered
        self._snapshot = state.snapshot
        self._counters = state.counters
        self._lags = state.counters.tables
        self._transaction = transaction
        self._tables = tables
        self._context = context
        self._take_special_rows = take_rows
        self._log = log
        self._keep_going = keep_going

    def handle_table_map(self, raw: bytes, at: int, ts: int, size: int) -> Awaitable[None] | None:
        """The following rows may be of this table; what is returned has to be awaited before the next event.

        Raises:
            Fatal: its structure can't be known for sure.
            Retriable: its definition can't be read now.
        """
        del size
        if not self._cursor.open:
            self._transaction.open_by_rows(at)
        low, high = _ID.unpack_from(raw, parse.HEADER_SIZE)
        try:
            self._transaction.maps[low | high << 32] = self._tables.cached(raw[types.AFTER_ID :])
        except KeyError:
            return self._learn_table(low | high << 32, raw, at, ts)
        return None

    async def _learn_table(self, number: int, raw: bytes, at: int, ts: int) -> None:
        cursor = self._cursor
        met = Structure(ts * 1000, cursor.file, at, cursor.gtid, self._tables.changed_by, cursor.source_server)
        self._transaction.maps[number] = await self._tables.learn(raw, met)
        replaced = self._tables.take_replaced()
        signals = self._context.signals
        if replaced and signals is not None:
            self._output.flush_held()  # rows of the structures that end
            offset = cursor.offset(cursor.events, cursor.event_rows, cursor.tx_rows)
            self._output.records += [signals.ended(name, version, ts * 1_000_000, offset) for name, version in replaced]

    def handle_rows(self, raw: bytes, at: int, ts: int, size: int) -> None:
        """Rows of a table were inserted, updated or deleted.

        Raises:
            Fatal: it is not known which table's.
        """
        number = parse.table_id(raw)
        transaction = self._transaction
        try:
            state = transaction.maps[number]
        except KeyError:
            if number == _NO_TABLE:
                return  # only closes a statement
            raise Fatal(
                f"rows at {self._cursor.file}:{at} belong to table number {number}, which no event "
                "before has described: the offset is inside a transaction; set it to where the transaction begins"
            ) from None
        if state is None or not transaction.captured or not (state.owned or state.kind):
            self._counters.filtered += 1
            if self.in_payload and state is not None and transaction.captured:
                # Rows of a payload are numbered over all captured tables, so that every task numbers them alike.
                head = parse.rows_header(raw)
                count = state.counter(types.row_kind(raw[4]), head.present, head.present_after)
                self._cursor.event_rows += count(raw, head.start, len(raw))
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
            self._take_rows(state, op, raw, rows, at, ts, size)
        if state.kind:
            self._take_special_rows(state, op, rows, f"{self._cursor.file}:{at}", ts)

    def _take_rows(
        self,
        state: MySqlTableState,
        op: Literal["c", "u", "d"],
        raw: bytes,
        rows: list[Any],
        at: int,
        ts: int,
        size: int,
    ) -> None:
        cursor = self._cursor
        width = 2 if op == "u" else 1
        count, before = len(rows) // width, cursor.event_rows
        cursor.event_rows = before + count
        first = self._delivered.count_rows(before, count)
        snapshot = self._snapshot
        if (snapshot.watched or snapshot.withheld) and not snapshot.change_rows(state, op, rows, before):
            return
        if self._delivered.by_others:
            rows = self._delivered.mask_rows(state, raw, rows, width, before)
        if first == count:
            return
        if first:
            rows = rows[first * width :]
        source = self._transaction.make_source(at, size, ts)
        base = cursor.offset(cursor.events, before, cursor.tx_rows)
        after = (
            cursor.moved(base, cursor.events, before + count, cursor.tx_rows)
            if self.in_payload
            else cursor.moved(base, cursor.events + 1, 0, cursor.tx_rows + count)
        )
        state.events.changes(op, rows, source, before + first, base, after, self._output.records)
        self._count_rows(op, count - first, source)
        self._lags.saw(state.text, count, size, source.ts_ms)

    def _take_encoded(
        self, state: MySqlTableState, op: Literal["c", "u", "d"], raw: bytes, at: int, ts: int, size: int
    ) -> bool:
        """Take a rows event straight to bytes; False: it has to go the general way, and nothing has happened."""
        delivered, snapshot, cursor = self._delivered, self._snapshot, self._cursor
        if delivered.half_done or delivered.by_others:
            return False
        watched, withheld = snapshot.watched, snapshot.withheld  # nearly always empty, and a name's hash costs more
        if (watched and state.name in watched) or (withheld and state.name in withheld):
            return False
        source = self._transaction.make_source(at, size, ts)
        before = cursor.event_rows
        others = len(self._output.records)
        count = self._encoded.take(state, op, raw, before, source, others, whole=not self.in_payload)
        if count is None:
            return False
        cursor.event_rows = before + count
        self._count_rows(op, count, source)
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
        cursor = self._cursor
        done = self._delivered.count_rows(cursor.event_rows, len(error.rows))
        for number, column, reason, raw in error.bad:
            if number < done:
                continue  # it was sent before the restart
            self._counters.bad += 1
            where = f" column {column}" if column else ""
            message = f"{state.name}: row {number} of the event at {cursor.file}:{at}{where} can't be decoded: {reason}"
            if self._keep_going:
                masked = self._context.settings.masks  # then a reason may show what they hide
                shown = message.replace(reason, str(hide_reason(error))) if masked else message
                self._log.warning("a row is left out: %s", shown)
                continue
            offset = cursor.offset(cursor.events, cursor.event_rows + number + 1, cursor.tx_rows)
            self._output.bad.append(
                BadRecord(self._context.partition, offset, Skippable(message), raw, state.events.topic)
            )
