"""Tasks of the Scylla connector read real pages of a real server: restarts, changed tables, ended generations, tablets."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.scylla.bulk import fill_log
from compose.local.scylla.client import Emulation
from compose.local.scylla.writes import Insert, Update
from connectors.errors import Fatal
from connectors.scylla.config.keys import HOSTS, TABLES
from connectors.scylla.connector import ScyllaConnector
from connectors.scylla.metrics import METRICS
from connectors.scylla.task import ScyllaTask
from connectors.testing.contexts import (
    LogCapture,
    MemoryConnectorContext,
    MemoryTaskContext,
    RecordedMetrics,
    SavedOffsets,
    make_logger,
)
from connectors.testing.driver import Run
from tests.support.eventually import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compose.local.scylla.emulation import ScyllaEmulation

#: Seconds within which something has to happen that takes a second or two.
DEADLINE = 60.0


@pytest.fixture(scope="module")
def scylla(scylla_node: ScyllaEmulation) -> Iterator[Emulation]:
    """A server of the module's own: generations of other tests would begin among the rows that are written here."""
    client = Emulation(scylla_node.address)
    yield client
    client.close()


class Rig:
    """A connector and its tasks, with what the runtime would save."""

    def __init__(self, address: str, table: str, **options: str) -> None:
        self.saved = SavedOffsets()
        self.log = LogCapture()
        self.metrics = RecordedMetrics(METRICS)
        self.raw = {
            "name": "n",
            "connector.class": "connectors.scylla.ScyllaConnector",
            "topic.prefix": "p",
            "scylla.cluster.ip.addresses": address,
            "scylla.table.names": table,
            "scylla.discovery.interval.ms": "500",
            **{name.replace("_", "."): value for name, value in options.items()},
        }

    async def tasks(self, most: int = 1) -> list[ScyllaTask]:
        """Tasks for what is to be read now."""
        context = MemoryConnectorContext(
            "n", ScyllaConnector.config_def.parse(self.raw), self.saved, make_logger("c", self.log)
        )
        connector = ScyllaConnector(context)
        await connector.start()
        try:
            shares = await connector.task_configs(most)
        finally:
            await connector.stop()
        return [
            ScyllaTask(
                MemoryTaskContext(
                    "n",
                    number,
                    ScyllaConnector.config_def.parse({**self.raw, **share}),
                    self.saved,
                    self.metrics,
                    make_logger("t", self.log),
                )
            )
            for number, share in enumerate(shares)
        ]

    async def take(
        self, task: ScyllaTask, enough: Callable[[list[Any]], bool], batches: int | None = None
    ) -> list[Any]:
        """Take records until the condition holds or the limit of batches is reached; their offsets count as committed."""
        got: list[Any] = []
        async with patience(DEADLINE), aclosing(task.batches()) as stream:
            async for batch in stream:
                self.saved.deliver(batch)
                got += [record for record in batch.records if record.value is not None]
                if batch.records and batches is not None:
                    batches -= 1
                if enough(got) or batches == 0:
                    break
        return got


def as_many(count: int, got: list[Any]) -> bool:
    """Whether there are ``count`` of them."""
    return len(got) >= count


def cell(record: Any, name: str) -> Any:
    """A column's value in the legacy form."""
    value = record.value["after"].get(name)
    return value["value"] if isinstance(value, dict) else value


