"""The generated Avro encoders: fastavro reads from their bytes what was written, for any schema; errors and names."""

from __future__ import annotations

import io
import itertools
import json
import re
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.errors import Skippable
from connectors.schema import (
    FLOAT64,
    INT8,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Type,
    array,
    map_of,
    struct,
)
from tests.unit.converters.strategies import cases
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.read import avro_reader, without_logical_types
from worker.converters.avro_form.schema import ANYTHING_TEXT, ENUM, UNION, AvroSettings, avro_text
from worker.converters.avro_form.shape import make_shaper
from worker.converters.avro_form.write import long_bytes, value_bytes

SETTINGS = AvroSettings()


def fastavro_reads(text: str, data: bytes) -> Any:
    return fastavro.schemaless_reader(
        io.BytesIO(data), fastavro.parse_schema(without_logical_types(json.loads(text))), None
    )


@given(cases(named=True))
@settings(max_examples=400, deadline=None)
def test_fastavro_reads_what_was_written(case: tuple[Schema, Any]) -> None:
    schema, value = case
    data = compile_avro(schema, SETTINGS, b"head!")(value)
    if value is None:
        assert data is None
        return
    assert data is not None
    assert data[:5] == b"head!"
    assert fastavro_reads(avro_text(schema, SETTINGS), data[5:]) == make_shaper(schema, SETTINGS)(value)


@given(cases(named=True))
@settings(max_examples=300, deadline=None)
def test_schema_and_value_read_back(case: tuple[Schema, Any]) -> None:
    schema, value = case
    reader = avro_reader(avro_text(schema, SETTINGS), SETTINGS)
    assert reader.schema == schema
    assert reader.decode(value_bytes(schema, value, SETTINGS)) == value


@given(cases(named=True))
@settings(max_examples=200, deadline=None)
def test_fast_and_slow_ways_write_the_same(case: tuple[Schema, Any]) -> None:
    schema, value = case
    if value is not None:
        assert compile_avro(schema, SETTINGS, b"")(value) == value_bytes(schema, value, SETTINGS)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_of_variable_length(number: int) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    assert long_bytes(number) == out.getvalue()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 100_000])
def test_long_strings_and_arrays(size: int) -> None:
    schema = struct("R", {"s": STRING, "a": array(INT32), "o": OPTIONAL_STRING})
    value = {"s": "x" * size, "a": [1] * size, "o": "y" * size}
    data = compile_avro(schema, SETTINGS, b"")(value)
    assert data is not None
    assert fastavro_reads(avro_text(schema, SETTINGS), data) == value


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"n": "1"}, "n"),
        ({"n": True}, "n"),
        ({"n": 2**31}, "n"),
        ({"n": None}, "n"),
        ({"s": 5}, "s"),
        ({"o": b"x"}, "o"),
        ({"a": [1, "x"]}, "a[1]"),
        ({"m": {"k": 1}}, "m[...].x"),
        ({"m": {1: {"x": 1}}}, "a key of m"),
        ({"extra": 1}, "extra"),
        ({"a": 5}, "a"),
        ({"s": None}, "s"),
    ],
)
def test_a_wrong_value_is_reported_with_its_path(change: dict[str, Any], path: str) -> None:
    schema = struct(
        "R",
        {
            "n": INT32,
            "s": STRING,
            "o": OPTIONAL_STRING,
            "a": array(INT32),
            "m": map_of(STRING, struct("M", {"x": INT64})),
        },
    )
    value = {"n": 1, "s": "x", "o": None, "a": [1], "m": {"k": {"x": 1}}}
    encode = compile_avro(schema, SETTINGS, b"")
    assert encode(value)
    wrong = {**value, **change}
    if path == "m[...].x":
        wrong["m"] = {"k": {"x": "1"}}
    with pytest.raises(Skippable) as caught:
        encode(wrong)
    assert path in str(caught.value)


