"""Rows of the stream that were delivered before: a part of a transaction that a restart cut, and rows of former owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.position.start import ConnectionStart
    from connectors.mysql.schema.tables import MySqlTableState


class DeliveredRows:
    """Knows which rows of the stream were delivered before. Not thread-safe.

    Args:
        cursor: where the stream is.
        begin: where the connection begins.
        log: for rows that are lost.

    Attributes:
        half_done: whether the transaction of which a part was delivered has not ended.
        by_others: what former owners of rows have delivered beyond the position.
    """

    def __init__(
        self,
        cursor: BinlogCursor,
        begin: ConnectionStart,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        run_start, position, same_server = begin
        self._cursor = cursor
        self._log = log
        self.by_others = run_start.done if same_server else ()
        if not same_server:
            cursor.set_done(())  # positions of the other server
        # Without a count of events the rows count: the transaction started on another server, and may come after others here.
        counted = same_server and bool(position.event or position.row)
        self._events = position.event if counted else 0
        self._row = position.row if counted else 0
        self._rows = 0 if counted else run_start.resume.rows
        self._gtid = run_start.resume.gtid
        self._pos = position.pos if counted else -1
        self.half_done = bool(self._events or self._row or self._rows)
        if self.half_done:
            cursor.half_done(self._events, self._row, run_start.resume.rows, run_start.resume.gtid)

    def check_domain(self, gtid: str) -> None:
        """A domain's transactions come in order: if another one comes first, the half-done one does not exist."""
        expected_gtid = self._gtid
        if self._rows and gtid != expected_gtid and gtid.partition("-")[0] == expected_gtid.partition("-")[0]:
            self._log.error(
                "transaction %s, of which %d rows were sent, is not on this server, where %s comes in its place: "
                "the rows were lost with the server that had them; start a new snapshot of the tables",
                expected_gtid,
                self._rows,
                gtid,
            )
            self.half_done, self._rows = False, 0
            self._cursor.caught_up()

    def is_open_transaction(self) -> bool:
        """Whether the open transaction is the half-done one, and not one of another domain that comes before it."""
        return self.half_done and (not (self._rows and self._gtid) or self._cursor.gtid == self._gtid)

    def count_begin(self, at: int) -> None:
        """A transaction has an event at ``at``, before its BEGIN."""
        if self._events and at < self._pos:
            self._events += 1  # the position was counted from BEGIN

    def end_transaction(self) -> None:
        """The open transaction ends."""
        if self.is_open_transaction():
            self.half_done = False
            self._cursor.caught_up()

    def count_rows(self, before: int, count: int) -> int:
        """How many of the next ``count`` rows were delivered; ``before`` rows of the event come before them."""
        cursor = self._cursor
        if not self.half_done:
            return 0
        if self._rows:
            return max(0, min(count, self._rows - cursor.tx_rows - before)) if self.is_open_transaction() else 0
        if cursor.events < self._events:
            return count
        if cursor.events == self._events:
            return max(0, min(count, self._row - before))
        return 0

    def mask_rows(self, state: MySqlTableState, raw: bytes, rows: list[Any], width: int, before: int) -> list[Any]:
        """The rows of an event with None for those that a former owner has delivered; ``width`` images are one row."""
        cursor = self._cursor
        stream_position = cursor.row_position(before)
        pending = [shard_done for shard_done in self.by_others if shard_done.position > stream_position]
        if not pending:
            # The stream has passed all positions: no former owner has delivered any of the following rows.
            self.by_others = ()
            cursor.set_done(())
            return rows
        kept = list(rows)
        for shard_done in pending:
            for number, owned in enumerate(state.owned_images(raw, shard_done.shard, len(rows))):
                if owned and cursor.row_position(before + number // width) < shard_done.position:
                    kept[number] = None
        return kept
