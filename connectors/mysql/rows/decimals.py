"""Stored DECIMALs: their size, their groups of digits, and their values. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from connectors.mysql.rows.type_values import EXACT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Bytes taken by the leading decimal digits, by their number.
_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_GROUP: Final = 9


def decimal_size(precision: int, scale: int) -> int:
    """Bytes of a stored DECIMAL."""
    whole = precision - scale
    return whole // _GROUP * 4 + _DIGIT_BYTES[whole % _GROUP] + scale // _GROUP * 4 + _DIGIT_BYTES[scale % _GROUP]


def decimal_parts(precision: int, scale: int) -> list[tuple[int, int]]:
    """A stored DECIMAL's groups of digits: the power of ten of a group's digits, and its bits."""
    whole = precision - scale
    widths = (
        [(whole % _GROUP, _DIGIT_BYTES[whole % _GROUP])]
        + [(_GROUP, 4)] * (whole // _GROUP + scale // _GROUP)
        + [(scale % _GROUP, _DIGIT_BYTES[scale % _GROUP])]
    )
    return [(10**digits, size * 8) for digits, size in widths if size]


def decimal_reader(precision: int, scale: int) -> Callable[[bytes], Decimal]:
    """A function from a stored DECIMAL to its value, with all digits of its scale."""
    parts = decimal_parts(precision, scale)
    left = bits = sum(size for _, size in parts)
    top, full = 1 << (bits - 1), (1 << bits) - 1
    steps: list[tuple[int, int, int]] = []
    for power, size in parts:
        left -= size
        steps.append((power, left, (1 << size) - 1))
    unit = Decimal((0, (1,), -scale))
    multiply, from_bytes = EXACT.multiply, int.from_bytes

    def read(stored: bytes) -> Decimal:
        packed = from_bytes(stored) ^ top
        negative = packed & top
        if negative:
            packed ^= full
        digits = 0
        for power, shift, mask in steps:
            digits = digits * power + (packed >> shift & mask)
        return multiply(-digits if negative else digits, unit)

    return read


def digits_expression(parts: Sequence[tuple[int, int]], packed: str) -> str:
    """An expression for the digits, as one whole number, of a stored DECIMAL without its sign in ``packed``."""
    left = sum(bits for _, bits in parts)
    expression = ""
    for power, bits in parts:
        shifted = f"{packed} >> {left - bits}" if left > bits else packed
        group = f"({shifted} & {(1 << bits) - 1})" if expression else f"({shifted})"
        expression = f"({expression} * {power} + {group})" if expression else group
        left -= bits
    return expression
