"""MariaDB and MySQL: rows by multi-row INSERT, then set-based statements.

Run with MariaDB 11.4 and MySQL 9; MySQL (8.0.17 or later) differs by the fields of the instance only.
LOAD DATA LOCAL INFILE is not used: the server names the file that the client sends, so a forged server could read any file of
a task's machine, and on MySQL it is off by default. See docs/jobs/jdbc.md for what that costs.
"""

# ruff: noqa: S608 - names in the statements are quoted by the dialect, values are parameters or escaped
from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import SSCursor

from connectors.errors import Fatal
from spark_jobs.contract import TIME, UUID
from spark_jobs.sinks.jdbc.dialect.standard import add_primary_key, missing_user
from spark_jobs.sinks.jdbc.model import Fault, JdbcColumn, JdbcTable
from spark_jobs.sinks.jdbc.types import JdbcKind, can_hold, join_kinds, parse_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from spark_jobs.contract import Column
    from spark_jobs.sinks.jdbc.config import JdbcSettings, Login
    from spark_jobs.sinks.jdbc.model import Connection, JdbcNames, JdbcStep, NeededColumn

#: How long the next rows of a stream may not be fetched.
_FETCH_S: Final = 86_400
_TYPES: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "boolean": "tinyint(1)",
    "string": "longtext",
    "varchar": "longtext",
    "char": "longtext",
    "binary": "longblob",
    "date": "date",
    "timestamp": "datetime(6)",
    "timestamp_ntz": "datetime(6)",
    "array": "json",
    "map": "json",
    "struct": "json",
    "variant": "json",
    "void": "longtext",
}
#: Of text that is a UUID, where the server has no type for it.
_UUID_TEXT: Final = "char(36) CHARACTER SET ascii COLLATE ascii_bin"
#: MariaDB has the type uuid since this version.
_UUID_SINCE: Final = (10, 7)
_ASCII: Final = "CHARACTER SET ascii COLLATE ascii_bin"
_SYSTEM: Final = {
    "ums_id_": "bigint",
    "ums_ts_": "datetime(6)",
    "ums_op_": f"char(1) {_ASCII}",
    "ums_uid_": "varchar(255)",
    "ums_active_": "tinyint",
    "kafka_topic_": f"varchar(249) {_ASCII}",
    "kafka_partition_": "int",
    "kafka_offset_": "bigint",
    "written_at_": "timestamp(6) DEFAULT CURRENT_TIMESTAMP(6)",
    "job_": f"varchar(200) {_ASCII}",
    "table_": "varchar(64)",
    "next_offset_": "bigint",
}
_KEY_BYTES: Final = 3072
#: The number of the server's own error for a statement that is larger than max_allowed_packet.
_TOO_LARGE: Final = 1153
#: Error numbers. Source: MariaDB's list of error codes.
_RETRY: Final = frozenset(
    (
        1020,
        1040,
        1053,
        1077,
        1079,
        1152,
        1158,
        1159,
        1160,
        1161,
        1180,
        1184,
        1203,
        1205,
        1213,
        1226,
        1290,
        1317,
        1412,
        1836,
        1927,
        1969,
        2002,
        2003,
        2006,
        2013,
        2014,
        2027,
        2055,
        3024,
        4031,
    )
)
_DATA: Final = frozenset(
    (
        1048,
        1062,
        1138,
        1264,
        1265,
        1292,
        1366,
        1367,
        1406,
        1411,
        1425,
        1451,
        1452,
        1525,
        1690,
        3140,
        3819,
        4025,
        1300,
        1977,
        3988,
    )
)


class _StreamCursor(SSCursor):
    """Leaves rows that are not fetched to the end of the connection; the driver would read them all."""

    _result: Any

    def close(self) -> None:
        if self._result is not None:
            self._result.unbuffered_active = False

    __del__ = close


