"""The cases that Java answered for the vectors: written by hand where an edge is known, generated from a seed for the rest."""

from __future__ import annotations

import base64
import random
import string
import struct
from typing import Any

from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP
from tests.conformance.converters.spelling import double_bits, float_bits

Spec = dict[str, Any]

SCALARS = ("int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes")
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
STRINGS = (
    "",
    "plain",
    'with "quotes" and \\backslash',
    "/slash",
    "tab\tnewline\nreturn\rfeed\fback\b",
    "\x00\x01\x0b\x0e\x1b\x1f",
    "\x7f\x80\x9f\xa0",
    "Zürich, 東京, Ελλάδα",
    "emoji 😀 \U0010ffff",
    "\u2028\u2029\ufeff\uffff",
    "\\u001f",
    "</script>&<>'",
    "a" * 300,
    "\\\\\x1f\\",
    "é" * 50,
)
DOUBLES = (
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    123456.789,
    9999999.0,
    9999999.999999998,
    1e7,
    12345678.0,
    0.001,
    0.00099999,
    1e-5,
    1e16,
    1e22,
    1.7e308,
    -1e100,
    3.141592653589793,
    1e15,
    123456789012345680.0,
    100.0,
    0.5,
    33333333.333333332,
    float("nan"),
    float("inf"),
    float("-inf"),
)
FLOATS = (
    0.0,
    -0.0,
    1.0,
    0.1,
    3.4e38,
    1e-10,
    16777216.0,
    9999999.0,
    1e7,
    0.001,
    0.0009,
    123.456,
    1.17549435e-38,
    float("nan"),
    float("inf"),
)


def json_cases() -> list[Spec]:
    """Requests for JsonConverter.fromConnectData."""
    rng = random.Random(20260214)
    cases: list[Spec] = []
    values: list[tuple[Spec | None, Any]] = []
    for kind, bits in BITS.items():
        values += [({"type": kind}, number) for number in (0, 1, -1, (1 << bits) - 1, -(1 << bits), 42)]
    values += [({"type": "string"}, text) for text in STRINGS]
    values += [({"type": "string"}, chr(code)) for code in range(0xA1)]
    values += [
        ({"type": "string"}, text) for text in ("\ud800", "x\udc00y", "\ud83d\ude00", "\ude00\ud83d", "a\ud800\x1f")
    ]
    values += [({"type": "double"}, double_bits(number)) for number in DOUBLES]
    values += [({"type": "float"}, float_bits(number)) for number in FLOATS]
    values += [({"type": "boolean"}, True), ({"type": "boolean"}, False)]
    values += [
        ({"type": "bytes"}, base64_text(data)) for data in (b"", b"\x00", b"\xff\xfe\xfd", b"abcd", bytes(range(256)))
    ]
    values += [
        (decimal_schema(scale), [digits, scale])
        for digits in ("0", "1", "-1", "127", "128", "-128", "-129", "255", "256", "12345678901234567890123456789")
        for scale in (0, 2, 10, -3)
    ]
    values += [({"type": "int32", "name": DATE, "version": 1}, days) for days in (0, 19000, -719162, 2932896)]
    values += [({"type": "int32", "name": TIME, "version": 1}, millis) for millis in (0, 1, 86_399_999)]
    values += [
        ({"type": "int64", "name": TIMESTAMP, "version": 1}, millis)
        for millis in (0, -1, 1_700_000_000_123, 253402300799999)
    ]
    values += [({"type": kind, "optional": True}, None) for kind in SCALARS]
    values += [({"type": kind}, None) for kind in SCALARS]
    values += [(None, spec) for spec in schemaless_values(rng)]
    values += [*_defaults(), *containers(), (None, None)]
    values += [_random_case(rng) for _ in range(260)]
    for number, (schema, value) in enumerate(values):
        cases += [
            {"op": "json", "config": config, "schema": schema, "value": value} for config in _configs(number, schema)
        ]
    return cases


def _configs(number: int, schema: Spec | None) -> list[dict[str, str]]:
    configs = [{"schemas.enable": "true"}, {"schemas.enable": "false"}]
    text = str(schema)
    if DECIMAL in text:
        configs += [
            {"schemas.enable": "true", "decimal.format": "NUMERIC"},
            {"schemas.enable": "false", "decimal.format": "numeric"},
        ]
    if "default" in text:
        configs += [{**config, "replace.null.with.default": "false"} for config in configs]
    return configs if number % 3 else configs[::-1]


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decimal_schema(scale: int, **more: Any) -> Spec:
    return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": [["scale", str(scale)]], **more}


