"""Java's sink connectors as workers load them: each a Spark job whose configuration is translated."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from spark_jobs.connector import SparkJob
from spark_jobs.java_sinks import (
    clickhouse,
    confluent_jdbc,
    debezium_jdbc,
    elasticsearch,
    file_stream,
    iceberg,
    mongodb,
    redis,
)

if TYPE_CHECKING:
    from connectors.options import ConfigDef
    from spark_jobs.java_sinks.translation.model import JavaSink


class DebeziumJdbcSink(SparkJob):
    """Debezium's JDBC sink as a job with the sink ``jdbc``."""

    java_sink: ClassVar[JavaSink | None] = debezium_jdbc.SINK
    config_def: ClassVar[ConfigDef] = debezium_jdbc.SINK.config_def
    aliases: ClassVar[tuple[str, ...]] = debezium_jdbc.SINK.class_names


class ConfluentJdbcSink(SparkJob):
    """Confluent's JDBC sink as a job with the sink ``jdbc``."""

    java_sink: ClassVar[JavaSink | None] = confluent_jdbc.CONFLUENT
    config_def: ClassVar[ConfigDef] = confluent_jdbc.CONFLUENT.config_def
    aliases: ClassVar[tuple[str, ...]] = confluent_jdbc.CONFLUENT.class_names


class AivenJdbcSink(SparkJob):
    """Aiven's JDBC sink as a job with the sink ``jdbc``."""

    java_sink: ClassVar[JavaSink | None] = confluent_jdbc.AIVEN
    config_def: ClassVar[ConfigDef] = confluent_jdbc.AIVEN.config_def
    aliases: ClassVar[tuple[str, ...]] = confluent_jdbc.AIVEN.class_names


class FileStreamSink(SparkJob):
    """Kafka's FileStreamSink as a job with the sink ``lines``."""

    java_sink: ClassVar[JavaSink | None] = file_stream.SINK
    config_def: ClassVar[ConfigDef] = file_stream.SINK.config_def
    aliases: ClassVar[tuple[str, ...]] = file_stream.SINK.class_names


class RedisSink(SparkJob):
    """Redis's own sink as a job with the sink ``redis``."""

    java_sink: ClassVar[JavaSink | None] = redis.SINK
    config_def: ClassVar[ConfigDef] = redis.SINK.config_def
    aliases: ClassVar[tuple[str, ...]] = redis.SINK.class_names


class ConfluentElasticsearchSink(SparkJob):
    """Confluent's Elasticsearch sink as a job with the sink ``opensearch``."""

    java_sink: ClassVar[JavaSink | None] = elasticsearch.CONFLUENT
    config_def: ClassVar[ConfigDef] = elasticsearch.CONFLUENT.config_def
    aliases: ClassVar[tuple[str, ...]] = elasticsearch.CONFLUENT.class_names


class AivenOpenSearchSink(SparkJob):
    """Aiven's OpenSearch and Elasticsearch sinks as a job with the sink ``opensearch``."""

    java_sink: ClassVar[JavaSink | None] = elasticsearch.AIVEN
    config_def: ClassVar[ConfigDef] = elasticsearch.AIVEN.config_def
    aliases: ClassVar[tuple[str, ...]] = elasticsearch.AIVEN.class_names


class ClickHouseSink(SparkJob):
    """ClickHouse's own sink as a job with the sink ``clickhouse``."""

    java_sink: ClassVar[JavaSink | None] = clickhouse.SINK
    config_def: ClassVar[ConfigDef] = clickhouse.SINK.config_def
    aliases: ClassVar[tuple[str, ...]] = clickhouse.SINK.class_names


class MongoSink(SparkJob):
    """MongoDB's own sink as a job with the sink ``mongodb``."""

    java_sink: ClassVar[JavaSink | None] = mongodb.SINK
    config_def: ClassVar[ConfigDef] = mongodb.SINK.config_def
    aliases: ClassVar[tuple[str, ...]] = mongodb.SINK.class_names


class IcebergSink(SparkJob):
    """Apache Iceberg's own sink as a job with the sink ``iceberg``."""

    java_sink: ClassVar[JavaSink | None] = iceberg.SINK
    config_def: ClassVar[ConfigDef] = iceberg.SINK.config_def
    aliases: ClassVar[tuple[str, ...]] = iceberg.SINK.class_names
