"""Snapshots of a real MariaDB while clients write to it: the records sent lead to the table's content."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pymysql
import pytest

from connectors.mysql.model import Shard
from connectors.mysql.snapshot.model import SnapshotSettings
from connectors.mysql.snapshot.reading.throttle import SnapshotThrottle
from connectors.mysql.snapshot.reading.views import Views
from connectors.snapshot.requests import SnapshotRequest
from tests.integration.mysql.snapshot_live import Live

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.databases.mariadb_pair import MariaDbPair
    from tests.integration.mysql.snapshot_live import Running

KEYS = {
    "by_int": ("id INT PRIMARY KEY", "{n}"),
    "by_sparse": ("id BIGINT UNSIGNED PRIMARY KEY", "{n} * {n} * {n} * {n} * {n}"),
    "by_negative": ("id BIGINT PRIMARY KEY", "CAST({n} AS SIGNED) * 1000 - 150000"),
    "by_ci_text": (
        "k VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY",
        "CONCAT(ELT({n} % 4 + 1, 'a', 'B', 'ä', '''\\\\'), {n})",
    ),
    "by_latin1": ("k VARCHAR(20) CHARACTER SET latin1 PRIMARY KEY", "CONCAT(ELT({n} % 3 + 1, 'é', 'E', 'z'), {n})"),
    "by_bytes": ("k VARBINARY(20) PRIMARY KEY", "UNHEX(MD5({n}))"),
    "by_decimal": ("k DECIMAL(20,6) PRIMARY KEY", "(CAST({n} AS SIGNED) - 100) / 7"),
    "by_float": ("k FLOAT PRIMARY KEY", "{n} / 7"),
    "by_time": ("k DATETIME(3) PRIMARY KEY", "'2020-02-29 23:59:59.5' + INTERVAL {n} * 777 SECOND"),
    "by_stamp": ("k TIMESTAMP(6) NOT NULL PRIMARY KEY", "FROM_UNIXTIME(1e9 + {n} * 1000.125)"),
    "by_bit": ("k BIT(40) PRIMARY KEY", "{n} * 99999"),
    "by_enum": ("k ENUM('z','y','x','a') NOT NULL, n INT, PRIMARY KEY (k, n)", "{n} % 4 + 1, {n}"),
    "by_uuid": ("k UUID PRIMARY KEY", "UUID()"),
    "by_three": (
        "a INT, b VARCHAR(9), c DATE, PRIMARY KEY (a, b, c)",
        "{n} % 3, CONCAT('b', {n} % 11), '2020-01-01' + INTERVAL {n} DAY",
    ),
    "by_unique": ("id INT NOT NULL, UNIQUE KEY (id)", "{n}"),
}


def request(**more: Any) -> SnapshotRequest:
    return SnapshotRequest(**({"id": "one", "tables": [".*"], "origin": "initial"} | more))


def numbers(live: Live, table: str, rows: int, first: int = 0) -> None:
    live.sql(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, t VARCHAR(40))",
        f"INSERT INTO {table} SELECT CAST(seq AS SIGNED) + {first}, seq, REPEAT('x', seq % 40) FROM seq_0_to_{rows - 1}",
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_every_kind_of_key_gives_each_row_once(live: Live, threads: int) -> None:
    for table, (columns, values) in KEYS.items():
        live.sql(
            f"CREATE TABLE {table} ({columns}, v INT)",
            f"INSERT INTO {table} SELECT {values.replace('{n}', 'seq')}, seq FROM seq_1_to_200",
        )
    live.sql("CREATE TABLE empty (id INT PRIMARY KEY)")
    asyncio.run(live.run([request()], SnapshotSettings(threads=threads, chunk_rows=37)))
    for table in KEYS:
        values_sent = [row["v"] for name, _, _, row in live.output if name.table == table and row is not None]
        assert sorted(values_sent) == list(range(1, 201)), table
        assert len([read for name, read in live.chunks if name == table and read]) > 3, table
    assert ("empty", 0) in live.chunks
    assert [bounds[1] for bounds in live.chunk_bounds].count(True) == 1
    assert live.chunk_bounds[0][1]
    assert live.chunk_bounds[-1][4]


def scribble(live: Live, rounds: int, rows: int, tables: list[str]) -> Callable[[], None]:
    """Transactions that insert, change, delete, move and bring back rows all over the tables."""
    chance = random.Random(7)

    def write() -> None:
        connection = live.connected()
        with connection.cursor() as cursor:
            cursor.execute(f"USE `{live.database}`")
            for number in range(rounds):
                cursor.execute("BEGIN")
                for _ in range(chance.choice((1, 3, 20))):
                    table, key = chance.choice(tables), chance.randrange(rows * 2)
                    cursor.execute(
                        chance.choice(
                            (
                                f"INSERT INTO {table} VALUES ({key}, {number}, 'new') ON DUPLICATE KEY UPDATE v = v + 1",
                                f"UPDATE {table} SET v = {number}, t = 'set' WHERE id BETWEEN {key} AND {key} + 9",
                                f"DELETE FROM {table} WHERE id = {key}",
                                f"UPDATE IGNORE {table} SET id = {rows * 2 - key} WHERE id = {key}",
                                f"REPLACE INTO {table} VALUES ({key}, {number}, 'again')",
                            )
                        )
                    )
                cursor.execute(chance.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
        connection.close()

    return write


@pytest.mark.parametrize(("threads", "exact"), [(1, True), (3, True), (3, False)])
def test_tables_that_are_written_to_end_in_their_state(
    live: Live, threads: int, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exact:
        # As on a server that can't tell the place of a view.
        of = Views.of

        async def plain(*args: Any) -> Views:
            views = await of(*args)
            views.exact = False
            return views

        monkeypatch.setattr(Views, "of", plain)
    numbers(live, "a", 1000)
    numbers(live, "b", 300)
    live.lazy = 3

    async def play() -> Running:
        running = await live.run(
            [request()],
            SnapshotSettings(threads=threads, chunk_rows=100, ahead_chunks=6, settle_s=0.02),
            writing=scribble(live, 250, 1000, ["a", "b"]),
        )
        for table in ("a", "b"):
            expected = {(row["id"],): row for row in await live.contents(table)}
            assert live.replayed(table, ["id"]) == expected
        return running

    tables = asyncio.run(play()).reader.progress()[0]["tables"]
    assert sum(table["superseded"] for table in tables) > 0


def test_a_replica_is_read_instead_of_the_source(mariadb_pair: MariaDbPair, unique: Callable[[str], str]) -> None:
    primary, replica = mariadb_pair.primary, mariadb_pair.replica
    live = Live(int(primary.port or 0), primary.user, primary.password, unique("pull").replace("-", "_"))
    try:
        live.replica = msgspec.structs.replace(live.settings, port=int(replica.port or 0))
        numbers(live, "a", 3000)
        live.sql("CREATE TABLE k (v INT)", "INSERT INTO k SELECT seq FROM seq_1_to_500")
        mariadb_pair.caught_up()

        async def play() -> None:
            await live.run(
                [request()],
                SnapshotSettings(threads=2, chunk_rows=200, replica=True),
                writing=scribble(live, 200, 3000, ["a"]),
            )
            expected = {(row["id"],): row for row in await live.contents("a")}
            assert live.replayed("a", ["id"]) == expected

        asyncio.run(play())
        assert sorted(row["v"] for row in live.replayed_rows("k")) == list(range(1, 501))
    finally:
        live.close()


def test_three_shards_have_every_row_once_together(live: Live) -> None:
    numbers(live, "a", 30_000, -9000)
    live.sql("CREATE TABLE c (k VARCHAR(9) PRIMARY KEY, v INT)", "INSERT INTO c SELECT seq, seq FROM seq_1_to_100")
    sent: list[int] = []
    parts = []
    for index in range(3):
        live.output.clear()
        live.saved.clear()
        asyncio.run(live.run([request()], SnapshotSettings(threads=2, chunk_rows=3000), shard=Shard(index, 3)))
        parts.append(sum(op == "r" and name.table == "a" for name, op, *_ in live.output))
        sent += [row["id"] for name, op, _, row in live.output if name.table == "a" and row is not None]
        assert sum(name.table == "c" for name, *_ in live.output) in {0, 100}
    assert sorted(sent) == list(range(-9000, 21_000))
    assert min(parts) > 5000


@pytest.mark.parametrize(("engine", "different"), [("InnoDB", 3000), ("InnoDB", 20), ("Aria", 3000)])
def test_a_table_without_a_key_comes_exactly_once(live: Live, engine: str, different: int) -> None:
    live.sql(
        f"CREATE TABLE k (v INT, t VARCHAR(40)) ENGINE={engine}",
        f"INSERT INTO k SELECT seq % {different}, 'old' FROM seq_1_to_3000",
    )
    chance = random.Random(3)

    def write() -> None:
        connection = live.connected()
        with connection.cursor() as cursor:
            cursor.execute(f"USE `{live.database}`")
            for number in range(150):
                cursor.execute(
                    chance.choice(
                        (
                            f"INSERT INTO k VALUES ({10_000 + number}, 'new'), ({20_000 + number}, 'new')",
                            f"DELETE FROM k WHERE v BETWEEN {chance.randrange(3000)} AND 3000 ORDER BY v LIMIT 3",
                            f"UPDATE k SET t = 'n{number % 9}' WHERE v % 700 = {chance.randrange(700)} LIMIT 9",
                        )
                    )
                )
        connection.close()

    async def play() -> None:
        await live.run([request()], SnapshotSettings(threads=1, chunk_rows=100), writing=write)
        replayed = sorted((row["v"], row["t"]) for row in live.replayed_rows("k"))
        assert replayed == sorted((row["v"], row["t"]) for row in await live.contents("k"))

    asyncio.run(play())
    assert len(live.chunks) > 10


def test_changes_of_the_structure_and_truncation_while_it_is_read(live: Live) -> None:
    for table in ("altered", "truncated", "dropped"):
        numbers(live, table, 2000)
    steps = {
        3: "ALTER TABLE altered ADD COLUMN extra INT NOT NULL DEFAULT 7, ALGORITHM=INSTANT",
        6: "ALTER TABLE altered DROP COLUMN t, ADD COLUMN other INT DEFAULT 3, ALGORITHM=COPY",
        9: "INSERT INTO altered (id, v) VALUES (-1, 1)",
    }

    def on_chunk(_: Running) -> None:
        count = len(live.chunks)
        if count in steps:
            live.sql(steps.pop(count))
        tables = {name for name, _ in live.chunks}
        if "dropped" in tables and not steps.get(-1):
            steps[-1] = "done"
            live.sql("DROP TABLE dropped")
        if "truncated" in tables and not steps.get(-2):
            steps[-2] = "done"
            live.sql("TRUNCATE TABLE truncated", "INSERT INTO truncated VALUES (5, 5, 'after')")

    async def play() -> Running:
        # One by one, so that a table is changed while its chunks are read, not in a lock's shadow.
        running = await live.run(
            [request()], SnapshotSettings(threads=1, chunk_rows=50, ahead_chunks=2), on_chunk=on_chunk
        )
        expected = {(row["id"],): row for row in await live.contents("truncated")}
        assert live.replayed("truncated", ["id"]) == expected
        return running

    running = asyncio.run(play())
    altered = live.replayed("altered", ["id"])
    assert set(altered) == {(number,) for number in range(-1, 2000)}
    late = [row for (number,), row in altered.items() if number > 1500]
    assert all(row["extra"] == 7 and row["other"] == 3 and "t" not in row for row in late)
    (shown,) = running.reader.progress()
    states = {table["table"].partition(".")[2]: table["state"] for table in shown["tables"]}
    assert states == {"altered": "done", "dropped": "vanished", "truncated": "done"}
    assert shown["state"] == "done"


def test_a_table_that_an_alter_copies_is_read(live: Live) -> None:
    """MariaDB's catalog lacks a table for a moment of an ALTER: that is no reason to give it up."""
    numbers(live, "a", 10)

    def alter() -> None:
        connection = live.connected()
        with connection, connection.cursor() as cursor:
            cursor.execute(f"USE `{live.database}`")
            for _ in range(60):
                cursor.execute("ALTER TABLE a FORCE, ALGORITHM=COPY")

    running = asyncio.run(live.run([request()], SnapshotSettings(threads=2, chunk_rows=2), writing=alter))
    (shown,) = running.reader.progress()
    assert [table["state"] for table in shown["tables"]] == ["done"]
    assert len(live.replayed("a", ["id"])) == 10


