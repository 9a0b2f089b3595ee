"""Decides which range of a table is read next, and which chunk may be sent.

This is all the logic of snapshots, without input or output. Chunks of a table are sent in key order, tables in the request's
order, requests by priority; they may be read in any order.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Final

from connectors.mysql.config.filters import compile_patterns, matches_any
from connectors.mysql.model import Shard, TableName
from connectors.mysql.snapshot import state
from connectors.mysql.snapshot.model import SnapshotChunk
from connectors.mysql.snapshot.prepared import PreparedTransactions
from connectors.mysql.snapshot.reading.key_ranges import KeyRange, NumberDivider
from connectors.mysql.snapshot.state import MySqlShareNote, MySqlTableNote
from connectors.mysql.snapshot.watch import ChangeWatch
from connectors.mysql.snapshot.windows import ChangeWindow, Images
from connectors.mysql.snapshot.work import RequestTable, TableSnapshot, make_key_finder
from connectors.snapshot.board import TaskShare
from connectors.snapshot.planner import SnapshotJob, SnapshotPlanner
from connectors.snapshot.requests import PROGRESS
from connectors.snapshot.state import FINAL, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.api import Position
    from connectors.mysql.model import BinlogPosition
    from connectors.mysql.snapshot.model import Key, ReadRows, SnapshotSettings
    from connectors.mysql.snapshot.work import MySqlShare, SnapshotLayout, TableReadJob
    from connectors.snapshot.requests import SnapshotRequest

#: A chunk can't be made smaller.
_LEAST_ROWS: Final = 1
#: A chunk that took longer does not make the next ones wider.
_SLOW_S: Final = 2.0


class MySqlSnapshotPlanner(SnapshotPlanner[TableSnapshot, KeyRange, RequestTable]):
    """All snapshots of a task. Not thread-safe; nothing blocks.

    Args:
        settings: how tables are read.
        shard: what the task owns.
        partition: makes the source partition of the task's share of a request.
        saved: request id -> the offset saved last.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        settings: SnapshotSettings,
        shard: Shard,
        partition: Callable[[str], Position],
        saved: Mapping[str, Position],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(partition, clock, tables_ahead=settings.threads)
        self.settings = settings
        self.shard = shard
        self._saved = {name: offset[PROGRESS] for name, offset in saved.items() if PROGRESS in offset}
        #: Requests whose tables were given before they were read.
        self._preset: list[str] = []
        self._out: SnapshotChunk | None = None
        self._out_table: TableSnapshot | None = None
        #: What the stream tells goes here.
        self.watch = ChangeWatch()
        self.xa = PreparedTransactions()
        #: Chunks read again, and rows left out, by table since the last look.
        self.repeated: dict[TableName, int] = {}
        #: Of chunks that are kept, or being sent.
        self.held_bytes = 0
        self._held_chunks = 0
        self._reading = 0

    # Requests.

    def preset(self, request: str, tables: Sequence[RequestTable]) -> None:
        """The tables of a request that ``set_requests`` gets next: they need not be looked for."""
        self._saved[request] = pack(
            MySqlShareNote(
                state="running",
                resolved=True,
                started_ms=self.board.now_ms(),
                tables=[_make_note(table) for table in tables],
            )
        )
        self._preset.append(request)

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """The complete list."""
        super().set_requests(requests)
        for share in [self.board.shares[name] for name in self._preset if name in self.board.shares]:
            self.board.save(share)
            self._preset.remove(share.request.id)
        for share in self.board.order:
            if share.request.origin == "signal" and share.note.resolved and share.note.state not in FINAL:
                self._leave_out(share)

    def _leave_out(self, share: MySqlShare) -> None:
        """Close the tables that a signal has taken out of its request since they were found."""
        patterns = compile_patterns(share.request.tables)
        for table in [table for table in share.unfinished() if not matches_any(patterns, str(table.name))]:
            self.close_table(table, "vanished", "a stop-snapshot signal has taken the table out of the snapshot")

    def recall_share(self, request: SnapshotRequest) -> MySqlShare:
        """See ``SnapshotPlanner``."""
        packed = self._saved.get(request.id)
        share: MySqlShare = TaskShare(request, MySqlShareNote() if packed is None else state.unpack_note(packed))
        if share.note.resolved:
            # Whether a table has a key is looked up again, and so is what the task owns of it.
            self._set_tables(
                share,
                [
                    RequestTable(TableName(note.database, note.table), note.total, note.keyless)
                    for note in share.note.tables
                ],
            )
        return share

    def add_tables(self, share: MySqlShare, definitions: Sequence[RequestTable]) -> None:
        """See ``SnapshotPlanner``."""
        tables = list(definitions)
        if self.settings.order != "disabled":
            tables.sort(key=lambda table: table.rows or 0, reverse=self.settings.order == "descending")
        self._set_tables(share, tables)

    def _set_tables(self, share: MySqlShare, tables: Sequence[RequestTable]) -> None:
        notes = {(note.database, note.table): note for note in share.note.tables}
        share.tables = [
            TableSnapshot(share, table, notes.get((table.name.database, table.name.table)) or _make_note(table))
            for table in tables
        ]
        for table in share.tables:
            self.watch.withhold(table)
        share.note.tables = [table.note for table in share.tables]

    # Work for the readers.

    def split(self, table: TableSnapshot, *, first: bool) -> TableReadJob | None:
        """See ``SnapshotPlanner``."""
        if table.busy:
            return None
        if table.layout is None:
            table.busy = True
            return SnapshotJob(table.share, table, None, table.epoch)
        if table.layout.ranges and not first:
            return None  # one table at a time has more connections than its reader's
        for number, key_range in enumerate(table.key_ranges):
            # Without this one nothing can be sent at all: it is read whatever is held already.
            needed = first and number == 0
            if key_range.state == "waiting":
                if not needed and not self.room():
                    return None
                if (
                    key_range.divisible
                    and table.numbers is not None
                    and (self.settings.threads > 1 or self.shard.count > 1)
                ):
                    key_range, remainder = table.numbers.front(key_range)  # noqa: PLW2901
                    table.key_ranges[number : number + 1] = [key_range] if remainder is None else [key_range, remainder]
                key_range.state = "reading"
                self._reading += 1
                return SnapshotJob(table.share, table, key_range, table.epoch, key_range.token)
        return None

    def room(self) -> bool:
        """Whether another chunk may be read ahead."""
        max_chunks = max(self.settings.ahead_chunks, self.settings.threads + 2)
        return (
            self._held_chunks + self._reading < max_chunks
            and self.held_bytes + self._reading * self.settings.chunk_bytes < self.settings.ahead_bytes
        )

    def finished(self, job: TableReadJob) -> None:
        """Note that no reader works on the job any more, with or without a result. Call it for every job."""
        if job.part is not None:
            self._reading -= 1
        elif job.table is None:
            job.share.busy = False
        elif job.table.epoch == job.epoch:
            job.table.busy = False

    def is_next(self, job: TableReadJob) -> bool:
        """Whether nothing can be sent before what this job reads."""
        share = next((share for share in self.board.order if share.running), None)
        if share is not job.share:
            return False
        table = next(share.unfinished(), None)
        return table is job.table and table is not None and bool(table.key_ranges) and table.key_ranges[0] is job.part

    def stale(self, job: TableReadJob) -> bool:
        """See ``SnapshotPlanner``."""
        return super().stale(job) or (job.part is not None and job.part.token != job.token)

    def prepared(self, job: TableReadJob, layout: SnapshotLayout, *, owned: bool = True) -> None:
        """The table's structure and extent."""
        table = job.table
        assert table is not None  # noqa: S101 - a job of this kind has one
        if self.stale(job):
            return
        table.busy = False
        if not owned:
            self.close_table(table, "elsewhere", table.note.error)
            return
        settings, note = self.settings, table.note
        names = tuple(column.name for column in layout.columns)
        table.layout = layout
        table.row_bytes = table.row_bytes or float(layout.row_bytes)
        if note.columns != names or not names:
            # Another order, or none at all: from the beginning.
            note.columns, note.after, note.until, note.low = names, None, layout.high, layout.low
            note.rows = note.chunks = note.superseded = 0
        if not note.started_ms:
            note.started_ms = self.board.now_ms()
        note.stage = "running"
        note.error = ""
        if note.total is None or layout.total is not None:
            note.total = layout.total
        table.sent_ms = self.board.now_ms()
        table.keyless = note.keyless = not names
        if table.keyless:
            table.finder = None
            table.limit = settings.chunk_rows
            self.watch.withhold(table)
            table.key_ranges = [KeyRange(None, None, divisible=False)]
        else:
            self.watch.let_go(table)
            table.finder = make_key_finder(layout.decoder.key)
            table.limit = table.limit or settings.chunk_rows
            table.numbers = None
            if layout.columns[0].integer and note.low is not None and note.until is not None:
                # Blocks can be named only in an order that begins with the column that divides the table.
                shard = self.shard if layout.columns[0].name == layout.table.key[0] else Shard()
                table.numbers = NumberDivider(note.low, int(note.until[0]), note.total or 0, self.limit(table), shard)
            table.key_ranges = [KeyRange(note.after, note.until)]
            if note.until is None:
                # There was no row; a reading would find rows that came later, which the stream has.
                table.key_ranges[0].empty = True
                table.key_ranges[0].divisible = False

    def limit(self, table: TableSnapshot) -> int:
        """Rows to read at once."""
        settings = self.settings
        limit = min(table.limit or settings.chunk_rows, settings.chunk_rows)
        if table.row_bytes:
            limit = min(limit, int(settings.chunk_bytes / table.row_bytes))
        if settings.rows_per_s:
            limit = min(limit, settings.rows_per_s)
        return max(limit, _LEAST_ROWS)

    def open(self, job: TableReadJob, low: BinlogPosition) -> None:
        """The job's read view is about to be opened: from now on changes count. Again for another try."""
        table, key_range = job.table, job.part
        assert table is not None  # noqa: S101 - a job of this kind has one
        assert key_range is not None  # noqa: S101
        if self.stale(job) or table.layout is None:
            return
        if table.keyless:
            table.images = Images(table.layout.decoder.fields, self.settings.most_images)
            table.high = None
            table.missed = False
            self.watch.expect(table)
        key_range.window = ChangeWindow(low, table.layout.decoder.fields, self.settings.most_marks)
        self.watch.begin(table, key_range)

    def viewed(self, job: TableReadJob, high: BinlogPosition, *, past: bool) -> None:
        """The view of a table without a key is open, as of this position; ``past``: the stream has come to it or past it."""
        table = job.table
        if table is not None and not self.stale(job):
            table.high = high
            if past:
                self.pass_view(table)

    def divided(self, job: TableReadJob, bound: Key | None) -> None:
        """Note that the first chunk of the range ends at ``bound``; None: the whole range is less than a chunk."""
        table, key_range = job.table, job.part
        if table is None or key_range is None or self.stale(job):
            return
        key_range.divisible = False
        if bound is not None:
            remainder = KeyRange(bound, key_range.until)
            key_range.until = bound
            table.key_ranges.insert(table.key_ranges.index(key_range) + 1, remainder)

    def part(self, job: TableReadJob, result: ReadRows, high: BinlogPosition, *, last: bool) -> bool:
        """The next rows of a table without a key; False: no more are wanted."""
        table, key_range = job.table, job.part
        if table is None or key_range is None or self.stale(job) or table.layout is None or table.images is None:
            return False
        if last:
            range_read = key_range
        else:
            range_read = KeyRange(None, None, divisible=False)
            range_read.window = key_range.window
            table.key_ranges.insert(table.key_ranges.index(key_range), range_read)
        self._hold_chunk(range_read, self._make_chunk(table, range_read, result, high, table.images))
        return True

    def too_large(self, job: TableReadJob, row_bytes: float) -> None:
        """Rows are much larger than thought: read fewer at once."""
        table = job.table
        if table is not None:
            table.row_bytes = max(table.row_bytes * 2, row_bytes)
        self.failed(job)

    def read(
        self, job: TableReadJob, result: ReadRows, high: BinlogPosition, *, more: Key | None, elapsed_s: float = 0.0
    ) -> bool:
        """Accept the rows of a range, or of its part up to ``more``; False: they are not needed, or come too late."""
        table, key_range = job.table, job.part
        if table is None or key_range is None or self.stale(job) or table.layout is None or key_range.window is None:
            return False
        table.attempts = 0
        count = len(result.rows)
        if count:
            table.row_bytes = max(result.size / count, 0.7 * table.row_bytes)
        if key_range.window.overflown:
            table.limit = max(_LEAST_ROWS, self.limit(table) // 2)
            key_range.divisible = False
            self.watch.end(table, key_range)
            key_range.discard()
            self._count_repeat(table)
            return False
        if table.limit < self.settings.chunk_rows:
            table.limit = min(self.settings.chunk_rows, table.limit + table.limit // 4 + 1)
        if table.numbers is not None:
            table.numbers.limit = self.limit(table)
            table.numbers.learned(count, cut=more is not None, slow=elapsed_s > _SLOW_S)
        if more is not None:
            remainder = KeyRange(more, key_range.until, tuple(key_range.spans), divisible=key_range.divisible)
            key_range.until = more
            table.key_ranges.insert(table.key_ranges.index(key_range) + 1, remainder)
        chunk = self._make_chunk(table, key_range, result, high)
        key_range.window.arrived(chunk.keyed or {})
        chunk.read = count
        self._hold_chunk(key_range, chunk)
        return True

    def _make_chunk(
        self,
        table: TableSnapshot,
        key_range: KeyRange,
        result: ReadRows,
        high: BinlogPosition,
        images: Images | None = None,
    ) -> SnapshotChunk:
        assert table.layout is not None  # noqa: S101 - looked at by the callers
        assert key_range.window is not None  # noqa: S101
        chunk = SnapshotChunk(
            request=table.share.request,
            table=table.layout.table,
            result=result,
            low=key_range.window.low,
            high=high,
            read_ms=self.board.now_ms(),
            images=images,
        )
        chunk.key_range = key_range
        return chunk

    def _hold_chunk(self, key_range: KeyRange, chunk: SnapshotChunk) -> None:
        key_range.chunk = chunk
        key_range.state = "held"
        self.held_bytes += chunk.bytes
        self._held_chunks += 1

    def failed(self, job: TableReadJob) -> None:
        """Note that the job got no answer and must be repeated; a job that has one stays as it is."""
        table, key_range = job.table, job.part
        if table is not None and key_range is not None and key_range.state == "reading" and not self.stale(job):
            if table.keyless:
                self.reset(table)
            else:
                self.watch.end(table, key_range)
                key_range.discard()

    # Chunks for the task.

    def advance(self, reached: Callable[[BinlogPosition], bool]) -> None:
        """The stream has finished a transaction."""
        for table in self.watch.find_reached(reached):
            self.pass_view(table)

    def pass_view(self, table: TableSnapshot) -> None:
        """The stream has come to the view of a table without a key: changes may be sent."""
        if self.xa.any:
            self.reset(table)  # the view lacks rows that the stream has passed
        else:
            self.watch.let_go(table)

    def ready(self, reached: Callable[[BinlogPosition], bool]) -> SnapshotChunk | None:
        """The next chunk that may be sent."""
        if self._out is not None:
            return None
        self.advance(reached)
        for share in self.board.order:
            if not share.running:
                continue
            table = next(share.unfinished(), None)
            if table is None or not table.key_ranges:
                continue
            key_range = table.key_ranges[0]
            chunk = key_range.chunk
            if key_range.state != "held" or chunk is None or not reached(chunk.high):
                continue
            del table.key_ranges[0]
            self._held_chunks -= 1
            chunk.first_of_table = not table.note.chunks
            chunk.first_of_request = chunk.first_of_table and not any(note.chunks for note in share.note.tables)
            chunk.last_of_table = not table.key_ranges
            chunk.last_of_request = chunk.last_of_table and len(list(islice(share.unfinished(), 2))) == 1
            self._out, self._out_table = chunk, table
            return chunk
        return None

    def done(self, chunk: SnapshotChunk) -> list[tuple[Position, Position]]:
        """The chunk was sent; what to save."""
        table = self._out_table
        if chunk is not self._out or table is None:
            raise ValueError("only the chunk that ready() gave last can be done")
        self._out = self._out_table = None
        self.held_bytes -= chunk.bytes
        share, key_range = table.share, chunk.key_range
        if isinstance(key_range, KeyRange):
            note = table.note
            self.watch.end(table, key_range)
            note.rows += chunk.read
            note.superseded += max(0, chunk.read - chunk.taken_rows)
            note.chunks += 1
            if not table.keyless:
                note.after = key_range.until
            self._update_pace(table, chunk)
            if chunk.last_of_table:
                note.total, note.percent = note.rows, 100.0
                self.close_table(table, "done", note.error)
        if share.request.id not in self.board.shares:
            return []
        self.board.saved(share.request.id)
        return [self.make_offset(share)]

    def _update_pace(self, table: TableSnapshot, chunk: SnapshotChunk) -> None:
        note, now = table.note, self.board.now_ms()
        if table.sent_ms and now > table.sent_ms:
            rate = chunk.read / (now - table.sent_ms) * 1000
            table.rate = rate if not table.rate else table.rate + 0.2 * (rate - table.rate)
        table.sent_ms = now
        share = 0.0
        if note.total:
            share = note.rows / note.total
        if table.numbers is not None and note.after is not None:
            # Places tell more than estimates of rows, unless rows are unevenly spread: the mean of both.
            span = max(1, table.numbers.high - table.numbers.low + 1)
            share = (min(share, 1.0) + (int(note.after[0]) - table.numbers.low + 1) / span) / 2
        note.percent = min(99.9, max(note.percent, 100 * share))

    @property
    def sending(self) -> TableSnapshot | None:
        """The table of the chunk that is out."""
        return self._out_table

    def altered(self, name: TableName | None) -> None:
        """Read the table's unsent chunks again, with its present structure."""
        for share in self.board.order:
            for table in share.tables:
                if table.open and name in {None, table.name}:
                    self.reset(table)

    def database_altered(self, database: str) -> None:
        """As ``altered``, for all tables of a database; its name may be in any case."""
        for share in self.board.order:
            for table in share.tables:
                if table.open and table.name.database.lower() == database.lower():
                    self.reset(table)

    # Bookkeeping.

    def _count_repeat(self, table: TableSnapshot) -> None:
        self.repeated[table.name] = self.repeated.get(table.name, 0) + 1

    def reset(self, table: TableSnapshot, *, over: bool = False) -> None:
        """See ``SnapshotPlanner``."""
        for key_range in table.key_ranges:
            if key_range.chunk is not None:
                self.held_bytes -= key_range.chunk.bytes
                self._held_chunks -= 1
            if key_range.state != "waiting":
                self._count_repeat(table)
        self.watch.end(table)
        if self._out_table is table and self._out is not None and self._out.key_range is not None:
            # Half sent: the rest must not be, and all of it is read again.
            self._out.key_range = None
            self._out.drop()
            self._count_repeat(table)
        table.key_ranges = []
        table.layout = None
        table.images = None  # half a million rows may be remembered
        table.epoch += 1
        table.busy = False
        table.high = None
        if table.keyless:
            self.watch.withhold(table)
        if over:
            self.watch.let_go(table)


def _make_note(table: RequestTable) -> MySqlTableNote:
    return MySqlTableNote(
        database=table.name.database,
        table=table.name.table,
        total=table.rows,
        keyless=table.keyless,
        stage="waiting" if table.owned else "elsewhere",
    )
