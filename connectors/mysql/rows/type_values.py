"""Small conversions that the decoders and the defaults share. Pure."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from decimal import Context
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

#: Keeps every digit of a DECIMAL, which has 65 at most.
EXACT: Final = Context(prec=80, Emin=-999_999, Emax=999_999)
_SIGN: Final = 1 << 63
_SIZE: Final = 1 << 64


def wrap_unsigned(number: int) -> int:
    """An unsigned 64-bit number as Java's ``long`` holds it."""
    return number - _SIZE if number >= _SIGN else number


def format_plain(number: Decimal) -> str:
    """A decimal without exponent."""
    return format(number, "f")


def decimal_value(mode: str) -> Callable[[Decimal], Any]:
    """From a decimal to what ``decimal.handling.mode`` shows."""
    if mode == "double":
        return float
    return format_plain if mode == "string" else lambda number: number


def binary_value(mode: str) -> Callable[[bytes], Any]:
    """From bytes to what ``binary.handling.mode`` shows."""
    if mode == "base64":
        return lambda data: b64encode(data).decode("ascii")
    if mode == "base64-url-safe":
        return lambda data: urlsafe_b64encode(data).decode("ascii")
    if mode == "hex":
        return bytes.hex
    return lambda data: data


def set_value(members: Sequence[str]) -> Callable[[int], str]:
    """From a SET's bits to its members, with commas.

    The function raises ValueError for a bit without a member.
    """
    member_texts: dict[int, str] = {}
    max_cached = 4096

    def show(bits: int) -> str:
        member_text = member_texts.get(bits)
        if member_text is None:
            if bits >> len(members):
                raise ValueError(f"a SET of {len(members)} members has the value {bits:#x}")
            if len(member_texts) >= max_cached:
                member_texts.clear()
            member_text = member_texts[bits] = ",".join(member for bit, member in enumerate(members) if bits >> bit & 1)
        return member_text

    return show
