"""Rows that the Kafka sink writes as Avro and as UMS are read back by the sources of flows, and compared row by row."""

from __future__ import annotations

import json
import logging
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it is there, and documented
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from connectors.errors import Fatal, Retriable
from spark_jobs.config.job_files import check_job
from spark_jobs.contract import RAW_COLUMNS, Batch, Column, JobContext, SchemaRefused, TableSchema
from spark_jobs.sinks.kafka.config import target_topic
from spark_jobs.sinks.kafka.sink import KafkaSink
from spark_jobs.sources.plain import PlainSource
from spark_jobs.sources.ums import UmsSource
from spark_jobs.testing import change, check_sink
from spark_jobs.testing.batches import BatchFeed
from spark_jobs.testing.kit import key_column, make_sink
from tests.integration.spark_jobs.kafka_sink.test_kafka_conformance import KafkaTarget
from tests.integration.spark_jobs.kafka_sink.test_kafka_sink import KillOnce
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.registry import SchemaRegistry
    from spark_jobs.contract import Sink, TableChanges


def read_back(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> list[TableChanges]:
    """The tables that a flow with these options reads from a topic."""
    config, problems = check_job(
        {
            "name": f"reader-{secrets.token_hex(4)}",
            "kafka.bootstrap.servers": bootstrap,
            "source.topics": topic,
            "sink.type": "console",
            **options,
        }
    )
    assert config is not None, problems
    context = JobContext(config["name"], config, spark, logging.LoggerAdapter(logging.getLogger("test"), {}))
    source = UmsSource(context) if options["source.format"] == "ums" else PlainSource(context)
    raw = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    records = raw.option("includeHeaders", "true").option("kafka.isolation.level", "read_committed").load()
    batch: Batch = Batch(0, records.select(*RAW_COLUMNS), {}, list)
    return source.changes(batch)


class FormatTarget(KafkaTarget):
    """A topic for each table, read by a source."""

    def __init__(self, spark: SparkSession, bootstrap: str, sink: Mapping[str, str], source: Mapping[str, str]) -> None:
        super().__init__(bootstrap)
        self.spark, self.sink, self.source = spark, sink, source

    def options(self) -> Mapping[str, str]:
        return {**super().options(), **self.sink}

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        topic = target_topic("${namespace}.out", "", schema.namespace)
        if topic not in AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=30).topics:
            return []
        options = dict(self.source)
        if options["source.format"] == "ums":
            options["source.key.columns"] = ",".join(column.name for column in schema.key)
        tables = read_back(self.spark, self.bootstrap, topic, **options)
        return [dict(zip(table.frame.columns, row, strict=True)) for table in tables for row in plain(table)]

    def stored(self, column: Column, value: Any) -> Any:
        """Spark's rows have timestamps in local time, without a zone; those of the source without one are read as UTC."""
        kind = column.type.typeName()
        if kind == "timestamp_ntz":
            value = value.replace(tzinfo=UTC)
        return value.astimezone().replace(tzinfo=None) if kind.startswith("timestamp") else value


def plain(table: TableChanges) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in table.frame.collect()]


class AvroTarget(FormatTarget):
    unsupported_types: ClassVar[Mapping[str, str]] = {
        "struct": "Avro has no blanks in names: see test_members_of_structs_are_read_back"
    }


class UmsTarget(FormatTarget):
    unsupported_types: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("array", "map", "struct"), "UMS has no nested types: they are JSON in a string"),
        "decimal": "UMS's decimals have 20 digits and 18 after the point: larger ones are strings",
    }


def avro_target(spark: SparkSession, bootstrap: str, registry: SchemaRegistry) -> FormatTarget:
    return AvroTarget(
        spark,
        bootstrap,
        {"sink.kafka.format": "avro", "sink.kafka.schema.registry.url": registry.url},
        {
            "source.format": "plain",
            "source.value.encoding": "avro",
            "source.key.encoding": "avro",
            "source.schema.registry.url": registry.url,
        },
    )


def ums_target(spark: SparkSession, bootstrap: str) -> FormatTarget:
    return UmsTarget(spark, bootstrap, {"sink.kafka.format": "ums"}, {"source.format": "ums"})


