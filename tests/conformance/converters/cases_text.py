"""Cases for StringConverter, ByteArrayConverter and SimpleHeaderConverter."""

from __future__ import annotations

import random
from typing import Any

from connectors.schema import DATE, TIME, TIMESTAMP
from tests.conformance.converters.cases import (
    DOUBLES,
    FLOATS,
    STRINGS,
    Spec,
    base64_text,
    containers,
    decimal_schema,
    random_schema,
    random_value,
    schemaless_values,
)
from tests.conformance.converters.spelling import double_bits, float_bits


def text_cases() -> list[Spec]:
    """Requests for StringConverter, ByteArrayConverter and SimpleHeaderConverter."""
    rng = random.Random(99)
    values: list[tuple[Spec | None, Any]] = [({"type": "string"}, text) for text in STRINGS]
    values += [({"type": "string"}, text) for text in ("\ud800x", "\ud83d\ude00")]
    values += [({"type": "double"}, double_bits(number)) for number in DOUBLES] + [
        ({"type": "float"}, float_bits(number)) for number in FLOATS
    ]
    values += [
        ({"type": "int64"}, -5),
        ({"type": "boolean"}, True),
        ({"type": "string", "optional": True}, None),
        (None, None),
    ]
    values += [(None, spec) for spec in schemaless_values(rng) if "bytes" not in str(spec)]
    values += [(schema, value) for schema, value in containers() if "bytes" not in str(schema)]
    values += [(decimal_schema(2), ["12345", 2]), (decimal_schema(-3), ["5", -3]), (decimal_schema(10), ["0", 10])]
    values += [
        ({"type": "int64", "name": TIMESTAMP, "version": 1}, millis)
        for millis in (0, 1_700_000_000_123, -1, 253402300799999)
    ]
    values += [({"type": "int32", "name": DATE, "version": 1}, days) for days in (0, 19000, -1)]
    values += [({"type": "int32", "name": TIME, "version": 1}, millis) for millis in (0, 86_399_999)]
    values += [
        ({"type": "array", "values": {"type": "int64", "name": TIMESTAMP, "version": 1}}, [0, 1_700_000_000_000])
    ]
    for _ in range(60):
        spec = random_schema(rng, 2)
        if "bytes" not in str(spec) and "default" not in str(spec):
            values.append((spec, random_value(rng, spec)))
    cases: list[Spec] = []
    for schema, value in values:
        cases += [
            {"op": "string", "config": {}, "schema": schema, "value": value},
            {"op": "header", "schema": schema, "value": value},
        ]
    for encoding in ("ISO-8859-1", "UTF-16", "US-ASCII", "UTF-16LE", "windows-1252"):
        cases += [
            {"op": "string", "config": {"converter.encoding": encoding}, "schema": {"type": "string"}, "value": text}
            for text in STRINGS
        ]
    byte_specs: list[tuple[Spec | None, Any]] = [
        ({"type": "bytes"}, base64_text(b"ab")),
        (None, ["bytes", base64_text(b"\x00")]),
        ({"type": "bytes", "optional": True}, None),
        ({"type": "string"}, "x"),
        (None, ["str", "x"]),
        (None, None),
    ]
    cases += [{"op": "bytearray", "schema": schema, "value": value} for schema, value in byte_specs]
    cases += [{"op": "header", "schema": schema, "value": value} for schema, value in byte_specs]
    return cases


HEADER_TEXTS = (
    "",
    " ",
    "null",
    "true",
    "false",
    "TRUE",
    " true ",
    "0",
    "1",
    "-1",
    "127",
    "128",
    "-129",
    "32768",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1.5",
    "1.0",
    "-0.0",
    "1e10",
    "1E400",
    "3.4028235e38",
    "1.23456789012345678901",
    "NaN",
    "Infinity",
    "0x10",
    "1_000",
    "+5",
    "007",
    ".5",
    "5.",
    "2019-08-23",
    "2019-08-23T14:34:54.346Z",
    "14:34:54.346Z",
    "2019-13-45",
    "2019-08-23T14:34:54.346+02:00",
    "[]",
    "[1,2,3]",
    "[1, 2.5]",
    "[1,300]",
    '["a","b"]',
    '[1,"a"]',
    "[1,,2]",
    "[1,",
    "[null,1]",
    "[true,false]",
    "[[1],[2]]",
    "{}",
    '{"a":1}',
    '{"a":1,"b":300}',
    '{"a":1,"b":"x"}',
    "{1:2}",
    "{a:b}",
    '{"a":}',
    '{"a":{"b":1}}',
    '{"a":[1,2]}',
    "plain text",
    '"quoted"',
    '"with \\"escaped\\" quotes"',
    '""',
    '"true"',
    '"1"',
    "a,b",
    "a:b",
    "a b c",
    "[a,b]",
    '\\"x\\"',
    '{"d":"2019-08-23"}',
    '["2019-08-23T14:34:54.346Z"]',
    "2019-08-23T14\\:34\\:54.346Z",
    "truely",
    "nullable",
    "1 2",
    "-",
    "--1",
    "ü",
    "[1,2]x",
    '{"a":1}x',
    "99999999999999999999999999",
    "0.1",
    "123456.789",
    "1e-400",
    "100000000000000000000.5",
    '"a',
    'a"',
    '{"a" : 1 , "b" : 2}',
    "[ 1 , 2 ]",
    "[1 2]",
    '{"a":null}',
    '{"a":null,"b":1}',
    '[""]',
    "12:30",
    "2020",
    "2020-01",
    "1,2",
    "tru",
    "[tru]",
    "[true]",
    "{true:false}",
    '{"x":true}',
)


def header_read_cases() -> list[Spec]:
    """Strings for SimpleHeaderConverter.toConnectHeader."""
    return [{"op": "header_read", "data": base64_text(text.encode())} for text in HEADER_TEXTS] + [
        {"op": "header_read", "data": None}
    ]
