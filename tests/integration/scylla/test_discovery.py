"""Generations, streams and definitions of tables as a server tells them: an emulation with every list that Scylla ever had."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from compose.local.scylla.client import Emulation
from compose.local.scylla.emulation import ScyllaEmulation
from compose.local.scylla.writes import Insert
from connectors.cql.cluster.session import CqlSession
from connectors.errors import ConfigInvalid, Retriable
from connectors.scylla.config import keys
from connectors.scylla.config.checks import check_cluster
from connectors.scylla.config.settings import CONFIG, session_settings
from connectors.scylla.connector import ScyllaConnector
from connectors.scylla.model import Generation, TableId
from connectors.scylla.positions import first_position, source_offset, source_partition
from connectors.scylla.schema.tables import TableUnavailable, load_history
from connectors.scylla.source import discovery
from connectors.scylla.source.groups import assign_groups, encode_share
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from tests.support.eventually import patience
from worker.fetch.java import FAST_START

pytestmark = pytest.mark.asyncio

Keyspaces = Callable[..., str]


def configured(scylla: Emulation, *tables: str, **more: str) -> Any:
    return CONFIG.parse(
        {"topic.prefix": "p", keys.HOSTS: scylla.address, keys.TABLES: ",".join(tables) or "ks.t", **more}
    )


@pytest.fixture(scope="module")
def scylla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    """A server of the module's own, for generations are of the whole cluster; it has both lists of streams."""
    with ScyllaEmulation(tmp_path_factory.mktemp("scylla"), port=None, streams="both", jvm_options=FAST_START) as node:
        client = Emulation(node.address)
        yield client
        client.close()


@pytest.fixture
def scylla_keyspace(scylla: Emulation) -> Iterator[Keyspaces]:
    """Makes keyspaces and drops them after the test."""
    keyspaces: list[str] = []

    def make(*, tablets: bool = False) -> str:
        keyspaces.append(f"k{secrets.token_hex(5)}")
        scylla.create_keyspace(keyspaces[-1], tablets=tablets)
        return keyspaces[-1]

    yield make
    for keyspace in keyspaces:
        scylla.drop_keyspace(keyspace)


@pytest_asyncio.fixture
async def session(scylla: Emulation) -> AsyncIterator[CqlSession]:
    session = await CqlSession.acquire(session_settings(configured(scylla)))
    yield session
    await session.release()


def now_ms() -> int:
    return int(time.time() * 1000)


async def test_generations_of_vnodes_and_their_groups(
    scylla: Emulation, scylla_keyspace: Keyspaces, session: CqlSession
) -> None:
    start = await asyncio.to_thread(scylla.new_generation, 8, 3, 2)
    table = TableId(scylla_keyspace(), "t")
    assert await discovery.table_source(session, table) == "v2"
    generations = await discovery.load_generations(session, table)
    assert [generation.start_ms for generation in generations] == await asyncio.to_thread(scylla.generations)
    assert generations[-1] == Generation(start, None)
    groups = await discovery.load_groups(session, table, generations[-1])
    assert len(groups) == 16
    assert {len(group.streams) for group in groups} == {3}
    assert [group.name for group in groups] == [str(index) for index in range(16)]
    assert groups[0].token_range is not None
    later = await asyncio.to_thread(scylla.new_generation, start_ms=start + 1)
    assert await discovery.generation_end(session, table, start) == later
    assert await discovery.generation_end(session, table, later) is None
    assert (await discovery.load_generations(session, table))[-2:] == [Generation(start, later), Generation(later)]
    with pytest.raises(Retriable, match="no streams"):
        await discovery.load_groups(session, table, Generation(start - 1))


