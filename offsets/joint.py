"""One question for all who ask it at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_T = TypeVar("_T")


class Joint(Generic[_T]):
    """Lets callers share an answer: each gets one that was asked for after its call began.

    While a question is under way, those who come wait for the next one, together. To be used on one event loop.

    Args:
        question: asks; what it raises is raised to all who wait for it.
    """

    def __init__(self, question: Callable[[], Awaitable[_T]]) -> None:
        self._question = question
        #: Who waits for the answer that is under way, and who for the next one. Who gives up is in neither: an answer may take
        #: as long as an outage.
        self._asked: set[asyncio.Future[_T]] = set()
        self._waiting: set[asyncio.Future[_T]] = set()
        self._runner: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._asked) + len(self._waiting)

    async def ask(self) -> _T:
        """The answer; when one caller is cancelled, the others still get it."""
        mine: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._waiting.add(mine)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._answer_waiting())
        try:
            return await mine
        finally:
            self._asked.discard(mine)
            self._waiting.discard(mine)

    async def stop(self, error: Exception) -> None:
        """Give up; whoever waits gets ``error``."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        self._refuse_all(self._asked | self._waiting, error)

    async def _answer_waiting(self) -> None:
        while self._waiting:
            self._asked, self._waiting = self._waiting, set()
            try:
                answer = await self._question()
            except Exception as error:  # noqa: BLE001 - it is for those who asked
                self._refuse_all(self._asked, error)
                continue
            for future in self._asked:
                if not future.done():
                    future.set_result(answer)

    @staticmethod
    def _refuse_all(refused: set[asyncio.Future[_T]], error: Exception) -> None:
        for future in refused:
            if not future.done():
                future.set_exception(error)
