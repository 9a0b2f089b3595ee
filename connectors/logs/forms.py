"""The forms in which rows go to Kafka: plain rows, Debezium's change events, UMS messages. Pure functions."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.formats import ums
from connectors.formats.masks.mask_functions import value_text
from connectors.schema import DECIMAL, INT64, OPTIONAL_INT64, OPTIONAL_STRING, STRING, TIMESTAMP, Schema, Type, struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.logs.rules.records import LineOrigin, Record

#: ``source.connector`` of change events, and the data store of UMS namespaces.
CONNECTOR: Final = "logs"
_VERSION: Final = version("millrace")
_SOURCE: Final = struct(
    "io.millrace.connector.logs.Source",
    {
        "version": STRING,
        "connector": STRING,
        "name": STRING,
        "ts_ms": INT64,
        "snapshot": OPTIONAL_STRING,
        "db": STRING,
        "table": STRING,
        "host": STRING,
        "file": STRING,
        "position": INT64,
        "ums_id": INT64,
    },
)
_UMS_TYPES: Final = {
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
}


class LogRowForm(NamedTuple):
    """How the rows of one table become records.

    Attributes:
        topic: where they go.
        key_schema: of keys.
        value_schema: of values.
        make: row, identity, order number and origin -> key and value. The identity is that of the row, as text; the order
            number is larger for later lines of a file or partition.
        make_delete: the same for the record that deletes a row; a value of None is a tombstone.
    """

    topic: str
    key_schema: Schema
    value_schema: Schema
    make: Callable[[Record, str, int, LineOrigin], tuple[Any, Any]]
    make_delete: Callable[[Record, str, int, LineOrigin], tuple[Any, Any]]


def make_form(output: str, prefix: str, table: str, rows: Schema, id_column: str) -> LogRowForm:
    """The form of one table.

    Args:
        output: ``plain``, ``debezium`` or ``ums``.
        prefix: of topics, and the name of the source.
        table: the table's name.
        rows: the schema that its rules make.
        id_column: the column that identifies rows.
    """
    topic = f"{prefix}.{table}"
    columns = {**{field.name: field.schema for field in rows.fields}, id_column: STRING}
    if output == "ums":
        return _make_ums(topic, ums_namespace(prefix, table, rows), columns)
    key_schema = struct(f"{topic}.Key", {id_column: STRING})
    value = struct(f"{topic}.Value", columns, version=rows.version, optional=output == "debezium")

    def make_tombstone(_row: Record, identity: str, _number: int, _origin: LineOrigin) -> tuple[Any, Any]:
        return {id_column: identity}, None

    if output == "plain":
        return LogRowForm(
            topic,
            key_schema,
            value,
            lambda row, identity, _number, _origin: ({id_column: identity}, row),
            make_tombstone,
        )
    envelope = struct(
        f"{topic}.Envelope",
        {"before": value, "after": value, "source": _SOURCE, "op": STRING, "ts_ms": OPTIONAL_INT64},
        version=rows.version,
    )

    def make_event(row: Record, identity: str, number: int, origin: LineOrigin) -> tuple[Any, Any]:
        source = {
            "version": _VERSION,
            "connector": CONNECTOR,
            "name": prefix,
            "ts_ms": origin.timestamp,
            "snapshot": "false",
            "db": prefix,
            "table": table,
            "host": origin.host,
            "file": origin.file,
            "position": origin.position,
            "ums_id": number,
        }
        return {id_column: identity}, {
            "before": None,
            "after": row,
            "source": source,
            "op": "c",
            "ts_ms": origin.timestamp,
        }

    return LogRowForm(topic, key_schema, envelope, make_event, make_tombstone)


def ums_namespace(prefix: str, table: str, rows: Schema) -> ums.Namespace:
    """The UMS namespace of a table with this schema."""
    return ums.Namespace(CONNECTOR, prefix, prefix, table, str(rows.version))


def _make_ums(topic: str, namespace: ums.Namespace, columns: dict[str, Schema]) -> LogRowForm:
    name = namespace.text
    fields = [
        *ums.SYSTEM_FIELDS,
        *(ums.make_field(column, _ums_type(schema), nullable=schema.optional) for column, schema in columns.items()),
    ]
    writers = [(column, _ums_writer(schema)) for column, schema in columns.items()]
    key = ums.kafka_key(ums.INCREMENT, name)

    def make_maker(operation: str) -> Callable[[Record, str, int, LineOrigin], tuple[Any, Any]]:
        def make_message(row: Record, identity: str, number: int, origin: LineOrigin) -> tuple[Any, Any]:
            values = [None if row[column] is None else write(row[column]) for column, write in writers]
            system = [str(number), ums.datetime_text(origin.timestamp * 1000), operation, identity]
            return key, ums.make_message(ums.INCREMENT, name, fields, [[*system, *values]])

        return make_message

    return LogRowForm(topic, STRING, ums.MESSAGE, make_maker(ums.INSERT), make_maker(ums.DELETE))


def _ums_type(schema: Schema) -> str:
    if schema.name == DECIMAL:
        return "decimal"
    if schema.name == TIMESTAMP:
        return "datetime"
    return _UMS_TYPES.get(schema.type, "string")


def _ums_writer(schema: Schema) -> Callable[[Any], str]:
    if schema.name == TIMESTAMP:
        return lambda value: ums.datetime_text(value * 1000)
    return value_text
