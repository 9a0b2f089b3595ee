"""JSON back into Connect data, as Java's JsonConverter of Kafka 4.1 does it, with two differences.

Where Java quietly makes 0, false or an empty list of a value of the wrong JSON type, this raises ``Skippable``; and the strings
``NaN``, ``Infinity`` and ``-Infinity``, which JsonConverter writes for such floats, are read as what they were (Java: 0.0).
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import orjson

from connectors.errors import Skippable
from connectors.schema import DECIMAL, Field, Schema, Type
from worker.converters.javatext import decimal_from_bytes, decimal_scale, to_float32
from worker.converters.json_form.text import INTEGER_BITS

Read = Callable[[Any], Any]

#: Numbers that orjson would round: integers beyond 64 bits.
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
#: How JsonConverter spells them.
SPECIAL_FLOATS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_TYPES: Final = {kind.value: kind for kind in Type}


def parse_json(data: bytes, *, exact: bool = False) -> Any:
    """Parsed JSON; with ``exact``, numbers with a fraction or an exponent are Decimals.

    Raises:
        Skippable: it is not JSON.
    """
    try:
        if exact:
            return json.loads(data, parse_float=Decimal, parse_constant=_refuse_constant)
        if not _LONG_NUMBER.search(data):
            try:
                return orjson.loads(data)
            except ValueError:
                pass  # it may still be JSON: halves of surrogate pairs, which Jackson writes and reads
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise Skippable(
            "Converting byte[] to Kafka Connect data failed due to serialization error: the bytes are not JSON: "
            f"{error}. Set the converter to the one that wrote the topic."
        ) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def to_schemaless(value: Any) -> Any:
    """Parsed JSON as schemaless Connect data; only integers beyond int64 need anything done."""
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF
    ):
        raise Skippable(f"The JSON integer of {len(str(abs(value)))} digits does not fit into int64.")
    if isinstance(value, list):
        for item in value:
            to_schemaless(item)
    elif isinstance(value, dict):
        for item in value.values():
            to_schemaless(item)
    return value


def read_schema(parsed: Any, *, replace_null: bool) -> Schema | None:
    """The schema that the envelope's ``schema`` member describes.

    Raises:
        Skippable: it is not a valid description; the messages are Java's.
    """
    if parsed is None:
        return None
    kind_name = parsed.get("type") if isinstance(parsed, dict) else None
    if not isinstance(kind_name, str):
        raise Skippable("Schema must contain 'type' field")
    kind = _TYPES.get(kind_name)
    if kind is None:
        raise Skippable(f"Unknown schema type: {kind_name}")
    parts: dict[str, Any] = {}
    if kind is Type.ARRAY:
        if parsed.get("items") is None:
            raise Skippable("Array schema did not specify the element type")
        parts["value_schema"] = read_schema(parsed["items"], replace_null=replace_null)
    elif kind is Type.MAP:
        if "keys" not in parsed:
            raise Skippable("Map schema did not specify the key type")
        if "values" not in parsed:
            raise Skippable("Map schema did not specify the value type")
        parts["key_schema"] = read_schema(parsed["keys"], replace_null=replace_null)
        parts["value_schema"] = read_schema(parsed["values"], replace_null=replace_null)
    elif kind is Type.STRUCT:
        parts["fields"] = _read_fields(parsed.get("fields"), replace_null=replace_null)
    for name, expected_type in (("name", str), ("version", int), ("doc", str)):
        if isinstance(parsed.get(name), expected_type) and not isinstance(parsed.get(name), bool):
            parts[name] = parsed[name]
    if isinstance(parameters := parsed.get("parameters"), dict):
        if not all(isinstance(item, str) for item in parameters.values()):
            raise Skippable("Schema parameters must have string values.")
        parts["parameters"] = tuple(parameters.items())
    schema = Schema(kind, optional=parsed.get("optional") is True, **parts)
    if parsed.get("default") is not None:
        default = make_reader(schema, replace_null=replace_null)(parsed["default"])
        schema = Schema(kind, optional=schema.optional, default=default, **parts)
    return schema


def _read_fields(fields: Any, *, replace_null: bool) -> tuple[Field, ...]:
    if not isinstance(fields, list):
        raise Skippable('Struct schema\'s "fields" argument is not an array.')
    result = []
    for member in fields:
        name = member.get("field") if isinstance(member, dict) else None
        if not isinstance(name, str):
            raise Skippable("Struct schema's field name not specified properly")
        schema = read_schema(member, replace_null=replace_null)
        if schema is not None:
            result.append(Field(name, schema))
    return tuple(result)


def make_reader(schema: Schema | None, *, replace_null: bool, path: str = "") -> Read:
    """A function that makes a value of ``schema`` from parsed JSON; it raises ``Skippable`` for what does not fit."""
    if schema is None:
        return to_schemaless
    present = _present_reader(schema, replace_null, path)
    if schema.default is not None and replace_null:
        default = schema.default
        return lambda value: default if value is None else present(value)
    if schema.optional:
        return lambda value: None if value is None else present(value)

    def required(value: Any) -> Any:
        if value is None:
            raise Skippable(f"Invalid null value for required {schema.type.name} field{_format_path(path)}")
        return present(value)

    return required


def _format_path(path: str) -> str:
    return f" {path}" if path else ""


def _make_mismatch(schema: Schema, path: str, value: Any) -> Skippable:
    json_types = {
        dict: "OBJECT",
        list: "ARRAY",
        str: "STRING",
        bool: "BOOLEAN",
        int: "NUMBER",
        float: "NUMBER",
        Decimal: "NUMBER",
    }.get(type(value), "NULL")
    return Skippable(
        f"Cannot read the {schema.type.name} field{_format_path(path)}: the JSON value is a {json_types}. "
        "The message does not match its schema; correct its producer."
    )


def _present_reader(schema: Schema, replace_null: bool, path: str) -> Read:  # noqa: FBT001 - private
    kind = schema.type
    if schema.name == DECIMAL and kind is Type.BYTES:
        return _decimal_reader(schema, path)
    if kind in INTEGER_BITS:
        return _integer_reader(schema, path)
    if kind is Type.FLOAT32 or kind is Type.FLOAT64:
        return _float_reader(schema, path)
    if kind is Type.ARRAY:
        item = make_reader(schema.value_schema, replace_null=replace_null, path=f"{path}[...]")
        return lambda value: [item(entry) for entry in _check_type(value, list, schema, path)]
    if kind is Type.MAP:
        return _map_reader(schema, replace_null, path)
    if kind is Type.STRUCT:
        members = [
            (
                member.name,
                make_reader(
                    member.schema, replace_null=replace_null, path=f"{path}.{member.name}" if path else member.name
                ),
            )
            for member in schema.fields
        ]

        def struct(value: Any) -> dict[str, Any]:
            get = _check_type(value, dict, schema, path).get
            return {name: read(get(name)) for name, read in members}

        return struct
    if kind is Type.BYTES:
        return lambda value: _decode_binary(_check_type(value, str, schema, path), path)
    expected_type = bool if kind is Type.BOOLEAN else str
    return lambda value: _check_type(value, expected_type, schema, path)


def _check_type(value: Any, expected_type: type, schema: Schema, path: str) -> Any:
    if isinstance(value, expected_type):
        return value
    raise _make_mismatch(schema, path, value)


def _decode_binary(value: str, path: str) -> bytes:
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise Skippable(f"Invalid bytes field{_format_path(path)}: {error}") from None


def _integer_reader(schema: Schema, path: str) -> Read:
    limit = 1 << INTEGER_BITS[schema.type]

    def integer(value: Any) -> int:
        if isinstance(value, float | Decimal) and value == value // 1:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _make_mismatch(schema, path, value)
        if not -limit <= value < limit:
            raise Skippable(f"The JSON number of the field{_format_path(path)} does not fit into {schema.type.name}.")
        return value

    return integer


def _float_reader(schema: Schema, path: str) -> Read:
    single = schema.type is Type.FLOAT32

    def floating(value: Any) -> float:
        if isinstance(value, str) and value in SPECIAL_FLOATS:
            return SPECIAL_FLOATS[value]
        if not isinstance(value, float | int | Decimal) or isinstance(value, bool):
            raise _make_mismatch(schema, path, value)
        try:
            return to_float32(float(value)) if single else float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")

    return floating


def _decimal_reader(schema: Schema, path: str) -> Read:
    scale = decimal_scale(schema)

    def decimal(value: Any) -> Decimal:
        if isinstance(value, str):
            return decimal_from_bytes(_decode_binary(value, path), scale)
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise Skippable(
                "Invalid type for Decimal, underlying representation should be numeric or bytes but was "
                f"{type(value).__name__}{_format_path(path)}"
            )
        return value if isinstance(value, Decimal) else Decimal(repr(value))

    return decimal


def _map_reader(schema: Schema, replace_null: bool, path: str) -> Read:  # noqa: FBT001 - private
    keys, values = schema.key_schema, schema.value_schema
    read_value = make_reader(values, replace_null=replace_null, path=f"{path}[...]")
    if keys is None or keys.type is Type.STRING:
        return lambda value: {key: read_value(item) for key, item in _check_type(value, dict, schema, path).items()}
    read_key = make_reader(keys, replace_null=replace_null, path=f"a key of {path or 'the map'}")

    def pairs(value: Any) -> dict[Any, Any]:
        result = {}
        for entry in _check_type(value, list, schema, path):
            if not isinstance(entry, list):
                raise Skippable(f"Found invalid map entry instead of array tuple{_format_path(path)}")
            if len(entry) != 2:
                raise Skippable(
                    f"Found invalid map entry{_format_path(path)}, expected length 2 but found :{len(entry)}"
                )
            key = read_key(entry[0])
            try:
                result[key] = read_value(entry[1])
            except TypeError:
                raise Skippable(
                    f"The keys of the map{_format_path(path)} are structs, arrays or maps, which can't be keys."
                ) from None
        return result

    return pairs
