"""Avro in the JVM: column expressions that decode Confluent's wire format with ``from_avro``, one schema id at a time.

``from_avro`` takes the writer's schema, so each id has its own expression and a record meets only that of its id. Logical types
are taken off the schema before and put on by expressions, since Spark's own handling of them rounds and overflows quietly;
decimals are the exception, which only Spark's reader can make.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.avro.functions import from_avro

from connectors.errors import ConfigInvalid, Skippable
from connectors.schema import Schema, Type
from spark_jobs.json_options import WHOLE
from spark_jobs.sources.avro.decimals import variable_decimal
from spark_jobs.sources.types import MAX_PRECISION, Form, form_of, spark_type, suit_column
from spark_jobs.spark.map_keys import with_text_keys
from worker.converters.avro import AVRO_OPTIONS
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.registry.client import SchemaRegistryClient
from worker.converters.registry.options import registry_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Column

    from connectors.options import Config

#: Bytes before Avro's own: a zero byte and the schema's id.
HEAD_SIZE: Final = 5
_KEPT_AS: Final = ("default", "symbols", "name", "namespace", "aliases")
#: Logical types of Avro that Connect has no name for, as Debezium names them.
_NAMES: Final = {
    ("long", "timestamp-micros"): "io.debezium.time.MicroTimestamp",
    ("long", "local-timestamp-micros"): "io.debezium.time.MicroTimestamp",
    ("long", "local-timestamp-millis"): "io.debezium.time.Timestamp",
    ("long", "timestamp-nanos"): "io.debezium.time.NanoTimestamp",
    ("long", "time-micros"): "io.debezium.time.MicroTime",
    ("string", "uuid"): "io.debezium.data.Uuid",
}


def converter_options(config: Config) -> dict[str, str]:
    """The options of the Avro converter that a job gives with ``source.schema.registry.``.

    Raises:
        ConfigInvalid: the registry is missing.
    """
    known_names = set(AVRO_OPTIONS.keys) | {alias for key in AVRO_OPTIONS.keys.values() for alias in key.aliases}
    options = {
        f"schema.registry.{name}" if f"schema.registry.{name}" in known_names else name: value
        for name, value in config.prefixed("source.schema.registry.").items()
    }
    if not options.get("schema.registry.url"):
        raise ConfigInvalid(
            "source.schema.registry.url is missing: values or keys in Avro name their schemas by ids of a registry."
        )
    return options


class RegistrySchemas:
    """Asks the schema registry for schemas by id, on the driver; blocks. Answers are kept by the caller."""

    def __init__(self, config: Config) -> None:
        self._settings = registry_settings(AVRO_OPTIONS.parse(converter_options(config)))

    def text(self, schema_id: int) -> str:
        """The schema with this id, in Avro's JSON form.

        Raises:
            Skippable: the schema does not exist, or it is not Avro.
            Retriable: the registry is unavailable.
            Fatal: it refuses this client.
        """

        async def ask() -> str:
            client = SchemaRegistryClient(self._settings)
            try:
                return await client.text(schema_id)
            finally:
                await client.close()

        return asyncio.run(ask())


def connect_schema(avro_text: str) -> Schema | None:
    """The Connect schema of an Avro schema; logical types that only Avro knows get Debezium's names.

    Raises:
        Skippable: it is not a schema, or has no counterpart.
    """
    return avro_reader(
        json.dumps(_name_types(json.loads(avro_text))), AvroSettings(metadata=True, enhanced=False, scrub=False)
    ).schema


def _name_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_name_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: part if key in _KEPT_AS or key.startswith("connect.") else _name_types(part)
        for key, part in schema.items()
    }
    name = _NAMES.get((str(schema.get("type")), str(schema.get("logicalType"))))
    if name is not None:
        result.setdefault("connect.name", name)
    return result


def reader_text(avro_text: str) -> str:
    """The schema for ``from_avro``: without logical types, decimals with the largest precision that their bytes can have."""
    return json.dumps(_strip_schema(json.loads(avro_text)))


def _strip_schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strip_schema(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: part if key in _KEPT_AS else _strip_schema(part)
        for key, part in schema.items()
        if not key.startswith("connect.") and key not in {"logicalType", "doc"}
    }
    if schema.get("logicalType") == "decimal" and schema.get("type") in {"bytes", "fixed"}:
        result |= {"logicalType": "decimal", "precision": _compute_precision(schema.get("size"))}
    return result


def _compute_precision(size: int | None) -> int:
    """The digits of a decimal of ``size`` bytes (None: any number): Avro takes one with more for plain bytes."""
    if size is None:
        return MAX_PRECISION
    return min(len(str((1 << max(8 * size - 1, 1)) - 1)) - 1, MAX_PRECISION)


def decode_column(
    column: Column, avro_text: str, members: Mapping[str, Collection[str] | None] | None = None
) -> Column:
    """The struct in ``column`` (a record's bytes); one with null everywhere where the bytes don't fit the schema.

    Args:
        column: the bytes.
        avro_text: the schema of the writer.
        members: members that are read, others are skipped: by name, the members of a struct, or None for all; None: all.
    """
    options = {"mode": "PERMISSIVE"}
    if members is not None:
        options["avroSchema"] = json.dumps(_strip_schema(prune_schema(json.loads(avro_text), members)))
    return from_avro(f.substring(column, HEAD_SIZE + 1, 1 << 30), reader_text(avro_text), options)


def prune_schema(schema: Any, members: Mapping[str, Collection[str] | None]) -> Any:
    """The schema of a record without fields that are not in ``members``; see ``decode_column``.

    A field of a named type stays, because later fields may refer to it.
    """

    def kept(record: Any, names: Collection[str]) -> Any:
        fields = [field for field in record["fields"] if field["name"] in names or not _is_simple(field["type"])]
        return record | {"fields": fields}

    result = kept(schema, members)
    for field in result["fields"]:
        names = members.get(field["name"])
        if names is not None and isinstance(field["type"], dict) and field["type"].get("type") == "record":
            field["type"] = kept(field["type"], names)
    return result


def _is_simple(schema: Any) -> bool:
    """Whether a type is of Avro's primitive ones, or a union of such."""
    if isinstance(schema, list):
        return all(_is_simple(branch) for branch in schema)
    if isinstance(schema, dict):
        return _is_simple(schema.get("type"))
    return schema in {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


def encode_head(schema_id: int) -> Column:
    """How messages of a schema begin."""
    return f.lit(bytes([0]) + schema_id.to_bytes(HEAD_SIZE - 1, "big"))


def get_member(column: Column, name: str) -> Column:
    """A member of a struct, whatever its name."""
    return column.getField(name)


def build_value(column: Column, schema: Schema, target: t.DataType) -> Column:
    """``column``, as ``from_avro`` gives values of ``schema``, as ``target``."""
    schema = suit_column(schema, target)
    value_expression = _build_value(column, schema)
    own_type = spark_type(schema)
    return value_expression if own_type == target else _cast_column(value_expression, own_type, target)


def _build_value(column: Column, schema: Schema) -> Column:
    form = form_of(schema)
    if form is Form.CELL:
        return _build_value(get_member(column, "value"), schema.fields[0].schema)
    if form is Form.VARIABLE_DECIMAL:
        return variable_decimal(column, schema)
    if form is Form.DAYS:
        return f.date_from_unix_date(column)
    if form in {Form.MILLIS, Form.MICROS}:
        return (f.timestamp_millis if form is Form.MILLIS else f.timestamp_micros)(column)
    if form is Form.NANOS:
        return f.timestamp_micros(_divide_down(column, 1000))
    if form is Form.TIME_MILLIS:
        return column.cast("long") * f.lit(1_000_000)
    if form is Form.TIME_MICROS:
        return column * f.lit(1000)
    if form is Form.ISO_TIMESTAMP:
        return column.cast("timestamp")
    if form is Form.ISO_DATE:
        return f.substring(column, 1, 10).cast("date")
    if _is_entries(schema) and schema.key_schema is not None and schema.value_schema is not None:
        keys, values = schema.key_schema, schema.value_schema
        return f.map_from_entries(
            f.transform(
                column,
                lambda element: f.struct(
                    _build_value(get_member(element, "key"), keys), _build_value(get_member(element, "value"), values)
                ),
            )
        )
    if schema.type in {Type.INT8, Type.INT16} or form is Form.DECIMAL:
        return column.cast(spark_type(schema))  # decimals in a fixed of few bytes come with fewer digits
    if not _needs_change(schema):
        return column
    if schema.type is Type.STRUCT:
        members = f.struct(
            *[
                _build_value(get_member(column, element.name), element.schema).alias(element.name)
                for element in schema.fields
            ]
        )
        return f.when(column.isNotNull(), members)
    inner = schema.value_schema
    if inner is None:
        return column
    if schema.type is Type.MAP:
        return f.transform_values(column, lambda _, element: _build_value(element, inner))
    return f.transform(column, lambda element: _build_value(element, inner))


def _divide_down(column: Column, by: int) -> Column:
    """Division that rounds down, in whole numbers: a double has too few digits for nanoseconds."""
    return f.call_function("div", column - f.pmod(column, f.lit(by)), f.lit(by))


def _is_entries(schema: Schema) -> bool:
    """Whether a map is written as an array of entries: Avro's own maps have keys that are strings and never null."""
    return (
        schema.type is Type.MAP
        and schema.key_schema is not None
        and (schema.key_schema.type is not Type.STRING or schema.key_schema.optional)
    )


def _needs_change(schema: Schema) -> bool:
    """Whether something in ``schema`` is not what ``from_avro`` gives already."""
    if form_of(schema) is not Form.PLAIN or schema.type in {Type.INT8, Type.INT16} or _is_entries(schema):
        return True
    return any(_needs_change(field.schema) for field in schema.fields) or (
        schema.value_schema is not None and _needs_change(schema.value_schema)
    )


def _cast_column(column: Column, own_type: t.DataType, target: t.DataType) -> Column:
    """A cast to a wider type; members of structs are found by name. As text nested values are JSON, and bytes Base64."""
    if own_type == target:
        return column
    if isinstance(target, t.StringType) and isinstance(own_type, (t.StructType, t.ArrayType, t.MapType)):
        return f.to_json(with_text_keys(column, own_type), WHOLE)
    if isinstance(target, t.StringType) and isinstance(own_type, t.BinaryType):
        return f.base64(column)
    if isinstance(own_type, t.StructType) and isinstance(target, t.StructType):
        member_types = {field.name: field.dataType for field in own_type.fields}
        members = [
            (
                _cast_column(get_member(column, field.name), member_types[field.name], field.dataType)
                if field.name in member_types
                else f.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in target.fields
        ]
        return f.when(column.isNotNull(), f.struct(*members))
    if isinstance(own_type, t.ArrayType) and isinstance(target, t.ArrayType):
        from_type, two = own_type.elementType, target.elementType
        return f.transform(column, lambda element: _cast_column(element, from_type, two))
    if isinstance(own_type, t.MapType) and isinstance(target, t.MapType):
        from_type, two = own_type.valueType, target.valueType
        return (
            f.transform_values(column, lambda _, element: _cast_column(element, from_type, two))
            if own_type.keyType == target.keyType
            else column.cast(target)
        )
    return column.cast(target)


def parse_schema_id(head_hex: str, part: str) -> int:
    """The schema id in the head of a record, which is given as hexadecimal digits.

    Args:
        head_hex: the digits.
        part: ``key`` or ``build_value``, for the error.

    Raises:
        Skippable: it is no head of the registry's wire format.
    """
    if len(head_hex) != 10 or not head_hex.startswith("00"):
        raise Skippable(
            f"The {part} was not written in the schema registry's wire format (unknown magic byte). Set "
            f"source.{part}.encoding to what the topic holds."
        )
    return int.from_bytes(bytes.fromhex(head_hex)[1:], "big")
