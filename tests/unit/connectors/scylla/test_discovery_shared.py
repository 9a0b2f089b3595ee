"""Lists of streams that the tasks of a process share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors.errors import Retriable
from connectors.scylla.config.keys import HOSTS, TASK_GROUPS, USER
from connectors.scylla.model import Generation, TableId
from connectors.scylla.source import discovery
from connectors.scylla.source.groups import assign_groups, encode_share
from tests.support.eventually import pass_turns
from tests.unit.connectors.scylla.lists_world import Lists

TABLE, OTHER = TableId("ks", "a"), TableId("ks", "b")


def cluster() -> Any:
    lists = Lists()
    lists.add_table(TABLE)
    lists.add_vnodes(100, 64)
    return lists


def reads(lists: Lists) -> int:
    return sum("cdc_streams_descriptions_v2 WHERE" in text for text in lists.asked)


async def test_tasks_of_a_process_read_the_streams_once() -> None:
    lists = cluster()
    groups = await discovery.load_groups(lists, TABLE, Generation(100), "v2")
    lists.asked.clear()
    configs = [
        {TASK_GROUPS: encode_share(share, {TABLE: 64}), HOSTS: ["once:1"], USER: None}
        for share in assign_groups(groups, 16)
    ]
    shares = await asyncio.gather(*(discovery.task_groups(lists, config) for config in configs))
    assert [group.name for share in shares for group in share] == [group.name for group in groups]
    assert reads(lists) == 1
    await discovery.task_groups(lists, {**configs[0], HOSTS: ["elsewhere:1"]})
    assert reads(lists) == 2


async def test_the_end_of_the_generation_and_the_table_are_each_tasks_own() -> None:
    lists = cluster()
    (first,) = {
        group.generation for group in await discovery.shared_groups(lists, ("x",), TABLE, Generation(100), "v2")
    }
    (second,) = {
        (group.table, group.generation)
        for group in await discovery.shared_groups(lists, ("x",), OTHER, Generation(100, 900), "v2")
    }
    assert first == Generation(100)
    assert second == (OTHER, Generation(100, 900))
    assert reads(lists) == 1


async def test_a_reader_that_fails_or_is_stopped_leaves_the_others_to_themselves() -> None:
    lists = cluster()
    broken = cluster()
    broken.away = True
    going = asyncio.Event()

    class Slow:
        async def query(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
            going.set()
            await asyncio.Event().wait()
            return []

    slow: Any = Slow()
    first = asyncio.create_task(discovery.shared_groups(slow, ("y",), TABLE, Generation(100), "v2"))
    await going.wait()
    second = asyncio.create_task(discovery.shared_groups(lists, ("y",), TABLE, Generation(100), "v2"))
    await pass_turns()
    first.cancel()
    assert len(await second) == 64
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(Retriable):
        await discovery.shared_groups(broken, ("z",), TABLE, Generation(100), "v2")
    assert len(await discovery.shared_groups(lists, ("z",), TABLE, Generation(100), "v2")) == 64


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        (1_795_219_200_000, 1_795_219_200_000),
        ("8195b080-e53e-11f1-8000-0a0b0c0d0e0f", 1_795_219_205_000),
    ],
)
def test_times_of_generations_may_be_timestamps_or_timeuuids(value: Any, expected_ms: int) -> None:
    assert abs(discovery.to_millis(value) - expected_ms) < 60_000_000
    assert discovery.to_millis(value) % 1_000 == 0
