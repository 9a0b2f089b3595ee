"""Which file a saved position belongs to, after files have been renamed, compressed or replaced. Blocking."""

from __future__ import annotations

import fnmatch
import glob
import os
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from connectors.text_files.stream import is_gzip, open_file, read_head

#: How much of a file's beginning tells it from others.
HEAD: Final = 1024


class Place(NamedTuple):
    """Where to go on.

    Attributes:
        paths: what to read, one after the other; the last one is the followed name itself.
        position: where in the first of them.
        note: what an operator should know, or "".
    """

    paths: list[str]
    position: int
    note: str = ""


def fingerprint(head: bytes, position: int) -> str:
    """A checksum of the part of a file's beginning that lies before ``position``."""
    return f"{zlib.crc32(head[: min(position, HEAD)]):08x}"


def locate(path: str, position: int, mark: str | None, compression: str, pattern: str | None) -> Place | None:
    """Where reading of ``path`` goes on that had come to ``position`` of a file with the fingerprint ``mark``.

    ``pattern`` gives the names of rotated files: None for the name followed by anything, "" for none.
    Without a mark the file of that name is taken to be the same one unless it is too short. None if there is nothing to
    read yet.
    """
    if mark is None:
        size = _text_size(path, compression)
        if size is None:
            return None
        if size < position:
            return Place(
                [path],
                0,
                f"{path} is shorter than the saved position {position}: it was truncated or replaced; "
                "reading it from its beginning",
            )
        return Place([path], position)
    if _holds(path, position, mark, compression):
        return Place([path], position)
    newer: list[str] = []
    for other in _siblings(path, pattern):
        if _holds(other, position, mark, compression):
            paths = [other, *reversed(newer), path]
            return Place(
                paths, position, f"{path} was rotated while it was not read: going on in {other} at {position}"
            )
        newer.append(other)
    if not Path(path).exists():
        return None
    return Place(
        [path],
        0,
        f"{path} is not the file that was read to position {position}, and no rotated file beside it is; "
        "reading it from its beginning (rotation.pattern tells which names rotated files have)",
    )


def _text_size(path: str, compression: str) -> int | None:
    """The size of the text, as far as it is known without reading it: that of compressed text counts as endless."""
    fd = open_file(path)
    if fd is None:
        return None
    try:
        return 1 << 63 if is_gzip(fd, compression) else os.fstat(fd).st_size
    finally:
        os.close(fd)


def _holds(path: str, position: int, mark: str, compression: str) -> bool:
    fd = open_file(path)
    if fd is None:
        return False
    try:
        if not is_gzip(fd, compression) and os.fstat(fd).st_size < position:
            return False
        head = read_head(fd, compression, min(position, HEAD))
        return len(head) == min(position, HEAD) and fingerprint(head, position) == mark
    finally:
        os.close(fd)


def _siblings(path: str, pattern: str | None) -> list[str]:
    """Files that ``path`` may have been rotated to, the newest first."""
    if pattern == "":
        return []
    folder, name = os.path.split(path)
    wanted = pattern or glob.escape(name) + "?*"
    found: list[tuple[int, str]] = []
    try:
        with os.scandir(folder or ".") as entries:
            found.extend(
                (entry.stat().st_mtime_ns, os.path.join(folder, entry.name))  # noqa: PTH118
                for entry in entries
                if entry.name != name and fnmatch.fnmatchcase(entry.name, wanted) and entry.is_file()
            )
    except FileNotFoundError:
        return []
    return [found_path for _, found_path in sorted(found, reverse=True)]
