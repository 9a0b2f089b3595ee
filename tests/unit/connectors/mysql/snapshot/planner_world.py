"""A source with a binlog, a stream that reads it, snapshots next to it, and a reader of the result; all in memory.

Every step is one that a real task could take at that moment, in any order: a commit, one event taken by the stream, a view
opened, a chunk delivered, some rows of a chunk sent.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from connectors.mysql.model import BinlogPosition, MySqlColumn, MySqlTable, Shard, TableName
from connectors.mysql.position.shards import shard_of_number, sql_filter
from connectors.mysql.snapshot.model import ReadRows, SnapshotChunk, SnapshotRowDecoder, SnapshotSettings
from connectors.mysql.snapshot.planner import MySqlSnapshotPlanner
from connectors.mysql.snapshot.reading.keys import KeyColumn
from connectors.mysql.snapshot.work import RequestTable, SnapshotLayout, TableReadJob

if TYPE_CHECKING:
    from connectors.api import Position
    from connectors.snapshot.requests import SnapshotRequest

WHOLE = Shard()
LONG = 8
VARCHAR = 15
#: Rows of one binlog file, so that files change all the time.
EVENTS_PER_FILE = 7
NUMBERS = [-5000, -4097, -1, 0, 1, 2, 3, 50, 4095, 4096, 4097, 9000, 20000, 1 << 40]
STRINGS = ["", "a", "ab", "b", "c", "x"]

Row = dict[str, Any]
Key = tuple[Any, ...]


def partition(request: str) -> Position:
    """The source partition of a request's share."""
    return {"snapshot": request}


def position_of(index: int) -> BinlogPosition:
    """The position after ``index`` events."""
    return BinlogPosition(file=f"bin.{100 + index // EVENTS_PER_FILE:06d}", pos=4 + index % EVENTS_PER_FILE * 100)


def index_of(where: BinlogPosition) -> int:
    return (int(where.file[-6:]) - 100) * EVENTS_PER_FILE + (where.pos - 4) // 100


class Kind:
    """One kind of table: its key and how keys are drawn."""

    def __init__(self, name: str, key: tuple[str, ...], types: tuple[str, ...]) -> None:
        self.name = TableName("db", name)
        self.key = key
        self.types = types
        codes = {"int": LONG, "varchar": VARCHAR}
        columns = [MySqlColumn(name=column, type=codes[kind]) for column, kind in zip(key, types, strict=True)]
        others = (MySqlColumn(name="v", type=LONG), MySqlColumn(name="w", type=LONG))
        self.table = MySqlTable(name=self.name, columns=(*columns, *others), key=key)
        self.columns = tuple(KeyColumn(column, kind, "utf8mb4") for column, kind in zip(key, types, strict=True))

    def draw(self, choice: int) -> Key:
        values: list[Any] = []
        for kind in self.types:
            pool: list[Any] = NUMBERS if kind == "int" else STRINGS
            values.append(pool[choice % len(pool)])
            choice //= len(pool)
        return tuple(values)

    def literals(self, key: Key) -> tuple[str, ...]:
        return tuple(column.literal(str(value).encode()) for column, value in zip(self.columns, key, strict=False))

    def value(self, literals: tuple[str, ...]) -> Key:
        return tuple(
            int(text) if kind == "int" else bytes.fromhex(text.partition("'")[2][:-1]).decode()
            for text, kind in zip(literals, self.types, strict=False)
        )


BY_NUMBER = Kind("by_number", ("id",), ("int",))
COMPOSITE = Kind("composite", ("n", "t"), ("int", "varchar"))
BY_TEXT = Kind("by_text", ("t",), ("varchar",))
KEYLESS = Kind("keyless", (), ())
KINDS = {kind.name: kind for kind in (BY_NUMBER, COMPOSITE, BY_TEXT, KEYLESS)}


class Flight:
    """A job that a reader is at."""

    def __init__(self, job: TableReadJob) -> None:
        self.job = job
        self.view: dict[Key, Row] | None = None
        self.at = -1
        self.left: list[Row] = []
        self.low = -1


