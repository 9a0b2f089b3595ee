"""The bookkeeping of the reader: where groups stand, what a lane reads next, where streams change in a page. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from connectors.scylla import positions
from connectors.scylla.model import SEQ, STREAM, TIME, ReadPosition
from connectors.scylla.source.generations import EXPIRY_MARGIN_MS
from connectors.scylla.source.windows import WindowRules, end_of, next_window, order_of, start_of, ticks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from connectors.api import Position
    from connectors.scylla.model import LogRow, StreamGroup, TableId

#: (cdc$time, batch_seq_no) of a row.
RowPosition = tuple[bytes, int]
#: Sub-windows of one stream are not cut below this (100 ns steps).
_LEAST_TICKS: Final = 10_000


class GroupState:
    """The position of one group. ``start_ms``, ``end_ms`` and ``done`` as in ``ReadPosition``.

    Args:
        group: the group.
        partition: its source partition, one object for good.
        position: where to begin.
        unsaved: whether this was decided just now, and is to be saved before anything is read.
    """

    __slots__ = (
        "bit",
        "done",
        "end_ms",
        "finished",
        "group",
        "name",
        "partition",
        "resume",
        "save_at",
        "start_ms",
        "unsaved",
    )

    def __init__(
        self, group: StreamGroup, partition: Position, position: ReadPosition, *, unsaved: bool = False
    ) -> None:
        self.group = group
        self.name = f"{group.table} {group.generation.start_ms} {group.name}"
        self.partition = partition
        self.bit = {stream: 1 << index for index, stream in enumerate(group.streams)}
        self.start_ms = position.window_start_ms
        self.end_ms = position.window_end_ms
        self.done = position.done
        #: What was delivered of a stream before the start: (stream, cdc$time, seq).
        self.resume: tuple[bytes, bytes, int] | None = None
        if position.stream is not None and position.time is not None and position.stream in self.bit:
            self.resume = (position.stream, position.time, position.seq)
        self.finished = False
        self.unsaved = unsaved
        #: Loop time from which on the position may be saved again in quiet times.
        self.save_at = 0.0

    @property
    def partial(self) -> bool:
        """Whether a part of its window was delivered before the start."""
        return bool(self.done) or self.resume is not None

    def position(self) -> ReadPosition:
        """The position at the end of a window."""
        return ReadPosition(self.start_ms, self.start_ms)

    def advance(self, end_ms: int) -> None:
        """Everything before ``end_ms`` was delivered."""
        self.start_ms = self.end_ms = end_ms
        self.done = 0
        self.resume = None

    def offset(self, stream: bytes, window: LaneWindow) -> Position:
        """``Run.offset`` of rows of ``stream``."""
        if not window.bounds:
            window.bounds = positions.shared_offset(ReadPosition(window.start_ms, window.end_ms))
        return {
            **window.bounds,
            positions.OFFSET_DONE: f"{self.done:x}",
            positions.OFFSET_STREAM: positions.stream_text(stream),
        }


@dataclass(slots=True)
class StreamRead:
    """One query's worth of work: these streams between two timeuuids, both inclusive.

    Attributes:
        streams: ids.
        lower, upper: bounds of ``cdc$time``.
        skip: of its only stream: what was delivered before the start.
        after: of its only stream: rows up to this one were taken from an earlier page and are dropped.
        final: whether its streams end with it (False for all but the last part of a stream cut in time).
    """

    streams: tuple[bytes, ...]
    lower: bytes
    upper: bytes
    skip: RowPosition | None = None
    after: RowPosition | None = None
    final: bool = True


@dataclass(slots=True)
class LaneWindow:
    """A window of some groups of a lane, all of which stand at its start.

    Attributes:
        start_ms, end_ms: from (inclusive) and to (exclusive).
        groups: the groups.
        reads: what is left to be read of it.
        rows: read so far.
        bounds: the members of offsets that name the window.
        is_young: whether it is read so early that it is looked at again; None: not decided yet.
        read_ms: when that was decided.
    """

    start_ms: int
    end_ms: int
    groups: tuple[GroupState, ...]
    reads: deque[StreamRead]
    rows: int = 0
    bounds: Position = field(default_factory=dict)
    is_young: bool | None = None
    read_ms: float = 0.0


@dataclass(slots=True)
class Lane:
    """Groups of one table and generation that advance together.

    Attributes:
        groups: those that are not finished.
        width_ms: the width of windows over history.
        began_s: loop time of the start of the last window.
        phase: the part of a tick that the first one at the head is put off by, so that lanes don't tick at once.
    """

    groups: list[GroupState]
    width_ms: int
    began_s: float = -1e9
    phase: float = 0.0
    rows: int = 0
    lag_ms: int = 0
    plan_owner: dict[bytes, GroupState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.update_owners()

    def update_owners(self) -> None:
        """Bring the streams' owners up to date after ``groups`` changed."""
        self.plan_owner = {stream: state for state in self.groups for stream in state.group.streams}

    @property
    def streams(self) -> int:
        """How many streams it has."""
        return len(self.plan_owner)


