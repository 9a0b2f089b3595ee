"""Avro that vectors read is what fastavro reads; bytes that don't fit the schema are refused."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.sources.avro.arrow import array_maker
from spark_jobs.sources.avro.expressions import connect_schema
from spark_jobs.sources.avro.vectors import Broken, Data, UnsupportedSchema, compile_schema
from spark_jobs.sources.types import spark_type
from tests.selection import scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.schema import Schema

#: What says that records are left to the JVM.
REFUSED = (Broken, pa.ArrowInvalid)
#: Avro type and a strategy of its values.
Typed = tuple[Any, st.SearchStrategy[Any]]
PRIMITIVES: list[Typed] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-70, 70)),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-70, 70)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=70)),
    ("bytes", st.binary(max_size=70)),
]


class Names:
    """Makes names of types, each once."""

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"N{self.count}"


def nullable(inner: Typed, *, null_first: bool) -> Typed:
    schema, values = inner
    return (["null", schema] if null_first else [schema, "null"]), st.none() | values


@st.composite
def types(draw: st.DrawFn, names: Names, depth: int = 2) -> Typed:
    """A type that is no union."""
    shapes = ["primitive"] * 4 + ["enum", "fixed"] + (["array", "map", "record"] if depth else [])
    shape = draw(st.sampled_from(shapes))
    if shape == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if shape == "enum":
        symbols = ["A", "B", "LONG"]
        return {"type": "enum", "name": names.next(), "symbols": symbols}, st.sampled_from(symbols)
    if shape == "fixed":
        size = draw(st.integers(0, 20))
        return {"type": "fixed", "name": names.next(), "size": size}, st.binary(min_size=size, max_size=size)
    if shape == "record":
        return draw(records(names, depth - 1))
    inner, values = draw(maybe_null(names, depth - 1))
    if shape == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)


@st.composite
def maybe_null(draw: st.DrawFn, names: Names, depth: int = 2) -> Typed:
    inner = draw(types(names, depth))
    return nullable(inner, null_first=draw(st.booleans())) if draw(st.booleans()) else inner


@st.composite
def records(draw: st.DrawFn, names: Names, depth: int = 2) -> Typed:
    members = draw(st.lists(maybe_null(names, depth), min_size=1, max_size=4))
    fields = [{"name": f"f{number}", "type": schema} for number, (schema, _) in enumerate(members)]
    values = st.fixed_dictionaries({f"f{number}": values for number, (_, values) in enumerate(members)})
    return {"type": "record", "name": names.next(), "fields": fields}, values


@st.composite
def batches(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """A record's schema, and values of it."""
    schema, values = draw(records(Names()))
    return schema, draw(st.lists(values, min_size=1, max_size=8))


