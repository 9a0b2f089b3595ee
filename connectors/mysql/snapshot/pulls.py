"""Decides which range of a table is read next, and which chunk may be sent.

This is all the logic of snapshots, without input or output. Chunks of a table are sent in key order, tables in the request's
order, requests by priority; they may be read in any order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Literal

from connectors.mysql.model import Shard, TableName
from connectors.mysql.snapshot import state
from connectors.mysql.snapshot.model import SnapshotChunk
from connectors.mysql.snapshot.reading.stretches import KeyRange, NumberDivider
from connectors.mysql.snapshot.state import MySqlTableNote, PullNote
from connectors.mysql.snapshot.watch import ChangeWatch
from connectors.mysql.snapshot.windows import ChangeWindow, Images
from connectors.mysql.snapshot.work import RequestTable, TableReadJob, TableSnapshot, make_key_finder
from connectors.snapshot.board import SnapshotBoard, TaskShare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.errors import Skippable
    from connectors.mysql.model import BinlogPosition
    from connectors.mysql.snapshot.model import Key, Row, SnapshotSettings
    from connectors.mysql.snapshot.work import Pull, SnapshotLayout
    from connectors.snapshot.requests import SnapshotRequest

#: A chunk can't be made smaller.
_LEAST_ROWS: Final = 1
#: A chunk that took longer does not make the next ones wider.
_SLOW_S: Final = 2.0


class SnapshotPlanner:
    """All snapshots of a task. Not thread-safe; nothing blocks.

    Args:
        saved: request id -> text of the state saved last.
        clock: seconds since 1970.
    """

    def __init__(
        self, settings: SnapshotSettings, shard: Shard, saved: Mapping[str, str], clock: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.shard = shard
        self._saved = dict(saved)
        self._board = SnapshotBoard(self._recall_request, self._stop_share, clock)
        #: Requests whose tables were given before they were read.
        self._preset: list[str] = []
        self._out: SnapshotChunk | None = None
        self._out_table: TableSnapshot | None = None
        #: What the stream tells goes here.
        self.watch = ChangeWatch()
        #: Chunks read again, and rows left out, by table since the last look.
        self.repeated: dict[TableName, int] = {}
        #: Of chunks that are kept, or being sent.
        self.held_bytes = 0
        self._held = 0
        self._reading = 0

    # Requests.

    def preset(self, request: str, tables: Sequence[RequestTable]) -> None:
        """The tables of a request that ``set_requests`` gets next: they need not be looked for."""
        notes = [
            MySqlTableNote(
                database=table.name.database,
                table=table.name.table,
                keyless=table.keyless,
                stage="waiting" if table.owned else "elsewhere",
            )
            for table in tables
        ]
        self._saved[request] = state.pack_note(
            PullNote(state="running", resolved=True, started_ms=self._now_ms(), tables=notes)
        )
        self._preset.append(request)

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """The complete list."""
        self._board.set_requests(requests)
        for share in [self._board.shares[name] for name in self._preset if name in self._board.shares]:
            self._board.save(share)
            self._preset.remove(share.request.id)

    def _recall_request(self, request: SnapshotRequest) -> Pull:
        packed = self._saved.get(request.id)
        note = PullNote() if packed is None else state.unpack_note(packed)
        pull: Pull = TaskShare(request, note)
        if note.resolved:
            # Whether a table has a key is looked up again, and so is what the task owns of it.
            self._set_tables(
                pull,
                [
                    RequestTable(TableName(table_note.database, table_note.table), table_note.total, table_note.keyless)
                    for table_note in note.tables
                ],
            )
        return pull

    def _set_tables(self, pull: Pull, tables: Sequence[RequestTable]) -> None:
        notes_by_name = {(table.database, table.table): table for table in pull.note.tables}
        pull.tables = []
        for request_table in tables:
            note = notes_by_name.get((request_table.name.database, request_table.name.table))
            if note is None:
                note = MySqlTableNote(
                    database=request_table.name.database,
                    table=request_table.name.table,
                    total=request_table.rows,
                    keyless=request_table.keyless,
                    stage="waiting" if request_table.owned else "elsewhere",
                )
            table = TableSnapshot(pull, request_table, note)
            pull.tables.append(table)
            self.watch.withhold(table)
        pull.note.tables = [table.note for table in pull.tables]

    def _stop_share(self, share: Pull, *, dropped: bool) -> None:
        for table in share.tables:
            self._reset_table(table)
            if dropped:
                self.watch.let_go(table)

    # Work for the readers.

    def next_job(self, *, resolving: bool = False) -> TableReadJob | None:
        """Return the next query for the server (``resolving``: only for a request's tables); None: nothing for now."""
        first = True
        for pull in self._board.order:
            if pull.claim():
                return TableReadJob("resolve", pull)
            if not pull.running or not pull.note.resolved or resolving:
                continue
            ahead = self.settings.threads
            for table in pull.unfinished():
                job = self._job_of(pull, table, first=first)
                if job is not None:
                    return job
                first = False
                ahead -= 1
                if not ahead:
                    break
        return None

    def _job_of(self, pull: Pull, table: TableSnapshot, *, first: bool) -> TableReadJob | None:
        if table.busy:
            return None
        if table.layout is None:
            table.busy = True
            return TableReadJob("prepare", pull, table, None, table.epoch)
        if table.layout.ranges and not first:
            return None  # one table at a time has more connections than its reader's
        for number, stretch in enumerate(table.stretches):
            # Without this one nothing can be sent at all: it is read whatever is held already.
            needed = first and number == 0
            if stretch.state == "waiting":
                if not needed and not self.room():
                    return None
                if (
                    stretch.divisible
                    and table.numbers is not None
                    and (self.settings.threads > 1 or self.shard.count > 1)
                ):
                    stretch, remainder = table.numbers.front(stretch)  # noqa: PLW2901
                    table.stretches[number : number + 1] = [stretch] if remainder is None else [stretch, remainder]
                stretch.state = "reading"
                self._reading += 1
                return TableReadJob("read", pull, table, stretch, table.epoch, stretch.token)
        return None

    def room(self) -> bool:
        """Whether another chunk may be read ahead."""
        max_chunks = max(self.settings.ahead_chunks, self.settings.threads + 2)
        return (
            self._held + self._reading < max_chunks
            and self.held_bytes + self._reading * self.settings.chunk_bytes < self.settings.ahead_bytes
        )

    def finished(self, job: TableReadJob) -> None:
        """Note that no reader works on the job any more, with or without a result. Call it for every job."""
        if job.kind == "read":
            self._reading -= 1
        elif job.table is None:
            job.pull.busy = False
        elif job.table.epoch == job.epoch:
            job.table.busy = False

    def is_next(self, job: TableReadJob) -> bool:
        """Whether nothing can be sent before what this job reads."""
        pull = next((pull for pull in self._board.order if pull.running), None)
        if pull is not job.pull:
            return False
        table = next(pull.unfinished(), None)
        return table is job.table and table is not None and bool(table.stretches) and table.stretches[0] is job.stretch

    def stale(self, job: TableReadJob) -> bool:
        """Whether the job's answer is no longer wanted."""
        if not self._board.wants(job.pull):
            return True
        if job.table is not None and (job.table.epoch != job.epoch or not job.table.open):
            return True
        return job.stretch is not None and job.stretch.token != job.token

    def resolved(self, job: TableReadJob, tables: Sequence[RequestTable]) -> None:
        """The request's tables."""
        pull = job.pull
        if not self._board.resolve(pull):
            return
        pull.note.started_ms = pull.note.started_ms or self._now_ms()
        tables = list(tables)
        if self.settings.order != "disabled":
            tables.sort(key=lambda one: one.rows or 0, reverse=self.settings.order == "descending")
        self._set_tables(pull, tables)
        self._board.finish(pull)

    def prepared(self, job: TableReadJob, layout: SnapshotLayout, *, owned: bool = True) -> None:
        """The table's structure and extent."""
        table = job.table
        assert table is not None  # noqa: S101 - a job of this kind has one
        if self.stale(job):
            return
        table.busy = False
        if not owned:
            self._close_table(table, "elsewhere")
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
            note.started_ms = self._now_ms()
        note.stage = "running"
        note.error = ""
        if note.total is None or layout.total is not None:
            note.total = layout.total
        table.sent_ms = self._now_ms()
        table.keyless = note.keyless = not names
        if table.keyless:
            table.finder = None
            table.limit = settings.chunk_rows
            self.watch.withhold(table)
            table.stretches = [KeyRange(None, None, divisible=False)]
        else:
            self.watch.let_go(table)
            table.finder = make_key_finder(layout.decoder.key)
            table.limit = table.limit or settings.chunk_rows
            table.numbers = None
            if layout.columns[0].integer and note.low is not None and note.until is not None:
                # Blocks can be named only in an order that begins with the column that divides the table.
                shard = self.shard if layout.columns[0].name == layout.table.key[0] else Shard()
                table.numbers = NumberDivider(note.low, int(note.until[0]), note.total or 0, self.limit(table), shard)
            table.stretches = [KeyRange(note.after, note.until)]
            if note.until is None:
                # There was no row; a reading would find rows that came later, which the stream has.
                table.stretches[0].empty = True
                table.stretches[0].divisible = False

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
        table, stretch = job.table, job.stretch
        assert table is not None  # noqa: S101 - a job of this kind has one
        assert stretch is not None  # noqa: S101
        if self.stale(job) or table.layout is None:
            return
        if table.keyless:
            table.images = Images(table.layout.decoder.fields, self.settings.most_images)
            table.high = None
            table.missed = False
            self.watch.expect(table)
        stretch.window = ChangeWindow(low, table.layout.decoder.fields, self.settings.most_marks)
        self.watch.begin(table, stretch)

    def viewed(self, job: TableReadJob, high: BinlogPosition, *, past: bool) -> None:
        """The view of a table without a key is open, as of this place; ``past``: the stream has come to it or past it."""
        table = job.table
        if table is not None and not self.stale(job):
            table.high = high
            if past:
                self.watch.let_go(table)

    def divided(self, job: TableReadJob, bound: Key | None) -> None:
        """Note that the first chunk of the range ends at ``bound``; None: the whole range is less than a chunk."""
        table, stretch = job.table, job.stretch
        if table is None or stretch is None or self.stale(job):
            return
        stretch.divisible = False
        if bound is not None:
            remainder = KeyRange(bound, stretch.until)
            stretch.until = bound
            table.stretches.insert(table.stretches.index(stretch) + 1, remainder)

    def part(
        self,
        job: TableReadJob,
        rows: list[Row],
        high: BinlogPosition,
        *,
        size: int,
        last: bool,
        bad: Sequence[tuple[Skippable, bytes]] = (),
    ) -> bool:
        """The next rows of a table without a key; False: no more are wanted."""
        table, stretch = job.table, job.stretch
        if table is None or stretch is None or self.stale(job) or table.layout is None or table.images is None:
            return False
        if last:
            range_read = stretch
        else:
            range_read = KeyRange(None, None, divisible=False)
            range_read.window = stretch.window
            table.stretches.insert(table.stretches.index(stretch), range_read)
        self._hold_chunk(range_read, self._make_chunk(table, range_read, rows, high, size, bad, images=table.images))
        return True

    def too_large(self, job: TableReadJob, row_bytes: float) -> None:
        """Rows are much larger than thought: read fewer at once."""
        table = job.table
        if table is not None:
            table.row_bytes = max(table.row_bytes * 2, row_bytes)
        self.failed(job)

    def read(
        self,
        job: TableReadJob,
        rows: dict[tuple[Any, ...], Row],
        high: BinlogPosition,
        *,
        size: int,
        more: Key | None,
        elapsed_s: float = 0.0,
        bad: Sequence[tuple[Skippable, bytes]] = (),
    ) -> bool:
        """Accept the rows of a range, or of its part up to ``more``; False: they are not needed, or come too late."""
        table, stretch = job.table, job.stretch
        if table is None or stretch is None or self.stale(job) or table.layout is None or stretch.window is None:
            return False
        table.attempts = 0
        count = len(rows)
        if count:
            table.row_bytes = max(size / count, 0.7 * table.row_bytes)
        if stretch.window.overflown:
            table.limit = max(_LEAST_ROWS, self.limit(table) // 2)
            stretch.divisible = False
            self.watch.end(table, stretch)
            stretch.discard()
            self._count_repeat(table)
            return False
        if table.limit < self.settings.chunk_rows:
            table.limit = min(self.settings.chunk_rows, table.limit + table.limit // 4 + 1)
        if table.numbers is not None:
            table.numbers.limit = self.limit(table)
            table.numbers.learned(count, cut=more is not None, slow=elapsed_s > _SLOW_S)
        if more is not None:
            remainder = KeyRange(more, stretch.until, tuple(stretch.spans), divisible=stretch.divisible)
            stretch.until = more
            table.stretches.insert(table.stretches.index(stretch) + 1, remainder)
        chunk = self._make_chunk(table, stretch, rows, high, size, bad)
        stretch.window.arrived(rows)
        chunk.read = count
        self._hold_chunk(stretch, chunk)
        return True

    def _make_chunk(
        self,
        table: TableSnapshot,
        stretch: KeyRange,
        rows: Any,
        high: BinlogPosition,
        size: int,
        bad: Sequence[tuple[Skippable, bytes]],
        images: Images | None = None,
    ) -> SnapshotChunk:
        assert table.layout is not None  # noqa: S101 - looked at by the callers
        assert stretch.window is not None  # noqa: S101
        request = table.pull.request
        chunk = SnapshotChunk(
            request=request.id,
            origin=request.origin,
            table=table.layout.table,
            rows=rows,
            low=stretch.window.low,
            high=high,
            read_ms=self._now_ms(),
            size=size,
            bad=bad,
            images=images,
        )
        chunk.stretch = stretch
        return chunk

    def _hold_chunk(self, stretch: KeyRange, chunk: SnapshotChunk) -> None:
        stretch.chunk = chunk
        stretch.state = "held"
        self.held_bytes += chunk.bytes
        self._held += 1

    def failed(self, job: TableReadJob) -> None:
        """Note that the job got no answer and must be repeated."""
        table, stretch = job.table, job.stretch
        if table is not None and stretch is not None and stretch.state == "reading" and not self.stale(job):
            if table.keyless:
                self._reset_table(table)
            else:
                self.watch.end(table, stretch)
                stretch.discard()

    def again(self, table: TableSnapshot) -> None:
        """The table's structure has to be looked up again, and what was read with the old one read again."""
        self._reset_table(table)

    def give_up(self, job: TableReadJob, error: str, stage: Literal["vanished", "failed"] = "failed") -> None:
        """Give up a table that can't be read: the request continues without it."""
        table = job.table
        assert table is not None  # noqa: S101 - a job of this kind has one
        if not self.stale(job):
            table.note.error = error
            self._close_table(table, stage)

    def refused(self, job: TableReadJob, error: str) -> None:
        """The request can't be followed at all."""
        self._board.refuse(job.pull, error)

    def _close_table(self, table: TableSnapshot, stage: Literal["vanished", "failed", "elsewhere", "done"]) -> None:
        self._reset_table(table)
        self.watch.let_go(table)
        self._board.close(table.pull, table.note, stage, table.note.error)

    # Chunks for the task.

    def ready(self, reached: Callable[[BinlogPosition], bool]) -> SnapshotChunk | None:
        """The next chunk that may be sent."""
        if self._out is not None:
            return None
        for pull in self._board.order:
            if not pull.running:
                continue
            table = next(pull.unfinished(), None)
            if table is None or not table.stretches:
                continue
            stretch = table.stretches[0]
            chunk = stretch.chunk
            if stretch.state != "held" or chunk is None or not reached(chunk.high):
                continue
            self.watch.advance(reached)
            del table.stretches[0]
            self._held -= 1
            chunk.first_of_table = not table.note.chunks
            chunk.first_of_request = chunk.first_of_table and not any(note.chunks for note in pull.note.tables)
            chunk.last_of_table = not table.stretches
            chunk.last_of_request = chunk.last_of_table and sum(1 for _ in pull.unfinished()) == 1
            self._out, self._out_table = chunk, table
            return chunk
        return None

    def done(self, chunk: SnapshotChunk) -> dict[str, str]:
        """The chunk was sent; what to save."""
        table = self._out_table
        if chunk is not self._out or table is None:
            raise ValueError("only the chunk that ready() gave last can be done")
        self._out = self._out_table = None
        self.held_bytes -= chunk.bytes
        pull, stretch = table.pull, chunk.stretch
        if isinstance(stretch, KeyRange):
            note = table.note
            self.watch.end(table, stretch)
            note.rows += chunk.read
            note.superseded += max(0, chunk.read - chunk.taken)
            note.chunks += 1
            if not table.keyless:
                note.after = stretch.until
            self._update_pace(table, chunk)
            if chunk.last_of_table:
                note.total, note.percent = note.rows, 100.0
                self._close_table(table, "done")
        if pull.request.id not in self._board.shares:
            return {}
        self._board.saved(pull.request.id)
        return {pull.request.id: state.pack_note(pull.note)}

    def _update_pace(self, table: TableSnapshot, chunk: SnapshotChunk) -> None:
        note, now = table.note, self._now_ms()
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

    def changes(self) -> dict[str, str]:
        """States to be saved that no chunk carries."""
        return {share.request.id: state.pack_note(share.note) for share in self._board.take_unsaved()}

    @property
    def dirty(self) -> bool:
        """Whether ``changes`` has something."""
        return self._board.unsaved

    def all(self) -> Sequence[Pull]:
        """All requests in the order of reading."""
        return self._board.order

    @property
    def sending(self) -> TableSnapshot | None:
        """The table of the chunk that is out."""
        return self._out_table

    def altered(self, name: TableName | None) -> None:
        """Read the table's unsent chunks again, with its present structure."""
        for pull in self._board.order:
            for table in pull.tables:
                if table.open and name in {None, table.name}:
                    self._reset_table(table)

    # Bookkeeping.

    def _count_repeat(self, table: TableSnapshot) -> None:
        self.repeated[table.name] = self.repeated.get(table.name, 0) + 1

    def _reset_table(self, table: TableSnapshot) -> None:
        for stretch in table.stretches:
            if stretch.chunk is not None:
                self.held_bytes -= stretch.chunk.bytes
                self._held -= 1
            if stretch.state != "waiting":
                self._count_repeat(table)
        self.watch.end(table)
        if self._out_table is table and self._out is not None and self._out.stretch is not None:
            # Half sent: the rest must not be, and all of it is read again.
            self._out.stretch = None
            self._out.drop()
            self._count_repeat(table)
        table.stretches = []
        table.layout = None
        table.epoch += 1
        table.busy = False
        table.high = None
        if table.keyless:
            self.watch.withhold(table)

    def _now_ms(self) -> int:
        return self._board.now_ms()
