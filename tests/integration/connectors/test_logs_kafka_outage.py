"""The logs connector while the broker of its topics is killed and starts again: no line is lost, none comes twice."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from compose.local.kafka import KafkaCluster
from connectors.logs.connector import LogsConnector
from connectors.testing import Run
from tests.integration.connectors.test_logs_from_kafka import create_topic, produce

if TYPE_CHECKING:
    from pathlib import Path

    from connectors.api import SourceRecord

pytestmark = pytest.mark.slow

RULES = '{"tables": [{"name": "lines", "groups": [{"name": "all", "steps": [{"saveAs": {"columns": [{"name": "line"}]}}]}]}]}'
HOSTS = 2
LIMIT_S = 120.0


def values(first: int, count: int, lines: int) -> list[bytes]:
    """Events of that many lines; those of two hosts take turns in the partition."""
    return [
        json.dumps(
            {
                "message": f"event {number}" if line == 0 else f"  {number}.{line}",
                "@timestamp": "2026-11-27T06:00:00Z",
                "host": f"web-{host}",
            }
        ).encode()
        for start in range(first, first + count, HOSTS)
        for line in range(lines)
        for host, number in enumerate((start, start + 1))
    ]


def expected(count: int, lines: int) -> list[str]:
    return sorted(
        "\n".join([f"event {number}", *(f"  {number}.{line}" for line in range(1, lines))]) for number in range(count)
    )


async def drain(run: Run, batches: int) -> list[SourceRecord]:
    """The records of the next batches; of fewer, where none comes."""
    results = [await run.take(2.0) for _ in range(batches)]
    return [record for item in results if item is not None for record in item[1].records]


@pytest.mark.parametrize("lines", [1, 3])
async def test_a_broker_that_is_killed_loses_and_repeats_nothing(tmp_path: Path, lines: int) -> None:
    with KafkaCluster(tmp_path / "kafka", count=1, port=None) as kafka:
        topic = "outage"
        await create_topic(kafka.bootstrap, topic, 1)
        await produce(kafka.bootstrap, topic, values(0, 1000, lines))
        config = {
            "input": "kafka",
            "kafka.bootstrap.servers": kafka.bootstrap,
            "kafka.topics": topic,
            "topic.prefix": "logs",
            "rules": RULES,
            "batch.size": "100",
            **({"multiline.start": "^event", "multiline.wait.ms": "2000"} if lines > 1 else {}),
        }
        async with Run(LogsConnector, config) as run:
            records: list[SourceRecord] = await run.read(300, LIMIT_S)
            broker = kafka.broker(0)
            await asyncio.to_thread(broker.kill)
            records += await drain(run, 3)  # what was fetched, and attempts that fail
            await asyncio.to_thread(broker.start)
            await produce(kafka.bootstrap, topic, values(1000, 500, lines))
            records += await run.read(1500 - len(records), LIMIT_S)
            records += await drain(run, 3)
        assert sorted(record.value["line"] for record in records) == expected(1500, lines)
