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
        self._pos = position.pos if counted else -1
        #: GTID -> rows that were delivered of it; "": of the next transaction, whichever it is.
        self._rows = dict(run_start.resume.others)
        if not counted and run_start.resume.rows:
            self._rows[run_start.resume.gtid] = run_start.resume.rows
        self._first_gtid = run_start.resume.gtid
        self._first = bool(self._events or self._row or (run_start.resume.rows and not counted))
        self.half_done = self._first or bool(self._rows)
        if self._first:
            cursor.half_done(self._events, self._row, run_start.resume.rows, run_start.resume.gtid)
        self._tell_cursor()

    def _tell_cursor(self) -> None:
        self._cursor.wait_for({gtid: rows for gtid, rows in self._rows.items() if gtid})

    def check_domain(self, gtid: str) -> None:
        """A domain's transactions come in order: if another one comes first, the half-done one does not exist."""
        domain = gtid.partition("-")[0]
        for expected_gtid in [other for other in self._rows if other != gtid and other.partition("-")[0] == domain]:
            self._log.error(
                "transaction %s, of which %d rows were sent, is not on this server, where %s comes in its place: "
                "the rows were lost with the server that had them; start a new snapshot of the tables",
                expected_gtid,
                self._rows[expected_gtid],
                gtid,
            )
            self._end(expected_gtid)

    def _end(self, gtid: str) -> None:
        """A transaction whose rows count has come, or will not come."""
        del self._rows[gtid]
        self._tell_cursor()
        if gtid == self._first_gtid:
            self._end_first()
        self.half_done = self._first or bool(self._rows)

    def _end_first(self) -> None:
        self._first = False
        self._events = self._row = 0
        self._cursor.caught_up()
        self.half_done = bool(self._rows)

    def _open_gtid(self) -> str | None:
        """The key in ``_rows`` of the open transaction; None: its rows do not count."""
        gtid = self._cursor.gtid
        return gtid if gtid in self._rows else "" if "" in self._rows else None

    def is_open_transaction(self) -> bool:
        """Whether a part of the open transaction was delivered, and it is not one that comes before such a one."""
        return self.half_done and (bool(self._events or self._row) or self._open_gtid() is not None)

    def count_begin(self, at: int) -> None:
        """A transaction has an event at ``at``, before its BEGIN."""
        if self._events and at < self._pos:
            self._events += 1  # the position was counted from BEGIN

    def end_transaction(self) -> None:
        """The open transaction ends."""
        if self._events or self._row:
            self._end_first()
        elif (gtid := self._open_gtid()) is not None:
            self._end(gtid)

    def count_rows(self, before: int, count: int) -> int:
        """How many of the next ``count`` rows were delivered; ``before`` rows of the event come before them."""
        cursor = self._cursor
        if not self.half_done:
            return 0
        if not (self._events or self._row):
            gtid = self._open_gtid()
            return 0 if gtid is None else max(0, min(count, self._rows[gtid] - cursor.tx_rows - before))
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
