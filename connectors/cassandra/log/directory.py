"""The contents of a node's ``cdc_raw``: segments by id, their index files, and the space that they take.

The server links each segment into the directory when it creates it, one ahead of use. Once a captured change is in it, the
server writes ``*_cdc.idx`` next to it each time it syncs it to disk. It syncs segments in the order of their ids. So, once a
later segment has an index file, an earlier one

* that has none has no captured change in it; the server takes it away when its tables are flushed;
* is not written to any more, whether its index file says that it is complete or (after a crash) does not yet.

All functions block: call them in a thread.
"""

from __future__ import annotations

import fcntl
import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.cassandra.log.descriptor import index_name, parse_name, segment_name
from connectors.errors import ConfigInvalid, Retriable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from connectors.cassandra.model import LogPosition

_INDEX: Final = re.compile(rb"(\d{1,18})(?:\n(COMPLETED))?\s*")
#: Fixed part of a segment's head: version, id, length of the parameters; the parameters and a checksum follow.
_HEAD: Final = 14
_MARKER: Final = 8


class SegmentFiles(NamedTuple):
    """A segment as the directory shows it; either file can be missing.

    Attributes:
        id: its place in the log.
        version: of the format, from the name.
        log: path of the segment.
        idx: path of its index file.
        inode: of the segment; 0: it is not there.
        indexed: whether there is an index file.
    """

    id: int
    version: int
    log: Path
    idx: Path
    inode: int
    indexed: bool

    @property
    def present(self) -> bool:
        """Whether the segment itself is there."""
        return self.inode != 0


class Index(NamedTuple):
    """The contents of an index file.

    Attributes:
        offset: logical offset up to which the segment is on the disk; 0 for a file that is just being written.
        completed: nothing more is written to the segment; ``offset`` means nothing then (after a crash: the file's length).
        written_ms: when that was written.
    """

    offset: int
    completed: bool
    written_ms: int


class Usage(NamedTuple):
    """The measured state of the directory at one time.

    Attributes:
        total_bytes: of all files in it.
        waiting: segments that are not read to their end, the newest included, without those that have no captured change.
        behind_bytes: bytes in them that can be read and were not, according to the index files.
        oldest_ms: about when the oldest of those bytes could be read first; 0: there are no such bytes.
    """

    total_bytes: int = 0
    waiting: int = 0
    behind_bytes: int = 0
    oldest_ms: int = 0


def check_directory(directory: Path, node: str, *, delete: bool) -> None:
    """Whether the directory can be used at all.

    Raises:
        ConfigInvalid: it can't; the message says what to change.
    """
    if not directory.is_dir():
        raise ConfigInvalid(
            f"cdc.raw.directories: the directory {directory} of node {node} is not there on this worker: give "
            "the path of cdc_raw_directory in the node's cassandra.yaml (cdc_enabled: true), as this worker "
            "sees it, or let the task run on the worker that has it (node.labels)"
        )
    if not os.access(directory, os.R_OK | os.X_OK):
        raise ConfigInvalid(
            f"cdc.raw.directories: the directory {directory} of node {node} can't be read by user "
            f"{os.getuid()}, under which this worker runs: chmod or setfacl -m u:{os.getuid()}:rwx {directory}"
        )
    if delete and not os.access(directory, os.W_OK):
        raise ConfigInvalid(
            f"cdc.raw.directories: in the directory {directory} of node {node}, user {os.getuid()} can't "
            f"delete segments that are delivered, so it would fill up: setfacl -m u:{os.getuid()}:rwx "
            f"{directory}, or commit.log.delete=false if something else deletes them"
        )


