"""Types of columns: those that are made, those that hold what a source has, and how values become cells. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.encoding import make_encoder
from connectors.cql.types import CqlType, parse_type
from connectors.errors import Fatal
from spark_jobs.contract import NUMBER, TIME, UUID
from spark_jobs.sinks.shared.values import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import DataType

    from spark_jobs.contract import Column

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()
_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_TYPES: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "decimal": "decimal",
    "boolean": "boolean",
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp",
}
_MEANINGS: Final = {UUID: "uuid", NUMBER: "decimal", TIME: "time"}
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint", "varint", "decimal")
_STRINGS: Final = ("text", "varchar", "ascii")
_COLLECTIONS: Final = ("list", "set", "map")
#: Of the types whose encoders take other values, too, and change them: those that stay what they are.
_ELEMENTS: Final = {
    "float": ("float", "byte", "short"),
    "double": ("double", "float", "byte", "short", "integer"),
    "boolean": ("boolean",),
}
_TIMES: Final = ("timestamp", "timestamp_ntz")
#: Types that read strings, and refuse those without a value of theirs.
_FROM_TEXT: Final = ("uuid", "timeuuid", "inet", "duration", "decimal", "varint")
#: The columns that are written next to those of the source.
SYSTEM: Final = {
    "ums_id_": "bigint",
    "ums_ts_": "timestamp",
    "ums_op_": "text",
    "ums_uid_": "text",
    "ums_active_": "tinyint",
}


def type_of(column: Column) -> str:
    """The type with which a column is made: arrays, maps and structs are JSON, since collections here have no nulls."""
    return _MEANINGS.get(column.meaning) or _TYPES.get(column.type.typeName(), "text")


def can_hold(present: str, column: Column) -> bool:
    """Whether a column of the type ``present`` takes every value of ``column`` without loss, or refuses single ones."""
    needed, kind = type_of(column), column.type.typeName()
    try:
        cql = parse_type(present)
    except Fatal:
        return False
    name = cql.name
    if name == needed:
        return True
    if name in _STRINGS:
        return kind != "binary"
    if name in _INTEGERS and needed in _INTEGERS[:4]:
        return _INTEGERS.index(name) >= _INTEGERS.index(needed)
    if name in _COLLECTIONS:
        return _keeps_elements(cql, column.type)
    if needed == "time" or kind in _TIMES:
        return name == "bigint"
    if kind in ("string", "varchar", "char"):
        return name in _FROM_TEXT
    return (needed, name) in (("float", "double"), ("date", "timestamp"))


def _keeps_elements(cql: CqlType, kind: DataType) -> bool:
    """Whether a type takes every value of ``kind``, an element of a collection or the whole of it, as it is, or refuses it."""
    if cql.name not in _COLLECTIONS:
        return kind.typeName() in _ELEMENTS.get(cql.name, (kind.typeName(),))
    if kind.typeName() != ("map" if cql.name == "map" else "array"):
        return False
    inner = (kind.keyType, kind.valueType) if cql.name == "map" else (kind.elementType,)  # type: ignore[attr-defined]
    return all(map(_keeps_elements, cql.arguments, inner))


def cell_of(column_type: str, kind: str) -> Callable[[Any], bytes]:
    """The function from a value that is not null to a cell. It raises any exception for a value that does not fit.

    Args:
        column_type: of the column in the table.
        kind: the name of the value's type in Spark.
    """
    cql = parse_type(column_type)
    prepare, encode = _make_value_converter(cql, kind), make_encoder(cql)
    return encode if prepare is None else lambda value: encode(prepare(value))


def _make_value_converter(cql: CqlType, kind: str) -> Callable[[Any], Any] | None:
    """The function from Arrow's value to the one that the encoder takes; None: it is the same."""
    name = cql.name
    if name in _STRINGS:
        return None if kind in ("string", "varchar", "char") else text_of
    if kind in _TIMES:
        unit = _MILLISECOND if name == "timestamp" else _MICROSECOND
        return lambda value: (_to_utc(value) - _EPOCH) // unit
    if kind == "date":
        if name == "timestamp":
            return lambda value: (value.toordinal() - _FIRST_DAY) * 86_400_000
        return lambda value: value.toordinal() - _FIRST_DAY
    if name == "time":
        return _time_of_day
    if name == "decimal" and kind not in ("decimal", "string"):
        return Decimal
    if name in _COLLECTIONS:
        return _whole_collection
    return None


def _to_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def _time_of_day(value: int) -> int:
    if not 0 <= value < 86_400_000_000_000:
        raise ValueError("a time of the day is from 00:00:00 to 23:59:59.999999999")
    return value


def _whole_collection(value: Any) -> Any:
    members = [member for pair in value.items() for member in pair] if isinstance(value, dict) else value
    if any(member is None for member in members):
        raise ValueError("collections hold no nulls; a column of the type text takes the value as JSON")
    return value
