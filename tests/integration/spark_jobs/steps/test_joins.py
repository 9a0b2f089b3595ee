"""Random streams through joins equal a join of all rows that were not late; state, late rows and refusals."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from spark_jobs.steps.flow import empty_changes
from tests.integration.spark_jobs.steps.event_streams import Event, build_flow, random_batches, run_batches, to_changes
from tests.selection import scaled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLES = ("shop.orders", "shop.paid")
RANGE, DELAY, IDLE = 5, 4, 60
#: What is run of each join when only one history is: three batches, late rows, and crashes before and after the commit.
SHORT = {"full": 702, "semi": 553}


def steps(how: str, **more: str) -> dict[str, str]:
    options = {
        "type": "join", "left": "orders", "right": "shop.paid", "on": "Group", "how": how, "range.ms": str(RANGE * 1000),
        "watermark.ms": str(DELAY * 1000), "idle.ms": str(IDLE * 1000), "late": "keep",
    }  # fmt: skip
    return {"steps": "j", **{f"step.j.{name}": value for name, value in {**options, **more}.items()}}


def expected(how: str, batches: Sequence[Sequence[Event]]) -> tuple[list[Any], list[int]]:
    """The ids of the pairs, and of late rows: of all batches at once, without any state."""
    watermark: int | None = None
    newest: dict[str, int] = {}
    accepted: dict[str, list[Event]] = {table: [] for table in TABLES}
    late = []
    for events in batches:
        for event in events:
            if watermark is not None and event.second < watermark:
                late.append(event.id)
            else:
                accepted[event.table].append(event)
        for event in events:
            newest[event.table] = max(newest.get(event.table, 0), event.second)
        if newest:
            candidates = [max(newest.values()) - IDLE] + ([min(newest.values())] if len(newest) == len(TABLES) else [])
            reached = max(candidates) - DELAY
            watermark = reached if watermark is None else max(watermark, reached)
    left, right = (accepted[table] for table in TABLES)
    pairs = [
        (first.id, second.id)
        for first in left
        for second in right
        if first.group is not None and first.group == second.group and abs(first.second - second.second) <= RANGE
    ]
    if how == "semi":
        return sorted({order for order, _ in pairs}), sorted(late)

    def passed(event: Event) -> bool:
        return watermark is not None and event.second + RANGE < watermark

    result: list[Any] = list(pairs)
    if how in ("left", "full"):
        matched = {order for order, _ in pairs}
        result += [(event.id, None) for event in left if event.id not in matched and passed(event)]
    if how in ("right", "full"):
        matched = {payment for _, payment in pairs}
        result += [(None, event.id) for event in right if event.id not in matched and passed(event)]
    return sorted(result, key=repr), sorted(late)


@pytest.mark.scaled
@pytest.mark.parametrize(
    "how", ["full", *(pytest.param(how, marks=pytest.mark.slow) for how in ("inner", "left", "semi"))]
)
def test_batches_join_as_all_rows_at_once(spark: SparkSession, tmp_path: Path, how: str) -> None:
    for seed in scaled([SHORT.get(how, 0)], list(range(8))):
        source = Random(f"{how} {seed}")
        batches = random_batches(source, TABLES, groups=3, nulls=True)
        output, flow = run_batches(spark, steps(how), TABLES, batches, tmp_path / str(seed), source)
        rows = output.get("j", [])
        pairs = [row["id"] if how == "semi" else (row["id"], row["paid_id"]) for row in rows]
        answer, late = expected(how, batches)
        assert sorted(pairs, key=repr) == sorted(answer, key=repr), f"seed {seed}"
        assert sorted(row["id"] for name, rows in output.items() if "late" in name for row in rows) == late
        assert flow.measure_steps()["j"]["late_total"] == len(late)


@pytest.mark.slow
def test_right_is_left_the_other_way_round(spark: SparkSession, tmp_path: Path) -> None:
    source = Random(5)
    batches = random_batches(source, TABLES, groups=3, nulls=True)
    output, _ = run_batches(spark, steps("right"), TABLES, batches, tmp_path, source)
    pairs = [(row["id"], row["paid_id"]) for row in output["j"]]
    assert sorted(pairs, key=repr) == sorted(expected("right", batches)[0], key=repr)


def test_an_update_stops_the_join_and_can_be_ignored(spark: SparkSession, tmp_path: Path) -> None:
    events = [Event("shop.orders", 1, 1, 1, 1), Event("shop.orders", 7, 1, 1, 1, "u"), Event("shop.paid", 2, 1, 1, 1)]
    changes = to_changes(spark, events)
    with pytest.raises(PySparkException, match=r"an update or delete \(u\) of the row id=7: .* type view"):
        build_flow(steps("inner"), tmp_path / "a").apply(changes, spark, lambda: changes, 0)
    flow = build_flow(steps("inner", changes="ignore"), tmp_path / "b")
    tables = {table.schema.namespace: table for table in flow.apply(changes, spark, lambda: changes, 0)}
    rows = tables["j"].frame.collect()
    assert [(row["id"], row["paid_id"], row["ums_op_"], row["ums_id_"]) for row in rows] == [(1, 2, "i", 3)]
    assert [column.name for column in tables["j"].schema.key] == ["id", "paid_id"]
    assert flow.measure_steps()["j"]["ignored_total"] == 1
    flow.end_batch()


def test_rows_wait_for_a_table_that_comes_later(spark: SparkSession, tmp_path: Path) -> None:
    flow = build_flow(steps("left"), tmp_path)
    first = to_changes(spark, [Event("shop.orders", 1, 1, 1, 1)])
    assert [table.schema.namespace for table in flow.apply(first, spark, lambda: first, 0)] == ["j_late_left"]
    flow.commit()
    flow.end_batch()
    second = to_changes(spark, [Event("shop.paid", 2, 1, 3, 1)])
    seen = empty_changes(spark, [table.schema for table in (*first, *second)])
    tables = {table.schema.namespace: table for table in flow.apply(second, spark, lambda: seen, 1)}
    assert [(row["id"], row["paid_id"]) for row in tables["j"].frame.collect()] == [(1, 2)]
    flow.end_batch()
