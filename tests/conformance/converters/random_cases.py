"""Random schemas with values for the converters, beyond the recorded ones: names twice, empty structs, defaults anywhere.

Floating-point numbers are such that all versions of Java print them alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.schema import DATE, TIME, TIMESTAMP
from tests.conformance.converters.cases import SCALARS, Spec, decimal_schema, random_value
from tests.conformance.converters.spelling import double_bits, float_bits

if TYPE_CHECKING:
    from random import Random

_TYPE_NAMES: Final = (
    "com.example.Thing",
    "com.example.Other",
    "a.b.c",
    "Value",
    "io.debezium.time.Timestamp",
    "a.Größe",
)
_FIELD_NAMES: Final = ("a", "b", "id", "x_y", "type", "name", "A", "_x", "field", "null", "größe", "数量", "x٣", "ª")
_KEYS: Final = ("int8", "int16", "int32", "int64", "string", "boolean")
_PARAMETERS: Final = (
    [["p", "v"]],
    [['p"q', "\u0001ü"]],
    [["allowed", "a,b"]],
    [["avro.java.string", "String"]],
    [["connect.decimal.precision", "10"]],
    [["io.confluent.connect.avro.record.doc", "text"], ["io.confluent.connect.avro.field.doc.a", "text"]],
)
_TEMPORAL: Final = {"date": ("int32", DATE), "time": ("int32", TIME), "timestamp": ("int64", TIMESTAMP)}
_FLOATS: Final = (0.0, 0.5, -1.25, 300.75, 4096.0)


def draw_schema(rng: Random, depth: int, *, key: bool = False) -> Spec:
    """A schema; with ``key`` one for the keys of a map."""
    spec = _draw_type(rng, depth, key=key)
    if "name" not in spec and rng.random() < (0.5 if spec["type"] == "struct" else 0.15):
        spec["name"] = rng.choice(_TYPE_NAMES)
    if "version" not in spec and rng.random() < 0.12:
        spec["version"] = rng.randint(1, 9)
    if "parameters" not in spec and rng.random() < 0.1:
        spec["parameters"] = rng.choice(_PARAMETERS)
    if rng.random() < 0.1:
        spec["doc"] = rng.choice(("about", 'ü"\n', ""))
    if rng.random() < 0.35:
        spec["optional"] = True
    if not key and spec["type"] != "struct" and rng.random() < 0.15:
        spec["default"] = draw_value(rng, {**spec, "optional": False})
    return spec


def _draw_type(rng: Random, depth: int, *, key: bool) -> Spec:
    kind = rng.choice(_KEYS if key else (*SCALARS, "decimal", *_TEMPORAL))
    if depth and not key and rng.random() < 0.45:
        kind = rng.choice(("array", "map", "struct", "struct", "struct"))
    match kind:
        case "decimal":
            return decimal_schema(rng.choice((0, 2, 5, 20, -2)))
        case "date" | "time" | "timestamp":
            base, name = _TEMPORAL[kind]
            return {"type": base, "name": name, "version": 1}
        case "array":
            return {"type": "array", "values": draw_schema(rng, depth - 1)}
        case "map":
            keys = {"type": "string"} if rng.random() < 0.5 else draw_schema(rng, 0, key=True)
            return {"type": "map", "keys": keys, "values": draw_schema(rng, depth - 1)}
        case "struct":
            names = rng.sample(_FIELD_NAMES, rng.randint(0, 5))
            return {"type": "struct", "fields": [[name, draw_schema(rng, depth - 1)] for name in names]}
        case _:
            return {"type": kind}


def draw_value(rng: Random, spec: Spec) -> Any:
    """A value of the schema, spelled as ``spelling`` says; fields that may be absent are left out at times."""
    if spec.get("optional") and rng.random() < 0.25:
        return None
    match spec["type"]:
        case "struct":
            return {
                name: draw_value(rng, member)
                for name, member in spec["fields"]
                if not ((member.get("optional") or "default" in member) and rng.random() < 0.2)
            }
        case "array":
            return [draw_value(rng, spec["values"]) for _ in range(rng.randint(0, 3))]
        case "map":
            keys = {**spec["keys"], "optional": False}
            pairs = [[draw_value(rng, keys), draw_value(rng, spec["values"])] for _ in range(rng.randint(0, 3))]
            return list({str(key): [key, item] for key, item in pairs}.values())
        case "float":
            return float_bits(rng.choice(_FLOATS))
        case "double":
            return double_bits(rng.choice((*_FLOATS, 1e10, 1e-5, 0.1)))
        case "string" if rng.random() < 0.2:
            return rng.choice(("A", "B", ""))
        case _:
            return random_value(rng, {**spec, "optional": False}, finite=True)


_LITERALS: Final = (
    *("5", "-1", "300", "70000", "5000000000", "99999999999999999999", "1.5", "1e3", "0.1", "1e39", "1e308", "-0.0"),
    *("true", "false", "TRUE", '"a"', '"a\\"b"', "abc", "", " ", "\\", '"', "[", "]", "{", "}", ":", ",", "+5", "0x10"),
    *("2024-02-29", "2024-02-30", "2023-11-14T22:13:20.123Z", "22:13:20.123Z", "12:34", "é😀", "1_0", "-", ".", "1."),
)


def draw_text(rng: Random, depth: int = 0) -> str:
    """A header's text: a literal, a list or a map, with a character too many at times."""
    roll = rng.random()
    if depth < 3 and roll < 0.15:
        text = f"[{','.join(draw_text(rng, depth + 1) for _ in range(rng.randint(0, 3)))}]"
    elif depth < 3 and roll < 0.3:
        entries = [f"{rng.choice(_LITERALS)}:{draw_text(rng, depth + 1)}" for _ in range(rng.randint(0, 3))]
        text = f"{{{','.join(entries)}}}"
    else:
        text = rng.choice(_LITERALS)
    if depth == 0 and rng.random() < 0.2:
        position = rng.randint(0, len(text))
        text = text[:position] + rng.choice('[]{}:,"\\ -') + text[position:]
    return text
