"""Finds the file of a saved position after files have been renamed, compressed or replaced. Blocking."""

from __future__ import annotations

import fnmatch
import glob
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.errors import Fatal, Retriable
from connectors.text_files.stream import is_gzip, is_regular_file, open_file, open_files, read_error, read_head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: How much of a file's beginning tells it from others.
HEAD: Final = 1024
#: The end of a name under which a file is compressed, before the file itself is deleted.
_PACKED: Final = ".gz"
#: How often the files of a position are looked for while rotation renames them.
_MOST_ATTEMPTS: Final = 10
#: The most bytes of text in a byte of a compressed file: a limit of the format.
_MOST_PACKED: Final = 1032


#: Device and inode.
Identity = tuple[int, int]


class KnownFile(NamedTuple):
    """A file that was opened before; compressed since, it is another file that begins alike.

    Attributes:
        identity: device and inode.
        head: its first bytes; empty where they are not known.
    """

    identity: Identity
    head: bytes


class FileLocation(NamedTuple):
    """Where to continue.

    Attributes:
        paths: what to read, one after the other; the last one is the followed name itself.
        position: where in the first of them.
        note: what an operator should know, or "".
        names: name -> which file it was, of the followed name and of rotated ones; None if they were not looked at.
    """

    paths: list[str]
    position: int
    note: str = ""
    names: dict[str, Identity | None] | None = None


class OpenLocation(NamedTuple):
    """The files of a location that exist, opened.

    Attributes:
        location: where to continue.
        descriptors: of its files, in the same order.
        last_head: the first bytes of the last one.
    """

    location: FileLocation
    descriptors: list[int]
    last_head: bytes


def fingerprint_head(head: bytes, position: int) -> str:
    """A checksum of the part of a file's beginning that lies before ``position``."""
    return f"{zlib.crc32(head[: min(position, HEAD)]):08x}"


def locate_position(
    path: str, position: int, saved_fingerprint: str | None, compression: str, pattern: str | None
) -> FileLocation | None:
    """Find where to continue ``path`` after ``position`` of a file with the fingerprint ``saved_fingerprint``.

    ``pattern`` gives the names of rotated files: None for the name followed by anything, "" for none.
    Without a fingerprint the file of that name is taken to be the same one unless it is too short. None if there is nothing to
    read yet.

    Raises:
        Fatal: the followed file can't be read.
        Retriable: a rotated file that may have the position can't be read.
    """
    if saved_fingerprint is None:
        size = _text_size(path, compression)
        if size is None:
            return None
        if size < position:
            return FileLocation(
                [path],
                0,
                f"{path} is shorter than the saved position {position}: it was truncated or replaced; "
                "reading it from its beginning",
            )
        return FileLocation([path], position)
    if _holds_position(path, position, saved_fingerprint, compression):
        return FileLocation([path], position)
    names, siblings = _list_siblings(path, pattern)
    rotated = _files_from(
        siblings, lambda name: _sibling_holds_position(name, position, saved_fingerprint, compression)
    )
    if rotated:
        note = f"{path} was rotated while it was not read: continuing in {rotated[0]} at {position}"
        return FileLocation([*rotated, path], position, note, names)
    if not Path(path).exists():
        return None
    return FileLocation(
        [path],
        0,
        f"{path} is not the file that was read to position {position}, and no rotated file next to it is; "
        "reading it from its beginning (rotation.pattern tells which names rotated files have)",
        names,
    )


def _files_from(siblings: Sequence[str], is_first: Callable[[str], bool]) -> list[str]:
    """The newest file for which ``is_first`` is true, and those after it; [] if it is true for none."""
    newer: list[str] = []
    for sibling in siblings:
        if is_first(sibling):
            # A file that is just being compressed has two names: its text is read once.
            files = {sibling, *newer}
            newer = [name for name in newer if not name.endswith(_PACKED) or name.removesuffix(_PACKED) not in files]
            return [sibling, *reversed(newer)]
        newer.append(sibling)
    return []


def open_newer(
    path: str, earlier_files: Sequence[KnownFile], compression: str, pattern: str | None
) -> OpenLocation | None:
    """The files that took the name ``path`` after earlier ones, opened, the oldest first; that of now alone if those are gone.

    Args:
        path: the followed name.
        earlier_files: files that had the name.
        compression: as the option ``file.compression``.
        pattern: as of ``locate_position``.

    Raises:
        Fatal: the followed file can't be read.
        Retriable: a rotated file that may be a known one can't be read, or files are renamed all the time.
    """

    def locate_newer() -> FileLocation:
        names, siblings = _list_siblings(path, pattern)
        present = set(names.values())

        def is_earlier(name: str) -> bool:
            return any(
                (names[name] == identity or identity not in present)
                and _sibling_holds_position(name, len(head), fingerprint_head(head, len(head)), compression)
                if head
                else names[name] == identity
                for identity, head in earlier_files
            )

        return FileLocation([*_files_from(siblings, is_earlier)[1:], path], 0, "", names)

    return _open_steadily(path, pattern, locate_newer)


