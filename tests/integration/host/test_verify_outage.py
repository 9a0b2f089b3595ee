"""Kafka goes away under a verification that reads a topic: it reads on, and each message comes once, in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it has it

from compose.local.kafka import KafkaCluster
from worker.fetch.java import FAST_START
from worker.verify.messages import TopicReader, VerifyProgress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PARTITIONS: Final = 2
#: More than one answer of a broker holds.
MESSAGES: Final = 16_000


def fill(bootstrap: str, topic: str) -> None:
    """Write messages of a kilobyte to each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for _ in range(MESSAGES):
        for partition in range(PARTITIONS):
            producer.produce(topic, bytes(1_000), partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


async def test_the_broker_is_killed_while_a_topic_is_read(tmp_path: Path) -> None:
    offsets: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    with KafkaCluster(tmp_path, port=None, jvm_options=FAST_START) as kafka:
        fill(kafka.bootstrap, "t")

        async def handle(messages: Sequence[Any]) -> None:
            is_first = not any(offsets.values())
            for message in messages:
                offsets[message.partition].append(message.offset)
            if is_first:
                await asyncio.to_thread(kafka.kill)
                restarts.append(asyncio.create_task(asyncio.to_thread(kafka.start)))

        restarts: list[asyncio.Task[KafkaCluster]] = []
        reader = TopicReader({"bootstrap.servers": kafka.bootstrap}, VerifyProgress(shown=False), [])
        await reader.start()
        try:
            await reader.open(["t"])
            reader.choose({"t"})
            await reader.read(handle)
        finally:
            await reader.stop()
            await asyncio.gather(*restarts)
    assert len(restarts) == 1
    assert offsets == {partition: list(range(MESSAGES)) for partition in range(PARTITIONS)}
