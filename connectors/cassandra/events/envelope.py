"""The schemas of Debezium's Cassandra events: key, envelope, ``source`` block, cells."""

from __future__ import annotations

import re
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors import schema as connect
from connectors.cassandra.events.debezium_types import debezium_type, map_has_entries
from connectors.formats.names import schema_part
from connectors.schema import Schema, Type, array, struct

if TYPE_CHECKING:
    from connectors.cassandra.events.contract import CassandraEventSettings
    from connectors.cql.debezium_names import ValueForm as DebeziumType
    from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition

#: Read once: it is in a file.
VERSION: Final = version_of("millrace")
RANGE_START: Final = "_range_start"
RANGE_END: Final = "_range_end"

_SNAPSHOT: Final = Schema(
    Type.STRING,
    optional=True,
    default="false",
    name="io.debezium.data.Enum",
    version=1,
    parameters=(("allowed", "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"),),
)
_SOURCE: Final = struct(
    "source",
    {
        "version": connect.STRING,
        "connector": connect.STRING,
        "name": connect.STRING,
        "ts_ms": connect.INT64,
        "snapshot": _SNAPSHOT,
        "db": connect.STRING,
        "sequence": connect.OPTIONAL_STRING,
        "ts_us": connect.OPTIONAL_INT64,
        "ts_ns": connect.OPTIONAL_INT64,
        "cluster": connect.STRING,
        "file": connect.STRING,
        "pos": connect.INT32,
        "keyspace": connect.STRING,
        "table": connect.STRING,
    },
    version=1,
)
_BOUND_VALUES: Final = Schema(
    Type.ARRAY,
    name="clustering_values",
    version=1,
    value_schema=struct(
        "clustering_value", {"name": connect.STRING, "value": connect.STRING, "type": connect.STRING}, version=1
    ),
)
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_.]")


class CassandraSchemas(NamedTuple):
    """The schemas of one table's events.

    Attributes:
        key: of the record's key.
        value: the envelope.
        types: how the values of each column are written, by name.
    """

    key: Schema
    value: Schema
    types: dict[str, DebeziumType]


def schemas_of(table: CqlTableDefinition, settings: CassandraEventSettings) -> CassandraSchemas:
    """The schemas of a table's events.

    Raises:
        Fatal: a column's type has no form.
    """
    base = _NOT_IN_NAME.sub(
        "_", f"io.debezium.connector.cassandra.{settings.topic_prefix}.{table.keyspace}.{table.table}"
    )
    types = {
        column.name: debezium_type(column.type, f"{base}.{schema_part(column.name)}", settings)
        for column in table.columns
    }
    key = struct(f"{base}.Key", {column.name: types[column.name].schema for column in (*table.key, *table.clustering)})
    row = {
        column.name: _cell_schema(column, types[column.name], f"{base}.{schema_part(column.name)}", settings)
        for column in (*table.key, *table.clustering, *table.regular, *table.static)
    }
    row |= {
        name: struct(name, {"method": connect.STRING, "values": _BOUND_VALUES}, optional=True, version=1)
        for name in (RANGE_START, RANGE_END)
    }
    value = struct(
        f"{base}.Envelope",
        {"ts_ms": connect.INT64, "op": connect.STRING, "source": _SOURCE, "after": struct("after", row, version=1)},
    )
    return CassandraSchemas(key, value, types)


def _cell_schema(column: CqlColumn, kind: DebeziumType, base: str, settings: CassandraEventSettings) -> Schema:
    members = {"value": kind.schema, "deletion_ts": connect.OPTIONAL_INT64, "set": connect.BOOLEAN}
    if settings.extended and column.type.is_multicell:
        members |= {
            "mode": connect.OPTIONAL_STRING,
            "removed": array(_name_schema(column, kind, settings), optional=True),
        }
    # Debezium calls all of them just cell_value, which Avro can't tell apart.
    return struct(f"{base}.cell_value", members, optional=True, version=1)


def _name_schema(column: CqlColumn, kind: DebeziumType, settings: CassandraEventSettings) -> Schema:
    """Of the names of elements: what a set has, the keys of a map, the time uuids of a list, the fields of a UDT."""
    schema = kind.schema
    if column.type.name == "set" and schema.value_schema is not None:
        return schema.value_schema
    if column.type.name == "map":
        if not map_has_entries(column.type, settings):
            return schema.key_schema or connect.OPTIONAL_STRING
        entry = schema.value_schema
        key = entry.field("key") if entry is not None else None
        return key.schema if key is not None else connect.OPTIONAL_STRING
    return connect.OPTIONAL_STRING
