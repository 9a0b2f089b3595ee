"""A topic that was just created is known to whoever asks next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it is there, and documented

from connectors.errors import Retriable
from offsets.admin import TopicAdmin
from spark_jobs.kafka.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_a_new_topic_is_known_with_all_its_partitions(bootstrap: str, unique: Callable[[str], str]) -> None:
    async with (
        TopicAdmin({"bootstrap_servers": bootstrap}) as creating,
        TopicAdmin({"bootstrap_servers": bootstrap}) as asking,
    ):
        for number in range(25):
            topic = unique(f"new{number}")
            assert await creating.create(topic, 8, 1, {}) == "created"
            assert await asking.partitions(topic) == 8, topic


async def test_a_topic_that_no_broker_shows_is_named_with_the_brokers(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("never-created")
    async with TopicAdmin({"bootstrap_servers": bootstrap}, deadline_s=1.0) as admin:
        with pytest.raises(Retriable, match=rf"topic {topic} was created, but brokers \[\d+\] don't know it after 1 s"):
            await admin.wait_visible(topic)
        assert await admin.partitions(topic) is None


def test_a_topic_of_a_spark_job_is_visible_and_may_exist_already(bootstrap: str, unique: Callable[[str], str]) -> None:
    admin, other = (AdminClient({"bootstrap.servers": bootstrap}) for _ in range(2))
    for number in range(25):
        topic = unique(f"job{number}")
        for _ in range(2):
            create_topic(admin, NewTopic(topic, num_partitions=8, replication_factor=1), 20.0)
            described = other.describe_topics(TopicCollection([topic]))
            assert len(described[topic].result(10).partitions) == 8
