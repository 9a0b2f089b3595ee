"""Declared defaults as Connect default values, and what stands for a value that is missing where it must not. Pure."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from connectors.mysql.model import MARIADB
from connectors.mysql.rows import geometry
from connectors.mysql.rows.type_values import binary_value, decimal_value, wrap_unsigned
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema import types_temporal as temporal
from connectors.mysql.schema.types import ColumnKind, datetime_unit, fraction, kind_of

if TYPE_CHECKING:
    from connectors.mysql.model import MySqlColumn
    from connectors.mysql.schema.types import ValueOptions

_ZERO_DATE: Final = re.compile(r"\d{4}-\d{2}-00.*|\d{4}-00-\d{2}.*|0000-\d{2}-\d{2}.*|0", re.DOTALL)
_NOW: Final = re.compile(r"(current_timestamp|now|localtime|localtimestamp)\b.*", re.IGNORECASE | re.DOTALL)
_NUMBER: Final = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_BIT_LITERAL: Final = re.compile(r"b'([01]*)'", re.IGNORECASE)
_HEX_LITERAL: Final = re.compile(r"x'([0-9a-f]*)'|0x([0-9a-f]+)", re.IGNORECASE)
_INTRODUCER: Final = re.compile(r"_[a-z0-9]+\s*(?='|x'|0x|b')", re.IGNORECASE)
_EPOCH: Final = "1970-01-01 00:00:00"
_DATE_TIME: Final = re.compile(r"(\d+)-(\d+)-(\d+)(?:[ T](\d+):(\d+)(?::(\d+)(?:\.(\d+))?)?)?")
_EXACT: Final = Context(prec=80)
_ESCAPES: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}


def default_literal(column: MySqlColumn, flavor: str) -> str | None:
    """The default's text without quotes; None if it is missing, NULL, or an expression that only the server can compute.

    MariaDB writes literals with quotes and expressions without; MySQL writes literals bare and marks expressions in ``extra``.
    The present time is 1970-01-01, as Debezium has it.
    """
    default = column.default
    if default is None or "GENERATED" in column.extra.upper().replace("DEFAULT_GENERATED", ""):
        return None
    if kind_of(column) in (
        ColumnKind.DATETIME,
        ColumnKind.TIMESTAMP,
        ColumnKind.DATE,
        ColumnKind.TIME,
    ) and _NOW.fullmatch(default):
        return _EPOCH
    if flavor != MARIADB:
        return _mysql_literal(column, default)
    if default.upper() == "NULL":
        return None
    bare = _INTRODUCER.sub("", default, count=1)
    if len(bare) > 1 and bare[0] == "'" and bare[-1] == "'":
        return unquote_literal(bare)
    return _bits_or_number(bare)


def _mysql_literal(column: MySqlColumn, default: str) -> str | None:
    """See ``default_literal``, as MySQL's catalog writes it."""
    if "DEFAULT_GENERATED" not in column.extra.upper():
        kind = kind_of(column)
        bare = kind in (ColumnKind.BITS, ColumnKind.BOOLEAN) or (
            kind is ColumnKind.BYTES and _HEX_LITERAL.fullmatch(default) is not None
        )
        return _bits_or_number(default) if bare else default
    return None


def _bits_or_number(source: str) -> str | None:
    """A bare literal, with bits as ones and zeros; None for anything else."""
    bits = _BIT_LITERAL.fullmatch(source)
    if bits is not None:
        return bits[1]
    digits = _HEX_LITERAL.fullmatch(source)
    if digits is not None:
        return bytes.fromhex(digits[1] or digits[2]).decode("utf-8", "surrogateescape")
    if source.lower() in ("true", "false"):
        return "1" if source.lower() == "true" else "0"
    return source if _NUMBER.fullmatch(source) else None


def unquote_literal(sql: str) -> str:
    """The contents of an SQL string literal with single quotes."""
    parts: list[str] = []
    characters = iter(sql[1:-1])
    for character in characters:
        if character == "'":
            next(characters, None)
            parts.append("'")
        elif character == "\\":
            following = next(characters, "\\")
            parts.append(_ESCAPES.get(following, following))
        else:
            parts.append(character)
    return "".join(parts)


def default_value(column: MySqlColumn, options: ValueOptions) -> Any:
    """The default of the column's field in the form of its values, or None.

    A default that can't be shown (an invalid date, text for a number) is left out, as Debezium does.
    """
    default = default_literal(column, options.flavor)
    if default is None:
        return None
    try:
        return _convert_default(column, default, options)
    except (ValueError, ArithmeticError, InvalidOperation):
        return None


