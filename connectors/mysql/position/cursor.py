"""Where the stream is: file and position, the transaction that is open, and the offsets that say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.mysql.model import BinlogPosition
from connectors.mysql.position import positions, start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.api import Position
    from connectors.mysql.position.start import RowPosition, ShardDone, Start
    from connectors.mysql.source.gtid import GtidSet


class BinlogCursor:
    """Follows the events of one connection. Not thread-safe.

    The position to restart from is where the open transaction begins, or else where the last one ended; ``events`` counts the
    events since then that are done, and is what Debezium calls ``event``.

    Attributes:
        file: the binlog file.
        pos: where the event after the last one begins.
        restart_file, restart_pos: the position to restart from.
        events: events after that which are done.
        tx_rows: rows of the open transaction before the present event that this task has seen.
        event_rows: rows of the present event so far: of a transaction payload, over all that is in it.
        open: whether a transaction is open.
        gtid: of the open transaction, or of the last one; "" for none.
        executed: the GTIDs of all finished transactions, or None: the server has none.
        ts_sec: time of the last event.
        server_id: that wrote the last event.
        source_server: that is read.
    """

    def __init__(
        self,
        run_start: Start,
        position: BinlogPosition,
        server: int,
        executed: GtidSet | None,
        *,
        asked_until: BinlogPosition | None = None,
    ) -> None:
        """Begin at a position.

        Args:
            run_start: the contents of the saved offsets.
            position: where to begin.
            server: the id of the server that is read.
            executed: the GTIDs of all finished transactions, or None.
            asked_until: where the binlog ended when the server was asked by GTIDs; None: it was not. Before that it may leave
                out transactions that are done, so offsets say that a restart has to ask by GTIDs, too.
        """
        self.file = self.restart_file = position.file
        self.pos = self.restart_pos = position.pos
        self.events = 0
        self.tx_rows = 0
        self.event_rows = 0
        self.open = False
        self.gtid = ""
        self.executed = executed
        self.ts_sec = position.ts_sec
        self.server_id = position.server_id
        self.source_server = server
        #: Of the transaction that the task resumes: events done, rows done of the next one, all rows done, its GTID.
        self._half_done: tuple[int, int, int, str] | None = None
        #: Transactions that were done in part and are still to come, with how many rows of them are done.
        self._others: dict[str, int] = {}
        #: The position from which its events are counted; None: they are not.
        self._half_done_from: tuple[str, int] | None = None
        self._asked_until = None if asked_until is None else (positions.file_number(asked_until.file), asked_until.pos)
        self._moved_by = _signal_position(run_start.resume.moved_by, server)
        self._executed_text = executed.text() if executed is not None else ""
        self._constant: Position = {
            start.LAYOUT: run_start.layout,
            start.ORIGIN: run_start.origin or start.fresh_origin(position),
            start.SOURCE_SERVER: server,
        }
        if self._moved_by is not None:
            self._constant[start.MOVED_BY] = run_start.resume.moved_by
        if run_start.resume.moved_by_record:
            self._constant[start.MOVED_BY_RECORD] = run_start.resume.moved_by_record
        self.set_done(run_start.done)

    @property
    def moved_back(self) -> bool:
        """Whether the signal that has set the position is still to come, with all that were obeyed before it."""
        return self._moved_by is not None

    def is_moved_by(self, record: str) -> bool:
        """Whether this record of the signal topic, or a later one, has set the position."""
        topic, _, offset = record.rpartition(":")
        moved_topic, _, moved_offset = str(self._constant.get(start.MOVED_BY_RECORD, "")).rpartition(":")
        return bool(topic) and topic == moved_topic and int(offset) <= int(moved_offset)

    def forget_record(self, read: str) -> None:
        """The signal topic does not have to be read again up to this record."""
        if self._constant.get(start.MOVED_BY_RECORD) == read or not self.is_moved_by(read):
            self._constant.pop(start.MOVED_BY_RECORD, None)

    def half_done(self, events: int, row: int, rows: int, gtid: str) -> None:
        """A transaction that is still to come was done in part: offsets say so until ``caught_up``."""
        self._half_done = (events, row, rows - row, gtid)
        self._half_done_from = (self.restart_file, self.restart_pos) if events or row else None

    def wait_for(self, others: Mapping[str, int]) -> None:
        """These transactions were done in part, and others may come before them: offsets name them, until none is left."""
        self._others = dict(others)

    def caught_up(self) -> None:
        """It has come."""
        self._half_done = None

    def set_done(self, done: Iterable[ShardDone]) -> None:
        """Set what former owners of rows have delivered beyond the position; it is part of every offset."""
        done_json = start.done_text(done)
        if done_json:
            self._constant[start.DONE] = done_json
        else:
            self._constant.pop(start.DONE, None)

    def know_executed(self, executed: GtidSet) -> None:
        """The stream has come to where all transactions before are known."""
        self.executed = executed
        self._executed_text = ""

    def begin(self, at: int, gtid: str) -> None:
        """A transaction begins with the event at ``at``."""
        self.open = True
        self.restart_file, self.restart_pos = self.file, at
        self.events = self.tx_rows = 0
        self.gtid = gtid

    def end(self) -> None:
        """The transaction ended with the event before ``pos``."""
        if self.executed is not None and self.gtid:
            self.executed.add(self.gtid)
            self._executed_text = ""
        self.open = False
        self.gtid = ""
        self.settle()

    def settle(self) -> None:
        """Outside transactions everything before ``pos`` is done."""
        self.restart_file, self.restart_pos = self.file, self.pos
        self.events = self.tx_rows = 0
        if self._asked_until is not None or self._moved_by is not None:
            self._compare_bounds()

    def _compare_bounds(self) -> None:
        position = positions.file_number(self.file), self.pos
        if self._asked_until is not None and position >= self._asked_until:
            self._asked_until = None
        if self._moved_by is not None and position > self._moved_by:
            self._moved_by = None
            self._constant.pop(start.MOVED_BY, None)

    def rotate(self, file: str, pos: int) -> None:
        """Continue at ``pos`` of ``file``."""
        self.file, self.pos = file, pos
        if not self.open:
            self.settle()

    def row_position(self, row: int = 0) -> RowPosition:
        """The comparable position of a row of the present event."""
        return start.RowPosition(positions.file_number(self.restart_file), self.restart_pos, self.events, row)

    def offset(self, events: int, row: int, tx_rows: int) -> Position:
        """The offset after this number of events, and of rows of the next one; a new mapping."""
        gtid, file, pos = self.gtid, self.restart_file, self.restart_pos
        if self._half_done is not None and not events and not row:
            events, row, tx_rows, gtid = self._half_done
            file, pos = self._half_done_from or (file, pos)
        position: Position = {"transaction_id": None, "ts_sec": self.ts_sec, "file": file, "pos": pos}
        if self.executed is not None:
            position["gtids"] = self.executed_text()
        position["server_id"] = self.server_id
        if events or row or tx_rows:
            position["event"] = events
            position["row"] = row
            position[start.TX_ROWS] = tx_rows
            if gtid:
                position[start.TX_GTID] = gtid
        position.update(self._constant)
        if self._others and (others := start.others_text(self._others, position.get(start.TX_GTID, ""))):
            position[start.TX_OTHERS] = others
        if self._asked_until is not None:
            position[start.BY_GTID] = True
        return position

    def moved(self, base: Position, events: int, row: int, tx_rows: int) -> Position:
        """As ``offset``, for a position behind that of ``base`` with only rows between them."""
        if "event" not in base or self._half_done is not None:
            return self.offset(events, row, tx_rows)
        offset = base.copy()
        offset["event"] = events
        offset["row"] = row
        offset[start.TX_ROWS] = tx_rows
        return offset

    def now(self) -> Position:
        """The offset after the last event, or after the rows of the present one."""
        return self.offset(self.events, self.event_rows, self.tx_rows) if self.open else self.offset(0, 0, 0)

    def executed_text(self) -> str:
        """The GTIDs of all finished transactions; "" where the server has none."""
        if self.executed is not None and not self._executed_text:
            self._executed_text = self.executed.text()
        return self._executed_text

    def return_to(
        self,
        file: str,
        pos: int,
        ts_sec: int,
        server_id: int,
        gtid: str,
        executed: GtidSet | None,
        finished: Sequence[str],
    ) -> None:
        """Make offsets as they were in a transaction that began at ``pos``, for a copy of the stream's cursor.

        Args:
            file: where the transaction begins.
            pos: the position in the file.
            ts_sec: time of the event.
            server_id: that wrote it.
            gtid: of the transaction.
            executed: the GTIDs of what was finished at some time before.
            finished: those of what was finished since then.
        """
        self.restart_file, self.restart_pos = file, pos
        self.ts_sec, self.server_id, self.gtid = ts_sec, server_id, gtid
        self.open = True
        self._half_done = None
        self.executed = None if executed is None else executed.copy()
        if self.executed is not None:
            for transaction in filter(None, finished):
                self.executed.add(transaction)
            self._executed_text = self.executed.text()

    def restart_position(self) -> BinlogPosition:
        """The position up to which everything is done: where the open transaction begins, or ``pos``."""
        return BinlogPosition(
            file=self.restart_file,
            pos=self.restart_pos,
            gtids=self.executed_text(),
            server_id=self.server_id,
            ts_sec=self.ts_sec,
        )

    def seen_gtids(self) -> str:
        """The GTIDs of all transactions of which anything was read."""
        if self.executed is None:
            return ""
        if not self.open or not self.gtid:
            return self.executed.text()
        executed_gtids = self.executed.copy()
        executed_gtids.add(self.gtid)
        return executed_gtids.text()


def _signal_position(moved_by: str, server: int) -> tuple[int, int] | None:
    """The position of the signal that ``start.MOVED_BY`` names; None without one, or if it is in another server's binlog."""
    read_server, _, position = moved_by.partition(":")
    file, _, pos = position.rpartition(":")
    return (positions.file_number(file), int(pos)) if read_server == str(server) and pos.isdecimal() else None
