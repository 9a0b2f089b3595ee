"""Connect's types as Spark's, and what becomes of a column whose type changes. All functions are pure; docs/jobs/formats.md.

A column's *form* says how a value is written; its Spark type is what a frame holds. Logical types are those of Connect and of
Debezium (``io.debezium.*``), in JSON and in Avro alike.
"""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as t

from connectors.errors import Skippable
from connectors.formats.cql_schema import CQL_TYPE
from connectors.formats.masks.masking import masked_by
from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, Type
from spark_jobs import contract

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Spark's most.
MAX_PRECISION: Final = 38


class Form(StrEnum):
    """How a value is written, where that is not its Spark type's own way."""

    PLAIN = "plain"
    DECIMAL = "decimal"  # unscaled big-endian bytes; the scale is the Spark type's
    VARIABLE_DECIMAL = "variable_decimal"  # struct {scale, value}; becomes a decimal of a fixed scale, or a string
    DAYS = "days"
    MILLIS = "millis"
    MICROS = "micros"
    NANOS = "nanos"
    TIME_MILLIS = "time_millis"  # of the day; becomes nanoseconds
    TIME_MICROS = "time_micros"
    ISO_DATE = "iso_date"
    ISO_TIMESTAMP = "iso_timestamp"
    CELL = "cell"  # struct {value} of the legacy Scylla format
    TEXT = "text"  # any JSON value as text: strings as they are, all else as compact JSON
    NUMBER = "number"  # a decimal as a JSON number or text
    LOOSE_DATE = "loose_date"  # days since 1970, or ISO 8601
    LOOSE_TIMESTAMP = "loose_timestamp"  # a number in the unit of parameter ``unit``, or ISO 8601
    ENTRIES = "entries"  # a map whose keys are no strings, as an array of entries


_SIMPLE: Final[Mapping[Type, t.DataType]] = {
    Type.INT8: t.ByteType(),
    Type.INT16: t.ShortType(),
    Type.INT32: t.IntegerType(),
    Type.INT64: t.LongType(),
    Type.FLOAT32: t.FloatType(),
    Type.FLOAT64: t.DoubleType(),
    Type.BOOLEAN: t.BooleanType(),
    Type.STRING: t.StringType(),
    Type.BYTES: t.BinaryType(),
}
_TIME_PACKAGE: Final = "io.debezium.time."
_LOGICAL: Final[Mapping[tuple[Type, str], tuple[Form, t.DataType]]] = {
    (Type.INT32, DATE): (Form.DAYS, t.DateType()),
    (Type.INT32, TIME): (Form.TIME_MILLIS, t.LongType()),
    (Type.INT64, TIMESTAMP): (Form.MILLIS, t.TimestampType()),
    (Type.INT32, _TIME_PACKAGE + "Date"): (Form.DAYS, t.DateType()),
    (Type.INT32, _TIME_PACKAGE + "Time"): (Form.TIME_MILLIS, t.LongType()),
    (Type.INT64, _TIME_PACKAGE + "MicroTime"): (Form.TIME_MICROS, t.LongType()),
    (Type.INT64, _TIME_PACKAGE + "NanoTime"): (Form.PLAIN, t.LongType()),
    (Type.INT64, _TIME_PACKAGE + "Timestamp"): (Form.MILLIS, t.TimestampType()),
    (Type.INT64, _TIME_PACKAGE + "MicroTimestamp"): (Form.MICROS, t.TimestampType()),
    (Type.INT64, _TIME_PACKAGE + "NanoTimestamp"): (Form.NANOS, t.TimestampType()),
    (Type.STRING, _TIME_PACKAGE + "ZonedTimestamp"): (Form.ISO_TIMESTAMP, t.TimestampType()),
    (Type.STRING, _TIME_PACKAGE + "IsoTimestamp"): (Form.ISO_TIMESTAMP, t.TimestampType()),
    (Type.STRING, _TIME_PACKAGE + "IsoDate"): (Form.ISO_DATE, t.DateType()),
}
_JSON: Final = "io.millrace.json."
_LOOSE: Final[Mapping[str, tuple[Form, t.DataType]]] = {
    _JSON + "Text": (Form.TEXT, t.StringType()),
    _JSON + "Date": (Form.LOOSE_DATE, t.DateType()),
    _JSON + "Timestamp": (Form.LOOSE_TIMESTAMP, t.TimestampType()),
}
_VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
_CELL_SUFFIX: Final = ".Cell"
#: The parameter of a VariableScaleDecimal that says what its column is here: a number of digits after the point, or TEXT.
VARIABLE: Final = "millrace.scale"
TEXT: Final = "text"
#: Digits after the point of such columns without the parameter; UMS's decimals have as many.
VARIABLE_SCALE: Final = 18
_MEANINGS: Final = {
    Form.TIME_MILLIS: contract.TIME,
    Form.TIME_MICROS: contract.TIME,
    Form.VARIABLE_DECIMAL: contract.NUMBER,
}
_NAMED_MEANINGS: Final = {
    "io.debezium.data.Uuid": contract.UUID,
    _TIME_PACKAGE + "NanoTime": contract.TIME,
    _TIME_PACKAGE + "ZonedTime": contract.ZONED_TIME,
    _TIME_PACKAGE + "Timestamp": contract.LOCAL_TIMESTAMP,
    _TIME_PACKAGE + "MicroTimestamp": contract.LOCAL_TIMESTAMP,
    _TIME_PACKAGE + "NanoTimestamp": contract.LOCAL_TIMESTAMP,
}


