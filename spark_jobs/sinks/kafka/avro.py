"""Rows as Avro in Confluent's wire format: the Connect schema of a table, and its rows by the workers' AvroConverter.

Types are written so that ``source.format=plain`` with ``source.value.encoding=avro`` reads the same columns back.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from connectors.formats.cql_schema import CQL_TYPE
from connectors.formats.ums import datetime_text
from connectors.schema import INT64, STRING, Schema, Type, array, date, decimal, map_of, struct
from spark_jobs import contract
from spark_jobs.namespaces import find_identity
from worker.converters.avro import AVRO_OPTIONS
from worker.converters.base import create_converter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import DataType

    from connectors.options import Config
    from spark_jobs.contract import Column, TableSchema
    from worker.converters.base import Encode

#: Options of the converter, under the names that they have for a source.
REGISTRY: Final = "sink.kafka.schema.registry."
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")
_SIMPLE: Final = {
    "byte": Type.INT8,
    "short": Type.INT16,
    "integer": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "binary": Type.BYTES,
}
_TIME: Final = "io.debezium.time."
#: Names of columns whose values are more than their Spark type says, by that meaning and the physical type.
_NAMED: Final = {
    (contract.UUID, "string"): (STRING, "io.debezium.data.Uuid"),
    (contract.ZONED_TIME, "string"): (STRING, _TIME + "ZonedTime"),
    (contract.TIME, "long"): (INT64, _TIME + "NanoTime"),
    (contract.LOCAL_TIMESTAMP, "timestamp"): (INT64, _TIME + "MicroTimestamp"),
}
#: An instant as text: Connect's own Timestamp has milliseconds only.
_INSTANT: Final = _TIME + "ZonedTimestamp"
_SYSTEM: Final = {
    "ums_id_": INT64,
    "ums_ts_": Schema(Type.STRING, name=_INSTANT, version=1),
    "ums_op_": STRING,
    "ums_uid_": Schema(Type.STRING, optional=True),
}


def registry_options(config: Config) -> dict[str, str]:
    """The converter's options in ``sink.kafka.schema.registry.*``. Pure."""
    options = set(AVRO_OPTIONS.keys) | {alias for key in AVRO_OPTIONS.keys.values() for alias in key.aliases}
    return {
        f"schema.registry.{name}" if f"schema.registry.{name}" in options else name: value
        for name, value in config.prefixed(REGISTRY).items()
    }


def column_schema(column: Column) -> Schema:
    """The Connect schema of a column. Pure."""
    optional, kind = not column.key, column.type.typeName()
    named = _NAMED.get((column.meaning, kind))
    if named is not None:
        return Schema(named[0].type, optional=optional, name=named[1], version=1)
    if column.meaning == contract.NUMBER and kind == "string":
        return Schema(Type.STRING, optional=optional, parameters=((CQL_TYPE, "decimal"),))
    if kind == "timestamp":
        return Schema(Type.STRING, optional=optional, name=_INSTANT, version=1)
    return _schema_of(column.type, column.name, optional=optional)


def _schema_of(kind: DataType, name: str, *, optional: bool) -> Schema:
    data: Any = kind
    match kind.typeName():
        case "decimal":
            return decimal(data.scale, optional=optional)
        case "date":
            return date(optional=optional)
        case "timestamp" | "timestamp_ntz":
            return Schema(Type.INT64, optional=optional, name=_TIME + "MicroTimestamp", version=1)
        case "array":
            return array(_schema_of(data.elementType, name, optional=True), optional=optional)
        case "map":
            keys, values = (
                _schema_of(part, name, optional=part is data.valueType) for part in (data.keyType, data.valueType)
            )
            return map_of(keys, values, optional=optional)
        case "struct":
            members = {
                member.name: _schema_of(member.dataType, f"{name}_{member.name}", optional=True)
                for member in data.fields
            }
            return struct(_NOT_IN_NAMES.sub("_", name), members, optional=optional)
        case other:
            return Schema(_SIMPLE.get(other, Type.STRING), optional=optional)


def in_arrow(kind: DataType) -> bool:
    """Whether columns of this Spark type come to tasks as they are; others are written as text. Pure."""
    return kind.typeName() in {
        *_SIMPLE,
        "decimal",
        "date",
        "timestamp",
        "timestamp_ntz",
        "array",
        "map",
        "struct",
        "string",
    }


