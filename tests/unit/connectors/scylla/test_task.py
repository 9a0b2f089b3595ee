"""A task's look at the servers' schema and clocks, against nodes in memory."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from connectors.cql.cluster.failures import NodesAway
from connectors.cql.cluster.session import CqlSession, ResultPage
from connectors.scylla.connector import ScyllaConnector
from connectors.scylla.metrics import METRICS
from connectors.scylla.model import TableId
from connectors.scylla.source.windows import millis_of
from connectors.scylla.task import ScyllaTask
from connectors.testing.contexts import (
    LogCapture,
    MemoryConnectorContext,
    MemoryTaskContext,
    RecordedMetrics,
    SavedOffsets,
    make_logger,
)
from tests.support.eventually import pass_turns
from tests.unit.connectors.scylla.lists_world import Lists

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = TableId("ks", "t")
SYSTEM_TIME = time.time

pytestmark = pytest.mark.usefixtures("impatience")


class Nodes(Lists):
    """A node that says its clock and the version of its schema, and others that say what tables look like."""

    def __init__(self) -> None:
        super().__init__()
        now_ms = int(time.time() * 1000)
        self.add_table(TABLE)
        self.add_vnodes(now_ms - 60_000, 1)
        self.schema_version = "one"
        #: How often definitions are still read from a node that knows of no new column.
        self.stale_reads = 0
        self.has_new_column = False
        self.pulses = 0
        #: How far the node's clock is behind.
        self.behind_ms = 0
        self.log_queries: list[str] = []
        #: Whether queries of a log fail.
        self.log_blocked = False
        #: The end of the latest time range of the log that was asked for.
        self.read_to_ms = 0

    async def query(self, text: str, parameters: Sequence[Any] = (), **more: Any) -> list[dict[str, Any]]:
        """The rows."""
        await pass_turns()
        if "schema_version" in text:
            self.pulses += 1
            now_ms = int(SYSTEM_TIME() * 1000) - self.behind_ms
            return [{"host_id": "a", "schema_version": self.schema_version, "now": now_ms}]
        rows = await super().query(text, parameters, **more)
        if "SELECT id, extensions" in text and self.schema_version != "one":
            self.has_new_column = self.stale_reads <= 0
            self.stale_reads -= 1
        if "system_schema.columns" in text:
            names = ["v", "new"] if self.has_new_column else ["v"]
            added = {"kind": "regular", "position": -1, "clustering_order": "none", "type": "int", "added": 6}
            rows += [{**added, "column_name": column} for column in names]
            if "WRITETIME" not in text:
                rows += [{"column_name": f"cdc$deleted_{column}"} for column in names]
        return rows

    async def page(self, text: str, parameters: Sequence[Any], **more: Any) -> ResultPage:
        """A page of a log, which is empty, or of a list of streams."""
        await pass_turns()
        if "_scylla_cdc_log" not in text:
            return await super().page(text, parameters, **more)
        if self.log_blocked:
            raise NodesAway("the log is unavailable")
        self.log_queries.append(text)
        self.read_to_ms = max(self.read_to_ms, millis_of(parameters[2]))
        return ResultPage((), [], None)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes()

    async def acquire(_: Any) -> Nodes:
        return nodes

    monkeypatch.setattr(CqlSession, "acquire", acquire)
    monkeypatch.setattr("connectors.scylla.task._SCHEMA_S", 0.01)
    return nodes


async def task_of(log: LogCapture | None = None, /, **options: str) -> ScyllaTask:
    """The only task of a connector."""
    raw = {
        "name": "n",
        "connector.class": "scylla",
        "topic.prefix": "p",
        "scylla.cluster.ip.addresses": "here:1",
        "scylla.table.names": str(TABLE),
        **options,
    }
    saved, log = SavedOffsets(), log or LogCapture()
    connector = ScyllaConnector(
        MemoryConnectorContext("n", ScyllaConnector.config_def.parse(raw), saved, make_logger("c", log))
    )
    (share,) = await connector.task_configs(1)
    await connector.stop()
    config = ScyllaConnector.config_def.parse({**raw, **share})
    return ScyllaTask(MemoryTaskContext("n", 0, config, saved, RecordedMetrics(METRICS), make_logger("t", log)))


async def test_a_new_column_that_some_nodes_learn_of_later_is_read(nodes: Nodes) -> None:
    """One node says that the schema is another one, and the next, which is asked for it, has the old one."""
    task = await task_of()
    async with asyncio.timeout(20), aclosing(task.batches()) as stream:
        async for _ in stream:
            if nodes.schema_version == "one" and nodes.log_queries:
                nodes.schema_version, nodes.stale_reads = "two", 1
            if nodes.log_queries and '"new"' in nodes.log_queries[-1]:
                break
            assert nodes.pulses < 100, "the new column is not read"


async def test_windows_end_before_the_servers_time_when_this_machines_clock_jumps(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that is set ahead, as after a machine was suspended; a window beyond now would pass what is still written."""
    task = await task_of(**{"heartbeat.interval.ms": "1", "scylla.window.min.ms": "10"})
    jumped_at = 0
    async with asyncio.timeout(20), aclosing(task.batches()) as stream:
        async for _ in stream:
            if not jumped_at and len(nodes.log_queries) >= 2:
                monkeypatch.setattr("connectors.scylla.task.time.time", lambda: SYSTEM_TIME() + 3600)
                jumped_at = nodes.pulses
            assert nodes.read_to_ms <= SYSTEM_TIME() * 1000
            if jumped_at and nodes.pulses > jumped_at + 5:
                break