def test_a_server_that_allows_one_query_does_not_stop_a_snapshot(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table without a key that is read ahead waits for the tables before it, which need the query."""
    live.sql(
        "CREATE TABLE a (id VARCHAR(9) PRIMARY KEY)",
        "INSERT INTO a SELECT seq FROM seq_1_to_300",
        "CREATE TABLE k (v INT)",
        "INSERT INTO k SELECT seq FROM seq_1_to_300",
    )
    monkeypatch.setattr(SnapshotThrottle, "allowed", property(lambda _: 3 if len(live.chunks) < 20 else 1))
    asyncio.run(live.run([request()], SnapshotSettings(threads=3, chunk_rows=3)))
    assert len(live.replayed("a", ["id"])) == len(live.replayed_rows("k")) == 300


def test_a_restart_goes_on_behind_the_last_chunk(live: Live) -> None:
    numbers(live, "a", 2000)
    live.sql(
        "CREATE TABLE b (k VARCHAR(9) PRIMARY KEY, v INT)",
        "INSERT INTO b SELECT CONCAT('k', seq), seq FROM seq_1_to_600",
    )
    seen: list[int] = []

    def on_chunk(running: Running) -> None:
        running.stop = len(live.chunks) - sum(seen) >= 7
        if running.stop:
            seen.append(len(live.chunks) - sum(seen))

    while live.saved.get("one", {}).get("state") != "completed":
        asyncio.run(live.run([request()], SnapshotSettings(threads=2, chunk_rows=100), on_chunk=on_chunk))
    assert len(seen) >= 3
    for table, rows in (("a", 2000), ("b", 600)):
        sent = [row["v"] for name, _, _, row in live.output if name.table == table and row is not None]
        assert len(sent) == len(set(sent)) == rows


def test_lost_connections_are_made_again(live: Live) -> None:
    numbers(live, "a", 6000)
    killed = 0

    def on_chunk(running: Running) -> None:
        nonlocal killed
        if len(live.chunks) in {4, 9}:
            for number in running.connections[-2:]:
                with contextlib.suppress(pymysql.err.OperationalError):
                    live.sql(f"KILL {number}")
                    killed += 1

    asyncio.run(live.run([request()], SnapshotSettings(threads=2, chunk_rows=300), on_chunk=on_chunk))
    assert killed >= 2
    assert set(live.replayed("a", ["id"])) == {(number,) for number in range(6000)}


def test_conditions_selects_surrogate_keys_and_bad_requests(live: Live) -> None:
    numbers(live, "a", 1000)
    numbers(live, "b", 1000)
    numbers(live, "c", 500)
    live.sql("ALTER TABLE c ADD s INT NOT NULL DEFAULT 0, ADD KEY (s)", "UPDATE c SET s = id % 7")
    database = live.database
    running = asyncio.run(
        live.run(
            [
                request(
                    id="conditions",
                    tables=[f"{database}.a", f"{database}.b"],
                    origin="rest",
                    conditions={f"{database}\\.a": "v % 10 = 3 -- comment\n"},
                    selects={f"{database}.b": f"SELECT * FROM {database}.b WHERE id < 100;"},
                ),
                request(id="surrogate", tables=[f"{database}.c"], origin="rest", surrogate_key="s"),
                request(
                    id="wrong",
                    tables=[f"{database}.a"],
                    origin="rest",
                    conditions={f"{database}.a": "no_such_column = 1"},
                ),
                request(id="worse", tables=[f"{database}.a"], origin="rest", conditions={f"{database}.a": "SELECT ("}),
                request(id="nullable", tables=[f"{database}.a"], origin="rest", surrogate_key="t"),
                request(id="none", tables=["no_such_table"], origin="rest"),
            ],
            SnapshotSettings(threads=2, chunk_rows=60, retries=1),
        )
    )
    sent: dict[str, list[int]] = {}
    for name, _, _, row in live.output:
        assert row is not None
        sent.setdefault(name.table, []).append(row["id"])
    assert sorted(sent["a"]) == list(range(3, 1000, 10))
    assert sorted(sent["b"]) == list(range(100))
    assert sorted(sent["c"]) == list(range(500))
    shown = {snapshot["id"]: snapshot for snapshot in running.reader.progress()}
    assert {name for name, snapshot in shown.items() if snapshot["state"] == "done"} == {"conditions", "surrogate"}
    assert {shown[name]["state"] for name in ("wrong", "worse", "nullable", "none")} == {"failed"}
    assert "no_such_column" in shown["wrong"]["tables"][0]["error"]
    assert shown["worse"]["tables"][0]["state"] == "failed"
    assert "may be NULL" in shown["nullable"]["tables"][0]["error"]
    assert (shown["none"]["tables"], shown["none"]["error"]) == ([], "no captured table matches no_such_table")


def test_rows_of_any_size_are_read_in_bounded_chunks(live: Live) -> None:
    live.sql(
        "CREATE TABLE w (id INT PRIMARY KEY, b LONGBLOB)",
        "INSERT INTO w SELECT seq, REPEAT('x', IF(seq > 500, 300000, 10)) FROM seq_1_to_530",
    )
    asyncio.run(live.run([request()], SnapshotSettings(threads=1, chunk_rows=10_000, chunk_bytes=500_000)))
    assert [row["id"] for _, _, _, row in live.output if row is not None] == list(range(1, 531))
    assert max(read for _, read in live.chunks) <= 530
    assert len(live.chunks) > 5


def test_progress_and_the_bound_of_rows_per_second(live: Live) -> None:
    numbers(live, "a", 1000)
    shown: list[float] = []

    def on_chunk(running: Running) -> None:
        (table,) = running.reader.progress()[0]["tables"]
        shown.append(table["percent"])
        assert table["rows_done"] == sum(read for _, read in live.chunks)

    running = asyncio.run(
        live.run([request()], SnapshotSettings(threads=1, chunk_rows=100, rows_per_s=100_000), on_chunk=on_chunk)
    )
    (table,) = running.reader.progress()[0]["tables"]
    assert shown == sorted(shown)
    assert shown[-1] == 100
    assert (table["state"], table["rows_done"], table["rows_total"], table["chunks"]) == (
        "done",
        1000,
        1000,
        len(live.chunks),
    )
    assert table["finished_ms"] >= table["started_ms"]
