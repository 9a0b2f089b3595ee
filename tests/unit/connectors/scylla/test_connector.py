"""The connector against a cluster in memory: what tasks get, and when.

Hypothesis: tables of both kinds, each with generations of its own that come at any time, tasks that get on at any pace,
connectors that are restarted: every generation is read to its end, in order, and no table waits for another.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from connectors.cql.cluster.session import CqlSession
from connectors.errors import ConfigInvalid, Retriable
from connectors.scylla import connector as module
from connectors.scylla.config import keys
from connectors.scylla.config.settings import CONFIG
from connectors.scylla.connector import ScyllaConnector
from connectors.scylla.model import Generation, ReadPosition, StreamGroup, TableId
from connectors.scylla.positions import find_superseded, source_offset, source_partition
from connectors.scylla.source import discovery
from connectors.testing.contexts import LogCapture, MemoryConnectorContext, SavedOffsets, make_logger
from tests.support.eventually import eventually_async
from tests.unit.connectors.scylla.lists_world import Lists

VNODE, OTHER, TABLET = TableId("ks", "a"), TableId("ks", "b"), TableId("tb", "c")
NOW = 1_800_000_000_000


class World:
    """A connector, its cluster, and offsets that outlive connectors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *tables: TableId, **options: str) -> None:
        self.lists = Lists()
        self.offsets = SavedOffsets()
        self.log = LogCapture()
        self.now_ms = NOW
        self.config = CONFIG.parse(
            {"topic.prefix": "p", keys.HOSTS: "h:1", keys.TABLES: ",".join(map(str, tables)), **options}
        )
        for table in tables:
            self.lists.add_table(table, tablets=table.keyspace == "tb")

        async def acquire(_: Any) -> Lists:
            if self.lists.away:
                raise Retriable("no node answers")
            return self.lists

        monkeypatch.setattr(CqlSession, "acquire", acquire)
        monkeypatch.setattr(module, "_now_ms", lambda: self.now_ms)
        self.restart()

    def restart(self) -> None:
        """A new connector instance, as on another host."""
        self.context = MemoryConnectorContext("c", self.config, self.offsets, make_logger("c", self.log))
        self.connector = ScyllaConnector(self.context)

    async def tasks(self, most: int = 3) -> list[list[StreamGroup]]:
        """The groups of each task, as the tasks would find them."""
        self.context.wants_tasks = False
        configs = await self.connector.task_configs(most)
        return [await discovery.task_groups(self.lists, config) for config in configs]  # type: ignore[arg-type]

    async def look(self) -> bool:
        """Do what the watch does; return whether new tasks were requested."""
        await self.connector._look()
        return self.context.wants_tasks

    def save(self, group: StreamGroup, start_ms: int) -> None:
        self.offsets.put(source_partition(group), source_offset(ReadPosition(start_ms, start_ms)))


def starts(tasks: list[list[StreamGroup]]) -> dict[TableId, set[int]]:
    start_times: dict[TableId, set[int]] = {}
    for group in (group for task in tasks for group in task):
        start_times.setdefault(group.table, set()).add(group.generation.start_ms)
    return start_times


async def test_groups_of_all_tables_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE, OTHER, TABLET)
    world.lists.add_vnodes(NOW - 1000, 7)
    world.lists.add_tablets(TABLET, NOW - 500, 4)
    tasks = await world.tasks(5)
    assert sorted(map(len, tasks)) == [3, 3, 4, 4, 4]
    assert starts(tasks) == {VNODE: {NOW - 1000}, OTHER: {NOW - 1000}, TABLET: {NOW - 500}}
    assert len({(group.table, group.name) for task in tasks for group in task}) == 18
    assert len(await world.tasks(100)) == 18
    assert not await world.look()


async def test_a_new_generation_waits_for_every_group_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE, TABLET)
    world.lists.add_vnodes(100, 2)
    world.lists.add_tablets(TABLET, 50, 2)
    tasks = await world.tasks()
    groups = [group for task in tasks for group in task]
    world.lists.add_vnodes(9_000, 3)
    assert not await world.look()
    for group in groups:
        world.save(group, 8_999 if group.name == "0" else 9_000)
    assert not await world.look()
    world.save(next(group for group in groups if group.name == "0"), 9_000)
    assert await world.look()
    after = await world.tasks()
    assert starts(after) == {VNODE: {9_000}, TABLET: {50}}
    assert not await world.look()
    # The tablet table continues independently of the other one.
    world.lists.add_tablets(TABLET, 9_500, 4)
    for group in groups:
        if group.tablets:
            world.save(group, 9_500)
    assert await world.look()
    assert starts(await world.tasks()) == {VNODE: {9_000}, TABLET: {9_500}}


