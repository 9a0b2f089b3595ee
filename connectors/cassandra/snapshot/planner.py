"""The logic of snapshots: chooses the table and token range to read next, and what to save of it. No input or output.

Requests are read by priority, and the tables of a request in its order. The token ranges of a table are read in any order, the
pages of a token range one after the other.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from connectors.api import SNAPSHOT_ENDED
from connectors.cassandra.model import CLUSTER, SHARD, SNAPSHOT
from connectors.cassandra.snapshot import state, views
from connectors.cassandra.snapshot.model import NEW, CassandraChunk, ChunkEnd, new_request, new_table_id, reads_again
from connectors.cassandra.snapshot.ranges import cut_chunk, merge_spans, task_range, width_after
from connectors.cassandra.snapshot.state import CassandraShareNote, CassandraTableNote
from connectors.cql.token_ranges import TokenRange
from connectors.snapshot.board import TaskShare
from connectors.snapshot.planner import PlannedTable, SnapshotJob, SnapshotPlanner
from connectors.snapshot.requests import INITIAL, REQUEST
from connectors.snapshot.state import FINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connectors.api import Position
    from connectors.cassandra.snapshot.model import CassandraSnapshotSettings
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.formats.partition_update import PartitionUpdate
    from connectors.snapshot.requests import SnapshotRequest
    from connectors.snapshot.state import Stage

#: Number of pages of rows that a token range should have: each range costs a query that may find no rows.
_PAGES: Final = 4
#: Number of token ranges that a share is cut into, per query in flight, while the table's size is not known.
_FIRST_RANGES: Final = 16
#: Milliseconds between saves of the progress of token ranges without rows.
_SAVE_MS: Final = 1_000


class RingRange:
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


class CassandraTableSnapshot(PlannedTable[CassandraTableNote]):
    """One table of a request."""

    def __init__(self, share: CassandraShare, note: CassandraTableNote, whole: TokenRange) -> None:
        super().__init__(share, note)
        self.whole = whole
        self.ranges: dict[int, RingRange] = {}
        self.left: list[TokenRange] = []
        self.width = 0
        self.reset()

    def reset(self) -> None:
        """Forget what is under way: it is read again."""
        self.epoch += 1
        self.left = (
            merge_spans([*self.left, *(chunk.span for chunk in self.ranges.values())]) if self.ranges else self.left
        )
        self.ranges = {}
        if not self.left and self.open:
            self.left = state.left_of(self.note, self.whole)

    def save(self, now_ms: int) -> None:
        """Bring the note up to date."""
        left = merge_spans([*self.left, *(chunk.span for chunk in self.ranges.values())])
        self.note.left = None if left == [self.whole] else [(chunk.after, chunk.upto, chunk.resume) for chunk in left]
        self.note.percent = state.done_percent(left, self.whole)
        self.note.saved_ms = now_ms


CassandraShare = TaskShare[CassandraTableSnapshot]


CassandraJob = SnapshotJob[CassandraTableSnapshot, RingRange]


class CassandraSnapshotPlanner(SnapshotPlanner[CassandraTableSnapshot, RingRange, "CqlTableDefinition"]):
    """All snapshots of a task. Not thread-safe; nothing blocks.

    Args:
        settings: how tables are read.
        shard: index and number of the task among those that share the work.
        saved: all saved offsets of the connector.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        settings: CassandraSnapshotSettings,
        shard: tuple[int, int],
        saved: Iterable[tuple[Position, Position]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(lambda request: views.share_partition(settings.prefix, request, shard), clock)
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
        #: By request: since when only the progress of token ranges without rows is unsaved (ms since 1970).
        self._stale_since: dict[str, int] = {}
        self._number = 0
        #: Tokens of the ring in order.
        self.bounds: Sequence[int] = ()

    # Requests.

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """The complete list."""
        super().set_requests(requests)
        self._stale_since = {name: since for name, since in self._stale_since.items() if name in self.board.shares}

    def recall_share(self, request: SnapshotRequest) -> CassandraShare:
        """See ``SnapshotPlanner``."""
        parts = self._saved.get(request.id, {})
        saved_offset = parts.get(f"{self._shard[0]}/{self._shard[1]}")
        note = state.note_of(saved_offset) if saved_offset is not None else None
        if saved_offset is not None and note is None and saved_offset.get("state") in SNAPSHOT_ENDED:
            note = CassandraShareNote(state="done" if saved_offset["state"] == "completed" else saved_offset["state"])
        if (note is None or note.state not in FINAL) and state.is_over(parts):
            # Done by another number of tasks.
            note = state.ended_note(parts, self._shard)
        share: CassandraShare = TaskShare(request, note or CassandraShareNote())
        if share.note.resolved:
            if share.note.state not in FINAL:
                self._subtract_others(request, share.note)
            share.tables = [CassandraTableSnapshot(share, table_note, self._whole) for table_note in share.note.tables]
        return share

    # Tables that come later.

    def uncovered(self, tables: Iterable[CqlTableDefinition]) -> list[CqlTableDefinition]:
        """The tables whose share for this task is in no snapshot that the connector has started without a request.

        There are none until the first snapshot knows its tables: it reads all of them.
        """
        initial = self.board.shares.get(INITIAL)
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
            self.board.save(initial)
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
                share.note
                for name in (INITIAL, f"{NEW}{table.table_id}")
                if (share := self.board.shares.get(name)) is not None
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
        if request in self.board.shares:
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

    def _subtract_others(self, request: SnapshotRequest, note: CassandraShareNote) -> None:
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
        for share in self.board.shares.values():
            share.busy = False
            self._stop_share(share, dropped=False)

    # Work for the readers.

    def split(self, table: CassandraTableSnapshot, *, first: bool) -> CassandraJob | None:
        """See ``SnapshotPlanner``."""
        del first
        if not table.left:
            return None
        if not table.note.started_ms:
            table.note.started_ms = self.board.now_ms()
        table.note.stage = "running"
        whole = self._whole.upto - self._whole.after
        table.width = table.width or whole // (_FIRST_RANGES * self._settings.threads)
        span, remainder = cut_chunk(table.left[0], table.width, self.bounds)
        table.left[:1] = [] if remainder is None else [remainder]
        self._number += 1
        ring_range = table.ranges[self._number] = RingRange(self._number, span)
        return SnapshotJob(table.share, table, ring_range, table.epoch)

    def is_needed(self, end: ChunkEnd) -> bool:
        """Whether a chunk that was read may still be sent."""
        match = self._find_chunk(end)
        return match is not None and match[0].share.running

    def add_tables(self, share: CassandraShare, definitions: Sequence[CqlTableDefinition]) -> None:
        """See ``SnapshotPlanner``."""
        note = share.note
        share_parts = self._saved.get(share.request.id, {})
        note.started_ms = note.started_ms or min(
            (other.started_ms for _, other in _saved_shares(share_parts) if other.started_ms), default=0
        )
        for definition in definitions:
            table = CassandraTableNote(
                keyspace=definition.keyspace, table=definition.table, table_id=definition.table_id
            )
            if definition.refusal:
                table.stage, table.error = "failed", f"{definition}: {definition.refusal}"
            left = state.inherited_ranges(self._whole, self._read_before(share.request, definition.table_id))
            if left != [self._whole]:
                table.left = [(open_table.after, open_table.upto, open_table.resume) for open_table in left]
                table.percent = state.done_percent(left, self._whole)
            table.rows, table.started_ms = state.count_inherited(share_parts, definition.table_id, self._shard)
            note.tables.append(table)
            share.tables.append(CassandraTableSnapshot(share, table, self._whole))
        for open_table in share.tables:
            self._close_if_done(open_table)

    def page(
        self,
        job: CassandraJob,
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
            The chunk, to be sent and then ``done``; None: there is nothing to send, or it is no longer needed.
        """
        table_snapshot, ring_range = job.table, job.part
        if table_snapshot is None or ring_range is None or ring_range.read is None or self.stale(job):
            return None
        upto = ring_range.span.upto
        # The last row's partition may have more rows, which the paging state leads to.
        after = ring_range.read.after if last_token is None else max(ring_range.read.after, last_token - 1)
        ring_range.read = None if paging is None else TokenRange(after, upto, paging.hex())
        ring_range.rows += rows
        if paging is None:
            whole = self._whole.upto - self._whole.after
            table_snapshot.width = width_after(
                ring_range.width, ring_range.rows, self._settings.chunk_rows * _PAGES, whole
            )
        end = ChunkEnd(table_snapshot.share.request.id, ring_range.number, after, paging, rows)
        if not updates and not bad and not ring_range.outstanding:
            self._advance_chunk(table_snapshot, ring_range, end)
            self._stale_since.setdefault(end.request, self.board.now_ms())
            return None
        ring_range.outstanding += 1
        return CassandraChunk(end.request, table, updates, end, self.board.now_ms(), bad)

    def lost(self, job: CassandraJob) -> bool:
        """Forget a token range's paging state that is not valid (any more): continue at the start of the current partition.

        Returns:
            False: there was no paging state.
        """
        ring_range = job.part
        if ring_range is None or ring_range.read is None or not ring_range.read.resume:
            return False
        ring_range.read = TokenRange(ring_range.read.after, ring_range.read.upto)
        return True

    def narrow(self, job: CassandraJob) -> None:
        """Read only the first half of the rest of a token range: its query was too much for the cluster."""
        table, ring_range = job.table, job.part
        if table is None or ring_range is None or ring_range.read is None or self.stale(job):
            return
        after, upto, _ = ring_range.read
        middle = after + (upto - after) // 2
        table.width = max(1, min(table.width, middle - after))
        if middle > after:
            ring_range.read = TokenRange(after, middle)
            ring_range.span = TokenRange(ring_range.span.after, middle, ring_range.span.resume)
            ring_range.width = middle - after
            table.left = merge_spans([TokenRange(middle, upto), *table.left])

    def tell(self, job: CassandraJob, error: str) -> None:
        """Set the error after which reading is retried; empty: there is no error any more."""
        if job.table is not None and job.table.note.error != error and not self.stale(job):
            job.table.note.error = error
            self.board.save(job.share)

    def renewed(self, job: CassandraJob, table_id: str) -> None:
        """The table was dropped and recreated: it is read from the start."""
        table = job.table
        if table is not None and not self.stale(job):
            table.ranges.clear()
            table.left = [self._whole]
            table.reset()
            table.note.table_id, table.note.rows, table.note.left = table_id, 0, None
            self.board.save(job.share)

    # What is sent.

    def done(self, chunk: CassandraChunk) -> list[tuple[Position, Position]]:
        """The chunk's records are on their way: what is to be saved with the last of them."""
        match = self._find_chunk(chunk.end)
        if match is not None:
            table, ring_range = match
            ring_range.outstanding -= 1
            table.note.rows += chunk.end.rows
            table.note.bad += len(chunk.bad)
            self._advance_chunk(table, ring_range, chunk.end)
            self.board.save(table.share)
        return self.changes()

    def changes(self) -> list[tuple[Position, Position]]:
        """See ``SnapshotPlanner``."""
        now = self.board.now_ms()
        for name, since in self._stale_since.items():
            if now - since >= _SAVE_MS:
                self.board.save(self.board.shares[name])
        return super().changes()

    def notes(self) -> list[tuple[str, CassandraShareNote]]:
        """All requests with their current state."""
        for share in self.board.order:
            self._update_notes(share)
        return [(share.request.id, share.note) for share in self.board.order]

    # Parts.

    def make_offset(self, share: CassandraShare) -> tuple[Position, Position]:
        """See ``SnapshotPlanner``."""
        request = share.request
        self._stale_since.pop(request.id, None)
        self._update_notes(share)
        share.note.saved_ms = self.board.now_ms()
        partition, offset = super().make_offset(share)
        if request.table_id:
            offset[REQUEST] = views.saved_request(request)
        self._saved.setdefault(request.id, {})[f"{self._shard[0]}/{self._shard[1]}"] = offset
        return partition, offset

    def _update_notes(self, share: CassandraShare) -> None:
        now = self.board.now_ms()
        for table in share.tables:
            if table.open:
                table.save(now)

    def _find_chunk(self, end: ChunkEnd) -> tuple[CassandraTableSnapshot, RingRange] | None:
        share = self.board.shares.get(end.request)
        for table in share.tables if share is not None else ():
            if table.open and end.ring_range in table.ranges:
                return table, table.ranges[end.ring_range]
        return None

    def _advance_chunk(self, table: CassandraTableSnapshot, ring_range: RingRange, end: ChunkEnd) -> None:
        if end.page is not None:
            ring_range.span = TokenRange(end.after, ring_range.span.upto, end.page.hex())
            return
        if ring_range.read is None and not ring_range.outstanding:
            del table.ranges[ring_range.number]
            self._close_if_done(table)

    def _close_if_done(self, table: CassandraTableSnapshot) -> None:
        if table.open and not table.left and not table.ranges:
            self.close_table(table, "done", "")

    def close_table(self, table: CassandraTableSnapshot, stage: Stage, error: str) -> None:
        """See ``SnapshotPlanner``."""
        note = table.note
        note.saved_ms = self.board.now_ms()
        note.started_ms = note.started_ms or note.saved_ms
        note.left = None
        if stage == "done":
            note.percent = 100.0
        super().close_table(table, stage, error)
        table.left = []

    def reset(self, table: CassandraTableSnapshot, *, over: bool) -> None:
        """See ``SnapshotPlanner``."""
        del over
        table.reset()


def _saved_shares(parts: Mapping[str, Position]) -> list[tuple[TokenRange, CassandraShareNote]]:
    """Of the saved shares of a request: which tokens each is of, and its note."""
    return [
        (task_range(*_parse_shard(part)), note)
        for part, offset in parts.items()
        if (note := state.note_of(offset)) is not None
    ]


def _parse_shard(shard: str) -> tuple[int, int]:
    index, _, count = shard.partition("/")
    return int(index), int(count)
