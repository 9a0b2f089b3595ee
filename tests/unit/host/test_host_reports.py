"""A host's reports of its tasks, and their times."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from tests.support.eventually import eventually_async, pass_turns
from worker.host import host as host_module
from worker.host.host import TaskHost
from worker.protocol import HostTaskId, Stats, StopTask, TaskStats

if TYPE_CHECKING:
    import pytest

    from worker.host.task_runner import TaskRunner
    from worker.protocol import HostMessage


class Runner:
    """Has numbers, and stops at once."""

    def __init__(self, number: int) -> None:
        self.id = HostTaskId("c", number)

    def report(self) -> TaskStats:
        return TaskStats(self.id)

    def reported(self) -> None:
        """There is nothing to reset."""

    async def stop(self, deadline_s: float) -> bool:
        del deadline_s
        return True


class Control:
    """The other end: keeps the reports that it gets, in order."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    async def request(self, message: HostMessage, deadline_s: float) -> Any:
        raise AssertionError((message, deadline_s))

    def event(self, message: HostMessage) -> None:
        self.reports.append(message)


async def test_a_task_that_was_said_to_have_stopped_is_not_reported_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "_STATS_S", 0.0)
    control = Control()
    host = TaskHost(control)
    many = 3 * host_module._STATS_SLICE
    host._tasks = {runner.id: cast("TaskRunner", runner) for runner in map(Runner, range(many))}
    reporting = asyncio.create_task(host._report())
    try:
        await eventually_async(lambda: control.reports, "the first report", every=0)
        await pass_turns()  # the next report is in the middle: it lets others in between its slices
        assert await host.handle(StopTask(HostTaskId("c", 0), 1))
        control.reports.append("stopped")
        await eventually_async(lambda: isinstance(control.reports[-1], Stats), "the next report", every=0)
    finally:
        reporting.cancel()
    assert len(control.reports[-1].tasks) == many - 1
    assert HostTaskId("c", 0) not in {task.id for task in control.reports[-1].tasks}
