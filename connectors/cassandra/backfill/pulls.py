"""Which piece of which table is read next, and what is saved of it: all the logic of backfills, without input or output.

Tables are read in a request's order, requests by priority; pieces of a table in any order, the pages of a piece in theirs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.api import SNAPSHOT_ENDED
from connectors.cassandra.backfill import state, views
from connectors.cassandra.backfill.model import NEW, Chunk, End, new_request, new_table_id, reads_again
from connectors.cassandra.backfill.ranges import cut, merged, share, width_after
from connectors.cassandra.backfill.state import PullNote, TableNote
from connectors.cassandra.model import CLUSTER, SHARD, SNAPSHOT
from connectors.cql.token_ranges import TokenRange
from connectors.snapshot.board import Share, SnapshotBoard
from connectors.snapshot.requests import INITIAL
from connectors.snapshot.state import FINAL, shown_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connectors.api import Position
    from connectors.cassandra.backfill.model import BackfillSettings
    from connectors.cql.mutations.definition import TableDefinition
    from connectors.formats.partition_update import PartitionUpdate
    from connectors.snapshot.requests import SnapshotRequest
    from connectors.snapshot.state import Stage

#: A piece should have the rows of so many pages: each costs a query that may find nothing.
_PAGES: Final = 4
#: Pieces that a share is cut in, per query in flight, as long as nothing is known of the table.
_FIRST_PIECES: Final = 16
#: What empty pieces leave is saved so often.
_SAVE_MS: Final = 1_000


class Piece:
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


class TablePull:
    """One table of a request."""

    def __init__(self, pull: Pull, note: TableNote, whole: TokenRange) -> None:
        self.pull = pull
        self.note = note
        self.whole = whole
        #: Chunks and jobs of an older one are no longer wanted.
        self.epoch = 0
        self.pieces: dict[int, Piece] = {}
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
        self.left = merged([*self.left, *(each.span for each in self.pieces.values())]) if self.pieces else self.left
        self.pieces = {}
        if not self.left and self.open:
            self.left = state.left_of(self.note, self.whole)

    def save(self, now_ms: int) -> None:
        """Bring the note up to date."""
        left = merged([*self.left, *(each.span for each in self.pieces.values())])
        self.note.left = None if left == [self.whole] else [(each.after, each.upto, each.resume) for each in left]
        self.note.percent = state.done_percent(left, self.whole)
        self.note.saved_ms = now_ms


Pull = Share[TablePull]


class Job(NamedTuple):
    """What to ask the cluster: the tables of a request, or the rows of a piece."""

    pull: Pull
    table: TablePull | None = None
    piece: Piece | None = None
    epoch: int = 0


class Pulls:
    """All backfills of a task. Not thread-safe; nothing blocks.

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
        self._whole = share(*shard)
        self._saved: dict[str, dict[str, Position]] = {}
        for partition, offset in saved:
            request, part = partition.get(SNAPSHOT), partition.get(SHARD)
            if partition.get(CLUSTER) != settings.prefix or not isinstance(request, str) or not isinstance(part, str):
                continue
            if settings.mode != "always" or (request != INITIAL and not new_table_id(request)):
                self._saved.setdefault(request, {})[part] = offset
        self._board = SnapshotBoard(self._recall, self._stop, clock, fails=True)
        #: Of these nothing but what empty pieces leave is new.
        self._stale_since: dict[str, int] = {}
        self._number = 0
        #: Tokens of the ring in order.
        self.bounds: Sequence[int] = ()

    # Requests.

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """The complete list."""
        self._board.set_requests(requests)
        self._stale_since = {name: since for name, since in self._stale_since.items() if name in self._board.shares}

    def _recall(self, request: SnapshotRequest) -> Pull:
        parts = self._saved.get(request.id, {})
        own = parts.get(f"{self._shard[0]}/{self._shard[1]}")
        note = state.note_of(own) if own is not None else None
        if own is not None and note is None and own.get("state") in SNAPSHOT_ENDED:
            note = PullNote(state="done" if own["state"] == "completed" else own["state"])
        if (note is None or note.state not in FINAL) and state.over(parts):
            # Done by another number of tasks.
            note = state.ended(parts, self._shard)
        pull: Pull = Share(request, note or PullNote())
        if pull.note.resolved:
            if pull.note.state not in FINAL:
                self._subtract_others(request, pull.note)
            pull.tables = [TablePull(pull, each, self._whole) for each in pull.note.tables]
        return pull

    # Tables that come later.

    def uncovered(self, tables: Iterable[TableDefinition]) -> list[TableDefinition]:
        """The tables of which the task's share is in no backfill that the connector has started without a request.

        Until the first backfill knows its tables there are none: it takes all.
        """
        initial = self._board.shares.get(INITIAL)
        if initial is None or not (initial.note.resolved or initial.note.state in FINAL):
            return []
        tables = list(tables)
        if not initial.note.resolved and not any(note.resolved for _, note in _shares(self._saved.get(INITIAL, {}))):
            # Somebody has saved that it is over, and nobody which tables it had: they are those that are there now.
            initial.note.tables = [
                TableNote(keyspace=each.keyspace, table=each.table, table_id=each.table_id, stage="done")
                for each in tables
            ]
            initial.note.resolved = True
            self._board.save(initial)
        known = {each.table_id for each in initial.note.tables} if initial.note.resolved else set()
        return [
            each for each in tables if each.table_id not in known and self._open(new_request(each.table_id, str(each)))
        ]

    def reopened(self, tables: Iterable[tuple[TableDefinition, int]]) -> list[SnapshotRequest]:
        """The backfills of tables whose cdc was off for a while: what was written meanwhile is not in the log.

        A table that was not read before, or only since then, needs none.

        Args:
            tables: with the time at which cdc was on again, µs since 1970.
        """
        found = []
        for table, again_us in tables:
            request = new_request(table.table_id, str(table), again_us)
            live = [
                pull.note
                for name in (INITIAL, f"{NEW}{table.table_id}")
                if (pull := self._board.shares.get(name)) is not None
            ]
            saved = [
                note for name in (INITIAL, f"{NEW}{table.table_id}") for _, note in _shares(self._saved.get(name, {}))
            ]
            begun = [
                each.started_ms
                for note in (*live, *saved)
                for each in note.tables
                if each.table_id == table.table_id and each.stage != "waiting"
            ]
            if begun and min(begun) < again_us // 1000 and self._open(request):
                found.append(request)
        return found

    def _open(self, wanted: SnapshotRequest) -> bool:
        request = wanted.id
        parts = self._saved.get(request, {})
        own = parts.get(f"{self._shard[0]}/{self._shard[1]}")
        if request in self._board.shares:
            return False
        if own is not None:
            return own.get("state") not in SNAPSHOT_ENDED
        if parts and not state.over(parts):
            return True  # maybe nothing is left of it: then that is saved
        return bool(state.inherited(self._whole, self._read_before(wanted, wanted.table_id)))

    def _read_before(self, request: SnapshotRequest, table_id: str) -> list[tuple[TokenRange, TableNote]]:
        """What was saved of a table by all divisions among tasks: the tokens of each share, and its note.

        A table that came later for one division may have been there for the first backfill of another: both count for both.
        A first backfill that was cancelled or has failed leaves nothing to a backfill of tables that came later.
        """
        ids = [request.id]
        if request.id == INITIAL or (request.table_id and not reads_again(request.id)):
            ids = [INITIAL, f"{NEW}{table_id}"]
        found = []
        for name in ids:
            for whole, note in _shares(self._saved.get(name, {})):
                over = name == INITIAL and bool(request.table_id) and note.state in FINAL
                found += [
                    (
                        whole,
                        TableNote(keyspace=one.keyspace, table=one.table, table_id=table_id, stage="done")
                        if over
                        else one,
                    )
                    for one in note.tables
                    if one.table_id == table_id
                ]
        return found

    def _subtract_others(self, request: SnapshotRequest, note: PullNote) -> None:
        """Leave out what other divisions among tasks have read: the number of tasks changed and came back."""
        for table in note.tables:
            left = state.subtract_read(
                state.left_of(table, self._whole),
                [each for each in self._read_before(request, table.table_id) if each[0] != self._whole],
            )
            if table.open:
                table.left = [(one.after, one.upto, one.resume) for one in left]
                table.stage = table.stage if left else "done"

    def suspend(self) -> None:
        """Nobody reads any more: what is under way is to be read again."""
        for pull in self._board.shares.values():
            pull.busy = False
            self._stop(pull, dropped=False)

    def _stop(self, share: Pull, *, dropped: bool) -> None:
        del dropped
        for table in share.tables:
            table.reset()

    # Work for the readers.

    def next_job(self) -> Job | None:
        """What to ask the cluster next; None: nothing for now."""
        for pull in self._board.order:
            if pull.claim():
                return Job(pull)
            if not pull.running or not pull.note.resolved:
                continue
            for table in pull.unfinished():
                if table.left:
                    return self._piece_of(pull, table)
        return None

    def _piece_of(self, pull: Pull, table: TablePull) -> Job:
        if not table.note.started_ms:
            table.note.started_ms = self._now()
        table.note.stage = "running"
        whole = self._whole.upto - self._whole.after
        table.width = table.width or whole // (_FIRST_PIECES * self._settings.threads)
        span, rest = cut(table.left[0], table.width, self.bounds)
        table.left[:1] = [] if rest is None else [rest]
        self._number += 1
        piece = table.pieces[self._number] = Piece(self._number, span)
        return Job(pull, table, piece, table.epoch)

    def stale(self, job: Job) -> bool:
        """Whether the job's answer is no longer wanted."""
        if not self._board.wants(job.pull):
            return True
        return job.table is not None and (job.table.epoch != job.epoch or not job.table.open)

    def wanted(self, end: End) -> bool:
        """Whether a chunk that was read may still be sent."""
        found = self._find(end)
        return found is not None and found[0].pull.running

    def resolved(self, job: Job, found: Sequence[TableDefinition]) -> None:
        """The request's tables."""
        pull = job.pull
        if not self._board.resolve(pull):
            return
        note = pull.note
        pull_parts = self._saved.get(pull.request.id, {})
        others = _shares(pull_parts)
        began = min((other.started_ms for _, other in others if other.started_ms), default=self._now())
        note.started_ms = note.started_ms or began
        for each in found:
            table = TableNote(keyspace=each.keyspace, table=each.table, table_id=each.table_id)
            if each.has_counters:
                table.stage, table.error = "failed", f"{each} has counters, whose changes can't be merged"
            left = state.inherited(self._whole, self._read_before(pull.request, each.table_id))
            if left != [self._whole]:
                table.left = [(one.after, one.upto, one.resume) for one in left]
                table.percent = state.done_percent(left, self._whole)
            table.rows, table.started_ms = state.counted(pull_parts, each.table_id, self._shard)
            note.tables.append(table)
            pull.tables.append(TablePull(pull, table, self._whole))
        for one in pull.tables:
            self._close_if_done(one)
        self._board.finish(pull)

    def page(
        self,
        job: Job,
        table: TableDefinition,
        updates: list[PartitionUpdate],
        *,
        rows: int,
        last_token: int | None,
        paging: bytes | None,
        bad: tuple[str, ...] = (),
    ) -> Chunk | None:
        """The next page of a piece was read.

        Args:
            job: of the piece.
            table: the definition by which it was read.
            updates: what is to be sent.
            rows: read.
            last_token: of the last row; None: there was none.
            paging: to go on with; None: it was the last page.
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
        end = End(pull_table.pull.request.id, piece.number, after, paging, rows)
        if not updates and not bad and not piece.outstanding:
            self._advance(pull_table, piece, end)
            self._stale_since.setdefault(end.request, self._now())
            return None
        piece.outstanding += 1
        return Chunk(end.request, table, updates, end, self._now(), bad)

    def lost(self, job: Job) -> bool:
        """The paging state of a piece is of no use (any more): it is read on from the start of the partition under way.

        Returns:
            False: there was none.
        """
        piece = job.piece
        if piece is None or piece.read is None or not piece.read.resume:
            return False
        piece.read = TokenRange(piece.read.after, piece.read.upto)
        return True

    def narrow(self, job: Job) -> None:
        """A query of a piece was too much for the cluster: read only the first half of what is left of it now."""
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
            table.left = merged([TokenRange(middle, upto), *table.left])

    def tell(self, job: Job, error: str) -> None:
        """What is being tried again; empty: nothing any more."""
        if job.table is not None and job.table.note.error != error and not self.stale(job):
            job.table.note.error = error
            self._board.save(job.pull)

    def failed(self, job: Job, error: str) -> None:
        """The table, or the whole request, is given up."""
        if job.table is None:
            self._board.refuse(job.pull, error)
        elif not self.stale(job):
            self._close(job.table, "failed", error)

    def vanished(self, job: Job) -> None:
        """The table was dropped."""
        if job.table is not None and not self.stale(job):
            self._close(job.table, "vanished", "")

    def renewed(self, job: Job, table_id: str) -> None:
        """The table was dropped and made anew: it is read from the beginning."""
        table = job.table
        if table is not None and not self.stale(job):
            table.pieces.clear()
            table.left = [self._whole]
            table.reset()
            table.note.table_id, table.note.rows, table.note.left = table_id, 0, None
            self._board.save(job.pull)

    # What is sent.

    def done(self, chunk: Chunk) -> list[tuple[Position, Position]]:
        """The chunk's records are on their way: what is to be saved with the last of them."""
        found = self._find(chunk.end)
        if found is not None:
            table, piece = found
            piece.outstanding -= 1
            table.note.rows += chunk.end.rows
            table.note.bad += len(chunk.bad)
            self._advance(table, piece, chunk.end)
            self._board.save(table.pull)
        return self.changes()

    def changes(self) -> list[tuple[Position, Position]]:
        """What else is to be saved."""
        now = self._now()
        for name, since in self._stale_since.items():
            if now - since >= _SAVE_MS:
                self._board.save(self._board.shares[name])
        unsaved = self._board.take_unsaved()
        for pull in unsaved:
            self._stale_since.pop(pull.request.id, None)
        return [self._offset(pull) for pull in unsaved]

    def notes(self) -> list[tuple[str, PullNote]]:
        """All requests as they stand."""
        for pull in self._board.order:
            self._update(pull)
        return [(pull.request.id, pull.note) for pull in self._board.order]

    # Parts.

    def _offset(self, pull: Pull) -> tuple[Position, Position]:
        self._update(pull)
        pull.note.saved_ms = self._now()
        name = pull.request.id
        offset: Position = {"state": shown_state(pull.note.state), "progress": state.text(pull.note)}
        if pull.request.table_id:
            offset["request"] = views.saved_request(pull.request)
        self._saved.setdefault(name, {})[f"{self._shard[0]}/{self._shard[1]}"] = offset
        return views.partition(self._settings.prefix, name, self._shard), offset

    def _update(self, pull: Pull) -> None:
        now = self._now()
        for table in pull.tables:
            if table.open:
                table.save(now)

    def _find(self, end: End) -> tuple[TablePull, Piece] | None:
        pull = self._board.shares.get(end.request)
        for table in pull.tables if pull is not None else ():
            if table.open and end.piece in table.pieces:
                return table, table.pieces[end.piece]
        return None

    def _advance(self, table: TablePull, piece: Piece, end: End) -> None:
        if end.page is not None:
            piece.span = TokenRange(end.after, piece.span.upto, end.page.hex())
            return
        if piece.read is None and not piece.outstanding:
            del table.pieces[piece.number]
            self._close_if_done(table)

    def _close_if_done(self, table: TablePull) -> None:
        if table.open and not table.left and not table.pieces:
            self._close(table, "done", "")

    def _close(self, table: TablePull, stage: Stage, error: str) -> None:
        note = table.note
        note.saved_ms = self._now()
        note.started_ms = note.started_ms or note.saved_ms
        note.left = None
        if stage == "done":
            note.percent = 100.0
        table.left = []
        table.pieces = {}
        table.epoch += 1
        self._board.close(table.pull, note, stage, error)

    def _now(self) -> int:
        return self._board.now_ms()


def _shares(parts: Mapping[str, Position]) -> list[tuple[TokenRange, PullNote]]:
    """Of the saved shares of a request: which tokens each is of, and its note."""
    return [
        (share(*_numbers(part)), note) for part, offset in parts.items() if (note := state.note_of(offset)) is not None
    ]


def _numbers(shard: str) -> tuple[int, int]:
    index, _, count = shard.partition("/")
    return int(index), int(count)
