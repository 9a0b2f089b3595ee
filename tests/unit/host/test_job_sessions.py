"""A task that moves the data itself, in the task runner: states, pause, faults, and a stop that always ends."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.job_api import JobProgress, JobTask
from connectors.options import Config
from tests.support.clock import ManualClock
from tests.support.eventually import eventually_async, pass_turns
from worker.host import job
from worker.host.job import JobPlan
from worker.host.options import CONNECTOR
from worker.host.task_runner import TaskRunner
from worker.protocol import ActiveTopic, HostTaskId, StartTask, TaskStateChanged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connectors.job_api import JobTaskContext
    from worker.protocol import HostMessage


class Scripted(JobTask):
    """Does what the script says that is next; the last one is for all further runs."""

    def __init__(self, context: JobTaskContext, script: list[Any]) -> None:
        super().__init__(context)
        self.script = script
        self.ended: list[float | None] = []

    async def run(self) -> None:
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        await step(self)


async def works(task: Scripted) -> None:
    task.context.running()
    try:
        await asyncio.Event().wait()
    finally:
        task.ended.append(task.context.patience())


class Run:
    """A task runner with a scripted job, and what it reports."""

    def __init__(self, *script: Any, paused: bool = False, options: dict[str, str] | None = None) -> None:
        options = options or {}
        self.events: list[HostMessage] = []
        self.script = list(script)
        self.tasks: list[Scripted] = []
        self.runner = TaskRunner(
            StartTask(HostTaskId("job", 0), {"connector.class": "x", **options}, {}, 1, paused),
            lambda: self.plan(options),
            self.events.append,
            lambda text: text.replace("secret", "[hidden]"),
        )
        self.runner.stats.job = JobProgress()

    async def plan(self, options: dict[str, str]) -> JobPlan:
        def make(context: JobTaskContext) -> Scripted:
            self.tasks.append(Scripted(context, self.script))
            return self.tasks[-1]

        return JobPlan(
            id=HostTaskId("job", 0),
            version="1",
            options=CONNECTOR.parse({"errors.retry.delay.max.ms": "1", **options}),
            config=Config({}, {}),
            task_class=make,  # type: ignore[arg-type]  # makes one
            log=logging.LoggerAdapter(logging.getLogger(__name__), {}),
            stop_s=1.0,
            topic_used=lambda topic: self.events.append(ActiveTopic(HostTaskId("job", 0), topic)),
            warnings=[],
        )

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.events if isinstance(event, TaskStateChanged)]

    async def until(self, *states: str) -> None:
        await eventually_async(
            lambda: self.states[-len(states) :] == list(states),
            f"the last states are {states}",
            detail=lambda: self.states,
        )

    @property
    def trace(self) -> str:
        return next(event.trace or "" for event in reversed(self.events) if isinstance(event, TaskStateChanged))


def fails(error: Exception) -> Callable[[Scripted], Awaitable[None]]:
    async def step(task: Scripted) -> None:
        task.context.running()
        raise error

    return step


async def test_it_runs_when_it_says_so_and_stops_within_its_deadline() -> None:
    started = asyncio.Event()

    async def slowly(task: Scripted) -> None:
        await started.wait()
        await works(task)

    run = Run(slowly)
    run.runner.start()
    await pass_turns(50)
    assert run.states == []
    started.set()
    await run.until("RUNNING")
    assert await run.runner.stop(3.0)
    assert run.states == ["RUNNING", "STOPPED"]
    (patience,) = run.tasks[0].ended
    assert patience is not None
    assert 0 < patience <= 3.0


async def test_a_pause_ends_the_job_and_only_then_is_it_paused() -> None:
    release = asyncio.Event()

    async def lingers(task: Scripted) -> None:
        try:
            await works(task)
        finally:
            await release.wait()

    run = Run(lingers, works)
    run.runner.start()
    await run.until("RUNNING")
    run.runner.pause(paused=True)
    await pass_turns(50)
    assert run.states == ["RUNNING"]
    release.set()
    await run.until("RUNNING", "PAUSED")
    assert run.tasks[0].ended == [None]  # only its own options limit it
    run.runner.pause(paused=False)
    await run.until("RUNNING", "PAUSED", "RUNNING")
    assert len(run.tasks) == 1
    assert await run.runner.stop(3.0)


async def test_a_stop_while_it_is_paused_and_while_it_is_being_paused() -> None:
    run = Run(works, paused=True)
    run.runner.start()
    await run.until("PAUSED")
    assert run.tasks[0].ended == []
    assert await run.runner.stop(1.0)

    seen: list[float] = []

    async def waits_for_less_patience(task: Scripted) -> None:
        try:
            await works(task)
        finally:
            await eventually_async(lambda: task.context.patience() is not None, "the stop limits it")
            seen.append(task.context.patience() or 0.0)

    run = Run(waits_for_less_patience)
    run.runner.start()
    await run.until("RUNNING")
    run.runner.pause(paused=True)
    await pass_turns(50)
    assert await run.runner.stop(3.0)
    assert 0 < seen[0] <= 3.0


async def test_a_job_that_does_not_end_is_abandoned() -> None:
    async def ignores(task: Scripted) -> None:
        task.context.running()
        while not stuck.is_set():
            try:
                await stuck.wait()
            except asyncio.CancelledError:
                continue

    stuck = asyncio.Event()
    run = Run(ignores)
    run.runner.start()
    await run.until("RUNNING")
    assert not await run.runner.stop(0.2)
    stuck.set()


async def test_a_passing_fault_starts_it_again() -> None:
    fault = Retriable("the target is away")
    fault.trace = "what the job said: secret"
    run = Run(fails(fault), fails(fault), works)
    run.runner.start()
    await run.until("RUNNING", "RESTARTING", "RUNNING", "RESTARTING", "RUNNING")
    assert run.runner.stats.restarts == 2
    traces = [
        event.trace for event in run.events if isinstance(event, TaskStateChanged) and event.state == "RESTARTING"
    ]
    assert traces[0] == "Retriable: the target is away\n\nwhat the job said: [hidden]\n"
    assert await run.runner.stop(1.0)


async def test_a_passing_fault_that_does_not_pass_in_time_fails_the_task() -> None:
    run = Run(fails(Retriable("away")), options={"errors.retry.timeout": "0"})
    run.runner.start()
    await run.until("FAILED")
    assert "Retriable: away" in run.trace
    assert run.runner.stats.job is not None
    assert (run.runner.stats.job.phase, run.runner.stats.job.error) == ("failed", "away")
    assert await run.runner.stop(1.0)


async def test_a_job_that_ran_for_long_starts_again_after_its_first_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(job, "time", SimpleNamespace(monotonic=clock.monotonic, time=clock.monotonic))

    async def runs_an_hour(task: Scripted) -> None:
        task.context.running()
        clock.advance(3600.0)
        raise Retriable("away")

    run = Run(runs_an_hour, works, options={"errors.retry.timeout": "30000"})
    run.runner.start()
    await run.until("RUNNING", "RESTARTING", "RUNNING")
    assert await run.runner.stop(1.0)


async def test_the_restart_policy_is_the_workers() -> None:
    run = Run(
        fails(Fatal("broken")), works, options={"errors.restart.policy": "always", "errors.restart.delay.ms": "1"}
    )
    run.runner.start()
    await run.until("RUNNING", "RESTARTING", "RUNNING")
    assert len(run.tasks) == 2
    assert await run.runner.stop(1.0)


@pytest.mark.parametrize("error", [Fatal("broken"), ConfigInvalid("broken"), RuntimeError("broken")])
async def test_other_errors_fail_it_with_its_trace(error: Exception) -> None:
    run = Run(fails(error))
    run.runner.start()
    await run.until("RUNNING", "FAILED")
    assert "broken" in run.trace
    assert await run.runner.stop(1.0)


async def test_a_job_that_is_done_stays_running_and_looks_again_after_a_pause() -> None:
    async def done(task: Scripted) -> None:
        task.context.running()

    run = Run(done)
    run.runner.start()
    await run.until("RUNNING")
    await pass_turns(50)
    run.runner.pause(paused=True)
    await run.until("RUNNING", "PAUSED")
    run.runner.pause(paused=False)
    await run.until("RUNNING", "PAUSED", "RUNNING")
    assert await run.runner.stop(1.0)


async def test_numbers_grow_over_runs_and_topics_are_reported_once() -> None:
    async def counts(task: Scripted) -> None:
        progress = task.context.progress
        progress.read += 10
        progress.written += 9
        progress.batches += 1
        progress.busy_s += 0.5
        progress.batch_s_max, progress.batch_rows_max = 0.5, 10
        progress.metrics["rows"] = 3.0
        task.context.topic_used("in")
        task.context.topic_used("in")
        task.context.running()
        raise Retriable("again")

    run = Run(counts, counts, works)
    run.runner.start()
    await run.until("RESTARTING", "RUNNING")
    stats = run.runner.report()
    assert (stats.polled, stats.written, stats.polls, stats.commits, stats.poll_s) == (20, 18, 2, 2, 1.0)
    assert (stats.poll_s_max, stats.batch_size_max) == (0.5, 10)
    assert [(item.name, item.value) for item in stats.custom] == [("millrace_job_rows", 3.0)]
    assert [event.topic for event in run.events if isinstance(event, ActiveTopic)] == ["in"]
    run.runner.reported()
    assert (run.runner.report().poll_s_max, run.runner.report().polled) == (0.0, 20)
    assert await run.runner.stop(1.0)
