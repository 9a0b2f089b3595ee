"""Python values to cells, by CQL type; collections taken apart and put together at the level of bytes. Pure.

A value may have Python's own type (`datetime`, `Decimal`, `UUID`, `ipaddress`) or the form in which Millrace shows it (date as
days, timestamp as milliseconds, time as nanoseconds, uuid, decimal, inet and duration as text, a map as a list of key and
value, a tuple as `field_0` ...), which reaches values that Python's types do not have.
"""

import datetime as dt
import ipaddress
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from connectors.cql.types import CqlType
from connectors.cql.values import fixed_width

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)
_DURATION = re.compile(r"(\d+)(mo|ms|us|µs|ns|y|w|d|h|m|s)", re.IGNORECASE)
_MONTHS = {"y": 12, "mo": 1}
_DAYS = {"w": 7, "d": 1}
_NANOS = {
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1000,
    "µs": 1000,
    "ns": 1,
}


def encode_varint(value: int) -> bytes:
    """Two's complement in as few bytes as Java's BigInteger takes."""
    size = ((value if value >= 0 else ~value).bit_length() + 8) // 8
    return value.to_bytes(size, "big", signed=True)


def _encode_decimal(value: Any) -> bytes:
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is no decimal number")  # noqa: TRY004  # NaN and the infinities
    unscaled = int("".join(map(str, digits)) or "0")
    return struct.pack(">i", -exponent) + encode_varint(-unscaled if sign else unscaled)


def _encode_date(value: Any) -> bytes:
    if isinstance(value, str):
        value = dt.date.fromisoformat(value)
    days = value if isinstance(value, int) else value.toordinal() - _EPOCH.toordinal()
    return struct.pack(">I", days + (1 << 31))


