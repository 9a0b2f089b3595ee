"""Writes the records of source partitions into Kafka, inside Spark's Python tasks.

Exactly once: all that a batch has of one source partition is one transaction of the producer ``<job>-<topic>-<partition>``, and
in it the position after it, as an offset of the sink's group (metadata: the producer's own token) and as a marker in a
compacted topic. What Spark brings again after a crash lies below the position and is left out. The position is asked for by
every task before it writes, under ``read_committed`` and after the producer's ``init_transactions``, which ends the transaction
of whoever wrote before.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import Fatal, Retriable, Skippable
from spark_jobs.kafka.groups import read_committed
from spark_jobs.kafka.producers import find_fatal_reason
from spark_jobs.reports.met_heartbeats import COLUMN, MetHeartbeats
from spark_jobs.reports.ums_heartbeats import note_heartbeats
from spark_jobs.sinks.kafka.clients import RESIDENT, OwnedProducer, ResidentClients
from spark_jobs.sinks.kafka.markers import explain_failure, marker_key, read_markers
from spark_jobs.sinks.kafka.partitioners import BUILT_IN, check_partition, load_partitioner
from spark_jobs.spark.watchdog import limit
from worker.converters.partitioner import choose_partition as partition_of_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from confluent_kafka import KafkaException

    from spark_jobs.reports.met_heartbeats import MetHeartbeat
    from spark_jobs.sinks.kafka.config import KafkaSinkSettings

_log = logging.getLogger(__name__)
_ABORT_S: Final = 10.0
#: How long the position is waited for before a new producer ends the transaction that may hold it back, seconds.
_HELD_BACK_S: Final = 5.0
#: What a commit says of records that were not delivered.
_UNDELIVERED: Final = "message(s) failed delivery"
#: Asks the sink for another attempt, with ``KafkaSinkSettings.explain``.
EXPLAIN: Final = "the batch is repeated to find the record"
_POLL_EVERY: Final = 1000
#: Called at points of a transaction; tests stop the process there.
Points = Callable[[str], None]


def no_points(name: str) -> None:
    """Does nothing."""
    del name


class PartitionRange(NamedTuple):
    """The offsets that a batch has of one source partition.

    Attributes:
        topic: the source topic.
        partition: the source partition.
        start: the first offset.
        end: the offset after the last one.
    """

    topic: str
    partition: int
    start: int
    end: int

    @property
    def source(self) -> tuple[str, int]:
        """The source partition: topic and number."""
        return self.topic, self.partition


class WrittenRecords(NamedTuple):
    """The delivery state of a partition's records in one task, and the heartbeats among them."""

    topic: str
    partition: int
    written: int
    skipped: int
    heartbeats: list[MetHeartbeat]


