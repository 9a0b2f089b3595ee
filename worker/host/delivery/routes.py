"""Where records of a topic go: batches being filled for each of its partitions. All pure; ``producer`` sends them."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol

from connectors import topic_names
from connectors.errors import Skippable
from worker.converters.partitioner import choose_partitions as partitions_of
from worker.host.delivery.chunk import CODECS, OVERHEAD, Headers, RecordChunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from worker.host.delivery.commits import CommitUnit

#: Bytes per batch unless ``batch.size`` says otherwise: 16 KB, Java's default, would cost four times the CPU per record here.
DEFAULT_BATCH_SIZE: Final = 512 * 1024
DEFAULT_MAX_REQUEST_SIZE: Final = 1024 * 1024
NO_HEADERS: Final[Headers] = []


class RecordTooLarge(Skippable):
    """A record is larger than what the producer or the topic accepts."""


def topic_complaint(topic: object) -> str | None:
    """Why Kafka can't have a topic of this name, and how to fix it; None if it can."""
    reason = topic_names.find_problem(topic)
    return (
        None
        if reason is None
        else (
            f"invalid topic name {topic!r}: {reason}. Correct the connector's option that names the topic, or the transform "
            "that gives it another name"
        )
    )


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How to make a producer.

    Attributes:
        arguments: keyword arguments of ``AIOKafkaProducer``; ``transactional_id`` among them makes it transactional.
        max_rows: records that may be unacknowledged before ``room`` closes.
        max_bytes: bytes that may be, before compression.
        stall_s: seconds without an acknowledgement after which the producer is taken for hung.
        connection: the properties that connections are made with; producers for which they are equal may share them.
    """

    arguments: dict[str, Any]
    max_rows: int = 20_000
    max_bytes: int = 32 * 1024 * 1024
    stall_s: float = 60.0
    connection: frozenset[tuple[str, str]] = frozenset()

    @property
    def max_request_size(self) -> int:
        """Largest record in bytes, as for Java's ``max.request.size``."""
        return int(self.arguments.get("max_request_size", DEFAULT_MAX_REQUEST_SIZE))

    @property
    def batch_size(self) -> int:
        """Bytes of a batch; never above the largest request."""
        return min(int(self.arguments.get("max_batch_size", DEFAULT_BATCH_SIZE)), self.max_request_size)

    @property
    def linger_s(self) -> float:
        """Seconds a batch that is not full may wait for more records."""
        return float(self.arguments.get("linger_ms", 0)) / 1000

    @property
    def transactional(self) -> bool:
        """Whether it writes in transactions."""
        return "transactional_id" in self.arguments


@dataclass(slots=True, eq=False)
class TopicPartitionWriter:
    """The records that wait for, or are on their way to, one partition, and the task that sends them."""

    topic: str
    partition: int
    batch_size: int
    chunk: RecordChunk | None = None
    full: deque[RecordChunk] = field(default_factory=deque)
    unacked: deque[RecordChunk] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    #: Loop time since which the topic lacks this partition.
    unknown_since: float | None = None

    def roll(self) -> None:
        """Close the batch that is being filled and queue it."""
        if self.chunk is not None:
            self.full.append(self.chunk)
            self.chunk = None
            self.wake.set()


class RecordSink(Protocol):
    """The part of a producer that a ``TopicRoute`` needs."""

    settings: ProducerSettings

    def check(self) -> None:
        """Raise if nothing may be written any more."""

    def available(self, topic: str) -> list[int]:
        """The topic's partitions that have a leader, as far as is known."""

    def account(self, rows: int, size: int) -> None:
        """Count what was appended."""

    def serve(self, writer: TopicPartitionWriter) -> None:
        """Begin to send what a new writer gets."""


