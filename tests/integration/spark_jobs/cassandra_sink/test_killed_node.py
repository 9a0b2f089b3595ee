"""A Cassandra that is killed: a batch waits in the write-ahead log, which holds no more than it, and is written once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cassandra.cluster import Cluster
from pyspark.sql.types import LongType, StringType

from compose.local.cassandra import CassandraNode
from connectors.errors import Retriable
from spark_jobs.config import job_files as job_config
from spark_jobs.contract import Column, TableSchema
from spark_jobs.testing import change
from spark_jobs.testing.batches import BatchFeed
from spark_jobs.testing.kit import key_column, make_sink
from spark_jobs.write_ahead_log import FOLDER
from tests.support.patient_cql import PATIENT
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLE = TableSchema("shop.orders", (key_column("id", LongType()), Column("name", StringType())))


def stored(node: CassandraNode) -> dict[int, tuple[Any, ...]]:
    """The rows of the table, with the write times of their names."""
    with Cluster([(node.host, node.port)], protocol_version=4, schema_metadata_enabled=False, **PATIENT) as cluster:
        rows = cluster.connect().execute("SELECT id, name, ums_id_, WRITETIME(name) FROM shop.orders")
        return {number: tuple(rest) for number, *rest in rows}


@pytest.mark.slow
@pytest.mark.proves("into cassandra", "exactly-once", killed=["server"])
def test_a_node_that_is_killed_keeps_what_it_confirmed(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with CassandraNode(tmp_path / "node", port=None, cdc=False, jvm_options=FAST_START) as node:
        config, problems = job_config.check_job(
            {
                "name": "killed",
                "kafka.bootstrap.servers": "127.0.0.1:1",
                "source.topics": "t",
                "source.format": "plain",
                "checkpoint.location": str(checkpoint),
                "sink.type": "cassandra",
                "sink.cassandra.hosts": node.address,
                "sink.cassandra.keyspace": "shop",
                "sink.cassandra.table": "orders",
                "sink.cassandra.replication": "1",
                "sink.cassandra.retries": "0",
                "sink.cassandra.timeout.ms": "5000",
            }
        )
        assert config is not None, problems
        sink = make_sink(config, spark)
        sink.open()
        feed = BatchFeed("t")
        inserts = [change("i", number + 1, id=number, name=f"a{number}") for number in range(500)]
        updates = [change("u", 1000 + number, id=number, name=f"b{number}") for number in range(250)]
        first, second = (feed.next([(TABLE, changes)]) for changes in (inserts, updates))
        sink.write(first.frames(spark))
        node.service.kill()
        for _ in range(2):
            with pytest.raises(Retriable):
                sink.write(second.frames(spark))
            sections = [path.name for path in (checkpoint / FOLDER).iterdir() if path.is_dir()]
            assert sections == [str(second.id)]
        node.service.start()
        sink.write(second.frames(spark))
        sink.write(second.frames(spark))  # it is known to be written
        rows = stored(node)
        sink.close()
    assert rows == {
        number: (f"b{number}", 1000 + number, 1000 + number) if number < 250 else (f"a{number}", number + 1, number + 1)
        for number in range(500)
    }
