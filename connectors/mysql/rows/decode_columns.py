"""How each column's stored bytes become its field's value, as fragments of Python code for ``decode_code``. Pure.

A column either has a fixed number of bytes, which one ``struct`` call unpacks with those of its neighbours, or it starts with
a length. In an expression ``$0`` and ``$1`` stand for the unpacked numbers, or ``$0`` for the bytes after the length. ``$t``
and ``$y`` are variables of the expression; ``names`` defines any other ``$f``.
"""

from __future__ import annotations

import zlib
from array import array
from decimal import Decimal
from ipaddress import IPv4Address
from struct import Struct
from sys import byteorder
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from connectors.errors import Fatal
from connectors.mysql.rows.charsets import charset_of, make_decoder
from connectors.mysql.rows.decimals import decimal_parts, decimal_size, digits_expression
from connectors.mysql.rows.geometry import read_geometry, read_point
from connectors.mysql.rows.json_binary import json_text
from connectors.mysql.rows.type_values import EXACT, binary_value, decimal_value, set_value
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema import types_temporal as temporal
from connectors.mysql.schema.types import ColumnKind, datetime_unit, fraction, kind_of
from connectors.mysql.schema.types_defaults import missing_value
from connectors.wire import unscaled_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.mysql.model import MySqlColumn
    from connectors.mysql.schema.types import ValueOptions


class ColumnCode(NamedTuple):
    """One column's code.

    Attributes:
        format: of ``struct``, little endian without the sign; of the length where ``varying``.
        size: bytes that the format takes.
        numbers: how many values the format gives.
        value: the expression of the field's value.
        varying: whether the format's number is a count of bytes that follow (of two numbers: the second times 65,536 more).
        names: the objects that the expression refers to.
    """

    format: str
    size: int
    numbers: int
    value: str
    varying: bool = False
    names: dict[str, Any] = {}  # noqa: RUF012 - never changed


_LENGTHS: Final = {1: ("B", 1), 2: ("H", 1), 3: ("HB", 2), 4: ("I", 1)}
_FORMATS: Final = {
    (codes.TINY, False): "b",
    (codes.TINY, True): "B",
    (codes.SHORT, False): "h",
    (codes.SHORT, True): "H",
    (codes.LONG, False): "i",
    (codes.LONG, True): "I",
    (codes.LONGLONG, False): "q",
    (codes.LONGLONG, True): "Q",
}
_SHORT_LENGTH: Final = 255
_INET6: Final = Struct(">8H").unpack


def make_column_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    """The code for one column.

    Raises:
        Fatal: the column's type can't be read.
    """
    kind = kind_of(column)
    make = _MAKERS.get(kind)
    if column.type in _UNREADABLE or make is None:
        raise Fatal(
            f"column {column.name} has the type {codes.type_name(column.type)}, whose values in the binlog can't be "
            "read; leave it out with column.exclude.list, or change its type"
        )
    return make(column, options)


def _integer_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    if column.type == codes.INT24:
        return ColumnCode("HB" if column.unsigned else "Hb", 3, 2, "($1 << 16) + $0")
    if column.type == codes.LONGLONG and column.unsigned:
        if options.bigint_unsigned_mode == "precise":
            return ColumnCode("Q", 8, 1, "$f($0)", names={"f": Decimal})
        return ColumnCode("q", 8, 1, "$0")
    return ColumnCode(_FORMATS[column.type, column.unsigned], codes.INTEGERS[column.type], 1, "$0")


def _decimal_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    precision, scale = codes.split_decimal(column.meta)
    size = decimal_size(precision, scale)
    # In line: a call costs as much as the rest. A negative number has all its bits inverted.
    top, full = 1 << (8 * size - 1), (1 << 8 * size) - 1
    digits = digits_expression(decimal_parts(precision, scale), "$t")
    value = f"$m({digits}, $u) if ($t := $b($0) ^ {top}) < {top} else $m(-(($t := $t ^ {full}) and {digits}), $u)"
    names: dict[str, Any] = {"m": EXACT.multiply, "u": Decimal((0, (1,), -scale)), "b": int.from_bytes}
    if options.decimal_mode != "precise":
        value, names = f"$g({value})", names | {"g": decimal_value(options.decimal_mode)}
    return ColumnCode(f"{size}s", size, 1, value, names=names)


