"""The partitioner: the batch way gives what the single way gives, which is Java's."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from worker.converters.partitioner import choose_partition, choose_partitions, hash_murmur2, positive_hashes

# From Kafka's own UtilsTest, as Java's signed numbers.
KAFKA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), KAFKA_HASHES.items())
def test_known_hashes(key: bytes, expected: int) -> None:
    assert hash_murmur2(key) == expected & 0xFFFFFFFF
    assert choose_partition(key, 12) == (expected & 0x7FFFFFFF) % 12


@given(st.lists(st.binary(max_size=40), max_size=60), st.integers(1, 5000))
def test_a_batch_goes_where_its_keys_go(keys: list[bytes], count: int) -> None:
    assert choose_partitions(keys, count) == [choose_partition(key, count) for key in keys]


@given(st.integers(0, 64), st.integers(1, 40), st.randoms(use_true_random=False))
def test_batches_of_one_length(length: int, count: int, random: object) -> None:
    keys = [random.randbytes(length) for _ in range(count)]  # type: ignore[attr-defined]
    assert list(positive_hashes(keys)) == [aiokafka_murmur2(key) & 0x7FFFFFFF for key in keys]


def test_no_keys() -> None:
    assert choose_partitions([], 3) == []
