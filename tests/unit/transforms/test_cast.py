"""Cast: numbers, strings and errors at the edges."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import pytest

from connectors import schema as types
from connectors.api import SourceRecord
from connectors.errors import ConfigInvalid
from connectors.schema import Schema, Type, struct
from worker.transforms.java.numbers import parse_floating, parse_integer, to_single
from worker.transforms.pipeline import TransformError, TransformPipeline, build_pipeline


def pipeline(spec: str, side: str = "Value", **more: str) -> TransformPipeline:
    return build_pipeline(
        {
            "transforms": "x",
            "transforms.x.type": f"org.apache.kafka.connect.transforms.Cast${side}",
            "transforms.x.spec": spec,
            **{f"transforms.x.{name.replace('__', '.')}": value for name, value in more.items()},
        }
    )


def cast(value: Any, schema: Schema | None, spec: str, **more: str) -> SourceRecord:
    result = pipeline(spec, **more).apply(SourceRecord({}, {}, "t", value, schema))
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("value", "schema", "kind", "expected"),
    [
        (300, types.INT32, "int8", 44),
        (-129, types.INT16, "int8", 127),
        (1 << 40, types.INT64, "int32", 0),
        (1e300, types.FLOAT64, "int64", (1 << 63) - 1),
        (-1e300, types.FLOAT64, "int32", -(1 << 31)),
        (math.nan, types.FLOAT64, "int8", 0),
        (300.9, types.FLOAT64, "int8", 44),
        (-0.9, types.FLOAT32, "int32", 0),
        (1e10, types.FLOAT64, "int8", -1),
        (True, types.BOOLEAN, "float32", 1.0),
        (2, types.INT8, "boolean", True),
        (0.9, types.FLOAT64, "boolean", False),
        (Decimal("256.5"), types.decimal(1), "int8", 0),
        (Decimal((1 << 3000) + 7), types.decimal(0), "int64", 7),
        (Decimal((1 << 3000) + 1), types.decimal(0), "boolean", True),
        (Decimal("3E+500"), types.decimal(-500), "int64", 0),
        (Decimal("0.25"), types.decimal(2), "float64", 0.25),
        ("tRue", types.STRING, "boolean", True),
        (" true", types.STRING, "boolean", False),
        ("-128", types.STRING, "int8", -128),
        ("+7", types.STRING, "int64", 7),
        (" 1.5f ", types.STRING, "float32", 1.5),
        ("0x1.8p1", types.STRING, "float64", 3.0),
        ("1e400", types.STRING, "float64", math.inf),
        (b"\x00\xff", types.BYTES, "string", "AP8="),
        (0.1, types.FLOAT32, "string", "0.1"),
        (1e7, types.FLOAT64, "string", "1.0E7"),
        (Decimal("1.50"), types.decimal(2), "string", "1.50"),
        (19675, types.date(), "string", "2023-11-14"),
        (19675, types.date(), "int8", -37),
        (80_000_123, types.time(), "string", "22:13:20.123Z"),
        (1_700_000_000_123, types.timestamp(), "string", "2023-11-14T22:13:20.123Z"),
        (-86_400_000, types.timestamp(), "string", "1969-12-31"),
    ],
)
def test_field(value: Any, schema: Schema, kind: str, expected: Any) -> None:
    result = cast({"f": value}, struct("r", {"f": schema}), f"f:{kind}")
    assert result.value == {"f": expected}
    assert type(result.value["f"]) is type(expected)
    assert result.value_schema == struct("r", {"f": Schema(Type[kind.upper()])})


def test_float32_is_rounded_once() -> None:
    # The nearest double lies in the middle of two floats, the exact number next to it.
    exact = (1 << 60) + (1 << 36) + 1
    assert to_single(exact) == float((1 << 60) + (1 << 37))
    assert to_single((1 << 60) + (1 << 36)) == float(1 << 60)
    assert to_single(Decimal("3.4028235677973366e38")) == math.inf


def test_schema_keeps_options_and_defaults() -> None:
    schema = Schema(
        Type.STRUCT,
        name="r",
        version=3,
        doc="d",
        optional=True,
        fields=(types.Field("a", Schema(Type.INT32, optional=True, default=5)), types.Field("b", types.STRING)),
    )
    result = cast({"a": None, "b": "x"}, schema, "a:string")
    assert result.value_schema == Schema(
        Type.STRUCT,
        name="r",
        version=3,
        doc="d",
        optional=True,
        fields=(types.Field("a", Schema(Type.STRING, optional=True, default="5")), types.Field("b", types.STRING)),
    )
    assert result.value == {"a": "5", "b": "x"}
    assert cast({"a": None, "b": "x"}, schema, "a:string", replace__null__with__default="false").value == {
        "a": None,
        "b": "x",
    }


def test_whole_value() -> None:
    result = cast(5, Schema(Type.INT64, optional=True, name="n", doc="d"), "string")
    assert (result.value, result.value_schema) == ("5", Schema(Type.STRING, optional=True, name="n", doc="d"))
    assert (cast(5, types.timestamp(), "int32").value_schema) == types.INT32
    assert cast("7", None, "int64").value == 7
    nothing = SourceRecord({}, {}, "t")
    assert pipeline("int8").apply(nothing) is nothing


def test_schemaless_fields() -> None:
    result = cast({"a": 5, "c": True, "rest": [1]}, None, "a:string,b:int8,c:float64")
    assert result.value == {"a": "5", "b": None, "c": 1.0, "rest": [1]}


@pytest.mark.parametrize(
    ("value", "schema", "spec", "text"),
    [
        (
            {"a": "128"},
            struct("r", {"a": types.STRING}),
            "a:int8",
            "Value (128) was out of range for requested data type",
        ),
        ({"a": "1_0"}, None, "a:int64", "Value (1_0) was out of range for requested data type"),
        ({"a": " 5"}, None, "a:int64", "Value ( 5) was out of range for requested data type"),
        ({"a": b"x"}, struct("r", {"a": types.BYTES}), "a:int8", "Unexpected type in Cast transformation: class [B"),
        ([1], types.array(types.INT8), "int8", "Cast transformation does not support casting from ARRAY"),
        ({"a": Decimal(1)}, None, "a:int8", "passed a value of type class java.math.BigDecimal which is not supported"),
        ("x", types.STRING, "a:int8", "Cannot list fields on non-struct type"),
        (
            "x",
            None,
            "a:int8",
            "Only Map objects supported in absence of schema for [cast types], found: java.lang.String",
        ),
    ],
)
def test_refused_values(value: Any, schema: Schema | None, spec: str, text: str) -> None:
    with pytest.raises(TransformError) as refusal:
        cast(value, schema, spec)
    assert text in str(refusal.value)


def test_null_of_a_type_that_cant_be_cast_passes() -> None:
    schema = struct("r", {"a": types.array(types.INT8, optional=True)})
    assert cast({"a": None}, schema, "a:int8").value == {"a": None}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("", "Must specify at least one field to cast."),
        ("a:int7", "Invalid type found in casting spec: int7"),
        ("a:bytes", "Cast transformation does not support casting to BYTES; supported types are [INT8,"),
        ("int8,a:int8", "may only specify a single cast"),
        ("a:b:c", "Invalid rename mapping: a:b:c"),
    ],
)
def test_refused_specs(spec: str, text: str) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        pipeline(spec)
    assert text in str(refusal.value)


def test_numbers_in_texts_are_java_s() -> None:
    assert parse_integer("٣٤", 8) == 34  # digits of any script
    assert parse_integer("-" + "0" * 90 + "5", 8) == -5
    for text in (" ", "+", "1.0", "0x1", "9" * 70):
        with pytest.raises(ValueError, match=re.escape(text)):
            parse_integer(text, 64)
    assert parse_floating("-Infinity", single=True) == -math.inf
    assert math.isnan(parse_floating("NaN", single=False))
    assert parse_floating(".5D", single=False) == 0.5
    for text in (" ", "1e", "infinity", "1_0", "0x1"):
        with pytest.raises(ValueError, match=re.escape(text)):
            parse_floating(text, single=False)
