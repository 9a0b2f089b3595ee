"""Sharded tables on a real server: rows of all shards, also with equal keys, reach one topic with their numbers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.databases.server_pair import execute_sql
from connectors.formats import ums
from connectors.mysql.config.checks import check_server
from connectors.mysql.config.settings import CONFIG
from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connectors.api import SourceRecord
    from tests.conftest import HasMariaDb

PATIENCE = 30
#: Partition numbers of the tables.
SHARDS = [(1, 1), (1, 2), (2, 1), (2, 2)]


class Source:
    """Two databases with two shards each. All shards have a row with the same key."""

    def __init__(self, server: HasMariaDb, name: str) -> None:
        self.server, self.name = server, name
        for database in (1, 2):
            self.run(f"CREATE DATABASE {name}_{database}")
        for database, table in SHARDS:
            self.run(
                f"CREATE TABLE {name}_{database}.orders_{table} (id INT PRIMARY KEY, v VARCHAR(10))",
                f"INSERT INTO {name}_{database}.orders_{table} VALUES (1, 'old')",
            )

    def run(self, *statements: str) -> None:
        execute_sql(self.server, *statements)

    def config(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "mysql",
            "topic.prefix": self.name,
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.include.list": rf"{self.name}_\d",
            "include.schema.changes": "false",
            "table.version.topic": "none",
            "poll.interval.ms": "20",
            "logical.tables": rf"{self.name}_(\d+)\.orders_(\d+):shop.orders",
            **more,
        }


@pytest.fixture
def source(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(server, f"part_{unique('x')[-8:]}")
    yield source
    source.run(*(f"DROP DATABASE {source.name}_{database}" for database in (1, 2)))


async def until(run: Run, records: list[SourceRecord], condition: Callable[[], bool]) -> None:
    """Take records until they are what is waited for."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while not condition():
        batch = await run.take(end - asyncio.get_running_loop().time())
        assert batch is not None, f"{records}\n{run.log.text()}"
        records += [record for record in batch[1].records if record.value is not None]


async def test_debezium_events_of_all_shards(source: Source) -> None:
    records: list[SourceRecord] = []

    def list_changes() -> list[tuple[Any, ...]]:
        rows = []
        for record in records:
            block = record.value["source"]
            rows.append(
                (
                    record.value["op"],
                    block["database_partition"],
                    block["table_partition"],
                    block["db"],
                    block["table"],
                    record.key["id"],
                    record.key["__dbz__physicalTableIdentifier"],
                    record.value["after"]["v"],
                )
            )
        return sorted(rows)

    def expected(op: str, text: str) -> list[tuple[Any, ...]]:
        return [
            (
                op,
                database,
                table,
                f"{source.name}_{database}",
                f"orders_{table}",
                1,
                f"{source.name}.{source.name}_{database}.orders_{table}",
                text,
            )
            for database, table in SHARDS
        ]

    async with Run(MySqlConnector, source.config()) as run:
        await until(run, records, lambda: len(records) >= len(SHARDS))
        assert list_changes() == expected("r", "old")
        source.run(*(f"UPDATE {source.name}_{database}.orders_{table} SET v = 'new'" for database, table in SHARDS))
        await until(run, records, lambda: len(records) >= 2 * len(SHARDS))
        assert list_changes() == expected("r", "old") + expected("u", "new")
    assert {record.topic for record in records} == {f"{source.name}.shop.orders"}


async def test_ums_messages_of_all_shards(source: Source) -> None:
    records: list[SourceRecord] = []

    def messages() -> list[SourceRecord]:
        """The messages, without the heartbeat of the whole source."""
        return [record for record in records if "protocol" in record.value]

    def spaces(kind: str) -> set[tuple[str, str, int, int]]:
        """Logical names and numbers of the messages of a type."""
        names = set()
        for record in messages():
            space = ums.Namespace.parse(record.value["schema"]["namespace"])
            assert record.key == f"{record.value['protocol']['type']}.{space.text}"
            if record.value["protocol"]["type"] == kind:
                names.add(
                    (
                        f"{space.database}.{space.table}",
                        space.version,
                        int(space.database_partition),
                        int(space.table_partition),
                    )
                )
        return names

    every = {("shop.orders", "1", *shard) for shard in SHARDS}
    config = source.config(**{"output.format": "ums", "heartbeat.interval.ms": "20"})
    async with Run(MySqlConnector, config) as run:
        await until(run, records, lambda: spaces(ums.BATCH_TERMINATION) == every)
        assert spaces(ums.INITIAL) == every
        source.run(*(f"UPDATE {source.name}_{database}.orders_{table} SET v = 'new'" for database, table in SHARDS))
        await until(run, records, lambda: spaces(ums.INCREMENT) == spaces(ums.INCREMENT_HEARTBEAT) == every)
        # A change of structure that has reached one shard ends the version of that shard only.
        table = f"{source.name}_2.orders_1"
        source.run(f"ALTER TABLE {table} ADD w INT", f"INSERT INTO {table} VALUES (2, 'more', 2)")
        await until(run, records, lambda: ("shop.orders", "2", 2, 1) in spaces(ums.INCREMENT))
        await until(run, records, lambda: bool(spaces(ums.INCREMENT_TERMINATION)))
        assert spaces(ums.INCREMENT_TERMINATION) == {("shop.orders", "1", 2, 1)}
    assert {record.topic for record in messages()} == {f"{source.name}.shop.orders"}


async def test_validation_names_shards_that_do_not_fit(source: Source) -> None:
    async def complaints(**more: str) -> list[str]:
        findings = await check_server(CONFIG.parse(source.config(**more)))
        return [
            f"{kind}: {problem.message}"
            for kind, several in (("error", findings.errors), ("warning", findings.warnings))
            for problem in several
            if problem.name in ("logical.tables", "topic.key.enforce.uniqueness")
        ]

    name = source.name
    assert await complaints() == []
    (nothing,) = await complaints(**{"logical.tables": r"nowhere\.x:shop.orders"})
    assert r"warning: logical.tables: nowhere\.x matches no captured table yet" in nothing
    (same,) = await complaints(**{"logical.tables": rf"{name}_\d\.orders_(\d+):shop.orders"})
    assert f"error: logical.tables: {name}_1.orders_1 and {name}_2.orders_1 would both be shop.orders" in same
    (twice,) = await complaints(**{"logical.tables": rf"{name}_1\..*:shop.orders;{name}_(\d)\.orders_(\d):shop.orders"})
    assert f"error: logical.tables: the table {name}_1.orders_1 is matched by" in twice
    (unsafe,) = await complaints(**{"topic.key.enforce.uniqueness": "false"})
    assert "warning: topic.key.enforce.uniqueness=false" in unsafe
    source.run(f"ALTER TABLE {name}_2.orders_2 ADD w INT")
    (missing,) = await complaints()
    assert missing.startswith("warning: logical.tables:")
    assert f"has no column w, which {name}_2.orders_2 has" in missing
    source.run(f"ALTER TABLE {name}_2.orders_2 DROP w, MODIFY v VARCHAR(20)")
    (kind,) = await complaints()
    assert (
        f"error: logical.tables: the column v of shop.orders is varchar(10) in {name}_1.orders_1 and varchar(20)"
        in kind
    )
    source.run(
        f"ALTER TABLE {name}_2.orders_2 MODIFY v VARCHAR(10) NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)"
    )
    (key,) = await complaints()
    assert f"{name}_2.orders_2 are partitions of shop.orders with different keys: (id) and (id, v)" in key
