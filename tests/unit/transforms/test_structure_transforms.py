"""ExtractField, Flatten, HoistField, SetSchemaMetadata, ValueToKey, and those that work on headers."""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest

from connectors import schema as types
from connectors.api import Header, SourceRecord
from connectors.errors import ConfigInvalid
from connectors.schema import Field, Schema, Type, struct
from worker.transforms.field_path import parse_path
from worker.transforms.pipeline import TransformError, build_pipeline

KAFKA = "org.apache.kafka.connect.transforms."
INNER = struct("Inner", {"x": types.STRING, "n": Schema(Type.INT32, optional=True, default=7)}, optional=True)
OUTER = struct("Outer", {"id": types.INT64, "in": INNER, "a.b": types.OPTIONAL_STRING}, version=2, doc="d")


def run(kind: str, record: SourceRecord, **options: str) -> SourceRecord:
    prefixed = {f"transforms.x.{name.replace('__', '.')}": value for name, value in options.items()}
    before = deepcopy((record.value, record.key, record.headers))
    result = build_pipeline({"transforms": "x", "transforms.x.type": KAFKA + kind, **prefixed}).apply(record)
    assert (record.value, record.key, record.headers) == before, "the record that came in was changed"
    assert result is not None
    return result


def record(value: Any = None, schema: Schema | None = None, **more: Any) -> SourceRecord:
    return SourceRecord({}, {}, "t", value, schema, **more)


def refused(kind: str, record: SourceRecord, **options: str) -> str:
    with pytest.raises(TransformError) as refusal:
        run(kind, record, **options)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("`a.b`", ("a.b",)),
        ("`a.b`.c", ("a.b", "c")),
        ("a.`b.c`", ("a", "b.c")),
        ("a.", ("a", "")),
        (".a", ("", "a")),
        ("a`b", ("a`b",)),
        (r"`a\`.b`.c", ("a`.b", "c")),
        ("`a`b`", ("a`b",)),
    ],
)
def test_paths(path: str, steps: tuple[str, ...]) -> None:
    assert parse_path(path, "V2") == steps
    assert parse_path(path, "v1") == (path,)


@pytest.mark.parametrize("path", ["`a", "`a.b", r"`a\`", "", "b.`a"])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(ConfigInvalid):
        parse_path(path, "V2")


def test_extract_field() -> None:
    row = {"id": 1, "in": {"x": "y", "n": None}, "a.b": None}
    result = run("ExtractField$Value", record(row, OUTER), field="in.n", field__syntax__version="V2")
    assert (result.value, result.value_schema) == (7, INNER.fields[1].schema)
    kept = run(
        "ExtractField$Value",
        record(row, OUTER),
        field="in.n",
        field__syntax__version="V2",
        replace__null__with__default="false",
    )
    assert kept.value is None
    without = record({**row, "in": None}, OUTER)
    assert run("ExtractField$Value", without, field="in.x", field__syntax__version="V2").value is None
    assert run("ExtractField$Value", record(row, OUTER), field="a.b").value_schema == types.OPTIONAL_STRING
    assert run("ExtractField$Key", record(key={"a": {"b": 1}}), field="a.b", field__syntax__version="V2").key == 1
    assert run("ExtractField$Value", record({"a": 1}), field="b").value is None
    assert run("ExtractField$Value", record(None), field="b").value is None
    tombstone = run("ExtractField$Value", record(None, OUTER), field="id")
    assert (tombstone.value, tombstone.value_schema) == (None, types.INT64)


def test_extract_field_refuses() -> None:
    assert "Unknown field: x" in refused("ExtractField$Value", record({"id": 1}, OUTER), field="x")
    assert "Cannot look up fields on non-struct type" in refused(
        "ExtractField$Value", record({"id": 1}, OUTER), field="id.x", field__syntax__version="V2"
    )
    assert "Only Struct objects supported for [field extraction], found: java.lang.Long" in refused(
        "ExtractField$Value", record(1, types.INT64), field="x"
    )
    assert "for [nested field access], found: java.lang.Long" in refused(
        "ExtractField$Value", record({"a": 1}), field="a.b", field__syntax__version="V2"
    )


