"""Views over random histories: after every batch the folded output equals DuckDB's answer over the folded tables."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.config import job_files as config
from spark_jobs.contract import TableChanges
from spark_jobs.steps.flow import StepFlow, empty_changes
from spark_jobs.steps.options import build_steps
from spark_jobs.steps.state import tables as step_state
from spark_jobs.steps.view import small as small_batches
from spark_jobs.testing.batches import make_frame
from spark_jobs.testing.model import make_comparable
from tests.integration.spark_jobs.views.histories import TABLES, History, random_query
from tests.selection import scaled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.spark_jobs.views.histories import Key, Query, Row

#: Cases of one run: histories of their own, which the query keeps apart.
CASES = 20
BATCHES = 3


def flow_of(query: Query, checkpoint: Path, *, images: bool) -> StepFlow:
    """The flow in a new run of the job."""
    parsed, problems = config.check_job(
        {
            "name": "j",
            "kafka.bootstrap.servers": "b:9092",
            "source.topics": "t",
            "source.format": "debezium",
            "source.before.rows": str(images).lower(),
            "sink.type": "console",
            "transform.steps": "v",
            "transform.step.v.type": "view",
            "transform.step.v.sql": query.spark,
            "transform.step.v.key": ",".join(query.key),
        }
    )
    assert parsed is not None, problems
    return StepFlow(build_steps(parsed), (), str(checkpoint))


class Target:
    """Rows as a sink has them. It takes a batch again, as sinks do: by the order number."""

    def __init__(self, key: Sequence[str], *, images: bool) -> None:
        self.key = key
        self.images = images
        self.rows: dict[Key, Row] = {}
        self.orders: dict[Key, int] = {}

    def write(self, changes: Sequence[Row]) -> None:
        """Take changes, and demand that they are exactly what changes the rows."""
        before: Row | None = None
        for change in changes:
            row = {name: value for name, value in change.items() if not name.endswith("_")}
            at = tuple(row[name] for name in self.key)
            op, current = change["ums_op_"], self.rows.get(at)
            if op == "b":
                before = row
                continue
            assert change["ums_id_"] > self.orders.get(at, -1), f"the order number does not grow: {change}"
            self.orders[at] = change["ums_id_"]
            if op == "i":
                assert current is None, f"is there already: {current}, {change}"
                self.rows[at] = row
            elif op == "u":
                assert current not in (None, row), f"does not change: {current}, {change}"
                assert before == (current if self.images else None)
                self.rows[at] = row
            else:
                assert (op, current) == ("d", row), f"deletes another row: {current}, {change}"
                del self.rows[at]
            before = None


def choose_ways(source: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next batch read the state by lookups, by Spark, or by Spark once the lookups give too many rows; and fold it."""
    monkeypatch.setattr(small_batches, "MOST_CHANGED", source.choice([20_000, 20_000, 20_000, 20_000, 0]))
    monkeypatch.setattr(small_batches, "MOST_LOADED", source.choice([200_000, 200_000, 200_000, 40]))
    monkeypatch.setattr(step_state, "UPKEEP_EVERY", source.choice([50, 50, 50, 1]))


def compare(spark: SparkSession, checkpoint: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Random(seed)
    query, history = random_query(source), History(source, CASES)
    images = source.random() < 0.5
    flow, target = flow_of(query, checkpoint, images=images), Target(query.key, images=images)
    seen: set[str] = set()
    for number in range(BATCHES):
        tables = query.tables
        if number == 0 and source.random() < 0.3:
            tables = (source.choice(query.tables),)  # the others have not been seen yet
        batch = history.batch(tables, 8 if number == 0 else 1)
        seen.update(batch)

        def apply(run: StepFlow, batch: dict[str, list[Row]] = batch, number: int = number) -> list[Row]:
            choose_ways(source, monkeypatch)
            changes = [
                TableChanges(TABLES[name], make_frame(spark, TABLES[name], rows)) for name, rows in batch.items()
            ]
            schemas = [TABLES[name] for name in sorted(seen)]
            tables_after = run.apply(changes, spark, lambda: empty_changes(spark, schemas), number)
            return [row.asDict(recursive=True) for table in tables_after for row in table.frame.collect()]

        output = apply(flow)
        cut = source.choice(["", "", "before the state", "after the state"])
        if cut == "after the state":
            flow.commit()
        if cut:
            flow.end_batch()
            flow = flow_of(query, checkpoint, images=images)
            retry = apply(flow)
            assert sorted(map(repr, retry)) == sorted(map(repr, output)), (
                f"a repeated batch gives another output ({cut})"
            )
        target.write(output)
        flow.commit()
        flow.end_batch()
        if seen >= set(query.tables):
            expected, result = in_order(history.answer(query)), in_order(list(target.rows.values()))
            surplus, missing = ([x for x in a if x not in b] for a, b in ((result, expected), (expected, result)))
            assert result == expected, f"seed {seed}, batch {number}, {query.spark}\nmore: {surplus}\nless: {missing}"


def in_order(rows: Sequence[Row]) -> list[Any]:
    return sorted(
        (tuple(sorted((name, make_comparable(value)) for name, value in row.items())) for row in rows), key=repr
    )


@pytest.fixture(scope="module")
def small(spark: SparkSession) -> SparkSession:
    """A session for plans that are wide and rows that are few: to compile them would take longer than to interpret them."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("seed", range(scaled(1, 2000 // CASES)))
def test_the_output_equals_the_answer_over_the_tables(
    small: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(small, tmp_path, seed, monkeypatch)