async def test_a_generation_that_a_node_does_not_list_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of tablets are each node's own. Positions of the generation before it are gone: it would be read again."""
    world = World(monkeypatch, TABLET)
    world.lists.add_tablets(TABLET, 50, 2)
    newest = StreamGroup(TABLET, Generation(9_000), "0x" + "00" * 16, True, (bytes(16),))
    world.save(newest, 9_500)
    with pytest.raises(Retriable, match="9000"):
        await world.tasks()
    world.lists.add_tablets(TABLET, 9_000, 2)
    assert starts(await world.tasks()) == {TABLET: {9_000}}


async def test_positions_of_another_cluster_do_not_stop_a_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, TABLET)
    world.lists.add_tablets(TABLET, 50, 2)
    world.save(StreamGroup(TABLET, Generation(9_000), "0x" + "00" * 16, True, (bytes(16),)), 9_500)
    monkeypatch.setattr("connectors.scylla.source.planning._UNLISTED_S", 0)
    assert starts(await world.tasks()) == {TABLET: {50}}


async def test_a_table_in_tablets_is_known_as_such_although_a_node_was_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keyspace was just created: it was planned with the streams of vnodes, which have none of its changes."""
    world = World(monkeypatch, TABLET, VNODE)
    world.lists.add_vnodes(100, 2)
    world.lists.add_tablets(TABLET, 50, 2)
    world.lists.is_behind = True
    assert starts(await world.tasks()) == {TABLET: {100}, VNODE: {100}}
    assert not await world.look()
    world.lists.is_behind = False
    assert await world.look()
    assert starts(await world.tasks()) == {TABLET: {50}, VNODE: {100}}
    assert not await world.look()


async def test_a_generation_that_begins_after_an_upgrade_of_the_lists_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is upgraded while the connector runs: the lists that it planned with get no new generations any more."""
    world = World(monkeypatch, VNODE)
    world.lists.add_vnodes(100, 2)
    world.lists.use_old_lists()
    groups = [group for task in await world.tasks() for group in task]
    assert not await world.look()
    world.lists.upgrade()
    world.lists.add_vnodes(9_000, 3)
    for group in groups:
        world.save(group, 9_000)
    assert await world.look()
    assert starts(await world.tasks()) == {VNODE: {9_000}}


async def test_generations_that_are_over_do_not_wait_for_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE)
    for start in (100, 200, 300):
        world.lists.add_vnodes(start, 2)
    looks = []
    for end in (200, 300):
        groups = [group for task in await world.tasks() for group in task]
        looks.append(await world.connector._look())  # its end is known, and it is not read
        for group in groups:
            world.save(group, end)
        looks.append(await world.connector._look())  # it is read, and tasks are asked for
        looks.append(await world.connector._look())  # which takes its time
    assert looks == [True] * 6
    assert starts(await world.tasks()) == {VNODE: {300}}
    assert not await world.connector._look()


async def test_old_positions_are_cleaned_up_by_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE)
    world.lists.add_vnodes(100, 8)
    for task in await world.tasks():
        for group in task:
            world.save(group, 9_000)
    world.lists.add_vnodes(9_000, 8)
    world.restart()
    tasks = await world.tasks()
    assert starts(tasks) == {VNODE: {9_000}}
    for task in tasks:
        for group in task:
            world.save(group, 9_001)
    gone = [find_superseded(task, world.offsets.items()) for task in tasks]
    assert sorted(map(len, gone)) == [0, 0, 8]
    for partition in (partition for partitions in gone for partition in partitions):
        world.offsets.put(partition, None)
    assert len(world.offsets.items()) == 8
    world.restart()
    assert starts(await world.tasks()) == {VNODE: {9_000}}


