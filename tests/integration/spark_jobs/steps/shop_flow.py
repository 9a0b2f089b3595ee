"""Whole flows over a shop's topic: its records, steps that keep a state, and what the flows wrote."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub forgets one

from spark_jobs import history
from spark_jobs.config import job_files as config
from spark_jobs.reports.progress import EventWriter
from spark_jobs.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from random import Random

    from pyspark.sql import SparkSession

START_MS: Final = 1_780_000_000_000
#: Of times, in seconds.
RANGE, SIZE, DELAY = 5, 10, 4
STEPS: Final[Mapping[str, str]] = {
    "transform.steps": "seen,pairs,sums",
    "transform.step.seen.type": "view",
    "transform.step.seen.sql": "SELECT c.region, count(*) AS n, sum(o.amount) AS total FROM shop.orders o "
    "JOIN shop.customers c ON o.customer = c.id GROUP BY c.region",
    "transform.step.seen.key": "region",
    "transform.step.pairs.type": "join",
    "transform.step.pairs.left": "shop.clicks",
    "transform.step.pairs.right": "shop.buys",
    "transform.step.pairs.on": "customer",
    "transform.step.pairs.how": "left",
    "transform.step.pairs.key": "id",
    "transform.step.pairs.range.ms": str(RANGE * 1000),
    "transform.step.pairs.watermark.ms": str(DELAY * 1000),
    "transform.step.pairs.keep.inputs": "true",
    "transform.step.sums.type": "window",
    "transform.step.sums.table": "shop.buys",
    "transform.step.sums.window": "tumbling",
    "transform.step.sums.size.ms": str(SIZE * 1000),
    "transform.step.sums.group": "customer",
    "transform.step.sums.aggregates": "count(*) AS n, sum(amount) AS total",
    "transform.step.sums.watermark.ms": str(DELAY * 1000),
}


@dataclass(frozen=True)
class Change:
    """A change of a row.

    Attributes:
        table: its table.
        op: c, u or d.
        second: its time.
        row: after the change; of a delete the key.
    """

    table: str
    op: str
    second: int
    row: Mapping[str, Any]


def random_changes(random: Random, count: int) -> list[Change]:
    """Changes of orders and customers, and inserts of clicks and buys; some are late."""
    rows: dict[str, dict[int, dict[str, Any]]] = {"orders": {}, "customers": {}}
    result, second = [], 0
    for number in range(count):
        second += random.choice([0, 0, 1, 1, 2, 9])
        at = max(0, second - random.choice([0, 0, 0, 3, 30]))
        table = random.choice(["orders", "customers", "clicks", "clicks", "buys", "buys"])
        if table in rows:
            key = random.randrange(12 if table == "orders" else 4)
            op = "c" if key not in rows[table] else random.choice("uud")
            values: dict[str, Any] = {"region": random.choice(["n", "s"])}
            if table == "orders":
                values = {"customer": random.randrange(4), "amount": random.randrange(9)}
            row = {"id": key} if op == "d" else {"id": key, **values}
            if op == "d":
                del rows[table][key]
            else:
                rows[table][key] = row
            result.append(Change(table, op, second, row))
        else:
            row = {"id": number, "customer": random.randrange(4), "amount": random.randrange(9)}
            result.append(Change(table, "c", at, row))
    return result


@dataclass
class Shop:
    """A topic of one partition with changes, and jobs that read it.

    A batch has ``per_batch`` records, so jobs that read the same records have the same batches.
    """

    spark: SparkSession
    bootstrap: str
    folder: Path
    per_batch: int
    topic: str = field(default_factory=lambda: f"shop-{secrets.token_hex(4)}")
    _sent: int = 0

    def __post_init__(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(self.topic, 1, 1)])[self.topic].result(30)

    def send(self, changes: list[Change]) -> None:
        """Write changes to the topic."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for change in changes:
            self._sent += 1
            source = {
                "db": "shop",
                "table": change.table,
                "ts_ms": START_MS + change.second * 1000,
                "ums_id": self._sent,
            }
            before, after = (change.row, None) if change.op == "d" else (None, change.row)
            value = json.dumps({"op": change.op, "before": before, "after": after, "source": source})
            producer.produce(self.topic, value, json.dumps({"id": change.row["id"]}))
        assert producer.flush(30) == 0

    def properties(self, name: str, **options: str) -> dict[str, str]:
        """A job with a folder of its own, which writes a history there."""
        return {
            "name": f"{self.topic}-{name}",
            "kafka.bootstrap.servers": self.bootstrap,
            "source.topics": self.topic,
            "source.format": "debezium",
            "source.max.offsets.per.trigger": str(self.per_batch),
            "sink.type": "files",
            "sink.files.path": str(self.folder / name / "out"),
            "state.dir": str(self.folder / name),
            "trigger.mode": "available-now",
            "errors.retry.timeout.ms": "0",
            **STEPS,
            **options,
        }

    def run(self, properties: Mapping[str, str]) -> list[dict[str, Any]]:
        """Run the jobs of a flow to their ends; their events."""
        events: list[dict[str, Any]] = []
        for job in config.build_flow(properties):
            Runner(job, EventWriter(job.name, None, on_event=events.append), spark=self.spark).run()
        return events

    def output(self, path: Path) -> Counter[tuple[Any, ...]]:
        """The rows of all tables in a history, without Kafka's position of the record that a row came with."""
        rows: Counter[tuple[Any, ...]] = Counter()
        for table in history.find_tables(self.spark, str(path)):
            frame = history.read(self.spark, table.path)
            names = sorted(name for name in frame.columns if not name.startswith("kafka_"))
            for row in frame.select(*names).collect():
                rows[table.name, *zip(names, map(str, row), strict=True)] += 1
        return rows


def failures(events: list[dict[str, Any]]) -> list[str]:
    """The errors with which jobs ended."""
    return [str(event["error"]) for event in events if event["event"] == "failed"]
