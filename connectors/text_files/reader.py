"""Reads files in turn, a block at a time, and yields batches of what a connector makes of their lines."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

from connectors.api import BadRecord, Batch, Position, SourceRecord
from connectors.backoff import Backoff
from connectors.errors import Fatal, Retriable, Skippable
from connectors.text_files.follower import Follower, FollowerStep, StepKind
from connectors.text_files.joining import LineJoiner
from connectors.text_files.lines import (
    NOTHING,
    BadLine,
    LineSplitter,
    TextLines,
    byte_order,
    is_part_of_mark,
    mark_length,
    unit_size,
)
from connectors.text_files.rotation import HEAD, fingerprint_head

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from connectors.api import TaskContext
    from connectors.text_files.joining import JoinSettings
    from connectors.text_files.options import FileReadSettings

FILENAME: Final = "filename"
POSITION: Final = "position"
#: Next to Kafka Connect's fields, with ``rotation.tracking``: which file the position is in.
FINGERPRINT: Final = "fingerprint"

_SHORTEST_PAUSE: Final = 0.01
#: Files one task holds open; others are closed while they do not change.
_OPEN_FILES: Final = 128
#: Files looked at in one call in a thread.
_STEPS: Final = 64
#: Steps after which a file does not count as one that can be read.
_OUT_OF_ORDER: Final = frozenset({StepKind.MISSING, StepKind.GONE, StepKind.CORRUPT, StepKind.UNREADABLE})
#: Seconds after which a file of a directory that can't be read is looked at again.
_RETRY_S: Final = 1.0

T = TypeVar("T")
#: Source partition, the offset before the first line, lines, and the offset after each line -> records. The last record of a
#: line has that line's offset, the very object, or the position is saved without a record.
MakeRecords = Callable[[Position, Position, list[str], Sequence[Position]], list[SourceRecord]]

#: Readers of all files -> a batch to yield, or None.
LookAtReaders = Callable[[Sequence["TextFileReader"]], Batch | None]


async def read_files(
    context: TaskContext,
    options: FileReadSettings,
    make_records: MakeRecords,
    topic: str,
    joining: JoinSettings | None = None,
    look: LookAtReaders | None = None,
) -> AsyncGenerator[Batch, None]:
    """Yield batches of lines until cancelled; each file's bytes are read in a thread.

    Args:
        context: of the task.
        options: how to read, and which files.
        make_records: makes records of lines.
        topic: where bad records would have gone.
        joining: which lines belong together; None for none.
        look: called after each look at all files; what it returns is yielded.

    Raises:
        Fatal: the file can't be read, or a saved offset is not one of this reader's. A file of a directory is logged instead,
            and the others are read.
        Retriable: the file can't be read at the moment.
    """
    sources = [TextFileReader(context, options, path, make_records, topic, joining) for path in options.files]
    pauses = Backoff(_SHORTEST_PAUSE, options.poll_interval)
    thread = _Thread()
    try:
        while True:
            busy = False
            at = 0
            room = _OPEN_FILES - sum(source.follower.is_open for source in sources)
            first_waiting: int | None = None
            while at < len(sources):
                steps, room = await thread.call(partial(_advance_sources, sources, at, room))
                for index, step in enumerate(steps, at):
                    source = sources[index]
                    if step is None:
                        first_waiting = index if first_waiting is None else first_waiting
                        continue
                    for batch in source.take(step):
                        busy = True
                        yield batch
                        del batch  # not kept while the next one is waited for
                    busy = busy or source.more
                at += len(steps)
            for source in sources if joining is not None else ():
                for batch in source.flush_when_quiet():
                    yield batch
                    del batch
            if look is not None and (noted := look(sources)) is not None:
                yield noted
            _park_sources(sources)
            if first_waiting is not None:  # it is the first one next time
                sources = sources[first_waiting:] + sources[:first_waiting]
            if busy:
                pauses.reset()
                continue
            # Looking costs a system call a file: many files are looked at less often.
            pauses.longest_s = max(options.poll_interval, len(sources) / 1000)
            await asyncio.sleep(pauses.next_s())
    finally:
        thread.afterwards(partial(_close_sources, sources))


async def read_file_once(reader: TextFileReader, patience: float) -> AsyncGenerator[Batch, None]:
    """Yield batches of a file until nothing came for ``patience`` seconds; whoever has enough closes the generator.

    Raises:
        Fatal: the file can't be read.
        Retriable: it can't be read at the moment.
    """
    thread = _Thread()
    quiet_since: float | None = None
    try:
        while True:
            step = await thread.call(reader.follower.advance)
            for batch in reader.take(step):
                yield batch
            if reader.more:
                quiet_since = None
                continue
            now = time.monotonic()
            quiet_since = now if quiet_since is None else quiet_since
            if now - quiet_since >= patience:
                for batch in reader.flush():
                    yield batch
                return
            await asyncio.sleep(min(patience, 0.1))
    finally:
        thread.afterwards(partial(_close_sources, [reader]))


class TextFileReader:
    """One file's way from bytes to batches. It begins at ``start``, without that at the saved offset.

    Attributes:
        path: its name.
        partition: its source partition.
        seen_ms: when it was last found and could be read, milliseconds since 1970; 0 for never.
    """

    def __init__(
        self,
        context: TaskContext,
        options: FileReadSettings,
        path: str,
        make_records: MakeRecords,
        topic: str,
        joining: JoinSettings | None = None,
        start: Position | None = None,
    ) -> None:
        self._log = context.log
        self._options = options
        self._several = options.several
        self._make_records = make_records
        self._topic = topic
        self.path = path
        self.partition: Position = {FILENAME: path}
        self.seen_ms = 0
        self._joining = joining
        self._join_wait = joining.wait if joining is not None else 0.0
        #: When the last line came, and how long after it the file was last looked at and had no more (0 while it has); only
        #: where lines are joined.
        self._last_line = 0.0
        self._quiet_for = 0.0
        self._known_missing = False
        #: Why it can't be read, "" if it can; and when it is looked at again.
        self._trouble = ""
        self._retry_at = 0.0
        #: Whether another step may find something at once.
        self.more = True
        self._resume(context.offsets.get(self.partition) if start is None else start)

    def _resume(self, offset: Position | None) -> None:
        """Start at an offset, as if nothing had been read before.

        Raises:
            Fatal: the offset is not this connector's.
        """
        options = self._options
        position, print_of_head = _read_saved(self.path, offset)
        self.follower = Follower(
            self.path,
            compression=options.compression,
            position=position,
            saved_fingerprint=print_of_head,
            rotated_pattern=options.rotated_pattern,
            wait=options.rotation_wait,
            clock=time.monotonic,
            unit=unit_size(options.encoding),
        )
        self._resumed_at = offset
        self._splitter: LineSplitter | None = None
        #: All of the file so far, if it may become a byte order mark.
        self._mark_part = b""
        #: The first bytes of the file that the lines are of. The follower may have the next file already.
        self._head = b""
        self._joiner = LineJoiner(self._joining) if self._joining is not None else None
        #: The position after the last event; only where lines are joined.
        self._event_end = position
        #: The offset at the end of the file before, until something of this one was yielded.
        self._before: Position | None = None
        self._start = position
        self._started = False

    @property
    def is_expected(self) -> bool:
        """Whether there should be such a file now: one of a directory may go for good."""
        return self._started or not self._several or bool(self._trouble)

    @property
    def offset(self) -> Position:
        """The offset after all that was yielded of it."""
        if not self._started and self._resumed_at is not None:
            return self._resumed_at
        if self._before is not None:
            return self._before
        return self._make_offset(self._event_end if self._joiner is not None else self._current_position())

    @property
    def idle_and_open(self) -> bool:
        """Whether the file could be closed until it changes."""
        return self.follower.is_open and not self.more

    def advance(self) -> FollowerStep:
        """The next step of its follower. Blocks for one read.

        Raises:
            Fatal: the file can't be read; only if it is not one of a directory.
            Retriable: the same, now.
        """
        if self._trouble and time.monotonic() < self._retry_at:
            return FollowerStep(StepKind.UNREADABLE, note=self._trouble)
        try:
            return self.follower.advance()
        except (Fatal, Retriable) as error:
            if not self._several:
                raise
            self._retry_at = time.monotonic() + _RETRY_S
            return FollowerStep(StepKind.UNREADABLE, note=str(error))

    def take(self, step: FollowerStep) -> Iterable[Batch]:
        """The batches that follow from what the follower found; they are made as they are asked for."""
        kind = step.kind
        if kind is StepKind.UNREADABLE:
            return self._wait_until_readable(step.note)
        self._trouble = ""
        self.more = kind in {StepKind.DATA, StepKind.BUSY, StepKind.BEGIN}
        self._quiet_for = 0.0 if self.more else time.monotonic() - self._last_line
        if kind not in _OUT_OF_ORDER:
            self.seen_ms = time.time_ns() // 1_000_000
        if kind is StepKind.DATA:
            self._head = self.follower.head
            start = self._current_position()
            return self._make_batches(self._split_lines(step.data), start)
        if kind is StepKind.IDLE or kind is StepKind.BUSY:
            return []
        if kind is StepKind.MISSING:
            if not self._known_missing:
                self._known_missing = True
                self._log.warning("Couldn't find file %s, waiting for it to be created", self.partition[FILENAME])
            return []
        if kind is StepKind.BEGIN:
            return self._begin_file(step.position, step.note)
        if kind is StepKind.CORRUPT:
            return self._report_corrupt(step.note)
        last_batches = self._finish_file() if kind is StepKind.COMPLETE or self._several else []
        if kind is StepKind.GONE and self._several and self._started:
            self._log.info("%s is read to its end and gone", self.partition[FILENAME])
            self.follower.forget()
            self._started = False
            self._splitter = None
            self._before = None
            self._start = 0
            last_batches.append(Batch([], offsets=((self.partition, None),)))
        return last_batches

    def _wait_until_readable(self, reason: str) -> list[Batch]:
        if reason != self._trouble:
            self._log.warning("%s; the task's other files are read meanwhile", reason)
        self._trouble = reason
        self.more = False
        # The follower may be between two steps: as after a restart, the position is looked for.
        offset = self.offset if self._started else self._resumed_at
        self.follower.close()
        self._resume(offset)
        return []

    def _begin_file(self, position: int, note: str) -> list[Batch]:
        if note:
            self._log.warning("%s", note)
        batches = self._finish_file()
        self._before = self.offset if self._started and self._options.finds_rotated else None
        self._splitter = None
        self._head = self.follower.head
        self._start = position
        self._event_end = position
        self._known_missing = False
        if self._started and self._before is None:
            # What follows is of another file: its first position is saved at once, so that a restart does not look for the
            # old one's position in it. Where rotated files are looked for, the old one's fingerprint prevents that, and its
            # position finds what comes behind it, also if this file is rotated before a line of it was read.
            batches.append(Batch([], offsets=((self.partition, self._make_offset(position)),)))
        self._started = True
        return batches

    def _split_lines(self, data: bytes) -> TextLines:
        if self._splitter is None:
            data = self._mark_part + data
            if not self._start and is_part_of_mark(self._options.encoding, data):
                self._mark_part = data
                return NOTHING
            return self._begin_splitting(data)
        return self._splitter.feed(data)

    def _begin_splitting(self, data: bytes) -> TextLines:
        """The lines in the first data of a file."""
        options = self._options
        skipped = 0 if self._start else mark_length(options.encoding, data)
        self._splitter = LineSplitter(
            byte_order(options.encoding, self._head),
            position=self._start + skipped,
            limit=options.line_limit,
            replace=options.replace_malformed,
            cut=options.split_long,
        )
        self._mark_part = b""
        self._event_end = self._start + skipped
        return self._splitter.feed(data[skipped:])

    def _finish_file(self) -> list[Batch]:
        """The unfinished last line of a file that ended, and the event that it ends."""
        if self._mark_part:
            self._begin_splitting(self._mark_part)
        if self._splitter is None:
            return []
        start = self._splitter.position
        return [*self._make_batches(self._splitter.finish(), start), *self.flush()]

    def flush_when_quiet(self) -> Iterable[Batch]:
        """The last event, if the file had no more line for as long as it waits for one.

        A task that waits for Kafka does not look at its files: that is no sign that they are quiet.
        """
        if self._joiner is None or not self._joiner.holds_lines:
            return []
        return self.flush() if self._quiet_for >= self._join_wait else []

    def flush(self) -> list[Batch]:
        """The event that waits for its end."""
        return [] if self._joiner is None else list(self._event_batches(*self._joiner.flush()))

    def _join_lines(self, joiner: LineJoiner, lines: TextLines) -> Iterator[Batch]:
        """Batches of joined lines; a bad line ends the event before it."""
        strings, ends, bad = lines
        self._last_line = time.monotonic()
        done = 0
        for line in bad:
            upto = bisect_left(ends, line.end)
            yield from self._event_batches(*joiner.add(strings[done:upto], ends[done:upto]))
            yield from self.flush()
            done = upto
            reported = self._bad_record(line)
            self._event_end = line.end
            yield Batch([], (reported,), ((self.partition, reported.source_offset),))
        yield from self._event_batches(*joiner.add(strings[done:], ends[done:]))

    def _event_batches(self, events: list[str], ends: list[int]) -> Iterator[Batch]:
        size = self._options.batch_size
        for at in range(0, len(events), size):
            part = ends[at : at + size]
            batch = self._make_batch(events[at : at + size], part, self._event_end)
            self._event_end = part[-1]
            yield batch

    def _current_position(self) -> int:
        """The position after the last whole line."""
        return self._start if self._splitter is None else self._splitter.position

    def _report_corrupt(self, reason: str) -> list[Batch]:
        batches = self._finish_file()
        position = self._current_position()
        path = self.partition[FILENAME]
        error = Skippable(
            f"{path} can't be decompressed after position {position}: {reason}; the rest of it is left out until "
            "it is replaced by a whole file"
        )
        bad = BadRecord(self.partition, self._make_offset(position), error, topic=self._topic)
        self._before = None
        return [*batches, Batch([], (bad,))]

    def _make_offset(self, end: int) -> Position:
        if self._options.tracking:
            return {POSITION: end, FINGERPRINT: fingerprint_head(self._head, end)}
        return {POSITION: end}

    def _make_offsets(self, ends: Sequence[int]) -> list[Position]:
        if not self._options.tracking:
            return [{POSITION: end} for end in ends]
        if ends and ends[0] >= HEAD:
            print_of_head = fingerprint_head(self._head, HEAD)  # the same for all positions from here on
            return [{POSITION: end, FINGERPRINT: print_of_head} for end in ends]
        return [self._make_offset(end) for end in ends]

    def _make_batches(self, lines: TextLines, start: int) -> Iterator[Batch]:
        if self._joiner is not None:
            yield from self._join_lines(self._joiner, lines)
            return
        strings, ends, bad = lines
        size = self._options.batch_size
        if bad:
            yield from self._with_bad(lines, start)
        elif len(strings) <= size:
            if strings:
                yield self._make_batch(strings, ends, start)
        else:
            for at in range(0, len(strings), size):
                yield self._make_batch(strings[at : at + size], ends[at : at + size], ends[at - 1] if at else start)

    def _make_batch(self, lines: list[str], ends: Sequence[int], start: int) -> Batch:
        """The lines as records, and the position after them where no record has it."""
        offsets = self._make_offsets(ends)
        self._before = None
        records = self._make_records(self.partition, self._make_offset(start), lines, offsets)
        if records and records[-1].source_offset is offsets[-1]:
            return Batch(records)
        return Batch(records, offsets=((self.partition, offsets[-1]),))

    def _with_bad(self, lines: TextLines, start: int) -> Iterator[Batch]:
        """The lines, and the bad ones among them in batches of their own: a line starts behind the one before, bad or not."""
        strings, ends, bad = lines
        done = 0
        for upto, group in groupby(bad, lambda line: bisect_left(ends, line.end)):
            yield from self._make_batches(TextLines(strings[done:upto], ends[done:upto]), start)
            reported = tuple(map(self._bad_record, group))
            yield Batch([], reported, ((self.partition, reported[-1].source_offset),))
            done, start = upto, reported[-1].source_offset[POSITION]
        yield from self._make_batches(TextLines(strings[done:], ends[done:]), start)

    def _bad_record(self, line: BadLine) -> BadRecord:
        path = self.partition[FILENAME]
        self._before = None
        error = Skippable(f"{path}, before position {line.end}: {line.error}")
        return BadRecord(self.partition, self._make_offset(line.end), error, line.raw, self._topic)


class _Thread:
    """Runs one blocking call after the other in threads; a call that is under way outlives a cancelled await."""

    def __init__(self) -> None:
        self._running: asyncio.Future[Any] | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Await ``function`` run in a thread."""
        future = asyncio.get_running_loop().run_in_executor(None, function)
        self._running = future
        return await asyncio.shield(future)

    def afterwards(self, function: Callable[[], None]) -> None:
        """Call ``function`` now, or as soon as the call that is under way has returned."""
        if self._running is None or self._running.done():
            function()
            return

        def finish(future: asyncio.Future[Any]) -> None:
            if not future.cancelled():
                future.exception()  # no caller awaits it any more
            function()

        self._running.add_done_callback(finish)