async def test_a_write_goes_to_a_stream_of_the_group_with_its_token(
    scylla: Emulation, scylla_keyspace: Keyspaces, session: CqlSession
) -> None:
    await asyncio.to_thread(scylla.new_generation, 8, 2)
    table = TableId(scylla_keyspace(), "t")
    scylla.create_table(f"CREATE TABLE {table} (pk int PRIMARY KEY, v text) WITH cdc = {{'enabled': true}}")
    generation = (await discovery.load_generations(session, table))[-1]
    groups = await discovery.load_groups(session, table, generation)
    for key in range(30):
        scylla.apply(Insert(str(table), {"pk": key, "v": "x"}))
    cells = scylla.log_cells(str(table))
    streams = {cell["cdc$stream_id"] for cell in cells}
    assert len(streams) > 3
    for stream in streams:
        (group,) = (group for group in groups if stream in group.streams)
        rows = await session.query(
            f"SELECT token(pk) AS t FROM {table} WHERE pk = ?",  # noqa: S608
            (
                int.from_bytes(
                    next(cell["pk"] for cell in cells if cell["cdc$stream_id"] == stream), "big", signed=True
                ),
            ),
        )
        after, upto = group.token_range or (0, 0)
        token = rows[0]["t"]
        assert after < token <= upto if after < upto else token > after or token <= upto


async def test_a_large_cluster_is_loaded_page_by_page(scylla: Emulation, session: CqlSession) -> None:
    start = await asyncio.to_thread(scylla.new_generation, 256, 72, 4)
    table = TableId("any", "t")
    longest = 0.0
    done = False

    async def watch() -> None:
        nonlocal longest
        while not done:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)

    watching = asyncio.create_task(watch())
    began = time.perf_counter()
    groups = await discovery.load_groups(session, table, Generation(start), "v2")
    took = time.perf_counter() - began
    done = True
    await watching
    print(f"73,728 streams in {took:.2f} s, the loop was held up for {longest * 1000:.0f} ms at the most")
    assert len(groups) == 1024
    assert sum(len(group.streams) for group in groups) == 73_728
    share = assign_groups(groups, 5)[1]
    assert await discovery.task_groups(session, {keys.TASK_GROUPS: encode_share(share, {table: 1024})}) == share


async def test_tablets_have_generations_of_their_own(
    scylla: Emulation, scylla_keyspace: Keyspaces, session: CqlSession
) -> None:
    keyspace = scylla_keyspace(tablets=True)
    table, other = TableId(keyspace, "t"), TableId(keyspace, "other")
    for table_id in (table, other):
        scylla.create_table(
            f"CREATE TABLE {table_id} (pk int PRIMARY KEY, v text) WITH cdc = {{'enabled': true}}", tablets=4
        )
    assert await discovery.table_source(session, table) == "tablets"
    (first,) = await discovery.load_generations(session, table)
    groups = await discovery.load_groups(session, table, first)
    assert [len(group.streams) for group in groups] == [1] * 4
    assert all(group.tablets and group.name.startswith("0x") for group in groups)
    assert groups[0].token_range is not None
    assert groups[-1].token_range is not None
    assert groups[0].token_range[0] == groups[-1].token_range[1]
    later = await asyncio.to_thread(scylla.split_tablets, str(table), 8, start_ms=now_ms() + 1_000)
    assert await discovery.generation_end(session, table, first.start_ms) == later
    (others,) = await discovery.load_generations(session, other)
    assert await discovery.generation_end(session, other, others.start_ms) is None
    second = (await discovery.load_generations(session, table))[1]
    assert len(await discovery.load_groups(session, table, second)) == 8
    mixed = [*await discovery.load_groups(session, table, second), *await discovery.load_groups(session, other, others)]
    for share in assign_groups(mixed, 3):
        text = encode_share(share, {table: 8, other: 4})
        decoded = await discovery.task_groups(session, {keys.TASK_GROUPS: text})
        assert sorted(group.name for group in decoded) == sorted(group.name for group in share)


async def test_older_list_of_streams_until_it_was_rewritten(scylla: Emulation, session: CqlSession) -> None:
    start = await asyncio.to_thread(scylla.new_generation, 4, 3)
    table = TableId("any", "t")
    newer = await discovery.load_groups(session, table, Generation(start), "v2")
    await asyncio.to_thread(scylla.execute, "DELETE FROM scylla_emulation.cdc_local WHERE key = 'rewritten'")
    try:
        assert await discovery.vnode_source(session) == "v1"
        assert (await discovery.load_generations(session, table))[-1].start_ms == start
        older = await discovery.load_groups(session, table, Generation(start))
        assert [(group.name, group.streams) for group in older] == [(group.name, group.streams) for group in newer]
        assert all(group.token_range is None for group in older)
    finally:
        await asyncio.to_thread(scylla.execute, "INSERT INTO scylla_emulation.cdc_local (key) VALUES ('rewritten')")
    assert await discovery.vnode_source(session) == "v2"


