"""Random CQL types, and values of them in the forms of ``connectors.cql.values``, with their literals. From a seed."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.types import CqlType, freeze_type, quote_name
from spark_jobs.materializer.engine.keys import order_encoder

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

#: Few values of each native type, so that writes meet; the ends of its range and what orders or prints unusually.
POOL: Final[dict[str, list[Any]]] = {
    "ascii": ["a", "asc", "b'q", "~"],
    "bigint": [0, -1, 7, -(1 << 63), (1 << 63) - 1],
    "blob": [b"", b"\x00", b"\xff\x00", b"abc"],
    "boolean": [True, False],
    "date": [0, -1, 19_000, -(1 << 31), (1 << 31) - 1],
    "decimal": ["0", "-1.2E-7", "1E+3", "1.10", "123456789012345678901234567890.5"],
    "double": [0.0, -0.0, 1.5, -1e300, math.inf, -math.inf, math.nan],
    "duration": ["1y2mo25d5h6m7s8ms9us10ns", "-5s", "90000d", ""],
    "float": [0.0, -0.0, 2.25, -0.1, math.inf, math.nan],
    "inet": ["127.0.0.1", "10.0.0.1", "2001:db8:0:0:0:0:0:1", "255.255.255.255"],
    "int": [0, 1, -1, -(1 << 31), (1 << 31) - 1],
    "smallint": [0, -1, 32767, -32768],
    "text": ["", "a", "b", "hé 漢字 '😀'", "longer " * 5],
    "time": [0, 1, 86_399_999_999_999],
    "timestamp": [0, -1, 1_700_000_000_123, -2_177_452_800_000],
    "timeuuid": [
        "50554d6e-29bb-11e5-b345-feff819cdc9f",
        "50554d6e-29bb-11e5-7345-feff819cdc9f",
        "00000000-0000-1000-8080-808080808080",
        "ffffffff-ffff-1fff-bf7f-7f7f7f7f7f7f",
    ],
    "tinyint": [0, -128, 127],
    "uuid": [
        "50554d6e-29bb-11e5-b345-feff819cdc9f",
        "50554d6e-29bb-41e5-b345-feff819cdc9f",
        "f0554d6e-29bb-41e5-b345-feff819cdc9f",
        "00000000-0000-0000-0000-000000000000",
    ],
    "varint": ["0", "-1", "255", "-123456789012345678901234567890", str(1 << 200)],
}
#: Names that Avro, SQL or generated code can't take as they are. None begins outside of ASCII: of such a column Cassandra 5.0
#: does not log that a collection is overwritten.
ODD_NAMES: Final = (
    "Mixed",
    "a b",
    "xä",
    'q"q',
    "it's",
    "select",
    "{x}",
    "a.b",
    "_x61",
    "%s",
    "values",
    "$0",
    "x漢",
    "A-1",
)
_UNFIT_FOR_KEYS: Final = frozenset({"duration"})


def draw_type(
    chance: random.Random, udts: Sequence[CqlType] = (), *, key: bool = False, depth: int = 3, vectors: bool = True
) -> CqlType:
    """A type; ``key``: it may be in a primary key, a set, or be the key of a map, so it is frozen and has no duration."""
    kind = _draw(chance, list(udts), key=key, depth=depth, vectors=vectors)
    return freeze_type(kind) if key or chance.random() < 0.4 else kind


def _draw(chance: random.Random, udts: list[CqlType], *, key: bool, depth: int, vectors: bool) -> CqlType:
    natives = [name for name in POOL if not (key and name in _UNFIT_FOR_KEYS)]
    usable = [udt for udt in udts if not (key and _has_duration(udt))]
    shape = chance.random() if depth else 0.0
    if shape < (0.75 if key else 0.45):
        return CqlType(chance.choice(natives))

    def member(*, as_key: bool = key) -> CqlType:
        return freeze_type(_draw(chance, udts, key=as_key, depth=depth - 1, vectors=vectors))

    shapes = ["list", "set", "map", "tuple", *(["udt"] * 2 if usable else []), *(["vector"] if vectors else [])]
    match chance.choice(shapes):
        case "list":
            return CqlType("list", (member(),))
        case "set":
            return CqlType("set", (member(as_key=True),))
        case "map":
            return CqlType("map", (member(as_key=True), member()))
        case "tuple":
            return freeze_type(CqlType("tuple", tuple(member() for _ in range(chance.randint(1, 3)))))
        case "vector":
            return freeze_type(CqlType("vector", (member(),), dimension=chance.randint(1, 3)))
        case _:
            return chance.choice(usable)


def _has_duration(kind: CqlType) -> bool:
    return kind.name == "duration" or any(map(_has_duration, kind.arguments))


def draw_value(chance: random.Random, kind: CqlType) -> Any:
    """A value, not null."""
    if kind.name in POOL:
        return chance.choice(POOL[kind.name])
    if kind.name == "list":
        return [draw_value(chance, kind.arguments[0]) for _ in range(chance.choice([0, 1, 1, 2, 3]))]
    if kind.name == "vector":
        return [draw_value(chance, kind.arguments[0]) for _ in range(kind.dimension)]
    if kind.name in {"set", "map"}:
        # As servers keep them; a client may send them in any order.
        order = order_encoder(kind.arguments[0])
        keys = {
            order(key): key
            for key in (draw_value(chance, kind.arguments[0]) for _ in range(chance.choice([0, 1, 1, 2, 3])))
        }
        if kind.name == "set":
            return [key for _, key in sorted(keys.items(), key=itemgetter(0))]
        return [
            {"key": key, "value": draw_value(chance, kind.arguments[1])}
            for _, key in sorted(keys.items(), key=itemgetter(0))
        ]
    names = kind.field_names or [f"field_{index}" for index in range(len(kind.arguments))]
    return {
        name: None if chance.random() < 0.25 else draw_value(chance, member)
        for name, member in zip(names, kind.arguments, strict=True)
    }


def literal(kind: CqlType, value: Any) -> str:
    """A value as CQL text."""
    if value is None:
        return "null"
    match kind.name:
        case "list" | "vector":
            return f"[{', '.join(literal(kind.arguments[0], item) for item in value)}]"
        case "set":
            return f"{{{', '.join(literal(kind.arguments[0], item) for item in value)}}}"
        case "map":
            key, content = kind.arguments
            return "{" + ", ".join(f"{literal(key, e['key'])}: {literal(content, e['value'])}" for e in value) + "}"
        case "tuple":
            return "(" + ", ".join(map(literal, kind.arguments, value.values())) + ")"
        case "udt":
            fields = zip(kind.field_names, kind.arguments, strict=True)
            return (
                "{" + ", ".join(f"{quote_name(name)}: {literal(part, value.get(name))}" for name, part in fields) + "}"
            )
    return _scalar_literal(kind.name, value)


def _scalar_literal(name: str, value: Any) -> str:
    match name:
        case "ascii" | "text" | "inet":
            return "'" + str(value).replace("'", "''") + "'"
        case "blob":
            return "0x" + bytes(value).hex()
        case "duration":
            return str(value or "0s")
        case "date":
            return str(value + (1 << 31))
        case "boolean":
            return str(value).lower()
        case "float" | "double":
            return repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    return str(value)
