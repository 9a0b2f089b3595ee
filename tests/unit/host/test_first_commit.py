"""A task saves its first positions soon, and later ones at each interval."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors.errors import Retriable
from tests.support.eventually import eventually_async, pass_turns
from worker.host.delivery import session
from worker.host.delivery.session import TaskSession
from worker.protocol import VERIFICATION


@pytest.mark.parametrize(("interval_s", "calls_after"), [(3600.0, 4), (0.0, None)])
async def test_until_there_was_something_to_save_a_task_asks_often(
    monkeypatch: pytest.MonkeyPatch, interval_s: float, calls_after: int | None
) -> None:
    monkeypatch.setattr(session, "_FIRST_COMMIT_S", 0.0)
    calls = 0

    async def commit() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Retriable("Kafka is away")
        if calls == 4:
            under_test.stats.commits += 1

    # An earlier run of the task has committed: what counts is this one.
    under_test: Any = SimpleNamespace(
        plan=SimpleNamespace(flush_interval_s=interval_s),
        stats=SimpleNamespace(commits=7),
        commit=commit,
        _commit_soon=asyncio.Event(),
    )
    running = asyncio.create_task(TaskSession.commit_regularly(cast("TaskSession", under_test)))
    await eventually_async(lambda: calls >= 4, "something is saved", detail=lambda: calls)
    await pass_turns(50)
    assert calls == calls_after if calls_after is not None else calls > 4
    # A verification waits for its positions.
    under_test._commit_soon.set()
    await eventually_async(lambda: calls >= 10, "it saves often", detail=lambda: calls)
    running.cancel()


def test_a_verification_is_no_instruction_of_the_task() -> None:
    handed_on: list[Any] = []
    under_test: Any = SimpleNamespace(
        _commit_soon=asyncio.Event(), _instructions=SimpleNamespace(replace=handed_on.append)
    )
    snapshot = {"id": "s", "origin": "rest"}
    TaskSession.instruct(under_test, [snapshot, {"id": "v", "origin": VERIFICATION}])
    assert under_test._commit_soon.is_set()
    TaskSession.instruct(under_test, [snapshot])
    assert not under_test._commit_soon.is_set()
    assert handed_on == [[snapshot], [snapshot]]
