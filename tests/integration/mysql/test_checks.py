"""Validation against a real MariaDB: missing rights and wrong settings are reported with their fix."""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Fatal
from connectors.mysql.config.checks import check_server
from connectors.mysql.config.settings import CONFIG
from connectors.mysql.connector import MySqlConnector
from connectors.mysql.source.connection import connect_first, query_rows
from connectors.options import Password
from tests.support.settings import mysql_connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.conftest import HasMariaDb

SECRET = "Secret,1"


class Source:
    """A database with two tables, and an account that may do what a test gives it."""

    def __init__(self, server: HasMariaDb, connection: Any) -> None:
        self.server = server
        self.connection = connection
        self.name = f"checks_{secrets.token_hex(4)}"

    async def run(self, statement: str) -> None:
        """Run a statement; ``DB`` stands for the database, ``ACCOUNT`` for the account."""
        await query_rows(
            self.connection, re.sub(r"\bDB\b", self.name, statement).replace("ACCOUNT", f"'{self.name}'@'%'")
        )

    def config(self, **changes: str) -> Any:
        return CONFIG.parse(
            {
                "database.hostname": "127.0.0.1",
                "database.port": str(self.server.port),
                "database.user": self.name,
                "database.password": SECRET,
                "topic.prefix": "p",
                "database.include.list": self.name,
                **{name.replace("__", "."): value.replace("DB", self.name) for name, value in changes.items()},
            }
        )


@pytest.fixture
async def source(mariadb: HasMariaDb) -> AsyncIterator[Source]:
    connection = await connect_first(
        mysql_connection(
            host="127.0.0.1", port=mariadb.port or 0, user=mariadb.user, password=Password(mariadb.password)
        )
    )
    source = Source(mariadb, connection)
    await source.run("CREATE DATABASE DB")
    await source.run("CREATE TABLE DB.a (id INT PRIMARY KEY)")
    await source.run("CREATE TABLE DB.b (id INT PRIMARY KEY)")
    await source.run(f"CREATE USER ACCOUNT IDENTIFIED BY '{SECRET}'")
    yield source
    await source.run("DROP USER ACCOUNT")
    await source.run("DROP DATABASE DB")
    connection.close()


async def grant_all(source: Source) -> None:
    await source.run("GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO ACCOUNT")


async def test_tables_that_come_and_go_are_no_problem(source: Source) -> None:
    """A table that is dropped after the tables were listed is not one that the account may not read."""
    await grant_all(source)
    ended = False

    async def come_and_go() -> None:
        while not ended:
            await source.run("CREATE TABLE DB.c (id INT PRIMARY KEY)")
            await source.run("DROP TABLE DB.c")

    busy = asyncio.create_task(come_and_go())
    try:
        for _ in range(20):
            assert (await check_server(source.config())).errors == []
    finally:
        ended = True
        await busy


async def test_the_documented_grants_are_enough(source: Source) -> None:
    await grant_all(source)
    findings = await check_server(source.config())
    assert (findings.errors, findings.warnings) == ([], [])
    assert await MySqlConnector.validate(source.config()) == []


async def test_what_an_account_lacks_is_named_with_its_grant(source: Source) -> None:
    """Each statement that an error names fixes it, one after the other."""
    findings = await check_server(source.config())
    assert [problem.name for problem in findings.errors] == ["database.user", "database.user"]
    assert [problem.name for problem in findings.warnings] == ["database.include.list"]
    said = [*findings.errors, *findings.warnings]
    for complaint, right in zip(said, ("REPLICATION SLAVE", "BINLOG MONITOR", "SELECT"), strict=True):
        statement = f"GRANT {right} ON *.* TO '{source.name}'@'%'"
        assert statement in complaint.message
        await source.run(statement)
    findings = await check_server(source.config())
    assert (findings.errors, findings.warnings) == ([], [])


async def test_a_table_that_can_be_seen_but_not_read(source: Source) -> None:
    await source.run("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO ACCOUNT")
    await source.run("GRANT SELECT ON DB.a TO ACCOUNT")
    await source.run("GRANT INSERT ON DB.b TO ACCOUNT")
    findings = await check_server(source.config())
    assert [problem.name for problem in findings.errors] == ["database.include.list"]
    assert f"GRANT SELECT ON `{source.name}`.`b`" in findings.errors[0].message
    findings = await check_server(source.config(snapshot__mode="no_data"))
    assert findings.errors == []
    assert [problem.name for problem in findings.warnings] == ["database.include.list"]


