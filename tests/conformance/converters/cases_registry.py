"""Cases for Confluent's JsonSchemaData and ProtobufData, and for Kafka's converters of single numbers."""

from __future__ import annotations

import random
from typing import Any

from connectors.schema import DATE, TIME, TIMESTAMP
from tests.conformance.converters.cases import (
    BITS,
    DOUBLES,
    FLOATS,
    SCALARS,
    STRINGS,
    Spec,
    base64_text,
    decimal_schema,
    random_schema,
    random_value,
)
from tests.conformance.converters.cases_avro import avro_cases
from tests.conformance.converters.spelling import double_bits, float_bits

NUMBERS = {
    "int16": "Short",
    "int32": "Integer",
    "int64": "Long",
    "float": "Float",
    "double": "Double",
    "boolean": "Boolean",
}
_JSON_CONFIGS: tuple[dict[str, str], ...] = (
    {"decimal.format": "NUMERIC"},
    {"object.additional.properties": "false"},
    {"ignore.default.for.nullables": "true"},
)
_PROTOBUF_CONFIGS: tuple[dict[str, str], ...] = (
    {"optional.for.nullables": "true"},
    {"wrapper.for.nullables": "true"},
    {"ignore.default.for.nullables": "true"},
    {"scrub.invalid.names": "true"},
)


def primitive_cases() -> list[Spec]:
    """Requests for ShortConverter and its kin, as value and header converters."""
    rng = random.Random(7)
    cases: list[Spec] = []
    for own_type, name in NUMBERS.items():
        values: list[tuple[Spec | None, Any]] = [
            ({"type": kind}, random_value(rng, {"type": kind})) for kind in SCALARS
        ]
        values += [
            ({"type": own_type, "optional": True}, None),
            (None, None),
            ({"type": own_type, "name": "x.Y"}, None),
        ]
        values += [
            ({"type": "int32", "name": DATE, "version": 1}, 5),
            ({"type": "int64", "name": TIMESTAMP, "version": 1}, 5),
        ]
        if own_type in BITS:
            limit = 1 << BITS[own_type]
            values += [({"type": own_type}, number) for number in (0, 1, -1, limit - 1, -limit, 258)]
        values += [({"type": "double"}, double_bits(number)) for number in DOUBLES if own_type == "double"]
        values += [({"type": "float"}, float_bits(number)) for number in FLOATS if own_type == "float"]
        values += [({"type": "boolean"}, flag) for flag in (True, False) if own_type == "boolean"]
        cases += [{"op": "primitive", "name": name, "schema": schema, "value": value} for schema, value in values]
        cases += [
            {"op": "primitive_read", "name": name, "data": None if data is None else base64_text(data)}
            for data in (
                None,
                b"",
                b"\x00",
                b"\x01",
                b"\x02",
                b"\x00\x01",
                b"\xff" * 2,
                b"\x00\x00\x00\x01",
                b"\x3f\x80\x00\x00",
                b"\x00" * 8,
                b"\x7f" + b"\xff" * 7,
                b"\x40\x09\x21\xfb\x54\x44\x2d\x18",
                b"123",
            )
        ]
    return cases


def _envelope() -> tuple[Spec, Any]:
    number, text = {"type": "int32"}, {"type": "string"}
    row: Spec = {
        "type": "struct",
        "name": "shop.orders.Value",
        "optional": True,
        "fields": [
            ["id", {"type": "int64"}],
            ["note", {**text, "optional": True}],
            ["price", decimal_schema(2)],
            ["flags", {**text, "name": "io.debezium.data.EnumSet", "version": 1, "parameters": [["allowed", "a,b"]]}],
            ["made", {"type": "int64", "name": "io.debezium.time.Timestamp", "version": 1, "default": 0}],
        ],
    }
    schema: Spec = {
        "type": "struct",
        "name": "shop.orders.Envelope",
        "version": 2,
        "fields": [
            ["before", row],
            ["after", row],
            [
                "source",
                {
                    "type": "struct",
                    "name": "io.debezium.connector.mysql.Source",
                    "version": 1,
                    "fields": [
                        ["version", text],
                        ["db", text],
                        ["sequence", {**text, "optional": True}],
                        [
                            "snapshot",
                            {
                                **text,
                                "name": "io.debezium.data.Enum",
                                "version": 1,
                                "optional": True,
                                "default": "false",
                                "parameters": [["allowed", "true,false"]],
                            },
                        ],
                        ["pos", {"type": "int64"}],
                        ["row", number],
                    ],
                },
            ],
            ["op", text],
            ["ts_ms", {"type": "int64", "optional": True}],
        ],
    }
    value = {
        "before": None,
        "after": {"id": 7, "note": "ü", "price": ["1250", 2], "flags": "a,b", "made": 5},
        "source": {"version": "1", "db": "shop", "pos": 12345678901, "row": 0},
        "op": "c",
        "ts_ms": 1700000000000,
    }
    return schema, value


