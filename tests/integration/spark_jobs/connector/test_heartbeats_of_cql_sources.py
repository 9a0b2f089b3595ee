"""Heartbeats of Cassandra's and Scylla's tables through a worker, Kafka and jobs: delays are measured, they are no rows.

Cassandra's partition updates go through the materializer and into a history, and a Kafka sink copies their topic with the
heartbeats.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from compose.local.cassandra_cluster import execute_cql
from compose.local.scylla.client import Emulation, now_us
from compose.local.scylla.writes import Insert
from connectors.formats.table_heartbeats import HEADER
from tests.support.table_delays import (
    PARTITIONS,
    change_and_wait,
    check_delays,
    job_options,
    make_topics,
    read_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.worker import MillraceWorker
    from tests.conftest import HasCassandra
    from tests.support.table_delays import TopicRecord


def _check_heartbeats(records: list[TopicRecord], last_change: float) -> None:
    """Every partition has heartbeats, in the order of their times; none before the last change promises what comes after it."""
    beats = [record for record in records if HEADER in record.headers]
    assert {record.partition for record in beats} == set(range(PARTITIONS))
    assert all((record.key, record.value) == (None, None) for record in beats)
    for number in range(PARTITIONS):
        partition = [record for record in records if record.partition == number]
        times = [int(record.headers[HEADER]) for record in partition if HEADER in record.headers]
        assert times == sorted(times)
        changes = [index for index, record in enumerate(partition) if HEADER not in record.headers]
        for record in partition[: changes[-1]] if changes else ():
            assert HEADER not in record.headers or int(record.headers[HEADER]) <= last_change * 1_000_000


@pytest.mark.slow
def test_cassandra_through_the_materializer_as_copies_and_as_a_history(
    millrace: Callable[..., MillraceWorker],
    cassandra: HasCassandra,
    cassandra_keyspace: Callable[[], str],
    bootstrap: str,
    tmp_path: Path,
) -> None:
    keyspace = cassandra_keyspace()
    name = f"beat_{secrets.token_hex(4)}"
    topic = f"{name}.{keyspace}.t"
    make_topics(bootstrap, [topic, f"{topic}.rows"])
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, a int) WITH cdc = true",
        f"INSERT INTO {keyspace}.t (id, a) VALUES (2, 2)",  # noqa: S608 - names of the test's own, as below
    )
    worker = millrace(properties={"offset.flush.interval.ms": "300"})
    worker.create(
        f"{name}-source",
        {
            "connector.class": "cassandra",
            "topic.prefix": name,
            "cassandra.hosts": cassandra.address,
            "cdc.raw.directories": str(cassandra.cdc_raw),
            "commit.log.delete": "false",
            "table.include.list": rf"{keyspace}\.t",
            "snapshot.mode": "never",
            "heartbeat.interval.ms": "500",
            "heartbeat.to.tables": "true",
            "key.converter": "ByteArrayConverter",
        },
    )
    rows_of = {
        # A process next to the driver merges, Spark's tasks, and Spark's tasks by key.
        "rows": {"materializer.output.heartbeats": "true"},
        "tasks": {"materializer.small.batch.records": "0"},
        "keys": {"materializer.buckets": "2", "materializer.output.partitioner": "murmur2"},
    }
    jobs = {
        f"{name}-{kind}": {
            "source.topics": topic,
            "source.format": "partition-update",
            "transform.type": "materialize",
            "materializer.output.encoding": "json",
            "materializer.record.max.bytes": "1000000",  # what topics allow by default
            "state.dir": str(tmp_path / f"state-{kind}"),
            "sink.type": "kafka",
            "sink.kafka.topic": f"{topic}.{kind}",
            **options,
        }
        for kind, options in rows_of.items()
    }
    jobs[f"{name}-copy"] = {
        "source.topics": topic,
        "source.format": "plain",
        "sink.type": "kafka",
        "sink.kafka.content": "records",
        "sink.kafka.topic": f"{topic}.copy",
    }
    jobs[f"{name}-history"] = {
        "source.topics": topic,
        "source.format": "partition-update",
        "sink.type": "files",
        "sink.files.path": str(tmp_path / "history"),
    }
    jobs[f"{name}-target"] = {
        "source.topics": f"{topic}.rows",
        "source.format": "debezium",
        "sink.type": "jdbc",
        "sink.jdbc.url": f"jdbc:sqlite:{tmp_path}/target.db",
        "sink.jdbc.table": "t",
    }
    for job, options in jobs.items():
        options |= {"checkpoint.location": str(tmp_path / job), "trigger.interval.ms": "500"}
        worker.create(job, job_options(name) | options)
    tables = {job: options["source.topics"] for job, options in jobs.items()}

    def change(number: int) -> None:
        execute_cql(cassandra.address, f"INSERT INTO {keyspace}.t (id, a) VALUES (1, {number})")  # noqa: S608

    began = change_and_wait(worker, tables, change, (3, 4, 5))
    check_delays(worker, tables)
    with closing(sqlite3.connect(tmp_path / "target.db")) as target:
        assert sorted(target.execute("SELECT id, a FROM t")) == [(1, 5), (2, 2)]
    for kind in rows_of:
        outputs = read_topic(bootstrap, f"{topic}.{kind}")
        rows = [json.loads(record.value)["after"] for record in outputs if record.value]
        assert sorted((row["id"], row["a"]) for row in rows) == [(1, 3), (1, 4), (1, 5), (2, 2)]
        if kind == "rows":
            _check_heartbeats(outputs, began)
        else:
            assert not any(HEADER in record.headers for record in outputs)
    copies = read_topic(bootstrap, f"{topic}.copy")
    records = read_topic(bootstrap, topic)
    _check_heartbeats(records, began)
    assert {record.headers[HEADER] for record in copies if HEADER in record.headers} <= {
        record.headers[HEADER] for record in records if HEADER in record.headers
    }
    _check_heartbeats(copies, began)


@pytest.mark.slow
def test_scylla_to_a_database(
    millrace: Callable[..., MillraceWorker],
    scylla: Emulation,
    scylla_keyspace: Callable[..., str],
    bootstrap: str,
    tmp_path: Path,
) -> None:
    keyspace = scylla_keyspace()
    name = f"beat_{secrets.token_hex(4)}"
    topic = f"{name}.{keyspace}.t"
    make_topics(bootstrap, [topic])
    scylla.create_table(
        f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, a int) WITH cdc = {{'enabled': true, 'postimage': true}}"
    )
    scylla.new_generation(4, 2, start_ms=int(time.time() * 1000) - 60_000)
    scylla.apply(Insert(f"{keyspace}.t", {"id": 2, "a": 2}), timestamp_us=now_us())
    worker = millrace(properties={"offset.flush.interval.ms": "300"})
    worker.create(
        f"{name}-source",
        {
            "connector.class": "scylla",
            "topic.prefix": name,
            "tasks.max": "2",
            "scylla.cluster.ip.addresses": scylla.address,
            "scylla.table.names": f"{keyspace}.t",
            "scylla.initial.lookback.ms": "50000",
            "scylla.window.min.ms": "200",
            "scylla.confidence.window.ms": "100",
            "cdc.output.format": "advanced",
            "cdc.include.after": "full",
            "heartbeat.interval.ms": "500",
            "heartbeat.to.tables": "true",
        },
    )
    job = f"{name}-target"
    worker.create(
        job,
        {
            **job_options(name),
            "source.topics": topic,
            "source.format": "debezium",
            "sink.type": "jdbc",
            "sink.jdbc.url": f"jdbc:sqlite:{tmp_path}/target.db",
            "sink.jdbc.table": "t",
            "checkpoint.location": str(tmp_path / "checkpoint"),
        },
    )
    tables = {job: topic}

    def change(number: int) -> None:
        scylla.apply(Insert(f"{keyspace}.t", {"id": 1, "a": number}), timestamp_us=now_us())

    change_and_wait(worker, tables, change, (3, 4, 5))
    check_delays(worker, tables)
    with closing(sqlite3.connect(tmp_path / "target.db")) as target:
        assert sorted(target.execute("SELECT id, a FROM t")) == [(1, 5), (2, 2)]
    records = read_topic(bootstrap, topic)
    beats = [record for record in records if HEADER in record.headers]
    assert {record.partition for record in beats} == set(range(PARTITIONS))
    # Each task speaks for the streams that it reads.
    assert {record.headers[HEADER].partition(b" ")[2] for record in beats} == {b"0/2", b"1/2"}
    assert all((record.key, record.value) == (None, None) for record in beats)
