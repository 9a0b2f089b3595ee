"""The state of a task that fails is reported whatever its error says: a trace that can't be sent would leave it RUNNING."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NoReturn

import msgspec
import pytest

from connectors.errors import Fatal
from offsets.records import ReportedStatus, task_status_record
from worker.host.task_runner import TaskRunner
from worker.protocol import HostTaskId, StartTask, TaskStateChanged

if TYPE_CHECKING:
    from worker.protocol import HostMessage

#: Brokers take no larger records by default.
LARGEST = 1_000_000


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (f"{os.fsdecode(b'/logs/caf' + bytes([0xE9]))} can't be read", r"Fatal: /logs/caf\udce9 can't be read"),
        ("the record is " + "x" * 3_000_000, "Fatal: the record is xxx"),
        ("the record is " + "\x00" * 3_000_000, "Fatal: the record is \x00"),
        ("the record is " + "\N{OLD ITALIC LETTER A}" * 3_000_000, "Fatal: the record is \N{OLD ITALIC LETTER A}"),
    ],
)
async def test_any_error_of_a_task_gets_into_its_status(message: str, shown: str) -> None:
    sent: list[bytes] = []
    failed = asyncio.Event()

    async def make_plan() -> NoReturn:
        raise Fatal(message)

    def event(state: HostMessage) -> None:
        sent.append(msgspec.msgpack.encode(state))
        failed.set()

    runner = TaskRunner(StartTask(HostTaskId("c", 0), {}, {}, 1), make_plan, event, str)
    runner.start()
    async with asyncio.timeout(10):
        await failed.wait()
    state = msgspec.msgpack.decode(sent[0], type=TaskStateChanged)
    assert state.state == "FAILED"
    assert (state.trace or "").startswith(shown)
    _, value = task_status_record("c", 0, ReportedStatus("FAILED", "w:1", 1, state.trace))
    assert value is not None
    assert len(value) < LARGEST
    await runner.stop(1.0)
