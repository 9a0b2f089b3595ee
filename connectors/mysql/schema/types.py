"""The Connect schema of each column: Debezium's, by its options. Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from connectors.mysql.rows.charsets import charset_of
from connectors.mysql.schema import type_codes as codes
from connectors.schema import DATE, DECIMAL, FLOAT32, FLOAT64, INT32, TIME, TIMESTAMP, Field, Schema, Type

if TYPE_CHECKING:
    from connectors.mysql.model import MySqlColumn

DecimalMode = Literal["precise", "double", "string"]
TimeMode = Literal["adaptive_time_microseconds", "adaptive", "connect", "isostring", "microseconds", "nanoseconds"]
BigintMode = Literal["long", "precise"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]
Failures = Literal["fail", "warn", "skip"]

BITS: Final = "io.debezium.data.Bits"
ENUM: Final = "io.debezium.data.Enum"
ENUM_SET: Final = "io.debezium.data.EnumSet"
JSON: Final = "io.debezium.data.Json"
UUID: Final = "io.debezium.data.Uuid"
FLOAT_VECTOR: Final = "io.debezium.data.FloatVector"
YEAR: Final = "io.debezium.time.Year"
ZONED_TIMESTAMP: Final = "io.debezium.time.ZonedTimestamp"
GEOMETRY: Final = "io.debezium.data.geometry.Geometry"
POINT: Final = "io.debezium.data.geometry.Point"
DECIMAL_PRECISION: Final = "connect.decimal.precision"

#: Decimal digits that a double keeps.
_DOUBLE_DIGITS: Final = 15
_MILLISECOND_DIGITS: Final = 3
_DECLARED: Final = re.compile(
    r"([a-z0-9_ ]+?)\s*(?:\((.*)\))?\s*((?:unsigned|zerofill|signed|\s)*)", re.IGNORECASE | re.DOTALL
)
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)


class ValueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How values are to look; the defaults are Debezium's.

    Attributes:
        decimal_mode: ``decimal.handling.mode``.
        time_mode: ``time.precision.mode``.
        bigint_unsigned_mode: ``bigint.unsigned.handling.mode``; ``long`` wraps numbers from 2^63 on into negative ones.
        binary_mode: ``binary.handling.mode``.
        enable_time_adjuster: ``enable.time.adjuster``: years 1-69 of dates are taken as 2001-2069, 70-99 as 1970-1999.
        charset_errors: what becomes of text that its charset doesn't allow: ``strict`` makes the row a bad record, ``replace``
            puts U+FFFD (Debezium's way), or another of Python's error handlers.
        flavor: ``mariadb`` or ``mysql``: how catalogs write defaults.
        comments: ``include.schema.comments``: column comments become ``doc``.
        failures: ``event.converting.failure.handling.mode``: what becomes of a value that its mode has no form for, where the
            column is nullable: null (``warn``, ``skip``) or a bad record (``fail``). Otherwise always a bad record.
        invalid_dates: ``fail``, or ``epoch`` for 1970-01-01, for dates that are none (2023-02-31), as
            ``event.deserialization.failure.handling.mode`` has it.
    """

    decimal_mode: DecimalMode
    time_mode: TimeMode
    bigint_unsigned_mode: BigintMode
    binary_mode: BinaryMode
    enable_time_adjuster: bool
    charset_errors: str
    flavor: str
    comments: bool
    failures: Failures
    invalid_dates: Literal["fail", "epoch"]


