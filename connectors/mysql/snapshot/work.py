"""The tables of requests while they are read, and the jobs that the readers do for them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from connectors.mysql.snapshot.state import MySqlTableNote
from connectors.snapshot.board import TaskShare
from connectors.snapshot.planner import PlannedTable, SnapshotJob

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.model import BinlogPosition, MySqlTable, TableName
    from connectors.mysql.snapshot.model import Key, Row, SnapshotRowDecoder
    from connectors.mysql.snapshot.reading.key_ranges import KeyRange, NumberDivider
    from connectors.mysql.snapshot.reading.keys import KeyColumn
    from connectors.mysql.snapshot.windows import Images


class RequestTable(NamedTuple):
    """A table of a request.

    Attributes:
        name: the table.
        rows: estimate; None: unknown.
        keyless: whether it has no key.
        owned: whether some of its rows are the task's.
    """

    name: TableName
    rows: int | None
    keyless: bool
    owned: bool = True


class SnapshotLayout(NamedTuple):
    """A table's structure, order and extent when the read starts.

    Attributes:
        table: its structure.
        decoder: how its rows are read.
        columns: the order in which it is read; () for a table without a key: at once.
        low: the least value of the first column, if that is an integer.
        high: the largest key, or None: the table is empty.
        total: estimated rows of the task.
        row_bytes: of a row, about; 0: unknown.
        ranges: SQL conditions by which several connections divide a table without a key; (): one connection reads it.
    """

    table: MySqlTable
    decoder: SnapshotRowDecoder
    columns: tuple[KeyColumn, ...]
    low: int | None
    high: Key | None
    total: int | None
    row_bytes: int = 0
    ranges: tuple[str, ...] = ()


class TableSnapshot(PlannedTable[MySqlTableNote]):
    """One table of a request."""

    def __init__(self, share: MySqlShare, request_table: RequestTable, note: MySqlTableNote) -> None:
        super().__init__(share, note)
        self.name = request_table.name
        self.keyless = request_table.keyless
        self.layout: SnapshotLayout | None = None
        self.finder: Callable[[Row], tuple[Any, ...]] | None = None
        self.key_ranges: list[KeyRange] = []
        self.numbers: NumberDivider | None = None
        self.images: Images | None = None
        #: Of a table without a key: the position of its view, once that is open.
        self.high: BinlogPosition | None = None
        #: Whether the log says that its rows are too many to remember.
        self.forgot = False
        #: Whether the stream has come to that position.
        self.passed = False
        #: Whether a change was withheld since its view was asked for.
        self.missed = False
        #: Whether it is being looked up.
        self.busy = False
        self.attempts = 0
        self.limit = 0
        self.row_bytes = 0.0
        self.rate = 0.0
        self.sent_ms = 0


MySqlShare = TaskShare[TableSnapshot]
TableReadJob = SnapshotJob[TableSnapshot, "KeyRange"]


def make_key_finder(fields: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    """The function that takes a row's key."""
    if len(fields) == 1:
        (name,) = fields
        return lambda row: (row[name],)
    return itemgetter(*fields)
