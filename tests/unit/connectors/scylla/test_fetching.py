"""Lanes that read windows of a log: which window a lane reads that had to wait for its turn."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Any

from connectors.cql.cluster.session import ResultPage
from connectors.cql.types import CqlType
from connectors.scylla import positions
from connectors.scylla.model import (
    CdcOptions,
    Generation,
    ReadPosition,
    ScyllaColumn,
    StreamGroup,
    TableId,
    TableVersion,
)
from connectors.scylla.source.feeds import TableFeed
from connectors.scylla.source.fetching import FetchedPage, Fetcher, FetchOwner, LaneSection, LaneTask
from connectors.scylla.source.lanes import GroupState, Lane
from connectors.scylla.source.windows import WindowRules, millis_of
from tests.support.eventually import pass_turns
from tests.support.settings import scylla_reading

TABLE = TableId("ks", "t")
START = 1_700_000_000_000


class SlowLog:
    """A session that answers queries once it is released; all of its pages are empty."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        #: Of each query the last millisecond that it asks for.
        self.ends: list[int] = []

    async def page(self, _: str, parameters: Any, **__: Any) -> ResultPage:
        self.ends.append(millis_of(parameters[2]))
        await self.released.wait()
        return ResultPage((), [], None)


def take_page(page: FetchedPage) -> None:
    """Finish a page without rows, as the side that makes events of pages does."""
    for state in page.window.groups:
        state.advance(page.window.end_ms)
    page.task.page_taken.set()


async def test_a_window_that_waited_for_its_query_reaches_up_to_now() -> None:
    now_ms = START + 1_000
    log = SlowLog()

    async def refresh(_: TableFeed) -> None:
        await pass_turns()

    jobs: list[asyncio.Task[None]] = []
    fetcher = Fetcher(
        log,  # type: ignore[arg-type]  # it needs no more of a session
        scylla_reading(max_queries=1),
        logging.LoggerAdapter(logging.getLogger("test"), {}),
        owner=FetchOwner(
            safe_ms=lambda: now_ms,
            take_page=take_page,
            refresh=refresh,
            report_stale=lambda _: None,
            watch_lane=jobs.append,
        ),
        hook=None,
        rules=WindowRules(head_ms=500),
    )
    columns = (ScyllaColumn("pk", CqlType("int"), "partition_key", 0), ScyllaColumn("v", CqlType("int"), "regular"))
    feed = TableFeed(TABLE, (TableVersion(TABLE, columns, CdcOptions(), "one"),), lambda _: None)  # type: ignore[arg-type,return-value]
    section = LaneSection(feed, START, None, tablets=False)
    fetcher.sections.append(section)
    for number in range(2):
        group = StreamGroup(TABLE, Generation(START, None), str(number), False, (bytes([number]) * 16,))
        state = GroupState(group, positions.source_partition(group), ReadPosition(START, START))
        fetcher.start(LaneTask(section, Lane([state], 60_000)))
    await pass_turns()
    # The second lane planned its window at the same time, and waits for its turn.
    assert log.ends == [START + 999]
    now_ms = START + 9_000
    log.released.set()
    async with asyncio.timeout(20):
        while len(log.ends) < 2:
            await pass_turns()
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    assert log.ends[1] == START + 8_999


class HoldsSecond:
    """A snapshot that holds the group "1" for good."""

    async def run(self, wake: Any) -> None:
        """Nothing."""

    def holds(self, group: StreamGroup) -> bool:
        return group.name == "1"

    def window_ended(self, group: StreamGroup, watermark_ms: int) -> None:
        """Nothing."""

    def row_filter(self, group: StreamGroup) -> None:
        """Nothing."""

    def take(self, *_: Any) -> bool:
        return False


