"""Protobuf's binary form of Connect values, field by field: the complete and slow way, which also finds what is wrong.

``worker.converters.protobuf_form.compile`` makes the fast functions; they fall back to this one.
Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.schema import DATE, DECIMAL, TIME, Type
from worker.converters.avro_form.write import SHORT, encode_utf8, zigzag_bytes
from worker.converters.base import bad_value, member_path, missing_value, out_of_range
from worker.converters.javatext import decimal_scale, integer_bytes, to_unscaled
from worker.converters.json_form.text import INTEGER_BITS

if TYPE_CHECKING:
    from worker.converters.protobuf_form.schema import ProtoField, ProtoMessage

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_MS: Final = 86_400_000
_MAX_DEPTH: Final = 100
_WORD: Final = 1 << 64
DOUBLE: Final = struct.Struct("<d").pack
FLOAT: Final = struct.Struct("<f").pack
_FIXED: Final = {
    "sfixed32": struct.Struct("<i"),
    "fixed32": struct.Struct("<I"),
    "sfixed64": struct.Struct("<q"),
    "fixed64": struct.Struct("<Q"),
}
#: What each number is written as: varint, eight bytes, length and bytes, four bytes.
VARINT, EIGHT, SIZED, FOUR = 0, 1, 2, 5
_WIRE: Final = {
    "double": EIGHT,
    "fixed64": EIGHT,
    "sfixed64": EIGHT,
    "float": FOUR,
    "fixed32": FOUR,
    "sfixed32": FOUR,
    "string": SIZED,
    "bytes": SIZED,
}


def encode_varint(value: int) -> bytes:
    """A number of 64 bits, signed or not, as a varint."""
    return zigzag_bytes(value if value >= 0 else value + _WORD)


def encode_tag(number: int, wire: int) -> bytes:
    """Encode the tag that precedes a field."""
    return encode_varint(number << 3 | wire)


def add_length(data: bytes) -> bytes:
    """``data`` with its length before it."""
    size = len(data)
    return (SHORT[size] if size < len(SHORT) else encode_varint(size)) + data


def wire_of(scalar: str) -> int:
    """How a scalar is written."""
    return _WIRE.get(scalar, VARINT)


def message_bytes(message: ProtoMessage, value: Any, *, replace_null: bool, path: str = "", depth: int = 0) -> bytes:
    """The binary form of a struct.

    Args:
        message: its message.
        value: the struct.
        replace_null: whether a field's default is written where it is null.
        path: its position in the record, for messages.
        depth: how deep it is nested.

    Raises:
        Skippable: it can't be converted.
    """
    if depth > _MAX_DEPTH:
        raise Skippable(f"Cannot convert {path[:200]} to Protobuf: it is nested more than {_MAX_DEPTH} levels deep.")
    if not isinstance(value, Mapping):
        raise bad_value(path, Type.STRUCT, value)
    if unknown := value.keys() - {member.source for member in message.fields}:
        raise Skippable(
            f"Cannot convert {member_path(path, min(map(str, unknown)))}: the struct's schema has no such field. "
            "Add it to the schema or leave it out of the value."
        )
    parts = {
        member.number: field_bytes(
            member,
            value.get(member.source),
            replace_null=replace_null,
            path=member_path(path, member.source),
            depth=depth,
        )
        for member in message.fields
    }
    return b"".join(parts[number] for number in sorted(parts))


def field_bytes(member: ProtoField, value: Any, *, replace_null: bool, path: str, depth: int) -> bytes:
    """One field with its tag; empty if it is left out."""
    schema = member.schema
    if value is None and replace_null:
        value = schema.default
    if value is None:
        if schema.optional:
            return b""
        raise missing_value(path, schema.type)
    if schema.type is Type.MAP:
        return _map_bytes(member, value, replace_null=replace_null, path=path, depth=depth)
    if schema.type is Type.ARRAY:
        return _array_bytes(member, value, replace_null=replace_null, path=path, depth=depth)
    data = value_bytes(member, value, replace_null=replace_null, path=path, depth=depth)
    if member.scalar and not member.wrapped and member.label != "optional" and is_default(member, data):
        return b""
    return _with_tag(member, data)


def is_default(member: ProtoField, data: bytes) -> bool:
    """Whether ``data`` is the value that stands for an absent field."""
    wire = wire_of(member.scalar)
    return not data if wire is SIZED else not any(data)


def _with_tag(member: ProtoField, data: bytes) -> bytes:
    if not member.scalar or member.wrapped:
        return encode_tag(member.number, SIZED) + add_length(data)
    wire = wire_of(member.scalar)
    return encode_tag(member.number, wire) + (add_length(data) if wire is SIZED else data)


def _array_bytes(member: ProtoField, value: Any, *, replace_null: bool, path: str, depth: int) -> bytes:
    if not isinstance(value, list | tuple | set | frozenset):
        raise bad_value(path, Type.ARRAY, value)
    items = []
    for index, item in enumerate(value):
        item_path = f"{path}[{index}]"
        if item is None:
            raise Skippable(
                f"Cannot convert {item_path}: Protobuf has no null elements in a repeated field. Remove them in a "
                "transform, or use Avro or JSON Schema."
            )
        items.append(value_bytes(member, item, replace_null=replace_null, path=item_path, depth=depth))
    if member.scalar and not member.wrapped and wire_of(member.scalar) is not SIZED:
        return encode_tag(member.number, SIZED) + add_length(b"".join(items)) if items else b""
    head = encode_tag(member.number, SIZED)
    return b"".join(head + add_length(item) for item in items)


def _map_bytes(member: ProtoField, value: Any, *, replace_null: bool, path: str, depth: int) -> bytes:
    if not isinstance(value, Mapping) or member.message is None:
        raise bad_value(path, Type.MAP, value)
    key_field, value_field = member.message.fields
    head = encode_tag(member.number, SIZED)
    parts = []
    for key, item in value.items():
        entry = b""
        for part, content, entry_path in ((key_field, key, f"a key of {path}"), (value_field, item, f"{path}[...]")):
            # A default stands for a struct's null field only.
            replaces = replace_null and content is not None
            entry += field_bytes(part, content, replace_null=replaces, path=entry_path, depth=depth + 1)
        parts.append(head + add_length(entry))
    return b"".join(parts)


def value_bytes(member: ProtoField, value: Any, *, replace_null: bool, path: str, depth: int) -> bytes:
    """One value without tag and length; for wrappers the wrapper's content."""
    if member.symbols:
        return _enum_bytes(member, value, path)
    if member.scalar:
        data = scalar_bytes(member, value, path)
        if not member.wrapped:
            return data
        wire = wire_of(member.scalar)
        if is_default(member, data):
            return b""
        return encode_tag(1, wire) + (add_length(data) if wire is SIZED else data)
    if member.message is not None:
        return message_bytes(member.message, value, replace_null=replace_null, path=path, depth=depth + 1)
    return logical_bytes(member.element.name or "", member, value, path)


