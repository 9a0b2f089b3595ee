"""A table with every CQL type of a real Cassandra, by its commit log, Kafka (Avro) and the materializer into PostgreSQL."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition

from compose.local.cassandra_cluster import execute_cql
from compose.local.worker import MillraceWorker
from spark_jobs.sources.debezium import DebeziumSource
from tests.integration.spark_jobs.jdbc.test_types_of_the_reference import declared_types, plain
from tests.integration.spark_jobs.sources.test_sources_live import Bench
from tests.support.eventually import eventually
from tests.support.job_process import Job
from worker.development.reference_types import type_cells, type_tables
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.registry import SchemaRegistry
    from tests.conftest import HasCassandra
    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

pytestmark = pytest.mark.slow
IDENTITY: Final = "50554d6e-29bb-11e5-b345-feff819cdc9f"
MOMENT: Final = datetime(2026, 3, 29, 2, 30, 0, 123000, UTC)
#: CQL type: a literal, and the value in PostgreSQL.
VALUES: Final[dict[str, tuple[str, Any]]] = {
    "ascii": ("'abc'", "abc"),
    "text": ("'ü 😀'", "ü 😀"),
    "boolean": ("true", True),
    "tinyint": ("-128", -128),
    "smallint": ("-32768", -32768),
    "int": ("-2147483648", -(2**31)),
    "bigint": ("9223372036854775807", 2**63 - 1),
    "varint": ("-123456789012345678", -123456789012345678),
    "decimal": ("-12345.678900", Decimal("-12345.678900")),
    "float": ("1.5", 1.5),
    "double": ("0.1", 0.1),
    "blob": ("0x00ff", b"\x00\xff"),
    "uuid": (IDENTITY, UUID(IDENTITY)),
    "timeuuid": (IDENTITY, UUID(IDENTITY)),
    "inet": ("'10.0.0.1'", "10.0.0.1"),
    "date": ("'2024-02-29'", date(2024, 2, 29)),
    "time": ("'13:45:59.123456789'", time(13, 45, 59, 123456)),
    "timestamp": ("'2026-03-29T02:30:00.123Z'", MOMENT),
    "duration": ("1mo2d3h", "1mo2d3h"),
    "list<int>": ("[1, 2]", [1, 2]),
    "set<uuid>": (f"{{{IDENTITY}}}", [IDENTITY]),
    "map<text, decimal>": ("{'k': 1.5}", [{"key": "k", "value": "1.5"}]),
    "tuple<int, text>": ("(1, 'a')", {"field_0": 1, "field_1": "a"}),
}


def page_types() -> dict[str, str]:
    """PostgreSQL's types on the page."""
    (rows,) = (rows for head, rows in type_tables() if "partition updates" in head[0])
    return {name: type_cells(schema)[3] for name, schema in rows}


def test_every_type_arrives_as_the_page_says(
    cassandra: HasCassandra,
    cassandra_keyspace: Callable[[], str],
    rig: Callable[..., Rig],
    postgresql: Database,
    spark: SparkSession,
    bootstrap: str,
    registry: SchemaRegistry,
    tmp_path: Path,
) -> None:
    name = cassandra_keyspace()
    columns = {f"c{number}": kind for number, kind in enumerate(VALUES)}
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {name}.t (id int PRIMARY KEY, {', '.join(f'{c} {k}' for c, k in columns.items())}) WITH cdc = true",
    )
    bench = Bench(spark, bootstrap, f"{name}.{name}.t", registry.url)

    def count(topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1])
        finally:
            consumer.close()

    with MillraceWorker(tmp_path / "worker", bootstrap, group=name, port=None, processes=1) as worker:
        worker.create(
            name,
            {
                "connector.class": "cassandra",
                "topic.prefix": name,
                "cassandra.hosts": cassandra.address,
                "cdc.raw.directories": str(cassandra.cdc_raw),
                "table.include.list": rf"{name}\.t",
                "commit.log.read.mode": "marker",
                "commit.log.delete": "false",
                "snapshot.mode": "never",
                "output.format": "partition-update",
                "key.converter": "ByteArrayConverter",
                "value.converter": "AvroConverter",
                "value.converter.schema.registry.url": registry.url,
            },
        )
        worker.wait_running(name, 1)
        execute_cql(
            cassandra.address,
            f"INSERT INTO {name}.t (id, {', '.join(columns)}) VALUES (1, {', '.join(text for text, _ in VALUES.values())})",
            f"INSERT INTO {name}.t (id) VALUES (2)",
        )
        eventually(lambda: count(bench.topic) >= 2, "both rows are in the topic", 120)
    job = Job(
        {
            "name": name,
            "kafka": {"bootstrap.servers": bootstrap},
            "source": {
                "topics": bench.topic,
                "format": "partition-update",
                "value.encoding": "avro",
                "schema.registry.url": registry.url,
            },
            "transform": {"type": "materialize"},
            "sink": {"type": "kafka", "kafka": {"topic": f"{name}.rows"}},
            "trigger": {"mode": "available-now"},
            "checkpoint": {"location": str(tmp_path / "checkpoint")},
            "state": {"dir": str(tmp_path / "state")},
            "spark": {"master": "local[2]", "driver.memory": "512m", "driver.extraJavaOptions": " ".join(FAST_START)},
        },
        tmp_path / "job",
    )
    job.start()
    assert job.process.wait(200) == 0, job.failure or job.log()
    bench.topic = f"{name}.rows"
    changes = bench.changes(bench.source(DebeziumSource, "avro"))
    target = f"t_{name}"
    into = rig(postgresql, spark, **{"sink.jdbc.table": target})
    assert into.sink.write(into.batch(*changes)) >= 2
    kinds = declared_types(postgresql, target)
    full, empty = postgresql.query(f"SELECT {', '.join(columns)} FROM {target} WHERE ums_active_ = 1 ORDER BY id")
    assert empty == (None,) * len(columns)
    assert {kind: kinds[column] for column, kind in columns.items()} == page_types()
    assert dict(zip(columns.values(), map(plain, full), strict=True)) == {
        kind: value for kind, (_, value) in VALUES.items()
    }
