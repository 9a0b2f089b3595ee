"""Topics that are deleted under a task, on brokers that create none: the task creates them as its connector says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.kafka import KafkaCluster
from offsets.admin import TopicAdmin
from tests.integration.offsets.topic_tools import admin_client, create_topic
from tests.support.eventually import eventually_async
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.protocol import HostTaskId

CREATION = {
    "topic_creation_default_partitions": 3,
    "topic_creation_default_replication_factor": 1,
    "topic_creation_default_max_message_bytes": 1_234_567,
}
END = 100_000_000


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(
        tmp_path_factory.mktemp("deleted"),
        port=None,
        jvm_options=FAST_START,
        properties={"auto.create.topics.enable": "false"},
    ) as cluster:
        yield cluster


@pytest.fixture
def bootstrap(own_kafka: KafkaCluster) -> str:
    return own_kafka.bootstrap


async def start(control: Any, **options: Any) -> HostTaskId:
    """A task that has written, to three partitions, and has saved where it is."""
    await control.start()
    task: HostTaskId = await control.start_task(end=END, rows=20, pause_ms=20, keys=True, **CREATION, **options)
    await control.until(lambda: (latest := control.stats(task)) and latest.commits > 0 and latest.written > 200)
    return task


async def read_numbers(control: Any, task: Any) -> list[int]:
    """The counter's numbers in its topic, once the task has saved a later position and rests; none up to there is missing."""
    before = (await control.saved())["0-0"]
    saved = before

    async def is_saved() -> bool:
        nonlocal saved
        saved = (await control.saved())["0-0"]
        return bool(saved > before + 200)

    await eventually_async(is_saved, "a later position is saved", 60)
    await control.pause(task, paused=True)
    await control.until(lambda: (latest := control.stats(task)) and latest.state == "PAUSED" and latest.active == 0)
    records = await control.consume(control.name, 100)
    numbers = sorted(json.loads(record.value)["n"] for record in records)
    # Of a partition all is there from its first number on; before it, another partition's may have been delivered in time.
    first = max(
        min(json.loads(record.value)["n"] for record in records if record.partition == partition)
        for partition in {record.partition for record in records}
    )
    assert set(range(first, saved)) <= set(numbers), "what was not delivered to the deleted topic is in the new one"
    return numbers


async def delete(bootstrap: str, topic: str) -> None:
    async with admin_client(bootstrap) as admin, TopicAdmin({"bootstrap_servers": bootstrap}) as look:
        await admin.delete_topics([topic])

        async def is_gone() -> bool:
            return await look.partitions(topic) is None

        await eventually_async(is_gone, "the topic is gone")


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({}, id="at-least-once"),
        pytest.param({"exactly_once_source_support": "enabled", "task_producer_stall_ms": 3_000}, id="exactly-once"),
    ],
)
async def test_a_deleted_topic_is_created_as_before(
    control_for: Callable[..., Any], bootstrap: str, properties: dict[str, Any]
) -> None:
    control = control_for(producer_request_timeout_ms=3_000, **properties)
    task = await start(control)
    await delete(bootstrap, control.name)
    async with TopicAdmin(control.client) as admin:

        async def is_there() -> bool:
            return await admin.partitions(control.name) == 3

        await eventually_async(is_there, "the topic was created", 60)
        assert (await admin.settings(control.name))["max.message.bytes"] == "1234567"
    numbers = await read_numbers(control, task)
    if properties:
        assert len(set(numbers)) == len(numbers)
    assert control.states(task) == ["RUNNING", "PAUSED"]


async def test_topics_that_come_back_with_fewer_partitions(control_for: Callable[..., Any], bootstrap: str) -> None:
    """As where brokers create them: the task starts again, and offsets are saved again."""
    control = control_for(producer_request_timeout_ms=3_000)
    task = await start(control)
    for topic in (control.name, control.properties["offset.storage.topic"]):
        await delete(bootstrap, topic)
        await create_topic(bootstrap, topic)
    restarting = await control.state(task, "RESTARTING", 60)
    assert "the topic has fewer partitions than before" in restarting.trace
    await control.until(lambda: control.states(task)[-1] == "RUNNING")
    await read_numbers(control, task)
    assert control.offsets.lost
