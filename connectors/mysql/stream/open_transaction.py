"""The transaction that is open in the stream: how it begins and ends, and what its rows have in common."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from connectors.errors import ConfigInvalid
from connectors.mysql.model import RowSource
from connectors.mysql.snapshot.prepared import UNFINISHED
from connectors.mysql.source import binlog_events as parse
from connectors.mysql.source import event_types as types
from connectors.mysql.source.gtid import MySqlGtids

if TYPE_CHECKING:
    import logging

    from connectors.mysql.events.transactions import Transactions
    from connectors.mysql.schema.tables import MySqlTableState
    from connectors.mysql.source.gtid import GtidSet
    from connectors.mysql.stream.options import StreamOptions
    from connectors.mysql.stream.state import StreamState


class OpenTransaction:
    """Follows the begins and ends of transactions. Not thread-safe.

    Args:
        state: of the stream.
        records: makes records of begins and ends, or None.
        options: how the stream is read.
        log: for transactions without an end.

    Attributes:
        framed: whether it ends by a commit; one that doesn't is a single statement.
        ended: whether the present event is its last one.
        captured: whether rows from its source are captured.
        maps: the tables of its table numbers; None for a table that is not captured.
        thread: the connection that made it, or None.
        query: the statement behind the following rows, or None.
        alter: the part of an ALTER of MariaDB that it is, see ``Gtid``; "" for all others.
        complete: the transactions that have an end in the present file; None: all of them.
    """

    def __init__(
        self,
        state: StreamState,
        records: Transactions | None,
        options: StreamOptions,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.framed = False
        self.ended = False
        self.captured = True
        self.maps: dict[int, MySqlTableState | None] = {}
        self.thread: int | None = None
        self.query: str | None = None
        self.alter = ""
        self.complete: GtidSet | None = None
        self._commit_us = 0
        #: Whether it is an XA transaction.
        self._prepares = False
        #: Those that are prepared and have no row of the task.
        self._prepared_without_rows: set[str] = set()
        #: The transactions before the present file, where the stream did not know which were executed before it began.
        self._before_file: GtidSet | None = None
        self._cursor = state.cursor
        self._output = state.output
        self._delivered = state.delivered
        self._snapshot = state.snapshot
        self._counters = state.counters
        self._records = records
        self._options = options
        self._log = log

    # Events.

    def handle_gtid(self, raw: bytes, at: int, ts: int, size: int) -> None:
        """The first event of a transaction."""
        del ts, size
        if self._cursor.open and self.framed:
            self.lose()
        elif self._cursor.open:
            self.end()  # of a standalone statement
        mariadb = raw[4] == types.MARIADB_GTID
        gtid_name = parse.plain_gtid(raw)
        if gtid_name:
            self.thread, self._commit_us, self.framed, self.alter = None, 0, True, ""
            prepares = False
        else:
            event = parse.read_gtid(raw)
            gtid_name = event.text
            self.thread = event.thread
            self._commit_us = event.immediate_us
            self.alter = event.alter
            self.framed = mariadb and not event.standalone
            prepares = event.prepared
        if self._before_file is not None:
            if gtid_name:
                self._cursor.know_executed(self._before_file)
            self._before_file = None
        if mariadb and self._delivered.half_done:
            self._delivered.check_domain(gtid_name)
        self._begin(at, gtid_name)
        if prepares:
            self.begin_prepared()
        wants_gtid = self._options.wants_gtid
        if wants_gtid is not None and gtid_name:
            self.captured = wants_gtid(gtid_name.rpartition("-")[0] if mariadb else gtid_name.partition(":")[0])

    def handle_previous_gtids(self, raw: bytes, at: int, ts: int, size: int) -> None:
        """The transactions before the file, at its beginning. MariaDB's server is asked for them instead."""
        del at, ts, size
        if self._cursor.executed is None and not self._cursor.open:
            with contextlib.suppress(ConfigInvalid):  # of a newer form: they stay unknown
                self._before_file = MySqlGtids.decode(raw[parse.HEADER_SIZE :])

    def handle_commit(self, raw: bytes, at: int, ts: int, size: int) -> None:
        """The last event of a transaction."""
        del raw, at, ts, size
        self.ended = True

    def handle_prepare(self, raw: bytes, at: int, ts: int, size: int) -> None:
        """The last event of an XA transaction, which counts from here on although the server shows it only at its end."""
        del at, ts, size
        self.ended = True
        transaction = parse.prepared_transaction(raw)
        if self._cursor.tx_rows and transaction:
            self._snapshot.hold(transaction)
        elif transaction:
            self._prepared_without_rows.add(transaction.lower())

    def handle_description(self, raw: bytes, at: int, ts: int, size: int) -> None:
        """The server has started, or begins a file: never in the middle of a transaction that has an end."""
        del raw, at, ts, size
        if self._cursor.open:
            self.lose()

    def handle_rows_query(self, raw: bytes, at: int, ts: int, size: int) -> None:
        """The statement behind the following rows."""
        del at, ts, size
        if self._options.queries:
            self.query = parse.rows_query(raw)

    # Begins and ends.

    def begin_prepared(self) -> None:
        """It is an XA transaction: the server does not show its rows when the stream has passed them."""
        self.framed = True
        self._prepares = True
        self._snapshot.hold(UNFINISHED)

    def release_prepared(self, transaction: str) -> bool:
        """An XA transaction has its end; return whether it may have had rows of the task."""
        self._snapshot.release(transaction)
        without_rows = transaction.lower() in self._prepared_without_rows
        self._prepared_without_rows.discard(transaction.lower())
        return not without_rows

    def roll_back_prepared(self) -> None:
        """The XA transaction was rolled back: rows that were left out of chunks because of its rows count after all."""
        self._snapshot.roll_back()

    def open_by_statement(self, thread: int, at: int) -> None:
        """A BEGIN opens it, if no event before has done so."""
        self.thread = thread
        self.framed = True
        if not self._cursor.open:
            self._begin(at, "")

    def open_by_rows(self, at: int) -> None:
        """The position was inside a transaction: what comes of it is one."""
        if not self._cursor.open:
            self._begin(at, "")
            self.framed = True

    def _begin(self, at: int, gtid: str) -> None:
        cursor = self._cursor
        whole = self.complete is not None and bool(gtid) and not self.complete.contains(gtid)
        self._output.begin(apart=self._options.apart or whole, whole=whole)
        cursor.begin(at, gtid)
        if self._delivered.half_done:
            if self._delivered.is_open_transaction():
                self._output.continue_sent()
            self._delivered.count_begin(at)
        self.captured = True
        if self._records is not None:
            self._records.begin(self.make_source(at, 0, cursor.ts_sec), cursor.offset(0, 0, 0), self._output.records)

    def end(self) -> None:
        """It ended with the event before ``cursor.pos``."""
        cursor, output = self._cursor, self._output
        self.ended = False
        if self._delivered.half_done:
            self._delivered.end_transaction()
        if self._records is not None and self.framed:
            self._records.end(
                self.make_source(cursor.pos, 0, cursor.ts_sec),
                cursor.offset(cursor.events, 0, cursor.tx_rows),
                output.records,
            )
        elif self._records is not None:
            self._records.abort()  # as Debezium: a standalone statement has only a BEGIN
        if output.encoded.count:
            output.encoded.finished.append(cursor.gtid)
        cursor.end()
        self._counters.transactions += 1
        self.query = None
        self.maps.clear()
        output.settled = len(output.records)
        if self._prepares:
            self._prepares = False
            self._snapshot.release(UNFINISHED)
        self._snapshot.end_transaction()

    def roll_back(self) -> None:
        """Forget its rows; the present event is its last one.

        Raises:
            Fatal: a part of them was sent.
        """
        self.ended = True
        if self._cursor.tx_rows:
            self._snapshot.roll_back()
        self._output.roll_back()
        if self._records is not None:
            self._records.abort()

    def lose(self) -> None:
        """It has no end: the server broke down while writing it, and has forgotten it since."""
        cursor = self._cursor
        self._log.warning(
            "the transaction at %s:%d has no end, because the server broke down: it counts as rolled back",
            cursor.restart_file,
            cursor.restart_pos,
        )
        self._counters.unended += 1
        self.roll_back()
        cursor.gtid = ""  # the server gives its number to another one
        self.end()

    def make_source(self, at: int, size: int, ts: int) -> RowSource:
        """Where rows of the event at ``at`` come from; ``size`` is in bytes, ``ts`` in seconds since 1970."""
        cursor = self._cursor
        return RowSource(
            ts_ms=ts * 1000,
            ts_us=self._commit_us or ts * 1_000_000,
            server_id=cursor.server_id,
            file=cursor.file,
            pos=at,
            gtid=cursor.gtid or None,
            thread=self.thread,
            query=self.query,
            size=size,
        )
