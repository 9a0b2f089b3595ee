"""Whether a value is what its schema says, by the table in ``connectors.schema``."""
from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from connectors.schema import DECIMAL, Schema, Type

_BITS: Final = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}
_CLASSES: Final[dict[Type, type]] = {
    Type.FLOAT32: float, Type.FLOAT64: float, Type.BOOLEAN: bool, Type.STRING: str, Type.BYTES: bytes, Type.ARRAY: list,
    Type.MAP: dict, Type.STRUCT: dict,
}


def mismatch(schema: Schema | None, value: Any, where: str = "value") -> str | None:
    """Where and how ``value`` is not of ``schema``; None if it is."""
    if schema is None:
        return _schemaless(value, where)
    if value is None:
        return None if schema.optional or schema.default is not None else f"{where} is null but its schema is not optional"
    bits = _BITS.get(schema.type)
    if bits is not None:
        if not isinstance(value, int) or isinstance(value, bool):
            return f"{where} is a {type(value).__name__}, its schema {schema.type}"
        return None if -(1 << bits) <= value < 1 << bits else f"{where} is out of the range of {schema.type}: {value}"
    wanted = Decimal if schema.name == DECIMAL else _CLASSES[schema.type]
    if not isinstance(value, wanted):
        return f"{where} is a {type(value).__name__}, its schema {schema.name or schema.type}"
    if isinstance(value, Decimal):
        scale = int(schema.parameter("scale") or 0)
        exponent = value.as_tuple().exponent
        return None if exponent == -scale else f"{where} has another scale than {scale}: {value}"
    if schema.type is Type.STRUCT:
        unknown = value.keys() - {member.name for member in schema.fields}
        if unknown:
            return f"{where} has fields that its schema lacks: {', '.join(sorted(unknown))}"
        return _first(mismatch(member.schema, value.get(member.name), f"{where}.{member.name}") for member in schema.fields)
    if schema.type is Type.ARRAY:
        return _first(mismatch(schema.value_schema, item, f"{where}[{index}]") for index, item in enumerate(value))
    if schema.type is Type.MAP:
        return _first(problem for key, item in value.items()
                      for problem in (mismatch(schema.key_schema, key, f"{where}, key {key!r}"),
                                      mismatch(schema.value_schema, item, f"{where}[{key!r}]")))
    return None


def _schemaless(value: Any, where: str) -> str | None:
    if value is None or isinstance(value, str | int | float | bool | bytes | Decimal):
        return None
    if isinstance(value, list):
        return _first(_schemaless(item, f"{where}[{index}]") for index, item in enumerate(value))
    if isinstance(value, dict):
        return _first(_schemaless(item, f"{where}[{key!r}]") for key, item in value.items())
    return f"{where} is a {type(value).__name__}, which is no plain value"


def _first(problems: Any) -> str | None:
    return next((problem for problem in problems if problem is not None), None)
