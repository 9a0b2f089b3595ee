"""A task's list of requests: the operator's, the connector's own, and those that wait for their time."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.snapshot.requests import INITIAL, STATE, RequestList, SnapshotRequest
from tests.support.clock import ManualClock


class Bench:
    """A list, and what a reader was given."""

    def __init__(self, *, keeps_ended: bool = False) -> None:
        self.clock = ManualClock()
        self.lists: list[dict[str, str]] = []
        self.list = RequestList(lambda name: {"snapshot": name}, self.take, keeps_ended=keeps_ended, clock=self.clock)

    def take(self, requests: list[SnapshotRequest]) -> None:
        self.lists.append({request.id: request.state for request in requests})

    def instruct(self, *rows: dict[str, Any]) -> list[str]:
        return self.list.instruct(rows, lambda name: name == INITIAL)


def row(name: str, state: str = "running", **more: Any) -> dict[str, Any]:
    return {"id": name, "state": state, "origin": "rest", "tables": ["a"], "created_ms": 1, **more}


def test_the_list_is_complete_and_what_is_not_in_it_is_forgotten() -> None:
    bench = Bench()
    bench.list.saved["old"] = {STATE: "running"}
    bench.list.add(SnapshotRequest(id=INITIAL, tables=[".*"], origin="initial"))
    assert bench.instruct(row("one"), row("two", "paused")) == ["old"]
    assert bench.list.take_unsaved() == [({"snapshot": "old"}, None)]
    assert bench.lists[-1] == {INITIAL: "running", "one": "running", "two": "paused"}
    assert bench.instruct(row("two")) == ["one"]
    assert bench.lists[-1] == {INITIAL: "running", "two": "running"}
    assert bench.list.take_unsaved() == [], "nothing was saved of it"


def test_the_operator_steers_what_the_connector_has_begun() -> None:
    bench = Bench()
    bench.list.add(SnapshotRequest(id=INITIAL, tables=[".*"], origin="initial"))
    bench.instruct(
        {"id": INITIAL, "state": "paused", "origin": "initial"}, {"id": "new-a", "state": "cancelled", "origin": "new"}
    )
    assert bench.lists[-1] == {INITIAL: "paused"}
    bench.list.add(SnapshotRequest(id="new-a", tables=["a"], origin="new"))
    bench.list.hand_over()
    assert bench.lists[-1] == {INITIAL: "paused", "new-a": "cancelled"}


@pytest.mark.parametrize("keeps_ended", [False, True])
def test_a_request_that_is_over_is_not_begun_again(*, keeps_ended: bool) -> None:
    bench = Bench(keeps_ended=keeps_ended)
    bench.list.saved["one"] = {STATE: "completed"}
    bench.instruct(row("one"))
    assert bench.lists[-1] == ({"one": "running"} if keeps_ended else {})
    assert bench.list.ended("one")


def test_a_request_waits_for_its_time() -> None:
    bench = Bench()
    bench.instruct(row("night", start_ms=1_060_000), row("later", start_ms=1_090_000), row("now"))
    assert bench.lists == [{"night": "paused", "later": "paused", "now": "running"}]
    bench.clock.advance(59)
    bench.list.start_due()
    assert len(bench.lists) == 1
    bench.clock.advance(1)
    bench.list.start_due()
    assert bench.lists[1:] == [{"night": "running", "later": "paused", "now": "running"}]
    bench.clock.advance(30)
    bench.list.start_due()
    bench.list.start_due()
    assert bench.lists[2:] == [{"night": "running", "later": "running", "now": "running"}]
