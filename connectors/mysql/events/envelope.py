"""The schemas of Debezium's events, and the ``source`` block."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors import schema as connect
from connectors.mysql.events.names import schema_name
from connectors.mysql.schema.topics import MySqlTopics
from connectors.mysql.stream import logical
from connectors.schema import Field, Schema, Type, struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.mysql.events.contract import MySqlEventSettings
    from connectors.mysql.model import RowSource, TableName
    from connectors.mysql.schema.columns import ColumnLayout, FieldPlan

#: Read once: it is in a file.
VERSION: Final = version_of("millrace")

SNAPSHOT: Final = Schema(
    Type.STRING,
    optional=True,
    default="false",
    name="io.debezium.data.Enum",
    version=1,
    parameters=(("allowed", "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"),),
)
TRANSACTION: Final = struct(
    "event.block",
    {"id": connect.STRING, "total_order": connect.INT64, "data_collection_order": connect.INT64},
    optional=True,
    version=1,
)


def _source_schema(connector: str) -> Schema:
    return struct(
        f"io.debezium.connector.{connector}.Source",
        {
            "version": connect.STRING,
            "connector": connect.STRING,
            "name": connect.STRING,
            "ts_ms": connect.INT64,
            "snapshot": SNAPSHOT,
            "db": connect.STRING,
            "sequence": connect.OPTIONAL_STRING,
            "ts_us": connect.OPTIONAL_INT64,
            "ts_ns": connect.OPTIONAL_INT64,
            "table": connect.OPTIONAL_STRING,
            "server_id": connect.INT64,
            "gtid": connect.OPTIONAL_STRING,
            "file": connect.STRING,
            "pos": connect.INT64,
            "row": connect.INT32,
            "thread": connect.OPTIONAL_INT64,
            "query": connect.OPTIONAL_STRING,
        },
        version=1,
    )


#: The ``source`` block's schema by connector.
SOURCES: Final = {"mysql": _source_schema("mysql"), "mariadb": _source_schema("mariadb")}


#: Members of ``source`` that partitions of a logical table have in addition.
_PART: Final = {
    "logical_db": connect.OPTIONAL_STRING,
    "logical_table": connect.OPTIONAL_STRING,
    "database_partition": connect.OPTIONAL_INT64,
    "table_partition": connect.OPTIONAL_INT64,
}


class MySqlEventSchemas(NamedTuple):
    """The schemas of one table's events; ``key`` is None for a table without key.

    ``part``: the members that ``source`` has in addition for a partition of a logical table; {} for other tables.

    ``partial`` is the envelope for rows of which the server has not logged all columns: all but the key's may be null there,
    so that a column that is not known never gets a value that it may not have.
    """

    topic: str
    key: Schema | None
    envelope: Schema
    partial: Schema
    key_extra: tuple[str, str] | None
    part: dict[str, Any]


def schemas_of(layout: ColumnLayout, settings: MySqlEventSettings) -> MySqlEventSchemas:
    """The schemas of a table's events.

    Raises:
        ConfigInvalid: see ``MySqlTopics`` and ``LogicalTables.of``.
    """
    topics = MySqlTopics(settings.topics)
    part = logical.parse_mapping(settings.logical).of(layout.table.name)
    topic = topics.table(part.name)
    # Without columns of its own a key would be the same for all rows of the table.
    extra = topics.key_field(layout.table.name, shared=part.mapped and bool(layout.key))
    members = {field.name: field.schema for field in layout.key}
    if extra is not None:
        members[extra[0]] = connect.STRING
    key = struct(schema_name(f"{topic}.Key", settings.schema_names), members) if members else None
    value = _value_schema(layout.values, schema_name(f"{topic}.Value", settings.schema_names))
    kept = {field.name for field in layout.key}
    value_fields = [
        field if field.name in kept or field.schema.optional else field._replace(schema=_make_optional(field.schema))
        for field in layout.values
    ]
    title = schema_name(f"{topic}.Envelope", settings.schema_names)
    source = SOURCES[settings.connector]
    if part.mapped:
        source = replace(source, fields=source.fields + tuple(Field(*part_field) for part_field in _PART.items()))
    return MySqlEventSchemas(
        topic,
        key,
        _envelope_schema(title, value, source),
        _envelope_schema(title, _value_schema(value_fields, value.name), source),
        extra,
        part.members,
    )


def _make_optional(schema: Schema) -> Schema:
    # A default would stand for the null.
    return replace(schema, optional=True, default=None)


def _value_schema(fields: Sequence[FieldPlan], name: str | None) -> Schema:
    return Schema(
        Type.STRUCT, optional=True, name=name, fields=tuple(Field(field.name, field.schema) for field in fields)
    )


def _envelope_schema(name: str, value: Schema, source: Schema) -> Schema:
    return struct(
        name,
        {
            "before": value,
            "after": value,
            "source": source,
            "transaction": TRANSACTION,
            "op": connect.STRING,
            "ts_ms": connect.OPTIONAL_INT64,
            "ts_us": connect.OPTIONAL_INT64,
            "ts_ns": connect.OPTIONAL_INT64,
        },
        version=2,
    )


def source_block(
    settings: MySqlEventSettings, source: RowSource, name: TableName | None, snapshot: str = "false", database: str = ""
) -> dict[str, Any]:
    """The ``source`` block of an event's first row: for further rows copy it and set ``row``."""
    return {
        "version": VERSION,
        "connector": settings.connector,
        "name": settings.topics.prefix,
        "ts_ms": source.ts_ms,
        "snapshot": snapshot,
        "db": database if name is None else name.database,
        "sequence": None,
        "ts_us": source.ts_us,
        "ts_ns": source.ts_us * 1000,
        "table": None if name is None else name.table,
        "server_id": source.server_id,
        "gtid": source.gtid,
        "file": source.file,
        "pos": source.pos,
        "row": 0,
        "thread": source.thread,
        "query": source.query,
    }
