"""The logs connector on topics of a real Kafka: the conformance kit, and what log shippers write."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.structs import TopicPartition

from connectors.errors import Fatal
from connectors.logs import recent
from connectors.logs.connector import LogsConnector
from connectors.testing import WAIVERS, Harness, Run, SavedOffsets, connector_conformance

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from connectors.api import SourceRecord

#: Two rows of one table, and one of another.
RULES = """
tables:
  - name: parts
    groups:
      - name: parts
        steps:
          - split: {by: ' ', names: [first, second]}
          - set: {fields: {both: '["{first}", "{second}"]'}}
          - flattenJsonArray: {field: both}
          - saveAs: {columns: [{name: part, field: both}]}
  - name: lines
    groups:
      - name: lines
        steps:
          - set: {fields: {host: '{@host}', file: '{@file}', position: '{@position}'}}
          - saveAs: {columns: [{name: line}, {name: host}, {name: file}, {name: position, type: long}]}
"""
REASON = "an outage of a broker is a test of tests/chaos"


async def test_the_newest_lines_of_a_topic_are_bounded_in_bytes(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "_MOST_BYTES", 10_000)
    topic = f"lines-{secrets.token_hex(5)}"
    await create_topic(bootstrap, topic, 2)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(40):
            line = f"{number} {'x' * 950}".encode()
            await producer.send_and_wait(topic, line, partition=number % 2, timestamp_ms=1_000 + number)
    config = LogsConnector.config_def.parse(
        {
            "input": "kafka",
            "kafka.bootstrap.servers": bootstrap,
            "kafka.topics": topic,
            "topic.prefix": "logs",
            "rules": RULES,
        }
    )
    lines = await recent.read_recent(config, 1000, 20)
    assert [int(line.split()[0]) for line, _ in lines] == list(range(30, 40))


class Topic(Harness):
    """A topic with three partitions, each with a third of the records."""

    bootstrap: ClassVar[str]
    max_tasks = 2
    flood = 15_000

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.topic = f"lines-{secrets.token_hex(5)}"
        self.written = 0

    async def start(self) -> None:
        await create_topic(self.bootstrap, self.topic, 3)

    def config(self) -> Mapping[str, str]:
        return {
            "input": "kafka",
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.topics": self.topic,
            "topic.prefix": "logs",
            "rules": RULES,
            "batch.size": "50",
        }

    async def add(self, count: int) -> None:
        lines = -(-count // 3)
        values = [f"line {self.written + number}".encode() for number in range(lines)]
        await produce(self.bootstrap, self.topic, values, partitions=3)
        self.written += lines

    async def poison(self) -> None:
        await produce(self.bootstrap, self.topic, [b"not utf-8: \xff"])

    def secrets(self) -> Mapping[str, str]:
        return {"kafka.sasl.password": "a-secret-found-nowhere-else"}

    def wrong_config(self) -> Mapping[str, str]:
        return {**self.config(), **self.secrets(), "rules": "tables: []"}


@asynccontextmanager
async def started_admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    async with started_admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])


async def produce(bootstrap: str, topic: str, values: list[bytes], partitions: int = 1) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        # A broker may not know partitions yet that another one has just made.
        async with asyncio.timeout(10):
            while len(await producer.partitions_for(topic)) < partitions:
                await producer.client.force_metadata_update()
        sent = [await producer.send(topic, value, partition=number % partitions) for number, value in enumerate(values)]
        for delivered in sent:
            await delivered


@pytest.fixture(scope="module", autouse=True)
def _bootstrap(bootstrap: str) -> None:
    Topic.bootstrap = bootstrap


TestTopic = connector_conformance(
    LogsConnector, harness=Topic, waivers={**WAIVERS["logs"], "survives_an_outage_of_its_source": REASON}
)


@pytest.fixture
async def harness(bootstrap: str, tmp_path: Path) -> Topic:
    Topic.bootstrap = bootstrap
    topic = Topic(tmp_path)
    await topic.start()
    return topic


def rows_of(records: list[SourceRecord], table: str) -> list[dict[str, object]]:
    return [record.value for record in records if record.topic == f"logs.{table}"]


async def test_records_of_shippers_are_recognised(harness: Topic) -> None:
    beat = {
        "@timestamp": "2026-11-26T17:29:00.123Z",
        "message": "of filebeat",
        "host": {"name": "web-1"},
        "log": {"file": {"path": "/var/log/app.log"}, "offset": 120},
    }
    logstash = {
        "@timestamp": "2026-11-26T17:29:00Z",
        "@version": "1",
        "message": "of logstash",
        "host": "web-2",
        "path": "/l",
    }
    fluent = {"@timestamp": 1795714140.5, "log": "of fluentbit", "filename": "/f", "hostname": "web-3"}
    flume = {"headers": {"host": "web-4", "timestamp": "1795714140500"}, "body": "of flume"}
    values = [json.dumps(record).encode() for record in (beat, logstash, fluent, flume)]
    await produce(harness.bootstrap, harness.topic, [*values, b"of nothing"])
    async with Run(LogsConnector, {**harness.config(), "host": "worker-1"}) as run:
        records = await run.read(15)
    position = f"{harness.topic}/0"
    assert [(row["line"], row["host"], row["file"], row["position"]) for row in rows_of(records, "lines")] == [
        ("of filebeat", "web-1", "/var/log/app.log", 120),
        ("of logstash", "web-2", "/l", 1),
        ("of fluentbit", "web-3", "/f", 2),
        ("of flume", "web-4", position, 3),
        ("of nothing", "worker-1", position, 4),
    ]
    assert [record.timestamp for record in records if record.topic == "logs.lines"][:4] == [
        1795714140123,
        1795714140000,
        1795714140500,
        1795714140500,
    ]


async def test_every_value_is_a_line_with_the_plain_format(harness: Topic) -> None:
    await produce(harness.bootstrap, harness.topic, [b'{"@timestamp": "x", "message": "y"}'])
    async with Run(LogsConnector, {**harness.config(), "kafka.format": "plain"}) as run:
        (row,) = rows_of(await run.read(1), "lines")
    assert row["line"] == '{"@timestamp": "x", "message": "y"}'


async def test_new_partitions_are_read(harness: Topic) -> None:
    async with Run(
        LogsConnector, {**harness.config(), "kafka.partitions.check.interval.ms": "100"}, max_tasks=9
    ) as run:
        assert len(run.tasks) == 3
        async with started_admin(harness.bootstrap) as admin:
            await admin.create_partitions({harness.topic: NewPartitions(4)})
        await produce(harness.bootstrap, harness.topic, [b"a b"] * 4, partitions=4)
        assert len(rows_of(await run.read(12), "lines")) == 4


async def test_the_latest_start_is_saved_before_the_first_record(harness: Topic) -> None:
    await produce(harness.bootstrap, harness.topic, [b"old 1"] * 3, partitions=3)
    offsets = SavedOffsets()
    config = {**harness.config(), "kafka.start": "latest"}
    async with Run(LogsConnector, config, offsets=offsets) as run:
        while len(offsets.items()) < 3:
            await run.take(10)
    await produce(harness.bootstrap, harness.topic, [b"new 1"], partitions=3)
    async with Run(LogsConnector, config, offsets=offsets) as run:
        assert [row["line"] for row in rows_of(await run.read(3), "lines")] == ["new 1"]


@pytest.mark.parametrize("running", [True, False])
async def test_a_partition_that_is_added_is_read_from_its_first_record(harness: Topic, *, running: bool) -> None:
    """With ``kafka.start=latest``, too: it is a part of the topic's end, however late the connector learns of it."""
    offsets = SavedOffsets()
    config = {**harness.config(), "kafka.start": "latest", "kafka.partitions.check.interval.ms": "1000"}
    await produce(harness.bootstrap, harness.topic, [b"old 1"] * 3, partitions=3)
    async with Run(LogsConnector, config, offsets=offsets, max_tasks=2) as run:
        while len(offsets.items()) < 3:
            await run.take(10)
        if not running:
            await run.stop()
        async with started_admin(harness.bootstrap) as admin:
            await admin.create_partitions({harness.topic: NewPartitions(5)})
        await produce(harness.bootstrap, harness.topic, [b"new 1"] * 5, partitions=5)
        if running:
            assert [row["line"] for row in rows_of(await run.read(15), "lines")] == ["new 1"] * 5
    async with Run(LogsConnector, config, offsets=offsets, max_tasks=2) as run:
        if not running:
            assert [row["line"] for row in rows_of(await run.read(15), "lines")] == ["new 1"] * 5
        assert len(offsets.items()) == 5


async def test_deleted_records_are_no_silent_loss(harness: Topic) -> None:
    await produce(harness.bootstrap, harness.topic, [b"a b"] * 5)
    offsets = SavedOffsets()
    offsets.put({"topic": harness.topic, "partition": 0}, {"offset": 1})
    async with started_admin(harness.bootstrap) as admin:
        await admin.delete_records({TopicPartition(harness.topic, 0): RecordsToDelete(before_offset=3)})
    async with Run(LogsConnector, harness.config(), offsets=offsets) as run:
        with pytest.raises(Fatal, match="deleted before they were read"):
            await run.read(1)