def _values() -> list[tuple[Spec, Any]]:
    """Schemas with values, for both."""
    rng = random.Random(4711)
    number, text = {"type": "int32"}, {"type": "string"}
    values = [(case["schema"], case["value"]) for case in avro_cases() if not case["config"]]
    point: Spec = {
        "type": "struct",
        "name": "geo.Point",
        "fields": [["x", number], ["y", {**number, "optional": True}]],
    }
    names = [f"column_{letter}{letter}{n}" for n in range(9) for letter in "abcdef"]
    many: Spec = {
        "type": "struct",
        "name": "Many",
        "fields": [
            [name, {"type": "int32", **({"optional": True} if index % 3 else {})}] for index, name in enumerate(names)
        ],
    }
    values += [
        _envelope(),
        (many, {name: index for index, (name, _) in enumerate(many["fields"])}),
        (
            {
                "type": "struct",
                "name": "S",
                "fields": [
                    ["p", point],
                    ["p2", {**point, "optional": True}],
                    ["geo", {"type": "struct", "name": "geo", "fields": [["a", text]]}],
                ],
            },
            {"p": {"x": 1}, "p2": None, "geo": {"a": "b"}},
        ),
        (
            {
                "type": "struct",
                "name": "T",
                "fields": [
                    [
                        "m",
                        {"type": "map", "name": "my_map", "keys": text, "values": {"type": "array", "values": number}},
                    ],
                    ["n", {"type": "map", "name": "other", "keys": number, "values": point}],
                    ["o", {"type": "map", "keys": number, "values": {"type": "map", "keys": text, "values": text}}],
                ],
            },
            {"m": [["a", [1, 2]]], "n": [[0, {"x": 0}], [-1, {"x": -1, "y": 3}]], "o": [[1, [["k", "v"]]]]},
        ),
        (
            {
                "type": "struct",
                "name": "U",
                "fields": [
                    ["d", {"type": "int32", "name": DATE, "version": 1}],
                    ["t", {"type": "int32", "name": TIME, "version": 1}],
                    ["i", {"type": "int64", "name": TIMESTAMP, "version": 1}],
                    ["j", {"type": "int64", "name": TIMESTAMP, "version": 1}],
                    ["z", decimal_schema(0)],
                    ["n", decimal_schema(4, optional=True)],
                ],
            },
            {"d": -719162, "t": 86_399_999, "i": -1, "j": 253402300799999, "z": ["0", 0], "n": ["-1234567", 4]},
        ),
        (
            {"type": "struct", "name": "V", "fields": [[f"f{kind}", {"type": kind}] for kind in SCALARS]},
            {
                "fint8": 0,
                "fint16": 0,
                "fint32": 0,
                "fint64": 0,
                "ffloat": float_bits(0.0),
                "fdouble": double_bits(-0.0),
                "fboolean": False,
                "fstring": "",
                "fbytes": "",
            },
        ),
        (
            {"type": "struct", "name": "V", "fields": [[f"f{kind}", {"type": kind}] for kind in SCALARS]},
            {
                "fint8": -128,
                "fint16": -32768,
                "fint32": -(2**31),
                "fint64": -(2**63),
                "ffloat": float_bits(1.5),
                "fdouble": double_bits(1e300),
                "fboolean": True,
                "fstring": "x" * 200,
                "fbytes": base64_text(b"\xff" * 20),
            },
        ),
        (
            {
                "type": "struct",
                "name": "W",
                "fields": [[f"f{kind}", {"type": "array", "values": {"type": kind}}] for kind in SCALARS],
            },
            {f"f{kind}": [random_value(rng, {"type": kind}, finite=True) for _ in range(3)] for kind in SCALARS},
        ),
        (
            {"type": "struct", "name": "X", "fields": [["bad name", number], ["1st", text], ["ok", number]]},
            {"bad name": 1, "1st": "a", "ok": 2},
        ),
        ({"type": "struct", "name": "a-b.c d", "fields": [["x", number]]}, {"x": 1}),
    ]
    for kind, defaults in (
        ("int32", (5, 0)),
        ("string", ("", "d\x1f")),
        ("boolean", (True, False)),
        ("double", (double_bits(1e20), double_bits(0.5), double_bits(100.0), double_bits(1e-9))),
        ("float", (float_bits(0.1), float_bits(1e10))),
        ("int64", (2**53 + 1,)),
        ("bytes", (base64_text(b"ab"),)),
    ):
        for default in defaults:
            for optional in (False, True):
                member = {"type": kind, "default": default, **({"optional": True} if optional else {})}
                values.append(({"type": "struct", "name": "D", "fields": [["a", member], ["b", number]]}, {"b": 1}))
    values.append(
        (
            {
                "type": "struct",
                "name": "DD",
                "fields": [
                    ["a", decimal_schema(2, default=["125", 2])],
                    ["l", {"type": "array", "values": number, "default": [1, 2]}],
                    ["m", {"type": "map", "keys": text, "values": number, "default": [["k", 9]]}],
                ],
            },
            {},
        )
    )
    values += [({"type": "struct", "name": "Text", "fields": [["t", text]]}, {"t": string}) for string in STRINGS]
    for _ in range(120):
        spec = random_schema(rng, 3)
        values.append((spec, random_value(rng, spec, finite=True)))
    return values


