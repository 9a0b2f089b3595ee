"""The snapshot as the reader knows it: holds, pages that fail, definitions that change, rows handed over in parts."""
from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from connectors.api import SourceRecord
from connectors.cql.session import Page, SchemaChanged
from connectors.errors import Fatal, Retriable
from connectors.scylla.config import ReadSettings
from connectors.scylla.feeds import TableFeed
from connectors.scylla.metrics import METRICS, SNAPSHOT_PROGRESS, SNAPSHOT_RUNNING
from connectors.scylla.model import CdcOptions, Column, Generation, StreamGroup, TableVersion
from connectors.scylla.positions import source_partition
from connectors.scylla.snapshot import partition_of
from connectors.scylla.snapshot_hook import Snapshot
from connectors.testing.contexts import RecordedMetrics, SavedOffsets
from tests.unit.connectors.scylla.snapshot_world import INT, TABLE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connectors.api import Position

VERSION = TableVersion(TABLE, (Column("pk", INT, "partition_key", 0), Column("a", INT, "regular")), CdcOptions(), "v1")
GROUP = StreamGroup(TABLE, Generation(0), "0", False, (bytes(16),), (0, 1000))
NOW = int(time.time() * 1000)


class Builder:
    """Makes records of the cells."""

    def snapshot_row(self, partition: Position, offset: Position, cells: Any, write_time_us: int, out: list[SourceRecord],
                     bad: list[Any]) -> None:
        del bad
        out.append(SourceRecord(partition, offset, "t", (cells, write_time_us)))


class Session:
    """Answers with a row per token; ``faults`` are raised first."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.asked: list[bytes | None] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def page(self, *_: Any, fetch_size: int, state: bytes | None = None, **__: Any) -> Page:
        self.asked.append(state)
        await self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        at = int(state or b"1")
        rows = [(token, token, token, 5) for token in range(at, min(at + fetch_size, 11))]
        return Page(("t", "pk", "a", "w"), rows, str(at + fetch_size).encode() if at + fetch_size < 11 else None)


class Bench:
    """A hook, and the reader's side of it."""

    def __init__(self, session: Session, offsets: SavedOffsets | None = None, **settings: Any) -> None:
        self.feed = TableFeed(TABLE, (VERSION,), lambda _: Builder())  # type: ignore[arg-type,return-value]
        self.offsets = offsets or SavedOffsets()
        self.offsets.put(source_partition(GROUP), {"window_start": "x"})
        self.refreshed = 0
        self.metrics = RecordedMetrics(METRICS)
        self.woken = asyncio.Event()
        self.records: list[SourceRecord] = []
        settings = {"snapshot": "initial", "snapshot_rows": 4, "retry_base_ms": 1, "retry_max_ms": 1} | settings
        self.hook = Snapshot(session, ReadSettings(**settings), self.offsets,  # type: ignore[arg-type]
                             feed_of=lambda _: self.feed, refresh=self.refresh, task_metrics=self.metrics,
                             log=logging.LoggerAdapter(logging.getLogger("test")))

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

    @property
    def finished(self) -> bool:
        return (self.offsets.get(partition_of(GROUP)) or {}).get("token_range_left") == ""

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0)

    async def serve(self, limit: int = 100) -> None:
        async def turns() -> bool:
            while not self.finished:
                if not self.hook.holds(GROUP):
                    self.hook.window_ended(GROUP, NOW)
                self.take(limit)
                await asyncio.sleep(0)
            return True
        await asyncio.wait_for(turns(), 10)


def with_hook(bench: Callable[[], Bench], body: Callable[[Bench], Awaitable[None]]) -> Bench:
    async def main() -> Bench:
        made = bench()
        made.hook.window_ended(GROUP, NOW)
        job = asyncio.create_task(made.hook.run(made.woken.set))
        try:
            await body(made)
        finally:
            job.cancel()
            results = await asyncio.gather(job, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]
        return made
    return asyncio.run(main())


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_all_rows_once_and_the_end_is_saved(limit: int) -> None:
    bench = with_hook(lambda: Bench(Session()), lambda bench: bench.serve(limit))

    assert [record.value[0][0] for record in bench.records] == list(range(1, 11))
    assert bench.metrics.values[SNAPSHOT_PROGRESS] == 1
    assert bench.metrics.values[SNAPSHOT_RUNNING] == 0
    assert not bench.hook.holds(GROUP)
    assert bench.hook.row_filter(GROUP) is None


@pytest.mark.parametrize("fault", [Retriable("slow"), SchemaChanged("gone")])
def test_a_page_that_fails_is_read_again(fault: Exception) -> None:
    bench = with_hook(lambda: Bench(Session(fault, fault)), lambda bench: bench.serve())

    assert len(bench.records) == 10
    assert bench.refreshed == (2 if isinstance(fault, SchemaChanged) else 0)


def test_tries_are_bounded() -> None:
    async def main() -> None:
        bench = Bench(Session(*[Retriable("away")] * 9), max_tries=3)
        bench.hook.window_ended(GROUP, NOW)
        await asyncio.wait_for(bench.hook.run(bench.woken.set), 10)

    with pytest.raises(Retriable, match="in a row"):
        asyncio.run(main())


def test_the_group_is_held_from_before_the_page_is_read_until_it_was_handed_over() -> None:
    async def body(bench: Bench) -> None:
        session: Any = bench.hook._session
        await bench.until(lambda: len(session.asked) == 1)
        assert bench.hook.holds(GROUP)
        assert bench.take() == 0
        session.gate.set()
        await bench.until(lambda: bench.take() > 0)
        assert not bench.hook.holds(GROUP), "the reader was refused: it has its turn"
        await asyncio.sleep(0)
        assert len(session.asked) == 1
        bench.hook.window_ended(GROUP, NOW)
        await bench.until(lambda: len(session.asked) == 2)

    def make() -> Bench:
        session = Session()
        session.gate.clear()
        return Bench(session)
    with_hook(make, body)


def test_a_page_of_an_older_definition_is_thrown_away() -> None:
    async def body(bench: Bench) -> None:
        session: Any = bench.hook._session
        bench.hook.holds(GROUP)
        await bench.until(lambda: len(session.asked) == 1)
        await bench.until(lambda: next(iter(bench.hook._groups.values())).page is not None)
        added = TableVersion(TABLE, (*VERSION.columns, Column("b", INT, "regular")), CdcOptions(), "v2", since_us=1)
        bench.feed.update((VERSION, added))
        bench.hook.holds(GROUP)
        assert bench.take() == 0

    with_hook(lambda: Bench(Session()), body)


def test_without_a_saved_position_two_windows_have_to_end_first() -> None:
    async def main() -> None:
        session = Session()
        bench = Bench(session)
        bench.offsets.put(source_partition(GROUP), None)
        bench.hook.window_ended(GROUP, NOW)
        snapshot = bench.hook._groups[TABLE, 0, "0"]
        for _ in range(2):
            assert not snapshot.may_begin
            bench.hook.holds(GROUP)
            bench.hook.window_ended(GROUP, NOW)
        assert snapshot.may_begin
    asyncio.run(main())


def test_unknown_ranges_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(Fatal, match=r"snapshot\.mode=never"):
            Bench(Session()).hook.window_ended(StreamGroup(TABLE, Generation(0), "0", False, (bytes(16),)), NOW)
    asyncio.run(main())
