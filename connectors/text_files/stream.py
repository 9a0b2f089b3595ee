"""An open file as a stream of text bytes from a position on, compressed or not. Blocking; meant to run in a thread."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from typing import TYPE_CHECKING, Final, Protocol

from connectors.errors import Fatal, Retriable

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Bytes of text read at once: many enough to make the way through a thread cheap, and just few enough that the allocator keeps
#: the memory for the next block (from 128 KB on each block is mapped and unmapped, which costs more than splitting it).
BLOCK: Final = 128 * 1024 - 64
_RAW_BLOCK: Final = 64 * 1024
_MAGIC: Final = b"\x1f\x8b"


class CorruptInput(Exception):
    """Compressed data that can't be decompressed any further."""


class TextStream(Protocol):
    """The stream that a follower reads; ``at`` is the position of the next byte of text."""

    at: int

    @property
    def file_at(self) -> int:
        """How many bytes of the file were read."""

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; empty at the end of what is there now."""

    def shrunk(self) -> bool:
        """Whether the file is now shorter than what was read of it."""

    def complete(self) -> bool:
        """Whether the format says that the text ended here (never for plain text)."""

    def is_cut_off(self) -> bool:
        """Whether the format says that more must follow (never for plain text)."""


class PlainStream:
    """Bytes as they are in the file."""

    __slots__ = ("_fd", "at")

    def __init__(self, fd: int, at: int) -> None:
        self._fd = fd
        self.at = at

    @property
    def file_at(self) -> int:
        """See ``TextStream``."""
        return self.at

    def read(self, size: int) -> bytes:
        """See ``TextStream``."""
        data = os.pread(self._fd, size, self.at)
        self.at += len(data)
        return data

    def shrunk(self) -> bool:
        """See ``TextStream``."""
        return os.fstat(self._fd).st_size < self.at

    def complete(self) -> bool:
        """See ``TextStream``."""
        return False

    def is_cut_off(self) -> bool:
        """See ``TextStream``."""
        return False


class GzipStream:
    """The text of a gzip file of any number of members, which may still be growing."""

    __slots__ = ("_ended", "_fd", "_inflate", "_raw_at", "_rest", "at")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.at = 0
        self._raw_at = 0
        self._rest = b""
        self._inflate = zlib.decompressobj(wbits=31)
        self._ended = False

    @property
    def file_at(self) -> int:
        """See ``TextStream``."""
        return self._raw_at

    def read(self, size: int) -> bytes:
        """See ``TextStream``.

        Raises:
            CorruptInput: the compressed data is damaged here.
        """
        while True:
            if not self._rest:
                self._rest = os.pread(self._fd, _RAW_BLOCK, self._raw_at)
                self._raw_at += len(self._rest)
            if self._ended:
                # Zeros may pad the end of a member, as gzip itself allows.
                self._rest = self._rest.lstrip(b"\0")
                if self._rest:
                    self._inflate = zlib.decompressobj(wbits=31)
                    self._ended = False
            try:
                data = self._inflate.decompress(self._rest, size) if not self._ended else b""
            except zlib.error as error:
                raise CorruptInput(str(error)) from error
            if self._inflate.eof and not self._ended:
                self._ended = True
                self._rest = self._inflate.unused_data
                if data or self._rest:
                    self.at += len(data)
                    if data:
                        return data
                    continue
            elif not self._ended:
                self._rest = self._inflate.unconsumed_tail
            if data:
                self.at += len(data)
                return data
            if not self._has_more():
                return b""

    def _has_more(self) -> bool:
        return bool(self._rest) or os.fstat(self._fd).st_size > self._raw_at

    def shrunk(self) -> bool:
        """See ``TextStream``."""
        return os.fstat(self._fd).st_size < self._raw_at

    def complete(self) -> bool:
        """See ``TextStream``."""
        return self._ended and not self._has_more()

    def is_cut_off(self) -> bool:
        """See ``TextStream``."""
        return self._raw_at > 0 and not self._ended


def open_file(path: str) -> int | None:
    """A descriptor of a regular file, or None if there is no such file. The caller closes it.

    Raises:
        Fatal: it can't be read.
        Retriable: the file system does not answer as it should.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise read_error(path, error) from error
    try:
        is_regular = stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError as error:
        os.close(fd)
        raise read_error(path, error) from error
    if is_regular:
        return fd
    os.close(fd)
    raise Fatal(
        f"{path} is not a regular file; name a file (pipes are read through the standard input, folders with "
        f"the option directory)"
    )


def open_files(paths: Iterable[str]) -> list[int]:
    """Descriptors of those of the files that exist; all of them, or none is left open. Raises as ``open_file``."""
    opened: list[int] = []
    try:
        for path in paths:
            fd = open_file(path)
            if fd is not None:
                opened.append(fd)
    except BaseException:
        for fd in opened:
            os.close(fd)
        raise
    return opened


def is_regular_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a directory is a regular file or a link to one; a link to itself is not.

    A link whose target can't be looked at counts as one: reading it says what is wrong with it.
    """
    try:
        return entry.is_file()
    except OSError as error:
        return error.errno != errno.ELOOP


def read_error(path: str, error: OSError) -> Fatal | Retriable:
    """Return the task's error for a failed call."""
    if error.errno in {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR, errno.EINVAL}:
        return Fatal(f"Can't read {path}: {error.strerror}; check the name and that the worker's user may read it")
    return Retriable(f"Can't read {path} now: {error.strerror}")


def skip_zeros(fd: int) -> int:
    """How many zero bytes an open file begins with."""
    try:
        position = os.lseek(fd, 0, os.SEEK_DATA)  # a hole takes no time
    except OSError:  # there is nothing behind it, or the file system does not tell
        position = 0
    while block := os.pread(fd, BLOCK, position):
        position += len(block)
        if rest := block.lstrip(b"\0"):
            return position - len(rest)
    return position


def is_gzip(fd: int, compression: str) -> bool:
    """Whether to decompress, by the option ``file.compression``."""
    return compression == "gzip" or (compression == "auto" and os.pread(fd, 2, 0) == _MAGIC)


def open_stream(fd: int, compression: str) -> TextStream:
    """The text of an open file from its beginning."""
    return GzipStream(fd) if is_gzip(fd, compression) else PlainStream(fd, 0)


def read_head(fd: int, compression: str, size: int) -> bytes:
    """The first bytes of the text, at most ``size``; what can be had of a damaged file."""
    stream = open_stream(fd, compression)
    parts: list[bytes] = []
    left = size
    try:
        while left and (data := stream.read(left)):
            parts.append(data)
            left -= len(data)
    except CorruptInput:
        pass
    return b"".join(parts)
