"""Makes Arrow arrays of columns that ``vectors`` reads, with the values that ``avro.value`` gives in the JVM. In tasks.

Values that the JVM refuses, or that it may see otherwise than Arrow does, raise ``Broken``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from connectors.schema import Schema, Type
from spark_jobs.sources.avro.vectors import Broken, UnsupportedSchema
from spark_jobs.sources.records.columns import arrow_type, make_value_fixer, recast_array
from spark_jobs.sources.types import MAX_PRECISION, Form, form_of, spark_type, suit_column
from worker.converters.avro_form.schema import UNION

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from spark_jobs.sources.avro.vectors import Data, VectorColumn

    Make = Callable[[Data, VectorColumn], pa.Array]

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_LARGEST: Final = (1 << 63) - 1
#: By what whole numbers of these forms are multiplied, and the type of the result.
_FACTORS: Final = {
    Form.MILLIS: (1000, _TIMESTAMP),
    Form.MICROS: (1, _TIMESTAMP),
    Form.TIME_MILLIS: (1_000_000, pa.int64()),
    Form.TIME_MICROS: (1000, pa.int64()),
}
_NUMBERS: Final = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
}
#: Dates and timestamps that every reader of ISO 8601 reads alike.
_ISO_DATE: Final = r"^(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
_ISO_TIMESTAMP: Final = _ISO_DATE + r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])$"
_PATTERNS: Final = {Form.ISO_TIMESTAMP: (_ISO_TIMESTAMP, _TIMESTAMP), Form.ISO_DATE: (_ISO_DATE + "$", pa.date32())}
#: Types of numbers in the order in which ``types.wider`` widens them.
_WIDENED: Final = (
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.FloatType,
    t.DoubleType,
    t.DecimalType,
)
#: Unscaled numbers of 16 bytes whose upper half is below have at most 38 digits.
_UPPER_LIMIT: Final = 10**MAX_PRECISION >> 64
_LARGEST_UNSCALED: Final = 10**MAX_PRECISION


def array_maker(schema: Schema, target: t.DataType, column: str = "") -> Make:
    """Return the function that makes an array of type ``target`` of a column of values of ``schema``.

    Args:
        schema: the Connect schema of the values.
        target: the type of the table's column.
        column: its name, for messages.

    Raises:
        Unsupported: no such array is decimals here.
    """
    schema = suit_column(schema, target)
    make = _make_array_maker(schema, column)
    written_type = spark_type(schema)
    if written_type == target:
        return make
    widened = isinstance(written_type, _WIDENED) and isinstance(target, _WIDENED)
    if not widened and not (isinstance(written_type, t.DateType) and isinstance(target, t.TimestampType)):
        raise UnsupportedSchema(f"column {column}: {written_type.simpleString()} as {target.simpleString()}")
    target_type = arrow_type(target)
    return lambda data, values: recast_array(make(data, values), target_type)


def _make_array_maker(schema: Schema, column: str) -> Make:
    form = form_of(schema)
    if form in _FACTORS:
        factor, kind = _FACTORS[form]
        return lambda _, values: _make_scaled_array(values, factor, kind)
    if form is Form.NANOS:
        return lambda _, values: _number_array(values.arrays[0] // 1000, values, pa.int64()).view(_TIMESTAMP)
    if form is Form.DAYS:
        return lambda _, values: _number_array(values.arrays[0], values, pa.int32()).view(pa.date32())
    if form is Form.DECIMAL:
        decimal = arrow_type(spark_type(schema))
        return lambda data, values: _make_decimal_array(data, values, decimal)
    if form is Form.VARIABLE_DECIMAL:
        return _variable_decimals(schema, column)
    if form in _PATTERNS:
        pattern, of_text = _PATTERNS[form]
        return lambda data, values: _from_text(data, values, pattern, of_text)
    if form is Form.CELL:
        content = _make_array_maker(schema.fields[0].schema, column)
        return lambda data, values: content(data, values.children["value"].masked(values.valid))
    if schema.type is Type.STRUCT:
        return _make_struct_maker(schema, column)
    if schema.type in {Type.ARRAY, Type.MAP}:
        return _list_maker(schema, column)
    if form not in {Form.PLAIN, Form.ENTRIES}:
        raise UnsupportedSchema(f"column {column}: {form}")
    if schema.type is Type.STRING:
        return strings_of
    if schema.type is Type.BYTES:
        return _make_binary_array
    number = _NUMBERS[schema.type]
    return lambda _, values: _number_array(values.arrays[0], values, number)


def _invert_flags(valid: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    return None if valid is None else ~valid


def _make_validity(valid: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _number_array(numbers: npt.NDArray[Any], values: VectorColumn, kind: pa.DataType) -> pa.Array:
    """An array of ``numbers``, with nulls where ``values`` has some; raises ``ArrowInvalid`` where one does not fit."""
    return pa.array(numbers, mask=_invert_flags(values.valid)).cast(kind)


def _make_scaled_array(values: VectorColumn, factor: int, kind: pa.DataType) -> pa.Array:
    numbers = values.arrays[0]
    if factor > 1:
        limit = _LARGEST // factor
        if ((numbers > limit) | (numbers < -limit)).any():
            raise Broken("a time has more than 64 bits")
        numbers = numbers * factor
    return _number_array(numbers, values, pa.int64()).view(kind)


def _make_binary_array(data: Data, values: VectorColumn) -> pa.Array:
    """Bytes where they stand, as a binary array of their written_type."""
    begin, size = values.arrays
    bounds = np.empty(2 * values.count + 1, np.int64)
    bounds[:-1:2], bounds[1::2] = begin, begin + size
    bounds[-1] = 0
    # Values of one column stand in the order of records; null has no place.
    bounds = np.maximum.accumulate(bounds)
    if bounds[-1] > np.iinfo(np.int32).max:
        raise Broken("a batch is larger than 2 GiB")
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * values.count, [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data.bytes)]
    )
    positions = np.arange(0, 2 * values.count, 2, dtype=np.int32)
    return whole.take(pa.array(positions, mask=_invert_flags(values.valid)))


def strings_of(data: Data, values: VectorColumn) -> pa.Array:
    """Strings, or an enum's symbols; raises ``ArrowInvalid`` where bytes are not UTF-8."""
    if values.symbols:
        codes = pa.array(values.arrays[0].astype(np.int32), mask=_invert_flags(values.valid))
        return pa.array(values.symbols, pa.string()).take(codes)
    return _make_binary_array(data, values).cast(pa.string())


