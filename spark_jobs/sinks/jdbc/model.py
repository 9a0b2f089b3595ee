"""The data that the parts of the JDBC sink exchange; all of it plain and picklable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from spark_jobs.contract import Column
    from spark_jobs.sinks.jdbc.config import JdbcSettings, Login
    from spark_jobs.sinks.jdbc.types import JdbcKind

#: A DB-API connection of the dialect's driver.
Connection = Any


class Fault(StrEnum):
    """The reaction to an error of a database."""

    RETRY = "retry"  # a deadlock, a lost connection, a timeout: the same may work in a moment
    DATA = "data"  # a value of a row is refused
    FATAL = "fatal"  # a login, a right, a statement: a person has to fix it


@dataclass(frozen=True, slots=True)
class JdbcColumn:
    """A column as it is in the database: its type as SQL text, whether null is allowed, whether there is a default."""

    name: str
    type: str
    nullable: bool
    default: bool = False


@dataclass(frozen=True, slots=True)
class JdbcTable:
    """A table as it is in the database; ``unique`` are the column sets of its unique indexes, the primary key first."""

    columns: dict[str, JdbcColumn]
    unique: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class NeededColumn:
    """A column as the sink needs it: name and type in the dialect, whether null must be allowed."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class JdbcStep:
    """One statement that is run for each chunk after its rows are loaded; ``deletes``: only where the chunk has a delete."""

    sql: str
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class JdbcNames:
    """Quoted, full names of a target table's tables."""

    table: str
    side: str
    stage: str
    commits: str


@dataclass(frozen=True, slots=True)
class JdbcPlan:
    """All that a task needs to write one table's rows.

    Attributes:
        namespace: the source table, for messages.
        target: the table's name, for messages.
        writer: the same for positions, with the source table where several of them are written to one target.
        login: how to connect.
        columns: columns to load, names as in the table; the first ``row_columns`` are the source's and come first in the frame,
            under other names (Spark takes some names for paths), the others have the same names there.
        row_columns: how many columns are the source's.
        keys: which of them are the key; empty: rows are appended.
        into: the (quoted) table that rows are loaded into.
        setup: run once per connection.
        clear: run before each load; empty where there is nothing to clear.
        steps: run after each load.
        clocks: those columns whose nanoseconds since midnight are written as text (``HH:MM:SS.ffffff``).
        seconds: those columns of times that have fewer than six digits after the second, and how many they have.
        uuids: those key columns in which the database keeps UUIDs, whose spellings it does not tell apart.
        teardown: run before a transaction over several databases is prepared, which is then where ``setup`` runs, too.
        branch: the name of that transaction; empty: a chunk is a transaction of its own.
        commits: the (quoted) table of positions; empty where positions are not kept.
        job: the job's name in the table of positions.
        batch_rows: rows per transaction.
        batch_bytes: bytes of Arrow per transaction.
        retries: of a transaction.
        backoff_ms: the first pause between them.
    """

    namespace: str
    target: str
    writer: str
    login: Login
    columns: tuple[str, ...]
    row_columns: int
    keys: tuple[str, ...]
    into: str
    setup: tuple[str, ...]
    clear: str
    steps: tuple[JdbcStep, ...]
    commits: str
    job: str
    batch_rows: int
    batch_bytes: int
    retries: int
    backoff_ms: int
    clocks: tuple[str, ...] = ()
    seconds: tuple[tuple[str, int], ...] = ()
    uuids: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()
    branch: str = ""