def _advance_sources(sources: list[TextFileReader], at: int, room: int) -> tuple[list[FollowerStep | None], int]:
    """A step of each source from ``at`` on, until one has data: at most one block is in memory. Blocks.

    Args:
        sources: all of them.
        at: the first one's index.
        room: how many further files may be opened.

    Returns:
        The steps, None for a source that would have to open a file and has to wait until others are closed; the room that is
        left.
    """
    steps: list[FollowerStep | None] = []
    for source in sources[at : at + _STEPS]:
        was_open = source.follower.is_open
        if not was_open and room <= 0:
            steps.append(None)
            continue
        step = source.advance()
        room -= source.follower.is_open - was_open
        steps.append(step)
        if step.data:
            break
    return steps, room


def _close_sources(sources: list[TextFileReader]) -> None:
    for source in sources:
        source.follower.close()


def _read_saved(path: str, offset: Position | None) -> tuple[int, str | None]:
    """Position and fingerprint of a saved offset.

    Raises:
        Fatal: the offset is not this connector's.
    """
    if offset is None:
        return 0, None
    position = offset.get(POSITION)
    if position is None:
        return 0, None
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise Fatal(
            f"Offset position is the incorrect type: {position!r} is saved for {path} where a number of bytes must "
            "be; reset or alter this connector's offsets"
        )
    print_of_head = offset.get(FINGERPRINT)
    return position, print_of_head if isinstance(print_of_head, str) else None


def _park_sources(sources: list[TextFileReader]) -> None:
    """Close files that do not change, if there are more than a task may hold open; the others need room among these."""
    if len(sources) > _OPEN_FILES:
        for source in [source for source in sources if source.idle_and_open][_OPEN_FILES // 2 :]:
            source.follower.park()
