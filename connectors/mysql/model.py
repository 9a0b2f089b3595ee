"""The values that the connector's parts exchange: tables, columns, source positions, shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from connectors.errors import ConfigInvalid
from connectors.options import Password  # noqa: TC001 - msgspec reads the annotation at run time

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

    @property
    def folded(self) -> TableName:
        """The name in lower case."""
        return TableName(self.database.lower(), self.table.lower())


class MySqlColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a table as the binlog describes it, completed from ``information_schema`` where that fits.

    Attributes:
        name: its name.
        type: the type code of the TABLE_MAP event, with ENUM, SET and the real string type already resolved.
        meta: the type's metadata as one number; ``type_codes`` says what it counts for each type.
        nullable: whether NULL is allowed.
        unsigned: of a number.
        collation: the id of the collation of a string, ENUM or SET column; None for others (63 is ``binary``).
        members: of an ENUM or SET, as text.
        geometry: the geometry type's number; None for others.
        visible: False for an invisible column (which Debezium captures like any other).
        declared: the type as ``information_schema.COLUMN_TYPE`` writes it (``varchar(20)``, ``int(10) unsigned``), or "" if
            unknown.
        default: the default as ``information_schema.COLUMN_DEFAULT`` writes it; None if it is missing or unknown.
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


class MySqlTable(msgspec.Struct, frozen=True, kw_only=True):
    """One structure of one table.

    Attributes:
        name: the table.
        columns: in the order of the row images.
        key: names of the key's columns: the primary key, else the first unique index without nullable columns, else ().
        completed: whether ``information_schema`` was there to complete the columns.
        primary: whether ``key`` is the primary key.
    """

    name: TableName
    columns: tuple[MySqlColumn, ...]
    key: tuple[str, ...] = ()
    completed: bool = False
    primary: bool = True

    def column(self, name: str) -> MySqlColumn | None:
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

    column: MySqlColumn
    schema: Schema
    transform: Callable[[object], object] | None = None
    nulls: bool = False


class BinlogPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The position from which the stream continues: Debezium's offset, as values.

    ``file`` and ``pos`` say where the last completed transaction ended (a position at which a server can start to send);
    ``gtids`` is the set executed until then, as the server writes it ("" without GTIDs). ``event`` says how many events after
    that are done, and ``row`` how many rows of the next one.

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


class RowSource(msgspec.Struct, kw_only=True):
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
    """The part of the source that a task owns, in the stream and in snapshots.

    Every task reads the whole binlog and owns some of the rows: one writer per key, so that order per key needs no agreement
    between tasks. Rows whose first key column is an integer are divided by blocks of ``BLOCK`` numbers, others by table.
    """

    index: int = 0
    count: int = 1


#: Consecutive numbers of an integer key that go to one shard.
BLOCK: Final = 4096


#: As Debezium: ``preferred`` encrypts where the server can, without checking whom it talks to; ``required`` refuses a server
#: that can't; ``verify_ca`` also checks the server's certificate, ``verify_identity`` also its name.
SslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]


Failures = Literal["fail", "warn", "skip"]


DEFAULT_PORT: Final = 3306


class ServerAddress(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class MySqlTlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to encrypt; no ``MySqlTlsSettings`` at all means not to.

    Attributes:
        mode: see ``SslMode``.
        truststore: file with the certificates that are believed (PEM or PKCS12), for the two modes that verify; None: the
            system's.
        truststore_password: of a PKCS12 file.
        keystore: file with our key and certificate (PEM or PKCS12) where the server wants one.
        keystore_password: of that file.
    """

    mode: SslMode
    truststore: str | None
    truststore_password: Password | None
    keystore: str | None
    keystore_password: Password | None

    @property
    def required(self) -> bool:
        """Whether a server without TLS is refused."""
        return self.mode not in {"disabled", "preferred"}


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One server, or several that are copies of each other.

    Attributes:
        host: a name or an address, or several with commas between, each with its own ``:port`` if it has one.
        port: for the hosts that name none.
        user: who logs in.
        password: the password.
        server_id: our number among the readers of the server's binlog; 0: one from 5400 to 6400 is drawn at each connection.
        tls: how to encrypt; None: not.
        connect_timeout_s: until a connection must stand, for each host, logging in included.
        keepalive: whether the operating system probes a quiet connection.
        keepalive_s: after how many quiet seconds it does.
        heartbeat_s: how often a quiet server says that it is there, on the binlog connection.
        silence_s: how long it may say nothing before the connection counts as lost; at least three heartbeats are awaited.
        net_write_timeout_s: how long the server waits for a reader that doesn't take data, before it gives the connection up.
        net_read_timeout_s: the server's ``net_read_timeout``, for queries; None: as the server has it.
        statements: run at the start of each connection for queries (not on the binlog's), in order.
        time_zone: of the connections for queries.
        verify_checksums: whether the binlog's CRC32 is verified, where there is one.
        name: what the server's process list shows.
    """

    host: str
    port: int
    user: str
    password: Password | None
    server_id: int
    tls: MySqlTlsSettings | None
    connect_timeout_s: float
    keepalive: bool
    keepalive_s: float
    heartbeat_s: float
    silence_s: float
    net_write_timeout_s: int
    net_read_timeout_s: int | None
    statements: tuple[str, ...]
    time_zone: str
    verify_checksums: bool
    name: str

    @property
    def secret(self) -> str:
        """The password's text."""
        return self.password.value if self.password is not None else ""

    def addresses(self) -> tuple[ServerAddress, ...]:
        """The servers in the order in which they are tried.

        Raises:
            ConfigInvalid: a port is no number, or there is no host.
        """
        servers = tuple(parse_address(part, self.port) for part in self.host.split(",") if part.strip())
        if not servers:
            raise ConfigInvalid("database.hostname names no host")
        return servers


def parse_address(server: str, port: int) -> ServerAddress:
    """``host``, ``host:port``, ``[::1]:port`` or ``::1`` as an address.

    Raises:
        ConfigInvalid: the port is no number from 1 to 65535.
    """
    server = server.strip()
    host, port_digits = server, ""
    if server.startswith("["):
        host, _, remainder = server[1:].partition("]")
        port_digits = remainder.removeprefix(":")
    elif server.count(":") == 1:
        host, _, port_digits = server.partition(":")
    if not port_digits:
        return ServerAddress(host, port)
    if not port_digits.isascii() or not port_digits.isdigit() or not 0 < int(port_digits) < 1 << 16:
        raise ConfigInvalid(
            f"database.hostname: {port_digits!r} in {server!r} is no port; write HOST:PORT, a port from 1 to 65535"
        )
    return ServerAddress(host, int(port_digits))


class SnapshotPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a value of ``snapshot.mode``.

    Attributes:
        snapshot: when a snapshot is taken at the start: never, without saved positions (``initial``), or always.
        stream: whether the stream is read (False: the task ends after the snapshot).
        on_purged: whether a new snapshot is taken, and the stream starts from it, when the saved position was purged.
        begin: where the stream starts without saved positions: at the server's position, or with its oldest binlog.
    """

    snapshot: Literal["never", "initial", "always"]
    stream: bool
    on_purged: bool
    begin: Literal["now", "oldest"]


class Overrides(NamedTuple):
    """Rows of the initial snapshot by table: ``database.table`` -> SQL condition, or a whole statement."""

    conditions: dict[str, str]
    selects: dict[str, str]


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a task reads. Times are in seconds.

    Attributes:
        prefix: ``topic.prefix``: the source's name in saved positions.
        shard: the part of the source that the task owns.
        max_batch: records per batch.
        max_queue: records made and not yet handed over.
        poll_s: how long a quiet task waits before it reports its position.
        rollback_rows: rows of an open transaction that are held back, in case it is rolled back; 0: none.
        failures: what to do with an event that can't be read; ``skip`` says nothing.
        inconsistent: what to do with changes of a table whose structure is unknown.
        plan: see ``SnapshotPlan``.
        snapshot_tables: expressions of the tables of the initial snapshot; () for all.
        new_tables: whether a table that is captured later gets a snapshot of its own.
        overrides: rows of the initial snapshot.
        gtid_includes, gtid_excludes: expressions, matched against a source's UUID or ``domain-server``; () for all.
        gtid_filter: whether changes of other sources are left out.
        query: ``include.query``.
        channels: of ``source`` and ``kafka``: where signals come from.
        signal_table: the signal table, or None.
        signal_topic, signal_brokers, signal_group: of the channel ``kafka``.
        heartbeat_s: interval of heartbeat records; 0: none.
        heartbeat_to_tables: whether tables' topics get heartbeats where events are no UMS.
        heartbeat_table: the table whose rows are heartbeats, or None.
        version_topic: for records of table versions; "": none.
        progress_topic: for records of progress; "": none.
        progress_s: the least time between two of them.
        guardrail: most tables; 0: no limit.
        guardrail_fails: whether more stop the task, or only make a warning.
    """

    prefix: str
    shard: Shard
    max_batch: int
    max_queue: int
    poll_s: float
    rollback_rows: int
    failures: Failures
    inconsistent: Failures
    plan: SnapshotPlan
    snapshot_tables: tuple[str, ...]
    new_tables: bool
    overrides: Overrides
    gtid_includes: tuple[str, ...]
    gtid_excludes: tuple[str, ...]
    gtid_filter: bool
    query: bool
    channels: frozenset[str]
    signal_table: TableName | None
    signal_topic: str
    signal_brokers: str
    signal_group: str
    heartbeat_s: float
    heartbeat_to_tables: bool
    heartbeat_table: TableName | None
    version_topic: str
    progress_topic: str
    progress_s: float
    guardrail: int
    guardrail_fails: bool