def _defaults() -> list[tuple[Spec, Any]]:
    defaults: list[tuple[Spec, Any]] = []
    for kind, default in (
        ("int8", 5),
        ("int64", -7),
        ("string", "d\x1f"),
        ("boolean", False),
        ("double", double_bits(1e20)),
        ("float", float_bits(0.1)),
        ("bytes", base64_text(b"\x01\x02")),
    ):
        for optional in (False, True):
            member: Spec = {"type": kind, "default": default, **({"optional": True} if optional else {})}
            struct_of: Spec = {"type": "struct", "fields": [["a", member], ["b", {"type": "int32"}]]}
            defaults += [
                (member, None),
                (member, default),
                (struct_of, {"b": 1}),
                (struct_of, {"a": None, "b": 1}),
                (struct_of, {"a": default, "b": 2}),
            ]
    outer: Spec = {
        "type": "struct",
        "fields": [
            ["list", {"type": "array", "values": {"type": "int32"}, "default": [1, 2]}],
            ["map", {"type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}, "default": [["k", 9]]}],
            ["amount", decimal_schema(2, default=["125", 2])],
            ["day", {"type": "int32", "name": DATE, "version": 1, "default": 18000}],
        ],
    }
    defaults += [(outer, {}), (outer, {"list": [], "map": [], "amount": ["1", 2], "day": 1})]
    return defaults


def containers() -> list[tuple[Spec, Any]]:
    point: Spec = {
        "type": "struct",
        "name": "point",
        "version": 2,
        "doc": "a point",
        "fields": [["x", {"type": "double"}], ["y", {"type": "float"}]],
    }
    text, number = {"type": "string"}, {"type": "int32"}
    return [
        (
            {"type": "array", "values": point},
            [{"x": double_bits(1e9), "y": float_bits(2.5)}, {"x": double_bits(0.25), "y": float_bits(1e-9)}],
        ),
        ({"type": "array", "values": {"type": "string", "optional": True}}, ["a", None, "b\x1f"]),
        ({"type": "array", "values": {"type": "array", "values": number}}, [[1], [], [2, 3]]),
        (
            {"type": "map", "keys": text, "values": point},
            [
                ["a\x1f", {"x": double_bits(1.0), "y": float_bits(1.0)}],
                ["ü", {"x": double_bits(0.0), "y": float_bits(3e9)}],
            ],
        ),
        ({"type": "map", "keys": number, "values": text}, [[1, "a"], [-5, "b"]]),
        (
            {"type": "map", "keys": {"type": "int64"}, "values": {"type": "double", "optional": True}},
            [[1, double_bits(1e300)], [2, None]],
        ),
        ({"type": "map", "keys": {"type": "boolean"}, "values": number}, [[True, 1], [False, 0]]),
        (
            {"type": "map", "keys": {"type": "double"}, "values": number},
            [[double_bits(1e10), 1], [double_bits(1.5), 0]],
        ),
        ({"type": "map", "keys": {"type": "bytes"}, "values": number}, [[base64_text(b"k"), 1]]),
        ({"type": "map", "keys": {"type": "string", "optional": True}, "values": number}, [["a", 1], [None, 2]]),
        ({"type": "map", "keys": {"type": "int32", "optional": True}, "values": number}, [[None, 1], [2, 2]]),
        ({"type": "map", "keys": decimal_schema(1), "values": text}, [[["15", 1], "x"]]),
        (
            {"type": "map", "keys": text, "values": {"type": "map", "keys": number, "values": text}},
            [["m", [[1, "one"]]]],
        ),
        ({"type": "struct", "fields": []}, {}),
        (
            {"type": "struct", "fields": [['with "quote', number], ["back\\slash", text], ["\x01", text]]},
            {'with "quote': 1, "back\\slash": "x", "\x01": "y"},
        ),
        (
            {"type": "struct", "fields": [["p", {**point, "optional": True}], ["q", {**point, "optional": True}]]},
            {"p": {"x": double_bits(1e7), "y": float_bits(1e7)}},
        ),
        ({"type": "struct", "fields": [["a", number], ["b", text]]}, {"a": 1}),
        ({"type": "string", "name": "io.debezium.data.Json", "version": 1}, '{"a":1}'),
        (
            {
                "type": "string",
                "name": "io.debezium.data.Enum",
                "version": 1,
                "parameters": [["allowed", "a,b"], ["other", '"x"']],
            },
            "a",
        ),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1, "doc": "µs \x1f"}, 5),
    ]