def registry_cases(op: str) -> list[Spec]:
    """Requests for JsonSchemaData (``jsonschema``) or ProtobufData (``protobuf``): schemas with values."""
    configs = _JSON_CONFIGS if op == "jsonschema" else _PROTOBUF_CONFIGS
    cases: list[Spec] = []
    for index, (schema, value) in enumerate(_values()):
        cases.append({"op": op, "config": {}, "schema": schema, "value": value})
        cases.append({"op": op, "config": configs[index % len(configs)], "schema": schema, "value": value})
    return cases


def registry_read_cases(op: str, written: list[Spec]) -> list[Spec]:
    """Messages that Java wrote, to be read back; and schemas that others write."""
    cases = [
        {"op": f"{op}_read", "config": case["config"], "text": case["java"]["text"], "data": case["java"]["bytes"]}
        for case in written
        if case["java"].get("bytes") and case["java"].get("text")
    ]
    return cases + (_foreign_json() if op == "jsonschema" else _foreign_protobuf())


def _foreign_json() -> list[Spec]:
    plain = '{"type":"object","properties":{%s}}'
    definitions = (
        '{"definitions":{"p":{"type":"object","title":"P","properties":{"x":{"type":"integer"}}}},"type":"object",'
        '"properties":{"p":{"$ref":"#/definitions/p"},"q":{"$ref":"#/definitions/p"}}}'
    )
    both = (
        '{"allOf":[{"type":"object","properties":{"a":{"type":"string"}}},'
        '{"type":"object","properties":{"b":{"type":"integer"}}}]}'
    )
    pairs = [
        (plain % '"a":{"type":"integer"},"b":{"type":["null","string"]}', '{"a":1,"b":null}'),
        (plain % '"a":{"type":"integer"},"b":{"type":"string"}', '{"a":1,"more":true}'),
        (plain % '"a":{"oneOf":[{"type":"null"},{"type":"number"}]}', '{"a":1.5}'),
        (plain % '"a":{"anyOf":[{"type":"integer"},{"type":"string"}]}', '{"a":"x"}'),
        (
            plain
            % '"a":{"oneOf":[{"type":"null"},{"type":"integer"},{"type":"object","properties":{"z":{"type":"string"}}}]}',
            '{"a":{"z":"q"}}',
        ),
        (plain % '"e":{"enum":["A","B"]}', '{"e":"A"}'),
        (plain % '"e":{"type":"string","enum":["A","B"]}', '{"e":"B"}'),
        (plain % '"l":{"type":"array","items":{"type":"boolean"}}', '{"l":[true,false]}'),
        (plain % '"d":{"type":"string","default":"x"},"f":{"type":"number","default":1.5}', '{"f":2}'),
        (
            '{"title":"T","description":"text","type":"object","properties":{"a":{"type":"string","format":"date"}},"required":["a"]}',
            '{"a":"2020-01-01"}',
        ),
        (definitions, '{"p":{"x":1},"q":{"x":2}}'),
        (both, '{"a":"s","b":2}'),
        ('{"type":"string"}', '"x"'),
        ('{"type":"number"}', "1.25"),
        ('{"type":"array","items":{"type":"integer"}}', "[1,2]"),
    ]
    configs: list[dict[str, str]] = [{}, {"use.optional.for.nonrequired": "true"}]
    return [
        {"op": "jsonschema_read", "config": config, "text": text, "data": base64_text(data.encode())}
        for text, data in pairs
        for config in configs
    ]


