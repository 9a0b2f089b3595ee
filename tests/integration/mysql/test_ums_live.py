"""UMS messages of a task on a real server: what the ends of snapshots and of structures say, and what heartbeats promise."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from compose.local.databases.server_pair import execute_sql
from connectors.api import SameAs
from connectors.formats import ums
from connectors.mysql.connector import MySqlConnector
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connectors.api import SourceRecord
    from tests.conftest import HasMariaDb

PATIENCE = 30


class Said(NamedTuple):
    """One message: its type, the table with its version, the batch, ids of rows (or the time of a message without rows)."""

    kind: str
    table: str
    batch: int
    rows: tuple[str, ...]


class Source:
    """A database of its own."""

    def __init__(self, server: HasMariaDb, name: str) -> None:
        self.server, self.name = server, name
        self.run(f"CREATE DATABASE {name}")

    def run(self, *statements: str) -> Any:
        """The first value of the last statement."""
        rows = execute_sql(self.server, *(statement.replace("{db}", self.name) for statement in statements))
        return rows[0][0] if rows else None

    def config(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "mysql",
            "topic.prefix": self.name,
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.include.list": self.name,
            "poll.interval.ms": "20",
            "include.schema.changes": "false",
            "output.format": "ums",
            "table.version.topic": "none",
            **more,
        }

    def said(self, records: list[SourceRecord]) -> list[Said]:
        """The messages of the tables."""
        messages = []
        for record in records:
            if not isinstance(record.value, dict) or "protocol" not in record.value:
                continue
            schema, kind = record.value["schema"], record.value["protocol"]["type"]
            space = ums.Namespace.parse(schema["namespace"])
            index = 4 if kind in ums.WITH_ROWS else 0
            messages.append(
                Said(
                    kind,
                    f"{space.table}.{space.version}",
                    schema["batchId"],
                    tuple(row["tuple"][index] for row in record.value["payload"]),
                )
            )
        return messages


@pytest.fixture
def source(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(server, f"ums_{unique('x')[-8:]}")
    yield source
    source.run("DROP DATABASE {db}")


async def until(
    source: Source, run: Run, condition: Callable[[list[Said]], object], records: list[SourceRecord]
) -> list[Said]:
    """All messages, until they are what is waited for; ``records`` takes what they were made of."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while not condition(source.said(records)):
        batch = await run.take(end - asyncio.get_running_loop().time())
        assert batch is not None, f"{source.said(records)}\n{run.log.text()}"
        records += batch[1].records
    return source.said(records)


async def test_snapshots_and_structures_have_ends(source: Source) -> None:
    source.run(
        "CREATE TABLE {db}.a (id INT PRIMARY KEY)",
        "CREATE TABLE {db}.empty_one (id INT PRIMARY KEY)",
        "INSERT INTO {db}.a VALUES (1), (2)",
    )
    records: list[SourceRecord] = []
    async with Run(MySqlConnector, source.config()) as run:
        messages = await until(
            source,
            run,
            lambda messages: len([message for message in messages if message.kind == ums.BATCH_TERMINATION]) == 2,
            records,
        )
        assert [message[:3] for message in messages] == [
            (ums.INITIAL, "a.1", 0),
            (ums.BATCH_TERMINATION, "a.1", 0),
            (ums.BATCH_TERMINATION, "empty_one.1", 0),
        ]
        assert records[1].partition == SameAs(records[0].key)
        records.clear()
        run.tasks[0].instruct(
            [
                {
                    "id": "again",
                    "tables": [f"{source.name}.a"],
                    "state": "running",
                    "origin": "rest",
                    "created_ms": 1_700_000_000_123,
                }
            ]
        )
        messages = await until(
            source, run, lambda messages: any(message.kind == ums.BATCH_TERMINATION for message in messages), records
        )
        assert [(message.kind, message.batch) for message in messages] == [
            (ums.BATCH, 1_700_000_000_123),
            (ums.BATCH_TERMINATION, 1_700_000_000_123),
        ]
        assert messages[0].rows == ("1", "2")
        records.clear()
        source.run(
            "INSERT INTO {db}.a VALUES (3)",
            "ALTER TABLE {db}.a ADD v INT",
            "INSERT INTO {db}.a VALUES (4, 4)",
            "ALTER TABLE {db}.a COMMENT 'the same'",
            "INSERT INTO {db}.a VALUES (5, 5)",
            "DROP TABLE {db}.a",
        )
        messages = await until(
            source,
            run,
            lambda messages: [message.kind for message in messages].count(ums.INCREMENT_TERMINATION) == 2,
            records,
        )
        assert [(message.kind, message.table) for message in messages if message.kind == ums.INCREMENT_TERMINATION] == [
            (ums.INCREMENT_TERMINATION, "a.1"),
            (ums.INCREMENT_TERMINATION, "a.2"),
        ]
        kinds = [
            (message.table, row)
            for message in messages
            for row in (message.rows if message.kind == ums.INCREMENT else ("end",))
        ]
        assert kinds == [("a.1", "3"), ("a.1", "end"), ("a.2", "4"), ("a.2", "5"), ("a.2", "end")]


