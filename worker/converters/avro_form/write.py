"""Avro's binary form of Connect values, value by value: the complete and slow way, which also finds what is wrong.

``worker.converters.avro_form.compile`` makes the fast functions; they fall back to this one. Source: Avro 1.12 specification,
"Binary Encoding"; unions and maps as Confluent's AvroData lays them out.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.schema import DECIMAL, Type
from worker.converters.avro_form.schema import (
    AvroSettings,
    enum_symbols,
    is_enum,
    is_union,
    null_last,
)
from worker.converters.base import bad_value, member_path, missing_value, out_of_range
from worker.converters.javatext import decimal_bytes, decimal_scale
from worker.converters.json_form.text import INTEGER_BITS

if TYPE_CHECKING:
    from connectors.schema import Schema

_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_MAX_DEPTH: Final = 150
#: Variable-length numbers by their low 14 bits: as the last two bytes, and as two bytes with more to come.
SHORT: Final = tuple(bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80, n >> 7]) for n in range(0x4000))
LOW: Final = tuple(bytes([n & 0x7F | 0x80, n >> 7 | 0x80]) for n in range(0x4000))
#: The length of a string or a block, for the first 8,192; and with the mark of a union's second branch before it.
LENGTH: Final = SHORT[::2]
PRESENT_LENGTH: Final = tuple(b"\x02" + length for length in LENGTH)


def long_bytes(value: int) -> bytes:
    """``value``, of at most 64 bits, as Avro's zigzag number of variable length.

    Raises:
        OverflowError: it has more bits.
    """
    return zigzag_bytes(value << 1 if value >= 0 else ~(value << 1))


def zigzag_bytes(n: int) -> bytes:
    """As ``long_bytes``, of the zigzag form."""
    if n < 0x4000:
        return SHORT[n]
    if n < 0x10000000:
        return LOW[n & 0x3FFF] + SHORT[n >> 14]
    # In halves of one digit of a Python integer each: calculating with more digits takes longer.
    low, high = n & 0xFFFFFFF, n >> 28
    if high < 0x4000:
        return LOW[low & 0x3FFF] + LOW[low >> 14] + SHORT[high]
    if high < 0x10000000:
        return LOW[low & 0x3FFF] + LOW[low >> 14] + LOW[high & 0x3FFF] + SHORT[high >> 14]
    if high < 0x1000000000:
        return LOW[low & 0x3FFF] + LOW[low >> 14] + LOW[high & 0x3FFF] + LOW[high >> 14 & 0x3FFF] + SHORT[high >> 28]
    raise OverflowError("more than 64 bits")


def add_length(data: bytes) -> bytes:
    """``data`` with its length before it."""
    return long_bytes(len(data)) + data


def value_bytes(schema: Schema | None, value: Any, settings: AvroSettings, path: str = "", depth: int = 0) -> bytes:
    """The binary form of ``value``.

    Args:
        schema: its schema, or None for schemaless data.
        value: the value.
        settings: see ``AvroSettings``.
        path: its position in the record, for messages.
        depth: how deep it is nested.

    Raises:
        Skippable: it can't be converted.
    """
    if depth > _MAX_DEPTH:
        raise Skippable(f"Cannot convert {path[:200]} to Avro: it is nested more than {_MAX_DEPTH} levels deep.")
    if schema is None:
        return anything_bytes(value, path, depth)
    if is_union(schema):
        return _union_bytes(schema, value, settings, path, depth)
    if schema.optional:
        first, second = (b"\x02", b"\x00") if null_last(schema) else (b"\x00", b"\x02")
        return first if value is None else second + _present_bytes(schema, value, settings, path, depth)
    if value is None:
        raise missing_value(path, schema.type)
    return _present_bytes(schema, value, settings, path, depth)


def _present_bytes(schema: Schema, value: Any, settings: AvroSettings, path: str, depth: int) -> bytes:
    match schema.type:
        case Type.STRUCT:
            return _struct_bytes(schema, value, settings, path, depth)
        case Type.ARRAY:
            if not isinstance(value, list | tuple | set | frozenset):
                raise bad_value(path, schema.type, value)
            return _block_bytes(
                [
                    value_bytes(schema.value_schema, item, settings, f"{path}[{index}]", depth + 1)
                    for index, item in enumerate(value)
                ]
            )
        case Type.MAP:
            return _map_bytes(schema, value, settings, path, depth)
        case _:
            return _scalar_bytes(schema, value, settings, path)


def _struct_bytes(schema: Schema, value: Any, settings: AvroSettings, path: str, depth: int) -> bytes:
    if not isinstance(value, Mapping):
        raise bad_value(path, schema.type, value)
    if unknown := value.keys() - {member.name for member in schema.fields}:
        raise Skippable(
            f"Cannot convert {member_path(path, min(map(str, unknown)))}: the struct's schema has no such field. "
            "Add it to the schema or leave it out of the value."
        )
    parts = []
    for member in schema.fields:
        item = value.get(member.name)
        item = member.schema.default if item is None else item
        parts.append(value_bytes(member.schema, item, settings, member_path(path, member.name), depth + 1))
    return b"".join(parts)


def _map_bytes(schema: Schema, value: Any, settings: AvroSettings, path: str, depth: int) -> bytes:
    if not isinstance(value, Mapping):
        raise bad_value(path, schema.type, value)
    items = []
    key_path = f"a key of {path or 'the map'}"
    for key, item in value.items():
        first = value_bytes(schema.key_schema, key, settings, key_path, depth + 1)
        items.append(first + value_bytes(schema.value_schema, item, settings, f"{path}[...]", depth + 1))
    return _block_bytes(items)


def _block_bytes(items: list[bytes]) -> bytes:
    return long_bytes(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


def _union_bytes(schema: Schema, value: Any, settings: AvroSettings, path: str, depth: int) -> bytes:
    first = 1 if schema.optional else 0
    if value is None and schema.optional:
        return b"\x00"
    if not isinstance(value, Mapping):
        raise bad_value(path, "a union (a struct with one field set)", value)
    for index, member in enumerate(schema.fields):
        if value.get(member.name) is not None:
            content = _present_bytes(
                member.schema, value[member.name], settings, member_path(path, member.name), depth + 1
            )
            return long_bytes(first + index) + content
    if schema.optional:
        return b"\x00"
    raise missing_value(path, "a union with one field set")


def _scalar_bytes(schema: Schema, value: Any, settings: AvroSettings, path: str) -> bytes:
    kind = schema.type
    if kind in INTEGER_BITS:
        if not isinstance(value, int) or isinstance(value, bool):
            raise bad_value(path, kind, value)
        limit = 1 << INTEGER_BITS[kind]
        if not -limit <= value < limit:
            raise out_of_range(path, kind)
        return long_bytes(value)
    if kind is Type.STRING:
        return _string_bytes(schema, value, settings, path)
    if kind is Type.BOOLEAN:
        if not isinstance(value, bool):
            raise bad_value(path, kind, value)
        return b"\x01" if value else b"\x00"
    if kind is Type.BYTES:
        return _bytes_bytes(schema, value, path)
    if not isinstance(value, float | int | Decimal) or isinstance(value, bool):
        raise bad_value(path, kind, value)
    try:
        return _FLOAT.pack(value) if kind is Type.FLOAT32 else _DOUBLE.pack(value)
    except OverflowError:
        raise out_of_range(path, kind) from None


def _string_bytes(schema: Schema, value: Any, settings: AvroSettings, path: str) -> bytes:
    if not isinstance(value, str):
        raise bad_value(path, schema.type, value)
    if is_enum(schema, settings):
        try:
            return long_bytes(enum_symbols(schema).index(value))
        except ValueError:
            raise Skippable(
                f"Cannot convert {path or 'the value'}: it is not one of the symbols of its enum."
            ) from None
    return add_length(encode_utf8(value))


def encode_utf8(value: str) -> bytes:
    """UTF-8 as Java writes it: two halves of a surrogate pair are one character, half a pair becomes a question mark."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return (
            value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass").encode("utf-8", "replace")
        )


