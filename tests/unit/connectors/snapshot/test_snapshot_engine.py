"""The engine of snapshots over a source in memory: what it reads, what ends it, and what a restart makes of it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Fatal, Retriable
from connectors.snapshot.board import TaskShare
from connectors.snapshot.engine import SnapshotEngine
from connectors.snapshot.planner import PlannedTable, SnapshotJob, SnapshotPlanner
from connectors.snapshot.requests import SnapshotRequest
from connectors.snapshot.state import SnapshotNote, SnapshotTable
from tests.support.eventually import pass_turns, patience

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import Position

READERS = 2


class NumberTable(PlannedTable[SnapshotTable]):
    """A table of numbers."""

    def __init__(self, share: TaskShare[Any], numbers: int) -> None:
        super().__init__(share, SnapshotTable())
        self.numbers = numbers
        self.left = list(range(numbers))


NumberJob = SnapshotJob[NumberTable, int]


class NumberPlanner(SnapshotPlanner[NumberTable, int, int]):
    """A part is one number."""

    def __init__(self) -> None:
        super().__init__(lambda name: {"snapshot": name})

    def recall_share(self, request: SnapshotRequest) -> TaskShare[NumberTable]:
        return TaskShare(request, SnapshotNote[SnapshotTable]())

    def add_tables(self, share: TaskShare[NumberTable], definitions: Sequence[int]) -> None:
        share.tables = [NumberTable(share, numbers) for numbers in definitions]
        share.note.tables = [table.note for table in share.tables]

    def split(self, table: NumberTable, *, first: bool) -> NumberJob | None:
        del first
        return SnapshotJob(table.share, table, table.left.pop(0), table.epoch) if table.left else None

    def reset(self, table: NumberTable, *, over: bool) -> None:
        del over
        table.epoch += 1


class NumberEngine(SnapshotEngine[NumberPlanner]):
    """Reads two tables of numbers; ``faults`` are raised first."""

    def __init__(self, *faults: Exception) -> None:
        super().__init__(NumberPlanner(), READERS, logging.LoggerAdapter(logging.getLogger("test")))
        self.faults = list(faults)
        self.read: list[int] = []
        self.pauses: list[int] = []
        self.at_work = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    def _allowed(self) -> int:
        return READERS

    def _pause_s(self, failures: int) -> float:
        self.pauses.append(failures)
        return 0.0

    async def _carry_out(self, job: NumberJob, reader: int) -> bool:
        assert 0 <= reader < READERS
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        try:
            await self.gate.wait()
            await pass_turns()
            if self.faults:
                job.share.busy = False
                raise self.faults.pop(0)
            if job.table is None:
                self._planner.resolved(job, [3, 4])
            elif not self._planner.stale(job):
                assert job.part is not None
                self.read.append(job.part)
                job.table.note.rows += 1
                if job.table.note.rows == job.table.numbers:
                    self._planner.close_table(job.table, "done", "")
        finally:
            self.at_work -= 1
        return True

    async def saved(self, state: str) -> Position:
        """Wait until this state is to be saved."""
        async with patience(10):
            while True:
                await self.wait()
                self._raise_error()
                for _, offset in self.changes():
                    if offset["state"] == state:
                        return offset


def request(**more: Any) -> SnapshotRequest:
    return SnapshotRequest(id="r", tables=[".*"], **more)


async def test_all_parts_are_read_by_several_readers() -> None:
    engine = NumberEngine()
    engine.set_requests([request()])
    engine.start()
    await engine.saved("completed")
    await engine.close()
    assert sorted(engine.read) == [0, 0, 1, 1, 2, 2, 3]
    assert engine.most == READERS


async def test_a_reader_pauses_after_a_temporary_failure() -> None:
    engine = NumberEngine(Retriable("one"), Retriable("two"))
    engine.set_requests([request()])
    engine.start()
    await engine.saved("completed")
    await engine.close()
    assert len(engine.pauses) == 2
    assert len(engine.read) == 7


async def test_any_other_error_ends_the_run() -> None:
    engine = NumberEngine(Fatal("refused"))
    engine.set_requests([request()])
    engine.start()
    with pytest.raises(Fatal, match="refused"):
        await engine.saved("completed")
    await engine.wait()  # does not block any more
    await engine.close()


async def test_readers_that_were_stopped_at_work_read_again() -> None:
    engine = NumberEngine()
    engine.gate.clear()
    engine.set_requests([request()])
    for _ in range(READERS + 1):
        engine.start()
        async with patience(10):
            while not engine.at_work:
                await pass_turns()
        await engine.close()
        engine._planner.board.shares["r"].busy = False
    engine.gate.set()
    engine.start()
    await engine.saved("completed")
    await engine.close()
    assert len(engine.read) == 7


async def test_a_paused_request_is_not_read() -> None:
    engine = NumberEngine()
    engine.set_requests([request(state="paused")])
    engine.start()
    await engine.saved("paused")
    assert not engine.read
    engine.set_requests([request()])
    await engine.saved("completed")
    await engine.close()
