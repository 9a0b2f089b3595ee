"""Instructions of operators on their way through a task host: to running tasks, restarting tasks and connector classes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

import orjson
import pytest

from connectors.api import Batch, SourceConnector, SourceTask
from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.options import Config, ConfigDef
from tests.support.eventually import eventually_async
from tests.support.local_session import local_session
from worker.protocol import HostTaskId

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import Instruction


class Listening(SourceTask):
    """Records the instructions that it gets and its starts; the first run ends with a passing fault."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None))
        self.heard: list[Any] = []
        self.wake = asyncio.Event()
        self.fault: Exception | None = None

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        self.heard.append([row["id"] for row in instructions])
        if self.fault is not None:
            raise self.fault
        self.wake.set()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        self.heard.append("batches")
        if self.heard.count("batches") == 1:
            raise Retriable("away")
        while True:
            self.wake.clear()
            await self.wake.wait()
            yield Batch([])


async def heard(task: Listening, expected: list[Any]) -> None:
    await eventually_async(lambda: task.heard == expected, f"the task hears {expected}", detail=lambda: task.heard)


async def test_a_task_is_instructed_before_each_start_and_at_each_change() -> None:
    task = Listening()
    under_test = local_session(task)
    under_test.instruct([{"id": "a"}])
    assert task.heard == [], "there is no task yet"
    running = asyncio.create_task(under_test.run())
    expected: list[Any] = [["a"], "batches", ["a"], "batches"]
    await heard(task, expected)
    under_test.instruct([{"id": "a"}, {"id": "b"}])
    await heard(task, [*expected, ["a", "b"]])
    under_test.instruct([])
    await heard(task, [*expected, ["a", "b"], []])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    under_test.instruct([{"id": "late"}])
    assert task.heard[-1] == []


async def test_a_scheduled_snapshot_begins_at_its_time() -> None:
    class States(Listening):
        def instruct(self, instructions: Sequence[Instruction]) -> None:
            self.heard.append([row["state"] for row in instructions])
            self.wake.set()

    task = States()
    under_test = local_session(task)
    running = asyncio.create_task(under_test.run())
    await heard(task, [[], "batches", [], "batches"])
    soon = time.time_ns() // 1_000_000 + 300
    under_test.instruct([{"id": "a", "state": "running", "start_ms": soon}])
    assert task.heard[4:] == [["paused"]]
    await heard(task, [[], "batches", [], "batches", ["paused"], ["running"]])
    assert time.time_ns() // 1_000_000 >= soon
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_error_fails_the_task() -> None:
    task = Listening()
    under_test = local_session(task)
    running = asyncio.create_task(under_test.run())
    await heard(task, [[], "batches", [], "batches"])
    task.fault = Fatal("what is this")
    under_test.instruct([{"id": "a"}])
    with pytest.raises(Fatal, match="what is this"):
        await running


async def test_a_connector_says_by_default_that_it_has_no_such_thing() -> None:
    class Plain(SourceConnector):
        version, config_def, task_class = "1", ConfigDef([]), SourceTask

        async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
            raise NotImplementedError

    config = Config({}, {})
    for ask in (
        lambda: Plain.check_snapshot(config, {}),
        lambda: Plain.snapshots(config, [], []),
        lambda: Plain.tables(config, []),
    ):
        with pytest.raises(ConfigInvalid, match="Plain connectors"):
            ask()
    with pytest.raises(ConfigInvalid, match="Plain connectors"):
        await Plain.lag(config, [])


async def test_a_runner_keeps_its_instructions_for_the_next_start() -> None:
    from worker.host.task_runner import TaskRunner
    from worker.protocol import StartTask

    async def never() -> Any:
        raise AssertionError

    runner = TaskRunner(
        StartTask(HostTaskId("c", 0), {}, {}, 1, instructions=b'[{"id":"a"}]'), never, lambda _: None, str
    )
    assert runner._instructions == [{"id": "a"}]
    runner.instruct(orjson.dumps([{"id": "b"}]))
    assert runner._instructions == [{"id": "b"}]
