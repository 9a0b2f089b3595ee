"""A run of a task where no node answers CQL: it has only saved positions and the node's files."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from compose.local.ports import free_port
from connectors.cassandra import metrics
from connectors.cassandra.config.settings import CONFIG, log_partition
from connectors.cassandra.connector import CassandraConnector
from connectors.cassandra.model import LogPosition
from connectors.cassandra.schema import saved
from connectors.cassandra.task import CassandraTask
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, make_definition
from connectors.cql.mutations.encode import write_mutation, write_update
from connectors.cql.types import parse_type
from connectors.errors import Fatal, Retriable
from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateRow, UpdateSource
from connectors.testing.contexts import LogCapture, MemoryTaskContext, RecordedMetrics, SavedOffsets, make_logger
from tests.support.both_paths import Paths
from tests.support.commitlog import SegmentWriter, flipped
from tests.support.eventually import eventually_async
from worker.converters.bytearray import ByteArrayConverter
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from connectors.api import Batch

SEGMENT = 1_700_000_000_000
AT_US = 1_790_000_000_000_000
NOBODY = UpdateSource(connector="", cluster="", keyspace="", table="")
#: Ids of users' tables have the time in them, those of the server's own tables are made of their names.
USER, SERVER = 1, 3


def table(name: str, number: int, *, cdc: bool = True, kind: int = USER, keyspace: str = "ks") -> CqlTableDefinition:
    own_id = UUID(int=(number << 64) + number, version=kind)
    return make_definition(
        keyspace,
        name,
        str(own_id),
        [CqlColumn("pk", parse_type("int"), "partition_key", 0), CqlColumn("v", parse_type("text"), "regular")],
        cdc=cdc,
    )


A, PLAIN, LOCAL = (
    table("a", 1),
    table("plain", 2, cdc=False),
    table("local", 3, cdc=False, kind=SERVER, keyspace="system"),
)


def mutation(of: CqlTableDefinition, key: int) -> bytes:
    stamp = CellStamp(AT_US + key)
    update = PartitionUpdate(
        source=NOBODY,
        key=(key,),
        write_time=stamp.write_time,
        rows=(UpdateRow(liveness=stamp, cells=(Cell("v", None, "x", stamp),)),),
    )
    return write_mutation([write_update(update, of, 7)], 7)


class Scene:
    """A directory, saved definitions, and a task in a world without a cluster."""

    def __init__(self, folder: Path, *tables: CqlTableDefinition, **options: str) -> None:
        self.folder = folder
        self.offsets = SavedOffsets()
        for table in tables:
            self.offsets.put(
                saved.definition_partition("p", "local", table.table_id), saved.definition_offset(table, 1)
            )
        self.capture = LogCapture()
        self.metrics = RecordedMetrics(CassandraConnector.metrics)
        config = CONFIG.parse(
            {
                "topic.prefix": "p",
                "cassandra.hosts": f"127.0.0.1:{free_port(None)}",
                "cdc.raw.directories": str(folder),
                "cassandra.task.node": "local",
                "snapshot.mode": "never",
                "cdc.dir.poll.interval.ms": "10",
                **options,
            }
        )
        self.context = MemoryTaskContext("c", 0, config, self.offsets, self.metrics, make_logger("c", self.capture))
        self.task = CassandraTask(self.context)

    @property
    def position(self) -> LogPosition | None:
        offset = self.offsets.get(log_partition("p", "local"))
        return LogPosition.of(offset) if offset else None

    async def until(self, keys: int = 0, position: LogPosition | None = None) -> list[Batch]:
        """Batches, delivered as Kafka would, until the given number of records or a position has come."""
        delivered: list[Batch] = []
        async with asyncio.timeout(20), aclosing(self.task.batches()) as batches:
            async for batch in batches:
                delivered.append(batch)
                self.offsets.deliver(batch)
                await self.task.committed(
                    [pair for pair in self.offsets.items() if pair[0] == log_partition("p", "local")]
                )
                if sum(len(batch.records) for batch in delivered) >= keys and (
                    position is None or self.position == position
                ):
                    return delivered
        raise AssertionError("it ended")


def keys(batches: list[Batch]) -> list[int]:
    return [int.from_bytes(record.key, "big", signed=True) for batch in batches for record in batch.records]


def written(folder: Path, *mutations: bytes, number: int = 0, completed: bool = False) -> SegmentWriter:
    writer = SegmentWriter(SEGMENT + number)
    for data in mutations:
        writer.add(data)
    writer.sync()
    writer.save(folder)
    writer.save_index(folder, completed=completed)
    return writer


async def test_the_server_s_own_tables_need_no_definition(tmp_path: Path) -> None:
    written(tmp_path, mutation(A, 1), mutation(LOCAL, 2), mutation(A, 3))
    scene = Scene(tmp_path, A)
    assert keys(await scene.until(2)) == [1, 3]
    assert "is not known" not in scene.capture.text()


async def test_a_user_s_table_that_is_not_known_is_waited_for(tmp_path: Path) -> None:
    written(tmp_path, mutation(A, 1), mutation(table("new", 9), 2), mutation(A, 3))
    scene = Scene(tmp_path, A)
    with pytest.raises(Retriable, match=r"127\.0\.0\.1"):
        await scene.until(2)
    assert scene.position is not None
    assert not scene.position.finished


@pytest.mark.parametrize(("lists", "waits"), [({}, True), ({"table.include.list": r"ks\.a"}, False)])
async def test_a_table_without_cdc_may_have_got_it(tmp_path: Path, lists: dict[str, str], waits: bool) -> None:
    written(tmp_path, mutation(A, 1), mutation(PLAIN, 2), mutation(A, 3))
    scene = Scene(tmp_path, A, PLAIN, **lists)
    if waits:
        with pytest.raises(Retriable):
            await scene.until(2)
    else:
        assert keys(await scene.until(2)) == [1, 3]


async def test_what_is_before_damage_is_delivered_and_its_segment_stays(tmp_path: Path) -> None:
    written(tmp_path, mutation(A, 1), completed=True)
    bad = written(tmp_path, mutation(A, 2), mutation(A, 3), number=1)
    bad.save(tmp_path, flipped(bad.data, len(bad.data) - 6))
    scene = Scene(tmp_path, A)
    with pytest.raises(Fatal, match=r"Everything before it was delivered"):
        await scene.until(3)
    position = scene.position
    assert position is not None
    assert (position.segment, position.finished) == (SEGMENT + 1, False)
    assert [path.name for path in sorted(tmp_path.glob("*.log"))] == [bad.name]
    with pytest.raises(Fatal, match=r"Everything before it was delivered"):
        await scene.until(1)  # and so it stays


async def test_a_position_without_events_is_saved_at_the_heartbeat_and_at_a_segment_s_end(tmp_path: Path) -> None:
    log = [mutation(LOCAL, key) for key in range(300)]
    end = written(tmp_path, *log).end
    often = Scene(tmp_path, A, **{"heartbeat.interval.ms": "100"})
    assert not keys(await often.until(position=LogPosition(SEGMENT, end)))
    written(tmp_path, *log, completed=True)
    seldom = Scene(tmp_path, A, **{"heartbeat.interval.ms": "3600000", "max.batch.bytes": "4096"})
    batches = await seldom.until(position=LogPosition(SEGMENT, end, finished=True))
    assert [offset for batch in batches for _, offset in batch.offsets] == [
        LogPosition(SEGMENT, end, finished=True).offset()
    ]
    assert not list(tmp_path.glob("*.log"))


async def test_latency_is_that_of_the_fast_path_too(tmp_path: Path) -> None:
    """Only the first records of a table are made the general way."""
    writer = written(tmp_path, mutation(A, 1))
    converters = Paths(ByteArrayConverter({}), JsonConverter({"schemas.enable": "false"}))
    scene = Scene(tmp_path, A, **{"output.format": "partition-update-raw"})
    scene.context.wire = converters.wire
    encoded = 0

    async def deliver_all() -> None:
        nonlocal encoded
        async with aclosing(scene.task.batches()) as batches:
            async for batch in batches:
                encoded += sum(len(part.values) for part in batch.encoded)
                scene.offsets.deliver(batch)
                await scene.task.committed(scene.offsets.items())

    def newest() -> float | None:
        return scene.metrics.values.get(metrics.LAST_EVENT)

    running = asyncio.create_task(deliver_all())
    try:
        await eventually_async(lambda: newest() == AT_US / 1e6, "the first change is reported")
        last_us = AT_US + 5_000_000
        writer.add(mutation(A, 5_000_000))
        writer.sync()
        writer.save(tmp_path)
        writer.save_index(tmp_path)
        await eventually_async(lambda: newest() == last_us / 1e6, "the second change is reported")
        assert encoded == 1
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_cancelled_run_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, mutation(A, 1))
    scene = Scene(tmp_path, A)
    before = asyncio.all_tasks()

    async def forever() -> None:
        async with aclosing(scene.task.batches()) as batches:
            async for batch in batches:
                scene.offsets.deliver(batch)

    calls: list[Any] = []
    to_thread = asyncio.to_thread

    def counted(function: Callable[..., Any], *args: Any, **more: Any) -> Coroutine[Any, Any, Any]:
        calls.append(function)
        return to_thread(function, *args, **more)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    for steps in range(14):
        calls.clear()
        running = asyncio.create_task(forever())
        await eventually_async(
            lambda steps=steps: len(calls) >= steps,  # type: ignore[misc]
            f"{steps} calls have started",
            every=0,
        )
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
    async with asyncio.timeout(5):
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)
    assert logging.getLevelName(logging.ERROR) not in scene.capture.text()
