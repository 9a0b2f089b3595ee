"""The logic of snapshots: chooses the table and token range to read next, and what to save of it. No input or output.

Requests are read by priority, and the tables of a request in its order. The token ranges of a table are read in any order, the
pages of a token range one after the other.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.api import SNAPSHOT_ENDED
from connectors.cassandra.model import CLUSTER, SHARD, SNAPSHOT
from connectors.cassandra.snapshot import state, views
from connectors.cassandra.snapshot.model import NEW, CassandraChunk, ChunkEnd, new_request, new_table_id, reads_again
from connectors.cassandra.snapshot.ranges import cut_chunk, merge_spans, task_range, width_after
from connectors.cassandra.snapshot.state import CassandraTableNote, PullNote
from connectors.cql.token_ranges import TokenRange
from connectors.snapshot.board import SnapshotBoard, TaskShare
from connectors.snapshot.requests import INITIAL
from connectors.snapshot.state import FINAL, shown_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connectors.api import Position
    from connectors.cassandra.snapshot.model import BackfillSettings
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.formats.partition_update import PartitionUpdate
    from connectors.snapshot.requests import SnapshotRequest
    from connectors.snapshot.state import Stage

#: Number of pages of rows that a token range should have: each range costs a query that may find no rows.
_PAGES: Final = 4
#: Number of token ranges that a share is cut into, per query in flight, while the table's size is not known.
_FIRST_PIECES: Final = 16
#: Milliseconds between saves of the progress of token ranges without rows.
_SAVE_MS: Final = 1_000


class RingChunk:
    """A part of the ring that is being read; ``span`` is what is not done of it, ``read`` how far it was read."""

    __slots__ = ("number", "outstanding", "read", "rows", "span", "width")

    def __init__(self, number: int, span: TokenRange) -> None:
        self.number = number
        self.span = span
        self.width = span.upto - span.after
        self.rows = 0
        #: Chunks that were read and are not done.
        self.outstanding = 0
        #: None: read to its end.
        self.read: TokenRange | None = span


class CassandraTableSnapshot:
    """One table of a request."""

    def __init__(self, pull: Pull, note: CassandraTableNote, whole: TokenRange) -> None:
        self.pull = pull
        self.note = note
        self.whole = whole
        #: Chunks and jobs of an older one are no longer wanted.
        self.epoch = 0
        self.pieces: dict[int, RingChunk] = {}
        self.left: list[TokenRange] = []
        self.width = 0
        self.reset()

    @property
    def open(self) -> bool:
        """Whether it is not at its end."""
        return self.note.open

    def reset(self) -> None:
        """Forget what is under way: it is read again."""
        self.epoch += 1
        self.left = (
            merge_spans([*self.left, *(chunk.span for chunk in self.pieces.values())]) if self.pieces else self.left
        )
        self.pieces = {}
        if not self.left and self.open:
            self.left = state.left_of(self.note, self.whole)

    def save(self, now_ms: int) -> None:
        """Bring the note up to date."""
        left = merge_spans([*self.left, *(chunk.span for chunk in self.pieces.values())])
        self.note.left = None if left == [self.whole] else [(chunk.after, chunk.upto, chunk.resume) for chunk in left]
        self.note.percent = state.done_percent(left, self.whole)
        self.note.saved_ms = now_ms


Pull = TaskShare[CassandraTableSnapshot]


class SnapshotJob(NamedTuple):
    """A query for the cluster: for the tables of a request, or for the rows of a token range."""

    pull: Pull
    table: CassandraTableSnapshot | None = None
    piece: RingChunk | None = None
    epoch: int = 0


class CassandraSnapshots:
    """All snapshots of a task. Not thread-safe; nothing blocks.

    Args:
        settings: how tables are read.
        shard: index and number of the task among those that share the work.
        saved: all saved offsets of the connector.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        settings: BackfillSettings,
        shard: tuple[int, int],
        saved: Iterable[tuple[Position, Position]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._shard = shard
        self._whole = task_range(*shard)
        self._saved: dict[str, dict[str, Position]] = {}
        for partition, offset in saved:
            request, part = partition.get(SNAPSHOT), partition.get(SHARD)
            if partition.get(CLUSTER) != settings.prefix or not isinstance(request, str) or not isinstance(part, str):
                continue
            if settings.mode != "always" or (request != INITIAL and not new_table_id(request)):
                self._saved.setdefault(request, {})[part] = offset
        self._board = SnapshotBoard(self._restore_share, self._stop_share, clock, fails=True)
        #: By request: since when only the progress of token ranges without rows is unsaved (ms since 1970).
        self._stale_since: dict[str, int] = {}
        self._number = 0
        #: Tokens of the ring in order.
        self.bounds: Sequence[int] = ()

    # Requests.

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """The complete list."""
        self._board.set_requests(requests)
        self._stale_since = {name: since for name, since in self._stale_since.items() if name in self._board.shares}

    def _restore_share(self, request: SnapshotRequest) -> Pull:
        parts = self._saved.get(request.id, {})
        saved_offset = parts.get(f"{self._shard[0]}/{self._shard[1]}")
        note = state.note_of(saved_offset) if saved_offset is not None else None
        if saved_offset is not None and note is None and saved_offset.get("state") in SNAPSHOT_ENDED:
            note = PullNote(state="done" if saved_offset["state"] == "completed" else saved_offset["state"])
        if (note is None or note.state not in FINAL) and state.is_over(parts):
            # Done by another number of tasks.
            note = state.ended_note(parts, self._shard)
        pull: Pull = TaskShare(request, note or PullNote())
        if pull.note.resolved:
            if pull.note.state not in FINAL:
                self._subtract_others(request, pull.note)
            pull.tables = [CassandraTableSnapshot(pull, table_note, self._whole) for table_note in pull.note.tables]
        return pull

    # Tables that come later.

    def uncovered(self, tables: Iterable[CqlTableDefinition]) -> list[CqlTableDefinition]:
        """The tables whose share for this task is in no snapshot that the connector has started without a request.

        There are none until the first snapshot knows its tables: it reads all of them.
        """
        initial = self._board.shares.get(INITIAL)
        if initial is None or not (initial.note.resolved or initial.note.state in FINAL):
            return []
        tables = list(tables)
        if not initial.note.resolved and not any(
            note.resolved for _, note in _saved_shares(self._saved.get(INITIAL, {}))
        ):
            # It was saved that the snapshot is over, but not which tables it had: take the tables that exist now.
            initial.note.tables = [
                CassandraTableNote(keyspace=table.keyspace, table=table.table, table_id=table.table_id, stage="done")
                for table in tables
            ]
            initial.note.resolved = True
            self._board.save(initial)
        known_ids = {table.table_id for table in initial.note.tables} if initial.note.resolved else set()
        return [
            table
            for table in tables
            if table.table_id not in known_ids and self._is_open(new_request(table.table_id, str(table)))
        ]

    def reopened(self, tables: Iterable[tuple[CqlTableDefinition, int]]) -> list[SnapshotRequest]:
        """The snapshots of tables whose cdc was off for a while: what was written meanwhile is not in the log.

        A table that was not read before, or only since then, needs none.

        Args:
            tables: with the time at which cdc was on again, µs since 1970.
        """
        requests = []
        for table, again_us in tables:
            request = new_request(table.table_id, str(table), again_us)
            live = [
                pull.note
                for name in (INITIAL, f"{NEW}{table.table_id}")
                if (pull := self._board.shares.get(name)) is not None
            ]
            saved = [
                note
                for name in (INITIAL, f"{NEW}{table.table_id}")
                for _, note in _saved_shares(self._saved.get(name, {}))
            ]
            start_times = [
                table_note.started_ms
                for note in (*live, *saved)
                for table_note in note.tables
                if table_note.table_id == table.table_id and table_note.stage != "waiting"
            ]
            if start_times and min(start_times) < again_us // 1000 and self._is_open(request):
                requests.append(request)
        return requests

    def _is_open(self, snapshot: SnapshotRequest) -> bool:
        request = snapshot.id
        parts = self._saved.get(request, {})
        saved_offset = parts.get(f"{self._shard[0]}/{self._shard[1]}")
        if request in self._board.shares:
            return False
        if saved_offset is not None:
            return saved_offset.get("state") not in SNAPSHOT_ENDED
        if parts and not state.is_over(parts):
            return True  # maybe nothing is left of it: then that is saved
        return bool(state.inherited_ranges(self._whole, self._read_before(snapshot, snapshot.table_id)))

    def _read_before(self, request: SnapshotRequest, table_id: str) -> list[tuple[TokenRange, CassandraTableNote]]:
        """Return what was saved of a table, for all numbers of tasks: the tokens of each share, and its note.

        A table that was added later for one number of tasks may have been in the first snapshot of another: both count for
        both. Tables of a first snapshot that was cancelled or has failed are not read by a snapshot of tables added later.
        """
        ids = [request.id]
        if request.id == INITIAL or (request.table_id and not reads_again(request.id)):
            ids = [INITIAL, f"{NEW}{table_id}"]
        shares = []
        for name in ids:
            for whole, note in _saved_shares(self._saved.get(name, {})):
                over = name == INITIAL and bool(request.table_id) and note.state in FINAL
                shares += [
                    (
                        whole,
                        CassandraTableNote(
                            keyspace=table_note.keyspace, table=table_note.table, table_id=table_id, stage="done"
                        )
                        if over
                        else table_note,
                    )
                    for table_note in note.tables
                    if table_note.table_id == table_id
                ]
        return shares

    def _subtract_others(self, request: SnapshotRequest, note: PullNote) -> None:
        """Leave out what other divisions among tasks have read: the number of tasks changed and came back."""
        for table in note.tables:
            left = state.subtract_read(
                state.left_of(table, self._whole),
                [
                    saved_share
                    for saved_share in self._read_before(request, table.table_id)
                    if saved_share[0] != self._whole
                ],
            )
            if table.open:
                table.left = [(token_range.after, token_range.upto, token_range.resume) for token_range in left]
                table.stage = table.stage if left else "done"

    def suspend(self) -> None:
        """Reading has stopped: everything that is under way has to be read again."""
        for pull in self._board.shares.values():
            pull.busy = False
            self._stop_share(pull, dropped=False)

    def _stop_share(self, share: Pull, *, dropped: bool) -> None:
        del dropped
        for table in share.tables:
            table.reset()

    # Work for the readers.

    def next_job(self) -> SnapshotJob | None:
        """Return the next query for the cluster; None: nothing for now."""
        for pull in self._board.order:
            if pull.claim():
                return SnapshotJob(pull)
            if not pull.running or not pull.note.resolved:
                continue
            for table in pull.unfinished():
                if table.left:
                    return self._piece_of(pull, table)
        return None

    def _piece_of(self, pull: Pull, table: CassandraTableSnapshot) -> SnapshotJob:
        if not table.note.started_ms:
            table.note.started_ms = self._now_ms()
        table.note.stage = "running"
        whole = self._whole.upto - self._whole.after
        table.width = table.width or whole // (_FIRST_PIECES * self._settings.threads)
        span, remainder = cut_chunk(table.left[0], table.width, self.bounds)
        table.left[:1] = [] if remainder is None else [remainder]
        self._number += 1
        piece = table.pieces[self._number] = RingChunk(self._number, span)
        return SnapshotJob(pull, table, piece, table.epoch)

    def stale(self, job: SnapshotJob) -> bool:
        """Whether the job's answer is no longer wanted."""
        if not self._board.wants(job.pull):
            return True
        return job.table is not None and (job.table.epoch != job.epoch or not job.table.open)

    def wanted(self, end: ChunkEnd) -> bool:
        """Whether a chunk that was read may still be sent."""
        match = self._find_chunk(end)
        return match is not None and match[0].pull.running

    def resolved(self, job: SnapshotJob, definitions: Sequence[CqlTableDefinition]) -> None:
        """The request's tables."""
        pull = job.pull
        if not self._board.resolve(pull):
            return
        note = pull.note
        pull_parts = self._saved.get(pull.request.id, {})
        others = _saved_shares(pull_parts)
        began = min(
            (other_note.started_ms for _, other_note in others if other_note.started_ms), default=self._now_ms()
        )
        note.started_ms = note.started_ms or began
        for definition in definitions:
            table = CassandraTableNote(
                keyspace=definition.keyspace, table=definition.table, table_id=definition.table_id
            )
            if definition.has_counters:
                table.stage, table.error = "failed", f"{definition} has counters, whose changes can't be merged"
            left = state.inherited_ranges(self._whole, self._read_before(pull.request, definition.table_id))
            if left != [self._whole]:
                table.left = [(open_table.after, open_table.upto, open_table.resume) for open_table in left]
                table.percent = state.done_percent(left, self._whole)
            table.rows, table.started_ms = state.count_inherited(pull_parts, definition.table_id, self._shard)
            note.tables.append(table)
            pull.tables.append(CassandraTableSnapshot(pull, table, self._whole))
        for open_table in pull.tables:
            self._close_if_done(open_table)
        self._board.finish(pull)

    def page(
        self,
        job: SnapshotJob,
        table: CqlTableDefinition,
        updates: list[PartitionUpdate],
        *,
        rows: int,
        last_token: int | None,
        paging: bytes | None,
        bad: tuple[str, ...] = (),
    ) -> CassandraChunk | None:
        """Take the next page of a token range that was read.

        Args:
            job: of the token range.
            table: the definition by which it was read.
            updates: what is to be sent.
            rows: read.
            last_token: of the last row; None: there was none.
            paging: state to continue with; None: it was the last page.
            bad: rows that could not be decoded.

        Returns:
            The chunk, to be sent and then ``done``; None: there is nothing to send, or it is no longer wanted.
        """
        pull_table, piece = job.table, job.piece
        if pull_table is None or piece is None or piece.read is None or self.stale(job):
            return None
        upto = piece.span.upto
        # The last row's partition may have more rows, which the paging state leads to.
        after = piece.read.after if last_token is None else max(piece.read.after, last_token - 1)
        piece.read = None if paging is None else TokenRange(after, upto, paging.hex())
        piece.rows += rows
        if paging is None:
            whole = self._whole.upto - self._whole.after
            pull_table.width = width_after(piece.width, piece.rows, self._settings.chunk_rows * _PAGES, whole)
        end = ChunkEnd(pull_table.pull.request.id, piece.number, after, paging, rows)
        if not updates and not bad and not piece.outstanding:
            self._advance_chunk(pull_table, piece, end)
            self._stale_since.setdefault(end.request, self._now_ms())
            return None
        piece.outstanding += 1
        return CassandraChunk(end.request, table, updates, end, self._now_ms(), bad)

    def lost(self, job: SnapshotJob) -> bool:
        """Forget a token range's paging state that is not valid (any more): continue at the start of the current partition.

        Returns:
            False: there was no paging state.
        """
        piece = job.piece
        if piece is None or piece.read is None or not piece.read.resume:
            return False
        piece.read = TokenRange(piece.read.after, piece.read.upto)
        return True

    def narrow(self, job: SnapshotJob) -> None:
        """Read only the first half of the rest of a token range: its query was too much for the cluster."""
        table, piece = job.table, job.piece
        if table is None or piece is None or piece.read is None or self.stale(job):
            return
        after, upto, _ = piece.read
        middle = after + (upto - after) // 2
        table.width = max(1, min(table.width, middle - after))
        if middle > after:
            piece.read = TokenRange(after, middle)
            piece.span = TokenRange(piece.span.after, middle, piece.span.resume)
            piece.width = middle - after
            table.left = merge_spans([TokenRange(middle, upto), *table.left])

    def tell(self, job: SnapshotJob, error: str) -> None:
        """Set the error after which reading is retried; empty: there is no error any more."""
        if job.table is not None and job.table.note.error != error and not self.stale(job):
            job.table.note.error = error
            self._board.save(job.pull)

    def failed(self, job: SnapshotJob, error: str) -> None:
        """The table, or the whole request, is given up."""
        if job.table is None:
            self._board.refuse(job.pull, error)
        elif not self.stale(job):
            self._close_table(job.table, "failed", error)

    def vanished(self, job: SnapshotJob) -> None:
        """The table was dropped."""
        if job.table is not None and not self.stale(job):
            self._close_table(job.table, "vanished", "")

    def renewed(self, job: SnapshotJob, table_id: str) -> None:
        """The table was dropped and recreated: it is read from the start."""
        table = job.table
        if table is not None and not self.stale(job):
            table.pieces.clear()
            table.left = [self._whole]
            table.reset()
            table.note.table_id, table.note.rows, table.note.left = table_id, 0, None
            self._board.save(job.pull)

    # What is sent.

    def done(self, chunk: CassandraChunk) -> list[tuple[Position, Position]]:
        """The chunk's records are on their way: what is to be saved with the last of them."""
        match = self._find_chunk(chunk.end)
        if match is not None:
            table, piece = match
            piece.outstanding -= 1
            table.note.rows += chunk.end.rows
            table.note.bad += len(chunk.bad)
            self._advance_chunk(table, piece, chunk.end)
            self._board.save(table.pull)
        return self.changes()

    def changes(self) -> list[tuple[Position, Position]]:
        """The other offsets to save."""
        now = self._now_ms()
        for name, since in self._stale_since.items():
            if now - since >= _SAVE_MS:
                self._board.save(self._board.shares[name])
        unsaved = self._board.take_unsaved()
        for pull in unsaved:
            self._stale_since.pop(pull.request.id, None)
        return [self._make_offset(pull) for pull in unsaved]

    def notes(self) -> list[tuple[str, PullNote]]:
        """All requests with their current state."""
        for pull in self._board.order:
            self._update_notes(pull)
        return [(pull.request.id, pull.note) for pull in self._board.order]

    # Parts.

    def _make_offset(self, pull: Pull) -> tuple[Position, Position]:
        self._update_notes(pull)
        pull.note.saved_ms = self._now_ms()
        name = pull.request.id
        offset: Position = {"state": shown_state(pull.note.state), "progress": state.note_to_text(pull.note)}
        if pull.request.table_id:
            offset["request"] = views.saved_request(pull.request)
        self._saved.setdefault(name, {})[f"{self._shard[0]}/{self._shard[1]}"] = offset
        return views.share_partition(self._settings.prefix, name, self._shard), offset

    def _update_notes(self, pull: Pull) -> None:
        now = self._now_ms()
        for table in pull.tables:
            if table.open:
                table.save(now)

    def _find_chunk(self, end: ChunkEnd) -> tuple[CassandraTableSnapshot, RingChunk] | None:
        pull = self._board.shares.get(end.request)
        for table in pull.tables if pull is not None else ():
            if table.open and end.piece in table.pieces:
                return table, table.pieces[end.piece]
        return None

    def _advance_chunk(self, table: CassandraTableSnapshot, piece: RingChunk, end: ChunkEnd) -> None:
        if end.page is not None:
            piece.span = TokenRange(end.after, piece.span.upto, end.page.hex())
            return
        if piece.read is None and not piece.outstanding:
            del table.pieces[piece.number]
            self._close_if_done(table)

    def _close_if_done(self, table: CassandraTableSnapshot) -> None:
        if table.open and not table.left and not table.pieces:
            self._close_table(table, "done", "")

    def _close_table(self, table: CassandraTableSnapshot, stage: Stage, error: str) -> None:
        note = table.note
        note.saved_ms = self._now_ms()
        note.started_ms = note.started_ms or note.saved_ms
        note.left = None
        if stage == "done":
            note.percent = 100.0
        table.left = []
        table.pieces = {}
        table.epoch += 1
        self._board.close(table.pull, note, stage, error)

    def _now_ms(self) -> int:
        return self._board.now_ms()


def _saved_shares(parts: Mapping[str, Position]) -> list[tuple[TokenRange, PullNote]]:
    """Of the saved shares of a request: which tokens each is of, and its note."""
    return [
        (task_range(*_parse_shard(part)), note)
        for part, offset in parts.items()
        if (note := state.note_of(offset)) is not None
    ]


def _parse_shard(shard: str) -> tuple[int, int]:
    index, _, count = shard.partition("/")
    return int(index), int(count)
