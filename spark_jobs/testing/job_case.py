"""The case that needs a whole job: records in Kafka, one of them poisonous, through source, sink and dead letter topic."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DoubleType, LongType, StringType

from spark_jobs.config import job_files as config
from spark_jobs.contract import Column, TableSchema
from spark_jobs.reports.progress import EventWriter
from spark_jobs.runner import Runner
from spark_jobs.testing.batches import change
from spark_jobs.testing.kit import key_column
from spark_jobs.testing.model import RuleBroken, compare_rows, expected_rows
from spark_jobs.testing.target import Unsupported
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.testing.kit import Kit


def poison_record(kit: Kit) -> None:
    """Of a batch with a record that can't be decoded and one that the server refuses only these go to the dead letter topic."""
    topic, dead = f"{kit.job}-rows", f"{kit.job}-dead"
    good = [{"id": n, "name": f"n{n}", "amount": n / 2} for n in range(10)]
    try:
        refused: Mapping[str, Any] | None = {"id": 99, "name": "x", "amount": 1.0, **kit.target.refused_row()}
    except Unsupported:
        refused = None
    values = [json.dumps({"ums_id_": n, **row}).encode() for n, row in enumerate(good[:5])]
    values += [b"{not json", *([] if refused is None else [json.dumps({"ums_id_": 50, **refused}).encode()])]
    values += [json.dumps({"ums_id_": 100 + n, **row}).encode() for n, row in enumerate(good[5:])]
    _send_records(kit.bootstrap, topic, values)
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        properties = kit.properties(
            **{
                "source.topics": topic,
                "source.key.columns": "id",
                "source.table.columns": "id bigint, name string, amount double",
                "state.dir": folder,
                "trigger.mode": "available-now",
                "errors.tolerance": "all",
                "errors.retry.timeout.ms": "0",
                "errors.deadletterqueue.topic.name": dead,
            }
        )
        code = Runner(
            config.build_job(properties), EventWriter(kit.job, None, on_event=events.append), spark=kit.spark
        ).run()
    if code:
        failures = [event["error"] for event in events if event["event"] == "failed"]
        raise RuleBroken(f"expected a job that continues, actual: {failures}")
    offsets = sorted(int(dict(record.headers)["__connect.errors.offset"]) for record in read_topic(kit.bootstrap, dead))
    expected_offsets = [5] if refused is None else [5, 6]
    if offsets != expected_offsets:
        raise RuleBroken(f"expected dead letters of the offsets {expected_offsets}, actual {offsets}")
    schema = TableSchema(
        topic, (key_column("id", LongType()), Column("name", StringType()), Column("amount", DoubleType()))
    )
    changes = [change("i", n if n < 5 else 95 + n, **row) for n, row in enumerate(good)]
    problem = compare_rows(
        schema,
        kit.target.supports,
        expected_rows(changes, schema, kit.target.supports),
        kit.target.rows(schema),
        kit.target.stored,
        repeats=kit.guarantee != "exactly-once",
    )
    if problem:
        raise RuleBroken(problem)


def _send_records(bootstrap: str, topic: str, values: list[bytes]) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it is there, and documented

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value)
    if producer.flush(30):
        raise RuleBroken("Kafka does not take the records of the test")
