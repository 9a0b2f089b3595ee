"""Rows of the stream that are bytes already (``fast_rows``), until a batch takes them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import msgspec

from connectors.wire import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import SourceRecord
    from connectors.mysql.events.debezium_code import Clock
    from connectors.mysql.model import RowSource
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.schema.tables import MySqlTableState
    from connectors.mysql.source.gtid import GtidSet
    from connectors.wire import RowWriter


class _Event(msgspec.Struct, gc=False):
    """One rows event, from which its records can be encoded a second time.

    Attributes:
        rows_before: encoded records before it, since batches were last taken.
        start: the index of its first record in its part.
        state: of its table.
        op: what it does.
        raw: its bytes.
        row: number of its first row.
        whole: whether the event is done after its last row (one inside of a payload is not).
        source: where its rows come from.
        clock: the time of processing.
        restart_file, restart_pos, events, tx_rows, ts_sec: of the cursor.
        finished: how many of the gathered GTIDs were finished.
    """

    rows_before: int
    start: int
    state: MySqlTableState
    op: str
    raw: bytes
    row: int
    whole: bool
    source: RowSource
    clock: Clock
    restart_file: str
    restart_pos: int
    events: int
    tx_rows: int
    ts_sec: int
    finished: int


class _EncodedPart:
    """Records of one topic that come one after the other."""

    __slots__ = ("after", "events", "keys", "shared", "values", "writer")

    def __init__(self, writer: RowWriter, after: int, shared: tuple[Any, ...]) -> None:
        self.writer = writer
        self.after = after
        self.shared = shared
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.events: list[_Event] = []


class EncodedRows:
    """Gathers encoded rows in order with the stream's other records. Not thread-safe.

    Attributes:
        count: records gathered.
        began: how many of them are from before the open transaction.
        finished: the GTIDs of transactions that have ended since the first of these records; "" for those without.
    """

    def __init__(self, cursor: BinlogCursor) -> None:
        self.count = 0
        self.began = 0
        self._cursor = cursor
        self._parts: list[_EncodedPart] = []
        #: The part of each topic that takes more, and with how many other records before it.
        self._open: dict[str, _EncodedPart] = {}
        self._after = 0
        #: What was executed before the transactions of ``finished``.
        self.finished: list[str] = []
        self._executed: GtidSet | None = None

    def take(
        self, state: MySqlTableState, op: str, raw: bytes, row: int, source: RowSource, after: int, *, whole: bool
    ) -> int | None:
        """Encode a rows event: how many rows it has; None: it has to go the general way.

        Args:
            state: of its table, with ``fast``.
            op: what it does.
            raw: its bytes.
            row: the number of its first row.
            source: where its rows come from.
            after: how many other records come before it.
            whole: whether the event is done after its last row.
        """
        fast = state.fast
        if fast is None:
            return None
        clock = fast.events.clock()
        try:
            encoded = fast.encode(raw, row, source, clock)
        except Exception:  # noqa: BLE001 - the general way finds out what it is, and reports it
            return None
        if encoded is None or 0 < source.size < encoded[0]:
            return None
        end, keys, values, left_out = encoded
        fast.events.left_out += left_out
        if not values:
            return end - row
        part = self._open.get(fast.writer.topic) if after == self._after else None
        shared = () if fast.shared is None else fast.shared(op, source, clock)
        if part is None or part.writer is not fast.writer or part.shared != shared:
            part = self._new_part(fast.writer, after, shared)
        cursor = self._cursor
        part.events.append(
            _Event(
                self.count,
                len(part.values),
                state,
                op,
                raw,
                row,
                whole,
                source,
                clock,
                cursor.restart_file,
                cursor.restart_pos,
                cursor.events,
                cursor.tx_rows,
                cursor.ts_sec,
                len(self.finished),
            )
        )
        part.values += values
        if keys is not None:
            part.keys += keys
        self.count += len(values)
        return end - row

    def _new_part(self, writer: RowWriter, after: int, shared: tuple[Any, ...]) -> _EncodedPart:
        if after != self._after:
            self._open.clear()
            self._after = after
        if not self._parts:
            executed = self._cursor.executed
            self._executed = None if executed is None else executed.copy()
            self.finished = []
        part = self._open[writer.topic] = _EncodedPart(writer, after, shared)
        self._parts.append(part)
        return part

    def roll_back(self) -> None:
        """Forget the open transaction's rows."""
        for part in self._parts:
            while part.events and part.events[-1].rows_before >= self.began:
                event = part.events.pop()
                del part.values[event.start :], part.keys[event.start :]
        self._parts = [part for part in self._parts if part.values]
        self._open.clear()
        self.count = self.began

    def collect(self) -> tuple[EncodedBatch, ...]:
        """All parts; they are not the stream's any more."""
        if not self._parts:
            return ()
        parts, self._parts = self._parts, []
        executed, self._executed = self._executed, None
        finished, self.finished = self.finished, []
        self._open.clear()
        self._after = self.count = self.began = 0
        return tuple(
            EncodedBatch(
                part.writer,
                part.after,
                part.keys or None,
                part.values,
                lambda events=part.events: self._encode_records(events, executed, finished),  # type: ignore[misc]
                shared=part.shared,
            )
            for part in parts
        )

    def _encode_records(
        self, events: Sequence[_Event], executed: GtidSet | None, finished: Sequence[str]
    ) -> list[SourceRecord]:
        """The events' records, encoded the general way."""
        records: list[SourceRecord] = []
        for event in events:
            cursor = copy.copy(self._cursor)
            cursor.return_to(
                event.restart_file,
                event.restart_pos,
                event.ts_sec,
                event.source.server_id,
                event.source.gtid or "",
                executed,
                finished[: event.finished],
            )
            start, decode = event.state.reader(event.raw, event.raw[4])
            rows: list[Any] = decode(event.raw, start, len(event.raw))
            count = len(rows) // 2 if event.op == "u" else len(rows)
            base = cursor.offset(event.events, event.row, event.tx_rows)
            after = (
                cursor.moved(base, event.events + 1, 0, event.tx_rows + count)
                if event.whole
                else cursor.moved(base, event.events, event.row + count, event.tx_rows)
            )
            fast = event.state.fast
            if fast is None:
                raise AssertionError("rows of a table without a writer were encoded")
            with fast.events.at(event.clock):
                fast.events.changes(event.op, rows, event.source, event.row, base, after, records)  # type: ignore[arg-type]
        return records
