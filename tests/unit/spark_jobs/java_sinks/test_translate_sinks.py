"""Java's sinks that are not JDBC as jobs: files, Redis, search engines, ClickHouse, MongoDB and Iceberg."""

from __future__ import annotations

import pytest

from spark_jobs.config.job_files import check_flow
from tests.unit.spark_jobs.java_sinks.java_configs import (
    AVRO,
    CLICKHOUSE,
    ELASTICSEARCH,
    FILE,
    ICEBERG,
    MONGODB,
    OPENSEARCH,
    REDIS,
    STRING,
    job_properties,
    notes,
    refusals,
    router,
    translated,
)


def test_lines() -> None:
    properties, _ = translated(FILE)
    assert properties["sink.type"] == "lines"
    assert properties["sink.lines.path"] == "/tmp/orders.txt"
    properties, translation = translated(FILE, {"file": ""})
    assert properties["sink.type"] == "console"
    assert "log" in notes(translation)["file"]
    assert check_flow(job_properties(properties))[1] == []
    _, translation = translated(FILE, {"value.converter": AVRO})
    assert "value.converter" in refusals(translation)
    _, translation = translated(FILE, router(regex="a", replacement="b"))
    assert refusals(translation) == {}


def test_redis() -> None:
    properties, translation = translated(REDIS)
    expected = {
        "sink.type": "redis",
        "sink.redis.url": "redis://redis:6380/2",
        "sink.redis.form": "hash",
        "sink.redis.key": "${namespace}:${key}",
    }
    assert {name: properties.get(name) for name in expected} == expected
    properties, _ = translated(
        REDIS, {"redis.uri": "rediss://me:p%40ss@redis:6380", "redis.key": "", "redis.separator": "/"}
    )
    assert properties["sink.redis.url"] == "rediss://redis:6380"
    assert (properties["sink.redis.user"], properties["sink.redis.password"]) == ("me", "p@ss")
    assert properties["sink.redis.key"] == "${namespace}/${key}"
    properties, _ = translated(
        REDIS, {"redis.uri": "", "redis.host": "here", "redis.tls": "true", "redis.command": "XADD"}
    )
    assert properties["sink.redis.url"] == "rediss://here:6379"
    assert (properties["sink.redis.form"], properties["sink.redis.key"]) == ("stream", "${namespace}")
    text = {"redis.command": "JSONSET", "value.converter": STRING, "key.converter": STRING}
    _, translation = translated(REDIS, text)
    assert "source.key.columns" in refusals(translation)["key.converter"]
    properties, translation = translated(REDIS, text | {"source.key.columns": "id"})
    assert refusals(translation) == {}
    assert properties["sink.redis.json.command"] == "JSON.SET"
    assert "JSON objects" in notes(translation)["value.converter"]
    assert check_flow(job_properties(properties))[1] == []
    _, translation = translated(REDIS, {"redis.command": "LPUSH"})
    assert "sink.redis.form" in refusals(translation)["redis.command"]
    properties, _ = translated(REDIS, router(regex="(.*)s", replacement="$1"))
    assert properties["sink.redis.key"] == "order:${key}"


def test_elasticsearch() -> None:
    properties, _ = translated(ELASTICSEARCH)
    expected = {
        "sink.type": "opensearch",
        "sink.opensearch.url": "https://es-1:9200,https://es-2:9200",
        "sink.opensearch.user": "jobs",
        "sink.opensearch.mode": "upsert",
        "sink.opensearch.index": "${namespace}",
    }
    assert {name: properties.get(name) for name in expected} == expected
    assert "source.tombstones" not in properties
    properties, translation = translated(ELASTICSEARCH, {"key.ignore": "true", "key.converter": STRING})
    assert (properties["sink.opensearch.mode"], properties["source.key.encoding"]) == ("insert", "bytes")
    assert refusals(translation) == {}
    _, translation = translated(ELASTICSEARCH, {"key.converter": STRING})
    assert "source.key.columns" in refusals(translation)["key.converter"]
    properties, translation = translated(ELASTICSEARCH, {"behavior.on.malformed.documents": "warn"})
    assert properties["errors.tolerance"] == "all"
    assert "dead letter topic" in notes(translation)["behavior.on.malformed.documents"]
    _, translation = translated(ELASTICSEARCH, {"elastic.https.ssl.truststore.location": "/store.jks"})
    assert "PEM" in refusals(translation)["elastic.https.ssl.truststore.location"]
    properties, _ = translated(ELASTICSEARCH, {"topic.index.map": "orders:all-orders"})
    assert properties["sink.opensearch.index"] == "all-orders"
    properties, _ = translated(ELASTICSEARCH, router(regex="(.*)s", replacement="$1"))
    assert properties["sink.opensearch.index"] == "order"


