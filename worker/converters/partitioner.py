"""The partition that a key belongs to: Java's default partitioner (murmur2 of the key's bytes) at a tenth of its usual cost.

A batch of keys is hashed at once: the keys of one length become two long integers that hold each of their 32-bit words in
a lane of 64 bits. One multiplication, shift or exclusive or of the long integers then does that step for all keys, in C. The
product of two 32-bit numbers fits its lane, so lanes never touch.

Keyless records are not handled here: the task runner spreads them by batch.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_LANE: Final = (1).to_bytes(8, "little")
#: Below this many keys of one length the long integers don't pay.
_VECTOR_MINIMUM: Final = 6


def hash_murmur2(data: bytes) -> int:
    """Java's ``Utils.murmur2`` as an unsigned number; source: Kafka's ``org.apache.kafka.common.utils.Utils``."""
    length = len(data)
    hashed = _SEED ^ length & _WORD
    tail = length & 3
    for word in struct.unpack_from(f"<{length >> 2}I", data):
        word = word * _M & _WORD  # noqa: PLW2901 - a name of its own would cost a tenth of the time
        hashed = hashed * _M & _WORD ^ (word ^ word >> 24) * _M & _WORD
    if tail:
        hashed = (hashed ^ int.from_bytes(data[-tail:], "little")) * _M & _WORD
    hashed = (hashed ^ hashed >> 13) * _M & _WORD
    return hashed ^ hashed >> 15


def choose_partition(key: bytes, count: int) -> int:
    """The partition, of ``count``, that ``key`` belongs to."""
    return (hash_murmur2(key) & _POSITIVE) % count


def choose_partitions(keys: Sequence[bytes], count: int) -> list[int]:
    """The partitions, of ``count``, that ``keys`` belong to, in their order."""
    return [hashed % count for hashed in positive_hashes(keys)]


def positive_hashes(keys: Sequence[bytes]) -> Sequence[int]:
    """``toPositive(murmur2(key))`` of each key, in order; the partition is its remainder by their number."""
    lengths = list(map(len, keys))
    kinds = set(lengths)
    if len(kinds) == 1:
        return _hashes_of_length(keys, lengths[0])
    result = [0] * len(keys)
    indexes_by_length: dict[int, list[int]] = {length: [] for length in kinds}
    for index, length in enumerate(lengths):
        indexes_by_length[length].append(index)
    for length, group in indexes_by_length.items():
        for index, hashed in zip(group, _hashes_of_length([keys[index] for index in group], length), strict=True):
            result[index] = hashed
    return result


def _hashes_of_length(keys: Sequence[bytes], length: int) -> Sequence[int]:
    count = len(keys)
    if count < _VECTOR_MINIMUM or length < 4:
        return [hash_murmur2(key) & _POSITIVE for key in keys]
    pairs = length + 7 >> 3  # lanes that one key takes
    padding = bytes(pairs * 8 - length)
    joined = padding.join(keys) + padding
    lowest_bits = int.from_bytes(_LANE * (count * pairs), "little")
    lanes = lowest_bits * _WORD
    words = int.from_bytes(joined, "little")
    even = _split_lanes(_mix_words(words & lanes, lanes), count * pairs)
    odd_words = _split_lanes(_mix_words(words >> 32 & lanes, lanes), count * pairs)
    lowest_bits = lowest_bits & (1 << 64 * count) - 1
    lanes = lowest_bits * _WORD
    hashed = lowest_bits * (_SEED ^ length & _WORD)
    whole = length >> 2
    for word in range(whole):
        column = (odd_words if word & 1 else even)[word >> 1 :: pairs]
        hashed = (hashed * _M & lanes) ^ int.from_bytes(_to_little(column).tobytes(), "little")
    if length & 3:
        raw = array("Q")
        raw.frombytes(joined)
        column = _to_little(_to_little(raw)[whole >> 1 :: pairs])
        tail = int.from_bytes(column.tobytes(), "little") >> (32 if whole & 1 else 0) & lanes
        hashed = (hashed ^ tail) * _M & lanes
    hashed = (hashed ^ hashed >> 13 & lanes) * _M & lanes
    return _split_lanes((hashed ^ hashed >> 15 & lanes) & lowest_bits * _POSITIVE, count)


def _mix_words(words: int, lanes: int) -> int:
    words = words * _M & lanes
    return (words ^ words >> 24 & lanes) * _M & lanes


def _split_lanes(number: int, count: int) -> array[int]:
    """The ``count`` lanes of ``number``."""
    result = array("Q")
    result.frombytes(number.to_bytes(count * 8, "little"))
    return _to_little(result)


def _to_little(lanes: array[int]) -> array[int]:
    """``lanes`` between little-endian bytes and this machine's numbers; the same object where these are alike."""
    if sys.byteorder == "big":
        lanes = array("Q", lanes)
        lanes.byteswap()
    return lanes
