"""Helpers of the tests of logs on real workers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: One table: requests.
RULES: dict[str, Any] = {
    "tables": [
        {
            "name": "requests",
            "groups": [
                {
                    "name": "get",
                    "steps": [
                        {"regexExtract": {"pattern": r"^GET (?P<path>\S+)$"}},
                        {"saveAs": {"columns": [{"name": "path"}]}},
                    ],
                }
            ],
        }
    ]
}


def logs(name: str, rules: Any = None, **options: str) -> dict[str, object]:
    """A logs connector whose topics begin with its name."""
    inline = {} if rules is None else {"rules": json.dumps(rules)}
    return {
        "connector.class": "logs",
        "tasks.max": "1",
        "topic.prefix": name,
        "key.converter": "JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        **inline,
        **options,
    }


def write_topic(bootstrap: str, topic: str, values: Sequence[str]) -> None:
    """Write values to the topic's first partition."""

    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for value in values:
                await producer.send(topic, value.encode(), partition=0)
            await producer.flush()

    asyncio.run(write())


def read_topic(bootstrap: str, topic: str) -> list[tuple[Any, Any]]:
    """Keys and values of all committed records of a topic, by partition; JSON, and None for a tombstone."""

    async def read() -> list[tuple[Any, Any]]:
        records = []
        async with AIOKafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            cluster = await consumer._client.fetch_all_metadata()
            partitions = [TopicPartition(topic, number) for number in cluster.partitions_for_topic(topic) or ()]
            if not partitions:
                return []
            ends = await consumer.end_offsets(partitions)
            consumer.assign(partitions)
            await consumer.seek_to_beginning()
            while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
                for fetched in (await consumer.getmany(timeout_ms=500)).values():
                    records += [(_parsed(record.key), _parsed(record.value)) for record in fetched]
        return records

    return asyncio.run(read())


def by_table(bootstrap: str, prefix: str, tables: Iterable[str]) -> dict[str, list[tuple[Any, Any]]]:
    """The records of several tables."""
    return {table: read_topic(bootstrap, f"{prefix}.{table}") for table in tables}


def _parsed(data: bytes | None) -> Any:
    try:
        return None if data is None else json.loads(data)
    except ValueError:
        return data
