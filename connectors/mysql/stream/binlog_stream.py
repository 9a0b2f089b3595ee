"""The stream of changes: raw binlog events in, records and places out. Only definitions of new tables are waited for."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.errors import Fatal
from connectors.mysql.position import positions
from connectors.mysql.source import binlog_events as parse
from connectors.mysql.source import event_types as types
from connectors.mysql.source.payload import transaction_payload
from connectors.mysql.stream.open_transaction import OpenTransaction
from connectors.mysql.stream.row_events import RowEvents
from connectors.mysql.stream.state import make_state
from connectors.mysql.stream.statement_events import StatementEvents

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Iterator

    from connectors.mysql.events.contract import EventContext
    from connectors.mysql.model import BinlogPosition
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.position.start import ConnectionStart
    from connectors.mysql.schema.tables import StreamTables
    from connectors.mysql.snapshot.reader import MySqlSnapshotReader
    from connectors.mysql.source.gtid import GtidSet
    from connectors.mysql.stream.counters import StreamCounters
    from connectors.mysql.stream.options import StreamListener, StreamOptions
    from connectors.mysql.stream.snapshot_link import SendEarly

_HEADER: Final = struct.Struct("<IBIIIH")
_WHOLE: Final = 1 << 32
_HALF: Final = 1 << 31
_POSITION_EVENTS: Final = frozenset({types.ROTATE, types.HEARTBEAT, types.HEARTBEAT_V2})


class _Payload(NamedTuple):
    """A compressed transaction: the events that were not taken yet, and position, time and size of the one that holds them."""

    events: Iterator[bytes]
    at: int
    ts: int
    size: int


class BinlogStream:
    """Turns the events of one connection into records.

    Feed it every event in order; take away what is in ``output`` between two calls. Not thread-safe.

    Args:
        cursor: where the stream is; only this class and its parts move it.
        begin: where this connection begins.
        tables: knows the tables.
        context: what records have in common.
        options: how the stream is read.
        listener: who is called for what is not rows of captured tables.
        counters: numbers go there.
        log: for what is left out.

    Attributes:
        cursor: where the stream is.
        output: what it has made and no batch has taken.
    """

    def __init__(
        self,
        cursor: BinlogCursor,
        begin: ConnectionStart,
        tables: StreamTables,
        context: EventContext,
        options: StreamOptions,
        listener: StreamListener,
        counters: StreamCounters,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        state = make_state(cursor, begin, context.held_rows, counters, log)
        self.cursor = cursor
        self.output = state.output
        self._snapshot = state.snapshot
        self._payload: _Payload | None = None
        self._payload_end = 0
        self._enter_file = listener.enter_file
        #: The file that was entered last.
        self._entered = ""
        transaction = self._transaction = OpenTransaction(state, context.transactions, options, log)
        rows = self._rows = RowEvents(
            state, transaction, tables, context, listener.take_rows, log, keep_going=options.keep_going
        )
        statements = StatementEvents(
            cursor,
            transaction,
            tables,
            listener.take_statement,
            log,
            fold_names=options.fold_names,
            keep_going=options.keep_going,
        )
        self._handlers: dict[int, Callable[[bytes, int, int, int], Awaitable[None] | None]] = {
            types.TABLE_MAP: rows.handle_table_map,
            types.QUERY: statements.handle_query,
            types.XID: transaction.handle_commit,
            types.XA_PREPARE: transaction.handle_prepare,
            types.TRANSACTION_PAYLOAD: self._handle_payload,
            types.INCIDENT: self._handle_incident,
            types.FORMAT_DESCRIPTION: transaction.handle_description,
            types.PREVIOUS_GTIDS: transaction.handle_previous_gtids,
            types.ROWS_QUERY: transaction.handle_rows_query,
            types.ANNOTATE_ROWS: transaction.handle_rows_query,
            **dict.fromkeys(
                (types.GTID, types.ANONYMOUS_GTID, types.GTID_TAGGED, types.MARIADB_GTID), transaction.handle_gtid
            ),
            **dict.fromkeys(types.ROWS, rows.handle_rows),
            **dict.fromkeys(types.COMPRESSED, self._handle_compressed),
        }

    def attach(
        self, reader: MySqlSnapshotReader, reached: Callable[[BinlogPosition], bool], send_early: SendEarly
    ) -> None:
        """From now on tell the reader which keys change, and ask ``reached`` for it whether the stream has got somewhere.

        Args:
            reader: reads the tables.
            reached: whether the stream has come to a place.
            send_early: appends the records of a snapshot's rows that have to come before their change.
        """
        self._snapshot.attach(reader, reached, send_early)

    async def feed(self, raw: bytes) -> None:
        """Take one event; as ``accept``, waited for."""
        waiting = self.accept(raw)
        if waiting is not None:
            await waiting
        while self.unfinished:
            await self.proceed()

    @property
    def unfinished(self) -> bool:
        """Whether only a part of the last event was taken, a compressed transaction: ``proceed`` takes more of it."""
        return self._payload is not None

    async def proceed(self) -> None:
        """Take more of the event that is ``unfinished``.

        Raises:
            Fatal, Retriable: as ``accept``.
        """
        await self._take_payload()
        if self._payload is None:
            self._pass_event(self._payload_end)

    def leave_file(self, file: str) -> None:
        """Continue at the start of ``file``: the server broke down while it wrote the present one.

        Raises:
            Fatal: a part of the transaction that it has forgotten was sent.
        """
        if self.cursor.open:
            self._transaction.lose()
        self.cursor.rotate(file, positions.FIRST)

    def accept(self, raw: bytes) -> Awaitable[None] | None:
        """Take one event; what is returned has to be awaited before the next one, and ``proceed`` while it is ``unfinished``.

        Raises:
            Fatal: it can't be understood.
            Retriable: a table's definition can't be read now.
        """
        ts, kind, server_id, size, next_pos, flags = _HEADER.unpack_from(raw)
        cursor = self.cursor
        handler = self._handlers.get(kind)
        if handler is None and kind in _POSITION_EVENTS:
            return self._follow_position(raw, kind)
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
        if self._transaction.ended:
            self._transaction.end()
        elif cursor.open:
            cursor.events += 1
            cursor.tx_rows += cursor.event_rows
        else:
            cursor.settle()
            self.output.settled = len(self.output.records)
        cursor.event_rows = 0
        return None

    async def _accept_late(self, waiting: Awaitable[None], end: int) -> None:
        await waiting
        if self._payload is None:
            self._pass_event(end)
        else:
            self._payload_end = end

    def _pass_event(self, end: int) -> None:
        """The event is done; the next one begins at ``end``."""
        cursor = self.cursor
        cursor.pos = end
        if self._transaction.ended:
            self._transaction.end()
        elif cursor.open:
            cursor.events += 1
            cursor.tx_rows += cursor.event_rows
        else:
            cursor.settle()
            self.output.settled = len(self.output.records)
        cursor.event_rows = 0

    def _handle_unknown(self, kind: int, at: int, flags: int) -> None:
        if flags & types.MAY_IGNORE:
            return
        raise Fatal(
            f"the event at {self.cursor.file}:{at} is of type {types.type_name(kind)}, which may change rows and can't "
            "be read: let the server write row images (binlog_format=ROW), and no types newer than this version knows; "
            "then set the offset behind the event and start a new snapshot of its tables"
        )

    def _follow_position(self, raw: bytes, kind: int) -> Awaitable[None] | None:
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
            self.output.settled = len(self.output.records)
        if self._enter_file is not None and self._entered != cursor.file:
            self._entered = cursor.file
            return self._learn_end(self._enter_file(cursor.file))
        return None

    async def _learn_end(self, complete: Awaitable[GtidSet | None]) -> None:
        self._transaction.complete = await complete

    def _handle_compressed(self, raw: bytes, at: int, ts: int, size: int) -> Awaitable[None] | None:
        plain = parse.uncompress_event(raw)
        return self._handlers[plain[4]](plain, at, ts, size)

    async def _handle_payload(self, raw: bytes, at: int, ts: int, size: int) -> None:
        self._rows.in_payload = True
        self._payload = _Payload(transaction_payload(raw), at, ts, size)
        await self._take_payload()

    async def _take_payload(self) -> None:
        """Take events of a compressed transaction up to the next one with rows: all of them may be more than memory holds."""
        payload = self._payload
        if payload is None:
            return
        for inner in payload.events:
            handler = self._handlers.get(inner[4])
            if handler is not None:
                ts = int.from_bytes(inner[:4], "little") or payload.ts
                waiting = handler(inner, payload.at, ts, payload.size)
                if waiting is not None:
                    await waiting
            elif inner[4] not in types.IDLE:
                self._handle_unknown(inner[4], payload.at, inner[17] | inner[18] << 8)
            if inner[4] in types.ROWS:
                return
        self._rows.in_payload = False
        self._payload = None

    def _handle_incident(self, raw: bytes, at: int, ts: int, size: int) -> None:
        del ts, size
        raise Fatal(
            f"the server's binlog has a gap at {self.cursor.file}:{at} ({parse.describe_incident(raw)}): changes are "
            "missing in it; move the offset behind it and start a new snapshot of all tables"
        )
