"""A table, its log, a reader and a sink in memory, to prove the merge of snapshot and stream. Time: ms, grows."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from connectors.cql.token_ranges import subtract_ranges
from connectors.cql.types import CqlType
from connectors.scylla.model import CdcOptions, Generation, ScyllaColumn, StreamGroup, TableId, TableVersion
from connectors.scylla.positions import GENERATION
from connectors.scylla.snapshot.group import GroupSnapshot
from connectors.scylla.snapshot.merging import (
    first_position,
    from_offset,
    partition_of,
    positions_of,
    to_offset,
    unwrap_range,
)
from connectors.scylla.snapshot.rows import RowPlan
from connectors.scylla.source.windows import ticks_of
from connectors.testing.contexts import SavedOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import BadRecord, Position, SourceRecord
    from connectors.scylla.snapshot.merging import SnapshotPosition

TABLE = TableId("ks", "t")
INT = CqlType("int")
SET = CqlType("set", (INT,))
VERSION = TableVersion(
    TABLE,
    (
        ScyllaColumn("pk", INT, "partition_key", 0),
        ScyllaColumn("ck", INT, "clustering", 0),
        ScyllaColumn("st", INT, "static"),
        ScyllaColumn("a", INT, "regular"),
        ScyllaColumn("b", INT, "regular"),
        ScyllaColumn("m", SET, "regular"),
    ),
    CdcOptions(),
    "v1",
    table_id="id",
)
PLAN = RowPlan(VERSION)
#: Places in ``VERSION.columns`` of the single-cell columns.
SINGLE = {"st": 2, "a": 3, "b": 4}
MULTI = 5

#: (pk, ck or None for the static row).
Key = tuple[int, int | None]


def token(pk: int) -> int:
    """Partitions 2 and 5 share a token."""
    return ((2 if pk == 5 else pk) * 7919 % 16 - 8) * (1 << 60) + 1


def superseded(saved: Sequence[tuple[Position, SnapshotPosition]]) -> list[Position]:
    """Partitions of positions whose tokens are all covered by positions of newer generations: they say nothing any more."""
    result = []
    for partition, position in saved:
        started = int(partition[GENERATION])
        newer = [part for other, its in saved if int(other[GENERATION]) > started for part in its.whole]
        if newer and not subtract_ranges(position.whole, newer):
            result.append(partition)
    return result


@dataclass
class Change:
    """One change of the log. ``kind``: insert, update, and row, partition, range delete (from ``ck`` to ``upto``)."""

    us: int
    kind: str
    pk: int
    ck: int | None = None
    upto: int = 0
    cells: dict[str, int | None] = field(default_factory=dict)
    added: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()
    replaced: bool = False
    logged: bool = True

    def covers(self, key: Key) -> bool:
        if key[0] != self.pk:
            return False
        if self.kind == "partition delete":
            return True
        if self.kind == "range delete":
            return key[1] is not None and self.ck is not None and self.ck <= key[1] <= self.upto
        return self.kind == "row delete" and key[1] == self.ck

    def log_row(self) -> tuple[Any, ...]:
        ticks = self.us * 10 + 0x01B21DD213814000
        time = (
            (ticks & 0xFFFFFFFF).to_bytes(4)
            + ((ticks >> 32) & 0xFFFF).to_bytes(2)
            + (0x1000 | ticks >> 48).to_bytes(2)
            + bytes(8)
        )
        assert ticks_of(time) == self.us * 10
        operation = {"update": 1, "insert": 2, "row delete": 3, "partition delete": 4, "range delete": 5}[self.kind]
        cells: list[Any] = [self.pk, self.ck]
        for name in ("st", "a", "b"):
            cells += [self.cells.get(name), True if name in self.cells and self.cells[name] is None else None]
        cells += [sorted(self.added) or None, self.replaced or None, sorted(self.removed) or None]
        return (b"", time, 0, operation, None, True, *cells)


class Base:
    """The base table: the newest write of each cell wins."""

    def __init__(self) -> None:
        self.cells: dict[tuple[Key, str], tuple[int, int | None]] = {}
        self.elements: dict[tuple[Key, int], tuple[int, bool]] = {}
        self.cleared: dict[Key, int] = {}
        self.markers: dict[Key, int] = {}
        self.deletes: list[Change] = []

    def apply(self, change: Change) -> None:
        if change.kind not in {"insert", "update"}:
            self.deletes.append(change)
            return
        key = (change.pk, change.ck)
        if change.kind == "insert":
            self.markers[key] = max(self.markers.get(key, 0), change.us)
        for name, value in change.cells.items():
            if change.us > self.cells.get((key, name), (0, None))[0]:
                self.cells[key, name] = (change.us, value)
        if change.replaced:
            self.cleared[key] = max(self.cleared.get(key, 0), change.us)
        for element in change.added | change.removed:
            if change.us > self.elements.get((key, element), (0, False))[0]:
                self.elements[key, element] = (change.us, element in change.added)

    def _deleted(self, key: Key) -> int:
        return max((delete.us for delete in self.deletes if delete.covers(key)), default=0)

    def row(self, key: Key) -> tuple[bool, dict[str, tuple[int, int]], list[int] | None]:
        """Whether it has a row marker, its single cells with their write times, its set."""
        deleted = self._deleted(key)
        cells = {
            name: (us, value)
            for name in SINGLE
            if (written := self.cells.get((key, name)))
            for us, value in [written]
            if value is not None and us > deleted
        }
        cleared = max(deleted, self.cleared.get(key, 0))
        elements = sorted(
            element
            for (of, element), (us, there) in self.elements.items()
            if of == key and there and (us > deleted if us == self.cleared.get(key) else us > cleared)
        )
        return self.markers.get(key, 0) > deleted, cells, elements or None

    def keys(self) -> set[Key]:
        return {key for key, _ in self.cells} | {key for key, _ in self.elements} | set(self.markers)

    def page(
        self, after: int, upto: int, state: bytes | None, limit: int
    ) -> tuple[list[tuple[Any, ...]], bytes | None]:
        """As the query of ``RowPlan`` gives it. The state names the last row of the page before."""
        rows: list[tuple[Any, ...]] = []
        keys = self.keys()
        partitions = sorted({key[0] for key in keys if after < token(key[0]) <= upto}, key=lambda pk: (token(pk), pk))
        for pk in partitions:
            static = self.row((pk, None))[1].get("st")
            has_rows = False
            for ck in sorted(key[1] for key in keys if key[0] == pk and key[1] is not None):
                marker, cells, elements = self.row((pk, ck))
                if marker or cells or elements:
                    has_rows = True
                    a, b = cells.get("a", (None, None)), cells.get("b", (None, None))
                    rows.append(
                        (
                            token(pk),
                            pk,
                            ck,
                            static and static[1],
                            a[1],
                            b[1],
                            elements,
                            static and static[0],
                            a[0],
                            b[0],
                        )
                    )
            if static and not has_rows:
                rows.append((token(pk), pk, None, static[1], None, None, None, static[0], None, None))
        if state is not None:
            last = tuple(map(int, state.decode().split(",")))
            rows = [row for row in rows if (row[0], row[1], -1 if row[2] is None else row[2]) > last]
        page = rows[:limit]
        if len(rows) <= limit:
            return page, None
        return page, f"{page[-1][0]},{page[-1][1]},{-1 if page[-1][2] is None else page[-1][2]}".encode()


class Sink:
    """A consumer of the records: ``r`` replaces a row, changes are applied to it."""

    def __init__(self, *, strict: bool) -> None:
        self.rows: dict[Key, dict[str, Any]] = {}
        self.newest: dict[Key, int] = {}
        self.emitted: list[tuple[Key, int]] = []
        self.sent: list[int] = []
        self.strict = strict

    def _time(self, key: Key, us: int) -> None:
        if self.strict:
            assert us >= self.newest.get(key, 0), f"{key}: {us} after {self.newest[key]}"
        self.newest[key] = max(us, self.newest.get(key, 0))

    def read(self, key: Key, row: dict[str, Any], us: int) -> None:
        """A row of the snapshot."""
        self._time(key, us)
        self.rows[key] = row
        self.emitted.append((key, us))

    def change(self, change: Change) -> None:
        """A change of the stream."""
        self.sent.append(change.us)
        if change.kind not in {"insert", "update"}:
            for key in list(self.newest):
                if change.covers(key):
                    self._time(key, change.us)
                    self.rows.pop(key, None)
            return
        key = (change.pk, change.ck)
        self._time(key, change.us)
        row = self.rows.setdefault(key, {"m": set()})
        row.update(change.cells)
        elements: set[int] = set() if change.replaced else set(row["m"])
        row["m"] = (elements | change.added) - change.removed


class Builder:
    """An ``EventBuilder`` whose records are calls of the sink."""

    def __init__(self) -> None:
        self.rows: list[tuple[Key, dict[str, Any], int]] = []

    def snapshot_row(
        self,
        partition: Position,
        offset: Position,
        cells: Sequence[Any],
        write_time_us: int,
        out: list[SourceRecord],
        bad: list[BadRecord],
    ) -> None:
        from connectors.api import SourceRecord

        del bad
        row = {name: cells[index] for name, index in SINGLE.items()}
        row["m"] = set(cells[MULTI] or ())
        out.append(SourceRecord(partition, offset, "t", ((cells[0], cells[1]), row, write_time_us)))


@dataclass
class Task:
    """The reader's side of one group: the position of the stream, and its snapshot."""

    group: StreamGroup
    snapshot: GroupSnapshot
    at_ms: int
    window: tuple[int, int] | None = None
    #: Whether the changes of even partitions were handed over in the window under way.
    half: bool = False