async def test_reading_continues_once_a_servers_clock_that_was_set_back_is_right_again(nodes: Nodes) -> None:
    """The wait that lanes have planned meanwhile is too long by then."""
    task = await task_of(**{"heartbeat.interval.ms": "1", "scylla.window.min.ms": "10"})
    set_back_at = queries = 0
    async with asyncio.timeout(20), aclosing(task.batches()) as stream:
        async for _ in stream:
            if not set_back_at and len(nodes.log_queries) >= 2:
                nodes.behind_ms, set_back_at = 3_600_000, nodes.pulses
            elif nodes.behind_ms and nodes.pulses > set_back_at + 30:
                nodes.behind_ms, queries = 0, len(nodes.log_queries)
            elif set_back_at and not nodes.behind_ms and len(nodes.log_queries) > queries:
                break


async def test_a_first_start_begins_by_the_servers_clock_and_not_by_this_machines(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes older than the TTL of the log are not looked for: by a clock that is ahead, these are changes to come."""
    nodes.add_table(TABLE, ttl="30")
    monkeypatch.setattr("connectors.scylla.task.time.time", lambda: SYSTEM_TIME() + 3600)
    task = await task_of()
    async with asyncio.timeout(20), aclosing(task.batches()) as stream:
        async for batch in stream:
            starts = [millis_of(uuid.UUID(offset["window_start"]).bytes) for _, offset in batch.offsets if offset]
            if starts:
                assert max(starts) < SYSTEM_TIME() * 1000 - 25_000
                break


async def test_the_end_of_a_generation_is_found_in_the_newer_lists_after_an_upgrade(nodes: Nodes) -> None:
    """The cluster is upgraded while the task runs: its next generation is in no list that was there when the task began."""
    nodes.use_old_lists()
    log = LogCapture()
    task = await task_of(log, **{"scylla.discovery.interval.ms": "1000"})
    async with asyncio.timeout(20), aclosing(task.batches()) as stream:
        async for _ in stream:
            if not nodes.has_new_lists and nodes.log_queries:
                nodes.upgrade()
                nodes.add_vnodes(int(SYSTEM_TIME() * 1000) - 10_000, 2)
            if "the generation that began at" in log.text():
                break


async def test_changes_that_expire_while_the_task_cannot_read_are_reported(nodes: Nodes) -> None:
    """The nodes answer no query of the log for longer than its TTL."""
    nodes.add_table(TABLE, ttl="600")
    log = LogCapture()
    task = await task_of(log, **{"heartbeat.interval.ms": "1"})
    blocked_at = 0
    async with asyncio.timeout(20), aclosing(task.batches()) as stream:
        async for _ in stream:
            if not blocked_at and nodes.log_queries:
                assert "may be gone" not in log.text()
                nodes.log_blocked, nodes.behind_ms, blocked_at = True, -3_600_000, nodes.pulses
            if "its rows expire after 600 s" in log.text():
                break
            assert not blocked_at or nodes.pulses < blocked_at + 100, "the loss is not reported"
