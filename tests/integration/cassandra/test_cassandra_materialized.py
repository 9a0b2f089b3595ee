"""Three nodes that each hold everything: their logs become one table, whose every row is what SELECT shows.

The whole way: statements of every kind at all nodes, three tasks in a worker, one Kafka topic with the changes of all replicas
in both forms of partition updates, the materializer as a job of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compose.local.worker import MillraceWorker
from connectors.cql.cluster.session import CqlSession
from connectors.errors import Fatal
from tests.support.cassandra_load import Workload, plain_row
from tests.support.eventually import eventually
from tests.support.job_process import Job
from tests.support.settings import cql_session
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compose.local.cassandra_cluster import CassandraCluster

PARTITIONS: Final = 2
STATEMENTS: Final = 160


class Topic:
    """The records of a topic that readers of committed records have seen so far."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.events: list[tuple[bytes, Any]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"read-{secrets.token_hex(4)}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._consumer.assign([TopicPartition(name, partition, 0) for partition in range(PARTITIONS)])

    def read(self) -> list[tuple[bytes, Any]]:
        """All records: key, and value from JSON (None: a tombstone)."""
        while messages := self._consumer.consume(1000, 0.1):
            for message in messages:
                if message.error() is None:
                    value = message.value()
                    self.events.append((message.key() or b"", None if value is None else json.loads(value)))
        return self.events

    def close(self) -> None:
        """Close it."""
        self._consumer.close()


