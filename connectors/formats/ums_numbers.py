"""Numbers and truth values as strings of UMS. Pure."""

from __future__ import annotations

import math
import struct
from typing import Final

_SINGLE: Final = struct.Struct("<f")


def format_double(value: float) -> str:
    """The text of a floating-point number of 64 bits."""
    return repr(float(value)) if math.isfinite(value) else format_infinite(value)


def format_float(value: float) -> str:
    """The shortest text of a floating-point number of 32 bits."""
    if not math.isfinite(value):
        return format_infinite(value)
    for digits in range(6, 9):
        digits_text = f"{value:.{digits}g}"
        if _SINGLE.pack(float(digits_text)) == _SINGLE.pack(value):
            return repr(float(digits_text))
    return repr(float(f"{value:.9g}"))


def format_infinite(value: float) -> str:
    """The text of an infinity or of what is no number, as Java writes them."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def format_boolean(value: bool) -> str:  # noqa: FBT001 - the value itself
    """The text of a truth value."""
    return "true" if value else "false"
