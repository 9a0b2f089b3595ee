"""Given rows through the steps of flows whose tables are in a checkpoint: no Kafka, one Spark session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from connectors.errors import ConfigInvalid
from spark_jobs import config
from spark_jobs.contract import Column, TableSchema
from spark_jobs.preview.limits import Limit
from spark_jobs.preview.request import read_request
from spark_jobs.preview.run import run_preview
from spark_jobs.sources.tables import to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Preview = Callable[..., dict[str, Any]]

ORDERS = TableSchema(
    "shop.orders",
    (
        Column("id", t.LongType(), nullable=False, key=True),
        Column("code", t.StringType()),
        Column("price", t.DecimalType(10, 2)),
        Column("card", t.StringType()),
        Column("phone", t.StringType()),
    ),
)
ROWS = [
    {"table": "orders", "row": {"id": 1, "code": "7", "price": "1.50", "card": "4111", "phone": "+49"}},
    {"table": "shop.orders", "row": {"id": 2, "code": "seven", "card": "4222", "phone": "+49"}},
    {"table": "orders", "op": "u", "row": {"id": 1, "code": "8", "price": "2.00", "card": "4333"}},
]
SECRETS = ("4111", "4222", "4333", "+49", "seven")


@pytest.fixture
def preview(spark: SparkSession, tmp_path: Path) -> Preview:
    """A preview of a flow with these options, in a session of its own; compares the checkpoint before and after."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "1.json").write_text(to_json({"shop.orders": ORDERS}, {}))

    def run(rows: list[dict[str, Any]] = ROWS, seconds: float = 120, **options: str) -> dict[str, Any]:
        job = config.build(
            {
                "name": "j",
                "kafka.bootstrap.servers": "127.0.0.1:9",
                "source.topics": "t",
                "source.format": "plain",
                "sink.type": "console",
                "checkpoint.location": str(tmp_path),
                **options,
            }
        )
        session = spark.newSession()
        before = sorted(tmp_path.rglob("*"))
        with Limit(seconds) as limit:
            limit.guard(session)
            answer = run_preview(job, read_request({"rows": rows}), session, limit)
        assert sorted(tmp_path.rglob("*")) == before
        return answer

    return run


TYPED = {
    "transform.step.typed.type": "select",
    "transform.step.typed.columns": "id, CAST(code AS int) AS n, card, phone AS tel",
}


def values(table: dict[str, Any]) -> list[dict[str, Any]]:
    return [row["values"] for row in table["rows"]]


def test_types_and_keys_are_those_of_the_checkpoint_and_rows_fail_alone(preview: Preview) -> None:
    answer = preview(**{"transform.steps": "typed", **TYPED})
    (table,) = answer["inputs"]
    assert (table["key"], [column["type"] for column in table["columns"]]) == (
        ["id"],
        ["bigint", "string", "decimal(10,2)", "string", "string"],
    )
    assert [row["price"] for row in values(table)] == ["1.50", None, "2.00"]
    (step,) = answer["steps"]
    assert [row["n"] for row in values(step["tables"][0])] == [7, 8]
    (failing,) = step["errors"]
    assert failing["record"] == "(given)-0 offset 2"
    assert failing["reason"].startswith("CAST(code AS INT): [CAST_INVALID_INPUT]")
    assert answer["warnings"] == []


def test_masks_of_the_flow_and_of_later_steps_hide_values(preview: Preview) -> None:
    masks = {"mask.rules": "r", "mask.r.columns": ".*card", "mask.r.type": "chars", "mask.r.length": "3"}
    step = {"transform.step.safe.type": "mask", "transform.step.safe.rules": "q", "transform.step.safe.q.type": "md5"}
    answer = preview(
        **{"transform.steps": "typed,safe", **TYPED, **step, **masks, "transform.step.safe.q.columns": ".*tel"}
    )
    assert [(row["card"], row["phone"]) for row in values(answer["inputs"][0])] == [
        ("***", "***"), ("***", "***"), ("***", None),
    ]  # fmt: skip
    typed, safe = answer["steps"]
    assert [(row["card"], row["tel"]) for row in values(typed["tables"][0])] == [("***", "***"), ("***", None)]
    assert [len(row["tel"] or "") for row in values(safe["tables"][0])] == [32, 0]
    assert "columns are masked" in typed["errors"][0]["reason"]
    text = json.dumps({**answer, "inputs": [], "steps": [{**typed, "errors": []}, safe]})
    assert not [secret for secret in SECRETS if secret in text]

    # A step before the mask fails: the columns to mask are not known, so all values are hidden.
    failed = preview(
        **{"transform.steps": "typed,safe", **TYPED, **step, "transform.step.safe.q.columns": ".*tel"}
        | {"transform.step.typed.columns": "id, nope"}
    )
    assert "has no column nope" in failed["steps"][0]["error"]
    assert not [secret for secret in SECRETS if secret in json.dumps(failed)]


def test_duplicates_unions_and_the_end_at_a_step_that_is_refused(preview: Preview) -> None:
    answer = preview(
        **{
            "transform.steps": "newest,all,wrong",
            "transform.step.newest.type": "deduplicate",
            "transform.step.all.type": "union",
            "transform.step.all.output": "everything",
            "transform.step.all.table.column": "origin",
            "transform.step.wrong.type": "filter",
            "transform.step.wrong.condition": "nope > 1",
        }
    )
    newest, together, wrong = answer["steps"]
    (left_out,) = newest["dropped"]
    assert (left_out["values"]["code"], "later change of the same key" in left_out["reason"]) == ("7", True)
    assert together["tables"][0]["key"] == ["origin", "id"]
    assert sorted(row["id"] for row in values(together["tables"][0])) == [1, 2]
    assert "has no column nope" in wrong["error"]
    assert (wrong["rows_in"], wrong["rows_out"]) == (2, 0)


def test_rows_that_do_not_fit_and_time_that_is_over(preview: Preview) -> None:
    with pytest.raises(ConfigInvalid, match=r"row 2 does not fit table shop\.orders \(id bigint"):
        preview([ROWS[0], {"table": "orders", "row": {"id": "x"}}])
    with pytest.raises(ConfigInvalid, match=r"row 1: table shop\.orders has no column idd"):
        preview([{"table": "orders", "row": {"idd": 1}}])
    late = preview(seconds=0.001)
    assert late["error"] == "the time limit of 0.001 s is over"
