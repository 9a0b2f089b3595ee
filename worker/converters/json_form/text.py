"""JSON text exactly as Java's JsonConverter of Kafka 4.1 writes it: the schema envelope and, value by value, the payload.

This is the complete and slow way: it walks the schema. ``worker.converters.json_form.compile`` makes the fast functions, which
fall back to this one for values they can't vouch for, and so also for every error message.
"""

from __future__ import annotations

import binascii
import json
import re
import string
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.schema import DECIMAL, Type
from worker.converters.base import bad_value, member_path, missing_value, out_of_range
from worker.converters.javatext import (
    decimal_scale,
    decimal_text,
    double_text,
    float_text,
    integer_bytes,
    to_unscaled,
)

if TYPE_CHECKING:
    from connectors.schema import Schema

INTEGER_BITS: Final = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}
_FLOATS: Final = (Type.FLOAT32, Type.FLOAT64)
_LIST_TYPES: Final = (list, tuple, set, frozenset)
_BYTES_TYPES: Final = (bytes, bytearray, memoryview)
_MAX_DEPTH: Final = 150
_CHARACTERS: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
#: The Base64 of each number of twelve bits.
_PAIRS: Final = [first + second for first in _CHARACTERS for second in _CHARACTERS]
#: Name of the structs in which Confluent's JsonSchemaData puts alternatives.
ONE_OF: Final = "io.confluent.connect.json.OneOf"
_BACKSLASH: Final = 0x5C
#: What Jackson writes otherwise than Python's encoders: control characters (upper-case digits) and characters beyond the BMP
#: (escaped as two halves). The second alternative consumes the other escapes, so that an escaped backslash is not misread.
_DIFFERENT: Final = re.compile(rb"\\u00([01][0-9a-f])|\\.|[\xf0-\xf4]...", re.DOTALL)
_DIFFERENT_TEXT: Final = re.compile("\\\\u00([01][0-9a-f])|\\\\.|[\U00010000-\U0010ffff]|[\ud800-\udfff]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonSettings:
    """The options that decide how values are written.

    Attributes:
        numeric_decimals: ``decimal.format=NUMERIC``.
        replace_null: ``replace.null.with.default``.
        entries: whether maps with keys other than required strings are arrays of objects with key and value, as Confluent's
            JSON Schema has them; else they are arrays of pairs.
    """

    numeric_decimals: bool = False
    replace_null: bool = True
    entries: bool = False


def java_escapes(encoded: bytes) -> bytes:
    """Finished JSON with its characters escaped as Jackson 2.19 does it. Does nothing, fast, to what needs nothing."""
    # One byte is found far faster than four: these six look-ups cost a tenth of the expression's pass.
    if (
        0xF0 in encoded
        or 0xF3 in encoded
        or 0xF4 in encoded
        or 0xF1 in encoded
        or 0xF2 in encoded
        or (_BACKSLASH in encoded and b"\\u00" in encoded)
    ):
        return _DIFFERENT.sub(_escape_bytes, encoded)
    return encoded


def _escape_bytes(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return b"\\u00" + match[1].upper()
    whole = match[0]
    return whole if whole[0] == _BACKSLASH else _escape_halves(whole.decode()).encode()


def _escape_text(match: re.Match[str]) -> str:
    if match[1]:
        return "\\u00" + match[1].upper()
    whole = match[0]
    return whole if whole[0] == "\\" else _escape_halves(whole)


def _escape_halves(character: str) -> str:
    """The UTF-16 code units of ``character`` as escapes; half a pair is one of them."""
    data = character.encode("utf-16-le", "surrogatepass")
    return "".join(f"\\u{unit:04X}" for unit in struct.unpack(f"<{len(data) // 2}H", data))


def string_text(value: str) -> str:
    """``value`` as a JSON string."""
    return _DIFFERENT_TEXT.sub(_escape_text, json.dumps(str(value), ensure_ascii=False))


def value_text(schema: Schema | None, value: Any, settings: JsonSettings, path: str = "", depth: int = 0) -> str:
    """The JSON text of ``value``.

    Args:
        schema: its schema, or None for schemaless data.
        value: the value.
        settings: see ``JsonSettings``.
        path: its position in the record, for messages.
        depth: how deep it is nested.

    Raises:
        Skippable: it can't be converted.
    """
    if depth > _MAX_DEPTH:
        raise Skippable(f"Cannot convert {path[:200]} to JSON: it is nested more than {_MAX_DEPTH} levels deep.")
    if schema is None:
        return _schemaless_text(value, settings, path, depth)
    if value is None:
        if schema.default is not None and settings.replace_null:
            return value_text(schema, schema.default, settings, path, depth)
        if schema.optional:
            return "null"
        raise missing_value(path, schema.type)
    if schema.type is Type.STRUCT:
        if settings.entries and schema.name == ONE_OF:
            return _branch_text(schema, value, settings, path, depth)
        return _struct_text(schema, value, settings, path, depth)
    if schema.type is Type.ARRAY:
        if not isinstance(value, _LIST_TYPES):
            raise bad_value(path, schema.type, value)
        return (
            "["
            + ",".join(
                value_text(schema.value_schema, item, settings, f"{path}[{index}]", depth + 1)
                for index, item in enumerate(value)
            )
            + "]"
        )
    if schema.type is Type.MAP:
        if not isinstance(value, Mapping):
            raise bad_value(path, schema.type, value)
        as_object = (
            schema.key_schema is not None
            and schema.key_schema.type is Type.STRING
            and not (settings.entries and schema.key_schema.optional)
        )
        return _map_text(schema, value, settings, path, depth, as_object=as_object)
    return _scalar_text(schema, value, settings, path)


def _branch_text(schema: Schema, value: Any, settings: JsonSettings, path: str, depth: int) -> str:
    """A struct that stands for ``oneOf``: the one field that is set."""
    if not isinstance(value, Mapping):
        raise bad_value(path, "a union (a struct with one field set)", value)
    for member in schema.fields:
        if value.get(member.name) is not None:
            return value_text(member.schema, value[member.name], settings, member_path(path, member.name), depth + 1)
    if schema.optional:
        return "null"
    raise missing_value(path, "a union with one field set")


def _struct_text(schema: Schema, value: Any, settings: JsonSettings, path: str, depth: int) -> str:
    if not isinstance(value, Mapping):
        raise bad_value(path, schema.type, value)
    if unknown := value.keys() - {member.name for member in schema.fields}:
        name = min(map(str, unknown))
        raise Skippable(
            f"Cannot convert {member_path(path, name)}: the struct's schema has no such field. "
            "Add it to the schema or leave it out of the value."
        )
    return (
        "{"
        + ",".join(
            f"{string_text(member.name)}:"
            f"{value_text(member.schema, value.get(member.name), settings, member_path(path, member.name), depth + 1)}"
            for member in schema.fields
        )
        + "}"
    )


def _map_text(
    schema: Schema | None, value: Mapping[Any, Any], settings: JsonSettings, path: str, depth: int, *, as_object: bool
) -> str:
    keys, values = (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
    map_path = path or "the map"
    if not as_object:
        opening, between, closing = ('{"key":', ',"value":', "}") if settings.entries else ("[", ",", "]")
        return (
            "["
            + ",".join(
                f"{opening}{value_text(keys, key, settings, f'a key of {map_path}', depth + 1)}{between}"
                f"{value_text(values, item, settings, f'{path}[...]', depth + 1)}{closing}"
                for key, item in value.items()
            )
            + "]"
        )
    members: dict[str, str] = {}
    for key, item in value.items():
        key_json = value_text(keys, key, settings, f"a key of {map_path}", depth + 1)
        # A null key of an optional schema becomes Java's "null".
        name = key_json if key_json.startswith('"') else f'"{key_json}"'
        members[name] = value_text(values, item, settings, f"{path}[{name}]", depth + 1)
    return "{" + ",".join(f"{name}:{key_json}" for name, key_json in members.items()) + "}"


def _scalar_text(schema: Schema, value: Any, settings: JsonSettings, path: str) -> str:
    kind = schema.type
    if schema.name == DECIMAL and kind is Type.BYTES:
        return _decimal_text(schema, value, settings, path)
    if kind in INTEGER_BITS:
        if not isinstance(value, int) or isinstance(value, bool):
            raise bad_value(path, kind, value)
        limit = 1 << INTEGER_BITS[kind]
        if not -limit <= value < limit:
            raise out_of_range(path, kind)
        return str(int(value))
    if kind is Type.STRING:
        if not isinstance(value, str):
            raise bad_value(path, kind, value)
        return string_text(value)
    if kind is Type.BOOLEAN:
        if not isinstance(value, bool):
            raise bad_value(path, kind, value)
        return "true" if value else "false"
    if kind in _FLOATS:
        return float_json(value, path, single=kind is Type.FLOAT32)
    if not isinstance(value, _BYTES_TYPES):
        raise bad_value(path, kind, value)
    return f'"{base64_text(value)}"'


def _decimal_text(schema: Schema, value: Any, settings: JsonSettings, path: str) -> str:
    if not isinstance(value, Decimal):
        raise bad_value(path, "Decimal", value)
    try:
        if settings.numeric_decimals:
            return decimal_text(value)
        return f'"{decimal_base64(value, decimal_scale(schema))}"'
    except ValueError as error:
        raise Skippable(
            f"Cannot convert {path or 'the value'} to Decimal with scale {schema.parameter('scale')}: {error}. "
            "Round it in a transform, or give the schema the scale of the source's column."
        ) from None


def float_json(value: Any, path: str, *, single: bool) -> str:
    """A float as JSON; what isn't a number is a string, as Jackson writes it.

    Raises:
        Skippable: it is no number, or too large for float32.
    """
    if not isinstance(value, float | int | Decimal) or isinstance(value, bool):
        raise bad_value(path, "float" if single else "double", value)
    try:
        number = float(value)
        number_text = float_text(number) if single else double_text(number)
    except OverflowError:
        raise out_of_range(path, "float" if single else "double") from None
    return f'"{number_text}"' if number_text[-1] in "Ny" else number_text


def decimal_base64(value: Decimal, scale: int) -> str:
    """The Base64 of ``decimal_bytes``; raises as that does."""
    number = to_unscaled(value, scale)
    # Amounts of one to four bytes are put together of pairs of characters: it costs a third.
    if 1 << 15 <= number < 1 << 23:
        return _PAIRS[number >> 12] + _PAIRS[number & 0xFFF]
    if 1 << 23 <= number < 1 << 31:
        return _PAIRS[number >> 20] + _PAIRS[number >> 8 & 0xFFF] + _PAIRS[(number & 0xFF) << 4] + "=="
    if 1 << 7 <= number < 1 << 15:
        return f"{_PAIRS[number >> 4]}{_CHARACTERS[(number & 0xF) << 2]}="
    return base64_text(integer_bytes(number))


def base64_text(value: bytes | bytearray | memoryview) -> str:
    """Base64 with padding, without line breaks."""
    return binascii.b2a_base64(value, newline=False).decode()


def _schemaless_text(value: Any, settings: JsonSettings, path: str, depth: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            raise out_of_range(path, "a schemaless integer (int64)")
        return str(int(value))
    if isinstance(value, float):
        return float_json(value, path, single=False)
    if isinstance(value, Mapping):
        return _map_text(None, value, settings, path, depth, as_object=all(isinstance(key, str) for key in value))
    if isinstance(value, _LIST_TYPES):
        return (
            "["
            + ",".join(
                value_text(None, item, settings, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)
            )
            + "]"
        )
    if isinstance(value, _BYTES_TYPES):
        return f'"{base64_text(value)}"'
    raise Skippable(
        f"Cannot convert {path or 'the value'}: {type(value).__name__} has no type of its own in schemaless data. "
        "Give the record a schema, or yield str, bytes, int, float, bool, list or dict."
    )


def schema_text(schema: Schema | None, settings: JsonSettings) -> str:
    """A schema as JsonConverter writes it into the envelope.

    Raises:
        Skippable: a default value does not match its schema.
    """
    return "null" if schema is None else "{" + ",".join(_schema_members(schema, settings)) + "}"


def _schema_members(schema: Schema, settings: JsonSettings) -> list[str]:
    members = [f'"type":"{schema.type}"']
    if schema.type is Type.ARRAY:
        members.append(f'"items":{schema_text(schema.value_schema, settings)}')
    elif schema.type is Type.MAP:
        members += [
            f'"keys":{schema_text(schema.key_schema, settings)}',
            f'"values":{schema_text(schema.value_schema, settings)}',
        ]
    elif schema.type is Type.STRUCT:
        fields = (
            "{" + ",".join([*_schema_members(member.schema, settings), f'"field":{string_text(member.name)}']) + "}"
            for member in schema.fields
        )
        members.append(f'"fields":[{",".join(fields)}]')
    members.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        members.append(f'"name":{string_text(schema.name)}')
    if schema.version is not None:
        members.append(f'"version":{schema.version}')
    if schema.doc is not None:
        members.append(f'"doc":{string_text(schema.doc)}')
    if schema.parameters:
        parameters = dict(schema.parameters)
        members.append(
            '"parameters":{'
            + ",".join(f"{string_text(key)}:{string_text(parameter)}" for key, parameter in parameters.items())
            + "}"
        )
    if schema.default is not None:
        members.append(f'"default":{value_text(schema, schema.default, settings, "the default")}')
    return members
