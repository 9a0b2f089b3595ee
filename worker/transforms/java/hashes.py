"""Hashes of values as Java computes them: ``hashCode`` and Debezium's 32 bits of MurmurHash3.

Source: the documentation of ``hashCode`` of Java's classes, io.debezium.util.MurmurHash3 of Debezium 3.5. A value without a
hash that is the same in each JVM has none here.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from functools import partial, reduce
from itertools import chain, combinations, islice
from operator import mul, xor
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MASK32: Final = 0xFFFFFFFF
_MASK64: Final = 0xFFFFFFFFFFFFFFFF
_DAY_MS: Final = 86_400_000
_SEED: Final = 9001
_H1: Final = 0x9368E53C2F6AF274 ^ _SEED
_H2: Final = 0x586DCD208F7CD3FD ^ _SEED
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = struct.Struct("<QQ").unpack_from
_H2_TURNED: Final = _H2 << 41 | _H2 >> 23
#: What the signs of an integer's four bytes do to the places above them, by those signs.
_SIGNS: Final = {
    sum(0x80 << 8 * byte_index for byte_index in byte_indexes): reduce(
        xor, (-1 << 8 * (byte_index + 1) for byte_index in byte_indexes), 0
    )
    & _MASK64
    for count in range(5)
    for byte_indexes in combinations(range(4), count)
}
#: Up to this string length, the powers of 31 that characters are multiplied with are precomputed.
_POWERS_KNOWN: Final = 64
_POWERS: Final = tuple(
    tuple(pow(31, exponent, 1 << 32) for exponent in reversed(range(length))) for length in range(_POWERS_KNOWN + 1)
)
_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 256
_NAN32: Final = 0x7FC00000
_NAN64: Final = 0x7FF8000000000000


def _block_factors(c1: int, c2: int) -> Iterator[tuple[int, int]]:
    """Yield the factors of the blocks that follow a block with these factors."""
    while True:
        c1 = c1 * 5 + 0x7B7D159C & _MASK64
        c2 = c2 * 5 + 0x6BCE6396 & _MASK64
        yield c1, c2


#: Those of the first blocks.
_FACTORS_KNOWN: Final = 64
_FACTORS: Final = ((_C1, _C2), *islice(_block_factors(_C1, _C2), _FACTORS_KNOWN - 1))


def java_hash(value: Any, schema: Schema) -> int:
    """The value's ``hashCode``, as an unsigned number of 32 bits; of null it is 0.

    BYTES are hashed as the ByteBuffer that Debezium's connectors put into records.

    Raises:
        Skippable: a struct, whose hash differs from JVM to JVM.
    """
    return 0 if value is None else java_hasher(schema)(value)


def java_hasher(schema: Schema) -> Callable[[Any], int]:
    """``java_hash`` for the values of one schema, other than null."""
    if schema.name == DECIMAL:
        return _hash_decimal
    if schema.name == DATE:
        return lambda value: _hash_long(value * _DAY_MS)
    if schema.name in (TIME, TIMESTAMP) or schema.type is Type.INT64:
        return _hash_long
    if schema.type is Type.STRING:
        return _hash_text
    if schema.type in (Type.INT8, Type.INT16, Type.INT32):
        return lambda value: int(value) & _MASK32
    return lambda value: _hash_of(schema.type, value, schema)


def murmur_hasher(schema: Schema) -> Callable[[Any], int]:
    """Debezium's MurmurHash3 of the values of one schema, other than null: strings as UTF-8, all else by ``hashCode``.

    The function gives an unsigned number of 32 bits.

    Raises:
        Skippable: by the function, as ``java_hash``.
    """
    hashed = java_hasher(schema)

    def murmur(value: Any) -> int:
        if isinstance(value, str):
            return hash_murmur3(value.encode("utf-8", "replace"))
        number = hashed(value)
        return _murmur3_of_word(number ^ _SIGNS[number & 0x80808080], 4)

    return murmur


def remembering(function: Callable[[Any], int], cache: dict[Any, int]) -> Callable[[Any], int]:
    """``function``, which keeps its results in ``cache``: of 4096 values at most, and of none that is a long text."""

    def remembered(value: Any) -> int:
        result = function(value)
        if len(cache) >= _REMEMBERED:
            cache.clear()
        if not isinstance(value, str) or len(value) <= _LONGEST_REMEMBERED:
            cache[value] = result
        return result

    return remembered


def _hash_of(kind: Type, value: Any, schema: Schema) -> int:
    match kind:
        case Type.BOOLEAN:
            return 1231 if value else 1237
        case Type.FLOAT32:
            return int(_NAN32 if value != value else struct.unpack("<I", struct.pack("<f", value))[0])  # noqa: PLR0124 - NaN
        case Type.FLOAT64:
            return _hash_long(_NAN64 if value != value else struct.unpack("<q", struct.pack("<d", value))[0])  # noqa: PLR0124 - NaN
        case Type.BYTES:
            return _hash_rolling((byte - 256 if byte > 127 else byte for byte in reversed(value)), 1)
        case Type.ARRAY if schema.value_schema is not None:
            return _hash_rolling(map(partial(java_hash, schema=schema.value_schema), value), 1)
        case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
            return (
                sum(
                    java_hash(key, schema.key_schema) ^ java_hash(member, schema.value_schema)
                    for key, member in value.items()
                )
                & _MASK32
            )
    raise Skippable("a struct has no hash that is the same everywhere: name the fields inside it")


def _hash_text(string: str) -> int:
    if string.isascii():
        if len(string) <= _POWERS_KNOWN:
            return int(sum(map(mul, string.encode(), _POWERS[len(string)]))) & _MASK32
        return _hash_rolling(iter(string.encode()), 0)
    data = string.encode("utf-16-le", "surrogatepass")
    return _hash_rolling((unit for (unit,) in struct.iter_unpack("<H", data)), 0)


def _hash_rolling(items: Iterator[int], start: int) -> int:
    result = start
    for item in items:
        result = (result * 31 + item) & _MASK32
    return result


def _hash_long(number: int) -> int:
    number &= _MASK64
    return (number ^ number >> 32) & _MASK32


def unscaled_and_scale(number: Decimal) -> tuple[int, int]:
    """A finite number as BigDecimal holds it: its digits as an integer, and how many of them stand after the point."""
    sign, digits, exponent = number.as_tuple()
    # Not by way of a string: of more than 4,300 digits Python makes no integer.
    return int(Decimal((sign, digits, 0))), -int(exponent)


def _hash_decimal(number: Decimal) -> int:
    whole, scale = unscaled_and_scale(number)
    magnitude = abs(whole)
    words = magnitude.to_bytes((magnitude.bit_length() + 31) // 32 * 4, "big")
    unscaled = _hash_rolling((word for (word,) in struct.iter_unpack(">I", words)), 0)
    return (31 * (-unscaled if whole < 0 else unscaled) + scale) & _MASK32


def hash_murmur3(data: bytes) -> int:
    """The upper 32 bits of the 64-bit hash that Debezium computes, with its seed."""
    length = len(data)
    if length <= 8:
        return _murmur3_of_word(_read_tail(data), length)
    h1, h2, mask, at = _H1, _H2, _MASK64, 0
    factors = _FACTORS if length < 16 * _FACTORS_KNOWN else chain(_FACTORS, _block_factors(*_FACTORS[-1]))
    # Numbers are cut to 64 bits only where higher bits would come down again, and rotations are written out: a call costs more.
    for c1, c2 in factors:  # there are always enough
        if length - at < 16:
            break
        low, high = _BLOCK(data, at)
        at += 16
        k1 = low * c1 & mask
        h1 = (h1 ^ (k1 << 23 | k1 >> 41) * c2) + h2
        k2 = high * c2 & mask
        h2 = ((h2 << 41 | h2 >> 23) ^ (k2 << 23 | k2 >> 41) * c1) + h1
        h1 = h1 * 3 + 0x52DCE729 & mask
        h2 = h2 * 3 + 0x38495AB5 & mask
    if at != length:
        k1 = _read_tail(data[at : at + 8]) * c1 & mask
        h1 = (h1 ^ (k1 << 23 | k1 >> 41) * c2) + h2
        h2 = h2 << 41 | h2 >> 23
        if length - at > 8:
            k2 = _read_tail(data[at + 8 :]) * c2 & mask
            h2 ^= (k2 << 23 | k2 >> 41) * c1
        h2 = (h2 + h1) * 3 + 0x38495AB5 & mask
        h1 = h1 * 3 + 0x52DCE729
    return _mix_words(h1, h2 ^ length)


def _murmur3_of_word(tail: int, length: int) -> int:
    """``hash_murmur3`` of at most 8 bytes, given as ``_read_tail`` does."""
    if not length:
        return _mix_words(_H1, _H2)
    k1 = tail * _C1 & _MASK64
    h1 = (_H1 ^ (k1 << 23 | k1 >> 41) * _C2) + _H2
    h2 = (_H2_TURNED + h1) * 3 + 0x38495AB5 & _MASK64
    return _mix_words(h1 * 3 + 0x52DCE729, h2 ^ length)


def _mix_words(h1: int, h2: int) -> int:
    mask = _MASK64
    h1 = h1 + h2 & mask
    h2 = h2 + h1 & mask
    h1 = (h1 ^ h1 >> 33) * 0xFF51AFD7ED558CCD & mask
    h1 = (h1 ^ h1 >> 33) * 0xC4CEB9FE1A85EC53 & mask
    h2 = (h2 ^ h2 >> 33) * 0xFF51AFD7ED558CCD & mask
    h2 = (h2 ^ h2 >> 33) * 0xC4CEB9FE1A85EC53 & mask
    return ((h1 ^ h1 >> 33) + (h2 ^ h2 >> 33) & mask) >> 32


def _read_tail(data: bytes) -> int:
    """Bytes of the last block: signed, as Java's are, so that they reach into the places above their own."""
    if data.isascii():
        return int.from_bytes(data, "little")
    result = 0
    for index, byte in enumerate(data):
        result ^= (byte - 256 if byte > 127 else byte) << 8 * index
    return result & _MASK64