class TopicRoute:
    """Places records of one topic on its partitions, as Kafka's default partitioner does (KIP-794 for null keys).

    Attributes:
        partitions: how many the topic has.
        writers: of the partitions that were written to; a task of thousands writes to few of a topic's partitions.
        refresh_at: loop time from which on the number of partitions is to be looked at again.
    """

    __slots__ = ("_batch_size", "_producer", "_since_move", "_sticky", "_topic", "partitions", "refresh_at", "writers")

    def __init__(self, producer: RecordSink, topic: str, batch_size: int) -> None:
        self._producer = producer
        self._topic = topic
        self._batch_size = batch_size
        self._sticky = -1
        self._since_move = 0
        self.partitions = 0
        self.writers: dict[int, TopicPartitionWriter] = {}
        self.refresh_at = 0.0

    def grow(self, partitions: int) -> None:
        """Use ``partitions`` partitions from now on; a topic never shrinks."""
        self.partitions = max(self.partitions, partitions)
        if self._sticky < 0:
            self._move_writer()

    def _add_writer(self, partition: int) -> TopicPartitionWriter:
        writer = self.writers[partition] = TopicPartitionWriter(self._topic, partition, self._batch_size)
        self._producer.serve(writer)
        return writer

    def _sticky_writer(self) -> TopicPartitionWriter:
        return self.writers.get(self._sticky) or self._add_writer(self._sticky)

    def _move_writer(self) -> None:
        """Let records that any partition may have go to another one, if it has a leader."""
        self._since_move = 0
        count = self.partitions
        usable = [number for number in self._producer.available(self._topic) if number < count] or range(count)
        self._sticky = random.choice(usable)  # noqa: S311 - spreads load

    def shrink(self, batch_size: int) -> None:
        """Use smaller batches from now on."""
        self._batch_size = batch_size
        for writer in self.writers.values():
            writer.batch_size = batch_size

    def append(
        self,
        unit: CommitUnit,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        partitions: Sequence[int | None] | None = None,
        timestamps: Sequence[int | None] | None = None,
        headers: Sequence[Headers] | None = None,
        partition_keys: Sequence[bytes | None] | None = None,
    ) -> list[tuple[int, Exception]]:
        """Append records in order; None stands for "all None" or "no headers". Does not wait: ask ``room`` before.

        ``partition_keys`` are keys that choose the partition instead of ``keys``.

        Returns:
            (index, error) of records that can't be sent: too large, or for a partition that does not exist.

        Raises:
            Fenced: the producer is closed.
        """
        self._producer.check()
        times: Iterable[int | None] = repeat(None) if timestamps is None else timestamps
        heads: Iterable[Headers] = repeat(NO_HEADERS) if headers is None else headers
        if partitions is None and (keys is None or self.partitions == 1):
            return self._append_to_one(unit, values, keys or repeat(None), times, heads)
        refused: list[tuple[int, Exception]] = []
        writers = self.writers
        count = self.partitions
        touched: set[RecordChunk] = set()
        for index, (target, value, key, timestamp, head) in enumerate(
            zip(
                self._choose_targets(_chosen_keys(keys, partition_keys), partitions, len(values)),
                values,
                keys or repeat(None),
                times,
                heads,
                strict=False,
            )
        ):
            if target >= count:
                asked = None if partitions is None else partitions[index]
                refused.append((index, Skippable(f"topic {self._topic!r} has no partition {asked}, only {count}")))
                continue
            writer = writers.get(target) or self._add_writer(target)
            chunk = writer.chunk
            if chunk is not None and chunk.append(chunk.count, timestamp, key, value, head) is not None:
                chunk.count += 1
                if chunk not in touched:
                    touched.add(chunk)
                    chunk.hold(unit)
                continue
            chunk = self._append_record(writer, timestamp, key, value, head)
            if chunk is None:
                refused.append((index, self._too_large(key, value, head)))
                continue
            touched.add(chunk)
            chunk.hold(unit)
        self._count_bytes(touched, len(values) - len(refused))
        return refused

    def _choose_targets(
        self, keys: Sequence[bytes | None] | None, partitions: Sequence[int | None] | None, rows: int
    ) -> Sequence[int]:
        """The partition of each record: the given one, else its key's, else one for all that have neither."""
        count = self.partitions
        if keys is None:
            hashed: Sequence[int] = [self._sticky] * rows
        else:
            present_keys = [key for key in keys if key is not None]
            hashed = partitions_of(present_keys, count)
            if len(present_keys) < rows:
                following = iter(hashed)
                hashed = [self._sticky if key is None else next(following) for key in keys]
        if partitions is None:
            return hashed
        # A negative partition can't exist; it must not count from the end.
        return [
            target if chosen is None else chosen if chosen >= 0 else count
            for target, chosen in zip(hashed, partitions, strict=True)
        ]

    def _append_to_one(
        self,
        unit: CommitUnit,
        values: Sequence[bytes | None],
        keys: Iterable[bytes | None],
        timestamps: Iterable[int | None],
        headers: Iterable[Headers],
    ) -> list[tuple[int, Exception]]:
        """All to one partition, and to another one when its batch is full. The hot path: nothing is looked up per record."""
        refused: list[tuple[int, Exception]] = []
        touched: set[RecordChunk] = set()
        writer = self._sticky_writer()
        chunk = writer.chunk
        append, count = (chunk.append, chunk.count) if chunk is not None else (None, 0)
        for index, (value, key, timestamp, head) in enumerate(zip(values, keys, timestamps, headers, strict=False)):
            if append is not None and append(count, timestamp, key, value, head) is not None:
                count += 1
                continue
            if chunk is not None:
                if count > chunk.count:
                    touched.add(chunk)
                    chunk.count = count
                writer.roll()
                self._move_writer()
                writer = self._sticky_writer()
            placed = self._append_record(writer, timestamp, key, value, head)
            if placed is None:
                refused.append((index, self._too_large(key, value, head)))
                chunk = writer.chunk
            else:
                touched.add(placed)
                chunk = placed
            append, count = (chunk.append, chunk.count) if chunk is not None else (None, 0)
        if chunk is not None and count > chunk.count:
            touched.add(chunk)
            chunk.count = count
        for chunk in touched:
            chunk.hold(unit)
        self._count_bytes(touched, len(values) - len(refused))
        return refused

    def _append_record(
        self, writer: TopicPartitionWriter, timestamp: int | None, key: bytes | None, value: bytes | None, head: Headers
    ) -> RecordChunk | None:
        """Append to the writer's chunk, or to a new one if it doesn't fit; None if it is too large for any."""
        size = (
            len(key or b"")
            + len(value or b"")
            + OVERHEAD
            + sum(len(name) * 4 + len(data or b"") + 10 for name, data in head)
        )
        if size > self._producer.settings.max_request_size:
            return None
        chunk = writer.chunk
        if chunk is not None:
            if chunk.append(chunk.count, timestamp, key, value, head) is not None:
                chunk.count += 1
                return chunk
            writer.roll()
        settings = self._producer.settings
        chunk = writer.chunk = RecordChunk(
            CODECS[settings.arguments.get("compression_type")],
            writer.batch_size,
            asyncio.get_running_loop().time(),
            transactional=settings.transactional,
        )
        chunk.append(0, timestamp, key, value, head)
        chunk.count = 1
        return chunk

    def _too_large(self, key: bytes | None, value: bytes | None, head: Headers) -> RecordTooLarge:
        size = len(key or b"") + len(value or b"") + sum(len(name) + len(data or b"") for name, data in head)
        return RecordTooLarge(
            f"a record for topic {self._topic!r} is {size} bytes when serialized, which is "
            f"larger than max.request.size ({self._producer.settings.max_request_size}): raise "
            "producer.override.max.request.size and the topic's max.message.bytes"
        )

    def _count_bytes(self, touched: set[RecordChunk], rows: int) -> None:
        size = 0
        for chunk in touched:
            now = chunk.size()
            size += now - chunk.accounted
            chunk.accounted = now
        self._producer.account(rows, size)
        self._since_move += size
        if self._since_move >= self._batch_size:
            self._move_writer()

    def kick(self) -> None:
        """A poll ended: let idle partitions send what they have (after ``linger.ms``)."""
        for writer in self.writers.values():
            if writer.chunk is not None and not writer.unacked:
                writer.wake.set()


def _chosen_keys(
    keys: Sequence[bytes | None] | None, partition_keys: Sequence[bytes | None] | None
) -> Sequence[bytes | None] | None:
    """The key that chooses each record's partition."""
    if partition_keys is None:
        return keys
    return [
        own_key if partition_key is None else partition_key
        for own_key, partition_key in zip(keys or repeat(None), partition_keys, strict=False)
    ]