def _foreign_protobuf() -> list[Spec]:
    head = 'syntax = "proto3";\npackage a.b;\n'
    pairs = [
        (
            head + "message M { int32 i = 1; sint64 s = 2; uint32 u = 3; fixed64 f = 4; repeated string r = 5; }\n",
            b"\x00\x08\x05\x10\x03\x18\xff\xff\xff\xff\x0f\x21\x01\x00\x00\x00\x00\x00\x00\x00\x2a\x01x\x2a\x01y",
        ),
        (
            head + "message M { enum E { NONE = 0; ONE = 1; } E e = 1; map<string, int32> m = 2; }\n",
            b"\x00\x08\x01\x12\x05\x0a\x01k\x10\x07",
        ),
        (
            head + "message M { oneof choice { int32 a = 1; string b = 2; } optional string o = 3; bool z = 4; }\n",
            b"\x00\x12\x02hi\x1a\x00",
        ),
        (
            head + "message M { string a = 1; }\nmessage N { message I { double d = 1; } I i = 2; }\n",
            b"\x02\x02\x12\x09\x09\x00\x00\x00\x00\x00\x00\xf8\x3f",
        ),
        (
            head + "message M { string a = 1; }\nmessage N { message I { double d = 1; } I i = 2; }\n",
            b"\x04\x02\x00\x09\x00\x00\x00\x00\x00\x00\xf8\x3f",
        ),
        (
            head + 'import "google/protobuf/timestamp.proto";\nimport "google/type/date.proto";\n'
            'import "google/protobuf/wrappers.proto";\n'
            "message M { google.protobuf.Timestamp t = 1; google.type.Date d = 2; google.protobuf.Int64Value w = 3; }\n",
            b"\x00\x0a\x06\x08\x80\xe2\xcf\xaa\x06\x12\x07\x08\xe7\x0f\x10\x0b\x18\x0e\x1a\x02\x08\x05",
        ),
    ]
    configs: list[dict[str, str]] = [
        {},
        {"enhanced.protobuf.schema.support": "true"},
        {"int.for.enums": "true"},
        {"optional.for.nullables": "true"},
        {"wrapper.for.nullables": "true"},
        {"flatten.unions": "true"},
        {"generate.index.for.unions": "false"},
        {"generate.struct.for.nulls": "true"},
    ]
    return [
        {"op": "protobuf_read", "config": config, "text": text, "data": base64_text(data)}
        for text, data in pairs
        for config in configs
    ]
