"""Columns of ClickHouse's tables for columns of the source, and whether those of a table that exists fit. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import DataType

    from spark_jobs.contract import TableSchema
    from spark_jobs.sinks.clickhouse.config import ClickHouseSettings

_PLAIN: Final[Mapping[str, str]] = {
    "byte": "Int8",
    "short": "Int16",
    "integer": "Int32",
    "long": "Int64",
    "float": "Float32",
    "double": "Float64",
    "boolean": "Bool",
    "date": "Date32",
    "timestamp": "DateTime64(6, 'UTC')",
    "timestamp_ntz": "DateTime64(6, 'UTC')",
}
_VERSION: Final = {"ums_id_": "Int64", "ums_ts_": "DateTime64(6, 'UTC')", "ums_op_": "LowCardinality(String)"}
_DELETED: Final = "ums_deleted_"
_ACTIVE: Final = "ums_active_"
SOURCE_TABLE: Final = "source_table_"
#: Of a history, the position in Kafka, by which the engine knows a repeated row; the number is within the record, of which
#: steps may make rows of several tables.
POSITION: Final = {
    "kafka_topic_": "LowCardinality(String)",
    "kafka_partition_": "Int32",
    "kafka_offset_": "Int64",
    "kafka_number_": "Int32",
    SOURCE_TABLE: "LowCardinality(String)",
}
_WRAPPED: Final = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)\Z")
#: Each type holds all values of those before it.
_LADDERS: Final = (("Int8", "Int16", "Int32", "Int64"), ("Float32", "Float64"))
#: Beginnings of the types that have parts.
NESTED: Final = ("Array(", "Map(", "Tuple(")
_NUMBERS: Final = ("Int", "UInt", "Float", "Decimal", "String")
_TIMES: Final = ("Date", "DateTime", "String")
_DATES: Final = ("Date", "Date32")
#: Fractions -> whole numbers all of which they hold.
_EXACT_IN: Final = {"Float32": ("Int8", "Int16"), "Float64": ("Int8", "Int16", "Int32")}
#: Digits of whole numbers.
_DIGITS: Final = {"Int8": 3, "Int16": 5, "Int32": 10, "Int64": 19}
#: Whatever divides the text of a type into parts; names and strings are skipped as a whole.
_BOUNDARIES: Final = re.compile(r"`(?:\\.|[^`\\])*`|'(?:\\.|[^'\\])*'|[(),]", re.DOTALL)
_MEMBER: Final = re.compile(r"(`(?:\\.|[^`\\])*`|\w+) (.*)\Z", re.DOTALL)
#: Beginnings of the types that a table may have where the sink would choose one with the beginning on the left. Left out are
#: those that would change values without an error; ``limits`` knows the single values of which the others do that.
_SUITABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "Int": (*_NUMBERS, "Bool", "Date", "DateTime"),
    "Float": ("Float", "String"),
    "Decimal": _NUMBERS,
    "Bool": ("Bool", "UInt", "Int", "String"),
    "Date": _TIMES,
    "String": ("String", "FixedString", "Enum", "UUID", "IPv", "JSON", "Object", "Variant", "Dynamic"),
    "Array": ("Array",),
    "Map": ("Map", "JSON"),
    "Tuple": ("Tuple", "JSON", "Nested"),
}


@dataclass(frozen=True, slots=True)
class ClickHouseColumn:
    """A column that a table has: its type, whether it belongs to the sorting key, and the word for how it is computed."""

    type: str
    in_key: bool
    computed: str = ""


def quote_name(name: str) -> str:
    """A name as ClickHouse's SQL takes it."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_string(value: str) -> str:
    """A string as ClickHouse's SQL takes it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def system_columns(chosen: ClickHouseSettings) -> dict[str, str]:
    """The columns that follow a table's own -> types."""
    if chosen.append:
        return {**_VERSION, "ums_uid_": "String", **POSITION}
    return {**_VERSION, (_ACTIVE if chosen.soft else _DELETED): "UInt8"}


