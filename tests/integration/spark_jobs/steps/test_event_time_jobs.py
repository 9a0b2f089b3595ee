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

from connectors.errors import ConfigInvalid
from spark_jobs import history
from spark_jobs.kafka import ranges
from spark_jobs.savepoints import commands
from spark_jobs.savepoints.manifest import read_manifest
from spark_jobs.spark.checkpoint import LocalFolder
from tests.integration.spark_jobs.steps import test_joins, test_windows
from tests.integration.spark_jobs.steps.event_streams import SECOND, START_US, Event, random_batches
from tests.support.eventually import eventually
from tests.support.job_process import Job
from worker.fetch.java import FAST_START

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

    def batches(self, *checkpoints: Path) -> list[list[Event]]:
        """The events of every batch that was done, by a job and those that continued elsewhere from its savepoint."""
        folders = [LocalFolder(checkpoint) for checkpoint in reversed(checkpoints)]
        batches, start = [], dict.fromkeys(TABLES, 0)
        for number in range((ranges.last_batch(folders[0], "commits") or 0) + 1):
            positions = [ranges.read_position(folder, number) for folder in folders]
            position = next((position for position in positions if position), {})
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


def compare(batches: list[list[Event]], how: str, rows: dict[str, list[dict[str, Any]]], job: Job) -> None:
    """Demand that the job has written what the models say, and has counted the late rows."""
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


@pytest.mark.slow  # two minutes
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
    compare(streams.batches(tmp_path / "state" / "checkpoint"), "inner", rows, job)


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
    rows = history_rows(spark, tmp_path / "out")
    compare(streams.batches(tmp_path / "state" / "checkpoint"), "full", rows, job)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_continues_elsewhere_from_a_savepoint_that_it_made_while_it_ran(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    streams, parts = Streams(bootstrap), [tmp_path / "first", tmp_path / "second"]
    configs = [
        config(bootstrap, streams, part, "full", {"sink.type": "files", "sink.files.path": str(part / "out")})
        for part in parts
    ]
    configs[1]["source.savepoint"] = str(tmp_path / "moved")
    job = Job(configs[0], parts[0] / "run")
    job.start()
    read = 0
    try:
        for number, events in enumerate(rounds(74)):
            streams.send(events)
            if number == 1:  # the job continues after the first one, and this round's batch comes before or after it
                assert commands.main([configs[0]["name"], "--to", str(tmp_path / "kept")]) == 0
            if number == 3:
                assert commands.main([configs[0]["name"], "--to", str(tmp_path / "moved"), "--stop"]) == 0
                assert job.process.wait(60) == 0
                read = sum(map(len, streams.batches(parts[0] / "state" / "checkpoint")))
                job = Job(configs[1], parts[1] / "run")
                job.start()
            if (waiting := sum(map(len, streams.events.values())) - read) > 0:
                job.wait_rows(waiting, 180)
        assert job.stop() == 0
    finally:
        if job.process.poll() is None:
            job.kill()
    saved = read_manifest(LocalFolder(tmp_path / "moved"), str(tmp_path / "moved"))
    assert all(any(table.rows for table in saved.steps[step].tables.values()) for step in "jw")
    rows, later = (history_rows(spark, part / "out") for part in parts)
    assert rows
    assert later
    for name, more in later.items():
        rows.setdefault(name, []).extend(more)
    compare(streams.batches(*(part / "state" / "checkpoint" for part in parts)), "full", rows, job)


def history_rows(spark: SparkSession, path: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table in a history."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for table in history.find_tables(spark, str(path)):
        with suppress(ConfigInvalid):  # a table without rows: nothing was late
            rows[table.name] = [row.asDict() for row in history.read(spark, table.path).collect()]
    return rows
