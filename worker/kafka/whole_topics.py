"""Reading a whole topic, for the demo, tests and benchmarks."""

import asyncio
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from offsets.aiokafka_internals import fetch_all_metadata


class ReadRecord(NamedTuple):
    """One record as read; ``timestamp`` is in milliseconds since 1970."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int = 0


async def read_all(bootstrap: str, topic: str, *, committed: bool = False) -> list[ReadRecord]:
    """All records of a topic up to its present end, per partition in order; empty when there is no such topic.

    Args:
        bootstrap: Kafka's addresses.
        topic: The topic; it is not created.
        committed: Leave out records of open and aborted transactions.
    """
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level=isolation, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        # Asking for one topic's metadata would create it where the broker creates topics automatically.
        cluster = await fetch_all_metadata(consumer)
        partitions = [TopicPartition(topic, number) for number in cluster.partitions_for_topic(topic) or ()]
        if not partitions:
            return []
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        # With read_committed this is the last stable offset, so an open transaction is not waited for.
        ends = await consumer.end_offsets(partitions)
        records: list[ReadRecord] = []
        while True:
            behind = [partition for partition in partitions if await consumer.position(partition) < ends[partition]]
            if not behind:
                return records
            for batch in (await consumer.getmany(*behind, timeout_ms=300)).values():
                records += [
                    ReadRecord(
                        record.partition,
                        record.offset,
                        record.key,
                        record.value,
                        tuple(record.headers),
                        record.timestamp,
                    )
                    for record in batch
                ]
    finally:
        await consumer.stop()


def read_topic(bootstrap: str, topic: str, *, committed: bool = False) -> list[ReadRecord]:
    """`read_all` for callers without an event loop. Blocks."""
    return asyncio.run(read_all(bootstrap, topic, committed=committed))
