"""Sections of a commit log segment: the sync markers that chain them, and where a broken chain continues.

A marker is the file offset of the next one and a checksum of the segment's id and the marker's own offset; it does not cover
the offset of the next one. Reading blocks: call it in a thread.
"""

from __future__ import annotations

import os
import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from connectors.cassandra.log.compression import HEAD

if TYPE_CHECKING:
    from connectors.cassandra.log.compression import Codec

#: Bytes of a marker; of the length of a compressed section's contents behind it.
MARKER: Final = 8
LENGTH: Final = 4

#: What `following` looks at: a marker, a length, the first compressed bytes.
_MARKED: Final = MARKER + LENGTH + HEAD
#: Number of bytes that are read for markers at once: small sections share a read.
_WINDOW: Final = 4096
_BLOCK: Final = 1 << 18
_ZEROS: Final = bytes(_BLOCK)
#: The largest segment that Cassandra can be set to.
_LARGEST: Final = (1 << 31) - 1
_WORD: Final = struct.Struct(">I")
_MARKER: Final = struct.Struct(">II")


class LogSection(NamedTuple):
    """The part of a segment between two sync markers.

    Attributes:
        begin: logical position of the first byte.
        end: logical position behind the last byte.
        marker: file offset of its marker.
        after: file offset of the next marker.
        broken: what is wrong at the section's end; empty: nothing.
    """

    begin: int
    end: int
    marker: int
    after: int
    broken: str = ""


def empty_section(position: int, marker: int) -> LogSection:
    """An empty section that ends at a logical position, and is followed by a marker."""
    return LogSection(position, position, marker, marker)


def marker_checksum(log_id: int, at: int) -> int:
    """Of the marker at the file offset ``at``: low word of the id, high word, offset."""
    return crc32(struct.pack(">III", log_id & 0xFFFFFFFF, log_id >> 32, at))


class OpenSegment:
    """An open segment. Its methods block; they never buffer what Cassandra may still write. Not thread-safe.

    Args:
        path: of the file.

    Raises:
        OSError: it can't be opened.
    """

    def __init__(self, path: os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._window: tuple[int, bytes, bytes] = (0, b"", b"")
        self.size = 0
        self.written_ms = 0

    def look(self) -> None:
        """Look up size and time again, and drop the bytes that were read."""
        status = os.fstat(self._fd)
        self.size = status.st_size
        self.written_ms = status.st_mtime_ns // 1_000_000
        self._window = (0, b"", b"")

    def read(self, at: int, count: int) -> bytes:
        """Read ``count`` bytes; fewer only at the end of the file."""
        data = os.pread(self._fd, count, at)
        while len(data) < count:
            block = os.pread(self._fd, count - len(data), at + len(data))
            if not block:
                break
            data += block
        return data

    def marker(self, at: int) -> tuple[bytes, bytes]:
        """The marker at a file offset and the first bytes behind it, twice, read one after the other.

        Whatever was written before the checksum in the first is whole in the second: a marker's words aren't written at once.
        """
        base, first, second = self._window
        index = at - base
        if index < 0 or index + _MARKED > len(first):
            first, second = self.read(at, _WINDOW), self.read(at, _WINDOW)
            self._window = (at, first, second)
            index = 0
        end = index + _MARKED
        return first[index:end], second[index:end]

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def next_section(
    file: OpenSegment, last: LogSection, log_id: int, codec: Codec | None, *, complete: bool
) -> LogSection | str | None:
    """The section behind ``last``; None: there is no section (yet); a string: what is wrong with its marker.

    Args:
        file: the segment.
        last: the section before, or what `before` gives.
        log_id: of the segment.
        codec: what its sections are compressed by; None: they are plain.
        complete: nothing is written to the segment any more.
    """
    at = last.after
    first, second = file.marker(at)
    if len(first) < MARKER:
        return "the file ends inside a sync marker" if complete and any(first) else None
    (stated_next, check), (after, _) = _MARKER.unpack_from(first), _MARKER.unpack_from(second)
    if not check and (not stated_next or not complete):
        return None
    # With a checksum of zero the marker was being written when the node went down: its entries are there.
    if check and check != marker_checksum(log_id, at):
        return "the sync marker's checksum is wrong"
    behind = at + MARKER
    if after < behind + LENGTH * bool(codec) or after > _LARGEST or (not check and after > file.size):
        return f"the sync marker names {after} as the offset of the next one"
    if after > file.size:
        if not complete:
            return None
        broken = f"the file ends at {file.size}, inside a section that continues to {after}"
        return broken if codec else LogSection(behind, file.size, at, after, broken)
    if codec is None:
        return LogSection(behind, after, at, after)
    length = _WORD.unpack_from(second, MARKER)[0]
    size = after - behind - LENGTH
    if (size or length) and not codec.plausible(second[MARKER + LENGTH :], size, length):
        return f"the section's {size} compressed bytes can't have {length} bytes as their contents"
    begin = last.end + MARKER
    return LogSection(begin, begin + length, at, after)


def has_marker(file: OpenSegment, log_id: int, at: int) -> bool:
    """Whether an intact marker is at a file offset."""
    data, _ = file.marker(at)
    return len(data) >= MARKER and _MARKER.unpack_from(data)[1] == marker_checksum(log_id, at)


def find_marker(file: OpenSegment, log_id: int, start: int) -> int | None:
    """File offset of the first intact marker at or behind ``start``; None: no marker up to the end of the file."""
    # A marker's first word is its successor's offset: not zero, and its first byte not beyond that of the file's size.
    highest = re.escape(bytes([min(file.size >> 24, 255)]))
    likely = re.compile(b"(?=[\\x00-" + highest + b"])(?!\\x00{4})(?!.{4}\\x00{4})", re.DOTALL)
    prefix = crc32(struct.pack(">II", log_id & 0xFFFFFFFF, log_id >> 32))
    for base in range(start, file.size, _BLOCK):
        data = file.read(base, _BLOCK + MARKER - 1)
        if data[:_BLOCK] == _ZEROS:
            continue
        for match in likely.finditer(data, 0, len(data) - MARKER + 1):
            at = base + match.start()
            after, check = _MARKER.unpack_from(data, match.start())
            if at + MARKER <= after <= file.size and crc32(_WORD.pack(at), prefix) == check:
                return at
    return None
