"""Requests for snapshots in a task's groups, and how REST shows them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN, TokenRange
from connectors.errors import ConfigInvalid
from connectors.scylla.connector import ScyllaConnector
from connectors.scylla.model import Generation, StreamGroup, TableId
from connectors.scylla.positions import source_partition
from connectors.scylla.snapshot.merging import SnapshotPosition, partition_of, to_offset
from connectors.scylla.snapshot.views import list_snapshots, measure_lag
from connectors.testing.contexts import SavedOffsets
from tests.support.eventually import pass_turns
from tests.unit.connectors.scylla.snapshot_world import TABLE
from tests.unit.connectors.scylla.test_snapshot_hook import GROUP, Bench, Session, head, with_hook

if TYPE_CHECKING:
    from connectors.api import Position


def request(
    name: str, state: str = "running", *, priority: int = 0, created_ms: int = 1, **more: Any
) -> dict[str, Any]:
    return {
        "id": name,
        "state": state,
        "origin": "rest",
        "tables": [str(TABLE)],
        "priority": priority,
        "created_ms": created_ms,
        **more,
    }


def saved(bench: Bench, name: str) -> Position | None:
    return bench.offsets.get(partition_of(GROUP, name))


async def serve(bench: Bench, name: str) -> None:
    """Windows and pages in turns until the request is over."""

    async def turns() -> None:
        while (saved(bench, name) or {}).get("token_range_left") != "":
            if not bench.hook.holds(GROUP):
                bench.hook.window_ended(GROUP, head())
            bench.take()
            await pass_turns()

    await asyncio.wait_for(turns(), 10)


def rows(bench: Bench) -> list[int]:
    return [record.value[0][0] for record in bench.records]


def test_a_request_is_read_without_a_snapshot_of_the_connectors_own() -> None:
    async def body(bench: Bench) -> None:
        bench.take()
        assert [partition for partition, _ in bench.offsets.items() if "snapshot" in partition] == []
        bench.hook.instruct([request("one")])
        await serve(bench, "one")

    bench = with_hook(lambda: Bench(Session(), snapshot="never"), body)
    assert rows(bench) == list(range(1, 11))
    assert saved(bench, "initial") is None
    assert (saved(bench, "one") or {})["rows"] == "10"
    assert bench.number("SnapshotCompleted") == 1


def test_a_page_waits_for_the_end_of_a_window_that_began_before_the_request() -> None:
    async def body(bench: Bench) -> None:
        assert not bench.hook.holds(GROUP), "a window begins"
        bench.hook.instruct([request("one")])
        bench.hook.window_ended(GROUP, head())
        assert not bench.hook.holds(GROUP), "the page is not asked for yet, and the next window begins"
        session: Any = bench.hook._pages.pages._session
        await bench.until(lambda: len(session.asked) == 1)
        await pass_turns()
        assert bench.take() == 0, "amid the window"
        bench.hook.window_ended(GROUP, head())
        assert bench.take() > 0

    with_hook(lambda: Bench(Session(), snapshot="never"), body)


def test_the_highest_priority_comes_first_and_others_resume_behind_it() -> None:
    async def body(bench: Bench) -> None:
        await bench.until(lambda: bench.hook._groups[TABLE, 0, "0"].page is not None or not bench.hook.holds(GROUP))
        bench.hook.window_ended(GROUP, head())
        while not bench.records:
            if not bench.hook.holds(GROUP):
                bench.hook.window_ended(GROUP, head())
            bench.take(2)
            await pass_turns()
        bench.hook.instruct([request("urgent", priority=3)])
        await serve(bench, "urgent")
        assert not bench.finished
        await bench.serve()

    bench = with_hook(lambda: Bench(Session()), body)
    first = len(bench.records) - 10
    names = [record.source_partition.get("snapshot_id", "initial") for record in bench.records]
    assert names[: names.index("urgent")] == ["initial"] * names.index("urgent")
    assert rows(bench)[names.index("urgent") : names.index("urgent") + 10] == list(range(1, 11))
    initial_rows = [row for row, name in zip(rows(bench), names, strict=True) if name == "initial"]
    assert (initial_rows, first) == (list(range(1, 11)), 10)


@pytest.mark.parametrize("restart", [False, True])
def test_paused_cancelled_and_deleted(*, restart: bool) -> None:
    requests = [request("paused", "paused", priority=9), request("cancelled", "cancelled", priority=8), request("last")]
    offsets = SavedOffsets()

    async def body(bench: Bench) -> None:
        bench.hook.instruct(requests)
        await serve(bench, "last")
        assert rows(bench) == list(range(1, 11))
        assert (saved(bench, "cancelled") or {})["state"] == "cancelled"

    async def deleted(bench: Bench) -> None:
        bench.hook.instruct([request("paused", priority=9)])
        bench.take()
        assert saved(bench, "last") is saved(bench, "cancelled") is None
        await serve(bench, "paused")

    async def both(bench: Bench) -> None:
        await body(bench)
        await deleted(bench)

    if restart:
        with_hook(lambda: Bench(Session(), offsets, snapshot="never"), body)
        bench = with_hook(lambda: Bench(Session(), offsets, snapshot="never"), deleted)
        assert rows(bench) == list(range(1, 11))
    else:
        bench = with_hook(lambda: Bench(Session(), offsets, snapshot="never"), both)
        assert rows(bench) == [*range(1, 11), *range(1, 11)]


def test_requests_of_other_tables_are_not_read() -> None:
    async def body(bench: Bench) -> None:
        bench.hook.instruct([{**request("other"), "tables": ["ks.u"]}, request("one", created_ms=2)])
        await serve(bench, "one")

    bench = with_hook(lambda: Bench(Session(), snapshot="never"), body)
    assert saved(bench, "other") is None


# REST.

HALVES = ((MIN_TOKEN, 0), (0, MAX_TOKEN))


def share(
    index: int, *, done: bool = False, generation: int = 1, name: str = "one", rows: int = 0, **more: Any
) -> tuple[Position, Position]:
    whole = (TokenRange(*HALVES[index]),)
    group = StreamGroup(TABLE, Generation(generation), f"{generation}-{index}", False, (bytes(16),), HALVES[index])
    times = {"started_ms": 1_000, "finished_ms": 2_000 if done else 0} | more
    return partition_of(group, name), to_offset(SnapshotPosition(whole, () if done else whole, "id", rows, **times))


def test_a_request_is_over_once_all_of_the_ring_was_read() -> None:
    def shown(*saved: tuple[Position, Position]) -> dict[str, Any]:
        (row,) = list_snapshots([TABLE], [request("one")], saved)
        return row

    waiting = shown()
    assert (waiting["state"], [row["state"] for row in waiting["tables"]]) == ("waiting", ["waiting"])
    half = shown(share(0, done=True, rows=5))
    assert (half["state"], half["percent"], half["rows_done"]) == ("running", 50.0, 5)
    assert half["tables"][0]["rows_total"] == 10
    over = shown(share(0, done=True, rows=5), share(1, done=True, rows=7))
    assert (over["state"], over["percent"], over["rows_done"], over["finished_ms"]) == ("completed", 100.0, 12, 2_000)
    # A new generation took the first half over, and the older one is not deleted yet.
    moved = shown(share(0, done=True, rows=5), share(0, done=True, rows=5, generation=2), share(1, generation=2))
    assert (moved["state"], moved["rows_done"]) == ("running", 5)
    cancelled = shown(share(0, done=True), share(1, cancelled=True))
    assert cancelled["state"] == "cancelled"


def test_the_first_snapshot_is_shown_without_a_request() -> None:
    (row,) = list_snapshots([TABLE], [], [share(0, name="initial"), share(1, name="initial")])
    assert (row["id"], row["state"], row["origin"]) == ("initial", "running", "initial")
    # A table that came later and is not wanted.
    assert list_snapshots([TABLE], [], [share(0, name="initial", done=True, started_ms=0, finished_ms=0)]) == []


def test_requests_that_are_refused() -> None:
    config = ScyllaConnector.config_def.parse(
        {"topic.prefix": "s", "scylla.cluster.ip.addresses": "127.0.0.1", "scylla.table.names": "ks.t,ks.u"}
    )
    assert ScyllaConnector.check_snapshot(config, {"tables": [r"ks\..*"]})["tables"] == [r"ks\..*"]
    for refused, word in (
        ({"tables": ["ks"]}, "none of the connector's tables"),
        ({"tables": ["ks.t"], "conditions": {"ks.t": "pk > 1"}}, "conditions"),
        ({"tables": ["ks.t"], "surrogate_key": "a"}, "surrogate_key"),
        ({"tables": []}, "tables must be"),
    ):
        with pytest.raises(ConfigInvalid, match=word):
            ScyllaConnector.check_snapshot(config, refused)
    skipping = ScyllaConnector.config_def.parse({**config.raw, "skipped.operations": "r"})
    with pytest.raises(ConfigInvalid, match=r"skipped\.operations"):
        ScyllaConnector.check_snapshot(skipping, {"tables": ["ks.t"]})


def test_the_lag_is_that_of_the_oldest_position() -> None:
    unknown = measure_lag([TABLE], [])
    assert (unknown["time_behind_s"], unknown["tables"][0]["time_behind_s"]) == (None, None)
    window = {
        "window_start": "13814000-1dd2-11b2-8080-808080808080",
        "window_end": "13814000-1dd2-11b2-7f7f-7f7f7f7f7f7f",
    }
    behind = measure_lag([TABLE, TableId("ks", "u")], [(source_partition(GROUP), window), share(0, done=True)])
    assert behind["tables"][0]["time_behind_s"] > 1e9, "1970"
    assert behind["time_behind_s"] is None, "of the other table nothing is known"
