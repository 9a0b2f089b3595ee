"""Writes chunks of a log as a broker stores them, for tests of their reading."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

_CONTROL = 0x20
_ATTRIBUTES_AT = 21
_LAST_DELTA_AT = 23
_CRC_AT = 17


@dataclass(frozen=True)
class LogRecord:
    """A record; ``offset`` is absolute."""

    offset: int
    key: bytes | None
    value: bytes | None


def batch(
    base: int,
    records: list[LogRecord],
    *,
    last: int | None = None,
    producer: int = -1,
    transactional: bool = False,
    control: bool = False,
    compression: int = 0,
) -> bytes:
    """A batch from ``base`` to ``last`` (an offset; compaction keeps it when it removes records, even all of them)."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=int(transactional),
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for record in records:
        builder.append(
            record.offset - base, timestamp=1000 + record.offset, key=record.key, value=record.value, headers=[]
        )
    data = bytearray(builder.build())
    if last is None:
        last = records[-1].offset
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">i", data, _LAST_DELTA_AT, last - base)
    if control:
        (attributes,) = struct.unpack_from(">h", data, _ATTRIBUTES_AT)
        struct.pack_into(">h", data, _ATTRIBUTES_AT, attributes | _CONTROL)
    struct.pack_into(">I", data, _CRC_AT, calc_crc32c(bytes(data[_ATTRIBUTES_AT:])))
    return bytes(data)


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction."""
    return batch(
        offset,
        [LogRecord(offset, struct.pack(">hh", 0, int(commit)), b"\0" * 6)],
        producer=producer,
        transactional=True,
        control=True,
    )
