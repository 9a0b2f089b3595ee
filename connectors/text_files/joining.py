"""Lines that belong together become one: a stack trace under its message. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class JoinSettings(NamedTuple):
    """Says which lines belong together.

    Attributes:
        is_start: line -> truthy if it is the first one of an event.
        most_lines: an event ends after as many lines.
        most_characters: or before a line that would make it longer.
        wait: seconds without a new line after which the last event is complete.
    """

    is_start: Callable[[str], Any]
    most_lines: int
    most_characters: int
    wait: float


class LineJoiner:
    """Joins the lines of one file; holds the lines of one event, whose end is not known before the next one starts."""

    def __init__(self, settings: JoinSettings) -> None:
        self._settings = settings
        self._lines: list[str] = []
        self._size = 0
        self._end = 0

    @property
    def holds_lines(self) -> bool:
        """Whether an event waits for its end."""
        return bool(self._lines)

    def add(self, lines: Sequence[str], ends: Sequence[int]) -> tuple[list[str], list[int]]:
        """The events that are complete now, and the position after each.

        Args:
            lines: further lines.
            ends: the position after each.
        """
        is_start, most_lines, most_characters, _ = self._settings
        events: list[str] = []
        event_ends: list[int] = []
        for line, end in zip(lines, ends, strict=True):
            if self._lines and (
                len(self._lines) >= most_lines or self._size + len(line) >= most_characters or is_start(line)
            ):
                events.append("\n".join(self._lines))
                event_ends.append(self._end)
                self._lines.clear()
                self._size = 0
            self._lines.append(line)
            self._size += len(line) + 1
            self._end = end
        return events, event_ends

    def flush(self) -> tuple[list[str], list[int]]:
        """The event that waits for its end, if there is one, as ``add`` gives it."""
        if not self._lines:
            return [], []
        event = "\n".join(self._lines)
        self._lines.clear()
        self._size = 0
        return [event], [self._end]
