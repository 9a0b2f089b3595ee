"""SQLite: a database in one file, without a server. Rows by ``executemany`` into a temporary table, then set-based statements.

Transactions take turns: each begins with ``BEGIN IMMEDIATE``, which takes the file's one lock for writers or waits for it
(``sink.jdbc.statement.timeout.ms``), so that what ``plan`` says about two writers of one key holds without locks of rows.
The file's journal mode stays as its owner has set it.
"""

# ruff: noqa: S608 - names in the statements are quoted by the dialect, values are parameters or escaped
from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectors.errors import Fatal
from spark_jobs.contract import TIME
from spark_jobs.sinks.jdbc.dialect.standard import create_table, insert_on_conflict
from spark_jobs.sinks.jdbc.model import Fault, JdbcColumn, JdbcTable
from spark_jobs.sinks.jdbc.rows import plain_text
from spark_jobs.sinks.jdbc.types import JdbcKind, can_hold, parse_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spark_jobs.contract import Column
    from spark_jobs.sinks.jdbc.config import JdbcSettings, Login
    from spark_jobs.sinks.jdbc.model import Connection, JdbcNames, JdbcStep, NeededColumn

_TYPES: Final = {
    "byte": "integer",
    "short": "integer",
    "integer": "integer",
    "long": "integer",
    "float": "real",
    "double": "real",
    "boolean": "boolean",
    "binary": "blob",
    "date": "date",
    "timestamp": "datetime",
    "timestamp_ntz": "datetime",
}
_SYSTEM: Final = {
    "ums_id_": "integer",
    "ums_ts_": "datetime",
    "ums_op_": "text",
    "ums_uid_": "text",
    "ums_active_": "integer",
    "kafka_topic_": "text",
    "kafka_partition_": "integer",
    "kafka_offset_": "integer",
    "written_at_": "datetime DEFAULT CURRENT_TIMESTAMP",
    "job_": "text",
    "table_": "text",
    "next_offset_": "integer",
}
#: Digits that a number keeps for sure. Source: SQLite's manual, "Datatypes In SQLite", 3: the first 15 digits are preserved.
_EXACT_DIGITS: Final = 15
#: Result codes by what they ask for. Source: SQLite's manual, "Result and Error Codes".
_RETRY: Final = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_SCHEMA,
    )
)
_DATA: Final = frozenset((sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG))
_OLDEST: Final = (3, 35, 0)
#: Rows that are Python objects at the same time.
_CHUNK_ROWS: Final = 5000
_FOREVER_S: Final = 10**6
#: Options that mean something for servers only.
_OF_SERVERS: Final = ("user", "password", "ssl.mode", "ssl.root.cert", "ssl.cert", "ssl.key", "schema")


class _SqliteCursor(sqlite3.Cursor):
    """Begins a transaction before a statement that is in none."""

    def execute(self, sql: str, parameters: Any = (), /) -> _SqliteCursor:
        """As ``sqlite3.Cursor.execute``. Blocks while another connection writes."""
        if not self.connection.in_transaction:
            super().execute("BEGIN IMMEDIATE")
        super().execute(sql, parameters)
        return self


class _SqliteConnection(sqlite3.Connection):
    """One whose transactions have the file's lock from their begin."""

    def cursor(self, factory: Any = _SqliteCursor) -> Any:
        """As ``sqlite3.Connection.cursor``."""
        return super().cursor(factory)


