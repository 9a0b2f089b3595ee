"""The stream of a real server, stopped after any record and gone on with by any number of tasks: every change exactly once."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from connectors.mysql.connector import MySqlConnector
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from compose.local.mariadb import MariaDb
    from connectors.api import SourceRecord

ROWS = 400


def config(server: MariaDb, database: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "mysql",
        "topic.prefix": database,
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.include.list": database,
        "include.schema.changes": "false",
        "poll.interval.ms": "20",
        "snapshot.mode": "no_data",
        **more,
    }


@pytest.fixture(params=["mariadb", "mysql", "mysql-compressed"])
def kind(request: pytest.FixtureRequest) -> str:
    """MariaDB, and a real MySQL where there is one, also with compressed transactions."""
    return str(request.param)


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(kind.partition("-")[0])


@pytest.fixture
def database(server: MariaDb, kind: str, unique: Callable[[str], str]) -> Iterator[tuple[str, pymysql.Connection[Any]]]:
    """A database of its own, with two tables that are divided among tasks and one that is not."""
    name = f"resume_{unique('x')[-8:]}"
    with closing(
        pymysql.connect(
            host="127.0.0.1", port=int(server.port or 0), user=server.user, password=server.password, autocommit=False
        )
    ) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
            cursor.execute(f"USE {name}")
            if kind == "mysql-compressed":
                cursor.execute("SET SESSION binlog_transaction_compression = ON")
            cursor.execute("CREATE TABLE a (id BIGINT UNSIGNED PRIMARY KEY, v INT)")
            cursor.execute("CREATE TABLE b (id INT, k VARCHAR(9), v INT, PRIMARY KEY (id, k))")
            cursor.execute("CREATE TABLE c (k VARCHAR(9) PRIMARY KEY, v INT)")
        yield name, connection
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name}")


def write(connection: pymysql.Connection[Any], chance: random.Random) -> None:
    """Transactions of all sizes; some take back a part or all of themselves."""
    number = 0
    with connection.cursor() as cursor:
        while number < ROWS:
            for _ in range(chance.choice((1, 1, 2, 5, 20))):
                number += 1
                key = chance.choice((number, number * 1000))
                statement = chance.randrange(6)
                if statement == 0:
                    cursor.execute(
                        "INSERT INTO a VALUES "
                        + ", ".join(f"({key * 40 + index}, {number})" for index in range(9))
                        + " ON DUPLICATE KEY UPDATE v = v + 1"
                    )
                elif statement == 1:
                    cursor.execute(f"REPLACE INTO b VALUES ({key}, 'k{number}', {number}), ({-key}, 'k', {number})")
                elif statement == 2:
                    cursor.execute(f"REPLACE INTO c VALUES ('k{number % 50}', {number})")
                elif statement == 3:
                    cursor.execute(f"UPDATE a SET v = {number} ORDER BY id LIMIT 7")
                elif statement == 4:
                    cursor.execute(f"DELETE FROM b LIMIT {chance.randrange(3)}")
                else:
                    cursor.execute("SAVEPOINT s")
                    cursor.execute(f"INSERT INTO c VALUES ('gone{number}', 1)")
                    cursor.execute("ROLLBACK TO s")
            connection.rollback() if chance.random() < 0.1 else connection.commit()
        cursor.execute("REPLACE INTO c VALUES ('last', 1)")
        connection.commit()


def identity(record: SourceRecord) -> tuple[Any, ...]:
    """The identity of a change among all others."""
    source = record.value["source"]
    return source["file"], source["pos"], source["row"], source["table"], record.value["op"]


def is_second(record: SourceRecord) -> bool:
    """Whether it is the second half of a change of the key."""
    return any(header.key == "__debezium.oldkey" for header in record.headers)


def is_last(record: SourceRecord) -> bool:
    return record.value is not None and record.key == {"k": "last"}


async def read_until(run: Run, received: list[SourceRecord], stop_after: int | None) -> None:
    """Take batches. With ``stop_after`` only that many records of this run count as acknowledged: the last batch in part."""
    count = 0
    while True:
        before = run.offsets.copy()
        batch = await run.take(30 if stop_after is None else 2)
        if batch is None and stop_after is not None:
            return  # all of it is read
        assert batch is not None, run.log.text()
        records = batch[1].records
        if stop_after is not None and count + len(records) >= stop_after:
            cut = stop_after - count
            while cut < len(records) and (records[cut].value is None or is_second(records[cut])):
                cut += 1  # a row is done with the last of its records: until then all of them would come again
            acknowledged = records[:cut]
            run.offsets.saved = before.saved
            for record in acknowledged:
                run.offsets.put(record.source_partition, record.source_offset)
            received += [record for record in acknowledged if record.value is not None]
            return
        count += len(records)
        received += [record for record in records if record.value is not None]
        if any(is_last(record) for record in records) and stop_after is None:
            return


@pytest.mark.parametrize(
    "layouts", [(1, 1, 1, 1, 1, 1), (3, 3, 3, 3), (1, 2, 3, 2, 1, 4)], ids=["one", "three", "changing"]
)
async def test_every_change_once_however_often_it_is_stopped(
    server: MariaDb, layouts: tuple[int, ...], database: tuple[str, pymysql.Connection[Any]]
) -> None:
    name, connection = database
    chance = random.Random(hash(layouts))
    properties = config(server, name, **{"max.batch.size": "7"})
    start = SavedOffsets()
    async with Run(MySqlConnector, properties, offsets=start) as run:
        assert await run.take(30) is not None
    begin = start.copy()
    write(connection, chance)
    truth: list[SourceRecord] = []
    async with Run(MySqlConnector, properties, offsets=start.copy()) as run:
        await read_until(run, truth, None)
    expected = [identity(record) for record in truth]
    assert len(set(expected)) == len(expected) > ROWS

    saved = begin.copy()
    received: list[SourceRecord] = []
    for number, tasks in enumerate(layouts):
        last = number == len(layouts) - 1
        async with Run(MySqlConnector, properties, offsets=saved, max_tasks=tasks) as run:
            # Every task of a new division saves its place before anything else.
            await first_places(run, tasks, received)
            if not last:
                await read_until(run, received, chance.randrange(1, 2 * ROWS // len(layouts)))
            else:
                while len(received) < len(expected):
                    batch = await run.take(10)
                    assert batch is not None, missing(expected, received)
                    received += [record for record in batch[1].records if record.value is not None]
    assert sorted(map(identity, received)) == sorted(expected), missing(expected, received)
    assert by_key(received) == by_key(truth)


async def first_places(run: Run, tasks: int, received: list[SourceRecord]) -> None:
    seen: set[int] = set()
    while len(seen) < tasks:
        batch = await run.take(30)
        assert batch is not None, run.log.text()
        seen.add(batch[0])
        received += [record for record in batch[1].records if record.value is not None]


def missing(expected: list[tuple[Any, ...]], received: list[SourceRecord]) -> str:
    received_ids = [identity(record) for record in received]
    repeated = [record_id for record_id in received_ids if received_ids.count(record_id) > 1]
    return f"missing {sorted(set(expected) - set(received_ids))[:5]}, twice {repeated[:5]}"


def by_key(records: list[SourceRecord]) -> Mapping[str, list[Any]]:
    """The changes of each key in order."""
    grouped: dict[str, list[Any]] = {}
    for record in records:
        grouped.setdefault(f"{record.topic} {record.key}", []).append((identity(record), record.value["after"]))
    return grouped