def test_opensearch() -> None:
    properties, _ = translated(OPENSEARCH, {"connection.trust.all.certificates": "true", "batch.size": "77"})
    assert properties["sink.opensearch.ssl.mode"] == "require"
    assert properties["sink.opensearch.batch.rows"] == "77"
    assert properties["source.tombstones"] == "ignore"
    _, translation = translated(
        OPENSEARCH, {"behavior.on.version.conflict": "ignore", "behavior.on.null.values": "fail"}
    )
    assert refusals(translation) == {}
    assert "left out" in notes(translation)["behavior.on.null.values"]


def test_clickhouse() -> None:
    properties, translation = translated(CLICKHOUSE, {"timeoutSeconds": "60"})
    expected = {
        "sink.type": "clickhouse",
        "sink.clickhouse.url": "https://ch:8443",
        "sink.clickhouse.mode": "insert",
        "sink.clickhouse.timeout.ms": "60000",
        "sink.clickhouse.table": "${namespace}",
        "guarantee": "exactly-once",
    }
    assert {name: properties.get(name) for name in expected} == expected
    assert "kafka_number_" in notes(translation)["connector.class"]
    properties, _ = translated(CLICKHOUSE, {"ssl": "false", "port": "8123", "topic2TableMap": "orders=all_orders"})
    assert properties["sink.clickhouse.url"] == "http://ch:8123"
    assert properties["sink.clickhouse.table"] == "all_orders"


def test_mongodb() -> None:
    properties, _ = translated(MONGODB)
    expected = {
        "sink.type": "mongodb",
        "sink.mongodb.url": "mongodb://mongo-1:27017,mongo-2:27017/?replicaSet=rs0",
        "sink.mongodb.user": "jobs",
        "sink.mongodb.password": "p@ss",
        "sink.mongodb.database": "shop",
        "sink.mongodb.collection": "${namespace}",
        "sink.mongodb.mode": "upsert",
        "sink.mongodb.id.document": "true",
    }
    assert {name: properties.get(name) for name in expected} == expected
    properties, translation = translated(MONGODB, {"document.id.strategy": "", "collection": "all"})
    assert (properties["sink.mongodb.mode"], properties["sink.mongodb.collection"]) == ("insert", "all")
    assert "position in Kafka" in notes(translation)["document.id.strategy"]
    assert properties["source.tombstones"] == "ignore"
    properties, _ = translated(MONGODB, {"document.id.strategy": "ProvidedInKeyStrategy"})
    assert properties["sink.mongodb.key.columns"] == "_id"


def test_mongodb_by_a_part_of_the_key() -> None:
    prefix = "document.id.strategy.partial.key.projection."
    partial = {
        "document.id.strategy": "x.PartialKeyStrategy",
        f"{prefix}type": "AllowList",
        f"{prefix}list": "region,id",
    }
    properties, _ = translated(MONGODB, partial)
    assert properties["sink.mongodb.key.columns"] == "region,id"
    assert properties["sink.mongodb.id.document"] == "true"
    _, translation = translated(MONGODB, {**partial, f"{prefix}type": "BlockList"})
    assert "sink.mongodb.key.columns" in refusals(translation)[f"{prefix}type"]
    _, translation = translated(MONGODB, {**partial, f"{prefix}list": "region.name"})
    assert "made of columns" in refusals(translation)[f"{prefix}list"]


def test_mongodb_with_envelopes() -> None:
    package = "com.mongodb.kafka.connect.sink.cdc."
    properties, translation = translated(
        MONGODB,
        {"change.data.capture.handler": f"{package}debezium.rdbms.mysql.MysqlHandler", "delete.on.null.values": ""},
    )
    assert (properties["source.format"], properties["sink.mongodb.id.document"]) == ("debezium", "true")
    assert "transform.steps" not in properties
    assert not refusals(translation)
    _, translation = translated(MONGODB, {"change.data.capture.handler": f"{package}mongodb.ChangeStreamHandler"})
    assert "has no counterpart" in refusals(translation)["change.data.capture.handler"]
    mysql = {"change.data.capture.handler": f"{package}debezium.rdbms.mysql.MysqlHandler", "source.format": "plain"}
    _, translation = translated(MONGODB, mysql)
    assert "source.format=plain" in refusals(translation)["change.data.capture.handler"]


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("writemodel.strategy", "x.UpdateOneTimestampsStrategy", "ReplaceOneDefaultStrategy"),
        ("document.id.strategy", "x.UuidProvidedStrategy", "source.key.columns"),
        ("delete.writemodel.strategy", "x.DeleteOneBusinessKeyStrategy", "the document of the key"),
        ("post.processor.chain", "x.KafkaMetaAdder", "a step of type select"),
        ("namespace.mapper", "x.FieldPathNamespaceMapper", "a step of type route"),
        ("timeseries.timefield", "at", "time series"),
        ("connection.ssl.truststore", "/trust.jks", "sink.mongodb.ssl.root.cert"),
    ],
)
def test_mongodb_without_a_counterpart(option: str, value: str, text: str) -> None:
    _, translation = translated(MONGODB, {option: value})
    assert text in refusals(translation)[option]


