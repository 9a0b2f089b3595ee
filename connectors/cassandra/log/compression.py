"""The compressions of commit log sections. Pure: no input or output happens here."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import cramjam

from connectors.cassandra.log.descriptor import SegmentDamaged
from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Callable

#: So many first bytes of a section's compressed bytes are enough for `Codec.plausible`.
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


def codec(name: str, file: str) -> Codec:
    """The compression with a compressor's simple class name.

    Raises:
        Fatal: there is none; the message names the file.
    """
    found = _CODECS.get(name)
    if found is None:
        raise Fatal(
            f"{file} is compressed by {name}, which can't be read: use one of {', '.join(_CODECS)} as class_name under "
            f"commitlog_compression in cassandra.yaml, or none, and restart that node"
        )
    return found


def _lz4_plausible(head: bytes, size: int, length: int) -> bool:
    # Cassandra puts the length before the block, little-endian.
    return len(head) >= 4 and int.from_bytes(head[:4], "little") == length <= size * _LZ4_RATIO


def _lz4(data: bytes, length: int) -> bytes:
    if not length:
        # Of nothing there is a token that says so; bytes behind it were something.
        if len(data) > 5:
            raise _wrong("LZ4", length)
        return b""
    try:
        return _sized("LZ4", bytes(cramjam.lz4.decompress_block(data[4:], output_len=length)), length)
    except cramjam.DecompressionError as error:
        raise _wrong("LZ4", length) from error


def _snappy_plausible(head: bytes, size: int, length: int) -> bool:
    # The block begins with its length: seven bits a byte, the low ones first.
    told = shift = 0
    for byte in head[:5]:
        told |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return told == length <= size * _SNAPPY_RATIO
    return False


def _snappy(data: bytes, length: int) -> bytes:
    try:
        return _sized("Snappy", bytes(cramjam.snappy.decompress_raw(data)), length)
    except cramjam.DecompressionError as error:
        raise _wrong("Snappy", length) from error


def _deflate_plausible(_head: bytes, size: int, length: int) -> bool:
    return length <= size * _DEFLATE_RATIO


def _deflate(data: bytes, length: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        # One byte more than expected, so that a longer stream is noticed.
        result = stream.decompress(data, length + 1)
    except zlib.error as error:
        raise _wrong("Deflate", length) from error
    if not stream.eof or stream.unused_data:
        raise _wrong("Deflate", length)
    return _sized("Deflate", result, length)


def _zstd_plausible(head: bytes, _size: int, length: int) -> bool:
    """Whether a frame's header (RFC 8878, 3.1.1.1) tells that length; Cassandra's always tell it."""
    if head[:4] != _ZSTD_MAGIC or len(head) < 6:
        return False
    flags = head[4]
    single, width = flags & 0x20, flags >> 6
    if not single and not width:
        return False
    start = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    told = int.from_bytes(head[start : start + (1 << width)], "little")
    return length == (told + 256 if width == 1 else told)


def _zstd(data: bytes, length: int) -> bytes:
    try:
        return _sized("Zstd", bytes(cramjam.zstd.decompress(data)), length)
    except cramjam.DecompressionError as error:
        raise _wrong("Zstd", length) from error


def _sized(name: str, result: bytes, length: int) -> bytes:
    if len(result) != length:
        raise _wrong(name, length)
    return result


def _wrong(name: str, length: int) -> SegmentDamaged:
    return SegmentDamaged(f"the section is no {name} block of {length} bytes")


_CODECS: Final[dict[str, Codec]] = {
    "LZ4Compressor": Codec(_lz4_plausible, _lz4),
    "SnappyCompressor": Codec(_snappy_plausible, _snappy),
    "DeflateCompressor": Codec(_deflate_plausible, _deflate),
    "ZstdCompressor": Codec(_zstd_plausible, _zstd),
}
