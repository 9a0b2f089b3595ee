"""Debezium's VariableScaleDecimal (struct {scale, value}) in the JVM: expressions for its value or the reason for its absence.

Spark has no function from bytes to a decimal but ``from_avro``: it is given the bytes as a datum of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.avro.functions import from_avro

from connectors.schema import Schema, Type
from spark_jobs.sources.records.columns import MAX_ZEROS, too_large
from spark_jobs.sources.types import MAX_PRECISION, Form, form_of, is_cell, spark_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

#: More bytes hold more digits than a decimal of Spark has.
_BYTES: Final = 16
_DATUM: Final = f'{{"type":"bytes","logicalType":"decimal","precision":{MAX_PRECISION},"scale":0}}'


def variable_decimal(column: Column, schema: Schema) -> Column:
    """The value of ``column`` as ``spark_type(schema)``: null where that type can't hold it (see ``find_decimal_problem``)."""
    kind = spark_type(schema)
    return _with_unscaled(column, lambda value, unscaled: _read_decimal(value, unscaled, kind))


def find_decimal_problem(column: Column, schema: Schema) -> Column | None:
    """Why a decimal in ``column``, which ``from_avro`` gave for values of ``schema``, can't be read; null where all can.

    None where there is no decimal of varying scale in ``schema``.
    """
    form = form_of(schema)
    if form is Form.VARIABLE_DECIMAL:
        return _make_complaint_builder(column, schema)
    if is_cell(schema):
        return find_decimal_problem(column.getField("value"), schema.fields[0].schema)
    if schema.type is Type.STRUCT:
        problems = [
            member_problem
            for member in schema.fields
            if (member_problem := find_decimal_problem(column.getField(member.name), member.schema)) is not None
        ]
        return f.coalesce(*problems) if problems else None
    inner = schema.value_schema
    if inner is None:
        return None
    if schema.type is Type.ARRAY:
        return _find_first_problem(column, inner)
    keys = schema.key_schema
    entries = form is Form.ENTRIES or (keys is not None and keys.optional)
    if not entries or keys is None:
        return _find_first_problem(f.map_values(column), inner)

    def find_member_problem(name: str, member: Schema) -> Column | None:
        return _find_first_problem(f.transform(column, lambda entry: entry.getField(name)), member)

    member_problems = [find_member_problem("key", keys), find_member_problem("value", inner)]
    parts = [problem for problem in member_problems if problem is not None]
    return f.coalesce(*parts) if parts else None


def _find_first_problem(elements: Column, schema: Schema) -> Column | None:
    """The first problem of an array's elements."""
    if find_decimal_problem(f.lit(None), schema) is None:
        return None

    def text(element: Column) -> Column:
        element_problem = find_decimal_problem(element, schema)
        return f.lit("") if element_problem is None else f.coalesce(element_problem, f.lit(""))

    problem_column = f.transform(elements, text)
    return f.get(f.filter(problem_column, lambda problem: problem != ""), 0)


def _with_unscaled(column: Column, body: Callable[[Column, Column], Column]) -> Column:
    """``body`` of the struct and its number without the scale, as decimal(38,0), null where it has more digits.

    Both are bound to variables: written out at each place where they are used they would make plans of many megabytes.
    """

    def unscaled(value: Column) -> Column:
        data = value.getField("value")
        # A datum of bytes begins with their number, twice (Avro, "Binary Encoding"); below 64 that is one byte.
        size = f.unhex(f.lpad(f.hex(f.length(data) * 2), 2, f.lit("0")))
        return f.when(f.length(data) <= _BYTES, from_avro(f.concat(size, data), _DATUM, {"mode": "PERMISSIVE"}))

    return _bind_value(column, lambda value: _bind_value(unscaled(value), lambda number: body(value, number)))


def _bind_value(value: Column, body: Callable[[Column], Column]) -> Column:
    """``body`` with ``value`` bound to a variable."""
    return f.get(f.transform(f.array(value), body), 0)


def _read_decimal(value: Column, unscaled: Column, kind: t.DataType) -> Column:
    decimal_text = _format_decimal(value, unscaled)
    if not isinstance(kind, t.DecimalType):
        return decimal_text
    zeros = f.length(f.regexp_extract(unscaled.cast("string"), "(0*)$", 1))  # at the end: they don't count
    lost = (unscaled != 0) & (value.getField("scale") - zeros > kind.scale)
    return f.when(lost, None).otherwise(decimal_text.try_cast(kind))


def _format_decimal(value: Column, unscaled: Column) -> Column:
    """The value as digits with a point; null where it has more digits than Spark's decimals, or too many zeros."""
    scale = value.getField("scale")
    digits = f.abs(unscaled).cast("string")
    sign = f.when(unscaled < 0, f.lit("-")).otherwise(f.lit(""))

    def pointed(padded: Column) -> Column:
        whole = f.length(padded) - scale
        return f.concat(f.substring(padded, f.lit(1), whole), f.lit("."), f.substring(padded, whole + 1, scale))

    fraction = _bind_value(f.lpad(digits, f.greatest(f.length(digits), scale + 1), f.lit("0")), pointed)
    integer = f.when(unscaled == 0, f.lit("0")).otherwise(f.concat(digits, f.repeat(f.lit("0"), -scale)))
    return f.when(f.abs(scale) <= MAX_ZEROS, f.concat(sign, f.when(scale > 0, fraction).otherwise(integer)))


def _make_complaint_builder(column: Column, schema: Schema) -> Column:
    kind = spark_type(schema)
    hint = (
        too_large(kind.scale)
        if isinstance(kind, t.DecimalType)
        else (
            f"has more than {MAX_PRECISION} digits or {MAX_ZEROS} zeros, which can't be read from Avro here. Let the connector "
            "write decimals as text (decimal.handling.mode=string), or the converter JSON."
        )
    )

    def said(value: Column, unscaled: Column) -> Column:
        raw = f.concat(
            f.lit("0x"), f.hex(value.getField("value")), f.lit(" of scale "), value.getField("scale").cast("string")
        )
        shown = f.coalesce(_format_decimal(value, unscaled), raw)
        message = f.concat(f.lit("the value "), f.substring(shown, 1, 120), f.lit(f" {hint}"))
        return f.when(value.isNotNull() & _read_decimal(value, unscaled, kind).isNull(), message)

    return _with_unscaled(column, said)
