"""How a table's schema grows: new columns, wider types; anything else is refused. No I/O, no session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    CharType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from connectors.errors import Fatal
from spark_jobs.contract import SYSTEM_COLUMNS, SchemaRefused
from spark_jobs.frames import twins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableChanges

#: Decimal digits that hold every value of an integral type.
_DIGITS: Final[dict[type[DataType], int]] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_ORDER: Final = (ByteType, ShortType, IntegerType, LongType)
_MAX_DIGITS: Final = 38
#: Names that formats can hold, where that is not every name. Source: Avro's specification; Delta's error for others.
_ALLOWED: Final = {
    "avro": re.compile("[A-Za-z_][A-Za-z0-9_]*"),
    "delta": re.compile(r"[^ ,;{}()\n\t=]*"),
    "orc": re.compile(r"[^`]*", re.DOTALL),  # its reader takes a column with a backtick for a missing one
}


def widen(one: DataType, other: DataType) -> DataType | None:
    """The type that holds every value of both without loss, or None where there is none."""
    one, other = _plain(one), _plain(other)
    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    first, second = type(one), type(other)
    if first in _ORDER and second in _ORDER:
        return _ORDER[max(_ORDER.index(first), _ORDER.index(second))]()
    if isinstance(one, StructType) and isinstance(other, StructType):
        return _structs(one, other)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        element = widen(one.elementType, other.elementType)
        return None if element is None else ArrayType(element, containsNull=True)
    if isinstance(one, MapType) and isinstance(other, MapType):
        key, value = widen(one.keyType, other.keyType), widen(one.valueType, other.valueType)
        return None if key is None or value is None else MapType(key, value, valueContainsNull=True)
    return _numbers(one, other)


def _numbers(one: DataType, other: DataType) -> DataType | None:
    exact = {ByteType, ShortType, IntegerType}
    kinds = {type(one), type(other)}
    if kinds <= {FloatType, DoubleType} or (DoubleType in kinds and kinds <= exact | {DoubleType}):
        return DoubleType()
    if FloatType in kinds and kinds <= {FloatType, ByteType, ShortType}:
        return FloatType()
    if DecimalType in kinds and kinds <= {DecimalType, *_DIGITS}:
        pairs = [
            (each.precision, each.scale) if isinstance(each, DecimalType) else (_DIGITS[type(each)], 0)
            for each in (one, other)
        ]
        scale = max(each[1] for each in pairs)
        digits = max(each[0] - each[1] for each in pairs)
        return DecimalType(digits + scale, scale) if digits + scale <= _MAX_DIGITS else None
    return None


def _plain(kind: DataType) -> DataType:
    return StringType() if isinstance(kind, (CharType, VarcharType)) else kind


def _structs(one: StructType, other: StructType) -> StructType | None:
    fields: list[StructField] = []
    for field in one.fields:
        kind: DataType | None = _plain(field.dataType)
        if field.name in other.names:
            kind = widen(field.dataType, other[field.name].dataType)
        if kind is None:
            return None
        fields.append(StructField(field.name, kind, nullable=True))
    fields += [
        StructField(field.name, _plain(field.dataType), nullable=True)
        for field in other.fields
        if field.name not in one.names
    ]
    return StructType(fields)


def name_problem(table: str, kind: str, schema: StructType) -> str:
    """Why files can't hold a table by the names of its columns, and what to do; empty where they can. Pure.

    Args:
        table: its name, for the text.
        kind: the format.
        schema: the columns.
    """
    pair = twins(schema.names)
    if pair is not None:
        return (
            f"table {table}: columns {pair[0]} and {pair[1]} differ only in upper and lower case, which files can't hold: "
            "rename or drop one in the source, or rename it on its way (transform ReplaceField)"
        )
    allowed = _ALLOWED.get(kind)
    for field in schema.fields:
        if allowed is not None and not allowed.fullmatch(field.name):
            return (
                f"table {table} has a column {field.name!r}, and files of {kind} can't hold that name: rename it in the "
                "source or on its way (transform ReplaceField), or write another sink.files.format"
            )
        for inner in _structs_in(field.dataType):
            problem = name_problem(f"{table}, column {field.name}", kind, inner)
            if problem:
                return problem
    return ""


def _structs_in(kind: DataType) -> list[StructType]:
    """The structs of a type that are in no other struct."""
    if isinstance(kind, StructType):
        return [kind]
    if isinstance(kind, ArrayType):
        return _structs_in(kind.elementType)
    return [*_structs_in(kind.keyType), *_structs_in(kind.valueType)] if isinstance(kind, MapType) else []


def evolve(table: str, known: StructType | None, new: StructType, system: Sequence[str]) -> StructType:
    """The table's schema after rows of ``new`` came: columns of ``known`` first, then new ones, then ``system`` columns.

    Raises:
        Fatal: a column changed its type so that no type holds old and new values, or two differ only in case.
    """
    known = known if known is not None else StructType([])
    fields: list[StructField] = []
    for field in known.fields:
        kind = field.dataType
        if field.name in new.names:
            wider = widen(field.dataType, new[field.name].dataType)
            if wider is None:
                raise Fatal(
                    f"table {table}: column {field.name} is {field.dataType.simpleString()} in the files and "
                    f"{new[field.name].dataType.simpleString()} in new rows, and no type holds both without loss. Write to "
                    "another sink.files.path, or to a directory per table version (sink.files.partition.by=exact/...)"
                )
            kind = wider
        fields.append(StructField(field.name, kind, nullable=True))
    fields += [
        StructField(field.name, _plain(field.dataType), nullable=True)
        for field in new.fields
        if field.name not in known.names
    ]
    problem = name_problem(table, "parquet", StructType(fields))
    if problem:
        raise Fatal(problem)
    own = [field for field in fields if field.name not in system]
    return StructType(own + [field for name in system for field in fields if field.name == name])


def followed(changes: TableChanges, schema: StructType | None, where: str) -> StructType:
    """``evolve`` for a table's changes; ``where``: the table's place, for messages.

    Raises:
        SchemaRefused: the files can't hold the rows.
    """
    namespace = changes.schema.namespace
    try:
        return evolve(f"{namespace} ({where})", schema, changes.frame.schema, SYSTEM_COLUMNS)
    except Fatal as error:
        raise SchemaRefused(str(error), namespace) from error


def to_json(schema: StructType) -> dict[str, Any]:
    """Spark's JSON form of a schema, as the log keeps it."""
    found: dict[str, Any] = schema.jsonValue()
    return found


def from_json(fields: dict[str, Any]) -> StructType:
    """The schema of ``to_json``."""
    return StructType.fromJson(fields)
