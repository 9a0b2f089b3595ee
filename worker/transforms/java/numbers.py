"""Numbers as Java's casts and parsers make them: what Cast needs."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

from connectors.formats.single_floats import round_to_single

_INTEGER: Final = re.compile(r"[+-]?\d+")
_FLOATING: Final = re.compile(
    r"[\x00-\x20]*([+-]?(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?|"
    r"(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?))[\x00-\x20]*"
)
_SUFFIX: Final = "fFdD"
#: Beyond it a power of ten is a multiple of two to the power of 64, so that nothing of its multiples is left.
_LONGEST_EXPONENT: Final = 400


def wrap_integer(value: int, bits: int) -> int:
    """The low ``bits`` of a number, as a signed one: ``(byte)``, ``(short)``, ``(int)`` of a longer integer."""
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def float_to_integer(value: float, bits: int) -> int:
    """``(byte)``, ``(short)``, ``(int)`` or ``(long)`` of a double: cut, held within an int (or long), then the low bits."""
    if math.isnan(value):
        return 0
    width = max(bits, 32)
    high = (1 << (width - 1)) - 1
    bounded = high if value >= high else -high - 1 if value <= -high - 1 else int(value)
    return wrap_integer(bounded, bits)


def decimal_to_integer(value: Decimal, bits: int) -> int:
    """``BigDecimal``'s ``byteValue`` ... ``longValue``: cut, then the low bits."""
    if value.adjusted() > _LONGEST_EXPONENT and int(value.as_tuple().exponent) > _LONGEST_EXPONENT:
        return 0
    return wrap_integer(int(value), bits)


def to_single(value: float | Decimal) -> float:
    """The nearest float, rounded once; infinite if it is out of range."""
    if type(value) is float:
        return value if value != value else round_to_single(value)  # noqa: PLR0124 - NaN
    double = _to_double(value)
    if math.isnan(double) or math.isinf(double):
        return double
    below, above = round_to_single(math.nextafter(double, -math.inf)), round_to_single(math.nextafter(double, math.inf))
    if below == above or math.isinf(below) or math.isinf(above) or isinstance(value, float):
        return round_to_single(double)
    # The double may have been rounded to the middle between two floats: the exact number tells which is nearer.
    middle = (Fraction(below) + Fraction(above)) / 2
    exact = Fraction(value)
    return round_to_single(double) if exact == middle else above if exact > middle else below


def _to_double(value: float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def parse_integer(digits: str, bits: int) -> int:
    """``Byte.parseByte`` ... ``Long.parseLong``.

    Raises:
        ValueError: it is no number of that size.
    """
    if len(digits) > 64 and digits.lstrip("+-").strip("0"):
        digits = digits[0] * (digits[0] in "+-") + digits.lstrip("+-").lstrip("0")  # zeros before it don't count
    if len(digits) > 64 or _INTEGER.fullmatch(digits) is None:
        raise ValueError(digits)
    value = int(digits)
    if value != wrap_integer(value, bits):
        raise ValueError(digits)
    return value


def parse_floating(digits: str, *, single: bool) -> float:
    """``Float.parseFloat`` or ``Double.parseDouble``.

    Raises:
        ValueError: it is no number.
    """
    match = _FLOATING.fullmatch(digits)
    if match is None:
        raise ValueError(digits)
    number, word, _, hexadecimal = match.groups()
    if word is not None:
        return math.copysign(float(word.lower()), -1 if number[0] == "-" else 1)
    if hexadecimal is not None:
        try:
            double = float.fromhex(number.rstrip(_SUFFIX) if number[-1] in _SUFFIX else number)
        except OverflowError:
            double = math.copysign(math.inf, -1 if number[0] == "-" else 1)
        return round_to_single(double) if single else double
    plain = number.rstrip(_SUFFIX)
    return (
        to_single(Decimal(plain))
        if single and abs(Decimal(plain).adjusted()) < _LONGEST_EXPONENT
        else _single_or_double(float(plain), single=single)
    )


def _single_or_double(value: float, *, single: bool) -> float:
    return round_to_single(value) if single else value
