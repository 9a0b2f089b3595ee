"""Whole jobs with steps: Kafka, steps, PostgreSQL; new columns while the job lives; rows that a step can't compute."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.sources.test_whole_jobs import Jobs, jdbc, jobs

if TYPE_CHECKING:
    from compose.local.postgres import Postgres

__all__ = ["jobs"]


def event(op: str, table: str, before: dict[str, Any] | None = None, **after: Any) -> tuple[bytes, bytes]:
    key = json.dumps({"id": (before or after)["id"]}).encode()
    source = {"db": "shop", "table": table}
    return key, json.dumps({"op": op, "before": before, "after": after or None, "source": source}).encode()


def test_changes_go_through_steps_into_postgresql(jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    output = f"out{secrets.token_hex(4)}"
    jobs.send(
        jobs.name,
        [
            event("c", "orders", id=1, name="a", price="1.50", secret="x"),
            event("c", "orders", id=2, name="b", price="2.50", secret="x"),
            event("c", "orders", id=3, name="none", price="n/a", secret="x"),
            event("c", "old", id=4, name="d", price="4"),
            event("c", "other", id=5, note="passes unchanged"),
        ],
    )
    options = {
        "source.format": "debezium",
        **jdbc(postgres),
        "sink.jdbc.table": "${table}",
        "transform.steps": f"priced, cut, {output}, named",
        "transform.step.priced.type": "filter",
        "transform.step.priced.tables": "orders, old",
        "transform.step.priced.condition": "price <> 'n/a'",
        "transform.step.cut.type": "select",
        "transform.step.cut.tables": "shop.orders",
        "transform.step.cut.columns": "* EXCEPT (secret)",
        f"transform.step.{output}.type": "sql",
        f"transform.step.{output}.sql": "SELECT id, upper(name) AS name, CAST(price AS decimal(10,2)) AS price FROM orders "
        "UNION ALL SELECT id, name, CAST(price AS decimal(10,2)) FROM shop.old",
        "transform.step.named.type": "route",
        "transform.step.named.tables": "other",
        "transform.step.named.to": f"{output}_${{table}}",
    }
    assert jobs.run(jobs.name, **options) == ""
    chosen = f"SELECT id, name, price::text FROM {server.quote(output)} WHERE ums_active_ = 1 ORDER BY id"  # noqa: S608 - the test's own
    assert server.query(chosen) == [(1, "A", "1.50"), (2, "B", "2.50"), (4, "d", "4.00")]
    assert server.rows(f"{output}_other", "id, note") == [(5, "passes unchanged")]
    # A batch with one of the tables: deletes with a key only, an update out of the filter, one into it.
    jobs.send(
        jobs.name,
        [
            event("d", "orders", {"id": 1}),
            event("u", "orders", None, id=2, name="b", price="n/a", secret="x"),
            event("u", "orders", None, id=3, name="c", price="3.5", secret="x"),
        ],
    )
    assert jobs.run(jobs.name, **options) == ""
    assert server.query(chosen) == [(3, "C", "3.50"), (4, "d", "4.00")]


def test_a_new_column_reaches_the_output(jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"t{secrets.token_hex(4)}"
    options = {
        "source.format": "debezium",
        **jdbc(postgres),
        "transform.steps": "all",
        "transform.step.all.type": "select",
        "transform.step.all.columns": "*, id * 10 AS tens",
    }
    jobs.send(jobs.name, [event("c", table, id=1, name="a")])
    assert jobs.run(jobs.name, **options) == ""
    jobs.send(jobs.name, [event("c", table, id=2, name="b", added="new")])
    assert jobs.run(jobs.name, **options) == ""
    assert server.rows(table, "id, name, added, tens") == [(1, "a", None, 10), (2, "b", "new", 20)]


# Spark computes an expression once that is used twice, outside of what guards it: the second step shows that it is guarded.
@pytest.mark.parametrize("where", ["", " WHERE CAST(amount AS int) > 0 AND CAST(amount AS int) < 9"])
def test_rows_that_a_step_cannot_compute(jobs: Jobs, postgres: Postgres, where: str) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"t{secrets.token_hex(4)}"
    options = {
        "source.format": "debezium",
        **jdbc(postgres),
        "transform.steps": table,
        f"transform.step.{table}.type": "sql",
        f"transform.step.{table}.sql": f"SELECT id, CAST(amount AS int) AS amount FROM shop.{table}{where}",  # noqa: S608 - a table of the test
    }
    records = [event("c", table, id=number, amount=text) for number, text in enumerate(["7", "seven", "8", "eight"])]
    jobs.send(jobs.name, records)
    error = jobs.run(jobs.name, **options)
    failing = "the condition CAST(amount AS INT) > 0" if where else "CAST(amount AS INT)"
    assert f"step {table}, table shop.{table}: {failing}: [CAST_INVALID_INPUT]" in error
    assert f"record at {jobs.name}-0 offset 1" in error
    assert "errors.tolerance=all" in error
    letters = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{jobs.name}-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    assert jobs.run(jobs.name, **options, **letters) == ""
    assert server.rows(table, "id, amount") == [(0, 7), (2, 8)]
    dead = jobs.read(f"{jobs.name}-dead")
    assert sorted(message.value() for message in dead) == sorted([records[1][1], records[3][1]])
    reasons = [dict(message.headers())["__connect.errors.exception.message"].decode() for message in dead]
    assert all(reason.startswith(f"step {table}, table shop.{table}: {failing}") for reason in reasons)


def test_a_step_that_does_not_fit_its_table_stops_the_job(jobs: Jobs, postgres: Postgres) -> None:
    table = f"t{secrets.token_hex(4)}"
    jobs.send(jobs.name, [event("c", table, id=1, name="a")])
    options = {"source.format": "debezium", **jdbc(postgres), "transform.steps": "s", "transform.step.s.type": "select"}
    for columns, message in {
        "name": f"step s: column id is of the key of table shop.{table}",
        "id, nme": f"step s: table shop.{table} has no column nme; did you mean name?",
        "id, nothing(name) AS x": f"step s, table shop.{table}: column x: `nothing(name)`: [UNRESOLVED_ROUTINE]",
        "id, NULL AS x": "step s: column x has the type void",
    }.items():
        assert message in jobs.run(jobs.name, **options, **{"transform.step.s.columns": columns})
