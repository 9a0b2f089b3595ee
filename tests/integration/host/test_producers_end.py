"""However a task ends, its producer ends with it: nothing of it is left in the event loop or reported in the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.kafka import KafkaCluster
from tests.integration.host.conftest import find_leftovers
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow
MODES = [
    pytest.param({}, id="at-least-once"),
    pytest.param(
        {"exactly_once_source_support": "enabled", "producer_transaction_timeout_ms": 10_000}, id="exactly-once"
    ),
]


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker that these tests may harm."""
    with KafkaCluster(tmp_path_factory.mktemp("ends"), port=None, jvm_options=FAST_START) as cluster:
        yield cluster


@pytest.fixture
def bootstrap(own_kafka: KafkaCluster) -> str:
    return own_kafka.bootstrap


async def written(control: Any, task: Any) -> None:
    await control.until(lambda: (latest := control.stats(task)) and latest.written > 50)


@pytest.mark.parametrize("properties", MODES)
async def test_stopped_while_the_broker_is_there_and_while_it_is_away(
    control_for: Callable[..., Any],
    own_kafka: KafkaCluster,
    properties: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    control = control_for(**properties)
    await control.start()
    options = {
        "end": 1_000_000,
        "rows": 20,
        "pause_ms": 5,
        "transaction_boundary": "interval",
        "transaction_boundary_interval_ms": 200,
    }
    first, second = [await control.start_task(task=number, **options) for number in range(2)]
    await written(control, first)
    await written(control, second)
    assert await control.stop_task(first)
    await asyncio.to_thread(own_kafka.broker(0).kill)
    try:
        await control.until(lambda: (latest := control.stats(second)) and latest.active > 0)
        late = await control.start_task(task=2, **options)
        await control.stop_task(second, 1)
        await control.stop_task(late, 1)
        assert find_leftovers(caplog) == []
    finally:
        await asyncio.to_thread(own_kafka.broker(0).start)
    restarted = await control.start_task(task=1, **options)
    await written(control, restarted)
    assert await control.stop_task(restarted)
    await control.assert_ended(caplog)


@pytest.mark.parametrize("properties", MODES)
async def test_stopped_while_it_fails(
    control_for: Callable[..., Any],
    own_kafka: KafkaCluster,
    properties: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last commit of a task that fails waits for an unavailable broker, and the stop comes meanwhile."""
    control = control_for(offset_flush_timeout_ms=60_000, offset_flush_interval_ms=60_000, **properties)
    await control.start()
    task = await control.start_task(
        end=1_000_000,
        rows=20,
        pause_ms=15,
        fail_at=8_000,
        transaction_boundary="interval",
        transaction_boundary_interval_ms=60_000,
    )
    await written(control, task)
    await asyncio.to_thread(own_kafka.broker(0).kill)
    try:
        # It fails on its own now; the task's own coroutine has ended, and the commit waits.
        await control.until(
            lambda: not any(asyncio_task.get_name() == str(task) for asyncio_task in asyncio.all_tasks())
        )
        await control.stop_task(task, 1)
    finally:
        await asyncio.to_thread(own_kafka.broker(0).start)
    await control.assert_ended(caplog)