def _enum_bytes(member: ProtoField, value: Any, path: str) -> bytes:
    for symbol, number in member.symbols:
        if value == (symbol if member.element.type is Type.STRING else number):
            return encode_varint(number)
    raise Skippable(f"Cannot convert {path}: it is not one of the symbols of its enum.")


def scalar_bytes(member: ProtoField, value: Any, path: str) -> bytes:
    """The content of a scalar; raises ``Skippable`` for a value of the wrong type."""
    kind = member.element.type
    if kind in INTEGER_BITS:
        if not isinstance(value, int) or isinstance(value, bool):
            raise bad_value(path, kind, value)
        limit = 1 << INTEGER_BITS[kind]
        if not -limit <= value < limit:
            raise out_of_range(path, kind)
        return _integer_bytes(member.scalar, value, path)
    if kind is Type.STRING:
        if not isinstance(value, str):
            raise bad_value(path, kind, value)
        return encode_utf8(value)
    if kind is Type.BOOLEAN:
        if not isinstance(value, bool):
            raise bad_value(path, kind, value)
        return b"\x01" if value else b"\x00"
    if kind is Type.BYTES:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise bad_value(path, kind, value)
        return bytes(value)
    if not isinstance(value, float | int | Decimal) or isinstance(value, bool):
        raise bad_value(path, kind, value)
    try:
        return FLOAT(value) if kind is Type.FLOAT32 else DOUBLE(value)
    except OverflowError:
        raise out_of_range(path, kind) from None


