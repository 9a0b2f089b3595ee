"""Snapshots, zipper tables and SQL views against a plain model of the definition; Delta tables."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructType

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs import history
from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.history import delta, formats
from tests.support.history_model import EPOCH, Change, Shape, batch, snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.spark_jobs.files.conftest import Sinks

SHAPE = Shape("shop.orders", "id", {"id": LongType(), "state": StringType(), "n": IntegerType()})


def story(seed: int, length: int) -> list[Change]:
    """Changes of a few keys over three days: repeats, before images, deletes, late rows, clocks that go back."""
    dice = random.Random(seed)
    changes: list[Change] = []
    for number in range(length):
        key = dice.randrange(12)
        op = dice.choice("iuuub" + "d")
        second = number * 3 * 86_400 / length + dice.choice((0, 0, 0, -4000, 60))
        values = {"id": key, "state": dice.choice((None, "a", "b")), "n": number}
        changes.append(Change(key, values, op, number // 2 if op == "b" else number, second, number))
    repeats = [dice.choice(changes) for _ in range(length // 10)]
    changes += [
        Change(change.key, change.values, change.op, change.id, change.second, length + index)
        for index, change in enumerate(repeats)
    ]
    return changes


def table(frame: DataFrame) -> dict[Any, dict[str, Any]]:
    rows = frame.select("id", "state", "n").collect()
    assert len({row.id for row in rows}) == len(rows), "one row per key"
    return {row.id: row.asDict() for row in rows}


def write(spark: SparkSession, sinks: Sinks, changes: list[Change], **options: Any) -> None:
    sink = sinks.make(**options)
    third = len(changes) // 3
    for number, start in enumerate(range(0, len(changes), third)):
        sink.write(batch(spark, number, [(SHAPE, changes[start : start + third])]))


def test_snapshots_zipper_and_views_are_what_the_model_says(spark: SparkSession, sinks: Sinks) -> None:
    changes = story(1, 240)
    write(spark, sinks, changes)
    path = str(sinks.path)
    zipped = history.zipper(spark, path, "shop.orders").cache()
    assert history.register(spark, path) == ["orders_history", "orders_current", "orders_zipper", "orders_at"]
    for second in (-1, 50_000.5, 200_000):
        at = EPOCH + timedelta(seconds=second)
        expected = snapshot(changes, at=second)
        assert table(history.snapshot(spark, path, at=at)) == expected
        stamp = at.strftime("%Y-%m-%d %H:%M:%S.%f")
        assert (
            table(zipped.where(f"valid_from <= '{stamp}' AND (valid_to IS NULL OR valid_to > '{stamp}')")) == expected
        )
    literal = f"TIMESTAMP '{stamp}'"  # Spark binds no parameters inside table functions
    assert table(spark.sql(f"SELECT * FROM orders_at({literal})")) == expected  # noqa: S608 - a time of our own
    assert table(history.snapshot(spark, path, at=100)) == snapshot(changes, up_to=100)
    assert table(spark.sql("SELECT * FROM orders_current")) == snapshot(changes)
    assert table(zipped.where("is_current")) == snapshot(changes)
    versions = {(change.key, change.id) for change in changes if change.op in "iu"}
    assert {(row.id, row.ums_id_) for row in zipped.collect()} == versions, "every version once"
    assert spark.sql("SELECT * FROM orders_history").count() == len(changes)
    (line,) = formats.json_lines(history.read(spark, path).where("kafka_offset_ = 7")).collect()
    assert set(json.loads(line.json)) == {*SHAPE.columns, *SYSTEM_COLUMNS}, "nulls too, as a command prints rows"


def test_a_range_of_time_and_wrong_questions(spark: SparkSession, sinks: Sinks) -> None:
    changes = story(2, 60)
    write(spark, sinks, changes)
    since, until = EPOCH + timedelta(days=1), EPOCH + timedelta(days=2)
    selected = history.read(spark, str(sinks.path), since=since, until=until)
    assert selected.count() == sum(since <= change.time < until for change in changes)
    assert len(selected.inputFiles()) < len(history.read(spark, str(sinks.path)).inputFiles()), (
        "other days are not opened"
    )
    with pytest.raises(ConfigInvalid, match="there are: shop"):
        history.read(spark, str(sinks.path), "shop.customers")
    with pytest.raises(Fatal, match="version 99"):
        history.read(spark, str(sinks.path), version=99)
    assert history.read(spark, str(sinks.path), version=1).count() == 22, "after the first batch"


def test_delta(spark: SparkSession, sinks: Sinks) -> None:
    changes = story(3, 90)
    first, rest = changes[:60], changes[60:]
    sink = sinks.make(format="delta")
    assert sink.write(batch(spark, 7, [(SHAPE, first)])) == 60
    assert sink.write(batch(spark, 7, [(SHAPE, first)])) == 0, "the same batch again"
    # The checkpoint is lost: batch ids start again from 0, below those that Delta has seen; batches end at other offsets.
    restarted = sinks.make(format="delta")
    assert restarted.write(batch(spark, 0, [(SHAPE, changes[:30])])) == 0
    wider = Shape("shop.orders", "id", {"id": LongType(), "state": StringType(), "n": LongType(), "more": StringType()})
    assert restarted.write(batch(spark, 1, [(wider, changes[30:])])) == len(rest)
    path = str(sinks.path)
    assert history.read(spark, path).count() == len(changes)
    assert dict(history.read(spark, path).dtypes)["n"] == "bigint"
    assert table(history.snapshot(spark, path, at=EPOCH + timedelta(days=1))) == snapshot(changes, at=86_400)
    removed, added = delta.optimize_table(spark, f"{path}/shop.orders")
    assert (removed > added, history.read(spark, path).count()) == (True, len(changes))
    other = [Change(1, {"id": 1}, "i", 5, 5, 0)]
    with pytest.raises(Fatal, match="deleted and recreated"):
        restarted.write(batch(spark, 2, [(SHAPE, other)]))


@pytest.mark.parametrize("depth", [1, 2])
def test_arrays_without_nulls_are_read_from_files_that_do_not_say_so(spark: SparkSession, depth: int) -> None:
    stored, declared = ArrayType(LongType(), containsNull=True), ArrayType(LongType(), containsNull=False)
    value: list[Any] = [1, 2]
    if depth > 1:
        stored, declared, value = ArrayType(stored), ArrayType(declared, containsNull=False), [value]
    frame = spark.createDataFrame([(value,)], StructType().add("ids", stored))
    assert formats.conform_frame(frame, StructType().add("ids", declared)).collect() == [(value,)]
