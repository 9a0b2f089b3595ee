"""Heartbeats in the materializer's output topics, made of those of the input: up to when the output has all changes.

The driver sends them once a batch is committed, so that in each partition they come behind the events that they speak for. One
process speaks for all buckets: an input is complete up to the earliest of what all parts of its source have promised in all of
its partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Retriable
from connectors.formats.table_heartbeats import HEADER
from spark_jobs.sinks.kafka.markers import explain_failure, make_quiet_logger
from spark_jobs.spark.watchdog import limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spark_jobs.materializer.config import BucketOptions
    from spark_jobs.reports.met_heartbeats import MetHeartbeat

_TIMEOUT_S: Final = 30.0


class InputPromises:
    """The promises that were met in one input topic. Pure."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        #: By input partition and part of the source, µs since 1970.
        self._promises: dict[tuple[int, str], int] = {}
        self._said_us = 0

    def note(self, beat: MetHeartbeat) -> None:
        """All of what came before a heartbeat is in the output."""
        count = beat.part.partition("/")[2]
        if any(part.partition("/")[2] != count for _, part in self._promises):
            self._promises.clear()  # the source has another number of tasks now
        key = (beat.partition, beat.part)
        self._promises[key] = max(self._promises.get(key, 0), beat.sent_us)

    def next_us(self) -> int | None:
        """Up to when the output is complete; None where that is not known, or not later than what was said before."""
        if not self._promises:
            return None
        count = next(iter(self._promises))[1].partition("/")[2]
        parts = int(count) if count else 1
        if len(self._promises) < self._partitions * parts:
            return None
        complete_us = min(self._promises.values())
        if complete_us <= self._said_us:
            return None
        self._said_us = complete_us
        return complete_us


class OutputHeartbeats:
    """Sends the heartbeats of a run. Of one thread at a time; blocks.

    Args:
        client: confluent-kafka's configuration.
    """

    def __init__(self, client: Mapping[str, Any]) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({**client, "acks": "all", "linger.ms": 0}, logger=make_quiet_logger())
        #: By input topic.
        self._promises: dict[str, InputPromises] = {}

    def send(self, beats: Iterable[MetHeartbeat], by_topic: Mapping[str, BucketOptions]) -> None:
        """Send what follows of the heartbeats of a committed batch. Those of UMS are left out: shards are not counted in them.

        Raises:
            Retriable: Kafka does not take them.
            Fatal: it refuses them.
        """
        for beat in beats:
            if beat.table:
                continue
            promises = self._promises.get(beat.topic)
            if promises is None:
                promises = self._promises[beat.topic] = InputPromises(by_topic[beat.topic].partitions)
            promises.note(beat)
        for topic, promises in self._promises.items():
            complete_us = promises.next_us()
            if complete_us is not None:
                self._send_time(by_topic[topic].output_topic, complete_us)

    def _send_time(self, topic: str, complete_us: int) -> None:
        from confluent_kafka import KafkaException

        errors: list[Any] = []
        action = f"heartbeats can't be written to {topic}"
        try:
            with limit(f"the heartbeats of {topic}", 2 * _TIMEOUT_S):
                for partition in self._producer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions:
                    self._producer.produce(
                        topic,
                        partition=partition,
                        headers=[(HEADER, str(complete_us).encode())],
                        on_delivery=lambda error, _: errors.append(error) if error is not None else None,
                    )
                left = self._producer.flush(_TIMEOUT_S)
        except KafkaException as error:
            raise explain_failure(error, action) from error
        if errors:
            raise explain_failure(errors[0], action)
        if left:
            raise Retriable(f"{action}: Kafka does not answer")