def test_absent_and_reordered_fields() -> None:
    schema = struct("R", {"a": INT32, "b": OPTIONAL_INT32, "c": Schema(Type.INT32, default=9)})
    encode = compile_avro(schema, SETTINGS, b"")
    assert encode({"c": None, "a": 1}) == encode({"a": 1, "b": None, "c": 9}) == b"\x02\x00\x12"


def test_what_is_kept_of_a_source_block_is_that_of_the_record() -> None:
    inner = struct("at", {"file": OPTIONAL_STRING, "position": OPTIONAL_INT64}, optional=True)
    schema = struct(
        "event", {"source": struct("source", {"name": STRING, "time": OPTIONAL_INT64, "at": inner}), "n": INT64}
    )
    encode = compile_avro(schema, SETTINGS, b"")
    name, time = "a name" * 3, 1 << 50
    positions = [
        None,
        {"file": name, "position": time},
        {"file": None, "position": -time},
        {"file": "", "position": None},
    ]
    for number, (source_name, when, position) in enumerate(
        itertools.product((name, "other", ""), (time, 0, None, -time), positions)
    ):
        value = {"source": {"name": source_name, "time": when, "at": position}, "n": number}
        for _ in range(2):
            assert encode(value) == value_bytes(schema, value, SETTINGS)
        with pytest.raises(Skippable):
            encode({"source": {"name": number, "time": when, "at": position}, "n": number})


def test_an_int_is_a_float_as_in_python_itself() -> None:
    assert compile_avro(struct("R", {"x": FLOAT64}), SETTINGS, b"")({"x": 3}) == compile_avro(
        struct("R", {"x": FLOAT64}), SETTINGS, b""
    )({"x": 3.0})


def test_half_a_surrogate_pair_becomes_a_question_mark_as_in_java() -> None:
    assert compile_avro(STRING, SETTINGS, b"")("a\ud800") == b"\x04a?"
    assert compile_avro(STRING, SETTINGS, b"")("\ud83d\ude00") == b"\x08\xf0\x9f\x98\x80"


def test_schemaless_data_reads_back() -> None:
    value = {"a": [1, 2.5, "x", True, None, b"\x00"], 5: {}}
    encode = compile_avro(None, SETTINGS, b"")
    assert encode(None) is None
    data = encode(value)
    assert data is not None
    reader = avro_reader(ANYTHING_TEXT, SETTINGS)
    assert reader.schema is None
    assert reader.decode(data) == value


def test_a_type_used_twice_is_written_once() -> None:
    point = struct("geo.Point", {"x": INT32})
    text = avro_text(struct("geo.Line", {"from": point, "to": point, "via": array(point)}), SETTINGS)
    assert text.count('"name":"Point"') == 1
    assert fastavro.parse_schema(json.loads(text))


def test_a_type_without_a_namespace_is_referred_to_by_its_name_alone() -> None:
    point = struct("Point", {"x": INT32})
    fields = json.loads(avro_text(struct("geo.Line", {"from": point, "to": point}), SETTINGS))["fields"]
    assert [field["type"] for field in fields][1] == "Point"


def test_two_types_of_one_name_are_refused() -> None:
    with pytest.raises(Skippable, match=r"Two different types are called geo\.Point"):
        avro_text(struct("geo.Line", {"a": struct("geo.Point", {"x": INT32}), "b": struct("geo.Point", {})}), SETTINGS)


def test_structs_without_a_name_are_numbered() -> None:
    point = struct(None, {"x": INT32})
    schema = struct(
        None, {"a": point, "b": replace(point, optional=True), "c": struct(None, {"y": STRING}), "d": array(point)}
    )
    text = avro_text(schema, SETTINGS)
    assert re.findall(r'"name":"(\w+)"(?:,"namespace":"[\w.]+")?,"fields"', text) == [
        "ConnectDefault",
        "ConnectDefault2",
        "ConnectDefault3",
    ]
    value = {"a": {"x": 1}, "b": {"x": 2}, "c": {"y": "z"}, "d": [{"x": 3}]}
    data = compile_avro(schema, SETTINGS, b"")(value)
    assert data is not None
    reader = avro_reader(text, SETTINGS)
    assert (reader.schema, reader.decode(data)) == (schema, value)