#: By the CQL type that partition updates, and events of the materializer, say of a column.
_CQL_MEANINGS: Final = {
    (Type.STRING, "uuid"): contract.UUID,
    (Type.STRING, "timeuuid"): contract.UUID,
    (Type.STRING, "decimal"): contract.NUMBER,
    (Type.STRING, "varint"): contract.NUMBER,
    (Type.INT64, "time"): contract.TIME,
}


def form_of(schema: Schema) -> Form:
    """How values of ``schema`` are written."""
    if schema.name is not None:
        form = _LOGICAL.get((schema.type, schema.name))
        if form is not None:
            return form[0]
        if schema.type is Type.BYTES and schema.name == DECIMAL:
            return Form.DECIMAL
        if schema.name in _LOOSE:
            return _LOOSE[schema.name][0]
        if schema.name == _JSON + "Number":
            return Form.NUMBER
        if schema.type is Type.STRUCT and schema.name == _VARIABLE_DECIMAL:
            return Form.VARIABLE_DECIMAL
        if is_cell(schema):
            return Form.CELL
    if schema.type is Type.MAP and schema.key_schema is not None and schema.key_schema.type is not Type.STRING:
        return Form.ENTRIES
    return Form.PLAIN


def meaning_of(schema: Schema) -> str:
    """The meaning of values of ``schema`` where their Spark type does not say it; see ``contract.Column``."""
    form = form_of(schema)
    if form is Form.CELL:
        return meaning_of(schema.fields[0].schema)
    if form in _MEANINGS:
        return _MEANINGS[form]
    if with_variable_scale(schema, TEXT) != schema:
        return contract.NUMBER  # somewhere inside of it
    if schema.type is Type.STRING and masked_by(schema) is not None:
        return ""  # text such as a hash or stars
    cql = _CQL_MEANINGS.get((schema.type, schema.parameter(CQL_TYPE) or ""))
    if cql is not None:
        return cql
    # A schema may have a known name on another type; only those that the tables above know mean something.
    if schema.name is None or (schema.type is not Type.STRING and (schema.type, schema.name) not in _LOGICAL):
        return ""
    return _NAMED_MEANINGS.get(schema.name, "")


def with_variable_scale(schema: Schema, scale: str) -> Schema:
    """``schema``, with ``scale`` (``source.variable.scale``) as the parameter ``VARIABLE`` of its decimals of varying scale."""
    if form_of(schema) is Form.VARIABLE_DECIMAL:
        return replace(schema, parameters=((VARIABLE, scale),))
    return replace(
        schema,
        fields=tuple(Field(field.name, with_variable_scale(field.schema, scale)) for field in schema.fields),
        key_schema=with_variable_scale(schema.key_schema, scale) if schema.key_schema is not None else None,
        value_schema=with_variable_scale(schema.value_schema, scale) if schema.value_schema is not None else None,
    )


def suit_column(schema: Schema, target: t.DataType) -> Schema:
    """``schema``, with decimals of varying scale as text where the column ``target`` has been that since an earlier version."""
    text_schema = with_variable_scale(schema, TEXT)
    return text_schema if text_schema != schema and spark_type(text_schema) == target else schema


