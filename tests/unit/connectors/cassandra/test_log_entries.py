from __future__ import annotations

import random
import struct
import zlib
from typing import TYPE_CHECKING

import pytest

from connectors.cassandra.log import entries as framing

if TYPE_CHECKING:
    from connectors.cassandra.model import LogEntry

PADDING = bytes(framing.PADDING)


def _frame(data: bytes, start: int = 0, shift: int = 0) -> tuple[int, int, list[LogEntry]]:
    out: list[LogEntry] = []
    at, code = framing.frame_entries(data + PADDING, start, len(data), shift, out)
    return at, code, out


def _entry(mutation: bytes) -> bytes:
    size = struct.pack(">I", len(mutation))
    return size + struct.pack(">I", zlib.crc32(size)) + mutation + struct.pack(">I", zlib.crc32(size + mutation))


MUTATIONS = [random.Random(size).randbytes(size) for size in (10, 11, 223, 223, 10, 5000, 12)]
DATA = b"".join(map(_entry, MUTATIONS))


def test_an_entry_is_written_as_it_is_read() -> None:
    assert [framing.encode_entry(mutation) for mutation in MUTATIONS] == [_entry(mutation) for mutation in MUTATIONS]


def test_all_entries_with_their_positions() -> None:
    at, code, out = _frame(b"xyz" + DATA, 3, 1000)
    assert (at, code) == (3 + len(DATA), framing.WHOLE)
    assert [(b"xyz" + DATA)[entry.start : entry.end] for entry in out] == MUTATIONS
    assert [entry.position for entry in out] == [entry.end + 4 + 1000 for entry in out]
    assert out[-1].position == len(DATA) + 1003


def test_nothing() -> None:
    assert _frame(b"") == (0, framing.WHOLE, [])


def test_a_cut_at_every_byte_gives_the_entries_before_it() -> None:
    ends = [0]
    for mutation in MUTATIONS:
        ends.append(ends[-1] + len(mutation) + 12)
    for cut in range(len(DATA)):
        at, code, out = _frame(DATA[:cut])
        whole = sum(end <= cut for end in ends) - 1
        assert (len(out), at) == (whole, ends[whole])
        # What is too short for a size is no entry.
        assert code == (framing.WHOLE if cut - at < 4 else framing.CUT)


@pytest.mark.parametrize("mask", [1, 0x80, 0xFF])
def test_every_damaged_byte_is_noticed(mask: int) -> None:
    data = b"".join(map(_entry, MUTATIONS[:4]))
    begin = 0
    for index, mutation in enumerate(MUTATIONS[:4]):
        for at in range(begin, begin + len(mutation) + 12):
            where, code, out = _frame(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])
            assert (where, len(out)) == (begin, index)
            assert code == (framing.SIZE if at - begin < 8 else framing.BODY)
        begin += len(mutation) + 12


def test_zero_bytes() -> None:
    assert _frame(DATA + bytes(100))[:2] == (len(DATA), framing.ZERO)
    assert _frame(DATA + bytes(8))[:2] == (len(DATA), framing.ZERO)


@pytest.mark.parametrize("size", [0, 1, 9])
def test_a_size_too_small_for_a_mutation(size: int) -> None:
    assert _frame(DATA + _entry(bytes(size)) + DATA)[:2] == (len(DATA), framing.SMALL)


def test_a_size_that_was_seen_is_verified_again() -> None:
    first, second = _entry(bytes(20)), bytearray(_entry(bytes(20)))
    second[5] ^= 1
    assert _frame(first + bytes(second))[:2] == (len(first), framing.SIZE)


def test_many_different_sizes() -> None:
    mutations = [bytes(size) for size in range(10, 5000)]
    data = b"".join(map(_entry, mutations))
    at, code, out = _frame(data)
    assert (at, code, len(out)) == (len(data), framing.WHOLE, len(mutations))


def test_sound() -> None:
    assert framing.is_sound(DATA)
    assert not framing.is_sound(DATA[1:])
    assert not framing.is_sound(DATA[:7])
    assert not framing.is_sound(bytes(20))
    assert framing.size_at(DATA, 0) == 10
