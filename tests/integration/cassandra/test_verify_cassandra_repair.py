"""Rows of a real Cassandra that the log never had are sent again by a scheduled verification, also after a kill."""

# ruff: noqa: S608 - names of keyspaces are our own
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from compose.local.cassandra_cluster import execute_cql
from compose.local.worker import MillraceWorker
from tests.integration.cassandra.test_verify_cassandra import wait_for_topic
from tests.support.eventually import eventually
from tests.support.verified import run_verify, tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import HasCassandra


async def empty_topic(bootstrap: str, topic: str) -> None:
    """Delete all messages, as retention does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap) as consumer:
            ends = await consumer.end_offsets([TopicPartition(topic, 0)])
        await admin.delete_records({partition: RecordsToDelete(end) for partition, end in ends.items()})
    finally:
        await admin.close()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["partition-update", "debezium"])
def test_rows_that_the_topic_lacks_are_sent_again(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str], bootstrap: str, tmp_path: Path, form: str
) -> None:
    name = cassandra_keyspace()
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {name}.t (pk int, ck text, v text, n varint, d decimal, at timestamp, tags set<text>, st text static, "
        "PRIMARY KEY (pk, ck))",
        *(
            f"INSERT INTO {name}.t (pk, ck, v, n, d, at, tags) VALUES ({key % 5}, 'c{key}', 'old', {10**30 + key}, {key}.50, "
            f"'2026-01-02 03:04:05.678+0000', {{'a{key}', 'b'}})"
            for key in range(20)
        ),
        f"INSERT INTO {name}.t (pk, ck) VALUES (6, 'empty')",
        f"INSERT INTO {name}.t (pk, st) VALUES (7, 'static')",
        f"INSERT INTO {name}.t (pk, ck, v) VALUES (8, 'ends', 'x') USING TTL 86400",
        f"ALTER TABLE {name}.t WITH cdc = true",
        f"INSERT INTO {name}.t (pk, ck, v) VALUES (0, 'c0', 'new')",
    )
    converter = "org.apache.kafka.connect.json.JsonConverter"
    with MillraceWorker(
        tmp_path,
        bootstrap,
        group=name,
        processes=1,
        properties={
            "offset.flush.interval.ms": "200",
            "value.converter": converter,
            "value.converter.schemas.enable": "false",
            "key.converter": converter
            if form == "debezium"
            else "org.apache.kafka.connect.converters.ByteArrayConverter",
            "key.converter.schemas.enable": "false",
        },
    ) as worker:
        config = {
            "connector.class": "cassandra",
            "tasks.max": "1",
            "topic.prefix": name,
            "output.format": form,
            "cassandra.hosts": cassandra.address,
            "cdc.raw.directories": str(cassandra.cdc_raw),
            "table.include.list": f"{name}\\..*",
            "commit.log.delete": "false",
            "heartbeat.interval.ms": "200",
            "snapshot.mode": "never",
            "varint.handling.mode": "string",
        }
        worker.create(name, config)
        path = f"/connectors/{name}/verify"
        properties = str(next(tmp_path.rglob("*.properties")))
        command = ("--connector", name, "--rest", worker.url, "--settle", "1", "--worker", properties)
        wait_for_topic(worker, name, "t")
        code, output = run_verify(*command)
        assert code == 0, output
        asyncio.run(empty_topic(bootstrap, f"{name}.{name}.t"))
        worker.create(name, {**config, "verify.interval.ms": "2000", "verify.repair": "true"})

        def ask() -> Any:
            return worker.request("GET", path)[1]

        def find_repair() -> Any:
            run = ask()
            return run if run.get("repair") else None

        def is_equal(after_ms: int) -> bool:
            run = ask()
            return bool(run["started_ms"] > after_ms and run["state"] == "completed" and run["result"]["equal"])

        started = eventually(lambda: ask().get("state") == "running" and ask()["started_ms"], "one runs", detail=ask)
        worker.kill_control()
        worker.stop()
        worker.start()
        repaired = eventually(find_repair, "rows are sent again", within=120, detail=ask, ignore=(OSError,))
        assert repaired["started_ms"] == started
        assert tables(repaired["result"])["t"]["missing"] == 23
        eventually(lambda: is_equal(started), "a later one finds nothing", within=120, detail=ask)
        worker.create(name, config)
        code, output = run_verify(*command, "--repair")
        assert code == 0, output
        assert "no row can be sent again" in output
