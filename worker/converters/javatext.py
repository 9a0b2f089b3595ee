"""Numbers and values as Java prints them: ``Double.toString``, ``Float.toString``, ``BigDecimal`` bytes, ``String.valueOf``.

Floating point follows the algorithm that Java has had since JDK 19 (JDK-4511638: the shortest decimal that reads back as the
same number). Older runtimes print a digit more or another last digit for some numbers (``2.0E-3`` never, ``2.0E23`` yes);
both forms read back as the same number.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from decimal import MAX_PREC, Context, Decimal
from fractions import Fraction
from math import isinf, isnan
from typing import Any, Final

from connectors.errors import Skippable
from connectors.schema import DATE, TIME, TIMESTAMP, Schema, Type

_FLOAT: Final = struct.Struct("<f")
_BITS: Final = struct.Struct("<I")
_SMALLEST_NORMAL_FLOAT: Final = 2.0**-126
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS: Final = 86_400_000
#: English, whatever the machine's locale is.
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: Wide enough for any DECIMAL of a database, narrow enough that a hostile exponent can't fill the memory.
_WIDE: Final = Context(prec=min(MAX_PREC, 100_000), traps=[])


def double_text(value: float) -> str:
    """``Double.toString(value)``."""
    if 0.001 <= value < 1e7 or -1e7 < value <= -0.001 or value == 0.0:
        return repr(value)
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    digits, exponent = _parse_scientific(repr(abs(value)))
    if len(digits) == 1:
        # One digit was enough to read it back, but Java always prints two, and takes the two that come closest.
        digits, exponent = _parse_scientific(f"{abs(value):.1e}")
    return _format_digits(digits, exponent, negative=value < 0)


def to_float32(value: float) -> float:
    """``value`` rounded to the nearest float32.

    Raises:
        OverflowError: it is beyond the range of float32.
    """
    rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return rounded


def float_text(value: float) -> str:
    """``Float.toString`` of ``value`` rounded to float32.

    Raises:
        OverflowError: it is beyond the range of float32.
    """
    value = to_float32(value)
    if value == 0.0:
        return repr(value)
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    digits, exponent = _shortest_float(abs(value))
    return _format_digits(digits, exponent, negative=value < 0)


def _shortest_float(value: float) -> tuple[str, int]:
    if _BITS.unpack(_FLOAT.pack(value))[0] & 0x7FFFFF == 0:
        return _shortest_power_of_two(value)
    # Below six digits decimals are rarer than normal floats: the six nearest, without trailing zeros, are the shortest.
    start = 6 if value >= _SMALLEST_NORMAL_FLOAT else 2
    for precision in range(start, 9):
        candidate = f"{value:.{precision - 1}e}"
        if _reads_back(candidate, value):
            return _parse_scientific(candidate)
    return _parse_scientific(f"{value:.8e}")


def _reads_back(digits: str, value: float) -> bool:
    try:
        return to_float32(float(digits)) == value
    except OverflowError:
        return False


def _shortest_power_of_two(value: float) -> tuple[str, int]:
    """The shortest digits for 2**n: the gap below is half the gap above, so the nearest decimal may be the wrong one."""
    exact = Fraction(value)
    bits = _BITS.unpack(_FLOAT.pack(value))[0]
    above = Fraction(_FLOAT.unpack(_BITS.pack(bits + 1))[0]) if bits < 0x7F000000 else exact + Fraction(2) ** 104
    below = Fraction(_FLOAT.unpack(_BITS.pack(bits - 1))[0])
    low, high = (exact + below) / 2, (exact + above) / 2  # both included: the even mantissa wins ties
    exponent = _parse_scientific(f"{value:.8e}")[1]
    for precision in range(2, 10):
        unit = Fraction(10) ** (exponent - precision + 1)
        floor = exact // unit
        inside = [n for n in (floor, floor + 1) if low <= n * unit <= high]
        if inside:
            best = min(inside, key=lambda n: abs(n * unit - exact))
            return _parse_scientific(f"{best}e{exponent - precision + 1}")
    return _parse_scientific(f"{value:.8e}")


def _parse_scientific(number_text: str) -> tuple[str, int]:
    """Digits without trailing zeros, and the exponent of the first one."""
    mantissa, _, power = number_text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or 0) + len(whole) - 1 - (len(whole + fraction) - len(digits))
    return digits.rstrip("0") or "0", exponent


def _format_digits(digits: str, exponent: int, *, negative: bool) -> str:
    if -3 <= exponent < 7:
        if exponent < 0:
            layout = "0." + "0" * (-exponent - 1) + digits
        else:
            digits = digits.ljust(exponent + 2, "0")
            layout = f"{digits[: exponent + 1]}.{digits[exponent + 1 :]}"
    else:
        layout = f"{digits[0]}.{digits[1:] or '0'}E{exponent}"
    return "-" + layout if negative else layout


def to_unscaled(value: Decimal, scale: int) -> int:
    """``value`` times ten to the power of ``scale``.

    Raises:
        ValueError: it has digits beyond the scale, or is not a finite number of at most 100,000 digits.
    """
    if scale > 0 and type(value) is Decimal:
        # Columns mostly give exactly ``scale`` digits: their text is cheaper to take apart than the number.
        digits = str(value)
        if len(digits) > scale and digits[-scale - 1] == ".":
            try:
                return int(digits.replace(".", ""))
            except ValueError:  # "1.5E+10"
                pass
    if not value.is_finite():
        raise ValueError("not a finite number")
    shifted = _WIDE.scaleb(value, scale)
    # A hostile exponent (1E+999999) would make an enormous integer of a few bytes.
    if not shifted.is_finite() or shifted.adjusted() > 100_000:
        raise ValueError("more than 100,000 digits")
    number = int(shifted)
    if number != shifted:
        raise ValueError(f"more than {scale} digits after the point")
    return number


def integer_bytes(number: int) -> bytes:
    """``BigInteger.toByteArray``: two's complement, big-endian, as short as possible."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def decimal_bytes(value: Decimal, scale: int) -> bytes:
    """Connect's Decimal bytes; raises as ``to_unscaled`` does."""
    return integer_bytes(to_unscaled(value, scale))