def unscaled_decimal(column: MySqlColumn) -> ColumnCode:
    """The code for a DECIMAL as the bytes of its unscaled number (``connectors.wire.unscaled_bytes``)."""
    precision, scale = codes.split_decimal(column.meta)
    size = decimal_size(precision, scale)
    top, full = 1 << (8 * size - 1), (1 << 8 * size) - 1
    parts = decimal_parts(precision, scale)
    digits = digits_expression(parts, "$t")
    low = sum(bits for _, bits in parts[-2:])
    if len(parts) > 2:  # the leading groups are mostly 0
        digits = f"({digits_expression(parts[-2:], '$t')} if $t < {1 << low} else {digits})"
    value = (
        f"($y := {digits}).to_bytes(($y.bit_length() >> 3) + 1) if ($t := $b($0) ^ {top}) < {top} "
        f"else $n(-(($t := $t ^ {full}) and {digits}))"
    )
    return ColumnCode(f"{size}s", size, 1, value, names={"b": int.from_bytes, "n": unscaled_bytes})


def _float_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options, column
    return ColumnCode("f", 4, 1, "$0")


def _double_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options, column
    return ColumnCode("d", 8, 1, "$0")


def _boolean_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options, column
    return ColumnCode("?", 1, 1, "$0")


def _bits_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    size = (column.meta + 7) // 8
    if not size:  # a damaged TABLE_MAP: no server has such a column
        raise ValueError(f"column {column.name} is a BIT(0)")
    return ColumnCode(f"{size}s", size, 1, "$0[::-1]")


def _length_prefix(column: MySqlColumn) -> tuple[str, int, int]:
    """Format, size and numbers of a column's length."""
    if column.type in codes.BLOBS or column.type in (codes.JSON, codes.GEOMETRY, codes.VECTOR):
        size = column.meta
    else:
        size = 1 if column.meta <= _SHORT_LENGTH else 2
    form, numbers = _LENGTHS[size]
    return form, size, numbers


def text_expression(charset: str, errors: str) -> tuple[str, dict[str, Any]]:
    """The expression of a string from its bytes."""
    if charset in ("utf8mb4", "utf8mb3"):
        return ("$0.decode()" if errors == "strict" else f"$0.decode('utf-8', {errors!r})"), {}
    return "$f($0)", {"f": make_decoder(charset, errors)}


def _text_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    value, names = text_expression(charset_of(column.collation or 0).name, options.charset_errors)
    if column.type in (codes.BLOB_COMPRESSED, codes.VARCHAR_COMPRESSED):
        value, names = value.replace("$0", "$u($0)"), names | {"u": uncompress_value}
    return ColumnCode(*_length_prefix(column), value, varying=True, names=names)


def _bytes_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    value = "$0"
    names: dict[str, Any] = {}
    if column.type in (codes.BLOB_COMPRESSED, codes.VARCHAR_COMPRESSED):
        value, names = "$u($0)", {"u": uncompress_value}
    elif column.type == codes.STRING:
        # The server leaves zero bytes at the end of a BINARY away.
        value = f"$0.ljust({column.meta}, b'\\0')"
    if options.binary_mode != "bytes":
        value, names = f"$f({value})", names | {"f": binary_value(options.binary_mode)}
    return ColumnCode(*_length_prefix(column), value, varying=True, names=names)


def _enum_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    form, numbers = _LENGTHS[column.meta]
    return ColumnCode(form, column.meta, numbers, "$f[$0]", names={"f": ("", *column.members)})


def _set_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    size = column.meta
    names = {"f": set_value(column.members)}
    if size == 8:
        return ColumnCode("Q", 8, 1, "$f($0)", names=names)
    form, numbers = _LENGTHS[size]
    return ColumnCode(form, size, numbers, "$f($0)" if numbers == 1 else "$f($0 | $1 << 16)", names=names)