def schemaless_values(rng: random.Random) -> list[Any]:
    values: list[Any] = [["str", text] for text in STRINGS]
    values += [["int", number] for number in (0, -1, 2**63 - 1, -(2**63))]
    values += [["float", double_bits(number)] for number in DOUBLES]
    values += [
        ["bool", True],
        ["bytes", base64_text(b"\x00\xff")],
        ["list", []],
        ["dict", []],
        ["list", [None, ["int", 1]]],
        ["decimal", ["15", 1]],
    ]
    values += [
        ["dict", [[["str", "a"], ["int", 1]], [["str", "b\x1f"], None]]],
        ["dict", [[["int", 1], ["str", "x"]], [["str", "k"], ["str", "y"]]]],
        ["dict", [[["str", "nested"], ["dict", [[["str", "f"], ["float", double_bits(1e8)]]]]]]],
    ]
    values += [_random_schemaless(rng, 3) for _ in range(60)]
    return values


def _random_schemaless(rng: random.Random, depth: int) -> Any:
    kind = rng.choice(
        ("int", "float", "bool", "str", "bytes", "null", "list", "dict", "dict")
        if depth
        else ("int", "float", "bool", "str", "bytes", "null")
    )
    match kind:
        case "int":
            return ["int", _random_integer(rng, 63)]
        case "float":
            return ["float", double_bits(_random_double(rng))]
        case "bool":
            return ["bool", rng.random() < 0.5]
        case "str":
            return ["str", _random_text(rng)]
        case "bytes":
            return ["bytes", base64_text(rng.randbytes(rng.randrange(10)))]
        case "list":
            return ["list", [_random_schemaless(rng, depth - 1) for _ in range(rng.randrange(5))]]
        case "dict":
            keys = rng.sample(string.ascii_lowercase, rng.randrange(5))
            return ["dict", [[["str", key], _random_schemaless(rng, depth - 1)] for key in keys]]
        case _:
            return None


def _random_integer(rng: random.Random, bits: int) -> int:
    magnitude = rng.getrandbits(rng.randrange(1, bits + 1))
    return -magnitude - 1 if rng.random() < 0.5 else magnitude


def _random_double(rng: random.Random) -> float:
    if rng.random() < 0.3:
        return rng.choice(DOUBLES)
    if rng.random() < 0.5:
        return round(rng.uniform(-1e6, 1e6), rng.randrange(6))
    return rng.uniform(-1, 1) * 10.0 ** rng.randrange(-30, 30)


