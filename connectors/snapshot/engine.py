"""The engine of a task's snapshots: plans, reads in the background, and says when there is something to send or to save."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from connectors.errors import Retriable
from connectors.snapshot.jobs import JobRunner

if TYPE_CHECKING:
    import logging
    from collections.abc import Coroutine, Sequence

    from connectors.api import Position
    from connectors.snapshot.planner import SnapshotPlanner
    from connectors.snapshot.requests import SnapshotRequest

Planner = TypeVar("Planner", bound="SnapshotPlanner[Any, Any, Any]")


class SnapshotEngine(ABC, Generic[Planner]):
    """The snapshots of one run of a task. Use it inside one event loop; no method but ``close`` and ``wait`` blocks.

    Call ``set_requests`` and ``start`` first. Then, each time ``wait`` returns, send the chunks that are ready, and save what
    ``changes`` returns.

    Args:
        planner: plans the reading.
        readers: jobs that run at the same time at most.
        log: the task's.
    """

    def __init__(self, planner: Planner, readers: int, log: logging.LoggerAdapter[logging.Logger]) -> None:
        self._planner = planner
        self._log = log
        #: Readers without a job, and how often the last jobs of each have failed in a row.
        self._idle = list(range(readers))
        self._failures = [0] * readers
        self._pausing = 0
        self._runner: JobRunner[Any] = JobRunner(
            lambda: iter(planner.next_job, None), self._run_job, lambda: min(self._allowed(), readers)
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._turn = asyncio.Event()
        self._error: BaseException | None = None

    # For each source.

    @abstractmethod
    def _allowed(self) -> int:
        """Jobs that may run now, together with the readers that pause."""

    @abstractmethod
    async def _carry_out(self, job: Any, reader: int) -> bool:
        """Find the tables of a request, look a table up, or read a part of one.

        Args:
            job: what to do.
            reader: the number of the reader that does it.

        Returns:
            False: the reader pauses before its next job.

        Raises:
            Retriable: as if it returned False, with a warning; any other error ends the snapshots of the run.
        """

    @abstractmethod
    def _pause_s(self, failures: int) -> float:
        """How long a reader pauses after that many jobs in a row have failed."""

    # For all sources.

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """The complete list of what is asked for; a request that is no longer in it is dropped.

        Raises:
            ValueError: the saved state of one can't be read.
        """
        self._planner.set_requests(requests)
        self._notify()

    def start(self) -> None:
        """Begin to read in the background."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(work) for work in self._work()]
            for task in self._tasks:
                task.add_done_callback(self._ended)

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        """The tasks that run in the background."""
        return [self._runner.run()]

    async def close(self) -> None:
        """Stop reading."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def changes(self) -> list[tuple[Position, Position]]:
        """The offsets to be saved that no chunk carries."""
        return self._planner.changes()

    async def wait(self) -> None:
        """Until a chunk may be ready or ``changes`` has something."""
        if self._error is None:
            await self._news.wait()
        self._news.clear()

    def _raise_error(self) -> None:
        """Raise the error that has ended reading."""
        if self._error is not None:
            raise self._error

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._error = task.exception()
            self._news.set()

    def _wake(self) -> None:
        """There may be work, or room for what was read."""
        if self._planner.board.unsaved:
            self._news.set()
        self._runner.wake()
        # Every waiting reader looks again; one event object per turn, so that none misses it.
        self._turn.set()
        self._turn = asyncio.Event()

    def _notify(self) -> None:
        """There may be something to send or to save; and work."""
        self._news.set()
        self._wake()

    async def _wait_turn(self) -> None:
        """Until there may be room. Another job may run meanwhile: what makes room may be its answer."""
        self._pausing += 1
        self._runner.wake()
        try:
            await self._turn.wait()
        finally:
            self._pausing -= 1

    async def _run_job(self, job: Any) -> None:
        reader = self._idle.pop()
        try:
            try:
                done = await self._carry_out(job, reader)
            except Retriable as error:
                self._log.warning("a snapshot waits: %s", error)
                done = False
            self._failures[reader] = 0 if done else self._failures[reader] + 1
            if not done:
                await self._pause(self._failures[reader])
        finally:
            self._idle.append(reader)
        self._notify()

    async def _pause(self, failures: int) -> None:
        self._pausing += 1
        self._wake()
        try:
            await asyncio.sleep(self._pause_s(failures))
        finally:
            self._pausing -= 1
