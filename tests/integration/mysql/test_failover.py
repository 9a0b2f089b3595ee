"""Two real servers: the source is killed and its replica takes over, and back; and a snapshot from a replica that lags."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from compose.local.databases.mariadb_pair import MariaDbPair
from compose.local.databases.server_pair import execute_sql
from connectors.mysql.connector import MySqlConnector
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from tests.integration.mysql.dialect import is_mysql, spoken
from tests.support.eventually import eventually
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from compose.local.databases.mysql_debian import MySqlServer
    from compose.local.databases.mysql_pair import MySqlPair
    from compose.local.mariadb import MariaDb
    from connectors.api import SourceRecord

PATIENCE = 30
Change = tuple[str, str, int, int | None]


def config(pair: MariaDbPair | MySqlPair, database: str, **more: str) -> dict[str, str]:
    name = "mariadb.MariaDb" if isinstance(pair, MariaDbPair) else "mysql.MySql"
    return {
        "connector.class": f"io.debezium.connector.{name}Connector",
        "topic.prefix": database,
        "database.hostname": pair.hosts,
        "database.user": pair.primary.user,
        "database.password": pair.primary.password,
        "database.include.list": database,
        "include.schema.changes": "false",
        "poll.interval.ms": "20",
        "max.batch.size": "7",
        "snapshot.mode": "no_data",
        **more,
    }


@pytest.fixture(scope="module", params=["mariadb_pair", pytest.param("mysql_pair", marks=pytest.mark.slow)])
def pair(request: pytest.FixtureRequest) -> Any:
    """Two servers of MariaDB, and of MySQL in the slow suite."""
    return request.getfixturevalue(request.param)


class Source:
    """Writes to whichever server is in charge, and knows every change in order."""

    def __init__(self, server: MariaDb | MySqlServer, database: str) -> None:
        self.server, self.database = server, database
        self.changes: list[Change] = []
        self._values: dict[tuple[str, int], int] = {}
        self._next = 0
        execute_sql(
            server,
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.a (id BIGINT PRIMARY KEY, v INT)",
            f"CREATE TABLE {database}.b (id INT PRIMARY KEY, v INT)",
        )

    def transaction(self, statements: int, *, rows: int = 3) -> None:
        """Run one transaction of ``statements`` statements: inserts, and updates and deletes of earlier rows."""
        connection = pymysql.connect(
            host="127.0.0.1",
            port=int(self.server.port or 0),
            user=self.server.user,
            password=self.server.password,
            database=self.database,
            autocommit=False,
        )
        with closing(connection), connection.cursor() as cursor:
            for number in range(statements):
                table = "ab"[self._next % 2]
                self._next += rows
                keys = range(self._next, self._next + rows)
                cursor.execute(f"INSERT INTO {table} VALUES " + ", ".join(f"({key}, {key})" for key in keys))
                for key in keys:
                    self._note("c", table, key, key)
                cursor.execute(f"UPDATE {table} SET v = -v - {number} WHERE id = {keys[0]}")
                self._note("u", table, keys[0], -keys[0] - number)
                cursor.execute(f"DELETE FROM {table} WHERE id = {keys[-1]}")
                self._note("d", table, keys[-1], None)
            connection.commit()

    def _note(self, op: str, table: str, key: int, value: int | None) -> None:
        self.changes.append((op, table, key, value))


def changes(records: Sequence[SourceRecord]) -> list[Change]:
    all_changes = []
    for record in records:
        if record.value is not None:
            after = record.value["after"]
            all_changes.append(
                (
                    record.value["op"],
                    record.value["source"]["table"],
                    record.key["id"],
                    after["v"] if after is not None else None,
                )
            )
    return all_changes


async def read(run: Run, seen: list[Change], until: int, limit: float = PATIENCE) -> None:
    """Take batches until ``until`` changes have come in all."""
    while len(seen) < until:
        batch = await run.take(limit)
        assert batch is not None, f"{len(seen)} of {until} changes came; log:\n{run.log.text()}"
        seen += changes(batch[1].records)


@pytest.mark.parametrize("tasks_end", [False, True], ids=["going-on", "begun-again"])
async def test_the_replica_takes_over_in_the_middle_of_a_transaction_and_back(
    pair: Any, unique: Callable[[str], str], tasks_end: bool
) -> None:
    name = unique("over").replace("-", "_")
    first, second = pair.primary, pair.replica
    source = Source(first, name)
    pair.caught_up(second, first)
    saved, seen = SavedOffsets(), list[Change]()
    run = Run(MySqlConnector, config(pair, name), offsets=saved)
    await run.__aenter__()
    try:
        assert await run.take(PATIENCE) is not None
        for old, new in ((first, second), (second, first)):
            source.server = old
            for size in (1, 2, 5):
                source.transaction(size)
            done = len(source.changes)
            source.transaction(60)
            pair.caught_up(new, old)
            await read(run, seen, done + 90)
            assert len(seen) < len(source.changes)
            old.kill()
            if tasks_end:
                await run.stop()
            pair.promote(new)
            source.server = new
            source.transaction(2)
            source.transaction(40)
            if tasks_end:
                run = Run(MySqlConnector, config(pair, name), offsets=saved)
                await run.__aenter__()
            await read(run, seen, len(source.changes) - 80)
            if tasks_end:
                # The place is the new server's now, and inside a transaction; the old one is still away.
                await run.stop()
                run = Run(MySqlConnector, config(pair, name), offsets=saved)
                await run.__aenter__()
            await read(run, seen, len(source.changes))
            assert seen == source.changes
            old.start()
            pair.follow(old, new)
            source.transaction(3)
            pair.caught_up(old, new)
            # The first host answers again, as a replica.
            await run.stop()
            run = Run(MySqlConnector, config(pair, name), offsets=saved)
            await run.__aenter__()
            await read(run, seen, len(source.changes))
            assert seen == source.changes
    finally:
        await run.stop()
        execute_sql(source.server, f"DROP DATABASE {name}")
    assert seen == source.changes


def has_grown(path: Path, size: int) -> bool:
    """Whether the file is larger."""
    return path.stat().st_size > size


def crash_in_write(server: MariaDb | MySqlServer, database: str) -> None:
    """Kill the server while it writes a large transaction into its binlog, which it has forgotten when it is back."""
    execute_sql(server, f"CREATE TABLE {database}.large (id INT PRIMARY KEY, v LONGTEXT)")
    large = f"INSERT INTO {database}.large SELECT seq, REPEAT('x', 1000000) FROM {database}.seq_1_to_40"
    statement = spoken(large, mysql=is_mysql(server))

    def write() -> None:
        with suppress(StackError, pymysql.MySQLError):
            execute_sql(server, statement)

    while True:
        ((file, *_),) = execute_sql(server, spoken("SHOW MASTER STATUS", mysql=is_mysql(server)))
        path = server.state_dir / "data" / file
        enough = path.stat().st_size + 2_000_000
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        eventually(partial(has_grown, path, enough), "a part is written", every=0.001)
        server.kill()
        writer.join()
        server.start()
        ((count,),) = execute_sql(server, f"SELECT COUNT(*) FROM {database}.large")
        if not count:
            return
        execute_sql(server, f"DELETE FROM {database}.large")


@pytest.mark.parametrize("by_gtid", [False, True], ids=["position", "gtid"])
async def test_a_file_that_ends_in_the_middle_of_a_write_is_left(
    pair: Any, unique: Callable[[str], str], by_gtid: bool
) -> None:
    """MariaDB leaves the part of a transaction in its file that it had written when it was killed."""
    name, primary = unique("torn").replace("-", "_"), pair.primary
    execute_sql(primary, f"CREATE DATABASE {name}", f"CREATE TABLE {name}.a (id INT PRIMARY KEY, v INT)")
    pair.caught_up()
    hosts = pair.hosts if by_gtid else primary.address
    properties = config(pair, name, **{"database.hostname": hosts, "binlog.buffer.size": "1000"})
    saved, seen = SavedOffsets(), list[Change]()
    try:
        async with Run(MySqlConnector, properties, offsets=saved) as run:
            assert await run.take(PATIENCE) is not None
        execute_sql(primary, f"INSERT INTO {name}.a VALUES (1, 1)")
        crash_in_write(primary, name)
        execute_sql(primary, f"INSERT INTO {name}.a VALUES (2, 2)")
        for key in (2, 3):
            async with Run(MySqlConnector, properties, offsets=saved) as run:
                await read(run, seen, key)
            execute_sql(primary, f"INSERT INTO {name}.a VALUES ({key + 1}, {key + 1})")
        assert seen == [("c", "a", key, key) for key in (1, 2, 3)]
    finally:
        execute_sql(primary, f"DROP DATABASE {name}")


@pytest.mark.parametrize("form", ["debezium", "ums"])
async def test_rows_that_a_crash_has_cut_off_are_not_sent(pair: Any, unique: Callable[[str], str], form: str) -> None:
    """The server has forgotten the transaction; its rows are read before the end of the file shows that."""
    name, primary = unique("torn").replace("-", "_"), pair.primary
    execute_sql(primary, f"CREATE DATABASE {name}", f"CREATE TABLE {name}.a (id INT PRIMARY KEY, v INT)")
    more = {"database.hostname": primary.address, "max.batch.size": "1", "output.format": form}
    properties = config(pair, name, **more, **({"table.version.topic": "none"} if form == "ums" else {}))
    saved, topics = SavedOffsets(), list[str]()
    try:
        async with Run(MySqlConnector, properties, offsets=saved) as run:
            assert await run.take(PATIENCE) is not None
        execute_sql(primary, f"INSERT INTO {name}.a VALUES (1, 1)")
        crash_in_write(primary, name)
        execute_sql(primary, f"INSERT INTO {name}.a VALUES (2, 2)")
        async with Run(MySqlConnector, properties, offsets=saved) as run:
            while len(topics) < 2:
                batch = await run.take(PATIENCE)
                assert batch is not None, run.log.text()
                topics += [record.topic for record in batch[1].records]
        assert topics == [f"{name}.{name}.a"] * 2
    finally:
        execute_sql(primary, f"DROP DATABASE {name}")


def rows_sent(server: MariaDb | MySqlServer) -> int:
    """Rows that the server has sent to clients."""
    if is_mysql(server):
        ((value,),) = execute_sql(
            server, "SELECT SUM(SUM_ROWS_SENT) FROM performance_schema.events_statements_summary_global_by_event_name"
        )
    else:
        ((_, value),) = execute_sql(server, "SHOW GLOBAL STATUS LIKE 'Rows_sent'")
    return int(value)


async def test_a_snapshot_from_a_replica_gives_no_row_after_a_newer_change(
    pair: Any, unique: Callable[[str], str]
) -> None:
    name = unique("pull").replace("-", "_")
    execute_sql(
        pair.primary,
        f"CREATE DATABASE {name}",
        f"USE {name}",
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT)",
        *(
            spoken(f"INSERT INTO {table} SELECT seq, 0 FROM seq_1_to_3000", mysql=is_mysql(pair.primary))
            for table in "ab"
        ),
    )
    pair.caught_up()
    before = rows_sent(pair.replica)
    stop = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        number = 0
        try:
            with (
                closing(
                    pymysql.connect(
                        host="127.0.0.1",
                        port=int(pair.primary.port or 0),
                        user=pair.primary.user,
                        password=pair.primary.password,
                        database=name,
                        autocommit=True,
                    )
                ) as connection,
                connection.cursor() as cursor,
            ):
                while not stop.is_set():
                    number += 1
                    table, key = "ab"[number % 2], number * 37 % 3000
                    cursor.execute(f"UPDATE {table} SET v = {number} WHERE id BETWEEN {key} AND {key + 20}")
                    if number % 50 == 0:
                        # It falls behind for a while, and catches up.
                        pair.hold(still=bool(number % 100))
                    if number % 10 == 0:
                        cursor.execute(f"DELETE FROM {table} WHERE id = {key + 5}")
                        cursor.execute(f"INSERT INTO {table} VALUES ({10_000 + number}, {number})")
        except BaseException as error:  # noqa: BLE001 - raised by the caller that waits
            failed.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    state: dict[tuple[str, int], int] = {}
    pulled = 0
    properties = config(
        pair,
        name,
        **{
            "database.hostname": pair.primary.address,
            "snapshot.mode": "initial",
            "max.batch.size": "500",
            "snapshot.chunk.rows": "200",
            "snapshot.hostname": "127.0.0.1",
            "snapshot.port": str(pair.replica.port),
        },
    )

    def take(records: Sequence[SourceRecord]) -> int:
        rows = 0
        for op, table, key, value in changes(records):
            previous = state.get((table, key))
            if value is None:
                state[table, key] = 1 << 40  # nothing may bring it back
                continue
            assert previous is None or value >= previous, f"{op} of {table} {key}: {value} after {previous}"
            state[table, key] = value
            rows += op == "r"
        return rows

    try:
        async with Run(MySqlConnector, properties) as run:
            while (
                run.offsets.get({"server": name, "snapshot": "initial"}) is None
                or run.offsets.get({"server": name, "snapshot": "initial"})["state"] != "completed"  # type: ignore[index]
            ):
                batch = await run.take(PATIENCE)
                assert batch is not None, run.log.text()
                pulled += take(batch[1].records)
            stop.set()
            writer.join()
            assert not failed, failed
            assert rows_sent(pair.replica) - before >= 6000  # it was the one that was read
            execute_sql(pair.primary, f"INSERT INTO {name}.a VALUES (99999, 1)")
            while ("a", 99_999) not in state:
                batch = await run.take(PATIENCE)
                assert batch is not None, run.log.text()
                pulled += take(batch[1].records)
        for table in "ab":
            expected = {
                (table, key): value for key, value in execute_sql(pair.primary, f"SELECT id, v FROM {name}.{table}")
            }
            assert {key: value for key, value in state.items() if key[0] == table and value < 1 << 40} == expected
        assert pulled > 1000
    finally:
        stop.set()
        writer.join()
        pair.hold(still=False)
        execute_sql(pair.primary, f"DROP DATABASE {name}")


async def test_a_structure_that_comes_back_on_another_server_is_a_new_version(
    pair: Any, unique: Callable[[str], str]
) -> None:
    """The other server's files have smaller numbers. Leaves the pair with the first server away: the last test of the file."""
    name = unique("back").replace("-", "_")
    first, second = pair.primary, pair.replica
    execute_sql(first, *["FLUSH LOCAL BINARY LOGS"] * 9)
    source = Source(first, name)
    pair.caught_up(second, first)
    run = Run(MySqlConnector, config(pair, name))
    async with run:
        assert await run.take(PATIENCE) is not None
        execute_sql(
            first,
            f"INSERT INTO {name}.a VALUES (1, 1)",
            f"ALTER TABLE {name}.a ADD w INT",
            f"INSERT INTO {name}.a VALUES (2, 2, 2)",
        )
        await read(run, [], 2)
        pair.caught_up(second, first)
        first.kill()
        pair.promote(second)
        execute_sql(second, f"ALTER TABLE {name}.a DROP w", f"INSERT INTO {name}.a VALUES (3, 3)")
        await read(run, [], 1)
        tables = await MySqlConnector.tables(run.context.config, run.offsets.items())
        ((newest, *_),) = (table["versions"] for table in tables if table["table"] == f"{name}.a")
    source.server = second
    execute_sql(second, f"DROP DATABASE {name}")
    assert newest["version"] == 3
