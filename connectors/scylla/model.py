"""The words that the modules of the Scylla connector share. Times named ``_ms`` and ``_us`` count from 1970-01-01 UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from connectors.api import Position
    from connectors.cql.types import CqlType

#: ``cdc$operation``.
PREIMAGE, UPDATE, INSERT, ROW_DELETE, PARTITION_DELETE = 0, 1, 2, 3, 4
RANGE_START_INCLUSIVE, RANGE_START_EXCLUSIVE, RANGE_END_INCLUSIVE, RANGE_END_EXCLUSIVE, POSTIMAGE = 5, 6, 7, 8, 9

#: Places of the first six members of a ``LogRow``.
STREAM, TIME, SEQ, OPERATION, TTL, END_OF_BATCH = 0, 1, 2, 3, 4, 5

#: One row of a log table: (stream id bytes16, cdc$time bytes16, batch_seq_no, operation, ttl or None, end_of_batch or None,
#: then the cells in the order of ``TableVersion.log_columns``). Values are in the forms of ``connectors.cql.values``.
LogRow = tuple[Any, ...]


class TableId(NamedTuple):
    """A base table."""

    keyspace: str
    table: str

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.table}"


@dataclass(frozen=True, slots=True)
class ScyllaColumn:
    """A column of the base table.

    Attributes:
        name: as it is, without quotes.
        type: of the base table (its log form follows from it: ``TableVersion.log_columns``).
        kind: its part in the table.
        position: place in the partition or clustering key, else -1.
        reversed: whether the clustering order is DESC.
        added_us: when the column was added, as far as the server tells (0: with the table).
    """

    name: str
    type: CqlType
    kind: Literal["partition_key", "clustering", "static", "regular"]
    position: int = -1
    reversed: bool = False
    added_us: int = 0


@dataclass(frozen=True, slots=True)
class CdcOptions:
    """``WITH cdc = {...}`` of a table.

    ``ttl_s`` 0 means that log rows never expire; ``stated`` is False where the table has no such option at all.
    """

    enabled: bool = True
    preimage: Literal["false", "true", "full"] = "false"
    postimage: bool = False
    delta: Literal["full", "keys"] = "full"
    ttl_s: int = 86400
    stated: bool = True

    @property
    def off(self) -> bool:
        """Whether the table says that its changes are not logged; one that says nothing may just be changing."""
        return self.stated and not self.enabled


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as it was defined during some range of time.

    Attributes:
        id: the table.
        columns: in the order of ``SELECT *``: partition key, clustering key, static by name, regular by name.
        options: its CDC options.
        version: a short string that is equal for equal definitions (a hash over names, types and kinds).
        since_us: rows with a write time from here on are of this version; 0 for the first one known.
        table_id: the server's id of the base table; another one means that the table was dropped and created again.
    """

    id: TableId
    columns: tuple[ScyllaColumn, ...]
    options: CdcOptions
    version: str
    since_us: int = 0
    table_id: str = ""

    @property
    def definition(self) -> tuple[str, int, str]:
        """Tells it from all others of the table: a table may be recreated as it was, or get a column and lose it."""
        return self.version, self.since_us, self.table_id

    @property
    def partition_key(self) -> tuple[ScyllaColumn, ...]:
        """Columns of the partition key in order."""
        return tuple(sorted((c for c in self.columns if c.kind == "partition_key"), key=lambda c: c.position))

    @property
    def clustering_key(self) -> tuple[ScyllaColumn, ...]:
        """Columns of the clustering key in order."""
        return tuple(sorted((c for c in self.columns if c.kind == "clustering"), key=lambda c: c.position))

    @property
    def log_columns(self) -> tuple[tuple[str, CqlType], ...]:
        """Name and type of the log's cells that follow the first six, in the order in which they are selected.

        For each column in order: the column; for all but key columns ``cdc$deleted_<c>``; for multicell columns also
        ``cdc$deleted_elements_<c>``.
        """
        from connectors.scylla.schema.log_table import log_columns

        return log_columns(self)


@dataclass(frozen=True, slots=True)
class Generation:
    """A set of streams that was valid in [start_ms, end_ms); ``end_ms`` None while it is the newest."""

    start_ms: int
    end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """The unit of work and of saved positions: streams that are read together by one task.

    Attributes:
        table: whose log it is.
        generation: which it belongs to.
        name: unique in the table and generation, and stable: the vnode index for vnode tables ("17"), for tablets the stream id
            ("0x...").
        tablets: whether the table is a tablet table.
        streams: stream ids of 16 bytes, sorted as unsigned bytes.
        token_range: (exclusive, inclusive) tokens of the base table whose changes come through these streams; None if not
            known. It may wrap around.
        index: place among all groups of the table and generation, which are ordered by token; -1: not known.
        begin_ms: where to begin without a saved position; None: at the start of the generation.
        java_numbers: of a tablet table, the Java connector's number of each stream, see ``positions``.
        later: whether the table came after the connector's first start and is to be read without a snapshot.
    """

    table: TableId
    generation: Generation
    name: str
    tablets: bool
    streams: tuple[bytes, ...]
    token_range: tuple[int, int] | None = None
    index: int = -1
    begin_ms: int | None = None
    java_numbers: tuple[int, ...] = ()
    later: bool = False


class ReadPosition(NamedTuple):
    """The position of the reading of a group.

    Everything with ``cdc$time`` before ``window_start_ms`` was delivered. Inside [window_start_ms, window_end_ms) these were:
    all of the streams in ``done`` (bit i: ``StreamGroup.streams[i]``); of ``stream`` everything before ``time``, and of the
    change with that time the events whose ``batch_seq_no`` is ``seq`` or lower (-1: none of them; a Java offset has no number).
    """

    window_start_ms: int
    window_end_ms: int
    done: int = 0
    stream: bytes | None = None
    time: bytes | None = None
    seq: int = -1


class StreamRun(NamedTuple):
    """Rows of one stream that follow each other in a page, and what their records say of where they come from.

    Attributes:
        partition: the source partition, one object per group.
        offset: the members of the source offset that all of them share (window, done streams, stream); a record's offset is a
            copy with the time and the batch number of its change added (``positions.OFFSET_TIME``, ``positions.OFFSET_SEQ``).
        rows: in log order. May be empty together with ``last``: what is held back of this stream is to be given out.
        skip: (cdc$time, seq) that was delivered before: events at this time with a number up to seq are not repeated.
        last: whether the stream's rows of this window end here, so that nothing may be held back for more.
        may_be_bad: whether there may be a ``BadCell`` in the rows; False spares the builder to look.
    """

    partition: Position
    offset: Position
    rows: list[LogRow]
    skip: tuple[bytes, int] | None = None
    last: bool = False
    may_be_bad: bool = True
