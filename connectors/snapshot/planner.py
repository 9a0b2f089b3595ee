"""Plans the snapshots of a task: what is read next, what is still wanted, what is saved. Pure.

A source divides its tables (``split``) and takes what was read; everything that does not depend on the source is here.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from connectors.snapshot.board import SnapshotBoard, TaskShare
from connectors.snapshot.requests import PROGRESS, STATE
from connectors.snapshot.state import SnapshotTable, pack, shown_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import Position
    from connectors.snapshot.requests import SnapshotRequest
    from connectors.snapshot.state import Stage

TableNote = TypeVar("TableNote", bound=SnapshotTable)


class PlannedTable(Generic[TableNote]):
    """A table of a request.

    Attributes:
        share: the task's, of the request.
        note: what is saved of the table.
        epoch: grows whenever what is under way is given up: answers to older queries are not wanted.
    """

    def __init__(self, share: TaskShare[Any], note: TableNote) -> None:
        self.share = share
        self.note = note
        self.epoch = 0

    @property
    def open(self) -> bool:
        """Whether it is not over."""
        return self.note.open


Table = TypeVar("Table", bound=PlannedTable[Any])
Part = TypeVar("Part")
Definition = TypeVar("Definition")


class SnapshotJob(NamedTuple, Generic[Table, Part]):
    """A query for the source.

    Attributes:
        share: of the request that it is for.
        table: None: the tables of the request are to be found.
        part: the range of keys or tokens to read; None: the table is to be looked up.
        epoch, token: say whether the answer is still wanted, see ``SnapshotPlanner.stale``.
    """

    share: TaskShare[Table]
    table: Table | None = None
    part: Part | None = None
    epoch: int = 0
    token: int = 0


class SnapshotPlanner(ABC, Generic[Table, Part, Definition]):
    """The snapshots of a task. Not thread-safe; nothing blocks.

    Args:
        partition: makes the source partition of the task's share of a request.
        clock: seconds since 1970.
        tables_ahead: tables of a request that are read at the same time at most; None: any number.
    """

    def __init__(
        self,
        partition: Callable[[str], Position],
        clock: Callable[[], float] = time.time,
        *,
        tables_ahead: int | None = None,
    ) -> None:
        self.board: Final = SnapshotBoard[Table](self.recall_share, self._stop_share, clock)
        self._partition = partition
        self._tables_ahead = tables_ahead

    # For each source.

    @abstractmethod
    def recall_share(self, request: SnapshotRequest) -> TaskShare[Table]:
        """The task's share of a request, as it was saved, or a new one."""

    @abstractmethod
    def add_tables(self, share: TaskShare[Table], definitions: Sequence[Definition]) -> None:
        """Give a share its tables, and its note."""

    @abstractmethod
    def split(self, table: Table, *, first: bool) -> SnapshotJob[Table, Part] | None:
        """The next query for a table; None: nothing for now. ``first``: nothing can be sent before this table's rows."""

    @abstractmethod
    def reset(self, table: Table, *, over: bool) -> None:
        """Forget what is under way of a table: it is read again, or (``over``) not any more."""

    # For all sources.

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """The complete list; a request that is no longer in it is dropped."""
        self.board.set_requests(requests)

    def _stop_share(self, share: TaskShare[Table], *, dropped: bool) -> None:
        for table in share.tables:
            self.reset(table, over=dropped)

    def next_job(self, *, resolving: bool = False) -> SnapshotJob[Table, Part] | None:
        """Return the next query (``resolving``: only for a request's tables); None: nothing for now."""
        first = True
        for share in self.board.order:
            if share.claim():
                return SnapshotJob(share)
            if not share.running or not share.note.resolved or resolving:
                continue
            for table in islice(share.unfinished(), self._tables_ahead):
                job = self.split(table, first=first)
                if job is not None:
                    return job
                first = False
        return None

    def stale(self, job: SnapshotJob[Table, Part]) -> bool:
        """Whether the job's answer is no longer wanted."""
        if not self.board.wants(job.share):
            return True
        return job.table is not None and (job.table.epoch != job.epoch or not job.table.open)

    def resolved(self, job: SnapshotJob[Table, Part], definitions: Sequence[Definition]) -> None:
        """The request's tables are found."""
        share = job.share
        if self.board.resolve(share):
            self.add_tables(share, definitions)
            share.note.started_ms = share.note.started_ms or self.board.now_ms()
            self.board.finish(share)

    def give_up(self, job: SnapshotJob[Table, Part], error: str, stage: Stage = "failed") -> None:
        """The table can't be read, and the request continues without it; or the whole request can't be followed."""
        if job.table is None:
            self.board.refuse(job.share, error)
        elif not self.stale(job):
            self.close_table(job.table, stage, error)

    def close_table(self, table: Table, stage: Stage, error: str) -> None:
        """A table is over."""
        self.reset(table, over=True)
        self.board.close(table.share, table.note, stage, error)

    def changes(self) -> list[tuple[Position, Position]]:
        """The offsets to be saved that no chunk carries."""
        return [self.make_offset(share) for share in self.board.take_unsaved()]

    def make_offset(self, share: TaskShare[Table]) -> tuple[Position, Position]:
        """The source partition and the offset of a share."""
        return self._partition(share.request.id), {STATE: shown_state(share.note.state), PROGRESS: pack(share.note)}
