"""Functions of users in steps: over Arrow batches, in SQL, and rows for which they fail."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.sources.test_whole_jobs import Jobs, jdbc, jobs
from tests.integration.spark_jobs.steps.test_histories import compare, random_events
from tests.integration.spark_jobs.steps.test_step_jobs import event

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.postgres import Postgres

__all__ = ["jobs"]

SOURCE = """
from __future__ import annotations
from typing import TypedDict
import pyarrow as pa
import pyarrow.compute as pc

class Numbers(TypedDict):
    twice: int
    label: str

def numbers(rows: pa.RecordBatch) -> Numbers:
    return {
        "twice": pc.multiply(rows["amount"], 2),
        "label": [None if name is None else f"<{name}>" for name in rows["name"].to_pylist()],
    }

class Scaled:
    def __init__(self, options):
        self.factor = int(options["factor"])

    def __call__(self, rows):
        if 13 in rows["amount"].to_pylist():
            raise ValueError("an unlucky amount")
        return pa.RecordBatch.from_pydict({"scaled": pc.multiply(rows["amount"], self.factor)})

def loud(name: str | None) -> str | None:
    if name == "quiet":
        raise ValueError("never loud")
    return None if name is None else name.upper() + "!"
"""


@pytest.fixture
def code(tmp_path: Path) -> str:
    file = tmp_path / "functions.py"
    file.write_text(SOURCE)
    return str(file)


@pytest.mark.parametrize("before", [False, True], ids=["alone", "with images"])
def test_a_function_over_batches(spark: SparkSession, code: str, before: bool) -> None:
    steps = {
        "steps": "p,f",
        "step.p.type": "python",
        "step.p.python.file": code,
        "step.p.python.function": "numbers",
        "step.f.type": "filter",
        "step.f.condition": "twice > 4 OR label = '<b>'",
    }
    query = "SELECT *, amount * 2 AS twice, '<' || name || '>' AS label FROM shop.orders WHERE amount > 2 OR name = 'b'"
    compare(spark, (steps, "shop.orders", query), random_events(3), before=before, whole=False)


@pytest.mark.parametrize("before", [False, True], ids=["alone", "with images"])
def test_a_function_in_sql(spark: SparkSession, code: str, before: bool) -> None:
    steps = {
        "functions": "loud",
        "function.loud.python.file": code,
        "steps": "q",
        "step.q.type": "sql",
        "step.q.sql": "SELECT id, concat(Loud(name), '?') AS cry FROM shop.orders WHERE loud(name) <> 'A!' OR amount = 1",
    }
    query = "SELECT id, upper(name) || '!?' AS cry FROM shop.orders WHERE upper(name) <> 'A' OR amount = 1"
    compare(spark, (steps, "q", query), random_events(4), before=before, whole=False)


def test_functions_of_an_installed_package(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names of their entry points, over batches and in SQL."""
    module = tmp_path / "shop_functions.py"
    module.write_text(SOURCE)
    info = tmp_path / "shop_functions-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-functions\nVersion: 1.0\n")
    points = "shop_numbers = shop_functions:numbers\nshop_loud = shop_functions:loud\n"
    (info / "entry_points.txt").write_text(f"[millrace.functions]\n{points}")
    monkeypatch.syspath_prepend(str(tmp_path))
    spark.sparkContext.addPyFile(str(module))  # an installed package is there for Spark's Python workers, too
    steps = {
        "functions": "loud",
        "function.loud.python.function": "shop_loud",
        "steps": "p,q",
        "step.p.type": "python",
        "step.p.python.function": "shop_numbers",
        "step.q.type": "sql",
        "step.q.sql": "SELECT id, twice, loud(label) AS cry FROM shop.orders WHERE loud(name) <> 'A!'",
    }
    query = "SELECT id, amount * 2 AS twice, upper('<' || name || '>') || '!' AS cry FROM shop.orders WHERE name <> 'a'"
    compare(spark, (steps, "q", query), random_events(5), before=True, whole=False)


def test_rows_for_which_functions_fail(jobs: Jobs, postgres: Postgres, code: str) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"t{secrets.token_hex(4)}"
    options = {
        "source.format": "debezium",
        **jdbc(postgres),
        "transform.functions": "loud",
        "transform.function.loud.python.file": code,
        "transform.steps": "scaled, cries",
        "transform.step.scaled.type": "python",
        "transform.step.scaled.python.file": code,
        "transform.step.scaled.python.function": "Scaled",
        "transform.step.scaled.python.option.factor": "3",
        "transform.step.scaled.columns": "scaled bigint",
        "transform.step.cries.type": "select",
        "transform.step.cries.columns": "id, scaled, loud(name) AS cry",
    }
    pairs = [("a", 1), ("b", 13), ("quiet", 2), ("d", 4)]
    records = [event("c", table, id=number, name=name, amount=amount) for number, (name, amount) in enumerate(pairs)]
    jobs.send(jobs.name, records)
    error = jobs.run(jobs.name, **options)
    unlucky = f"step scaled, table shop.{table}: Scaled of {code}: ValueError: an unlucky amount"
    assert f"{unlucky} (record at {jobs.name}-0 offset 1)" in error
    letters = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{jobs.name}-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    assert jobs.run(jobs.name, **options, **letters) == ""
    assert server.rows(table, "id, scaled, cry") == [(0, 3, "A!"), (3, 12, "D!")]
    reasons = {
        message.value(): dict(message.headers())["__connect.errors.exception.message"].decode()
        for message in jobs.read(f"{jobs.name}-dead")
    }
    assert reasons.keys() == {records[1][1], records[2][1]}
    assert reasons[records[1][1]] == unlucky
    assert (
        f"step cries, table shop.{table}: loud(name): [USER_RAISED_EXCEPTION] loud of {code}: ValueError: never loud"
        in reasons[records[2][1]]
    )
