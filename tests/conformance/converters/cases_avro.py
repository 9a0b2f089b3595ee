"""Cases for AvroData."""

from __future__ import annotations

import random
from typing import Any

from connectors.schema import DATE, TIME, TIMESTAMP
from tests.conformance.converters.cases import SCALARS, Spec, base64_text, decimal_schema, random_schema, random_value
from tests.conformance.converters.spelling import double_bits


def avro_cases() -> list[Spec]:
    """Requests for AvroData: schemas with values."""
    rng = random.Random(64)
    values: list[tuple[Spec, Any]] = []
    for kind in SCALARS:
        for more in (
            {},
            {"optional": True},
            {"name": "com.example.Named"},
            {"version": 3},
            {"doc": "text"},
            {"parameters": [["a", "b"]]},
        ):
            spec: Spec = {"type": kind, **more}
            values.append((spec, random_value(rng, {**spec, "optional": False}, finite=True)))
            values.append(
                ({"type": "struct", "name": "R", "fields": [["f", spec]]}, {"f": random_value(rng, spec, finite=True)})
            )
    number, text = {"type": "int32"}, {"type": "string"}
    point: Spec = {
        "type": "struct",
        "name": "geo.Point",
        "fields": [["x", number], ["y", {**number, "optional": True}]],
    }
    values += [
        (decimal_schema(2), ["12345", 2]),
        (decimal_schema(0), ["-1", 0]),
        (decimal_schema(2, optional=True), ["12345", 2]),
        (decimal_schema(70), ["1", 70]),
        (decimal_schema(-1), ["1", -1]),
        ({**decimal_schema(3), "parameters": [["scale", "3"], ["connect.decimal.precision", "10"]]}, ["1234", 3]),
        (decimal_schema(2, default=["100", 2]), ["5", 2]),
        ({"type": "int32", "name": DATE, "version": 1}, 19000),
        ({"type": "int32", "name": TIME, "version": 1}, 5),
        ({"type": "int64", "name": TIMESTAMP, "version": 1}, 7),
        ({"type": "int64", "name": TIMESTAMP, "version": 1, "optional": True}, 7),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1}, 2**62),
        ({"type": "array", "values": point}, [{"x": 1, "y": None}, {"x": 2, "y": 3}]),
        ({"type": "array", "values": {**point, "optional": True}}, [{"x": 1}, None]),
        ({"type": "array", "values": number, "optional": True}, [1, 2]),
        ({"type": "array", "values": number}, []),
        ({"type": "map", "keys": text, "values": number}, [["a", 1]]),
        ({"type": "map", "keys": text, "values": {**number, "optional": True}}, [["a", None]]),
        ({"type": "map", "keys": number, "values": text}, [[1, "a"], [2, "b"]]),
        ({"type": "map", "keys": {**text, "optional": True}, "values": text}, [["a", "b"]]),
        ({"type": "map", "keys": number, "values": text, "name": "my.Pairs"}, [[1, "a"]]),
        ({"type": "map", "keys": number, "values": text, "optional": True}, [[1, "a"]]),
        ({"type": "struct", "fields": [["a", number], ["b", text]]}, {"a": 1, "b": "x"}),
        ({"type": "struct", "name": "Plain", "fields": [["a", number]]}, {"a": 1}),
        (
            {
                "type": "struct",
                "name": "a.b.C",
                "version": 4,
                "doc": "docs",
                "parameters": [["k", "v"]],
                "fields": [["a", number]],
            },
            {"a": 1},
        ),
        (
            {
                "type": "struct",
                "name": "Twice",
                "fields": [["p", point], ["q", {**point, "optional": True}], ["r", {"type": "array", "values": point}]],
            },
            {"p": {"x": 1}, "q": {"x": 2, "y": 5}, "r": [{"x": 3}]},
        ),
        (
            {"type": "struct", "name": "Twice", "fields": [["q", {**point, "optional": True}], ["p", point]]},
            {"p": {"x": 1}, "q": None},
        ),
        (
            {
                "type": "struct",
                "name": "Def",
                "fields": [
                    ["a", {**number, "default": 5}],
                    ["b", {**text, "default": "x", "optional": True}],
                    ["c", {"type": "int8", "default": 1}],
                    ["d", {"type": "bytes", "default": base64_text(b"\x00\xff")}],
                    ["e", {"type": "boolean", "default": False}],
                    ["f", {"type": "double", "default": double_bits(1.5)}],
                    ["g", {"type": "array", "values": number, "default": [1]}],
                ],
            },
            {"a": 1, "b": None, "c": 2, "d": base64_text(b"x"), "e": True, "f": double_bits(2.5), "g": []},
        ),
        (
            {
                "type": "struct",
                "name": "Dates",
                "fields": [["a", {"type": "int32", "name": DATE, "version": 1, "default": 7}]],
            },
            {"a": 1},
        ),
        ({**point, "optional": True}, {"x": 1}),
        ({**point, "optional": True}, None),
        ({"type": "struct", "name": "Needs", "fields": [["a", number]]}, {}),
        ({"type": "string", "name": "io.debezium.data.Enum", "version": 1, "parameters": [["allowed", "a,b"]]}, "a"),
        ({"type": "string", "parameters": [["avro.java.string", "String"]]}, "a"),
        (text, "\x00ü😀"),
    ]
    for _ in range(220):
        names: list[int] = []
        spec = random_schema(rng, 3, names=names)
        values.append((spec, random_value(rng, spec, finite=True)))
    cases: list[Spec] = []
    for number_of, (schema, value) in enumerate(values):
        cases.append({"op": "avro", "config": {}, "schema": schema, "value": value})
        if number_of % 4 == 0:
            cases.append({"op": "avro", "config": {"connect.meta.data": "false"}, "schema": schema, "value": value})
    return cases
