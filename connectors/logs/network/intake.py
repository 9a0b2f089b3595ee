"""Between the servers and the task: lines wait here, in bounded number, and their senders until Kafka has them. No I/O."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.logs.network.lines import NetworkLine

#: Bytes of lines that may wait for Kafka at one time, of all senders of a task.
MOST_BYTES: Final = 32 * 1024 * 1024


class SenderDelivery:
    """Lines that came together from one sender.

    Args:
        lines: how many.

    Attributes:
        done: set once Kafka has all of them.
    """

    __slots__ = ("_left", "done")

    def __init__(self, lines: int) -> None:
        self._left = lines
        self.done = asyncio.Event()
        if not lines:
            self.done.set()

    def add(self, lines: int) -> None:
        """This many more lines belong to it."""
        self._left += lines
        if self._left > 0:
            self.done.clear()

    def confirm(self, lines: int) -> None:
        """Kafka has this many more."""
        self._left -= lines
        if self._left <= 0:
            self.done.set()


class Portion:
    """Lines of one delivery that go to Kafka in one batch.

    Args:
        address: where they came in.
        sender: names the connection or request.
        first: the number of the first line in there.
        lines: the lines.
        delivery: what they are part of.
    """

    __slots__ = ("address", "delivery", "first", "lines", "sender", "size")

    def __init__(
        self, address: str, sender: str, first: int, lines: Sequence[NetworkLine], delivery: SenderDelivery
    ) -> None:
        self.address = address
        self.sender = sender
        self.first = first
        self.lines = lines
        self.delivery = delivery
        self.size = sum(line.size for line in lines)


class Intake:
    """The lines that have come and are not in Kafka yet.

    Args:
        most_lines: the most lines of a portion.
        rate: lines a second that are let in; 0 for any number.
        most_bytes: the most bytes that wait. A single portion may be larger: it waits alone.
    """

    def __init__(self, most_lines: int, rate: int = 0, most_bytes: int = MOST_BYTES) -> None:
        self._most_lines = most_lines
        self._rate = rate
        self._most_bytes = most_bytes
        self._queue: deque[Portion] = deque()
        self._waiting = 0
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        #: From this loop time on the next line may be let in.
        self._free_at = 0.0
        #: One sender at a time looks for room: the one that waits longest.
        self._turn = asyncio.Lock()

    async def put(
        self,
        address: str,
        sender: str,
        first: int,
        lines: Sequence[NetworkLine],
        delivery: SenderDelivery | None = None,
    ) -> SenderDelivery:
        """Hand over lines; waits for room, and for as long as the rate asks.

        Args:
            address: where they came in.
            sender: names the connection or request.
            first: the number of the first line in there.
            lines: any number.
            delivery: what they are a further part of; None for one of their own.

        Returns:
            The delivery.
        """
        if delivery is None:
            delivery = SenderDelivery(len(lines))
        else:
            delivery.add(len(lines))
        for start in range(0, len(lines), self._most_lines):
            part = lines[start : start + self._most_lines]
            portion = Portion(address, sender, first + start, part, delivery)
            async with self._turn:
                await self._wait_for_rate(len(part))
                while self._waiting and self._waiting + portion.size > self._most_bytes:
                    self._drained.clear()
                    await self._drained.wait()
                self._append_portion(portion)
        return delivery

    def put_now(self, address: str, sender: str, first: int, lines: Sequence[NetworkLine]) -> bool:
        """Hand over lines of a sender that can't wait; False if there is no room for them, or the rate is used up."""
        portion = Portion(address, sender, first, lines, SenderDelivery(len(lines)))
        late = self._rate and self._free_at > asyncio.get_running_loop().time()
        if late or self._turn.locked() or (self._waiting and self._waiting + portion.size > self._most_bytes):
            return False
        self._charge_lines(len(lines))
        self._append_portion(portion)
        return True

    async def take(self, wait_s: float) -> list[Portion]:
        """Portions for one batch, in the order in which they came; none if none comes in time."""
        if not self._queue:
            self._filled.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._filled.wait()
            except TimeoutError:
                return []
        portions = [self._queue.popleft()]
        count = len(portions[0].lines)
        while self._queue and count + len(self._queue[0].lines) <= self._most_lines:
            portions.append(self._queue.popleft())
            count += len(portions[-1].lines)
        return portions

    def confirm(self, portions: Sequence[Portion]) -> None:
        """Kafka has these."""
        for portion in portions:
            self._waiting -= portion.size
            portion.delivery.confirm(len(portion.lines))
        self._drained.set()

    def _append_portion(self, portion: Portion) -> None:
        self._waiting += portion.size
        self._queue.append(portion)
        self._filled.set()

    async def _wait_for_rate(self, count: int) -> None:
        wait_s = self._free_at - asyncio.get_running_loop().time() if self._rate else 0.0
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        self._charge_lines(count)

    def _charge_lines(self, count: int) -> None:
        if self._rate:
            self._free_at = max(self._free_at, asyncio.get_running_loop().time()) + count / self._rate
