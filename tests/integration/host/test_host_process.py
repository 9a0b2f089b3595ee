"""Guarantees when tasks or the control process misbehave: stops end, a stuck loop is reported, orphans die."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.eventually import eventually_async, patience
from worker.protocol import (
    AlterOffsets,
    ConnectorStateChanged,
    DescribePlugins,
    HostTaskId,
    PluginConfig,
    RemoteError,
    SetLogLevel,
    StartConnector,
    StopConnector,
    TaskConfigs,
    Validate,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def test_what_a_cancelled_task_still_gives_is_dropped(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    task = await control.start_task(end=1_000, rows=100, stubborn_at=500)
    await control.until(lambda: (latest := control.stats(task)) and latest.written == 500)
    assert await control.stop_task(task, 5)
    assert await control.numbers(500) == list(range(500))
    assert await control.saved() == {"0-0": 500}


async def test_a_task_that_ignores_its_cancellation_is_abandoned(control_for: Callable[..., Any]) -> None:
    control = control_for(offset_flush_interval_ms=60_000)
    await control.start(process=True)
    task = await control.start_task(end=1_000, rows=100, deaf_at=500)
    await control.until(lambda: (latest := control.stats(task)) and latest.written == 500)
    assert await control.stop_task(task, 2) is False
    assert await control.saved() == {"0-0": 500}, "what was delivered is committed all the same"
    other = await control.start_task(end=1_000, rows=100)
    await control.state(other, "RUNNING")
    assert await control.numbers(1_000) == list(range(1_000)), "the next instance works beside the abandoned one"
    await control.kill()


async def test_a_stuck_loop_is_reported_with_its_task_and_stacks(control_for: Callable[..., Any]) -> None:
    control = control_for(task_host_stuck_ms=3_000)
    await control.start(process=True)
    await control.start_task(task=7, end=1_000_000, rows=10, pause_ms=50)
    await control.start_task(end=1_000, rows=100, block_at=500)
    warning = await control.until(control.stuck)
    assert warning[0].seconds >= 2
    final = await control.until(lambda: [event for event in control.stuck() if event.seconds >= 3])
    assert final[0].task == f"{control.name}-0"
    assert "host_counter_source.py" in final[0].stacks
    assert "time.sleep" in final[0].stacks
    await control.kill()


@pytest.mark.parametrize("blocked", [False, True])
async def test_a_host_does_not_outlive_its_control_process(control_for: Callable[..., Any], blocked: bool) -> None:
    control = control_for()
    await control.start(process=True)
    if blocked:
        await control.start_task(end=1_000, rows=100, block_at=0)
        await asyncio.sleep(0)
    process = control.process
    control.process = None
    await control.stop_host()  # closes the pipe
    async with patience(5):
        await process.wait()


async def test_a_killed_parent_takes_the_host_with_it() -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import socket, subprocess, sys, time\n"
        "ours, theirs = socket.socketpair()\n"
        "keep = theirs.dup()\n"  # the pipe stays open: only the parent's death can tell
        "child = subprocess.Popen([sys.executable, '-m', 'worker.host.main', '--fd', str(theirs.fileno())],"
        " pass_fds=(theirs.fileno(), ours.fileno()), start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n",
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await eventually_async(lambda: not alive(child), "the host has ended", 10, every=0.05)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_connectors_split_their_work(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    await control.ask(StartConnector(control.name, control.config(tasks_max=3), 5))
    events = await control.until(lambda: [event for event in control.events if isinstance(event, TaskConfigs)])
    assert [(event.name, event.generation) for event in events] == [(control.name, 5)]
    common = {**control.config(tasks_max=3), "task.class": "host_counter_source.CounterTask"}
    assert events[0].configs == [{**common, "split": str(number)} for number in range(3)]
    assert await control.ask(StopConnector(control.name, 5)) is True
    states = [event.state for event in control.events if isinstance(event, ConnectorStateChanged)]
    assert states == ["RUNNING", "STOPPED"]


@pytest.mark.parametrize("own_topic", [False, True])
async def test_connectors_see_what_their_tasks_saved(control_for: Callable[..., Any], own_topic: bool) -> None:
    """``refresh_offsets`` reads the worker's topic, or the connector's own."""
    control = control_for(offset_flush_interval_ms=100)
    await control.start()
    options: dict[str, Any] = {"end": 500, "rows": 100, "watch": 500}
    if own_topic:
        options["offsets_storage_topic"] = f"{control.name}-own"
    await control.ask(StartConnector(control.name, control.config(**options), 1))

    def splits() -> list[TaskConfigs]:
        return [event for event in control.events if isinstance(event, TaskConfigs)]

    await control.until(splits)
    task = await control.start_task(**options)
    await control.state(task, "RUNNING")
    await control.until(lambda: len(splits()) == 2)


async def test_too_many_tasks_fail_the_connector_unless_allowed(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    await control.ask(StartConnector(control.name, control.config(tasks_max=2, splits=3), 1))
    failed = await control.until(
        lambda: [
            event for event in control.events if isinstance(event, ConnectorStateChanged) and event.state == "FAILED"
        ]
    )
    assert "has generated 3 tasks, which is greater than 2" in failed[0].trace
    await control.ask(StartConnector(control.name, control.config(tasks_max=2, splits=3, tasks_max_enforce="false"), 2))
    events = await control.until(lambda: [event for event in control.events if isinstance(event, TaskConfigs)])
    assert len(events[0].configs) == 3


async def test_questions_to_plugins(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    described = orjson.loads(await control.ask(DescribePlugins()))
    assert [
        (plugin["kind"], plugin["version"])
        for plugin in described["plugins"]
        if "host_counter_source.CounterConnector" in plugin["names"]
    ] == [("source", "1.2.3")]
    options = orjson.loads(await control.ask(PluginConfig("host_counter_source.CounterConnector")))
    assert "bad.every" in {option["name"] for option in options}
    answer = orjson.loads(await control.ask(Validate(control.config(rows="many"))))
    assert answer["error_count"] == 1
    assert await control.ask(AlterOffsets(control.config(), b'[[{"source": "0-0"}, null]]')) is False
    await control.ask(SetLogLevel("host.test.logger", "DEBUG"))
    assert logging.getLogger("host.test.logger").level == logging.DEBUG
    with pytest.raises(RemoteError, match="is not in this host"):
        await control.pause(HostTaskId("nobody", 3), paused=True)


async def test_references_are_resolved_and_masked(control_for: Callable[..., Any], tmp_path: Path) -> None:
    secret = tmp_path / "secret.properties"
    secret.write_text("word=hunter-and-collector\n")
    control = control_for(
        config_providers="file",
        config_providers_file_class="org.apache.kafka.common.config.provider.FileConfigProvider",
    )
    await control.start()
    task = await control.start_task(end=100, fail_at=10, password=f"${{file:{secret}:word}}")
    failed = await control.state(task, "FAILED")
    assert "it fails at 10" in failed.trace
    assert "hunter-and-collector" not in failed.trace
    # The connector prints a Password, which masks itself; the plain text is masked wherever else it appears.
    other = await control.start_task(task=1, end=f"${{file:{secret}:word}}")
    trace = (await control.state(other, "FAILED")).trace
    assert "hunter-and-collector" not in trace
    await control.ask(StartConnector(control.name, control.config(password=f"${{file:{secret}:word}}"), 1))
    (event,) = await control.until(lambda: [event for event in control.events if isinstance(event, TaskConfigs)])
    assert event.configs[0]["password"] == f"${{file:{secret}:word}}", "what a connector copies stays a reference"
