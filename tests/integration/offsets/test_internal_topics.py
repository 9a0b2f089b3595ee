"""Making and checking topics on a real Kafka."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

from compose.local.kafka import KafkaCluster
from compose.local.ports import free_port
from connectors.errors import ConfigInvalid, Fatal, Retriable
from offsets.admin import TopicAdmin
from offsets.creation import TopicCreator, creation_groups
from offsets.topics import TUNING, InternalTopic, ensure_internal_topic, internal_topic
from tests.integration.offsets.topic_tools import create_topic
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def test_a_missing_internal_topic_is_made_compacted_and_tuned(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    client = {"bootstrap_servers": bootstrap}
    topic = internal_topic(
        "offset", {"offset.storage.segment.ms": "12345"}, name=unique("offsets"), partitions=3, replication_factor=1
    )
    assert await ensure_internal_topic(client, topic)
    assert not await ensure_internal_topic(client, topic)
    async with TopicAdmin(client) as admin:
        assert await admin.partitions(topic.name) == 3
        settings = await admin.settings(topic.name)
    assert settings["cleanup.policy"] == "compact"
    assert settings["segment.ms"] == "12345"
    assert settings["segment.bytes"] == TUNING["segment.bytes"]
    assert float(settings["min.cleanable.dirty.ratio"]) == float(TUNING["min.cleanable.dirty.ratio"])


async def test_numbers_can_be_left_to_the_broker(bootstrap: str, unique: Callable[[str], str]) -> None:
    client = {"bootstrap_servers": bootstrap}
    assert await ensure_internal_topic(client, InternalTopic("status", unique("status"), -1, -1))


async def test_all_at_once_one_makes_it_and_nobody_fails(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic = InternalTopic("config", unique("configs"), 1, 1)
    created = await asyncio.gather(*[ensure_internal_topic({"bootstrap_servers": bootstrap}, topic) for _ in range(5)])
    assert sum(created) == 1


async def test_an_existing_topic_with_another_policy_stops_the_start(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    name = unique("offsets")
    await create_topic(bootstrap, name, cleanup_policy="delete")
    with pytest.raises(
        ConfigInvalid,
        match=f"Topic '{name}' supplied via the 'offset.storage.topic' property is required to "
        "have 'cleanup.policy=compact'.*kafka-configs.sh --bootstrap-server",
    ):
        await ensure_internal_topic({"bootstrap_servers": bootstrap}, InternalTopic("offset", name, 25, 1))


async def test_a_config_topic_with_several_partitions_stops_the_start(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    name = unique("configs")
    await create_topic(bootstrap, name, partitions=2)
    with pytest.raises(ConfigInvalid, match="single partition"):
        await ensure_internal_topic({"bootstrap_servers": bootstrap}, InternalTopic("config", name, 1, 1))


async def test_a_replication_factor_that_the_brokers_cannot_hold_is_explained(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    with pytest.raises(
        ConfigInvalid, match=r"can't hold a replication factor of 9.*status\.storage\.replication\.factor"
    ):
        await ensure_internal_topic({"bootstrap_servers": bootstrap}, InternalTopic("status", unique("s"), 5, 9), 1.0)


async def test_a_setting_that_kafka_refuses_is_named(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic = InternalTopic("status", unique("s"), 1, 1, {"segment.ms": "soon"})
    with pytest.raises(ConfigInvalid, match=r"segment\.ms"):
        await ensure_internal_topic({"bootstrap_servers": bootstrap}, topic)


async def test_without_a_broker_it_says_where_it_looked() -> None:
    port = free_port(None)
    with pytest.raises(Retriable, match=f"no Kafka broker answers at 127.0.0.1:{port}"):
        await ensure_internal_topic({"bootstrap_servers": f"127.0.0.1:{port}"}, InternalTopic("status", "s", 1, 1), 1.0)


async def test_source_topics_are_made_by_the_group_that_matches(bootstrap: str, unique: Callable[[str], str]) -> None:
    client = {"bootstrap_servers": bootstrap}
    log, table, there = unique("log"), unique("table"), unique("there")
    await create_topic(bootstrap, there, partitions=4)
    creator = TopicCreator(
        client,
        creation_groups(
            {
                "topic.creation.default.replication.factor": "-1",
                "topic.creation.default.partitions": "2",
                "topic.creation.groups": "tables",
                "topic.creation.tables.include": "table.*",
                "topic.creation.tables.partitions": "1",
                "topic.creation.tables.cleanup.policy": "compact",
            }
        ),
    )
    assert not creator.is_known(log)
    await asyncio.gather(*[creator.ensure(topic) for topic in [log, table, there] * 3])
    assert all(creator.is_known(topic) for topic in (log, table, there))
    async with TopicAdmin(client) as admin:
        assert [await admin.partitions(topic) for topic in (log, table, there)] == [2, 1, 4]
        assert (await admin.settings(table))["cleanup.policy"] == "compact"
        assert (await admin.settings(log))["cleanup.policy"] == "delete"


async def test_a_source_topic_that_cannot_be_made_fails_the_task(bootstrap: str, unique: Callable[[str], str]) -> None:
    creator = TopicCreator(
        {"bootstrap_servers": bootstrap},
        creation_groups(
            {
                "topic.creation.default.replication.factor": "1",
                "topic.creation.default.partitions": "1",
                "topic.creation.default.retention.ms": "long",
            }
        ),
    )
    with pytest.raises(Fatal, match=r"group 'default'.*retention\.ms"):
        await creator.ensure(unique("t"))
    assert not creator.is_known(unique("t"))


async def test_a_source_topic_waits_for_brokers_that_are_being_stopped(tmp_path: Path) -> None:
    groups = creation_groups(
        {"topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "1"}
    )
    with KafkaCluster(tmp_path / "kafka", port=None, jvm_options=FAST_START) as kafka:
        creator = TopicCreator({"bootstrap_servers": kafka.bootstrap}, groups)
        await creator.ensure("before")

        async def create_until_refused(client: int) -> None:
            for number in itertools.count():
                await creators[client].ensure(f"topic-{client}-{number}")

        creators = [TopicCreator({"bootstrap_servers": kafka.bootstrap}, groups) for _ in range(8)]
        creating = [asyncio.create_task(create_until_refused(client)) for client in range(len(creators))]
        await asyncio.to_thread(kafka.stop)
        outcomes = await asyncio.gather(*creating, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {Retriable}, outcomes


async def test_without_groups_or_when_switched_off_nothing_is_created(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    client, topic = {"bootstrap_servers": bootstrap}, unique("t")
    groups = creation_groups(
        {"topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "1"}
    )
    for creator in (TopicCreator(client, ()), TopicCreator(client, groups, enabled=False)):
        assert creator.is_known(topic)
        await creator.ensure(topic)
    async with TopicAdmin(client) as admin:
        assert await admin.partitions(topic) is None
