"""The order in which Java's ``HashMap`` lists string keys: the output of Java programs follows it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Slots of a new ``HashMap``; it doubles them when three quarters are taken.
_SLOTS: Final = 16


def string_hash(string: str) -> int:
    """``String.hashCode`` as an unsigned number."""
    data = string.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in struct.unpack(f"<{len(data) // 2}H", data):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value


def hash_order(keys: Iterable[str], slots: int = _SLOTS) -> list[str]:
    """``keys`` in the order of a ``HashMap`` that they were put into one by one.

    Args:
        keys: different strings.
        slots: how many slots the map began with, a power of two.
    """
    listed = list(keys)
    while len(listed) * 4 > slots * 3:
        slots *= 2
    hashes = [string_hash(key) for key in listed]
    return [
        key
        for _, key in sorted(
            zip(((number ^ number >> 16) & slots - 1 for number in hashes), listed, strict=True),
            key=lambda pair: pair[0],
        )
    ]


def copy_order(keys: list[str]) -> list[str]:
    """``keys``, in the order of one ``HashMap``, in that of a copy of it, which is made with room for what is there."""
    room = len(keys) * 4 // 3 + 1
    return hash_order(keys, 1 << (room - 1).bit_length() if keys else 1)
