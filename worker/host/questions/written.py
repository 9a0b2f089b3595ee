"""Topics that a connector has written, read back, with a consumer of their own and the connector's converter."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from connectors.api import WrittenRecord
from connectors.errors import Retriable
from offsets.aiokafka_internals import fetch_all_metadata

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from worker.converters.base import Converter

_WAIT_MS: Final = 500
_AT_ONCE: Final = 2000
#: A partition that gives nothing for so long before its end can't be read, seconds.
_PATIENCE_S: Final = 60.0
#: How many times as many offsets as records are read: transactions and tombstones leave fewer. The next where they are too few.
_RANGES: Final = (2, 16, 128)


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
        consumer = await self._start_consumer()
        try:
            # All topics: asking for one by its name could create it.
            cluster = await fetch_all_metadata(consumer)
            partitions = [TopicPartition(topic, number) for number in cluster.partitions_for_topic(topic) or ()]
            if not partitions:
                return {}
            first, last = await asyncio.gather(consumer.beginning_offsets(partitions), consumer.end_offsets(partitions))
            return {partition.partition: (first[partition], last[partition]) for partition in sorted(partitions)}
        except (KafkaError, OSError) as error:
            raise _unavailable_error(topic, error) from error
        finally:
            await consumer.stop()

    async def read(
        self, topic: str, partition: int, start: int, end: int
    ) -> AsyncGenerator[tuple[list[WrittenRecord], int], None]:
        """See the protocol."""
        if start >= end:
            return
        consumer = await self._start_consumer()
        source = TopicPartition(topic, partition)
        try:
            consumer.assign([source])
            consumer.seek(source, start)
            last_record_s = time.monotonic()
            while True:
                fetched = await consumer.getmany(source, timeout_ms=_WAIT_MS, max_records=_AT_ONCE)
                position = min(await consumer.position(source), end)
                records = [
                    WrittenRecord(record.offset, record.timestamp, record.key, record.value)
                    for record in fetched.get(source, ())
                    if record.offset < end
                ]
                if records or position >= end:
                    last_record_s = time.monotonic()
                    yield records, position
                elif time.monotonic() - last_record_s > _PATIENCE_S:
                    raise Retriable(f"partition {partition} of topic {topic} gives nothing behind offset {position}")
                if position >= end:
                    return
        except (KafkaError, OSError) as error:
            raise _unavailable_error(topic, error) from error
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

    async def newest(self, topic: str, max_records: int, most_bytes: int) -> tuple[list[WrittenRecord], int]:
        """The newest records of a topic that no tombstone behind them deletes, oldest first; and how many tombstones there are.

        Looks at a limited part of the topic: where nearly all is deleted, it gives fewer records than there are.

        Args:
            topic: the topic.
            max_records: records.
            most_bytes: of values together.

        Raises:
            Retriable: Kafka does not answer.
        """
        records: list[WrittenRecord] = []
        deleted = 0
        for partition, (first, end) in (await self.bounds(topic)).items():
            newest, tombstones = await self._newest_of(topic, partition, first, end, max_records, most_bytes)
            records += newest
            deleted += tombstones
        # Partitions by time; within one partition the order stays.
        records.sort(key=lambda record: record.timestamp)
        return _newest_within(records, max_records, most_bytes), deleted

    async def _newest_of(
        self, topic: str, partition: int, first: int, end: int, max_records: int, most_bytes: int
    ) -> tuple[list[WrittenRecord], int]:
        for factor in _RANGES:
            start = max(first, end - max_records * factor)
            live: list[WrittenRecord] = []
            tombstones = 0
            cut = False
            async with aclosing(self.read(topic, partition, start, end)) as chunks:
                async for records, _ in chunks:
                    deleted = {record.key: record.offset for record in records if record.value is None}
                    tombstones += sum(record.value is None for record in records)
                    live += [record for record in records if record.value is not None]
                    if deleted:
                        live = [record for record in live if record.offset >= deleted.get(record.key, -1)]
                    newest = _newest_within(live, max_records, most_bytes)
                    cut = cut or len(newest) < len(live)
                    live = newest
            if cut or len(live) >= max_records or start == first:
                break
        return live, tombstones

    async def _start_consumer(self) -> AIOKafkaConsumer:
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


def _unavailable_error(topic: str, error: BaseException) -> Retriable:
    return Retriable(f"topic {topic} can't be read now: {error!r}")


def _newest_within(records: list[WrittenRecord], max_records: int, most_bytes: int) -> list[WrittenRecord]:
    """The last records, as many as are allowed."""
    size = 0
    start = len(records)
    while start and len(records) - start < max_records:
        size += len(records[start - 1].value or b"")
        if size > most_bytes:
            break
        start -= 1
    return records[start:]