def _random_text(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(STRINGS)
    return "".join(rng.choice('abcXYZ 09_"\\\n\x1f\x7fäß東😀') for _ in range(rng.randrange(12)))


def random_schema(rng: random.Random, depth: int, *, names: list[int] | None = None, hashable: bool = False) -> Spec:
    """A schema; with ``hashable`` one whose values can be a map's keys, with ``names`` all structs get names of their own."""
    kinds = ("int8", "int16", "int32", "int64", "string", "boolean") if hashable else SCALARS
    kind = rng.choice([*kinds, "decimal", "date", "time", "timestamp"] if not hashable else kinds)
    if depth and not hashable and rng.random() < 0.45:
        kind = rng.choice(("array", "map", "struct", "struct"))
    spec: Spec
    match kind:
        case "decimal":
            spec = decimal_schema(rng.randrange(0, 12))
        case "date":
            spec = {"type": "int32", "name": DATE, "version": 1}
        case "time":
            spec = {"type": "int32", "name": TIME, "version": 1}
        case "timestamp":
            spec = {"type": "int64", "name": TIMESTAMP, "version": 1}
        case "array":
            spec = {"type": "array", "values": random_schema(rng, depth - 1, names=names)}
        case "map":
            keys = {"type": "string"} if rng.random() < 0.6 else random_schema(rng, 0, names=names, hashable=True)
            spec = {
                "type": "map",
                "keys": {name: part for name, part in keys.items() if name != "default"},
                "values": random_schema(rng, depth - 1, names=names),
            }
        case "struct":
            members = rng.sample(string.ascii_lowercase, rng.randrange(1, 6))
            spec = {
                "type": "struct",
                "fields": [
                    [f"{name}_{index}", random_schema(rng, depth - 1, names=names)]
                    for index, name in enumerate(members)
                ],
            }
        case _:
            spec = {"type": kind}
    if "name" not in spec:
        if rng.random() < 0.2 and names is None:
            spec["name"] = rng.choice(("com.example.Thing", "name", "ünï"))
        if names is not None and spec["type"] in ("struct", "map"):
            names.append(len(names))
            spec["name"] = f"com.example.s{len(names)}.T{len(names)}"
        if rng.random() < 0.15:
            spec["version"] = rng.randrange(1, 9)
        if rng.random() < 0.1:
            spec["parameters"] = [["p1", "v1"], ["a", _random_text(rng)]]
    if rng.random() < 0.1:
        spec["doc"] = _random_text(rng)
    if rng.random() < 0.3:
        spec["optional"] = True
    if rng.random() < 0.1 and spec["type"] not in ("array", "map", "struct"):
        spec["default"] = random_value(rng, {**spec, "optional": False}, finite=names is not None)
    return spec


def random_value(rng: random.Random, spec: Spec, *, finite: bool = False) -> Any:
    """A value of the schema; with ``finite`` no NaN and no infinity."""
    if spec.get("optional") and rng.random() < 0.25:
        return None
    kind = spec["type"]
    match spec.get("name"):
        case str() as name if name == DECIMAL:
            scale = int(spec["parameters"][0][1])
            return [str(_random_integer(rng, 100)), scale]
        case str() as name if name == DATE:
            return rng.randrange(-700000, 2_900_000)
        case str() as name if name == TIME:
            return rng.randrange(86_400_000)
        case str() as name if name == TIMESTAMP:
            return rng.randrange(-(10**13), 10**14)
    if kind in BITS:
        return _random_integer(rng, BITS[kind])
    match kind:
        case "float":
            while True:
                number = struct.unpack(">f", rng.randbytes(4))[0] if rng.random() < 0.3 else rng.choice(FLOATS)
                if not finite or number - number == 0:
                    return float_bits(number)
        case "double":
            while True:
                number = _random_double(rng)
                if not finite or number - number == 0:
                    return double_bits(number)
        case "boolean":
            return rng.random() < 0.5
        case "string":
            return _random_text(rng)
        case "bytes":
            return base64_text(rng.randbytes(rng.randrange(20)))
        case "array":
            return [random_value(rng, spec["values"], finite=finite) for _ in range(rng.randrange(4))]
        case "map":
            pairs = [
                [
                    random_value(rng, {**spec["keys"], "optional": False}, finite=finite),
                    random_value(rng, spec["values"], finite=finite),
                ]
                for _ in range(rng.randrange(4))
            ]
            return list({str(key): [key, item] for key, item in pairs}.values())
        case _:
            return {
                name: random_value(rng, member, finite=finite)
                for name, member in spec["fields"]
                if not (member.get("optional") and rng.random() < 0.1)
            }


def _random_case(rng: random.Random) -> tuple[Spec, Any]:
    spec = random_schema(rng, 3)
    return spec, random_value(rng, spec)


def json_read_cases(written: list[Spec]) -> list[Spec]:
    """Requests for JsonConverter.toConnectData: what Java wrote, and messages that are wrong in some way."""
    cases: list[Spec] = [
        {"op": "json_read", "config": case["config"], "data": case["java"]["bytes"]}
        for case in written
        if case["java"].get("bytes") is not None
    ][::3]
    messages = [
        "",
        "null",
        "{",
        "[1",
        "nul",
        "1 2",
        "NaN",
        '{"schema":null,"payload":null}',
        '{"schema":null,"payload":{"a":[1,2.5,"x",true,null]}}',
        '{"payload":1}',
        '{"schema":null,"payload":1,"more":2}',
        '{"schema":{"type":"int32"},"payload":5}',
        '{"schema":{"type":"nope"},"payload":5}',
        '{"schema":{},"payload":5}',
        '{"schema":{"type":"int32","optional":true},"payload":null}',
        '{"schema":{"type":"int32"},"payload":null}',
        '{"schema":{"type":"int32","default":7},"payload":null}',
        '{"schema":{"type":"array"},"payload":[]}',
        '{"schema":{"type":"map"},"payload":{}}',
        '{"schema":{"type":"map","keys":{"type":"string"}},"payload":{}}',
        '{"schema":{"type":"struct"},"payload":{}}',
        '{"schema":{"type":"struct","fields":[{"type":"int32"}]},"payload":{}}',
        '{"schema":{"type":"struct","fields":[{"type":"int32","field":"a"}]},"payload":{}}',
        '{"schema":{"type":"struct","fields":[{"type":"int32","field":"a","optional":true}]},"payload":{}}',
        '{"schema":{"type":"struct","fields":[{"type":"int32","field":"a","default":4}]},"payload":{}}',
        '{"schema":{"type":"struct","fields":[{"type":"int32","field":"a"}]},"payload":[]}',
        '{"schema":{"type":"map","keys":{"type":"string"},"values":{"type":"int32"}},"payload":[]}',
        '{"schema":{"type":"map","keys":{"type":"int32"},"values":{"type":"int32"}},"payload":{}}',
        '{"schema":{"type":"map","keys":{"type":"int32"},"values":{"type":"int32"}},"payload":[1]}',
        '{"schema":{"type":"map","keys":{"type":"int32"},"values":{"type":"int32"}},"payload":[[1]]}',
        '{"schema":{"type":"string","parameters":{"a":1}},"payload":"x"}',
        '{"schema":{"type":"bytes"},"payload":"!!!"}',
        '{"schema":{"type":"string","version":"x","name":5,"doc":true},"payload":"x"}',
        '{"schema":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2"}},"payload":12.50}',
        '{"schema":{"type":"double"},"payload":5}',
        '{"schema":{"type":"float"},"payload":0.1}',
        '{"schema":{"type":"int64"},"payload":5.0}',
        "12345678901234567",
        "1.5",
        "1e400",
        '"x"',
        "true",
        "[]",
        '{"a":{"b":[1]}}',
        '{"a":1,"a":2}',
        "1.10",
        "123456789.123456789012345",
    ]
    for text in messages:
        cases += [
            {"op": "json_read", "config": {"schemas.enable": enable}, "data": base64_text(text.encode())}
            for enable in ("true", "false")
        ]
    cases.append({"op": "json_read", "config": {"schemas.enable": "true"}, "data": None})
    return cases


def number_cases() -> list[Spec]:
    """Bit patterns for Double.toString and Float.toString: every power of two, and random ones."""
    rng = random.Random(4511638)
    doubles = [struct.pack(">d", 2.0**power).hex() for power in range(-1074, 1024)]
    doubles += [f"{number:016x}" for number in range(1, 60)]
    doubles += [rng.randbytes(8).hex() for _ in range(1500)]
    doubles += [double_bits(_random_double(rng)) for _ in range(1500)]
    doubles += [double_bits(10.0**power) for power in range(-30, 30)]
    floats = [struct.pack(">f", 2.0**power).hex() for power in range(-149, 128)]
    floats += [f"{number:08x}" for number in range(1, 200)]
    floats += [rng.randbytes(4).hex() for _ in range(2500)]
    floats += [float_bits(round(rng.uniform(-1e4, 1e4), 3)) for _ in range(1000)]
    return [{"op": "double", "bits": bits} for bits in doubles] + [{"op": "float", "bits": bits} for bits in floats]


def murmur_cases() -> list[Spec]:
    """Keys of all small lengths and some long ones."""
    rng = random.Random(7)
    keys = [rng.randbytes(length) for length in range(70) for _ in range(3)] + [
        rng.randbytes(length) for length in (100, 1000, 4095, 4096, 4097)
    ]
    keys += [f'{{"id":{number}}}'.encode() for number in range(50)] + [b"\xff" * length for length in range(1, 20)]
    return [{"op": "murmur2", "data": base64_text(key)} for key in keys]
