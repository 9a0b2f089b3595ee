"""The reading side of a task: lanes that fetch pages of their windows ahead of what makes events of them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.cluster.failures import NodesAway, SchemaChanged
from connectors.cql.cluster.throttle import InFlightLimit, PageSize, pause_s
from connectors.errors import Fatal, Retriable
from connectors.scylla.source.lanes import (
    Lane,
    LanePlan,
    LaneWindow,
    ReadProgress,
    StreamRead,
    halve_read,
    plan_lane,
)
from connectors.scylla.source.windows import WindowRules, head_tick_ms, next_width

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable

    from connectors.cql.cluster.session import CqlSession
    from connectors.scylla.config.settings import ScyllaReadSettings
    from connectors.scylla.hooks import SnapshotHook
    from connectors.scylla.model import LogRow, TableVersion
    from connectors.scylla.source.feeds import TableFeed
    from connectors.scylla.source.lanes import GroupState, RowPosition

#: Queries per second that all lanes at rest may cost together.
IDLE_QUERIES_S: Final = 400.0
#: Lanes that a backlog with data is spread over.
_PARALLEL: Final = 8
#: A lane is behind when its window ended this long before what could be read.
_BEHIND_MS: Final = 60_000
#: Tries of one read after which it is cut.
_CUT_AFTER: Final = 2
#: How long nothing at all has to fail before ``worker.max.retries`` counts.
_OUTAGE_S: Final = 10.0


@dataclass(slots=True)
class LaneSection:
    """The groups of one table and generation, and the lanes that read them."""

    feed: TableFeed
    start_ms: int
    end_ms: int | None
    tablets: bool
    lanes: list[LaneTask] = field(default_factory=list)
    #: Streams of the smallest lane; None: not known since lanes changed.
    least_streams: int | None = None


@dataclass(slots=True)
class FetchedPage:
    """A page for the making side.

    Attributes:
        task: whose it is.
        window, read: what it is a page of.
        version: the definition that it was selected with.
        columns: the log columns that were selected.
        rows: in the server's order.
        ends_read: whether the read ends with it.
        ends_window: whether the window ends with it.
    """

    task: LaneTask
    window: LaneWindow
    read: StreamRead | None
    version: TableVersion
    columns: tuple[str, ...]
    rows: list[LogRow]
    ends_read: bool
    ends_window: bool
    may_be_bad: bool = True


@dataclass(slots=True)
class OpenStream:
    """A stream that may have more rows in the next page."""

    owner: GroupState
    stream: bytes
    offset: dict[str, Any]
    version: TableVersion
    #: What was delivered of it before the start; stays as long as it is open, as rows of that change may be held back.
    skip: RowPosition | None = None


@dataclass(slots=True)
class LaneTask:
    """A lane with what the two sides share of it."""

    section: LaneSection
    lane: Lane
    #: Set while no page of it waits to be made events of.
    page_taken: asyncio.Event = field(default_factory=asyncio.Event)
    #: Set when something it may wait for has changed.
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    #: Whether it is between two windows and waits: its groups may be taken over.
    resting: bool = False
    job: asyncio.Task[None] | None = None
    #: What the making side has not seen the end of.
    open: OpenStream | None = None
    #: Whether it has entered the gate for a query that is not sent yet.
    has_place: bool = False
    #: Failures since the last page.
    failures: int = 0

    def __post_init__(self) -> None:
        self.page_taken.set()


class QueryGate:
    """Lets queries through: a bounded number in flight, and none while enough rows wait to be made events.

    Args:
        limit: how many may be in flight.
        most_rows: rows that may wait, those that queries in flight will bring included as far as it can be guessed.
    """

    def __init__(self, limit: InFlightLimit, most_rows: int) -> None:
        self.limit = limit
        self.in_flight = 0
        self.rows = 0
        self._most = most_rows
        self._usual = 0.0
        self._queue: deque[asyncio.Future[None]] = deque()

    def _is_open(self) -> bool:
        if not self.in_flight:
            return self.rows < self._most
        return self.in_flight < self.limit.value and self.rows + (self.in_flight + 1) * self._usual <= self._most

    async def enter(self) -> bool:
        """Wait for a place, first come, first served; whether there was something to wait for."""
        if not self._queue and self._is_open():
            self.in_flight += 1
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back()
            elif future in self._queue:
                self._queue.remove(future)
            raise
        return True

    def leave(self, rows: int = 0) -> None:
        """A query has ended; ``rows`` came and wait now."""
        self.in_flight -= 1
        self.rows += rows
        self._usual += 0.2 * (rows - self._usual)
        self._let_in()

    def give_back(self) -> None:
        """A place was not used."""
        self.in_flight -= 1
        self._let_in()

    def release_rows(self, rows: int) -> None:
        """``rows`` don't wait any more."""
        self.rows -= rows
        self._let_in()

    def _let_in(self) -> None:
        while self._queue and self._is_open():
            future = self._queue.popleft()
            if not future.done():
                self.in_flight += 1
                future.set_result(None)