@dataclass(frozen=True, slots=True)
class LanePlan:
    """The next step of a lane: read ``window``, or wait (``wait_ms``; None: for a change); ``finished`` groups leave."""

    window: LaneWindow | None = None
    wait_ms: int | None = None
    finished: tuple[GroupState, ...] = ()


def find_expired(states: Iterable[GroupState], ttls_ms: Mapping[TableId, int], now_ms: int) -> dict[TableId, int]:
    """Up to where tables are read of which rows may have expired before, ms; the others are left out.

    Args:
        states: groups.
        ttls_ms: how long log rows stay, by table; 0: they don't expire.
        now_ms: now.
    """
    oldest_ms: dict[TableId, int] = {}
    for state in states:
        table = state.group.table
        ttl_ms = ttls_ms.get(table, 0)
        # A first start begins where rows expire.
        margin_ms = EXPIRY_MARGIN_MS if state.unsaved else 0
        if ttl_ms and not state.finished and state.start_ms < now_ms - ttl_ms - margin_ms:
            oldest_ms[table] = min(state.start_ms, oldest_ms.get(table, state.start_ms))
    return oldest_ms


def plan_lane(
    lane: Lane,
    safe_ms: int,
    rules: WindowRules,
    streams_per_query: int,
    *,
    end_ms: int | None,
    held_groups: frozenset[str] = frozenset(),
) -> LanePlan:
    """The next step of a lane.

    Groups that are furthest behind are read first, up to the position of the next ones: so they meet. A group that was
    stopped inside a window finishes this window alone.

    Args:
        lane: the lane.
        safe_ms: up to here everything is visible.
        rules: how wide windows are.
        streams_per_query: streams in one query at most.
        end_ms: the generation's end, if it has one.
        held_groups: names of groups whose stream must not continue now.
    """
    finished = tuple(state for state in lane.groups if end_ms is not None and state.start_ms >= end_ms)
    if finished:
        return LanePlan(finished=finished)
    free = [state for state in lane.groups if state.name not in held_groups] if held_groups else lane.groups
    if not free:
        return LanePlan()
    start = min(state.start_ms for state in free)
    behind = [state for state in free if state.start_ms == start]
    for state in behind:
        if state.partial and state.end_ms > start:
            return _plan_partial(state, safe_ms, streams_per_query)
    limit = min((state.start_ms for state in free if state.start_ms > start), default=None)
    step = next_window(start, safe_ms, lane.width_ms, rules, end_ms=end_ms, not_after_ms=limit)
    if step.end_ms is None:
        return LanePlan(wait_ms=step.wait_ms)
    lower, upper = start_of(start), end_of(step.end_ms - 1)
    reads = _make_reads([stream for state in behind for stream in state.group.streams], lower, upper, streams_per_query)
    return LanePlan(LaneWindow(start, step.end_ms, tuple(behind), reads))


def _plan_partial(state: GroupState, safe_ms: int, streams_per_query: int) -> LanePlan:
    if state.end_ms > safe_ms:
        return LanePlan(wait_ms=state.end_ms - safe_ms)
    lower, upper = start_of(state.start_ms), end_of(state.end_ms - 1)
    left = [stream for stream in state.group.streams if not state.done & state.bit[stream]]
    reads: deque[StreamRead] = deque()
    if state.resume is not None:
        stream, time, seq = state.resume
        if stream in left:
            left.remove(stream)
            reads.append(StreamRead((stream,), max(lower, time, key=order_of), upper, skip=(time, seq)))
    reads.extend(_make_reads(left, lower, upper, streams_per_query))
    # What was delivered of it before the restart is not known to a second look, which would find it late.
    return LanePlan(LaneWindow(state.start_ms, state.end_ms, (state,), reads, is_young=False))


