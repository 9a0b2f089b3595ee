"""Steps in `millrace job plan`: tables, columns, types and origins after each step, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from spark_jobs.config import job_files as config
from spark_jobs.contract import Column, TableSchema
from spark_jobs.sources.tables import to_json
from spark_jobs.steps.options import build_steps
from spark_jobs.steps.planning.plans import step_lines
from spark_jobs.steps.planning.unmatched import unmatched_names

if TYPE_CHECKING:
    from pathlib import Path

    from connectors.options import Config

ORDERS = TableSchema(
    "shop.orders",
    (
        Column("id", t.LongType(), nullable=False, key=True),
        Column("name", t.StringType()),
        Column("price", t.StringType()),
    ),
)


def job(folder: Path, **steps: str) -> Config:
    parsed, problems = config.check_job(
        {
            "name": "j",
            "kafka.bootstrap.servers": "b:9092",
            "source.topics": "t",
            "source.format": "debezium",
            "sink.type": "console",
            "checkpoint.location": str(folder),
            **{f"transform.{name}": value for name, value in steps.items()},
        }
    )
    assert parsed is not None, problems
    return parsed


def save(folder: Path) -> None:
    (folder / "schemas").mkdir()
    (folder / "schemas" / "9.json").write_text("{}")
    (folder / "schemas" / "10.json").write_text(to_json({"shop.orders": ORDERS}, {}))


def test_columns_after_each_step_and_where_they_come_from(tmp_path: Path) -> None:
    save(tmp_path)
    lines = step_lines(
        job(
            tmp_path,
            **{
                "steps": "named,out",
                "step.named.type": "filter",
                "step.named.condition": "name IS NOT NULL",
                "step.out.type": "sql",
                "step.out.sql": "SELECT id, upper(name) AS label,\n CAST(price AS decimal(10,2)) AS price, f(id) AS f "
                "FROM orders",
            },
        )
    )
    assert lines == [
        "named (filter): condition=name IS NOT NULL",
        "  shop.orders: key (id)",
        "    id bigint = shop.orders.id",
        "    name string = shop.orders.name",
        "    price string = shop.orders.price",
        "    where NOT name IS NULL (shop.orders)",
        "out (sql): sql=SELECT id, upper(name) AS label, CAST(price AS decimal(10,2)) AS price, f(id) AS f FROM orders",
        "  out: key (id)",
        "    id bigint = shop.orders.id",
        "    label string = upper(name) (from shop.orders.name)",
        "    price decimal(10,2) = CAST(price AS DECIMAL(10, 2)) (from shop.orders.price)",
        "    f type known at the start = f(id) (from shop.orders.id)",
    ]


def test_a_refused_step_is_shown_with_column_and_fix(tmp_path: Path) -> None:
    save(tmp_path)
    lines = step_lines(
        job(tmp_path, **{"steps": "cut", "step.cut.type": "select", "step.cut.columns": "upper(name) AS name"})
    )
    assert lines[-1].startswith("  REFUSED: step cut: column id is of the key of table shop.orders")
    assert "Add id, or name the columns" in lines[-1]


def test_without_a_checkpoint_steps_are_listed_alone(tmp_path: Path) -> None:
    lines = step_lines(job(tmp_path, **{"steps": "a", "step.a.type": "filter", "step.a.condition": "id > 1"}))
    assert lines[0].startswith("(the columns are shown once the job has run")
    assert lines[1:] == ["a (filter): condition=id > 1"]
    assert step_lines(job(tmp_path)) == []


def test_names_that_match_no_table_are_warned_of(tmp_path: Path) -> None:
    save(tmp_path)
    steps = {
        "steps": "cut,q,routed,later",
        "step.cut.type": "select",
        "step.cut.columns": "id",
        "step.cut.tables": "orders, order_*, oders",
        "step.q.type": "sql",
        "step.q.sql": "WITH o AS (SELECT * FROM orders) SELECT id FROM o; INSERT INTO r SELECT id FROM ordrs",
        "step.routed.type": "route",
        "step.routed.to": "t_${column:id}",
        "step.later.type": "filter",
        "step.later.tables": "t_7",
        "step.later.condition": "id > 0",
    }
    lines = [line for line in step_lines(job(tmp_path, **steps)) if "WARNING" in line]
    assert [line.partition(",")[0] for line in lines] == [
        "  WARNING: step cut names the table order_*",
        "  WARNING: step cut names the table oders",
        "  WARNING: step q names the table ordrs",
    ]
    assert "tables that reach the step: shop.orders." in lines[0]
    assert unmatched_names(build_steps(job(tmp_path, **steps)), [ORDERS]) == [
        line.removeprefix("  WARNING: ") for line in lines
    ]


def test_no_secret_is_shown(tmp_path: Path) -> None:
    save(tmp_path)
    steps = {
        "steps": "names",
        "step.names.type": "lookup",
        "step.names.url": "jdbc:postgresql://db/crm",
        "step.names.user": "jobs",
        "step.names.password": "s3cret",
        "step.names.table": "customers",
        "step.names.on": "name",
        "step.names.columns": "city string",
    }
    assert "s3cret" not in "\n".join(step_lines(job(tmp_path, **steps)))
