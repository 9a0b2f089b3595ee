"""Whole jobs with real sources and sinks in this process: what a failed batch leaves behind, bad records, odd names."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub forgets one

from spark_jobs import history
from spark_jobs.config import job_files as config
from spark_jobs.reports.progress import EventWriter
from spark_jobs.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.postgres import Postgres


@dataclass
class Jobs:
    """Runs jobs over what is sent to topics; each run reads what is there and ends."""

    spark: SparkSession
    bootstrap: str
    folder: Path
    name: str = field(default_factory=lambda: f"whole-{secrets.token_hex(4)}")

    def send(self, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Write records to a topic of one partition, which is made if need be."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        if topic not in admin.list_topics(timeout=20).topics:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key, value in records:
            producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    def read(self, topic: str) -> list[Any]:
        """All records of a topic of one partition; none where there is no such topic."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        records: list[Any] = []
        try:
            if topic not in consumer.list_topics(timeout=20).topics:
                return []
            consumer.assign([TopicPartition(topic, 0, 0)])
            while True:
                message = consumer.poll(20)
                assert message is not None
                if message.error() is not None:
                    return records
                records.append(message)
        finally:
            consumer.close()

    def run(self, topics: str, **options: str) -> str:
        """Run the job to its end.

        Returns:
            The error; empty where the job ended well.
        """
        events: list[dict[str, Any]] = []
        properties = {
            "name": self.name,
            "kafka.bootstrap.servers": self.bootstrap,
            "source.topics": topics,
            "state.dir": str(self.folder / "state"),
            "trigger.mode": "available-now",
            "errors.retry.timeout.ms": "0",
            **options,
        }
        code = Runner(
            config.build_job(properties), EventWriter(self.name, None, on_event=events.append), spark=self.spark
        ).run()
        errors = [str(event["error"]) for event in events if event["event"] == "failed"]
        assert (code == 0) == (not errors), events
        return errors[0] if errors else ""


@pytest.fixture
def jobs(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Jobs:
    return Jobs(spark, bootstrap, tmp_path)


def jdbc(server: Postgres | Any) -> dict[str, str]:
    return {
        "sink.type": "jdbc",
        "sink.jdbc.url": server.url,
        "sink.jdbc.user": server.user,
        "sink.jdbc.password": server.password,
    }


def change(table: str, op: str = "c", **row: Any) -> bytes:
    return json.dumps({"op": op, "after": row, "source": {"db": "d", "table": table}}).encode()


def test_a_failed_batch_keeps_nothing_of_its_tables_postgresql(jobs: Jobs, postgres: Postgres) -> None:
    keyed, bare = f"k{secrets.token_hex(4)}", f"b{secrets.token_hex(4)}"
    jobs.send(jobs.name, [(b'{"n":1}', change(keyed, id=1, n=1)), (None, change(bare, id=2, n=2))])
    options = {"source.format": "debezium", **jdbc(postgres)}
    assert "has no primary key" in jobs.run(jobs.name, **options)
    # The table with a key had none made either: its key, too, can still be another one.
    assert jobs.run(jobs.name, **options, **{"source.key.columns": "id"}) == ""
    from tests.integration.spark_jobs.jdbc.conftest import database

    target = database(postgres.url, postgres.user, postgres.password)
    assert [target.rows(table, "id, n") for table in (keyed, bare)] == [[(1, 1)], [(2, 2)]]
    # What was written is kept: now the key is fixed.
    jobs.send(jobs.name, [(None, change(bare, id=3, n=3))])
    assert r"its key was (id) and is (n) now" in jobs.run(jobs.name, **options, **{"source.key.columns": "n"})


def test_a_failed_batch_keeps_nothing_of_its_tables_kafka(jobs: Jobs) -> None:
    jobs.send(jobs.name, [(None, change("t", id=1, n=1))])
    options = {
        "source.format": "debezium",
        "sink.type": "kafka",
        "sink.kafka.content": "rows",
        "sink.kafka.key": "columns",
        "sink.kafka.topic": "${topic}-out",
        "sink.kafka.key.columns": "other",
    }
    assert "has no column other" in jobs.run(jobs.name, **options)
    assert jobs.run(jobs.name, **options | {"source.key.columns": "id", "sink.kafka.key.columns": "id"}) == ""
    assert [(message.key(), json.loads(message.value())["n"]) for message in jobs.read(f"{jobs.name}-out")] == [
        (b'{"id":1}', 1)
    ]


def test_a_failed_batch_keeps_nothing_of_its_tables_files(jobs: Jobs) -> None:
    jobs.send(jobs.name, [(None, change("t", id=1, n=1))])
    target = str(jobs.folder / "history")
    options = {"source.format": "debezium", "sink.type": "files", "sink.files.path": target}
    failing = options | {"sink.files.partition.by": "exact/n={column:n}"}
    assert "the table has a column n itself" in jobs.run(jobs.name, **failing)
    assert (
        jobs.run(jobs.name, **options, **{"source.key.columns": "id", "source.table.columns": "n decimal(10,2)"}) == ""
    )
    (row,) = history.read(jobs.spark, target).collect()
    assert (row.id, str(row.n)) == (1, "1.00")
