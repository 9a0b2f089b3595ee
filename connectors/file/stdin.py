"""The standard input as an awaitable source of blocks."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Final

_BLOCK: Final = 64 * 1024
#: Blocks read ahead of the task.
_AHEAD: Final = 4


class StandardInput:
    """Reads descriptor 0 in a thread of its own.

    A read of a terminal or pipe can't be interrupted. The thread is therefore a daemon that no other thread waits for; what it
    still reads after ``close`` is dropped. It is not in the loop's thread pool because it would occupy one of the pool's
    threads forever.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._blocks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read_blocks, name="standard-input", daemon=True)
        self._thread.start()

    async def read(self) -> bytes:
        """The next block; empty at the end of the input. Call it again only after a block that was not empty."""
        block = await self._blocks.get()
        self._room.release()
        if isinstance(block, OSError):
            raise block
        return block

    def close(self) -> None:
        """Drop what is read from now on."""
        self._closed.set()
        self._room.release()

    def _read_blocks(self) -> None:
        while not self._closed.is_set():
            self._room.acquire()
            if self._closed.is_set():
                return
            try:
                block: bytes | OSError = os.read(self._descriptor, _BLOCK)
            except OSError as error:
                block = error
            try:
                self._loop.call_soon_threadsafe(self._blocks.put_nowait, block)
            except RuntimeError:  # the loop is closed
                return
            if not block or isinstance(block, OSError):
                return