def open_location(
    path: str, position: int, saved_fingerprint: str | None, compression: str, pattern: str | None
) -> OpenLocation | None:
    """As ``locate_position``, with descriptors of the files; as they were at one moment, if rotation renames them meanwhile.

    Raises:
        Fatal: the followed file can't be read.
        Retriable: a rotated file that may have the position can't be read, or files are renamed all the time.
    """
    return _open_steadily(
        path, pattern, lambda: locate_position(path, position, saved_fingerprint, compression, pattern)
    )


def _open_steadily(path: str, pattern: str | None, locate: Callable[[], FileLocation | None]) -> OpenLocation | None:
    """The files of a location, opened; each name was that of the same file before and after."""
    for _ in range(_MOST_ATTEMPTS):
        location = locate()
        if location is None:
            return None
        opened = open_files(location.paths)
        head = os.pread(opened[-1], HEAD, 0) if opened else b""
        if location.names is None or location.names == _list_siblings(path, pattern)[0]:
            return OpenLocation(location, opened, head)
        for fd in opened:
            os.close(fd)
    raise Retriable(f"The files that {path} was rotated to are renamed all the time; rotation.pattern names them")


def _text_size(path: str, compression: str) -> int | None:
    """The size of the text, as far as it is known without reading it: that of compressed text counts as endless."""
    fd = open_file(path)
    if fd is None:
        return None
    try:
        return 1 << 63 if is_gzip(fd, compression) else os.fstat(fd).st_size
    finally:
        os.close(fd)


def _holds_position(path: str, position: int, saved_fingerprint: str, compression: str) -> bool:
    fd = open_file(path)
    if fd is None:
        return False
    try:
        if not is_gzip(fd, compression) and os.fstat(fd).st_size < position:
            return False
        head = read_head(fd, compression, min(position, HEAD))
        return len(head) == min(position, HEAD) and fingerprint_head(head, position) == saved_fingerprint
    finally:
        os.close(fd)


def _sibling_holds_position(path: str, position: int, saved_fingerprint: str, compression: str) -> bool:
    try:
        return _holds_position(path, position, saved_fingerprint, compression)
    except Fatal as error:
        if _is_too_small(path, position):
            return False
        raise Retriable(
            f"{error}, or set rotation.pattern if it is not a rotated file: reading waits, as lines that were not read may "
            "be in it"
        ) from error


def _is_too_small(path: str, position: int) -> bool:
    """Whether a file that can't be read can't have the position, whatever is in it."""
    try:
        return os.stat(path).st_size * _MOST_PACKED < position  # noqa: PTH116
    except OSError:
        return False


def _identify_file(path: str) -> Identity | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _list_siblings(path: str, pattern: str | None) -> tuple[dict[str, Identity | None], list[str]]:
    """``path`` and the names that it may have been rotated to, with their files; and the latter names, the newest first."""
    # The followed name may be a link to the newest of them, which is read under that name.
    names = {path: _identify_file(path)}
    times: dict[str, int] = {}
    # Where it is a link, rotation may rename its target.
    for name in dict.fromkeys((path, os.path.realpath(path))) if pattern != "" else ():
        times |= _siblings_of_name(name, pattern, names)

    def age(sibling: str) -> tuple[int, str, bool]:
        # While a file is compressed, both are there: the whole one comes first.
        whole = sibling.removesuffix(_PACKED)
        return times.get(whole, times[sibling]), whole, whole == sibling

    return names, sorted(times, key=age, reverse=True)


def _siblings_of_name(path: str, pattern: str | None, names: dict[str, Identity | None]) -> dict[str, int]:
    """Names of rotated files, with the time of the last write; files of ``names`` are left out, and others added to it."""
    folder, name = os.path.split(path)
    name_pattern = pattern or glob.escape(name) + "?*"
    times: dict[str, int] = {}
    identities = set(names.values())
    try:
        with os.scandir(folder or ".") as entries:
            for entry in entries:
                if (
                    entry.name == name
                    or not fnmatch.fnmatchcase(entry.name, name_pattern)
                    or not is_regular_file(entry)
                ):
                    continue
                sibling = os.path.join(folder, entry.name)  # noqa: PTH118
                try:
                    status = entry.stat()
                except FileNotFoundError:  # it was deleted or renamed just now
                    continue
                except OSError:  # of unknown age: it is asked for when no other file has the position
                    names[sibling], times[sibling] = None, 0
                    continue
                identity = (status.st_dev, status.st_ino)
                if identity not in identities:
                    identities.add(identity)
                    names[sibling], times[sibling] = identity, status.st_mtime_ns
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise read_error(folder or ".", error) from error
    return times
