"""Reads the changelog topic, in which the state of a job is: one compacted partition per bucket, under ``read_committed``.

Records: state key -> blob (null: the row is gone), and under the empty key the marker (``config.Marker``), the last record of
every transaction.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from connectors.errors import Fatal, Retriable
from spark_jobs.kafka import kafka_errors
from spark_jobs.spark.watchdog import limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: The key of the marker record. State keys are never empty.
MARKER_KEY: Final = b""
#: What one step of a restore may hold, bytes; also the most that waits inside the consumer.
STEP_BYTES: Final = 16 << 20
_TIMEOUT_S: Final = 30.0
#: One question about the end: a leader that is gone does not answer, and is asked as long as it is taken for the leader.
_ASK_S: Final = 3.0
_MOST: Final = 5000
_PASSING: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        kafka_errors.UNKNOWN_PARTITION,
    }
)
_UNANSWERED: Final = frozenset({kafka_errors.TIMED_OUT, kafka_errors.TRANSPORT})


class ChangelogStep(NamedTuple):
    """A part of the changelog, in order.

    Attributes:
        changes: the newest value per state key; None: gone.
        marker: the last marker among them, or None.
        position: the offset to continue from.
        records: how many records it took.
    """

    changes: dict[bytes, bytes | None]
    marker: bytes | None
    position: int
    records: int


class Changelog:
    """A consumer of one job's changelog. One per process: it has a thread per broker. Its methods block up to 30 s."""

    def __init__(self, client: Mapping[str, Any], topic: str, group: str) -> None:
        self.topic = topic
        self._consumer = Consumer(
            {
                **client,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": STEP_BYTES >> 10,
                # The end is known from ListOffsets, so no read has to wait for more records.
                "fetch.wait.max.ms": 10,
                "allow.auto.create.topics": False,
                # No lines on lost connections, many a second: each error that matters is raised.
                "log_level": 2,
            }
        )

    def close(self) -> None:
        """Close the consumer."""
        with limit(f"the end of the consumer of {self.topic}", _TIMEOUT_S):
            self._consumer.close()

    def group_metadata(self) -> Any:
        """For ``send_offsets_to_transaction``: the group without a member."""
        with limit(f"consumer_group_metadata for {self.topic}", _TIMEOUT_S):
            return self._consumer.consumer_group_metadata()

    def ends(self, partition: int) -> tuple[int, int]:
        """The first offset, and the offset after the last committed transaction.

        Raises:
            Retriable: no broker answers.
        """
        began = time.monotonic()
        while True:
            try:
                with limit(f"the question for the end of {self.topic} [{partition}]", _ASK_S):
                    low, high = self._consumer.get_watermark_offsets(
                        TopicPartition(self.topic, partition), timeout=_ASK_S
                    )
            except KafkaException as error:
                code = error.args[0].code()
                # Just made, or its leader has just moved.
                patience_s = _TIMEOUT_S if code in _UNANSWERED else _TIMEOUT_S / 3 if code in _PASSING else 0.0
                if time.monotonic() - began < patience_s:
                    with contextlib.suppress(KafkaException):
                        self._consumer.list_topics(self.topic, _ASK_S)  # who leads it by now
                    time.sleep(0.1)
                    continue
                raise Retriable(
                    f"the end of the changelog {self.topic} [{partition}] can't be asked for: {error}"
                ) from error
            else:
                return low, high

    def read(self, partition: int, position: int, end: int, *, max_keys: int = 100_000) -> Iterator[ChangelogStep]:
        """Everything committed from ``position`` to ``end``, in steps of bounded size.

        Raises:
            Retriable: the brokers don't answer.
            Fatal: ``position`` does not exist (any more), or the topic is not a changelog.
        """
        with limit(f"assign of {self.topic} [{partition}]", _TIMEOUT_S):
            self._consumer.assign([TopicPartition(self.topic, partition, position)])
        try:
            yield from self._read_steps(partition, position, end, max_keys)
        finally:
            with limit(f"unassign of {self.topic} [{partition}]", _TIMEOUT_S):
                self._consumer.unassign()

    def _read_steps(self, partition: int, position: int, end: int, max_keys: int) -> Iterator[ChangelogStep]:
        changes: dict[bytes, bytes | None] = {}
        marker: bytes | None = None
        size = records = 0
        max_messages = 100
        deadline = time.monotonic() + _TIMEOUT_S
        while position < end:
            # ``consume`` waits for as many as are wanted: it must only take what is there.
            with limit(f"poll of {self.topic} [{partition}]", _TIMEOUT_S):
                first = self._consumer.poll(0.5)
                messages = [] if first is None else [first, *self._consumer.consume(max_messages, timeout=0)]
            if messages:
                deadline = time.monotonic() + _TIMEOUT_S
            elif time.monotonic() > deadline:
                raise Retriable(
                    f"the changelog {self.topic} [{partition}] gives nothing from offset {position} (its end is {end})"
                )
            record_size = 0
            for message in messages:
                problem = message.error()
                if problem is not None:
                    position = max(position, self._end_offset(problem, message, partition, position))
                    continue
                key, value, offset = message.key(), message.value(), int(message.offset() or 0)
                if key is None:
                    raise Fatal(
                        f"{self.topic} [{partition}] offset {offset} has no key: this is no changelog of a "
                        "materializer; give materializer.changelog.topic another name"
                    )
                position = offset + 1
                if key == MARKER_KEY:
                    marker = value
                    # What follows a marker is the transaction's own control record.
                    position = end if offset == end - 2 else position
                else:
                    changes[key] = value
                record_size += len(key) + len(value or b"")
                records += 1
            size += record_size
            if messages:
                # As many messages at a time as fit a step, judged by the last ones.
                max_messages = max(1, min(_MOST, (STEP_BYTES * len(messages)) // max(record_size, 1)))
            if size >= STEP_BYTES or len(changes) >= max_keys or position >= end:
                yield ChangelogStep(changes, marker, position, records)
                changes, marker, size, records = {}, None, 0, 0

    def _end_offset(self, problem: KafkaError, message: Any, partition: int, position: int) -> int:
        """The offset that an end-of-partition event tells; raises for all other errors."""
        if problem.code() == kafka_errors.PARTITION_EOF:
            return int(message.offset())
        message_text = f"the changelog {self.topic} [{partition}] can't be read at offset {position}: {problem}"
        if problem.code() in (KafkaError.OFFSET_OUT_OF_RANGE, kafka_errors.AUTO_OFFSET_RESET):
            raise Fatal(
                f"{message_text}. Records of the state were deleted (retention or DeleteRecords on {self.topic}; its "
                "cleanup.policy must be compact): run millrace job rebuild --state"
            )
        if problem.retriable() or not problem.fatal():
            raise Retriable(message_text)
        raise Fatal(message_text)

    def last_markers(self, partitions: Sequence[int]) -> dict[int, bytes]:
        """The newest marker of each partition; those without one are left out."""
        markers = {}
        for partition in partitions:
            low, high = self.ends(partition)
            back = 8
            while high > low and partition not in markers:
                start = max(low, high - back)
                for step in self.read(partition, start, high):
                    if step.marker is not None:
                        markers[partition] = step.marker
                if start == low:
                    break
                back *= 64
        return markers
