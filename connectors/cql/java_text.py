"""Values as the strings that Java's ``String.valueOf`` makes of them; numbers and dates differ from Python's."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.cql.types import CqlType

_DAYS: Final = ("Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def header_text(kind: CqlType) -> Callable[[Any], str]:
    """Return the function that turns values of a type into Java's strings; bytes, whose content Java hides, become 0x..."""
    if kind.name == "boolean":
        return lambda value: "true" if value else "false"
    if kind.name == "blob":
        return lambda value: f"0x{value.hex()}"
    if kind.name == "date":
        return lambda value: java_date(value * 86_400)
    if kind.name == "timestamp":
        return lambda value: java_date(value // 1000)
    if kind.name in {"float", "double"}:
        return _float_text if kind.name == "float" else _double_text
    if kind.name in {"list", "set", "vector"}:
        element = header_text(kind.arguments[0])
        return lambda value: "[" + ", ".join("null" if item is None else element(item) for item in value) + "]"
    return str


def _double_text(value: float) -> str:
    return _java_float(value, repr(value))


def _float_text(value: float) -> str:
    """The shortest text that reads back as the same 4-byte float."""
    if not math.isfinite(value):
        return _java_float(value, "")
    digits_text = next(
        digits_text
        for digits in range(1, 10)
        if _to_single(float(digits_text := f"{value:.{digits}g}")) == value or digits == 9
    )
    return _java_float(value, repr(float(digits_text)))


def _to_single(value: float) -> float:
    try:
        single: float = struct.unpack(">f", struct.pack(">f", value))[0]
    except OverflowError:
        return math.inf
    return single


def _java_float(value: float, digits_text: str) -> str:
    """Python's text of a number in Java's layout: an exponent below 0.001 and from ten million on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 0.001 <= abs(value) < 1e7:
        return digits_text
    sign, digits, exponent = Decimal(digits_text).normalize().as_tuple()
    shown = "".join(map(str, digits))
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{int(exponent) + len(digits) - 1}"


def java_date(seconds: int) -> str:
    """``java.util.Date.toString`` in UTC of a time in seconds since 1970; years that Python does not have as a bare number."""
    days, second_of_day = divmod(seconds, 86_400)
    clock = f"{second_of_day // 3600:02}:{second_of_day // 60 % 60:02}:{second_of_day % 60:02}"
    try:
        day = dt.date(1970, 1, 1) + dt.timedelta(days=days)
    except OverflowError:
        return f"{seconds}"
    return f"{_DAYS[days % 7]} {_MONTHS[day.month - 1]} {day.day:02} {clock} UTC {day.year:04}"