@dataclass(slots=True)
class FetchCounters:
    """The numbers that are reported: sums since the start."""

    queries: int = 0
    errors: int = 0
    seconds: float = 0.0
    pages: int = 0
    rows: int = 0
    windows: int = 0
    empty_windows: int = 0


def token_of(stream: bytes) -> int:
    """The token of a stream: in Scylla's log tables it is the first half of the id, not its hash."""
    return int.from_bytes(stream[:8], "big", signed=True)


@dataclass(frozen=True, slots=True)
class FetchOwner:
    """The calls of a ``Fetcher`` to the side that makes events of its pages.

    Attributes:
        safe_ms: gives the time up to which everything is visible.
        take_page: takes a page; must not block.
        refresh: reads a table's definition again, at once; may raise Retriable.
        report_stale: called when a definition is out of date; must not block.
        watch_lane: called with the asyncio task of each lane.
    """

    safe_ms: Callable[[], int]
    take_page: Callable[[FetchedPage], None]
    refresh: Callable[[TableFeed], Awaitable[None]]
    report_stale: Callable[[TableFeed], None]
    watch_lane: Callable[[asyncio.Task[None]], None]


class Fetcher:
    """Runs lanes: plans windows, fetches pages, retries.

    Args:
        session: the CQL session.
        settings: options.
        log: the task's.
        owner: uses what is fetched.
        hook: the snapshot, if one runs.
        rules: how wide windows are.
    """

    def __init__(
        self,
        session: CqlSession,
        settings: ScyllaReadSettings,
        log: logging.LoggerAdapter[logging.Logger],
        *,
        owner: FetchOwner,
        hook: SnapshotHook | None,
        rules: WindowRules,
    ) -> None:
        self._session = session
        self._settings = settings
        self._log = log
        self._owner = owner
        self._hook = hook
        self._rules = rules
        query_limit = max(settings.max_queries, 1)
        self.limit = InFlightLimit(least=min(2, query_limit), maximum=query_limit, first=min(8, query_limit))
        self.gate = QueryGate(self.limit, settings.max_queue)
        self.page_size = PageSize(min(settings.fetch_size, max(settings.max_queue // 4, 1)))
        self.counters = FetchCounters()
        self.sections: list[LaneSection] = []
        self._round: int | None = None
        self._answered_s = time.monotonic()
        self._last_problem = ""

    # Lanes.

    def queries_a_round(self) -> int:
        """Queries that it takes to look at all streams once."""
        per_query = self._settings.streams_per_query
        return sum(-(-task.lane.streams // per_query) for section in self.sections for task in section.lanes)

    def retime(self) -> WindowRules:
        """The rules with the head's tick stretched so that many lanes don't cost more than ``IDLE_QUERIES_S``."""
        if self._round is None:
            self._round = self.queries_a_round()
        tick = head_tick_ms(self._rules.head_ms, self._round, IDLE_QUERIES_S)
        if tick == self._rules.head_ms:
            return self._rules
        return WindowRules(
            self._rules.fixed_ms,
            tick,
            max(self._rules.first_ms, tick),
            max(self._rules.widest_ms, tick),
            self._rules.target_rows,
            self._rules.minimal_wait_ms,
        )

    def start(self, task: LaneTask) -> None:
        """Begin to read a lane."""
        task.section.lanes.append(task)
        task.job = asyncio.create_task(self._run_lane(task), name="scylla lane")
        self._owner.watch_lane(task.job)
        self._lanes_changed(task.section)

    def wake(self) -> None:
        """Something that lanes may wait for has changed."""
        for section in self.sections:
            for task in section.lanes:
                task.changed.set()

    def jobs(self) -> list[asyncio.Task[None]]:
        """The asyncio tasks of all lanes."""
        return [task.job for section in self.sections for task in section.lanes if task.job is not None]

    async def _run_lane(self, task: LaneTask) -> None:
        lane, section = task.lane, task.section
        while lane.groups:
            rules = self.retime()
            step, safe_ms = self._plan_step(task, rules)
            if step.finished:
                lane.groups = [state for state in lane.groups if state not in step.finished]
                lane.update_owners()
                self._lanes_changed(section)
                for state in step.finished:
                    state.finished = True
                continue
            wait = step.wait_ms
            if step.window is not None:
                early = rules.minimal_wait_ms - int((time.monotonic() - lane.began_s) * 1000)
                wait = early if early > 0 else None
                if wait is None:
                    await self._read_in_turn(task, rules, step, safe_ms)
                    continue
            if wait is not None:  # else a snapshot holds all of its groups, and others would wait with them
                self._absorb_lanes(task)
            await self._rest_lane(task, wait)
        section.lanes.remove(task)
        self._lanes_changed(section)

    def _plan_step(self, task: LaneTask, rules: WindowRules) -> tuple[LanePlan, int]:
        """Return the next step of a lane, and up to where everything was visible when it was planned."""
        hook, groups = self._hook, task.lane.groups
        task.changed.clear()
        held_groups: frozenset[str] = frozenset()
        if hook is not None:
            held_groups = frozenset(state.name for state in groups if hook.holds(state.group))
        safe_ms = self._owner.safe_ms()
        step = plan_lane(
            task.lane,
            safe_ms,
            rules,
            self._settings.streams_per_query,
            end_ms=task.section.end_ms,
            held_groups=held_groups,
        )
        return step, safe_ms

    async def _read_in_turn(self, task: LaneTask, rules: WindowRules, step: LanePlan, safe_ms: int) -> None:
        """Read a lane's window. It is planned again if its query had to wait in line: it would end too early by then."""
        has_waited = await self.gate.enter()
        task.has_place = True
        try:
            if has_waited:
                step, safe_ms = self._plan_step(task, rules)
            if step.window is not None:
                await self._read_window(task, step.window, rules, safe_ms)
        finally:
            if task.has_place:
                task.has_place = False
                self.gate.give_back()

    async def _rest_lane(self, task: LaneTask, wait_ms: int | None) -> None:
        task.resting = True
        timeout = None
        if wait_ms is not None:
            timeout = max(wait_ms + self.retime().head_ms * task.lane.phase, 1) / 1000
        task.lane.phase = 0.0
        try:
            async with asyncio.timeout(timeout):
                await task.changed.wait()
        except TimeoutError:
            pass
        finally:
            task.resting = False

    async def _read_window(self, task: LaneTask, window: LaneWindow, rules: WindowRules, safe_ms: int) -> None:
        lane = task.lane
        lane.began_s = time.monotonic()
        if not window.reads:  # all of its streams had been delivered
            task.page_taken.clear()
            self._owner.take_page(
                FetchedPage(task, window, None, task.section.feed.newest, (), [], ends_read=False, ends_window=True)
            )
        while window.reads:
            await self._read_pages(task, window)
        await task.page_taken.wait()
        self.counters.windows += 1
        if not window.rows:
            self.counters.empty_windows += 1
        lane.width_ms = next_width(lane.width_ms, window.end_ms - window.start_ms, window.rows, rules)
        lane.lag_ms = safe_ms - window.end_ms
        if lane.lag_ms > _BEHIND_MS and window.rows > self.page_size.rows and len(window.groups) == len(lane.groups):
            self._split_lane(task)

    def _split_lane(self, task: LaneTask) -> None:
        """Spread a backlog with data over more lanes."""
        groups = task.lane.groups
        lanes = sum(len(section.lanes) for section in self.sections)
        if len(groups) < 2 or lanes >= _PARALLEL:
            return
        half = len(groups) // 2
        new_lane = Lane(groups[half:], task.lane.width_ms)
        task.lane.groups = groups[:half]
        task.lane.update_owners()
        self.start(LaneTask(task.section, new_lane))

    def _absorb_lanes(self, task: LaneTask) -> None:
        """Take over the groups of lanes that rest as well, as far as one query can read them all."""
        lanes = task.section.lanes
        limit = self._settings.streams_per_query
        if len(lanes) < 2 or task.lane.lag_ms > _BEHIND_MS:
            return
        if task.lane.streams + self._find_least_streams(task.section) > limit:
            return
        for resting_lane in list(lanes):
            if (
                resting_lane is task
                or not resting_lane.resting
                or task.lane.streams + resting_lane.lane.streams > limit
            ):
                continue
            if resting_lane.job is not None:
                resting_lane.job.cancel()
            lanes.remove(resting_lane)
            task.lane.groups = [*task.lane.groups, *resting_lane.lane.groups]
            task.lane.update_owners()
            self._lanes_changed(task.section)

    def _find_least_streams(self, section: LaneSection) -> int:
        """The streams of the section's smallest lane; looked for only after lanes have changed, as there may be thousands."""
        if section.least_streams is None:
            section.least_streams = min(other.lane.streams for other in section.lanes)
        return section.least_streams

    def _lanes_changed(self, section: LaneSection) -> None:
        section.least_streams = None
        self._round = None

    # Queries.

    async def _read_pages(self, task: LaneTask, window: LaneWindow) -> None:
        """Fetch all pages of the first read of ``window``; what is left of it after a fault goes back to the front."""
        read = window.reads.popleft()
        progress = ReadProgress(read)
        state: bytes | None = None
        feed = task.section.feed
        version, epoch, columns = feed.newest, feed.epoch, feed.selected_columns(feed.newest)
        while True:
            if feed.epoch != epoch:  # another query from here on: its pages have nothing to do with these
                window.reads.extendleft(reversed(progress.remainder()))
                return
            try:
                rows, state, sound = await self._fetch_page(task, version, read, state)
            except SchemaChanged as error:
                self._log.info("%s: its definition has changed (%s)", feed.table, error)
                await self._handle_fault(task, feed, error)
                await self._retry_definition(feed)
                window.reads.extendleft(reversed(progress.remainder()))
                return
            except Retriable as error:
                await self._handle_fault(task, feed, error)
                if task.failures >= _CUT_AFTER and self._is_cuttable(error):
                    parts = progress.remainder()
                    window.reads.extendleft(reversed([*halve_read(parts[0]), *parts[1:]]))
                    return
                continue
            except Fatal as error:
                if state is None:
                    raise
                # A paging state that is not accepted (any more): the same rows can be asked for without it.
                await self._handle_fault(task, feed, error)
                window.reads.extendleft(reversed(progress.remainder()))
                return
            task.failures = 0
            received = len(rows)
            rows = progress.take(rows)
            ends = state is None
            try:
                await task.page_taken.wait()
            except asyncio.CancelledError:
                self.gate.release_rows(received)
                raise
            self.gate.release_rows(received - len(rows))
            window.rows += len(rows)
            task.page_taken.clear()
            self._owner.take_page(
                FetchedPage(task, window, read, version, columns, rows, ends, ends and not window.reads, not sound)
            )
            rows = []  # a lane that waits for its next page, as one of hundreds, must not keep this one alive
            if ends:
                return

    async def _fetch_page(
        self, task: LaneTask, version: TableVersion, read: StreamRead, state: bytes | None
    ) -> tuple[list[LogRow], bytes | None, bool]:
        feed = task.section.feed
        single = len(read.streams) == 1
        streams: Any = read.streams[0] if single else list(read.streams)
        # Both before the query waits: the definition may change meanwhile.
        cql, types = feed.text(version, single=single), feed.types(version)
        counters = self.counters
        if task.has_place:
            task.has_place = False
        else:
            await self.gate.enter()
        rows: list[LogRow] = []
        asked = self.page_size.rows
        began = time.perf_counter()
        if state is None:
            counters.queries += 1
        try:
            page = await self._session.page(
                cql,
                (streams, read.lower, read.upper),
                fetch_size=asked,
                state=state,
                consistency=self._settings.consistency,
                timeout_s=self._settings.query_timeout_s,
                types=types,
                token=token_of(read.streams[0]),
            )
            rows = page.rows
        finally:
            self.gate.leave(len(rows))
        took = time.perf_counter() - began
        counters.seconds += took
        counters.pages += 1
        counters.rows += len(rows)
        self.limit.answered(took, full=2 * len(rows) >= asked, in_flight=self.gate.in_flight + 1)
        self.page_size.answered(rows)
        self._answered_s = time.monotonic()
        if page.newer_fields:
            self._owner.report_stale(feed)
        return rows, page.state, not getattr(page, "may_be_bad", True)

    def _is_cuttable(self, error: Retriable) -> bool:
        """Whether a smaller query may help: a node was asked, and others are answered."""
        return not isinstance(error, NodesAway) and time.monotonic() - self._answered_s < _OUTAGE_S

    async def _handle_fault(self, task: LaneTask, feed: TableFeed, error: Exception) -> None:
        """Count a fault and pause; raises it as Retriable when nothing has worked for long."""
        settings = self._settings
        task.failures += 1
        failures = task.failures
        self.counters.errors += 1
        self.limit.failed()
        if not isinstance(error, (SchemaChanged, NodesAway)):
            self.page_size.failed()
        quiet_s = time.monotonic() - self._answered_s
        if settings.max_tries is not None and failures >= settings.max_tries and quiet_s > _OUTAGE_S:
            raise Retriable(
                f"{feed.table}: the log could not be read in {failures} tries, and no query was answered for "
                f"{quiet_s:.0f} s: {error}"
            ) from error
        pause = pause_s(
            failures,
            settings.retry_base_ms,
            settings.retry_max_ms,
            int(settings.retry_jitter * 100),
            random.random(),  # noqa: S311 - not a secret
        )
        problem = f"{feed.table}: {error}"
        level = 30 if failures >= _CUT_AFTER or problem != self._last_problem else 10
        self._last_problem = problem
        self._log.log(
            level,
            "%s: a query of %d groups failed (try %d, again in %.2f s): %s",
            feed.table,
            len(task.lane.groups),
            failures,
            pause,
            error,
        )
        await asyncio.sleep(pause)

    async def _retry_definition(self, feed: TableFeed) -> None:
        for attempt in range(1, 1_000_000):
            try:
                await self._owner.refresh(feed)
            except Retriable as error:
                self._log.warning("%s: its definition can't be read: %s", feed.table, error)
                quiet_s = time.monotonic() - self._answered_s
                if self._settings.max_tries is not None and attempt >= self._settings.max_tries and quiet_s > _OUTAGE_S:
                    raise
                await asyncio.sleep(
                    pause_s(attempt, self._settings.retry_base_ms, self._settings.retry_max_ms, 20, random.random())  # noqa: S311 - not a secret
                )
            else:
                return