class World:
    """Everything. ``confidence_ms``: a write is visible at the latest so long after its write time."""

    def __init__(self, ends: Sequence[int], *, strict: bool, confidence_ms: int, page: Callable[[], int]) -> None:
        self.now = 10_000_000
        self.confidence = confidence_ms
        self.base = Base()
        self.log: list[tuple[int, Change]] = []
        self.coming: list[tuple[int, Change]] = []
        self.sink = Sink(strict=strict)
        self.offsets = SavedOffsets()
        self.at: dict[str, int] = {}
        #: Ends of windows of which one half was handed over.
        self.halves: dict[str, int] = {}
        self.page = page
        self.tasks: list[Task] = []
        self.ends = ends
        self.generation = 0
        self.starts = [0]
        self.stream_start = self.now
        #: Until then writes reach nodes that don't know of cdc yet.
        self.logged_from = 1 << 60
        self.skipped = self.left_out = 0
        self._used: set[int] = set()
        self.committed: Any = None
        self.kept: list[Any] = []

    # The cluster.

    def write(self, change: Change, delay_ms: int) -> None:
        """It becomes visible in table and log after ``delay_ms``."""
        while change.us in self._used:
            change.us += 1
        self._used.add(change.us)
        change.logged = self.now >= self.logged_from
        self.coming.append((min(self.now + delay_ms, change.us // 1000 + self.confidence - 1), change))
        self.tick(0)

    def tick(self, ms: int) -> None:
        self.now += ms
        due = [item for item in self.coming if item[0] <= self.now]
        self.coming = [item for item in self.coming if item[0] > self.now]
        for _, change in sorted(due, key=lambda item: item[0]):
            self.base.apply(change)
            if change.logged:
                self.log.append((self.now, change))

    def new_generation(self, ends: Sequence[int]) -> None:
        """Divide the ring again, with a start a little in the future."""
        self.starts.append(self.now + 3 * self.confidence)
        self.ends = ends

    # The tasks.

    @property
    def _end(self) -> int | None:
        return self.starts[self.generation + 1] if len(self.starts) > self.generation + 1 else None

    def start(self) -> None:
        """All tasks start from what is saved."""
        self.committed = None
        self.tasks = []
        ends = self._cuts[self.generation]
        for number, upto in enumerate(ends):
            group = StreamGroup(
                TABLE,
                Generation(self.starts[self.generation]),
                str(number),
                False,
                (bytes(16),),
                (ends[number - 1], upto),
            )
            whole = unwrap_range(group.token_range or (0, 0))
            saved = positions_of(TABLE, "id", self.offsets.items())
            position = first_position(group, whole, "id", saved)
            for partition in superseded(saved):
                self.offsets.put(partition, None)
            if not (position.started_ms or position.finished):
                position = replace(position, started_ms=self.now)
            snapshot = GroupSnapshot(group, position, settle_ms=self.confidence)
            self.offsets.put(partition_of(group), to_offset(position))
            at = self.at.setdefault(self._name(group), max(self.stream_start, self.starts[self.generation]))
            end = self.halves.get(self._name(group))
            if at > self.stream_start or end:
                snapshot.traces.add_all((end or at) * 1000 - 1)
            if end is None:
                snapshot.turns.ended(at)
            self.tasks.append(Task(group, snapshot, at, None if end is None else (at, end), half=end is not None))
        self.commit()

    @property
    def _cuts(self) -> list[Sequence[int]]:
        if not hasattr(self, "_all_cuts"):
            self._all_cuts = [self.ends]
        while len(self._all_cuts) < len(self.starts):
            self._all_cuts.append(self.ends)
        return self._all_cuts

    @staticmethod
    def _name(group: StreamGroup) -> str:
        return f"{group.generation.start_ms} {group.name}"

    def commit(self) -> None:
        """A transaction ends."""
        self.committed = pickle.dumps(
            (self.sink, self.offsets, self.at, self.generation, self.halves)
        )  # a quick deep copy
        self.kept.append((self.offsets.copy(), dict(self.at), self.generation, dict(self.halves)))

    def crash(self, back: int | None = None) -> None:
        """All tasks are gone. Exactly once: so is what was not committed; else the sink keeps all, and positions are older."""
        if back is None:
            self.sink, self.offsets, self.at, self.generation, self.halves = pickle.loads(self.committed)  # noqa: S301
        else:
            del self.kept[len(self.kept) - back % min(len(self.kept), 8) :]
            offsets, at, generation, halves = self.kept[-1]
            self.offsets, self.at, self.generation, self.halves = offsets.copy(), dict(at), generation, dict(halves)
        self.start()

    # One step of a task.

    def begin_window(self, task: Task, width: int) -> bool:
        """The reader asks, and begins a window if it may and there is one."""
        if task.window is not None:
            return False
        if task.snapshot.turns.asked():
            return False
        end = min(self.now - self.confidence, task.at_ms + width, self._end or 1 << 60)
        if end <= task.at_ms:
            return False
        task.window = (task.at_ms, end)
        return True

    def _deliver(self, task: Task, partitions: Sequence[int]) -> None:
        start, end = task.window or (0, 0)
        mine = [
            change
            for _, change in self.log
            if start * 1000 <= change.us < end * 1000
            and change.pk % 2 in partitions
            and any(part.after < token(change.pk) <= part.upto for part in task.snapshot.position.whole)
        ]
        mine.sort(key=lambda change: change.us)
        PLAN.trace([change.log_row() for change in mine], task.snapshot.traces)
        for change in mine:
            self.sink.change(change)

    def half_window(self, task: Task) -> None:
        """The streams of even partitions are read to the window's end."""
        if task.window is not None and not task.half:
            self._deliver(task, (0,))
            task.half = True
            self.halves[self._name(task.group)] = task.window[1]

    def end_window(self, task: Task) -> None:
        """Its changes are handed over."""
        if task.window is None:
            return
        end = task.window[1]
        self._deliver(task, (1,) if task.half else (0, 1))
        task.half = False
        self.halves.pop(self._name(task.group), None)
        task.window = None
        task.at_ms = end
        self.at[self._name(task.group)] = end
        task.snapshot.turns.ended(end)
        if self._end is not None and all(other.at_ms >= self._end for other in self.tasks):
            self.generation += 1
            self.commit()
            self.start()

    def begin_page(self, task: Task) -> None:
        if task.snapshot.may_begin:
            task.snapshot.turns.begin()

    def read_page(self, task: Task) -> None:
        snapshot = task.snapshot
        if not snapshot.turns.is_held or snapshot.page is not None or snapshot.finished:
            return
        first = snapshot.position.left[0]
        rows, state = self.base.page(first.after, first.upto, snapshot.state, self.page())
        snapshot.loaded(PLAN, rows, state)

    def emit(self, task: Task, limit: int) -> None:
        snapshot = task.snapshot
        if not snapshot.ready or (self._end is not None and task.at_ms >= self._end):
            return
        out: list[SourceRecord] = []
        offsets: list[tuple[Position, Position | None]] = []
        counted = snapshot.skipped, snapshot.left_out
        snapshot.emit(limit, Builder(), out, [], offsets, self.now)  # type: ignore[arg-type]
        self.skipped += snapshot.skipped - counted[0]
        self.left_out += snapshot.left_out - counted[1]
        for record in out:
            key, row, us = record.value
            self.sink.read(key, row, us)
            self.offsets.put(record.source_partition, record.source_offset)
        for partition, offset in offsets:
            self.offsets.put(partition, offset)
        saved = self.offsets.get(snapshot.partition)
        assert saved is not None
        assert from_offset(saved) == snapshot.position

    def finish(self) -> None:
        """Everything comes to its end."""
        for _ in range(3000):
            self.tick(50)
            if (
                not self.coming
                and self._end is None
                and all(
                    task.snapshot.finished and task.at_ms * 1000 > max(self._used, default=0) for task in self.tasks
                )
            ):
                return
            for task in list(self.tasks):
                if task not in self.tasks:
                    continue
                self.begin_window(task, 100_000)
                self.end_window(task)
                if task in self.tasks:
                    self.begin_page(task)
                    self.read_page(task)
                    task.snapshot.turns.asked()
                    self.emit(task, 1000)
        raise AssertionError("it does not come to an end")

    # What must hold in the end.

    def table(self) -> dict[Key, dict[str, Any]]:
        result: dict[Key, dict[str, Any]] = {}
        for key in sorted(self.base.keys(), key=repr):
            _, cells, elements = self.base.row(key)
            if cells or elements:
                result[key] = {name: value for name, (_, value) in cells.items()}
                if elements:
                    result[key]["m"] = set(elements)
        return result

    def folded(self) -> dict[Key, dict[str, Any]]:
        rows = {
            key: {name: value for name, value in row.items() if value is not None and value != set()}
            for key, row in self.sink.rows.items()
        }
        return {key: row for key, row in rows.items() if row}

    def bare(self) -> set[Key]:
        """Rows of key columns only."""
        keys = self.base.keys()
        return {key for key in keys if (row := self.base.row(key))[0] and not row[1] and not row[2]}
