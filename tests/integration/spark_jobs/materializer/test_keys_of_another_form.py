"""A user-defined type in a clustering key gets a field: the steps of docs/jobs/materializer.md, from Cassandra to Delta."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import struct
import subprocess
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from compose.local.cassandra_cluster import execute_cql
from connectors.cassandra.connector import CassandraConnector
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from tests.integration.spark_jobs.materializer.conftest import read_topic
from tests.integration.spark_jobs.materializer.test_commands import command
from tests.support.eventually import eventually, patience
from tests.support.job_process import Job
from worker.converters.json import JsonConverter
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import HasCassandra

pytestmark = pytest.mark.slow  # minutes: each job and command starts Spark


class Updates:
    """The changes of a keyspace on their way to a topic."""

    def __init__(self, cassandra: HasCassandra, bootstrap: str, keyspace: str) -> None:
        self.topic = f"{keyspace}.updates"
        self._address, self._keyspace, self._bootstrap = cassandra.address, keyspace, bootstrap
        self._offsets, self._fence, self._passed = SavedOffsets(), 0, 0
        self._config = {
            "topic.prefix": "p",
            "cassandra.hosts": cassandra.address,
            "cdc.raw.directories": f"n1={cassandra.cdc_raw}",
            "table.include.list": f"{keyspace}\\..*",
            "commit.log.delete": "false",
            "commit.log.read.mode": "marker",
            "snapshot.mode": "never",
        }

    async def send(self) -> None:
        """Send all that was written before."""
        self._fence += 1
        execute_cql(self._address, f"INSERT INTO {self._keyspace}.fence (id) VALUES ({self._fence})")
        converter, producer = (
            JsonConverter({"schemas.enable": "true"}),
            Producer({"bootstrap.servers": self._bootstrap}),
        )
        async with Run(CassandraConnector, self._config, offsets=self._offsets) as run, patience(60):
            while self._passed < self._fence:
                for record in await run.read(1, 60):
                    if record.topic.endswith(".fence"):
                        (self._passed,) = struct.unpack(">i", record.key)
                        continue
                    value = converter.encoder(self.topic, record.value_schema)(record.value)
                    producer.produce(self.topic, value, record.key)
        assert producer.flush(30) == 0


def run_job(config: dict[str, Any], folder: Path) -> None:
    """Run a job over what there is."""
    job = Job(config, folder)
    job.start()
    try:
        job.process.wait(600)
    except subprocess.TimeoutExpired:
        job.kill()
    assert job.process.returncode == 0, f"{job.failure} {job.retries} {job.log()}"


async def test_the_rows_get_their_new_keys(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str], bootstrap: str, tmp_path: Path
) -> None:
    keyspace = cassandra_keyspace()
    updates, lake = Updates(cassandra, bootstrap, keyspace), tmp_path / "lake"
    frame: dict[str, Any] = {
        "kafka": {"bootstrap.servers": bootstrap},
        "trigger": {"mode": "available-now"},
        "spark": {"master": "local[2]", "driver.memory": "512m", "driver.extraJavaOptions": " ".join(FAST_START)},
    }
    rows_job = {
        **frame,
        "name": f"m-{keyspace}",
        "source": {"topics": updates.topic, "format": "partition-update", "value.encoding": "json"},
        "transform": {"type": "materialize"},
        "materializer": {"output.encoding": "json-schemas"},
        "sink": {"type": "kafka", "kafka": {"topic": f"{keyspace}.rows"}},
        "checkpoint": {"location": str(tmp_path / "rows-checkpoint")},
        "state": {"dir": str(tmp_path / "state")},
    }
    target_job = {
        **frame,
        "name": f"d-{keyspace}",
        "source": {"topics": f"{keyspace}.rows", "format": "debezium", "value.encoding": "json"},
        "sink": {"type": "delta", "delta": {"path": str(lake), "delete.mode": "real", "buckets": "2"}},
        "checkpoint": {"location": str(tmp_path / "target-checkpoint")},
    }

    def target() -> list[tuple[int, Any, int]]:
        # The other one remembers deletes.
        (table,) = [log.parent for log in lake.rglob("_delta_log") if not log.parent.name.endswith("_ums")]
        rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
        return sorted(((row["k"], row["c"], row["v"]) for row in rows), key=itemgetter(2))

    execute_cql(
        cassandra.address,
        f"CREATE TABLE {keyspace}.fence (id int PRIMARY KEY) WITH cdc = true",
        f"CREATE TYPE {keyspace}.u (a int)",
        f"CREATE TABLE {keyspace}.t (k int, c frozen<u>, v int, PRIMARY KEY (k, c)) WITH cdc = true",
        *(f"INSERT INTO {keyspace}.t (k, c, v) VALUES (1, {{a: {a}}}, {a})" for a in (1, 2, 3)),
    )
    await updates.send()
    execute_cql(
        cassandra.address,
        f"ALTER TYPE {keyspace}.u ADD b text",
        f"UPDATE {keyspace}.t SET v = 10 WHERE k = 1 AND c = {{a: 1}}",
        f"DELETE FROM {keyspace}.t WHERE k = 1 AND c = {{a: 2}}",
        f"INSERT INTO {keyspace}.t (k, c, v) VALUES (1, {{a: 4, b: 'x'}}, 4)",
    )
    await updates.send()
    run_job(rows_job, tmp_path / "rows")

    keys = {key for _, key, _ in read_topic(bootstrap, f"{keyspace}.rows")}
    assert len(keys) == 6, "two of four rows have had two keys"

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([f"{keyspace}.rows"])[f"{keyspace}.rows"].result(30)
    eventually(lambda: f"{keyspace}.rows" not in admin.list_topics(timeout=10).topics, "the topic is deleted", 30)
    command("rebuild", str(tmp_path / "rows" / "job.json"), "--output")
    execute_cql(cassandra.address, f"UPDATE {keyspace}.t SET v = 30 WHERE k = 1 AND c = {{a: 3}}")
    await updates.send()
    run_job(rows_job, tmp_path / "rows")
    run_job(target_job, tmp_path / "target")
    assert target() == [(1, {"a": 4, "b": "x"}, 4), (1, {"a": 1, "b": None}, 10), (1, {"a": 3, "b": None}, 30)]
