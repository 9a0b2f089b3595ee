"""Reads the records of a small batch from Kafka where no Spark task does; see ``host``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from connectors.errors import Fatal, Retriable
from spark_jobs.kafka import kafka_errors
from spark_jobs.materializer.contract import InputRecord
from spark_jobs.spark.watchdog import limit

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from spark_jobs.materializer.passes import PassRange
    from spark_jobs.reports.met_heartbeats import MetHeartbeats

_TIMEOUT_S: Final = 30.0
#: The most that waits inside the consumer.
_QUEUE_KIB: Final = 16 << 10
_MOST: Final = 1000
_GONE: Final = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, kafka_errors.AUTO_OFFSET_RESET})


class InputReader:
    """A consumer of input partitions, one after the other. Used by one thread; blocks.

    Args:
        client: confluent-kafka's configuration.
        group: the job's consumer group; nothing is committed in it.
        isolation: ``source.isolation.level``: what the offsets of batches were chosen by.
    """

    def __init__(self, client: Mapping[str, Any], group: str, isolation: str) -> None:
        self._consumer = Consumer(
            {
                **client,
                "group.id": group,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": _QUEUE_KIB,
                # The records are there: no call waits for more.
                "fetch.wait.max.ms": 10,
                "allow.auto.create.topics": False,
                # No lines on lost connections, many a second: each error that matters is raised.
                "log_level": 2,
            }
        )

    def close(self) -> None:
        """Close the consumer."""
        with limit("the end of the consumer of the input", _TIMEOUT_S):
            self._consumer.close()

    def records(self, topic: str, partition: int, span: PassRange, beats: MetHeartbeats) -> Generator[InputRecord]:
        """The records of ``span`` in order; offsets may be left out (control records, compaction).

        ``beats`` notes the heartbeats among them.

        Raises:
            Retriable: the brokers don't answer.
            Fatal: the brokers refuse, or records are gone.
        """
        position, end = span.start, span.end
        if position >= end:
            return
        with limit(f"assign of {topic} [{partition}]", _TIMEOUT_S):
            self._consumer.assign([TopicPartition(topic, partition, position)])
        try:
            deadline = time.monotonic() + _TIMEOUT_S
            while position < end:
                # ``consume`` waits for as many as are wanted: it must only take what is there.
                with limit(f"poll of {topic} [{partition}]", _TIMEOUT_S):
                    first = self._consumer.poll(0.5)
                    messages = [] if first is None else [first, *self._consumer.consume(_MOST, timeout=0)]
                if messages:
                    deadline = time.monotonic() + _TIMEOUT_S
                elif time.monotonic() > deadline:
                    raise Retriable(
                        f"{topic} [{partition}] gives nothing from offset {position} (the batch ends at {end})"
                    )
                for message in messages:
                    problem = message.error()
                    if problem is not None:
                        position = max(
                            position, self._end_offset(problem, message, TopicPartition(topic, partition, position))
                        )
                        continue
                    offset = int(message.offset() or 0)
                    position = offset + 1
                    if offset >= end:
                        break
                    value = message.value()
                    if value is None:
                        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                        beats.note_record(topic, partition, headers, message.timestamp()[1])
                    yield InputRecord(message.key(), value, offset, message.timestamp()[1])
        finally:
            with limit(f"unassign of {topic} [{partition}]", _TIMEOUT_S):
                self._consumer.unassign()

    def _end_offset(self, problem: KafkaError, message: Any, where: TopicPartition) -> int:
        """The offset of an end-of-partition event; raises for all other errors."""
        if problem.code() == kafka_errors.PARTITION_EOF:
            return int(message.offset())
        message_text = f"{where.topic} [{where.partition}] can't be read at offset {where.offset}: {problem}"
        if problem.code() in _GONE:
            try:
                with limit(f"the question for the first offset of {where.topic} [{where.partition}]", _TIMEOUT_S):
                    first, _ = self._consumer.get_watermark_offsets(where, timeout=_TIMEOUT_S)
            except KafkaException as error:
                raise Retriable(message_text) from error
            if first > where.offset:
                raise Fatal(
                    f"{message_text}; the records before offset {first} were deleted unread (retention, DeleteRecords). Start "
                    "the job again: it says what is missing and how to continue"
                )
        if problem.retriable() or not problem.fatal():
            raise Retriable(message_text)
        raise Fatal(message_text)
