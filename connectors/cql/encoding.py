"""Encoding of values into the bytes of cells: for bound parameters, partition keys and tests.

Takes the forms that ``connectors.cql.values`` gives, and for uuids, inets, varints and decimals also Python's own types.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from connectors.cql.types import CqlType, to_text
from connectors.cql.values import fixed_width
from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


#: Of a varint's text with an exponent.
_MOST_ZEROS: Final = 100_000
#: Decimals have a scale of 32 bits.
_MAX_SCALE: Final = (1 << 31) - 1


class NotEncodable(ValueError):
    """A value is not one of the type it was to be encoded for."""


def _fixed_encoder(layout: str) -> Callable[[Any], bytes]:
    return struct.Struct(layout).pack


def _encode_text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _encode_boolean(value: Any) -> bytes:
    return b"\x01" if value else b"\x00"


def _encode_date(value: Any) -> bytes:
    return (int(value) + 0x80000000).to_bytes(4, "big")


def _encode_uuid(value: Any) -> bytes:
    if isinstance(value, bytes):
        if len(value) != _UUID_BYTES:
            raise NotEncodable(f"a UUID has 16 bytes, not {len(value)}")
        return value
    return value.bytes if isinstance(value, UUID) else UUID(value).bytes


def _encode_integer(value: int) -> bytes:
    # As BigInteger.toByteArray: the fewest bytes that hold the sign.
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def varint_of(value: Any) -> int:
    """A number, or its text, as the whole number that it is.

    Raises:
        NotEncodable: it has a fraction, or an exponent that would make an enormous number of a short text.
    """
    # int() refuses long strings; Decimal takes any.
    number = Decimal(value) if isinstance(value, str) else value
    if (
        isinstance(number, Decimal)
        and number.adjusted() > _MOST_ZEROS
        and int(number.as_tuple().exponent) > _MOST_ZEROS
    ):
        raise NotEncodable(f"a varint with more than {_MOST_ZEROS:,} zeros at its end")
    whole = int(number)
    if whole != number:
        raise NotEncodable("a varint has no fraction")
    return whole


def _encode_varint(value: Any) -> bytes:
    return _encode_integer(varint_of(value))


def _encode_decimal(value: Any) -> bytes:
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int) or abs(exponent) > _MAX_SCALE:
        raise NotEncodable(f"{value} is no number that a decimal can hold")
    unscaled = int(Decimal((sign, digits, 0)))
    return struct.pack(">i", -exponent) + _encode_integer(unscaled)


def _encode_inet(value: Any) -> bytes:
    return value if isinstance(value, bytes) else ipaddress.ip_address(str(value)).packed


def unsigned_vint(value: int) -> bytes:
    """``value`` as an unsigned variable-length integer (``values.read_unsigned_vint``)."""
    extra = min(8, max(0, (value.bit_length() - 1) // 7))
    if not extra:
        return bytes([value])
    prefix = 0xFF & ~(0xFF >> extra)
    data = bytearray(value.to_bytes(extra + 1, "big") if extra < 8 else b"\x00" + value.to_bytes(8, "big"))
    data[0] |= prefix
    return bytes(data)


def signed_vint(value: int) -> bytes:
    """``value`` as a signed variable-length integer of at most 64 bits."""
    return unsigned_vint((value << 1) ^ (value >> 63))


_DURATION: Final = re.compile(
    r"(-?)(?:(\d+)y)?(?:(\d+)mo)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?(?:(\d+)us)?(?:(\d+)ns)?\Z"
)


def _encode_duration(value: Any) -> bytes:
    match = _DURATION.match(value)
    if match is None:
        raise NotEncodable(f"{value!r} is no duration as 1y2mo3d4h5m6s7ms8us9ns")
    sign = -1 if match[1] else 1
    years, months, weeks, days, hours, minutes, seconds, millis, micros, nanos = (
        int(part or 0) for part in match.groups()[1:]
    )
    total = ((((hours * 60 + minutes) * 60 + seconds) * 1000 + millis) * 1000 + micros) * 1000 + nanos
    return b"".join(signed_vint(sign * number) for number in (years * 12 + months, weeks * 7 + days, total))


def _encode_bytes(value: Any) -> bytes:
    return bytes(value)


def _encode_empty(value: Any) -> bytes:
    del value
    return b""


_UUID_BYTES: Final = 16
_NULL: Final = b"\xff\xff\xff\xff"
_pack_int = struct.Struct(">i").pack
_pack_short = struct.Struct(">H").pack

_SCALARS: Final[dict[str, Callable[[Any], bytes]]] = {
    "ascii": _encode_text,
    "text": _encode_text,
    "varchar": _encode_text,
    "blob": _encode_bytes,
    "custom": _encode_bytes,
    "raw": _encode_bytes,
    "boolean": _encode_boolean,
    "tinyint": _fixed_encoder(">b"),
    "smallint": _fixed_encoder(">h"),
    "int": _fixed_encoder(">i"),
    "bigint": _fixed_encoder(">q"),
    "counter": _fixed_encoder(">q"),
    "timestamp": _fixed_encoder(">q"),
    "time": _fixed_encoder(">q"),
    "float": _fixed_encoder(">f"),
    "double": _fixed_encoder(">d"),
    "date": _encode_date,
    "uuid": _encode_uuid,
    "timeuuid": _encode_uuid,
    "varint": _encode_varint,
    "decimal": _encode_decimal,
    "inet": _encode_inet,
    "duration": _encode_duration,
    "empty": _encode_empty,
}


@lru_cache(maxsize=10_000)
def make_encoder(kind: CqlType) -> Callable[[Any], bytes]:
    """The function from a value (not None) to a cell's bytes, compiled once per type.

    It raises ``ValueError``, ``TypeError`` or ``struct.error`` for a value that is not of the type.

    Raises:
        Fatal: there is no such type.
    """
    scalar = _SCALARS.get(kind.name)
    if scalar is not None:
        return scalar
    build = _BUILDERS.get(kind.name)
    if build is None:
        raise Fatal(f"values of the CQL type {to_text(kind)!r} can't be encoded: the type is not known to this version")
    return build(kind)


def _add_size(data: bytes | None) -> bytes:
    return _NULL if data is None else _pack_int(len(data)) + data


def _sequence_encoder(kind: CqlType) -> Callable[[Any], bytes]:
    item = make_encoder(kind.arguments[0])

    def encode(value: Any) -> bytes:
        return _pack_int(len(value)) + b"".join(
            [_add_size(None if member is None else item(member)) for member in value]
        )

    return encode


def _map_encoder(kind: CqlType) -> Callable[[Any], bytes]:
    key, item = make_encoder(kind.arguments[0]), make_encoder(kind.arguments[1])

    def encode(value: Any) -> bytes:
        pairs = value.items() if isinstance(value, dict) else [(entry["key"], entry["value"]) for entry in value]
        parts = [_pack_int(len(value))]
        for name, member in pairs:
            parts += (_add_size(key(name)), _add_size(None if member is None else item(member)))
        return b"".join(parts)

    return encode


def _timed_list(kind: CqlType) -> Callable[[Any], bytes]:
    item = make_encoder(kind.arguments[0])

    def encode(value: Any) -> bytes:
        return _pack_int(len(value)) + b"".join(
            [_add_size(_encode_uuid(name)) + _add_size(item(member)) for name, member in value]
        )

    return encode


def _tuple_encoder(kind: CqlType) -> Callable[[Any], bytes]:
    members = [(f"field_{index}", make_encoder(member)) for index, member in enumerate(kind.arguments)]

    def encode(value: Any) -> bytes:
        if not isinstance(value, dict):
            value = {f"field_{index}": member for index, member in enumerate(value)}
        return b"".join([_add_size(None if value.get(name) is None else item(value[name])) for name, item in members])

    return encode


def _udt_encoder(kind: CqlType) -> Callable[[Any], bytes]:
    members = [(name, make_encoder(member)) for name, member in zip(kind.field_names, kind.arguments, strict=True)]

    def encode(value: Any) -> bytes:
        return b"".join([_add_size(None if value.get(name) is None else item(value[name])) for name, item in members])

    return encode


def _vector_encoder(kind: CqlType) -> Callable[[Any], bytes]:
    item, dimension = make_encoder(kind.arguments[0]), kind.dimension
    sized = fixed_width(kind.arguments[0]) is None

    def encode(value: Any) -> bytes:
        if len(value) != dimension:
            raise NotEncodable(f"{len(value)} elements for {to_text(kind)}")
        parts = [item(member) for member in value]
        return b"".join([unsigned_vint(len(part)) + part for part in parts] if sized else parts)

    return encode


_BUILDERS: Final[dict[str, Callable[[CqlType], Callable[[Any], bytes]]]] = {
    "list": _sequence_encoder,
    "set": _sequence_encoder,
    "map": _map_encoder,
    "tuple": _tuple_encoder,
    "udt": _udt_encoder,
    "vector": _vector_encoder,
    "timed_list": _timed_list,
}


def encode_partition_key(kinds: Sequence[CqlType], values: Sequence[Any]) -> bytes:
    """A partition key as the servers store and hash it.

    One column: its bytes. Several: for each a length of two bytes, the bytes and a zero (Cassandra's composite type).

    Args:
        kinds: types of the key's columns in order.
        values: their values; None is the empty value of a type that shows none.
    """
    return join_partition_key(
        [b"" if value is None else make_encoder(kind)(value) for kind, value in zip(kinds, values, strict=True)]
    )


def join_partition_key(parts: Sequence[bytes]) -> bytes:
    """See ``encode_partition_key``; of columns that are encoded already.

    Raises:
        NotEncodable: a column of several is longer than 65,535 bytes.
    """
    if len(parts) == 1:
        return parts[0]
    if any(len(part) > 0xFFFF for part in parts):
        raise NotEncodable("a column of a compound partition key may have at most 65,535 bytes")
    return b"".join([_pack_short(len(part)) + part + b"\x00" for part in parts])


def split_partition_key(data: bytes, columns: int) -> list[bytes]:
    """The columns' bytes of a serialized partition key of ``columns`` columns; see ``encode_partition_key``.

    Raises:
        NotEncodable: it has another number of columns.
    """
    if columns == 1:
        return [data]
    parts: list[bytes] = []
    position = 0
    for _ in range(columns):
        end = position + 2 + int.from_bytes(data[position : position + 2], "big")
        if end + 1 > len(data):
            raise NotEncodable(
                f"a partition key of {len(data)} bytes ends inside its column {len(parts) + 1} of {columns}"
            )
        parts.append(data[position + 2 : end])
        position = end + 1
    if position != len(data):
        raise NotEncodable(f"{len(data) - position} bytes follow the {columns} columns of a partition key")
    return parts
