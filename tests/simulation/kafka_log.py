"""A partition of the modelled Kafka: batches, producers' epochs and sequence numbers, transactions, compaction."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

if TYPE_CHECKING:
    from collections.abc import Callable

#: base offset, length, leader epoch, magic, crc, attributes, last delta, first and last time, producer, epoch, sequence, count.
_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
_CONTROL_BIT: Final = 0x20
_TRANSACTIONAL_BIT: Final = 0x10
#: From the attributes on a batch is covered by its checksum.
_CHECKED_FROM: Final = 21
#: How many batches of a producer a broker remembers.
_REMEMBERED: Final = 5

OUT_OF_RANGE: Final = 1
TOO_LARGE: Final = 10
INVALID_TIMESTAMP: Final = 32
OUT_OF_ORDER: Final = 45
INVALID_EPOCH: Final = 47
INVALID_RECORD: Final = 87


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The records that a topic refuses.

    Attributes:
        largest_batch: the most bytes of a batch (``max.message.bytes``).
        latest_ms: how far beyond the broker's clock a timestamp may be (``message.timestamp.after.max.ms``).
        keyless: whether records without a key are taken; a compacted topic takes none.
    """

    largest_batch: int = 1_048_588
    latest_ms: int = 3_600_000
    keyless: bool = False


@dataclass(slots=True)
class Stored:
    """A batch in the log."""

    base: int
    last: int
    data: bytes
    producer: int
    epoch: int
    transactional: bool
    control: bool


@dataclass(slots=True)
class ProducerState:
    """A partition's knowledge of a producer."""

    epoch: int
    last_sequence: int = -1
    #: first sequence, last sequence, base offset.
    recent: list[tuple[int, int, int]] = field(default_factory=list)