async def test_signal_and_heartbeat_tables(source: Source) -> None:
    await grant_all(source)
    asked = {"signal__data__collection": "DB.signals", "heartbeat__table": "DB.beat"}
    findings = await check_server(source.config(**asked, heartbeat__table__create="false"))
    assert findings.errors == []
    assert [problem.name for problem in findings.warnings] == ["signal.data.collection", "heartbeat.table"]
    create = findings.warnings[0].message.partition("CREATE TABLE")
    await source.run("".join(create[1:]))
    for statement in findings.warnings[1].message.partition(": ")[2].split("; "):
        await source.run(statement)
    findings = await check_server(source.config(**asked, heartbeat__table__create="false"))
    assert (findings.errors, findings.warnings) == ([], [])
    await source.run("ALTER TABLE DB.signals ADD more INT")
    await source.run("REVOKE UPDATE ON DB.beat FROM ACCOUNT")
    findings = await check_server(source.config(**asked))
    assert [problem.name for problem in findings.warnings] == ["signal.data.collection", "heartbeat.table"]
    assert "three columns" in findings.warnings[0].message


async def test_columns_that_divide_tables_without_a_key(source: Source) -> None:
    await grant_all(source)
    await source.run("CREATE TABLE DB.k (at DATETIME, t VARCHAR(9))")
    for columns, threads, errors, warnings in (
        ("DB.k:at", "2", [], []),
        ("DB.k:at", "1", [], ["raise snapshot.max.threads"]),
        ("DB.none:at", "2", [], ["names no table"]),
        ("DB.k:no", "2", ["has no column no; name one of at, t"], []),
        ("DB.k:t;DB.a:id", "2", ["is of the type varchar"], ["a has a key and is divided by that"]),
    ):
        findings = await check_server(
            source.config(snapshot__split__columns=columns.replace("DB", source.name), snapshot__max__threads=threads)
        )
        for expected, problems in ((errors, findings.errors), (warnings, findings.warnings)):
            assert [problem.name for problem in problems] == ["snapshot.split.columns"] * len(expected)
            assert all(words in problem.message for words, problem in zip(expected, problems, strict=True))


async def test_too_many_tables(source: Source) -> None:
    await grant_all(source)
    findings = await check_server(source.config(guardrail__collections__max="1"))
    assert [problem.name for problem in findings.warnings] == ["guardrail.collections.max"]
    findings = await check_server(
        source.config(guardrail__collections__max="1", guardrail__collections__limit__action="fail")
    )
    assert [problem.name for problem in findings.errors] == ["guardrail.collections.max"]
    findings = await check_server(source.config(guardrail__collections__max="2"))
    assert (findings.errors, findings.warnings) == ([], [])


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"database__password": "wrong"}, "database.password"),
        ({"database__hostname": "127.0.0.1:1"}, "database.hostname"),
        ({"database__ssl__mode": "required"}, "database.ssl.mode"),
        ({"snapshot__hostname": "127.0.0.1:1"}, "snapshot.hostname"),
    ],
)
async def test_servers_that_refuse(source: Source, changes: dict[str, str], name: str) -> None:
    await grant_all(source)
    problems = await MySqlConnector.validate(source.config(**changes))
    assert [problem.name for problem in problems] == [name]
    assert SECRET not in problems[0].message


async def test_the_servers_own_number(source: Source) -> None:
    await grant_all(source)
    server_id = int((await query_rows(source.connection, "SELECT @@server_id"))[0][0])
    findings = await check_server(source.config(database__server__id=str(server_id)))
    assert [problem.name for problem in findings.errors] == ["database.server.id"]


async def test_lag_and_alter_offsets_of_a_live_source(source: Source) -> None:
    await grant_all(source)
    config = source.config()
    rows = await query_rows(source.connection, "SHOW MASTER STATUS")
    file, pos = str(rows[0][0]), int(rows[0][1])
    await source.run("INSERT INTO DB.a VALUES (1), (2)")
    lag = await MySqlConnector.lag(config, [({"server": "p"}, {"file": file, "pos": pos, "ts_sec": 1})])
    assert lag["bytes_behind"] > 0
    assert lag["time_behind_s"] > 0
    assert lag["position"] == {"file": file, "pos": pos, "gtids": None}
    assert lag["source_position"]["gtids"]
    nothing = await MySqlConnector.lag(config, [])
    assert (nothing["bytes_behind"], nothing["position"], nothing["heartbeat"]) == (None, None, None)
    purged = await MySqlConnector.lag(config, [({"server": "p"}, {"file": "gone.000001", "pos": 4})])
    assert purged["bytes_behind"] is None
    with pytest.raises(Fatal):
        await source.run("SELECT nonsense FROM DB.a")
