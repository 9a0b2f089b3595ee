"""Options of steps in job files: both forms, and what is refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from connectors.errors import ConfigInvalid
from spark_jobs.config import job_files as config
from spark_jobs.steps.options import build_steps

if TYPE_CHECKING:
    from pathlib import Path

JOB = {
    "name": "j",
    "kafka.bootstrap.servers": "b:9092",
    "source.topics": "t",
    "source.format": "debezium",
    "sink.type": "console",
}
STEPS = {
    "transform.steps": "paid, out",
    "transform.step.paid.type": "filter",
    "transform.step.paid.condition": "amount > 0, 1",
    "transform.step.out.type": "sql",
    "transform.step.out.sql": "SELECT id, name FROM t",
}


def complaints(**more: str) -> dict[str, str]:
    parsed, problems = config.check_job({**JOB, **STEPS, "transform.step.paid.condition": "amount > 0", **more})
    assert (parsed is None) == bool(problems)
    return {problem.name: problem.message for problem in problems}


def test_a_list_of_mappings_says_the_same_as_dotted_names() -> None:
    text = """
name: j
transform:
  steps:
    - name: paid
      type: filter
      condition: "amount > 0, 1"
    - {name: out, type: sql, sql: "SELECT id, name FROM t"}
"""
    parsed = config.parse_text(text, "job.yaml")
    assert parsed.properties == {"name": "j", **STEPS, "transform.steps": "paid,out"}
    assert parsed.lines["transform.step.paid.condition"] == 7
    document = {
        "name": "j",
        "transform": {
            "steps": [
                {"name": "paid", "type": "filter", "condition": "amount > 0, 1"},
                {"name": "out", "type": "sql", "sql": "SELECT id, name FROM t"},
            ]
        },
    }
    assert config.parse_text(json.dumps(document), "job.json", as_json=True).properties == parsed.properties


@pytest.mark.parametrize(
    "steps", ["[{type: filter}]", "[{name: , type: filter}]", "[{name: a, name: b}]", "[a, {name: b}]"]
)
def test_a_step_of_a_list_needs_one_name(steps: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"job\.yaml:1: .*"):
        config.parse_text(f"transform.steps: {steps}", "job.yaml")


def test_steps_are_built_with_their_options() -> None:
    parsed, problems = config.check_job({**JOB, **STEPS, "transform.step.paid.condition": "amount > 0"})
    assert parsed is not None, problems
    steps = build_steps(parsed)
    assert [(step.name, type(step).__name__) for step in steps] == [("paid", "FilterStep"), ("out", "SqlStep")]
    assert steps[0].context.options == {"condition": "amount > 0", "tables": None}


@pytest.mark.parametrize(
    ("more", "option", "message"),
    [
        ({"transform.step.paid.type": "filtre"}, "transform.step.paid.type", "must be one of"),
        (
            {"transform.step.paid.conditon": "x"},
            "transform.step.paid.conditon",
            "did you mean transform.step.paid.condition",
        ),
        (
            {"transform.step.other.type": "filter"},
            "transform.step.other.type",
            "does not name: add other to transform.steps",
        ),
        ({"transform.steps": "paid,out,paid"}, "transform.steps", "two steps have this name"),
        ({"transform.steps": "paid,out,1"}, "transform.steps", "begins with a letter"),
        ({"transform.step.paid.condition": "sum(amount) > 1"}, "transform.step.paid.condition", "the aggregate sum"),
        ({"transform.step.out.sql": "SELECT DISTINCT id FROM t"}, "transform.step.out.sql", "DISTINCT"),
        ({"sink.console.content": "records"}, "sink.console.content", "set sink.console.content=rows"),
        ({"transform.type": "materialize", "sink.type": "kafka"}, "transform.steps", "materializer's output"),
    ],
)
def test_what_is_refused_by_name(more: dict[str, str], option: str, message: str) -> None:
    assert message in complaints(**more)[option]


def sql(name: str, *tables: str) -> dict[str, str]:
    union = " UNION ALL ".join(f"SELECT id FROM {table}" for table in tables)  # noqa: S608 - parsed only
    return {f"transform.step.{name}.type": "sql", f"transform.step.{name}.sql": union}


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            sql("a", "b") | sql("b", "t"),
            "which the later step b makes; steps run in order. Put b before a, or give b another name if the source has a",
        ),
        (
            sql("a", "b") | sql("b", "c") | sql("c", "a"),
            "The step b in turn reads what a makes, so no order of them can work",
        ),
        (
            {
                "transform.step.a.type": "filter",
                "transform.step.a.tables": "x.y",
                "transform.step.a.condition": "id > 1",
            }
            | {"transform.step.b.type": "union", "transform.step.b.tables": "t, u", "transform.step.b.output": "x.y"},
            "step a reads the table x.y, which the later step b makes; steps run in order. Put b before a",
        ),
        # Each of these reads a table of the source, or one that is made before it.
        (sql("a", "a", "t"), ""),
        (sql("a", "t") | sql("b", "a", "t"), ""),
        (sql("a", "b") | sql("b", "b"), ""),
        (sql("a", "b") | sql("b", "shop.b"), ""),
        (sql("a", "b") | sql("b", "`mysql.crm.shop.b.v1.0.0`"), ""),
    ],
)
def test_steps_read_what_earlier_steps_make(steps: dict[str, str], message: str) -> None:
    names = list(dict.fromkeys(name.split(".")[2] for name in steps))
    _, problems = config.check_job({**JOB, "transform.steps": ",".join(names), **steps})
    if not message:
        assert problems == []
    else:
        assert {problem.name for problem in problems} == {"transform.steps"}
        assert message in problems[0].message


def test_missing_options_of_a_step() -> None:
    _, problems = config.check_job({**JOB, "transform.steps": "a", "transform.step.a.type": "filter"})
    assert [problem.name for problem in problems] == ["transform.step.a.condition"]
    _, problems = config.check_job({**JOB, "transform.steps": "a"})
    assert [problem.name for problem in problems] == ["transform.step.a.type"]


def test_other_packages_bring_types_of_steps_by_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loud_steps.py").write_text(
        "from connectors.options import ConfigDef, ConfigKey, ConfigType\n"
        "from spark_jobs.steps.contract import Step\n\n"
        "class Loud(Step):\n"
        "    config_def = ConfigDef([ConfigKey(name='volume', type=ConfigType.INT, default=1, doc='How loud.')])\n\n"
        "    def plan(self, tables):\n"
        "        return list(tables)\n"
    )
    info = tmp_path / "loud_steps-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud-steps\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[millrace.steps]\nloud = loud_steps:Loud\nfilter = loud_steps:Loud\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    more = {"transform.steps": "l,paid", "transform.step.l.type": "loud", "transform.step.l.volume": "7"}
    kept = {name: value for name, value in STEPS.items() if ".out." not in name}
    parsed, problems = config.check_job(JOB | kept | more)
    assert parsed is not None, problems
    loud, paid = build_steps(parsed)
    assert (type(loud).__name__, loud.context.options["volume"]) == ("Loud", 7)
    assert type(paid).__name__ == "FilterStep", "Millrace's own names are nobody else's"