class PartitionLog:
    """One partition."""

    def __init__(self, name: str, number: int, limits: TopicLimits) -> None:
        self.name = name
        self.number = number
        self._limits = limits
        self.batches: list[Stored] = []
        self.end = 0
        self.producers: dict[int, ProducerState] = {}
        #: Producer -> the epoch and the lowest sequence number that the coordinator was asked about, until a batch is written:
        #: a later batch must not overtake one that will be sent again.
        self.unverified: dict[int, tuple[int, int]] = {}
        #: Producer -> first offset of its open transaction.
        self.open: dict[int, int] = {}
        #: producer, first offset, offset of the marker.
        self.aborted: list[tuple[int, int, int]] = []
        self.waiters: list[Callable[[], None]] = []

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min(self.open.values(), default=self.end)

    def append(self, data: bytes, now_ms: int, check_write: Callable[[int, int], int]) -> tuple[int, int]:
        """Append what a producer sent; returns Kafka's error code and the base offset.

        Args:
            data: one batch.
            now_ms: the broker's clock.
            check_write: the coordinator's error code for a producer, with an epoch, that writes in a transaction.
        """
        *_, attributes, delta, _first, newest_ms, producer, epoch, sequence, _count = _HEAD.unpack_from(data)
        transactional = bool(attributes & _TRANSACTIONAL_BIT)
        if producer >= 0 and transactional and (error := self._verify(producer, epoch, sequence, check_write)):
            return error, -1
        if error := self._check_limits(data, newest_ms, now_ms):
            return error, -1
        if producer >= 0:
            state = self.producers.get(producer)
            if state is not None and epoch == state.epoch:
                for first, last, base in state.recent:
                    if first == sequence and last == sequence + delta:
                        return 0, base
            if error := self._check(producer, epoch, sequence):
                return error, -1
            self.unverified.pop(producer, None)
            if state is None or state.epoch != epoch:
                state = self.producers[producer] = ProducerState(epoch)
            state.last_sequence = sequence + delta
            state.recent = [*state.recent[-_REMEMBERED + 1 :], (sequence, sequence + delta, self.end)]
        base = self._store(data, delta, producer, epoch, transactional=transactional, control=False)
        if transactional:
            self.open.setdefault(producer, base)
        self._wake()
        return 0, base

    def _check_limits(self, data: bytes, newest_ms: int, now_ms: int) -> int:
        """The error code for a batch that the topic does not take, whoever sends it."""
        if len(data) > self._limits.largest_batch:
            return TOO_LARGE
        if newest_ms > now_ms + self._limits.latest_ms:
            return INVALID_TIMESTAMP
        if not self._limits.keyless and any(record.key is None for record in MemoryRecords(data).next_batch()):
            return INVALID_RECORD
        return 0

    def _verify(self, producer: int, epoch: int, sequence: int, check_write: Callable[[int, int], int]) -> int:
        """Ask the coordinator, unless the log alone has the answer; returns the error code."""
        state = self.producers.get(producer)
        if state is not None and epoch < state.epoch:
            return INVALID_EPOCH
        if state is not None and epoch == state.epoch and producer in self.open:
            return 0
        known_epoch, lowest = self.unverified.get(producer, (epoch, sequence))
        if epoch > known_epoch or (epoch == known_epoch and sequence < lowest):
            known_epoch, lowest = epoch, sequence
        self.unverified[producer] = known_epoch, lowest
        return check_write(producer, epoch)

    def _check(self, producer: int, epoch: int, sequence: int) -> int:
        """The error code for a batch that is not a repeated one."""
        state = self.producers.get(producer)
        if state is not None and epoch < state.epoch:
            return INVALID_EPOCH
        if producer in self.unverified and sequence > self.unverified[producer][1]:
            return OUT_OF_ORDER
        if state is None:
            return 0
        return 0 if sequence == (state.last_sequence + 1 if epoch == state.epoch else 0) else OUT_OF_ORDER

    def write_marker(self, producer: int, epoch: int, time_ms: int, *, commit: bool) -> None:
        """Write the marker that ends a producer's transaction."""
        state = self.producers.get(producer)
        if state is None or epoch > state.epoch:
            self.producers[producer] = ProducerState(epoch)
        self.unverified.pop(producer, None)
        offset = self.end
        self._store(control_batch(producer, epoch, time_ms, commit=commit), 0, producer, epoch, control=True)
        first = self.open.pop(producer, None)
        if first is not None and not commit:
            self.aborted.append((producer, first, offset))
        self._wake()

    def _store(
        self, data: bytes, delta: int, producer: int, epoch: int, *, transactional: bool = True, control: bool
    ) -> int:
        base = self.end
        self.batches.append(
            Stored(base, base + delta, base.to_bytes(8, "big") + data[8:], producer, epoch, transactional, control)
        )
        self.end = base + delta + 1
        return base

    def _wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter()

    def read(self, position: int, *, committed: bool, at_most: int) -> tuple[int, bytes, list[tuple[int, int]]]:
        """A fetch from ``position``: error code, batches, and the aborted transactions among them."""
        if not 0 <= position <= self.end:
            return OUT_OF_RANGE, b"", []
        limit = self.stable_end if committed else self.end
        parts: list[bytes] = []
        size, last = 0, position
        for batch in self.batches[self._index(position) :]:
            if batch.base >= limit or (parts and size + len(batch.data) > at_most):
                break
            parts.append(batch.data)
            size += len(batch.data)
            last = batch.last
        aborted = [(owner, first) for owner, first, end in self.aborted if end >= position and first <= last]
        return 0, b"".join(parts), aborted if committed else []

    def _index(self, position: int) -> int:
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].last < position:
                low = middle + 1
            else:
                high = middle
        return low

    def compact(self, before: int) -> None:
        """Keep only the newest record of each key below ``before`` and the last stable offset; tombstones stay."""
        before = min(before, self.stable_end)
        newest = {key: offset for offset, key, _value in self.records(committed=True)}
        aborting = {offset for offset, _key, _value in self.records(committed=False)} - {
            offset for offset, _key, _value in self.records(committed=True)
        }
        kept: list[Stored] = []
        for batch in self.batches:
            if batch.control or batch.last >= before:
                kept.append(batch)
                continue
            records = [
                record
                for record in MemoryRecords(batch.data).next_batch()
                if record.offset not in aborting and newest.get(record.key) == record.offset
            ]
            if len(records) == batch.last - batch.base + 1:
                kept.append(batch)
            elif records:
                kept.append(_rebuilt(batch, records))
        self.batches = kept

    def records(self, *, committed: bool, producer: int | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
        """All visible records, or those of one producer: offset, key, value."""
        limit = self.stable_end if committed else self.end
        result: list[tuple[int, bytes | None, bytes | None]] = []
        for batch in self.batches:
            if batch.control or batch.base >= limit or producer not in (None, batch.producer):
                continue
            if committed and any(
                owner == batch.producer and first <= batch.base < end for owner, first, end in self.aborted
            ):
                continue
            result += [(record.offset, record.key, record.value) for record in MemoryRecords(batch.data).next_batch()]
        return result


def control_batch(producer: int, epoch: int, time_ms: int, *, commit: bool) -> bytes:
    """The batch with a transaction's marker."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=True,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=-1,
        batch_size=1 << 16,
    )
    builder.append(0, time_ms, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0), [])
    return _sealed(builder, _CONTROL_BIT)


def _sealed(builder: Any, attributes: int = 0) -> bytes:
    data = bytearray(builder.build())
    if attributes:
        (before,) = struct.unpack_from(">h", data, _CHECKED_FROM)
        struct.pack_into(">h", data, _CHECKED_FROM, before | attributes)
        struct.pack_into(">I", data, _CHECKED_FROM - 4, calc_crc32c(memoryview(data)[_CHECKED_FROM:]))
    return bytes(data)


def _rebuilt(batch: Stored, records: list[Any]) -> Stored:
    """The batch with some of its records only, at their offsets."""
    sequence = _HEAD.unpack_from(batch.data)[-2]
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=batch.transactional,
        producer_id=batch.producer,
        producer_epoch=batch.epoch,
        base_sequence=sequence,
        batch_size=1 << 24,
    )
    for record in records:
        builder.append(record.offset - batch.base, record.timestamp, record.key, record.value, record.headers)
    data = batch.base.to_bytes(8, "big") + _sealed(builder)[8:]
    return Stored(batch.base, records[-1].offset, data, batch.producer, batch.epoch, batch.transactional, control=False)