def _encode_time(value: Any) -> bytes:
    if isinstance(value, dt.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        value = seconds * 1_000_000_000 + value.microsecond * 1000
    elif isinstance(value, str):
        clock, _, fraction = value.partition(".")
        hours, minutes, seconds = (int(part) for part in clock.split(":"))
        value = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + int(fraction.ljust(9, "0") or "0")
    return struct.pack(">q", value)


def _encode_timestamp(value: Any) -> bytes:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if isinstance(value, dt.datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH
        value = value // _MILLISECOND
    return struct.pack(">q", value)


def _encode_uuid(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, uuid.UUID) else uuid.UUID(value)).bytes


def _encode_unsigned(value: int) -> bytes:
    """An unsigned number of one to nine bytes; the leading ones of the first byte count those that follow."""
    for extra in range(8):
        if value < 1 << (7 - extra + 8 * extra):
            head = (0xFF00 >> extra) & 0xFF
            return (value | head << (8 * extra)).to_bytes(extra + 1, "big")
    return b"\xff" + value.to_bytes(8, "big")


def _encode_zigzag(value: int) -> bytes:
    return _encode_unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def _encode_duration(value: Any) -> bytes:
    if isinstance(value, str):
        stripped = value.strip()
        sign = -1 if stripped.startswith("-") else 1
        months = days = nanos = 0
        for amount, unit in _DURATION.findall(stripped):
            key = unit.lower()
            months += int(amount) * _MONTHS.get(key, 0)
            days += int(amount) * _DAYS.get(key, 0)
            nanos += int(amount) * _NANOS.get(key, 0)
        value = (sign * months, sign * days, sign * nanos)
    return b"".join(map(_encode_zigzag, value))


def _integer_encoder(layout: str) -> Callable[[Any], bytes]:
    return lambda value: struct.pack(layout, value)


_SIMPLE: Mapping[str, Callable[[Any], bytes]] = {
    "ascii": lambda value: value.encode("ascii"),
    "bigint": _integer_encoder(">q"),
    "blob": bytes,
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "counter": _integer_encoder(">q"),
    "custom": bytes,
    "date": _encode_date,
    "decimal": _encode_decimal,
    "double": lambda value: struct.pack(">d", float(value)),
    "duration": _encode_duration,
    "empty": lambda _: b"",
    "float": lambda value: struct.pack(">f", float(value)),
    "inet": lambda value: ipaddress.ip_address(value).packed,
    "int": _integer_encoder(">i"),
    "smallint": _integer_encoder(">h"),
    "text": lambda value: value.encode(),
    "time": _encode_time,
    "timestamp": _encode_timestamp,
    "timeuuid": _encode_uuid,
    "tinyint": _integer_encoder(">b"),
    "uuid": _encode_uuid,
    "varchar": lambda value: value.encode(),
    "varint": lambda value: encode_varint(int(value)),
}


class Raw(bytes):
    """A cell given as its bytes, whatever its type: for empty and broken values."""


def encode_cell(kind: CqlType, value: Any) -> bytes | None:
    """The cell of a value; None for None.

    Raises:
        ValueError: The value is not one of the type; the message names both.
    """
    if value is None or isinstance(value, Raw):
        return value
    try:
        simple = _SIMPLE.get(kind.name)
        if simple is not None:
            return simple(value)
        if kind.name in {"list", "set"}:
            return join_cells([_encode_present(kind.arguments[0], item) for item in value])
        if kind.name == "map":
            key, content = kind.arguments
            return join_cells(
                [part for k, v in to_pairs(value) for part in (_encode_present(key, k), _encode_present(content, v))], 2
            )
        if kind.name == "vector":
            return _encode_vector(kind, value)
        return join_fields(
            [encode_cell(item, part) for item, part in zip(kind.arguments, to_members(kind, value), strict=False)]
        )
    except (struct.error, TypeError, ValueError, AttributeError, OverflowError, ArithmeticError) as error:
        raise ValueError(f"{value!r} is no value of the CQL type {kind.name}: {error}") from error


def to_pairs(value: Any) -> list[tuple[Any, Any]]:
    """Keys and values of a map in any of its forms."""
    if isinstance(value, Mapping):
        return list(value.items())
    return [(pair["key"], pair["value"]) if isinstance(pair, Mapping) else (pair[0], pair[1]) for pair in value]


def to_members(kind: CqlType, value: Any) -> list[Any]:
    """Fields of a tuple or UDT in any of its forms, in order."""
    if isinstance(value, Mapping):
        names = kind.field_names or tuple(f"field_{number}" for number in range(len(kind.arguments)))
        unknown = set(value) - set(names)
        if unknown:
            raise ValueError(f"it has no field {', '.join(sorted(map(str, unknown)))}")
        return [value.get(name) for name in names]
    return list(value)


def _encode_present(kind: CqlType, value: Any) -> bytes:
    cell = encode_cell(kind, value)
    if cell is None:
        raise ValueError("a collection cannot hold null")
    return cell


def _encode_vector(kind: CqlType, value: Sequence[Any]) -> bytes:
    cells = [_encode_present(kind.arguments[0], element) for element in value]
    if len(cells) != kind.dimension:
        raise ValueError(f"it has {len(cells)} elements, not {kind.dimension}")
    if fixed_width(kind.arguments[0]) is not None:
        return b"".join(cells)
    return b"".join(part for cell in cells for part in (_encode_unsigned(len(cell)), cell))


def join_cells(cells: Sequence[bytes], per_element: int = 1) -> bytes:
    """A collection from its elements' cells; for a map the keys and values in turn."""
    parts = [struct.pack(">i", len(cells) // per_element)]
    for cell in cells:
        parts += (struct.pack(">i", len(cell)), cell)
    return b"".join(parts)


def join_fields(cells: Iterable[bytes | None]) -> bytes:
    """A tuple or UDT from its fields' cells."""
    return b"".join(b"\xff\xff\xff\xff" if cell is None else struct.pack(">i", len(cell)) + cell for cell in cells)


def split_cells(data: bytes, per_element: int = 1) -> list[bytes]:
    """Elements' cells of a list or set; keys and values in turn of a map."""
    if not data:
        return []
    (count,) = struct.unpack_from(">i", data)
    return [cell or b"" for cell in split_fields(data[4:])][: count * per_element]


def split_fields(data: bytes) -> list[bytes | None]:
    """Fields' cells of a tuple or UDT; there may be fewer than it has fields."""
    cells: list[bytes | None] = []
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        cells.append(data[at : at + size] if size >= 0 else None)
        at += max(0, size)
    return cells


def sort_key(kind: CqlType) -> Callable[[bytes], Any]:
    """Return the sort key that orders cells of a clustering column as the server does."""
    if kind.name in {"int", "bigint", "smallint", "tinyint", "varint", "timestamp", "time"}:
        return lambda cell: int.from_bytes(cell, "big", signed=True)
    if kind.name in {"float", "double"}:
        return lambda cell: struct.unpack(">f" if len(cell) == 4 else ">d", cell)[0]
    if kind.name == "decimal":
        return lambda cell: Decimal(int.from_bytes(cell[4:], "big", signed=True)).scaleb(
            -struct.unpack(">i", cell[:4])[0]
        )
    if kind.name in {"timeuuid", "uuid"}:
        return _uuid_order
    return lambda cell: cell


def _uuid_order(cell: bytes) -> tuple[int, int, bytes]:
    version = cell[6] >> 4
    # Version 1 by time, its other half as signed bytes; all others as unsigned bytes.
    if version == 1:
        time = (int.from_bytes(cell[6:8], "big") & 0x0FFF) << 48 | int.from_bytes(cell[4:6], "big") << 32
        return version, time | int.from_bytes(cell[:4], "big"), bytes(byte ^ 0x80 for byte in cell[8:])
    return version, 0, cell
