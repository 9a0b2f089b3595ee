"""A position in the bytes of a partition update, and the numbers that are read from there."""

from __future__ import annotations

from typing import ClassVar, Final

from connectors.cql.mutations.head import LOCAL_EPOCH, TIMESTAMP_EPOCH, add_delta
from connectors.cql.values import read_unsigned_vint

#: Write time that means "no deletion": rows where one multicell column was deleted have a deletion for every such column.
LIVE_FROM: Final = -1 << 63
_INT: Final = 1 << 32
_INT_SIGN: Final = 1 << 31
_ONE_BYTE: Final = 0x80


class DamagedBytes(ValueError):
    """The bytes are none of a partition update; the message says in what."""


class UpdateCursor:
    """Reads one partition update from left to right. Numbers are what they are above bases at its beginning.

    Attributes:
        data: bytes that the update is in; others may follow.
        pos: the next byte to be read.
    """

    #: Up to this version of the log times of deletion and expiry are signed; later ones reach from 1970 to 2106.
    LAST_SIGNED_VERSION: ClassVar[int] = 7

    __slots__ = ("_local_base", "_timestamp_base", "_ttl_base", "_wide", "data", "pos")

    def __init__(self, data: bytes, pos: int, *, wide: bool) -> None:
        self.data = data
        self.pos = pos
        self._wide = wide
        self._timestamp_base = TIMESTAMP_EPOCH
        self._local_base = LOCAL_EPOCH
        self._ttl_base = 0

    def read_bases(self) -> None:
        """Read the least timestamp, time of deletion or expiry, and TTL: all that follow are written relative to them."""
        written, local, ttl = self.timestamp(), self.local_time(), self.unsigned()
        self._timestamp_base, self._local_base, self._ttl_base = written, local, ttl

    @property
    def least_write_time(self) -> int:
        """The least write time of all, as ``read_bases`` has read it, µs since 1970."""
        return self._timestamp_base

    def byte(self) -> int:
        """The next byte."""
        value = self.data[self.pos]
        self.pos += 1
        return value

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        start = self.pos
        end = start + size
        if end > len(self.data):
            raise DamagedBytes(f"{size} bytes at {start} reach beyond the end")
        self.pos = end
        return self.data[start:end]

    def unsigned(self) -> int:
        """A variable-length integer."""
        pos = self.pos
        first = self.data[pos]
        if first < _ONE_BYTE:
            self.pos = pos + 1
            return first
        value, self.pos = read_unsigned_vint(self.data, pos)
        return value

    def timestamp(self) -> int:
        """A write time, µs since 1970."""
        return add_delta(self.unsigned(), self._timestamp_base)

    def local_time(self) -> int:
        """A time of deletion or expiry by the server's clock, s since 1970."""
        value = (self.unsigned() + self._local_base) % _INT
        return value if self._wide or value < _INT_SIGN else value - _INT

    def ttl(self) -> int:
        """A time to live, s."""
        return (self.unsigned() + self._ttl_base) % _INT