async def test_expired_generations_are_left_out_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE)
    world.lists.add_table(VNODE, ttl="60")
    world.lists.add_vnodes(NOW - 900_000, 2)
    world.lists.add_vnodes(NOW - 500_000, 2)
    world.lists.add_vnodes(NOW - 10_000, 2)
    assert starts(await world.tasks()) == {VNODE: {NOW - 500_000}}
    world.save(StreamGroup(VNODE, Generation(NOW - 900_000), "0", False, ()), NOW - 800_000)
    world.restart()
    assert starts(await world.tasks()) == {VNODE: {NOW - 500_000}}
    assert "left out: its rows have expired after 60 s" in world.log.text()
    world.now_ms += 10_000_000
    assert await world.look()
    assert starts(await world.tasks()) == {VNODE: {NOW - 10_000}}


async def test_look_back_is_counted_from_the_first_start(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE, **{keys.LOOKBACK: "5000"})
    world.lists.add_vnodes(100, 2)
    first = await world.tasks()
    assert {group.begin_ms for task in first for group in task} == {NOW - 5000}
    world.now_ms += 60_000
    assert {group.begin_ms for task in await world.tasks() for group in task} == {NOW - 5000}
    world.save(first[0][0], NOW)
    world.restart()
    # Something was saved: a group without a position may not start later than it did.
    assert {group.begin_ms for task in await world.tasks() for group in task} == {None}


async def test_tables_that_are_not_there_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE, OTHER)
    world.lists.add_vnodes(100, 2)
    del world.lists.tables[OTHER]
    assert starts(await world.tasks()) == {VNODE: {100}}
    assert "There is no table ks.b" in world.log.text() or "There is no keyspace" in world.log.text()
    lines = len(world.log.lines)
    assert not await world.look()
    assert not await world.look()
    assert len(world.log.lines) == lines
    world.lists.add_table(OTHER)
    assert await world.look()
    assert starts(await world.tasks()) == {VNODE: {100}, OTHER: {100}}


async def test_no_table_at_all_is_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE)
    world.lists.add_vnodes(100, 2)
    world.lists.tables.clear()
    assert await world.connector.task_configs(4) == []


async def test_a_tablet_table_made_again_has_another_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, TABLET)
    world.lists.add_tablets(TABLET, 100, 2)
    for task in await world.tasks():
        for group in task:
            world.save(group, 300)
    world.lists.tablets[TABLET].clear()
    assert not await world.look()
    world.lists.add_tablets(TABLET, 5_000, 4)
    assert await world.look()
    tasks = await world.tasks()
    assert starts(tasks) == {TABLET: {5_000}}
    assert "does not know any more" in world.log.text()


async def test_an_absent_cluster_is_passing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE, **{keys.DISCOVERY_INTERVAL: "100"})
    world.lists.add_vnodes(100, 2)
    world.lists.away = True
    await world.connector.start()
    with pytest.raises(Retriable):
        await world.connector.task_configs(2)
    world.lists.away = False
    assert len(await world.connector.task_configs(2)) == 2
    world.lists.away = True
    await eventually_async(lambda: "can't look for new generations" in world.log.text(), "the log says so")
    world.lists.away = False
    for task in await world.tasks():
        for group in task:
            world.save(group, 9_000)
    world.lists.add_vnodes(9_000, 2)
    await eventually_async(lambda: world.context.wants_tasks, "it wants other tasks")
    await world.connector.stop()
    assert world.lists.released == 1
    assert world.context.failure is None


async def test_options_against_each_other_fail_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE, **{keys.USER: "u", keys.BEFORE: "full"})
    with pytest.raises(ConfigInvalid, match=r"(?s)scylla\.password.*cdc\.include\.before"):
        await world.connector.start()
    assert [problem.name for problem in await ScyllaConnector.validate(world.config)] == [keys.PASSWORD, keys.BEFORE]


async def test_changed_offsets_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, VNODE)
    group = StreamGroup(VNODE, Generation(100), "3", False, (b"\1" * 16,))
    good = (source_partition(group), source_offset(ReadPosition(100, 200)))
    snapshot = ({**source_partition(group), "snapshot": "true"}, None)
    assert await ScyllaConnector.alter_offsets(world.config, [good, (good[0], None), snapshot])
    with pytest.raises(ConfigInvalid, match="window_end"):
        await ScyllaConnector.alter_offsets(world.config, [(good[0], {"window_start": good[1]["window_start"]})])
    with pytest.raises(ConfigInvalid, match="not one of the connector's tables"):
        await ScyllaConnector.alter_offsets(world.config, [({**good[0], "table_name": "x"}, good[1])])


