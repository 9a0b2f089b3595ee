"""Configurations of Java's sink connectors and the jobs that they are translated to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.java_sinks import connectors
from worker.config.job_config import job_form

if TYPE_CHECKING:
    from connectors.job_api import Translation
    from spark_jobs.connector import SparkJob

CLASSES: dict[str, type[SparkJob]] = {
    connector.aliases[0]: connector
    for connector in (
        connectors.DebeziumJdbcSink,
        connectors.ConfluentJdbcSink,
        connectors.AivenJdbcSink,
        connectors.FileStreamSink,
        connectors.RedisSink,
        connectors.ConfluentElasticsearchSink,
        connectors.AivenOpenSearchSink,
        connectors.ClickHouseSink,
        connectors.MongoSink,
        connectors.IcebergSink,
    )
}
JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
AVRO = "io.confluent.connect.avro.AvroConverter"
DEBEZIUM = "io.debezium.connector.jdbc.JdbcSinkConnector"
CONFLUENT = "io.confluent.connect.jdbc.JdbcSinkConnector"
AIVEN = "io.aiven.connect.jdbc.JdbcSinkConnector"
FILE = "org.apache.kafka.connect.file.FileStreamSinkConnector"
REDIS = "com.redis.kafka.connect.RedisSinkConnector"
ELASTICSEARCH = "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"
OPENSEARCH = "io.aiven.kafka.connect.opensearch.OpenSearchSinkConnector"
CLICKHOUSE = "com.clickhouse.kafka.connect.ClickHouseSinkConnector"
MONGODB = "com.mongodb.kafka.connect.MongoSinkConnector"
ICEBERG = "org.apache.iceberg.connect.IcebergSinkConnector"
WORKER = {"bootstrap.servers": "127.0.0.1:1", "key.converter": JSON, "value.converter": JSON}
BASE = {
    DEBEZIUM: {
        "topics": "crm.shop.orders",
        "connection.url": "jdbc:postgresql://db:5432/shop",
        "connection.username": "jobs",
        "connection.password": "secret",
        "insert.mode": "upsert",
        "primary.key.mode": "record_key",
        "delete.enabled": "true",
        "schema.evolution": "basic",
    },
    CONFLUENT: {
        "topics": "orders",
        "connection.url": "jdbc:mysql://db/shop",
        "connection.user": "jobs",
        "connection.password": "secret",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        "auto.create": "true",
    },
    AIVEN: {
        "topics": "orders",
        "connection.url": "jdbc:postgresql://db/shop",
        "connection.user": "jobs",
        "insert.mode": "upsert",
        "pk.mode": "record_value",
        "pk.fields": "id",
    },
    REDIS: {"topics": "orders", "redis.uri": "redis://redis:6380/2", "redis.command": "HSET"},
    FILE: {"topics": "orders", "file": "/tmp/orders.txt", "value.converter": STRING},
    ELASTICSEARCH: {
        "topics": "orders",
        "connection.url": "https://es-1:9200,https://es-2:9200",
        "connection.username": "jobs",
        "connection.password": "secret",
        "behavior.on.null.values": "delete",
    },
    OPENSEARCH: {"topics": "orders", "connection.url": "http://os:9200", "behavior.on.null.values": "ignore"},
    MONGODB: {
        "topics": "orders",
        "connection.uri": "mongodb://jobs:p%40ss@mongo-1:27017,mongo-2:27017/?replicaSet=rs0",
        "database": "shop",
        "document.id.strategy": "com.mongodb.kafka.connect.sink.processor.id.strategy.FullKeyStrategy",
        "delete.on.null.values": "true",
    },
    ICEBERG: {
        "topics": "orders",
        "iceberg.tables": "shop.eu.orders",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://catalog:8181",
        "iceberg.catalog.credential": "id:secret",
    },
    CLICKHOUSE: {"topics": "orders", "hostname": "ch", "password": "secret", "exactlyOnce": "true"},
}


def translated(
    class_name: str, options: dict[str, str] | None = None, **more: str
) -> tuple[dict[str, str], Translation]:
    """The job of the base configuration with ``options``; an empty value takes an option out."""
    options_of_test = {"name": "copy", "connector.class": class_name, **BASE[class_name], **(options or {}), **more}
    config = {name: value for name, value in options_of_test.items() if value}
    properties, translation = job_form(CLASSES[class_name], config, WORKER)
    assert translation is not None
    return properties, translation


def refusals(translation: Translation) -> dict[str, str]:
    return {problem.name: problem.message for problem in translation.problems if not problem.warning}


def notes(translation: Translation) -> dict[str, str]:
    return {problem.name: problem.message for problem in translation.problems if problem.warning}


def job_properties(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if not name.startswith("errors.restart")}


def router(**options: str) -> dict[str, str]:
    options_of_test = {"type": "org.apache.kafka.connect.transforms.RegexRouter", **options}
    return {"transforms": "route", **{f"transforms.route.{name}": value for name, value in options_of_test.items()}}