@dataclass(frozen=True, slots=True)
class AvroRowFormat:
    """How rows of one table are written; picklable.

    Attributes:
        value: the schema of values: the table's columns, then the system's.
        key: the schema of keys; None where keys are not Avro.
        key_columns: the numbers of the columns in it.
        options: of the converter. They hold credentials.
    """

    value: Schema
    key: Schema | None
    key_columns: tuple[int, ...]
    options: tuple[tuple[str, str], ...] = field(repr=False)

    def register(self, topic: str) -> None:
        """Give the registry the schemas for a topic. Blocks.

        Raises:
            Skippable: it refuses one.
            connectors.errors.Retriable: it is unavailable.
            connectors.errors.Fatal: it refuses this client.
        """
        for schema, is_key in ((self.value, False), (self.key, True)):
            if schema is not None:
                _get_encoder(self.options, topic, schema, is_key=is_key)

    def encode(
        self, batch: pa.RecordBatch, topics: Sequence[str]
    ) -> tuple[list[bytes | None] | None, list[bytes | None]]:
        """Keys (None where they are not Avro) and values of rows. Blocks where the registry has to be asked.

        Args:
            batch: the table's columns as c0, c1 ..., and the system's.
            topics: the topic of each row.

        Raises:
            Skippable: a value does not fit its schema, which can't be.
        """
        names = [member.name for member in self.value.fields]
        width = len(names) - len(_SYSTEM)
        columns = [
            values_of(batch.column(f"c{number}" if number < width else name), self.value.fields[number].schema)
            for number, name in enumerate(names)
        ]
        write_value = {topic: _get_encoder(self.options, topic, self.value, is_key=False) for topic in set(topics)}
        values = [
            write_value[topic](dict(zip(names, row, strict=True)))
            for topic, row in zip(topics, zip(*columns, strict=True), strict=True)
        ]
        if self.key is None:
            return None, values
        write_key = {topic: _get_encoder(self.options, topic, self.key, is_key=True) for topic in set(topics)}
        key_names = [member.name for member in self.key.fields]
        rows = zip(*(columns[number] for number in self.key_columns), strict=True)
        keys = [
            write_key[topic](dict(zip(key_names, row, strict=True))) for topic, row in zip(topics, rows, strict=True)
        ]
        return keys, values


def avro_rows(schema: TableSchema, key_names: Sequence[str], options: Mapping[str, str]) -> AvroRowFormat:
    """How rows of a table are written. Pure.

    Args:
        schema: the table.
        key_names: the columns of Avro keys; empty: keys are not Avro.
        options: of the converter.
    """
    record = ".".join(_NOT_IN_NAMES.sub("_", part) or "_" for part in find_identity(schema.namespace).split("."))
    record = ".".join(f"_{part}" if part[0].isdigit() else part for part in record.split("."))
    schemas = {column.name: column_schema(column) for column in schema.columns}
    numbers = tuple([*schemas].index(name) for name in key_names)
    key = struct(f"{record}.Key", {name: schemas[name] for name in key_names}) if key_names else None
    return AvroRowFormat(
        struct(f"{record}.Value", {**schemas, **_SYSTEM}), key, numbers, tuple(sorted(options.items()))
    )


def values_of(column: pa.Array, schema: Schema) -> list[Any]:
    """A column's values as a converter takes them. Pure."""
    import pyarrow as pa

    bare = _strip_type(column.type)
    values: list[Any] = (column if bare == column.type else column.cast(bare)).to_pylist()
    if schema.name == _INSTANT:
        return [None if value is None else f"{datetime_text(value).replace(' ', 'T')}Z" for value in values]
    change = _map_converter(column.type) if pa.types.is_nested(column.type) else None
    return values if change is None else [None if value is None else change(value) for value in values]


def _strip_type(kind: pa.DataType) -> pa.DataType:
    """The type with numbers for times: Python's own have no year beyond 9999."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_strip_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_strip_type(kind.key_type), _strip_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(member.name, _strip_type(member.type)) for member in kind])
    return kind


def _map_converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """The function that makes dictionaries of Arrow's maps; None where there are no maps."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        inner = _map_converter(kind.value_type)
        return None if inner is None else lambda value: [None if item is None else inner(item) for item in value]
    if pa.types.is_map(kind):
        key, item = _map_converter(kind.key_type) or _keep_value, _map_converter(kind.item_type) or _keep_value
        return lambda value: {key(name): None if part is None else item(part) for name, part in value}
    if pa.types.is_struct(kind):
        changes = {member.name: change for member in kind if (change := _map_converter(member.type)) is not None}
        if not changes:
            return None
        return lambda value: {
            name: changes[name](part) if name in changes and part is not None else part for name, part in value.items()
        }
    return None


def _keep_value(value: Any) -> Any:
    return value


@lru_cache(maxsize=256)
def _get_encoder(options: tuple[tuple[str, str], ...], topic: str, schema: Schema, *, is_key: bool) -> Encode:
    """The encoder of a schema for a topic, kept from batch to batch. Blocks; raises as ``AvroRowFormat.register``."""

    async def prepare() -> Encode:
        converter = create_converter("AvroConverter", dict(options), is_key, property_name="sink.kafka.format")
        try:
            await converter.prepare(topic, schema)
            return converter.encoder(topic, schema)
        finally:
            await converter.close()

    return asyncio.run(prepare())
