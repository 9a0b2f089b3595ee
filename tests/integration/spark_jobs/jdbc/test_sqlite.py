"""The properties of SQLite: one file, writers that take turns, types by affinity, and what it can't do."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from connectors.errors import Fatal
from connectors.options import ConfigDef, ConfigKey, ConfigType
from spark_jobs.contract import LOCAL_TIMESTAMP, NUMBER, TIME, UUID, Column, TableSchema
from spark_jobs.sinks.jdbc.config import CONFIG_DEF
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.sink import JdbcSink
from tests.integration.spark_jobs.jdbc.conftest import simple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

_MASTER = ConfigKey(name="spark.master", type=ConfigType.STRING, doc="-", default="local[*]")


@pytest.mark.parametrize("mode", ["upsert", "split", "insert"])
def test_many_spark_tasks_write_one_file(
    rig: Callable[..., Rig], sqlite: Database, spark: SparkSession, mode: str
) -> None:
    """Eight connections and two tables at a time, in small transactions, while another program reads."""
    options = {"sink.jdbc.mode": mode, "sink.jdbc.connections": "8", "sink.jdbc.parallel.tables": "2"}
    job = rig(sqlite, spark, **options, **{"sink.jdbc.batch.rows": "50", "sink.jdbc.repartition": "always"})
    rows = [
        {"id": n, "name": str(n), "ums_id_": n, "kafka_partition_": n % 8, "kafka_offset_": n // 8} for n in range(800)
    ]
    tables = [job.changes(simple(f"t{number}"), rows) for number in range(2)]
    for _ in range(2):
        job.sink.write(job.batch(*tables))
        for number in range(2):
            assert sqlite.rows(f"t{number}", "id") == sorted(((n,) for n in range(800)), key=repr)


def test_a_reader_does_not_stop_a_writer_for_good(rig: Callable[..., Rig], sqlite: Database) -> None:
    job = rig(sqlite, **{"sink.jdbc.statement.timeout.ms": "200", "sink.jdbc.retries": "30"})
    job.write(simple("t"), [{"id": 1, "name": "a", "ums_id_": 1}])
    with closing(
        sqlite3.connect(sqlite.login.address.database, isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("PRAGMA journal_mode = WAL")  # the owner of the file has chosen it, and it stays
        other.execute("BEGIN")
        assert other.execute("SELECT name FROM t").fetchall() == [("a",)]
        job.write(simple("t"), [{"id": 1, "name": "b", "ums_id_": 2}])
        assert other.execute("SELECT name FROM t").fetchall() == [("a",)]
        other.execute("COMMIT")
        assert other.execute("SELECT name FROM t").fetchall() == [("b",)]
        assert other.execute("PRAGMA journal_mode").fetchall() == [("wal",)]


def test_values_with_a_meaning_keep_it(rig: Callable[..., Rig], sqlite: Database) -> None:
    columns = (
        Column("id", t.StringType(), nullable=False, key=True, meaning=UUID),
        Column("at", t.LongType(), meaning=TIME),
        Column("local", t.TimestampType(), meaning=LOCAL_TIMESTAMP),
        Column("number", t.StringType(), meaning=NUMBER),
        Column("price", t.DecimalType(15, 2)),
        Column("wide", t.DecimalType(16, 9)),
    )
    row = {
        "id": "50554d6e-29bb-11e5-b345-feff819cdc9f",
        "at": -(26 * 3600 * 10**9),
        "local": datetime(2026, 3, 29, 2, 30, 0, 5, UTC),
        "number": "1234567890123456789012345678901234567890.0001000",
        "price": Decimal("1234567890123.45"),
        "wide": Decimal("0.000000001"),
    }
    rig(sqlite).write(TableSchema("shop.t", columns), [{**row, "ums_id_": 1}])
    assert list(sqlite.columns("t").values())[:6] == ["TEXT", "time", "datetime", "TEXT", "decimal(15,2)", "TEXT"]
    assert sqlite.rows("t", "id, at, local, number, price, wide") == [
        (row["id"], "-26:00:00.000000", "2026-03-29 02:30:00.000005", row["number"], 1234567890123.45, "0.000000001")
    ]
    assert sqlite.query("SELECT typeof(price), price > 1e12 FROM t") == [("real", 1)]


def test_columns_that_cannot_follow_are_refused_with_statements_that_work(
    rig: Callable[..., Rig], sqlite: Database
) -> None:
    def schema(kind: Any) -> TableSchema:
        return TableSchema("shop.t", (Column("id", t.IntegerType(), nullable=False, key=True), Column("n", kind)))

    job = rig(sqlite)
    job.write(schema(t.DecimalType(6, 2)), [{"id": 1, "n": Decimal("1.25"), "ums_id_": 1}])
    job.write(schema(t.LongType()), [{"id": 2, "n": 2**62, "ums_id_": 2}])
    job.write(schema(t.DecimalType(15, 4)), [{"id": 3, "n": Decimal("0.0001"), "ums_id_": 3}])
    with pytest.raises(Fatal, match=r"column n is decimal\(6,2\) but the source's values are text") as no:
        job.write(schema(t.DecimalType(30, 4)), [])
    with closing(sqlite3.connect(sqlite.login.address.database)) as other:
        other.executescript(str(no.value).rpartition("(say how old values are changed): ")[2])
    job.write(schema(t.DecimalType(30, 4)), [{"id": 4, "n": Decimal("12345678901234567890.5"), "ums_id_": 4}])
    assert sqlite.rows("t", "id, n") == [
        (1, "1.25"),
        (2, str(2**62)),
        (3, "0.0001"),
        (4, "12345678901234567890.5000"),
    ]


def test_tables_that_cannot_be_written(rig: Callable[..., Rig], sqlite: Database) -> None:
    sqlite.query("CREATE TABLE a (id integer PRIMARY KEY, name text, amount real) WITHOUT ROWID")
    sqlite.query("CREATE VIEW b AS SELECT * FROM a")
    for name, said in (("a", "is WITHOUT ROWID"), ("b", "is a view")):
        with pytest.raises(Fatal, match=said):
            rig(sqlite).write(simple(name), [])
    sqlite.query("CREATE TABLE c (id int, name text, amount real)")
    with pytest.raises(Fatal, match="run: CREATE UNIQUE INDEX") as no:
        rig(sqlite).write(simple("c"), [])
    sqlite.query(str(no.value).rpartition("run: ")[2])
    sqlite.query("CREATE UNIQUE INDEX other ON c (name)")  # an upsert looks at the chosen one only
    job = rig(sqlite)
    job.write(simple("c"), [{"id": 1, "name": "a", "ums_id_": 1}, {"id": 2, "name": "b", "ums_id_": 2}])
    with pytest.raises(Fatal, match=r"refuses the row of topic-0 offset 0 with id=1: UNIQUE constraint failed: c.name"):
        job.write(simple("c"), [{"id": 1, "name": "b", "ums_id_": 3}])


@pytest.mark.parametrize("mode", ["upsert", "split"])
def test_the_key_may_have_its_columns_in_another_order_than_the_index(
    rig: Callable[..., Rig], sqlite: Database, mode: str
) -> None:
    columns = (
        Column("a", t.StringType(), nullable=False, key=True),
        Column("b", t.IntegerType(), nullable=False, key=True),
        Column("v", t.StringType()),
    )
    sqlite.query("CREATE TABLE t (v text, b int NOT NULL, a text NOT NULL)")
    sqlite.query("CREATE UNIQUE INDEX chosen ON t (b, a)")
    job = rig(sqlite, **{"sink.jdbc.mode": mode})
    rows = [{"a": a, "b": b, "v": a * b, "ums_id_": n} for n, (a, b) in enumerate([("x", 1), ("y", 1), ("x", 2)])]
    job.write(TableSchema("shop.t", columns), rows)
    job.write(TableSchema("shop.t", columns), [{"a": "x", "b": 1, "v": "new", "ums_id_": 9}])
    assert sqlite.rows("t", "a, b, v") == [("x", 1, "new"), ("x", 2, "xx"), ("y", 1, "y")]
    job.write(TableSchema("shop.t", columns), [{"a": "y", "b": 1, "ums_op_": "d", "ums_id_": 10}])
    living = "WHERE ums_active_ = 1" if mode == "upsert" else ""
    assert sqlite.query(f"SELECT a, b FROM t {living} ORDER BY a, b") == [("x", 1), ("x", 2)]


@pytest.mark.parametrize("mode", ["upsert", "split"])
def test_statements_find_rows_by_the_index(rig: Callable[..., Rig], sqlite: Database, mode: str) -> None:
    """A batch must not read all of a large table."""
    job = rig(sqlite, **{"sink.jdbc.mode": mode, "sink.jdbc.delete.mode": "real"})
    job.write(simple("t"), [{"id": n, "name": "x", "ums_id_": n} for n in range(10)])
    _, plan, _ = job.target._tables._plans["shop.t"]
    with closing(load_dialect("sqlite").connect(sqlite.login)) as connection, closing(connection.cursor()) as cursor:
        for statement in plan.setup:
            cursor.execute(statement)
        for step in plan.steps:
            lines = [row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {step.sql}").fetchall()]
            assert not [line for line in lines if line.startswith("SCAN") and line.split()[1] not in ("s", "x")], lines


def checked(url: str, **options: str) -> list[str]:
    raw = {"sink.jdbc.url": url, **{name.replace("_", "."): value for name, value in options.items()}}
    config = ConfigDef([_MASTER, *CONFIG_DEF.keys.values()]).parse(raw)
    return JdbcSink.validate(config) or JdbcSink.check(config)


def test_what_a_file_cannot_do_is_refused_at_validate(sqlite: Database, tmp_path: Path) -> None:
    assert checked(sqlite.url) == []
    assert checked(sqlite.url, spark_master="local[4]") == []
    for option in ("user", "password", "schema", "ssl_cert"):
        said = checked(sqlite.url, **{f"sink_jdbc_{option}": "x"})
        assert said[0] == f"sink.jdbc.{option.replace('_', '.')}: SQLite has no such thing; remove it"
    (away,) = checked(sqlite.url, spark_master="spark://elsewhere:7077")
    assert away.startswith(
        "sink.jdbc.url: a SQLite file is on one machine, and tasks of spark.master=spark://elsewhere"
    )
    (folder,) = checked(f"jdbc:sqlite:{tmp_path}/no/shop.db")
    assert folder.endswith(f"can't be used: there is no folder {tmp_path}/no; make it")
    (tmp_path / "text.db").write_text("this is no database, but a text that is longer than a header")
    (other,) = checked(f"jdbc:sqlite:{tmp_path}/text.db")
    assert other.endswith("can't be used: file is not a database")
