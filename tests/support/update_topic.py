"""Topics of partition updates: written from the seeded load, and the materializer's events checked against its model."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors.formats.partition_update_codec import make_encoder
from tests.support.update_load import Change, Event, Model, changes, layout, partition_key, update
from worker.converters.avro import AvroConverter
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Load:
    """The records to write: ``updates`` of ``partitions`` of the table, in topics with ``buckets`` Kafka partitions."""

    updates: int
    partitions: int
    buckets: int
    encoding: str
    wide: int = 0
    seed: int = 1

    @property
    def schema(self) -> str:
        """The messages' schema as Avro's text, which JSON messages don't bring along."""
        return avro_text(layout(self.wide).schema, AvroSettings())

    def events(self) -> int:
        """How many events the load must cause."""
        model = Model(self.wide)
        return sum(
            model.apply(change) is not None
            for change in changes(self.updates, partitions=self.partitions, seed=self.seed, wide=self.wide)
        )


def encoder_of(load: Load, topic: str, registry: str) -> Callable[[Change, int], bytes | None]:
    """Return the encoder of a change, as the message of a number, in the load's encoding; registers the schema."""
    form = layout(load.wide)
    encode = make_encoder(form)
    if load.encoding == "avro":
        converter = AvroConverter({"schema.registry.url": registry}, is_key=False)

        async def prepare() -> None:
            await converter.prepare(topic, form.schema)
            await converter.close()

        asyncio.run(prepare())
        write = converter.encoder(topic, form.schema)
    else:
        write = JsonConverter({"schemas.enable": "false"}).encoder(topic, form.schema)
    return lambda change, number: write(encode(update(change, form, number)))


def _fill(load: Load, bootstrap: str, registry: str, topic: str, share: int, shares: int) -> None:
    """Write the buckets whose number is ``share`` modulo ``shares``; a process each, for encoding costs more than anything."""
    encode = encoder_of(load, topic, registry)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 200_000,
            "enable.idempotence": True,
        }
    )
    for number, change in enumerate(changes(load.updates, partitions=load.partitions, seed=load.seed, wide=load.wide)):
        bucket = change.pk % load.buckets
        if bucket % shares != share:
            continue
        while True:
            try:
                producer.produce(
                    topic,
                    encode(change, number),
                    partition_key(change.pk),
                    partition=bucket,
                    timestamp=change.write_time // 1000,
                )
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError("Kafka did not take the load within two minutes")


def fill(load: Load, bootstrap: str, registry: str, topic: str, *, replication: int = 1) -> float:
    """Create the topic and write the load; the seconds it took. Blocks."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must live until the answer is there
    # Write times lie in the past: Kafka would count retention from them.
    new_topic = NewTopic(topic, load.buckets, replication, config={"message.timestamp.type": "LogAppendTime"})
    admin.create_topics([new_topic])[topic].result(30)
    begin = time.monotonic()
    shares = min(os.cpu_count() or 1, load.buckets)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_fill, args=(load, bootstrap, registry, topic, share, shares)) for share in range(shares)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError(f"writing the load failed with exit code {worker.exitcode}")
    return time.monotonic() - begin


def _outputs(bootstrap: str, topic: str, bucket: int) -> Iterator[dict[str, Any]]:
    """Committed events of one partition in order, tombstones left out."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"check-{secrets.token_hex(4)}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, bucket, 0)])
    try:
        while True:
            for message in consumer.consume(2000, 1.0):
                error, value = message.error(), message.value()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return
                    raise RuntimeError(str(error))
                if value is not None:
                    yield orjson.loads(value)
    finally:
        consumer.close()


def check(load: Load, bootstrap: str, topic: str) -> tuple[int, int]:
    """Compare every output with the model's, in order; (events, rows at the end).

    Raises:
        AssertionError: the first that differs, or what is missing or too much.
    """
    streams = [_outputs(bootstrap, topic, bucket) for bucket in range(load.buckets)]
    model = Model(load.wide)
    events = 0
    for number, change in enumerate(changes(load.updates, partitions=load.partitions, seed=load.seed, wide=load.wide)):
        expected = model.apply(change)
        if expected is None:
            continue
        events += 1
        output = next(streams[change.pk % load.buckets], None)
        if output is None:
            raise AssertionError(f"update {number}: the outputs end before {expected}")
        if Event(output["op"], output["before"], output["after"]) != expected:
            raise AssertionError(f"update {number}: expected {expected}, got {output}")
    for bucket, stream in enumerate(streams):
        extra = next(stream, None)
        if extra is not None:
            raise AssertionError(f"bucket {bucket} has more outputs than expected, the first: {extra}")
    return events, len(model.rows)


def committed_events(bootstrap: str, topic: str, partitions: int) -> Callable[[], int]:
    """A function that counts the committed events of a topic, tombstones left out, reading on from where it stood.

    It may be called before the topic exists; then there are none.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"count-{secrets.token_hex(4)}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            "allow.auto.create.topics": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    counted = 0

    def count() -> int:
        nonlocal counted
        while messages := consumer.consume(5000, 0.2):
            counted += sum(message.error() is None and message.value() is not None for message in messages)
        return counted

    return count
