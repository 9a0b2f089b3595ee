"""The snapshot as the reader knows it: holds, pages that fail, definitions that change, rows handed over in parts."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from connectors.api import SameAs, SourceRecord
from connectors.cql.cluster.session import ResultPage, SchemaChanged
from connectors.debezium_metrics import Mirror
from connectors.errors import Fatal, Retriable
from connectors.scylla.events.ums_signals import ScyllaUmsSignals
from connectors.scylla.metrics import DEBEZIUM, METRICS, SNAPSHOT_PROGRESS, SNAPSHOT_RUNNING
from connectors.scylla.model import CdcOptions, Generation, ScyllaColumn, StreamGroup, TableId, TableVersion
from connectors.scylla.positions import source_partition
from connectors.scylla.snapshot import merging as snapshot
from connectors.scylla.snapshot.feeds import SnapshotFeeds
from connectors.scylla.snapshot.hook import ScyllaSnapshot
from connectors.scylla.snapshot.merging import (
    SnapshotPosition,
    from_offset,
    later_tables,
    of_dropped,
    partition_of,
    to_offset,
    unwrap_range,
)
from connectors.scylla.snapshot.report import SnapshotReport
from connectors.scylla.source.feeds import TableFeed
from connectors.testing.contexts import RecordedMetrics, SavedOffsets
from tests.support.eventually import eventually_async, pass_turns
from tests.support.settings import scylla_events, scylla_reading
from tests.unit.connectors.scylla.snapshot_world import INT, TABLE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connectors.api import Position

VERSION = TableVersion(
    TABLE,
    (ScyllaColumn("pk", INT, "partition_key", 0), ScyllaColumn("a", INT, "regular")),
    CdcOptions(),
    "v1",
    table_id="first",
)
GROUP = StreamGroup(TABLE, Generation(0), "0", False, (bytes(16),), (0, 1000))


#: The confidence window: the stream has to be so far past the start of the snapshot.
SETTLE_MS = 500


def now() -> int:
    """Milliseconds: at each call, since a window counts only as long as it is recent and a run of all tests takes longer."""
    return int(time.time() * 1000)


def head() -> int:
    """A position of the stream after all starts so far."""
    return now() + 1_000


class Builder:
    """Makes records of the cells."""

    def snapshot_row(
        self,
        partition: Position,
        offset: Position,
        cells: Any,
        write_time_us: int,
        out: list[SourceRecord],
        bad: list[Any],
    ) -> None:
        del bad
        out.append(SourceRecord(partition, offset, "t", (cells, write_time_us)))


class Session:
    """Answers with a row per token; ``faults`` are raised first."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.asked: list[bytes | None] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def page(
        self, _: Any, span: tuple[int, int], *, fetch_size: int, state: bytes | None = None, **__: Any
    ) -> ResultPage:
        self.asked.append(state)
        await self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        at = int(state) if state else span[0] + 1
        rows = [(token, token, token, 5) for token in range(at, min(at + fetch_size, 11))]
        return ResultPage(("t", "pk", "a", "w"), rows, str(at + fetch_size).encode() if at + fetch_size < 11 else None)


class Bench:
    """A hook, and the reader's side of it."""

    def __init__(self, session: Session, offsets: SavedOffsets | None = None, **settings: Any) -> None:
        self.feed = TableFeed(TABLE, (VERSION,), lambda _: Builder())  # type: ignore[arg-type,return-value]
        self.offsets = offsets or SavedOffsets()
        self.offsets.put(source_partition(GROUP), {"window_start": "x"})
        self.refreshed = 0
        #: The servers' clock before this machine's.
        self.ahead_ms = 0
        self.metrics = RecordedMetrics(METRICS)
        self.woken = asyncio.Event()
        self.records: list[SourceRecord] = []
        settings = {
            "snapshot": "initial",
            "snapshot_rows": 4,
            "retry_base_ms": 1,
            "retry_max_ms": 1,
            "confidence_ms": SETTLE_MS,
        } | settings
        self.hook = ScyllaSnapshot(
            session,  # type: ignore[arg-type]
            scylla_reading(**settings),
            self.offsets,
            [GROUP],
            feeds=SnapshotFeeds(lambda _: self.feed, self.refresh),
            now_ms=lambda: now() + self.ahead_ms,
            report=SnapshotReport(
                Mirror(self.metrics, "scylla", "s", DEBEZIUM), logging.LoggerAdapter(logging.getLogger("test"))
            ),
        )

    async def refresh(self, feed: TableFeed) -> None:
        assert feed is self.feed
        self.refreshed += 1

    def take(self, limit: int = 100) -> int:
        out: list[SourceRecord] = []
        offsets: list[tuple[Position, Position | None]] = []
        self.hook.take(limit, out, [], offsets)
        for record in out:
            self.offsets.put(record.source_partition, record.source_offset)
        for partition, offset in offsets:
            self.offsets.put(partition, offset)
        self.records += out
        return len(out)

    def number(self, name: str) -> float:
        return self.metrics.values[f"debezium_metrics_{name}"]

    @property
    def finished(self) -> bool:
        return (self.offsets.get(partition_of(GROUP)) or {}).get("token_range_left") == ""

    async def until(self, condition: Callable[[], bool]) -> None:
        await eventually_async(condition, "the snapshot has come so far", every=0)

    async def serve(self, limit: int = 100) -> None:
        async def turns() -> bool:
            while not self.finished:
                if not self.hook.holds(GROUP):
                    self.hook.window_ended(GROUP, head())
                self.take(limit)
                await pass_turns()
            return True

        await asyncio.wait_for(turns(), 10)