class ColumnKind(StrEnum):
    """The kind of values in a column, whatever its storage."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    BITS = "bits"
    TEXT = "text"
    BYTES = "bytes"
    ENUM = "enum"
    SET = "set"
    YEAR = "year"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    JSON = "json"
    GEOMETRY = "geometry"
    POINT = "point"
    VECTOR = "vector"
    UUID = "uuid"
    INET4 = "inet4"
    INET6 = "inet6"


class DeclaredType(NamedTuple):
    """A declared type in parts: what Debezium calls type name, length and scale; -1: it has none."""

    name: str
    length: int = -1
    scale: int = -1


_BY_CODE: Final[dict[int, ColumnKind]] = {
    **dict.fromkeys(codes.INTEGERS, ColumnKind.INTEGER),
    codes.DECIMAL: ColumnKind.DECIMAL,
    codes.FLOAT: ColumnKind.FLOAT,
    codes.DOUBLE: ColumnKind.DOUBLE,
    codes.ENUM: ColumnKind.ENUM,
    codes.SET: ColumnKind.SET,
    codes.YEAR: ColumnKind.YEAR,
    codes.DATE: ColumnKind.DATE,
    codes.NEWDATE: ColumnKind.DATE,
    codes.TIME: ColumnKind.TIME,
    codes.TIME2: ColumnKind.TIME,
    codes.DATETIME: ColumnKind.DATETIME,
    codes.DATETIME2: ColumnKind.DATETIME,
    codes.TIMESTAMP: ColumnKind.TIMESTAMP,
    codes.TIMESTAMP2: ColumnKind.TIMESTAMP,
    codes.JSON: ColumnKind.JSON,
    codes.VECTOR: ColumnKind.VECTOR,
}
_SPECIAL: Final = {
    "UUID": ColumnKind.UUID,
    "INET4": ColumnKind.INET4,
    "INET6": ColumnKind.INET6,
    "VECTOR": ColumnKind.VECTOR,
}
#: Number of the geometry type POINT in table maps.
_POINT: Final = 1


def declared(column: MySqlColumn) -> DeclaredType:
    """The column's declared type in Debezium's terms; where the catalog did not tell it, derived from the table map."""
    if not column.declared:
        return _derive_type(column)
    declaration = _COMMENT.sub("", column.declared).strip()
    match = _DECLARED.fullmatch(declaration)
    if match is None:
        return DeclaredType(declaration.upper())
    name, arguments, suffix = match[1].upper(), match[2], " ".join(match[3].upper().split())
    if name == "ENUM":
        return DeclaredType(name, 1)
    if name == "SET":
        return DeclaredType(name, max(0, 2 * len(column.members) - 1))
    if name in {"DEC", "FIXED"}:
        name = "DECIMAL"
    numbers = [int(part) for part in (arguments or "").split(",") if part.strip().isdigit()]
    full = f"{name} {suffix}".strip()
    if name in ("DECIMAL", "NUMERIC"):
        return DeclaredType(full, numbers[0] if numbers else 10, numbers[1] if len(numbers) > 1 else 0)
    if name == "BIT" and not numbers:
        return DeclaredType(full, 1)
    return DeclaredType(full, numbers[0] if numbers else -1, numbers[1] if len(numbers) > 1 else -1)


def _derive_type(column: MySqlColumn) -> DeclaredType:
    """See ``declared``: from the table map alone."""
    name, suffix = codes.type_name(column.type).removesuffix(" (old)"), " UNSIGNED" if column.unsigned else ""
    kind = kind_of(column)
    if kind is ColumnKind.DECIMAL:
        return DeclaredType(name + suffix, *codes.split_decimal(column.meta))
    if kind in (ColumnKind.INTEGER, ColumnKind.FLOAT, ColumnKind.DOUBLE):
        return DeclaredType(name + suffix)
    if kind in (ColumnKind.BOOLEAN, ColumnKind.BITS):
        return DeclaredType(name, column.meta)
    if kind is ColumnKind.ENUM:
        return DeclaredType(name, 1)
    if kind is ColumnKind.SET:
        return DeclaredType(name, max(0, 2 * len(column.members) - 1))
    if kind in (ColumnKind.TIME, ColumnKind.DATETIME, ColumnKind.TIMESTAMP):
        return DeclaredType(name, column.meta or -1)
    if column.type in codes.BLOBS:
        size = {1: "TINY", 2: "", 3: "MEDIUM", 4: "LONG"}.get(column.meta, "")
        return DeclaredType(size + ("BLOB" if kind is ColumnKind.BYTES else "TEXT"))
    if kind is ColumnKind.BYTES:
        return DeclaredType("BINARY" if column.type == codes.STRING else "VARBINARY", column.meta)
    if kind is ColumnKind.TEXT and column.collation is not None:
        return DeclaredType(name, column.meta // charset_of(column.collation).longest)
    return DeclaredType("POINT" if kind is ColumnKind.POINT else name)


def kind_of(column: MySqlColumn) -> ColumnKind:
    """Return the kind of the column's values. An unknown type is taken as bytes."""
    kind = _BY_CODE.get(column.type)
    if kind is not None:
        return kind
    if column.type == codes.BIT:
        return ColumnKind.BOOLEAN if column.meta == 1 else ColumnKind.BITS
    if column.type == codes.GEOMETRY:
        return (
            ColumnKind.POINT
            if column.geometry == _POINT or column.declared.lower().startswith("point")
            else ColumnKind.GEOMETRY
        )
    if column.declared:
        special = _SPECIAL.get(column.declared.partition("(")[0].strip().upper())
        if special is not None:
            return special
    return ColumnKind.BYTES if column.collation is None or column.collation == codes.BINARY else ColumnKind.TEXT


