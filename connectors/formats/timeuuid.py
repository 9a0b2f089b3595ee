"""Version 1 UUIDs, as Cassandra and Scylla use them for moments: 16 bytes in, numbers and text out."""

from __future__ import annotations

from typing import Final

#: 100 ns steps between the start of the Gregorian calendar and 1970-01-01.
_EPOCH: Final = 0x01B21DD213814000
#: The same in µs.
EPOCH_MICROS: Final = _EPOCH // 10


def read_micros(raw: bytes) -> int:
    """The moment in µs since 1970-01-01 UTC."""
    high = int.from_bytes(raw[:8], "big")
    return ((high & 0x0FFF) << 48 | (high & 0xFFFF0000) << 16 | high >> 32) // 10 - EPOCH_MICROS


def format_uuid(raw: bytes) -> str:
    """The canonical lower-case form."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def make_uuid(micro: int, low: int) -> bytes:
    """The version 1 UUID of a moment (µs since 1970-01-01) whose last eight bytes are ``low``'s."""
    ticks = micro * 10 + _EPOCH
    return (
        (ticks & 0xFFFFFFFF).to_bytes(4, "big")
        + (ticks >> 32 & 0xFFFF).to_bytes(2, "big")
        + (ticks >> 48 & 0x0FFF | 0x1000).to_bytes(2, "big")
        + low.to_bytes(8, "big")
    )


def order_key(canonical: str) -> tuple[int, bytes]:
    """A sort key for the text form: by time, then by the last eight bytes as Cassandra compares them (each a signed byte)."""
    raw = bytes.fromhex(canonical.replace("-", ""))
    high = int.from_bytes(raw[:8], "big")
    ticks = (high & 0x0FFF) << 48 | (high & 0xFFFF0000) << 16 | high >> 32
    return ticks, bytes(byte ^ 0x80 for byte in raw[8:])
