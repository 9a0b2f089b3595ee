"""Turns on an event loop for many coroutines that become ready at once."""

from __future__ import annotations

import asyncio
from collections import deque


class Turnstile:
    """Lets one coroutine through per turn of the event loop, in order.

    Thousands of tasks that are handed to a host at once would each do their few milliseconds of setting up in one and the same
    turn, and nothing else would get one for seconds: no answer, no heartbeat. To be used on one event loop.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turning = False

    async def turn(self) -> None:
        """Wait for one's turn."""
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        if not self._turning:
            self._turning = True
            self._wake_next()
        await mine

    def _wake_next(self) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else its coroutine was cancelled
                first.set_result(None)
                asyncio.get_running_loop().call_soon(self._wake_next)
                return
        self._turning = False