class Dialect(Protocol):
    """The database-specific part of the sink; docs/jobs/jdbc.md says how to add one. Methods that take a connection block."""

    @property
    def port(self) -> int:
        """The usual port of its servers; 0 where a database is a file, whose URL is ``jdbc:<name>:/path``."""

    @property
    def placeholder(self) -> str:
        """How its driver marks the place of a value in a statement: ``%s`` or ``?``."""

    @property
    def row_lock(self) -> str:
        """The end of a SELECT that locks the rows it finds; empty where transactions take turns anyway."""

    @property
    def merges_by_key(self) -> bool:
        """Whether an upsert looks at the key's unique index only; else a table may have no other unique index."""

    @property
    def max_name(self) -> int:
        """Longest name, in bytes (``octets``) or characters."""

    @property
    def octets(self) -> bool:
        """Whether ``max_name`` counts bytes; such databases also tell names apart by case."""

    def quote(self, name: str) -> str:
        """An identifier, quoted."""

    def refuses(self, name: str) -> str:
        """Why the database can hold no table or column of that name (``it is empty``); empty where it can. Pure."""

    def complaints(self, chosen: JdbcSettings, config: Mapping[str, Any]) -> list[str]:
        """Options that the database can't follow, as ``<option>: <text>``; ``config`` is all of the job's. Pure."""

    def column_type(self, column: Column, key_length: int) -> str:
        """The SQL type of a source's column. Raises ``Fatal`` where the database has none."""

    def system_type(self, name: str) -> str:
        """The SQL type of a column that the sink adds (``ums_id_`` ...)."""

    def suited(self, connection: Connection) -> Dialect:
        """This dialect for the version of the server; sends nothing."""

    def kind(self, text: str) -> JdbcKind:
        """A type by family and size, from its text in the database."""

    def fits(self, needed: str, present: str) -> str | None:
        """How a present column serves: its own type where it does, a wider one to change it to, None where they don't go."""

    def widen(self, table: str, column: NeededColumn) -> str:
        """The statement that changes a column's type."""

    def create(self, table: str, columns: tuple[NeededColumn, ...], key: tuple[str, ...]) -> str:
        """The statement that makes a table where it is missing."""

    def add_key(self, table: str, keys: tuple[str, ...]) -> str:
        """The statement that gives a table that is there a unique index over the key."""

    def setup(self, names: JdbcNames, columns: tuple[str, ...], system: tuple[str, ...]) -> tuple[str, ...]:
        """Statements that make the staging table: ``columns`` as in the table, ``system`` as in the side table."""

    def analyze(self, stage: str) -> tuple[JdbcStep, ...]:
        """Statements that let the planner know how many rows were loaded; empty where it knows."""

    def merge(self, into: str, source: str, columns: tuple[str, ...], keys: tuple[str, ...], *, newer: bool) -> str:
        """Insert or update; with ``newer`` only rows whose ums_id_ is larger than the present one's.

        Args:
            into: quoted table.
            source: the part after FROM: aliases ``s``; the columns are taken from it.
            columns: columns to write.
            keys: the key.
            newer: see above.
        """

    def delete(self, table: str, tables: str, condition: str) -> str:
        """Delete rows of ``table`` (alias ``t``) joined with ``tables`` (text of a FROM list with aliases)."""

    def expire(self, table: str, condition: str, retention_ms: int) -> str:
        """Delete rows whose ``written_at_`` is older than the retention and that meet the condition."""

    def same(self, left: str, right: str) -> str:
        """A condition: equal, null being equal to null."""

    def connect(self, login: Login) -> Connection:
        """A connection that commits only on an explicit commit, in READ COMMITTED or stricter."""

    def stream(self, connection: Connection) -> Any:
        """A cursor whose rows stay on the server until they are fetched, however long that takes."""

    def classify(self, error: BaseException) -> Fault | None:
        """Return the reaction to an error; None for one that is not the database's."""

    def describe(self, connection: Connection, schema: str, table: str) -> JdbcTable | None:
        """A table's columns and unique indexes; None where it is missing."""

    def rights(self, connection: Connection, schema: str, *, create: bool) -> list[str]:
        """Return the rights that the sink needs and the login lacks, with the statement that grants each."""

    def load(self, connection: Connection, into: str, rows: pa.Table, columns: tuple[str, ...]) -> None:
        """Put rows into a table as they are."""
