"""One node's log as it grows: segment after segment out of its ``cdc_raw`` directory.

All work on files happens in threads, at most one look at a time; the state is changed only there. Metrics are reported from the
event loop. ``directory`` says what its files mean, ``aside`` what becomes of those that were read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from connectors.backoff import Backoff
from connectors.cassandra import metrics as names
from connectors.cassandra.log.aside import Aside, Remover
from connectors.cassandra.log.directory import (
    Index,
    Usage,
    check_directory,
    first_indexed,
    is_behind,
    lock_directory,
    measure_usage,
    read_index,
    scan_directory,
    started_after,
)
from connectors.cassandra.log.segment import Segment
from connectors.cassandra.model import LogChunk, LogPosition
from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable

if TYPE_CHECKING:
    import logging

    from connectors.api import TaskMetrics
    from connectors.cassandra.log.directory import SegmentFiles
    from connectors.cassandra.model import LogSettings

#: Seconds between two measurements of the directory, and between retries of failed deletions.
WATCH_S: Final = 5.0
#: How soon to look again after something came; each further look without news doubles it, up to ``poll_ms``.
_SOON_S: Final = 0.01


class LogFollower:
    """Reads a node's log in order, from a position on; deletes what was acknowledged.

    One reader per directory. All methods belong to one event loop; none blocks it.
    """

    def __init__(
        self,
        settings: LogSettings,
        start: LogPosition | None,
        metrics: TaskMetrics,
        log: logging.LoggerAdapter[logging.Logger] | logging.Logger,
    ) -> None:
        """Does no work yet.

        Args:
            settings: where and how.
            start: what was read and delivered before, as it was saved; None: begin with the oldest segment there is.
            metrics: for the numbers of ``metrics.py``, with the label ``node``.
            log: for what an operator should know.
        """
        self._metrics = metrics
        self._labels = {"node": settings.node}
        self._log = log
        self._settings = settings
        self._reader = _LogReader(settings, start, log)
        self._remover = Remover(settings, log)
        self._removing = asyncio.Lock()
        self._acknowledged = start
        self._removed_upto: LogPosition | None = None
        self._look: asyncio.Task[LogChunk | None] | None = None
        self._watch: asyncio.Task[None] | None = None
        #: When the next look is due; None: at once.
        self._next_at: float | None = None
        self._pauses = Backoff(_SOON_S, settings.poll_ms / 1000)
        self._usage = Usage()
        self._limit = 0
        self._damaged = False

    @property
    def complete_ms(self) -> int:
        """When the log held nothing that ``read`` had not returned by now, or returned last; ms since 1970, 0: never yet."""
        return self._reader.complete_ms

    async def read(self) -> LogChunk | None:
        """Return the next chunk of the log; None if nothing new came within ``poll_ms``. Cancelling it loses nothing.

        Raises:
            Fatal: damage with the policy ``stop``, once what is before it was returned; a format that can't be read; a
                directory that does not belong to the start position.
            ConfigInvalid: the directory is not there, or lacks rights, at the first call.
            Retriable: it can't be read any more.
        """
        if self._look is None:
            self._look = asyncio.create_task(self._next_look())
        try:
            chunk = await asyncio.shield(self._look)
        except asyncio.CancelledError:
            raise  # what the look finds is for the next call
        except BaseException:
            self._look = None
            raise
        self._look = None
        if self._watch is None:
            self._watch = asyncio.create_task(self._keep_watch())
        return chunk

    async def acknowledged(self, position: LogPosition) -> None:
        """Everything up to ``position`` is safe: delete the segments that end there or before.

        Failures are logged and counted, and retried every few seconds. Positions that go back change nothing.
        """
        if self._acknowledged is not None and position <= self._acknowledged:
            return
        self._acknowledged = position
        removed = self._removed_upto
        if removed is None or position.segment > removed.segment or (position.finished and not removed.finished):
            with contextlib.suppress(Retriable):  # the watch and the next look tell about it
                await self._remove_delivered()

    def behind(self) -> dict[str, float]:
        """How far the reader is behind the node, measured in the last seconds.

        Returns:
            ``bytes``: of the log that can be read and were not; ``segments``: that are not read to their end; ``oldest_ms``:
            about when the oldest of those bytes could be read first, 0 if there are none; ``directory_bytes``: of all files in
            it; ``segment`` and ``position``: up to where was read.
        """
        position = self._reader.position or LogPosition(0)
        return {
            "bytes": self._usage.behind_bytes,
            "segments": self._usage.waiting,
            "oldest_ms": self._usage.oldest_ms,
            "directory_bytes": self._usage.total_bytes,
            "segment": position.segment,
            "position": position.position,
        }

    async def newest_segment(self) -> int | None:
        """Id of the newest segment that the node has created by now, written or not; None: there are no segments.

        Raises:
            Retriable: the directory can't be listed.
        """
        segments = await asyncio.to_thread(scan_directory, self._settings.directory, self._settings.node)
        return max((segment.id for segment in segments.values() if segment.present), default=None)

    def total_space(self, limit: int) -> None:
        """Tell the node's ``cdc_total_space`` in bytes, for the metric of how full the directory is; 0: not known."""
        self._limit = limit

    async def close(self) -> None:
        """Stop, once a look that is under way has ended; segments stay."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait((self._watch,))
        if self._look is not None:
            self._look.cancel()
            await asyncio.wait((self._look,))
            if not self._look.cancelled():
                self._look.exception()  # otherwise asyncio logs that the exception was never retrieved
        async with self._removing:
            await asyncio.to_thread(self._reader.release)

    async def _next_look(self) -> LogChunk | None:
        if self._next_at is not None:
            await asyncio.sleep(self._next_at - time.monotonic())
        work = asyncio.ensure_future(asyncio.to_thread(self._reader.look))
        try:
            chunk = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait((work,))  # a thread can't be stopped; it must not still run after close()
            raise
        finally:
            self._report_counts()
        if chunk is None:
            self._next_at = time.monotonic() + self._pauses.next_s()
            return None
        self._next_at = None
        self._pauses.reset()
        self._count_chunk(chunk)
        return chunk

    def _count_chunk(self, chunk: LogChunk) -> None:
        self._metrics.set(names.SEGMENT, chunk.segment, self._labels)
        self._metrics.set(names.POSITION, chunk.position, self._labels)
        if chunk.entries:
            self._metrics.add(names.READ_BYTES, chunk.entries[-1].end - chunk.entries[0].start, self._labels)
        if chunk.finished:
            self._metrics.add(names.SEGMENTS_READ, 1, self._labels)

    def _report_counts(self) -> None:
        for name, value in self._reader.counted():
            self._metrics.add(name, value, self._labels)
            self._damaged = self._damaged or name == names.DAMAGED

    async def _keep_watch(self) -> None:
        """Measure and clean up every few seconds, even if no one reads because Kafka is unavailable: then it fills up."""
        self._metrics.set(names.SEGMENTS_ASIDE, await asyncio.to_thread(self._reader.aside.count), self._labels)
        while True:
            try:
                self._usage = await asyncio.to_thread(
                    measure_usage,
                    self._settings.directory,
                    self._settings.node,
                    self._reader.position,
                    self._reader.readable_ms,
                )
                removable = await self._remove_delivered()
                self._show_usage(available=removable)
            except (Retriable, OSError) as error:
                self._log.warning("%s", error)
                self._metrics.set(names.DIRECTORY_AVAILABLE, 0, self._labels)
            if self._damaged:
                self._damaged = False
                self._metrics.set(names.SEGMENTS_ASIDE, await asyncio.to_thread(self._reader.aside.count), self._labels)
            await asyncio.sleep(WATCH_S)

    def _show_usage(self, *, available: bool) -> None:
        space = self._usage
        values = {
            names.DIRECTORY_AVAILABLE: 1 if available else 0,
            names.DIRECTORY_BYTES: space.total_bytes,
            names.DIRECTORY_LIMIT: self._limit,
            names.DIRECTORY_FILL: space.total_bytes / self._limit if self._limit else 0,
            names.SEGMENTS_WAITING: space.waiting,
            names.LAG_BYTES: space.behind_bytes,
            names.LAG_SECONDS: max(0.0, time.time() - space.oldest_ms / 1000) if space.oldest_ms else 0,
        }
        for name, value in values.items():
            self._metrics.set(name, value, self._labels)

    async def _remove_delivered(self) -> bool:
        """Delete what is delivered; False: not all of it could be.

        Raises:
            Retriable: the directory can't be listed.
        """
        async with self._removing:
            upto = self._acknowledged
            if upto is None or not self._settings.delete or not self._reader.matched:
                return True
            self._removed_upto = upto
            removed = await asyncio.to_thread(self._remover.remove, upto)
            for name, value in (
                (names.SEGMENTS_DELETED, removed.deleted),
                (names.DELETE_ERRORS, removed.failed),
                (names.SEGMENTS_RELINKED, removed.relinked),
            ):
                if value:
                    self._metrics.add(name, value, self._labels)
            return not removed.failed


class _LogReader:
    """The blocking part of ``LogFollower``, which runs in threads. Not thread-safe: one look at a time.

    Attributes:
        position: the end of what was read; None: nothing was read.
        readable_ms: when the newest data that was read could be read first; 0: not known.
        complete_ms: when the log held nothing beyond what was read by now; 0: that was never so.
        matched: the directory is the one that the start position is from, as far as that is known.
        aside: where damaged segments go.
    """

    def __init__(
        self,
        settings: LogSettings,
        start: LogPosition | None,
        log: logging.LoggerAdapter[logging.Logger] | logging.Logger,
    ) -> None:
        self.position = start
        self.readable_ms = 0
        self.complete_ms = 0
        self.matched = False
        self.aside = Aside(settings)
        self._settings = settings
        self._start = start
        self._log = log
        self._files: dict[int, SegmentFiles] = {}
        self._current: SegmentFiles | None = None
        self._segment: Segment | None = None
        self._index: Index | None = None
        self._complete = False
        #: Whether the index file is as new as all that can be read of the segment.
        self._index_is_new = False
        self._more = False
        self._failure: MillraceError | None = None
        self._problem: tuple[SegmentFiles, Segment, str] | None = None
        self._counts: Counter[str] = Counter()
        #: When the listing that counts was started; 0: nothing follows from it.
        self._listed_ms = 0
        #: Of the directory; None: it is not locked.
        self._lock: int | None = None
        self._marked = False

    def counted(self) -> list[tuple[str, int]]:
        """Counters that grew since the last call, by metric."""
        counts, self._counts = self._counts, Counter()
        return list(counts.items())

    def close(self) -> None:
        """Close the open segment."""
        if self._segment is not None:
            self._segment.close()
        self._segment = self._current = None

    def release(self) -> None:
        """Close everything; nothing can be read any more."""
        self.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _lock_directory(self) -> None:
        """Let other readers of the directory know; warn if there is one already."""
        try:
            self._lock = lock_directory(self._settings.directory, delete=self._settings.delete)
        except OSError as error:
            self._log.debug("Node %s: %s can't be locked: %s", self._settings.node, self._settings.directory, error)
            return
        if self._lock is None:
            self._log.warning(
                "Node %s: another connector or task on this machine reads %s too, and readers delete each "
                "other's segments before they are read. Give each directory to one connector, or set "
                "commit.log.delete=false in all of them",
                self._settings.node,
                self._settings.directory,
            )

    def look(self) -> LogChunk | None:
        """The next chunk; None: there is nothing new. Raises as ``LogFollower.read``."""
        if self._failure is not None:
            raise self._failure
        if self._problem is not None:
            return self._pass_over(*self._problem)
        if self._more:
            if (chunk := self._read_chunk()) is not None:
                return chunk
            self._note_end()
        self._listed_ms = time.time_ns() // 1_000_000
        self._refresh_files()
        current = self._choose_segment()
        if current is not None:
            self._ask_index(current)
        chunk = self._read_chunk()
        if chunk is None:
            self._note_end()
        return chunk

    def _note_end(self) -> None:
        """Nothing more can be read: if all was read that was there at the listing, that is known now."""
        segment = self._segment
        if segment is None:
            at_end = True
        elif self._complete:
            at_end = False  # its end is not found yet
        elif self._settings.mode == "marker":
            at_end = not segment.is_unclear
        else:
            at_end = self._index is not None and 0 < self._index.offset <= segment.position
        if at_end:
            self.complete_ms = max(self.complete_ms, self._listed_ms)

    # What there is.

    def _refresh_files(self) -> None:
        if not self.matched:
            check_directory(self._settings.directory, self._settings.node, delete=self._settings.delete)
            if not self._marked:
                self._marked = True
                self._lock_directory()
        before, self._files = self._files, scan_directory(self._settings.directory, self._settings.node)
        if not self.matched:
            self._match_directory()
            return
        for previous in before.values():
            gone = previous.present and not (previous.id in self._files and self._files[previous.id].present)
            if gone and previous.indexed and not self._read_whole(previous.id):
                self._deleted_unread(previous)
        current = self._current
        if current is not None and (segment_file := self._files.get(current.id)) is not None:
            if segment_file.present and segment_file.inode != current.inode:
                self._log.info(
                    "Node %s: segment %s is another file now; it is read on at offset %d",
                    self._settings.node,
                    segment_file.log.name,
                    self._start_offset(segment_file.id),
                )
                self.close()
            else:
                self._current = segment_file._replace(inode=current.inode)

    def _deleted_unread(self, segment: SegmentFiles) -> None:
        message = f"Node {self._settings.node}: segment {segment.log.name} was deleted by somebody else"
        if self._current is not None and self._current.id == segment.id:
            self._log.warning(
                "%s while it is being read; the open file is read to its end, but a restart of this worker could "
                "not continue in it",
                message,
            )
            return
        message += (
            " before it was read; its changes are lost. Does another consumer use the directory, or is cdc_block_writes "
            "false in cassandra.yaml (then the node deletes what is not read in time)? Take a new snapshot of the tables"
        )
        self._counts[names.DAMAGED] += 1
        self._log.error("%s", message)
        if self._settings.policy == "stop":
            self._failure = Fatal(f"{message}. A restart of the task continues with what is there")

    def _match_directory(self) -> None:
        """Whether the directory can be the one that the start position is from. Nothing may be deleted before."""
        start = self._start
        if start is not None:
            ids = [segment.id for segment in self._files.values() if segment.present]
            if ids and ids[-1] < start.segment:
                raise Fatal(
                    f"Node {self._settings.node}: all segments in {self._settings.directory} (the newest: {ids[-1]}) "
                    f"are older than the saved position (segment {start.segment}), but a node's ids only grow. Does "
                    "cdc.raw.directories give the directory of another node? If the node was set up again with its "
                    "clock behind, delete the connector's offset of this node (PATCH /connectors/NAME/offsets)"
                )
            if (
                not start.finished
                and start.position
                and not any(segment.present and segment.id == start.segment for segment in self._files.values())
            ):
                level = self._log.warning if self._settings.mode == "marker" else self._log.error
                level(
                    "Node %s: segment %d, read up to offset %d, is not there any more: either nothing more was captured in "
                    "it, or somebody deleted it before it was read to its end. Reading continues with the next one",
                    self._settings.node,
                    start.segment,
                    start.position,
                )
        self.matched = True

    def _read_whole(self, log_id: int) -> bool:
        return self.position is not None and is_behind(log_id, self.position)

    def _start_offset(self, log_id: int) -> int:
        """Offset in a segment behind which to begin."""
        return self.position.position if self.position is not None and self.position.segment == log_id else 0

    def _choose_segment(self) -> SegmentFiles | None:
        """Open the segment to read, unless it is open; None: there is no segment yet."""
        if self._failure is not None:
            raise self._failure
        left = [segment for segment in self._files.values() if segment.present and not self._read_whole(segment.id)]
        if self._settings.mode == "marker":
            next_segment = left[0] if left else None
        else:
            next_segment = first_indexed(left)
            # One that was read in part has captured changes, whatever became of its index file.
            if next_segment is not None and left[0].id != next_segment.id and self._start_offset(left[0].id):
                next_segment = left[0]
        current = self._current
        if current is not None and (
            next_segment is None or next_segment.id >= current.id or self._start_offset(current.id)
        ):
            return current
        if next_segment is None:
            return None
        # An earlier one came while nothing was read of the open one: the server links a segment late after a full directory.
        self.close()
        try:
            self._segment = Segment(next_segment.log, next_segment.id, self._start_offset(next_segment.id))
        except FileNotFoundError:
            self._listed_ms = 0
            return None  # it had no captured change and is gone, or the next listing tells
        except OSError as error:
            raise self._explain_unreadable(next_segment, error) from error
        self._current = next_segment
        self._index, self._complete, self._index_is_new = None, False, False
        return next_segment

    def _ask_index(self, current: SegmentFiles) -> None:
        """Look up to where the open segment may be read. The order counts: later segments first, then its own index file."""
        marker = self._settings.mode == "marker"
        synced = started_after(self._files.values(), current.id, by_markers=False)
        later = synced or (marker and started_after(self._files.values(), current.id, by_markers=True))
        try:
            index = read_index(current.idx)
        except OSError as error:
            raise self._explain_unreadable(current, error) from error
        if index is not None:  # else somebody deleted it
            self._index = index
        completed = self._index is not None and self._index.completed
        self._complete = later or completed
        # The marker of a later segment comes before this one is synced for the last time.
        self._index_is_new = synced or completed or not marker

    # What is in it.

    def _read_chunk(self) -> LogChunk | None:
        current, segment = self._current, self._segment
        if current is None or segment is None:
            return None
        synced = self._index.offset if self._index is not None else 0
        limit = None if self._settings.mode == "marker" else synced
        try:
            chunk = segment.read(limit, complete=self._complete, max_bytes=self._settings.max_bytes, synced=synced)
        except OSError as error:
            raise self._explain_unreadable(current, error) from error
        if chunk is not None and not (chunk.entries or chunk.finished or chunk.problem or chunk.lost):
            # Maybe it has only a head: such a segment counts as not started, and an earlier one may still appear (see _choose).
            chunk = None
        self._more = chunk is not None
        if chunk is None:
            return None
        if chunk.lost is not None:
            self._count_lost(current, chunk.lost)
        if chunk.problem:
            return self._take_damage(current, segment, chunk)
        return self._advance_position(chunk)

    def _advance_position(self, chunk: LogChunk) -> LogChunk:
        """Move the position behind the chunk."""
        now = time.time_ns() // 1_000_000
        self.readable_ms = self._index.written_ms if self._index is not None and self._index_is_new else now
        self.position = LogPosition(chunk.segment, chunk.position, 0, chunk.finished)
        if chunk.finished:
            self.close()
            self._more = False
        return chunk._replace(written_ms=self.readable_ms)

    def _take_damage(self, current: SegmentFiles, segment: Segment, chunk: LogChunk) -> LogChunk | None:
        """The good part in front of damage; what the policy says comes at the next look, or now where there is no good part."""
        self._counts[names.DAMAGED] += 1
        problem = f"Node {self._settings.node}: {chunk.problem}"
        fix = (
            "commit.log.error.policy=skip passes over what can't be read; take a new snapshot of the tables then, since "
            "changes are missing"
        )
        try:
            problem += f" (the segment is kept as {self.aside.keep(current.log, current.idx, problem)})"
        except OSError as error:
            problem += f" (it could not be kept aside: {error})"
            self._failure = ConfigInvalid(
                f"{problem}. Everything before it was delivered. Let commit.log.error.directory be a "
                f"folder in which this worker can write, not {self.aside.folder}. {fix}"
            )
        if self._settings.policy == "stop":
            self._failure = Fatal(f"{problem}. Everything before it was delivered. {fix}")
        if self._failure is None:
            self._problem = current, segment, problem
            return (
                self._advance_position(chunk._replace(problem="")) if chunk.entries else self._pass_over(*self._problem)
            )
        self._log.error("%s", self._failure)
        if not chunk.entries:
            raise self._failure
        return self._advance_position(chunk)

    def _pass_over(self, current: SegmentFiles, segment: Segment, problem: str) -> LogChunk | None:
        """Continue behind damage; the loss is logged as an error."""
        try:
            lost = segment.skip()
        except OSError as error:
            raise self._explain_unreadable(current, error) from error
        self._problem = None
        self._log.error("%s. It is passed over (commit.log.error.policy=skip)", problem)
        if lost[1] == lost[0]:  # nothing readable follows yet; the chunk that begins behind the damage has the loss
            self._more = False
            return None
        self._count_lost(current, lost)
        self._more = True
        return self._advance_position(
            LogChunk(current.id, segment.version, b"", [], lost[1], problem=problem, lost=lost)
        )

    def _count_lost(self, current: SegmentFiles, lost: tuple[int, int]) -> None:
        self._counts[names.LOST_BYTES] += lost[1] - lost[0]
        self._log.error(
            "Node %s: changes in segment %s at offsets %d to %d are lost: take a new snapshot of the tables",
            self._settings.node,
            current.log.name,
            *lost,
        )

    def _explain_unreadable(self, current: SegmentFiles, error: OSError) -> Exception:
        message = (
            f"Node {self._settings.node}: {error.filename or current.log} can't be read: {error.strerror or error}"
        )
        if isinstance(error, PermissionError):
            return ConfigInvalid(
                f"{message}: let the user of this worker read what Cassandra writes (same group and umask 027, "
                f"or setfacl -d -m u:USER:rwx {self._settings.directory})"
            )
        return Retriable(f"{message}: is the volume of {self._settings.directory} mounted and in order?")
