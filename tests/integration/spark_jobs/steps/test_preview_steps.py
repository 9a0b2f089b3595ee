"""Given rows through the steps of flows whose tables are in a checkpoint: no Kafka, one Spark session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from connectors.errors import ConfigInvalid
from spark_jobs.config import job_files as config
from spark_jobs.contract import Column, TableSchema
from spark_jobs.preview.limits import Limit
from spark_jobs.preview.request import read_request
from spark_jobs.preview.run import run_preview
from spark_jobs.sources.tables import to_json
from tests.integration.spark_jobs.lookup.conftest import row_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.spark_jobs.lookup.conftest import RowServer

    Preview = Callable[..., dict[str, Any]]

__all__ = ["row_server"]

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
        topics = {"kafka.bootstrap.servers": "127.0.0.1:9", "source.topics": "t", "source.format": "plain"}
        job, *_ = config.build_flow(
            {
                "name": "j",
                "checkpoint.location": str(tmp_path),
                **({} if "source.type" in options else topics),
                **({} if "sinks" in options else {"sink.type": "console"}),
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


FUNCTIONS = """
def score(rows):
    if 13 in [int(price) for price in rows["price"].to_pylist()]:
        raise ValueError("an unlucky price")
    return {"score": [7] * rows.num_rows, "phone": [None] * rows.num_rows}

def loud(text: str) -> str:
    return text.upper() + "!"
"""


def test_rows_through_lookups_python_and_functions_in_sql(
    preview: Preview, row_server: RowServer, tmp_path: Path
) -> None:
    code = tmp_path / "functions.py"
    code.write_text(FUNCTIONS)
    row_server.rows = {"7": {"city": "Rome"}, "9": {"city": "Oslo"}, "10": {"city": "Bonn"}}
    steps = {
        "transform.steps": "crm,scored,cries",
        "transform.functions": "loud",
        "transform.function.loud.python.file": str(code),
        "transform.step.crm.type": "lookup",
        "transform.step.crm.url": f"{row_server.url}/rows/${{id}}",
        "transform.step.crm.on": "code = id",
        "transform.step.crm.columns": "city string",
        "transform.step.crm.miss": "drop",
        "transform.step.scored.type": "python",
        "transform.step.scored.python.file": str(code),
        "transform.step.scored.python.function": "score",
        "transform.step.scored.columns": "score int, phone string",
        "transform.step.cries.type": "sql",
        "transform.step.cries.sql": "SELECT id, loud(city) AS cry, score FROM orders WHERE loud(city) <> 'BONN!'",
    }
    rows = [
        {"table": "orders", "row": {"id": number, "code": code, "price": price, "phone": "+49"}}
        for number, code, price in ((1, "7", "1"), (2, "unknown", "1"), (3, "9", "13"), (4, "10", "1"))
    ]
    rows.append({"table": "orders", "op": "u", "row": {"id": 1, "code": "unknown"}})
    answer = preview(rows, **steps)
    assert "error" not in answer, answer
    crm, scored, cries = answer["steps"]
    assert not [step["error"] for step in answer["steps"] if "error" in step]
    assert [(step["rows_in"], step["rows_out"]) for step in answer["steps"]] == [(5, 4), (4, 3), (3, 1)]
    (missed,) = crm["dropped"]
    assert (missed["values"]["id"], missed["reason"]) == (2, "its key is not in http (miss=drop)")
    (moved,) = crm["changed"]
    assert (moved["op"], moved["reason"]) == ("u", "becomes d: its key is not in http (miss=drop)")
    (failing,) = scored["errors"]
    assert (failing["values"]["id"], failing["values"]["phone"]) == (3, "+49")
    assert "ValueError: an unlucky price" in failing["reason"]
    (quiet,) = cries["dropped"]
    assert quiet["values"]["id"] == 4
    assert "loud(city)" in quiet["reason"].lower()
    assert quiet["reason"].endswith("is false")
    # The function is called with the null of the delete, and fails in the condition and in the column.
    (silent,) = cries["errors"]
    assert (silent["values"]["id"], silent["values"]["city"]) == (1, None)
    assert "AttributeError: 'NoneType'" in silent["reason"]
    assert values(cries["tables"][0]) == [{"id": 1, "cry": "ROME!", "score": 7}]

    # What a function raises may quote values, so a flow with masks does not show it.
    mask = {"mask.rules": "r", "mask.r.columns": ".*card", "mask.r.type": "md5"}
    masked = preview(rows, **steps, **mask)
    assert "columns are masked" in masked["steps"][1]["errors"][0]["reason"]


def test_given_rows_of_files_of_chosen_tables_and_of_flows_with_sinks(preview: Preview, tmp_path: Path) -> None:
    files = {"source.type": "files", "source.files.path": "/drop", "source.files.format": "csv"}
    files |= {"source.files.namespace": "shop.orders", "source.key.columns": "id"}
    answer = preview(ROWS, **files, **{"transform.steps": "typed", **TYPED})
    assert [column["type"] for column in answer["inputs"][0]["columns"]][:3] == ["bigint", "string", "decimal(10,2)"]
    assert [row["n"] for row in values(answer["steps"][0]["tables"][0])] == [7, 8]
    new = preview([{"table": "new", "row": {"id": 1, "code": "2"}}], **files)
    assert (new["inputs"][0]["table"], new["inputs"][0]["key"]) == ("new", ["id"])

    with pytest.raises(
        ConfigInvalid, match=r"row 1: the flow does not read table shop\.orders: source\.tables is other"
    ):
        preview(ROWS, **{"source.tables": "other"})

    sinks = {
        "sinks": "a,b",
        "sink.a.type": "console",
        "sink.a.checkpoint.location": str(tmp_path),
        "sink.b.type": "console",
    }
    flow = preview(ROWS, **sinks, **{"transform.steps": "typed", **TYPED})
    assert flow["name"] == "j"
    assert [row["n"] for row in values(flow["steps"][0]["tables"][0])] == [7, 8]