def _make_reads(streams: Sequence[bytes], lower: bytes, upper: bytes, limit: int) -> deque[StreamRead]:
    return deque(
        StreamRead(tuple(streams[start : start + limit]), lower, upper) for start in range(0, len(streams), limit)
    )


def find_partitions(rows: Sequence[LogRow], limit: int) -> Iterator[tuple[int, int, bool]]:
    """Where streams begin and end in a page: (from, to, whether the stream ends there), none longer than ``limit`` rows.

    A partition's rows follow each other in a result, so a few looks per partition are enough, not one per row.
    """
    count = len(rows)
    start = 0
    while start < count:
        stream = rows[start][STREAM]
        if rows[count - 1][STREAM] == stream:
            stop = count
        else:
            low, step = start, 1
            while low + step < count and rows[low + step][STREAM] == stream:
                low += step
                step *= 2
            high = min(low + step, count - 1)
            while high - low > 1:
                middle = (low + high) // 2
                if rows[middle][STREAM] == stream:
                    low = middle
                else:
                    high = middle
            stop = high
        while stop - start > limit:
            yield start, start + limit, False
            start += limit
        yield start, stop, True
        start = stop


def drop_until(rows: list[LogRow], stream: bytes, after: RowPosition) -> list[LogRow]:
    """``rows`` without those of ``stream`` up to ``after``, which were taken from an earlier page."""
    key = order_of(after[0])
    for index, row in enumerate(rows):
        if row[STREAM] != stream:
            return rows[index:]
        order = key if row[TIME] == after[0] else order_of(row[TIME])
        if order > key or (order == key and row[SEQ] > after[1]):
            return rows[index:]
    return []


@dataclass(slots=True)
class ReadProgress:
    """How far the pages of ``read`` have come.

    Attributes:
        read: the read.
        seen_streams: streams of the rows so far.
        last: the last row; None: there was none.
    """

    read: StreamRead
    seen_streams: set[bytes] = field(default_factory=set)
    last: LogRow | None = None

    def take(self, rows: list[LogRow]) -> list[LogRow]:
        """Note the rows of the next page; return those that no earlier read has taken."""
        read = self.read
        if rows and read.after is not None and self.last is None:
            rows = drop_until(rows, read.streams[0], read.after)
        if rows:
            self.last = rows[-1]
            self.seen_streams.add(rows[0][STREAM])
            if self.last[STREAM] != rows[0][STREAM]:
                self.seen_streams.update({row[STREAM] for row in rows})
        return rows

    def remainder(self) -> list[StreamRead]:
        """Return what is left of the read."""
        read, last = self.read, self.last
        if last is None:
            return [read]
        stream, time = last[STREAM], last[TIME]
        left = tuple(other for other in read.streams if other not in self.seen_streams)
        parts = [StreamRead((stream,), time, read.upper, skip=read.skip, after=(time, last[SEQ]), final=read.final)]
        if left:
            parts.append(StreamRead(left, read.lower, read.upper, final=read.final))
        return parts


def halve_read(read: StreamRead) -> list[StreamRead]:
    """``read`` as two smaller ones, or as it is when it can't be cut: by streams, then by time."""
    count = len(read.streams)
    if count > 1:
        return [
            StreamRead(read.streams[: count // 2], read.lower, read.upper, final=read.final),
            StreamRead(read.streams[count // 2 :], read.lower, read.upper, final=read.final),
        ]
    low, high = ticks_of(read.lower), ticks_of(read.upper)
    if high - low < 2 * _LEAST_TICKS:
        return [read]
    middle = (low + (high - low) // 2) // 10_000
    return [
        StreamRead(read.streams, read.lower, end_of(middle - 1), skip=read.skip, after=read.after, final=False),
        StreamRead(read.streams, start_of(middle), read.upper, final=read.final),
    ]