def _integer_bytes(scalar: str, value: int, path: str) -> bytes:
    if scalar in ("uint32", "fixed32") and not 0 <= value < 1 << 32:
        raise out_of_range(path, scalar)
    if scalar in ("sint32", "sint64"):
        return zigzag_bytes(value << 1 if value >= 0 else ~(value << 1))
    fixed = _FIXED.get(scalar)
    if fixed is None:
        return encode_varint(value)
    return fixed.pack(value % _WORD if scalar == "fixed64" else value)


def logical_bytes(name: str, member: ProtoField, value: Any, path: str) -> bytes:
    """The content of the message of a Decimal, Date, Time or Timestamp."""
    if name == DECIMAL:
        if not isinstance(value, Decimal):
            raise bad_value(path, "Decimal", value)
        try:
            return decimal_message(value, decimal_scale(member.element))
        except ValueError as error:
            raise Skippable(
                f"Cannot convert {path} to Decimal with scale {member.element.parameter('scale')}: {error}. "
                "Round it in a transform, or give the schema the scale of the source's column."
            ) from None
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_value(path, name.rpartition(".")[2], value)
    try:
        return (date_message if name == DATE else time_message if name == TIME else timestamp_message)(value)
    except (ValueError, OverflowError):
        raise Skippable(
            f"Cannot convert {path}: {value} is outside of what {member.type} can hold (years 1 to 9999, times "
            "within a day). Correct it at its source, or convert the column to a number."
        ) from None


def decimal_message(value: Decimal, scale: int) -> bytes:
    """``confluent.type.Decimal``; raises ValueError for digits beyond the scale."""
    number = to_unscaled(value, scale)
    data = integer_bytes(number)
    digits = Decimal(number).adjusted() + 1  # Python writes no integer of more than 4,300 digits
    return (
        b"\x0a"
        + add_length(data)
        + b"\x10"
        + encode_varint(digits)
        + (b"\x18" + encode_varint(scale) if scale else b"")
    )


def date_message(days: int) -> bytes:
    """``google.type.Date``; raises ValueError or OverflowError outside of the years 1 to 9999."""
    day = date.fromordinal(_EPOCH_DAY + days)
    return b"\x08" + encode_varint(day.year) + b"\x10" + SHORT[day.month] + b"\x18" + SHORT[day.day]


def time_message(millis: int) -> bytes:
    """``google.type.TimeOfDay``; raises ValueError for what is no time within a day."""
    if not 0 <= millis < _DAY_MS:
        raise ValueError
    seconds, milliseconds = divmod(millis, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return b"".join(
        head + encode_varint(part)
        for head, part in ((b"\x08", hour), (b"\x10", minute), (b"\x18", second), (b"\x20", milliseconds * 1_000_000))
        if part
    )


#: The second field of a Timestamp by its milliseconds.
_NANOS: Final = (b"", *(b"\x10" + zigzag_bytes(millis * 1_000_000) for millis in range(1, 1000)))
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999


def timestamp_message(millis: int) -> bytes:
    """``google.protobuf.Timestamp``; raises ValueError outside of the years 1 to 9999."""
    if not _FIRST_MS <= millis <= _LAST_MS:
        raise ValueError
    seconds, milliseconds = divmod(millis, 1000)
    if seconds > 0:
        return b"\x08" + zigzag_bytes(seconds) + _NANOS[milliseconds]
    return (b"\x08" + encode_varint(seconds) if seconds else b"") + _NANOS[milliseconds]
