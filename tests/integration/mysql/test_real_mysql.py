"""Features that only a real MySQL has, through a task: partial JSON updates, compressed transactions. In the slow suite."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from connectors.mysql.connector import MySqlConnector
from connectors.mysql.position import begin
from connectors.mysql.source.server import SourceServer
from connectors.testing.driver import Run
from tests.support.eventually import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compose.local.databases.mysql_debian import MySqlServer
    from connectors.api import SourceRecord

PATIENCE = 30


@contextmanager
def statements_on(mysql: MySqlServer) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """A function that runs statements on one connection, and gives the rows of the last one."""
    with (
        closing(
            pymysql.connect(
                host="127.0.0.1", port=int(mysql.port or 0), user=mysql.user, password=mysql.password, autocommit=True
            )
        ) as connection,
        connection.cursor() as cursor,
    ):

        def run_all(*statements: str) -> list[tuple[Any, ...]]:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

        yield run_all


def source_of(mysql: MySqlServer, name: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "mysql",
        "topic.prefix": name,
        "database.hostname": "127.0.0.1",
        "database.port": str(mysql.port),
        "database.user": mysql.user,
        "database.password": mysql.password,
        "database.include.list": name,
        "include.schema.changes": "false",
        "poll.interval.ms": "20",
        **more,
    }


@pytest.mark.parametrize("compression", ["OFF", "ON"])
async def test_partial_updates_of_documents_give_whole_rows(
    mysql: MySqlServer, unique: Callable[[str], str], compression: str
) -> None:
    name = f"json_{unique('x')[-8:]}"
    with statements_on(mysql) as run_all:
        run_all(
            f"CREATE DATABASE {name}",
            f"USE {name}",
            "CREATE TABLE d (id INT PRIMARY KEY, j JSON, n INT)",
            "INSERT INTO d VALUES (1, JSON_OBJECT('a', JSON_ARRAY(1, 2, 3), 'b', REPEAT('x', 2000)), 0)",
            "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
            f"SET SESSION binlog_transaction_compression = {compression}",
        )
        try:
            async with Run(MySqlConnector, source_of(mysql, name)) as run:
                values: list[dict[str, Any]] = []

                async def until(count: int) -> None:
                    end = asyncio.get_running_loop().time() + PATIENCE
                    while len(values) < count:
                        batch = await run.take(end - asyncio.get_running_loop().time())
                        assert batch is not None, run.log.text()
                        assert not batch[1].bad
                        values.extend(record.value for record in batch[1].records if record.value is not None)

                await until(1)
                assert values[0]["op"] == "r"
                run_all(
                    "BEGIN",
                    "UPDATE d SET j = JSON_SET(j, '$.a[1]', 'new') WHERE id = 1",
                    "UPDATE d SET j = JSON_REMOVE(j, '$.a[0]'), n = n + 1 WHERE id = 1",
                    "UPDATE d SET j = JSON_SET(j, '$.c', CAST('{\"deep\": [null]}' AS JSON)) WHERE id = 1",
                    "UPDATE d SET j = JSON_REMOVE(JSON_SET(j, '$.a[last-1]', 'second'), '$.a[last]') WHERE id = 1",
                    "COMMIT",
                )
                await until(5)
                assert [value["op"] for value in values[1:]] == ["u"] * 4
                ((stored, number),) = run_all("SELECT j, n FROM d")
                assert json.loads(values[-1]["after"]["j"]) == json.loads(stored)
                assert values[-1]["after"]["n"] == number == 1
                for before, after in itertools.pairwise(values):
                    assert after["before"] == before["after"]
        finally:
            run_all(f"DROP DATABASE {name}")


async def test_a_stream_from_the_oldest_binlog_knows_the_executed_transactions(
    mysql: MySqlServer, unique: Callable[[str], str]
) -> None:
    name = f"old_{unique('x')[-8:]}"
    with statements_on(mysql) as run_all:
        ((executed,),) = run_all(
            f"CREATE DATABASE {name}",
            f"CREATE TABLE {name}.t (id INT PRIMARY KEY)",
            "FLUSH BINARY LOGS",
            f"INSERT INTO {name}.t VALUES (1)",
            "SELECT @@GLOBAL.gtid_executed",
        )
        try:
            async with Run(MySqlConnector, source_of(mysql, name, **{"snapshot.mode": "never"})) as run:
                end = asyncio.get_running_loop().time() + PATIENCE
                while (run.offsets.get({"server": name}) or {}).get("gtids") != "".join(executed.split()):
                    batch = await run.take(end - asyncio.get_running_loop().time())
                    assert batch is not None, f"{run.offsets.items()} {executed}\n{run.log.text()}"
        finally:
            run_all(f"DROP DATABASE {name}")


async def test_cascades_of_foreign_keys_are_changes(mysql: MySqlServer, unique: Callable[[str], str]) -> None:
    name = f"keys_{unique('x')[-8:]}"
    with statements_on(mysql) as run_all:
        run_all(
            f"CREATE DATABASE {name}",
            f"USE {name}",
            "CREATE TABLE p (id INT PRIMARY KEY)",
            "CREATE TABLE k (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE "
            "ON UPDATE SET NULL)",
            "INSERT INTO p VALUES (1), (2)",
            "INSERT INTO k VALUES (1, 1), (2, 2)",
        )
        try:
            async with Run(MySqlConnector, source_of(mysql, name, **{"snapshot.mode": "no_data"})) as run:
                assert await run.take(PATIENCE) is not None
                run_all("DELETE FROM p WHERE id = 2", "UPDATE p SET id = 3")
                changes: list[tuple[str, str, Any]] = []
                while ("c", "p", {"id": 3}) not in changes:
                    batch = await run.take(PATIENCE)
                    assert batch is not None, f"{changes}\n{run.log.text()}"
                    changes += [
                        (record.value["op"], record.value["source"]["table"], record.value["after"])
                        for record in batch[1].records
                        if record.value is not None
                    ]
            assert changes[:3] == [("d", "k", None), ("d", "p", None), ("u", "k", {"id": 1, "p": None})]
        finally:
            run_all(f"DROP DATABASE {name}")


async def test_a_key_that_the_server_makes_and_hides_is_that_of_snapshots(
    mysql: MySqlServer, unique: Callable[[str], str]
) -> None:
    name = f"gipk_{unique('x')[-8:]}"
    with statements_on(mysql) as run_all:
        run_all(
            f"CREATE DATABASE {name}",
            f"USE {name}",
            "SET SESSION sql_generate_invisible_primary_key = ON",
            "CREATE TABLE t (v INT)",
            "INSERT INTO t VALUES (1)",
            "SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF",
        )
        try:
            async with Run(MySqlConnector, source_of(mysql, name)) as run:
                records: list[SourceRecord] = []
                while len(records) < 2:
                    batch = await run.take(PATIENCE)
                    assert batch is not None, run.log.text()
                    records += batch[1].records
                    if len(records) == 1:
                        run_all("UPDATE t SET v = 2")
            assert [(record.key, record.value["op"]) for record in records] == [
                ({"my_row_id": 1}, "r"),
                ({"my_row_id": 1}, "u"),
            ]
            assert records[0].value["after"] == records[1].value["before"] == {"my_row_id": 1, "v": 1}
            assert records[0].value_schema == records[1].value_schema
        finally:
            run_all(
                "SET GLOBAL show_gipk_in_create_table_and_information_schema = ON",
                f"DROP DATABASE {name}",
            )


async def test_a_restart_waits_for_commits_that_wait_for_a_replica(
    mysql: MySqlServer, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream has read them, and the server does not count them as executed: that is no server that was reset."""
    asked: list[bool] = []
    ask_server = SourceServer.has_waiting_commits

    async def ask_and_note(server: SourceServer) -> bool:
        asked.append(await ask_server(server))
        return asked[-1]

    monkeypatch.setattr(SourceServer, "has_waiting_commits", ask_and_note)
    monkeypatch.setattr(begin, "_EXECUTED_S", 0.5)
    name = f"semi_{unique('x')[-8:]}"
    with statements_on(mysql) as run_all, statements_on(mysql) as run_waiting:
        run_all(
            f"CREATE DATABASE {name}",
            f"CREATE TABLE {name}.t (id INT PRIMARY KEY)",
            "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
            "SET GLOBAL rpl_semi_sync_source_timeout = 1000000000",
        )
        config = source_of(mysql, name, **{"snapshot.mode": "no_data"})
        try:
            async with Run(MySqlConnector, config) as run:
                assert await run.take(PATIENCE) is not None
                run_all("SET GLOBAL rpl_semi_sync_source_enabled = ON")
                waiting = asyncio.create_task(asyncio.to_thread(run_waiting, f"INSERT INTO {name}.t VALUES (1)"))
                assert [record.key for record in await run.read(1)] == [{"id": 1}]
                saved = run.offsets
            async with Run(MySqlConnector, config, offsets=saved) as run:
                async with patience(PATIENCE):
                    while not asked:
                        assert await run.take(0.1) is None
                assert all(asked)
                run_all("SET GLOBAL rpl_semi_sync_source_enabled = OFF", f"INSERT INTO {name}.t VALUES (2)")
                await waiting
                assert [record.key for record in await run.read(1)] == [{"id": 2}]
        finally:
            run_all(
                "SET GLOBAL rpl_semi_sync_source_enabled = OFF",
                "UNINSTALL PLUGIN rpl_semi_sync_source",
                f"DROP DATABASE {name}",
            )