@pytest.mark.parametrize(("default", "kept"), [({}, True), ({5: "x"}, False)])
def test_a_default_of_pairs_is_left_to_connect(default: dict[int, str], kept: bool) -> None:
    pairs = Schema(Type.MAP, key_schema=INT32, value_schema=STRING, default=default)
    schema = struct("R", {"pairs": pairs, "lists": replace(array(replace(pairs, default=None)), default=[default])})
    text = avro_text(schema, SETTINGS)
    assert ["default" in field for field in json.loads(text)["fields"]] == [kept, kept]
    assert avro_reader(text, SETTINGS).schema == schema


@pytest.mark.parametrize(
    ("name", "scrubbed"),
    [("abc+-.*_", "abc_2B____"), ("abc def", "abc_def"), ("0abc", "x0abc"), ("_a", "_a"), ("a~b", "a_7Eb")],
)
def test_names_are_scrubbed_as_in_java(name: str, scrubbed: str) -> None:
    schema = struct("R", {name: INT8})
    if scrubbed != name:
        with pytest.raises(Skippable, match=r"scrub\.invalid\.names"):
            avro_text(schema, SETTINGS)
    fields = json.loads(avro_text(schema, AvroSettings(scrub=True)))["fields"]
    assert [field["name"] for field in fields] == [scrubbed]


def test_enums_are_kept_with_enhanced_support() -> None:
    parameters = ((ENUM, "shop.Colour"), (f"{ENUM}.RED", "RED"), (f"{ENUM}.BLUE", "BLUE"))
    schema = struct("R", {"c": Schema(Type.STRING, name="shop.Colour", parameters=parameters)})
    enhanced = AvroSettings(enhanced=True)
    text = avro_text(schema, enhanced)
    assert json.loads(text)["fields"][0]["type"]["symbols"] == ["RED", "BLUE"]
    data = compile_avro(schema, enhanced, b"")({"c": "BLUE"})
    assert data == b"\x02"
    assert avro_reader(text, enhanced).decode(data) == {"c": "BLUE"}
    with pytest.raises(Skippable, match="not one of the symbols"):
        compile_avro(schema, enhanced, b"")({"c": "GREEN"})


def test_a_union_is_a_struct_with_one_field_set() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {
                    "name": "u",
                    "type": [
                        "null",
                        "int",
                        "string",
                        {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]},
                    ],
                }
            ],
        }
    )
    reader = avro_reader(text, SETTINGS)
    assert reader.schema is not None
    union = reader.schema.fields[0].schema
    assert (union.name, [field.name for field in union.fields]) == (UNION, ["int", "string", "P"])
    for value in (
        {"int": 5, "string": None, "P": None},
        {"int": None, "string": "x", "P": None},
        {"int": None, "string": None, "P": {"x": 1}},
        None,
    ):
        data = value_bytes(reader.schema, {"u": value}, SETTINGS)
        assert reader.decode(data) == {"u": value}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '"nothing"',
        '{"type":"record"}',
        '"null"',
        '{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}',
    ],
)
def test_schemas_that_connect_has_no_counterpart_for(text: str) -> None:
    with pytest.raises(Skippable):
        avro_reader(text, SETTINGS)


def test_bytes_that_do_not_match_their_schema() -> None:
    reader = avro_reader(avro_text(struct("R", {"s": STRING}), SETTINGS), SETTINGS)
    for data in (b"", b"\x08ab", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"):
        with pytest.raises(Skippable, match="does not match its Avro schema"):
            reader.decode(data)


def test_a_record_with_two_fields_of_one_name_is_refused() -> None:
    text = (
        '{"type": "record", "name": "n.R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "string"}]}'
    )
    with pytest.raises(Skippable, match=r"record n\.R has two fields with the name a"):
        avro_reader(text, SETTINGS)
