"""A unit starts only while no other worker can have been given it."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.clock import ManualClock
from worker.host import lease as lease_module
from worker.host.lease import Lease
from worker.protocol import ReadLease, RemoteError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(100.0)
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(lease_module, "retry_pauses", lambda: iter([0.0] * 10))
    return clock


class Control:
    """Answers with the next of ``answers``; an exception is raised."""

    def __init__(self, *answers: float | Exception) -> None:
        self.answers = list(answers)

    async def request(self, message: ReadLease, deadline_s: float) -> float:
        assert deadline_s > 0
        assert isinstance(message, ReadLease)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_lease_is_asked_for_once_while_it_counts(clock: ManualClock) -> None:
    control = Control(106.0, 112.0)
    lease = Lease(control.request)

    async def start_twice() -> None:
        await lease.wait()
        clock.now = 105.9
        await lease.wait()

    asyncio.run(start_twice())
    assert control.answers == [112.0]


def test_nothing_starts_after_a_pause_before_the_worker_is_in_touch_again(clock: ManualClock) -> None:
    control = Control(106.0, 106.0, 90.0, 121.0)
    lease = Lease(control.request)

    async def start_after_a_pause() -> None:
        await lease.wait()
        clock.now = 115.0
        await lease.wait()

    asyncio.run(start_after_a_pause())
    assert control.answers == []


def test_a_control_process_that_does_not_answer_is_asked_again(clock: ManualClock) -> None:
    assert clock.now == 100.0
    control = Control(TimeoutError(), RemoteError("Fatal", "not now"), 106.0)
    asyncio.run(Lease(control.request).wait())
    assert control.answers == []
