"""Types of columns and fields: from a value of a record to a value of a type. Pure functions."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.logs.rules.records import StepFailed

if TYPE_CHECKING:
    from collections.abc import Callable

#: Types of columns, named as DBus names them.
TYPES: Final = ("string", "int", "long", "float", "double", "decimal", "boolean", "datetime")
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]+\s*\Z")
_NUMBER: Final = re.compile(r"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?\s*\Z")
_BITS: Final = {"int": 31, "long": 63}
_TRUE: Final = frozenset(("true", "t", "yes", "y", "on", "1"))
_FALSE: Final = frozenset(("false", "f", "no", "n", "off", "0"))
_MOST_DIGITS: Final = 200
_SHOWN: Final = 60


def show_value(value: Any) -> str:
    """A value for a message, cut short."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def read_text(value: Any) -> str:
    """The text of a field that a step reads as text.

    Raises:
        StepFailed: it is null.
    """
    if type(value) is str:
        return value
    if value is None:
        raise StepFailed("the field is null")
    return write_text(value)


def write_text(value: Any) -> str:
    """Any value as text: null is empty, lists and objects are JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, int | float):
        return str(value)
    return msgspec.json.encode(value).decode()


def _make_integer(kind: str) -> Callable[[Any], int]:
    bound = 1 << _BITS[kind]

    def convert(value: Any) -> int:
        if type(value) is str:
            if value.isdigit() and value.isascii() and len(value) < 10:
                return int(value)
            if _INTEGER.match(value) is None or len(value) > _MOST_DIGITS:
                raise StepFailed(f"{show_value(value)} is no whole number")
            number = int(value)
        elif type(value) is int:
            number = value
        elif isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value):
            number = int(value)
        else:
            raise StepFailed(f"{show_value(value)} is no whole number")
        if not -bound <= number < bound:
            raise StepFailed(f"{number} does not fit into {kind}")
        return number

    return convert


def _to_float(value: Any) -> float:
    if type(value) is str:
        if _NUMBER.match(value) is None:
            raise StepFailed(f"{show_value(value)} is no number")
        number = float(value)
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    else:
        raise StepFailed(f"{show_value(value)} is no number")
    if not math.isfinite(number):
        raise StepFailed(f"{show_value(value)} does not fit into a floating-point number")
    return number


def _to_single(value: Any) -> float:
    number = _to_float(value)
    if abs(number) > 3.4028235677973366e38:
        raise StepFailed(f"{show_value(value)} does not fit into float")
    return number


def _to_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    lowered = write_text(value).strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise StepFailed(f"{show_value(value)} is neither true nor false")


def _make_decimal(scale: int) -> Callable[[Any], Decimal]:
    unit = Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
            raise StepFailed(f"{show_value(value)} is no number")
        digits = write_text(value)
        if _NUMBER.match(digits) is None or len(digits) > _MOST_DIGITS:
            raise StepFailed(f"{show_value(value)} is no number")
        with localcontext() as context:
            context.prec = _MOST_DIGITS
            try:
                number = Decimal(digits.strip())
                rounded = number.quantize(unit)
            except InvalidOperation:
                raise StepFailed(f"{show_value(value)} has more than {_MOST_DIGITS} digits") from None
        if rounded != number:
            raise StepFailed(f"{show_value(value)} has more than {scale} digits after the point")
        return rounded

    return convert


@lru_cache(maxsize=256)  # equal columns share one, and so their groups a generated function
def make_converter(kind: str, scale: int = 0) -> Callable[[Any], Any]:
    """A function that makes a value of a type (all of ``TYPES`` but datetime) and raises ``StepFailed`` for any other value."""
    if kind in _BITS:
        return _make_integer(kind)
    if kind == "decimal":
        return _make_decimal(scale)
    return {"string": write_text, "float": _to_single, "double": _to_float, "boolean": _to_boolean}[kind]