def decimal_from_bytes(data: bytes, scale: int) -> Decimal:
    """The Decimal that ``data`` and ``scale`` stand for, with exactly that scale."""
    return _WIDE.scaleb(Decimal(int.from_bytes(data, "big", signed=True)), -scale)


def decimal_text(value: Decimal) -> str:
    """``BigDecimal.toString``: Python's form, except that Java knows no negative zero.

    Raises:
        ValueError: it is not a finite number.
    """
    if not value.is_finite():
        raise ValueError("not a finite number")
    return str(value.copy_abs() if value.is_zero() else value)


def decimal_scale(schema: Schema) -> int:
    """The ``scale`` parameter of a Decimal schema.

    Raises:
        Skippable: it is missing or not a number.
    """
    scale_text = schema.parameter("scale")
    try:
        return int(scale_text or "")
    except ValueError:
        raise Skippable(
            f"Invalid Decimal schema: its scale parameter is {'missing' if scale_text is None else repr(scale_text)}. "
            "Give the schema a whole number of digits as parameter 'scale'."
        ) from None


def java_text(value: Any, schema: Schema | None = None) -> str:
    """``String.valueOf(value)`` for the Java counterpart of a Connect value.

    Days, times and instants print as ``java.util.Date`` does, in UTC and in the Gregorian calendar (Java: the machine's time
    zone, and the Julian calendar before 1582-10-15). Structs print as ``Struct{name=value}`` without null fields. Bytes, of
    which Java prints an object's address, print as ISO 8859-1 text.
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value) if schema is not None and schema.type is Type.FLOAT32 else double_text(value)
    if isinstance(value, int):
        moment = temporal_moment(schema, value) if schema is not None and schema.name is not None else None
        if moment is not None:
            return f"{_DAYS[moment.weekday()]} {_MONTHS[moment.month - 1]} {moment:%d %H:%M:%S} UTC {moment.year:04d}"
        floating = schema is not None and schema.type in (Type.FLOAT32, Type.FLOAT64)
        return double_text(float(value)) if floating else str(int(value))
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, dict):
        return _mapping_text(value, schema)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("latin-1")
    if isinstance(value, list | tuple):
        inner = schema.value_schema if schema is not None else None
        return "[" + ", ".join(java_text(item, inner) for item in value) + "]"
    return str(value)


def temporal_moment(schema: Schema, value: int) -> datetime | None:
    """The instant that a value of one of Connect's temporal types stands for; None for other types and years beyond 9999."""
    if schema.name == DATE:
        value *= _DAY_MS
    elif schema.name not in (TIME, TIMESTAMP):
        return None
    try:
        return _EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        return None


def _mapping_text(value: dict[Any, Any], schema: Schema | None) -> str:
    if schema is not None and schema.type is Type.STRUCT:
        parts = []
        for member in schema.fields:
            item = value.get(member.name)
            if item is not None:
                parts.append(f"{member.name}={java_text(item, member.schema)}")
        return "Struct{" + ",".join(parts) + "}"
    keys, values = (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
    return "{" + ", ".join(f"{java_text(key, keys)}={java_text(item, values)}" for key, item in value.items()) + "}"
