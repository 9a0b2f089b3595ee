"""The position of a table's snapshot, and how the snapshot is merged with the stream. Pure: no clock, no I/O.

**Division among tasks.** A group of streams carries the changes of one range of the base table's tokens, so the task that reads
the group also reads that range of the table. Tasks need no communication, and the snapshot is spread as the groups are.

**How rows are merged.** A page of the table is read while its group of streams is *held*: the reader may finish the window it
is in, and begins no other until the page's rows were handed over. Let ``below`` be the end of the last window. Then

1. every change with a write time before ``below`` was handed over, and none with a later one (a page is handed over between
   two windows);
2. every change before ``below`` is visible in the page: the window was started before the page was read, and a window is
   started only when the confidence window says that everything in it can be read.

Of each row the cells with a write time before ``below`` are sent, and those with a later one are *left out*: their own change
is still to come in the stream (by 1). So a row of the snapshot is the row as it was at ``below``, less what is just being
overwritten. It follows, whatever the clocks of writers say and with no memory of keys:

- it is never older than what was sent before: it holds all of that (by 2);
- nothing sent later is older than it: that is at ``below`` or after it, and all its cells are before;
- a row that was deleted before ``below`` is not in the page; one deleted later is deleted by the stream after it: nothing
  comes back to life;
- in the end each cell is right: if a write at ``below`` or later touched it the stream brings it, else the page had it;
- a crash loses no state, as the positions are the only state.

This needs every change at ``below`` or later to be in the log, so no page is read before ``below`` is a confidence window past
the moment at which the snapshot of the tokens was started (``STARTED``): what was written before may be without a change, as
``cdc`` was perhaps only just turned on, and some nodes may learn of it later. For the same reason the snapshot of a table whose
``cdc`` is off does not start, and one that was read before that starts again once ``cdc`` is on.

A row of which nothing is left is not sent: it comes as a later change. The price is that a row that is overwritten at the
very moment of the snapshot may come without the cells in question, which follow within the confidence window; the
alternatives are worse: to send the newer cells makes the stream go back behind them, and to swallow the changes that a row
already holds needs a list of keys that survives crashes.

**What has no write time.** Multicell columns (non-frozen collections and UDTs) have none in Scylla, and rows of key columns
only have none either. Such values are sent as they were read. If they change in that moment, the change follows in the stream
though the value may hold it already; that does no harm to sets, maps and UDTs, but a reader that applies list changes one by
one sees such an element twice unless it identifies elements by their time uuid.

**Write times of records.** A record says the newest write time of its cells, unless a later change of the row was sent before
it, which need not show in the table (it set cells to null, changed a multicell column, or was overwritten since): then the
time of that change, so that the write times of a row's records never go back. ``ChangeTraces`` remembers changes, coarsely;
after a restart, and where a stream was read before the snapshot was asked for, the position then stands for all that was sent
before. A row without any write time gets the last moment before ``below``.

**Positions.** One per group, in a source partition of its own (the group's with ``snapshot: "true"``): the ranges of tokens
that are left, and where one begins with a token of which some rows were sent, which of them was the last
(``order``). They are in terms of tokens, so that the groups of a new generation continue with whatever the old ones
left, however the ring is divided by then (``find_remaining``).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN, TokenRange, count_tokens, subtract_ranges
from connectors.errors import Fatal
from connectors.scylla.model import TableId
from connectors.scylla.positions import GENERATION, KEYSPACE, TABLE, VNODE
from connectors.scylla.source.windows import ticks_of
from connectors.snapshot.requests import INITIAL, STATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.api import Position
    from connectors.scylla.model import StreamGroup

#: The member that tells a snapshot's source partition from its group's; always "true".
SNAPSHOT: Final = "snapshot"
#: The id of the request that a snapshot's source partition is of; not there: the connector's own (``INITIAL``).
SNAPSHOT_ID: Final = "snapshot_id"
#: Members of a snapshot's source offset. ``RANGE``: all tokens of the group; ``LEFT``: those not yet sent; ``TABLE_ID``: of the
#: base table. ``ROWS``: rows sent; ``STARTED``, ``FINISHED``: when the first of the tokens was started and the last was done.
RANGE: Final = "token_range"
LEFT: Final = "token_range_left"
TABLE_ID: Final = "table_id"
ROWS: Final = "rows"
STARTED: Final = "started_ms"
FINISHED: Final = "finished_ms"
#: ``cancelled``: the tokens that are left are not read.
CANCELLED: Final = "cancelled"


def unwrap_range(token_range: tuple[int, int]) -> tuple[TokenRange, ...]:
    """A range (exclusive, inclusive) of the ring, from its start on; equal ends mean the whole ring."""
    after, upto = token_range
    if after < upto:
        return (TokenRange(after, upto),)
    parts = (TokenRange(after, MAX_TOKEN), TokenRange(MIN_TOKEN, upto))
    return tuple(part for part in parts if part.after < part.upto)


@dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """The position of a group's snapshot.

    Attributes:
        whole: the group's tokens.
        left: those whose rows are not all sent.
        table_id: the server's id of the base table.
        rows: sent, those of the tokens that were taken over included.
        started_ms, finished_ms: milliseconds since 1970; 0: not yet, or not known.
        cancelled: whether the operator has ended it.
    """

    whole: tuple[TokenRange, ...]
    left: tuple[TokenRange, ...]
    table_id: str = ""
    rows: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    cancelled: bool = False

    @property
    def finished(self) -> bool:
        """Whether all rows were sent, or the rest is not wanted."""
        return self.cancelled or not self.left

    @property
    def skipped(self) -> bool:
        """Whether the rows are not wanted: the table came later, and ``snapshot.new.tables`` is false."""
        return not self.left and not self.started_ms

    def sent(self, token: int, row: str, rows: int = 0) -> SnapshotPosition:
        """After a row of ``left[0]``, with which ``rows`` more were sent; its token may have more rows."""
        return replace(
            self, left=(TokenRange(token - 1, self.left[0].upto, row), *self.left[1:]), rows=self.rows + rows
        )

    def resend_first_token(self) -> SnapshotPosition:
        """With all rows of the first token of ``left[0]`` to be sent (again)."""
        return replace(self, left=(self.left[0]._replace(resume=""), *self.left[1:]))

    def range_sent(self, now_ms: int) -> SnapshotPosition:
        """After the last row of ``left[0]``."""
        left = self.left[1:]
        return replace(self, left=left, finished_ms=self.finished_ms if left else now_ms)


def _format_ranges(tokens: Iterable[TokenRange]) -> str:
    return ",".join(f"{part.after}:{part.upto}:{part.resume}".rstrip(":") for part in tokens)


def _parse_ranges(ranges_text: object) -> tuple[TokenRange, ...]:
    parts = []
    for item in str(ranges_text).split(",") if ranges_text else ():
        after, upto, *row = item.split(":")
        part = TokenRange(int(after), int(upto), *row)
        if not MIN_TOKEN <= part.after < part.upto <= MAX_TOKEN:
            raise ValueError(item)
        parts.append(part)
    return tuple(parts)


def to_offset(position: SnapshotPosition) -> Position:
    """The source offset of a position; all members are strings."""
    offset: Position = {RANGE: _format_ranges(position.whole), LEFT: _format_ranges(position.left)}
    if position.table_id:
        offset[TABLE_ID] = position.table_id
    for name, value in ((ROWS, position.rows), (STARTED, position.started_ms), (FINISHED, position.finished_ms)):
        if value:
            offset[name] = str(value)
    if position.cancelled:
        offset[STATE] = CANCELLED
    return offset


def from_offset(offset: Position) -> SnapshotPosition:
    """The position that ``to_offset`` wrote.

    Raises:
        Fatal: it is not the position of a snapshot.
    """
    try:
        rows, started_ms, finished_ms = (int(offset.get(name) or 0) for name in (ROWS, STARTED, FINISHED))
        cancelled = offset.get(STATE) == CANCELLED
        return SnapshotPosition(
            _parse_ranges(offset[RANGE]),
            _parse_ranges(offset[LEFT]),
            str(offset.get(TABLE_ID) or ""),
            rows,
            started_ms,
            finished_ms,
            cancelled,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Fatal(
            f"The saved snapshot position {offset} can't be read ({error!r}): delete it (DELETE or PATCH of the "
            "connector's offsets) to take the snapshot of its tokens again"
        ) from error


def partition_of(group: StreamGroup, request: str = INITIAL) -> Position:
    """The source partition of a group's share of a snapshot."""
    partition = {
        KEYSPACE: group.table.keyspace,
        TABLE: group.table.table,
        VNODE: group.name,
        GENERATION: str(group.generation.start_ms),
        SNAPSHOT: "true",
    }
    return partition if request == INITIAL else {**partition, SNAPSHOT_ID: request}