def test_flatten() -> None:
    result = run("Flatten$Value", record({"id": 1, "in": {"x": "y"}, "a.b": "z"}, OUTER), delimiter="_")
    assert result.value == {"id": 1, "in_x": "y", "in_n": 7, "a.b": "z"}
    assert result.value_schema == struct(
        "Outer",
        {
            "id": types.INT64,
            "in_x": types.OPTIONAL_STRING,
            "in_n": Schema(Type.INT32, optional=True, default=7),
            "a.b": types.OPTIONAL_STRING,
        },
        version=2,
        doc="d",
    )
    without = run("Flatten$Value", record({"id": 1, "in": None}, OUTER))
    assert without.value == {"id": 1, "in.x": None, "in.n": None, "a.b": None}
    assert run("Flatten$Value", record({"a": {"b": {"c": [1]}, "d": None}, "e": {}})).value == {
        "a.b.c": [1],
        "a.d": None,
    }
    nothing = record(None, OUTER)
    assert run("Flatten$Value", nothing) is nothing


def test_flatten_refuses() -> None:
    maps = struct("r", {"in": struct("s", {"m": types.map_of(types.STRING, types.INT8)})})
    assert "does not support MAP for record with schemas (for field in.m)." in refused(
        "Flatten$Value", record({"in": {"m": {}}}, maps)
    )
    twice = struct("r", {"a.b": types.INT8, "a": struct("s", {"b": types.INT8})})
    assert "field name duplication a.b" in refused("Flatten$Value", record({"a.b": 1, "a": {"b": 1}}, twice))
    assert "class java.math.BigDecimal which is not supported" in refused("Flatten$Value", record({"a": Decimal(1)}))
    assert "Only Struct objects supported for [flattening]" in refused("Flatten$Value", record("x", types.STRING))


def test_hoist_field() -> None:
    result = run("HoistField$Key", record("v", key=1, key_schema=types.INT8), field="k")
    assert (result.key, result.key_schema, result.value) == ({"k": 1}, struct(None, {"k": types.INT8}), "v")
    assert run("HoistField$Value", record(None), field="f").value == {"f": None}
    assert run("HoistField$Value", record(None, types.OPTIONAL_INT8), field="f").value == {"f": None}
    text = refused("HoistField$Value", record(None, types.INT8), field="f")
    assert 'null used for required field: "f", schema type: INT8' in text


def test_set_schema_metadata() -> None:
    result = run("SetSchemaMetadata$Value", record({"id": 1}, OUTER), schema__name="n", schema__version="9")
    assert result.value_schema is not None
    assert (result.value_schema.name, result.value_schema.version, result.value_schema.doc) == ("n", 9, "d")
    assert result.value_schema.fields == OUTER.fields
    named = run("SetSchemaMetadata$Key", record(key={"id": 1}, key_schema=OUTER), schema__name="n").key_schema
    assert named is not None
    assert named.version == 2
    assert run("SetSchemaMetadata$Value", record(None, INNER), schema__name="n").value is None
    assert run("SetSchemaMetadata$Value", record(None), schema__name="n").value_schema is None
    filled = run("SetSchemaMetadata$Value", record({"x": "y"}, INNER), schema__name="n")
    assert filled.value == {"x": "y", "n": 7}


def test_set_schema_metadata_refuses() -> None:
    assert "Schema required for [updating schema metadata]" in refused(
        "SetSchemaMetadata$Value", record(5), schema__name="n"
    )
    number = record(5, types.INT8)
    assert "Cannot list fields on non-struct type" in refused("SetSchemaMetadata$Value", number, schema__name="n")
    with pytest.raises(ConfigInvalid, match="Neither schema name nor version configured"):
        run("SetSchemaMetadata$Value", record(5))


