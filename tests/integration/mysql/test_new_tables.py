"""Tables that a task captures later than others: which of them are read, each exactly once, on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from compose.local.databases.server_pair import execute_sql
from connectors.mysql.connector import MySqlConnector
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connectors.api import SourceRecord
    from tests.conftest import HasMariaDb

PATIENCE = 30
Change = tuple[str, str, int]


class Source:
    """Two databases on the server of all tests: ``name`` is captured, ``name_x`` is not."""

    def __init__(self, server: HasMariaDb, name: str) -> None:
        self.server, self.name = server, name

    def run(self, *statements: str) -> None:
        execute_sql(self.server, *(statement.replace("{db}", self.name) for statement in statements))

    def config(self, tables: str = ".*", **more: str) -> dict[str, str]:
        return {
            "connector.class": "mysql",
            "topic.prefix": self.name,
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "include.schema.changes": "false",
            "poll.interval.ms": "20",
            "database.include.list": self.name,
            "table.include.list": rf"{self.name}\.({tables})",
            "snapshot.chunk.rows": "10",
            **more,
        }


@pytest.fixture
def source(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(server, f"late_{unique('x')[-8:]}")
    source.run(
        "CREATE DATABASE {db}",
        "CREATE DATABASE {db}_x",
        "CREATE TABLE {db}.a (id INT PRIMARY KEY, v INT)",
        "INSERT INTO {db}.a VALUES (1, 1), (2, 2)",
    )
    yield source
    source.run("DROP DATABASE {db}", "DROP DATABASE {db}_x")


def rows(table: str, count: int) -> str:
    """The statement that makes rows with the keys 1 to ``count``."""
    return f"INSERT INTO {{db}}.{table} VALUES " + ", ".join(f"({key}, 0)" for key in range(1, count + 1))


def changes(records: list[SourceRecord]) -> list[Change]:
    return [
        (record.value["op"], record.value["source"]["table"], record.value["after"]["id"])
        for record in records
        if record.value is not None and record.value.get("after")
    ]


async def until(
    run: Run, condition: Callable[[list[Change]], object], seen: list[Change] | None = None
) -> list[Change]:
    """Changes until they are what is waited for."""
    seen = [] if seen is None else seen
    end = asyncio.get_running_loop().time() + PATIENCE
    while not condition(seen):
        batch = await run.take(end - asyncio.get_running_loop().time())
        assert batch is not None, f"{seen}\n{run.log.text()}"
        seen += changes(batch[1].records)
    return seen


def snapshots(run: Run) -> dict[str, tuple[str, str, int]]:
    """State, origin and rows of each snapshot, as REST shows them."""
    return {
        snapshot["id"]: (snapshot["state"], snapshot["origin"], snapshot["rows_done"])
        for snapshot in MySqlConnector.snapshots(run.context.config, [], run.offsets.items())
    }


@pytest.mark.parametrize("tasks", [1, 2])
async def test_a_longer_list_reads_the_new_tables_once_beside_the_stream(source: Source, tasks: int) -> None:
    source.run(
        "CREATE TABLE {db}.b (id INT PRIMARY KEY, v INT)",
        rows("b", 35),
        "CREATE TABLE {db}.no_key (id INT, v INT)",
        "INSERT INTO {db}.no_key VALUES (1, 1), (2, 2)",
    )
    saved = SavedOffsets()
    async with Run(MySqlConnector, source.config("a"), offsets=saved, max_tasks=tasks) as run:
        assert sorted(await until(run, lambda seen: len(seen) == 2)) == [("r", "a", 1), ("r", "a", 2)]
        await until(run, lambda _seen: snapshots(run).get("initial", ("",))[0] == "completed")
    # While the connector is stopped: the table without a key must not get this row twice.
    source.run("INSERT INTO {db}.no_key VALUES (3, 3)", "INSERT INTO {db}.b VALUES (99, 9)")
    longer = source.config("a|b|no_key")
    names = {f"new-{source.name}.{table}" for table in ("b", "no_key")}

    def read(run: Run) -> bool:
        return all(snapshots(run).get(name, ("",))[0] == "completed" for name in names)

    async with Run(MySqlConnector, longer, offsets=saved, max_tasks=tasks) as run:
        seen = await until(run, lambda _seen: read(run))
        source.run("INSERT INTO {db}.b VALUES (100, 1)", "INSERT INTO {db}.no_key VALUES (4, 4)")
        await until(run, lambda seen: {("b", 100), ("no_key", 4)} <= {change[1:] for change in seen}, seen)
        assert {snapshots(run)[name][1] for name in names} == {"new"}
        assert [change for change in seen if change[1] == "a"] == []
        # With several tasks one of them may read the last rows still; each row comes once all the same.
        assert sorted(row for _, table, row in seen if table == "no_key") == [1, 2, 3, 4]
        assert sorted({row for op, table, row in seen if (op, table) == ("r", "b")} - {100}) == [*range(1, 36), 99]
    for number in (tasks, 3 - tasks):  # a restart, and another division into tasks
        async with Run(MySqlConnector, longer, offsets=saved, max_tasks=number) as run:
            source.run(f"INSERT INTO {{db}}.b VALUES ({200 + number}, 1)")
            seen = await until(run, lambda seen, row=200 + number: ("c", "b", row) in seen)  # type: ignore[misc]
            assert [change for change in seen if change[0] == "r"] == []


async def test_a_created_table_is_not_read_and_a_renamed_one_is(source: Source) -> None:
    source.run(
        "CREATE TABLE {db}_x.hidden (id INT PRIMARY KEY, v INT)", "INSERT INTO {db}_x.hidden VALUES (1, 1), (2, 2)"
    )
    saved = SavedOffsets()
    async with Run(MySqlConnector, source.config(), offsets=saved) as run:
        await until(run, lambda _seen: snapshots(run).get("initial", ("",))[0] == "completed")
        source.run(
            "CREATE TABLE IF NOT EXISTS {db}.made (id INT PRIMARY KEY, v INT)",
            "INSERT INTO {db}.made VALUES (1, 1)",
            "RENAME TABLE {db}_x.hidden TO {db}.shown",
            "INSERT INTO {db}.shown VALUES (3, 3)",
        )
        name = f"new-{source.name}.shown"
        seen = await until(run, lambda _seen: snapshots(run).get(name, ("",))[0] == "completed")
        await until(run, lambda seen: ("c", "shown", 3) in seen, seen)
        assert [change for change in seen if change[1] == "made"] == [("c", "made", 1)]
        assert sorted({row for op, table, row in seen if table == "shown"}) == [1, 2, 3]
        assert {("r", "shown", 1), ("r", "shown", 2)} <= set(seen)
        assert list(snapshots(run)) == ["initial", name]
    # Made while the connector is stopped: its rows are in the binlog. A table of that name was gone before.
    source.run(
        "CREATE TABLE {db}.later (id INT PRIMARY KEY, v INT)",
        "INSERT INTO {db}.later VALUES (1, 1)",
        "DROP TABLE {db}.shown",
        "CREATE TABLE {db}_x.hidden (id INT PRIMARY KEY, v INT)",
        "INSERT INTO {db}_x.hidden VALUES (7, 7)",
        "RENAME TABLE {db}_x.hidden TO {db}.shown",
    )
    async with Run(MySqlConnector, source.config(), offsets=saved) as run:
        seen = await until(run, lambda _seen: snapshots(run).get(f"{name}~2", ("",))[0] == "completed")
        source.run("INSERT INTO {db}.later VALUES (2, 2)")
        await until(run, lambda seen: ("c", "later", 2) in seen, seen)
        assert [change for change in seen if change[1] == "later"] == [("c", "later", 1), ("c", "later", 2)]
        assert [change for change in seen if change[1] == "shown"] == [("r", "shown", 7)]


async def test_a_name_that_two_tables_needed_to_exchange_theirs_is_new_later(source: Source) -> None:
    source.run(
        "CREATE TABLE {db}.b (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE {db}_x.hidden (id INT PRIMARY KEY, v INT)",
        "INSERT INTO {db}_x.hidden VALUES (7, 7)",
    )
    async with Run(MySqlConnector, source.config()) as run:
        await until(run, lambda _seen: snapshots(run).get("initial", ("",))[0] == "completed")
        source.run(
            "RENAME TABLE {db}.a TO {db}.swap, {db}.b TO {db}.a, {db}.swap TO {db}.b",
            "INSERT INTO {db}.a VALUES (5, 5)",
        )
        await until(run, lambda seen: ("c", "a", 5) in seen)
        source.run("RENAME TABLE {db}_x.hidden TO {db}.swap", "INSERT INTO {db}.a VALUES (6, 6)")
        await until(run, lambda seen: {("c", "a", 6), ("r", "swap", 7)} <= set(seen))


async def test_a_rename_of_a_table_that_is_not_there_makes_no_name_known(
    mariadb: HasMariaDb, unique: Callable[[str], str]
) -> None:
    source = Source(mariadb, f"late_{unique('x')[-8:]}")
    source.run("CREATE DATABASE {db}", "CREATE TABLE {db}.a (id INT PRIMARY KEY, v INT)")
    source.run("CREATE DATABASE {db}_x", "CREATE TABLE {db}_x.hidden (id INT PRIMARY KEY, v INT)")
    source.run("INSERT INTO {db}_x.hidden VALUES (7, 7)")
    try:
        async with Run(MySqlConnector, source.config()) as run:
            await until(run, lambda _seen: snapshots(run).get("initial", ("",))[0] == "completed")
            source.run("RENAME TABLE IF EXISTS {db}_x.missing TO {db}.b", "INSERT INTO {db}.a VALUES (5, 5)")
            await until(run, lambda seen: ("c", "a", 5) in seen)
            source.run("RENAME TABLE {db}_x.hidden TO {db}.b")
            await until(run, lambda seen: ("r", "b", 7) in seen)
    finally:
        source.run("DROP DATABASE {db}", "DROP DATABASE {db}_x")


async def test_a_partition_that_becomes_a_table_is_read(mariadb: HasMariaDb, unique: Callable[[str], str]) -> None:
    source = Source(mariadb, f"late_{unique('x')[-8:]}")
    source.run(
        "CREATE DATABASE {db}",
        "CREATE TABLE {db}.a (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) "
        "(PARTITION low VALUES LESS THAN (10), PARTITION high VALUES LESS THAN (20))",
        "INSERT INTO {db}.a VALUES (1, 1), (11, 11), (12, 12)",
    )
    try:
        async with Run(MySqlConnector, source.config()) as run:
            await until(run, lambda _seen: snapshots(run).get("initial", ("",))[0] == "completed")
            for number in ("", "~2"):
                source.run(
                    "ALTER TABLE {db}.a CONVERT PARTITION high TO TABLE {db}.b",
                    "UPDATE {db}.b SET v = v + 1 WHERE id = 11",
                )
                name = f"new-{source.name}.b{number}"
                seen = await until(run, lambda _seen, name=name: snapshots(run).get(name, ("",))[0] == "completed")  # type: ignore[misc]
                source.run(
                    "ALTER TABLE {db}.a CONVERT TABLE {db}.b TO PARTITION high VALUES LESS THAN (20)",
                    "INSERT INTO {db}.a VALUES (3, 3)",
                    "DELETE FROM {db}.a WHERE id = 3",
                )
                await until(run, lambda seen: ("c", "a", 3) in seen, seen)
                assert {row for _, table, row in seen if table == "b"} == {11, 12}
    finally:
        source.run("DROP DATABASE {db}")


async def test_an_alter_in_two_phases_is_one_change(mariadb: HasMariaDb, unique: Callable[[str], str]) -> None:
    source = Source(mariadb, f"late_{unique('x')[-8:]}")
    source.run("CREATE DATABASE {db}", "CREATE TABLE {db}.a (id INT PRIMARY KEY, v INT)")
    try:
        async with Run(MySqlConnector, source.config(**{"include.schema.changes": "true"})) as run:
            await until(run, lambda _seen: snapshots(run).get("initial", ("",))[0] == "completed")
            source.run(
                "SET SESSION binlog_alter_two_phase=ON",
                "ALTER TABLE {db}.a ADD COLUMN w INT",
                "INSERT INTO {db}.a VALUES (1, 7, 7), (2, 7, 7)",
            )
            with pytest.raises(StackError, match="Duplicate entry"):
                source.run("SET SESSION binlog_alter_two_phase=ON", "ALTER TABLE {db}.a ADD UNIQUE KEY (v)")
            source.run("INSERT INTO {db}.a VALUES (3, 8, 8)")
            statements = []
            while (batch := await run.take(PATIENCE)) is not None:
                values = [record.value for record in batch[1].records if record.value is not None]
                statements += [value["ddl"] for value in values if value.get("ddl")]
                if any((value.get("after") or {}).get("id") == 3 for value in values):
                    break
            assert statements == [f"ALTER TABLE {source.name}.a ADD COLUMN w INT"]
    finally:
        source.run("DROP DATABASE {db}")


async def test_a_snapshot_of_a_new_table_resumes_where_it_was_stopped(source: Source) -> None:
    source.run("CREATE TABLE {db}.b (id INT PRIMARY KEY, v INT)", rows("b", 100))
    saved = SavedOffsets()
    async with Run(MySqlConnector, source.config("a"), offsets=saved) as run:
        await until(run, lambda _seen: snapshots(run).get("initial", ("",))[0] == "completed")
    seen: list[Change] = []
    async with Run(MySqlConnector, source.config("a|b"), offsets=saved) as run:
        await until(run, lambda seen: len(seen) >= 20, seen)
    assert len(seen) < 100
    async with Run(MySqlConnector, source.config("a|b"), offsets=saved) as run:
        await until(run, lambda seen: len(seen) >= 100, seen)
    assert sorted(seen) == [("r", "b", row) for row in range(1, 101)]


@pytest.mark.parametrize(
    "more", [{"snapshot.mode": "no_data"}, {"snapshot.new.tables": "false"}], ids=["no_data", "off"]
)
async def test_no_table_is_read_where_the_options_say_so(source: Source, more: dict[str, str]) -> None:
    source.run("CREATE TABLE {db}.b (id INT PRIMARY KEY, v INT)", "INSERT INTO {db}.b VALUES (1, 1)")
    saved = SavedOffsets()
    async with Run(MySqlConnector, source.config("a", **more), offsets=saved) as run:
        assert await run.take(PATIENCE) is not None
        source.run("INSERT INTO {db}.a VALUES (3, 3)")
        await until(run, lambda seen: ("c", "a", 3) in seen)
    async with Run(MySqlConnector, source.config("a|b", **more), offsets=saved) as run:
        source.run("INSERT INTO {db}.b VALUES (2, 2)")
        assert await until(run, lambda seen: ("c", "b", 2) in seen) == [("c", "b", 2)]
        assert [name for name in snapshots(run) if name.startswith("new-")] == []


@pytest.mark.parametrize(
    ("mode", "statement"),
    [
        ("NO_BACKSLASH_ESCAPES", "ALTER TABLE a COMMENT 'x\\', RENAME TO b, COMMENT ''"),
        ("ANSI_QUOTES", 'ALTER TABLE a CHANGE v "w\\" INT, RENAME TO "b", COMMENT \'"\''),
        ("", "ALTER TABLE a COMMENT \"x\\\", RENAME TO c, \", RENAME TO b, COMMENT 'it\\'s'"),
        ("", "ALTER TABLE a " + "COMMENT '', " * 700 + "RENAME TO b"),
    ],
)
async def test_a_rename_is_seen_wherever_it_is(source: Source, mode: str, statement: str) -> None:
    """A string that seems to end later would hide the new name, and the table would not be read."""
    async with Run(MySqlConnector, source.config("b|end")) as run:
        assert await run.take(PATIENCE) is not None
        source.run("USE {db}", f"SET sql_mode = '{mode}'", statement, "INSERT INTO b VALUES (3, 3)")
        await until(run, lambda seen: {("r", "b", 1), ("r", "b", 2), ("c", "b", 3)} <= set(seen))
