"""The plan of a flow as data: columns and their origins after each step, warnings, and effects of edits. No Spark session."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from connectors.options import ConfigDef
from spark_jobs.config import job_files as config
from spark_jobs.contract import Column, TableSchema
from spark_jobs.flows.edit import Edit, changed_options, find_edit_effects, table_changes
from spark_jobs.flows.planning import plan_flow
from spark_jobs.sources.tables import to_json
from spark_jobs.steps.contract import Step, StepContext
from spark_jobs.steps.options import build_steps
from spark_jobs.steps.planning.lineage import find_origins, hidden_columns, parents_of, plan_stages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spark_jobs.steps.planning.model import OutputTable

#: No server listens there: plans say so, and continue.
NOWHERE = "127.0.0.1:9"
ORDERS = TableSchema(
    "shop.orders",
    (
        Column("id", t.LongType(), nullable=False, key=True),
        Column("name", t.StringType()),
        Column("card", t.StringType()),
    ),
)
NOTES = TableSchema("shop.notes", (Column("text", t.StringType()),))


def properties(folder: Path | None = None, **more: str) -> dict[str, str]:
    return {
        "name": "j",
        "kafka.bootstrap.servers": NOWHERE,
        "source.topics": "t",
        "source.format": "debezium",
        "sink.type": "console",
        **({"checkpoint.location": str(folder)} if folder else {}),
        **{f"transform.{name}" if name.startswith("step") else name: value for name, value in more.items()},
    }


def parsed(**more: str) -> Any:
    checked, problems = config.check_job(properties(None, **more))
    assert checked is not None, problems
    return checked


def save(folder: Path, *tables: TableSchema) -> None:
    (folder / "schemas").mkdir()
    (folder / "schemas" / "1.json").write_text(to_json({table.namespace: table for table in tables}, {}))


STEPS = {
    "steps": "some,renamed,out",
    "step.some.type": "filter",
    "step.some.tables": "orders",
    "step.some.condition": "name <> ''",
    "step.renamed.type": "select",
    "step.renamed.tables": "orders",
    "step.renamed.columns": "id, concat(name, card) AS label, card AS number",
    "step.out.type": "sql",
    "step.out.sql": "SELECT id, upper(label) AS label FROM orders",
}


def test_schema_after_every_step_with_origins_in_the_source(tmp_path: Path) -> None:
    save(tmp_path, ORDERS, NOTES)
    plan = plan_flow(properties(tmp_path, **STEPS), ask=True)
    assert plan["valid"], plan
    assert [(table["table"], table["key"]) for table in plan["tables"]] == [("shop.notes", []), ("shop.orders", ["id"])]
    kept, renamed, out = plan["steps"]
    assert [kept["type"], renamed["type"], out["type"]] == ["filter", "select", "sql"]
    assert kept["matches"] == renamed["matches"] == out["matches"] == ["shop.orders"]
    filtered = next(table for table in kept["tables"] if table["table"] == "shop.orders")
    assert filtered["conditions"] == [{"table": "shop.orders", "condition": "name <> ''"}]
    written = next(table for table in out["tables"] if table["table"] == "out")
    assert written["columns"] == [
        {
            "name": "id",
            "type": "bigint",
            "nullable": False,
            "key": True,
            "from": [{"table": "shop.orders", "column": "id"}],
        },
        {
            "name": "label",
            "type": "string",
            "nullable": True,
            "key": False,
            "from": [{"table": "shop.orders", "column": "card"}, {"table": "shop.orders", "column": "name"}],
            "expression": "upper(label)",
        },
    ]
    assert plan["sinks"][0]["guarantee"] == "none"
    assert {"of": "step some", "keeps": "nothing"} in plan["state"]
    assert any("shop.notes: no step matches it" in text for text in plan["warnings"])
    assert plan["edit"] is None
    assert any("does not answer" in line for line in plan["source"])


def test_a_refusal_names_step_column_and_fix(tmp_path: Path) -> None:
    save(tmp_path, ORDERS)
    plan = plan_flow(
        properties(tmp_path, **{"steps": "cut", "step.cut.type": "select", "step.cut.columns": "upper(name) AS name"}),
        ask=False,
    )
    assert not plan["valid"]
    (error,) = plan["errors"]
    assert error["option"] == "transform.step.cut"
    assert "column id is of the key of table shop.orders" in error["message"]
    assert "Add id, or name the columns" in error["message"]


def test_a_key_that_the_sink_needs_and_no_table_has(tmp_path: Path) -> None:
    save(tmp_path, NOTES)
    jdbc = {"sink.type": "jdbc", "sink.jdbc.url": f"jdbc:postgresql://{NOWHERE}/x", "sink.jdbc.user": "u"}
    plan = plan_flow(properties(tmp_path, **jdbc, **{"sink.jdbc.password": "hidden-from-all"}), ask=False)
    assert [error["option"] for error in plan["errors"]] == ["sink.type"]
    assert "table shop.notes has no primary key" in plan["errors"][0]["message"]
    assert "hidden-from-all" not in json.dumps(plan)


def test_all_complaints_about_an_invalid_configuration_and_no_more() -> None:
    plan = plan_flow({**properties(), "sink.type": "consol", "trigger.interval.ms": "soon"}, ask=False)
    assert not plan["valid"]
    assert {error["option"] for error in plan["errors"]} == {"sink.type", "trigger.interval.ms"}


def test_a_step_that_matches_nothing_and_tables_that_nobody_has_seen(tmp_path: Path) -> None:
    assert any("no table has been seen yet" in text for text in plan_flow(properties(), ask=False)["warnings"])
    save(tmp_path, ORDERS)
    steps = {"steps": "a", "step.a.type": "filter", "step.a.tables": "lines", "step.a.condition": "true"}
    (unknown, untouched) = plan_flow(properties(tmp_path, **steps), ask=False)["warnings"]
    assert unknown.startswith("step a names the table lines, which no table seen so far is called")
    assert untouched == "table shop.orders: no step matches it, so it goes to the sink as it is"
    mask = {"steps": "m", "step.m.type": "mask", "step.m.rules": "r", "step.m.r.columns": "x", "step.m.r.type": "md5"}
    warnings = plan_flow(properties(tmp_path, **mask), ask=False)["warnings"]
    assert "step m: matches none of the tables that come to it: shop.orders" in warnings


def test_functions_that_spark_does_not_have_are_warned_of(tmp_path: Path) -> None:
    save(tmp_path, ORDERS)
    code = tmp_path / "functions.py"
    code.write_text("def loud(name: str) -> str: ...\n")
    steps = {
        "transform.functions": "Loud",
        "transform.function.Loud.python.file": str(code),
        "transform.function.Loud.python.function": "loud",
        "steps": "a,b",
        "step.a.type": "filter",
        "step.a.condition": "lenght(name) > 1 AND loud(name) <> 'A'",
        "step.b.type": "select",
        "step.b.columns": "id, upper(name) AS name, my_own(card) AS card, int(id) AS n, IF(id > 1, 1, 2) AS i",
    }
    answer = plan_flow(properties(tmp_path, **steps), ask=False)
    assert answer["valid"], answer
    first, second = [text for text in answer["warnings"] if "no function of Spark's" in text]
    assert first.startswith(
        "step a, table shop.orders: `lenght(name) > 1` calls lenght, which is no function of Spark's"
    )
    assert "did you mean length?" in first
    assert second.startswith("step b, table shop.orders: `my_own(card)` calls my_own, ")


def test_joins_and_windows_match_the_tables_that_they_name(tmp_path: Path) -> None:
    save(tmp_path, ORDERS, NOTES)
    steps = {
        "steps": "both,counted",
        "step.both.type": "join",
        "step.both.left": "orders",
        "step.both.right": "notes",
        "step.both.on": "name = text",
        "step.both.range.ms": "1000",
        "step.both.how": "full",
        "step.counted.type": "window",
        "step.counted.table": "both",
        "step.counted.size.ms": "10",
        "step.counted.aggregates": "count(*) AS n",
        "step.counted.watermark.ms": "0",
    }
    answer = plan_flow(properties(tmp_path, **steps), ask=False)
    assert answer["valid"], answer
    assert [step["matches"] for step in answer["steps"]] == [["shop.notes", "shop.orders"], ["both"]]
    about_steps = [text for text in answer["warnings"] if text.startswith(("step ", "table "))]
    assert [text.partition(": ")[2][:30] for text in about_steps] == [
        "how=full gives a table without",
        "watermark.ms=0: a row is late ",
    ]


def test_the_plan_tells_what_an_edit_changes(tmp_path: Path) -> None:
    save(tmp_path, ORDERS)
    old = properties(tmp_path, **{"steps": "a", "step.a.type": "select", "step.a.columns": "id, name, card"})
    new = properties(tmp_path, **{"steps": "a", "step.a.type": "select", "step.a.columns": "id, 1 AS one, card"})
    edit = plan_flow(new, old, ask=False)["edit"]
    assert edit["changed"] == ["transform.step.a.columns"]
    assert {(consequence["part"], consequence["effect"]) for consequence in edit["effects"]} >= {
        ("position", "kept"), ("steps", "changed"), ("state", "kept"), ("sink", "kept"),
    }  # fmt: skip
    assert edit["tables"] == [
        {"table": "shop.orders", "change": "changed", "columns_added": ["one"], "columns_removed": ["name"]}
    ]
    same = plan_flow(old, old, ask=False)["edit"]
    assert same["changed"] == []
    assert [consequence["effect"] for consequence in same["effects"]] == ["kept"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"source.topics": "t,u"}, ("source", "changed", "u: read from the first record")),
        ({"source.topics": "u"}, ("source", "refused", "t: the checkpoint has positions in it")),
        (
            {"source.topics": "u", "source.fail.on.data.loss": "false"},
            ("position", "dropped", "t: not read any more"),
        ),
        ({"checkpoint.location": "/elsewhere"}, ("position", "dropped", "to /elsewhere")),
        ({"source.starting.offsets": "latest"}, ("source.starting.offsets", "kept", "has no effect")),
        ({"source.starting.group": "java"}, ("source.starting.group", "kept", "has no effect")),
        ({"source.key.columns": "id"}, ("schemas", "kept", "source.key.columns changes")),
        ({"sink.type": "kafka", "sink.kafka.topic": "x"}, ("sink", "changed", "console keeps what it has")),
        ({"sink.console.rows": "3"}, ("sink", "changed", "sink.console.rows: what is written stays")),
        ({"spark.driver.memory": "2g"}, ("run", "changed", "another Spark application")),
        ({"trigger.interval.ms": "7"}, ("run", "changed", "its results stay the same")),
        ({"kafka.group.id": "g"}, ("group", "changed", "under the new group")),
    ],
)
def test_what_an_edit_keeps_and_drops(more: dict[str, str], expected: tuple[str, str, str]) -> None:
    part, effect, words = expected
    listed = [
        (consequence.part, consequence.effect, consequence.reason)
        for consequence in find_edit_effects(parsed(), parsed(**more))
    ]
    assert any(consequence[:2] == (part, effect) and words in consequence[2] for consequence in listed), listed


def test_state_of_steps_that_an_edit_drops() -> None:
    def window(name: str, table: str = "shop.orders") -> dict[str, str]:
        options = {"type": "window", "table": table, "size.ms": "1000", "aggregates": "count(*) AS n"}
        return {f"step.{name}.{option}": value for option, value in options.items()}

    def view(select: str) -> dict[str, str]:
        return {"step.v.type": "view", "step.v.sql": select, "step.v.key": "id"}

    old = parsed(
        steps="same,other,v,gone", **window("same"), **window("other"), **view("SELECT id FROM t"), **window("gone")
    )
    new = parsed(
        steps="same,other,v,added",
        **window("same") | {"step.same.size.ms": "2000"},
        **window("other", "shop.notes"),
        **view("SELECT id, name FROM t"),
        **window("added"),
    )
    listed = {
        effect.reason.partition(":")[0]: effect
        for effect in find_edit_effects(old, new, Edit(build_steps(old), build_steps(new)))
        if effect.part == "state"
    }
    assert {name: effect.effect for name, effect in listed.items()} == {
        "step same": "kept",
        "step other": "refused",
        "step v": "refused",
        "step gone": "dropped",
        "step added is new and begins with no state": "changed",
    }
    assert "was made with table=shop.orders (now shop.notes)" in listed["step other"].reason
    assert "was made with sql=SELECT id FROM t (now SELECT id, name FROM t)" in listed["step v"].reason
    moved = parsed(steps="same", **window("same"), **{"checkpoint.location": "/elsewhere"})
    parts = [e for e in find_edit_effects(old, moved, Edit(build_steps(old), build_steps(moved))) if e.part == "state"]
    assert {effect.effect for effect in parts} == {"dropped"}


def test_changed_options_and_tables() -> None:
    assert changed_options({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b", "c"]
    other = TableSchema("shop.orders", (Column("card", t.LongType(), key=True), *ORDERS.columns[:2]))
    assert table_changes([ORDERS, NOTES], [other, TableSchema("new", ())]) == [
        {
            "table": "shop.orders",
            "change": "changed",
            "types_changed": ["card"],
            "key_changed": {"from": ["id"], "to": ["card", "id"]},
        },
        {"table": "shop.notes", "change": "no longer written"},
        {"table": "new", "change": "new"},
    ]


def test_columns_that_a_later_step_masks_are_hidden_in_all_tables_before_it() -> None:
    steps = build_steps(
        parsed(
            **{
                "steps": "renamed,safe",
                "step.renamed.type": "select",
                "step.renamed.columns": "id, upper(card) AS number, name",
                "step.safe.type": "mask",
                "step.safe.rules": "r",
                "step.safe.r.columns": "shop.orders.number",
                "step.safe.r.type": "md5",
            }
        )
    )
    stages, refusal = plan_stages(steps, [ORDERS])
    assert refusal == ""
    assert hidden_columns(stages) == [
        frozenset({("shop.orders", "card")}),
        frozenset({("shop.orders", "number")}),
        frozenset(),
    ]
    assert find_origins(stages)[1]["shop.orders", "number"] == {("shop.orders", "card")}


def test_a_column_whose_origin_the_plan_does_not_say_reads_all_that_may_be_it() -> None:
    class Opaque(Step):
        config_def = ConfigDef([])

        def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
            return [TableSchema("new", (Column("secret", t.StringType()),)), *tables]

    everything = {("shop.orders", name) for name in ("id", "name", "card")}
    stages, _ = plan_stages([Opaque(StepContext("x", {}, {}))], [ORDERS])
    assert parents_of(stages[0])["new", "secret"] == everything
    assert parents_of(stages[0])["shop.orders", "card"] == {("shop.orders", "card")}
    # A route by a column: the run has other names than the plan.
    renamed = replace(stages[0], planned=(), after=(replace(ORDERS, namespace="orders_eu"),))
    assert parents_of(renamed)["orders_eu", "card"] == {("shop.orders", "card")}


def test_the_process_answers_one_request_and_starts_no_session() -> None:
    request = {"configuration": properties(), "running": None}
    done = subprocess.run(
        [sys.executable, "-m", "spark_jobs.flows.planning"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["plan"]["name"] == "j"
