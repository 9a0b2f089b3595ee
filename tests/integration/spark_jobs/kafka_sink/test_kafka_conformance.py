"""The conformance kit on the Kafka sink, which writes rows as JSON.

Brokers that go away at each moment of a transaction, and workers that are killed there, are in `test_broker_outages.py` and
`test_kafka_sink.py`: a plain gate can't stand before a broker, which hands out its own address.
"""

from __future__ import annotations

import json
import secrets
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]  # it is there, and documented

from spark_jobs.sinks.kafka.config import target_topic
from spark_jobs.testing import SinkTarget, Supports, Unsupported, cases, check_sink
from tests.integration.spark_jobs.spark_json import from_json, in_json
from tests.support.eventually import eventually
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema


class KafkaTarget(SinkTarget):
    """A topic for each table."""

    sink_type = "kafka"
    supports = Supports(upsert=False, ordering=False, remembers_deletes=False)

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic = f"kit-source-{secrets.token_hex(4)}"

    def start(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result(30)

    def options(self) -> Mapping[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "sink.kafka.content": "rows",
            "sink.kafka.topic": "${namespace}.out",
            "sink.kafka.topic.config.max.message.bytes": "16000000",
            # Kafka deletes records by their own times, and those of the kit are old.
            "sink.kafka.topic.config.retention.ms": "-1",
            "sink.kafka.producer.message.max.bytes": "16000000",
        }

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        topic = target_topic("${namespace}.out", "", schema.namespace)
        self.wait_for_markers(topic)
        records = read_topic(self.bootstrap, topic, committed=True)
        return [
            from_json(schema, json.loads(record.value, parse_float=Decimal))
            for record in records
            if record.value is not None
        ]

    def wait_for_markers(self, topic: str) -> None:
        """Wait for the end of transactions in each partition: brokers write it after they have confirmed a commit."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        metadata = admin.list_topics(timeout=30).topics.get(topic)
        if metadata is None:
            return
        partitions = [TopicPartition(topic, number) for number in metadata.partitions]

        def ends(level: IsolationLevel) -> dict[int, int]:
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            asked = dict.fromkeys(partitions, latest)
            answers = admin.list_offsets(asked, isolation_level=level)
            return {partition.partition: answer.result(30).offset for partition, answer in answers.items()}

        eventually(
            lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
            f"no transaction is open in {topic}",
            every=0.1,
        )

    def stored(self, column: Column, value: Any) -> Any:
        return in_json(column, value)

    def outage(self) -> NoReturn:
        raise Unsupported("a broker that goes away is in test_broker_outages.py")

    slowness = silence = outage

    def folder(self) -> NoReturn:
        raise Unsupported("kills at each moment of a transaction are in test_kafka_sink.py")


@pytest.mark.parametrize("case", cases())
def test_conformance(case: str, spark: SparkSession, bootstrap: str) -> None:
    check_sink(KafkaTarget(bootstrap), spark=spark, bootstrap=bootstrap, only=case)
