"""The reader of a node's directory on a real node: small segments, little room for them, a crash.

The tests share a node of the module's own. Each writes rows with numbers in their values and looks for the numbers in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from compose.local.cassandra import CassandraNode
from compose.local.cassandra_cluster import execute_cql
from compose.local.scylla.wire import WireConnection
from connectors.cassandra import metrics
from connectors.cassandra.log.directory import read_index, scan_directory
from connectors.cassandra.log.follower import LogFollower
from connectors.cassandra.model import LogPosition
from tests.support.eventually import patience
from tests.support.settings import cassandra_log
from worker.fetch.errors import StackError
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from connectors.cassandra.model import LogChunk

LOG = logging.getLogger("test.cassandra.directory")
#: A mutation may have half of a segment; 15 of these fill a segment of 1 MiB.
PADDING = "x" * 60_000
SPACE = 6 << 20


@pytest.fixture(scope="module")
def node(cassandra_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraNode]:
    settings = {
        "commitlog_segment_size": "1MiB",
        "cdc_total_space": f"{SPACE >> 20}MiB",
        "cdc_free_space_check_interval": "20ms",
    }
    with CassandraNode(
        tmp_path_factory.mktemp("cass"), port=None, version=cassandra_version, settings=settings, jvm_options=FAST_START
    ) as started:
        execute_cql(
            started.address,
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            *(
                f"CREATE TABLE k.{name} (pk int PRIMARY KEY, v text) WITH cdc = {cdc}"
                for name, cdc in (("a", "true"), ("b", "true"), ("c", "true"), ("d", "true"), ("plain", "false"))
            ),
        )
        yield started
        started.kill()  # faster than a shutdown


class Numbers:
    def __init__(self) -> None:
        self.now: dict[str, float] = {}

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        del labels
        self.now[name] = value

    def add(self, name: str, value: float = 1, labels: Mapping[str, str] | None = None) -> None:
        del labels
        self.now[name] = self.now.get(name, 0) + value


class Reading:
    """A reader that notes which rows of a table it saw."""

    def __init__(self, directory: Path, table: str, start: LogPosition | None = None, **settings: Any) -> None:
        self.numbers = Numbers()
        self.follower = LogFollower(
            cassandra_log(**{"node": "n1", "directory": directory, "poll_ms": 20, **settings}), start, self.numbers, LOG
        )
        self.seen: list[int] = []
        self.finished: list[int] = []
        self.position = start
        self._pattern = re.compile(rb"<%s (\d+)>" % table.encode())

    async def step(self) -> LogChunk | None:
        chunk = await self.follower.read()
        if chunk is not None:
            assert not chunk.problem
            for entry in chunk.entries:
                self.seen += [int(number) for number in self._pattern.findall(chunk.data[entry.start : entry.end])]
            self.finished += [chunk.segment] * chunk.finished
            self.position = LogPosition(chunk.segment, chunk.position, 0, chunk.finished)
        return chunk

    async def until(self, *rows: int) -> None:
        """Read until all of the rows were seen."""
        async with patience(60):
            while not set(rows) <= set(self.seen):
                await self.step()


@pytest_asyncio.fixture
async def readings(node: CassandraNode) -> AsyncIterator[Any]:
    async with contextlib.AsyncExitStack() as stack:

        def make(table: str, start: LogPosition | None = None, **settings: Any) -> Reading:
            reading = Reading(node.data / "cdc_raw", table, start, **settings)
            stack.push_async_callback(reading.follower.close)
            return reading

        yield make


async def write(node: CassandraNode, table: str, rows: range, padding: str = "") -> list[int]:
    """Write rows one after the other; those that were confirmed, up to the first one that was refused."""

    def work() -> list[int]:
        done = []
        with contextlib.closing(WireConnection(node.address)) as client:
            for row in rows:
                try:
                    client.query(f"INSERT INTO k.{table} (pk, v) VALUES ({row}, '<{table} {row}>{padding}')")  # noqa: S608
                except StackError:
                    break
                done.append(row)
        return done

    return await asyncio.to_thread(work)


async def test_both_ways_to_read_a_growing_log(node: CassandraNode, readings: Any) -> None:
    synced, marked = readings("a", delete=False), readings("a", mode="marker", delete=False)
    rows = await write(node, "a", range(40), PADDING)
    assert len(rows) == 40  # almost three segments
    await asyncio.gather(synced.until(*rows), marked.until(*rows))
    assert synced.seen == marked.seen == rows
    assert len(synced.finished) >= 2
    assert synced.finished == sorted(synced.finished)
    # Markers come every 100 ms, and a sync to disk every second.
    early = 0
    async with patience(30):
        for row in range(100, 200):
            rows += await write(node, "a", range(row, row + 1))
            await marked.until(row)
            index = await asyncio.to_thread(
                read_index, scan_directory(node.data / "cdc_raw", "n1")[marked.position.segment].idx
            )
            early = index is None or (index.offset < marked.position.position and not index.completed)
            if early:
                break
    assert early
    await synced.until(*rows)
    assert synced.seen == marked.seen == rows


async def test_a_full_directory_refuses_writes_until_segments_are_acknowledged(
    node: CassandraNode, readings: Any
) -> None:
    reader = readings("b")
    reader.follower.total_space(SPACE)
    assert await reader.step() is not None  # what the other test left
    rows = await write(node, "b", range(300), PADDING)
    assert 10 < len(rows) < 300
    execute_cql(node.address, "INSERT INTO k.plain (pk, v) VALUES (1, 'x')")
    async with patience(30):
        while reader.numbers.now.get(metrics.DIRECTORY_FILL, 0) < 0.7:
            await reader.step()
    await reader.until(*rows)
    assert reader.seen == rows
    assert reader.position is not None
    await reader.follower.acknowledged(reader.position)
    assert reader.numbers.now[metrics.SEGMENTS_DELETED] >= 4
    more: list[int] = []
    async with patience(30):
        while not more:
            more = await write(node, "b", range(1000, 1001))
    await reader.until(*more)
    assert reader.seen == rows + more


async def test_a_killed_server(node: CassandraNode, readings: Any) -> None:
    """Its replay links every segment again: what was delivered is deleted again, what was half-read is read on."""
    reader, marked = readings("c"), readings("c", mode="marker", delete=False)
    rows = await write(node, "c", range(35), PADDING)
    await asyncio.gather(reader.until(*rows), marked.until(*rows))
    await reader.follower.acknowledged(reader.position)
    lost = await write(node, "c", range(100, 110), PADDING)
    node.kill()
    restart = asyncio.create_task(asyncio.to_thread(node.start))
    while not restart.done():
        await asyncio.gather(reader.step(), marked.step())
    await restart
    kept = {int(row["pk"].hex(), 16) for row in execute_cql(node.address, "SELECT pk FROM k.c")}
    more = await write(node, "c", range(200, 203))
    await asyncio.gather(reader.until(*more), marked.until(*more))
    # The last writes before a kill may be gone from the server too.
    assert reader.seen == marked.seen == [row for row in rows + lost if row in kept] + more

    await reader.follower.acknowledged(reader.position)
    left = scan_directory(node.data / "cdc_raw", "n1")
    assert [log_id for log_id, segment in left.items() if segment.indexed and log_id < reader.position.segment] == []
    assert reader.numbers.now[metrics.SEGMENTS_RELINKED] >= 1

    # A worker that was killed before its last acknowledgement resumes from the saved position.
    resumed = readings("c", reader.position, mode="marker")
    more = await write(node, "c", range(300, 303))
    await resumed.until(*more)
    assert resumed.seen == more
