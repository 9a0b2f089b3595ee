"""Segments of Cassandra's commit log, written from the format's description: nothing of the reader is used here.

A writer keeps the file as bytes; what tests cut and damage is a copy of them.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import cramjam

if TYPE_CHECKING:
    from pathlib import Path

COMPRESSIONS = ("", "LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor")


class Written(NamedTuple):
    """An entry: its mutation, its position in the log, the logical offset of its first byte, and its section's number."""

    mutation: bytes
    position: int
    start: int
    section: int


class SegmentWriter:
    """A segment in memory: `add` mutations, `sync` sections, `save` or take `data`.

    Args:
        log_id: of the segment.
        version: of the format.
        compression: class name of a compressor; empty: plain.
        parameters: of the head other than the compression, as {"encCipher": ...}.
        qualified: the compression is named with its package, as Cassandra does for some settings.
    """

    def __init__(
        self,
        log_id: int = 1_700_000_000_123,
        version: int = 7,
        compression: str = "",
        *,
        parameters: dict[str, Any] | None = None,
        qualified: bool = False,
    ) -> None:
        self.log_id, self.version, self.compression = log_id, version, compression
        head: dict[str, Any] = dict(parameters or {})
        if compression:
            prefix = "org.apache.cassandra.io.compress." if qualified else ""
            head |= {"compressionClass": prefix + compression, "compressionParameters": {}}
        self.data = descriptor(version, log_id, json.dumps(head).encode() if head else b"{}")
        self.head_size = len(self.data)
        self.entries: list[Written] = []
        #: File offsets of markers, and of where the section behind each ends.
        self.sections: list[tuple[int, int]] = []
        self._open = b""
        #: Logical position of the open section's first byte.
        self._begin = self.head_size + 8

    @property
    def name(self) -> str:
        return f"CommitLog-{self.version}-{self.log_id}.log"

    @property
    def end(self) -> int:
        """Logical position up to which the segment was synced."""
        return self._begin - 8

    def add(self, mutation: bytes) -> int:
        """An entry in the open section; its position."""
        size = struct.pack(">I", len(mutation))
        check = zlib.crc32(size)
        start = self._begin + len(self._open)
        self._open += size + struct.pack(">I", check) + mutation + struct.pack(">I", zlib.crc32(mutation, check))
        self.entries.append(Written(mutation, self._begin + len(self._open), start, len(self.sections)))
        return self.entries[-1].position

    def sync(self) -> int:
        """End the open section (it may be empty); the logical position of its end."""
        at = len(self.data)
        body = self._open
        if self.compression:
            body = struct.pack(">I", len(body)) + compress(self.compression, body)
        after = at + 8 + len(body)
        self.data += struct.pack(">II", after, marker_checksum(self.log_id, at)) + body
        self.sections.append((at, after))
        self._begin += len(self._open) + 8
        self._open = b""
        return self.end

    def tail(self, count: int) -> None:
        """Zero bytes, as behind the last section of a plain segment."""
        self.data += bytes(count)

    def save(self, folder: Path, data: bytes | None = None) -> Path:
        """Write the file, or other bytes under its name."""
        path = folder / self.name
        path.write_bytes(self.data if data is None else data)
        return path

    def save_index(self, folder: Path, offset: int | None = None, *, completed: bool = False) -> Path:
        """Write the index file; by default it tells of everything that was synced."""
        path = folder / f"CommitLog-{self.version}-{self.log_id}_cdc.idx"
        path.write_text(f"{self.end if offset is None else offset}" + "\nCOMPLETED" * completed, encoding="ascii")
        return path


def descriptor(version: int, log_id: int, parameters: bytes) -> bytes:
    """A segment's head."""
    check = zlib.crc32(struct.pack(">I", version))
    check = zlib.crc32(struct.pack(">I", log_id & 0xFFFFFFFF), check)
    check = zlib.crc32(struct.pack(">I", log_id >> 32), check)
    check = zlib.crc32(struct.pack(">I", len(parameters)), check)
    check = zlib.crc32(parameters, check)
    return struct.pack(">iqH", version, log_id, len(parameters)) + parameters + struct.pack(">I", check)


def marker_checksum(log_id: int, at: int) -> int:
    """Of the sync marker at a file offset."""
    return zlib.crc32(struct.pack(">III", log_id & 0xFFFFFFFF, log_id >> 32, at))


def compress(name: str, data: bytes) -> bytes:
    """A section's bytes as Cassandra's compressor of that class leaves them."""
    if name == "LZ4Compressor":
        # LZ4 has a token even for nothing.
        return struct.pack("<I", len(data)) + (
            bytes(cramjam.lz4.compress_block(data, store_size=False)) if data else b"\0"
        )
    if name == "SnappyCompressor":
        return bytes(cramjam.snappy.compress_raw(data))
    if name == "DeflateCompressor":
        return zlib.compress(data)
    if name == "ZstdCompressor":
        return bytes(cramjam.zstd.compress(data))
    raise AssertionError(name)


def segment(mutations: list[list[bytes]], **options: Any) -> SegmentWriter:
    """A segment with one section for each list of mutations."""
    writer = SegmentWriter(**options)
    for section in mutations:
        for mutation in section:
            writer.add(mutation)
        writer.sync()
    return writer


def flipped(data: bytes, at: int, mask: int = 0xFF) -> bytes:
    """The bytes with one damaged."""
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def decompress(name: str, data: bytes, length: int) -> bytes:
    """The inverse of `compress`."""
    if name == "LZ4Compressor":
        result = bytes(cramjam.lz4.decompress_block(data[4:], output_len=length)) if length else b""
    elif name == "DeflateCompressor":
        result = zlib.decompress(data)
    else:
        result = bytes((cramjam.snappy.decompress_raw if name == "SnappyCompressor" else cramjam.zstd.decompress)(data))
    assert len(result) == length
    return result