def lock_directory(directory: Path, *, delete: bool) -> int | None:
    """Mark the directory as read: several readers may share it only if none of them deletes segments.

    Returns:
        A file descriptor: the mark lasts until it is closed or the process ends. None: another reader on this machine has it.

    Raises:
        OSError: the file system knows no such marks, or the directory is not there.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if delete else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def scan_directory(directory: Path, node: str) -> dict[int, SegmentFiles]:
    """The segments in the directory by id, ascending; other files are passed over.

    Raises:
        Retriable: it can't be listed; ``check_directory`` found it before.
    """
    logs: dict[int, tuple[int, int]] = {}
    indexes: dict[int, int] = {}
    try:
        with os.scandir(directory) as listing:
            for dir_entry in listing:
                parsed = parse_name(dir_entry.name)
                if parsed is None:
                    continue
                version, log_id, is_index = parsed
                if is_index:
                    indexes[log_id] = version
                else:
                    logs[log_id] = version, dir_entry.inode()
    except OSError as error:
        raise Retriable(
            f"The directory {directory} of node {node} can't be listed: {error}: is its volume mounted, does the "
            "node still have it as cdc_raw_directory in cassandra.yaml?"
        ) from error
    result = {}
    for log_id in sorted(logs.keys() | indexes.keys()):
        version, inode = logs.get(log_id) or (indexes[log_id], 0)
        result[log_id] = SegmentFiles(
            log_id,
            version,
            directory / segment_name(version, log_id),
            directory / index_name(version, log_id),
            inode,
            log_id in indexes,
        )
    return result


def read_index(path: Path) -> Index | None:
    """Read the index file; None: it does not exist. It is rewritten in place, so it can be found empty or half written.

    Raises:
        OSError: it can't be read.
    """
    try:
        with path.open("rb", buffering=0) as file:
            content = file.read(64) or b""
            written = os.fstat(file.fileno()).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None
    match = _INDEX.fullmatch(content)
    return Index(int(match[1]), match[2] is not None, written) if match else Index(0, False, written)


def has_sections(path: Path) -> bool:
    """Whether anything was written to a segment behind its head; False also where it is not there (any more)."""
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(_HEAD) or b""
            if len(head) < _HEAD or not any(head):
                return False
            file.seek(_HEAD + int.from_bytes(head[12:14], "big") + 4)
            return any(file.read(_MARKER) or b"")
    except OSError:
        return False


def started_after(files: Iterable[SegmentFiles], log_id: int, *, by_markers: bool) -> bool:
    """Whether the server writes to a later segment already, so that nothing comes to ``log_id`` any more.

    Args:
        files: ascending.
        log_id: of the segment.
        by_markers: a later segment with data in it counts too, not only one with an index file.
    """
    later = [segment for segment in files if segment.id > log_id]
    return any(segment.indexed for segment in later) or (
        by_markers and any(has_sections(segment.log) for segment in later if segment.present)
    )


def first_indexed(files: Iterable[SegmentFiles]) -> SegmentFiles | None:
    """The first segment, of these in ascending order, that has captured changes; None: none has.

    A listing is not one moment: the index file of an earlier segment can have come behind the place where the listing was when
    that of a later one was found. So the files of the earlier ones are looked for again.
    """
    before: list[SegmentFiles] = []
    for segment in files:
        if segment.indexed:
            missed = next((earlier for earlier in before if earlier.idx.exists()), None)
            return missed or segment
        before.append(segment)
    return None


def measure_usage(directory: Path, node: str, read: LogPosition | None, readable_ms: int) -> Usage:
    """Measure the directory: one listing, a ``stat`` for each file, index files of segments that wait.

    Args:
        directory: the directory.
        node: its node, for messages.
        read: up to where it was read; None: nothing was read.
        readable_ms: when the newest data that was read could be read first; 0: not known.

    Raises:
        Retriable: it can't be listed.
    """
    files = scan_directory(directory, node)
    total = waiting = behind = oldest = 0
    for segment in files.values():
        size = _file_size(segment.log) if segment.present else 0
        total += size + (_file_size(segment.idx) if segment.indexed else 0)
        if not segment.present or not segment.indexed or (read is not None and is_behind(segment.id, read)):
            continue
        waiting += 1
        here = read.position if read is not None and read.segment == segment.id else 0
        index = _try_index(segment.idx)
        unread = max(0, min(index.offset, size) - here if index.completed else index.offset - here) if index else 0
        if unread and index:
            behind += unread
            oldest = oldest or (min(readable_ms, index.written_ms) if here and readable_ms else index.written_ms)
    return Usage(total, waiting, behind, oldest)


def is_behind(log_id: int, read: LogPosition) -> bool:
    """Whether a position is behind all of a segment."""
    return log_id < read.segment or (log_id == read.segment and read.finished)


def _try_index(path: Path) -> Index | None:
    try:
        return read_index(path)
    except OSError:
        return None


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # deleted meanwhile
        return 0
