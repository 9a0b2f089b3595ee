"""Sends a dead letter to the topic that it was read from, so that whoever reads that topic tries it once more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from connectors.errors import ConfigInvalid, Retriable
from offsets.aiokafka_internals import fetch_all_metadata
from worker.host.plan import consumer_arguments
from worker.kafka import clients as kafka_clients
from worker.transforms.java.regex import compile_java

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka import ConsumerRecord

_PREFIX: Final = "__connect.errors."
_TOPIC: Final = "__connect.errors.topic"
_WAIT_S: Final = 5.0


class RedriveRequest(msgspec.Struct):
    """A dead letter, and where it may go.

    Attributes:
        topic: the dead letter topic.
        partition: in it.
        offset: in that.
        topics: the topics that the connector reads.
        pattern: the same as a regular expression of Java, or empty.
    """

    topic: str
    partition: int
    offset: int
    topics: list[str] = []
    pattern: str = ""

    def may_go_to(self, topic: str) -> bool:
        """Whether the connector reads a topic: headers come from whoever can write to the dead letter topic."""
        return topic in self.topics or bool(self.pattern and compile_java(self.pattern).fullmatch(topic))


async def redrive_letter(config: Mapping[str, str], worker: Mapping[str, str], request: bytes) -> dict[str, Any]:
    """Write the record of a dead letter to the topic that its headers name, and say where it is now.

    Args:
        config: the connector's properties, resolved.
        worker: the worker's.
        request: a ``RedriveRequest`` as JSON.

    Raises:
        LookupError: the dead letter is not there any more.
        ConfigInvalid: it does not say from which topic it is.
        Retriable: Kafka does not answer.
    """
    asked = msgspec.json.decode(request, type=RedriveRequest)
    try:
        record = await _read_letter(asked, consumer_arguments(config, worker))
        headers = list(record.headers or ())
        topic = next((value.decode() for name, value in headers if name == _TOPIC and value), "")
        if not topic or topic == asked.topic:
            raise ConfigInvalid(
                f"The dead letter has no header {_TOPIC} with the topic that it was read from: it can't be sent again. "
                "Set errors.deadletterqueue.context.headers.enable=true for those that come"
            )
        if not asked.may_go_to(topic):
            raise ConfigInvalid(
                f"The dead letter says that it is from {topic}, a topic that the connector does not read"
            )
        arguments = kafka_clients.client_arguments(
            kafka_clients.inherited_properties(worker, "producer."), "producer"
        ).arguments
        async with AIOKafkaProducer(**{**arguments, "acks": "all"}) as producer:
            sent = await producer.send_and_wait(
                topic,
                record.value,
                key=record.key,
                headers=[(name, value) for name, value in headers if not name.startswith(_PREFIX)],
            )
    except (KafkaError, OSError) as error:
        raise Retriable(f"The dead letter could not be sent again: {error!r}") from error
    return {"topic": topic, "partition": sent.partition, "offset": sent.offset}


async def _read_letter(asked: RedriveRequest, client: Mapping[str, Any]) -> ConsumerRecord:
    consumer = AIOKafkaConsumer(
        **{
            **client,
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "isolation_level": "read_committed",
        }
    )
    source = TopicPartition(asked.topic, asked.partition)
    gone = LookupError(f"There is no dead letter at offset {asked.offset} of partition {asked.partition} any more")
    try:
        await consumer.start()
        # All topics: asking for one by its name could create it.
        cluster = await fetch_all_metadata(consumer)
        if asked.partition not in (cluster.partitions_for_topic(asked.topic) or ()):
            raise gone
        first, last = await asyncio.gather(consumer.beginning_offsets([source]), consumer.end_offsets([source]))
        if not first[source] <= asked.offset < last[source]:
            raise gone
        consumer.assign([source])
        consumer.seek(source, asked.offset)
        try:
            async with asyncio.timeout(_WAIT_S):
                record = await consumer.getone(source)
        except TimeoutError:
            raise Retriable(f"Kafka gave nothing from topic {asked.topic} within {_WAIT_S:g} s") from None
        if record.offset != asked.offset:
            raise gone
        return record
    finally:
        await consumer.stop()
