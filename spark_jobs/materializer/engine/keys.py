"""Keys of the store: bytes that sort as Cassandra sorts.

A key is the length of the partition key (two bytes), the partition key (Cassandra's serialized form), a byte that says what
the record is, and for a row its clustering columns so that comparing bytes compares rows (DESC: each byte inverted).
No encoding of a value is the beginning of another one's, so a prefix of columns is a prefix of bytes, and all rows of a prefix
lie between it and ``end_of_prefix`` of it.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from connectors.cql.encoding import NotEncodable, varint_of
from connectors.cql.encoding import make_encoder as serializer
from connectors.cql.types import CqlType
from connectors.errors import Fatal, Skippable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Encode = Callable[[Any], bytes]

#: What a record is: the partition itself (deletions, static row), or a row. The engine's own have an empty partition key.
PARTITION: Final = b"\x00"
ROW: Final = b"\x01"
#: The engine's record of columns and versions in a bucket.
CATALOG: Final = b"\x00\x00" + PARTITION
_MAX_KEY: Final = 0xFFFF
_INVERTED: Final = bytes(255 - byte for byte in range(256))


def partition_prefix(partition_key: bytes) -> bytes:
    """Return the common prefix of all keys of a partition.

    Raises:
        Skippable: the partition key is empty, or longer than Cassandra allows.
    """
    if not 0 < len(partition_key) <= _MAX_KEY:
        raise Skippable(f"A partition key has {len(partition_key)} bytes; 1 to {_MAX_KEY} are possible.")
    return len(partition_key).to_bytes(2, "big") + partition_key


def bucket_of(prefix: bytes, buckets: int) -> int:
    """The bucket of all rows with this partition prefix, where buckets are chosen by key."""
    return crc32(prefix) % buckets


def end_of_prefix(prefix: bytes) -> bytes | None:
    """The first byte string behind all that begin with ``prefix``; None if nothing is."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def clustering_encoder(kinds: Sequence[tuple[CqlType, bool]]) -> Callable[[Sequence[Any]], bytes]:
    """The function from clustering values, or the first of them, to bytes in clustering order.

    Args:
        kinds: per column its type, and whether its order is DESC.
    """
    parts = [_invert_order(order_encoder(kind)) if down else order_encoder(kind) for kind, down in kinds]
    if len(parts) == 1:
        only = parts[0]
        return lambda values: only(values[0]) if values else b""
    return lambda values: b"".join([part(value) for part, value in zip(parts, values, strict=False)])


def _invert_order(part: Encode) -> Encode:
    return lambda value: part(value).translate(_INVERTED)


@lru_cache(maxsize=10_000)
def order_encoder(kind: CqlType) -> Encode:
    """The function from a value of ``kind`` to bytes that sort as the servers sort values of it.

    It raises what ``connectors.cql.encoding`` raises for a value that is not of the type. Sources: the ``compare`` methods of
    Cassandra's marshal types.
    """
    scalar = _SCALARS.get(kind.name)
    if scalar is not None:
        return scalar
    if kind.name in {"list", "set", "vector"}:
        item = order_encoder(kind.arguments[0])
        return lambda value: b"".join([b"\x01" + item(element) for element in value]) + b"\x00"
    if kind.name == "map":
        key, item = order_encoder(kind.arguments[0]), order_encoder(kind.arguments[1])
        return lambda value: (
            b"".join([b"\x01" + key(element["key"]) + item(element["value"]) for element in value]) + b"\x00"
        )
    if kind.name in {"tuple", "udt"}:
        names = kind.field_names or tuple(f"field_{index}" for index in range(len(kind.arguments)))
        members = list(zip(names, map(order_encoder, kind.arguments), strict=True))
        return lambda value: _encode_members(value, members)
    if kind.name == "counter":
        raise Fatal("Counters can't be merged, and can't be keys.")
    # Types without an order of their own (custom ones, duration): by their serialized bytes.
    serialize = serializer(kind)
    return lambda value: _terminate_bytes(serialize(value))


