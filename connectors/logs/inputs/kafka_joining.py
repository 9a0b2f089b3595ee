"""Lines of a partition that belong together become one, where lines of many hosts and files take turns. Pure but for the clock.

An event is known by host and file. Events are given in the order of their first lines: so the place to start again at is the
first line of the oldest event that was not given, and the lines behind it that were given are listed in the offset.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.logs.rules.records import LineOrigin
    from connectors.text_files.joining import JoinSettings

#: Lines of events that wait, and the most that an offset may list; beyond them the oldest event counts as complete.
_MOST_WAITING: Final = 10_000
_MOST_LISTED: Final = 1_000


class LogEvent(NamedTuple):
    """Lines that belong together.

    Attributes:
        text: the lines, joined by line feeds.
        origin: of the first one.
        start: its offset in the partition.
        after: the offset to start again at, once this event is delivered.
        listed: offsets from there on whose lines are delivered already, as text.
    """

    text: str
    origin: LineOrigin
    start: int
    after: int
    listed: str


class _Open:
    """An event that was not given."""

    __slots__ = ("complete", "lines", "newest_ms", "offsets", "origin", "seen", "size", "source")

    def __init__(self, source: tuple[str, str], origin: LineOrigin) -> None:
        self.source = source
        self.origin = origin
        self.lines: list[str] = []
        self.offsets: list[int] = []
        self.size = 0
        self.seen = 0.0
        #: The latest timestamp of a record, of any source, when the last line came.
        self.newest_ms = 0
        self.complete = False


class PartitionJoiner:
    """Joins the lines of one partition.

    Args:
        settings: which lines belong together.
        clock: seconds since 1970.
    """

    def __init__(self, settings: JoinSettings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._waiting: deque[_Open] = deque()
        self._by_source: dict[tuple[str, str], _Open] = {}
        self._lines = 0
        #: Offsets behind the oldest event that waits whose lines are delivered, or need no delivery.
        self._done: set[int] = set()
        self._next = 0
        #: The latest timestamp of a record that is not ahead of the clock.
        self._newest_ms = 0

    def resume(self, after: int, listed: str) -> None:
        """Start at a saved offset.

        Raises:
            ValueError: ``listed`` is not what an event had.
        """
        self._next = after
        self._done = read_listed(after, listed)

    def add(self, offset: int, line: str, origin: LineOrigin, sent_ms: int) -> None:
        """A further line, with the timestamp of its record."""
        self._next = offset + 1
        now = self._clock()
        self._newest_ms = max(self._newest_ms, min(sent_ms, int(now * 1000)))
        if offset in self._done:
            return
        is_start, most_lines, most_characters, _ = self._settings
        source = (origin.host, origin.file)
        event = self._by_source.get(source)
        if event is not None and (
            len(event.lines) >= most_lines or event.size + len(line) >= most_characters or is_start(line)
        ):
            self._complete_event(event)
            event = None
        if event is None:
            event = self._by_source[source] = _Open(source, origin)
            self._waiting.append(event)
        event.lines.append(line)
        event.offsets.append(offset)
        event.size += len(line) + 1
        event.seen = now
        event.newest_ms = self._newest_ms
        self._lines += 1
        if self._lines > _MOST_WAITING:
            self._complete_event(self._waiting[0])

    def pass_over(self, offset: int) -> None:
        """A record that is no line."""
        self._next = offset + 1
        if self._waiting:
            self._done.add(offset)

    def complete_quiet(self, answered: float = 0.0) -> None:
        """Take events as complete whose source was quiet for as long as an event waits.

        That is so if the timestamps of other sources' records have advanced by that much since, or if the broker had no more
        for as long. A source's own clock does not count: those of hosts differ.

        Args:
            answered: when the broker last said that there is no more, in seconds of the clock; 0 if there is more.
        """
        wait = self._settings.wait
        for event in list(self._by_source.values()):
            if answered - event.seen >= wait or self._newest_ms - event.newest_ms >= wait * 1000:
                self._complete_event(event)

    def take(self) -> list[LogEvent]:
        """The events that are complete, as far as none that waits began before them."""
        events: list[LogEvent] = []
        while self._waiting:
            if len(self._done) > _MOST_LISTED:
                self._complete_event(self._waiting[0])
            if not self._waiting[0].complete:
                break
            event = self._waiting.popleft()
            self._lines -= len(event.lines)
            self._done.update(event.offsets)
            after = self.position
            self._done = {offset for offset in self._done if offset > after}
            events.append(
                LogEvent("\n".join(event.lines), event.origin, event.offsets[0], after, write_listed(after, self._done))
            )
        return events

    @property
    def position(self) -> int:
        """The offset to start again at, after all that was taken."""
        return self._waiting[0].offsets[0] if self._waiting else self._next

    @property
    def listed(self) -> str:
        """Offsets from there on whose lines are delivered already, as text."""
        return write_listed(self.position, self._done)

    def _complete_event(self, event: _Open) -> None:
        event.complete = True
        if self._by_source.get(event.source) is event:
            del self._by_source[event.source]


def write_listed(after: int, offsets: set[int]) -> str:
    """Offsets behind ``after`` as text: each as its distance from the one before."""
    distances: list[str] = []
    before = after
    for offset in sorted(offsets):
        if offset > after:
            distances.append(str(offset - before))
            before = offset
    return ",".join(distances)


def read_listed(after: int, listed: str) -> set[int]:
    """The offsets of ``write_listed``.

    Raises:
        ValueError: the text is another one.
    """
    offsets: set[int] = set()
    for distance in listed.split(",") if listed else ():
        after += int(distance)
        offsets.add(after)
    return offsets