def is_snapshot(partition: Position) -> bool:
    """Whether a source partition is that of a snapshot."""
    return partition.get(SNAPSHOT) == "true"


def request_of(partition: Position) -> str:
    """The id of the request that a snapshot's source partition is of."""
    return str(partition.get(SNAPSHOT_ID, INITIAL))


def positions_of(
    table: TableId, table_id: str, saved: Iterable[tuple[Position, Position]], request: str = INITIAL
) -> list[tuple[Position, SnapshotPosition]]:
    """The saved positions of a table's snapshot; those of a table of this name that was dropped do not count."""
    positions = []
    for partition, offset in saved:
        if (
            is_snapshot(partition)
            and (partition.get(KEYSPACE), partition.get(TABLE)) == table
            and request_of(partition) == request
        ):
            position = from_offset(offset)
            if not (table_id and position.table_id and table_id != position.table_id):
                positions.append((partition, position))
    return positions


def of_dropped(group: StreamGroup, table_id: str, saved: Iterable[tuple[Position, Position]]) -> list[Position]:
    """Partitions of older generations with positions of a dropped table that had the name of the group's table."""
    if not table_id:
        return []
    return [
        partition
        for partition, offset in saved
        if is_snapshot(partition)
        and (partition.get(KEYSPACE), partition.get(TABLE)) == group.table
        and int(partition[GENERATION]) < group.generation.start_ms
        and offset.get(TABLE_ID) not in (None, "", table_id)
    ]


