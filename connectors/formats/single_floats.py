"""Floating-point numbers of 32 bits."""

from __future__ import annotations

import math
import struct
from typing import Final

_LAYOUT: Final = struct.Struct("<f")


def round_to_single(number: float) -> float:
    """The nearest number of 32 bits; infinity for one that is too large for them. Pure."""
    try:
        single: float = _LAYOUT.unpack(_LAYOUT.pack(number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return single
