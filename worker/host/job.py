"""One run of a task that moves the data itself: nothing passes through here but its state and its numbers.

The counterpart of ``plan`` and ``session`` for a ``JobTask``: no producer, no converters, no offsets of the worker's.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal, Retriable
from connectors.options import Config
from worker.config.job_config import job_properties, runnable_properties, tasks_note
from worker.host.errors import retry_pauses
from worker.host.options import CONNECTOR
from worker.logs import connector_logger
from worker.protocol import CustomMetric

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Mapping

    from connectors.job_api import JobConnector, JobProgress, JobTask
    from worker.protocol import HostTaskId, TaskStats

#: A run without a fault for this long resets the back-off.
_STABLE_S: Final = 60.0
#: Part of a stop's deadline that is kept for what comes after the task's own end.
_RESERVE_S: Final = 0.5


@dataclass(slots=True, kw_only=True)
class JobPlan:
    """The settings of the runs of a job's task.

    Attributes:
        id: the task.
        version: of the connector.
        options: the runtime's options of the connector.
        config: the job's own; see ``JobTaskContext``.
        task_class: of its task.
        stop_s: seconds that a stop may take by default.
        topic_used: called with each topic that the job reads, once.
    """

    id: HostTaskId
    version: str
    options: Config
    config: Config
    task_class: type[JobTask]
    log: logging.LoggerAdapter[logging.Logger]
    stop_s: float
    topic_used: Callable[[str], None]
    warnings: list[str]
    active_topics: set[str] = field(default_factory=set)


async def make_job_plan(
    task: HostTaskId,
    cls: type[JobConnector],
    merged: Mapping[str, str],
    worker: Mapping[str, str],
    topic_used: Callable[[str], None],
) -> JobPlan:
    """Everything for one run of a job's task.

    Args:
        task: which.
        cls: its connector.
        merged: the connector's and the task's properties, references resolved.
        worker: the worker's properties, resolved.
        topic_used: see ``JobPlan``.

    Raises:
        ConfigInvalid: a property is wrong; the message names it.
    """
    completed = runnable_properties(cls, merged, worker)
    definition = await asyncio.to_thread(cls.definition, completed)  # imports what the configuration names
    own_properties = job_properties(completed, definition)
    parsed = definition.parse(own_properties)
    return JobPlan(
        id=task,
        version=cls.version,
        options=CONNECTOR.parse({name: value for name, value in completed.items() if name.startswith("errors.re")}),
        config=Config(parsed, own_properties),
        task_class=cls.task_class,
        log=connector_logger(f"{cls.__module__}.{cls.__qualname__}", task.connector, f"task-{task.task}"),
        stop_s=int(worker.get("task.shutdown.graceful.timeout.ms", "5000")) / 1000,
        topic_used=topic_used,
        warnings=tasks_note(merged),
    )


@dataclass(slots=True)
class _JobContext:
    """The ``JobTaskContext`` of a task."""

    connector: str
    task: int
    config: Config
    progress: JobProgress
    log: logging.LoggerAdapter[logging.Logger]
    _session: JobSession

    def running(self, trouble: Exception | None = None) -> None:
        """Report that the job runs, or that it retries."""
        self._session.running(trouble)

    def topic_used(self, topic: str) -> None:
        """The job reads this topic."""
        self._session.topic_used(topic)

    def patience(self) -> float | None:
        """Seconds that the task may still take to end."""
        return self._session.patience()


class JobSession:
    """Runs a job's task until it is cancelled or failed.

    Args:
        plan: what it needs.
        stats: numbers go there; its ``job`` must be set.
        state: called at each change of state, with the error that led to it.
    """

    def __init__(
        self, plan: JobPlan, stats: TaskStats, progress: JobProgress, state: Callable[[str, BaseException | None], None]
    ) -> None:
        self.plan = plan
        self.stats = stats
        self.progress = progress
        self.resumed = asyncio.Event()
        self.resumed.set()
        #: Whether the task did not end in time.
        self.abandoned = False
        self._state = state
        self._name = str(plan.id)
        self._until: float | None = None
        self._changed = asyncio.Event()
        self._counted = (progress.read, progress.written, progress.batches, progress.retries, progress.busy_s)
        self._task = plan.task_class(
            _JobContext(plan.id.connector, plan.id.task, plan.config, progress, plan.log, self)
        )
        self._worker: asyncio.Task[None] | None = None

    # What the task runner calls.

    async def run(self) -> None:
        """Run until cancelled; after a cancellation the task ends within the deadline of ``stop``.

        Raises:
            MillraceError: the task failed.
        """
        pauses = retry_pauses(last_s=self.plan.options["errors.retry.delay.max.ms"] / 1000)
        faulty_since: float | None = None
        while True:
            if not self.resumed.is_set():
                self._state("PAUSED", None)
                await self.resumed.wait()
            began = time.monotonic()
            try:
                await self._run_attempt()
                continue  # paused
            except Retriable as error:
                fault = error
            now = time.monotonic()
            if now - began > _STABLE_S:
                pauses = retry_pauses(last_s=self.plan.options["errors.retry.delay.max.ms"] / 1000)
                faulty_since = None
            # Not since it began: it may have worked for hours before this fault.
            faulty_since = now if faulty_since is None else faulty_since
            pause = next(pauses)
            limit_ms = self.plan.options["errors.retry.timeout"]
            if limit_ms is not None and limit_ms >= 0 and (now - faulty_since + pause) * 1000 > limit_ms:
                raise fault
            self.stats.restarts += 1
            self.stats.last_error_ms = int(time.time() * 1000)
            self.plan.log.warning("%s: %s; it is started again in %.1f s", self._name, fault, pause)
            self._state("RESTARTING", fault)
            await self._sleep_seconds(pause)

    def stop(self, until: float) -> None:
        """Announce that ``run`` gets cancelled and must be finished at loop time ``until``."""
        self._until = until

    def wake(self) -> None:
        """``resumed`` was set or cleared."""
        self._changed.set()

    async def abandon(self) -> None:
        """Called when ``run`` did not end in time; there is nothing here that could still write."""

    def refresh_stats(self) -> None:
        """Bring the numbers up to date."""
        job, stats = self.progress, self.stats
        now = (job.read, job.written, job.batches, job.retries, job.busy_s)
        before, self._counted = self._counted, now
        stats.polled += now[0] - before[0]
        stats.written += now[1] - before[1]
        stats.polls += now[2] - before[2]
        stats.commits += now[2] - before[2]
        stats.retries += now[3] - before[3]
        stats.poll_s += now[4] - before[4]
        stats.poll_s_max, job.batch_s_max = max(stats.poll_s_max, job.batch_s_max), 0.0
        stats.batch_size_max, job.batch_rows_max = max(stats.batch_size_max, job.batch_rows_max), 0
        labels = {"sink": job.sink} if job.sink else {}
        numbers = [(name, value, labels) for name, value in job.metrics.items()] + [
            (f"{label}_{name}", value, labels | {label: labelled})
            for label, parts in (("step", job.steps), ("table", job.tables))
            for labelled, values in parts.items()
            for name, value in values.items()
        ]
        stats.custom = [
            CustomMetric(f"millrace_job_{name}", "counter" if name.endswith("_total") else "gauge", value, shown)
            for name, value, shown in numbers
        ]
        stats.job = job

    # What the task calls.

    def running(self, trouble: Exception | None = None) -> None:
        """Report that the job runs; with ``trouble`` it retries, and the status gives the reason."""
        if self._worker is not None and self.resumed.is_set() and self._until is None:
            self._state("RUNNING", trouble)

    def topic_used(self, topic: str) -> None:
        """The job reads from this topic."""
        if topic not in self.plan.active_topics:
            self.plan.active_topics.add(topic)
            self.plan.topic_used(topic)

    def patience(self) -> float | None:
        """Seconds that the task may still take to end; None without a limit."""
        if self._until is None:
            return None
        return max(0.0, self._until - asyncio.get_running_loop().time() - _RESERVE_S)

    # Parts.

    async def _run_attempt(self) -> None:
        """Run the task's own coroutine until it fails, or returns because it was paused."""
        worker = self._worker = asyncio.create_task(self._task.run(), name=self._name)
        try:
            while not worker.done():
                if not self.resumed.is_set():
                    await self._end_worker(worker)
                    break
                await self._wait_either(worker)
        except asyncio.CancelledError:
            await self._end_worker(worker)
            raise
        finally:
            self._worker = None
        if worker.cancelled():
            if self.resumed.is_set():
                raise Fatal(f"{self._name}: the job cancelled its own coroutine (a cancelled future it waited for?)")
            return
        error = worker.exception()
        if isinstance(error, Exception):
            raise error
        if self.resumed.is_set():
            self.plan.log.info("%s: the job has done all it had to do", self._name)
            await self._wait_idle()

    async def _wait_either(self, worker: asyncio.Task[None]) -> None:
        """Wait until the worker is done or ``wake`` was called."""
        self._changed.clear()
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            waits: set[asyncio.Future[object]] = {worker, changed}  # type: ignore[arg-type]  # only waited for
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    async def _end_worker(self, worker: asyncio.Task[None]) -> None:
        """Cancel the worker once and wait for its end, whatever happens to the waiting."""
        worker.cancel()
        cancelled = False
        while not worker.done():
            left = None if self._until is None else max(0.0, self._until - asyncio.get_running_loop().time())
            if left == 0.0:
                self.abandoned = True
                self.plan.log.error("%s: the job did not end in time and is abandoned", self._name)
                break
            try:
                # A stop may come while a pause is waited for: look at the deadline again.
                await asyncio.wait({worker}, timeout=0.2 if left is None else min(0.2, left))
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    async def _wait_idle(self) -> None:
        """RUNNING with nothing to do: until paused; resumed, it looks again whether there is work."""
        while self.resumed.is_set():
            self._changed.clear()
            await self._changed.wait()

    async def _sleep_seconds(self, seconds: float) -> None:
        """Sleep, or until paused or resumed."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
