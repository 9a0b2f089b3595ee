"""Topics with known content, for tests of their reading."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from offsets.fetch import FetchedRecord


class Collected:
    """A sink that keeps everything it is given."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int, bytes | None, bytes | None]] = []

    def __call__(self, partition: int, records: Iterable[FetchedRecord]) -> None:
        self.records += [(partition, record.offset, record.key, record.value) for record in records]

    @property
    def values(self) -> list[bytes | None]:
        """Values in the order they came."""
        return [value for *_, value in self.records]

    @property
    def latest(self) -> dict[bytes | None, bytes | None]:
        """Last value of each key."""
        return {key: value for _, _, key, value in self.records}


async def create_topic(bootstrap: str, topic: str, partitions: int = 1, **settings: str) -> None:
    """A compacted topic, unless the settings say otherwise."""
    async with admin_client(bootstrap) as admin:
        configs = {"cleanup.policy": "compact", **{name.replace("_", "."): value for name, value in settings.items()}}
        answer = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
        assert [error[1] for error in answer.topic_errors] == [0], answer


@asynccontextmanager
async def admin_client(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """A started admin client."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def producing(bootstrap: str, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A started producer."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()
