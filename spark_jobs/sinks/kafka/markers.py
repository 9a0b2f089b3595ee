"""Positions of the Kafka sink in a compacted topic, and what its errors mean."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from connectors.errors import Fatal, Retriable
from spark_jobs.spark.watchdog import limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sinks.kafka.config import KafkaSinkSettings


def make_quiet_logger() -> logging.Logger:
    """The logger of the sink's clients: they tell of every connection, and errors that matter are raised."""
    logger = logging.getLogger("spark_jobs.kafka_client")
    logger.setLevel(logging.ERROR)
    return logger


def explain_failure(error: Any, action: str) -> Exception:
    """The error to raise for a ``KafkaException``: fencing and transient faults are retried, refusals fail the job."""
    from confluent_kafka import KafkaError

    cause = error.args[0] if error.args else error
    message = (
        f"{'' if action.startswith('Kafka sink') else 'Kafka sink: '}{action}: "
        f"{cause.str() if hasattr(cause, 'str') else cause}"
    )
    refused = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
    code = cause.code() if hasattr(cause, "code") else None
    if code == KafkaError.INVALID_RECORD:
        return Fatal(
            f"{message}. A compacted topic refuses records without a key, as heartbeats are: set its cleanup.policy"
        )
    if code in refused:
        return Fatal(
            f"{message}. Give the job's user the rights (WRITE on the topic and the transactional id, READ on the "
            "group), or correct sink.kafka.* for this size."
        )
    return Retriable(message)


def marker_key(stream: str, topic: str, partition: int) -> bytes:
    """The key of a marker."""
    return json.dumps([stream, topic, partition]).encode()


def read_markers(settings: KafkaSinkSettings) -> dict[bytes, tuple[int, str]]:
    """All positions in the compacted topic, each with the id of the source topic. Blocks until its end is read.

    Raises:
        Retriable: it can't be read to its end.
    """
    records = read_newest(settings.client, settings.markers, settings.group, settings.timeout_s)
    positions = {key: json.loads(value) for key, value in records.items()}
    return {key: (int(data["offset"]), str(data["topic_id"])) for key, data in positions.items()}


def read_newest(client: Mapping[str, Any], topic: str, group: str, timeout_s: float) -> dict[bytes, bytes]:
    """The newest committed value of each key in a compacted topic. Blocks until its end is read, at most ``timeout_s``.

    Args:
        client: confluent-kafka's configuration.
        topic: the topic.
        group: a group that the user may read with; nothing is committed.
        timeout_s: seconds.

    Raises:
        Retriable: it can't be read to its end.
        Fatal: Kafka refuses this user.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    from spark_jobs.kafka import kafka_errors

    consumer = Consumer(
        {
            **client,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        },
        logger=make_quiet_logger(),
    )
    newest: dict[bytes, bytes] = {}
    try:
        with limit(f"the question for {topic}", timeout_s):
            partitions = consumer.list_topics(topic, timeout_s).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        open_ends = set(partitions)
        deadline = time.monotonic() + timeout_s
        while open_ends:
            with limit(f"consume of {topic}", timeout_s):
                messages = consumer.consume(1000, 1.0)
            for message in messages:
                trouble, key, value = message.error(), message.key(), message.value()
                if trouble is not None:
                    if trouble.code() != kafka_errors.PARTITION_EOF:
                        raise Retriable(f"Kafka sink: {topic} can't be read: {trouble.str()}")
                    open_ends.discard(message.partition())
                elif key is not None and value is not None:
                    newest[key] = value
            if time.monotonic() > deadline:
                raise Retriable(f"Kafka sink: {topic} could not be read to its end within {timeout_s:.0f} s")
    except KafkaException as error:
        raise explain_failure(error, f"{topic} can't be read") from error
    finally:
        with limit(f"the end of the consumer of {topic}", timeout_s):
            consumer.close()
    return newest