def _convert_default(column: MySqlColumn, default: str, options: ValueOptions) -> Any:
    """See ``default_value``."""
    kind = kind_of(column)
    match kind:
        case ColumnKind.INTEGER:
            number = int(Decimal(default.strip()).to_integral_value(ROUND_HALF_UP))
            if column.unsigned and column.type == codes.LONGLONG:
                return Decimal(number) if options.bigint_unsigned_mode == "precise" else wrap_unsigned(number)
            return number
        case ColumnKind.DECIMAL:
            scale = codes.split_decimal(column.meta)[1]
            exact = Decimal(default.strip()).quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, _EXACT)
            return decimal_value(options.decimal_mode)(exact)
        case ColumnKind.FLOAT | ColumnKind.DOUBLE:
            return float(default.strip())
        case ColumnKind.BOOLEAN:
            return bool(int(default.strip() or "0", 2))
        case ColumnKind.BITS:
            return int(default.strip() or "0", 2).to_bytes((column.meta + 7) // 8, "little")
        case ColumnKind.YEAR:
            return _read_year(int(default.strip()))
        case ColumnKind.BYTES:
            stored = default.encode("utf-8", "surrogateescape")
            fixed = column.type == codes.STRING
            return binary_value(options.binary_mode)(stored.ljust(column.meta, b"\0") if fixed else stored)
        case ColumnKind.DATE | ColumnKind.DATETIME | ColumnKind.TIMESTAMP:
            return _convert_moment(column, kind, default.strip(), options)
        case ColumnKind.TIME:
            default = default.strip().rpartition(" ")[2]
            return temporal.time_value(options.time_mode, fraction(column))(temporal.text_micros(default.encode()))
        case (
            ColumnKind.TEXT
            | ColumnKind.ENUM
            | ColumnKind.SET
            | ColumnKind.UUID
            | ColumnKind.INET4
            | ColumnKind.INET6
            | ColumnKind.JSON
        ):
            return default
    return None


def _read_year(number: int) -> int:
    """A YEAR's number: two digits are of 1970 to 2069, as Debezium takes them."""
    if number > 99:
        return number
    return number + (2000 if number <= 69 else 1900)


def _convert_moment(column: MySqlColumn, kind: ColumnKind, default: str, options: ValueOptions) -> Any:
    """The default of a DATE, DATETIME or TIMESTAMP."""
    if _ZERO_DATE.fullmatch(default) or (kind is ColumnKind.TIMESTAMP and default == _EPOCH):
        if column.nullable:
            return None
        if kind is ColumnKind.TIMESTAMP:
            return temporal.format_zoned(0, 0, 0)  # without a fraction, as in Debezium, whatever the column has
        default = _EPOCH
    match = _DATE_TIME.fullmatch(default)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    days = temporal.days_since_epoch(
        year, month, day, adjust=options.enable_time_adjuster and kind is not ColumnKind.TIMESTAMP, lenient=False
    )
    if days is None:
        return None
    micros = int((match[7] or "").ljust(6, "0")[:6] or 0)
    if kind is ColumnKind.DATE:
        return temporal.iso_date(days) + "Z" if options.time_mode == "isostring" else days
    clock = hour * 3600 + minute * 60 + second
    digits = fraction(column)
    if kind is ColumnKind.TIMESTAMP:
        return temporal.format_zoned(days * temporal.DAY_SECONDS + clock, micros // 10 ** (6 - digits), digits)
    unit = datetime_unit(digits, options)
    if unit == "text":
        return f"{temporal.iso_date(days)}T{temporal.clock_text(hour << 12 | minute << 6 | second, micros)}"
    factor = temporal.unit_factor(unit)
    return temporal.in_int64((days * temporal.DAY_SECONDS + clock) * factor + micros * factor // 1_000_000)


def missing_value(column: MySqlColumn, options: ValueOptions) -> Any:
    """Return the value for a zero date or a forbidden null: null where allowed, else the default, else a zero value."""
    if column.nullable:
        return None
    default = default_value(column, options)
    if default is not None:
        return default
    kind = kind_of(column)
    if kind is ColumnKind.DATE:
        return "1970-01-01Z" if options.time_mode == "isostring" else 0
    if kind is ColumnKind.DATETIME:
        return "1970-01-01T00:00:00Z" if options.time_mode == "isostring" else 0
    if kind in (ColumnKind.GEOMETRY, ColumnKind.POINT):
        return geometry.missing_value(is_point=kind is ColumnKind.POINT)
    return 0
