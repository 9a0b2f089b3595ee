"""The Kafka sink over real Kafka: every guarantee, and exactly once while Spark's Python workers and writers die."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stub forgets some
    AdminClient,
    NewPartitions,
    NewTopic,
)

from connectors.errors import Fatal, Retriable
from spark_jobs.config.keys import FRAME
from spark_jobs.contract import RAW_COLUMNS, Batch, JobContext
from spark_jobs.sinks.kafka.clients import ResidentClients
from spark_jobs.sinks.kafka.config import KafkaSinkSettings
from spark_jobs.sinks.kafka.markers import marker_key, read_markers
from spark_jobs.sinks.kafka.sink import KafkaSink
from spark_jobs.sinks.kafka.writer import EXPLAIN, KafkaPartitionWriter, Points, no_points
from spark_jobs.sources.debezium import DebeziumSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

COUNT = 200
#: Kafka counts retention from records' own times.
STAMP = int(time.time() * 1000) - 600_000


class KillOnce:
    """Kills the process that reaches a point, the first time that any does."""

    def __init__(self, path: Path, point: str) -> None:
        self.path, self.point = str(path), point

    def __call__(self, name: str) -> None:
        if name != self.point:
            return
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def make(bootstrap: str, topic: str, partitions: int = 2) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    return topic


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        value = (
            None
            if number == 7
            else json.dumps({"op": "c", "after": {"id": number}, "source": {"db": "d", "table": "t"}}).encode()
        )
        producer.produce(
            topic, value, b'{"id":%d}' % number, number % 2, timestamp=STAMP + number, headers=[("h", b"%d" % number)]
        )
    assert producer.flush(20) == 0


def committed(bootstrap: str, topic: str) -> list[Any]:
    """All records that a reader of committed ones sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "x",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = consumer.list_topics(topic, 20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    ends, messages, deadline = set(partitions), [], time.monotonic() + 60
    while ends:
        assert time.monotonic() < deadline, f"{topic} was not read to its end"
        for message in consumer.consume(500, 0.2):  # waits that long for as many
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                ends.discard(message.partition())
    consumer.close()
    return messages


def sink(spark: SparkSession, bootstrap: str, name: str, topic: str, **options: str) -> KafkaSink:
    raw = {
        "name": name,
        "kafka.bootstrap.servers": bootstrap,
        "source.topics": topic,
        "source.format": "debezium",
        "sink.type": "kafka",
        "sink.kafka.topic": "${topic}.out",
        **options,
    }
    definition = FRAME.extended([key for part in (KafkaSink, DebeziumSource) for key in part.config_def.keys.values()])
    kafka_sink = KafkaSink(
        JobContext(name, definition.parse(raw), spark, logging.LoggerAdapter(logging.getLogger("test"), {}))
    )
    kafka_sink.open()
    return kafka_sink


def batch(spark: SparkSession, bootstrap: str, topic: str, source: DebeziumSource | None = None) -> Batch:
    raw = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
        .select(*RAW_COLUMNS)
    )
    new_batch: Batch = Batch(
        0,
        raw,
        {(topic, 0): (0, COUNT // 2), (topic, 1): (0, COUNT // 2)},
        lambda: source.changes(new_batch) if source else [],
    )
    return new_batch


@pytest.mark.proves("into kafka", "exactly-once", killed=["Python worker"])
@pytest.mark.parametrize("point", ["begun", "before-commit", "after-commit"])
def test_exactly_once_while_python_workers_are_killed(
    spark: SparkSession, bootstrap: str, unique: Callable[[str], str], tmp_path: Path, point: str
) -> None:
    topic = make(bootstrap, unique("in"))
    fill(bootstrap, topic)
    writer = sink(spark, bootstrap, unique("job"), topic)
    writer.points = KillOnce(tmp_path / "killed", point)
    with pytest.raises(Retriable, match="Python worker"):
        writer.write(batch(spark, bootstrap, topic))
    writer.write(batch(spark, bootstrap, topic))
    # A job that is started again, with the same batch once more.
    restarted = sink(spark, bootstrap, writer.context.name, topic)
    assert restarted.write(batch(spark, bootstrap, topic)) == 0
    messages = committed(bootstrap, f"{topic}.out")
    assert sorted(
        (message.key(), message.partition(), message.timestamp()[1], tuple(message.headers())) for message in messages
    ) == sorted(
        (b'{"id":%d}' % number, number % 2, STAMP + number, (("h", b"%d" % number),)) for number in range(COUNT)
    )
    assert [message.key() for message in messages if message.value() is None] == [b'{"id":7}']


def test_at_least_once_none_rows_keys_and_partitioners(
    spark: SparkSession, bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = make(bootstrap, unique("in"))
    fill(bootstrap, topic)
    least = sink(
        spark,
        bootstrap,
        unique("least"),
        topic,
        guarantee="at-least-once",
        **{
            "sink.kafka.topic": "${topic}.least",
            "sink.kafka.partitioner": "round-robin",
            "sink.kafka.topic.partitions": "3",
            "sink.kafka.key": "none",
        },
    )
    assert least.write(batch(spark, bootstrap, topic)) == COUNT
    messages = committed(bootstrap, f"{topic}.least")
    assert len(messages) == COUNT
    assert {message.key() for message in messages} == {None}
    assert {message.partition() for message in messages} == {0, 1, 2}
    source = DebeziumSource(least.context)
    rows = sink(
        spark,
        bootstrap,
        unique("rows"),
        topic,
        **{
            "sink.kafka.topic": "${namespace}-" + unique("rows"),
            "sink.kafka.content": "rows",
            "sink.kafka.partitioner": "key",
        },
    )
    target = "d.t-" + unique("rows")
    assert [rows.write(batch(spark, bootstrap, topic, source)) for _ in range(2)] == [COUNT - 1, 0]
    messages = committed(bootstrap, target)
    assert sorted(json.loads(message.value())["id"] for message in messages) == [
        number for number in range(COUNT) if number != 7
    ]
    assert all(json.loads(message.key()) == {"id": json.loads(message.value())["id"]} for message in messages)
    narrow = sink(
        spark, bootstrap, unique("narrow"), topic, **{"sink.kafka.topic": make(bootstrap, unique("narrow"), 1)}
    )
    with pytest.raises(Fatal, match="fewer partitions"):
        narrow.write(batch(spark, bootstrap, topic))
    absent = sink(
        spark,
        bootstrap,
        unique("absent"),
        topic,
        **{"sink.kafka.topic": unique("absent"), "sink.kafka.topic.create": "false"},
    )
    with pytest.raises(Fatal, match="is not there"):
        absent.write(batch(spark, bootstrap, topic))


def test_rows_that_a_step_has_shuffled_are_all_written_once(
    spark: SparkSession, bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic, target = make(bootstrap, unique("in")), unique("shuffled")
    fill(bootstrap, topic)
    options = {"sink.kafka.topic": target, "sink.kafka.content": "rows"}
    steps = {"transform.steps": "once", "transform.step.once.type": "deduplicate"}
    rows = sink(spark, bootstrap, unique("job"), topic, **options, **steps)
    source = DebeziumSource(rows.context)

    def write() -> int:
        read = batch(spark, bootstrap, topic, source)
        (table,) = read.changes()
        # As a step that groups rows by key gives them: every task has rows of all partitions.
        shuffled = replace(table, frame=table.frame.repartition(3, "id"), packed=None)
        return rows.write(replace(read, changes=lambda: [shuffled]))

    assert [write() for _ in range(2)] == [COUNT - 1, 0]
    written = [(message.partition(), json.loads(message.value())["id"]) for message in committed(bootstrap, target)]
    ids = [number for number in range(COUNT) if number != 7]
    assert sorted(written) == sorted((number % 2, number) for number in ids)
    for partition in (0, 1):
        in_order = [number for where, number in written if where == partition]
        assert in_order == sorted(in_order)


def test_rows_with_keys_headers_and_timestamps_by_template(
    spark: SparkSession, bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic, target = make(bootstrap, unique("in")), unique("templates")
    fill(bootstrap, topic)
    options = {
        "sink.kafka.topic": "${database}-${table}-" + target,
        "sink.kafka.topic.config.retention.ms": "-1",
        "sink.kafka.content": "rows",
        "sink.kafka.key": "template",
        "sink.kafka.key.template": "${table}:${column:id}",
        "sink.kafka.header.from": "${topic}/${op}",
        "sink.kafka.timestamp.column": "id",
    }
    rows = sink(spark, bootstrap, unique("job"), topic, **options)
    source = DebeziumSource(rows.context)
    assert rows.write(batch(spark, bootstrap, topic, source)) == COUNT - 1
    messages = committed(bootstrap, f"d-t-{target}")
    # Kafka's client takes the time 0 for now.
    assert sorted((message.key(), tuple(message.headers())) for message in messages) == sorted(
        (b"t:%d" % number, (("from", f"{topic}/i".encode()),)) for number in range(COUNT) if number != 7
    )
    assert all(message.key() == b"t:%d" % message.timestamp()[1] for message in messages if message.key() != b"t:0")
    absent = sink(spark, bootstrap, unique("absent"), topic, **options | {"sink.kafka.timestamp.column": "absent"})
    with pytest.raises(Fatal, match=r"sink.kafka.timestamp.column: table d.t has no column absent"):
        absent.write(batch(spark, bootstrap, topic, source))


def records(topic: str, start: int, end: int) -> pa.RecordBatch:
    count = end - start
    return pa.RecordBatch.from_pydict(
        {
            "topic": [topic] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(start, end), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
            "key": [b"k"] * count,
            "value": [b"%d" % number for number in range(start, end)],
        }
    )


def exactly_once(
    bootstrap: str, job: str, group: str, topics: tuple[str, str, str], topic_id: str = "one"
) -> KafkaSinkSettings:
    """Of a job that copies one topic's only partition: source, target and markers."""
    topic, target, markers = topics
    return KafkaSinkSettings(
        job,
        {"bootstrap.servers": bootstrap},
        "exactly-once",
        "",
        group,
        markers,
        {topic: topic_id},
        {topic: (target, 1)},
        "source",
        False,
        True,
        "1",
        60_000,
    )


def test_writers_that_follow_each_other_fence_and_continue(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic, target, markers = (
        make(bootstrap, unique("src"), 1),
        make(bootstrap, unique("dst"), 1),
        make(bootstrap, unique("marks"), 1),
    )

    def settings(group: str, topic_id: str = "one") -> KafkaSinkSettings:
        return exactly_once(bootstrap, unique("job"), group, (topic, target, markers), topic_id)

    def write(resident: ResidentClients, start: int, end: int, using: KafkaSinkSettings) -> tuple[int, int]:
        writer = KafkaPartitionWriter(using, topic, 0, start, end, resident=resident)
        writer.write(records(topic, start, end))
        done = writer.finish()
        return done.written, done.skipped

    first, second = ResidentClients(), ResidentClients()
    usual = settings(unique("group"))
    assert write(first, 0, 10, usual) == (10, 0)
    assert write(first, 10, 20, usual) == (10, 0)
    assert write(second, 0, 30, usual) == (10, 20)
    zombie = KafkaPartitionWriter(
        usual, topic, 0, 20, 30, resident=first
    )  # its token is not the last one: it takes over, and skips
    zombie.write(records(topic, 20, 30))
    assert zombie.finish().skipped == 10
    began = KafkaPartitionWriter(usual, topic, 0, 30, 40, resident=first)
    began.write(records(topic, 30, 40))
    assert write(ResidentClients(), 30, 50, usual) == (20, 0)
    with pytest.raises(Retriable, match=r"fenced|epoch"):
        began.finish()
    assert [int(message.value()) for message in committed(bootstrap, target)] == list(range(50))
    # The group's positions are gone (they expire): the markers know them.
    assert read_markers(usual) == {marker_key("", topic, 0): (50, "one")}
    assert write(ResidentClients(), 40, 60, settings(unique("other-group"))) == (10, 10)
    # The source topic was deleted and recreated: what was written before does not count.
    assert write(ResidentClients(), 0, 5, settings(unique("group"), "two")) == (5, 0)


@pytest.mark.parametrize("heard", ["when it commits", "by its background thread"])
def test_a_writer_that_another_one_has_followed_says_so(
    bootstrap: str, unique: Callable[[str], str], heard: str
) -> None:
    """librdkafka says no more than "Fatal error" to who produces after its thread has heard of it."""
    topics = (make(bootstrap, unique("src"), 1), make(bootstrap, unique("dst"), 1), make(bootstrap, unique("marks"), 1))
    settings = exactly_once(bootstrap, unique("job"), unique("group"), topics)
    resident = ResidentClients()
    began = KafkaPartitionWriter(settings, topics[0], 0, 0, 10, resident=resident)
    began.write(records(topics[0], 0, 5))
    # Else a slow machine sends them after the follower came, and the next write is refused.
    assert began._producer.flush(30) == 0
    follower = KafkaPartitionWriter(settings, topics[0], 0, 0, 10, resident=ResidentClients())
    if heard == "by its background thread":
        began.write(records(topics[0], 5, 6))
        with pytest.raises(KafkaException, match="fenced"):
            began._producer.flush(30)
        with pytest.raises(Retriable, match=r"can't be written to .*(fenced|epoch)"):
            began.write(records(topics[0], 6, 10))
        assert resident.transactional(settings, settings.transactional_id(topics[0], 0)) is None
    else:
        with pytest.raises(Retriable, match=r"can't be committed: .*(fenced|epoch)"):
            began.finish()
    follower.write(records(topics[0], 0, 10))
    assert follower.finish().written == 10
    assert [int(message.value()) for message in committed(bootstrap, topics[1])] == list(range(10))


def test_a_take_over_without_rows_is_noticed_by_the_earlier_worker(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    """The second worker fences the first one's producer: the first one must not use it once more."""
    topics = (make(bootstrap, unique("src"), 1), make(bootstrap, unique("dst"), 1), make(bootstrap, unique("marks"), 1))
    settings = exactly_once(bootstrap, unique("job"), unique("group"), topics)
    first, second = ResidentClients(), ResidentClients()
    for resident, start, end, expected in ((first, 0, 20, (20, 0)), (second, 0, 10, (0, 10)), (first, 20, 30, (10, 0))):
        writer = KafkaPartitionWriter(settings, topics[0], 0, start, end, resident=resident)
        writer.write(records(topics[0], start, end))
        done = writer.finish()
        assert (done.written, done.skipped) == expected
    assert [int(message.value()) for message in committed(bootstrap, topics[1])] == list(range(30))
    assert read_markers(settings) == {marker_key("", topics[0], 0): (30, "one")}


def test_a_worker_does_not_wait_for_a_transaction_that_another_left_open(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    class Died(Exception):
        pass

    def die(point: str) -> None:
        if point == "before-commit":
            raise Died

    topics = (make(bootstrap, unique("src"), 1), make(bootstrap, unique("dst"), 1), make(bootstrap, unique("marks"), 1))
    settings = exactly_once(bootstrap, unique("job"), unique("group"), topics)
    impatient = replace(settings, transaction_timeout_ms=2000)
    first, second = ResidentClients(), ResidentClients()

    def write(
        resident: ResidentClients, using: KafkaSinkSettings, start: int, end: int, points: Points = no_points
    ) -> int:
        writer = KafkaPartitionWriter(using, topics[0], 0, start, end, resident=resident, points=points)
        writer.write(records(topics[0], start, end))
        return writer.finish().written

    assert write(first, impatient, 0, 10) == 10
    with pytest.raises(Died):
        write(second, settings, 10, 20, die)
    assert write(first, impatient, 10, 20) == 10
    assert [int(message.value()) for message in committed(bootstrap, topics[1])] == list(range(20))


def test_a_refused_record_is_looked_for_whenever_its_refusal_is_known(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    """The broker's answer may come before positions are added to the transaction, or after."""
    small, admin = unique("dst"), AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(small, 1, 1, config={"max.message.bytes": "500"})])[small].result(20)
    topics = (make(bootstrap, unique("src"), 1), small, make(bootstrap, unique("marks"), 1))
    settings = exactly_once(bootstrap, unique("job"), unique("group"), topics)
    large = records(topics[0], 0, 1).set_column(5, "value", pa.array([os.urandom(2000)]))
    writer = KafkaPartitionWriter(settings, topics[0], 0, 0, 1, resident=ResidentClients())
    writer.write(large)
    writer._producer.flush(30)
    with pytest.raises(Retriable, match=EXPLAIN):
        writer.finish()
    explaining = KafkaPartitionWriter(replace(settings, explain=True), topics[0], 0, 0, 1, resident=ResidentClients())
    explaining.write(large)
    with pytest.raises(
        Fatal, match=rf"the record of {topics[0]}-0 offset 0 can't be written to topic {small}: it is larger"
    ):
        explaining.finish()


def test_a_producer_that_refused_a_record_is_not_used_again(bootstrap: str, unique: Callable[[str], str]) -> None:
    topics = (make(bootstrap, unique("src"), 1), make(bootstrap, unique("dst"), 1), make(bootstrap, unique("marks"), 1))
    usual = exactly_once(bootstrap, unique("job"), unique("group"), topics)
    settings = replace(usual, guarantee="at-least-once", client={**usual.client, "message.max.bytes": 1000})
    resident = ResidentClients()
    first = resident.plain(settings)
    large = records(topics[0], 0, 1).set_column(5, "value", pa.array([b"x" * 2000]))
    with pytest.raises(
        Fatal,
        match=rf"the record of {topics[0]}-0 offset 0 can't be written to topic {topics[1]}: it is "
        r"larger.*sink\.kafka\.producer\.message\.max\.bytes",
    ):
        KafkaPartitionWriter(settings, topics[0], 0, 0, 1, resident=resident).write(large)
    assert resident.plain(settings) is not first
    writer = KafkaPartitionWriter(settings, topics[0], 0, 0, 1, resident=resident)
    writer.write(records(topics[0], 0, 1))
    assert writer.finish().written == 1


def test_large_records_and_sources_that_grow(spark: SparkSession, bootstrap: str, unique: Callable[[str], str]) -> None:
    """A topic that the sink makes takes what its source takes; partitions that the source gains are added, or asked for."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = unique("in")
    admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "4000000"})])[topic].result(20)

    def send(partition: int, *values: bytes) -> None:
        # A new client: it knows of new partitions.
        producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4_000_000})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    def all_of(counts: dict[int, int]) -> Batch:
        original = batch(spark, bootstrap, topic)
        return replace(original, ranges={(topic, partition): (0, count) for partition, count in counts.items()})

    send(0, b"a", os.urandom(2_000_000))  # Kafka's limit is one of compressed records
    strict = sink(
        spark, bootstrap, unique("strict"), topic, **{"sink.kafka.topic": make(bootstrap, unique("small"), 1)}
    )
    # The first failure does not say which record it is: the batch is retried to find out.
    with pytest.raises(Retriable, match="the batch is repeated to find the record"):
        strict.write(all_of({0: 2}))
    with pytest.raises(
        Fatal,
        match=rf"the record of {topic}-0 offset 1 can't be written to topic .*: it is larger than the "
        rf"topic takes.*max\.message\.bytes",
    ):
        strict.write(all_of({0: 2}))
    growing = sink(spark, bootstrap, unique("growing"), topic, **{"sink.kafka.topic.grow": "true"})
    asking = sink(spark, bootstrap, unique("asking"), topic, **{"sink.kafka.topic": "${topic}.second"})
    for writer in (growing, asking):
        assert writer.write(all_of({0: 2})) == 2
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    deadline = time.monotonic() + 30
    while len(admin.list_topics(topic, 20).topics[topic].partitions) < 3:
        assert time.monotonic() < deadline
    send(2, b"new")
    assert growing.write(all_of({0: 2, 2: 1})) == 1
    sizes = {(message.partition(), len(message.value())) for message in committed(bootstrap, f"{topic}.out")}
    assert sizes == {(0, 1), (0, 2_000_000), (2, 3)}
    with pytest.raises(
        Fatal, match=rf"topic {topic}\.second has fewer partitions \(1\) than {topic} \(3\).*--partitions 3"
    ):
        asking.write(all_of({0: 2, 2: 1}))
