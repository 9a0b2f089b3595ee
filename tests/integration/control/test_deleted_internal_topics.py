"""Internal topics that are deleted while a worker runs: it says so, and what it holds in memory can be saved again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from offsets.admin import TopicAdmin
from tests.integration.control._cluster import all_running, datagen, wait_for
from tests.integration.offsets.topic_tools import admin_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.worker import MillraceWorker


async def delete(bootstrap: str, topic: str) -> None:
    async with admin_client(bootstrap) as admin:
        await admin.delete_topics([topic])


async def compact(bootstrap: str, topic: str) -> None:
    """Have a topic compacted, whoever has created it."""
    async with admin_client(bootstrap) as admin, TopicAdmin({"bootstrap_servers": bootstrap}) as look:
        settings = {"cleanup.policy": "compact"}
        if await look.partitions(topic) is None:
            await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=settings)])
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings)])


def says_lost(worker: MillraceWorker, topic: str) -> bool:
    status, health = worker.request("GET", "/health")
    metrics = worker.request("GET", "/metrics")[1].splitlines()
    return (
        (status, health["status"]) == (500, "unhealthy")
        and f"The topics {topic} were deleted" in health["message"]
        and f'millrace_topic_lost{{topic="{topic}"}} 1' in metrics
    )


def position(worker: MillraceWorker, name: str) -> int:
    answer = worker.request("GET", f"/connectors/{name}/offsets")[1]
    return int(next(iter(answer["offsets"][0]["offset"].values())))


def test_the_offsets_topic(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], bootstrap: str
) -> None:
    """On brokers that create topics, as tasks write to it."""
    worker = millrace(properties={"offset.flush.interval.ms": "200", "producer.request.timeout.ms": "3000"})
    topic = f"{worker.group}-offsets"
    worker.create("rows", datagen(unique("rows"), 1))
    wait_for(lambda: position(worker, "rows") > 20, "offsets are saved")
    asyncio.run(delete(bootstrap, topic))
    wait_for(lambda: says_lost(worker, topic), "the worker says so", 60)
    before = position(worker, "rows")
    wait_for(lambda: position(worker, "rows") > before, "offsets are saved in the new topic", 60)

    asyncio.run(compact(bootstrap, topic))
    assert worker.request("PUT", "/connectors/rows/stop")[0] == 204
    wait_for(lambda: worker.states("rows") == ("STOPPED", []), "it is stopped")
    offsets = worker.request("GET", "/connectors/rows/offsets")[1]
    assert worker.request("PATCH", "/connectors/rows/offsets", offsets)[0] == 200
    assert says_lost(worker, topic), "it can't know that all is saved"
    worker.service.terminate()
    wait_for(lambda: not worker.service.running, "it has ended")
    worker.start()
    wait_for(lambda: worker.request("GET", "/health")[0] == 200, "it is healthy")
    assert worker.request("GET", "/connectors/rows/offsets")[1] == offsets


def test_the_config_topic(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], bootstrap: str
) -> None:
    worker = millrace()
    topic = f"{worker.group}-configs"
    worker.create("rows", datagen(unique("rows"), 2))
    wait_for(lambda: all_running(worker, ["rows"], 2), "it runs")
    asyncio.run(delete(bootstrap, topic))
    wait_for(lambda: says_lost(worker, topic), "the worker says so", 60)
    assert all_running(worker, ["rows"], 2)

    asyncio.run(compact(bootstrap, topic))
    config = worker.request("GET", "/connectors/rows/config")[1]
    wait_for(lambda: worker.request("PUT", "/connectors/rows/config", config)[0] == 200, "it is saved", 60)
    worker.service.terminate()
    wait_for(lambda: not worker.service.running, "it has ended")
    worker.start()
    wait_for(lambda: worker.request("GET", "/health")[0] == 200, "it is healthy")
    assert worker.request("GET", "/connectors/rows/config")[1] == config
    wait_for(lambda: all_running(worker, ["rows"], 2), "it runs")