def written(schema: Any, values: Sequence[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(schema)
    encoded = []
    for value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        encoded.append(stream.getvalue())
    return encoded


def connected(schema: Any) -> Schema:
    connect = connect_schema(json.dumps(schema))
    assert connect is not None
    return connect


def read(schema: Any, encoded: Sequence[bytes]) -> list[Any]:
    """The values of records, by vectors."""
    connect = connected(schema)
    sizes = np.cumsum([0, *map(len, encoded)])
    data = Data(np.frombuffer(b"".join(encoded), np.uint8))
    column, behind = compile_schema(json.dumps(schema)).read(data, sizes[:-1], sizes[1:], keep=True)
    if (behind != sizes[1:]).any():
        raise Broken("bytes are left")
    array = array_maker(connect, spark_type(connect))(data, column)
    array.validate(full=True)
    rows: list[Any] = array.to_pylist()
    return rows


def plain(value: Any) -> Any:
    """A value in a form in which equal values are equal: maps without order."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return {key: plain(item) for key, item in value}
        return [plain(item) for item in value]
    return repr(value) if isinstance(value, float) else value


def reference(schema: Any, encoded: Sequence[bytes]) -> list[Any]:
    """The values of records, by fastavro; raises where one has other bytes."""
    parsed = fastavro.parse_schema(schema)
    values = []
    for data in encoded:
        stream = io.BytesIO(data)
        values.append(fastavro.schemaless_reader(stream, parsed, None))
        assert stream.tell() == len(data)
    return values


def same(rows: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether rows are equal; an empty map and an empty array look alike."""
    text = [
        json.dumps(plain(list(values)), default=repr, sort_keys=True).replace("{}", "[]") for values in (rows, expected)
    ]
    return text[0] == text[1]


LIMITS = settings(deadline=None, max_examples=scaled(60, 1500), suppress_health_check=list(HealthCheck))


@pytest.mark.scaled
@LIMITS
@given(batches())
def test_values_are_those_of_fastavro(batch: tuple[Any, list[Any]]) -> None:
    schema, values = batch
    encoded = written(schema, values)
    assert same(read(schema, encoded), reference(schema, encoded))


@pytest.mark.scaled
@LIMITS
@given(batches(), st.data())
def test_records_that_are_cut_off_are_refused(batch: tuple[Any, list[Any]], data: st.DataObject) -> None:
    schema, values = batch
    encoded = written(schema, values)
    number = data.draw(st.integers(0, len(encoded) - 1))
    if encoded[number]:
        encoded[number] = encoded[number][: data.draw(st.integers(0, len(encoded[number]) - 1))]
        with pytest.raises(REFUSED):
            read(schema, encoded)


@pytest.mark.scaled
@LIMITS
@given(batches(), st.data())
def test_damaged_records_are_refused_or_read_as_fastavro_reads_them(
    batch: tuple[Any, list[Any]], data: st.DataObject
) -> None:
    schema, values = batch
    encoded = written(schema, values)
    number = data.draw(st.integers(0, len(encoded) - 1))
    damaged = bytearray(encoded[number])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        damaged[at : at + data.draw(st.integers(0, 1))] = data.draw(
            st.sampled_from([b"", b"\x00", b"\x01", b"\x02", b"\x7f", b"\xff", b"\xff" * 9, b"\x80\x00"])
        )
    encoded[number] = bytes(damaged)
    try:
        rows = read(schema, encoded)
    except REFUSED:
        return
    assert same(rows, reference(schema, encoded))


EDGES = [0, -1, 1, 63, 64, -64, -65, 8191, 8192, (1 << 55) - 1, 1 << 55, 1 << 56, 1 << 62, (1 << 63) - 1, -(1 << 63)]


def test_numbers_of_all_sizes() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": "long"}, {"name": "f1", "type": "int"}]}
    values = [{"f0": value, "f1": max(min(value, (1 << 31) - 1), -(1 << 31))} for value in EDGES]
    assert read(schema, written(schema, values)) == values


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("int", b"\xff\xff\xff\xff\x1f"),  # 33 bits
        ("int", b"\x80\x80\x80\x80\x80\x00"),  # six bytes
        ("long", b"\xff" * 9 + b"\x02"),  # 65 bits
        ("long", b"\x80" * 11),
        ("boolean", b"\x02"),
        ("string", b"\x01"),  # size -1
        ("string", b"\xff" * 9 + b"\x01"),
        ("string", b"\x02\xff"),  # no UTF-8
        (["null", "long"], b"\x04"),
        (["null", "long"], b"\x01"),
        (["null", "long"], b"\x82\x00\x00"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        ({"type": "array", "items": "long"}, b"\x04\x02"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, b"\xfe\xff\xff\xff\x0f\x00"),
        ({"type": "array", "items": "long"}, b"\x03\x08\x02\x02\x00"),  # a block of two bytes that says four
        ({"type": "array", "items": "long"}, b"\xff" * 9 + b"\x01\x00"),  # -2^63 elements
        ({"type": "map", "values": "long"}, b"\x04\x02a\x02\x02a\x04\x00"),  # a key twice
    ],
)
def test_unusual_bytes_are_refused(kind: Any, data: bytes) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": kind}]}
    good = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": "string"}]}
    assert read(good, [b"\x02a"]) == [{"f0": "a"}]
    with pytest.raises((*REFUSED, UnsupportedSchema)):
        read(schema, [data])


def test_blocks_with_their_size_are_read() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": {"type": "array", "items": "long"}}]}
    assert read(schema, [b"\x03\x04\x02\x04\x02\x06\x00", b"\x00"]) == [{"f0": [1, 2, 3]}, {"f0": []}]


def test_branches_of_unions_that_no_row_needs_are_skipped() -> None:
    union = ["null", "string", "long", {"type": "record", "name": "B", "fields": [{"name": "x", "type": "double"}]}]
    schema = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": union}]}
    encoded = written(schema, [{"f0": value} for value in (None, "text", 1 << 40, {"x": 0.5}, None)])
    sizes = np.cumsum([0, *map(len, encoded)])
    data = Data(np.frombuffer(b"".join(encoded), np.uint8))
    _, behind = compile_schema(json.dumps(schema)).read(data, sizes[:-1], sizes[1:], keep=False)
    assert behind.tolist() == sizes[1:].tolist()


def logical(kind: str, name: str, **more: Any) -> Any:
    return {"type": kind, "logicalType": name, **more}


def named(kind: str, name: str) -> Any:
    return {"type": kind, "connect.name": name}


def unscaled(number: int, size: int | None = None) -> bytes:
    return number.to_bytes(size or number.bit_length() // 8 + 1, "big", signed=True)


NINES = 10**38 - 1


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (logical("bytes", "decimal", precision=9, scale=2), unscaled(-12345), Decimal("-123.45")),
        (logical("bytes", "decimal", precision=9, scale=2), unscaled(-1, 12), Decimal("-0.01")),
        (logical("bytes", "decimal", precision=9, scale=2), unscaled(1 << 63), Decimal(1 << 63).scaleb(-2)),
        (logical("bytes", "decimal", precision=38, scale=0), unscaled(-(1 << 118)), Decimal(-(1 << 118))),
        (logical("bytes", "decimal", precision=38, scale=0), unscaled(10**37, 16), Decimal(10**37)),
        (logical("int", "date"), -1, "1969-12-31"),
        (logical("long", "timestamp-millis"), 1, "1970-01-01 00:00:00.001000"),
        (logical("long", "timestamp-micros"), -1, "1969-12-31 23:59:59.999999"),
        (named("long", "io.debezium.time.NanoTimestamp"), -1, "1969-12-31 23:59:59.999999"),
        (named("int", "io.debezium.time.Time"), 5, 5_000_000),
        (named("long", "io.debezium.time.MicroTime"), -5, -5000),
        (
            named("string", "io.debezium.time.ZonedTimestamp"),
            "2024-02-29T01:02:03.5+02:00",
            "2024-02-28 23:02:03.500000",
        ),
        (named("string", "io.debezium.time.IsoDate"), "2024-02-29", "2024-02-29"),
        ({"type": "int", "connect.type": "int8"}, -128, -128),
    ],
)
def test_logical_types(kind: Any, value: Any, expected: Any) -> None:
    bare = kind["type"]
    schema = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": ["null", kind]}]}
    plain_schema = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": ["null", bare]}]}
    rows = read(schema, written(plain_schema, [{"f0": None}, {"f0": value}, {"f0": None}]))
    shown = rows[1]["f0"]
    if isinstance(expected, str):
        shown = str(shown).removesuffix("+00:00")
    assert (shown, rows[0], rows[2]) == (expected, {"f0": None}, {"f0": None})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (logical("bytes", "decimal", precision=9, scale=2), b""),
        (logical("bytes", "decimal", precision=9, scale=2), unscaled(NINES + 1)),
        (logical("bytes", "decimal", precision=9, scale=2), unscaled(1, 17)),
        (logical("long", "timestamp-millis"), 1 << 60),
        (named("long", "io.debezium.time.MicroTime"), -(1 << 62)),
        (named("string", "io.debezium.time.ZonedTimestamp"), "2024-02-29 01:02:03"),
        (named("string", "io.debezium.time.ZonedTimestamp"), "2024-02-30T01:02:03Z"),
        (named("string", "io.debezium.time.IsoDate"), "0000-01-01"),
        ({"type": "int", "connect.type": "int8"}, 128),
    ],
)
def test_values_that_the_jvm_may_refuse_are_left_to_it(kind: Any, value: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": kind}]}
    plain_schema = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": kind["type"]}]}
    with pytest.raises(REFUSED):
        read(schema, written(plain_schema, [{"f0": value}]))


def test_a_schema_that_contains_itself_has_no_vectors() -> None:
    fields = [{"name": "next", "type": ["null", "R"]}]
    with pytest.raises(UnsupportedSchema):
        compile_schema(json.dumps({"type": "record", "name": "R", "fields": fields}))
