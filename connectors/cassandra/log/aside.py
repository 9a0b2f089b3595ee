"""Removes segments that were read: deletes them once they are delivered, and keeps damaged ones in a folder of their own."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.cassandra.log.directory import is_behind, scan_directory

if TYPE_CHECKING:
    import logging
    from pathlib import Path

    from connectors.cassandra.log.directory import SegmentFiles
    from connectors.cassandra.model import LogPosition, LogSettings

#: A segment without an index file is left to the server, unless the server has had no link of its own for this long.
ORPHAN_S: Final = 60.0
#: How many ids of deleted segments are remembered, to tell those that come back.
_REMEMBERED: Final = 1000
_NO_LINK: Final = frozenset((errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS))


class Removed(NamedTuple):
    """The result of one pass of ``Remover``: segments deleted, deletions that failed, segments that had come back."""

    deleted: int = 0
    failed: int = 0
    relinked: int = 0


class Remover:
    """Deletes what was delivered from one node's directory. Its methods block; not thread-safe.

    A server that was killed replays its log at its next start and links every segment with captured changes again, deleted ones
    too. They are deleted again.
    """

    def __init__(self, settings: LogSettings, log: logging.LoggerAdapter[logging.Logger] | logging.Logger) -> None:
        self._settings = settings
        self._log = log
        self._deleted: OrderedDict[int, None] = OrderedDict()
        self._complained: dict[int, str] = {}

    def remove(self, upto: LogPosition) -> Removed:
        """Delete all segments that end at or before ``upto``; failures are logged once each, and come again at the next call.

        Raises:
            Retriable: the directory can't be listed.
        """
        files = scan_directory(self._settings.directory, self._settings.node)
        self._complained = {log_id: message for log_id, message in self._complained.items() if log_id in files}
        deleted = failed = relinked = 0
        for segment in files.values():
            if not is_behind(segment.id, upto):
                break
            if not segment.indexed and not _is_orphan(segment):
                continue
            came_back = segment.present and segment.id in self._deleted
            relinked += came_back
            if came_back:
                self._log.info(
                    "Node %s: segment %d was delivered and deleted, and came back with a restart of the node; it is "
                    "deleted again",
                    self._settings.node,
                    segment.id,
                )
            try:
                self._delete_segment(segment)
            except OSError as error:
                failed += 1
                self._log_failure(segment, error)
            else:
                deleted += segment.present
        return Removed(deleted, failed, relinked)

    def _delete_segment(self, segment: SegmentFiles) -> None:
        # The segment first: without it, an index file that is left over means nothing and is deleted at the next pass.
        segment.log.unlink(missing_ok=True)
        if segment.present:
            self._deleted[segment.id] = None
            self._deleted.move_to_end(segment.id)
            if len(self._deleted) > _REMEMBERED:
                self._deleted.popitem(last=False)
        segment.idx.unlink(missing_ok=True)

    def _log_failure(self, segment: SegmentFiles, error: OSError) -> None:
        if self._complained.get(segment.id) == str(error):
            return
        self._complained[segment.id] = str(error)
        self._log.error(
            "Node %s: segment %s is delivered and can't be deleted: %s. The deletion is retried every few seconds; at "
            "cdc_total_space of such segments the node refuses writes. User %d needs the right to write in %s",
            self._settings.node,
            segment.log.name,
            error,
            os.getuid(),
            self._settings.directory,
        )


class Aside:
    """Keeps damaged segments of one node, whatever the server or we delete later. Its methods block; not thread-safe."""

    def __init__(self, settings: LogSettings) -> None:
        directory = settings.directory
        self.folder = settings.aside or directory.with_name(f"{directory.name}_aside")

    def keep(self, log: Path, index: Path, problem: str) -> Path:
        """Keep a segment, its index file as it is now, and a line that says what is wrong with it.

        A link to the same file where the file system allows it, which costs nothing and shows what is written to it later; else
        a copy. A segment that is kept already only gets the line.

        Returns:
            The path of the kept segment.

        Raises:
            OSError: it could not be kept.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self._free_name(log)
        if not target.exists():
            _link_or_copy(log, target)
        kept_index = target.with_name(f"{target.stem}_cdc.idx")
        if index.exists() and not kept_index.exists():
            shutil.copyfile(index, kept_index)  # a link would follow the rewriting, and go empty for moments
        with target.with_name(f"{target.stem}.problem").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {problem}\n")
        return target

    def count(self) -> int:
        """How many segments are kept; 0 also where the folder can't be listed."""
        try:
            return sum(path.suffix == ".log" for path in self.folder.iterdir())
        except OSError:
            return 0

    def _free_name(self, log: Path) -> Path:
        """The segment's own name, or the same with a number where another file has it (another node's, an earlier copy)."""
        target, number = self.folder / log.name, 0
        while target.exists() and not _is_same_file(log, target):
            number += 1
            target = self.folder / f"{log.stem}.{number}.log"
        return target


def _is_orphan(segment: SegmentFiles) -> bool:
    """Whether the server will never delete this segment without index file: it has had no other name for a while."""
    try:
        status = segment.log.stat()
    except OSError:
        return False
    return status.st_nlink == 1 and time.time() - status.st_ctime > ORPHAN_S


def _is_same_file(source: Path, target: Path) -> bool:
    mine, kept = source.stat(), target.stat()
    return os.path.samestat(mine, kept) or (mine.st_size == kept.st_size and _has_same_bytes(source, target))


def _has_same_bytes(source: Path, target: Path) -> bool:
    """Whether two files have the same bytes, a copy made earlier for example."""
    with source.open("rb") as left, target.open("rb") as right:
        while True:
            a, b = left.read(1 << 20), right.read(1 << 20)
            if a != b:
                return False
            if not a:
                return True


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        # Elsewhere, or a file system without links: a copy under a name of its own first, so that no half one has the name.
        part = target.with_name(f"{target.name}.part")
        shutil.copyfile(source, part)
        part.replace(target)
