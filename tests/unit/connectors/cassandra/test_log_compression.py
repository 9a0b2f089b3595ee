from __future__ import annotations

import random
import zlib

import pytest

from connectors.cassandra.log.compression import HEAD, find_codec
from connectors.cassandra.log.descriptor import SegmentDamaged
from connectors.errors import Fatal
from tests.support.commitlog import COMPRESSIONS, compress

NAMES = COMPRESSIONS[1:]
LENGTHS = [0, 1, 2, 127, 128, 255, 256, 257, 16_383, 16_384, 65_535, 65_536, 65_792, 70_000, 3_000_000]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["random", "zeros"])
def test_contents_come_back(name: str, kind: str) -> None:
    used = find_codec(name, "a.log")
    for length in LENGTHS:
        data = random.Random(length).randbytes(length) if kind == "random" else bytes(length)
        packed = compress(name, data)
        assert used.plausible(packed[:HEAD], len(packed), length)
        assert used.decompress(packed, length) == data


@pytest.mark.parametrize("name", NAMES)
def test_a_length_that_is_not_that_of_the_contents(name: str) -> None:
    used = find_codec(name, "a.log")
    data = random.Random(1).randbytes(300) + bytes(300)
    packed = compress(name, data)
    for length in (0, 1, 599, 601, 5000, (1 << 31) - 1, (1 << 32) - 1):
        if used.plausible(packed[:HEAD], len(packed), length):
            with pytest.raises(SegmentDamaged, match=f"{length} bytes"):
                used.decompress(packed, length)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_that_became_zero_hide_nothing(name: str) -> None:
    """Zero bytes in place of all that tells a length: the section's, and the one that the compression keeps itself."""
    used = find_codec(name, "a.log")
    packed = compress(name, random.Random(1).randbytes(100))
    for zeros in range(1, 12):
        damaged = bytes(zeros) + packed[zeros:]
        if used.plausible(damaged[:HEAD], len(damaged), 0):
            with pytest.raises(SegmentDamaged, match="0 bytes"):
                used.decompress(damaged, 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_length_far_beyond_the_bytes_takes_no_memory(name: str) -> None:
    assert not find_codec(name, "a.log").plausible(compress(name, bytes(1000))[:HEAD], 30, (1 << 31) - 1)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_bytes_never_give_another_length_or_another_error(name: str) -> None:
    used = find_codec(name, "a.log")
    data = random.Random(2).randbytes(60) + b"abcd" * 30
    packed = compress(name, data)
    noticed = 0
    for at in range(len(packed)):
        damaged = packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]
        for broken in (damaged, packed[:at]):
            if not used.plausible(broken[:HEAD], len(broken), len(data)):
                noticed += 1
                continue
            try:
                assert len(used.decompress(broken, len(data))) == len(data)
            except SegmentDamaged:
                noticed += 1
    assert noticed >= len(packed)


def test_a_longer_deflate_stream_is_not_unpacked() -> None:
    packed = zlib.compress(bytes(5_000_000))
    with pytest.raises(SegmentDamaged, match="Deflate"):
        find_codec("DeflateCompressor", "a.log").decompress(packed, 100)


def test_an_unknown_compressor_is_refused_by_name() -> None:
    with pytest.raises(Fatal, match=r"CommitLog-7-1\.log is compressed by MyCompressor.*commitlog_compression in "):
        find_codec("MyCompressor", "CommitLog-7-1.log")