class Sqlite:
    """The dialect of SQLite; see ``model.Dialect``."""

    port = 0
    placeholder = "?"
    row_lock = ""
    merges_by_key = True
    max_name = 1 << 16  # it has no limit
    octets = False

    def quote(self, name: str) -> str:
        """An identifier, quoted."""
        return '"' + name.replace('"', '""') + '"'

    def refuses(self, name: str) -> str:
        """Why there can be no column or table of that name. Source: the manual, "CREATE TABLE"."""
        if not name:
            return "it is empty"
        if name.lower().startswith("sqlite_"):
            return "names that begin with sqlite_ are SQLite's own"
        if name.lower() == "_rowid_":
            return "it is SQLite's name for the place of a row"
        return "it has a NUL character" if "\0" in name else ""

    def complaints(self, chosen: JdbcSettings, config: Mapping[str, Any]) -> list[str]:
        """It has no logins and no schemas, and tasks must run on the machine that has the file."""
        options = {
            "user": chosen.login.user,
            "password": chosen.login.password,
            "ssl.mode": chosen.login.ssl_mode != "prefer",
            "ssl.root.cert": chosen.login.ssl_root_cert,
            "ssl.cert": chosen.login.ssl_cert,
            "ssl.key": chosen.login.ssl_key,
            "schema": chosen.schema,
        }
        messages = [f"sink.jdbc.{name}: SQLite has no such thing; remove it" for name in _OF_SERVERS if options[name]]
        master = config.get("spark.master") or "local[*]"
        if not master.startswith("local"):
            messages.append(
                f"sink.jdbc.url: a SQLite file is on one machine, and tasks of spark.master={master} may run on others; "
                "use spark.master=local[N], or a database with a server"
            )
        return messages

    def column_type(self, column: Column, key_length: int) -> str:
        """The declared type of a source's column: numbers where SQLite keeps all digits, else text."""
        del key_length
        name = column.type.typeName()
        if name == "decimal":
            precision, scale = column.type.precision, column.type.scale  # type: ignore[attr-defined]
            return f"decimal({precision},{scale})" if precision <= _EXACT_DIGITS else "text"
        if (column.meaning, name) == (TIME, "long"):
            return "time"
        return _TYPES.get(name, "text")

    def system_type(self, name: str) -> str:
        """The declared type of a column that the sink adds."""
        return _SYSTEM[name]

    def suited(self, connection: Connection) -> Sqlite:
        """The same for all versions."""
        del connection
        return self

    def kind(self, text: str) -> JdbcKind:
        """A declared type by family and size. Source: the manual, "Determination Of Column Affinity"."""
        name = text.lower()
        if "int" in name:
            return JdbcKind("integer", 8)
        if any(part in name for part in ("char", "clob", "text")):
            return JdbcKind("text", 1 << 32)
        if "blob" in name:
            return JdbcKind("bytes", 1 << 32)
        if any(part in name for part in ("real", "floa", "doub")):
            return JdbcKind("float", 8)
        kind = parse_kind(name, bounded_text=False)
        return replace(kind, scale=0) if kind.family == "time" else kind  # text, with all digits

    def fits(self, needed: str, present: str) -> str | None:
        """How a present column serves: as it is, or not at all, because a column's type can't be changed."""
        has, need = self.kind(present), self.kind(needed)
        # A column without a type takes everything as it comes, one for numbers all numbers.
        numbers = {has.family, need.family} <= {"integer", "decimal"} and need.size <= max(_EXACT_DIGITS, 8)
        return present if not present or numbers or can_hold(has, need) else None

    def widen(self, table: str, column: NeededColumn) -> str:
        """Statements for a person: SQLite can't change a column's type, so the sink never does it."""
        old, new = self.quote(column.name), self.quote(f"{column.name}_new")
        return (
            f"ALTER TABLE {table} ADD COLUMN {new} {column.type}; UPDATE {table} SET {new} = {old}; "
            f"ALTER TABLE {table} DROP COLUMN {old}; ALTER TABLE {table} RENAME COLUMN {new} TO {old}"
        )

    def create(self, table: str, columns: tuple[NeededColumn, ...], key: tuple[str, ...]) -> str:
        """The statement that makes a table where it is missing."""
        return create_table(self.quote, table, columns, key)

    def add_key(self, table: str, keys: tuple[str, ...]) -> str:
        """The statement that makes a unique index over the key; a primary key can't be added."""
        name = self.quote(f"{table.strip(chr(34))}_key")
        return f"CREATE UNIQUE INDEX {name} ON {table} ({', '.join(map(self.quote, keys))})"

    def setup(self, names: JdbcNames, columns: tuple[str, ...], system: tuple[str, ...]) -> tuple[str, ...]:
        """Statements that make the staging table."""
        # Of a column named true or false, CREATE TABLE AS makes one with another name.
        renamed = {name: f"{name} of the table" for name in columns if name.lower() in ("true", "false")}
        sources = [*((name, "t") for name in columns), *((name, "u") for name in system)]
        chosen = ", ".join(
            f"{alias}.{self.quote(name)} AS {self.quote(renamed.get(name, name))}" for name, alias in sources
        )
        tables = f"{names.table} AS t" + (f" JOIN {names.side} AS u ON 1 = 0" if system else "")
        return (
            f"CREATE TEMPORARY TABLE {names.stage} AS SELECT {chosen} FROM {tables} LIMIT 0",
            *(
                f"ALTER TABLE {names.stage} RENAME COLUMN {self.quote(source_name)} TO {self.quote(name)}"
                for name, source_name in renamed.items()
            ),
        )

    def analyze(self, stage: str) -> tuple[JdbcStep, ...]:
        """Nothing: with the key's unique index there is one good plan."""
        del stage
        return ()

    def merge(self, into: str, source: str, columns: tuple[str, ...], keys: tuple[str, ...], *, newer: bool) -> str:
        """Insert or update; see ``model.Dialect``."""
        return insert_on_conflict(self.quote, into, source, columns, keys, newer=newer)

    def delete(self, table: str, tables: str, condition: str) -> str:
        """Delete rows of a table joined with others, by their places."""
        rows = f"SELECT t._rowid_ FROM {table} AS t, {tables} WHERE {condition}"
        return f"DELETE FROM {table} WHERE _rowid_ IN ({rows})"

    def expire(self, table: str, condition: str, retention_ms: int) -> str:
        """Delete rows that are older than the retention."""
        old = f"datetime('now', '-{retention_ms // 1000} seconds')"
        return f"DELETE FROM {table} WHERE {self.quote('written_at_')} < {old} AND {condition}"

    def same(self, left: str, right: str) -> str:
        """Equal, null being equal to null."""
        return f"{left} IS {right}"

    def connect(self, login: Login) -> Connection:
        """A connection that commits only by ``commit``; its transactions take turns with all others' of the file. Blocks."""
        path = Path(login.address.database)
        if not path.parent.is_dir():
            raise sqlite3.OperationalError(f"there is no folder {path.parent}; make it")
        return sqlite3.connect(
            path,
            timeout=login.statement_timeout_ms / 1000 or _FOREVER_S,
            isolation_level=None,  # _Cursor begins transactions
            factory=_SqliteConnection,
            check_same_thread=False,
        )

    def stream(self, connection: Connection) -> Any:
        """Any cursor reads rows as they are fetched."""
        return connection.cursor()

    def classify(self, error: BaseException) -> Fault | None:
        """The kind of an error; see ``model.Fault``. Pure."""
        if not isinstance(error, sqlite3.Error):
            return None
        if isinstance(error, sqlite3.DataError):
            return Fault.DATA
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # an extended code has the primary one in its last byte
        if code in _DATA:
            return Fault.DATA
        return Fault.RETRY if code in _RETRY else Fault.FATAL

    def describe(self, connection: Connection, schema: str, table: str) -> JdbcTable | None:
        """A table's columns and unique indexes; None where it is missing. Takes no lock.

        Raises:
            Fatal: it is a view, or a table WITHOUT ROWID.
        """
        del schema
        tables = _fetch_rows(
            connection, "SELECT type, wr FROM pragma_table_list WHERE schema = 'main' AND lower(name) = lower(?)", table
        )
        if not tables:
            return None
        if tables[0] != ("table", 0):
            form = "WITHOUT ROWID" if tables[0][0] == "table" else f"a {tables[0][0]}"
            raise Fatal(f"{table} is {form}, which the sink can't write; write a table with row ids")
        rows = _fetch_rows(
            connection,
            'SELECT name, type, "notnull", dflt_value IS NOT NULL OR hidden > 0, pk FROM pragma_table_xinfo(?)',
            table,
        )
        primary = tuple(row[0] for row in sorted(rows, key=lambda row: int(row[4])) if row[4])
        unique = [primary] if primary else []
        for name, origin in _fetch_rows(
            connection,
            'SELECT name, origin FROM pragma_index_list(?) WHERE "unique" AND NOT partial ORDER BY seq',
            table,
        ):
            columns = tuple(
                row[0] for row in _fetch_rows(connection, "SELECT name FROM pragma_index_info(?) ORDER BY seqno", name)
            )
            if origin != "pk" and None not in columns:  # None: an expression
                unique.append(columns)
        return JdbcTable({row[0]: JdbcColumn(row[0], row[1], not row[2], bool(row[3])) for row in rows}, tuple(unique))

    def rights(self, connection: Connection, schema: str, *, create: bool) -> list[str]:
        """Nothing to grant; the file is locked for writing and let go, which fails where it can't be written. Blocks."""
        del schema, create
        if sqlite3.sqlite_version_info < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            return [f"Python's SQLite is {sqlite3.sqlite_version}, and {oldest} or later is needed; use another Python"]
        with closing(connection.cursor()) as cursor:
            cursor.execute("SELECT 1")
        connection.rollback()
        return []

    def load(self, connection: Connection, into: str, rows: pa.Table, columns: tuple[str, ...]) -> None:
        """Put rows into a table as they are. Blocks.

        Raises:
            sqlite3.DataError: a number is NaN, of which SQLite would make null.
        """
        names, values = ", ".join(map(self.quote, columns)), ", ".join("?" * len(columns))
        with closing(connection.cursor()) as cursor:
            for start in range(0, rows.num_rows, _CHUNK_ROWS):
                chunk = rows.slice(start, _CHUNK_ROWS)
                cursor.executemany(
                    f"INSERT INTO {into} ({names}) VALUES ({values})",
                    zip(
                        *(_read_column_values(name, chunk.column(name).combine_chunks()) for name in columns),
                        strict=True,
                    ),
                )


def _read_column_values(name: str, column: pa.Array) -> Iterable[Any]:
    """A column as the driver takes it."""
    kind_of = column.type
    if pa.types.is_boolean(kind_of):
        column = column.cast(pa.int8())
    elif pa.types.is_floating(kind_of):
        if pc.any(pc.is_nan(column)).as_py():
            raise sqlite3.DataError(f"column '{name}' can't hold NaN")
    elif pa.types.is_decimal(kind_of):  # Arrow would write small ones with an exponent
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    elif not (
        pa.types.is_integer(kind_of)
        or pa.types.is_string(kind_of)
        or pa.types.is_large_string(kind_of)
        or pa.types.is_binary(kind_of)
        or pa.types.is_large_binary(kind_of)
    ):
        column = plain_text(column, zone=False)
    values: list[Any] = column.to_pylist()
    return values


def _fetch_rows(connection: Connection, statement: str, *arguments: Any) -> Sequence[tuple[Any, ...]]:
    """The rows of a query outside of a transaction."""
    with closing(sqlite3.Cursor(connection)) as cursor:
        return cursor.execute(statement, arguments).fetchall()


SQLITE: Final = Sqlite()