def _encode_members(value: dict[str, Any], members: Sequence[tuple[str, Encode]]) -> bytes:
    """Members up to the last one that is not null: what a user-defined type gets later is null in values from before."""
    parts: list[bytes] = []
    nulls = 0
    for name, member in members:
        part = value.get(name)
        if part is None:
            nulls += 1
            continue
        parts += (b"\x01" * nulls, b"\x02", member(part))
        nulls = 0
    return b"".join(parts) + b"\x00"


def _terminate_bytes(data: bytes) -> bytes:
    """``data`` so that it is no prefix of another: its zeros marked, two zeros behind it."""
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _encode_text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return data + b"\x00\x00" if b"\x00" not in data else _terminate_bytes(data)


def _make_signed_encoder(size: int) -> Encode:
    offset = 1 << (8 * size - 1)
    return lambda value: (value + offset).to_bytes(size, "big")


def _make_float_encoder(layout: str) -> Encode:
    shape = struct.Struct(layout)
    negative = 0x80
    nan = b"\xff" * shape.size

    def encode(value: float) -> bytes:
        if math.isnan(value):
            return nan  # Java's order: all NaN are equal, and the largest
        data = shape.pack(value)
        return data.translate(_INVERTED) if data[0] & negative else bytes([data[0] | negative]) + data[1:]

    return encode


def _encode_boolean(value: bool) -> bytes:  # noqa: FBT001 - the value itself
    return b"\x01" if value else b"\x00"


def _encode_timeuuid(value: Any) -> bytes:
    raw = _uuid_bytes(value)
    return raw[6:8] + raw[4:6] + raw[:4] + (int.from_bytes(raw[8:], "big") ^ 0x8080808080808080).to_bytes(8, "big")


def _encode_uuid(value: Any) -> bytes:
    """By version, then (version 1) by time, then by bytes."""
    raw = _uuid_bytes(value)
    version = raw[6] >> 4
    return bytes([version]) + (raw[6:8] + raw[4:6] + raw[:4] + raw[8:] if version == 1 else raw)


def _uuid_bytes(value: Any) -> bytes:
    return bytes.fromhex(value.replace("-", "")) if isinstance(value, str) else bytes(getattr(value, "bytes", value))


def _encode_varint(value: Any) -> bytes:
    number = varint_of(value)
    size = (number.bit_length() + 7) // 8
    if number >= 0:
        return b"\x01" + size.to_bytes(4, "big") + number.to_bytes(size, "big")
    return b"\x00" + (0xFFFFFFFF - size).to_bytes(4, "big") + (number + (1 << 8 * size)).to_bytes(size, "big")


def _encode_decimal(value: Any) -> bytes:
    """By its number: 1.0 and 1.00 are the same clustering value to Cassandra too."""
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise NotEncodable(f"{value} is no number that a decimal can hold")
    digit_text = "".join(map(str, digits)).lstrip("0")
    point = len(digit_text) + exponent
    digit_text = digit_text.rstrip("0")
    if not digit_text:
        return b"\x01"
    size = (point + (1 << 63)).to_bytes(8, "big") + digit_text.encode() + b"\x00"
    return b"\x00" + size.translate(_INVERTED) if sign else b"\x02" + size


def _encode_blob(value: Any) -> bytes:
    return _terminate_bytes(bytes(value))


def _encode_inet(value: Any) -> bytes:
    return _terminate_bytes(_serialize_inet(value))


_serialize_inet: Final = serializer(CqlType("inet"))

_SCALARS: Final[dict[str, Encode]] = {
    "ascii": _encode_text,
    "text": _encode_text,
    "varchar": _encode_text,
    "blob": _encode_blob,
    "boolean": _encode_boolean,
    "tinyint": _make_signed_encoder(1),
    "smallint": _make_signed_encoder(2),
    "int": _make_signed_encoder(4),
    "bigint": _make_signed_encoder(8),
    "timestamp": _make_signed_encoder(8),
    "time": _make_signed_encoder(8),
    "date": _make_signed_encoder(4),
    "float": _make_float_encoder(">f"),
    "double": _make_float_encoder(">d"),
    "uuid": _encode_uuid,
    "timeuuid": _encode_timeuuid,
    "varint": _encode_varint,
    "decimal": _encode_decimal,
    "inet": _encode_inet,
    "empty": lambda _: b"",
}
