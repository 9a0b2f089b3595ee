"""Builds Arrow arrays from decoded JSON: one function per column, made once per schema, run once per batch of rows."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final, TypedDict

import msgspec
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from connectors.errors import Skippable
from connectors.schema import Schema, Type
from spark_jobs.sources.types import (
    MAX_PRECISION,
    TEXT,
    VARIABLE,
    VARIABLE_SCALE,
    Form,
    form_of,
    spark_type,
    suit_column,
)
from worker.converters.javatext import decimal_from_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_FACTORS: Final = {Form.MILLIS: 1000, Form.MICROS: 1, Form.TIME_MILLIS: 1_000_000, Form.TIME_MICROS: 1000}
#: A unit of time as a fraction of a microsecond's count.
_UNITS: Final = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
#: More zeros of a decimal are not written out: a scale of 2^31 would fill the memory.
MAX_ZEROS: Final = 10_000
_EXACT: Final = Context(prec=100_000)
#: The smallest unscaled number with more digits than a decimal of Spark's can have.
_TOO_LARGE: Final = 10**MAX_PRECISION
_SHOWN: Final = 100


def arrow_type(kind: t.DataType) -> pa.DataType:
    """The Arrow type that Spark exchanges for ``kind``."""
    return to_arrow_type(kind, timezone="UTC")


def json_type(schema: Schema) -> Any:
    """The type by which msgspec reads a value of ``schema``; always or null."""
    form = form_of(schema)
    if form is Form.CELL:
        return record_type("Cell", {"value": json_type(schema.fields[0].schema)}) | None
    if form is Form.VARIABLE_DECIMAL:
        return record_type("VariableDecimal", {"scale": int, "value": bytes}) | None
    if form is Form.DECIMAL:
        return Any  # Base64, or a number by JsonConverter's decimal.format=NUMERIC; see ``read_floats_as``
    if form is Form.TEXT:
        return Any
    if form is Form.NUMBER:
        return Decimal | None
    if form in {Form.LOOSE_DATE, Form.LOOSE_TIMESTAMP}:
        return int | str | None
    kind = schema.type
    if kind in {Type.INT8, Type.INT16, Type.INT32, Type.INT64}:
        return int | None
    if kind in {Type.FLOAT32, Type.FLOAT64}:
        return float | None
    if kind is Type.STRUCT:
        return (
            record_type(schema.name or "Struct", {member.name: json_type(member.schema) for member in schema.fields})
            | None
        )
    if kind is Type.ARRAY and schema.value_schema is not None:
        return list[json_type(schema.value_schema)] | None  # type: ignore[misc]  # types are made at run time
    if kind is Type.MAP and schema.value_schema is not None and schema.key_schema is not None:
        if form is Form.ENTRIES:
            return list[tuple[json_type(schema.key_schema), json_type(schema.value_schema)]] | None  # type: ignore[misc]
        return dict[str, json_type(schema.value_schema)] | None  # type: ignore[misc]
    return {Type.BOOLEAN: bool, Type.STRING: str, Type.BYTES: bytes}[kind] | None


def read_floats_as(schemas: Iterable[Schema]) -> Callable[[str], Any] | None:
    """The ``float_hook`` of a decoder for values of these schemas: a decimal that is written as a number keeps all digits."""
    # Form.TEXT takes any value, too, and shows numbers as floats.
    return None if any(_has_text(schema) for schema in schemas) else Decimal


def _has_text(schema: Schema) -> bool:
    parts = (*(member.schema for member in schema.fields), schema.key_schema, schema.value_schema)
    return form_of(schema) is Form.TEXT or any(part is not None and _has_text(part) for part in parts)


def record_type(name: str, members: dict[str, Any]) -> Any:
    """The type by which msgspec reads an object as a dict of these members; others are left out."""
    for member in members:
        # msgspec compares names in UTF-8, which Python makes on demand and keeps in the string itself. msgspec does not
        # demand it for members of a TypedDict, so it would not find names that are not ASCII. Encoding demands it.
        msgspec.json.encode(member)
    return TypedDict(name.rpartition(".")[2] or "Struct", members, total=False)  # type: ignore[operator]


def make_array_builder(schema: Schema, target: t.DataType, column: str = "") -> Callable[[Sequence[Any]], pa.Array]:
    """Return the function that makes an array of type ``target`` from values as ``json_type(schema)`` reads them.

    Args:
        schema: of the values.
        target: the column's type.
        column: the column and its table, for the ``Skippable`` that the function raises for a decimal that does not fit.
    """
    schema = suit_column(schema, target)
    form = form_of(schema)
    own_type = spark_type(schema)
    target_type = arrow_type(target)
    if form in _FACTORS and isinstance(own_type, t.TimestampType):
        factor = _FACTORS[form]
        if factor == 1:
            return lambda values: pa.array(values, pa.int64()).view(_TIMESTAMP)
        return lambda values: pa.array(
            [None if number is None else number * factor for number in values], pa.int64()
        ).view(_TIMESTAMP)
    if form is Form.DAYS and own_type == target:
        return lambda values: pa.array(values, pa.int32()).view(pa.date32())
    if form is Form.TEXT and own_type == target:
        return _make_string_array
    fix = make_value_fixer(schema, column)
    mine = arrow_type(own_type)
    if form is Form.DECIMAL and own_type == target and fix is not None:
        return _make_decimal_builder(fix, mine)
    if fix is None:
        first: Callable[[Sequence[Any]], pa.Array] = lambda values: pa.array(values, mine)  # noqa: E731 - one of two
    else:
        first = lambda values: pa.array([None if number is None else fix(number) for number in values], mine)  # noqa: E731
    return first if own_type == target else lambda values: recast_array(first(values), target_type)


def _make_decimal_builder(fix: Callable[[Any], Any], kind: pa.DataType) -> Callable[[Sequence[Any]], pa.Array]:
    """The builder of a column of decimals: of strings with unscaled bytes at once, of other values one by one by ``fix``."""
    read = msgspec.json.Decoder(list[bytes | None]).decode
    write = msgspec.json.Encoder(decimal_format="number").encode  # no number may look like Base64

    def build(values: Sequence[Any]) -> pa.Array:
        try:
            unscaled = read(write(values))
        except ValueError:  # numbers, or strings that are no Base64
            unscaled = []
        numbers = [0 if data is None else int.from_bytes(data, "big", signed=True) for data in unscaled]
        if not numbers or min(numbers) <= -_TOO_LARGE or max(numbers) >= _TOO_LARGE:
            return pa.array([None if value is None else fix(value) for value in values], kind)
        data = b"".join([number.to_bytes(16, "little", signed=True) for number in numbers])
        valid = None
        if None in values:
            valid = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
        return pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(data)])

    return build


def recast_array(array: pa.Array, target: pa.DataType) -> pa.Array:
    """``array`` as the wider type ``target``; members of structs are found by name. Every value can become a string."""
    if array.type == target:
        return array
    if pa.types.is_string(target):
        return _as_text(array)
    if pa.types.is_struct(target):
        members = {field.name: index for index, field in enumerate(array.type)}
        arrays = [
            recast_array(array.field(members[field.name]), field.type)
            if field.name in members
            else pa.nulls(len(array), field.type)
            for field in target
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(target), mask=array.is_null())
    if pa.types.is_list(target):
        return pa.ListArray.from_arrays(
            array.offsets, recast_array(array.values, target.value_type), type=target, mask=array.is_null()
        )
    return array.cast(target)


def _as_text(array: pa.Array) -> pa.Array:
    """Values as text: nested ones as JSON, bytes in Base64."""
    kind = array.type
    if not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return array.cast(pa.string())
    strings: list[str | None] = []
    for value in array.to_pylist(maps_as_pydicts="lossy"):
        if value is None or isinstance(value, bytes):
            strings.append(None if value is None else base64.b64encode(value).decode())
        else:
            strings.append(msgspec.json.encode(value).decode())
    return pa.array(strings, pa.string())


def make_value_fixer(schema: Schema, column: str = "") -> Callable[[Any], Any] | None:
    """Return the function that converts a value that is not null for Arrow; None if Arrow takes it as it is.

    ``column``: see ``make_array_builder``.
    """
    form = form_of(schema)
    if form is Form.CELL:
        content = make_value_fixer(schema.fields[0].schema, column) or _keep_value
        return lambda value: None if value.get("value") is None else content(value["value"])
    if form is Form.DECIMAL:
        return _decimal_reader(int(schema.parameter("scale") or 0), column)
    if form is Form.NUMBER:
        return None
    if form is Form.TEXT:
        return _to_string
    if form is Form.LOOSE_DATE:
        return lambda value: (
            date.fromisoformat(value[:10]) if isinstance(value, str) else date.fromordinal(_EPOCH_DAY + value)
        )
    if form is Form.LOOSE_TIMESTAMP:
        up, down = _UNITS[schema.parameter("unit") or "ms"]
        return lambda value: iso_timestamp(value) if isinstance(value, str) else value * up // down
    if form is Form.VARIABLE_DECIMAL:
        return _variable_reader(schema.parameter(VARIABLE) or str(VARIABLE_SCALE), column)
    if form in _FACTORS:
        factor = _FACTORS[form]
        # Arrow takes integers for timestamps as they are: no year is out of range.
        return lambda value: value * factor
    if form is Form.NANOS:
        return lambda value: value // 1000
    if form is Form.DAYS:
        return lambda value: date.fromordinal(_EPOCH_DAY + value)
    if form is Form.ISO_TIMESTAMP:
        return iso_timestamp
    if form is Form.ISO_DATE:
        return lambda value: date.fromisoformat(value[:10])
    if schema.type is Type.STRUCT:
        return _struct_fixer(schema, column)
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        inner = make_value_fixer(schema.value_schema, column)
        return (
            None if inner is None else lambda value: [None if element is None else inner(element) for element in value]
        )
    if schema.type is Type.MAP and schema.value_schema is not None and schema.key_schema is not None:
        keys, values = (
            make_value_fixer(schema.key_schema, column) or _keep_value,
            make_value_fixer(schema.value_schema, column) or _keep_value,
        )
        if form is Form.ENTRIES:
            return lambda value: [(keys(key), None if item is None else values(item)) for key, item in value]
        return lambda value: [(key, None if item is None else values(item)) for key, item in value.items()]
    return None


def _to_string(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _make_string_array(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # not all are strings
        return pa.array([None if value is None else _to_string(value) for value in values], pa.string())


def _keep_value(value: Any) -> Any:
    return value


def _struct_fixer(schema: Schema, column: str) -> Callable[[Any], Any] | None:
    fixers = [
        (member.name, fix) for member in schema.fields if (fix := make_value_fixer(member.schema, column)) is not None
    ]
    if not fixers:
        return None

    def fix_struct(value: dict[str, Any]) -> dict[str, Any]:
        result = dict(value)
        for name, fix in fixers:
            if result.get(name) is not None:
                result[name] = fix(result[name])
        return result

    return fix_struct


def iso_timestamp(value: str) -> datetime:
    """A moment in ISO 8601; without an offset it is UTC."""
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _decimal_reader(scale: int, column: str) -> Callable[[Any], Decimal]:
    decode = msgspec.json.Decoder(bytes).decode
    limit = MAX_PRECISION - scale
    unit = Decimal(1).scaleb(-scale)

    def read(value: Any) -> Decimal:
        if isinstance(value, str):
            number = decimal_from_bytes(decode(b'"' + value.encode() + b'"'), scale)
        elif type(value) in (int, float, Decimal):
            number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        else:
            raise TypeError("it is neither Base64 nor a number")
        if number.adjusted() >= limit and number:
            raise Skippable(
                f"{column}: the value {_format_number(number)} does not fit decimal({MAX_PRECISION},{scale}), and Spark has no "
                "larger precision. Let the connector write decimals as text (decimal.handling.mode=string)."
            )
        # Not left to Arrow, which ends the process at a number such as 1E-9999999.
        rounded = _EXACT.quantize(number, unit)
        if rounded != number:
            raise Skippable(
                f"{column}: the value {_format_number(number)} has more than {scale} digits after the point"
            )
        return rounded

    return read


def _variable_reader(scale_text: str, column: str) -> Callable[[dict[str, Any]], Decimal | str]:
    """Return the function that reads a VariableScaleDecimal; see ``types.VARIABLE`` for ``scale_text``."""
    if scale_text == TEXT:
        return lambda value: plain_text(value["value"], value["scale"], column)
    scale = int(scale_text)
    limit = MAX_PRECISION - scale

    def read(value: dict[str, Any]) -> Decimal:
        own_scale: int = value["scale"]
        if not any(value["value"]):
            return Decimal(0)
        number = decimal_from_bytes(value["value"], own_scale) if abs(own_scale) <= MAX_ZEROS else None
        # Zeros at the end don't count.
        if number is None or number.adjusted() >= limit or (own_scale > scale and _digits_after_point(number) > scale):
            said = f"of scale {own_scale}" if number is None else _format_number(number)
            raise Skippable(f"{column}: the value {said} {too_large(scale)}")
        return _EXACT.quantize(number, Decimal(1).scaleb(-scale))

    return read


def plain_text(unscaled: bytes, scale: int, column: str = "") -> str:
    """A decimal as digits with a point, without an exponent.

    Raises:
        Skippable: it has too many zeros to be readable.
    """
    if abs(scale) > MAX_ZEROS:
        raise Skippable(f"{column}: a decimal with scale {scale} is not written out; the limit is {MAX_ZEROS}.")
    return format(decimal_from_bytes(unscaled, scale), "f")


def too_large(scale: int) -> str:
    """Explain what to do about a decimal of varying scale that its column can't hold."""
    return (
        f"does not fit decimal({MAX_PRECISION},{scale}). Set source.variable.scale to another number of digits after the point "
        f"or to {TEXT}, and start with a new checkpoint and target table; or let the connector write decimals as text "
        "(decimal.handling.mode=string)."
    )


def _digits_after_point(number: Decimal) -> int:
    return -int(_EXACT.normalize(number).as_tuple().exponent)


def _format_number(number: Decimal) -> str:
    digits = str(number)
    return digits if len(digits) <= _SHOWN else digits[:_SHOWN] + "..."
