"""The parts of snapshots: requests, chunks, settings. No logic beyond that of taking rows out of a chunk."""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from connectors.mysql.model import BinlogPosition, MySqlTable, TableName  # noqa: TC001 - msgspec reads the annotations at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.errors import Skippable
    from connectors.mysql.snapshot.windows import Images
    from connectors.snapshot.requests import SnapshotRequest

#: A position in a table's key order: SQL literals of the key's columns, or of the first ones of them.
Key = tuple[str, ...]
#: One row: field name -> value.
Row = dict[str, Any]


class SnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How snapshots are read.

    Attributes:
        threads: connections that read at the same time.
        split_columns: ``database.table:column;...`` (regular expressions for tables): by which column tables without a key are
            divided among the connections.
        chunk_rows: rows of a chunk at most; fewer where rows are large.
        chunk_bytes: what a chunk's rows may hold, as the server sends them, about.
        ahead_chunks: chunks that are kept at most until the stream has come far enough (or 2 more than ``threads``).
        ahead_bytes: what all chunks that are kept may hold, as the server sends them; one chunk is kept in any case.
        rows_per_s: the most rows read per second by this task; 0: no limit.
        adaptive: whether reading slows down while the server answers slower than it did.
        replica: whether the connections go to a replica of the server that the stream reads: positions are compared by GTIDs.
        locks: whether a table without a key may be locked for a moment, where the server can't report a read view's position.
        lock_timeout_s: how long to wait for that lock.
        order: of a request's tables by their estimated rows.
        delay_s: wait at the start.
        settle_s: pause before a view is opened on a server without GTIDs that can't report the view's position either: a
            transaction may be in its binlog already and not yet visible. It has to be longer than a commit takes.
        most_marks: changed keys remembered while one chunk is read; with more the chunk is read again, with fewer rows.
        most_images: different rows of one table without a key remembered while it is read.
        retries: failures of one table in a row, with nothing read between them, after which it is given up; a lost connection
            doesn't count.
    """

    threads: int = 1
    split_columns: str = ""
    chunk_rows: int = 8_192
    chunk_bytes: int = 8 << 20
    ahead_chunks: int = 4
    ahead_bytes: int = 64 << 20
    rows_per_s: int = 0
    adaptive: bool = True
    replica: bool = False
    locks: bool = True
    lock_timeout_s: int = 10
    order: Literal["disabled", "ascending", "descending"] = "disabled"
    delay_s: float = 0.0
    settle_s: float = 0.25
    most_marks: int = 500_000
    most_images: int = 500_000
    retries: int = 5


class SnapshotRowDecoder(NamedTuple):
    """How the rows of one table's structure are read.

    Attributes:
        columns: SQL expressions of the SELECT list.
        decode: makes a row of the text protocol a dict; more values at the packet's end are left alone.
        key: names of the fields that hold the table's key, in the order of ``MySqlTable.key``; () where there is no key, or the
            fields don't distinguish two keys.
        fields: how many fields a whole row has.
    """

    columns: Sequence[str]
    decode: Callable[[bytes], Row]
    key: tuple[str, ...]
    fields: int


class Early(NamedTuple):
    """Rows of a table without a key that are sent before their chunk, since the stream is about to change them.

    Attributes:
        request: id of the request.
        origin: who asked for it.
        rows: as the stream has them.
        low: the position of the stream when the read started.
    """

    request: str
    origin: str
    rows: list[Row]
    low: BinlogPosition


class ReadRows(NamedTuple):
    """Rows that were read.

    Attributes:
        rows: by key, or in order where the table has no key.
        size: their bytes, as the server sent them.
        bad: rows that could not be decoded, with what they were.
    """

    rows: dict[tuple[Any, ...], Row] | list[Row]
    size: int
    bad: Sequence[tuple[Skippable, bytes]] = ()


class SnapshotChunk:
    """Rows of one table as of one position, ready to be sent.

    Until ``MySqlSnapshotReader.done`` the stream's changes still remove rows: take only as many as are sent at once, and send
    them before the stream continues.

    Attributes:
        request: what it is for.
        table: the structure that the rows have.
        keyed: the rows by key, or None for a table without a key.
        low: the position of the stream when the read started.
        high: the position that the rows are as of, or one after it.
        first_of_table, last_of_table, last_of_request: its position in the table and the request; a last one can be empty.
        first_of_request: the first chunk of all.
        read_ms: when the rows were read, milliseconds since 1970.
        bytes: as the server sent them.
        read: how many rows were read; the stream may have taken some away since.
        taken_rows: how many were taken so far.
        bad: rows that could not be decoded, with what they were.
    """

    __slots__ = (
        "_images",
        "_iterator",
        "_rows",
        "bad",
        "bytes",
        "first_of_request",
        "first_of_table",
        "high",
        "key_range",
        "keyed",
        "last_of_request",
        "last_of_table",
        "low",
        "read",
        "read_ms",
        "request",
        "table",
        "taken_rows",
    )

    def __init__(
        self,
        *,
        request: SnapshotRequest,
        table: MySqlTable,
        result: ReadRows,
        low: BinlogPosition,
        high: BinlogPosition,
        read_ms: int = 0,
        images: Images | None = None,
    ) -> None:
        rows = result.rows
        self.request = request
        self.table = table
        self.keyed = rows if isinstance(rows, dict) else None
        self._rows = rows if isinstance(rows, list) else []
        self._iterator = 0
        #: Of a table without a key: which rows were sent, shared by the table's chunks.
        self._images = images
        self.low = low
        self.high = high
        self.first_of_request = self.first_of_table = self.last_of_table = self.last_of_request = False
        self.read_ms = read_ms
        self.bytes = result.size
        self.read = len(rows)
        self.taken_rows = 0
        self.bad = tuple(result.bad)
        #: The reader's own.
        self.key_range: object = None

    @property
    def name(self) -> TableName:
        """The table."""
        return self.table.name

    def __len__(self) -> int:
        """Rows that can be taken still; a few more than will come for a table without a key."""
        return len(self.keyed) if self.keyed is not None else len(self._rows) - self._iterator

    def take(self, max_rows: int) -> list[Row]:
        """The next rows, at most ``max_rows``; [] once there are none left."""
        if self.keyed is not None:
            keys = list(islice(self.keyed, max_rows))
            pop = self.keyed.pop
            rows = [pop(key) for key in keys]
        else:
            rows = []
            while len(rows) < max_rows and self._iterator < len(self._rows):
                part = self._rows[self._iterator : self._iterator + max_rows - len(rows)]
                self._iterator += len(part)
                images = self._images
                rows += (
                    [row for row in part if not images.leaves_out(row)]
                    if images is not None and images.needed
                    else part
                )
        self.taken_rows += len(rows)
        return rows

    def drop(self) -> None:
        """Take away what is left."""
        if self.keyed is not None:
            self.keyed.clear()
        self._rows = []


def row_digest(row: Mapping[str, Any]) -> bytes:
    """A digest of a row's values, for rows that have no key."""
    return blake2b(repr(tuple(row.values())).encode("utf-8", "surrogatepass"), digest_size=16).digest()


#: Of ``MySqlSnapshotReader`` (``SourceConnector.metrics``): name -> (kind, help text). The first six have a label ``table``.
METRICS: Final[dict[str, tuple[str, str]]] = {
    "mysql_snapshot_rows_total": ("counter", "Rows of snapshots that were sent."),
    "mysql_snapshot_superseded_rows_total": ("counter", "Rows of snapshots left out: the stream had a newer change."),
    "mysql_snapshot_chunks_total": ("counter", "Chunks of snapshots that were sent."),
    "mysql_snapshot_repeated_chunks_total": ("counter", "Chunks read again: a new structure, a new connection."),
    "mysql_snapshot_percent": ("gauge", "How much of a table's snapshot is done."),
    "mysql_snapshot_rows_per_second": ("gauge", "Speed of a table's snapshot."),
    "mysql_snapshot_held_bytes": ("gauge", "Bytes of chunks that wait for the stream."),
    "mysql_snapshot_probe_seconds": ("gauge", "How long the server took for a query that costs it nothing."),
    "mysql_snapshot_queries_allowed": ("gauge", "Queries of snapshots that may be in flight."),
}
