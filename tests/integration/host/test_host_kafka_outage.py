"""Kafka goes away under a task host: nothing is lost, nothing becomes a bad record, and with exactly once nothing is twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

from compose.local.kafka import KafkaCluster
from worker.fetch.java import FAST_START


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker that these tests may harm."""
    with KafkaCluster(tmp_path_factory.mktemp("outage"), port=None, jvm_options=FAST_START) as cluster:
        yield cluster


@pytest.fixture
def bootstrap(own_kafka: KafkaCluster) -> str:
    return own_kafka.bootstrap


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({}, id="at-least-once", marks=pytest.mark.slow),
        pytest.param(
            {"exactly_once_source_support": "enabled", "producer_transaction_timeout_ms": 10_000}, id="exactly-once"
        ),
    ],
)
async def test_the_broker_is_killed_and_comes_back(
    control_for: Callable[..., Any], own_kafka: KafkaCluster, properties: dict[str, Any]
) -> None:
    control = control_for(**properties)
    await control.start()
    end = 12_000
    task = await control.start_task(
        end=end,
        rows=20,
        pause_ms=15,
        errors_tolerance="all",
        transaction_boundary="interval",
        transaction_boundary_interval_ms=200,
    )
    await control.until(lambda: (latest := control.stats(task)) and latest.commits > 0 and latest.written > 400)
    await asyncio.to_thread(own_kafka.broker(0).kill)
    try:
        await control.until(lambda: (latest := control.stats(task)) and latest.active > 0)
    finally:
        await asyncio.to_thread(own_kafka.broker(0).start)
    await control.saved_is({"0-0": end}, 90)
    numbers = await control.numbers(end)
    if properties:
        assert numbers == list(range(end))
    else:
        assert list(dict.fromkeys(numbers)) == list(range(end))
    stats = await control.until(lambda: control.stats(task))
    assert (stats.records_skipped, stats.record_failures) == (0, 0)
    assert control.states(task) == ["RUNNING"]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({}, id="at-least-once", marks=pytest.mark.slow),
        pytest.param(
            {"exactly_once_source_support": "enabled", "producer_transaction_timeout_ms": 10_000}, id="exactly-once"
        ),
    ],
)
async def test_a_broker_that_hangs_costs_a_producer(
    control_for: Callable[..., Any],
    own_kafka: KafkaCluster,
    properties: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    control = control_for(task_producer_stall_ms=2_000, **properties)
    await control.start()
    end = 12_000
    task = await control.start_task(
        end=end, rows=20, pause_ms=15, transaction_boundary="interval", transaction_boundary_interval_ms=200
    )
    await control.until(lambda: (latest := control.stats(task)) and latest.commits > 0 and latest.written > 200)
    broker = own_kafka.broker(0)
    await asyncio.to_thread(broker.pause)
    try:
        await asyncio.sleep(8)  # longer than task.producer.stall.ms: the fault itself, not a wait for a result
    finally:
        await asyncio.to_thread(broker.resume)
    await control.saved_is({"0-0": end}, 90)
    numbers = await control.numbers(end)
    if properties:
        assert numbers == list(range(end))
        assert "continues from the last committed transaction" in caplog.text
    else:
        assert set(numbers) == set(range(end))
        assert "a new producer will send what is not acknowledged" in caplog.text


async def test_a_task_that_starts_while_kafka_is_away_runs_when_it_is_back(
    control_for: Callable[..., Any], own_kafka: KafkaCluster
) -> None:
    control = control_for()
    await control.start()
    await asyncio.to_thread(own_kafka.broker(0).kill)
    try:
        task = await control.start_task(end=100)
        other = await control.start_task(task=1, end=100)
        assert await control.stop_task(other, 3)
    finally:
        await asyncio.to_thread(own_kafka.broker(0).start)
    await control.state(task, "RUNNING", 60)
    assert await control.numbers(100) == list(range(100))