def _from_text(data: Data, values: VectorColumn, pattern: str, kind: pa.DataType) -> pa.Array:
    """The dates or times that strings in ISO 8601 name; other strings than of the usual form are left to the JVM."""
    strings = strings_of(data, values)
    if not pc.all(pc.match_substring_regex(strings, pattern), min_count=0).as_py():
        raise Broken("a date or time is written in an unusual form")
    return strings.cast(kind)


def _make_decimal_array(data: Data, values: VectorColumn, kind: pa.DataType) -> pa.Array:
    begin, size = values.arrays
    present = slice(None) if values.valid is None else values.valid
    if (size[present] < 1).any() or (size > 16).any():
        raise Broken("a decimal has no bytes, or more than 16")
    size = np.maximum(size, 1)
    words = np.zeros((values.count, 2), np.int64)  # the lower one first
    first = data.words[begin].byteswap().view(np.int64)
    words[:, 0] = first >> (64 - 8 * np.minimum(size, 8))
    words[:, 1] = words[:, 0] >> 63
    (long,) = np.nonzero(size > 8)
    if len(long):
        words[long, 0] = data.words[begin[long] + size[long] - 8].byteswap().view(np.int64)
        upper = words[long, 1] = first[long] >> (128 - 8 * size[long])
        if ((upper >= _UPPER_LIMIT) | (upper <= -_UPPER_LIMIT)).any():
            raise Broken(f"a decimal has more than {MAX_PRECISION} digits")
    return pa.Array.from_buffers(kind, values.count, [_make_validity(values.valid), pa.py_buffer(words)])


def _variable_decimals(schema: Schema, column: str) -> Make:
    """Decimals with a scale of their written_type each, one by one: ``Skippable`` for one that its column can't hold."""
    fix = make_value_fixer(schema, column)
    kind = arrow_type(spark_type(schema))

    def make(data: Data, values: VectorColumn) -> pa.Array:
        scales = values.children["scale"].arrays[0].tolist()
        unscaled = _make_binary_array(data, values.children["value"].masked(values.valid)).to_pylist()
        decimals: list[Any] = []
        for scale, number in zip(scales, unscaled, strict=True):
            if number is None or fix is None:
                decimals.append(None)
                continue
            exact = int.from_bytes(number, "big", signed=True)
            if not number or abs(exact) >= _LARGEST_UNSCALED or (exact == 0 and scale < 0):
                raise Broken("a decimal is left to the JVM")
            decimals.append(fix({"scale": scale, "value": number}))
        return pa.array(decimals, kind)

    return make


def _make_struct_maker(schema: Schema, column: str) -> Make:
    if schema.name == UNION:
        raise UnsupportedSchema(f"column {column}: a union with several branches and null")
    makers = {member.name: _make_array_maker(member.schema, column) for member in schema.fields}
    kind = arrow_type(spark_type(schema))
    if not makers:
        raise UnsupportedSchema(f"column {column}: a record without fields")

    def make(data: Data, values: VectorColumn) -> pa.Array:
        arrays = [make_member(data, values.children[name].masked(values.valid)) for name, make_member in makers.items()]
        return pa.Array.from_buffers(kind, values.count, [_make_validity(values.valid)], children=arrays)

    return make


def _list_maker(schema: Schema, column: str) -> Make:
    """Arrays and maps; maps whose keys are no strings are written as arrays of entries."""
    if schema.value_schema is None:
        raise UnsupportedSchema(f"column {column}: {schema.type} without a type of its elements")
    kind = arrow_type(spark_type(schema))
    item = _make_array_maker(schema.value_schema, column)
    key = (
        _make_array_maker(schema.key_schema, column)
        if schema.key_schema is not None and schema.type is Type.MAP
        else None
    )

    def make(data: Data, values: VectorColumn) -> pa.Array:
        items = values.children["items"]
        counts = values.arrays[0]
        offsets = np.zeros(values.count + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        if key is None:
            children = item(data, items)
        else:
            keys = key(data, items.children["key"])
            _demand_distinct(keys, counts)
            entries = [keys, item(data, items.children["value"])]
            children = pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])
        buffers = [_make_validity(values.valid), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(kind, values.count, buffers, children=[children])

    return make


def _demand_distinct(keys: pa.Array, counts: npt.NDArray[np.int64]) -> None:
    """Raises ``Broken`` where a map has two equal keys, or a key that is null."""
    if keys.null_count:
        raise Broken("a key of a map is null")
    if counts.max(initial=0) < 2:
        return
    codes = keys.dictionary_encode()
    owners = np.repeat(np.arange(len(counts)), counts)
    pairs = owners * len(codes.dictionary) + codes.indices.to_numpy()
    if len(np.unique(pairs)) != len(pairs):
        raise Broken("a map has two equal keys")
