"""Rows in a topic, and the job that writes them into files, for tests that kill it."""

from __future__ import annotations

import json
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def topic_of_rows(bootstrap: str, records: int) -> Iterator[str]:
    """A topic of two partitions, with a row for each number; deleted at the end."""
    topic = f"files-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    try:
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(records):
            producer.produce(
                topic,
                key=json.dumps({"id": number}),
                value=json.dumps({"id": number, "text": f"t{number}"}),
                partition=number % 2,
            )
        assert producer.flush(30) == 0
        yield topic
    finally:
        admin.delete_topics([topic])[topic].exception(30)


def files_job(bootstrap: str, topic: str, path: str, folder: Path) -> dict[str, str]:
    """The job's properties.

    Args:
        bootstrap: Kafka's.
        topic: of ``topic_of_rows``.
        path: where files go.
        folder: of its checkpoint and state.
    """
    return {
        "name": topic,
        "kafka.bootstrap.servers": bootstrap,
        "source.topics": topic,
        "source.format": "plain",
        "source.value.encoding": "json",
        "source.starting.offsets": "earliest",
        "sink.type": "files",
        "sink.files.path": path,
        "checkpoint.location": str(folder / "checkpoint"),
        "state.dir": str(folder / "state"),
        "trigger.interval.ms": "0",
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(FAST_START),
    }