def columns_of(schema: TableSchema, keys: Sequence[str], chosen: ClickHouseSettings) -> dict[str, str]:
    """The columns of a table -> types. Those of a key that is upserted have no null, others may."""
    filled = () if chosen.append else keys
    columns = {column.name: type_of(column.type, nullable=column.name not in filled) for column in schema.columns}
    return {**columns, **system_columns(chosen)}


def type_of(kind: DataType, *, nullable: bool = True) -> str:
    """ClickHouse's type for one of Spark's. Arrays, maps and structs can't be null there."""
    match kind.typeName():
        case "array":
            return f"Array({type_of(kind.elementType)})"  # type: ignore[attr-defined]
        case "map":
            key = type_of(kind.keyType, nullable=False)  # type: ignore[attr-defined]
            return f"Map({key}, {type_of(kind.valueType)})"  # type: ignore[attr-defined]
        case "struct":
            parts = kind.fields  # type: ignore[attr-defined]
            return f"Tuple({', '.join(f'{quote_name(part.name)} {type_of(part.dataType)}' for part in parts)})"
        case "decimal":
            name = f"Decimal({kind.precision}, {kind.scale})"  # type: ignore[attr-defined]
        case other:
            name = _PLAIN.get(other, "String")
    return f"Nullable({name})" if nullable else name


def engine_of(chosen: ClickHouseSettings, keys: Sequence[str]) -> str:
    """The engine and the sorting key of a table that the sink creates."""
    if chosen.append:
        version, order = "", tuple(POSITION)
    else:
        version, order = "ums_id_" if chosen.soft else f"ums_id_, {_DELETED}", tuple(keys)
    return f"ReplacingMergeTree({version}) ORDER BY ({', '.join(map(quote_name, order))})"


def engine_problem(
    chosen: ClickHouseSettings, keys: Sequence[str], engine: str, present: Mapping[str, ClickHouseColumn]
) -> str:
    """Why rows can't be written into a table with that engine as the mode says; empty where they can.

    Args:
        chosen: the sink's settings.
        keys: the columns of the rows' key.
        engine: ``engine_full`` of the table.
        present: its columns.
    """
    name = engine.partition("(")[0].split()[0]
    if not name.endswith("MergeTree") or (chosen.append and not chosen.exactly_once):
        return ""  # a table of another kind (Distributed, Null) hands rows on: only the user knows to what
    order = [column for column, there in present.items() if there.in_key]
    if chosen.append:
        if name.endswith("ReplacingMergeTree") and set(order) >= set(POSITION):
            return ""
        return (
            f"its engine is {engine}, and guarantee=exactly-once needs ReplacingMergeTree ORDER BY ({', '.join(POSITION)}): "
            "it would keep rows of a repeated batch twice, or take two changes for one"
        )
    arguments = [part.strip(" `") for part in engine.partition("(")[2].partition(")")[0].split(",")]
    version = ["ums_id_"] if chosen.soft else ["ums_id_", _DELETED]
    if not name.endswith("ReplacingMergeTree") or arguments[-len(version) :] != version:
        engine_name = engine.partition(" ORDER")[0]
        return f"its engine is {engine_name}, and upserts need ReplacingMergeTree({', '.join(version)})"
    if set(order) != set(keys):
        return (
            f"its sorting key is ({', '.join(order)}), and the key of the rows is ({', '.join(keys)}), so that the engine "
            "would not know which rows are one"
        )
    return ""


def join_types(needed: str, present: str) -> str:
    """The type of a column that holds the values of two types; ``present`` where it stays as it is.

    ClickHouse cuts digits, times and large numbers that a column has no room for, without an error.
    """
    new, old = strip_type(needed), strip_type(present)
    joined = _join_plain(new, old) or _join_nested(new, old)
    return needed.replace(new, joined, 1) if joined else present


