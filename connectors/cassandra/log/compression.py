"""The compressions of commit log sections. Pure: no input or output happens here."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import cramjam

from connectors.cassandra.log.descriptor import SegmentDamaged
from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Callable

#: Number of first bytes of a section's compressed bytes that `Codec.plausible` needs.
HEAD: Final = 18

#: Most bytes of contents for a byte of a raw LZ4 block, of a Snappy block (64 for three), of Deflate (1,032 in theory).
_LZ4_RATIO: Final = 256
_SNAPPY_RATIO: Final = 22
_DEFLATE_RATIO: Final = 1100
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


class Codec(NamedTuple):
    """A compression.

    Attributes:
        plausible: ``(first bytes, how many there are in all, length of the contents) -> bool``: whether they can belong
            together. To be asked before ``decompress``: no checksum covers the length, and it decides how much memory is taken.
        decompress: ``(bytes, length of the contents) -> contents``. Raises SegmentDamaged when the bytes don't give just that
            length.
    """

    plausible: Callable[[bytes, int, int], bool]
    decompress: Callable[[bytes, int], bytes]


def find_codec(name: str, file: str) -> Codec:
    """The compression with a compressor's simple class name.

    Raises:
        Fatal: the compression is not supported; the message names the file.
    """
    match = _CODECS.get(name)
    if match is None:
        raise Fatal(
            f"{file} is compressed by {name}, which can't be read: use one of {', '.join(_CODECS)} as class_name under "
            f"commitlog_compression in cassandra.yaml, or none, and restart that node"
        )
    return match


def _lz4_plausible(head: bytes, size: int, length: int) -> bool:
    # Cassandra puts the length before the block, little-endian.
    return len(head) >= 4 and int.from_bytes(head[:4], "little") == length <= size * _LZ4_RATIO


def _decompress_lz4(data: bytes, length: int) -> bytes:
    if not length:
        # Of nothing there is a token that says so; bytes behind it were something.
        if len(data) > 5:
            raise _describe_damage("LZ4", length)
        return b""
    try:
        return _check_size("LZ4", bytes(cramjam.lz4.decompress_block(data[4:], output_len=length)), length)
    except cramjam.DecompressionError as error:
        raise _describe_damage("LZ4", length) from error


def _snappy_plausible(head: bytes, size: int, length: int) -> bool:
    # The block begins with its length: seven bits a byte, the low ones first.
    stated_length = shift = 0
    for byte in head[:5]:
        stated_length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return stated_length == length <= size * _SNAPPY_RATIO
    return False


def _decompress_snappy(data: bytes, length: int) -> bytes:
    try:
        return _check_size("Snappy", bytes(cramjam.snappy.decompress_raw(data)), length)
    except cramjam.DecompressionError as error:
        raise _describe_damage("Snappy", length) from error


def _deflate_plausible(_head: bytes, size: int, length: int) -> bool:
    return length <= size * _DEFLATE_RATIO


def _decompress_deflate(data: bytes, length: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        # One byte more than expected, so that a longer stream is noticed.
        result = stream.decompress(data, length + 1)
    except zlib.error as error:
        raise _describe_damage("Deflate", length) from error
    if not stream.eof or stream.unused_data:
        raise _describe_damage("Deflate", length)
    return _check_size("Deflate", result, length)


def _zstd_plausible(head: bytes, _size: int, length: int) -> bool:
    """Whether a frame's header (RFC 8878, 3.1.1.1) tells that length; Cassandra's always tell it."""
    if head[:4] != _ZSTD_MAGIC or len(head) < 6:
        return False
    flags = head[4]
    single, width = flags & 0x20, flags >> 6
    if not single and not width:
        return False
    start = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    stated_length = int.from_bytes(head[start : start + (1 << width)], "little")
    return length == (stated_length + 256 if width == 1 else stated_length)


def _decompress_zstd(data: bytes, length: int) -> bytes:
    try:
        return _check_size("Zstd", bytes(cramjam.zstd.decompress(data)), length)
    except cramjam.DecompressionError as error:
        raise _describe_damage("Zstd", length) from error


def _check_size(name: str, result: bytes, length: int) -> bytes:
    if len(result) != length:
        raise _describe_damage(name, length)
    return result


def _describe_damage(name: str, length: int) -> SegmentDamaged:
    return SegmentDamaged(f"the section is no {name} block of {length} bytes")


_CODECS: Final[dict[str, Codec]] = {
    "LZ4Compressor": Codec(_lz4_plausible, _decompress_lz4),
    "SnappyCompressor": Codec(_snappy_plausible, _decompress_snappy),
    "DeflateCompressor": Codec(_deflate_plausible, _decompress_deflate),
    "ZstdCompressor": Codec(_zstd_plausible, _decompress_zstd),
}
