"""Decoding of cells: bytes as the servers send and store them to Python values, one compiled function per type.

===========================  ====================================================================================
CQL type                     Python value
===========================  ====================================================================================
ascii text varchar           ``str``
int bigint smallint tinyint  ``int``
counter                      ``int``
boolean                      ``bool``
float double                 ``float``
blob, custom                 ``bytes``
date                         ``int``, days since 1970-01-01 (proleptic Gregorian), may be negative
time                         ``int``, nanoseconds of the day
timestamp                    ``int``, milliseconds since the epoch
uuid timeuuid                ``str``, canonical, lower case
varint                       ``str``, decimal digits
decimal                      ``str``, as ``BigDecimal.toString`` prints it
inet                         ``str``, as ``InetAddress.getHostAddress`` prints it (nothing is compressed)
duration                     ``str``, as the Java drivers print it: ``1y2mo25d5h6m7s8ms9us10ns``
list set vector              ``list``
map                          ``list`` of ``{"key": k, "value": v}``
udt                          ``dict`` by field name; fields that the stored value does not have yet are None
tuple                        ``{"field_0": ..., "field_1": ...}``
===========================  ====================================================================================

A null is None. Zero bytes are the empty value of text, ascii, blob and custom types, a collection without elements, a UDT or
tuple of nulls, and None for all others (they have no empty value that Python could show).
"""

from __future__ import annotations

import socket
import struct
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.types import CqlType, to_text
from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Callable


class BadCell:
    """The placeholder in a row for a cell that could not be decoded; the rest of the row is good.

    Attributes:
        raw: the cell's bytes.
        error: what is wrong with them.
    """

    __slots__ = ("error", "raw")

    def __init__(self, raw: bytes, error: Exception) -> None:
        self.raw = raw
        self.error = error

    def __repr__(self) -> str:
        return f"BadCell({len(self.raw)} bytes: {self.error})"


class BadValue(ValueError):
    """A cell's bytes are not a value of its type; the message says of which type and why."""


def _fixed_decoder(layout: str) -> Callable[[bytes], Any]:
    shape = struct.Struct(layout)
    unpack, size = shape.unpack, shape.size

    def decode(data: bytes) -> Any:
        if len(data) != size:
            if not data:
                return None
            raise BadValue(f"{len(data)} bytes where the type has {size}")
        return unpack(data)[0]

    return decode


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8")


def _decode_ascii(data: bytes) -> str:
    return data.decode("ascii")


def _keep_bytes(data: bytes) -> bytes:
    return data


def _decode_boolean(data: bytes) -> bool | None:
    return data != b"\x00" if data else None


def _decode_date(data: bytes) -> int | None:
    if len(data) != _INT:
        if not data:
            return None
        raise BadValue(f"{len(data)} bytes where a date has 4")
    return int.from_bytes(data, "big") - 0x80000000


def _decode_uuid(data: bytes) -> str | None:
    if len(data) != _UUID:
        if not data:
            return None
        raise BadValue(f"{len(data)} bytes where a UUID has 16")
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def format_digits(number: int) -> str:
    """``number`` in decimal; unlike ``str`` without a limit on its length."""
    # str() refuses numbers of more than 4,300 digits by default; Decimal converts any, and faster.
    return str(number) if -_SHORT < number < _SHORT else str(Decimal(number))


def _decode_varint(data: bytes) -> str | None:
    return format_digits(int.from_bytes(data, "big", signed=True)) if data else None


def decimal_text(unscaled: int, scale: int) -> str:
    """``unscaled * 10**-scale`` as ``BigDecimal.toString`` prints it."""
    unscaled_digits = format_digits(unscaled)
    if scale == 0:
        return unscaled_digits
    sign = ""
    if unscaled_digits[0] == "-":
        sign, unscaled_digits = "-", unscaled_digits[1:]
    exponent = len(unscaled_digits) - 1 - scale
    if scale > 0 and exponent >= -6:
        if scale >= len(unscaled_digits):
            return f"{sign}0.{unscaled_digits.rjust(scale, '0')}"
        return f"{sign}{unscaled_digits[:-scale]}.{unscaled_digits[-scale:]}"
    fraction = f".{unscaled_digits[1:]}" if len(unscaled_digits) > 1 else ""
    return (
        f"{sign}{unscaled_digits[0]}{fraction}E{exponent:+d}" if exponent else f"{sign}{unscaled_digits[0]}{fraction}"
    )


