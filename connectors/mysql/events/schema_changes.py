"""``include.schema.changes``: a record for each statement that changes structures, as Debezium writes it for its users."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from connectors import schema as connect
from connectors.api import Header, Position, SourceRecord
from connectors.mysql.events.envelope import SOURCES, source_block
from connectors.mysql.events.names import schema_name
from connectors.mysql.rows.charsets import charset_of
from connectors.mysql.schema import types
from connectors.mysql.schema.topics import MySqlTopics
from connectors.schema import Schema, array, struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.events.contract import MySqlEventSettings
    from connectors.mysql.model import MySqlColumn, MySqlTable, RowSource, TableName

#: Numbers of ``java.sql.Types`` by the first word of a declared type; others have ``OTHER``.
_JDBC: Final = {
    "TINYINT": 5,
    "SMALLINT": 5,
    "MEDIUMINT": 4,
    "INT": 4,
    "INTEGER": 4,
    "BIGINT": -5,
    "REAL": 7,
    "DOUBLE": 8,
    "FLOAT": 6,
    "DECIMAL": 3,
    "NUMERIC": 2,
    "BIT": -7,
    "TIME": 92,
    "TIMESTAMP": 2014,
    "DATETIME": 93,
    "BINARY": -2,
    "VARBINARY": -3,
    "BLOB": 2004,
    "TINYBLOB": 2004,
    "MEDIUMBLOB": 2004,
    "LONGBLOB": 2004,
    "YEAR": 4,
    "DATE": 91,
    "ENUM": 1,
    "SET": 1,
    "CHAR": 1,
    "VARCHAR": 12,
    "TINYTEXT": 12,
    "TEXT": 12,
    "MEDIUMTEXT": 12,
    "LONGTEXT": 12,
}
_OTHER: Final = 1111
_GENERATED: Final = re.compile(r"generated|virtual|persistent|auto_increment", re.IGNORECASE)


class TableChange(NamedTuple):
    """A statement's change of one table."""

    type: Literal["CREATE", "ALTER", "DROP"]
    name: TableName
    table: MySqlTable | None = None


