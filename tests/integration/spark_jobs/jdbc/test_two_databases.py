"""One transaction over PostgreSQL and MariaDB: all or nothing, wherever the job is killed, compared row by row."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import secrets
import signal
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType

from compose.local.postgres import Postgres
from connectors.errors import Retriable
from spark_jobs.config.job_files import check_job
from spark_jobs.contract import Batch, Column, Packed, TableChanges, TableSchema
from spark_jobs.sinks.jdbc import branches
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.sink import JdbcSink
from spark_jobs.testing import change
from spark_jobs.testing.batches import BatchFeed, arrow_table
from spark_jobs.testing.child import Child
from spark_jobs.testing.kit import key_column, make_sink
from tests.integration.spark_jobs.jdbc.killed_jdbc import KILL_AT
from tests.support.eventually import eventually
from tests.support.settings import jdbc_login
from worker.fetch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from compose.local.mariadb import MariaDb
    from spark_jobs.testing.batches import BatchData

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def prepared_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A PostgreSQL that takes prepared transactions."""
    settings = {"max_prepared_transactions": "16"}
    server = Postgres(tmp_path_factory.mktemp("prepared-postgres"), port=None, durable=False, settings=settings)
    try:
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


class Pair:
    """Both databases behind one face."""

    def __init__(self, postgres: Postgres, mariadb: MariaDb) -> None:
        self.logins = [
            jdbc_login(server.url, server.user, server.password, statement_timeout_ms=10_000)
            for server in (postgres, mariadb)
        ]
        self.options = {
            "sink.jdbc.url": postgres.url,
            "sink.jdbc.user": postgres.user,
            "sink.jdbc.password": postgres.password,
            "sink.jdbc.with.url": mariadb.url,
            "sink.jdbc.with.user": mariadb.user,
            "sink.jdbc.with.password": mariadb.password,
        }

    def rows(self, table: TableSchema) -> list[Rows]:
        """The rows of a table in each database; none where it is missing."""
        both: list[Rows] = []
        for login in self.logins:
            kind = load_dialect(login.address.dialect)
            with closing(kind.connect(login)) as connection, closing(connection.cursor()) as cursor:
                if kind.describe(connection, "", table.namespace.rpartition(".")[2]) is None:
                    both.append([])
                    continue
                name = kind.quote(table.namespace.rpartition(".")[2])
                cursor.execute(f"SELECT id, name, ums_id_, ums_op_ FROM {name} ORDER BY id, ums_id_")
                both.append([tuple(row) for row in cursor.fetchall()])
        return both

    def in_doubt(self) -> list[str]:
        """The prepared transactions of both."""
        names = []
        for login in self.logins:
            with closing(load_dialect(login.address.dialect).connect(login)) as connection:
                names += branches.list_branches(connection)
        return names


@pytest.fixture
def pair(prepared_postgres: Postgres, mariadb: MariaDb) -> Pair:
    return Pair(prepared_postgres, mariadb)


def properties(pair: Pair, bootstrap: str, checkpoint: Path, **options: str) -> dict[str, str]:
    return {
        "name": f"pair-{secrets.token_hex(4)}",
        "kafka.bootstrap.servers": bootstrap,
        "source.topics": "t",
        "source.format": "plain",
        "sink.type": "jdbc",
        "checkpoint.location": str(checkpoint),
        **pair.options,
        **options,
    }


def opened(spark: SparkSession, raw: dict[str, str]) -> JdbcSink:
    config, problems = check_job(raw)
    assert config is not None, problems
    sink = make_sink(config, spark)
    assert isinstance(sink, JdbcSink)
    sink.open()
    return sink


def new_table() -> TableSchema:
    return TableSchema(f"shop.t{secrets.token_hex(4)}", (key_column("id", IntegerType()), Column("name", StringType())))


POINTS = ["written 0", "written 1", "prepared", "decided", "committed 0", "committed"]


