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
from spark_jobs.spark.frames import find_twins

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


def find_wider_type(first_type: DataType, second_type: DataType) -> DataType | None:
    """The type that holds every value of both without loss, or None if no type does."""
    first_type, second_type = _to_plain_type(first_type), _to_plain_type(second_type)
    if first_type == second_type or isinstance(second_type, NullType):
        return first_type
    if isinstance(first_type, NullType):
        return second_type
    first, second = type(first_type), type(second_type)
    if first in _ORDER and second in _ORDER:
        return _ORDER[max(_ORDER.index(first), _ORDER.index(second))]()
    if isinstance(first_type, StructType) and isinstance(second_type, StructType):
        return _find_wider_struct(first_type, second_type)
    if isinstance(first_type, ArrayType) and isinstance(second_type, ArrayType):
        element = find_wider_type(first_type.elementType, second_type.elementType)
        return None if element is None else ArrayType(element, containsNull=True)
    if isinstance(first_type, MapType) and isinstance(second_type, MapType):
        key, value = (
            find_wider_type(first_type.keyType, second_type.keyType),
            find_wider_type(first_type.valueType, second_type.valueType),
        )
        return None if key is None or value is None else MapType(key, value, valueContainsNull=True)
    return _find_wider_number(first_type, second_type)


def _find_wider_number(first: DataType, second: DataType) -> DataType | None:
    exact = {ByteType, ShortType, IntegerType}
    kinds = {type(first), type(second)}
    if kinds <= {FloatType, DoubleType} or (DoubleType in kinds and kinds <= exact | {DoubleType}):
        return DoubleType()
    if FloatType in kinds and kinds <= {FloatType, ByteType, ShortType}:
        return FloatType()
    if DecimalType in kinds and kinds <= {DecimalType, *_DIGITS}:
        pairs = [
            (kind.precision, kind.scale) if isinstance(kind, DecimalType) else (_DIGITS[type(kind)], 0)
            for kind in (first, second)
        ]
        scale = max(kind[1] for kind in pairs)
        digits = max(kind[0] - kind[1] for kind in pairs)
        return DecimalType(digits + scale, scale) if digits + scale <= _MAX_DIGITS else None
    return None


def _to_plain_type(kind: DataType) -> DataType:
    return StringType() if isinstance(kind, (CharType, VarcharType)) else kind


def _find_wider_struct(first: StructType, second: StructType) -> StructType | None:
    fields: list[StructField] = []
    for field in first.fields:
        kind: DataType | None = _to_plain_type(field.dataType)
        if field.name in second.names:
            kind = find_wider_type(field.dataType, second[field.name].dataType)
        if kind is None:
            return None
        fields.append(StructField(field.name, kind, nullable=True))
    fields += [
        StructField(field.name, _to_plain_type(field.dataType), nullable=True)
        for field in second.fields
        if field.name not in first.names
    ]
    return StructType(fields)


def name_problem(table: str, kind: str, schema: StructType) -> str:
    """Why files can't hold a table by the names of its columns, and what to do; empty where they can. Pure.

    Args:
        table: its name, for the text.
        kind: the format.
        schema: the columns.
    """
    pair = find_twins(schema.names)
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


def evolve_schema(table: str, known_schema: StructType | None, new: StructType, system: Sequence[str]) -> StructType:
    """The table's schema after rows of ``new`` came: columns of ``known_schema`` first, then new ones, then ``system`` columns.

    Raises:
        Fatal: a column changed its type so that no type holds old and new values, or two differ only in case.
    """
    known_schema = known_schema if known_schema is not None else StructType([])
    fields: list[StructField] = []
    for field in known_schema.fields:
        kind = field.dataType
        if field.name in new.names:
            wider = find_wider_type(field.dataType, new[field.name].dataType)
            if wider is None:
                raise Fatal(
                    f"table {table}: column {field.name} is {field.dataType.simpleString()} in the files and "
                    f"{new[field.name].dataType.simpleString()} in new rows, and no type holds both without loss. Write to "
                    "another sink.files.path, or to a directory per table version (sink.files.partition.by=exact/...)"
                )
            kind = wider
        fields.append(StructField(field.name, kind, nullable=True))
    fields += [
        StructField(field.name, _to_plain_type(field.dataType), nullable=True)
        for field in new.fields
        if field.name not in known_schema.names
    ]
    problem = name_problem(table, "parquet", StructType(fields))
    if problem:
        raise Fatal(problem)
    own_fields = [field for field in fields if field.name not in system]
    return StructType(own_fields + [field for name in system for field in fields if field.name == name])


def follow_changes(changes: TableChanges, schema: StructType | None, where: str) -> StructType:
    """``evolve_schema`` for a table's changes; ``where``: the table's place, for messages.

    Raises:
        SchemaRefused: the files can't hold the rows.
    """
    namespace = changes.schema.namespace
    try:
        return evolve_schema(f"{namespace} ({where})", schema, changes.frame.schema, SYSTEM_COLUMNS)
    except Fatal as error:
        raise SchemaRefused(str(error), namespace) from error


def to_json(schema: StructType) -> dict[str, Any]:
    """Spark's JSON form of a schema, as the log keeps it."""
    schema_json: dict[str, Any] = schema.jsonValue()
    return schema_json


def from_json(fields: dict[str, Any]) -> StructType:
    """The schema of ``to_json``."""
    return StructType.fromJson(fields)
