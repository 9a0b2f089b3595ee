"""Whole jobs with a join and a window: Kafka, a job process, a sink; what they wrote equals the models, row by row."""

from __future__ import annotations

import json
import secrets
import sqlite3
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub forgets one

from compose.local.jvm import FAST_START
from connectors.errors import ConfigInvalid
from spark_jobs import history, ranges
from spark_jobs.checkpoint import LocalFolder
from tests.integration.spark_jobs.steps import test_joins, test_windows
from tests.integration.spark_jobs.steps.event_streams import SECOND, START_US, Event, random_batches
from tests.support.eventually import eventually
from tests.support.job_process import Job

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLES = test_joins.TABLES


class Streams:
    """The topics of two tables, and what was sent to them."""

    def __init__(self, bootstrap: str) -> None:
        self.topics = {table: f"{table}-{secrets.token_hex(4)}" for table in TABLES}
        self.events: dict[str, list[Event]] = {table: [] for table in TABLES}
        self._servers: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
        admin = AdminClient(self._servers)
        for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in self.topics.values()]).values():
            future.result(30)

    def send(self, events: Sequence[Event]) -> None:
        producer = Producer(self._servers)
        for event in events:
            database, _, table = event.table.partition(".")
            self.events[event.table].append(event)
            ts_ms = (START_US + event.second * SECOND) // 1000
            row = {"id": event.id, "Group": event.group, f"amount of {event.table}": event.amount}
            source = {"db": database, "table": table, "ts_ms": ts_ms, "ums_id": event.id}
            value = json.dumps({"op": "c", "before": None, "after": row, "source": source})
            producer.produce(self.topics[event.table], value, json.dumps({"id": event.id}))
        assert producer.flush(30) == 0

    def batches(self, checkpoint: Path) -> list[list[Event]]:
        """The events of every batch that the job did."""
        folder = LocalFolder(checkpoint)
        batches, start = [], dict.fromkeys(TABLES, 0)
        for number in range((ranges.last_batch(folder, "commits") or 0) + 1):
            position = ranges.position(folder, number) or {}
            end = {table: position.get((topic, 0), 0) for table, topic in self.topics.items()}
            batches.append([event for table in TABLES for event in self.events[table][start[table] : end[table]]])
            start = end
        return batches


def config(bootstrap: str, streams: Streams, folder: Path, how: str, sink: dict[str, str]) -> dict[str, str]:
    steps = {**test_joins.steps(how, **{"keep.inputs": "true"}), **test_windows.steps("tumbling"), "steps": "j,w"}
    return {
        "name": f"times-{secrets.token_hex(4)}",
        "kafka.bootstrap.servers": bootstrap,
        "source.topics": ",".join(streams.topics.values()),
        "source.format": "debezium",
        "state.dir": str(folder / "state"),
        "trigger.interval.ms": "100",
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(FAST_START),
        "spark.sql.shuffle.partitions": "2",
        **{f"transform.{name}": value for name, value in steps.items()},
        **sink,
    }


def rounds(seed: int) -> list[list[Event]]:
    batches = random_batches(Random(seed), TABLES, groups=3, nulls=False)
    return [events for events in batches if events]


def compare(streams: Streams, folder: Path, how: str, rows: dict[str, list[dict[str, Any]]], job: Job) -> None:
    """Demand that the job has written what the models say, and has counted the late rows."""
    batches = streams.batches(folder / "state" / "checkpoint")
    assert len(batches) > 1
    pairs, late = test_joins.expected(how, batches)
    assert sorted(((row["id"], row["paid_id"]) for row in rows["j"]), key=repr) == sorted(pairs, key=repr)
    assert sorted(row["id"] for name in ("j_late_left", "j_late_right") for row in rows.get(name, ())) == late
    orders = [[event for event in events if event.table == "shop.orders"] for events in batches]
    windows, late_in_windows = test_windows.expected("tumbling", orders)
    assert sorted((row["Group"], row["n"], row["total"]) for row in rows["w"]) == sorted(
        (group, len(ids), total) for group, _, _, ids, total in windows
    )
    assert sorted(row["id"] for row in rows.get("w_late", ())) == late_in_windows
    assert [job.steps[step]["late_total"] for step in "jw"] == [len(late), len(late_in_windows)]
    assert late
    assert windows
    assert all(job.steps[step]["state_bytes"] > 0 for step in "jw")


@pytest.mark.timeout(300)
def test_into_a_database(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    streams, target = Streams(bootstrap), tmp_path / "shop.db"
    sink = {"sink.type": "jdbc", "sink.jdbc.url": f"jdbc:sqlite:{target}"}
    job = Job(config(bootstrap, streams, tmp_path, "inner", sink), tmp_path / "run")
    job.start()
    try:
        for events in rounds(25):
            streams.send(events)
            job.wait_rows(sum(map(len, streams.events.values())), 120)
        assert job.stop() == 0
    finally:
        if job.process.poll() is None:
            job.kill()
    with sqlite3.connect(target) as database:
        database.row_factory = sqlite3.Row
        names = [row["name"] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: [dict(row) for row in database.execute(f'SELECT * FROM "{name}"')] for name in names}  # noqa: S608 - names of tables
    compare(streams, tmp_path, "inner", rows, job)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [5, 27])
def test_a_killed_job_into_files(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    streams = Streams(bootstrap)
    sink = {"sink.type": "files", "sink.files.path": str(tmp_path / "out")}
    job = Job(config(bootstrap, streams, tmp_path, "full", sink), tmp_path / "run")
    job.start()
    offsets = tmp_path / "state" / "checkpoint" / "offsets"
    done = 0
    try:
        for number, events in enumerate(rounds(seed)):
            streams.send(events)
            if number == 1:
                eventually(lambda: len(list(offsets.glob("[0-9]*"))) > 1, "the second batch is planned", 120)
                job.kill()
                done += job.rows
                job.start()
            job.wait_rows(sum(map(len, streams.events.values())) - done, 180)
        assert job.stop() == 0
    finally:
        if job.process.poll() is None:
            job.kill()
    rows: dict[str, list[dict[str, Any]]] = {}
    for table in history.find_tables(spark, str(tmp_path / "out")):
        with suppress(ConfigInvalid):  # a table without rows: nothing was late
            rows[table.name] = [row.asDict() for row in history.read(spark, table.path).collect()]
    compare(streams, tmp_path, "full", rows, job)