class World:
    """See the module.

    Args:
        kinds: the tables.
        shard, threads, chunk_rows: see ``SnapshotSettings``.
        partial: whether updates carry only the columns that were changed.
        exact: whether the server tells the place of a view.
        alike: whether the table without a key has few different rows, so that many are identical.
    """

    def __init__(
        self,
        kinds: list[Kind],
        *,
        shard: Shard = WHOLE,
        threads: int = 2,
        chunk_rows: int = 3,
        partial: bool = False,
        exact: bool = True,
        most_marks: int = 1000,
        images: int = 1000,
        alike: bool = False,
    ) -> None:
        self.kinds = kinds
        self.alike = alike
        self.shard = shard
        self.partial = partial
        self.exact = exact
        self.contents: dict[TableName, dict[Key, Row]] = {kind.name: {} for kind in kinds}
        self.tick = 0
        #: One entry per event: (number of its transaction, table, op, before, after); op "end" closes a transaction.
        self.log: list[tuple[TableName | None, str, Row | None, Row | None]] = []
        #: All contents by number of events, at the ends of transactions.
        self.past: dict[int, dict[TableName, dict[Key, Row]]] = {0: {kind.name: {} for kind in kinds}}
        self.stream = self.done = 0
        self.output: list[tuple[TableName, str, Row | None, Row | None, int]] = []
        self.settings = SnapshotSettings(
            threads=threads, chunk_rows=chunk_rows, ahead_chunks=2, most_marks=most_marks, most_images=images
        )
        self.requests: dict[str, SnapshotRequest] = {}
        self.saved: dict[str, Position] = {}
        self.saved_stream = 0
        self.flights: list[Flight] = []
        self.out: SnapshotChunk | None = None
        self.planner = MySqlSnapshotPlanner(self.settings, shard, partition, {}, clock=self._clock)
        self.now = 0.0
        self.gone: set[TableName] = set()
        self.chunks = 0
        #: Where the last view of the table without a key was.
        self.viewed_at = -1
        self.newest: dict[tuple[TableName, Key], int] = {}

    def _clock(self) -> float:
        self.now += 0.01
        return self.now

    # The source.

    def owned(self, kind: Kind, key: Key) -> bool:
        condition = sql_filter(kind.table, self.shard)
        if condition is None:
            return False
        return condition == "" or shard_of_number(key[0], self.shard.count) == self.shard.index

    def commit(self, changes: list[tuple[Kind, str, int]]) -> None:
        """A transaction: insert, update, delete, move or replace the row with the key drawn."""
        for kind, action, choice in changes:
            rows = self.contents[kind.name]
            self.tick += 1
            if kind is KEYLESS:
                self._keyless(rows, action, choice)
                continue
            key = kind.draw(choice)
            row = dict(zip(kind.key, key, strict=True)) | {"v": self.tick, "w": choice}
            old = rows.get(key)
            if action in {"delete", "replace"} and old is not None:
                self._log(kind, "d", old, None)
                del rows[key]
                old = None
                if action == "delete":
                    continue
            if old is None:
                self._log(kind, "c", None, row)
                rows[key] = row
            elif action == "move":
                to = kind.draw(choice + 1 + self.tick)
                if to not in rows and not self.partial:
                    after = dict(zip(kind.key, to, strict=True)) | {"v": self.tick, "w": old["w"]}
                    self._log(kind, "u", old, after)
                    del rows[key]
                    rows[to] = after
            else:
                after = old | ({"v": self.tick} if choice % 2 else {"w": self.tick})
                self._log(kind, "u", old, after)
                rows[key] = after
        self._end()

    def _keyless(self, rows: dict[Key, Row], action: str, choice: int) -> None:
        row = {"v": choice % 3, "w": 0} if self.alike else {"v": self.tick, "w": choice}
        victim = sorted(rows)[choice % len(rows)] if rows and action != "insert" else None
        if victim is None:
            self._log(KEYLESS, "c", None, row)
            rows[(self.tick,)] = row
            return
        old = rows.pop(victim)
        if action == "delete":
            self._log(KEYLESS, "d", old, None)
        else:
            self._log(KEYLESS, "u", old, row)
            rows[(self.tick,)] = row

    def statement(self, kind: Kind, *, truncate: bool) -> None:
        """TRUNCATE or a change of the structure."""
        if truncate:
            self.contents[kind.name].clear()
        self.log.append((kind.name, "truncate" if truncate else "alter", None, None))
        self._end()

    def _log(self, kind: Kind, op: str, before: Row | None, after: Row | None) -> None:
        self.log.append((kind.name, op, before, after))

    def _end(self) -> None:
        self.log.append((None, "end", None, None))
        self.past[len(self.log)] = {name: dict(rows) for name, rows in self.contents.items()}

    # The stream.

    def feed(self, events: int) -> None:
        """The stream takes some events."""
        for _ in range(events):
            if self.stream >= len(self.log):
                return
            name, op, before, after = self.log[self.stream]
            self.stream += 1
            if name is None:
                self.done = self.saved_stream = self.stream
                self.planner.advance(self.reached)
            elif op in {"truncate", "alter"}:
                self.planner.altered(name)
                if op == "truncate":
                    self.output.append((name, op, None, None, self.stream))
            else:
                self._row(KINDS[name], op, before, after)

    def _row(self, kind: Kind, op: str, before: Row | None, after: Row | None) -> None:
        def mine(row: Row | None) -> Row | None:
            return row if row is not None and self.owned(kind, tuple(row[name] for name in kind.key)) else None

        before, after = mine(before), mine(after)
        if before is None and after is None:
            return
        image = after
        if self.partial and op == "u" and after is not None and before is not None:
            image = {name: after[name] for name in after if name in kind.key or after[name] != before[name]}
        watch = self.planner.watch
        if kind.name in watch.withheld:
            watch.changed(kind.name, op, [before, image] if op == "u" else [before or image])
            return
        if kind.name in watch.watched:
            for early in watch.changed(kind.name, op, [before, image] if op == "u" else [before or image]):
                self.output += [(kind.name, "r", None, row, self.stream) for row in early.rows]
        self.output.append((kind.name, op, before, image, self.stream))
        for row in (before, after):
            if row is not None and kind.key:
                self.newest[kind.name, tuple(row[name] for name in kind.key)] = self.stream

    def reached(self, where: BinlogPosition) -> bool:
        return self.done >= index_of(where)

    # The readers.

    def take_job(self) -> None:
        if len(self.flights) < self.settings.threads:
            job = self.planner.next_job()
            if job is not None:
                self.flights.append(Flight(job))

    def work(self, choice: int, *, fail: bool = False) -> None:
        """One of the readers goes one step on, or loses its connection."""
        if not self.flights:
            return
        flight = self.flights[choice % len(self.flights)]
        if fail or self._step(flight):
            self.planner.failed(flight.job)
            self.planner.finished(flight.job)
            self.flights.remove(flight)

    def _step(self, flight: Flight) -> bool:
        job = flight.job
        if job.table is None:
            self.planner.resolved(
                job,
                [
                    RequestTable(kind.name, None, not kind.key, sql_filter(kind.table, self.shard) is not None)
                    for kind in self.kinds
                    if str(kind.name) in job.share.request.tables
                ],
            )
            return True
        assert job.table is not None
        kind = KINDS[job.table.name]
        if kind.name in self.gone:
            self.planner.give_up(job, "it is gone", "vanished")
            return True
        if job.part is None:
            self.planner.prepared(job, self._layout(kind), owned=sql_filter(kind.table, self.shard) is not None)
            return True
        return self._whole(flight) if not kind.key else self._chunk(flight, kind)

    def _layout(self, kind: Kind) -> SnapshotLayout:
        rows = sorted(self.contents[kind.name])
        high = kind.literals(rows[-1]) if rows and kind.key else None
        low = rows[0][0] if rows and kind.key and kind.types[0] == "int" else None
        fields = len(kind.table.columns)
        return SnapshotLayout(
            kind.table, SnapshotRowDecoder((), lambda _: {}, kind.key, fields), kind.columns, low, high, len(rows), 10
        )

    def _view(self, flight: Flight) -> None:
        ends = [end for end in self.past if end >= flight.low]
        # A view has everything up to ``low``; on a replica perhaps no more than that.
        flight.at = ends[-1] if self.exact else ends[self.tick % len(ends)]
        assert flight.job.table is not None
        flight.view = dict(self.past[flight.at][flight.job.table.name])

    def _chunk(self, flight: Flight, kind: Kind) -> bool:
        job = flight.job
        assert job.table is not None
        assert job.part is not None
        if flight.low < 0:
            flight.low = self.stream
            self.planner.open(job, position_of(flight.low))
            return False
        if flight.view is None:
            if job.part.divisible and job.table.numbers is None and self.tick % 2 and not self.planner.stale(job):
                keys = self._keys(kind, flight, self.contents[kind.name])
                limit = self.planner.limit(job.table)
                self.planner.divided(job, kind.literals(keys[limit - 1]) if len(keys) >= limit else None)
            self._view(flight)
            return False
        if self.planner.stale(job):
            return True
        keys = self._keys(kind, flight, flight.view)
        limit = self.planner.limit(job.table)
        more = kind.literals(keys[limit - 1]) if len(keys) > limit else None
        rows = {key: dict(flight.view[key]) for key in keys[:limit]}
        # Servers that can't tell a view's place give one after it.
        result = ReadRows(rows, 10 * len(rows))
        self.planner.read(job, result, position_of(flight.at if self.exact else len(self.log)), more=more)
        return True

    def _keys(self, kind: Kind, flight: Flight, rows: dict[Key, Row]) -> list[Key]:
        key_range = flight.job.part
        assert key_range is not None

        def inside(key: Key) -> bool:
            if key_range.empty:
                return False
            if key_range.after is not None:
                bound = kind.value(key_range.after)
                if key[: len(bound)] <= bound:
                    return False
            if key_range.until is not None:
                bound = kind.value(key_range.until)
                if key[: len(bound)] > bound:
                    return False
            if key_range.spans:
                return any(low <= key[0] <= high for low, high in key_range.spans)
            return self.owned(kind, key)

        return sorted(key for key in rows if inside(key))

    def _whole(self, flight: Flight) -> bool:
        job = flight.job
        assert job.table is not None
        if flight.low < 0:
            flight.low = self.stream
            self.planner.open(job, position_of(flight.low))
            return False
        if flight.view is None:
            self._view(flight)
            return False
        if job.table.high is None and not self.planner.stale(job):
            # As the reader does: a change that was withheld meanwhile has to be in the view.
            if job.table.missed and self.stream > flight.at:
                flight.low, flight.view = -1, None
                return False
            self.planner.viewed(job, position_of(flight.at), past=self.stream >= flight.at)
            self.viewed_at = flight.at
            flight.left = [dict(flight.view[key]) for key in sorted(flight.view)]
        if not (self.planner.room() or self.planner.is_next(job)) and not self.planner.stale(job):
            return False
        rows, flight.left = flight.left[:3], flight.left[3:]
        accepted = self.planner.part(job, ReadRows(rows, 10 * len(rows)), position_of(flight.at), last=not flight.left)
        return not accepted or not flight.left

    # What is sent.

    def send(self, rows: int) -> None:
        """Some rows of the chunk that is ready are sent; a chunk that has none left is done."""
        if self.out is None:
            self.out = self.planner.ready(self.reached)
            if self.out is None:
                return
            assert self.reached(self.out.high)
        name, kind = self.out.name, KINDS[self.out.name]
        sent_rows = self.out.take(rows)
        for row in sent_rows:
            self.output.append((name, "r", None, row, index_of(self.out.high)))
            if kind.key and self.exact:
                # No newer change of the key was sent before.
                key = tuple(row[column] for column in kind.key)
                if not self.partial:
                    assert self.newest.get((name, key), -1) <= index_of(self.out.high)
        if len(sent_rows) < rows:
            self.save(self.planner.done(self.out))
            self.chunks += 1
            self.out = None
        self.save(self.planner.changes())

    def save(self, offsets: list[tuple[Position, Position]]) -> None:
        self.saved.update({source["snapshot"]: offset for source, offset in offsets})

    def ask(self, request: SnapshotRequest) -> None:
        self.requests[request.id] = request
        self.planner.set_requests(list(self.requests.values()))

    def restart(self) -> None:
        """Resume from saved positions: the stream after the last transaction, snapshots after the last complete chunk."""
        self.save(self.planner.changes())
        self.planner = MySqlSnapshotPlanner(self.settings, self.shard, partition, self.saved, clock=self._clock)
        self.flights.clear()
        self.out = None
        self.stream = self.done = self.saved_stream
        self.planner.set_requests(list(self.requests.values()))

    def finish(self) -> None:
        """Continue all work until nothing is left to do."""
        for turn in range(5_000):
            self.feed(3)
            self.take_job()
            self.work(turn)
            self.send(2)
            if (
                self.stream == len(self.log)
                and self.out is None
                and not any(share.running for share in self.planner.board.order)
            ):
                return
        raise AssertionError("it comes to no end")

    def replayed(self, kind: Kind) -> dict[Key, Row]:
        """The rows of a consumer that keeps the last state of each key."""
        state: dict[Key, Row] = {}
        for name, op, before, after, _ in self.output:
            if name != kind.name:
                continue
            if op == "truncate":
                state.clear()
                continue
            if op == "r":
                assert after is not None
                state[tuple(after[column] for column in kind.key)] = dict(after)
                continue
            if before is not None and op in {"d", "u"}:
                key = tuple(before[column] for column in kind.key)
                if op == "d" or after is None or key != tuple(after[column] for column in kind.key):
                    state.pop(key, None)
            if after is not None:
                key = tuple(after[column] for column in kind.key)
                state[key] = {**state.get(key, {}), **after}
        return state

    def replayed_images(self) -> list[Row]:
        """The rows of a consumer of the table without a key, which never takes away one that it does not have."""
        images: list[Row] = []
        for name, op, before, after, _ in self.output:
            if name != KEYLESS.name:
                continue
            if op == "truncate":
                images.clear()
            if before is not None:
                assert before in images
                images.remove(before)
            if after is not None:
                images.append({**(before or {}), **after})
        return images

    def counted_images(self, since: int = -1) -> Counter[tuple[int, int]]:
        """The sum of all rows and changes of the table without a key, where a change may come before its row.

        Args:
            since: leave out the changes up to this event.
        """
        counts: Counter[tuple[int, int]] = Counter()
        for name, op, before, after, at in self.output:
            if name == KEYLESS.name and (op == "r" or at > since):
                if before is not None:
                    counts[before["v"], before["w"]] -= 1
                if after is not None:
                    full = {**(before or {}), **after}
                    counts[full["v"], full["w"]] += 1
        return Counter({row: count for row, count in counts.items() if count})

    def expected_images(self) -> Counter[tuple[int, int]]:
        """The rows of the table without a key."""
        return Counter((row["v"], row["w"]) for row in self.contents[KEYLESS.name].values())

    def check(self) -> None:
        """Check that the records sent lead to the tables' content."""
        for kind in self.kinds:
            if kind.name in self.gone:
                continue
            expected = {key: row for key, row in self.contents[kind.name].items() if self.owned(kind, key)}
            if kind.key:
                assert self.replayed(kind) == expected, kind.name
            elif sql_filter(kind.table, self.shard) is not None:
                assert self.counted_images() == self.expected_images()
                if self.settings.most_images > 1:
                    assert Counter((row["v"], row["w"]) for row in self.replayed_images()) == self.expected_images()
