"""What a connector has written: its topics read back, with a consumer of their own and the connector's converter."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from connectors.api import WrittenRecord
from connectors.errors import Retriable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from worker.converters.base import Converter

_WAIT_MS: Final = 500
_AT_ONCE: Final = 2000
#: A partition that gives nothing for so long before its end can't be read, seconds.
_PATIENCE_S: Final = 60.0
#: Transactions leave offsets without a record: the first stretch that is read is so many times as long as what is asked for.
_STRETCH: Final = 2
_LONGER: Final = 8


class KafkaReader:
    """Reads topics of the cluster that a connector writes to (``connectors.api.WrittenTopics``).

    Args:
        client: gives aiokafka consumer arguments; called for each connection.
        make_converter: makes the connector's ``value.converter``.
    """

    def __init__(self, client: Callable[[], dict[str, Any]], make_converter: Callable[[], Converter]) -> None:
        self._client = client
        self._make_converter = make_converter
        self._converter: Converter | None = None

    async def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """See the protocol."""
        consumer = await self._start()
        try:
            # The list of all topics: asking for one by its name could create it.
            if topic not in await consumer.topics():
                return {}
            partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
            first, last = await asyncio.gather(
                consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
            )
            return {partition.partition: (first[partition], last[partition]) for partition in sorted(partitions)}
        except (KafkaError, OSError) as error:
            raise _unavailable(topic, error) from error
        finally:
            await consumer.stop()

    async def read(
        self, topic: str, partition: int, start: int, end: int
    ) -> AsyncGenerator[tuple[list[WrittenRecord], int], None]:
        """See the protocol."""
        if start >= end:
            return
        consumer = await self._start()
        place = TopicPartition(topic, partition)
        try:
            consumer.assign([place])
            consumer.seek(place, start)
            seen = time.monotonic()
            while True:
                fetched = await consumer.getmany(place, timeout_ms=_WAIT_MS, max_records=_AT_ONCE)
                position = min(await consumer.position(place), end)
                records = [
                    WrittenRecord(record.offset, record.timestamp, record.key, record.value)
                    for record in fetched.get(place, ())
                    if record.offset < end
                ]
                if records or position >= end:
                    seen = time.monotonic()
                    yield records, position
                elif time.monotonic() - seen > _PATIENCE_S:
                    raise Retriable(f"partition {partition} of topic {topic} gives nothing behind offset {position}")
                if position >= end:
                    return
        except (KafkaError, OSError) as error:
            raise _unavailable(topic, error) from error
        finally:
            await consumer.stop()

    async def decode(self, topic: str, value: bytes) -> Any:
        """See the protocol."""
        if self._converter is None:
            self._converter = self._make_converter()
        await self._converter.prepare_data(topic, value)
        return self._converter.to_connect(topic, value)[1]

    async def close(self) -> None:
        """Close the converter's connections."""
        if self._converter is not None:
            await self._converter.close()
            self._converter = None

    async def newest(self, topic: str, most: int, most_bytes: int) -> list[WrittenRecord]:
        """The newest records of a topic, oldest first; tombstones among them.

        Args:
            topic: the topic.
            most: records.
            most_bytes: of values together.

        Raises:
            Retriable: Kafka does not answer.
        """
        found: list[WrittenRecord] = []
        bounds = await self.bounds(topic)
        for partition, (first, end) in bounds.items():
            found += await self._newest_of(topic, partition, first, end, most, most_bytes)
        # Partitions by time; within one partition the order stays.
        found.sort(key=lambda record: record.timestamp)
        kept, size = [], 0
        for record in reversed(found[-most:]):
            size += len(record.value or b"")
            if size > most_bytes:
                break
            kept.append(record)
        return kept[::-1]

    async def _newest_of(
        self, topic: str, partition: int, first: int, end: int, most: int, most_bytes: int
    ) -> list[WrittenRecord]:
        length = most * _STRETCH
        while True:
            start = max(first, end - length)
            found: list[WrittenRecord] = []
            size = dropped = 0
            async with aclosing(self.read(topic, partition, start, end)) as parts:
                async for records, _ in parts:
                    for record in records:
                        found.append(record)
                        size += len(record.value or b"")
                    while len(found) > most or size > most_bytes:
                        size -= len(found.pop(0).value or b"")
                        dropped += 1
            if dropped or len(found) >= most or start == first:
                return found
            length *= _LONGER

    async def _start(self) -> AIOKafkaConsumer:
        arguments: Mapping[str, Any] = {
            **self._client(),
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
        }
        consumer = AIOKafkaConsumer(**arguments)
        try:
            await consumer.start()
        except (KafkaError, OSError) as error:
            await consumer.stop()
            raise Retriable(f"Kafka does not answer: {error!r}") from error
        return consumer


def _unavailable(topic: str, error: BaseException) -> Retriable:
    return Retriable(f"topic {topic} can't be read now: {error!r}")