def folded(events: list[tuple[bytes, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows that events lead to. Each event continues from the one before it and changes something: none came twice."""
    rows: dict[bytes, dict[str, Any]] = {}
    for key, event in events:
        if event is None:
            assert key not in rows
            continue
        assert event["before"] == rows.get(key), "an event is missing or was written twice"
        assert event["before"] != event["after"], "an event that changes nothing"
        assert event["op"] == ("d" if event["after"] is None else "c" if event["before"] is None else "u")
        if event["after"] is None:
            del rows[key]
        else:
            rows[key] = event["after"]
    return {(row["pk"], row["c1"], row["c2"]): plain_row(row) for row in rows.values()}


class Database:
    """The cluster as clients see it: statements go to all nodes in turn, rows are read from all replicas."""

    def __init__(self, cluster: CassandraCluster) -> None:
        self._loop = asyncio.new_event_loop()
        points = tuple((member.host, int(member.port or 0)) for member in cluster.members)
        self._session = self._loop.run_until_complete(
            CqlSession.acquire(cql_session(contact_points=points, consistency="QUORUM", request_timeout_s=30.0))
        )

    def run(self, workload: Workload, count: int) -> None:
        """The next statements of a load, one after the other."""
        for statement in workload.statements(count):
            with contextlib.suppress(*((Fatal,) if statement.may_fail else ())):
                self._loop.run_until_complete(self._session.query(statement.text))

    def insert(self, table: str, pk: int) -> None:
        """A row that all replicas have when this returns."""
        self._loop.run_until_complete(
            self._session.query(f"INSERT INTO {table} (pk, c1, c2) VALUES ({pk}, 0, 'a')", consistency="ALL")  # noqa: S608
        )

    def rows(self, table: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        """The rows that SELECT shows, by primary key."""
        rows = self._loop.run_until_complete(self._session.query(f"SELECT * FROM {table}", consistency="ALL"))  # noqa: S608
        return {(row["pk"], row["c1"], row["c2"]): plain_row(row) for row in rows if row["c1"] is not None}

    def close(self) -> None:
        """Close it."""
        self._loop.run_until_complete(self._session.release())
        self._loop.close()


@pytest.fixture
def database(cassandra_cluster: CassandraCluster) -> Iterator[Database]:
    database = Database(cassandra_cluster)
    yield database
    database.close()


def connector(cluster: CassandraCluster, name: str, keyspace: str, form: str) -> dict[str, Any]:
    """The connector's configuration, with a form of output."""
    return {
        "connector.class": "connectors.cassandra.connector.CassandraConnector",
        "tasks.max": "3",
        "topic.prefix": name,
        "cassandra.hosts": ",".join(f"{member.host}:{member.port}" for member in cluster.members),
        "cdc.raw.directories": ",".join(f"{label}={folder}" for label, folder in cluster.directories.items()),
        "table.include.list": rf"{keyspace}\.t",
        "commit.log.read.mode": "marker",
        "commit.log.delete": "false",
        "output.format": form,
        "snapshot.mode": "never",
        "schema.refresh.interval.ms": "200",
        "key.converter": "ByteArrayConverter",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "true",
    }


@pytest.mark.slow
def test_three_replicas_become_one_table(
    cassandra_cluster: CassandraCluster, database: Database, bootstrap: str, tmp_path: Path
) -> None:
    cluster, name = cassandra_cluster, f"three{secrets.token_hex(4)}"
    cluster.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    workload = Workload(int(name[-6:], 16), name, ttls=(2, 3600))
    cluster.execute(*workload.ddl)
    topic = f"{name}.{workload.table}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"})])[
        topic
    ].result(20)
    job = Job(
        {
            "name": name,
            "kafka": {"bootstrap.servers": bootstrap},
            "source": {
                "topics": topic,
                "format": "partition-update",
                "value.encoding": "json",
                "starting.offsets": "earliest",
            },
            "transform": {"type": "materialize"},
            "materializer": {"output.encoding": "json", "expiry.interval.ms": 200},
            "sink": {"type": "kafka", "kafka": {"topic": f"{topic}.rows"}},
            "trigger": {"interval.ms": 0},
            "guarantee": "exactly-once",
            "checkpoint": {"location": str(tmp_path / "checkpoint")},
            "state": {"dir": str(tmp_path / "state")},
            "spark": {"master": "local[2]", "driver.memory": "512m", "driver.extraJavaOptions": " ".join(FAST_START)},
        },
        tmp_path / "job",
    )
    labels = ",".join(f"{label}=yes" for label in cluster.directories)
    changes, outputs = Topic(bootstrap, topic), Topic(bootstrap, f"{topic}.rows")
    with MillraceWorker(
        tmp_path / "worker",
        bootstrap,
        group=name,
        port=None,
        processes=1,
        properties={"node.labels": labels, "offset.flush.interval.ms": "300"},
    ) as worker:
        # It comes up while the first statements run.
        job.start()
        try:

            def read_on(form: str) -> None:
                worker.create(name, connector(cluster, name, name, form))
                worker.wait_running(name, 3)

            def all_equal() -> bool:
                outputs.read()
                return folded(outputs.events) == database.rows(workload.table)

            def difference() -> str:
                actual, expected = folded(outputs.read()), database.rows(workload.table)
                lines = [
                    f"{key}: {actual.get(key)} is not {expected.get(key)}"
                    for key in {**actual, **expected}
                    if actual.get(key) != expected.get(key)
                ]
                return "\n".join([f"{len(changes.read())} changes, {len(outputs.events)} events", *lines, job.log()])

            def is_merged(form: str, key: int) -> bool:
                """Whether every replica's log was read up to a row, and the job has merged what it said."""
                nodes = {
                    value["payload"]["source"]["position"]["node"]
                    for pk, value in changes.read()
                    if pk == key.to_bytes(4, "big") and value["schema"]["parameters"]["form"] == form
                }
                return nodes == set(cluster.directories) and job.rows >= len(changes.events)

            for last, form in enumerate(("partition-update", "partition-update-raw"), 1000):
                read_on(form)
                database.run(workload, STATEMENTS)
                database.insert(workload.table, last)
                eventually(
                    lambda last=last, form=form: is_merged(form, last),  # type: ignore[misc]
                    "all rows have come",
                    180,
                    detail=difference,
                )
                eventually(all_equal, "the tables are equal", every=0.1, detail=difference)
            stages = {
                stage: job.metrics.get(f"materializer_latency_{stage}_samples_total", 0)
                for stage in ("write_to_read", "read_to_topic", "topic_to_rows", "read_to_rows", "write_to_rows")
            }
            assert all(stages.values()), stages
            # Two of three copies changed nothing.
            assert job.metrics["materializer_suppressed_total"] > job.metrics["materializer_records_total"] / 2
        finally:
            job.kill()
            changes.close()
            outputs.close()
    cluster.execute(f"DROP KEYSPACE {name}")