def _year_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options, column
    return ColumnCode("B", 1, 1, "$0 + 1900")


def _is_lenient(options: ValueOptions) -> bool:
    return options.invalid_dates == "epoch"


def or_missing(value: str, column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    """The expression, with what stands for a missing value in place of None."""
    missing = missing_value(column, options)
    if missing is None:
        return value, {}
    return f"$z if ($t := {value}) is None else $t", {"z": missing}


def _date_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    table = temporal.date_table(
        adjust=options.enable_time_adjuster,
        lenient=_is_lenient(options),
        text="Z" if options.time_mode == "isostring" else "",
    )
    value, names = or_missing("$d[$0 | $1 << 16]", column, options)
    return ColumnCode("HB", 3, 2, value, names={"d": table, **names})


def _fraction_size(digits: int) -> tuple[int, int]:
    """Bytes of a stored fraction, and microseconds of its unit."""
    size = (digits + 1) // 2
    return size, 10 ** (6 - 2 * size)


def guard_function(function: Callable[[int], Any], column: MySqlColumn, options: ValueOptions) -> Callable[[int], Any]:
    """The function, giving null for a value without a form where the column and the failure mode allow it."""
    if options.failures == "fail" or not column.nullable:
        return function

    def lenient(number: int) -> Any:
        try:
            return function(number)
        except ValueError:
            return None

    return lenient


def _time_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    digits = fraction(column)
    show = temporal.time_value(options.time_mode, digits)
    guard = guard_function(show, column, options)
    if column.type == codes.TIME:
        return _old_time(column, guard)
    size, unit = _fraction_size(digits)
    offset, shift = 0x800000 << 8 * size, 8 * size
    mask = (1 << shift) - 1
    from_bytes, packed_micros = int.from_bytes, temporal.packed_micros

    def read(stored: bytes) -> Any:
        packed = from_bytes(stored) - offset
        if packed < 0:
            packed = -packed
            return guard(-packed_micros(packed >> shift, (packed & mask) * unit))
        return guard(packed_micros(packed >> shift, (packed & mask) * unit))

    return ColumnCode(f"{3 + size}s", 3 + size, 1, "$f($0)", names={"f": read})


def _old_time(column: MySqlColumn, show: Callable[[int], Any]) -> ColumnCode:
    """A TIME in the form from before MySQL 5.6: HHMMSS as a number of three bytes."""
    _refuse_old_fraction(column)

    def read(number: int) -> Any:
        clock = abs(number)
        micros = (clock // 10000 * 3600 + clock // 100 % 100 * 60 + clock % 100) * 1_000_000
        return show(-micros if number < 0 else micros)

    return ColumnCode("Hb", 3, 2, "$f(($1 << 16) + $0)", names={"f": read})


def _refuse_old_fraction(column: MySqlColumn) -> None:
    """Refuse MariaDB's own form of fractions (before 10.1, or mysql56_temporal_format=OFF): the binlog does not show it."""
    if fraction(column):
        raise Fatal(
            f"column {column.name} ({column.declared}) is stored in MariaDB's old form of fractional seconds, of which "
            "the binlog does not tell the size: rebuild it (ALTER TABLE ... FORCE with mysql56_temporal_format=ON)"
        )


def _datetime_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    digits = fraction(column)
    unit = datetime_unit(digits, options)
    as_text = unit == "text"
    factor = 1 if as_text else temporal.unit_factor(unit)
    settings: dict[str, Any] = {
        "adjust": options.enable_time_adjuster,
        "lenient": _is_lenient(options),
        "text": "T" if as_text else "",
        "factor": temporal.DAY_SECONDS * factor,
    }
    if column.type == codes.DATETIME:
        return _old_datetime(column, options, settings, factor)
    size, micros = _fraction_size(digits)
    days, minutes, missing = (
        temporal.packed_days(**settings),
        temporal.minute_table(factor),
        missing_value(column, options),
    )
    names: dict[str, Any] = {"d": days, "m": minutes, "b": int.from_bytes, "z": missing}
    if as_text or unit == "ns":
        names["f"] = _datetime_reader(column, options, unit, days, missing)
        return ColumnCode(f"{5 + size}s", 5 + size, 1, "$f($0)", names=names)
    # packed: 1 bit of sign, 22 bits of the day, 17 of the clock, then the fraction. The top bit is always set.
    shift = 8 * size
    end = f" + ($t & {(1 << shift) - 1}) * {micros}" + ("" if unit == "us" else " // 1000") if size else ""
    second = f"($t >> {shift} & 63) * {factor}" if shift else f"($t & 63) * {factor}"
    value = (
        f"$z if ($y := $d[($t := $b($0)) >> {17 + shift} & 4194303]) is None "
        f"else $y + $m[$t >> {6 + shift} & 2047] + {second}{end}"
    )
    return ColumnCode(f"{5 + size}s", 5 + size, 1, value, names=names)


def _datetime_reader(
    column: MySqlColumn, options: ValueOptions, unit: str, days: temporal.ValueTable, missing: Any
) -> Callable[[bytes], Any]:
    """DATETIME2 as ISO text, or as nanoseconds that have to fit."""
    size, micros = _fraction_size(fraction(column))
    shift = 8 * size
    mask = (1 << shift) - 1
    fit = guard_function(temporal.in_int64, column, options)

    def read(stored: bytes) -> Any:
        packed = int.from_bytes(stored)
        day: Any = days[packed >> 17 + shift & 0x3FFFFF]
        if day is None:
            return missing
        clock, fraction_us = packed >> shift & 0x1FFFF, (packed & mask) * micros
        if unit == "text":
            return day + temporal.clock_text(clock, fraction_us)
        return fit(day + temporal.packed_micros(clock, fraction_us) * 1000)

    return read


def _old_datetime(column: MySqlColumn, options: ValueOptions, settings: dict[str, Any], factor: int) -> ColumnCode:
    """A DATETIME in the form from before MySQL 5.6: YYYYMMDDHHMMSS as a number."""
    _refuse_old_fraction(column)
    days, missing = temporal.number_days(**settings), missing_value(column, options)
    fit = guard_function(temporal.in_int64, column, options)

    def read(number: int) -> Any:
        day: Any = days[number // 1_000_000]
        if day is None:
            return missing
        hour, minute, second = number // 10000 % 100, number // 100 % 100, number % 100
        if settings["text"]:
            return day + temporal.clock_text(hour << 12 | minute << 6 | second, 0)
        moment = day + (hour * 3600 + minute * 60 + second) * factor
        return fit(moment) if factor == temporal.unit_factor("ns") else moment

    return ColumnCode("q", 8, 1, "$f($0)", names={"f": read})


def _timestamp_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    digits = fraction(column)
    names: dict[str, Any] = {
        "d": temporal.day_texts(),
        "m": temporal.MINUTE_TEXTS,
        "s": temporal.SECOND_TEXTS["." if digits else "Z"],
        "b": int.from_bytes,
    }
    if column.type == codes.TIMESTAMP:
        _refuse_old_fraction(column)
        return ColumnCode("I", 4, 1, "$d[$0 // 86400] + $m[$0 // 60 % 1440] + $s[$0 % 60]", names=names)
    size, _ = _fraction_size(digits)
    if not size:
        return ColumnCode("4s", 4, 1, "$d[($t := $b($0)) // 86400] + $m[$t // 60 % 1440] + $s[$t % 60]", names=names)
    # The stored fraction has an even number of digits; an odd column's last one is 0.
    part = f"($t & {(1 << 8 * size) - 1})" + (" // 10" if digits % 2 else "")
    if digits <= 3:
        part, names["f"] = f"$f[{part}]", temporal.fraction_texts(digits)
    else:
        part = f"'%0{digits}dZ' % ({part})"
    value = f"$d[($y := ($t := $b($0)) >> {8 * size}) // 86400] + $m[$y // 60 % 1440] + $s[$y % 60] + {part}"
    return ColumnCode(f"{4 + size}s", 4 + size, 1, value, names=names)


def _json_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    return ColumnCode(*_length_prefix(column), "$f($0)", varying=True, names={"f": json_text})


def _geometry_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    return ColumnCode(*_length_prefix(column), "$f($0)", varying=True, names={"f": read_geometry})


def _point_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    return ColumnCode(*_length_prefix(column), "$f($0)", varying=True, names={"f": read_point})


def read_vector(stored: bytes) -> list[float]:
    """The numbers of a VECTOR: single precision, little endian."""
    numbers = array("f", stored)
    if byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _vector_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    return ColumnCode(*_length_prefix(column), "$f($0)", varying=True, names={"f": read_vector})


def uuid_text(stored: bytes) -> str:
    """MariaDB's UUID: 16 bytes, at the end of which the server leaves zero bytes away."""
    return str(UUID(bytes=stored.ljust(16, b"\0")))


def _uuid_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    return ColumnCode(*_length_prefix(column), "$f($0)", varying=True, names={"f": uuid_text})


def _inet4_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    return ColumnCode(
        *_length_prefix(column),
        "$f($0)",
        varying=True,
        names={"f": lambda stored: str(IPv4Address(stored.ljust(4, b"\0")))},
    )


def inet6_text(stored: bytes) -> str:
    """An INET6 as the server writes it: without its longest run of zeros, even of one; an IPv4 address in it has points."""
    stored = stored.ljust(16, b"\0")
    words = _INET6(stored)
    first = length = run = 0
    for index, word in enumerate(words):
        run = 0 if word else run + 1
        if run > length:
            first, length = index - run + 1, run
    if first == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        return f"::{'ffff:' if words[5] else ''}{IPv4Address(stored[12:])}"
    shown = [f"{word:x}" for word in words]
    if not length:
        return ":".join(shown)
    return f"{':'.join(shown[:first])}::{':'.join(shown[first + length :])}"


def _inet6_code(column: MySqlColumn, options: ValueOptions) -> ColumnCode:
    del options
    return ColumnCode(*_length_prefix(column), "$f($0)", varying=True, names={"f": inet6_text})


def uncompress_value(stored: bytes) -> bytes:
    """The contents of a column with MariaDB's attribute COMPRESSED.

    Raises:
        ValueError: it was compressed in a way that is unknown.
    """
    if not stored:
        return stored
    head = stored[0]
    if head >> 4 == 0:
        return stored[1:]
    if head >> 4 != 8:
        raise ValueError(f"a compressed column begins with byte {head:#x}: the method is unknown")
    # Bit 3: the stream lacks zlib's own frame (column_compression_zlib_wrap=OFF).
    return zlib.decompress(stored[1 + (head & 7) :], -zlib.MAX_WBITS if head & 8 else zlib.MAX_WBITS)


#: JSON array indexes (typed arrays) never stand in tables that users see.
_UNREADABLE: Final = frozenset({codes.NULL, 20, 243, 244})
_MAKERS: Final[dict[ColumnKind, Callable[[MySqlColumn, ValueOptions], ColumnCode]]] = {
    ColumnKind.INTEGER: _integer_code,
    ColumnKind.DECIMAL: _decimal_code,
    ColumnKind.FLOAT: _float_code,
    ColumnKind.DOUBLE: _double_code,
    ColumnKind.BOOLEAN: _boolean_code,
    ColumnKind.BITS: _bits_code,
    ColumnKind.TEXT: _text_code,
    ColumnKind.BYTES: _bytes_code,
    ColumnKind.ENUM: _enum_code,
    ColumnKind.SET: _set_code,
    ColumnKind.YEAR: _year_code,
    ColumnKind.DATE: _date_code,
    ColumnKind.TIME: _time_code,
    ColumnKind.DATETIME: _datetime_code,
    ColumnKind.TIMESTAMP: _timestamp_code,
    ColumnKind.JSON: _json_code,
    ColumnKind.GEOMETRY: _geometry_code,
    ColumnKind.POINT: _point_code,
    ColumnKind.VECTOR: _vector_code,
    ColumnKind.UUID: _uuid_code,
    ColumnKind.INET4: _inet4_code,
    ColumnKind.INET6: _inet6_code,
}
