"""Names of Java classes and conversions of Java's, for error messages and results that equal Connect's."""

from __future__ import annotations

import math
import struct
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from connectors.errors import Skippable
from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type

_BY_LOGICAL_NAME: Final = {
    DECIMAL: "java.math.BigDecimal",
    DATE: "java.util.Date",
    TIME: "java.util.Date",
    TIMESTAMP: "java.util.Date",
}
_BY_TYPE: Final = {
    Type.INT8: "java.lang.Byte",
    Type.INT16: "java.lang.Short",
    Type.INT32: "java.lang.Integer",
    Type.INT64: "java.lang.Long",
    Type.FLOAT32: "java.lang.Float",
    Type.FLOAT64: "java.lang.Double",
    Type.BOOLEAN: "java.lang.Boolean",
    Type.STRING: "java.lang.String",
    Type.BYTES: "[B",
    Type.ARRAY: "java.util.ArrayList",
    Type.MAP: "java.util.HashMap",
    Type.STRUCT: "org.apache.kafka.connect.data.Struct",
}
_BY_PYTHON: Final = {
    bool: "java.lang.Boolean",
    int: "java.lang.Long",
    float: "java.lang.Double",
    str: "java.lang.String",
    bytes: "[B",
    Decimal: "java.math.BigDecimal",
    list: "java.util.ArrayList",
    dict: "java.util.HashMap",
}

_SINGLE: Final = struct.Struct("<f")
# Further than this a long is shifted to nothing: it keeps an absurd exponent from making an absurd integer.
_LONGEST_EXPONENT: Final = 400


def class_name(value: Any, schema: Schema | None = None) -> str:
    """The class ``value`` would have in Connect."""
    if value is None:
        return "null"
    if schema is not None:
        return _BY_LOGICAL_NAME.get(schema.name or "") or _BY_TYPE[schema.type]
    return _BY_PYTHON.get(type(value), type(value).__name__)


def _parse_number(number_text: str, noun: str) -> Decimal:
    try:
        number = Decimal(number_text)
    except InvalidOperation:
        number = None
    # BigDecimal knows neither underscores nor surrounding blanks nor NaN and Infinity, all of which Decimal takes.
    if (
        number is None
        or not number.is_finite()
        or "_" in number_text
        or number_text.strip() != number_text
        or not number_text.isascii()
    ):
        raise Skippable(f"Unable to convert {number_text} (class java.lang.String) to {noun}")
    return number


def to_integer(number_text: str, bits: int) -> int:
    """``number_text`` as Connect makes an integer of it: cut towards zero, then to ``bits`` bits as a Java cast does.

    Raises:
        Skippable: it is no number.
    """
    number = _parse_number(number_text, "a number")
    if number.adjusted() > _LONGEST_EXPONENT:
        return 0
    whole = int(number) & ((1 << bits) - 1)
    return whole - (1 << bits) if whole >> (bits - 1) else whole


def to_double(number_text: str) -> float:
    """``number_text`` as a double.

    Raises:
        Skippable: it is no number.
    """
    return float(_parse_number(number_text, "a number"))


def to_float(number_text: str) -> float:
    """``number_text`` as a double that a float can hold: rounded to single precision, as Java's cast does.

    Raises:
        Skippable: it is no number.
    """
    try:
        rounded: float = _SINGLE.unpack(_SINGLE.pack(to_double(number_text)))[0]
    except OverflowError:
        return math.copysign(math.inf, to_double(number_text))
    return rounded


def to_decimal(number_text: str) -> Decimal:
    """``number_text`` as an exact number.

    Raises:
        Skippable: it is no number.
    """
    return _parse_number(number_text, "number")
