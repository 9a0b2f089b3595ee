"""Random change streams through random pipelines of steps, with crashes: the target has what a model makes of the last rows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark_jobs.frame.test_random_streams import FORMS, StreamJob, name_seeds
from tests.integration.spark_jobs.jdbc.conftest import Database, database
from tests.integration.spark_jobs.jdbc.test_jdbc_conformance import JdbcTarget
from tests.integration.spark_jobs.steps.pipelines import Pipeline, declare_columns, make_shop, write_function
from tests.support.change_messages import ORDERS, MessageForm, cut_batches, repeat_messages
from tests.support.change_streams import newest_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def small(spark: SparkSession) -> SparkSession:
    """A session for plans that are wide and rows that are few: to compile them would take longer than to interpret them."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def read_rows(file: Database, name: str) -> list[dict[str, Any]]:
    """The rows of a table that are not deleted."""
    names = list(file.columns(name))
    if not names:
        return []
    rows = file.query(f"SELECT {', '.join(map(file.quote, names))} FROM {file.quote(name)} WHERE ums_active_ = 1")  # noqa: S608
    return [dict(zip(names, row, strict=True)) for row in rows]


def compare_tables(file: Database, expected: dict[str, list[dict[str, Any]]]) -> None:
    """Whether a database has the rows of a model, in the columns that these have."""
    for name, rows in expected.items():
        actual = (
            [{column: row.get(column) for column in rows[0]} for row in read_rows(file, name)]
            if rows
            else read_rows(file, name)
        )
        assert sorted(map(repr, actual)) == sorted(map(repr, rows)), name


@pytest.mark.parametrize("seed", name_seeds([0], range(1, 30)))
def test_the_target_has_what_the_steps_make_of_the_last_rows(seed: int, small: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(f"steps-{seed}")
    name = chance.choice(FORMS)
    before = name in ("json", "schemas", "avro", "ums") and chance.random() < 0.4
    form = MessageForm(name, chance.choice(ORDERS), f"s{seed}", before=before)
    shop, pipeline = make_shop(chance), Pipeline(chance, write_function(tmp_path))
    pipeline.draw()
    messages = repeat_messages(chance, form.write(shop.draw_events(chance.choice((20, 50, 80)))))
    batches = cut_batches(chance, messages, chance.choice((2, 4)))
    structures = [structure for versions in shop.structures.values() for structure in versions]
    file = database(f"jdbc:sqlite:{tmp_path}/target.db", "", "")
    properties = {
        "name": f"steps-{seed}",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "checkpoint.location": str(tmp_path / "checkpoint"),
        "sink.type": "jdbc",
        **JdbcTarget(file, None).options(),
        **form.options(structures),
        **pipeline.options,
    }
    if name in ("json", "flat"):
        properties |= declare_columns([form.namespace(table) for table in shop.structures])
    print(f"seed {seed}: {form.name}, {form.order}, before {before}: {properties}")
    job = StreamJob(small, properties, form)
    for number, batch in enumerate(batches):
        fate = chance.random()
        if fate < 0.2:
            job.write_and_die(batch, number)
            job.start()
        job.write(batch, number)
        if fate > 0.8:
            job.start()
            job.write(batch, number)
    events = [event for message in messages for event in message.events]
    rows = {}
    for table in shop.structures:
        table_events = [event for event in events if event.structure.table == table]
        if not any(event.op != "t" for event in table_events):
            pytest.skip("a table without changes")
        families = {column: shop.families(table)[column] for column in ("id", "dim", "amount", "label")}
        rows[table] = list(newest_rows(table_events, families).values())
    expected = pipeline.apply(rows)
    origins = {table: form.namespace(table) if name != "ums" else f"shop.{table}" for table in shop.structures}
    expected = {
        table: [row | {"origin": origins[row["origin"]]} if "origin" in row else row for row in listed]
        for table, listed in expected.items()
    }
    compare_tables(file, expected)
    if not pipeline.stateful and chance.random() < 0.4:
        # The checkpoint is lost: all comes again, in other batches.
        job.properties = properties | {"checkpoint.location": str(tmp_path / "second-checkpoint")}
        job.start()
        for number, batch in enumerate(cut_batches(chance, messages, 3)):
            job.write(batch, number)
        compare_tables(file, expected)
    job.batches.close()
