"""Bounds what all senders of a task together have in memory before their lines wait for Kafka. No I/O."""

from __future__ import annotations

import asyncio
from typing import Final

#: Bytes of requests and frames that may be in memory at one time, of all senders of a task.
MOST_BYTES: Final = 64 * 1024 * 1024


class RoomLease:
    """The part of one sender.

    Attributes:
        size: bytes that it has.
    """

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class Room:
    """Room for bytes, by as much as has come: a slow sender takes little of it.

    Parts of requests could fill it so that none is ever complete. So the first sender that would have to wait may go beyond the
    bound until its request or frame is complete: it alone.

    Args:
        max_bytes: bytes.
    """

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        self._most = max_bytes
        self._first: RoomLease | None = None
        self._freed = asyncio.Event()
        #: Locked while the lines of a request are made, until they are in the intake.
        self.unpacking = asyncio.Lock()
        #: Bytes that are in use.
        self.used = 0

    async def grow(self, lease: RoomLease, size: int) -> None:
        """Take more bytes; waits for room."""
        while self.used + size > self._most and lease is not self._first:
            if self._first is None:
                self._first = lease
                break
            self._freed.clear()
            await self._freed.wait()
        self._resize_lease(lease, lease.size + size)

    def replace(self, lease: RoomLease, size: int) -> None:
        """The sender has this many bytes now; does not wait."""
        if size < lease.size or not size:
            if lease is self._first:
                self._first = None
            self._freed.set()
        self._resize_lease(lease, size)

    def _resize_lease(self, lease: RoomLease, size: int) -> None:
        self.used += size - lease.size
        lease.size = size
