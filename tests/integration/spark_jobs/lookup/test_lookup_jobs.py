"""Lookups in whole jobs, and random histories through lookups against DuckDB's join."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from spark_jobs.contract import TableChanges
from spark_jobs.steps.flow import empty_changes
from spark_jobs.steps.planning.model import StepRefused
from spark_jobs.testing.batches import make_frame
from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.sources.test_whole_jobs import Jobs, jdbc, jobs
from tests.integration.spark_jobs.steps.test_histories import compare, flow_of, history, random_events, schema
from tests.integration.spark_jobs.steps.test_step_jobs import event
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compose.local.postgres import Postgres
    from tests.integration.spark_jobs.lookup.conftest import RowServer

__all__ = ["jobs"]


def lookup(name: str, **options: str) -> dict[str, str]:
    prefix = f"transform.step.{name}."
    return {f"{prefix}type": "lookup", **{prefix + key.replace("_", "."): value for key, value in options.items()}}


def test_rows_of_a_database_and_of_a_topic(jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table, customers, cities = f"t{secrets.token_hex(4)}", f"c{secrets.token_hex(4)}", f"{jobs.name}-cities"
    server.query(f"CREATE TABLE {customers} (id int PRIMARY KEY, name text)")
    server.query(f"INSERT INTO {customers} VALUES (1, 'one'), (2, 'two')")

    def city(key: str, mayor: str) -> tuple[bytes, bytes]:
        return key.encode(), json.dumps({"op": "c", "after": {"name": key, "mayor": mayor}}).encode()

    jobs.send(cities, [city("x", "Xenia")])
    options = {
        "source.format": "debezium",
        **jdbc(postgres),
        "transform.steps": "customer, city, known",
        **lookup(
            "customer",
            url=postgres.url,
            user=postgres.user,
            password=postgres.password,
            table=customers,
            on="customer_id = id",
            columns="name string AS customer",
        ),
        **lookup("city", topic=cities, on="city = name", columns="mayor string"),
        "transform.step.known.type": "filter",
        "transform.step.known.condition": "customer IS NOT NULL",
    }
    jobs.send(
        jobs.name,
        [
            event("c", table, id=1, customer_id=1, city="x"),
            event("c", table, id=2, customer_id=9, city="x"),
            event("c", table, id=3, customer_id=2, city="y"),
        ],
    )
    assert jobs.run(jobs.name, **options) == ""
    chosen = f"SELECT id, customer, mayor FROM {table} WHERE ums_active_ = 1 ORDER BY id"
    assert server.query(chosen) == [(1, "one", "Xenia"), (3, "two", None)]
    # The topic's changes are seen at once; a delete, and an update to a customer that is not known, take rows away.
    jobs.send(cities, [city("x", "Xaver"), city("y", "Yara")])
    jobs.send(
        jobs.name,
        [
            event("d", table, {"id": 1}),
            event("u", table, None, id=3, customer_id=9, city="y"),
            event("c", table, id=4, customer_id=2, city="x"),
            event("c", table, id=5, customer_id=1, city="y"),
        ],
    )
    assert jobs.run(jobs.name, **options) == ""
    assert server.query(chosen) == [(4, "two", "Xaver"), (5, "one", "Yara")]


def test_a_topic_that_was_recreated_while_the_flow_was_stopped_is_read_from_its_start(jobs: Jobs) -> None:
    """The Python workers of an application outlive the run of a flow, and so do the tables that they keep."""
    cities, out = f"{jobs.name}-cities", f"{jobs.name}-out"
    admin = AdminClient({"bootstrap.servers": jobs.bootstrap})
    options = {
        "source.format": "debezium",
        "sink.type": "kafka",
        "sink.kafka.topic": out,
        "sink.kafka.content": "rows",
        "transform.steps": "city",
        **lookup("city", topic=cities, topic_format="plain", on="city = name", columns="mayor string"),
    }

    def city(key: str, mayor: str) -> tuple[bytes, bytes]:
        return key.encode(), json.dumps({"name": key, "mayor": mayor}).encode()

    jobs.send(cities, [city("x", "Xenia"), city("y", "Yara")])
    jobs.send(jobs.name, [event("c", "t", id=1, city="x")])
    assert jobs.run(jobs.name, **options) == ""
    admin.delete_topics([cities])[cities].result(30)
    eventually(lambda: cities not in admin.list_topics(timeout=20).topics, "the topic is gone")
    jobs.send(cities, [city("x", "Xaver")])
    jobs.send(jobs.name, [event("c", "t", id=2, city="x")])
    assert jobs.run(jobs.name, **options) == ""
    assert [json.loads(message.value())["mayor"] for message in jobs.read(out)] == ["Xenia", "Xaver"]


def test_misses_that_are_bad_records(jobs: Jobs, postgres: Postgres, row_server: RowServer) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"t{secrets.token_hex(4)}"
    row_server.rows = {"1": {"name": "one"}}
    options = {
        "source.format": "debezium",
        **jdbc(postgres),
        "transform.steps": "names",
        **lookup("names", url=f"{row_server.url}/rows", on="ref = id", columns="name string", miss="dead-letter"),
    }
    records = [event("c", table, id=number, ref=ref) for number, ref in enumerate([1, 7, None, 8])]
    jobs.send(jobs.name, records)
    letters = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{jobs.name}-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    assert jobs.run(jobs.name, **options, **letters) == ""
    assert server.rows(table, "id, name") == [(0, "one"), (2, None)]
    dead = {
        message.value(): dict(message.headers())["__connect.errors.exception.message"].decode()
        for message in jobs.read(f"{jobs.name}-dead")
    }
    assert dead == {
        records[number][1]: f"step names, table shop.{table}: http {row_server.url[7:]} has no row for id={ref}"
        for number, ref in ((1, 7), (3, 8))
    }


_LEFT = (
    "SELECT o.*, d.city FROM shop.orders AS o LEFT JOIN (VALUES ('a', 'A'), ('b', 'B')) AS d (name, city) USING (name)"
)
_INNER = _LEFT.replace("LEFT ", "")
CASES: dict[str, tuple[dict[str, str], str]] = {
    "null": ({}, _LEFT),
    "null, then a filter": ({"filter": "city <> 'B'"}, f"SELECT * FROM ({_LEFT}) WHERE city <> 'B'"),
    "drop": ({"miss": "drop"}, _INNER),
    "drop, then a filter": (
        {"miss": "drop", "filter": "city = 'A' AND amount > 1"},
        f"SELECT * FROM ({_INNER}) WHERE city = 'A' AND amount > 1",
    ),
}


@pytest.mark.parametrize("before", [False, True], ids=["alone", "with images"])
@pytest.mark.parametrize("name", CASES)
def test_folded_histories_are_the_join(spark: SparkSession, row_server: RowServer, name: str, before: bool) -> None:
    chosen, query = CASES[name]
    row_server.rows = {"a": {"city": "A"}, "b": {"city": "B"}}
    steps: dict[str, Any] = {
        "steps": "l,f" if "filter" in chosen else "l",
        **{
            option.removeprefix("transform."): value
            for option, value in lookup(
                "l",
                url=f"{row_server.url}/rows",
                on="name = id",
                columns="city string",
                tables="orders",
                miss=chosen.get("miss", "null"),
            ).items()
        },
    }
    if "filter" in chosen:
        steps |= {"step.f.type": "filter", "step.f.tables": "orders", "step.f.condition": chosen["filter"]}
    compare(spark, (steps, "shop.orders", query), random_events(7), before=before, whole=False)
    assert sorted(key["id"] for keys in row_server.asked for key in keys) >= ["a", "b", "c"]


def test_tasks_report_what_they_asked_for(spark: SparkSession, row_server: RowServer) -> None:
    row_server.rows, row_server.failures = {"a": {"city": "A"}}, [503]
    options = lookup(
        "l",
        url=f"{row_server.url}/rows",
        on="name = id",
        columns="city string",
        retry_backoff_ms="10",
        cache_misses_age_ms="600000",
    )
    flow = flow_of(
        {"steps": "l", **{name.removeprefix("transform."): value for name, value in options.items()}}, before_rows=False
    )
    past = history(random_events(2), before_rows=False, whole_images=False)
    table = schema("shop.orders")

    def run() -> dict[str, float]:
        changes = [TableChanges(table, make_frame(spark, table, past.changes[0]).coalesce(1))]
        (result,) = flow.apply(changes, spark, lambda: empty_changes(spark, [table]))
        result.frame.collect()
        flow.end_batch()
        return flow.measure()

    numbers = run()
    assert numbers.pop("lookup_seconds_total") > 0
    assert numbers == {
        "lookup_hits_total": 0,
        "lookup_misses_total": 2,
        "lookup_requests_total": 2,
        "lookup_errors_total": 1,
    }
    # Each Python worker has a cache of its own, and Spark has few of them.
    later = next(numbers for _ in range(20) if (numbers := run())["lookup_hits_total"])
    assert later["lookup_hits_total"] == 3
    flow.close()


def test_a_looked_up_column_is_no_key(spark: SparkSession) -> None:
    steps = {
        "steps": "l,s",
        "step.l.type": "lookup",
        "step.l.url": "http://nowhere.invalid/rows",
        "step.l.on": "name = id",
        "step.l.columns": "city string",
        "step.s.type": "select",
        "step.s.columns": "upper(city) AS city, id",
        "step.s.key": "city,id",
    }
    with pytest.raises(StepRefused, match="which an earlier step looks up: a delete does not have it"):
        compare(spark, (steps, "shop.orders", "SELECT 1"), random_events(1), before=True, whole=True)
