"""Plans of flows with several sinks, lookups, Python steps, and sources other than topics. No Spark session."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid
from spark_jobs.config import job_files as config
from spark_jobs.flows.plan_client import ask_plan
from spark_jobs.flows.plan_lines import plan_lines
from spark_jobs.flows.planning import merge_lines, plan_flow
from spark_jobs.preview.client import describe_refusal, preview_flow
from spark_jobs.preview.request import read_request
from spark_jobs.steps.options import build_steps
from spark_jobs.steps.planning.lineage import hidden_columns, plan_stages
from tests.unit.spark_jobs.preview.test_flow_plan import NOTES, ORDERS, properties, save

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "source.type": "files",
    "source.files.path": "/drop",
    "source.files.format": "csv",
    "source.files.namespace": "drop.orders",
    "source.key.columns": "id",
}
HISTORY = {"source.type": "history", "source.history.path": "/history", "trigger.mode": "available-now"}


def without_topics(**more: str) -> dict[str, str]:
    return {"name": "j", "sink.type": "console", **more}


def two_sinks(folder: Path, **more: str) -> dict[str, str]:
    flow = {
        "sinks": "screen,database",
        "sink.screen.type": "console",
        "sink.database.type": "jdbc",
        "sink.database.jdbc.url": "jdbc:postgresql://127.0.0.1:9/x",
        "sink.database.jdbc.user": "u",
        "sink.database.jdbc.password": "hidden-from-all",
        **more,
    }
    return {name: value for name, value in properties(folder, **flow).items() if name != "sink.type"}


def save_for_sinks(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir()
        save(folder / name, ORDERS, NOTES)


def test_a_plan_has_the_guarantee_and_the_refusals_of_each_sink(tmp_path: Path) -> None:
    save_for_sinks(tmp_path, "screen", "database")
    answer = plan_flow(two_sinks(tmp_path), ask=False)
    assert answer["name"] == "j"
    shown = [(sink["name"], sink["type"], sink["guarantee"]) for sink in answer["sinks"]]
    assert shown == [("screen", "console", "none"), ("database", "jdbc", "exactly-once")]
    # The table without a key is fine for one of them.
    assert [error["option"] for error in answer["errors"]] == ["sink.database.type"]
    assert "table shop.notes has no primary key" in answer["errors"][0]["message"]
    assert [state["of"] for state in answer["state"]] == ["source of the sink screen", "source of the sink database"]
    assert str(tmp_path / "database") in answer["state"][1]["keeps"]
    assert "hidden-from-all" not in json.dumps(answer)
    invalid = plan_flow(two_sinks(tmp_path, **{"sink.screen.type": "consol"}), ask=False)
    assert [error["option"] for error in invalid["errors"]] == ["sink.screen.type"]


def test_a_sink_that_has_seen_no_table_is_warned_of_alone(tmp_path: Path) -> None:
    save_for_sinks(tmp_path, "database")
    answer = plan_flow(two_sinks(tmp_path), ask=False)
    assert [table["table"] for table in answer["tables"]] == ["shop.notes", "shop.orders"]
    (unseen,) = [text for text in answer["warnings"] if "no table has been seen yet" in text]
    assert unseen.startswith("sink screen: ")
    assert merge_lines({"a": ["x", "y"], "b": ["x"]}) == ["x", "sink a: y"]
    assert merge_lines({"": ["x"]}) == ["x"]


def test_an_edit_of_sinks_says_what_each_of_them_keeps(tmp_path: Path) -> None:
    save_for_sinks(tmp_path, "screen", "database")
    old = two_sinks(tmp_path)
    new = two_sinks(tmp_path, **{"sinks": "screen,copy", "sink.screen.console.rows": "3", "sink.copy.type": "console"})
    new = {name: value for name, value in new.items() if not name.startswith("sink.database.")}
    edit = plan_flow(new, old, ask=False)["edit"]
    effects = {(effect["sink"], effect["part"], effect["effect"]) for effect in edit["effects"]}
    assert effects >= {("screen", "position", "kept"), ("screen", "sink", "changed"), ("copy", "sink", "changed")}
    assert ("database", "sink", "dropped") in effects
    assert "sinks" in edit["changed"]
    assert edit["tables"] == []

    # A flow with one sink becomes one of two: the sink that has the job's name keeps its position.
    single = properties(tmp_path / "screen")
    moved = two_sinks(tmp_path, **{"sink.screen.job.name": "j"})
    kept = plan_flow(moved, single, ask=False)["edit"]["effects"]
    assert {(effect["sink"], effect["part"], effect["effect"]) for effect in kept} >= {
        ("screen", "sink", "kept"), ("database", "sink", "changed"),
    }  # fmt: skip


def test_columns_of_lookups_come_from_the_key_of_the_lookup(tmp_path: Path) -> None:
    save(tmp_path, ORDERS, NOTES)
    steps = {
        "steps": "crm,out",
        "step.crm.type": "lookup",
        "step.crm.tables": "orders",
        "step.crm.url": "jdbc:postgresql://127.0.0.1:9/crm",
        "step.crm.table": "public.people",
        "step.crm.user": "u",
        "step.crm.on": "NAME = person",
        "step.crm.columns": "city string AS town, points int",
        "step.crm.cache.rows": "0",
        "step.out.type": "sql",
        "step.out.sql": "SELECT id, upper(town) AS town FROM orders",
    }
    answer = plan_flow(properties(tmp_path, **steps), ask=False)
    assert answer["valid"], answer
    crm, out = answer["steps"]
    assert crm["matches"] == ["shop.orders"]
    looked_up = next(table for table in crm["tables"] if table["table"] == "shop.orders")["columns"]
    assert [column["name"] for column in looked_up] == ["id", "name", "card", "town", "points"]
    name = [{"table": "shop.orders", "column": "name"}]
    assert looked_up[3]["from"] == looked_up[4]["from"] == name
    assert looked_up[3]["expression"] == "city from postgresql public.people where person = name"
    assert "expression" not in looked_up[1]
    assert next(column for column in out["tables"][-1]["columns"] if column["name"] == "town")["from"] == name
    warning = "step crm: cache.rows=0: there is no cache, so every batch asks postgresql public.people"
    assert any(text.startswith(warning) for text in answer["warnings"])
    assert {"of": "step crm", "keeps": "nothing"} in answer["state"]

    cached = plan_flow(properties(tmp_path, **steps | {"step.crm.cache.rows": "7"}), ask=False)
    assert not any("cache" in text for text in cached["warnings"])
    assert any("a cache of at most 7 keys" in state["keeps"] for state in cached["state"])


def test_columns_of_python_steps_may_come_from_each_column_of_their_table(tmp_path: Path) -> None:
    save(tmp_path, ORDERS, NOTES)
    code = tmp_path / "functions.py"
    code.write_text("def score(rows):\n    raise SystemExit\n")
    steps = {
        "steps": "scored,safe",
        "step.scored.type": "python",
        "step.scored.tables": "orders",
        "step.scored.python.file": str(code),
        "step.scored.python.function": "score",
        "step.scored.columns": "score double, card string",
        "step.safe.type": "mask",
        "step.safe.rules": "r",
        "step.safe.r.columns": ".*score",
        "step.safe.r.type": "md5",
    }
    flow = properties(tmp_path, **steps)
    answer = plan_flow(flow, ask=False)
    assert answer["valid"], answer
    scored = next(table for table in answer["steps"][0]["tables"] if table["table"] == "shop.orders")["columns"]
    origins = {column["name"]: [origin["column"] for origin in column["from"]] for column in scored}
    everything = ["card", "id", "name"]
    assert origins == {"id": ["id"], "name": ["name"], "card": everything, "score": everything}
    assert scored[2]["expression"] == f"score of {code}"

    # A column that is masked later hides all that the function may have made it of.
    (job,) = config.build_flow(flow)
    stages, _ = plan_stages(build_steps(job.config), [NOTES, ORDERS])
    assert hidden_columns(stages)[0] == {("shop.orders", name) for name in everything}
    assert hidden_columns(stages)[1] == {("shop.orders", "score")}

    text = "\n".join(plan_lines(job))
    assert f"score double = score of {code}" in text


def test_a_module_that_prints_does_not_spoil_the_plan(tmp_path: Path) -> None:
    save(tmp_path, ORDERS)
    code = tmp_path / "functions.py"
    code.write_text(
        "from typing import TypedDict\nclass Out(TypedDict):\n    score: int\n"
        "print('loaded')\ndef score(rows) -> Out: ...\n"
    )
    steps = {"steps": "s", "step.s.type": "python", "step.s.python.file": str(code), "step.s.python.function": "score"}
    answer = asyncio.run(ask_plan(properties(tmp_path, **steps), None, 60))
    assert [column["name"] for column in answer["steps"][0]["tables"][0]["columns"]] == ["id", "name", "card", "score"]


@pytest.mark.parametrize(
    ("source", "line", "keeps"),
    [
        (FILES, "reads files (csv) from /drop as table drop.orders", "names of the files that were read"),
        (HISTORY, "reads the history in /history", "the chunks of the history"),
    ],
)
def test_sources_without_topics_have_a_plan_that_asks_no_kafka(source: dict[str, str], line: str, keeps: str) -> None:
    answer = plan_flow(without_topics(**source))
    assert answer["valid"], answer
    assert answer["source"] == [line]
    assert answer["state"][0]["keeps"].startswith(keeps)
    assert any("columns are" in text for text in answer["warnings"])


@pytest.mark.parametrize(
    ("old", "more", "expected"),
    [
        (FILES, {"source.files.path": "/other"}, ("source", "changed", "those that were stay read")),
        (HISTORY, {"source.history.since": "2026-01-01T00:00:00Z"}, ("source", "refused", "another name")),
        (HISTORY, {"source.tables": "shop.orders"}, ("source", "refused", "source.tables")),
    ],
)
def test_edits_of_sources_without_topics(
    old: dict[str, str], more: dict[str, str], expected: tuple[str, str, str]
) -> None:
    edit: Any = plan_flow(without_topics(**old | more), without_topics(**old), ask=False)["edit"]
    part, effect, words = expected
    assert any(
        (item["part"], item["effect"]) == (part, effect) and words in item["reason"] for item in edit["effects"]
    ), edit


def test_another_type_of_source_can_not_continue() -> None:
    edit: Any = plan_flow(without_topics(**FILES), properties(), ask=False)["edit"]
    assert ("source", "refused") in [(effect["part"], effect["effect"]) for effect in edit["effects"]]


def test_previews_of_sources_without_topics_are_refused_or_take_given_rows() -> None:
    rows = {"rows": [{"table": "drop.orders", "row": {"id": 1}}]}
    with pytest.raises(ConfigInvalid, match="reads no files: give rows"):
        asyncio.run(preview_flow(without_topics(**FILES), {}, deadline_s=10))
    with pytest.raises(ConfigInvalid, match=r"source\.type=history has no preview"):
        asyncio.run(preview_flow(without_topics(**HISTORY), rows, deadline_s=10))
    assert describe_refusal(config.build_job(without_topics(**FILES)), read_request(rows)) == ""
