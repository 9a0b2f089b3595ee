"""``errors.retry.timeout`` counts from the first fault of an outage, not from the start of the run that it ended."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from connectors.errors import Retriable
from tests.support.clock import ManualClock
from worker.host.delivery import session
from worker.host.delivery.session import TaskSession
from worker.host.options import CONNECTOR
from worker.protocol import HostTaskId, TaskStats

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Source:
    """The parts of a session that ``_run_source`` calls; each run of the source takes its seconds and ends with a fault."""

    def __init__(self, clock: ManualClock, runs_s: list[float], timeout_ms: int) -> None:
        self._name = "c-0"
        self._clock = clock
        self._runs_s = runs_s
        self.runs = 0
        self.works_again = asyncio.Event()
        options = {"errors.retry.timeout": str(timeout_ms), "errors.retry.delay.max.ms": "1"}
        self.plan = SimpleNamespace(
            options=CONNECTOR.parse(options), turn=self._nothing, log=logging.getLogger(__name__), stop_s=1.0
        )
        self.stats = TaskStats(HostTaskId("c", 0))
        self._instructions = SimpleNamespace(current=[])
        self._refusals = SimpleNamespace(begin=lambda: None)
        self.settle: Callable[[], Awaitable[None]] = self._nothing

    async def _nothing(self) -> None:
        """For what the session does between two runs."""

    def instruct(self, instructions: list[Any]) -> None:
        assert not instructions

    def batches(self) -> None:
        """Stand for the source's coroutine."""

    async def _iterate_batches(self, generator: None) -> None:
        del generator
        if self.runs == len(self._runs_s):
            self.works_again.set()
            await asyncio.Event().wait()
        self._clock.advance(self._runs_s[self.runs])
        self.runs += 1
        raise Retriable("the database is away")

    async def _close_generator(self, generator: None) -> None:
        """Release nothing."""


def start(
    monkeypatch: pytest.MonkeyPatch, runs_s: list[float], timeout_ms: int = 30_000
) -> tuple[Source, asyncio.Task[None]]:
    clock = ManualClock()
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=clock.monotonic, time=clock.monotonic))
    source = Source(clock, runs_s, timeout_ms)
    running = TaskSession._run_source(cast("TaskSession", source), cast("Any", source))
    return source, asyncio.create_task(running)


@pytest.mark.parametrize("runs_s", [[3600.0], [50.0], [3600.0, 3600.0]])
async def test_a_source_that_worked_for_long_is_retried_after_its_first_fault(
    monkeypatch: pytest.MonkeyPatch, runs_s: list[float]
) -> None:
    source, running = start(monkeypatch, runs_s)
    async with asyncio.timeout(10):
        await source.works_again.wait()
    assert source.stats.retries == len(runs_s)
    running.cancel()


async def test_an_outage_that_lasts_longer_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    source, running = start(monkeypatch, [3600.0, 10.0, 10.0, 11.0, 10.0])
    with pytest.raises(Retriable, match="the database is away"):
        await running
    assert source.runs == 4


async def test_without_time_for_retries_the_first_fault_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    source, running = start(monkeypatch, [0.0, 0.0], timeout_ms=0)
    with pytest.raises(Retriable, match="the database is away"):
        await running
    assert source.runs == 1