@pytest.mark.proves("into jdbc upsert", "exactly-once", killed=["driver"])
@pytest.mark.parametrize("mode", ["upsert", pytest.param("insert", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kill_at",
    [
        point if point in ("written 0", "committed 0") else pytest.param(point, marks=pytest.mark.slow)
        for point in POINTS
    ],
)
def test_killed_at_every_step_both_databases_have_all_or_nothing(
    spark: SparkSession,
    bootstrap: str,
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kill_at: str,
    mode: str,
) -> None:
    table = new_table()
    feed = BatchFeed("t")
    raw = properties(pair, bootstrap, tmp_path, **{"sink.jdbc.mode": mode})
    earlier = [change("i", 10 + number, id=number, name=f"a{number}") for number in range(20)]
    first = opened(spark, raw)
    first.write(feed.next([(table, earlier)]).frames(spark))
    first.close()
    before = pair.rows(table)
    assert before[0] == before[1] == [(number, f"a{number}", 10 + number, "i") for number in range(20)]
    later = [change("u", 100 + number, id=number, name=f"b{number}") for number in range(0, 20, 2)]
    later += [change("i", 200 + number, id=number, name="new") for number in range(20, 25)]
    data = feed.next([(table, later)])
    monkeypatch.setenv(KILL_AT, kill_at)
    killed = {**raw, "sink.type": "tests.integration.spark_jobs.jdbc.killed_jdbc:KilledJdbc"}
    with Child(killed, spark) as child:
        child.wait_ready()
        child.write(data)
        eventually(lambda: not child.alive(), "the job is killed", 120)
        assert child.killed_by() == signal.SIGKILL
    if POINTS.index(kill_at) < POINTS.index("committed 0"):
        assert pair.rows(table) == before
        assert pair.in_doubt()
    restarted = opened(spark, raw)
    restarted.write(data.frames(spark))
    assert restarted.write(data.frames(spark)) == 0
    assert pair.in_doubt() == []
    expected: Rows = [(row.values["id"], row.values["name"], row.number, row.op) for row in (*earlier, *later)]
    if mode == "upsert":
        expected = list({row[0]: row for row in expected}.values())
    assert pair.rows(table) == [sorted(expected, key=lambda row: (row[0], row[2]))] * 2
    restarted.close()


def small(data: BatchData) -> Batch:
    """A batch that only the driver can write: its rows are there, its frames are not."""
    none = cast("DataFrame", None)
    changes = []
    for schema, rows in data.tables:
        sink = pa.BufferOutputStream()
        table = arrow_table(schema, rows)
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        changes.append(TableChanges(schema, none, packed=Packed(none, unpacked, (sink.getvalue().to_pybytes(),))))
    return Batch(data.id, none, data.ranges, lambda: changes, takes_rows=True)


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for stream in batch.column(0):
            yield from pa.ipc.open_stream(stream.as_py())


def test_what_one_database_refuses_is_in_neither(
    spark: SparkSession, bootstrap: str, pair: Pair, tmp_path: Path
) -> None:
    table = new_table()
    sink = opened(spark, properties(pair, bootstrap, tmp_path))
    feed = BatchFeed("t")
    sink.write(small(feed.next([(table, [change("i", 1, id=1, name="a")])])))
    name = table.namespace.rpartition(".")[2]
    with closing(load_dialect("mariadb").connect(pair.logins[1])) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"SELECT * FROM {name} FOR UPDATE")  # The rows are locked in the second database.
        data = feed.next([(table, [change("u", 2, id=1, name="b"), change("d", 3, id=2)])])
        slow = opened(spark, {**sink.context.config.raw, "sink.jdbc.statement.timeout.ms": "1000"})
        with pytest.raises(Retriable, match=f"table {name}"):
            slow.write(small(data))
        assert pair.rows(table) == [[(1, "a", 1, "i")]] * 2
        assert pair.in_doubt() == []
    slow.write(small(data))
    assert pair.rows(table) == [[(1, "b", 2, "u"), (2, None, 3, "d")]] * 2
    assert pair.in_doubt() == []
    slow.close()
    sink.close()


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_source_tables_that_share_a_table_are_one_transaction(
    spark: SparkSession, bootstrap: str, pair: Pair, tmp_path: Path, mode: str
) -> None:
    target = new_table()
    shared = {"sink.jdbc.table": target.namespace.rpartition(".")[2], "sink.jdbc.table.shared": "true"}
    sink = opened(spark, properties(pair, bootstrap, tmp_path, **shared, **{"sink.jdbc.mode": mode}))
    orders, returns = (TableSchema(f"shop.{name}", target.columns) for name in ("orders", "returns"))
    feed = BatchFeed("t")
    data = feed.next([(orders, [change("i", 1, id=1, name="a")]), (returns, [change("i", 2, id=2, name="b")])])
    sink.write(data.frames(spark))
    assert pair.rows(target) == [[(1, "a", 1, "i"), (2, "b", 2, "i")]] * 2
    assert pair.in_doubt() == []
    sink.close()


def test_a_server_without_prepared_transactions_is_named(
    pair: Pair, postgres: Postgres, bootstrap: str, tmp_path: Path
) -> None:
    raw = properties(pair, bootstrap, tmp_path)
    config, problems = check_job(raw)
    assert config is not None, problems
    assert JdbcSink.check(config) == []
    swapped = {
        "sink.jdbc.with.url": postgres.url,
        "sink.jdbc.with.user": postgres.user,
        "sink.jdbc.with.password": postgres.password,
    }
    config, problems = check_job({**raw, **swapped})
    assert config is not None, problems
    (complaint,) = JdbcSink.check(config)
    assert complaint.startswith("sink.jdbc.with.url: ")
    assert "ALTER SYSTEM SET max_prepared_transactions" in complaint
