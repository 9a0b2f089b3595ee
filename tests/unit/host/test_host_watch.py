"""The watch thread and the writer it shares with the event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from connectors.errors import Fatal
from tests.support.clock import ManualClock
from tests.support.eventually import eventually, eventually_async, pass_turns
from worker.host import watch as watch_module
from worker.host.task_runner import TaskRunner
from worker.host.watch import LoopWatch, SharedWriter, all_stacks, find_culprit, hung_up, is_frozen, maker_of
from worker.pipe import Peer, event_frame
from worker.protocol import HostTaskId, LoopStuck, StartTask, ToControl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
        await pass_turns()
    received: dict[int, list[int]] = {1: [], 2: []}
    async with asyncio.timeout(20):
        for _ in range(600):
            size = struct.unpack("<I", await reader.readexactly(4))[0]
            sender, number = struct.unpack_from("<II", await reader.readexactly(size))
            received[sender].append(number)
    thread.join()
    assert received == {1: list(range(300)), 2: list(range(300))}
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


class CpuClock(ManualClock):
    """CPU seconds, of which the watch asks once in each look."""

    looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now


class Watched:
    """A watch of the running loop, whose thread looks often, at clocks that stand still."""

    def __init__(self, send: Callable[[bytes], object], stuck_s: float, warn_s: float, *, telling: bool = True) -> None:
        self.clock, self.cpu = ManualClock(), CpuClock()
        self.watch = LoopWatch(
            asyncio.get_running_loop(),
            stuck_s,
            send,
            None,
            warn_s,
            telling=telling,
            clock=self.clock,
            cpu_clock=self.cpu,
        )
        self.watch.start()

    def work(self, seconds: float) -> None:
        """Keep the loop and the CPU busy for so long, until the watch has looked."""
        self.cpu.advance(seconds)
        self.freeze(seconds)

    def freeze(self, seconds: float) -> None:
        """Time passes in which the process does not run, until the watch has looked."""
        self.clock.advance(seconds)
        before = self.cpu.looks  # the first look may have been under way
        eventually(lambda: self.cpu.looks >= before + 2, "the watch has looked")


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watched]]:
    for name in ("_TICK_S", "_BEAT_S"):
        monkeypatch.setattr(watch_module, name, 0.01)
    watchers: list[Watched] = []

    def make(*args: Any, **more: Any) -> Watched:
        watchers.append(Watched(*args, **more))
        return watchers[-1]

    yield make
    for watcher in watchers:
        watcher.watch.stop()


async def test_a_stuck_loop_is_reported_once_as_a_warning_and_once_for_good(watched: Callable[..., Watched]) -> None:
    ours, theirs = socket.socketpair()
    received: list[Any] = []

    async def handle(message: Any) -> None:
        received.append(message)

    reader, stream = await asyncio.open_connection(sock=theirs)
    peer = Peer(reader, stream, handle, ToControl)
    peer.start()
    host = watched(ours.send, 1.0, 0.3)

    async def block() -> None:
        host.work(0.2)
        for _ in range(3):
            host.work(0.5)

    await asyncio.create_task(block(), name="orders-3")
    await eventually_async(lambda: len(received) >= 2, "both reports come")
    await eventually_async(lambda: host.watch.lag_s > 1, "the loop has had its next turn")
    host.watch.stop()
    await peer.close()
    ours.close()
    assert [(message.task, message.seconds) for message in received] == [
        ("orders-3", pytest.approx(0.7)),
        ("orders-3", pytest.approx(1.2)),
    ]
    assert "in block" in received[0].stacks
    assert "host.work(0.5)" in received[0].stacks
    assert host.watch.take_lag() > 1
    assert host.watch.take_lag() == 0.0


async def test_loading_code_is_not_reported(watched: Callable[..., Watched]) -> None:
    reports: list[bytes] = []
    host = watched(reports.append, 10.0, 0.1, telling=False)
    host.work(0.8)  # as imports do
    host.watch.set_stuck(0.2)
    assert not reports
    host.work(0.8)
    assert len(reports) == 1


async def test_time_in_which_the_process_did_not_run_is_not_the_loops_fault(watched: Callable[..., Watched]) -> None:
    reports: list[bytes] = []
    host = watched(reports.append, 2.5, 2.5)
    host.freeze(60)
    assert not reports
    host.work(2.4)
    assert not reports, "the loop gets its time after it"
    host.work(0.2)
    assert len(reports) == 1


@pytest.mark.parametrize(
    ("wall_s", "cpu_s", "expected"),
    [
        (0.5, 0.0, False),
        (0.5, 0.5, False),
        (1.9, 0.0, False),
        (2.1, 0.0, True),
        (60.0, 1.0, True),
        (10.0, 9.9, False),  # one thread kept the interpreter
        (10.0, 20.0, False),
    ],
)
def test_a_process_that_did_not_run_is_frozen(wall_s: float, cpu_s: float, expected: bool) -> None:
    assert is_frozen(wall_s, cpu_s) is expected


async def test_the_culprit_is_the_task_whose_code_runs() -> None:
    async def name_culprit() -> str:
        return find_culprit(asyncio.get_running_loop())

    for name, expected in (
        ("orders-3", "orders-3"),
        ("orders-3|offsets", "orders-3"),
        ("orders|connector", "orders"),
        ("a|b-0", "a|b-0"),
        ("a|b-0|runner", "a|b-0"),
    ):
        assert await asyncio.create_task(name_culprit(), name=name) == expected


async def test_a_task_that_blocks_while_it_is_made_is_the_culprit() -> None:
    blamed: list[str] = []

    async def make_plan() -> NoReturn:
        blamed.append(find_culprit(asyncio.get_running_loop()))  # as it is for the constructor of the connector's task
        raise Fatal("seen")

    runner = TaskRunner(StartTask(HostTaskId("orders", 3), {}, {}, 1), make_plan, lambda _: None, str)
    runner.start()
    await eventually_async(lambda: blamed, "the task is made", every=0)
    assert await runner.stop(1)
    assert blamed == ["orders-3"]


@pytest.mark.parametrize("question", ["snapshot", "snapshots", "lag", "tables"])
async def test_a_connector_that_blocks_over_a_question_is_the_culprit(question: str) -> None:
    async def name_culprit() -> str:
        return find_culprit(asyncio.get_running_loop())

    assert await asyncio.create_task(name_culprit(), name=f"orders|{question}") == "orders"


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