CASES = [
    "every_type",
    *(
        pytest.param(case, marks=pytest.mark.slow)
        for case in ("replay", "every_type_of_key", "schema_evolution", "nulls_and_absent_columns", "many_rows")
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_avro_is_read_back(case: str, spark: SparkSession, bootstrap: str, registry: SchemaRegistry) -> None:
    check_sink(avro_target(spark, bootstrap, registry), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize("case", CASES)
def test_ums_is_read_back(case: str, spark: SparkSession, bootstrap: str) -> None:
    check_sink(ums_target(spark, bootstrap), spark=spark, bootstrap=bootstrap, only=case)


def kafka_sink(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> Sink:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    config, problems = check_job(
        {
            "name": f"writer-{secrets.token_hex(4)}",
            "kafka.bootstrap.servers": bootstrap,
            "source.topics": topic,
            "source.format": "plain",
            "sink.type": "kafka",
            "sink.kafka.content": "rows",
            "sink.kafka.topic.config.retention.ms": "-1",
            **options,
        }
    )
    assert config is not None, problems
    sink = make_sink(config, spark)
    sink.open()
    return sink


TABLE = TableSchema(
    "shop.orders", (key_column("id", IntegerType()), Column("kind", StringType()), Column("note", StringType()))
)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["begun", "before-commit", "after-commit"])
@pytest.mark.parametrize("form", ["avro", "ums"])
def test_rows_are_there_once_while_python_workers_are_killed(
    form: str, point: str, spark: SparkSession, bootstrap: str, registry: SchemaRegistry, tmp_path: Path
) -> None:
    target = avro_target(spark, bootstrap, registry) if form == "avro" else ums_target(spark, bootstrap)
    table = TableSchema(f"shop.t{secrets.token_hex(4)}", TABLE.columns)
    topic = f"in-{secrets.token_hex(4)}"
    sink = kafka_sink(spark, bootstrap, topic, **{**target.sink, "sink.kafka.topic": "${namespace}.out"})
    assert isinstance(sink, KafkaSink)
    feed = BatchFeed(topic)
    first = feed.next([(table, [change("i", 10 + number, id=number, kind="a", note="n") for number in range(40)])])
    later = [change("u", 100 + number, id=number, kind="b") for number in range(30)]
    second = feed.next([(table, [*later, *(change("d", 200 + number, id=number) for number in range(30, 40))])])
    assert sink.write(first.frames(spark)) == 40
    sink.points = KillOnce(tmp_path / "killed", point)
    with pytest.raises(Retriable, match="Python worker"):
        sink.write(second.frames(spark))
    assert (tmp_path / "killed").exists()
    sink.write(second.frames(spark))
    restarted = make_sink(sink.context.config, spark)
    restarted.open()
    assert [restarted.write(data.frames(spark)) for data in (first, second)] == [0, 0]
    assert sorted(
        (row["ums_id_"], row["ums_op_"], row["id"], row["kind"], row["note"]) for row in target.rows(table)
    ) == [
        *((10 + number, "i", number, "a", "n") for number in range(40)),
        *((100 + number, "u", number, "b", None) for number in range(30)),
        *((200 + number, "d", number, None, None) for number in range(30, 40)),
    ]


def test_a_column_names_the_topic(spark: SparkSession, bootstrap: str) -> None:
    topic = f"in-{secrets.token_hex(4)}"
    sink = kafka_sink(
        spark, bootstrap, topic, **{"sink.kafka.topic": topic + ".${column:kind}", "sink.kafka.partitioner": "key"}
    )
    feed = BatchFeed(topic)
    rows = [change("i", number, id=number, kind=("large", "very small")[number % 2], note="n") for number in range(40)]
    data = feed.next([(TABLE, rows)])
    assert sink.write(data.frames(spark)) == 40
    assert sink.write(data.frames(spark)) == 0  # It is there already: exactly once.
    for kind, remainder in (("large", 0), ("very_small", 1)):
        records = read_topic(bootstrap, f"{topic}.{kind}", committed=True)
        assert sorted(json.loads(record.value or b"")["id"] for record in records) == list(range(remainder, 40, 2))
    without = feed.next([(TABLE, [change("i", 50, id=50, note="n")])])
    with pytest.raises(Fatal, match=rf"the row of {topic}-\d offset \d+ names no topic"):
        sink.write(without.frames(spark))


def test_ums_has_the_key_of_the_row_and_the_name_of_the_table(spark: SparkSession, bootstrap: str) -> None:
    topic = f"in-{secrets.token_hex(4)}"
    sink = kafka_sink(spark, bootstrap, topic, **{"sink.kafka.topic": "${topic}.ums", "sink.kafka.format": "ums"})
    note = 'quotes " and \\ and ["row"] and \u00fc'
    sink.write(BatchFeed(topic).next([(TABLE, [change("i", 7, id=3, note=note)])]).frames(spark))
    (record,) = read_topic(bootstrap, f"{topic}.ums", committed=True)
    namespace = f"millrace.{sink.context.name}.shop.orders.0.0.0"
    assert record.key == f'data_increment_data.{namespace}...{{"id":3}}'.encode()
    message = json.loads(record.value or b"")
    assert message["protocol"] == {"type": "data_increment_data", "version": "1.3", "part": None}
    assert message["schema"]["namespace"] == namespace
    assert [(column["name"], column["type"], column["nullable"]) for column in message["schema"]["fields"][3:]] == [
        ("ums_uid_", "string", False),
        ("id", "int", False),
        ("kind", "string", True),
        ("note", "string", True),
    ]
    assert message["payload"][0]["tuple"][0] == "7"
    assert message["payload"][0]["tuple"][2:] == ["i", message["payload"][0]["tuple"][3], "3", None, note]


@pytest.mark.parametrize("form", ["json", "ums"])
def test_keys_of_maps_are_written_as_values_are(spark: SparkSession, bootstrap: str, form: str) -> None:
    topic = f"in-{secrets.token_hex(4)}"
    sink = kafka_sink(spark, bootstrap, topic, **{"sink.kafka.topic": "${topic}.out", "sink.kafka.format": form})
    table = TableSchema("shop.maps", (*TABLE.columns[:1], Column("m", MapType(BinaryType(), DateType()))))
    sink.write(BatchFeed(topic).next([(table, [change("i", 1, id=1, m=[(b"\xff\x00", 1)])])]).frames(spark))
    (record,) = read_topic(bootstrap, f"{topic}.out", committed=True)
    message = json.loads(record.value or b"")
    written = message["m"] if form == "json" else json.loads(message["payload"][0]["tuple"][-1])
    assert written == {"/wA=": "1970-01-02"}


def test_a_new_version_of_a_ums_table_stays_in_its_topic(
    spark: SparkSession, bootstrap: str, registry: SchemaRegistry
) -> None:
    topic, name = f"in-{secrets.token_hex(4)}", f"mysql.shop.db.t{secrets.token_hex(4)}"
    options = {**avro_target(spark, bootstrap, registry).options(), "sink.kafka.topic": "${namespace}"}
    sink = kafka_sink(spark, bootstrap, topic, **options)
    columns = key_column("id", IntegerType()), Column("note", StringType()), Column("more", StringType())
    feed = BatchFeed(topic)
    for version in (1, 2):
        table = TableSchema(f"{name}.{version}.0.0", columns[: version + 1])
        sink.write(feed.next([(table, [change("i", version, id=version, note="n")])]).frames(spark))
    assert len(read_topic(bootstrap, name, committed=True)) == 2


def test_a_schema_that_the_registry_refuses_stops_before_rows_are_written(
    spark: SparkSession, bootstrap: str, registry: SchemaRegistry
) -> None:
    topic = f"in-{secrets.token_hex(4)}"
    options = {"sink.kafka.topic": "${topic}.avro", "sink.kafka.format": "avro"}
    sink = kafka_sink(spark, bootstrap, topic, **options, **{"sink.kafka.schema.registry.url": registry.url})
    named = TableSchema("shop.odd", (key_column("id", IntegerType()), Column("a b", StringType())))
    with pytest.raises(SchemaRefused, match=r"shop\.odd, topic .*'a b'"):
        sink.write(BatchFeed(topic).next([(named, [change("i", 1, id=1)])]).frames(spark))


def test_members_of_structs_are_read_back(spark: SparkSession, bootstrap: str, registry: SchemaRegistry) -> None:
    part = StructType([StructField("at", TimestampType()), StructField("marks", MapType(StringType(), StringType()))])
    table = TableSchema("kit.nested", (key_column("id", IntegerType()), Column("parts", ArrayType(part))))
    topic = f"in-{secrets.token_hex(4)}"
    target = avro_target(spark, bootstrap, registry)
    sink = kafka_sink(spark, bootstrap, topic, **{**target.options(), "sink.kafka.topic": "${topic}.avro"})
    at = datetime(2026, 5, 6, 7, 8, 9, 123456, UTC)
    parts = [{"at": at, "marks": {"a b": "c", "d": None}}, {"at": None, "marks": None}]
    data = BatchFeed(topic).next([(table, [change("i", 1, id=1, parts=parts), change("i", 2, id=2, parts=None)])])
    assert sink.write(data.frames(spark)) == 2
    (rows,) = read_back(spark, bootstrap, f"{topic}.avro", **target.source)
    assert rows.schema.key[0].name == "id"
    values = {row["id"]: row["parts"] for row in rows.frame.collect()}
    assert values[2] is None
    assert [member["marks"] for member in values[1]] == [{"a b": "c", "d": None}, None]
    assert values[1][0]["at"] == at.astimezone().replace(tzinfo=None)
    assert values[1][1]["at"] is None
