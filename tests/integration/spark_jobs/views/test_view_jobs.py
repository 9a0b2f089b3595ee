"""A whole job with a view: Kafka, the view, PostgreSQL; the state stays from run to run."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.sources.test_whole_jobs import Jobs, jdbc, jobs
from tests.integration.spark_jobs.steps.test_step_jobs import event

if TYPE_CHECKING:
    from compose.local.postgres import Postgres

__all__ = ["jobs"]


def test_a_change_of_a_dimension_reaches_its_facts(jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    output = f"v{secrets.token_hex(4)}"
    options = {
        "source.format": "debezium",
        **jdbc(postgres),
        "transform.steps": output,
        f"transform.step.{output}.type": "view",
        f"transform.step.{output}.sql": "SELECT o.id, o.amount, c.region FROM orders o "
        "LEFT JOIN customers c ON o.customer = c.id",
        f"transform.step.{output}.key": "id",
    }
    jobs.send(
        jobs.name,
        [
            event("c", "orders", id=1, customer=7, amount=10),
            event("c", "orders", id=2, customer=7, amount=20),
            event("c", "orders", id=3, customer=8, amount=30),
            event("c", "customers", id=7, region="north"),
        ],
    )
    assert jobs.run(jobs.name, **options) == ""
    chosen = f"SELECT id, amount, region FROM {server.quote(output)} WHERE ums_active_ = 1 ORDER BY id"  # noqa: S608 - the test's own
    assert server.query(chosen) == [(1, 10, "north"), (2, 20, "north"), (3, 30, None)]
    jobs.send(
        jobs.name,
        [
            event("u", "customers", None, id=7, region="south"),
            event("c", "customers", id=8, region="east"),
            event("d", "orders", {"id": 2}),
        ],
    )
    assert jobs.run(jobs.name, **options) == ""
    assert server.query(chosen) == [(1, 10, "south"), (3, 30, "east")]
    jobs.send(jobs.name, [event("d", "customers", {"id": 8})])
    changed = options | {f"transform.step.{output}.sql": "SELECT o.id, o.amount FROM orders o"}
    assert "is another one than that of the state in the checkpoint" in jobs.run(jobs.name, **changed)
    assert jobs.run(jobs.name, **options) == ""
    assert server.query(chosen) == [(1, 10, "south"), (3, 30, None)]
