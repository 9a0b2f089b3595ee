"""Snapshots of a real Cassandra's tables: alone, next to the log, over restarts."""

# ruff: noqa: S608 - names of keyspaces are our own
from __future__ import annotations

import asyncio
import random
import secrets
from typing import TYPE_CHECKING, Any, cast

import pytest

from connectors.cassandra.snapshot import cluster as cluster_module
from connectors.cassandra.snapshot.rows import UNKNOWN_US
from connectors.cassandra.snapshot.views import list_snapshots
from connectors.cql.cluster.failures import CqlLoginRefused
from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.errors import Fatal, Retriable
from tests.integration.cassandra.log_world import World, clean, selected, unlike
from tests.integration.cassandra.snapshot_world import Task
from tests.support.cassandra_load import Workload
from tests.support.partition_merge import Table
from tests.unit.connectors.cql.mutation_world import SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from connectors.api import Position
    from connectors.cql.cluster.session import CqlSession
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.formats.partition_update import PartitionUpdate
    from tests.conftest import HasCassandra


@pytest.fixture
def world(cassandra: HasCassandra, cassandra_keyspace: Callable[[], str]) -> World:
    return World(cassandra.address, cassandra.cdc_raw, cassandra_keyspace())


def folded(table: CqlTableDefinition, updates: Iterable[PartitionUpdate]) -> dict[str, Any]:
    kinds = {column.name: column.type for column in table.columns}
    return {
        name: (clean(static, kinds, folded=True), [clean(row, kinds, folded=True) for row in rows])
        for name, (static, rows) in Table(table.columns).apply_all(updates).contents().items()
    }


async def shown(world: World, table: CqlTableDefinition) -> dict[str, Any]:
    return selected(await world.session.query(f"SELECT * FROM {table}"), table)


def logged(world: World, table: CqlTableDefinition) -> list[PartitionUpdate]:
    return [
        CompiledDecoder(table, version).full(data, 0, SOURCE)[0]
        for version, data in world.updates.get(table.table_id, ())
    ]