class KafkaPartitionWriter:
    """Writes what one task has of one source partition. Not thread-safe; used once.

    Args:
        settings: see ``KafkaSinkSettings``.
        topic: the source topic.
        partition: the source partition.
        start: the first offset of the batch's range.
        end: the offset after the range.
        resident: producers that are kept.
        points: called with the names of points: ``begun``, ``before-commit``, ``after-commit``.
    """

    def __init__(
        self,
        settings: KafkaSinkSettings,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        resident: ResidentClients = RESIDENT,
        points: Points = no_points,
    ) -> None:
        self._settings = settings
        self._range = PartitionRange(topic, partition, start, end)
        self._resident = resident
        self._points = points
        self._id = settings.transactional_id(topic, partition)
        self._target, self._count = settings.topics[topic]
        self._partitioner = None if settings.partitioner in BUILT_IN else load_partitioner(settings.partitioner)
        self._transactional = settings.guarantee == "exactly-once"
        #: Offsets of records that Kafka refused, with the error; the first one counts.
        self._failures: list[tuple[int, Any]] = []
        self._since_poll = 0
        self.written = 0
        self.skipped = 0
        self._beats = MetHeartbeats()
        self._in_transaction = False
        #: Whether the producer is new, so that those of other workers can't commit any more.
        self._took_over = False
        self._owned: OwnedProducer | None = None
        if self._transactional:
            self._owned, self._from = self._take_over()
            self._producer = self._owned.producer
        else:
            self._from = start
            self._producer = resident.plain(settings)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write records of the partition, in order. Blocks while the client's queue is full.

        Raises:
            Retriable: Kafka does not take them.
            Fatal: it refuses one.
        """
        from confluent_kafka import KafkaException

        offsets = batch.column("offset").to_pylist()
        first = 0
        if offsets and offsets[0] < self._from:
            first = next((index for index, offset in enumerate(offsets) if offset >= self._from), len(offsets))
            self.skipped += first
            batch = batch.slice(first)
            offsets = offsets[first:]
        if not offsets:
            return
        try:
            if self._transactional and not self._in_transaction:
                self._begin_transaction()
            self._produce_records(batch, offsets)
        except KafkaException as error:
            raise self._make_failure(
                error, f"{self._range.topic}-{self._range.partition} can't be written to {self._target}"
            ) from error

    def _begin_transaction(self) -> None:
        with self._limit_call("begin_transaction"):
            self._producer.begin_transaction()
        self._in_transaction = True
        self._points("begun")

    def _limit_call(self, action: str) -> AbstractContextManager[None]:
        return limit(f"{action} of {self._id}", self._settings.timeout_s)

    def _produce_records(self, batch: pa.RecordBatch, offsets: Sequence[int]) -> None:
        from confluent_kafka import KafkaException

        settings, produce = self._settings, self._producer.produce
        count = len(offsets)
        targets = batch.column("target").to_pylist() if settings.targets else [self._target] * count
        keys, values = self._encode_records(batch, targets)
        if settings.keyless:
            keys = [None] * count
        partitions = self._choose_partitions(keys, values, offsets, targets)
        self._note_heartbeats(batch)
        times = to_millis(batch.column("timestamp")) if settings.timestamps else [0] * count
        headers = header_lists(batch)
        # In a transaction the commit fails with what was not delivered. It does not say which record, and why. The sink then
        # repeats the batch with reports of each record, which cost a quarter of the time of handing it over.
        needs_reports = settings.guarantee == "at-least-once" or settings.explain
        delivered = self._note_delivery if needs_reports else None
        for index in range(count):
            arguments: dict[str, Any] = {} if headers is None or not headers[index] else {"headers": headers[index]}
            if delivered is not None:
                arguments["on_delivery"] = partial(delivered, offsets[index])
            while True:
                try:
                    produce(
                        targets[index],
                        values[index],
                        keys[index],
                        partitions[index],
                        timestamp=times[index],
                        **arguments,
                    )
                    break
                except BufferError:
                    self._wait_for_room()
                except KafkaException as error:
                    self._failures.append((offsets[index], error.args[0]))
                    raise
            self._since_poll += 1
            if self._since_poll >= _POLL_EVERY:
                self._since_poll = 0
                self._producer.poll(0)
        self.written += count

    def _note_heartbeats(self, batch: pa.RecordBatch) -> None:
        if COLUMN in batch.schema.names:
            import pyarrow as pa
            import pyarrow.compute as pc

            self._beats.note_batch(batch, pc.divide(batch.column("timestamp").cast(pa.int64()), 1000))
            note_heartbeats(batch, self._beats)

    def _encode_records(self, batch: pa.RecordBatch, targets: Sequence[str]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Keys and values as bytes."""
        encoding = self._settings.encoding
        if encoding is None:
            return batch.column("key").to_pylist(), batch.column("value").to_pylist()
        try:
            keys, values = encoding.encode(batch, targets)
        except Skippable as error:
            # The registry has the schemas of all rows; a value that does not fit is an error of the program.
            raise Fatal(
                f"Kafka sink: rows of {self._range.topic}-{self._range.partition} can't be written as Avro: {error}"
            ) from error
        return batch.column("key").to_pylist() if keys is None else keys, values

    def _wait_for_room(self) -> None:
        deadline = time.monotonic() + self._settings.timeout_s
        before = len(self._producer)
        while len(self._producer) >= before:
            with self._limit_call("poll"):
                self._producer.poll(0.05)
            if time.monotonic() > deadline:
                self._give_up()
                raise Retriable(
                    f"Kafka sink: {self._target} takes no records; the client's queue is full for "
                    f"{self._settings.timeout_s:.0f} s"
                )

    def _choose_partitions(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        offsets: Sequence[int],
        targets: Sequence[str],
    ) -> Sequence[int]:
        settings = self._settings
        if settings.partitioner == "source":
            return [self._range.partition] * len(offsets)
        counts = [settings.targets.get(target, self._count) for target in targets]
        if settings.partitioner == "round-robin":
            return [offset % count for offset, count in zip(offsets, counts, strict=True)]
        if self._partitioner is not None:
            choose, name = self._partitioner, settings.partitioner
            return [
                check_partition(name, choose(key, value, target, count), target, count)
                for key, value, target, count in zip(keys, values, targets, counts, strict=True)
            ]
        return [
            partition_of_key(key, count) if key is not None else offset % count
            for key, offset, count in zip(keys, offsets, counts, strict=True)
        ]

    def finish(self) -> WrittenRecords:
        """Make what was written safe, as the guarantee says. Blocks.

        Raises:
            Retriable: it is not sure that Kafka has it.
            Fatal: Kafka refuses it.
        """
        from confluent_kafka import KafkaException

        if self._transactional:
            # With nothing to write, too: else the worker of the last commit uses its fenced producer once more.
            if self._in_transaction or self._took_over:
                try:
                    if not self._in_transaction:
                        self._begin_transaction()
                    self._commit_transaction()
                except KafkaException as error:
                    raise self._make_failure(
                        error, f"the transaction of {self._range.topic}-{self._range.partition} can't be committed"
                    ) from error
        elif self._settings.guarantee == "at-least-once":
            try:
                with self._limit_call("flush"):
                    left = self._producer.flush(self._settings.timeout_s)
            except KafkaException as error:
                raise self._make_failure(
                    error, f"{self._range.topic}-{self._range.partition} can't be written to {self._target}"
                ) from error
            if self._failures:
                self._resident.drop_plain(self._settings)
                raise self._make_record_refusal()
            if left:
                raise Retriable(
                    f"Kafka sink: {left} records were not confirmed by {self._target} within {self._settings.timeout_s:.0f} s"
                )
        else:
            self._producer.poll(0)
        return WrittenRecords(*self._range.source, self.written, self.skipped, self._beats.take())

    def _commit_transaction(self) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        if self._owned is None:
            return
        settings, (topic, partition) = self._settings, self._range.source
        topic_id = settings.topic_ids.get(topic, "")
        end = max(self._range.end, self._from)  # a batch that is retried may end before the written position
        self._producer.produce(
            settings.markers,
            json.dumps({"offset": end, "topic_id": topic_id}).encode(),
            marker_key(settings.stream, topic, partition),
        )
        position = TopicPartition(topic, partition, end, f"{self._owned.token} {topic_id}")
        with self._limit_call("send_offsets_to_transaction"):
            group = self._resident.consumer(settings).consumer_group_metadata()
            self._producer.send_offsets_to_transaction([position], group, settings.timeout_s)
        self._points("before-commit")
        deadline = time.monotonic() + settings.timeout_s
        while True:
            try:
                with self._limit_call("commit_transaction"):
                    self._producer.commit_transaction(settings.timeout_s)
                break
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
        self._points("after-commit")

    def _take_over(self) -> tuple[OwnedProducer, int]:
        """The producer of this partition, and the first offset that is not written yet."""
        topic = self._range.topic
        kept = self._resident.transactional(self._settings, self._id)
        if kept is not None:
            try:
                offset, metadata = self._read_position(min(_HELD_BACK_S, self._settings.timeout_s))
            except Retriable as error:
                # A transaction that a dead worker left open holds the answer back; a new producer ends it.
                _log.info("%s; a new producer asks again", error)
            else:
                if offset is not None and metadata == f"{kept.token} {self._settings.topic_ids.get(topic, '')}":
                    return kept, offset
        # Another worker may have written since: only an answer after the initialization can be relied on.
        self._took_over = True
        owned = self._resident.create_owned(self._settings, self._id)
        offset, metadata = self._read_position(self._settings.timeout_s)
        topic_id = metadata.partition(" ")[2]
        if offset is None:
            offset, topic_id = read_markers(self._settings).get(
                marker_key(self._settings.stream, *self._range.source), (None, "")
            )
            if offset is not None:
                _log.warning(
                    "group %s has lost its position in %s-%d (it expires after the broker's "
                    "offsets.retention.minutes without a "
                    "commit); %s says %d",
                    self._settings.group,
                    *self._range.source,
                    self._settings.markers,
                    offset,
                )
        if offset is not None and topic_id != self._settings.topic_ids.get(topic, ""):
            _log.warning(
                "topic %s was deleted and recreated since %d was written: it is copied from its beginning",
                topic,
                offset,
            )
            offset = None
        return owned, self._range.start if offset is None else offset

    def _read_position(self, timeout_s: float) -> tuple[int | None, str]:
        """The position in the group and its metadata: the token of who wrote it, and the source topic's id."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            with self._limit_call("the question for the position"):
                group_position = read_committed(
                    self._resident.consumer(self._settings), [TopicPartition(*self._range.source)], timeout_s
                )[0]
        except KafkaException as error:
            raise explain_failure(
                error,
                f"the position of {self._range.topic}-{self._range.partition} in group {self._settings.group} can't be read",
            ) from error
        return (None if group_position.offset < 0 else group_position.offset), group_position.metadata or ""

    def _make_failure(self, error: KafkaException, action: str) -> Exception:
        """Give up; returns what to raise."""
        from confluent_kafka import KafkaError, KafkaException

        from spark_jobs.kafka import kafka_errors

        # A refusal that is known already makes the next call of the transaction one in a wrong state.
        of_a_record = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, kafka_errors.STATE)
        cause = error
        if self._transactional:
            with contextlib.suppress(KafkaException), self._limit_call("poll"):
                self._producer.poll(0)
            cause = find_fatal_reason(self._producer, error)
        else:
            self._resident.drop_plain(self._settings)
        code = error.args[0].code()
        undelivered = code in of_a_record or _UNDELIVERED in str(error)
        if self._failures and code != kafka_errors.FATAL:
            refusal = self._make_record_refusal()
        elif undelivered and self._transactional and not self._settings.explain:
            refusal = Retriable(f"Kafka sink: {action}: {cause.args[0].str()}; {EXPLAIN}")
        else:
            refusal = explain_failure(cause, action)
        self._give_up()
        return refusal

    def _make_record_refusal(self) -> Exception:
        """The error for the first record that Kafka did not take."""
        from confluent_kafka import KafkaError

        offset, error = self._failures[0]
        suffix = f" (and {len(self._failures) - 1} more records)" if len(self._failures) > 1 else ""
        message = (
            f"Kafka sink: the record of {self._range.topic}-{self._range.partition} offset {offset} can't be written to topic "
            f"{self._target}"
        )
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return Fatal(
                f"{message}: it is larger than the topic takes{suffix}. Raise max.message.bytes of {self._target} "
                f"(kafka-configs.sh --alter --entity-type topics --entity-name {self._target} --add-config "
                "max.message.bytes=...; for topics that the sink makes sink.kafka.topic.config.max.message.bytes), and "
                "sink.kafka.producer.message.max.bytes if it is set"
            )
        return explain_failure(error, f"{message}{suffix}")

    def _give_up(self) -> None:
        """Abort what is open; the producer is not used again."""
        from confluent_kafka import KafkaException

        if self._owned is None:
            return
        if self._in_transaction:
            try:
                with self._limit_call("abort_transaction"):
                    self._producer.abort_transaction(min(_ABORT_S, self._settings.timeout_s))
            except KafkaException:
                _log.info("a transaction of %s could not be aborted; the next producer does it", self._id)
        self._in_transaction = False
        self._resident.drop(self._settings, self._id)

    def abandon(self) -> None:
        """The task failed elsewhere: abort."""
        self._give_up()

    def _note_delivery(self, offset: int, error: Any, message: Any) -> None:
        """Record a failure, unless the record failed because it was given up."""
        from spark_jobs.kafka import kafka_errors

        del message
        given_up = (kafka_errors.PURGE_QUEUE, kafka_errors.PURGE_INFLIGHT)
        if error is not None and error.code() not in given_up:
            self._failures.append((offset, error))


def to_millis(column: pa.Array) -> list[int]:
    """Timestamps in ms; 0 (now) for null."""
    import pyarrow as pa

    return [0 if micros is None else micros // 1000 for micros in column.cast(pa.int64()).to_pylist()]


def header_lists(batch: pa.RecordBatch) -> list[list[tuple[str, bytes | None]] | None] | None:
    """Headers per record; None where no record has any."""
    if "headers" not in batch.schema.names:
        return None
    column = batch.column("headers")
    if column.null_count == len(column) or not len(column.flatten()):
        return None
    return [
        [(header["key"], header["value"]) for header in listed] if listed else None for listed in column.to_pylist()
    ]


def write_all(
    batches: Iterator[pa.RecordBatch],
    settings: KafkaSinkSettings,
    ranges: Mapping[tuple[str, int], tuple[int, int]],
    points: Points = no_points,
) -> list[WrittenRecords]:
    """Write a task's batches: runs of records by source partition, each run a ``KafkaPartitionWriter``.

    Raises:
        Fatal, Retriable: as ``KafkaPartitionWriter``; open transactions are aborted.
    """
    import pyarrow.compute as pc

    result: list[WrittenRecords] = []
    writer: KafkaPartitionWriter | None = None
    at: tuple[str, int] | None = None
    try:
        for batch in batches:
            position = 0
            while position < batch.num_rows:
                here = (batch.column("topic")[position].as_py(), batch.column("partition")[position].as_py())
                same = pc.and_(pc.equal(batch.column("topic"), here[0]), pc.equal(batch.column("partition"), here[1]))
                stop = pc.index(same.slice(position), False).as_py()
                length = batch.num_rows - position if stop < 0 else stop
                if here != at:
                    if writer is not None:
                        result.append(writer.finish())
                        writer = None
                    start, end = ranges[here]
                    writer = KafkaPartitionWriter(settings, *here, start, end, points=points)
                    at = here
                if writer is not None:
                    writer.write(batch.slice(position, length))
                position += length
        if writer is not None:
            result.append(writer.finish())
            writer = None
    finally:
        if writer is not None:
            writer.abandon()
    return result
