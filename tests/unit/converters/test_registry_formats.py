"""JSON Schema and Protobuf without a registry: round trips, names, differences between schemas, what is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.errors import Skippable
from connectors.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Type,
    array,
    date,
    decimal,
    map_of,
    struct,
    time,
    timestamp,
)
from tests.unit.converters.strategies import cases
from worker.converters.java_order import copy_order, hash_order, string_hash
from worker.converters.json_form.compile import compile_encoder
from worker.converters.json_form.schema_read import json_schema_reader
from worker.converters.json_form.schema_text import JsonSchemaSettings, json_schema_text
from worker.converters.json_form.text import JsonSettings, value_text
from worker.converters.protobuf import index_bytes
from worker.converters.protobuf_form.compile import compile_protobuf
from worker.converters.protobuf_form.files import proto_shapes
from worker.converters.protobuf_form.read import message_indexes, protobuf_reader
from worker.converters.protobuf_form.schema import ENUM, TAG, WIRE_TYPE, ProtobufSettings, proto_file, proto_text
from worker.converters.protobuf_form.write import encode_varint, message_bytes
from worker.converters.registry.differences import Shapes, avro_shapes, find_differences, find_lacking, json_shapes

VALUES = JsonSettings(entries=True)
JSON = JsonSchemaSettings(VALUES)
FEW_EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def protobuf_bytes(schema: Schema, value: Any, options: ProtobufSettings | None = None) -> bytes:
    """Written both ways, which must agree."""
    options = options or ProtobufSettings()
    file = proto_file(schema, options)
    data = compile_protobuf(file, schema, index_bytes([file.index]), replace_null=options.replace_null)(value)
    assert data is not None
    if file.message is not None:
        assert data == b"\x00" + message_bytes(file.message, value, replace_null=options.replace_null)
    return data


def read_back(schema: Schema, value: Any, options: ProtobufSettings | None = None) -> Any:
    options = options or ProtobufSettings()
    text = proto_text(proto_file(schema, options))
    return protobuf_reader(text, {}, options)(protobuf_bytes(schema, value, options))[1]


# JSON Schema.


@FEW_EXAMPLES
@given(cases())
def test_json_values_travel_and_match_their_schema(case: tuple[Schema, Any]) -> None:
    schema, value = case
    text = json_schema_text(schema, JSON)
    data = compile_encoder(schema, VALUES, envelope=False)(value)
    assert data == value_text(schema, value, VALUES).encode()
    parsed = json.loads(text)
    jsonschema.Draft7Validator.check_schema(parsed)
    jsonschema.Draft7Validator(parsed).validate(json.loads(data))
    read, read_value = json_schema_reader(text, {}, JSON)(data)
    assert read_value == value
    assert read == schema


def test_json_maps_unions_and_enums() -> None:
    union = struct("io.confluent.connect.json.OneOf", {"a": OPTIONAL_INT32, "b": OPTIONAL_STRING}, optional=True)
    enum = Schema(
        Type.STRING, parameters=(("io.confluent.connect.json.Enum", ""), ("io.confluent.connect.json.Enum.A", "A"))
    )
    schema = struct("R", {"u": union, "e": enum, "m": map_of(OPTIONAL_STRING, INT32)})
    text = json_schema_text(schema, JSON)
    assert json.loads(text)["properties"]["u"]["oneOf"] == [
        {"type": "null"},
        {"type": "integer", "connect.index": 0, "connect.type": "int32"},
        {"type": "string", "connect.index": 1},
    ]
    assert json.loads(text)["properties"]["e"]["enum"] == ["A"]
    encode = compile_encoder(schema, VALUES, envelope=False)
    assert encode({"u": {"b": "x"}, "e": "A", "m": {None: 1}}) == b'{"u":"x","e":"A","m":[{"key":null,"value":1}]}'
    assert encode({"u": None, "e": "A", "m": {}}) == b'{"u":null,"e":"A","m":[]}'


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"type":"null"}',
        '{"type":"array"}',
        '{"type":"object","properties":{"a":true}}',
        '{"$ref":"#/definitions/x"}',
        '{"$ref":"#"}',
        '{"type":"object","properties":{"a":{"$ref":"#"}}}',
        '{"type":"number","connect.type":"int9"}',
        "[1]",
        '"x"',
    ],
)
def test_json_schemas_without_a_counterpart(text: str) -> None:
    with pytest.raises(Skippable):
        json_schema_reader(text, {}, JSON)(b"{}")


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"type":"integer"}', b'"x"'),
        ('{"type":"integer"}', b"1.5"),
        ('{"type":"integer","connect.type":"int8"}', b"200"),
        ('{"type":"string"}', b"1"),
        ('{"type":"string","connect.type":"bytes"}', b'"!"'),
        ('{"type":"boolean"}', b"0"),
        ('{"type":"array","items":{"type":"string"}}', b"{}"),
        ('{"type":"object","properties":{"a":{"type":"string"}}}', b'{"a":null}'),
        ('{"type":"object","properties":{"a":{"type":"string"}}}', b"[]"),
        ('{"type":"integer"}', b""),
    ],
)
def test_json_that_does_not_match(text: str, data: bytes) -> None:
    with pytest.raises(Skippable):
        json_schema_reader(text, {}, JSON)(data)


def test_json_references_to_other_schemas() -> None:
    text = '{"type":"object","properties":{"a":{"$ref":"part.json#/definitions/n"}}}'
    imports = {"part.json": '{"definitions":{"n":{"type":"integer"}}}'}
    assert json_schema_reader(text, imports, JSON)(b'{"a":5}')[1] == {"a": 5}
    with pytest.raises(Skippable, match=r"refers to part\.json"):
        json_schema_reader(text, {}, JSON)


# Protobuf.


def expressible(schema: Schema | None, *, inside: bool = False) -> bool:
    """Whether Protobuf can hold all values of the schema, and can tell all of them apart."""
    if schema is None:
        return True
    if schema.type is Type.ARRAY and (
        schema.value_schema is None
        or schema.optional
        or schema.value_schema.optional
        or schema.value_schema.type in (Type.ARRAY, Type.MAP)
    ):
        return False
    if schema.type is Type.MAP and (
        schema.optional
        or schema.value_schema is None
        or schema.value_schema.optional
        or schema.value_schema.type in (Type.ARRAY, Type.MAP)
    ):
        return False  # maps of arrays are written, and read as arrays of entries, as Java does it
    parts = (schema.key_schema, schema.value_schema, *(member.schema for member in schema.fields))
    return all(expressible(part, inside=True) for part in parts) and (inside or schema.type is Type.STRUCT)


@settings(FEW_EXAMPLES, max_examples=15)
@given(cases(named=True).filter(lambda case: expressible(case[0]) and case[1] is not None))
def test_protobuf_values_travel(case: tuple[Schema, Any]) -> None:
    schema, value = case
    for options in (ProtobufSettings(optional=True), ProtobufSettings(wrapper=True)):
        try:
            data = protobuf_bytes(schema, value, options)
        except Skippable as error:
            if "outside of what" not in str(error):  # dates and times beyond Google's types
                raise
            continue
        text = proto_text(proto_file(schema, options))
        assert protobuf_reader(text, {}, options)(data)[1] == value


@pytest.mark.parametrize("digits", [1, 2, 3, 19, 4300, 5000])
@pytest.mark.parametrize("sign", [0, 1])
def test_protobuf_decimals_of_any_length_travel_with_their_number_of_digits(digits: int, sign: int) -> None:
    schema = struct("R", {"n": decimal(2)})
    for digit in (1, 9):
        value = Decimal((sign, (digit,) * digits, -2))
        assert read_back(schema, {"n": value}) == {"n": value}
        assert b"\x10" + encode_varint(digits) in protobuf_bytes(schema, {"n": value})


def test_protobuf_tells_null_and_zero_apart_if_wanted() -> None:
    schema = struct("R", {"n": OPTIONAL_INT32, "s": OPTIONAL_STRING})
    assert read_back(schema, {"n": None, "s": None}) == {"n": 0, "s": ""}
    for options in (ProtobufSettings(optional=True), ProtobufSettings(wrapper=True)):
        assert read_back(schema, {"n": None, "s": None}, options) == {"n": None, "s": None}
        assert read_back(schema, {"n": 0, "s": ""}, options) == {"n": 0, "s": ""}


def test_structs_of_one_name_and_fields_of_a_messages_name() -> None:
    first, second = struct("tuple", {"a": INT32}), struct("tuple", {"b": STRING})
    schema = struct(
        "R",
        {
            "x": first,
            "y": second,
            "z": Schema(Type.STRUCT, optional=True, name="tuple", fields=first.fields),
            "point": struct("point", {"q": INT32}),
            "m": map_of(INT32, STRING, name="x"),
            "m2": map_of(STRING, STRING, name="x"),
        },
    )
    text = proto_text(proto_file(schema, ProtobufSettings()))
    for line in (
        "  tuple x = 1;",
        "  tuple_2 y = 2;",
        "  tuple z = 3;",
        "  pointMessage point = 4;",
        "  repeated xEntry m = 5;",
        "  repeated x_2Entry m2 = 6;",
    ):
        assert line in text.split("\n")
    value = {"x": {"a": 1}, "y": {"b": "t"}, "z": None, "point": {"q": 2}, "m": {1: "o"}, "m2": {"k": "v"}}
    assert read_back(schema, value) == value


def test_numbers_types_and_enums_from_parameters() -> None:
    def typed(kind: Type, **parameters: str) -> Schema:
        return Schema(kind, parameters=tuple(parameters.items()))

    schema = struct(
        "R",
        {
            "late": typed(Type.INT32, **{TAG: "9"}),
            "u": typed(Type.INT64, **{WIRE_TYPE: "uint32"}),
            "z": typed(Type.INT64, **{WIRE_TYPE: "sint64"}),
            "f": typed(Type.INT64, **{WIRE_TYPE: "fixed64"}),
            "e": Schema(Type.STRING, name="E", parameters=((ENUM, "E"), (f"{ENUM}.NONE", "0"), (f"{ENUM}.ONE", "1"))),
        },
    )
    text = proto_text(proto_file(schema, ProtobufSettings()))
    for line in (
        "  int32 late = 9;",
        "  uint32 u = 1;",
        "  sint64 z = 2;",
        "  fixed64 f = 3;",
        "  E e = 4;",
        "    ONE = 1;",
    ):
        assert line in text.split("\n")
    value = {"late": 5, "u": 2**32 - 1, "z": -3, "f": -1, "e": "ONE"}
    assert read_back(schema, value) == value
    with pytest.raises(Skippable, match="u: the number does not fit into uint32"):
        protobuf_bytes(schema, {**value, "u": -1})
    with pytest.raises(Skippable, match="not one of the symbols"):
        protobuf_bytes(schema, {**value, "e": "TWO"})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, -5),
        (INT16, 0),
        (INT32, 2**31 - 1),
        (INT64, -(2**63)),
        (FLOAT32, 1.5),
        (FLOAT64, -0.0),
        (BOOLEAN, True),
        (STRING, "ü"),
        (BYTES, b"\0"),
        (Schema(Type.STRING, optional=True), "x"),
    ],
)
def test_single_values_are_wrapped(schema: Schema, value: Any) -> None:
    data = protobuf_bytes(schema, value)
    assert message_indexes(data)[0] != []
    text = proto_text(proto_file(schema, ProtobufSettings()))
    assert protobuf_reader(text, {}, ProtobufSettings())(data)[1] == value


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (array(INT32), [1], "put it into a struct"),
        (decimal(2), Decimal(1), "put it into a struct"),
        (struct("R", {"a": array(array(INT32))}), {"a": [[1]]}, "no arrays of arrays, and a is one"),
        (struct("R", {"a": array(OPTIONAL_INT32)}), {"a": [1, None]}, r"a\[1\]: Protobuf has no null elements"),
        (struct("R", {"bad name": INT32}), {"bad name": 1}, "'bad name'"),
        (struct("R", {"a b": INT32, "a_b": INT32}), {}, "'a b'"),
        (struct("R", {"a": INT8}), {"a": 200}, "a: the number does not fit into int8"),
        (struct("R", {"a": STRING}), {"a": 5}, "a: its schema says string, but it is int"),
        (struct("R", {"a": STRING}), {}, "null value for a"),
        (struct("R", {"a": STRING}), {"b": 1}, "b: the struct's schema has no"),
        (
            struct("R", {"s": struct("S", {"n": INT32})}),
            {"s": {"n": True}},
            "s.n: its schema says int32, but it is bool",
        ),
        (struct("R", {"t": time()}), {"t": -1}, "t: -1 is outside of what google.type.TimeOfDay"),
        (struct("R", {"d": date()}), {"d": 10**9}, "outside"),
        (struct("R", {"t": timestamp()}), {"t": 2**62}, "outside"),
        (struct("R", {"d": decimal(1)}), {"d": Decimal("1.25")}, "more than 1 digits"),
        (
            struct("R", {"m": map_of(STRING, INT32)}),
            {"m": {"k": "v"}},
            r"m\[\.\.\.\]: its schema says int32, but it is str",
        ),
        (struct("R", {"l": array(STRING)}), {"l": ["a", 5]}, r"l\[1\]: its schema says string, but it is int"),
        (struct("R", {"a": Schema(Type.INT32, parameters=((TAG, "19000"),))}), {"a": 1}, "'19000' as the number of a"),
        (struct("R", {"a": Schema(Type.INT32, parameters=((TAG, "1"),)), "b": INT32}), {}, "same number 1"),
        (struct("R", {"u": struct("io.confluent.connect.protobuf.Union.x", {"a": INT32})}), {}, "oneof"),
    ],
)
def test_protobuf_says_what_it_can_not_write(schema: Schema, value: Any, text: str) -> None:
    with pytest.raises(Skippable, match=text):
        protobuf_bytes(schema, value)


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        'syntax = "proto3";',
        'syntax = "proto3"; import "gone.proto"; message M { int32 a = 1; }',
        'syntax = "proto3"; message M { Gone g = 1; }',
        'syntax = "proto3"; message M { M again = 1; }',
        'edition = "2023"; message M { int32 a = 1; }',
    ],
)
def test_protobuf_schemas_without_a_counterpart(text: str) -> None:
    with pytest.raises(Skippable):
        protobuf_reader(text, {}, ProtobufSettings())(b"\x00")


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x02\x04", b"\x00\x08", b"\xff\xff\xff\xff\x7f", b"\x01"])
def test_protobuf_messages_that_do_not_match(data: bytes) -> None:
    read = protobuf_reader('syntax = "proto3"; message M { int32 a = 1; }', {}, ProtobufSettings())
    with pytest.raises(Skippable):
        read(data)


def test_protobuf_imports_of_registered_files() -> None:
    text = 'syntax = "proto3"; import "other.proto"; message M { o.Other x = 1; }'
    imports = {"other.proto": 'syntax = "proto3"; package o; message Other { string s = 1; }'}
    assert protobuf_reader(text, imports, ProtobufSettings())(b"\x00\x0a\x03\x0a\x01q")[1] == {"x": {"s": "q"}}


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=6))
def test_message_indexes_travel(indexes: list[int]) -> None:
    data = index_bytes(indexes)
    assert message_indexes(data + b"rest") == (indexes, len(data))


# What both need.


def test_the_order_of_javas_hash_map() -> None:
    assert string_hash("a") == 97
    assert string_hash("polygenelubricants") == 0x80000000
    assert hash_order(["id", "name", "amount", "m", "s", "l", "d"]) == ["amount", "s", "d", "name", "id", "l", "m"]
    assert copy_order([]) == []
    assert sorted(hash_order(map(str, range(100)))) == sorted(map(str, range(100)))


def test_differences_name_fields() -> None:
    old = avro_shapes(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "a", "type": "int"},
                {"name": "gone", "type": "string"},
                {
                    "name": "s",
                    "type": {
                        "type": "array",
                        "items": {"type": "record", "name": "S", "fields": [{"name": "x", "type": ["null", "int"]}]},
                    },
                },
            ],
        }
    )
    new = avro_shapes(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "a", "type": "long"},
                {"name": "more", "type": "int", "default": 1},
                {
                    "name": "s",
                    "type": {
                        "type": "array",
                        "items": {"type": "record", "name": "S", "fields": [{"name": "x", "type": "int"}]},
                    },
                },
            ],
        }
    )
    assert find_differences(new, old) == [
        "field a: type changed from int to long",
        "field s[].x: type changed from null or int to int",
        "field gone: removed (string), which has no default",
    ]
    assert find_differences(
        avro_shapes({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int", "default": 0}]}), {}
    ) == ["field n: added (int)"]
    assert find_lacking(new, old) == ["more"]
    many = {f"f{n}": shape for n in range(20) for shape in [next(iter(new.values()))]}
    assert len(find_differences(many, {})) == 11
    assert json_shapes(
        {"properties": {"a": {"type": "object", "properties": {"b": {"type": ["null", "string"]}}}}}
    ).keys() == {"a", "a.b"}
    assert {
        path: shape.type
        for path, shape in proto_shapes(
            'syntax = "proto3"; message M { repeated I i = 3; message I { int32 n = 1; } } message N { bool b = 1; }'
        ).items()
    } == {"i": "repeated I = 3", "i[].n": "int32 = 1"}


POINT = '{"type":"record","name":"Point","namespace":"geo","fields":[{"name":"x","type":"int"}]}'


@pytest.mark.parametrize(
    ("first", "second"), [(POINT, '"geo.Point"'), ('["null",' + POINT + "]", '["null","geo.Point"]')]
)
def test_avro_types_that_are_named_once_and_used_again(first: str, second: str) -> None:
    def shapes(*fields: str) -> Shapes:
        return avro_shapes(
            json.loads(f'{{"type":"record","name":"R","namespace":"shop","fields":[{",".join(fields)}]}}')
        )

    def field(name: str, kind: str) -> str:
        return f'{{"name":"{name}","type":{kind}}}'

    ours = shapes(field("a", first), field("b", second))
    assert list(ours) == ["a", "a.x", "b", "b.x"]
    assert find_lacking(ours, shapes(field("b", first), field("a", second))) == []
    recursive = (
        '{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"]},'
        '{"name":"again","type":"shop.Node"}]}'
    )
    assert list(shapes(field("n", recursive))) == ["n", "n.next", "n.again"], "a type that contains itself ends there"


def test_avro_types_that_use_each_other_many_times_end() -> None:
    fields, before = [], '"int"'
    for number in range(40):
        kind = (
            f'{{"type":"record","name":"T{number}","fields":[{{"name":"a","type":{before}}},'
            f'{{"name":"b","type":{before if number == 0 else json.dumps(f"T{number - 1}")}}}]}}'
        )
        before = kind
    fields.append(f'{{"name":"root","type":{before}}}')
    assert len(avro_shapes(json.loads(f'{{"type":"record","name":"R","fields":[{",".join(fields)}]}}'))) <= 20_000


def test_json_schemas_that_refer_to_their_own_definitions() -> None:
    inner = {"type": "object", "properties": {"x": {"type": "integer"}}}
    ours = json_shapes({"type": "object", "properties": {"a": inner, "b": inner}})
    for section in ("definitions", "$defs"):
        reference = {"$ref": f"#/{section}/Point"}
        theirs = {
            "type": "object",
            "properties": {"a": reference, "b": {"oneOf": [{"type": "null"}, reference]}},
            section: {"Point": inner},
        }
        assert find_lacking(ours, json_shapes(theirs)) == []
    endless = {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/definitions/no"}, "c": {"$ref": "other.json"}}}
    assert {"a", "b", "c"} <= json_shapes(endless).keys()
    assert json_shapes({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#/anyOf/1"}]}) == {}