def fraction(column: MySqlColumn) -> int:
    """Digits after the seconds' point that a temporal column stores."""
    if column.type in (codes.TIMESTAMP2, codes.DATETIME2, codes.TIME2):
        return column.meta
    length = declared(column).length if column.declared else -1
    return max(0, length)


def double_float(column: MySqlColumn) -> bool:
    """Whether a FLOAT column is shown as FLOAT64: one with a number of decimals, as Debezium has it."""
    declaration = declared(column)
    return declaration.scale >= 0 or declaration.length > 24


def _string_schema(name: str | None = None, *parameters: tuple[str, str]) -> Schema:
    return Schema(Type.STRING, name=name, version=None if name is None else 1, parameters=parameters)


def _number_schema(physical: Type, name: str) -> Schema:
    return Schema(physical, name=name, version=1)


def _integer_schema(column: MySqlColumn, options: ValueOptions) -> Schema:
    if not column.unsigned:
        return Schema(
            {
                codes.TINY: Type.INT16,
                codes.SHORT: Type.INT16,
                codes.INT24: Type.INT32,
                codes.LONG: Type.INT32,
                codes.LONGLONG: Type.INT64,
            }[column.type]
        )
    if column.type == codes.LONGLONG and options.bigint_unsigned_mode == "precise":
        return Schema(Type.BYTES, name=DECIMAL, version=1, parameters=(("scale", "0"), (DECIMAL_PRECISION, "20")))
    return Schema(
        {
            codes.TINY: Type.INT16,
            codes.SHORT: Type.INT32,
            codes.INT24: Type.INT32,
            codes.LONG: Type.INT64,
            codes.LONGLONG: Type.INT64,
        }[column.type]
    )


def _decimal_schema(column: MySqlColumn, options: ValueOptions) -> Schema:
    if options.decimal_mode == "double":
        return Schema(Type.FLOAT64)
    if options.decimal_mode == "string":
        return Schema(Type.STRING)
    precision, scale = codes.split_decimal(column.meta)
    return Schema(
        Type.BYTES, name=DECIMAL, version=1, parameters=(("scale", str(scale)), (DECIMAL_PRECISION, str(precision)))
    )


def _date_schema(options: ValueOptions) -> Schema:
    if options.time_mode == "isostring":
        return _string_schema("io.debezium.time.IsoDate")
    return _number_schema(Type.INT32, DATE if options.time_mode == "connect" else "io.debezium.time.Date")


def _time_schema(digits: int, options: ValueOptions) -> Schema:
    mode = options.time_mode
    if mode == "isostring":
        return _string_schema("io.debezium.time.IsoTime")
    if mode == "connect":
        return _number_schema(Type.INT32, TIME)
    if mode == "nanoseconds":
        return _number_schema(Type.INT64, "io.debezium.time.NanoTime")
    if mode == "adaptive" and digits <= 3:
        return _number_schema(Type.INT32, "io.debezium.time.Time")
    return _number_schema(Type.INT64, "io.debezium.time.MicroTime")


def datetime_unit(digits: int, options: ValueOptions) -> str:
    """In what a DATETIME is counted: ``ms``, ``us``, ``ns``, or ``text``."""
    mode = options.time_mode
    if mode == "isostring":
        return "text"
    if mode == "connect":
        return "ms"
    if mode == "nanoseconds":
        return "ns"
    return "ms" if mode.startswith("adaptive") and digits <= 3 else "us"