def test_value_to_key() -> None:
    result = run(
        "ValueToKey", record({"id": 1, "a.b": None}, OUTER, key="old", key_schema=types.STRING), fields="a.b,id"
    )
    assert result.key == {"a.b": None, "id": 1}
    assert result.key_schema == struct(None, {"a.b": types.OPTIONAL_STRING, "id": types.INT64})
    assert run("ValueToKey", record({"a": 1}), fields="a,b").key == {"a": 1, "b": None}
    assert run("ValueToKey", record({"x": "y", "n": None}, INNER), fields="n").key == {"n": 7}
    kept = run("ValueToKey", record({"x": "y", "n": None}, INNER), fields="n", replace__null__with__default="false")
    assert kept.key == {"n": None}
    assert "Field does not exist: gone" in refused("ValueToKey", record({"id": 1}, OUTER), fields="id,gone")
    assert "found: null" in refused("ValueToKey", record(None), fields="id")
    assert "found: null" in refused("ValueToKey", record(None, OUTER), fields="gone")
    assert "found: java.lang.Byte" in refused("ValueToKey", record(1, types.INT8), fields="id")
    assert "field name duplication id" in refused("ValueToKey", record({"id": 1}, OUTER), fields="id,id")


HEADERS = (Header("a", 1, types.INT8), Header("b", "x"), Header("a", 2, types.INT8))


def test_drop_headers() -> None:
    assert [header.key for header in run("DropHeaders", record(headers=HEADERS), headers="a,c").headers] == ["b"]
    same = record(headers=HEADERS)
    assert run("DropHeaders", same, headers="c") is same


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", types.INT8, 5),
        ("true", types.BOOLEAN, True),
        ("x", types.STRING, "x"),
        ("null", None, None),
    ],
)
def test_insert_header(text: str, schema: Schema | None, value: Any) -> None:
    result = run("InsertHeader", record(headers=HEADERS), header="a", value__literal=text)
    assert result.headers == (*HEADERS, Header("a", value, schema))


def test_header_from() -> None:
    row = record({"id": 1, "in": {"x": "y"}, "a.b": None}, OUTER, headers=HEADERS)
    moved = run("HeaderFrom$Value", row, fields="id,a.b", headers="h1,h2", operation="move")
    assert moved.headers == (*HEADERS, Header("h1", 1, types.INT64), Header("h2", None, types.OPTIONAL_STRING))
    assert moved.value == {"in": {"x": "y"}}
    assert moved.value_schema == Schema(Type.STRUCT, name="Outer", version=2, doc="d", fields=(Field("in", INNER),))
    copied = run("HeaderFrom$Value", row, fields="id", headers="h1", operation="copy")
    assert (copied.value, copied.value_schema) == (row.value, OUTER)
    loose = run("HeaderFrom$Key", record(key={"a": 1, "b": 2}), fields="a,c", headers="h,i", operation="move")
    assert (loose.key, loose.headers) == ({"b": 2}, (Header("h", 1), Header("i", None)))
    filled = record({"x": "y", "n": None}, INNER)
    assert run("HeaderFrom$Value", filled, fields="n", headers="h", operation="copy").headers[0].value == 7


def test_header_from_refuses() -> None:
    row = record({"id": 1}, OUTER)
    assert "Unknown field: gone" in refused("HeaderFrom$Value", row, fields="gone", headers="h", operation="copy")
    assert "Only Struct objects supported for [header move], found: null" in refused(
        "HeaderFrom$Value", record(None, OUTER), fields="id", headers="h", operation="move"
    )
    assert "Only Map objects supported in absence of schema for [header copy]" in refused(
        "HeaderFrom$Value", record("x"), fields="id", headers="h", operation="copy"
    )
    with pytest.raises(ConfigInvalid, match="must have the same number of elements"):
        run("HeaderFrom$Value", row, fields="a,b", headers="h", operation="copy")