class SchemaChanges:
    """Makes the records of one task. ``topic`` is where they go."""

    def __init__(
        self,
        settings: MySqlEventSettings,
        partition: Position,
        headers: tuple[Header, ...] = (),
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Make the schemas."""
        self.topic = MySqlTopics(settings.topics).schema_changes
        self._settings = settings
        self._partition = partition
        self._headers = headers
        self._now_ns = now_ns
        schema_prefix = f"io.debezium.connector.{settings.connector}"
        common = "io.debezium.connector.schema"

        def named(name: str) -> str:
            return schema_name(name, settings.schema_names)

        column = struct(
            named(f"{common}.Column"),
            {
                "name": connect.STRING,
                "jdbcType": connect.INT32,
                "nativeType": connect.OPTIONAL_INT32,
                "typeName": connect.STRING,
                "typeExpression": connect.OPTIONAL_STRING,
                "charsetName": connect.OPTIONAL_STRING,
                "length": connect.OPTIONAL_INT32,
                "scale": connect.OPTIONAL_INT32,
                "position": connect.INT32,
                "optional": connect.OPTIONAL_BOOLEAN,
                "autoIncremented": connect.OPTIONAL_BOOLEAN,
                "generated": connect.OPTIONAL_BOOLEAN,
                "comment": connect.OPTIONAL_STRING,
                "defaultValueExpression": connect.OPTIONAL_STRING,
                "enumValues": array(connect.STRING, optional=True),
            },
            version=1,
        )
        table = struct(
            named(f"{common}.Table"),
            {
                "defaultCharsetName": connect.OPTIONAL_STRING,
                "primaryKeyColumnNames": array(connect.STRING, optional=True),
                "columns": array(column),
                "comment": connect.OPTIONAL_STRING,
            },
            optional=True,
            version=1,
        )
        change = struct(
            named(f"{common}.Change"), {"type": connect.STRING, "id": connect.STRING, "table": table}, version=1
        )
        self._key_schema = struct(
            named(f"{schema_prefix}.SchemaChangeKey"), {"databaseName": connect.STRING}, version=1
        )
        self._value_schema: Schema = struct(
            named(f"{schema_prefix}.SchemaChangeValue"),
            {
                "source": SOURCES[settings.connector],
                "ts_ms": connect.INT64,
                "databaseName": connect.OPTIONAL_STRING,
                "schemaName": connect.OPTIONAL_STRING,
                "ddl": connect.OPTIONAL_STRING,
                "tableChanges": array(change),
            },
            version=1,
        )

    def record(
        self,
        source: RowSource,
        database: str,
        statement: str,
        changes: Sequence[TableChange],
        offset: Position,
        *,
        snapshot: str = "false",
        table: str | None = None,
    ) -> SourceRecord:
        """The record of one statement.

        Args:
            source: the position of the statement.
            database: the one it is about, or in which it ran.
            statement: its text.
            changes: the tables it changed, as far as known; a table's structure is what it is now.
            offset: after the statement.
            snapshot: ``source.snapshot``.
            table: ``source.table`` where it is not what ``changes`` names: Debezium has "" for CREATE INDEX.
        """
        block = source_block(self._settings, source, None, snapshot, database)
        block["table"] = ",".join(change.name.table for change in changes) or table
        value = {
            "source": block,
            "ts_ms": self._now_ns() // 1_000_000,
            "databaseName": database,
            "schemaName": None,
            "ddl": statement,
            "tableChanges": [_change_value(change, comments=self._settings.comments) for change in changes],
        }
        return SourceRecord(
            self._partition,
            offset,
            self.topic,
            value,
            self._value_schema,
            {"databaseName": database},
            self._key_schema,
            0,
            self._headers,
        )


def _change_value(change: TableChange, *, comments: bool) -> dict[str, Any]:
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in change.name)
    return {
        "type": change.type,
        "id": quoted,
        "table": None if change.table is None else _table_value(change.table, comments=comments),
    }


def _table_value(table: MySqlTable, *, comments: bool) -> dict[str, Any]:
    return {
        "defaultCharsetName": None,
        "primaryKeyColumnNames": list(table.key),
        "columns": [
            _column_value(column, position, comments=comments) for position, column in enumerate(table.columns, 1)
        ],
        "comment": None,
    }


def _column_value(column: MySqlColumn, position: int, *, comments: bool) -> dict[str, Any]:
    declared = types.declared(column)
    has_charset = (
        types.kind_of(column) in {types.ColumnKind.TEXT, types.ColumnKind.ENUM, types.ColumnKind.SET}
        and column.collation is not None
    )
    return {
        "name": column.name,
        "jdbcType": _JDBC.get(declared.name.partition(" ")[0], _OTHER),
        "nativeType": None,
        "typeName": declared.name,
        "typeExpression": declared.name,
        "charsetName": charset_of(column.collation).name if has_charset and column.collation is not None else None,
        "length": declared.length if declared.length >= 0 else None,
        "scale": declared.scale if declared.scale >= 0 else None,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": "auto_increment" in column.extra.lower(),
        "generated": _GENERATED.search(column.extra) is not None,
        "comment": column.comment if comments and column.comment else None,
        "defaultValueExpression": _default_value(column),
        "enumValues": ["'" + member.replace("'", "''") + "'" for member in column.members] or None,
    }


def _default_value(column: MySqlColumn) -> str | None:
    """The declared default as a value: MariaDB's catalog writes it as an expression, with quotes, or NULL for none."""
    expression = column.default
    if expression is None or (column.nullable and expression.upper() == "NULL"):
        return None
    return (
        expression[1:-1].replace("''", "'")
        if len(expression) > 1 and expression[0] == expression[-1] == "'"
        else expression
    )
