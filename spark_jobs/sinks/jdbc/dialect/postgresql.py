"""PostgreSQL: COPY into a temporary table, then set-based statements. Tried with PostgreSQL 18; needs 10 or later."""

# ruff: noqa: S608 - names in the statements are quoted by the dialect, values are parameters or escaped
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg

from connectors.errors import Fatal
from spark_jobs.contract import LOCAL_TIMESTAMP, NUMBER, TIME, UUID, ZONED_TIME
from spark_jobs.sinks.jdbc.dialect.standard import add_primary_key, create_table, insert_on_conflict, missing_user
from spark_jobs.sinks.jdbc.model import Fault, JdbcColumn, JdbcStep, JdbcTable
from spark_jobs.sinks.jdbc.types import JdbcKind, can_hold, join_kinds, parse_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from spark_jobs.contract import Column
    from spark_jobs.sinks.jdbc.config import JdbcSettings, Login
    from spark_jobs.sinks.jdbc.model import Connection, JdbcNames, NeededColumn

_TYPES: Final = {
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "boolean": "boolean",
    "string": "text",
    "varchar": "text",
    "char": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "array": "jsonb",
    "map": "jsonb",
    "struct": "jsonb",
    "variant": "jsonb",
    "void": "text",
}
#: Types of columns whose values are more than their Spark type says, by that meaning and the Spark type.
_MEANT: Final = {
    (UUID, "string"): "uuid",
    (NUMBER, "string"): "numeric",
    (TIME, "long"): "time without time zone",
    (ZONED_TIME, "string"): "time with time zone",
    (LOCAL_TIMESTAMP, "timestamp"): "timestamp without time zone",
}
_SYSTEM: Final = {
    "ums_id_": "bigint",
    "ums_ts_": "timestamp with time zone",
    "ums_op_": "text",
    "ums_uid_": "text",
    "ums_active_": "smallint",
    "kafka_topic_": "text",
    "kafka_partition_": "integer",
    "kafka_offset_": "bigint",
    "written_at_": "timestamp with time zone DEFAULT CURRENT_TIMESTAMP",
    "job_": "text",
    "table_": "text",
    "next_offset_": "bigint",
}
#: SQLSTATEs (classes of two, whole ones of five) by what they ask for. Source: PostgreSQL's manual, appendix A.
_RETRY: Final = ("08", "40", "53", "57P01", "57P02", "57P03", "57P05", "57014", "55P03", "55006", "58", "25006")
#: 54000: a value above a limit of the server, such as a key that no page of an index takes.
_DATA: Final = ("22", "23", "54000")
_SYSTEM_COLUMNS: Final = frozenset(("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"))
_COPY_BYTES: Final = 1 << 20


