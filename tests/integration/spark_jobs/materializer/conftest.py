"""A job of the materializer in the tests' own hands: topics, input, passes over Spark, what came out."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark import cloudpickle

from spark_jobs.config.keys import FRAME
from spark_jobs.contract import Batch, JobContext
from spark_jobs.materializer.config import OPTIONS
from spark_jobs.materializer.job import MaterializerSink
from tests.support import last_write_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

# Spark's Python workers don't have the tests on their path.
cloudpickle.register_pickle_by_value(last_write_engine)  # type: ignore[no-untyped-call]


class LastWriteSink(MaterializerSink):
    """The materializer with the tests' engine."""

    def engine(self, config: Any) -> Any:
        """See the base."""
        del config
        return last_write_engine.make


@dataclass
class Harness:
    """One job: its topics and its sink, driven batch by batch as the frame would."""

    spark: SparkSession
    bootstrap: str
    name: str
    folder: Path
    partitions: int = 4
    options: dict[str, str] = field(default_factory=dict)
    sink_class: type[MaterializerSink] = LastWriteSink
    positions: dict[int, int] = field(default_factory=dict)
    batches: int = 0
    sink: MaterializerSink | None = None

    @property
    def topic(self) -> str:
        """The input."""
        return f"{self.name}-in"

    @property
    def output(self) -> str:
        """The output."""
        return f"{self.name}-out"

    @property
    def changelog(self) -> str:
        """The state."""
        return f"{self.name}-changelog"

    def create(self, topic: str = "", partitions: int = 0) -> None:
        """Make the input topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(topic or self.topic, partitions or self.partitions, 1)]).values():
            future.result(20)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        from spark_jobs.materializer.topics import KafkaTopics

        KafkaTopics({"bootstrap.servers": self.bootstrap}).delete(topic)

    def produce(self, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        """Write (partition, key, value)."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for partition, key, value in records:
            while True:
                try:
                    producer.produce(self.topic, value, key, partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0

    def properties(self) -> dict[str, str]:
        """The job's configuration."""
        return {
            "name": self.name,
            "kafka.bootstrap.servers": self.bootstrap,
            "source.topics": self.topic,
            "source.format": "partition-update",
            "transform.type": "materialize",
            "sink.type": "kafka",
            "sink.kafka.topic": self.output,
            "state.dir": str(self.folder / "state"),
            "checkpoint.location": str(self.folder / "checkpoint"),
            "materializer.output.encoding": "json",
            "materializer.expiry.interval.ms": "100",
        } | self.options

    def start(self) -> MaterializerSink:
        """A new run of the job."""
        if self.sink is not None:
            self.sink.close()
        config = FRAME.extended(list(OPTIONS.keys.values())).parse(self.properties())
        assert not self.sink_class.validate(config)
        context = JobContext(self.name, config, self.spark, logging.LoggerAdapter(logging.getLogger(self.name), {}))
        self.sink = self.sink_class(context)
        self.sink.open()
        return self.sink

    def ends(self, topic: str = "") -> dict[int, int]:
        """The end of each partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none"})
        try:
            name = topic or self.topic
            count = len(consumer.list_topics(name, timeout=20).topics[name].partitions)
            return {
                partition: consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=20)[1]
                for partition in range(count)
            }
        finally:
            consumer.close()

    def committed(self) -> dict[int, int]:
        """The offsets that the job's consumer group has committed."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": f"millrace-{self.name}"})
        try:
            return {
                entry.partition: entry.offset
                for entry in consumer.committed(
                    [TopicPartition(self.topic, partition) for partition in range(self.partitions)], timeout=20
                )
            }
        finally:
            consumer.close()

    def batch(self) -> Batch:
        """The next batch: from the checkpoint's position to the end."""
        ends = self.ends()
        starts = {partition: self.positions.get(partition, 0) for partition in ends}
        frame = (
            self.spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.topic)
            .option("startingOffsets", _offsets(self.topic, starts))
            .option("endingOffsets", _offsets(self.topic, ends))
            .option("includeHeaders", "true")
            .load()
        )
        spans = {
            (self.topic, partition): (starts[partition], ends[partition])
            for partition in ends
            if ends[partition] > starts[partition]
        }
        return Batch(self.batches, frame, spans, list)

    def step(self, batch: Batch | None = None) -> int:
        """Write a batch and move the checkpoint."""
        assert self.sink is not None
        batch = batch or self.batch()
        written = self.sink.write(batch)
        for (_, partition), (_, end) in batch.ranges.items():
            self.positions[partition] = end
        self.batches += 1
        return written

    def read(self, topic: str = "") -> list[tuple[int, bytes, bytes | None]]:
        """All committed records: (partition, key, value), in order within partitions."""
        return read_topic(self.bootstrap, topic or self.output)


def read_topic(bootstrap: str, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """All committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    count = len(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
    records: list[tuple[int, bytes, bytes | None]] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    try:
        while len(ended) < count:
            assert time.monotonic() < deadline, f"{topic} is not read to its end"
            for message in consumer.consume(5000, timeout=0.2):
                partition, key = message.partition(), message.key()
                assert partition is not None
                if message.error() is not None:
                    ended.add(partition)
                else:
                    records.append((partition, key or b"", message.value()))
    finally:
        consumer.close()
    return records


def _offsets(topic: str, positions: dict[int, int]) -> str:
    return msgspec.json.encode({topic: {str(partition): offset for partition, offset in positions.items()}}).decode()


@pytest.fixture
def harness(
    spark: SparkSession, bootstrap: str, unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., Harness]]:
    """Makes jobs: `harness("a", partitions=2)`; their input topic exists."""
    harnesses: list[Harness] = []

    def make(prefix: str = "h4", **attributes: Any) -> Harness:
        new_harness = Harness(spark, bootstrap, unique(prefix), tmp_path / prefix, **attributes)
        new_harness.create()
        harnesses.append(new_harness)
        return new_harness

    yield make
    for job in harnesses:
        if job.sink is not None:
            job.sink.close()
