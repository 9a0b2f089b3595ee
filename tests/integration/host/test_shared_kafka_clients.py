"""Tasks beyond the first ones of a host share connections to Kafka: what one of them suffers the others don't notice."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.kafka import KafkaCluster
from offsets.aiokafka_internals import tracked_topics
from worker.fetch.java import FAST_START
from worker.host.delivery.shared_clients import ClientPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.protocol import HostTaskId

_EXACTLY_ONCE = {"exactly_once_source_support": "enabled", "producer_transaction_timeout_ms": 10_000}
_TASKS = 6
MODES = [pytest.param({}, id="at-least-once", marks=pytest.mark.slow), pytest.param(_EXACTLY_ONCE, id="exactly-once")]
OPTIONS = {"rows": 10, "pause_ms": 15, "transaction_boundary": "interval", "transaction_boundary_interval_ms": 200}


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker that these tests may harm."""
    with KafkaCluster(tmp_path_factory.mktemp("shared"), port=None, jvm_options=FAST_START) as cluster:
        yield cluster


@pytest.fixture
def bootstrap(own_kafka: KafkaCluster) -> str:
    return own_kafka.bootstrap


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> ClientPool:
    """One task has a client of its own, all others share two."""
    clients = ClientPool(own_clients=1, shared_clients=2)
    monkeypatch.setattr("worker.host.host.ClientPool", lambda: clients)
    return clients


async def start_counters(control: Any, end: int) -> list[HostTaskId]:
    """Start tasks that write to a topic each, and wait until all of them do."""
    tasks = [
        await control.start_task(task=number, topic=f"{control.name}-{number}", end=end, **OPTIONS)
        for number in range(_TASKS)
    ]
    await control.until(lambda: all((stats := control.stats(task)) and stats.written > 100 for task in tasks))
    return tasks


async def numbers_of(control: Any, task: int, end: int) -> list[int]:
    """Return the numbers that a task has written."""
    records = await control.consume(f"{control.name}-{task}", end, deadline_s=60)
    return [json.loads(record.value)["n"] for record in records]


def users(pool: ClientPool) -> list[int]:
    """How many producers each shared client has."""
    return sorted(client.users for clients in pool._shared.values() for client in clients)


def topics_of(pool: ClientPool) -> set[str]:
    """The topics that shared clients ask Kafka about."""
    return {topic for clients in pool._shared.values() for client in clients for topic in tracked_topics(client.client)}


@pytest.mark.parametrize("properties", MODES)
async def test_the_broker_is_killed_under_tasks_that_share(
    control_for: Callable[..., Any],
    own_kafka: KafkaCluster,
    properties: dict[str, Any],
    pool: ClientPool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    control = control_for(**properties)
    await control.start()
    end = 3_000
    tasks = await start_counters(control, end)
    assert users(pool) == [2, 3]
    await asyncio.to_thread(own_kafka.broker(0).kill)
    try:
        await control.until(lambda: any((stats := control.stats(task)) and stats.active > 0 for task in tasks))
    finally:
        await asyncio.to_thread(own_kafka.broker(0).start)
    await control.saved_is({f"{number}-0": end for number in range(_TASKS)}, 120)
    for number in range(_TASKS):
        numbers = await numbers_of(control, number, end)
        assert (numbers if properties else list(dict.fromkeys(numbers))) == list(range(end))
    await control.assert_ended(caplog)
    assert users(pool) == []


async def test_tasks_that_end_leave_the_others_their_connections(
    control_for: Callable[..., Any], pool: ClientPool, caplog: pytest.LogCaptureFixture
) -> None:
    control = control_for(**_EXACTLY_ONCE)
    await control.start()
    end = 2_000
    tasks = await start_counters(control, end)
    assert await control.stop_task(tasks[1])
    assert await control.stop_task(tasks[2])
    assert users(pool) == [1, 2]
    assert f"{control.name}-1" not in topics_of(pool)
    assert f"{control.name}-3" in topics_of(pool)
    for number in (1, 2):
        await control.start_task(task=number, topic=f"{control.name}-{number}", end=end, **OPTIONS)
    await control.saved_is({f"{number}-0": end for number in range(_TASKS)}, 90)
    for number in range(_TASKS):
        assert await numbers_of(control, number, end) == list(range(end))
    await control.assert_ended(caplog)
    assert users(pool) == []