async def test_definitions_follow_alter_drop_and_create(
    scylla: Emulation, scylla_keyspace: Keyspaces, session: CqlSession
) -> None:
    keyspace = scylla_keyspace()
    table = TableId(keyspace, "Mixed")
    full = f'{keyspace}."Mixed"'
    scylla.create_type(f"CREATE TYPE {keyspace}.addr (street text)")
    scylla.create_table(
        f'CREATE TABLE {full} (pk int, "Ck" text, v text, home frozen<addr>, tags set<text>, s int static, '
        'PRIMARY KEY (pk, "Ck")) WITH CLUSTERING ORDER BY ("Ck" DESC) AND cdc = {\'enabled\': true, '
        "'preimage': 'full', 'ttl': 60}"
    )
    first = await load_history(session, table)
    assert [(column.name, column.kind) for column in first.newest.columns] == [
        ("pk", "partition_key"),
        ("Ck", "clustering"),
        ("s", "static"),
        ("home", "regular"),
        ("tags", "regular"),
        ("v", "regular"),
    ]
    assert first.newest.clustering_key[0].reversed
    assert (first.newest.options.preimage, first.newest.options.ttl_s) == ("full", 60)
    assert len(first.versions) == 1
    assert abs(first.created_us / 1e6 - time.time()) < 120
    assert {name for name, _ in first.newest.log_columns} <= first.log_columns

    before = time.time_ns() // 1000
    scylla.alter_table(f"ALTER TABLE {full} ADD n bigint")
    between = time.time_ns() // 1000
    scylla.alter_table(f"ALTER TABLE {full} DROP v")
    second = await load_history(session, table, first)
    assert [[column.name for column in version.columns[3:]] for version in second.versions] == [
        ["home", "tags", "v"],
        ["home", "n", "tags", "v"],
        ["home", "n", "tags"],
    ]
    assert second.version_at(before) == second.versions[0]
    assert second.version_at(between) == second.versions[1]
    assert second.version_at(time.time_ns() // 1000) == second.newest
    # Without the look before, the column that is gone counts as there from the beginning: the same here.
    assert [version.version for version in (await load_history(session, table)).versions] == [
        version.version for version in second.versions
    ]

    scylla.alter_type(f"ALTER TYPE {keyspace}.addr ADD zip int")
    third = await load_history(session, table, second)
    assert [version.columns[3].type.field_names for version in third.versions[-2:]] == [("street",), ("street", "zip")]
    assert third.newest.since_us > between

    scylla.drop_table(f"{keyspace}.Mixed")
    with pytest.raises(TableUnavailable, match=r"keyspace .* has no tables") as gone:
        await load_history(session, table)
    assert gone.value.reason == "missing"
    scylla.create_table(f"CREATE TABLE {full} (pk int PRIMARY KEY, z int) WITH cdc = {{'enabled': true}}")
    fourth = await load_history(session, table, third)
    assert fourth.table_id != third.table_id
    assert [column.name for column in fourth.newest.columns] == ["pk", "z"]
    assert fourth.version_at(between) == third.versions[1]


async def test_tables_that_cannot_be_read_say_why(
    scylla: Emulation, scylla_keyspace: Keyspaces, session: CqlSession
) -> None:
    keyspace = scylla_keyspace()
    scylla.create_table(f"CREATE TABLE {keyspace}.plain (pk int PRIMARY KEY)")
    scylla.create_table(f"CREATE TABLE {keyspace}.\"Upper\" (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    with pytest.raises(TableUnavailable, match=r"CDC is not enabled .* ALTER TABLE") as plain:
        await load_history(session, TableId(keyspace, "plain"))
    assert plain.value.reason == "disabled"
    with pytest.raises(TableUnavailable, match='there is "Upper"'):
        await load_history(session, TableId(keyspace, "upper"))
    with pytest.raises(TableUnavailable, match=rf'there is "{keyspace}"'):
        await load_history(session, TableId(keyspace.upper(), "t"))
    with pytest.raises(TableUnavailable, match="There is no keyspace nowhere;"):
        await load_history(session, TableId("nowhere", "t"))
    scylla.execute(f'DROP TABLE {keyspace}."Upper_scylla_cdc_log"')
    with pytest.raises(TableUnavailable, match="its log table") as logless:
        await load_history(session, TableId(keyspace, "Upper"))
    assert logless.value.reason == "no-log"


async def test_validation_asks_the_cluster(scylla: Emulation, scylla_keyspace: Keyspaces) -> None:
    keyspace = scylla_keyspace()
    await asyncio.to_thread(scylla.new_generation)
    scylla.create_table(f"CREATE TABLE {keyspace}.good (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    scylla.create_table(
        f"CREATE TABLE {keyspace}.images (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true, "
        "'preimage': 'full', 'postimage': true}"
    )
    scylla.create_table(f"CREATE TABLE {keyspace}.plain (pk int PRIMARY KEY, v int)")
    scylla.create_table(
        f"CREATE TABLE {keyspace}.keys (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true, 'delta': 'keys'}}"
    )

    async def complaints(*tables: str, **more: str) -> list[tuple[str, str]]:
        return [(problem.name, problem.message) for problem in await check_cluster(configured(scylla, *tables, **more))]

    assert await complaints(f"{keyspace}.good", f"{keyspace}.images") == []
    both = {"cdc.output.format": "advanced", "cdc.include.before": "full", "cdc.include.after": "only-updated"}
    assert await complaints(f"{keyspace}.images", **both) == []
    problems = await complaints(f"{keyspace}.good", **both)
    assert [name for name, _ in problems] == ["cdc.include.before", "cdc.include.after"]
    assert "'preimage': true" in problems[0][1]
    ((name, message),) = await complaints(f"{keyspace}.keys", **{"output.format": "partition-update"})
    assert name == keys.OUTPUT
    assert "'delta': 'full'" in message
    problems = await complaints(f"{keyspace}.plain", f"{keyspace}.gone")
    assert [name for name, _ in problems] == [keys.TABLES] * 3
    assert "ALTER TABLE" in problems[0][1]
    assert "There is no table" in problems[1][1]
    assert "none of scylla.table.names can be read" in problems[2][1]
    warnings = await check_cluster(configured(scylla, f"{keyspace}.good", f"{keyspace}.plain", f"{keyspace}.gone"))
    assert [(problem.name, problem.warning) for problem in warnings] == [(keys.TABLES, True)] * 2


async def test_validation_without_a_cluster(unused_tcp_port: int) -> None:
    config = CONFIG.parse({"topic.prefix": "p", keys.HOSTS: f"127.0.0.1:{unused_tcp_port}", keys.TABLES: "ks.t"})
    ((name, message),) = [(problem.name, problem.message) for problem in await check_cluster(config)]
    assert name == keys.HOSTS
    assert "can't be asked" in message


async def test_a_share_for_another_division_is_refused(scylla: Emulation, session: CqlSession) -> None:
    start = await asyncio.to_thread(scylla.new_generation, 8, 2)
    groups = await discovery.load_groups(session, TableId("any", "t"), Generation(start))
    with pytest.raises(ConfigInvalid, match="made for 9"):
        await discovery.task_groups(session, {keys.TASK_GROUPS: encode_share(groups[:2], {groups[0].table: 9})})


async def test_generations_change_while_the_connector_runs(scylla: Emulation, scylla_keyspace: Keyspaces) -> None:
    vnodes, tablets = scylla_keyspace(), scylla_keyspace(tablets=True)
    names = [f"{vnodes}.a", f"{vnodes}.b", f"{tablets}.c"]
    await asyncio.to_thread(scylla.new_generation, 4, 2)
    for table in names:
        scylla.create_table(
            f"CREATE TABLE {table} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}", tablets=4
        )

    def write(value: int) -> None:
        for table in names:
            scylla.apply(*(Insert(table, {"pk": key, "v": value}) for key in range(10)))

    raw = {
        "topic.prefix": "p",
        keys.HOSTS: scylla.address,
        keys.TABLES: ",".join(names),
        keys.DISCOVERY_INTERVAL: "200",
        keys.CONFIDENCE_FLOOR: "500",
        keys.WINDOW_MIN: "100",
        keys.HEARTBEAT: "200",
    }
    offsets = SavedOffsets()
    seen: Counter[tuple[str, Any, Any]] = Counter()

    def count(records: list[Any]) -> None:
        seen.update((record.topic, record.key["pk"], record.value["after"]["v"]["value"]) for record in records)

    async with Run(ScyllaConnector, raw, offsets=offsets, max_tasks=3) as run:
        await asyncio.to_thread(write, 1)
        count(await run.read(30, 180))
        for turn in (2, 3):
            vnode_start = await asyncio.to_thread(scylla.new_generation, 4 + turn, 2)
            tablet_start = await asyncio.to_thread(scylla.split_tablets, names[2], 4 * turn if turn == 2 else 16)
            await asyncio.to_thread(write, turn)
            count(await run.read(30, 180))
    # Stopped over two more generations of vnodes: one after the other, nothing left out.
    for turn in (4, 5):
        vnode_start = await asyncio.to_thread(scylla.new_generation, 4, turn)
        await asyncio.to_thread(write, turn)
    async with Run(ScyllaConnector, raw, offsets=offsets, max_tasks=2) as run:
        count(await run.read(60, 180))
        newest = {names[0]: vnode_start, names[1]: vnode_start, names[2]: tablet_start}
        async with patience(180):
            while any(
                str(start)
                not in {
                    partition["generation_start"]
                    for partition, _ in offsets.items()
                    if f"{partition['keyspace_name']}.{partition['table_name']}" == name
                }
                for name, start in newest.items()
            ):
                await run.take(0.5)
    assert seen == Counter(
        {(f"p.{name}", key, value): 1 for name in names for key in range(10) for value in range(1, 6)}
    )


async def test_rows_from_before_a_shorter_ttl_are_read(
    scylla: Emulation, scylla_keyspace: Keyspaces, session: CqlSession
) -> None:
    if not scylla.emulated:
        pytest.skip("generations of the past are made")
    table = f"{scylla_keyspace(tablets=True)}.t"
    scylla.create_table(f"CREATE TABLE {table} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    now_ms = time.time_ns() // 1_000_000
    start = scylla.split_tablets(table, 2, start_ms=now_ms - 10_000_000)
    scylla.split_tablets(table, 2, start_ms=now_ms - 5_000_000)
    scylla.apply(Insert(table, {"pk": 1, "v": 1}), timestamp_us=(now_ms - 9_000_000) * 1000)
    offsets = SavedOffsets()
    table_id = TableId(*table.split("."))
    for group in await discovery.load_groups(session, table_id, Generation(start), "tablets"):
        offsets.put(source_partition(group), source_offset(first_position(group)))
    scylla.alter_table(f"ALTER TABLE {table} WITH cdc = {{'enabled': true, 'ttl': 60}}")
    raw = {"topic.prefix": "p", keys.HOSTS: scylla.address, keys.TABLES: table, keys.DISCOVERY_INTERVAL: "200"}
    async with Run(ScyllaConnector, raw, offsets=offsets) as run:
        (record,) = await run.read(1, 60)
    assert record.key["pk"] == 1


async def test_changes_that_expired_before_they_were_read_are_reported(
    scylla: Emulation, scylla_keyspace: Keyspaces, session: CqlSession
) -> None:
    """The connector was stopped for longer than the log's TTL, and the topology changed shortly before it came back."""
    if not scylla.emulated:
        pytest.skip("generations of the past are made")
    table = f"{scylla_keyspace(tablets=True)}.t"
    scylla.create_table(f"CREATE TABLE {table} (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true, 'ttl': 3600}}")
    now_ms = time.time_ns() // 1_000_000
    start = scylla.split_tablets(table, 2, start_ms=now_ms - 10_000_000)
    scylla.split_tablets(table, 2, start_ms=now_ms - 1_000_000)
    offsets = SavedOffsets()
    table_id = TableId(*table.split("."))
    for group in await discovery.load_groups(session, table_id, Generation(start), "tablets"):
        offsets.put(source_partition(group), source_offset(first_position(group)))
    raw = {"topic.prefix": "p", keys.HOSTS: scylla.address, keys.TABLES: table, keys.DISCOVERY_INTERVAL: "200"}
    async with Run(ScyllaConnector, raw, offsets=offsets) as run:
        await run.take(5)
        assert "its rows expire after 3600 s" in run.log.text()