def _bytes_bytes(schema: Schema, value: Any, path: str) -> bytes:
    if schema.name == DECIMAL:
        if not isinstance(value, Decimal):
            raise bad_value(path, "Decimal", value)
        try:
            return add_length(decimal_bytes(value, decimal_scale(schema)))
        except ValueError as error:
            raise Skippable(
                f"Cannot convert {path or 'the value'} to Decimal with scale {schema.parameter('scale')}: {error}. "
                "Round it in a transform, or give the schema the scale of the source's column."
            ) from None
    if not isinstance(value, bytes | bytearray | memoryview):
        raise bad_value(path, schema.type, value)
    return add_length(bytes(value))


def anything_bytes(value: Any, path: str, depth: int) -> bytes:
    """Schemaless data as the record ``Anything``: nine optional fields of which one is set (none for null)."""
    field_index, content = _anything_field(value, path, depth)
    return b"\x00" * field_index + b"\x02" + content + b"\x00" * (8 - field_index) if field_index < 9 else b"\x00" * 9


def _anything_field(value: Any, path: str, depth: int) -> tuple[int, bytes]:
    settings = AvroSettings()
    if value is None:
        return 9, b""
    if isinstance(value, bool):
        return 0, b"\x01" if value else b"\x00"
    if isinstance(value, bytes | bytearray | memoryview):
        return 1, add_length(bytes(value))
    if isinstance(value, float):
        return 2, _DOUBLE.pack(value)
    if isinstance(value, int):
        try:
            return 5, long_bytes(value)
        except OverflowError:
            raise out_of_range(path, "a schemaless integer (int64)") from None
    if isinstance(value, str):
        return 6, add_length(encode_utf8(value))
    if isinstance(value, list | tuple):
        return 7, _block_bytes(
            [value_bytes(None, item, settings, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        )
    if isinstance(value, Mapping):
        return 8, _block_bytes(
            [
                value_bytes(None, key, settings, f"a key of {path or 'the map'}", depth + 1)
                + value_bytes(None, item, settings, f"{path}[...]", depth + 1)
                for key, item in value.items()
            ]
        )
    raise Skippable(
        f"Unknown type for schemaless data at {path or 'the top'}: {type(value).__name__}. "
        "Give the record a schema, or yield str, bytes, int, float, bool, list or dict."
    )