def keeps_text(old: t.DataType, new: t.DataType) -> bool:
    """Whether ``old`` is ``new`` but for strings in place of decimals."""
    if isinstance(new, t.DecimalType):
        return isinstance(old, t.StringType)
    if isinstance(old, t.ArrayType) and isinstance(new, t.ArrayType):
        return keeps_text(old.elementType, new.elementType)
    if isinstance(old, t.MapType) and isinstance(new, t.MapType):
        pairs = ((old.keyType, new.keyType), (old.valueType, new.valueType))
        return all(old_type == two or keeps_text(old_type, two) for old_type, two in pairs)
    if isinstance(old, t.StructType) and isinstance(new, t.StructType) and old.names == new.names:
        types = [(old_type.dataType, two.dataType) for old_type, two in zip(old.fields, new.fields, strict=True)]
        return all(old_type == two or keeps_text(old_type, two) for old_type, two in types)
    return False


def is_cell(schema: Schema) -> bool:
    """Whether it is the wrapper ``{value}`` around a cell of the legacy Scylla format."""
    return (
        schema.type is Type.STRUCT
        and schema.name is not None
        and schema.name.endswith(_CELL_SUFFIX)
        and [member.name for member in schema.fields] == ["value"]
    )


def spark_type(schema: Schema, path: str = "") -> t.DataType:
    """The Spark type of values of ``schema``.

    Raises:
        Skippable: no type fits (a decimal with more than 38 digits after the point, an array without element type).
    """
    form = form_of(schema)
    if form in {Form.DECIMAL, Form.NUMBER}:
        scale = int(schema.parameter("scale") or 0)
        if not 0 <= scale <= MAX_PRECISION:
            raise Skippable(
                f"Column {path}: a decimal with scale {scale} has no counterpart in Spark (0 to {MAX_PRECISION}). "
                "Let the connector write it as text (decimal.handling.mode=string)."
            )
        return t.DecimalType(MAX_PRECISION, scale)
    if form is Form.VARIABLE_DECIMAL:
        scale_text = schema.parameter(VARIABLE) or str(VARIABLE_SCALE)
        return t.StringType() if scale_text == TEXT else t.DecimalType(MAX_PRECISION, int(scale_text))
    if form is Form.CELL:
        return spark_type(schema.fields[0].schema, path)
    if schema.name is not None and schema.name in _LOOSE:
        return _LOOSE[schema.name][1]
    if schema.name is not None and (schema.type, schema.name) in _LOGICAL:
        return _LOGICAL[schema.type, schema.name][1]
    if schema.type in _SIMPLE:
        return _SIMPLE[schema.type]
    if schema.type is Type.STRUCT:
        return t.StructType(
            [
                t.StructField(member.name, spark_type(member.schema, f"{path}.{member.name}"), True)
                for member in schema.fields
            ]
        )
    if schema.value_schema is None or (schema.type is Type.MAP and schema.key_schema is None):
        raise Skippable(f"Column {path}: its schema is {schema.type} without a type of its elements.")
    elements = spark_type(schema.value_schema, f"{path}[]")
    if schema.type is Type.MAP and schema.key_schema is not None:
        return t.MapType(spark_type(schema.key_schema, f"{path}[key]"), elements, True)
    return t.ArrayType(elements, True)


def json_schema(kind: t.DataType, unit: str = "ms") -> Schema:
    """The schema by which values of JSON without a schema are read for a column of type ``kind``.

    Args:
        kind: an inferred or declared type.
        unit: what a number means as a timestamp: ms, us or ns.
    """
    if isinstance(kind, t.StringType):
        return Schema(Type.STRING, optional=True, name=_JSON + "Text")
    if isinstance(kind, t.DateType):
        return Schema(Type.INT32, optional=True, name=_JSON + "Date")
    if isinstance(kind, t.TimestampType):
        return Schema(Type.INT64, optional=True, name=_JSON + "Timestamp", parameters=(("unit", unit),))
    if isinstance(kind, t.DecimalType):
        return Schema(Type.BYTES, optional=True, name=_JSON + "Number", parameters=(("scale", str(kind.scale)),))
    if isinstance(kind, t.ArrayType):
        return Schema(Type.ARRAY, optional=True, value_schema=json_schema(kind.elementType, unit))
    if isinstance(kind, t.MapType):
        return Schema(
            Type.MAP, optional=True, key_schema=Schema(Type.STRING), value_schema=json_schema(kind.valueType, unit)
        )
    if isinstance(kind, t.StructType):
        return Schema(
            Type.STRUCT,
            optional=True,
            fields=tuple(Field(field.name, json_schema(field.dataType, unit)) for field in kind.fields),
        )
    return Schema(next(connect_type for connect_type, spark in _SIMPLE.items() if spark == kind), optional=True)


