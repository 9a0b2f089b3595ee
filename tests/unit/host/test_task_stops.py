"""A stop of a task that fails meanwhile."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from connectors.errors import Retriable
from worker.host.task_runner import TaskRunner
from worker.protocol import HostMessage, HostTaskId, StartTask, TaskStateChanged


@pytest.mark.parametrize("policy", ["none", "always"])
async def test_a_task_that_fails_while_it_is_stopped_does_not_start_again(policy: str) -> None:
    states: list[str] = []
    runs = 0
    running = asyncio.Event()

    async def make_plan() -> NoReturn:
        nonlocal runs
        runs += 1
        if runs == 1:
            try:
                running.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise Retriable("the last commit was refused") from None
        raise asyncio.CancelledError

    def event(message: HostMessage) -> None:
        assert isinstance(message, TaskStateChanged)
        states.append(message.state)

    config = {"errors.restart.policy": policy, "errors.restart.delay.ms": "10"}
    runner = TaskRunner(StartTask(HostTaskId("c", 0), config, {}, 1), make_plan, event, str)
    runner.start()
    await running.wait()
    assert await runner.stop(0.2)
    assert (runs, states) == (1, ["STOPPED"])
