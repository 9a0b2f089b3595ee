"""The state of a step: a batch sees what was there before it, however often it is repeated and wherever it was cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as t

from spark_jobs.steps.state import tables as step_state
from spark_jobs.steps.state.tables import StepState

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

FIELDS = t.StructType(
    [
        t.StructField("k", t.IntegerType()),
        t.StructField("v", t.StringType()),
        t.StructField("order_", t.LongType()),
    ]
)


def start(path: Path, spark: SparkSession, batch: int) -> StepState:
    """The state in a new run of the job."""
    state = StepState(str(path), "s")
    state.begin(spark, batch)
    return state


def rows(state: StepState, keep: str = "", fields: t.StructType = FIELDS) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in state.read("rows", fields, ["k"], keep).collect())


def append(state: StepState, spark: SparkSession, *values: tuple[int, str | None, int]) -> None:
    state.append("rows", spark.createDataFrame(list(values), FIELDS))


def test_a_batch_sees_the_state_before_it_at_every_cut(spark: SparkSession, tmp_path: Path) -> None:
    state = start(tmp_path, spark, 0)
    assert rows(state) == []
    append(state, spark, (1, "a", 1), (2, "b", 2))
    state.keep_values({"n": 1})
    state.commit()
    state.begin(spark, 1)
    first = [(1, "a", 1), (2, "b", 2)]
    assert (rows(state), state.values) == (first, {"n": 1})
    append(state, spark, (1, "new", 3), (3, "c", 4))
    state.keep_values({"n": 2})

    # Cut off before the state is written, and after: batch 1 comes again.
    assert rows(start(tmp_path, spark, 1)) == first
    state.commit()
    retry = start(tmp_path, spark, 1)
    assert (rows(retry), retry.values) == (first, {"n": 1})
    append(retry, spark, (1, "newer", 3))
    retry.keep_values({"n": 3})
    retry.commit()
    retry.begin(spark, 2)
    assert (rows(retry), retry.values) == ([(1, "newer", 3), (2, "b", 2)], {"n": 3})
    # A change with a smaller order number does not count, whenever it comes.
    append(retry, spark, (2, "older", 1))
    retry.commit()
    assert rows(start(tmp_path, spark, 3)) == [(1, "newer", 3), (2, "b", 2)]


def test_a_preview_keeps_nothing(spark: SparkSession) -> None:
    state = StepState("", "s")
    state.begin(spark, -1)
    append(state, spark, (1, "a", 1))
    state.commit()
    state.begin(spark, -1)
    assert rows(state) == []


def test_upkeep_changes_no_row(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_state, "UPKEEP_EVERY", 2)
    state = start(tmp_path, spark, 0)
    append(state, spark, *((number, "first", 1) for number in range(40)))
    state.commit()
    expected = {number: (number, "first", 1) for number in range(40)}
    for batch in (1, 2, 3, 4, 7):
        state.begin(spark, batch)
        looked_up = state.lookup("rows", FIELDS, ["k"], {"v": pa.array([f"in {number}" for number in range(8)])}, 99)
        assert looked_up is not None
        expected_rows = [row for row in expected.values() if row[1] != "first"]
        assert sorted(tuple(row.values()) for row in looked_up.to_pylist()) == sorted(expected_rows)
        assert rows(state) == sorted(expected.values())
        row = (batch % 7, f"in {batch}", batch)
        expected[row[0]] = row
        append(state, spark, row)
        state.commit()
    last = 9
    state.begin(spark, last)
    kept = "k < 5"
    assert rows(state, kept) == sorted(row for row in expected.values() if row[0] < 5)
    assert rows(start(tmp_path, spark, last), kept) == sorted(row for row in expected.values() if row[0] < 5)


def test_columns_may_get_wider_types_and_be_added(spark: SparkSession, tmp_path: Path) -> None:
    state = start(tmp_path, spark, 0)
    append(state, spark, (1, "a", 1))
    state.commit()
    wider = t.StructType([t.StructField("k", t.LongType()), *FIELDS.fields[1:], t.StructField("more", t.StringType())])
    state.begin(spark, 1)
    assert rows(state, fields=wider) == [(1, "a", 1, None)]
    state.append("rows", spark.createDataFrame([(1 << 40, "b", 2, "x")], wider))
    state.commit()
    assert rows(start(tmp_path, spark, 2), fields=wider) == [(1, "a", 1, None), (1 << 40, "b", 2, "x")]
