"""Random Connect schemas with values that match them."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from connectors.schema import DECIMAL, Field, Schema, Type, date, decimal, time, timestamp

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_BITS = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}
_KEYS = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.STRING, Type.BOOLEAN)


def _scalar(draw: st.DrawFn, *, optional: bool) -> Schema:
    kind = draw(st.sampled_from([*[*Type][:9], "decimal", "date", "time", "timestamp"]))
    match kind:
        case "decimal":
            return decimal(draw(st.integers(0, 6)), optional=optional)
        case "date":
            return date(optional=optional)
        case "time":
            return time(optional=optional)
        case "timestamp":
            return timestamp(optional=optional)
    return Schema(Type(kind), optional=optional)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, *, named: bool = False) -> Schema:
    """A schema; with ``named`` every struct and map has a name of its own, as Avro needs."""
    numbers = itertools.count()

    def name() -> str | None:
        return f"com.example.T{next(numbers)}" if named else draw(st.none() | NAMES)

    def draw_schema(left: int) -> Schema:
        optional = draw(st.booleans())
        kind = draw(st.sampled_from(["scalar", "scalar", "array", "map", "struct"] if left else ["scalar"]))
        if kind == "array":
            return Schema(Type.ARRAY, optional=optional, value_schema=draw_schema(left - 1))
        if kind == "map":
            keys = Schema(draw(st.sampled_from(_KEYS)))
            return Schema(Type.MAP, optional=optional, name=name(), key_schema=keys, value_schema=draw_schema(left - 1))
        if kind == "struct":
            members = draw(st.lists(NAMES, max_size=5, unique=True))
            struct_name = name()
            fields = tuple(Field(field_name, draw_schema(left - 1)) for field_name in members)
            return Schema(Type.STRUCT, optional=optional, name=struct_name, fields=fields)
        return _scalar(draw, optional=optional)

    return draw_schema(depth)


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """Values that match ``schema``; finite numbers only, float32 rounded to what it can hold."""
    present = _present(schema)
    return st.none() | present if schema.optional else present


def _present(schema: Schema) -> st.SearchStrategy[Any]:
    kind = schema.type
    if schema.name == DECIMAL:
        scale = int(schema.parameter("scale") or 0)
        return st.integers(-(10**20), 10**20).map(lambda number: Decimal(number).scaleb(-scale))
    if kind in _BITS:
        return st.integers(-(1 << _BITS[kind]), (1 << _BITS[kind]) - 1)
    if kind is Type.STRUCT:
        return st.fixed_dictionaries({member.name: values(member.schema) for member in schema.fields})
    if kind is Type.ARRAY:
        assert schema.value_schema is not None
        return st.lists(values(schema.value_schema), max_size=4)
    if kind is Type.MAP:
        assert schema.value_schema is not None
        assert schema.key_schema is not None
        return st.dictionaries(values(schema.key_schema), values(schema.value_schema), max_size=4)
    simple: dict[Type, st.SearchStrategy[Any]] = {
        Type.STRING: TEXT,
        Type.BOOLEAN: st.booleans(),
        Type.BYTES: st.binary(max_size=12),
        Type.FLOAT64: st.floats(allow_nan=False, allow_infinity=False),
        Type.FLOAT32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    }
    return simple[kind]


@st.composite
def cases(draw: st.DrawFn, *, named: bool = False) -> tuple[Schema, Any]:
    """A schema with a value of it."""
    schema = draw(schemas(named=named))
    return schema, draw(values(schema))
