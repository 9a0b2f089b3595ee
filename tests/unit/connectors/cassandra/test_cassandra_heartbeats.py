"""Heartbeats in the topics of tables: what is promised, up to when, and when a reader can say that it has everything."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from connectors.api import EVERY_PARTITION, Batch, Header
from connectors.cassandra.config.settings import CONFIG, log_part, parse_nodes, task_settings
from connectors.cassandra.model import LogPosition
from connectors.cassandra.run.heartbeats import CassandraHeartbeats
from connectors.cql.mutations.definition import CqlColumn, make_definition
from connectors.cql.types import parse_type
from connectors.formats.table_heartbeats import HEADER
from connectors.schema import STRING
from tests.unit.connectors.cassandra.follower_world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from connectors.options import Config

NOW_MS = 1_700_000_000_123
PARTITION = {"cluster": "p", "node": "b"}
POSITION = LogPosition(7, 100)
TABLES = [
    make_definition(
        "shop",
        name,
        f"00000000-0000-1000-8000-00000000000{number}",
        [CqlColumn("pk", parse_type("int"), "partition_key")],
    )
    for number, name in enumerate(("orders", "lines"))
]


def config(**options: str) -> Config:
    return CONFIG.parse(
        {
            "topic.prefix": "p",
            "cassandra.hosts": "h",
            "cdc.raw.directories": "a=/a,b=/b",
            "heartbeat.to.tables": "true",
            **options,
        }
    )


def heartbeats(sync_s: float | None = 1.5, options: dict[str, str] | None = None) -> CassandraHeartbeats:
    parsed = config(**(options or {}))
    beats = CassandraHeartbeats(task_settings(parsed), PARTITION, log_part(parsed, parse_nodes(parsed)[-1]))
    beats.sync_s = sync_s
    return beats


def test_each_table_gets_the_time_before_which_all_is_readable_with_the_part_of_the_node() -> None:
    batch = heartbeats().make_batch(lambda: TABLES, NOW_MS, POSITION)
    assert batch is not None
    assert [(record.topic, record.key, record.value, record.partition) for record in batch.records] == [
        ("p.shop.orders", None, None, EVERY_PARTITION),
        ("p.shop.lines", None, None, EVERY_PARTITION),
    ]
    for record in batch.records:
        assert record.headers == (Header(HEADER, f"{NOW_MS - 1500}000 1/2", STRING),)
        assert (record.source_partition, record.source_offset) == (PARTITION, POSITION.offset())


def test_one_node_has_no_part() -> None:
    batch = heartbeats(options={"cdc.raw.directories": "/raw"}).make_batch(lambda: TABLES, NOW_MS, POSITION)
    assert batch is not None
    assert batch.records[0].headers == (Header(HEADER, f"{NOW_MS - 1500}000", STRING),)


def test_a_promise_is_made_once_and_at_the_interval() -> None:
    beats = heartbeats(options={"heartbeat.interval.ms": "3600000"})
    assert beats.is_due()
    assert isinstance(beats.make_batch(lambda: TABLES, NOW_MS, POSITION), Batch)
    assert not beats.is_due()
    assert beats.make_batch(lambda: TABLES, NOW_MS, POSITION) is None
    assert isinstance(beats.make_batch(lambda: TABLES, NOW_MS + 1, POSITION), Batch)


def test_nothing_is_promised_where_nothing_is_known() -> None:
    assert heartbeats(None).make_batch(lambda: TABLES, NOW_MS, POSITION) is None
    assert heartbeats().make_batch(lambda: TABLES, 0, POSITION) is None
    assert heartbeats().make_batch(lambda: TABLES, NOW_MS, POSITION._replace(done=1)) is None


def test_before_the_first_change_a_restart_begins_with_the_oldest_segment() -> None:
    batch = heartbeats().make_batch(lambda: TABLES, NOW_MS, LogPosition(0))
    assert batch is not None
    assert LogPosition.of(batch.records[0].source_offset) == LogPosition(1)


# The reader.


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    node_world = World(tmp_path)
    yield node_world
    await node_world.stop()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_a_log_is_complete_where_all_that_was_synced_is_read(world: World) -> None:
    node = world.node
    node.create(1)
    node.create(2)
    follower = await world.start(max_bytes=4096)
    assert follower.complete_ms == 0
    began = now_ms()
    assert await world.news() == []
    assert began <= follower.complete_ms <= now_ms()  # no captured change anywhere
    node.write(1, "a", "b")
    node.sync(1)
    before = follower.complete_ms
    chunk = await follower.read()
    assert chunk is not None
    assert follower.complete_ms == before  # it was asked for before it was handed over
    began = now_ms()
    assert await world.news() == []
    assert follower.complete_ms >= began
    node.idx(1).write_text("")  # half-written: no one knows what was synced
    before = follower.complete_ms
    assert await world.news() == []
    assert follower.complete_ms == before
    node.sync(1)
    began = now_ms()
    assert await world.news() == []
    assert follower.complete_ms >= began


async def test_a_log_is_not_complete_while_a_part_of_it_can_t_be_read(world: World) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a")
    at = node.marker[1]
    node.write(1, "b")
    node.damage(1, at + 16)
    follower = await world.start(mode="marker")
    assert await world.news() == ["a"]  # what follows may be half-written as yet
    assert follower.complete_ms == 0
    node.damage(1, at + 16)
    began = now_ms()
    assert await world.news() == ["b"]
    assert follower.complete_ms >= began


async def test_a_segment_is_complete_with_its_last_entry_only(world: World) -> None:
    node = world.node
    node.create(1)
    node.create(2)
    node.write(1, "a")
    node.sync(1, complete=True)
    follower = await world.start()
    while (chunk := await follower.read()) is not None:
        assert follower.complete_ms == 0
    assert follower.complete_ms > 0
    assert chunk is None


@pytest.mark.parametrize(
    ("policy", "is_refused"), [("compact", True), ("compact,delete", True), ("delete", False), (None, False)]
)
def test_topics_that_would_be_compacted_are_refused(policy: str | None, is_refused: bool) -> None:
    from connectors.cassandra.config.settings import find_problems

    creation = {} if policy is None else {"topic.creation.default.cleanup.policy": policy}
    parsed = config(**{"tasks.max": "2", **creation})
    problems = find_problems(parsed)
    assert [problem.name for problem in problems] == ["heartbeat.to.tables"] * is_refused
    assert all("topic.creation.default.cleanup.policy=delete" in problem.message for problem in problems)
    assert find_problems(config(**{"tasks.max": "2", "heartbeat.to.tables": "false", **creation})) == []