async def test_restarts_in_the_middle_lose_and_repeat_nothing(
    scylla: Emulation, scylla_keyspace: Callable[..., str]
) -> None:
    full = f"{scylla_keyspace()}.t"
    now = time.time_ns() // 1000
    await asyncio.to_thread(
        scylla.create_table, f"CREATE TABLE {full} (pk int PRIMARY KEY, a text) WITH cdc = {{'enabled': true}}"
    )
    await asyncio.to_thread(scylla.new_generation, 16, 4, start_ms=now // 1000 - 90_000)
    await asyncio.to_thread(fill_log, scylla, full, 6_000, start_us=now - 60_000_000, end_us=now - 5_000_000)
    rig = Rig(
        scylla.address,
        full,
        scylla_initial_lookback_ms="80000",
        max_batch_size="100",
        scylla_query_options_fetch_size="70",
        scylla_streams_per_query="5",
    )
    chance = random.Random(5)
    keys: Counter[int] = Counter()
    restarts = 0
    while keys.total() < 6_000:
        (task,) = await rig.tasks()
        left = 6_000 - keys.total()
        got = await rig.take(task, partial(as_many, left), chance.randint(1, 12))
        keys.update(cell(record, "pk") for record in got)
        restarts += 1
    assert restarts > 3
    assert set(keys.values()) == {1}
    assert len(keys) == 6_000


async def test_alter_drop_and_create_need_no_restart(scylla: Emulation, scylla_keyspace: Callable[..., str]) -> None:
    keyspace = scylla_keyspace()
    full = f"{keyspace}.t"
    await asyncio.to_thread(scylla.create_type, f"CREATE TYPE {keyspace}.u (x int)")
    create = f"CREATE TABLE {full} (pk int PRIMARY KEY, a text) WITH cdc = {{'enabled': true}}"
    await asyncio.to_thread(scylla.create_table, create)
    rig = Rig(scylla.address, full, scylla_initial_lookback_ms="1000", worker_maximum_backoff="500")
    (task,) = await rig.tasks()
    seen: list[Any] = []
    stream = task.batches()

    async def until(count: int) -> None:
        async with patience(DEADLINE):
            while len(seen) < count:
                seen.extend(record for record in (await anext(stream)).records if record.value is not None)

    try:
        await asyncio.to_thread(scylla.apply, Insert(full, {"pk": 1, "a": "one"}))
        await until(1)
        await asyncio.to_thread(scylla.alter_table, f"ALTER TABLE {full} ADD b int")
        await asyncio.to_thread(scylla.apply, Insert(full, {"pk": 2, "a": "two", "b": 22}))
        await until(2)
        await asyncio.to_thread(scylla.drop_table, full)
        await asyncio.sleep(0)
        await asyncio.to_thread(scylla.create_table, create.replace("a text", "a text, c bigint"))
        await asyncio.to_thread(scylla.apply, Insert(full, {"pk": 3, "a": "three", "c": 33}))
        await until(3)
    finally:
        await stream.aclose()
    assert [cell(record, "pk") for record in seen] == [1, 2, 3]
    assert [cell(record, "b") for record in seen[:2]] == [None, 22]
    assert cell(seen[2], "c") == 33
    fields = [
        {
            field.name
            for field in record.value_schema.fields[
                [f.name for f in record.value_schema.fields].index("after")
            ].schema.fields
        }
        for record in seen
    ]
    assert fields == [{"pk", "a"}, {"pk", "a", "b"}, {"pk", "a", "c"}]


async def test_partition_updates_end_where_a_log_gets_keys_without_values(
    scylla: Emulation, scylla_keyspace: Callable[..., str]
) -> None:
    """Changes that are written from then on would look like rows without columns."""
    full = f"{scylla_keyspace()}.t"
    await asyncio.to_thread(
        scylla.create_table, f"CREATE TABLE {full} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
    )
    options = {"scylla.initial.lookback.ms": "1000", "output.format": "partition-update", "snapshot.mode": "never"}
    raw = {"topic.prefix": "p", HOSTS: scylla.address, TABLES: full, **options}
    async with Run(ScyllaConnector, raw) as run:
        await asyncio.to_thread(scylla.apply, Insert(full, {"pk": 1, "v": 1}))
        await run.read(1, DEADLINE)
        await asyncio.to_thread(
            scylla.alter_table,
            f"ALTER TABLE {full} WITH comment = 'a' AND cdc = {{'enabled': true, 'delta': 'keys'}}",
        )
        await asyncio.to_thread(scylla.apply, Update(full, {"pk": 1}, {"v": 2}))
        with pytest.raises(Fatal, match=r"has keys and no values .* snapshot"):
            await run.read(1, DEADLINE)


async def test_images_that_are_turned_off_are_reported(scylla: Emulation, scylla_keyspace: Callable[..., str]) -> None:
    full = f"{scylla_keyspace()}.t"
    on = "{'enabled': true, 'preimage': 'full', 'postimage': true}"
    off = "{'enabled': true, 'preimage': 'false', 'postimage': 'false'}"
    await asyncio.to_thread(scylla.create_table, f"CREATE TABLE {full} (pk int PRIMARY KEY, v int) WITH cdc = {on}")
    options = {"cdc.output.format": "advanced", "cdc.include.before": "full", "cdc.include.after": "full"}
    raw = {"topic.prefix": "p", HOSTS: scylla.address, TABLES: full, "scylla.initial.lookback.ms": "1000", **options}
    events: list[Any] = []
    async with Run(ScyllaConnector, raw) as run:
        for number, cdc in enumerate([on, off, on]):
            assert ("which is off" in run.log.text()) == (number == 2)
            await asyncio.to_thread(scylla.alter_table, f"ALTER TABLE {full} WITH comment = '{number}' AND cdc = {cdc}")
            await asyncio.to_thread(scylla.apply, Update(full, {"pk": 1}, {"v": number}))
            events += await run.read(1, DEADLINE)
    images = [(record.value["before"], record.value["after"]) for record in events]
    assert images == [(None, {"pk": 1, "v": 0}), (None, None), ({"pk": 1, "v": 1}, {"pk": 1, "v": 2})]


async def test_a_generation_that_ends_while_it_is_read(scylla: Emulation, scylla_keyspace: Callable[..., str]) -> None:
    full = f"{scylla_keyspace()}.t"
    await asyncio.to_thread(scylla.new_generation, 8, 2, start_ms=time.time_ns() // 1_000_000 - 5_000)
    await asyncio.to_thread(
        scylla.create_table, f"CREATE TABLE {full} (pk int PRIMARY KEY, a text) WITH cdc = {{'enabled': true}}"
    )
    rig = Rig(scylla.address, full, scylla_initial_lookback_ms="1000")
    (task,) = await rig.tasks()
    await asyncio.to_thread(scylla.apply, Insert(full, {"pk": 1, "a": "old"}))
    ended: list[int] = []
    got: list[Any] = []
    async with patience(DEADLINE), aclosing(task.batches()) as stream:
        async for batch in stream:
            rig.saved.deliver(batch)
            got += [cell(record, "pk") for record in batch.records]
            if got and not ended:
                ended.append(await asyncio.to_thread(scylla.new_generation, 4, 4))
            if rig.metrics.values.get("scylla_groups_finished") == 8:
                break
    await asyncio.to_thread(scylla.apply, Insert(full, {"pk": 2, "a": "new"}))
    (task,) = await rig.tasks()
    got += [cell(record, "pk") for record in await rig.take(task, bool)]
    assert got == [1, 2]


async def test_tablets_spread_over_tasks(scylla: Emulation, scylla_keyspace: Callable[..., str]) -> None:
    full = f"{scylla_keyspace(tablets=True, initial_tablets=8)}.t"
    await asyncio.to_thread(
        scylla.create_table, f"CREATE TABLE {full} (pk int PRIMARY KEY, a text) WITH cdc = {{'enabled': true}}"
    )
    for key in range(30):
        await asyncio.to_thread(scylla.apply, Insert(full, {"pk": key, "a": "x"}))
    rig = Rig(scylla.address, full)
    tasks = await rig.tasks(3)
    assert len(tasks) == 3
    partition_keys: list[int] = []

    async def read(task: ScyllaTask) -> None:
        async with aclosing(task.batches()) as stream:
            async for batch in stream:
                partition_keys.extend(cell(record, "pk") for record in batch.records)
                if len(partition_keys) >= 30:
                    break

    async with patience(DEADLINE):
        await asyncio.gather(*map(read, tasks))
    assert sorted(partition_keys) == list(range(30))
