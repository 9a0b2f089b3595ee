"""UMS messages without rows of two tasks on a real log: what heartbeats promise, and the end of the snapshot."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.scylla.bulk import fill_log
from compose.local.scylla.client import Emulation
from connectors.api import EVERY_PARTITION, SameAs
from connectors.formats import ums
from tests.integration.scylla.test_reader_live import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compose.local.scylla.emulation import ScyllaEmulation

ROWS = 200


@pytest.fixture(scope="module")
def scylla(scylla_node: ScyllaEmulation) -> Iterator[Emulation]:
    """A server of the module's own, with a client."""
    client = Emulation(scylla_node.address)
    yield client
    client.close()


def kind(record: Any) -> str:
    """The type of a message."""
    return str(record.value["protocol"]["type"])


def time_us(record: Any) -> float:
    """The time of a message without rows, µs since 1970."""
    stamp = datetime.fromisoformat(record.value["payload"][0]["tuple"][0]).replace(tzinfo=UTC)
    return stamp.timestamp() * 1_000_000


@pytest.mark.slow
async def test_each_task_promises_what_it_has_sent(scylla: Emulation, scylla_keyspace: Callable[..., str]) -> None:
    full = f"{scylla_keyspace()}.t"
    now = time.time_ns() // 1000
    await asyncio.to_thread(
        scylla.create_table, f"CREATE TABLE {full} (pk int PRIMARY KEY, a text) WITH cdc = {{'enabled': true}}"
    )
    await asyncio.to_thread(scylla.new_generation, 8, 2, start_ms=now // 1000 - 90_000)
    await asyncio.to_thread(fill_log, scylla, full, ROWS, start_us=now - 60_000_000, end_us=now - 20_000_000)
    rig = Rig(
        scylla.address,
        full,
        output_format="ums",
        heartbeat_interval_ms="300",
        scylla_initial_lookback_ms="80000",
        snapshot_mode="initial",
    )
    rig.raw["scylla.confidence.window.size"] = "1000"

    def enough(got: list[Any]) -> bool:
        promised = [time_us(record) for record in got if kind(record) == ums.INCREMENT_HEARTBEAT]
        return bool(promised) and max(promised) > now and any(kind(record) == ums.BATCH_TERMINATION for record in got)

    tasks = await rig.tasks(2)
    changes = 0
    for task, part in zip(tasks, ("0/2", "1/2"), strict=True):
        got = await rig.take(task, enough)
        said = [record for record in got if kind(record) in {ums.INCREMENT_HEARTBEAT, ums.BATCH_TERMINATION}]
        assert {record.value["protocol"]["part"] for record in said} == {part}
        assert {record.partition for record in said if kind(record) == ums.INCREMENT_HEARTBEAT} == {EVERY_PARTITION}
        promise = 0.0
        for record in got:
            if kind(record) == ums.INCREMENT_HEARTBEAT:
                assert time_us(record) > promise
                promise = time_us(record)
            elif kind(record) == ums.INCREMENT:
                numbers = [int(row["tuple"][0]) for row in record.value["payload"]]
                assert min(numbers) >= promise, "a change came behind a heartbeat that spoke for it"
                changes += len(numbers)
        ends = [index for index, record in enumerate(got) if kind(record) == ums.BATCH_TERMINATION]
        assert len(ends) == 1
        assert isinstance(got[ends[0]].partition, SameAs)
        assert got[ends[0]].partition.key in {record.key for record in got if kind(record) == ums.INITIAL} or not any(
            kind(record) == ums.INITIAL for record in got
        )
        assert all(kind(record) != ums.INITIAL for record in got[ends[0] :])
    assert changes >= ROWS