def later_tables(ids: Mapping[TableId, str], items: Iterable[tuple[Position, Position]]) -> frozenset[TableId]:
    """Tables that the connector began to capture after its first start, by what is saved.

    These are the tables without any position while others have some, those that were dropped and recreated, and those that
    were found to be later before (``SnapshotPosition.skipped``). A table that has only positions of its streams is not among
    them: its snapshot was turned on.

    Args:
        ids: the tables, with their ids (``TableHistory.table_id``).
        items: all saved positions.
    """
    known_tables: set[tuple[str, str]] = set()
    later: set[TableId] = set()
    for partition, offset in items:
        name = (str(partition.get(KEYSPACE)), str(partition.get(TABLE)))
        known_tables.add(name)
        table = TableId(*name)
        if table in ids and is_snapshot(partition) and request_of(partition) == INITIAL:
            position = from_offset(offset)
            if position.skipped or (position.table_id and ids[table] and position.table_id != ids[table]):
                later.add(table)
    return frozenset(later | {table for table in ids if known_tables and table not in known_tables})


def find_remaining(whole: Sequence[TokenRange], saved: Sequence[SnapshotPosition]) -> tuple[TokenRange, ...]:
    """The tokens of ``whole`` that no position says are done."""
    left = list(whole)
    rows: dict[int, str] = {}
    for position in saved:
        left = subtract_ranges(left, subtract_ranges(position.whole, position.left))
        rows.update((part.after, part.resume) for part in position.left if part.resume)
    return tuple(part._replace(resume=rows.get(part.after, "")) for part in left)


