"""The snapshot positions of one table, found by the tokens that they are about. Pure.

A group that joins the snapshot has to know the positions that say something about its tokens. There are as many positions as
groups, so looking through all of them for each group would take a time that grows with the square of their number.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from connectors.cql.token_ranges import subtract_ranges
from connectors.scylla.model import TableId
from connectors.scylla.positions import GENERATION, KEYSPACE, TABLE
from connectors.scylla.snapshot.merging import (
    SnapshotPosition,
    from_offset,
    is_snapshot,
    partition_of,
    positions_of,
    request_of,
    unwrap_range,
)
from connectors.snapshot.requests import INITIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from connectors.api import OffsetReader, Position
    from connectors.cql.token_ranges import TokenRange
    from connectors.scylla.model import StreamGroup
    from connectors.scylla.snapshot.group import GroupSnapshot

#: A part of a position's tokens: (after, upto, the position's number).
_Part = tuple[int, int, int]


class _Entry:
    __slots__ = ("generation", "number", "partition", "position", "whole")

    def __init__(
        self, number: int, partition: Position, whole: tuple[TokenRange, ...], position: Callable[[], SnapshotPosition]
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

    def put(self, partition: Position, whole: tuple[TokenRange, ...], position: Callable[[], SnapshotPosition]) -> None:
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

    def about(self, whole: Iterable[TokenRange]) -> list[tuple[Position, SnapshotPosition]]:
        """The positions that have one of these tokens, in the order in which they were added."""
        return [(entry.partition, entry.position()) for entry in self._find_entries(whole, self._parts)]

    def superseded_by(self, whole: Sequence[TokenRange]) -> list[Position]:
        """Partitions of positions about these tokens that say nothing any more.

        All of their tokens are covered by positions of newer generations. To be asked for each group that joins: another
        group can't be what supersedes a position.
        """
        partitions = []
        for entry in self._find_entries(whole, self._parts):
            newer = [generation for generation in self._parts if generation > entry.generation]
            covering = [part for newer_entry in self._find_entries(entry.whole, newer) for part in newer_entry.whole]
            if covering and not subtract_ranges(entry.whole, covering):
                partitions.append(entry.partition)
        return partitions

    def _find_entries(self, whole: Iterable[TokenRange], generations: Iterable[int]) -> list[_Entry]:
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


class SavedSnapshots:
    """The positions that were saved when a run began, and an index of them and of the run's own for each table and request.

    Attributes:
        items: source partitions and offsets.
    """

    def __init__(self, items: Iterable[tuple[Position, Position]]) -> None:
        self.items = [(partition, offset) for partition, offset in items if is_snapshot(partition)]
        #: By table and request: the table's id, and positions by tokens.
        self._indexes: dict[tuple[TableId, str], tuple[str, SnapshotIndex]] = {}

    def requests(self) -> set[str]:
        """The ids of the requests of which something is saved."""
        return {request_of(partition) for partition, _ in self.items}

    def index(self, table: TableId, table_id: str, request: str, running: Iterable[GroupSnapshot]) -> SnapshotIndex:
        """The positions of a table and request.

        Args:
            table: the table.
            table_id: the server's id of it: positions of a dropped table of this name do not count.
            request: the request's id.
            running: the groups of this run.
        """
        entry = self._indexes.get((table, request))
        if entry is None or entry[0] != table_id:
            index = SnapshotIndex()
            for partition, position in positions_of(table, table_id, self.items, request):
                index.put(partition, position.whole, lambda position=position: position)  # type: ignore[misc]
            for snapshot in running:
                share = snapshot.position_of(request)
                if snapshot.group.table == table and share is not None:
                    index.put(
                        partition_of(snapshot.group, request),
                        share.whole,
                        lambda snapshot=snapshot, share=share: snapshot.position_of(request) or share,  # type: ignore[misc]
                    )
            entry = self._indexes[table, request] = (table_id, index)
        return entry[1]

    def drop(self, request: str, groups: Iterable[StreamGroup]) -> list[Position]:
        """Forget a request; the saved partitions of it that are of these groups, or of older generations than theirs."""
        first: dict[TableId, int] = {}
        partitions = []
        for group in groups:
            start_ms = group.generation.start_ms
            first[group.table] = min(first.get(group.table, start_ms), start_ms)
            partitions.append(partition_of(group, request))
        dropped = []
        for partition, _ in self.items:
            if request_of(partition) == request:
                older = int(partition[GENERATION]) < first.get(TableId(partition[KEYSPACE], partition[TABLE]), 0)
                if older or partition in partitions:
                    dropped.append(partition)
        self.items = [(partition, offset) for partition, offset in self.items if request_of(partition) != request]
        self._indexes = {key: index for key, index in self._indexes.items() if key[1] != request}
        return dropped


def shares_of(
    request: str, joined: Iterable[GroupSnapshot], waiting: Iterable[StreamGroup], saved: OffsetReader
) -> dict[TableId, list[SnapshotPosition]]:
    """The positions of a request by table, without those of groups that are not read for it.

    Args:
        request: the request's id.
        joined: groups that take part in this run.
        waiting: groups that have not joined: they count as they are saved.
        saved: the saved offsets.
    """
    tables: dict[TableId, list[SnapshotPosition]] = {}
    for snapshot in joined:
        position = None if snapshot.closed else snapshot.position_of(request)
        if position is not None:
            tables.setdefault(snapshot.group.table, []).append(position)
    for group in waiting:
        if group.token_range is not None and not (group.later and request == INITIAL):
            whole = unwrap_range(group.token_range)
            offset = saved.get(partition_of(group, request))
            tables.setdefault(group.table, []).append(from_offset(offset) if offset else SnapshotPosition(whole, whole))
    return tables
