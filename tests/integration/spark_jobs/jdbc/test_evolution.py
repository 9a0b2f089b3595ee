"""Tables follow the source's: created, columns added and widened; the error of any other change has the statement to run."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from connectors.errors import Fatal
from spark_jobs.contract import Column, TableSchema
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from tests.integration.spark_jobs.jdbc.conftest import simple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig


def keyed(table: str, *columns: Column) -> TableSchema:
    return TableSchema(f"shop.{table}", (Column("id", t.IntegerType(), nullable=False, key=True), *columns))


@pytest.mark.parametrize("mode", ["upsert", "split", "insert"])
def test_columns_are_added_and_widened_in_the_running_job(
    rig: Callable[..., Rig], db: Database, table: str, mode: str
) -> None:
    job = rig(db, **{"sink.jdbc.mode": mode})
    job.write(
        keyed(table, Column("a", t.ShortType()), Column("p", t.DecimalType(6, 2))), [{"id": 1, "a": 1, "ums_id_": 1}]
    )
    wider = keyed(table, Column("a", t.LongType()), Column("p", t.DecimalType(12, 4)), Column("new", t.StringType()))
    job.write(wider, [{"id": 2, "a": 2**40, "new": "x", "ums_id_": 2, "kafka_offset_": 1}])
    assert db.rows(table, "id, a, new") == [(1, 1, None), (2, 2**40, "x")]
    # An older version of the table, still in the topic: fits what is there now.
    job.write(keyed(table, Column("a", t.ShortType())), [{"id": 3, "a": 3, "ums_id_": 3, "kafka_offset_": 2}])
    assert db.rows(table, "id, a, new") == [(1, 1, None), (2, 2**40, "x"), (3, 3, None)]


def test_times_with_more_digits_than_a_column_has_are_refused(
    rig: Callable[..., Rig], server_db: Database, table: str
) -> None:
    """The server cuts them, or rounds them, without an error."""
    postgresql = server_db.name == "postgresql"
    whole, millis = ("timestamptz(0)", "timestamp(3)") if postgresql else ("datetime", "timestamp(3) NULL")
    server_db.query(f"CREATE TABLE {server_db.quote(table)} (id int PRIMARY KEY, whole {whole}, millis {millis})")
    schema = keyed(table, Column("whole", t.TimestampType()), Column("millis", t.TimestampNTZType()))
    second = datetime(2026, 1, 2, 3, 4, 59, tzinfo=UTC)
    # NTZ comes without a zone, the other one with it.
    good = {"id": 1, "whole": second, "millis": second.replace(tzinfo=None, microsecond=123_000), "ums_id_": 1}
    job = rig(server_db)
    job.write(schema, [good, {"id": 2, "ums_id_": 1}])
    for name, row in (
        ("whole", good | {"whole": second.replace(microsecond=999_999)}),
        ("millis", good | {"millis": second.replace(tzinfo=None, microsecond=123_456)}),
    ):
        with pytest.raises(Fatal, match=f"id=1: the time in column {name} has more digits after the second"):
            job.write(schema, [row | {"ums_id_": 2}])
    ((_, *moments), _) = server_db.rows(table, "id, whole, millis")
    assert [moment.replace(tzinfo=None) for moment in moments] == [second.replace(tzinfo=None), good["millis"]]


def test_numbers_that_a_column_would_round_are_refused(rig: Callable[..., Rig], maria: Database, table: str) -> None:
    maria.query(f"CREATE TABLE {maria.quote(table)} (id int PRIMARY KEY, name text, amount double(10,2))")
    with pytest.raises(Fatal, match=r"column amount is double\(10,2\) but the source's values are double"):
        rig(maria).write(simple(table), [{"id": 1, "amount": 1.239, "ums_id_": 1}])


def test_what_may_not_be_done_says_what_to_run(rig: Callable[..., Rig], db: Database, table: str) -> None:
    strict = rig(db, **{"sink.jdbc.auto.create": "false", "sink.jdbc.auto.evolve": "false"})
    with pytest.raises(Fatal, match=r"does not exist and sink\.jdbc\.auto\.create is off; run:\nCREATE TABLE") as no:
        strict.write(simple(table), [])
    db.query(str(no.value).split("run:\n")[1])
    assert strict.write(simple(table), [{"id": 1, "ums_id_": 1}]) == 1
    with pytest.raises(Fatal, match=r"auto\.evolve is off; run:\nALTER TABLE .* ADD COLUMN") as no:
        strict.write(simple(table, Column("more", t.IntegerType())), [])
    db.query(str(no.value).split("run:\n")[1])
    assert strict.write(simple(table, Column("more", t.IntegerType())), [{"id": 2, "more": 1, "ums_id_": 1}]) == 1


def test_tables_that_do_not_fit(rig: Callable[..., Rig], db: Database, table: str) -> None:
    quoted = db.quote(table)
    db.query(f"CREATE TABLE {quoted} (id int, name int, other int NOT NULL)")
    with pytest.raises(Fatal) as no:
        rig(db).write(simple(table), [])
    text = str(no.value)
    assert "column name is int" in text.lower()
    assert "but the source's values are" in text
    assert "ALTER TABLE" in text
    assert "column other is NOT NULL without a default" in text
    run = "CREATE UNIQUE INDEX" if db.name == "sqlite" else "ALTER TABLE"
    assert f"no unique index over exactly the key (id); run: {run}" in text


def test_keyless_tables_and_tables_that_meet(rig: Callable[..., Rig], postgresql: Database, table: str) -> None:
    bare = TableSchema(f"shop.{table}", (Column("id", t.IntegerType()), Column("name", t.StringType())))
    with pytest.raises(Fatal, match=r"has no primary key.*sink\.jdbc\.key\.columns"):
        rig(postgresql).write(bare, [])
    job = rig(postgresql, **{"sink.jdbc.key.columns": "id"})
    job.write(bare, [{"id": 1, "name": "a", "ums_id_": 1}])
    job.write(bare, [{"id": 1, "name": "b", "ums_id_": 2}])
    assert postgresql.rows(table, "id, name") == [(1, "b")]
    with pytest.raises(Fatal, match=r"would both be written to .*table\.shared"):
        job.write(TableSchema(f"other.{table}", bare.columns), [])


def test_templates_and_schemas(rig: Callable[..., Rig], postgresql: Database, table: str) -> None:
    postgresql.query(f'CREATE SCHEMA "s_{table}"')
    job = rig(
        postgresql,
        **{
            "sink.jdbc.schema": "s_${table}",
            "sink.jdbc.table": "${type}_${database}_${table}",
            "sink.jdbc.delete.mode": "real",
        },
    )
    full = TableSchema(f"mysql.db01.shop.{table}.3.0.0", simple(table).columns)
    job.write(full, [{"id": 1, "ums_id_": 1}, {"id": 2, "ums_id_": 2, "ums_op_": "d"}])
    tables = postgresql.query(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1", (f"s_{table}",)
    )
    assert tables == [(f"mysql_shop_{table}",), (f"mysql_shop_{table}_ums",)]
    # The next version of the source's table is the same table.
    job.write(TableSchema(f"mysql.db01.shop.{table}.4.0.0", simple(table, Column("x", t.IntegerType())).columns), [])


def test_a_table_of_ums_named_by_its_namespace_stays_one_table(
    rig: Callable[..., Rig], sqlite: Database, table: str
) -> None:
    job = rig(sqlite, **{"sink.jdbc.table": "${namespace}"})
    job.write(TableSchema(f"mysql.db01.shop.{table}.3.0.0", simple(table).columns), [{"id": 1, "ums_id_": 1}])
    wider = simple(table, Column("x", t.IntegerType()))
    changed = [{"id": 1, "x": 5, "ums_id_": 2, "kafka_offset_": 1}]
    job.write(TableSchema(f"mysql.db01.shop.{table}.4.0.0", wider.columns), changed)
    assert sqlite.rows(f"mysql_db01_shop_{table}", "id, x") == [(1, 5)]


def test_another_unique_index_that_would_catch_rows(rig: Callable[..., Rig], maria: Database, table: str) -> None:
    job = rig(maria)
    job.write(simple(table), [])
    maria.query(f"CREATE UNIQUE INDEX u ON {maria.quote(table)} (amount)")
    job.restart()
    with pytest.raises(Fatal, match=r"another unique index \(amount\)"):
        job.write(simple(table), [])


def test_a_column_that_another_job_adds_at_the_same_moment_is_used(
    rig: Callable[..., Rig], db: Database, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = rig(db)
    job.write(simple(table), [{"id": 1, "name": "a", "ums_id_": 1}])
    dialect = type(load_dialect(db.name))
    describe, others = dialect.describe, [f"ALTER TABLE {db.quote(table)} ADD COLUMN note varchar(20)"]

    def describe_and_let_another_job_alter(*arguments: Any) -> Any:
        answer = describe(*arguments)
        while others:
            db.query(others.pop())
        return answer

    monkeypatch.setattr(dialect, "describe", describe_and_let_another_job_alter)
    job.write(simple(table, Column("note", t.StringType(), length=20)), [{"id": 2, "note": "x", "ums_id_": 2}])
    assert others == []
    assert db.rows(table, "id, note") == [(1, None), (2, "x")]


def test_jobs_that_make_one_table_of_positions_at_the_same_time(
    rig: Callable[..., Rig], server_db: Database, table: str
) -> None:
    for attempt in range(4):
        options = {"sink.jdbc.mode": "insert", "sink.jdbc.commit.table": f"{table}c{attempt}"}
        jobs = [rig(server_db, **options) for _ in range(4)]
        start = threading.Barrier(len(jobs))

        def write(number: int) -> int:
            start.wait(30)  # noqa: B023 - all of them end before the next attempt
            rows = [{"id": number, "ums_id_": 1}]
            return jobs[number].write(simple(f"{table}_{attempt}_{number}"), rows)  # noqa: B023 - as above

        with ThreadPoolExecutor(len(jobs)) as pool:
            assert list(pool.map(write, range(len(jobs)))) == [1] * len(jobs)
