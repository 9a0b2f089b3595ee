"""One Kafka record batch being filled, sent and, if need be, sent again by another producer.

``RecordChunk`` has the methods that aiokafka's accumulator calls on its ``BatchBuilder`` (that class costs twice the time per
record, and a batch of it can't be given to a second producer).
"""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Any, Final

from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.host.delivery.commits import CommitUnit

#: Kafka's codec numbers (record batch attributes, bits 0-2).
CODECS: Final = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

# Record batch v2: the CRC covers all that follows it; producer id, epoch and base sequence stand together.
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_STATE: Final = struct.Struct(">qhi")
_STATE_AT: Final = 43
#: Bytes of a record batch's header and of the longest record frame (lengths, deltas, attributes).
OVERHEAD: Final = 61 + 21

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
#: The batch length counts what follows it.
_LENGTH_FROM: Final = 12
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21
_RECORDS_AT: Final = 61
#: Levels of Kafka's Java producer: its default for LZ4 is the library's fast mode, for gzip zlib's default.
_GZIP_LEVEL: Final = 6
_LZ4_LEVEL: Final = 1
_ZSTD_LEVEL: Final = 3

Headers = list[tuple[str, bytes | None]]


def compress_batch(batch: bytearray, codec: int) -> bytearray:
    """A record batch (v2) with its records compressed; the given one is not changed. Takes milliseconds."""
    records = bytes(memoryview(batch)[_RECORDS_AT:])
    if codec == CODECS["gzip"]:
        body = gzip_encode(records, _GZIP_LEVEL)
    elif codec == CODECS["snappy"]:
        body = snappy_encode(records)
    elif codec == CODECS["lz4"]:
        body = lz4_encode(records, _LZ4_LEVEL)
    else:
        body = zstd_encode(records, _ZSTD_LEVEL)
    result: bytearray = batch[:_RECORDS_AT] + body
    _LENGTH.pack_into(result, _LENGTH_AT, len(result) - _LENGTH_FROM)
    attributes = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)[0]
    _ATTRIBUTES.pack_into(result, _ATTRIBUTES_AT, attributes | codec)
    _CRC.pack_into(result, _CRC_AT, calc_crc32c(memoryview(result)[_CRC_FROM:]))
    return result


class RecordChunk:
    """Records for one Kafka partition that travel and are acknowledged together.

    Attributes:
        append: ``(offset, timestamp ms or None, key, value, headers)`` -> None if it doesn't fit; offset counts from 0.
        count: how many records were appended; the appender keeps it.
        units: whose records it holds; each is released when the chunk is acknowledged.
        created_s: loop time in seconds of the first record.
        sent: loop time in seconds when it was given to aiokafka.
        accounted: bytes of it that are in the producer's count of outstanding bytes.
    """

    __slots__ = (
        "_buffer",
        "_builder",
        "_closed",
        "_lock",
        "accounted",
        "append",
        "codec",
        "count",
        "created_s",
        "sent",
        "transactional",
        "units",
    )

    def __init__(self, codec: int, batch_size: int, created_s: float, *, transactional: bool = False) -> None:
        # Uncompressed: aiokafka would compress LZ4 at level 9, about six times as slow as the fast mode Java's default is.
        self._builder = DefaultRecordBatchBuilder(2, 0, int(transactional), -1, -1, 0, batch_size)
        self._buffer: bytearray | None = None
        self._closed = False
        # A thread may still compress it for a producer that was given up when the next one asks for it.
        self._lock = threading.Lock()
        self.append: Callable[[int, int | None, bytes | None, bytes | None, Headers], Any] = self._builder.append
        self.codec = codec
        self.transactional = transactional
        self.count = 0
        self.units: list[CommitUnit] = []
        self.created_s = created_s
        self.sent = 0.0
        self.accounted = 0

    def hold(self, unit: CommitUnit) -> None:
        """Let ``unit`` wait for this chunk's acknowledgement."""
        if not self.units or self.units[-1] is not unit:
            self.units.append(unit)
            unit.holders += 1

    def build(self) -> bytearray:
        """Compress and freeze; safe in a thread as long as nothing is appended."""
        self._closed = True
        with self._lock:
            if self._buffer is None:
                built = self._builder.build()
                self._buffer = compress_batch(built, self.codec) if self.codec else built
            return self._buffer

    def split(self, batch_size: int) -> list[RecordChunk]:
        """Return the same records in chunks of at most ``batch_size`` bytes and at most half as many records each.

        Every chunk holds all units, so no unit is acknowledged before all chunks are.
        """
        max_records = max(1, (self.count + 1) // 2)
        chunks: list[RecordChunk] = []
        for record in DefaultRecordBatch(bytes(self.build())):
            fields = record.timestamp, record.key, record.value, list(record.headers)
            chunk = chunks[-1] if chunks else None
            if chunk is None or chunk.count == max_records or chunk.append(chunk.count, *fields) is None:
                chunk = RecordChunk(self.codec, batch_size, self.created_s, transactional=self.transactional)
                chunks.append(chunk)
                chunk.append(0, *fields)
            chunk.count += 1
        for chunk in chunks:
            chunk.accounted = chunk.size()
            for unit in self.units:
                chunk.hold(unit)
        return chunks

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        """(key, value) of each record, decoded from the batch."""
        return [(record.key, record.value) for record in DefaultRecordBatch(bytes(self.build()))]

    # What aiokafka's accumulator and sender call.

    def close(self) -> None:
        """No more records."""
        self._closed = True

    def closed(self) -> bool:
        """Whether it takes no more records; aiokafka lets an open batch linger."""
        return self._closed

    def record_count(self) -> int:
        """How many records it holds."""
        return self.count

    def size(self) -> int:
        """Bytes so far."""
        return len(self._buffer) if self._buffer is not None else int(self._builder.size())

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        if self._buffer is None:
            self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)
            return
        _STATE.pack_into(self._buffer, _STATE_AT, producer_id, producer_epoch, base_sequence)
        _CRC.pack_into(self._buffer, _CRC_AT, calc_crc32c(memoryview(self._buffer)[_CRC_FROM:]))

    def _build(self) -> bytearray:
        return self.build()
