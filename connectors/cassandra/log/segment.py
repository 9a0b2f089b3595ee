"""One commit log segment, read from its sync markers: entries in order, each verified, and a way past what is damaged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.cassandra.log import entries as framing
from connectors.cassandra.log.compression import Codec, find_codec
from connectors.cassandra.log.descriptor import FRAME, Descriptor, SegmentDamaged, read_head
from connectors.cassandra.log.sections import (
    LENGTH,
    MARKER,
    LogSection,
    OpenSegment,
    empty_section,
    find_marker,
    has_marker,
    next_section,
)
from connectors.cassandra.model import LogChunk

if TYPE_CHECKING:
    from pathlib import Path

    from connectors.cassandra.model import LogEntry

#: What looks damaged may be half-written as long as the node has not said that it is on disk; after so long it is damaged.
GRACE_S: Final = 5.0

_LONGEST_HEAD: Final = FRAME + (1 << 16)
_LEAST_ROOM: Final = 4096


class _Span(NamedTuple):
    """Part of a section, by logical positions; ``contents`` of the whole section where it is compressed."""

    section: LogSection
    start: int
    stop: int
    contents: bytes = b""


class _Fault(NamedTuple):
    """Damage, and what `Segment.skip` can do about it.

    Attributes:
        text: what is wrong, and where.
        go_on: logical position in this section behind the damage; 0: that isn't known.
        search: else: file offset from which to look for a sync marker; 0: no use.
        base: where one is found in a compressed segment: the logical end of what is before it.
    """

    text: str
    go_on: int = 0
    search: int = 0
    base: int = 0


class Segment:
    """One open segment. Its methods block: call them in a thread. Not thread-safe.

    Logical positions are those of Cassandra: offsets in the file as if it weren't compressed. The position of an entry is that
    of its end.

    Args:
        path: of the file.
        log_id: the id in its name.
        start: logical position behind which to begin: entries that end at or before it are passed over. Any number will do.
            Damage before it isn't reported again.

    Raises:
        OSError: the file can't be opened.
    """

    def __init__(self, path: Path, log_id: int, start: int = 0) -> None:
        self._name, self._id, self._start = path.name, log_id, start
        self._file = OpenSegment(path)
        self.descriptor: Descriptor | None = None
        self._codec: Codec | None = None
        #: Contents of the compressed section whose marker is at the offset.
        self._contents: tuple[int, bytes] = (-1, b"")
        #: The section that is being read, and the logical position up to which it was.
        self._section, self._at = empty_section(0, 0), 0
        self._fault: _Fault | None = None
        #: Which position has looked damaged, and since when, though it may still be written.
        self._suspect: tuple[int, float] = (-1, 0.0)
        #: Damage that was skipped without knowing where intact bytes follow, and when they were last looked for.
        self._lost: tuple[int, _Fault] | None = None
        self._searched = 0.0
        #: ``over``: there is nothing more to read; ``finished``: and that was said.
        self._complete = self._over = self._finished = False
        self._synced = 0

    @property
    def version(self) -> int:
        """Of the format; 0 as long as the head was not read."""
        return self.descriptor.version if self.descriptor else 0

    @property
    def position(self) -> int:
        """Logical position up to which the segment was read."""
        return max(self._start, self._at)

    @property
    def is_unclear(self) -> bool:
        """Whether bytes follow the position that can't be read, or not yet."""
        return self._fault is not None or self._lost is not None or self._suspect[0] == self._at

    def read(self, limit: int | None, *, complete: bool, max_bytes: int, synced: int = 0) -> LogChunk | None:
        """The next entries.

        Args:
            limit: logical position up to which the node has synced; None: read up to the newest sync marker.
            complete: the node is through with the segment: read to the end whatever ``limit`` is, then give ``finished``.
            max_bytes: of a chunk, about. A larger entry comes alone; a compressed section is decompressed whole.
            synced: up to where the node says that it has synced: it is damaged if it ends before. The length of the file is no
                such position; 0: not known.

        Returns:
            None: nothing is new. A chunk with a ``problem`` has the good entries before the damage; it comes again, without
            them, until `skip` was called. ``lost`` is set only where the end of a loss was not known yet at `skip`.

        Raises:
            Fatal: the segment is intact, but of a kind that can't be read.
            OSError: the file can't be read.
        """
        self._complete, self._synced = complete, synced
        if self._finished:
            return None
        if self._fault:
            return self._make_chunk(b"", [])
        self._file.look()
        was, lost = self.position, None
        if self._lost:
            lost = self._find_loss_end()
            if lost is None:
                return None
        elif not self._over and self.descriptor is None and not self._read_head():
            return self._make_chunk(b"", []) if self._fault else None
        data: bytes = b""
        entries: list[LogEntry] = []
        if self._over:
            self._finished = True
        else:
            data = self._read_entries(None if complete else limit, max(max_bytes, _LEAST_ROOM), entries)
        if entries or lost or self._fault or self._finished or self.position > was:
            return self._make_chunk(data, entries, lost)
        return None

    def skip(self) -> tuple[int, int]:
        """Move past the damage that the last chunk reported.

        Past the one entry when its size is intact, else to the next intact sync marker, else to the end. In a segment that is
        not complete there may be no such marker yet: then nothing counts as lost here (both positions are equal), reading
        continues as soon as there is one, and the first chunk after that has ``lost``. In a compressed segment the length of
        the loss may be unknown: then it, and the positions behind it, are smaller than Cassandra's, the same whenever the
        segment is read.

        Returns:
            Logical positions between which entries are lost.
        """
        fault, at = self._fault, self.position
        self._fault = None
        if fault is None:
            return at, at
        if fault.go_on:
            self._at = fault.go_on
            return at, self._at
        self._lost = (at, fault)
        self._searched = float("-inf")
        return self._find_loss_end() or (at, at)

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._file.close()
        self._contents = (-1, b"")

    def _make_chunk(self, data: bytes, entries: list[LogEntry], lost: tuple[int, int] | None = None) -> LogChunk:
        problem = f"{self._name}, {self._fault.text}" if self._fault else ""
        time_ms = self._file.written_ms
        return LogChunk(self._id, self.version, data, entries, self.position, self._finished, problem, lost, time_ms)

    def _read_head(self) -> bool:
        """Read the head; False: it isn't there yet, or is damaged (then there is a fault)."""
        try:
            head = read_head(self._file.read(0, _LONGEST_HEAD), self._name, self._id)
        except SegmentDamaged as error:
            self._suspect_of(_Fault(f"offset 0: {error}"), settled=self._complete)
            return False
        if head is None:
            if self._complete:
                self._fault = _Fault(f"offset 0: the segment's head is missing (the file has {self._file.size} bytes)")
            return False
        if head.compression:
            self._codec = find_codec(head.compression, self._name)
        self.descriptor, self._section, self._at = head, empty_section(head.size, head.size), head.size
        return True

    def _suspect_of(self, fault: _Fault, *, settled: bool) -> None:
        """Take something for damage, unless it may be half-written."""
        if not settled:
            at, since = self._suspect
            now = time.monotonic()
            if at != self._at:
                self._suspect = (self._at, now)
            if at != self._at or now - since < GRACE_S:
                return
        self._fault = fault

    # Reading

    def _read_entries(self, limit: int | None, room: int, entries: list[LogEntry]) -> bytes:
        """Read and verify what is there, about ``room`` bytes; what is found to be wrong becomes the fault."""
        settled = self._complete or limit is not None
        while True:
            spans, wrong, newest = self._plan_spans(limit, room)
            data, shifts = self._load_spans(spans)
            larger = self._frame_spans(data, shifts, spans, entries, limit, settled=settled)
            if not larger:
                break
            room = max(room, larger)
        if larger is None or self._fault:
            return data
        if wrong:
            self._suspect_of(wrong, settled=settled)
        elif newest:
            # Empty sections may have followed what was read.
            self._section, self._at = newest, newest.end
            if self._complete:
                self._check_end()
        return data

    def _check_end(self) -> None:
        """There is no further marker: the segment was read, unless there is an intact one behind bytes that became zero."""
        further = find_marker(self._file, self._id, self._section.after)
        if further is not None:
            self._fault = self._broken_chain(self._section, f"the sync marker is zero, but there is one at {further}")
        elif self.position < self._synced != self._file.size:
            self._fault = self._broken_chain(
                self._section, f"nothing follows, but the node has synced it up to {self._synced}"
            )
        else:
            self._finished = True

    def _plan_spans(self, limit: int | None, room: int) -> tuple[list[_Span], _Fault | None, LogSection | None]:
        """Return the spans to read next, about ``room`` bytes; the fault behind them; the section that no marker follows."""
        spans: list[_Span] = []
        planned = 0
        last, at = self._section, self._at
        while True:
            stop = last.end if limit is None else min(last.end, limit)
            if spans and self._codec and planned + stop - at > room:
                return spans, None, None
            stop = min(stop, at + room - planned)
            contents = b""
            # An empty one is decompressed too: its length may be what is damaged.
            if self._codec and (stop > at or self._start < last.end == last.begin):
                try:
                    contents = self._decompress_section(last)
                except SegmentDamaged as error:
                    return spans, self._no_contents(last, error), None
            if not spans:
                at = self._start_in_section(last, at, contents)
                self._section, self._at = last, at
            if stop > at:
                spans.append(_Span(last, at, stop, contents))
                planned += stop - at
            # Behind the limit a marker may be half-written.
            if planned >= room or stop < last.end or (limit is not None and last.end >= limit):
                return spans, None, None
            if last.broken:
                return (
                    spans,
                    _Fault(f"{self._format_position(last.end, last.after)}: {last.broken}", search=last.end),
                    None,
                )
            following_section = next_section(self._file, last, self._id, self._codec, complete=self._complete)
            if isinstance(following_section, str):
                fault = self._broken_chain(last, following_section)
                passed = self._section_behind(fault) if self._start >= last.end else None
                if passed is None or passed.end > self._start:
                    return spans, fault, None
                # The loss was reported when it was found.
                following_section = passed
            if following_section is None:
                return spans, None, last
            last = following_section
            at = max(following_section.begin, min(self._start, following_section.end))

    def _start_in_section(self, section: LogSection, at: int, contents: bytes) -> int:
        """Where to begin in a section that ``start`` is in: there, or at the begin of the entry that goes over it."""
        if at != self._start or not section.begin < at < section.end:
            return at
        boundary = section.begin
        if framing.is_sound(self._head_at(section, at, contents)):
            return at
        while boundary < at:
            head = self._head_at(section, boundary, contents)
            if not framing.is_sound(head):
                return at
            behind = boundary + framing.OVERHEAD + framing.size_at(head, 0)
            if behind > at:
                return boundary
            boundary = behind
        return at

    def _head_at(self, section: LogSection, at: int, contents: bytes) -> bytes:
        """An entry's size and its checksum."""
        index = at - section.begin
        return contents[index : index + framing.HEAD] if self._codec else self._file.read(at, framing.HEAD)

    def _decompress_section(self, section: LogSection) -> bytes:
        """Contents of a compressed section, with padding; kept until those of another one are asked for."""
        marker, contents = self._contents
        if self._codec is None or section.marker == section.after:
            return b""
        if marker != section.marker:
            begin = section.marker + MARKER + LENGTH
            packed = self._file.read(begin, section.after - begin)
            contents = self._codec.decompress(packed, section.end - section.begin) if packed else b""
            contents += bytes(framing.PADDING)
            self._contents = (section.marker, contents)
        return contents

    def _load_spans(self, spans: list[_Span]) -> tuple[bytes, list[int]]:
        """The bytes of spans, with padding, and for each span the logical position that an offset of 0 stands for."""
        if not spans:
            return b"", []
        if self._codec is None:
            base, count = spans[0].start, spans[-1].stop - spans[0].start + framing.PADDING
            return self._file.read(base, count).ljust(count, b"\0"), [base] * len(spans)
        shifts = []
        size = 0
        for span in spans:
            shifts.append(span.section.begin - size)
            size += len(span.contents)
        return spans[0].contents if len(spans) == 1 else b"".join(span.contents for span in spans), shifts

    def _frame_spans(
        self,
        data: bytes,
        shifts: list[int],
        spans: list[_Span],
        entries: list[LogEntry],
        limit: int | None,
        *,
        settled: bool,
    ) -> int | None:
        """Verify the entries of spans, and move behind them.

        Returns:
            0: all was read. None: not all of it. Else: nothing was, the first entry needs so much room.
        """
        for span, shift in zip(spans, shifts, strict=True):
            section, stop = span.section, span.stop
            at, code = framing.frame_entries(data, span.start - shift, stop - shift, shift, entries)
            whole = stop == section.end
            self._section, self._at = section, stop if code == framing.WHOLE and whole else at + shift
            if code == framing.WHOLE and whole:
                continue
            if code in {framing.WHOLE, framing.CUT} and not whole:
                if entries or stop == limit:
                    return None
                return (
                    framing.size_at(data, at) + framing.OVERHEAD
                    if stop - shift - at >= framing.HEAD
                    else framing.OVERHEAD
                )
            if code == framing.SIZE and not self._codec and has_marker(self._file, self._id, self._at):
                # No checksum covers where a section ends: it ends here, and nothing is lost.
                self._section = empty_section(self._at, self._at)
                return None if entries else framing.OVERHEAD
            self._suspect_of(self._describe_damage(data, at, code, section), settled=settled)
            return None
        return 0

    # Damage

    def _format_position(self, position: int, offset: int) -> str:
        return f"offset {position} (file offset {offset})" if self._codec else f"offset {position}"

    def _describe_damage(self, data: bytes, at: int, code: int, section: LogSection) -> _Fault:
        """Damage at the entry that begins at ``data[at]``, where reading has stopped."""
        size, left = framing.size_at(data, at), section.end - self._at
        where = self._format_position(self._at, section.marker)
        behind = self._at + size + framing.OVERHEAD
        if code == framing.BODY:
            return _Fault(f"{where}: the checksum of an entry of {size} bytes is wrong", go_on=behind)
        if code == framing.SMALL and behind <= section.end:
            return _Fault(f"{where}: an entry of {size} bytes can't be a mutation", go_on=behind)
        if code == framing.CUT and section.broken:
            problem = section.broken
        elif code == framing.CUT and left < framing.HEAD:
            problem = f"{left} bytes are left in its section, too few for an entry"
        elif code in {framing.CUT, framing.SMALL}:
            problem = f"an entry of {size} bytes goes beyond the end of its section, {section.end}"
        elif code == framing.ZERO:
            problem = f"bytes are zero where an entry should be, {left} bytes before the end of its section"
        else:
            problem = "the checksum of an entry's size is wrong"
        # The end of a compressed section is known, that of a plain one isn't under any checksum.
        return _Fault(f"{where}: {problem}", go_on=section.end if self._codec else 0, search=self._at)

    def _broken_chain(self, last: LogSection, problem: str) -> _Fault:
        """Return the fault that the bytes behind ``last`` are no marker."""
        try:
            # One that was passed over may have another end than its marker tells.
            self._decompress_section(last)
        except SegmentDamaged as error:
            return self._no_contents(last, error)
        # How long what has the broken marker is, nothing tells.
        return _Fault(
            f"{self._format_position(last.end, last.after)}: {problem}", search=last.after + 1, base=last.end + MARKER
        )

    def _no_contents(self, section: LogSection, error: SegmentDamaged) -> _Fault:
        """A section can't be decompressed."""
        return _Fault(
            f"{self._format_position(section.begin, section.marker)}: {error}",
            search=section.marker + 1,
            base=section.end,
        )

    def _section_behind(self, fault: _Fault) -> LogSection | None:
        """An empty section before the first intact marker behind damage; None: there is no marker."""
        marker_at = find_marker(self._file, self._id, fault.search) if fault.search else None
        return empty_section(fault.base if self._codec else marker_at, marker_at) if marker_at else None

    def _find_loss_end(self) -> tuple[int, int] | None:
        """Find where a loss ends and move there; None: not known yet."""
        assert self._lost is not None  # noqa: S101 (callers have looked)
        start, fault = self._lost
        now = time.monotonic()
        if not self._complete and now - self._searched < GRACE_S:
            return None
        self._searched = now
        self._file.look()
        section = self._section_behind(fault)
        if section is None and not self._complete:
            return None
        self._lost = None
        if section:
            self._section, self._at = section, section.end
        else:
            self._over = True
            self._at = max(self._file.size, start)
        return start, self.position