def without(contents: dict[str, Any], column: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return the contents without a column, and without rows that have only their keys."""
    reduced = {}
    for name, (static, rows) in contents.items():
        kept = [{key: value for key, value in row.items() if key != column} for row in rows]
        kept = [row for row in kept if set(row) - set(keys)]
        if static or kept:
            reduced[name] = static, kept
    return reduced


async def run(world: World, load: Workload, count: int, *, dated: bool = True) -> None:
    """Some statements; not ``dated``: without those that tell their write time."""
    for statement in load.statements(count):
        if not dated and "TIMESTAMP" in statement.text:
            continue
        try:
            await world.execute(statement.text)
        except Fatal:
            assert statement.may_fail, statement.text


async def test_random_tables_with_and_without_the_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    load = Workload(seed, world.keyspace)
    async with world:
        await world.execute(*load.ddl)
        await run(world, load, 100)
        await world.catch_up()
        names = [f"{world.keyspace}[.][to]"]
        tables = [await world.definition(name) for name in ("t", "o")]
        await asyncio.sleep(0.06)  # older than what is taken as settled
        task = Task(world, chunk_rows=7)
        task.request(*names)
        await task.run()
        assert not task.bad
        assert [snapshot["state"] for snapshot in task.reader.progress()] == ["completed"]
        for table in tables:
            # Alone, and with all of the log, in any order and repeated.
            snapshot_updates = [update for update in task.updates if update.source.table_id == table.table_id]
            assert not (difference := unlike(folded(table, snapshot_updates), await shown(world, table))), difference
            both = [*snapshot_updates, *logged(world, table), *snapshot_updates]
            random.Random(seed).shuffle(both)
            assert not (difference := unlike(folded(table, both), await shown(world, table))), difference
        await assert_times(world, tables[0], task.updates)
        # Where the elements of collections have no times (before 5.0).
        monkeypatch.setattr(cluster_module, "_ELEMENTS_SINCE", (99, 0))
        old = Task(world, chunk_rows=50)
        old.request(*names)
        await old.run()
        for table in tables:
            snapshot_updates = [update for update in old.updates if update.source.table_id == table.table_id]
            assert not (difference := unlike(folded(table, snapshot_updates), await shown(world, table))), difference
            assert not (
                difference := unlike(
                    folded(table, [*snapshot_updates, *logged(world, table)]), await shown(world, table)
                )
            ), difference
        monkeypatch.undo()
        # Earlier writes are not in the log any more, nor are their tombstones: a write that is older than one of these becomes
        # visible again. Writes continue while the tables are read.
        world.updates.clear()
        live = Task(world, chunk_rows=3, threads=1)
        live.request(*names)
        await asyncio.gather(live.run(), run(world, load, 40, dated=False))
        await run(world, load, 30, dated=False)
        await world.catch_up()
        for table in tables:
            both = [
                *(update for update in live.updates if update.source.table_id == table.table_id),
                *logged(world, table),
            ]
            random.Random(seed).shuffle(both)
            keys = [column.name for column in table.clustering]
            # Lists that are changed by element afterwards can't be right (SNAPSHOT.md), rows without cells may stay.
            mine, theirs = (
                without(contents, "l", keys) for contents in (folded(table, both), await shown(world, table))
            )
            assert not (lines := differences(mine, theirs)), lines


def differences(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Return a readable list of what is only in one of both."""
    lines = []
    for key, our_contents, their_contents in unlike(mine, theirs):
        (static, rows), (other_static, other_rows) = our_contents or ({}, []), their_contents or ({}, [])
        lines += [f"{key} ours: {row}" for row in rows if row not in other_rows]
        lines += [f"{key} theirs: {row}" for row in other_rows if row not in rows]
        if static != other_static:
            lines.append(f"{key} static: {static} {other_static}")
    return "\n".join(lines)


async def assert_times(world: World, table: CqlTableDefinition, updates: list[PartitionUpdate]) -> None:
    """Write times and TTLs of all that is not a list are the table's."""
    fold = Table(table.columns).apply_all(update for update in updates if update.source.table_id == table.table_id)
    columns = [
        column for column in (*table.static, *table.regular) if column.type.name != "list" and world.tells_times(column)
    ]
    time_columns = ", ".join(
        f'WRITETIME("{column.name}") AS w{number}, TTL("{column.name}") AS t{number}'
        for number, column in enumerate(columns)
    )
    rows = await world.session.query(
        f"SELECT {', '.join(column.name for column in (*table.key, *table.clustering))}, {time_columns} FROM {table}"
    )
    compared = 0
    for row in rows:
        state = fold.partitions[repr(tuple(row[column.name] for column in table.key))]
        clustering = tuple(row[column.name] for column in table.clustering)
        for number, column in enumerate(columns):
            folded_row = state.static if column.kind == "static" else state.rows.get(repr(clustering), ((), None))[1]
            stamps = (
                []
                if folded_row is None
                else [
                    cell.stamp
                    for cell in folded_row.cells.values()
                    if cell.column == column.name and cell.value is not None
                ]
            )
            times = row[f"w{number}"] if isinstance(row[f"w{number}"], list) else [row[f"w{number}"]]
            ttls = row[f"t{number}"] if isinstance(row[f"t{number}"], list) else [row[f"t{number}"]]
            assert sorted(stamp.write_time for stamp in stamps) == sorted(
                moment for moment in times if moment is not None
            ), row
            assert sum(stamp.expires is not None for stamp in stamps) == sum(ttl is not None for ttl in ttls), row
            compared += len(stamps)
    assert compared


async def test_lists_and_lonely_keys_beside_the_log(world: World) -> None:
    keyspace = world.keyspace
    async with world:
        await world.execute(
            f"CREATE TABLE {keyspace}.t (k int, c int, v int, s int static, l list<int>, PRIMARY KEY (k, c)) WITH cdc = true",
            f"INSERT INTO {keyspace}.t (k, c) VALUES (1, 1)",
            f"INSERT INTO {keyspace}.t (k, s) VALUES (2, 5)",
            f"INSERT INTO {keyspace}.t (k, c, v, l) VALUES (1, 2, 7, [1, 2])",
            f"UPDATE {keyspace}.t USING TTL 900 SET l = [0] + l WHERE k = 1 AND c = 2",
            f"INSERT INTO {keyspace}.t (k, c, v, l) VALUES (1, 3, 7, [4, 5]) USING TIMESTAMP 100",
            f"INSERT INTO {keyspace}.t (k, c, v, l) VALUES (1, 4, 7, [6]) USING TTL 900",
            f"INSERT INTO {keyspace}.t (k, c, v, l) VALUES (1, 5, 7, [8, 9])",
            f"DELETE FROM {keyspace}.t WHERE k = 1 AND c = 9",
        )
        await world.catch_up()
        table = await world.definition("t")
        await asyncio.sleep(0.06)  # older than what is taken as settled
        first = Task(world)
        first.request(str(table))
        await first.run()
        rows = {row.clustering: row for update in first.updates for row in update.rows}
        assert {key: row.liveness and row.liveness.write_time for key, row in rows.items()} == dict.fromkeys(
            [(number,) for number in range(1, 6)], UNKNOWN_US
        )
        # A row with a TTL is gone when its last cell is; the others stay. Queries show a list's write time only from 5.0 on.
        assert {key for key, row in rows.items() if row.liveness and row.liveness.expires} == (
            {(4,)} if world.release >= (5, 0) else set()
        )
        await world.execute(
            f"UPDATE {keyspace}.t SET l = l + [3] WHERE k = 1 AND c = 2",
            f"INSERT INTO {keyspace}.t (k, c, v, l) VALUES (1, 3, 8, [40]) USING TIMESTAMP 200",
            f"UPDATE {keyspace}.t SET l = [-1] + l WHERE k = 1 AND c = 4",
            f"DELETE FROM {keyspace}.t WHERE k = 1 AND c = 1",
            f"DELETE v FROM {keyspace}.t WHERE k = 1 AND c = 2",
        )
        await world.catch_up()
        both = [*first.updates, *logged(world, table)]
        assert not (difference := unlike(folded(table, both), await shown(world, table))), difference
        # By element: only another snapshot corrects it.
        await world.execute(
            f"UPDATE {keyspace}.t SET l = l - [9] WHERE k = 1 AND c = 5",
            f"DELETE l[0] FROM {keyspace}.t WHERE k = 1 AND c = 2",
        )
        await world.catch_up()
        await asyncio.sleep(0.06)
        second = Task(world)
        second.request(str(table))
        await second.run()
        both = [*second.updates, *first.updates, *logged(world, table)]
        assert not (difference := unlike(folded(table, both), await shown(world, table))), difference


async def filled(world: World) -> CqlTableDefinition:
    """A table with a partition of many pages among small ones."""
    keyspace = world.keyspace
    await world.execute(
        f"CREATE TABLE {keyspace}.big (k int, c int, v int, s int static, PRIMARY KEY (k, c)) WITH cdc = true"
    )

    async def fill(k: int, rows: int) -> None:
        inserts = "".join(f"INSERT INTO {keyspace}.big (k, c, v, s) VALUES ({k}, {c}, {c}, {k});" for c in range(rows))
        await world.execute(f"BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")

    await asyncio.gather(*(fill(k, 2) for k in range(60)), fill(1000, 130))
    return await world.definition("big")


async def test_stops_and_other_numbers_of_tasks(world: World) -> None:
    async with world:
        table = await filled(world)
        saved: list[Any] = []
        updates: list[PartitionUpdate] = []
        # One task that is stopped again and again, in the large partition too; nothing is read twice but what was not saved.
        for _ in range(6):
            task = Task(world, saved=saved, chunk_rows=10, threads=2)
            task.request(str(table))
            await task.run(chunks=3)
            saved = task.offsets or saved
            updates += task.updates
        read = sum(len(update.rows) for update in updates)
        assert read <= 250
        assert not Task(world, saved=saved).over() or read < 250
        # Three tasks continue.
        more: list[Any] = []
        for number in range(3):
            task = Task(world, shard=(number, 3), saved=saved, chunk_rows=40)
            task.request(str(table))
            await task.run()
            updates += task.updates
            more += task.offsets
        assert not (difference := unlike(folded(table, updates), await shown(world, table))), difference
        assert sum(len(update.rows) for update in updates) <= 250 + 130
        asked = {"id": "r", "state": "running", "origin": "rest", "tables": [str(table)]}
        (view,) = list_snapshots("shop", [asked], [*saved, *more])
        assert (view["state"], view["percent"]) == ("completed", 100.0)
        assert [table["state"] for table in view["tables"]] == ["completed"]
        # Whatever the number of tasks is then, it is done.
        task = Task(world, shard=(1, 2), saved=[*saved, *more])
        task.request(str(table))
        await task.run()
        assert not task.updates


async def test_pause_and_cancel_and_a_table_that_goes(world: World) -> None:
    async with world:
        table = await filled(world)
        task = Task(world, chunk_rows=10)
        task.request(str(table))
        await task.run(chunks=4)
        task.request(str(table), state="paused")
        assert task.reader.ready() is None
        task.save(task.reader.changes())
        assert [offset["state"] for _, offset in task.offsets] == ["paused"]
        task.request(str(table))
        await task.run()
        assert not (difference := unlike(folded(table, task.updates), await shown(world, table))), difference
        assert [offset["state"] for _, offset in task.offsets] == ["completed"]
        cancelled = Task(world, chunk_rows=10)
        cancelled.request(str(table))
        await cancelled.run(chunks=2)
        cancelled.request(str(table), state="cancelled")
        await cancelled.run()
        assert [offset["state"] for _, offset in cancelled.offsets] == ["cancelled"]
        gone = Task(world, chunk_rows=10, threads=1)
        gone.request(str(table))
        await gone.run(chunks=2)
        await world.execute(f"DROP TABLE {table}")
        await gone.run()
        assert [table["state"] for table in gone.reader.progress()[0]["tables"]] == ["vanished"]


class Faulty:
    """The real session, with queries that time out now and then and paging states that a node does not take."""

    def __init__(self, session: CqlSession) -> None:
        self._session = session
        self.pages = 0
        self.failed = self.refused = 0

    async def query(self, *arguments: Any, **options: Any) -> Any:
        return await self._session.query(*arguments, **options)

    async def page(self, *arguments: Any, **options: Any) -> Any:
        self.pages += 1
        if self.pages % 7 < 3:
            self.failed += 1
            raise Retriable("the node did not answer in time")
        if self.refused < 3 and options["state"] is not None:
            self.refused += 1
            raise Fatal("the server does not understand the request: Invalid value for the paging state")
        return await self._session.page(*arguments, **options)


async def test_failing_queries_are_asked_again(world: World) -> None:
    async with world:
        table = await filled(world)
        real = world.session
        faulty = Faulty(real)
        world.session = cast("CqlSession", faulty)
        try:
            task = Task(world, chunk_rows=20, retry_s=0.01)
        finally:
            world.session = real
        task.request(str(table))
        await task.run()
        assert faulty.failed > 5
        assert faulty.refused == 3
        assert not (difference := unlike(folded(table, task.updates), await shown(world, table))), difference
        (state,) = task.reader.progress()
        assert (state["state"], [table["error"] for table in state["tables"]]) == ("completed", [None])


class Refusing:
    """The real session, whose login is refused after some queries and pages."""

    def __init__(self, session: CqlSession, queries: int, pages: int) -> None:
        self._session = session
        self._left = {"query": queries, "page": pages}

    async def query(self, *arguments: Any, **options: Any) -> Any:
        self._count("query")
        return await self._session.query(*arguments, **options)

    async def page(self, *arguments: Any, **options: Any) -> Any:
        self._count("page")
        return await self._session.page(*arguments, **options)

    def _count(self, kind: str) -> None:
        self._left[kind] -= 1
        if self._left[kind] < 0:
            raise CqlLoginRefused("the cluster refuses the credentials")


async def test_a_refused_login_leaves_no_table_out(world: World) -> None:
    """A refused login is no fault of the table: the run ends, and the next one resumes where it was."""
    async with world:
        table = await filled(world)
        real = world.session
        updates: list[PartitionUpdate] = []
        saved: list[tuple[Position, Position]] = []
        for session in (Refusing(real, 0, 0), Refusing(real, 1000, 3), real):
            world.session = cast("CqlSession", session)
            try:
                task = Task(world, saved=saved, chunk_rows=20)
            finally:
                world.session = real
            task.request(str(table))
            if session is real:
                await task.run()
            else:
                with pytest.raises(CqlLoginRefused):
                    await task.run()
            updates += task.updates
            saved = task.offsets or saved
        assert not (difference := unlike(folded(table, updates), await shown(world, table))), difference
        (state,) = task.reader.progress()
        assert (state["state"], [table["state"] for table in state["tables"]]) == ("completed", ["done"])