def test_iceberg() -> None:
    properties, translation = translated(ICEBERG)
    expected = {
        "sink.type": "iceberg",
        "sink.iceberg.catalog.name": "iceberg",
        "sink.iceberg.catalog.type": "rest",
        "sink.iceberg.catalog.uri": "http://catalog:8181",
        "sink.iceberg.catalog.credential": "id:secret",
        "sink.iceberg.namespace": "shop.eu",
        "sink.iceberg.table": "orders",
        "sink.iceberg.mode": "insert",
        "sink.iceberg.auto.create": "false",
        "sink.iceberg.auto.evolve": "false",
        "source.tombstones": "ignore",
        "trigger.interval.ms": "300000",
        "source.starting.group": "connect-copy",
    }
    assert {name: properties.get(name) for name in expected} == expected
    assert "before it commits the files" in notes(translation)["iceberg.connect.group-id"]
    assert "sink.iceberg.table.shared" not in properties
    properties, _ = translated(
        ICEBERG,
        {
            "topics": "eu,us",
            "iceberg.connect.group-id": "lake",
            "iceberg.catalog.type": "",
            "iceberg.catalog.catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
            "iceberg.control.commit.interval-ms": "60000",
        },
    )
    assert properties["sink.iceberg.table.shared"] == "true"
    assert properties["source.starting.group"] == properties["kafka.group.id"] == "lake"
    assert (properties["sink.iceberg.catalog.type"], properties["trigger.interval.ms"]) == ("glue", "60000")


@pytest.mark.parametrize(
    ("options", "option", "text"),
    [
        ({"iceberg.catalog.type": "jdbc"}, "iceberg.catalog.type", "sink.iceberg.catalog.type=sql"),
        ({"iceberg.catalog.type": "hadoop"}, "iceberg.catalog.type", "pyiceberg has rest, hive, glue and sql"),
        ({"iceberg.catalog.type": ""}, "iceberg.catalog.type", "(none)"),
        ({"iceberg.tables": "a.b,a.c"}, "iceberg.tables", "a connector for each table"),
        ({"iceberg.tables": ""}, "iceberg.tables", "sink.iceberg.namespace"),
        ({"iceberg.tables.dynamic-enabled": "true"}, "iceberg.tables.dynamic-enabled", "a step of type route"),
        (
            {"iceberg.tables.default-partition-by": "day(at)"},
            "iceberg.tables.default-partition-by",
            "without partitions",
        ),
        ({"iceberg.table.a.b.partition-by": "day(at)"}, "iceberg.table.a.b.partition-by", "without partitions"),
        ({"iceberg.table.a.b.commit-branch": "x"}, "iceberg.table.a.b.commit-branch", "branch main"),
    ],
)
def test_iceberg_without_a_counterpart(options: dict[str, str], option: str, text: str) -> None:
    _, translation = translated(ICEBERG, options)
    assert text in refusals(translation)[option]


def test_iceberg_options_without_effect() -> None:
    names = {
        "iceberg.table.shop.orders.id-columns": "sink.iceberg.mode=upsert",
        "iceberg.catalog.cache-enabled": "sink.iceberg.catalog.<property>",
        "iceberg.hadoop.fs.defaultFS": "pyiceberg",
        "iceberg.kafka.acks": "kafka.<option>",
    }
    _, translation = translated(ICEBERG, dict.fromkeys(names, "x"))
    assert {name: text in notes(translation)[name] for name, text in names.items()} == dict.fromkeys(names, True)


def test_iceberg_with_a_catalog_and_a_table_of_the_job() -> None:
    ours = {
        "sink.iceberg.catalog.type": "sql",
        "sink.iceberg.catalog.uri": "postgresql+psycopg2://db/lake",
        "sink.iceberg.table": "${table}",
    }
    properties, translation = translated(ICEBERG, {"iceberg.catalog.type": "jdbc", "iceberg.tables": "", **ours})
    assert not refusals(translation)
    assert {name: properties[name] for name in ours} == ours