def length_of(schema: Schema) -> int | None:
    """The longest value, where Debezium says so (``column.propagate.source.type``)."""
    length = schema.parameter("__debezium.source.column.length")
    return int(length) if length is not None and length.isdigit() and schema.type in {Type.STRING, Type.BYTES} else None


_WHOLE: Final = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_DIGITS: Final = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 19}


def find_wider_type(first: t.DataType, two: t.DataType) -> t.DataType | None:
    """The type that holds the values of both without loss, or None.

    Whole numbers widen to larger ones, to decimals and (up to 32 bits) to double; float to double; a decimal to one with the
    larger scale; a date
    to a timestamp; inside of arrays, maps and structs likewise, and structs may get members.
    """
    if first == two:
        return first
    kinds = (type(first), type(two))
    if all(kind in _WHOLE for kind in kinds):
        return first if _WHOLE.index(kinds[0]) > _WHOLE.index(kinds[1]) else two
    if isinstance(first, t.ArrayType) and isinstance(two, t.ArrayType):
        element = find_wider_type(first.elementType, two.elementType)
        return t.ArrayType(element, True) if element is not None else None
    if isinstance(first, t.MapType) and isinstance(two, t.MapType):
        key, value = find_wider_type(first.keyType, two.keyType), find_wider_type(first.valueType, two.valueType)
        return t.MapType(key, value, True) if key is not None and value is not None else None
    if isinstance(first, t.StructType) and isinstance(two, t.StructType):
        return _wider_struct(first, two)
    if isinstance(first, t.DecimalType) and isinstance(two, t.DecimalType):
        return t.DecimalType(MAX_PRECISION, max(first.scale, two.scale))
    return _wider_kinds(first, two) or _wider_kinds(two, first)


def _wider_kinds(narrow: t.DataType, wide: t.DataType) -> t.DataType | None:
    kind = type(narrow)
    if isinstance(wide, t.DoubleType) and kind in {t.FloatType, t.ByteType, t.ShortType, t.IntegerType}:
        return wide
    if isinstance(wide, t.FloatType) and kind in {t.ByteType, t.ShortType}:
        return wide
    if isinstance(wide, t.FloatType) and kind is t.IntegerType:
        return t.DoubleType()
    if isinstance(wide, t.DecimalType) and kind in _DIGITS and wide.precision - wide.scale >= _DIGITS[kind]:
        return wide
    if isinstance(wide, t.TimestampType) and kind is t.DateType:
        return wide
    return None


def _wider_struct(first: t.StructType, two: t.StructType) -> t.StructType | None:
    fields = {field.name: field.dataType for field in first.fields}
    for field in two.fields:
        if field.name in fields:
            both = find_wider_type(fields[field.name], field.dataType)
            if both is None:
                return None
            fields[field.name] = both
        else:
            fields[field.name] = field.dataType
    return t.StructType([t.StructField(name, kind, True) for name, kind in fields.items()])


def infer_type(value: Any) -> t.DataType | None:
    """The type for a value of JSON without a schema; None for null, which says nothing.

    Whole numbers are long (beyond 64 bits decimal(38,0)), others double; arrays and objects are kept as JSON text.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return t.BooleanType()
    if isinstance(value, int):
        return t.LongType() if -(1 << 63) <= value < 1 << 63 else t.DecimalType(MAX_PRECISION, 0)
    if isinstance(value, float):
        return t.DoubleType()
    return t.StringType()


def wider_inferred(first: t.DataType, two: t.DataType) -> t.DataType:
    """As ``find_wider_type`` for inferred types: whole numbers and fractions become double, all other mixes string."""
    if first == two:
        return first
    kinds = {type(first), type(two)}
    if kinds == {t.LongType, t.DoubleType}:
        return t.DoubleType()
    if kinds == {t.LongType, t.DecimalType}:
        return first if isinstance(first, t.DecimalType) else two
    return t.StringType()


def type_json(kind: t.DataType) -> Any:
    """``kind`` as JSON data."""
    return json.loads(kind.json())


def type_from_json(data: Any) -> t.DataType:
    """The type that ``type_json`` wrote."""
    wrapped = {"type": "struct", "fields": [{"name": "c", "type": data, "nullable": True, "metadata": {}}]}
    return t.StructType.fromJson(wrapped).fields[0].dataType
