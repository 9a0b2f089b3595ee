"""Topics and job files for tests of the frame."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # it is there, and documented

from tests.support.eventually import eventually
from worker.fetch.java import FAST_START


@dataclass
class Bench:
    """Topics and job files of one test."""

    bootstrap: str
    folder: Path
    admin: Any
    producer: Any
    topics: list[str] = field(default_factory=list)
    partitions: dict[str, int] = field(default_factory=dict)

    def topic(self, partitions: int = 2, name: str = "") -> str:
        name = name or f"frame-{secrets.token_hex(4)}"
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        self.topics.append(name)
        self.partitions[name] = partitions
        eventually(
            lambda: len(self.admin.list_topics(name, timeout=10).topics[name].partitions) == partitions,
            f"topic {name} exists",
        )
        return name

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)
        eventually(lambda: name not in self.admin.list_topics(timeout=10).topics, f"topic {name} is deleted")

    def send(self, topic: str, values: list[str], partition: int | None = None) -> None:
        for number, value in enumerate(values):
            where = number % self.partitions[topic] if partition is None else partition
            self.producer.produce(topic, key=f"k{number}", value=value, partition=where, headers=[("h", b"1")])
        assert self.producer.flush(30) == 0

    def job(self, topic: str, **options: str) -> dict[str, str]:
        """Properties of a job with the tests' sink."""
        name = options.pop("name", f"job-{secrets.token_hex(4)}")
        return {
            "name": name,
            "kafka.bootstrap.servers": self.bootstrap,
            "source.topics": topic,
            "source.format": "frame_parts:NumbersSource",
            "sink.type": "frame_parts:RowsSink",
            "sink.rows.path": str(self.folder / f"{name}.rows"),
            "state.dir": str(self.folder / name),
            "trigger.interval.ms": "200",
            "errors.retry.delay.ms": "50",
            "spark.master": "local[2]",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": " ".join(FAST_START),
            **options,
        }

    def file(self, job: dict[str, str]) -> Path:
        path = self.folder / f"{job['name']}.json"
        path.write_text(json.dumps(job))
        return path

    def rows(self, job: dict[str, str]) -> list[dict[str, Any]]:
        path = Path(job["sink.rows.path"])
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def order(self, job: dict[str, str], text: str) -> Path:
        """Order what the sink does with its next batches; remove the file to end it."""
        path = Path(f"{job['sink.rows.path']}.order")
        path.write_text(text)
        return path

    def committed(self, group: str, topic: str) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            parts = [TopicPartition(topic, number) for number in range(self.partitions[topic])]
            return {entry.partition: entry.offset for entry in consumer.committed(parts, timeout=20)}
        finally:
            consumer.close()
