"""The snapshot positions of one table, found by the tokens that they are about. Pure.

A group that joins the snapshot has to know the positions that say something about its tokens. There are as many positions as
groups, so looking through all of them for each group would take a time that grows with the square of their number.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from connectors.scylla.positions import GENERATION
from connectors.scylla.snapshot import subtract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from connectors.api import Position
    from connectors.scylla.snapshot import SnapshotPosition, Tokens

#: A part of a position's tokens: (after, upto, the position's number).
_Part = tuple[int, int, int]


class _Entry:
    __slots__ = ("generation", "number", "partition", "position", "whole")

    def __init__(
        self, number: int, partition: Position, whole: tuple[Tokens, ...], position: Callable[[], SnapshotPosition]
    ) -> None:
        self.number = number
        self.partition = partition
        self.generation = int(partition[GENERATION])
        self.whole = whole
        self.position = position


class SnapshotIndex:
    """Positions by source partition and by tokens.

    The tokens of a position never change; the rest of it may, so a position is given as a function.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._numbered: list[_Entry | None] = []
        #: By generation: parts in the order of their first tokens, and the largest number of tokens in one.
        self._parts: dict[int, list[_Part]] = {}
        self._longest: dict[int, int] = {}

    def __contains__(self, partition: Position) -> bool:
        return repr(partition) in self._entries

    def put(self, partition: Position, whole: tuple[Tokens, ...], position: Callable[[], SnapshotPosition]) -> None:
        """Add a position, or replace the one of its partition.

        Args:
            partition: its source partition.
            whole: all of its tokens.
            position: tells the position.
        """
        key = repr(partition)
        before = self._entries.get(key)
        if before is not None and before.whole == whole:
            before.position = position
            return
        if before is not None:
            self._numbered[before.number] = None
        entry = self._entries[key] = _Entry(len(self._numbered), partition, whole, position)
        self._numbered.append(entry)
        parts = self._parts.setdefault(entry.generation, [])
        for part in whole:
            insort(parts, (part.after, part.upto, entry.number))
            self._longest[entry.generation] = max(self._longest.get(entry.generation, 0), part.upto - part.after)

    def about(self, whole: Iterable[Tokens]) -> list[tuple[Position, SnapshotPosition]]:
        """The positions that have one of these tokens, in the order in which they were added."""
        return [(entry.partition, entry.position()) for entry in self._about(whole, self._parts)]

    def superseded_by(self, whole: Sequence[Tokens]) -> list[Position]:
        """Partitions of positions about these tokens that say nothing any more.

        All of their tokens are covered by positions of newer generations. To be asked for each group that joins: another
        group can't be what supersedes a position.
        """
        found = []
        for entry in self._about(whole, self._parts):
            newer = [generation for generation in self._parts if generation > entry.generation]
            covering = [part for other in self._about(entry.whole, newer) for part in other.whole]
            if covering and not subtract(entry.whole, covering):
                found.append(entry.partition)
        return found

    def _about(self, whole: Iterable[Tokens], generations: Iterable[int]) -> list[_Entry]:
        numbers: set[int] = set()
        for generation in generations:
            parts, longest = self._parts[generation], self._longest.get(generation, 0)
            for tokens in whole:
                # A part that begins further before can't reach these tokens.
                at = bisect_right(parts, (tokens.after - longest,))
                while at < len(parts) and parts[at][0] < tokens.upto:
                    if parts[at][1] > tokens.after:
                        numbers.add(parts[at][2])
                    at += 1
        return [entry for number in sorted(numbers) if (entry := self._numbered[number]) is not None]