def _decode_decimal(data: bytes) -> str | None:
    if len(data) <= _INT:
        if not data:
            return None
        raise BadValue(f"{len(data)} bytes are too few for a decimal")
    return decimal_text(int.from_bytes(data[4:], "big", signed=True), _unpack_int(data)[0])


def _decode_inet(data: bytes) -> str | None:
    if len(data) == _INT:
        return socket.inet_ntoa(data)
    if len(data) != _UUID:
        if not data:
            return None
        raise BadValue(f"{len(data)} bytes where an address has 4 or 16")
    if data.startswith(_MAPPED):
        # Java makes an IPv4 address of such bytes.
        return socket.inet_ntoa(data[12:])
    return ":".join([format(group, "x") for group in _unpack_groups(data)])


def read_vint(data: bytes, position: int) -> tuple[int, int]:
    """The signed variable-length integer at ``position`` and the position after it."""
    value, position = read_unsigned_vint(data, position)
    return value >> 1 ^ -(value & 1), position


def read_unsigned_vint(data: bytes, position: int) -> tuple[int, int]:
    """The unsigned variable-length integer at ``position`` and the position after it.

    The number of leading one bits of the first byte is the number of bytes that follow it.

    Raises:
        BadValue: the bytes end before it does.
    """
    if position >= len(data):
        raise BadValue("the bytes end where a number should begin")
    first = data[position]
    if first < 0x80:
        return first, position + 1
    extra = 8 - (~first & 0xFF).bit_length()
    end = position + 1 + extra
    if end > len(data):
        raise BadValue("the bytes end inside a number")
    return (first & 0xFF >> extra) << 8 * extra | int.from_bytes(data[position + 1 : end], "big"), end