def with_hook(bench: Callable[[], Bench], body: Callable[[Bench], Awaitable[None]]) -> Bench:
    async def main() -> Bench:
        new_bench = bench()
        new_bench.hook.window_ended(GROUP, head())
        job = asyncio.create_task(new_bench.hook.run(new_bench.woken.set))
        try:
            await body(new_bench)
        finally:
            job.cancel()
            results = await asyncio.gather(job, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]
        return new_bench

    return asyncio.run(main())


def test_groups_that_join_look_at_each_saved_position_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at all positions for each group: a table has thousands of both."""
    looked_at = 0

    def counting(offset: Position) -> SnapshotPosition:
        nonlocal looked_at
        looked_at += 1
        return from_offset(offset)

    groups = [
        StreamGroup(TABLE, Generation(generation), str(number), False, (bytes(16),), (number * 100, number * 100 + 100))
        for generation in (0, 7)
        for number in range(50)
    ]
    offsets = SavedOffsets()
    for group in groups[:50]:
        tokens = unwrap_range(group.token_range or (0, 0))
        offsets.put(
            partition_of(group), to_offset(SnapshotPosition(tokens, () if group.name != "7" else tokens, "first"))
        )
    monkeypatch.setattr(snapshot, "from_offset", counting)
    bench = Bench(Session(), offsets)
    for group in groups[50:]:
        bench.hook.window_ended(group, head())
    bench.take()
    assert looked_at == 50
    assert {
        partition["generation_start"]: offset
        for partition, offset in offsets.items()
        if "snapshot" in partition and offset["token_range_left"]
    }.keys() == {"7"}
    assert sum("snapshot" in partition for partition, _ in offsets.items()) == 50, "the older ones are gone"


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_all_rows_once_and_the_end_is_saved(limit: int) -> None:
    bench = with_hook(lambda: Bench(Session()), lambda bench: bench.serve(limit))

    assert [record.value[0][0] for record in bench.records] == list(range(1, 11))
    assert bench.metrics.values[SNAPSHOT_PROGRESS] == 1
    assert bench.metrics.values[SNAPSHOT_RUNNING] == 0
    assert not bench.hook.holds(GROUP)
    assert bench.hook.row_filter(GROUP) is None


def test_numbers_go_on_after_restarts_and_stay_after_the_end() -> None:
    offsets = SavedOffsets()

    async def half(bench: Bench) -> None:
        def turn() -> bool:
            if not bench.hook.holds(GROUP):
                bench.hook.window_ended(GROUP, head())
            return bool(bench.take(3))

        bench.take()
        assert (bench.number("TotalTableCount"), bench.number("RemainingTableCount")) == (1, 1)
        await bench.until(turn)
        assert len(bench.records) == 3

    async def rest(bench: Bench) -> None:
        bench.take()
        assert bench.number("RowsScanned") == 3
        assert [bench.number(name) for name in ("SnapshotRunning", "SnapshotCompleted", "RemainingTableCount")] == [
            1,
            0,
            1,
        ]
        await bench.serve()
        bench.take()
        assert len(bench.records) == 7
        assert [bench.number(name) for name in ("SnapshotRunning", "SnapshotCompleted", "RemainingTableCount")] == [
            0,
            1,
            0,
        ]

    async def over(bench: Bench) -> None:
        bench.take()
        assert (bench.number("SnapshotCompleted"), bench.number("TotalTableCount")) == (1, 0)
        assert (bench.number("SnapshotAborted"), bench.number("SnapshotSkipped")) == (0, 0)

    with_hook(lambda: Bench(Session(), offsets), half)
    second = with_hook(lambda: Bench(Session(), offsets), rest)
    third = with_hook(lambda: Bench(Session(), offsets), over)
    assert second.number("RowsScanned") == third.number("RowsScanned") == 10
    assert second.number("SnapshotDurationInSeconds") == third.number("SnapshotDurationInSeconds") > 0


def test_a_group_of_which_the_reader_said_nothing_yet_counts_as_it_is_saved() -> None:
    async def main() -> None:
        bench = Bench(Session())
        bench.take()
        assert (bench.number("SnapshotRunning"), bench.number("RemainingTableCount")) == (1, 1)
        done = Bench(Session())
        done.offsets.put(partition_of(GROUP), {"token_range": "0:1000", "token_range_left": "", "rows": "5"})
        done.take()
        assert (done.number("SnapshotRunning"), done.number("SnapshotCompleted"), done.number("RowsScanned")) == (
            0,
            1,
            5,
        )
        skipped = Bench(Session(), skipped=frozenset("r"))
        skipped.hook.window_ended(GROUP, head())
        skipped.take()
        assert (skipped.number("SnapshotSkipped"), skipped.number("SnapshotCompleted")) == (1, 0)

    asyncio.run(main())


@pytest.mark.parametrize("fault", [Retriable("slow"), SchemaChanged("gone")])
def test_a_page_that_fails_is_read_again(fault: Exception) -> None:
    bench = with_hook(lambda: Bench(Session(fault, fault)), lambda bench: bench.serve())

    assert len(bench.records) == 10
    assert bench.refreshed == (2 if isinstance(fault, SchemaChanged) else 0)


def test_tries_are_bounded() -> None:
    async def main() -> None:
        bench = Bench(Session(*[Retriable("away")] * 9), max_tries=3)
        bench.hook.window_ended(GROUP, head())
        await asyncio.wait_for(bench.hook.run(bench.woken.set), 10)

    with pytest.raises(Retriable, match="in a row"):
        asyncio.run(main())


def test_the_group_is_held_from_before_the_page_is_read_until_it_was_handed_over() -> None:
    async def body(bench: Bench) -> None:
        session: Any = bench.hook._pages.pages._session
        await bench.until(lambda: len(session.asked) == 1)
        assert bench.hook.holds(GROUP)
        assert bench.take() == 0
        session.gate.set()
        await bench.until(lambda: bench.take() > 0)
        assert not bench.hook.holds(GROUP), "the reader was refused: it has its turn"
        await pass_turns()
        assert len(session.asked) == 1
        bench.hook.window_ended(GROUP, head())
        await bench.until(lambda: len(session.asked) == 2)

    def make() -> Bench:
        session = Session()
        session.gate.clear()
        return Bench(session)

    with_hook(make, body)


def test_a_page_of_an_older_definition_is_thrown_away() -> None:
    async def body(bench: Bench) -> None:
        session: Any = bench.hook._pages.pages._session
        bench.hook.holds(GROUP)
        await bench.until(lambda: len(session.asked) == 1)
        await bench.until(lambda: next(iter(bench.hook._groups.values())).page is not None)
        added = TableVersion(
            TABLE, (*VERSION.columns, ScyllaColumn("b", INT, "regular")), CdcOptions(), "v2", since_us=1
        )
        bench.feed.update((VERSION, added))
        bench.hook.holds(GROUP)
        assert bench.take() == 0

    with_hook(lambda: Bench(Session()), body)


def test_without_a_saved_position_two_windows_have_to_end_first() -> None:
    async def main() -> None:
        session = Session()
        bench = Bench(session)
        bench.offsets.put(source_partition(GROUP), None)
        bench.hook.window_ended(GROUP, head())
        snapshot = bench.hook._groups[TABLE, 0, "0"]
        for _ in range(2):
            assert not snapshot.may_begin
            bench.hook.holds(GROUP)
            bench.hook.window_ended(GROUP, head())
        assert snapshot.may_begin

    asyncio.run(main())


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000, -3_600_000])
def test_the_stream_has_to_pass_the_start_first(ahead_ms: int) -> None:
    """Rows written before the start, or soon after, may have no change in the log: cdc may have been turned on just then."""

    async def main() -> None:
        session = Session()
        bench = Bench(session)
        bench.ahead_ms = ahead_ms
        # The confidence window: the place is that long before the servers' time.
        bench.hook.window_ended(GROUP, now() + ahead_ms - 5_000)
        started_ms = bench.hook._groups[TABLE, 0, "0"].position.started_ms
        job = asyncio.create_task(bench.hook.run(bench.woken.set))
        for watermark in (started_ms - 4_000, started_ms, started_ms + SETTLE_MS - 1):
            assert not bench.hook.holds(GROUP)
            bench.hook.window_ended(GROUP, watermark)
            await pass_turns(20)
            assert not session.asked
        bench.hook.holds(GROUP)
        bench.hook.window_ended(GROUP, started_ms + SETTLE_MS)
        await bench.until(lambda: bool(session.asked))
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)

    asyncio.run(main())


def test_a_ums_message_ends_the_snapshot_of_a_table() -> None:
    def make() -> Bench:
        bench = Bench(Session())
        bench.hook._signals = ScyllaUmsSignals(scylla_events(topic_prefix="p", output_format="ums"), {})
        return bench

    bench = with_hook(make, lambda bench: bench.serve(3))
    assert [record.value[0][0] for record in bench.records[:-1]] == list(range(1, 11))
    last = bench.records[-1]
    assert last.value["protocol"] == {"type": "data_batch_termination", "version": "1.3", "part": None}
    assert last.partition == SameAs(f"data_initial_data.{last.value['schema']['namespace']}")
    assert last.source_offset["token_range_left"] == ""


def test_unknown_ranges_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(Fatal, match=r"snapshot\.mode=never"):
            Bench(Session()).hook.window_ended(StreamGroup(TABLE, Generation(0), "0", False, (bytes(16),)), head())

    asyncio.run(main())


def test_a_query_that_is_refused_from_its_start_ends_the_task() -> None:
    session = Session(Fatal("no such function"))

    async def body(_: Bench) -> None:
        await eventually_async(lambda: session.asked, "a query is sent", every=0)
        await pass_turns(20)

    with pytest.raises(Fatal, match="no such function"):
        with_hook(lambda: Bench(session), body)
    assert session.asked == [None]


def replaced(version: TableVersion = VERSION) -> TableVersion:
    """The table after it was dropped and recreated."""
    return replace(version, table_id="second", since_us=1)


def left_of(bench: Bench) -> str:
    return str((bench.offsets.get(partition_of(GROUP)) or {}).get("token_range_left"))


def test_a_table_that_is_made_again_is_read_again_without_a_restart_and_once() -> None:
    offsets = SavedOffsets()

    async def body(bench: Bench) -> None:
        await bench.serve()
        bench.feed.update((VERSION, replaced()))
        bench.take()
        assert left_of(bench) == "0:1000"
        await bench.serve()
        assert [record.value[0][0] for record in bench.records] == 2 * list(range(1, 11))

    first = with_hook(lambda: Bench(Session(), offsets), body)
    assert (first.offsets.get(partition_of(GROUP)) or {})["table_id"] == "second"
    second = Bench(Session(), offsets)
    second.feed.update((VERSION, replaced()))
    second.hook.window_ended(GROUP, head())
    assert not second.hook.holds(GROUP)
    assert second.take() == 0


def test_what_is_saved_of_an_older_generation_goes_with_the_table_that_is_dropped() -> None:
    """Groups of several tasks together cover the tokens of an older one: until the table is dropped, no task may remove it."""
    older = partition_of(replace(GROUP, generation=Generation(-1), token_range=(0, 2000)))
    offsets = SavedOffsets()
    offsets.put(older, {"token_range": "0:2000", "token_range_left": "0:2000", "table_id": "first"})

    async def body(bench: Bench) -> None:
        await bench.serve()
        assert bench.offsets.get(older)
        bench.feed.update((VERSION, replaced()))
        bench.take()
        assert bench.offsets.get(older) is None

    with_hook(lambda: Bench(Session(), offsets), body)


def test_rows_of_the_dropped_table_that_are_still_being_read_are_thrown_away() -> None:
    async def body(bench: Bench) -> None:
        session: Any = bench.hook._pages.pages._session
        await bench.until(lambda: len(session.asked) == 1)
        bench.feed.update((VERSION, replaced()))
        bench.take()
        session.gate.set()
        await bench.until(lambda: not bench.hook._pages.pages.stats.in_flight)
        bench.hook.holds(GROUP)
        assert bench.take() == 0, "the stream has not passed the new start"
        await bench.serve()
        assert [record.value[0][0] for record in bench.records] == list(range(1, 11))

    def make() -> Bench:
        session = Session()
        session.gate.clear()
        return Bench(session)

    with_hook(make, body)


@pytest.mark.parametrize("restart", [False, True])
def test_a_table_whose_cdc_was_off_is_read_again_once_it_is_on(*, restart: bool) -> None:
    offsets = SavedOffsets()
    off = replace(VERSION, options=CdcOptions(enabled=False))

    async def turned_off(bench: Bench) -> None:
        await bench.serve()
        if not restart:
            bench.feed.update((off,))
            bench.take()
            assert left_of(bench) == "0:1000"
            await back_on(bench)

    async def back_on(bench: Bench) -> None:
        bench.feed.update((off,))
        session: Any = bench.hook._pages.pages._session
        asked = len(session.asked)
        for _ in range(20):
            if not bench.hook.holds(GROUP):
                bench.hook.window_ended(GROUP, now() + 3_600_000)
            bench.take()
            await pass_turns()
        assert len(session.asked) == asked, "nothing is read while changes are not logged"
        bench.feed.update((VERSION,))
        bench.records.clear()
        await bench.serve()
        assert len(bench.records) == 10

    with_hook(lambda: Bench(Session(), offsets), turned_off)
    if restart:

        def make() -> Bench:
            bench = Bench(Session(), offsets)
            bench.feed.update((off,))
            return bench

        with_hook(make, back_on)


def test_a_table_that_says_nothing_of_cdc_is_not_taken_for_one_whose_cdc_is_off() -> None:
    async def body(bench: Bench) -> None:
        await bench.serve()
        bench.feed.update((replace(VERSION, options=CdcOptions(enabled=False, stated=False)),))
        bench.take()
        assert left_of(bench) == ""

    with_hook(lambda: Bench(Session()), body)


def test_without_the_option_later_tables_have_no_snapshot_now_or_ever() -> None:
    offsets = SavedOffsets()
    later = replace(GROUP, later=True)
    for group, enabled in ((later, False), (GROUP, False), (GROUP, True)):
        bench = Bench(Session(), offsets, snapshot_new_tables=enabled)
        bench.hook.window_ended(group, head())
        bench.take()
        assert left_of(bench) == ""
        assert not bench.hook._groups[TABLE, 0, "0"].may_begin
        assert bench.number("RowsScanned") == 0
    assert later_tables({TABLE: "first"}, offsets.items()) == {TABLE}


def test_without_the_option_a_table_that_is_made_again_is_left_out() -> None:
    async def body(bench: Bench) -> None:
        await bench.serve()
        bench.feed.update((VERSION, replaced()))
        bench.take()
        assert (left_of(bench), (bench.offsets.get(partition_of(GROUP)) or {})["table_id"]) == ("", "second")
        bench.feed.update((replace(replaced(), options=CdcOptions(enabled=False)),))
        bench.take()
        assert len(bench.records) == 10

    with_hook(lambda: Bench(Session(), snapshot_new_tables=False), body)


def test_which_tables_are_later() -> None:
    other, third = TableId("ks", "other"), TableId("ks", "third")
    ids = {TABLE: "first", other: "o", third: "t"}
    offsets = SavedOffsets()
    assert later_tables(ids, offsets.items()) == set(), "the first start: none is later"
    offsets.put(source_partition(GROUP), {"window_start": "x"})
    assert later_tables(ids, offsets.items()) == {other, third}, "no position of them, and some of another"
    offsets.put(source_partition(replace(GROUP, table=other)), {"window_start": "x"})
    assert later_tables(ids, offsets.items()) == {third}, "streams only: the snapshot was turned on"
    started_offset = {"token_range": "0:10", "token_range_left": "0:10", "table_id": "o", "started_ms": "7"}
    offsets.put(partition_of(replace(GROUP, table=other)), started_offset)
    assert later_tables(ids, offsets.items()) == {third}
    assert later_tables({**ids, other: "o2"}, offsets.items()) == {other, third}, "made again"
    offsets.put(partition_of(replace(GROUP, table=other, name="1")), {"token_range": "10:20", "token_range_left": ""})
    assert later_tables(ids, offsets.items()) == {other, third}, "left out before"


def test_positions_of_a_dropped_table_go_once_there_are_newer_streams() -> None:
    newer = replace(GROUP, generation=Generation(7))
    offsets = SavedOffsets()
    same, unknown = replace(GROUP, name="1"), replace(GROUP, name="2")
    for group, table_id in ((GROUP, "first"), (same, "second"), (newer, "first"), (unknown, "")):
        offsets.put(partition_of(group), {"token_range": "0:10", "token_range_left": "", "table_id": table_id})
    assert of_dropped(newer, "second", offsets.items()) == [partition_of(GROUP)]
    assert of_dropped(GROUP, "second", offsets.items()) == of_dropped(newer, "", offsets.items()) == []
