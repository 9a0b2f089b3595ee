"""The state machine of a task's snapshots: which is read next, and which states are to be saved. Pure.

A connector divides tables and reads chunks; it reports here which tables a request has, and when one of them is over.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from connectors.snapshot.state import FINAL, SnapshotNote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connectors.snapshot.requests import SnapshotRequest
    from connectors.snapshot.state import SnapshotTable, Stage


class ReadTable(Protocol):
    """A table of a request while it is read."""

    note: Any

    @property
    def open(self) -> bool:
        """Whether it is not over."""


Table = TypeVar("Table", bound=ReadTable)


class TaskShare(Generic[Table]):
    """A task's share of one request.

    Attributes:
        request: as it is asked for now.
        note: what is saved of it.
        tables: in the order in which they are read.
        busy: whether its tables are being looked for.
    """

    def __init__(self, request: SnapshotRequest, note: SnapshotNote[Any]) -> None:
        self.request = request
        self.note = note
        self.tables: list[Table] = []
        self.busy = False
        #: Tables before this one are over.
        self._first = 0

    @property
    def running(self) -> bool:
        """Whether it is to be worked on."""
        return self.request.state == "running" and self.note.state not in FINAL

    def claim(self) -> bool:
        """Whether its tables are to be looked for now; from then on it is ``busy``."""
        claimed = self.running and not self.note.resolved and not self.busy
        self.busy = self.busy or claimed
        return claimed

    def unfinished(self) -> Iterator[Table]:
        """Its tables that are not over."""
        tables = self.tables
        while self._first < len(tables) and not tables[self._first].open:
            self._first += 1
        # No slice: this is asked for each transaction of the stream, mostly for the first of thousands of tables.
        return (table for table in map(tables.__getitem__, range(self._first, len(tables))) if table.open)


class StopShare(Protocol[Table]):
    """See ``SnapshotBoard``."""

    def __call__(self, share: TaskShare[Table], *, dropped: bool) -> None:
        """Stop."""


class SnapshotBoard(Generic[Table]):
    """The shares of a task. Not thread-safe; nothing blocks.

    Args:
        recall: makes the share of a new request, from what is saved of it.
        stop: a share is not worked on, for now or (``dropped``) for good: what is under way is not wanted.
        clock: seconds since 1970.

    Attributes:
        shares: by the request's id.
        order: those that are read first come first.
    """

    def __init__(
        self,
        recall: Callable[[SnapshotRequest], TaskShare[Table]],
        stop: StopShare[Table],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.shares: dict[str, TaskShare[Table]] = {}
        self.order: list[TaskShare[Table]] = []
        self._recall = recall
        self._stop = stop
        self._clock = clock
        self._unsaved: dict[str, None] = {}

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self._clock() * 1000)

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """Take the complete list; a request that is no longer in it is dropped."""
        names = {request.id for request in requests}
        for name in [name for name in self.shares if name not in names]:
            self._stop(self.shares.pop(name), dropped=True)
            self._unsaved.pop(name, None)
        for request in requests:
            share = self.shares.get(request.id)
            if share is None:
                share = self.shares[request.id] = self._recall(request)
            share.request = request
            if share.note.state not in FINAL:
                self._follow_state(share)
                self.finish(share)
        self.order = sorted(self.shares.values(), key=lambda share: share.request.order)

    def _follow_state(self, share: TaskShare[Table]) -> None:
        """Give a share the state that is asked for."""
        note, state = share.note, share.request.state
        if state == "cancelled":
            self._stop(share, dropped=True)
            note.end("cancelled", self.now_ms())
        elif state == "paused" and note.state != "paused":
            self._stop(share, dropped=False)
            note.state = "paused"
        elif state == "running" and note.state == "paused":
            note.state = "running" if note.resolved else "waiting"
        else:
            return
        self.save(share)

    def wants(self, share: TaskShare[Table]) -> bool:
        """Whether a share is still to be worked on."""
        return self.shares.get(share.request.id) is share and share.running

    def resolve(self, share: TaskShare[Table]) -> bool:
        """The tables of a share are found; False: they are not wanted any more."""
        share.busy = False
        if not self.wants(share) or share.note.resolved:
            return False
        share.note.resolved = True
        share.note.state = "running"
        self.save(share)
        return True

    def refuse(self, share: TaskShare[Table], error: str) -> None:
        """A request can't be followed at all."""
        share.busy = False
        if self.wants(share):
            share.note.end("failed", self.now_ms(), error)
            self.save(share)

    def close(self, share: TaskShare[Table], table: SnapshotTable, stage: Stage, error: str) -> None:
        """A table is over."""
        table.stage, table.error, table.finished_ms = stage, error, self.now_ms()
        self.save(share)
        self.finish(share)

    def finish(self, share: TaskShare[Table]) -> None:
        """End a share of which no table is left; it has failed if all of its tables have."""
        note = share.note
        if note.state == "running" and note.resolved and next(share.unfinished(), None) is None:
            errors = [table.note.error for table in share.tables if table.note.stage == "failed"]
            if errors and len(errors) == len(share.tables):
                note.end("failed", self.now_ms(), errors[0])
            else:
                note.end("done", self.now_ms())
            self.save(share)

    # States to be saved.

    def save(self, share: TaskShare[Table]) -> None:
        """The state of a share has changed."""
        self._unsaved[share.request.id] = None

    def saved(self, name: str) -> None:
        """The state of a request is handed over with a chunk."""
        self._unsaved.pop(name, None)

    def take_unsaved(self) -> list[TaskShare[Table]]:
        """The shares whose states are to be saved now."""
        names, self._unsaved = self._unsaved, {}
        return [self.shares[name] for name in names if name in self.shares]

    @property
    def unsaved(self) -> bool:
        """Whether ``take_unsaved`` has something."""
        return bool(self._unsaved)