def _join_plain(new: str, old: str) -> str:
    """The larger type of two that have no parts; empty: the old one stays."""
    if any(new in ladder and old in ladder and ladder.index(new) > ladder.index(old) for ladder in _LADDERS):
        return new
    if old in _DATES and new.startswith("DateTime"):
        return new
    if old in _EXACT_IN.get(new, ()):
        return new
    if not new.startswith("Decimal(") or not old.startswith(("Decimal(", *_DIGITS)):
        return ""
    digits = (_DIGITS[old], 0) if old in _DIGITS else _split_digits(old)
    before, after = map(max, _split_digits(new), digits)
    return "" if (before, after) == digits and old not in _DIGITS else f"Decimal({before + after}, {after})"


def _join_nested(new: str, old: str) -> str:
    """The larger one of two arrays, maps or named tuples; empty: the old one stays."""
    outer = new.partition("(")[0]
    if outer not in ("Array", "Map", "Tuple") or not old.startswith(f"{outer}("):
        return ""
    new_parts, old_parts = (split_parts(kind[len(outer) + 1 : -1]) for kind in (new, old))
    if outer == "Tuple":
        here, there = name_parts(new_parts), name_parts(old_parts)
        if not here or not there:
            return ""
        joined = {name: join_types(here[name], kind) if name in here else kind for name, kind in there.items()}
        joined |= {name: kind for name, kind in here.items() if name not in there}
        members = ", ".join(f"{quote_name(name)} {kind}" for name, kind in joined.items())
        return "" if joined == there else f"Tuple({members})"
    parts = [join_types(*pair) for pair in zip(new_parts, old_parts, strict=True)]
    return "" if parts == old_parts else f"{outer}({', '.join(parts)})"


def split_parts(inner: str) -> list[str]:
    """The parts of a type, between its outermost commas."""
    parts, start, depth = [], 0, 0
    for match in _BOUNDARIES.finditer(inner):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if match[0] == "," and not depth:
            parts.append(inner[start : match.start()].strip())
            start = match.end()
    return [*parts, inner[start:].strip()]


def name_parts(parts: Sequence[str]) -> dict[str, str]:
    """The members of a tuple by their names; none where it has no names."""
    members = {}
    for part in parts:
        match = _MEMBER.match(part)
        if match is None:
            return {}
        members[re.sub(r"\\(.)", r"\1", match[1].strip("`")) if match[1].startswith("`") else match[1]] = match[2]
    return members


def can_hold(needed: str, present: str) -> bool:
    """Whether a column of the type ``present`` takes values of the type ``needed``."""
    new, old = strip_type(needed), strip_type(present)
    if new == old:
        return True
    if not any(new.startswith(begin) and old.startswith(types) for begin, types in _SUITABLE.items()):
        return False
    if new.startswith("Decimal("):
        return not (_split_digits(new)[1] and old.startswith(("Int", "UInt")))
    outer = new.partition("(")[0]
    if outer not in ("Array", "Map", "Tuple") or not old.startswith(f"{outer}("):
        return True
    new_parts, old_parts = (split_parts(kind[len(outer) + 1 : -1]) for kind in (new, old))
    if outer == "Tuple":
        here, there = name_parts(new_parts), name_parts(old_parts)
        new_parts = list(here.values())
        old_parts = [there.get(name, "") for name in here] if there else old_parts
    return len(new_parts) == len(old_parts) and all(map(can_hold, new_parts, old_parts))


def strip_type(kind: str) -> str:
    """A type without what makes it nullable or stores it otherwise."""
    while match := _WRAPPED.match(kind):
        kind = match[1]
    return kind


def _split_digits(decimal: str) -> tuple[int, int]:
    """Digits before and after the point."""
    precision, scale = (int(number) for number in decimal[len("Decimal(") : -1].split(","))
    return precision - scale, scale
