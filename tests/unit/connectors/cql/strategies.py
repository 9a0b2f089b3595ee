"""Random CQL types and values of them, for hypothesis."""

import math
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from connectors.cql.types import CqlType, freeze_type
from connectors.cql.values import decimal_text, duration_text

#: Native types that every server has.
NATIVE = (
    "ascii",
    "bigint",
    "blob",
    "boolean",
    "date",
    "decimal",
    "double",
    "duration",
    "float",
    "inet",
    "int",
    "smallint",
    "text",
    "time",
    "timestamp",
    "timeuuid",
    "tinyint",
    "uuid",
    "varint",
)
_KEYS = tuple(name for name in NATIVE if name != "duration")
_NAMES = st.text("abcdefgXYZ_\"' é.", min_size=1, max_size=8)


def natives(names: tuple[str, ...] = NATIVE) -> st.SearchStrategy[CqlType]:
    return st.sampled_from(names).map(CqlType)


def _udt(name: str, fields: list[str], members: list[CqlType]) -> CqlType:
    count = min(len(fields), len(members))
    return CqlType("udt", tuple(members[:count]), keyspace="k", udt_name=name, field_names=tuple(fields[:count]))


def _containers(inner: st.SearchStrategy[CqlType]) -> st.SearchStrategy[CqlType]:
    return st.one_of(
        inner.map(lambda member: CqlType("list", (member,))),
        natives(_KEYS).map(lambda member: CqlType("set", (member,))),
        st.tuples(natives(_KEYS), inner).map(lambda pair: CqlType("map", pair)),
        st.lists(inner, min_size=1, max_size=4).map(lambda members: freeze_type(CqlType("tuple", tuple(members)))),
        st.tuples(inner, st.integers(1, 4)).map(
            lambda pair: freeze_type(CqlType("vector", (pair[0],), dimension=pair[1]))
        ),
        st.builds(
            _udt, _NAMES, st.lists(_NAMES, min_size=1, max_size=4, unique=True), st.lists(inner, min_size=1, max_size=4)
        ),
    ).flatmap(lambda kind: st.sampled_from((kind, freeze_type(kind))))


TYPES = st.recursive(natives(), _containers, max_leaves=6)


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def _decimal(parts: tuple[int, int]) -> str:
    return decimal_text(*parts)


def _duration(parts: tuple[int, int, int, bool]) -> str:
    months, days, nanos, negative = parts
    sign = -1 if negative else 1
    return duration_text(sign * months, sign * days, sign * nanos)


_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "ascii": st.text(st.characters(max_codepoint=127)),
    "text": st.text(),
    "blob": st.binary(),
    "boolean": st.booleans(),
    "tinyint": _signed(8),
    "smallint": _signed(16),
    "int": _signed(32),
    "bigint": _signed(64),
    "timestamp": _signed(64),
    "time": st.integers(0, 86_399_999_999_999),
    "date": st.integers(-(1 << 31), (1 << 31) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "uuid": st.uuids().map(str),
    "timeuuid": st.binary(min_size=16, max_size=16).map(lambda data: str(UUID(bytes=data, version=1))),
    "varint": st.integers(-(1 << 300), 1 << 300).map(str),
    "decimal": st.tuples(st.integers(-(1 << 100), 1 << 100), st.integers(-2000, 2000)).map(_decimal),
    "inet": st.one_of(
        st.ip_addresses(v=4).map(str),
        st.integers(0, (1 << 128) - 1)
        .filter(lambda number: number >> 32 != 0xFFFF)
        .map(lambda number: ":".join(f"{number >> shift & 0xFFFF:x}" for shift in range(112, -1, -16))),
    ),
    "duration": st.tuples(
        st.integers(0, 1 << 31 - 1), st.integers(0, 1 << 31 - 1), st.integers(0, (1 << 63) - 1), st.booleans()
    ).map(_duration),
}


def values(kind: CqlType) -> st.SearchStrategy[Any]:
    """Values of ``kind`` in the forms of ``connectors.cql.values``."""
    if kind.name in _SCALARS:
        return _SCALARS[kind.name]
    if kind.name in {"list", "set"}:
        return st.lists(values(kind.arguments[0]), max_size=4)
    if kind.name == "vector":
        return st.lists(values(kind.arguments[0]), min_size=kind.dimension, max_size=kind.dimension)
    if kind.name == "map":
        entry = st.fixed_dictionaries({"key": values(kind.arguments[0]), "value": values(kind.arguments[1])})
        return st.lists(entry, max_size=4)
    names = kind.field_names or tuple(f"field_{index}" for index in range(len(kind.arguments)))
    return st.fixed_dictionaries(
        {name: st.none() | values(member) for name, member in zip(names, kind.arguments, strict=True)}
    )


def same(left: Any, right: Any) -> bool:
    """Equality that tells -0.0 from 0.0 and knows NaN."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(first, second) for first, second in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    return type(left) is type(right) and bool(left == right)


def typed_values() -> st.SearchStrategy[tuple[CqlType, Any]]:
    return TYPES.flatmap(lambda kind: st.tuples(st.just(kind), values(kind)))
