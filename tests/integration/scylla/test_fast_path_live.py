"""``fast.path=verify`` on a real log: bytes and records are the same for every kind of write, and the bytes get into Kafka."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer

from compose.local.scylla.bulk import fill_log
from compose.local.scylla.client import Emulation
from compose.local.scylla.writes import Delete, Insert, Update
from compose.local.worker import MillraceWorker
from connectors.scylla.task import ScyllaTask
from connectors.testing.contexts import MemoryTaskContext, make_logger
from tests.integration.scylla.test_reader_live import DEADLINE, Rig
from tests.support.both_paths import Paths, by_topic
from tests.support.eventually import patience
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compose.local.scylla.emulation import ScyllaEmulation

ROWS = 300
#: Two of the deletions are ordinary: an event and a tombstone each. That of a partition is left out.
RECORDS = ROWS + 6


@pytest.fixture(scope="module")
def scylla(scylla_node: ScyllaEmulation) -> Iterator[Emulation]:
    """A server of the module's own, with a client."""
    client = Emulation(scylla_node.address)
    yield client
    client.close()


@pytest.fixture
async def table(scylla: Emulation, scylla_keyspace: Callable[..., str]) -> str:
    """A table with a log of every kind of write."""
    full = f"{scylla_keyspace()}.t"
    now = time.time_ns() // 1000
    await asyncio.to_thread(
        scylla.create_table,
        f"CREATE TABLE {full} (pk bigint, ck int, v text, n bigint, flag boolean, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}",
    )
    await asyncio.to_thread(scylla.new_generation, 8, 2, start_ms=now // 1000 - 90_000)
    await asyncio.to_thread(fill_log, scylla, full, ROWS, start_us=now - 60_000_000, end_us=now - 20_000_000)
    for write in (
        Insert(full, {"pk": -1, "ck": 1, "v": 'ä"\\\n😀\x00'}),
        Update(full, {"pk": -1, "ck": 1}, {"v": None, "n": 1}),
        Delete(full, {"pk": -1, "ck": 1}),
        Delete(full, {"pk": -1}),
        Delete(full, {"pk": -2, "ck": 1}),
    ):
        await asyncio.to_thread(scylla.apply, write)
    return full


def as_json(**options: str) -> JsonConverter:
    return JsonConverter({"schemas.enable": "false", **options})


async def test_a_task_gives_the_same_as_bytes_and_as_records(scylla: Emulation, table: str) -> None:
    rig = Rig(scylla.address, table, scylla_initial_lookback_ms="80000")
    paths = Paths(as_json(), as_json())
    (task,) = await rig.tasks()
    fast = ScyllaTask(
        MemoryTaskContext(
            "n", 0, task.context.config, rig.saved, rig.metrics, make_logger("t", rig.log), wire=paths.wire
        )
    )
    encoded = count = 0
    async with patience(DEADLINE), aclosing(fast.batches()) as stream:
        async for batch in stream:
            for part in batch.encoded:
                encoded += len(part.values)
                records = await paths.convert(part.records())
                assert paths.encoded(part) == records
            count += sum(map(len, by_topic(await paths.deliver(batch)).values()))
            if count >= RECORDS:
                break
    assert count == RECORDS
    assert encoded > ROWS // 2


async def test_a_worker_that_verifies(scylla: Emulation, table: str, bootstrap: str, tmp_path: Path) -> None:
    name = table.replace(".", "_")
    rig = Rig(scylla.address, table)
    config = rig.raw | {
        "name": name,
        "topic.prefix": name,
        "scylla.initial.lookback.ms": "80000",
        "tasks.max": "1",
        "fast.path": "verify",
    }
    converters: dict[str, Any] = {
        f"{part}.converter{option}": value
        for part in ("key", "value")
        for option, value in (("", "org.apache.kafka.connect.json.JsonConverter"), (".schemas.enable", "false"))
    }
    with MillraceWorker(tmp_path, bootstrap, group=name, processes=1, properties=converters) as worker:
        await asyncio.to_thread(worker.create, name, config)
        consumer = AIOKafkaConsumer(
            f"{name}.{table}", bootstrap_servers=bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=500
        )
        await consumer.start()
        written: list[Any] = []
        try:
            async with patience(DEADLINE):
                while len(written) < RECORDS:
                    assert "FAILED" not in (await asyncio.to_thread(worker.states, name))[1]
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        written += records
        finally:
            await consumer.stop()
    assert sum(record.value is None for record in written) == 2
    assert sum(record.value is not None and json.loads(record.value)["op"] == "d" for record in written) == 2
