"""Coroutines that become ready at once take turns, and so do messages that came at once."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

from tests.support.eventually import eventually_async, pass_turns
from worker.pipe import Peer
from worker.protocol import Ping, ToHost
from worker.turns import Turnstile


class Laps:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.now = 0
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.now += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


async def test_one_passes_in_each_turn_of_the_loop_in_order() -> None:
    turnstile, laps = Turnstile(), Laps()
    passed: list[tuple[int, int]] = []

    async def take_turn(number: int) -> None:
        await turnstile.turn()
        passed.append((laps.now, number))

    waiting = [asyncio.create_task(take_turn(number)) for number in range(100)]
    await pass_turns()
    waiting[3].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    laps.stop()
    assert [number for _, number in passed] == [number for number in range(100) if number != 3]
    assert max(Counter(lap for lap, _ in passed).values()) == 1
    await turnstile.turn()  # it continues after all have passed


async def test_messages_that_came_at_once_leave_turns_to_others() -> None:
    here, there = socket.socketpair()
    laps = Laps()
    handled: list[int] = []

    async def handle(message: Ping) -> None:
        del message
        handled.append(laps.now)

    reader, writer = await asyncio.open_connection(sock=here)
    other_reader, other_writer = await asyncio.open_connection(sock=there, limit=1 << 24)
    asking = Peer(reader, writer, handle, ToHost)
    asked = Peer(other_reader, other_writer, handle, ToHost)
    asking.start()
    for _ in range(2000):
        asking.event(Ping())
    await pass_turns()
    asked.start()
    await eventually_async(lambda: len(handled) == 2000, "all messages are handled", every=0)
    laps.stop()
    assert max(Counter(handled).values()) <= 256
    await asking.close()
    await asked.close()
