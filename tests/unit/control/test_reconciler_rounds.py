"""Of thousands of units that start or stop at once, only a limited number are in progress at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tests.support.eventually import eventually_async, pass_turns
from worker.control.placement.planning import Unit
from worker.control.placement.reconciler import DesiredRun, PluginChoice, Reconciler
from worker.protocol import StartTask, StopTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.protocol import HostMessage


class FakeHost:
    """Does what it is asked for after a while, and notes how much it was asked for at once."""

    number = 0

    def __init__(self) -> None:
        self.units: set[Unit] = set()
        self.done: list[HostMessage] = []
        self.under_way = self.most = 0

    async def request(self, message: HostMessage, deadline_s: float) -> bool:
        del deadline_s
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await pass_turns(3)
        self.under_way -= 1
        self.done.append(message)
        return True

    def choose(self, environments: object) -> FakeHost:
        del environments
        return self


class FakeListener:
    """Wants many tasks."""

    def __init__(self, count: int) -> None:
        self.desired: dict[Unit, DesiredRun] = {
            Unit("c", number): DesiredRun({}, {}, 1, paused=False) for number in range(count)
        }

    def desired_runs(self) -> Mapping[Unit, DesiredRun]:
        return self.desired

    def choose(self, desired_run: DesiredRun) -> PluginChoice:
        del desired_run
        return PluginChoice()

    def unready(self) -> frozenset[Unit]:
        return frozenset()

    def stopped(self, unit: Unit, desired_run: DesiredRun, *, in_time: bool) -> None:
        """Nothing to note."""

    def changed(self) -> None:
        """Nothing to note."""


async def test_so_many_are_under_way_at_once_and_all_are_done_once() -> None:
    host, listener = FakeHost(), FakeListener(1000)
    reconciler = Reconciler(cast("Any", host), cast("Any", listener), stop_s=1, backoff_s=(1, 1), crash_limit=3)
    reconciler.start()
    reconciler.wake()
    await eventually_async(lambda: len(host.done) == 1000, "all tasks are started")
    assert (
        len(reconciler.local_runs)
        == len({message.id for message in host.done if isinstance(message, StartTask)})
        == 1000
    )
    assert 1 < host.most <= 128
    host.done.clear()
    listener.desired.clear()
    reconciler.wake()
    await eventually_async(lambda: not reconciler.local_runs, "all tasks are stopped")
    await reconciler.stop()
    assert len({message.id for message in host.done if isinstance(message, StopTask)}) == len(host.done) == 1000
    assert 1 < host.most <= 128
