"""Declared defaults as Connect default values, and what stands for a value that is missing where it must not. Pure."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from connectors.mysql import geometry
from connectors.mysql import type_codes as codes
from connectors.mysql import types_temporal as temporal
from connectors.mysql.model import MARIADB
from connectors.mysql.type_values import binary_value, decimal_value, wrap
from connectors.mysql.types import Kind, datetime_unit, fraction, kind_of

if TYPE_CHECKING:
    from connectors.mysql.model import Column
    from connectors.mysql.types import ValueOptions

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


def literal(column: Column, flavor: str) -> str | None:
    """The default's text without quotes; None: there is none, it is NULL, or an expression that only the server can compute.

    MariaDB writes literals with quotes and expressions without; MySQL writes literals bare and marks expressions in ``extra``.
    The present time is 1970-01-01, as Debezium has it.
    """
    text = column.default
    if text is None or "GENERATED" in column.extra.upper().replace("DEFAULT_GENERATED", ""):
        return None
    if kind_of(column) in (Kind.DATETIME, Kind.TIMESTAMP, Kind.DATE, Kind.TIME) and _NOW.fullmatch(text):
        return _EPOCH
    if flavor != MARIADB:
        return _mysql_literal(column, text)
    if text.upper() == "NULL":
        return None
    bare = _INTRODUCER.sub("", text, count=1)
    if len(bare) > 1 and bare[0] == "'" and bare[-1] == "'":
        return unquote(bare)
    return _bits_or_number(bare)


def _mysql_literal(column: Column, text: str) -> str | None:
    """See ``literal``, as MySQL's catalog writes it."""
    if "DEFAULT_GENERATED" not in column.extra.upper():
        kind = kind_of(column)
        bare = kind in (Kind.BITS, Kind.BOOLEAN) or (kind is Kind.BYTES and _HEX_LITERAL.fullmatch(text) is not None)
        return _bits_or_number(text) if bare else text
    return None


def _bits_or_number(text: str) -> str | None:
    """A bare literal, with bits as ones and zeros; None for anything else."""
    bits = _BIT_LITERAL.fullmatch(text)
    if bits is not None:
        return bits[1]
    digits = _HEX_LITERAL.fullmatch(text)
    if digits is not None:
        return bytes.fromhex(digits[1] or digits[2]).decode("utf-8", "surrogateescape")
    if text.lower() in ("true", "false"):
        return "1" if text.lower() == "true" else "0"
    return text if _NUMBER.fullmatch(text) else None


def unquote(text: str) -> str:
    """The contents of an SQL string literal with single quotes."""
    parts: list[str] = []
    characters = iter(text[1:-1])
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


def default_value(column: Column, options: ValueOptions) -> Any:
    """The default of the column's field in the form of its values, or None.

    A default that can't be shown (a date that is none, text for a number) is left out, as Debezium does.
    """
    text = literal(column, options.flavor)
    if text is None:
        return None
    try:
        return _convert(column, text, options)
    except (ValueError, ArithmeticError, InvalidOperation):
        return None


def _convert(column: Column, text: str, options: ValueOptions) -> Any:
    """See ``default_value``."""
    kind = kind_of(column)
    match kind:
        case Kind.INTEGER:
            number = int(Decimal(text.strip()).to_integral_value(ROUND_HALF_UP))
            if column.unsigned and column.type == codes.LONGLONG:
                return Decimal(number) if options.bigint_unsigned_mode == "precise" else wrap(number)
            return number
        case Kind.DECIMAL:
            scale = codes.split_decimal(column.meta)[1]
            exact = Decimal(text.strip()).quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, _EXACT)
            return decimal_value(options.decimal_mode)(exact)
        case Kind.FLOAT | Kind.DOUBLE:
            return float(text.strip())
        case Kind.BOOLEAN:
            return bool(int(text.strip() or "0", 2))
        case Kind.BITS:
            return int(text.strip() or "0", 2).to_bytes((column.meta + 7) // 8, "little")
        case Kind.YEAR:
            return _year(int(text.strip()))
        case Kind.BYTES:
            stored = text.encode("utf-8", "surrogateescape")
            fixed = column.type == codes.STRING
            return binary_value(options.binary_mode)(stored.ljust(column.meta, b"\0") if fixed else stored)
        case Kind.DATE | Kind.DATETIME | Kind.TIMESTAMP:
            return _moment(column, kind, text.strip(), options)
        case Kind.TIME:
            text = text.strip().rpartition(" ")[2]
            return temporal.time_value(options.time_mode, fraction(column))(temporal.text_micros(text.encode()))
        case Kind.TEXT | Kind.ENUM | Kind.SET | Kind.UUID | Kind.INET4 | Kind.INET6 | Kind.JSON:
            return text
    return None


def _year(number: int) -> int:
    """A YEAR's number: two digits are of 1970 to 2069, as Debezium takes them."""
    if number > 99:
        return number
    return number + (2000 if number <= 69 else 1900)


def _moment(column: Column, kind: Kind, text: str, options: ValueOptions) -> Any:
    """The default of a DATE, DATETIME or TIMESTAMP."""
    if _ZERO_DATE.fullmatch(text) or (kind is Kind.TIMESTAMP and text == _EPOCH):
        if column.nullable:
            return None
        if kind is Kind.TIMESTAMP:
            return temporal.zoned(0, 0, 0)  # without a fraction, as in Debezium, whatever the column has
        text = _EPOCH
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    days = temporal.days_since_epoch(
        year, month, day, adjust=options.enable_time_adjuster and kind is not Kind.TIMESTAMP, lenient=False
    )
    if days is None:
        return None
    micros = int((match[7] or "").ljust(6, "0")[:6] or 0)
    if kind is Kind.DATE:
        return temporal.iso_date(days) + "Z" if options.time_mode == "isostring" else days
    clock = hour * 3600 + minute * 60 + second
    digits = fraction(column)
    if kind is Kind.TIMESTAMP:
        return temporal.zoned(days * temporal.DAY_SECONDS + clock, micros // 10 ** (6 - digits), digits)
    unit = datetime_unit(digits, options)
    if unit == "text":
        return f"{temporal.iso_date(days)}T{temporal.clock_text(hour << 12 | minute << 6 | second, micros)}"
    factor = temporal.unit_factor(unit)
    return (days * temporal.DAY_SECONDS + clock) * factor + micros * factor // 1_000_000


def missing_value(column: Column, options: ValueOptions) -> Any:
    """What a zero date, or a null that must not be, becomes: null where allowed, else the default, else a zero value."""
    if column.nullable:
        return None
    default = default_value(column, options)
    if default is not None:
        return default
    kind = kind_of(column)
    if kind is Kind.DATE:
        return "1970-01-01Z" if options.time_mode == "isostring" else 0
    if kind is Kind.DATETIME:
        return "1970-01-01T00:00:00Z" if options.time_mode == "isostring" else 0
    if kind in (Kind.GEOMETRY, Kind.POINT):
        return geometry.missing(is_point=kind is Kind.POINT)
    return "{}" if kind is Kind.JSON else 0