class PostgreSql:
    """The dialect of PostgreSQL; see ``model.Dialect``."""

    port = 5432
    placeholder = "%s"
    row_lock = " FOR UPDATE"
    merges_by_key = True
    max_name = 63
    octets = True

    def quote(self, name: str) -> str:
        """An identifier, quoted."""
        return '"' + name.replace('"', '""') + '"'

    def refuses(self, name: str) -> str:
        """Why there can be no column or table of that name. Source: the manual, "Identifiers" and "System Columns"."""
        if not name:
            return "it is empty"
        if name in _SYSTEM_COLUMNS:
            return "PostgreSQL has a system column of that name"
        return "it has a NUL character" if "\0" in name else ""

    def complaints(self, chosen: JdbcSettings, config: Mapping[str, Any]) -> list[str]:
        """A server needs a login."""
        del config
        return missing_user(chosen.login)

    def column_type(self, column: Column, key_length: int) -> str:
        """The SQL type of a source's column."""
        del key_length
        name = column.type.typeName()
        if name == "decimal":
            return f"numeric({column.type.precision},{column.type.scale})"  # type: ignore[attr-defined]
        if column.key and (column.meaning, name) == (NUMBER, "string"):
            return "text"  # two strings may be one number, and rows are distinguished earlier
        return _MEANT.get((column.meaning, name)) or _TYPES.get(name, "text")  # intervals and the like come as text

    def system_type(self, name: str) -> str:
        """The SQL type of a column that the sink adds."""
        return _SYSTEM[name]

    def suited(self, connection: Connection) -> PostgreSql:
        """The same for all versions."""
        del connection
        return self

    def kind(self, text: str) -> JdbcKind:
        """A type by family and size."""
        return parse_kind(text, bounded_text=False)

    def fits(self, needed: str, present: str) -> str | None:
        """How a present column serves; see ``model.Dialect``."""
        present_kind, need = self.kind(present), self.kind(needed)
        if can_hold(present_kind, need):
            return present
        both = join_kinds(present_kind, need)
        return None if both is None else needed if both == need else _format_type(both)

    def widen(self, table: str, column: NeededColumn) -> str:
        """The statement that changes a column's type."""
        return f"ALTER TABLE {table} ALTER COLUMN {self.quote(column.name)} TYPE {column.type}"

    def create(self, table: str, columns: tuple[NeededColumn, ...], key: tuple[str, ...]) -> str:
        """The statement that makes a table where it is missing."""
        return create_table(self.quote, table, columns, key)

    def add_key(self, table: str, keys: tuple[str, ...]) -> str:
        """The statement that makes the key of a table that is there."""
        return add_primary_key(self.quote, table, keys)

    def setup(self, names: JdbcNames, columns: tuple[str, ...], system: tuple[str, ...]) -> tuple[str, ...]:
        """Statements that make the staging table."""
        return (self._build_staging("TEMPORARY", " ON COMMIT DELETE ROWS", names, columns, system),)

    def setup_in_branch(self, names: JdbcNames, columns: tuple[str, ...], system: tuple[str, ...]) -> tuple[str, ...]:
        """The same for a transaction that is prepared, which must not touch temporary tables: it makes and drops this one."""
        return (self._build_staging("UNLOGGED", "", names, columns, system),)

    def _build_staging(
        self, kind_of: str, end: str, names: JdbcNames, columns: tuple[str, ...], system: tuple[str, ...]
    ) -> str:
        chosen = ", ".join(
            [*(f"t.{self.quote(name)}" for name in columns), *(f"u.{self.quote(name)}" for name in system)]
        )
        tables = f"{names.table} AS t" + (f" JOIN {names.side} AS u ON false" if system else "")
        return f"CREATE {kind_of} TABLE {names.stage}{end} AS SELECT {chosen} FROM {tables} WITH NO DATA"

    def analyze(self, stage: str) -> tuple[JdbcStep, ...]:
        """Temporary tables are not analyzed by the server itself, and joins with them would be planned blindly."""
        return (JdbcStep(f"ANALYZE {stage}"),)

    def merge(self, into: str, source: str, columns: tuple[str, ...], keys: tuple[str, ...], *, newer: bool) -> str:
        """Insert or update; see ``model.Dialect``."""
        return insert_on_conflict(self.quote, into, source, columns, keys, newer=newer)

    def delete(self, table: str, tables: str, condition: str) -> str:
        """Delete rows of a table joined with others."""
        return f"DELETE FROM {table} AS t USING {tables} WHERE {condition}"

    def expire(self, table: str, condition: str, retention_ms: int) -> str:
        """Delete rows that are older than the retention."""
        old = f"CURRENT_TIMESTAMP - interval '{retention_ms} milliseconds'"
        return f"DELETE FROM {table} WHERE {self.quote('written_at_')} < {old} AND {condition}"

    def same(self, left: str, right: str) -> str:
        """Equal, null being equal to null."""
        return f"{left} IS NOT DISTINCT FROM {right}"

    def connect(self, login: Login) -> Connection:
        """A connection that commits only on an explicit commit, in READ COMMITTED. Blocks."""
        hosts = login.address.hosts
        timeout = login.statement_timeout_ms
        options = [
            f"-c statement_timeout={timeout}",
            "-c default_transaction_isolation=read\\ committed",
            "-c timezone=UTC",
            "-c datestyle=ISO,YMD",
            "-c standard_conforming_strings=on",
            "-c client_min_messages=warning",
        ]
        certificates: dict[str, Any] = {
            "sslrootcert": login.ssl_root_cert,
            "sslcert": login.ssl_cert,
            "sslkey": login.ssl_key,
        }
        return psycopg.connect(
            host=",".join(host for host, _ in hosts),
            port=",".join(str(port) for _, port in hosts),
            dbname=login.address.database,
            user=login.user,
            password=login.password,
            sslmode=login.ssl_mode,
            connect_timeout=max(2, login.connect_timeout_ms // 1000),
            application_name="millrace",
            options=" ".join(options),
            target_session_attrs="read-write" if len(hosts) > 1 else "any",
            client_encoding="UTF8",
            prepare_threshold=None,
            # A server that vanished is noticed within a minute, not in hours.
            keepalives_idle=20,
            keepalives_interval=10,
            keepalives_count=4,
            tcp_user_timeout=60_000,
            **{name: value for name, value in certificates.items() if value},
        )

    def stream(self, connection: Connection) -> Any:
        """A cursor of the server."""
        return connection.cursor(name="millrace")

    def classify(self, error: BaseException) -> Fault | None:
        """Return the reaction to an error. Pure."""
        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate
        if state is None:
            # Before the server says a state: no connection, or it broke. A refused login comes here too.
            message = str(error)
            refused = (
                "authentication failed",
                "no pg_hba.conf entry",
                "does not exist",
                "certificate",
                "SSL",
                "no password supplied",
                "could not translate host name",
                "not permitted to log in",
            )
            starting = "starting up" in message or "shutting down" in message or "closed" in message
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                return Fault.FATAL if any(phrase in message for phrase in refused) and not starting else Fault.RETRY
            return Fault.DATA if isinstance(error, psycopg.DataError) else Fault.FATAL
        if state.startswith(_RETRY):
            return Fault.RETRY
        return Fault.DATA if state.startswith(_DATA) else Fault.FATAL

    def describe(self, connection: Connection, schema: str, table: str) -> JdbcTable | None:
        """A table's columns and unique indexes; None where it is missing. Blocks."""
        name = self.quote(table) if not schema else f"{self.quote(schema)}.{self.quote(table)}"
        table_row = connection.execute("SELECT to_regclass(%s)::oid", (name,)).fetchone()
        if table_row is None or table_row[0] is None:
            return None
        rows = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull, atthasdef OR attidentity <> '' "
            "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (table_row[0],),
        ).fetchall()
        unique = connection.execute(
            "SELECT ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE place <= i.indnkeyatts "
            "ORDER BY place) FROM pg_index i WHERE i.indrelid = %s AND i.indisunique AND i.indpred IS NULL "
            "AND i.indexprs IS NULL AND i.indisvalid ORDER BY NOT i.indisprimary, i.indexrelid",
            (table_row[0],),
        ).fetchall()
        return JdbcTable({row[0]: JdbcColumn(*row) for row in rows}, tuple(tuple(row[0]) for row in unique))

    def rights(self, connection: Connection, schema: str, *, create: bool) -> list[str]:
        """Return the rights that the sink needs and the login lacks. Blocks."""
        missing: list[str] = []
        database, user, current, recovering = _fetch_row(
            connection, "SELECT current_database(), current_user, current_schema(), pg_is_in_recovery()"
        )
        if recovering:
            return ["the server is a read-only standby; name the primary in sink.jdbc.url"]
        if not _fetch_row(connection, "SELECT has_database_privilege(current_database(), 'TEMPORARY')")[0]:
            missing.append(
                f"{user} may not make temporary tables; run: "
                f"GRANT TEMPORARY ON DATABASE {self.quote(database)} TO {self.quote(user)}"
            )
        name = schema or current
        if (
            not name
            or not _fetch_row(connection, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", (name,))[0]
        ):
            problem = (
                f"there is no schema {name}; run: CREATE SCHEMA {self.quote(name)}"
                if name
                else "the login has no schema of its own (search_path is empty); set sink.jdbc.schema"
            )
            return [*missing, problem]
        needed_rights = ("USAGE", "CREATE") if create else ("USAGE",)
        for right in needed_rights:
            if not _fetch_row(connection, "SELECT has_schema_privilege(%s, %s)", (name, right))[0]:
                action = "make tables in" if right == "CREATE" else "use"
                missing.append(
                    f"{user} may not {action} schema {name}; run: "
                    f"GRANT {right} ON SCHEMA {self.quote(name)} TO {self.quote(user)}"
                    + (", or set sink.jdbc.auto.create=false and make the tables" if right == "CREATE" else "")
                )
        return missing

    def load(self, connection: Connection, into: str, rows: pa.Table, columns: tuple[str, ...]) -> None:
        """Put rows into a table as they are, by COPY. Blocks."""
        from spark_jobs.sinks.jdbc.rows import copy_buffer

        copy_data = memoryview(copy_buffer(rows, columns))
        statement = f"COPY {into} ({', '.join(map(self.quote, columns))}) FROM STDIN"
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for start in range(0, len(copy_data), _COPY_BYTES):  # the client would copy one huge chunk as a whole
                copy.write(copy_data[start : start + _COPY_BYTES])


def _fetch_row(connection: Connection, statement: str, arguments: Sequence[Any] = ()) -> tuple[Any, ...]:
    row: tuple[Any, ...] = connection.execute(statement, arguments).fetchone()
    return row


def _format_type(wide: JdbcKind) -> str:
    if wide.family != "decimal" or wide.size > 1000:
        raise Fatal(f"no type of PostgreSQL for {wide}")
    return f"numeric({wide.size},{wide.scale})"


POSTGRESQL: Final = PostgreSql()
