"""The tables of requests while they are read, and the jobs that the readers do for them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from connectors.snapshot.board import TaskShare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.model import BinlogPosition, MySqlTable, TableName
    from connectors.mysql.snapshot.model import Key, Row, SnapshotRowDecoder
    from connectors.mysql.snapshot.reading.keys import KeyColumn
    from connectors.mysql.snapshot.reading.stretches import KeyRange, NumberDivider
    from connectors.mysql.snapshot.state import MySqlTableNote
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


class TableSnapshot:
    """One table of a request."""

    __slots__ = (
        "attempts",
        "busy",
        "epoch",
        "finder",
        "forgot",
        "high",
        "images",
        "keyless",
        "layout",
        "limit",
        "missed",
        "name",
        "note",
        "numbers",
        "passed",
        "pull",
        "rate",
        "row_bytes",
        "sent_ms",
        "stretches",
    )

    def __init__(self, pull: Pull, request_table: RequestTable, note: MySqlTableNote) -> None:
        self.pull = pull
        self.name = request_table.name
        self.note = note
        self.keyless = request_table.keyless
        self.layout: SnapshotLayout | None = None
        self.finder: Callable[[Row], tuple[Any, ...]] | None = None
        self.stretches: list[KeyRange] = []
        self.numbers: NumberDivider | None = None
        self.images: Images | None = None
        #: Of a table without a key: the place of its view, once that is open.
        self.high: BinlogPosition | None = None
        #: Whether the log says that its rows are too many to remember.
        self.forgot = False
        #: Whether the stream has come to that place.
        self.passed = False
        #: Whether a change was withheld since its view was asked for.
        self.missed = False
        #: Grows whenever all that is known and read is given up.
        self.epoch = 0
        self.busy = False
        self.attempts = 0
        self.limit = 0
        self.row_bytes = 0.0
        self.rate = 0.0
        self.sent_ms = 0

    @property
    def open(self) -> bool:
        """Whether there is something to be read or sent still."""
        return self.note.open


Pull = TaskShare[TableSnapshot]


class TableReadJob(NamedTuple):
    """A query for the server.

    Attributes:
        kind: find the request's tables (``resolve``), look a table up (``prepare``), or read a range of it (``read``).
        pull, table, stretch: the snapshot, its table and the range of keys.
        epoch, token: say whether the answer is still needed, see ``SnapshotPlanner.stale``.
    """

    kind: Literal["resolve", "prepare", "read"]
    pull: Pull
    table: TableSnapshot | None = None
    stretch: KeyRange | None = None
    epoch: int = 0
    token: int = 0


def make_key_finder(fields: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    """The function that takes a row's key."""
    if len(fields) == 1:
        (name,) = fields
        return lambda row: (row[name],)
    return itemgetter(*fields)