_UNITS: Final = (
    (3_600_000_000_000, "h"),
    (60_000_000_000, "m"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
    (1, "ns"),
)


def duration_text(months: int, days: int, nanoseconds: int) -> str:
    """A duration as the Java drivers print it; no weeks; empty for a duration of nothing."""
    parts = ["-"] if months < 0 or days < 0 or nanoseconds < 0 else []
    years, remainder = divmod(abs(months), 12)
    parts += [f"{number}{unit}" for number, unit in ((years, "y"), (remainder, "mo"), (abs(days), "d")) if number]
    remainder = abs(nanoseconds)
    for size, unit in _UNITS:
        number, remainder = divmod(remainder, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)


def _decode_duration(data: bytes) -> str | None:
    if not data:
        return None
    months, position = read_vint(data, 0)
    days, position = read_vint(data, position)
    nanoseconds, position = read_vint(data, position)
    if position != len(data):
        raise BadValue(f"{len(data) - position} bytes follow a complete duration")
    return duration_text(months, days, nanoseconds)


def _decode_empty(data: bytes) -> None:
    if data:
        raise BadValue(f"{len(data)} bytes where the type has none")


_INT: Final = 4
_UUID: Final = 16
_SHORT: Final = 1 << 4096
_MAPPED: Final = bytes(10) + b"\xff\xff"
_unpack_int = struct.Struct(">i").unpack_from
_unpack_uuid: Any = struct.Struct(">IHHQ").unpack
_unpack_groups = struct.Struct(">8H").unpack

_SCALARS: Final[dict[str, Callable[[bytes], Any]]] = {
    "ascii": _decode_ascii,
    "text": _decode_text,
    "varchar": _decode_text,
    "blob": _keep_bytes,
    "custom": _keep_bytes,
    "raw": _keep_bytes,
    "boolean": _decode_boolean,
    "tinyint": _fixed_decoder(">b"),
    "smallint": _fixed_decoder(">h"),
    "int": _fixed_decoder(">i"),
    "bigint": _fixed_decoder(">q"),
    "counter": _fixed_decoder(">q"),
    "timestamp": _fixed_decoder(">q"),
    "time": _fixed_decoder(">q"),
    "float": _fixed_decoder(">f"),
    "double": _fixed_decoder(">d"),
    "date": _decode_date,
    "uuid": _decode_uuid,
    "timeuuid": _decode_uuid,
    "varint": _decode_varint,
    "decimal": _decode_decimal,
    "inet": _decode_inet,
    "duration": _decode_duration,
    "empty": _decode_empty,
}

#: Lengths of values of fixed width: what decides how a vector of them is stored. (To Cassandra ``smallint``, ``tinyint``,
#: ``date`` and ``time`` are of variable width.)
FIXED_WIDTH: Final = {
    "boolean": 1,
    "int": 4,
    "float": 4,
    "bigint": 8,
    "double": 8,
    "timestamp": 8,
    "uuid": 16,
    "timeuuid": 16,
}
_ARRAY_LETTERS: Final = {"int": "i", "float": "f", "bigint": "q", "double": "d", "timestamp": "q"}


@lru_cache(maxsize=10_000)
def make_decoder(kind: CqlType) -> Callable[[bytes], Any]:
    """The function from a cell's bytes to its value, compiled once per type.

    It raises ``ValueError`` or ``struct.error`` for bytes that are no value of the type. A null cell must not be passed in.

    Raises:
        Fatal: there is no such type.
    """
    scalar = _SCALARS.get(kind.name)
    if scalar is not None:
        return scalar
    build = _BUILDERS.get(kind.name)
    if build is None:
        raise Fatal(
            f"values of the CQL type {to_text(kind)!r} can't be decoded: the type is not known to this version; "
            "leave the column out, or write to the project"
        )
    return build(kind)


def _check_element(start: int, size: int, data: bytes) -> int:
    end = start + size
    if size < 0 or end > len(data):
        raise BadValue(f"an element of {size} bytes at {start} in a value of {len(data)}")
    return end


def _check_end(position: int, data: bytes) -> None:
    # Lengths only ever move the position on, so that one look at the end finds an element that reached beyond it.
    if position != len(data):
        raise BadValue(f"elements of {position} bytes in a value of {len(data)}")


def _sequence_decoder(kind: CqlType) -> Callable[[bytes], Any]:
    item = make_decoder(kind.arguments[0])

    def decode(data: bytes) -> list[Any]:
        if not data:
            return []
        count, position = _unpack_int(data)[0], 4
        result: list[Any] = []
        append = result.append
        for _ in range(count):
            start = position + 4
            size = _unpack_int(data, position)[0]
            if size < 0:
                append(None)
                position = start
                continue
            position = start + size
            append(item(data[start:position]))
        _check_end(position, data)
        return result

    return decode


def _pairs_decoder(
    key: Callable[[bytes], Any], value: Callable[[bytes], Any]
) -> Callable[[bytes], list[tuple[Any, Any]]]:
    def decode(data: bytes) -> list[tuple[Any, Any]]:
        if not data:
            return []
        count, position = _unpack_int(data)[0], 4
        result: list[tuple[Any, Any]] = []
        append = result.append
        for _ in range(count):
            start = position + 4
            size = _unpack_int(data, position)[0]
            middle = start if size < 0 else start + size
            name = None if size < 0 else key(data[start:middle])
            start = middle + 4
            size = _unpack_int(data, middle)[0]
            position = start if size < 0 else start + size
            append((name, None if size < 0 else value(data[start:position])))
        _check_end(position, data)
        return result

    return decode


def _map_decoder(kind: CqlType) -> Callable[[bytes], Any]:
    pairs = _pairs_decoder(make_decoder(kind.arguments[0]), make_decoder(kind.arguments[1]))

    def decode(data: bytes) -> list[dict[str, Any]]:
        return [{"key": key, "value": value} for key, value in pairs(data)]

    return decode


def timeuuid_order(value: bytes) -> int:
    """A number that orders time uuids as the servers do: by their time, then by their second half as signed bytes."""
    parts: tuple[int, int, int, int] = _unpack_uuid(value)
    low, middle, high, tail = parts
    return (high & 0x0FFF) << 112 | middle << 96 | low << 64 | tail ^ 0x8080808080808080


def _timed_list(kind: CqlType) -> Callable[[bytes], Any]:
    pairs = _pairs_decoder(_keep_bytes, make_decoder(kind.arguments[0]))

    def order(pair: tuple[bytes, Any]) -> int:
        return timeuuid_order(pair[0])

    def decode(data: bytes) -> list[tuple[bytes, Any]]:
        result = pairs(data)
        for name, _ in result:
            if len(name) != _UUID:
                raise BadValue(f"a list element's name has {len(name)} bytes, not 16")
        if len(result) > 1:
            # Servers send it in order; who wrote the log by other means may not have sorted it.
            result.sort(key=order)
        return result

    return decode


def _struct_decoder(names: tuple[str, ...], kinds: tuple[CqlType, ...]) -> Callable[[bytes], Any]:
    members = tuple(zip(names, (make_decoder(member) for member in kinds), strict=True))

    def decode(data: bytes) -> dict[str, Any]:
        result: dict[str, Any] = {}
        position, length = 0, len(data)
        for name, member in members:
            # At the end: written before the type got this field.
            size = _unpack_int(data, position)[0] if position < length else -1
            start = position + 4
            if size < 0:
                result[name] = None
                position = start
                continue
            position = start + size
            if position > length:
                raise BadValue(f"a field of {size} bytes at {start} in a value of {length}")
            result[name] = member(data[start:position])
        # Bytes that follow belong to fields that the type got after this definition was read.
        return result

    return decode


def _tuple_decoder(kind: CqlType) -> Callable[[bytes], Any]:
    return _struct_decoder(tuple(f"field_{index}" for index in range(len(kind.arguments))), kind.arguments)


def _udt_decoder(kind: CqlType) -> Callable[[bytes], Any]:
    return _struct_decoder(kind.field_names, kind.arguments)


def fixed_width(kind: CqlType) -> int | None:
    """How many bytes every value of ``kind`` has, or None if they differ."""
    if kind.name == "vector":
        width = fixed_width(kind.arguments[0])
        return None if width is None else width * kind.dimension
    return FIXED_WIDTH.get(kind.name)


def _vector_decoder(kind: CqlType) -> Callable[[bytes], Any]:
    element, dimension = kind.arguments[0], kind.dimension
    item, width = make_decoder(element), fixed_width(element)
    if width is None:
        return _variable_vector(item, dimension)
    total = width * dimension
    unpack = (
        struct.Struct(f">{dimension}{_ARRAY_LETTERS[element.name]}").unpack if element.name in _ARRAY_LETTERS else None
    )

    def decode(data: bytes) -> list[Any] | None:
        if len(data) != total:
            if not data:
                return None
            raise BadValue(f"{len(data)} bytes where the vector has {total}")
        if unpack is not None:
            return list(unpack(data))
        return [item(data[start : start + width]) for start in range(0, total, width)]

    return decode


def _variable_vector(item: Callable[[bytes], Any], dimension: int) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> list[Any] | None:
        if not data:
            return None
        result, position = [], 0
        for _ in range(dimension):
            size, position = read_unsigned_vint(data, position)
            end = _check_element(position, size, data)
            result.append(item(data[position:end]))
            position = end
        if position != len(data):
            raise BadValue(f"{len(data) - position} bytes follow a complete vector")
        return result

    return decode


_BUILDERS: Final[dict[str, Callable[[CqlType], Callable[[bytes], Any]]]] = {
    "list": _sequence_decoder,
    "set": _sequence_decoder,
    "map": _map_decoder,
    "tuple": _tuple_decoder,
    "udt": _udt_decoder,
    "vector": _vector_decoder,
    "timed_list": _timed_list,
}
