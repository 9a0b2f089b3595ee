"""How schemas and values are spelled in the vectors, so that Python and Java build the same ones.

A schema is an object: ``type`` (JsonConverter's name), ``optional``, ``name``, ``version``, ``doc``, ``parameters`` (pairs),
``fields`` (pairs of name and schema), ``keys``, ``values``, ``default`` (a value). A value is spelled by its schema: integers
as numbers, floats as the hexadecimal digits of their bits, bytes in Base64, decimals as [unscaled digits, scale], maps as
pairs, structs as objects with only the fields that are set. Without a schema it is a pair of kind (int, float, bool, str,
bytes, list, dict, decimal) and content.
"""

from __future__ import annotations

import base64
import struct
from decimal import Decimal
from typing import Any

from connectors.schema import DECIMAL, Field, Schema, Type


def schema_of(spec: dict[str, Any] | None) -> Schema | None:
    if spec is None:
        return None
    parts: dict[str, Any] = {name: spec[name] for name in ("name", "version", "doc") if name in spec}
    if "parameters" in spec:
        parts["parameters"] = tuple((key, text) for key, text in spec["parameters"])
    if "fields" in spec:
        parts["fields"] = tuple(Field(name, _schema(member)) for name, member in spec["fields"])
    if "keys" in spec:
        parts["key_schema"] = _schema(spec["keys"])
    if "values" in spec:
        parts["value_schema"] = _schema(spec["values"])
    schema = Schema(Type(spec["type"]), optional=spec.get("optional", False), **parts)
    if "default" in spec:
        default = value_of(schema, spec["default"])
        schema = Schema(schema.type, optional=schema.optional, default=default, **parts)
    return schema


def spec_of(schema: Schema) -> dict[str, Any]:
    """The spelling of a schema without defaults of structs, arrays and maps."""
    spec: dict[str, Any] = {"type": schema.type.value}
    for name in ("name", "version", "doc"):
        if getattr(schema, name) is not None:
            spec[name] = getattr(schema, name)
    if schema.optional:
        spec["optional"] = True
    if schema.parameters:
        spec["parameters"] = [list(pair) for pair in schema.parameters]
    if schema.fields:
        spec["fields"] = [[member.name, spec_of(member.schema)] for member in schema.fields]
    if schema.key_schema is not None:
        spec["keys"] = spec_of(schema.key_schema)
    if schema.value_schema is not None:
        spec["values"] = spec_of(schema.value_schema)
    if isinstance(schema.default, str | int):
        spec["default"] = schema.default
    return spec


def _schema(spec: dict[str, Any]) -> Schema:
    schema = schema_of(spec)
    assert schema is not None
    return schema


def double_of(bits: str) -> float:
    value: float = struct.unpack(">d", bytes.fromhex(bits.zfill(16)))[0]
    return value


def float_of(bits: str) -> float:
    value: float = struct.unpack(">f", bytes.fromhex(bits.zfill(8)))[0]
    return value


def double_bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def float_bits(value: float) -> str:
    return struct.pack(">f", value).hex()


def decimal_of(spec: list[Any]) -> Decimal:
    digits, scale = spec
    sign = 1 if digits.startswith("-") else 0
    return Decimal((sign, tuple(map(int, digits.lstrip("-"))), -scale))


def value_of(schema: Schema | None, spec: Any) -> Any:
    if spec is None:
        return None
    if schema is None:
        return schemaless_of(spec)
    if schema.name == DECIMAL:
        return decimal_of(spec)
    match schema.type:
        case Type.FLOAT32:
            return float_of(spec)
        case Type.FLOAT64:
            return double_of(spec)
        case Type.BYTES:
            return base64.b64decode(spec)
        case Type.ARRAY:
            return [value_of(schema.value_schema, item) for item in spec]
        case Type.MAP:
            return {value_of(schema.key_schema, key): value_of(schema.value_schema, item) for key, item in spec}
        case Type.STRUCT:
            return {
                member.name: value_of(member.schema, spec[member.name])
                for member in schema.fields
                if member.name in spec
            }
        case _:
            return spec


def schemaless_of(spec: list[Any]) -> Any:
    kind, content = spec
    match kind:
        case "float":
            return double_of(content)
        case "bytes":
            return base64.b64decode(content)
        case "list":
            return [value_of(None, item) for item in content]
        case "dict":
            return {value_of(None, key): value_of(None, item) for key, item in content}
        case "decimal":
            return decimal_of(content)
        case _:
            return content