@dataclass(frozen=True, slots=True)
class MySqlDialect:
    """The dialect of MariaDB and MySQL; see ``model.Dialect``.

    Attributes:
        product: MariaDB or MySQL, which the server must be.
        collation: of made tables: compares by code point and does not ignore spaces at the end, as keys elsewhere do.
        timeout: the statement that limits the time of statements, with places for ``seconds`` and ``whole`` ones. MySQL can
            limit only what a write waits for locks.
        uuid: the type of UUIDs.
    """

    product: str
    collation: str
    timeout: str
    uuid: str = _UUID_TEXT
    port: int = 3306
    placeholder: str = "%s"
    row_lock: str = " FOR UPDATE"
    merges_by_key: bool = False
    max_name: int = 64
    octets: bool = False

    def quote(self, name: str) -> str:
        """An identifier, quoted."""
        return "`" + name.replace("`", "``") + "`"

    def refuses(self, name: str) -> str:
        """Why there can be no column or table of that name. Source: MariaDB's documentation, "Identifier Names"."""
        if not name:
            return "it is empty"
        if name.endswith(" "):
            return "it ends with a space"
        beyond = next((character for character in name if character > "\uffff"), "")
        if beyond:
            return f"it has the character {beyond} (U+{ord(beyond):X}), and names have characters up to U+FFFF only"
        return "it has a NUL character" if "\0" in name else ""

    def complaints(self, chosen: JdbcSettings, config: Mapping[str, Any]) -> list[str]:
        """It needs a login, and takes one host."""
        del config
        messages = missing_user(chosen.login)
        if len(chosen.login.address.hosts) > 1:
            messages.append("sink.jdbc.url: MariaDB and MySQL take one host; name a proxy or one server")
        return messages

    def column_type(self, column: Column, key_length: int) -> str:
        """The SQL type of a source's column. Raises ``Fatal`` if MySQL has no such type."""
        name = column.type.typeName()
        if name == "decimal":
            if column.type.precision > 65 or column.type.scale > 30:  # type: ignore[attr-defined]
                raise Fatal(
                    f"column {column.name}: {column.type.simpleString()} does not fit DECIMAL, which has 65 digits and "
                    "30 after the point; make the table by hand with a column that does (VARCHAR)"
                )
            return f"decimal({column.type.precision},{column.type.scale})"  # type: ignore[attr-defined]
        meant = (column.meaning, name)
        if meant == (UUID, "string"):
            return self.uuid
        if meant == (TIME, "long"):
            return "time(6)"
        kind_of = _TYPES.get(name, "longtext")
        if column.key and kind_of in ("longtext", "longblob", "json"):
            length = min(column.length or key_length, _KEY_BYTES // (1 if kind_of == "longblob" else 4))
            return f"{'varbinary' if kind_of == 'longblob' else 'varchar'}({length})"
        if kind_of == "longtext" and column.length and column.length <= 255:
            return f"varchar({column.length})"
        return kind_of

    def system_type(self, name: str) -> str:
        """The SQL type of a column that the sink adds."""
        return _SYSTEM[name]

    def suited(self, connection: Connection) -> MySqlDialect:
        """An old MariaDB has no type for UUIDs."""
        return replace(self, uuid=_UUID_TEXT) if version_of(connection.get_server_info()) < _UUID_SINCE else self

    def kind(self, text: str) -> JdbcKind:
        """A type by family and size."""
        return parse_kind(text, bounded_text=True)

    def fits(self, needed: str, present: str) -> str | None:
        """How a present column serves; see ``model.Dialect``."""
        present_kind, need = self.kind(present), self.kind(needed)
        if can_hold(present_kind, need):
            return present
        both = join_kinds(present_kind, need)
        return None if both is None else needed if both == need else _format_type(both)

    def widen(self, table: str, column: NeededColumn) -> str:
        """The statement that changes a column's type."""
        null = "NULL" if column.nullable else "NOT NULL"
        return f"ALTER TABLE {table} MODIFY COLUMN {self.quote(column.name)} {column.type} {null}"

    def create(self, table: str, columns: tuple[NeededColumn, ...], key: tuple[str, ...]) -> str:
        """The statement that makes a table where it is missing."""
        lines = []
        for column in columns:
            kind_of, _, default = column.type.partition(" DEFAULT ")
            null = "NULL" if column.nullable else "NOT NULL"
            lines.append(f"{self.quote(column.name)} {kind_of} {null}" + (f" DEFAULT {default}" if default else ""))
        if key:
            lines.append(f"PRIMARY KEY ({', '.join(map(self.quote, key))})")
        return (
            f"CREATE TABLE IF NOT EXISTS {table} (\n  "
            + ",\n  ".join(lines)
            + f"\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={self.collation}"
        )

    def add_key(self, table: str, keys: tuple[str, ...]) -> str:
        """The statement that makes the key of a table that is there."""
        return add_primary_key(self.quote, table, keys)

    def setup(self, names: JdbcNames, columns: tuple[str, ...], system: tuple[str, ...]) -> tuple[str, ...]:
        """Statements that make the staging table."""
        chosen = ", ".join(
            [*(f"t.{self.quote(name)}" for name in columns), *(f"u.{self.quote(name)}" for name in system)]
        )
        tables = f"{names.table} AS t" + (f" JOIN {names.side} AS u ON 1 = 0" if system else "")
        return (f"CREATE TEMPORARY TABLE {names.stage} ENGINE=InnoDB AS SELECT {chosen} FROM {tables} LIMIT 0",)

    def analyze(self, stage: str) -> tuple[JdbcStep, ...]:
        """Nothing: InnoDB counts as it goes."""
        del stage
        return ()

    def merge(self, into: str, source: str, columns: tuple[str, ...], keys: tuple[str, ...], *, newer: bool) -> str:
        """Insert or update; see ``model.Dialect``."""
        quoted = ", ".join(map(self.quote, columns))
        chosen = ", ".join(f"s.{self.quote(name)}" for name in columns)
        insert_sql = f"INSERT INTO {into} ({quoted}) SELECT {chosen} FROM {source} ON DUPLICATE KEY UPDATE "
        others = [self.quote(name) for name in columns if name not in keys]
        if not others:
            key = self.quote(keys[0])
            return f"{insert_sql}{into}.{key} = {into}.{key}"
        # Not VALUES(c), which MySQL has deprecated and MariaDB calls VALUE(c).
        if not newer:
            return insert_sql + ", ".join(f"{into}.{name} = s.{name}" for name in others)
        version = self.quote("ums_id_")
        condition = f"COALESCE({into}.{version} <= s.{version}, TRUE)"
        # Assignments are made from left to right: the one that the conditions look at comes last.
        others = [name for name in others if name != version] + [version]
        return insert_sql + ", ".join(f"{into}.{name} = IF({condition}, s.{name}, {into}.{name})" for name in others)

    def delete(self, table: str, tables: str, condition: str) -> str:
        """Delete rows of a table joined with others."""
        return f"DELETE t FROM {table} AS t, {tables} WHERE {condition}"

    def expire(self, table: str, condition: str, retention_ms: int) -> str:
        """Delete rows that are older than the retention."""
        old = f"CURRENT_TIMESTAMP(6) - INTERVAL {retention_ms * 1000} MICROSECOND"
        return f"DELETE FROM {table} WHERE {self.quote('written_at_')} < {old} AND {condition}"

    def same(self, left: str, right: str) -> str:
        """Equal, null being equal to null."""
        return f"{left} <=> {right}"

    def connect(self, login: Login) -> Connection:
        """A connection that commits only on an explicit commit, in READ COMMITTED. Blocks."""
        ((host, port),) = login.address.hosts
        tls: dict[str, Any] = {"ssl_disabled": True}
        if login.ssl_mode not in ("disable", "prefer"):
            files = {"ca": login.ssl_root_cert, "cert": login.ssl_cert, "key": login.ssl_key}
            tls = {
                "ssl": {
                    **{name: file for name, file in files.items() if file},
                    "verify_mode": "required" if login.ssl_mode.startswith("verify") else "none",
                    "check_hostname": login.ssl_mode == "verify-full",
                }
            }
        connection = pymysql.connect(
            host=host,
            port=port,
            user=login.user,
            password=login.password,
            database=login.address.database,
            charset="utf8mb4",
            autocommit=False,
            connect_timeout=max(1, login.connect_timeout_ms // 1000),
            program_name="millrace",
            # A server that vanished: the longest statement, and some time to say so.
            read_timeout=login.statement_timeout_ms // 1000 + 10 if login.statement_timeout_ms else None,
            write_timeout=60,
            client_flag=CLIENT.FOUND_ROWS,
            **tls,
        )
        with connection.cursor() as cursor:
            # Backslash escapes on and bad values refused, whatever the server's default is.
            cursor.execute(
                "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', "
                "time_zone = '+00:00'"
            )
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            if login.statement_timeout_ms:
                seconds = login.statement_timeout_ms / 1000
                cursor.execute(self.timeout.format(seconds=seconds, whole=max(1, math.ceil(seconds))))
        connection.commit()
        return connection

    def stream(self, connection: Connection) -> Any:
        """A cursor of one result, during which the connection is of no other use."""
        with connection.cursor() as cursor:
            cursor.execute(self.timeout.format(seconds=0, whole=0))
            cursor.execute(f"SET SESSION net_write_timeout = {_FETCH_S}")
        return connection.cursor(_StreamCursor)

    def classify(self, error: BaseException) -> Fault | None:
        """Return the reaction to an error. Pure."""
        if not isinstance(error, pymysql.err.Error):
            return None
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        if number in _DATA:
            return Fault.DATA
        if number in _RETRY or number == 0:  # 0: the connection is closed
            message = str(error)
            return (
                Fault.FATAL
                if number == 2003 and ("Name or service" in message or "CERTIFICATE" in message)
                else Fault.RETRY
            )
        return Fault.DATA if isinstance(error, pymysql.err.DataError) else Fault.FATAL

    def describe(self, connection: Connection, schema: str, table: str) -> JdbcTable | None:
        """A table's columns and unique indexes; None where it is missing. Blocks."""
        with connection.cursor() as cursor:
            where = "table_schema = COALESCE(NULLIF(%s, ''), DATABASE()) AND table_name = %s"
            cursor.execute(
                "SELECT column_name, column_type, is_nullable = 'YES', column_default IS NOT NULL OR extra <> '' "
                f"FROM information_schema.columns WHERE {where} ORDER BY ordinal_position",
                (schema, table),
            )
            columns = {row[0]: JdbcColumn(row[0], row[1], bool(row[2]), bool(row[3])) for row in cursor.fetchall()}
            if not columns:
                return None
            cursor.execute(
                "SELECT index_name, column_name FROM information_schema.statistics "
                f"WHERE {where} AND non_unique = 0 ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index",
                (schema, table),
            )
            unique: dict[str, list[str]] = {}
            for index, name in cursor.fetchall():
                unique.setdefault(index, []).append(name)
        return JdbcTable(columns, tuple(tuple(names) for names in unique.values()))

    def read_column(self, column: JdbcColumn) -> str:
        """A column in a SELECT that reads all digits of its values: of a number of 32 bits the server shows six."""
        name = self.quote(column.name)
        kind = self.kind(column.type)
        return f"{name} + 0e0 AS {name}" if (kind.family, kind.size) == ("float", 4) else name

    def rights(self, connection: Connection, schema: str, *, create: bool) -> list[str]:
        """Return the rights that the sink needs and the login lacks. Blocks."""
        missing: list[str] = []
        product = "MariaDB" if "MariaDB" in connection.get_server_info() else "MySQL"
        if product != self.product:
            return [f"the server is {product}; begin sink.jdbc.url with jdbc:{product.lower()}://"]
        reason = self.refuses(schema) if schema else ""
        if reason:  # the server fails queries with such names (error 1267)
            return [f"there can be no database {schema}: {reason}; choose another sink.jdbc.schema"]
        with connection.cursor() as cursor:
            cursor.execute("SELECT COALESCE(NULLIF(%s, ''), DATABASE()), CURRENT_USER(), @@read_only", (schema,))
            database, user, read_only = cursor.fetchone()
            if read_only and int(read_only):
                return ["the server is read only; name the primary in sink.jdbc.url"]
            cursor.execute("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", (database,))
            if cursor.fetchone() is None:
                return [
                    (
                        f"there is no database {database}, or {user} has no right in it; "
                        f"run: CREATE DATABASE {self.quote(database)}"
                    )
                ]
            account, _, host = user.rpartition("@")
            cursor.execute(
                "SELECT privilege_type FROM information_schema.user_privileges WHERE grantee = %s UNION "
                "SELECT privilege_type FROM information_schema.schema_privileges WHERE grantee = %s AND %s LIKE table_schema",
                (f"'{account}'@'{host}'", f"'{account}'@'{host}'", database),
            )
            granted = {row[0].upper() for row in cursor.fetchall()}
            cursor.execute("SELECT COUNT(*) FROM information_schema.applicable_roles")
            roles = int(cursor.fetchone()[0])
        needed_rights = [
            "SELECT",
            "INSERT",
            "UPDATE",
            "DELETE",
            "CREATE TEMPORARY TABLES",
            *(["CREATE", "ALTER"] if create else []),
        ]
        lacking = [right for right in needed_rights if right not in granted]
        if lacking and not roles:  # those of a role are not listed: the first batch will show
            missing.append(
                f"{user} lacks {', '.join(lacking)} on {database}; run: "
                f"GRANT {', '.join(lacking)} ON {self.quote(database)}.* TO '{account}'@'{host}'"
            )
        return missing

    def load(self, connection: Connection, into: str, rows: pa.Table, columns: tuple[str, ...]) -> None:
        """Put rows into a table as they are, by INSERT statements of a quarter of what the server takes at once. Blocks.

        Raises:
            pymysql.err.DataError: a row is larger than what the server takes, which would break the connection.
        """
        from spark_jobs.sinks.jdbc.rows import literal_rows, split_statements

        head = f"INSERT INTO {into} ({', '.join(map(self.quote, columns))}) VALUES ".encode()
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@max_allowed_packet")
            largest = int(cursor.fetchone()[0])
        limit = min(max(largest // 4, 1 << 16), 4 << 20)
        for part in split_statements(literal_rows(rows, columns), limit):
            if len(head) + len(part) >= largest:  # a byte says that it is a statement
                raise pymysql.err.DataError(
                    _TOO_LARGE,
                    f"a statement with the row has {len(head) + len(part)} bytes, and the server's max_allowed_packet is "
                    f"{largest}",
                )
            connection.query(head + part)


def version_of(version_text: str) -> tuple[int, ...]:
    """A server's version from how it calls itself (``5.5.5-10.11.2-MariaDB-log``). Pure."""
    match = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)", version_text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


MARIADB: Final = MySqlDialect("MariaDB", "utf8mb4_nopad_bin", "SET SESSION max_statement_time = {seconds}", "uuid")
MYSQL: Final = MySqlDialect(
    "MySQL", "utf8mb4_0900_bin", "SET SESSION innodb_lock_wait_timeout = {whole}, lock_wait_timeout = {whole}"
)


def _format_type(wide: JdbcKind) -> str:
    if wide.family != "decimal" or wide.size > 65:
        raise Fatal(f"no type of MariaDB or MySQL for {wide}")
    return f"decimal({wide.size},{wide.scale})"


def key_bytes(types: Sequence[str]) -> int:
    """Bytes of a key with columns of these types, as InnoDB counts them. Pure."""
    total = 0
    for type_text in types:
        kind_of_type = parse_kind(type_text, bounded_text=True)
        total += (
            kind_of_type.size * 4
            if kind_of_type.family == "text"
            else kind_of_type.size
            if kind_of_type.family == "bytes"
            else 8
        )
    return total
