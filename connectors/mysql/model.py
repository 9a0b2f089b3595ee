"""What the parts of the connector tell each other: tables, columns, source positions, shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.schema import Schema

MARIADB: Final = "mariadb"
MYSQL: Final = "mysql"


class TableName(NamedTuple):
    """A table's name; compared as the server writes it."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def possible(self) -> bool:
        """Whether a server can hold such a name: of characters up to U+FFFF. It can't even be compared with others there."""
        return max(map(ord, f"{self.database}{self.table}"), default=0) <= 0xFFFF


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a table as the binlog describes it, completed from ``information_schema`` where that fits.

    Attributes:
        name: its name.
        type: the type code of the TABLE_MAP event, with ENUM, SET and the real string type already told apart.
        meta: the type's metadata as one number; what it counts by type says ``type_codes``.
        nullable: whether NULL is allowed.
        unsigned: of a number.
        collation: the id of the collation of a text, ENUM or SET column; None for others (63 is ``binary``).
        members: of an ENUM or SET, as text.
        geometry: the geometry type's number; None for others.
        visible: False for an invisible column (which Debezium captures like any other).
        declared: the type as ``information_schema.COLUMN_TYPE`` writes it (``varchar(20)``, ``int(10) unsigned``), or "" if
            unknown.
        default: the default as ``information_schema.COLUMN_DEFAULT`` writes it; None: there is none, or it is unknown.
        comment: the column's comment.
        extra: ``information_schema.EXTRA`` (``auto_increment``, ``STORED GENERATED`` ...).
    """

    name: str
    type: int
    meta: int = 0
    nullable: bool = True
    unsigned: bool = False
    collation: int | None = None
    members: tuple[str, ...] = ()
    geometry: int | None = None
    visible: bool = True
    declared: str = ""
    default: str | None = None
    comment: str = ""
    extra: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One structure of one table.

    Attributes:
        name: the table.
        columns: in the order of the row images.
        key: names of the key's columns: the primary key, else the first unique index without nullable columns, else ().
        completed: whether ``information_schema`` was there to complete the columns.
        primary: whether ``key`` is the primary key.
    """

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    completed: bool = False
    primary: bool = True

    def column(self, name: str) -> Column | None:
        """The column called so, or None."""
        return next((column for column in self.columns if column.name == name), None)


class ColumnPlan(NamedTuple):
    """How one column becomes a field.

    Attributes:
        column: the column.
        schema: the field's schema (after masking or truncation).
        transform: applied to the non-null field value, or None. What a mask makes of a null is its own affair: see ``nulls``.
        nulls: whether ``transform`` is called with None too.
    """

    column: Column
    schema: Schema
    transform: Callable[[object], object] | None = None
    nulls: bool = False


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the stream is to go on: Debezium's offset, as values.

    ``file`` and ``pos`` say where the last transaction that is wholly done ended (a place at which a server can be asked to
    begin); ``gtids`` is the set executed until then, as the server writes it ("" without GTIDs). ``event`` says how many events
    after that are done, and ``row`` how many rows of the next one.

    Attributes:
        server_id: of the server that wrote the last event; 0: unknown.
        ts_sec: the last event's time, seconds since 1970; 0: unknown.
    """

    file: str
    pos: int
    gtids: str = ""
    event: int = 0
    row: int = 0
    server_id: int = 0
    ts_sec: int = 0


class Source(msgspec.Struct, kw_only=True):
    """Where rows come from, for the ``source`` field of events: one object per rows event.

    Attributes:
        ts_ms: when the change was made, milliseconds since 1970 (the event's seconds, or finer where the server tells).
        ts_us: the same in microseconds; finer where MySQL's GTID event or MariaDB tells.
        server_id: of the server that wrote it.
        file: the binlog file.
        pos: where the event begins in it.
        gtid: of the transaction, as text, or None.
        thread: the connection's number, or None.
        query: the statement's text where the server logs it and ``include.query`` asks for it, or None.
        size: bytes of the event in the file (of the compressed one, for rows from within it).
        transaction: number of the transaction's events so far, for the ``transaction`` field; -1: not wanted.
    """

    ts_ms: int
    ts_us: int
    server_id: int
    file: str
    pos: int
    gtid: str | None = None
    thread: int | None = None
    query: str | None = None
    size: int = 0
    transaction: int = -1


class Shard(msgspec.Struct, frozen=True):
    """Which part of the source a task owns, for the stream and for full pulls alike.

    Every task reads the whole binlog and owns some of the rows: one writer per key, so that order per key needs no agreement
    between tasks. Rows whose first key column is an integer are divided by blocks of ``BLOCK`` numbers, others by table.
    """

    index: int = 0
    count: int = 1


#: Consecutive numbers of an integer key that go to one shard.
BLOCK: Final = 4096
