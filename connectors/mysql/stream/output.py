"""Records and bytes that the stream has made and no batch has taken yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.errors import Fatal
from connectors.mysql.stream.encoded import EncodedRows

if TYPE_CHECKING:
    from connectors.api import BadRecord, SourceRecord
    from connectors.mysql.events.contract import PendingRows
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.stream.counters import StreamCounters


class StreamOutput:
    """Gathers records, bytes and bad rows in the order of the stream. Not thread-safe.

    Args:
        cursor: where the stream is.
        held_rows: keeps rows that are not records yet, or None.
        counters: numbers go there.

    Attributes:
        records: records that were not taken yet.
        settled: how many of them belong to finished transactions.
        bad: rows that can't be decoded.
        encoded: rows that are bytes already and were not taken yet.
        whole: whether nothing of the open transaction may be taken before its end.
    """

    def __init__(self, cursor: BinlogCursor, held_rows: PendingRows | None, counters: StreamCounters) -> None:
        self.records: list[SourceRecord] = []
        self.settled = 0
        self.bad: list[BadRecord] = []
        self.encoded = EncodedRows(cursor)
        self.whole = False
        self._cursor = cursor
        self._held_rows = held_rows
        self._counters = counters
        #: Where the open transaction's records begin in ``records``; -1: some of them have been taken.
        self._began = 0
        #: The same of ``bad``.
        self._bad_began = 0

    @property
    def pending(self) -> bool:
        """Whether there is anything to take."""
        return bool(
            self.records or self.encoded.count or self.bad or (self._held_rows is not None and self._held_rows.rows)
        )

    def flush_held(self) -> None:
        """Make records of the rows that are none yet."""
        if self._held_rows is not None:
            self._held_rows.flush(self.records)
            if not self._cursor.open:
                self.settled = len(self.records)

    def begin(self, *, apart: bool, whole: bool = False) -> None:
        """A transaction begins.

        Args:
            apart: whether no record may hold rows of it and of transactions before it.
            whole: whether nothing of it may be taken before its end.
        """
        self.whole = whole
        held_rows = self._held_rows
        if held_rows is not None:
            if apart and held_rows.rows:
                held_rows.flush(self.records)
                self.settled = len(self.records)
            held_rows.start_transaction()
        self._began, self._bad_began = len(self.records), len(self.bad)
        self.encoded.began = self.encoded.count

    def continue_sent(self) -> None:
        """A part of the open transaction was sent before: it can't be called back."""
        self._began = -1

    def roll_back(self) -> None:
        """Forget what the open transaction has given.

        Raises:
            Fatal: a part of it was taken.
        """
        held_rows = self._held_rows
        if held_rows is not None:
            held_rows.take_back()
        del self.bad[self._bad_began :]
        if len(self.records) > self._began or self._began < 0 or self.encoded.count > self.encoded.began:
            self._counters.rolled_back += 1
            if self._began < 0 or (held_rows is not None and held_rows.mixed):
                raise Fatal(
                    f"the transaction at {self._cursor.restart_file}:{self._cursor.restart_pos} was rolled back after "
                    "a part of its rows had been sent: set binlog.buffer.size above the number of its rows, or move "
                    "the offset behind it"
                )
            del self.records[self._began :]
            self.encoded.roll_back()

    def take(self, count: int) -> tuple[list[SourceRecord], tuple[BadRecord, ...]]:
        """The first ``count`` records, and all bad rows; they are not the stream's any more.

        Where there are ``encoded`` rows, ``count`` must be all records, and ``encoded.collect`` takes them afterwards.
        """
        sent = self.encoded.count > self.encoded.began
        records = self.records[:count] if count < len(self.records) else self.records
        self.records = self.records[count:] if count < len(self.records) else []
        bad, self.bad, self._bad_began = tuple(self.bad), [], 0
        self.settled = max(0, self.settled - count)
        if self._cursor.open:
            # A part of the open transaction that is on its way can't be called back.
            if 0 <= count <= self._began and not sent:
                self._began -= count
            else:
                self._counters.large += self._began >= 0
                self._began = -1
        return records, bad
