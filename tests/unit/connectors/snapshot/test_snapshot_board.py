"""The state machine of a task's snapshots: who comes first, and what pausing, cancelling and the end of tables mean."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.snapshot.board import SnapshotBoard, TaskShare
from connectors.snapshot.requests import SnapshotRequest
from connectors.snapshot.state import SnapshotNote, SnapshotTable


class OpenTable:
    """A table that is open as long as its note is."""

    def __init__(self) -> None:
        self.note = SnapshotTable()

    @property
    def open(self) -> bool:
        return self.note.open


class Bench:
    """A board whose shares have as many tables as the test gives them."""

    def __init__(self) -> None:
        self.stopped: list[tuple[str, bool]] = []
        self.saved: dict[str, SnapshotNote[Any]] = {}
        self.board: SnapshotBoard[OpenTable] = SnapshotBoard(self.recall, self.stop, lambda: 7.0)

    def recall(self, request: SnapshotRequest) -> TaskShare[OpenTable]:
        return TaskShare(request, self.saved.get(request.id) or SnapshotNote())

    def stop(self, share: TaskShare[OpenTable], *, dropped: bool) -> None:
        self.stopped.append((share.request.id, dropped))

    def ask(self, *requests: SnapshotRequest) -> None:
        self.board.set_requests(requests)

    def resolve(self, name: str, tables: int) -> TaskShare[OpenTable]:
        share = self.board.shares[name]
        assert share.claim()
        assert not share.claim(), "its tables are being looked for"
        assert self.board.resolve(share)
        share.tables = [OpenTable() for _ in range(tables)]
        self.board.finish(share)
        return share

    def states(self) -> dict[str, str]:
        return {share.request.id: share.note.state for share in self.board.take_unsaved()}


def request(name: str, **more: Any) -> SnapshotRequest:
    return SnapshotRequest(id=name, tables=[".*"], **more)


def test_the_order_is_by_priority_then_by_age() -> None:
    bench = Bench()
    bench.ask(request("new", created_ms=2), request("old", created_ms=1), request("urgent", created_ms=3, priority=1))
    assert [share.request.id for share in bench.board.order] == ["urgent", "old", "new"]


def test_a_request_ends_with_its_last_table() -> None:
    bench = Bench()
    bench.ask(request("one"))
    share = bench.resolve("one", 2)
    first, second = share.tables
    bench.board.close(share, first.note, "done", "")
    assert list(share.unfinished()) == [second]
    assert bench.states() == {"one": "running"}
    bench.board.close(share, second.note, "vanished", "")
    assert bench.states() == {"one": "done"}
    assert (share.note.finished_ms, share.running) == (7_000, False)
    bench.ask(request("one", state="cancelled"))
    assert bench.states() == {}, "an end stays"


def test_without_tables_it_is_done_at_once() -> None:
    bench = Bench()
    bench.ask(request("one"))
    bench.resolve("one", 0)
    assert bench.states() == {"one": "done"}


@pytest.mark.parametrize(("good", "state", "error"), [(0, "failed", "no rights"), (1, "done", "")])
def test_a_request_has_failed_when_all_of_its_tables_have(good: int, state: str, error: str) -> None:
    bench = Bench()
    bench.ask(request("one"))
    share = bench.resolve("one", good + 1)
    *others, last = share.tables
    for table in others:
        bench.board.close(share, table.note, "done", "")
    bench.board.close(share, last.note, "failed", "no rights")
    assert bench.states() == {"one": state}
    assert share.note.error == error


def test_pause_resume_cancel_and_delete() -> None:
    bench = Bench()
    bench.ask(request("one"), request("two"))
    bench.resolve("one", 1)
    bench.states()
    bench.ask(request("one", state="paused"), request("two", state="paused"))
    assert bench.states() == {"one": "paused", "two": "paused"}
    assert bench.stopped == [("one", False), ("two", False)]
    assert not bench.board.wants(bench.board.shares["one"])
    bench.ask(request("one"), request("two"))
    assert bench.states() == {"one": "running", "two": "waiting"}
    bench.ask(request("one", state="cancelled"))
    assert bench.stopped[2:] == [("two", True), ("one", True)]
    assert bench.states() == {"one": "cancelled"}, "nothing is saved of a deleted request"


def test_thousands_of_tables_are_not_looked_at_again_for_each_that_ends() -> None:
    looks = 0

    class CountingTable(OpenTable):
        """Counts how often it is asked whether it is open."""

        @property
        def open(self) -> bool:
            nonlocal looks
            looks += 1
            return self.note.open

    class CountingList(list[OpenTable]):
        """Takes no slices, which copy."""

        def __getitem__(self, index: Any) -> Any:
            assert isinstance(index, int)
            return super().__getitem__(index)

    bench = Bench()
    bench.ask(request("many"))
    share = bench.board.shares["many"]
    assert share.claim()
    assert bench.board.resolve(share)
    share.tables = CountingList(CountingTable() for _ in range(500))
    for table in list(share.tables):
        assert next(share.unfinished()) is table
        bench.board.close(share, table.note, "done", "")
    assert share.note.state == "done"
    assert looks < 10 * 500


def test_what_is_found_too_late_counts_for_nothing() -> None:
    bench = Bench()
    bench.ask(request("one"))
    share = bench.board.shares["one"]
    assert share.claim()
    bench.ask(request("one", state="paused"))
    assert not bench.board.resolve(share)
    bench.board.refuse(share, "no rights")
    assert (share.note.state, share.busy) == ("paused", False)