def test_java_names_and_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    config = World(monkeypatch, VNODE).config
    assert set(ScyllaConnector.aliases) == {
        "com.scylladb.cdc.debezium.connector.ScyllaConnector",
        "connectors.scylla.ScyllaConnector",
    }
    assert ScyllaConnector.task_class.aliases == ("com.scylladb.cdc.debezium.connector.ScyllaConnectorTask",)
    assert ScyllaConnector.exactly_once_support(config)
    assert not ScyllaConnector.can_define_transaction_boundaries(config)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@hypothesis_given(st.data())
def test_every_generation_is_read_in_order(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(_story(patch, data))


async def _story(patch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    world = World(patch, VNODE, OTHER, TABLET)
    coming = {
        "vnodes": sorted(data.draw(st.sets(st.integers(1, 99), min_size=1, max_size=4))),
        "tablets": sorted(data.draw(st.sets(st.integers(1, 99), min_size=1, max_size=4))),
    }
    of = {VNODE: coming["vnodes"], OTHER: coming["vnodes"], TABLET: coming["tablets"]}
    listed = dict.fromkeys(coming, 0)
    reached: dict[tuple[TableId, int, str], int] = {}
    order: dict[TableId, list[int]] = {table: [] for table in of}

    def come(kind: str) -> None:
        if listed[kind] < len(coming[kind]):
            start = coming[kind][listed[kind]]
            listed[kind] += 1
            count = data.draw(st.integers(1, 3))
            world.lists.add_vnodes(start, count) if kind == "vnodes" else world.lists.add_tablets(TABLET, start, count)

    for kind in coming:
        come(kind)
    tasks = await world.tasks(2)
    for turn in range(60):
        for table, start_times in starts(tasks).items():
            (start,) = start_times
            if not order[table] or order[table][-1] != start:
                order[table].append(start)
        if turn > 20 or data.draw(st.integers(0, 3)) == 0:
            come(data.draw(st.sampled_from(sorted(coming))) if turn < 40 else "vnodes")
            come("tablets")
        for group in (group for task in tasks for group in task):
            key = (group.table, group.generation.start_ms, group.name)
            source: discovery.Source = "tablets" if group.tablets else "v2"
            session: Any = world.lists
            end = await discovery.generation_end(session, group.table, group.generation.start_ms, source)
            at = reached.get(key, group.generation.start_ms)
            to = at + (100 if turn > 40 else data.draw(st.sampled_from([0, 1, 10, 100])))
            to = max(at, to if end is None else min(to, end))
            if to > at:
                reached[key] = to
                world.save(group, to)
        if data.draw(st.integers(0, 4)) == 0:
            world.restart()
            tasks = await world.tasks(2)
        elif await world.look():
            tasks = await world.tasks(data.draw(st.integers(1, 4)))
    for table, expected in of.items():
        assert order[table] == expected, table
        for start, end in pairwise(expected):
            ended = [to for (its, its_start, _), to in reached.items() if its == table and its_start == start]
            assert ended
            assert min(ended) >= end


@pytest.mark.parametrize("new_tables", ["true", "false"])
async def test_tables_that_come_later_are_marked_where_they_shall_have_no_snapshot(
    monkeypatch: pytest.MonkeyPatch, new_tables: str
) -> None:
    world = World(monkeypatch, VNODE, OTHER, **{"snapshot.mode": "initial", "snapshot.new.tables": new_tables})
    world.lists.add_vnodes(NOW - 10_000, 4)
    hidden = world.lists.tables.pop(OTHER)
    first = [group for task in await world.tasks() for group in task]
    assert {group.table for group in first} == {VNODE}
    assert not any(group.later for group in first), "the first start"
    for group in first:
        world.save(group, NOW)
    world.lists.tables[OTHER] = hidden
    assert await world.look()
    second = {(group.table, group.later) for task in await world.tasks() for group in task}
    assert second == {(VNODE, False), (OTHER, new_tables == "false")}
