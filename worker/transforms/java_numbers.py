"""Numbers as Java's casts and parsers make them: what Cast needs."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Final

_SINGLE: Final = struct.Struct("<f")
_INTEGER: Final = re.compile(r"[+-]?\d+")
_FLOATING: Final = re.compile(
    r"[\x00-\x20]*([+-]?(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?|"
    r"(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?))[\x00-\x20]*"
)
_SUFFIX: Final = "fFdD"
#: Beyond it a power of ten is a multiple of two to the power of 64, so that nothing of the number is left.
_LONGEST_EXPONENT: Final = 400


def wrapped(value: int, bits: int) -> int:
    """The low ``bits`` of a number, as a signed one: ``(byte)``, ``(short)``, ``(int)`` of a longer integer."""
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def float_to_integer(value: float, bits: int) -> int:
    """``(byte)``, ``(short)``, ``(int)`` or ``(long)`` of a double: cut, held within an int (or long), then the low bits."""
    if math.isnan(value):
        return 0
    width = max(bits, 32)
    high = (1 << (width - 1)) - 1
    held = high if value >= high else -high - 1 if value <= -high - 1 else int(value)
    return wrapped(held, bits)


def decimal_to_integer(value: Decimal, bits: int) -> int:
    """``BigDecimal``'s ``byteValue`` ... ``longValue``: cut, then the low bits."""
    return 0 if value.adjusted() > _LONGEST_EXPONENT else wrapped(int(value), bits)


def to_single(value: float | Decimal) -> float:
    """The nearest float, rounded once; infinite if it is out of range."""
    if type(value) is float:
        return value if value != value else _packed(value)  # noqa: PLR0124 - NaN
    double = _double(value)
    if math.isnan(double) or math.isinf(double):
        return double
    below, above = _packed(math.nextafter(double, -math.inf)), _packed(math.nextafter(double, math.inf))
    if below == above or math.isinf(below) or math.isinf(above) or isinstance(value, float):
        return _packed(double)
    # The double may have been rounded to the middle between two floats: the exact number tells which is nearer.
    middle = (Fraction(below) + Fraction(above)) / 2
    exact = Fraction(value)
    return _packed(double) if exact == middle else above if exact > middle else below


def _double(value: float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _packed(value: float) -> float:
    try:
        packed: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return packed


def parse_integer(text: str, bits: int) -> int:
    """``Byte.parseByte`` ... ``Long.parseLong``.

    Raises:
        ValueError: it is no number of that size.
    """
    if len(text) > 64 and text.lstrip("+-").strip("0"):
        text = text[0] * (text[0] in "+-") + text.lstrip("+-").lstrip("0")  # zeros before it don't count
    if len(text) > 64 or _INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    value = int(text)
    if value != wrapped(value, bits):
        raise ValueError(text)
    return value


def parse_floating(text: str, *, single: bool) -> float:
    """``Float.parseFloat`` or ``Double.parseDouble``.

    Raises:
        ValueError: it is no number.
    """
    found = _FLOATING.fullmatch(text)
    if found is None:
        raise ValueError(text)
    number, word, _, hexadecimal = found.groups()
    if word is not None:
        return math.copysign(float(word.lower()), -1 if number[0] == "-" else 1)
    if hexadecimal is not None:
        try:
            double = float.fromhex(number.rstrip(_SUFFIX) if number[-1] in _SUFFIX else number)
        except OverflowError:
            double = math.copysign(math.inf, -1 if number[0] == "-" else 1)
        return _packed(double) if single else double
    plain = number.rstrip(_SUFFIX)
    return (
        to_single(Decimal(plain))
        if single and abs(Decimal(plain).adjusted()) < _LONGEST_EXPONENT
        else _single_or_double(float(plain), single=single)
    )


def _single_or_double(value: float, *, single: bool) -> float:
    return _packed(value) if single else value
