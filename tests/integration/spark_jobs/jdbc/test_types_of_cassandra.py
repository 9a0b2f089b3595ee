"""A table with every CQL type of a real Cassandra, by its commit log and Kafka (Avro) into PostgreSQL, also materialized."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition

from compose.local.cassandra_cluster import execute
from compose.local.jvm import FAST_START
from compose.local.worker import MillraceWorker
from spark_jobs.sources.debezium import DebeziumSource
from tests.integration.spark_jobs.jdbc.test_types_of_the_reference import declared_types, plain
from tests.integration.spark_jobs.sources.test_sources_live import Bench
from tests.support.eventually import eventually
from tests.support.job_process import Job
from worker.reference_types import cells, type_tables

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
NANOS: Final = 49_559_123_456_789
#: CQL type: a literal, and the value in PostgreSQL where all forms agree.
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
#: What Debezium's form says of some of them.
DEBEZIUM: Final = {
    "decimal": -12345.6789,
    "time": NANOS,
    "timestamp": MOMENT.replace(tzinfo=None),
    "duration": 0,
    "map<text, decimal>": {"k": 1.5},
    "tuple<int, text>": {"field1": 1, "field2": "a"},
}
PRECISE: Final = {"decimal": Decimal("-12345.678900"), "time": VALUES["time"][1]}
OPTIONS: Final = {
    "decimal.handling.mode": "precise",
    "varint.handling.mode": "precise",
    "cassandra.logical.types": "named",
}
#: Where the forms stand on the page of types.
TITLES: Final = {"updates": "Cassandra and Scylla", "debezium": "Cassandra: Debezium", "precise": "With `decimal"}


def expected_cells(form: str) -> dict[str, list[str]]:
    """The page's cells of the types that it has for a form."""
    tables = [
        {name: cells(schema) for name, schema in rows}
        for head, rows in type_tables()
        if head[0].removeprefix("## ").startswith(TITLES[form])
    ]
    return tables[0]


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
    execute(
        cassandra.address,
        f"CREATE TABLE {name}.t (id int PRIMARY KEY, {', '.join(f'{c} {k}' for c, k in columns.items())}) WITH cdc = true",
    )
    forms = {"updates": {"output.format": "partition-update"}, "debezium": {"output.format": "debezium"}}
    forms["precise"] = forms["debezium"] | OPTIONS
    benches = {form: Bench(spark, bootstrap, f"{name}-{form}.{name}.t", registry.url) for form in forms}
    avro = {"value.converter": "AvroConverter", "value.converter.schema.registry.url": registry.url}
    keys = {"key.converter": "AvroConverter", "key.converter.schema.registry.url": registry.url}

    def count(topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1])
        finally:
            consumer.close()

    with MillraceWorker(tmp_path / "worker", bootstrap, group=name, port=None, processes=1) as worker:
        for form, options in forms.items():
            worker.create(
                f"{name}-{form}",
                {
                    "connector.class": "cassandra",
                    "topic.prefix": f"{name}-{form}",
                    "cassandra.hosts": cassandra.address,
                    "cdc.raw.directories": str(cassandra.cdc_raw),
                    "table.include.list": rf"{name}\.t",
                    "commit.log.read.mode": "marker",
                    "commit.log.delete": "false",
                    "snapshot.mode": "never",
                    **avro,
                    **({"key.converter": "ByteArrayConverter"} if form == "updates" else keys),
                    **options,
                },
            )
        for form in forms:
            worker.wait_running(f"{name}-{form}", 1)
        execute(
            cassandra.address,
            f"INSERT INTO {name}.t (id, {', '.join(columns)}) VALUES (1, {', '.join(text for text, _ in VALUES.values())})",
            f"INSERT INTO {name}.t (id) VALUES (2)",
        )
        for bench in benches.values():
            eventually(lambda bench=bench: count(bench.topic) >= 2, f"{bench.topic} has both rows", 120)  # type: ignore[misc]
    job = Job(
        {
            "name": name,
            "kafka": {"bootstrap.servers": bootstrap},
            "source": {
                "topics": benches["updates"].topic,
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
    benches["updates"].topic = f"{name}.rows"

    wrong: list[tuple[Any, ...]] = []
    for form, bench in benches.items():
        changes = bench.changes(bench.source(DebeziumSource, "avro"))
        target = f"t_{name}_{form}"
        into = rig(postgresql, spark, **{"sink.jdbc.table": target})
        assert into.sink.write(into.batch(*changes)) >= 2
        kinds = declared_types(postgresql, target)
        listed = ", ".join(columns)
        full, empty = postgresql.query(f"SELECT {listed} FROM {target} WHERE ums_active_ = 1 ORDER BY id")
        assert empty == (None,) * len(columns)
        values_read = dict(zip(columns.values(), map(plain, full), strict=True))
        values = {kind: value for kind, (_, value) in VALUES.items()}
        values |= {} if form == "updates" else DEBEZIUM
        values |= PRECISE if form == "precise" else {}
        page = expected_cells("debezium" if form == "precise" else form)
        page |= expected_cells(form)
        for column, kind in columns.items():
            if kinds[column] != page[kind][3]:
                wrong.append((form, kind, "type", kinds[column], page[kind][3]))
            if values_read[kind] != values[kind]:
                wrong.append((form, kind, "value", values_read[kind], values[kind]))
    assert wrong == [], json.dumps(wrong, default=str, indent=1)
