"""Runs the queries of a snapshot in the background, several at a time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

Job = TypeVar("Job")


class JobRunner(Generic[Job]):
    """Starts the next job whenever one may run. Use it inside one event loop.

    Args:
        next_jobs: the jobs that may be started now, in order; only as many are taken as may run.
        carry_out: does it.
        limit: how many jobs may run now.
        recheck_s: after how many seconds ``next_jobs`` is asked again without ``wake``; None: never.
    """

    def __init__(
        self,
        next_jobs: Callable[[], Iterator[Job]],
        carry_out: Callable[[Job], Awaitable[None]],
        limit: Callable[[], int],
        recheck_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._next_jobs = next_jobs
        self._carry_out = carry_out
        self._limit = limit
        self._recheck_s = recheck_s
        self._changed = asyncio.Event()
        self._running = 0

    def wake(self) -> None:
        """There may be a job now, or room for one."""
        self._changed.set()

    async def run(self) -> None:
        """Run jobs until this is cancelled or a job fails: then the others are cancelled, and its error is raised."""
        try:
            async with asyncio.TaskGroup() as jobs:
                while True:
                    self._changed.clear()
                    next_jobs = self._next_jobs()
                    while self._running < self._limit() and (job := next(next_jobs, None)) is not None:
                        self._running += 1
                        jobs.create_task(self._run_job(job), name="snapshot job")
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._recheck_s()):
                            await self._changed.wait()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _run_job(self, job: Job) -> None:
        try:
            await self._carry_out(job)
        finally:
            self._running -= 1
            self._changed.set()
