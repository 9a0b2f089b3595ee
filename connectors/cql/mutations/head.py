"""The first bytes of mutations and of their partition updates: enough to send them on, without any definition of a table."""

from __future__ import annotations

from typing import Final

from connectors.cql.values import read_unsigned_vint

#: From this version of the log on a mutation begins with a byte of flags, and an update has an epoch behind its table id.
VERSION_WITH_EPOCHS: Final = 9
TABLE_ID_BYTES: Final = 16
#: The least of a timestamp (µs) and of a time of deletion or expiry (s) are written as what they are above 2015-09-22.
TIMESTAMP_EPOCH: Final = 1_442_880_000_000_000
LOCAL_EPOCH: Final = 1_442_880_000
#: Of an update's flags: it says nothing; its regular columns have those of a static row before them.
IS_EMPTY: Final = 1
HAS_STATIC_ROW: Final = 8

#: Table id (16 bytes), start and end of the partition key's bytes, position of the update's flags behind it.
Head = tuple[bytes, int, int, int]

_ONE_BYTE: Final = 0x80
_SIGN: Final = 1 << 63
_WORD: Final = (1 << 64) - 1


def read_mutation_head(data: bytes, start: int, version: int) -> tuple[int, int]:
    """How many partition updates the mutation at ``start`` has, and the position of the first.

    One mutation is of one partition key in one keyspace; its updates are of different tables.

    Args:
        data: bytes that it is in.
        start: where it begins.
        version: of the log's format.

    Raises:
        IndexError, BadValue: the bytes end before.
    """
    if version >= VERSION_WITH_EPOCHS:
        start += 1
    count = data[start]
    return (count, start + 1) if count < _ONE_BYTE else read_unsigned_vint(data, start)


def update_head(data: bytes, pos: int, version: int) -> Head:
    """The table of the partition update at ``pos``, and the position of its key; ``pos`` is where its table id begins.

    Raises:
        IndexError, BadValue: the bytes end before.
    """
    start = pos + TABLE_ID_BYTES
    table_id = data[pos:start]
    if version >= VERSION_WITH_EPOCHS:
        _, start = read_unsigned_vint(data, start)
    size = data[start]
    if size < _ONE_BYTE:
        start += 1
    else:
        size, start = read_unsigned_vint(data, start)
    end = start + size
    return table_id, start, end, end


def least_write_time(data: bytes, pos: int, version: int) -> int:
    """The smallest write time in the partition update at ``pos``, µs since 1970; 0 if it says nothing.

    An overwritten collection counts with its deletion, one µs before its elements.

    Raises:
        IndexError, BadValue: the bytes end before.
    """
    flags = update_head(data, pos, version)[3]
    if data[flags] & IS_EMPTY:
        return 0
    return add_delta(read_unsigned_vint(data, flags + 1)[0], TIMESTAMP_EPOCH)


def add_delta(delta: int, base: int) -> int:
    """A write time from what it is above ``base``: both are 64 bits and may wrap."""
    return (delta + base + _SIGN & _WORD) - _SIGN
