"""The watch thread and the writer it shares with the event loop."""
from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn

import pytest

from connectors.errors import Fatal
from worker.host.task_runner import TaskRunner
from worker.host.watch import LoopWatch, SharedWriter, all_stacks, culprit, frozen, hung_up, maker_of
from worker.pipe import Peer, event_frame
from worker.protocol import LoopStuck, StartTask, TaskId, ToControl


def frames(count: int, sender: int) -> list[bytes]:
    return [struct.pack("<I", 8 + 3000) + struct.pack("<II", sender, number) + b"x" * 3000 for number in range(count)]


async def test_frames_of_both_writers_stay_whole_and_in_order() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    writer = SharedWriter(ours, asyncio.get_running_loop())
    reader, other = await asyncio.open_connection(sock=theirs)
    done: list[bool] = []

    def from_thread() -> None:
        done.extend(writer.write_from_thread(frame, 10) for frame in frames(300, 1))

    thread = threading.Thread(target=from_thread)
    thread.start()
    for frame in frames(300, 2):
        writer.write(frame)
        await asyncio.sleep(0)
    found: dict[int, list[int]] = {1: [], 2: []}
    async with asyncio.timeout(20):
        for _ in range(600):
            size = struct.unpack("<I", await reader.readexactly(4))[0]
            sender, number = struct.unpack_from("<II", await reader.readexactly(size))
            found[sender].append(number)
    thread.join()
    assert found == {1: list(range(300)), 2: list(range(300))}
    writer.close()
    assert writer.is_closing()
    writer.write(b"nothing happens")
    other.close()


async def test_a_thread_does_not_wait_for_ever_for_room() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    writer = SharedWriter(ours, asyncio.get_running_loop())
    assert not await asyncio.to_thread(writer.write_from_thread, b"x" * (8 << 20), 0.2)
    writer.close()
    theirs.close()


async def test_a_stuck_loop_is_told_once_as_a_warning_and_once_for_good() -> None:
    ours, theirs = socket.socketpair()
    got: list[Any] = []

    async def handle(message: Any) -> None:
        got.append(message)

    reader, stream = await asyncio.open_connection(sock=theirs)
    peer = Peer(reader, stream, handle, ToControl)
    peer.start()
    watch = LoopWatch(asyncio.get_running_loop(), 1.0, ours.send, None, 0.3)
    watch.start()

    async def block() -> None:
        time.sleep(2)  # noqa: ASYNC251 - the fault that is looked for

    await asyncio.create_task(block(), name="orders-3")
    async with asyncio.timeout(5):
        while len(got) < 2:
            await asyncio.sleep(0.02)
    watch.stop()
    await peer.close()
    ours.close()
    assert [(message.task, message.seconds >= bound) for message, bound in zip(got, (0.3, 1), strict=True)] == [
        ("orders-3", True)] * 2
    assert "time.sleep(2)" in got[0].stacks
    assert watch.take_lag() > 1
    assert watch.take_lag() == 0.0


async def test_loading_code_is_not_told_of() -> None:
    told: list[bytes] = []
    watch = LoopWatch(asyncio.get_running_loop(), 10.0, told.append, None, 0.1, telling=False)
    watch.start()
    time.sleep(0.8)  # noqa: ASYNC251 - as imports do
    watch.set_stuck(0.2)
    await asyncio.sleep(0)
    assert not told
    async with asyncio.timeout(10):
        while not told:
            time.sleep(0.8)  # noqa: ASYNC251 - the fault that is looked for
            await asyncio.sleep(0.01)
    watch.stop()


@pytest.mark.parametrize(("wall_s", "cpu_s", "expected"), [
    (0.5, 0.0, False), (0.5, 0.5, False), (1.9, 0.0, False), (2.1, 0.0, True), (60.0, 1.0, True),
    (10.0, 9.9, False),  # one thread kept the interpreter
    (10.0, 20.0, False),
])
def test_a_process_that_did_not_run_is_frozen(wall_s: float, cpu_s: float, expected: bool) -> None:
    assert frozen(wall_s, cpu_s) is expected


_HANGS = """
import asyncio, os, sys
import pytest

from worker.host.watch import LoopWatch

async def main():
    watch = LoopWatch(asyncio.get_running_loop(), 2.5, lambda frame: os.write(1, b"stuck\\n"), None, 2.5)
    watch.start()
    os.write(1, b"ready\\n")
    while await asyncio.to_thread(os.read, 0, 1):
        os.write(1, b"turn\\n")
    watch.stop()

asyncio.run(main())
"""


def test_of_a_frozen_process_nobody_is_told() -> None:
    with subprocess.Popen([sys.executable, "-c", _HANGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          bufsize=1) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGSTOP)
        try:
            time.sleep(4)  # the fault: longer than both limits
        finally:
            os.kill(child.pid, signal.SIGCONT)
        # The watch looks twice a second: it has looked when a second is over.
        for _ in range(3):
            child.stdin.write("x")
            child.stdin.flush()
            assert child.stdout.readline() == "turn\n"
            time.sleep(0.5)
        child.stdin.close()
        assert child.stdout.read() == ""


async def test_the_culprit_is_the_task_whose_code_runs() -> None:
    async def who() -> str:
        return culprit(asyncio.get_running_loop())

    for name, expected in (("orders-3", "orders-3"), ("orders-3|offsets", "orders-3"), ("orders|connector", "orders"),
                           ("a|b-0", "a|b-0"), ("a|b-0|runner", "a|b-0")):
        assert await asyncio.create_task(who(), name=name) == expected


async def test_a_task_that_blocks_while_it_is_made_is_the_culprit() -> None:
    blamed: list[str] = []

    async def make_plan() -> NoReturn:
        blamed.append(culprit(asyncio.get_running_loop()))  # as it is for the constructor of the connector's task
        raise Fatal("seen")

    runner = TaskRunner(StartTask(TaskId("orders", 3), {}, {}, 1), make_plan, lambda _: None, str)
    runner.start()
    while not blamed:
        await asyncio.sleep(0)
    assert await runner.stop(1)
    assert blamed == ["orders-3"]


@pytest.mark.parametrize("what", ["snapshot", "snapshots", "lag", "tables"])
async def test_a_connector_that_blocks_over_a_question_is_the_culprit(what: str) -> None:
    async def who() -> str:
        return culprit(asyncio.get_running_loop())

    assert await asyncio.create_task(who(), name=f"orders|{what}") == "orders"


def test_stacks_of_other_threads_are_shown() -> None:
    go = threading.Event()

    def waits_for_the_event() -> None:
        go.wait(10)

    thread = threading.Thread(target=waits_for_the_event, name="some-thread")
    thread.start()
    try:
        assert "waits_for_the_event" in all_stacks()
        assert "Thread some-thread" in all_stacks()
    finally:
        go.set()
        thread.join()


def test_the_end_of_the_other_side_is_seen_and_data_is_not_taken_for_it() -> None:
    ours, theirs = socket.socketpair()
    assert maker_of(ours) == os.getpid()
    gone = hung_up(ours, os.getppid())
    assert not gone(0.0)
    theirs.send(b"data")
    assert not gone(0.0)
    theirs.close()
    assert gone(1.0)
    ours.close()
    ours, theirs = socket.socketpair()
    assert hung_up(ours, os.getpid())(0.0), "a parent of another number: the right one has gone"
    ours.close()
    theirs.close()


def test_event_frames_are_those_of_a_peer() -> None:
    frame = event_frame(LoopStuck(1.5, "t-0", "stack"))
    assert struct.unpack_from("<I", frame)[0] == len(frame) - 4
    assert frame[4] == 3