async def test_tables_end_with_their_database(source: Source) -> None:
    source.run("CREATE DATABASE {db}_2", "CREATE TABLE {db}_2.a (id INT PRIMARY KEY)", "CREATE TABLE {db}.a (id INT)")
    records: list[SourceRecord] = []
    properties = source.config(**{"snapshot.mode": "no_data", "database.include.list": f"{source.name}.*"})
    async with Run(MySqlConnector, properties) as run:
        assert await run.take(PATIENCE) is not None
        source.run(
            "INSERT INTO {db}_2.a VALUES (1)",
            "ALTER TABLE {db}_2.a ADD v INT",
            "INSERT INTO {db}_2.a VALUES (2, 2)",
            "CREATE TABLE {db}_2.b (id INT PRIMARY KEY)",
            "/* of a client */ DROP DATABASE {db}_2",
            "INSERT INTO {db}.a VALUES (3)",
        )
        messages = await until(source, run, lambda messages: any("3" in message.rows for message in messages), records)
    assert [message.table for message in messages if message.kind == ums.INCREMENT_TERMINATION] == ["a.1", "a.2", "b.1"]
    assert messages[-1].kind == ums.INCREMENT


@pytest.mark.parametrize("tasks", [1, 2])
async def test_a_heartbeat_comes_behind_all_changes_before_its_time(source: Source, tasks: int) -> None:
    source.run("CREATE TABLE {db}.a (id INT PRIMARY KEY)", "CREATE TABLE {db}.quiet (id INT PRIMARY KEY)")
    records: list[SourceRecord] = []
    properties = source.config(**{"heartbeat.interval.ms": "20", "snapshot.mode": "no_data"})

    def parts(since: str, table: str) -> set[Any]:
        """The tasks that have promised a table beyond a time."""
        return {
            record.value["protocol"]["part"]
            for record in records
            if isinstance(record.value, dict)
            and record.value.get("protocol", {}).get("type") == ums.INCREMENT_HEARTBEAT
            and f".{table}.1." in record.value["schema"]["namespace"]
            and record.value["payload"][0]["tuple"][0] > since
        }

    everyone = {None} if tasks == 1 else {f"{index}/{tasks}" for index in range(tasks)}
    async with Run(MySqlConnector, properties, offsets=SavedOffsets(), max_tasks=tasks) as run:
        await until(source, run, lambda _messages: parts("", "a") == everyone, records)
        for key in range(1, 6):
            written = ums.datetime_text(
                int(
                    source.run(f"INSERT INTO {{db}}.a VALUES ({key * 5000})", "SELECT UNIX_TIMESTAMP(NOW(6))")
                    * 1_000_000
                )
            )
            # Whoever has the promise of all tasks has the row.
            messages = await until(
                source,
                run,
                lambda _messages, written=written: (  # type: ignore[misc]
                    parts(written, "a") == everyone == parts(written, "quiet")
                ),
                records,
            )
            assert str(key * 5000) in {
                row for message in messages if message.kind == ums.INCREMENT for row in message.rows
            }
    keys = {record.key for record in records if isinstance(record.value, dict) and "protocol" in record.value}
    assert {key.partition("...")[2] for key in keys if key.startswith(ums.INCREMENT_HEARTBEAT)} == {
        part or "" for part in everyone
    }
    beats = [
        record.partition
        for record in records
        if str(record.key).startswith(ums.INCREMENT_HEARTBEAT) and ".a.1." in record.key
    ]
    assert {beat.key for beat in beats if isinstance(beat, SameAs)} == {
        key for key in keys if key.startswith(ums.INCREMENT + ".") and ".a.1." in key
    }