def _datetime_schema(digits: int, options: ValueOptions) -> Schema:
    if options.time_mode == "isostring":
        return _string_schema("io.debezium.time.IsoTimestamp")
    if options.time_mode == "connect":
        return _number_schema(Type.INT64, TIMESTAMP)
    name = {"ms": "Timestamp", "us": "MicroTimestamp", "ns": "NanoTimestamp"}[datetime_unit(digits, options)]
    return _number_schema(Type.INT64, f"io.debezium.time.{name}")


def keeps_values(column: MySqlColumn, options: ValueOptions) -> bool:
    """Whether different values of a column are different in events, too."""
    match kind_of(column):
        case ColumnKind.DECIMAL:
            return options.decimal_mode != "double" or codes.split_decimal(column.meta)[0] <= _DOUBLE_DIGITS
        case ColumnKind.DATETIME | ColumnKind.TIME:
            return options.time_mode != "connect" or fraction(column) <= _MILLISECOND_DIGITS
    return True


_GEOMETRY_SCHEMA: Final = Schema(
    Type.STRUCT,
    optional=True,
    name=GEOMETRY,
    version=1,
    doc="Geometry",
    fields=(Field("wkb", Schema(Type.BYTES)), Field("srid", Schema(Type.INT32, optional=True))),
)
_POINT_SCHEMA: Final = Schema(
    Type.STRUCT,
    name=POINT,
    version=1,
    doc="Geometry (POINT)",
    fields=(
        Field("x", FLOAT64),
        Field("y", FLOAT64),
        Field("wkb", Schema(Type.BYTES, optional=True)),
        Field("srid", Schema(Type.INT32, optional=True)),
    ),
)
_FIXED: Final[dict[ColumnKind, Schema]] = {
    ColumnKind.DOUBLE: FLOAT64,
    ColumnKind.BOOLEAN: Schema(Type.BOOLEAN),
    ColumnKind.TEXT: _string_schema(),
    ColumnKind.YEAR: _number_schema(INT32.type, YEAR),
    ColumnKind.TIMESTAMP: _string_schema(ZONED_TIMESTAMP),
    ColumnKind.JSON: _string_schema(JSON),
    ColumnKind.UUID: _string_schema(UUID),
    ColumnKind.INET4: _string_schema(),
    ColumnKind.INET6: _string_schema(),
    ColumnKind.GEOMETRY: _GEOMETRY_SCHEMA,
    ColumnKind.POINT: _POINT_SCHEMA,
    ColumnKind.VECTOR: Schema(Type.ARRAY, name=FLOAT_VECTOR, version=1, value_schema=FLOAT32),
}


def allowed_members(column: MySqlColumn) -> str:
    """The members of an ENUM or SET as Debezium's parameter ``allowed_members`` has them: a comma in one has a backslash."""
    return ",".join(member.replace(",", "\\,") for member in column.members)


def base_schema(column: MySqlColumn, options: ValueOptions) -> Schema:
    """The schema without what all columns have (optional, default, comment)."""
    kind = kind_of(column)
    match kind:
        case ColumnKind.INTEGER:
            return _integer_schema(column, options)
        case ColumnKind.DECIMAL:
            return _decimal_schema(column, options)
        case ColumnKind.FLOAT:
            return FLOAT64 if double_float(column) else FLOAT32
        case ColumnKind.BITS:
            return Schema(Type.BYTES, name=BITS, version=1, parameters=(("length", str(column.meta)),))
        case ColumnKind.BYTES:
            return Schema(Type.BYTES if options.binary_mode == "bytes" else Type.STRING)
        case ColumnKind.ENUM:
            return _string_schema(ENUM, ("allowed", allowed_members(column)))
        case ColumnKind.SET:
            return _string_schema(ENUM_SET, ("allowed", allowed_members(column)))
        case ColumnKind.DATE:
            return _date_schema(options)
        case ColumnKind.TIME:
            return _time_schema(fraction(column), options)
        case ColumnKind.DATETIME:
            return _datetime_schema(fraction(column), options)
    return _FIXED[kind]