async def test_a_lane_whose_groups_are_all_held_takes_over_no_others() -> None:
    """It waits until the snapshot lets go, and they would wait with it."""
    now_ms = START + 100
    log = SlowLog()
    log.released.set()

    async def refresh(_: TableFeed) -> None:
        await pass_turns()

    jobs: list[asyncio.Task[None]] = []
    fetcher = Fetcher(
        log,  # type: ignore[arg-type]  # it needs no more of a session
        scylla_reading(),
        logging.LoggerAdapter(logging.getLogger("test"), {}),
        owner=FetchOwner(lambda: now_ms, take_page, refresh, lambda _: None, jobs.append),
        hook=HoldsSecond(),
        rules=WindowRules(head_ms=500),
    )
    columns = (ScyllaColumn("pk", CqlType("int"), "partition_key", 0), ScyllaColumn("v", CqlType("int"), "regular"))
    feed = TableFeed(TABLE, (TableVersion(TABLE, columns, CdcOptions(), "one"),), lambda _: None)  # type: ignore[arg-type,return-value]
    section = LaneSection(feed, START, None, tablets=False)
    fetcher.sections.append(section)
    for number in range(2):
        group = StreamGroup(TABLE, Generation(START, None), str(number), False, (bytes([number]) * 16,))
        state = GroupState(group, positions.source_partition(group), ReadPosition(START, START))
        fetcher.start(LaneTask(section, Lane([state], 60_000)))
    await pass_turns()
    assert log.ends == []
    now_ms = START + 9_000
    async with asyncio.timeout(20):
        while not log.ends:
            await pass_turns()
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    assert log.ends == [START + 8_999]


class PageRows(list[tuple[Any, ...]]):
    """Rows of a page, of which a test can see whether they are still alive."""


class TwoPages:
    """A session whose first page has a row; the query for the second one is never answered."""

    def __init__(self) -> None:
        self.asked_again = asyncio.Event()

    async def page(self, _: str, parameters: Any, *, state: bytes | None, **__: Any) -> ResultPage:
        if state is None:
            row = (parameters[0], parameters[1], 0, 2, None, True, 1, 1)
            return ResultPage((), PageRows([row]), b"more")
        self.asked_again.set()
        await asyncio.Event().wait()
        raise AssertionError("not reached")


async def test_a_lane_that_waits_for_its_next_page_does_not_keep_the_last_one() -> None:
    """Hundreds of lanes may wait at once: their pages together could be the whole log."""
    log = TwoPages()
    pages: list[weakref.ref[PageRows]] = []

    def take_rows(page: FetchedPage) -> None:
        assert isinstance(page.rows, PageRows)
        pages.append(weakref.ref(page.rows))
        page.task.page_taken.set()

    async def refresh(_: TableFeed) -> None:
        await pass_turns()

    jobs: list[asyncio.Task[None]] = []
    fetcher = Fetcher(
        log,  # type: ignore[arg-type]  # it needs no more of a session
        scylla_reading(),
        logging.LoggerAdapter(logging.getLogger("test"), {}),
        owner=FetchOwner(lambda: START + 9_000, take_rows, refresh, lambda _: None, jobs.append),
        hook=None,
        rules=WindowRules(head_ms=500),
    )
    columns = (ScyllaColumn("pk", CqlType("int"), "partition_key", 0), ScyllaColumn("v", CqlType("int"), "regular"))
    feed = TableFeed(TABLE, (TableVersion(TABLE, columns, CdcOptions(), "one"),), lambda _: None)  # type: ignore[arg-type,return-value]
    section = LaneSection(feed, START, None, tablets=False)
    fetcher.sections.append(section)
    group = StreamGroup(TABLE, Generation(START, None), "1", False, (b"1" * 16,))
    fetcher.start(
        LaneTask(
            section,
            Lane([GroupState(group, positions.source_partition(group), ReadPosition(START, START))], 60_000),
        )
    )
    async with asyncio.timeout(20):
        await log.asked_again.wait()
    assert [page() for page in pages] == [None]
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
