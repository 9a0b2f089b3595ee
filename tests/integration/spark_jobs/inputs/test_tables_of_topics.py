"""Tables chosen out of shared topics, and topics that appear while a job reads a pattern."""

from __future__ import annotations

import json
import secrets
import threading
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.config import job_files as config
from spark_jobs.reports.progress import EventWriter
from spark_jobs.runner import Runner
from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.sources.test_whole_jobs import Jobs, jdbc, jobs
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from compose.local.postgres import Postgres

__all__ = ["jobs"]


def debezium(table: str, *, schema: bool = False, **row: Any) -> tuple[bytes, bytes]:
    """An insert, with Connect's schema in the value if ``schema``."""
    event: dict[str, Any] = {"op": "c", "before": None, "after": row, "source": {"db": "shop", "table": table}}
    if schema:
        names = {int: "int64", str: "string"}
        image = [{"field": name, "type": names[type(value)], "optional": name != "id"} for name, value in row.items()]
        source = [{"field": name, "type": "string", "optional": True} for name in ("db", "table")]
        event = {
            "schema": {
                "type": "struct",
                "optional": False,
                "name": f"{table}.Envelope",
                "fields": [
                    {"field": "before", "type": "struct", "optional": True, "name": f"{table}.Value", "fields": image},
                    {"field": "after", "type": "struct", "optional": True, "name": f"{table}.Value", "fields": image},
                    {"field": "source", "type": "struct", "optional": False, "name": "Source", "fields": source},
                    {"field": "op", "type": "string", "optional": False},
                ],
            },
            "payload": event,
        }
    value = json.dumps(event, separators=(",", ":")).encode()
    return json.dumps({"id": row["id"]}).encode(), value


def ums(namespace: str, **row: Any) -> tuple[bytes, bytes]:
    """A UMS message with one row."""
    fields = {
        "ums_id_": "long",
        "ums_ts_": "datetime",
        "ums_op_": "string",
        "ums_uid_": "string",
        "id": "long",
        "name": "string",
    }
    number = str(row["id"])
    values = [number, "2026-11-23 10:00:00.000000", "i", number, number, row["name"]]
    message = {
        "protocol": {"type": "data_increment_data", "version": "1.3"},
        "schema": {
            "namespace": namespace,
            "fields": [{"name": name, "type": kind, "nullable": False} for name, kind in fields.items()],
        },
        "payload": [{"tuple": values}],
    }
    return namespace.encode(), json.dumps(message).encode()


@pytest.mark.parametrize("schema", [False, True])
def test_tables_of_a_shared_debezium_topic(schema: bool, jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"s{secrets.token_hex(4)}"
    options = {"source.format": "debezium", **jdbc(postgres), "source.tables": f"shop.{table}, {table}_l*"}
    jobs.send(
        jobs.name,
        [
            debezium(table, schema=schema, id=1, name="a"),
            debezium(f"{table}_lines", schema=schema, id=2, name="b"),
            debezium(f"{table}_other", schema=schema, id=3, name="c"),
        ],
    )
    assert jobs.run(jobs.name, **options) == ""
    # The other table changes its key and its types, which would stop a job that reads it.
    _, value = debezium(f"{table}_other", schema=schema, id="text", name=4)
    jobs.send(jobs.name, [(b'{"name":4}', value)])
    jobs.send(jobs.name, [debezium(table, schema=schema, id=5, name="e")])
    assert jobs.run(jobs.name, **options) == ""
    assert server.rows(table, "id, name") == [(1, "a"), (5, "e")]
    assert server.rows(f"{table}_lines", "id, name") == [(2, "b")]
    present = "SELECT count(*) FROM information_schema.tables WHERE table_name = %s"
    assert server.query(present, [f"{table}_other"]) == [(0,)]


def test_tables_of_a_shared_ums_topic(jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"u{secrets.token_hex(4)}"
    options = {
        "source.format": "ums",
        "source.key.columns": "id",
        **jdbc(postgres),
        "sink.jdbc.table": "${table}",
        "source.tables": f"mysql.crm.shop.{table}, mysql.*.stock.{table}_s.*.0.0",
    }
    names = {
        f"mysql.crm.shop.{table}.v1.0.0": {"id": 1, "name": "a"},
        f"mysql.crm.shop.{table}.v2.0.0": {"id": 2, "name": "b"},
        f"mysql.erp.stock.{table}_s.v1.0.0": {"id": 3, "name": "c"},
        f"mysql.crm.shop.{table}_other.v1.0.0": {"id": 4, "name": "d"},
        # A second shard would stop a job that reads this table.
        f"mysql.crm.shop.{table}_other.v1.0.1": {"id": 5, "name": "e"},
    }
    jobs.send(jobs.name, [ums(namespace, **row) for namespace, row in names.items()])
    assert jobs.run(jobs.name, **options) == ""
    assert server.rows(table, "id, name") == [(1, "a"), (2, "b")]
    assert server.rows(f"{table}_s", "id, name") == [(3, "c")]
    present = "SELECT count(*) FROM information_schema.tables WHERE table_name = %s"
    assert server.query(present, [f"{table}_other"]) == [(0,)]


def test_topics_of_a_pattern_that_appear_while_the_job_runs(jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"p{secrets.token_hex(4)}"
    names = [f"{table}.orders", f"{table}.lines", f"{table}.secret"]
    jobs.send(names[0], [(b'{"id":1}', b'{"id":1,"name":"a"}')])
    properties = {
        "name": jobs.name,
        "kafka.bootstrap.servers": jobs.bootstrap,
        "source.topics.pattern": f"{table}[.].*",
        "source.format": "plain",
        "source.tables": "*.orders, *.lines",
        **jdbc(postgres),
        "sink.jdbc.table": f"{table}_${{table}}",
        "state.dir": str(jobs.folder / "state"),
        "trigger.interval.ms": "100",
    }
    # Kafka's client asks for topics that are new every so often.
    properties["kafka.metadata.max.age.ms"] = "500"
    events: list[dict[str, Any]] = []
    runner = Runner(
        config.build_job(properties), EventWriter(jobs.name, None, on_event=events.append), spark=jobs.spark
    )
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        present = "SELECT count(*) FROM information_schema.tables WHERE table_name = %s"

        def rows_of(name: str) -> list[tuple[Any, ...]]:
            assert thread.is_alive(), events
            return server.rows(name, "id, name") if server.query(present, [name]) == [(1,)] else []

        eventually(lambda: rows_of(f"{table}_orders") == [(1, "a")], "the first topic is read")
        jobs.send(names[2], [(b'{"id":9}', b'{"id":9,"name":"x"}')])
        jobs.send(names[1], [(b'{"id":2}', b'{"id":2,"name":"b"}')])
        eventually(lambda: rows_of(f"{table}_lines") == [(2, "b")], "the new topic is read from its first record")
        assert rows_of(f"{table}_secret") == []
    finally:
        runner.stop("test")
        thread.join(60)
    assert not thread.is_alive()
