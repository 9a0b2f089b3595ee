"""Statements in the stream: those that frame transactions, those that change tables, and rows that only statements show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.errors import Fatal
from connectors.mysql.source import binlog_events as parse
from connectors.mysql.source.statements import SqlStatement, classify_statement

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable

    from connectors.mysql.model import RowSource
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.schema.tables import StreamTables
    from connectors.mysql.stream.open_transaction import OpenTransaction


class StatementEvents:
    """Handles the QUERY events of a stream. Not thread-safe.

    Args:
        cursor: where the stream is.
        transaction: the open transaction.
        tables: knows the tables.
        take_statement: called for statements that are no part of a transaction's frame.
        fold_names: whether names in statements are to be read in lower case.
        keep_going: whether a statement that changes rows itself is only logged; else it stops the stream.
        log: for what is left out.
    """

    def __init__(
        self,
        cursor: BinlogCursor,
        transaction: OpenTransaction,
        tables: StreamTables,
        take_statement: Callable[[SqlStatement, RowSource], Awaitable[None]],
        log: logging.LoggerAdapter[logging.Logger],
        *,
        fold_names: bool,
        keep_going: bool,
    ) -> None:
        self._cursor = cursor
        self._transaction = transaction
        self._tables = tables
        self._take_statement = take_statement
        self._log = log
        self._fold_names = fold_names
        self._keep_going = keep_going

    def handle_query(self, raw: bytes, at: int, ts: int, size: int) -> Awaitable[None] | None:
        """Take a statement; what is returned has to be awaited before the next event.

        Raises:
            Fatal: which rows are valid, or what they are, is not in the binlog.
        """
        transaction = self._transaction
        thread = parse.begin_thread(raw)
        if thread is not None:
            transaction.open_by_statement(thread, at)
            return None
        query = parse.read_query(raw)
        word = query.statement[:12].upper()
        if word == "BEGIN":
            transaction.open_by_statement(query.thread, at)
        elif word.startswith(("COMMIT", "XA COMMIT", "XA ROLLBACK")):
            transaction.ended = True
            had_rows = word.startswith("XA") and transaction.release_prepared(query.statement.split(" ", 2)[2])
            if had_rows and word == "XA ROLLBACK ":
                self._log.error(
                    "%s at %s:%d takes back a transaction whose rows were sent when it was prepared, as replicas "
                    "do it: start a new snapshot of the tables that it has changed",
                    query.statement,
                    self._cursor.file,
                    at,
                )
                transaction.roll_back_prepared()
        elif word == "ROLLBACK":
            transaction.roll_back()
        elif word.startswith("XA START"):
            transaction.begin_prepared()
        elif word.startswith("ROLLBACK "):
            self._check_partial_rollback()
        elif not word.startswith(("SAVEPOINT", "XA END", "RELEASE SAVE")):
            return self._handle_other(query, at, ts, size)
        return None

    def _check_partial_rollback(self) -> None:
        cursor = self._cursor
        if cursor.tx_rows:  # else of changes that are not captured
            raise Fatal(
                f"the transaction at {cursor.restart_file}:{cursor.restart_pos} took back a part of its "
                "changes after it had changed a table without transactions (MyISAM ...): the binlog does not tell "
                "which rows are valid; move the offset behind it and start a new snapshot of its tables"
            )

    async def _handle_other(self, query: parse.QueryEvent, at: int, ts: int, size: int) -> None:
        if self._transaction.alter not in {"start", "rollback"}:
            # With binlog_alter_two_phase the statement counts where it says that it has changed the table.
            await self._take_other(query, at, ts, size)
        if self._cursor.open and not self._transaction.framed:
            self._transaction.ended = True

    async def _take_other(self, query: parse.QueryEvent, at: int, ts: int, size: int) -> None:
        statement = classify_statement(query.statement, query.schema, query.sql_mode)
        if self._fold_names:
            statement = statement.folded
        if statement.changes_structure:
            self._tables.forget(statement)
        elif statement.kind == "rows" and self._tables.concerns(statement):
            self._report_rows(statement, at)
        source = self._transaction.make_source(at, size, ts)
        if query.micros is not None:
            source.ts_us = ts * 1_000_000 + query.micros
            source.ts_ms = source.ts_us // 1000
        source.thread = query.thread
        await self._take_statement(statement, source)

    def _report_rows(self, statement: SqlStatement, at: int) -> None:
        message = (
            f"the statement at {self._cursor.file}:{at} in database {statement.database} has changed rows that are not "
            f"in the binlog ({statement.text[:200]}): SET GLOBAL binlog_format=ROW, also in the server's configuration, "
            "and let no session set another one; then move the offset behind it and start a new snapshot of the tables"
        )
        if not self._keep_going:
            raise Fatal(message)
        self._log.warning("%s", message)