def first_position(
    group: StreamGroup,
    whole: Sequence[TokenRange],
    table_id: str,
    saved: Sequence[tuple[Position, SnapshotPosition]],
    request: str = INITIAL,
) -> SnapshotPosition:
    """The position at which the snapshot of a group starts or resumes.

    Args:
        group: the group.
        whole: its tokens.
        table_id: of the base table.
        saved: the table's saved positions (``positions_of``).
        request: the id of the request that they are of.
    """
    own_partition = partition_of(group, request)
    for partition, position in saved:
        if partition == own_partition and position.whole == tuple(whole):
            return position
    left = find_remaining(whole, [position for _, position in saved])
    cancelled = any(position.cancelled for _, position in saved)
    return SnapshotPosition(tuple(whole), left, table_id, *taken_over(whole, left, saved), cancelled)


def taken_over(
    whole: Sequence[TokenRange], left: Sequence[TokenRange], saved: Sequence[tuple[Position, SnapshotPosition]]
) -> tuple[int, int, int]:
    """Rows, start and end of what positions of other groups say of these tokens.

    Which tokens had how many rows is not known: those of a position count evenly for its tokens.
    """
    rows = 0
    started: list[int] = []
    finished = [0]
    remainder = list(whole)
    for _, position in sorted(saved, key=lambda entry: -int(entry[0][GENERATION])):
        mine = subtract_ranges(remainder, subtract_ranges(remainder, position.whole))
        if not mine:
            continue
        remainder = subtract_ranges(remainder, position.whole)  # what older ones have of it, it has taken over itself
        done = count_tokens(position.whole) - count_tokens(position.left)
        rows += position.rows * count_tokens(subtract_ranges(mine, position.left)) // done if done else 0
        started += [position.started_ms] if position.started_ms else []
        finished.append(position.finished_ms)
    return rows, min(started, default=0), 0 if left else max(finished)


def show_share(
    positions: Mapping[TableId, Sequence[SnapshotPosition]], request: str = INITIAL, *, paused: bool = False
) -> list[dict[str, Any]]:
    """A task's share of a snapshot, as snapshots are shown elsewhere; none if it has no groups."""
    shares = [position for of_table in positions.values() for position in of_table]
    if not shares:
        return []
    over = all(position.finished for position in shares)
    state = "cancelled" if any(position.cancelled for position in shares) else "completed"
    return [
        {
            "id": request,
            "state": state if over else "paused" if paused else "running",
            "started_ms": min((position.started_ms for position in shares if position.started_ms), default=None),
            "finished_ms": max(position.finished_ms for position in shares) or None if over else None,
            "tables": [
                {
                    "table": str(table),
                    "rows_done": sum(position.rows for position in of_table),
                    "state": "done" if all(position.finished for position in of_table) else "running",
                }
                for table, of_table in positions.items()
            ],
        }
    ]


class ChangeTraces:
    """When rows were last changed by what the stream has sent: not exactly known, but never too early, in constant memory.

    Args:
        slots: a power of two; rows that share one count as changed together.
    """

    def __init__(self, slots: int = 1 << 12) -> None:
        self._times = array("q", bytes(8 * slots))
        self._mask = slots - 1
        self._floor_us = 0

    def add(self, key: int, time: bytes) -> None:
        """A change of the row with the hash ``key``, at a ``cdc$time``."""
        time_us = ticks_of(time) // 10
        slot = key & self._mask
        self._times[slot] = max(self._times[slot], time_us)

    def add_all(self, time_us: int) -> None:
        """A change of any rows."""
        self._floor_us = max(self._floor_us, time_us)

    def forget(self) -> None:
        """Free the memory; nothing is asked any more."""
        self._times = array("q", bytes(8))
        self._mask = 0

    def newest(self, key: int) -> int:
        """The last change, or 0."""
        return max(self._times[key & self._mask], self._floor_us)
