"""The making side of a task: pages of its lanes become batches, and groups advance."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from connectors.api import Batch
from connectors.scylla import positions
from connectors.scylla.model import STREAM, StreamRun
from connectors.scylla.reader_output import ReaderOutput
from connectors.scylla.reader_report import ReaderReport
from connectors.scylla.source.fetching import FetchedPage, Fetcher, FetchOwner, LaneSection, LaneTask, OpenStream
from connectors.scylla.source.lanes import GroupState, Lane, find_partitions
from connectors.scylla.source.lateness import Confidence, ServerClock
from connectors.scylla.source.recheck import Late, Recheck
from connectors.scylla.source.windows import WindowRules, pack_lanes

if TYPE_CHECKING:
    import logging
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from connectors.api import BadRecord, SourceRecord, TaskMetrics
    from connectors.cql.cluster.session import CqlSession
    from connectors.scylla.config.settings import ScyllaReadSettings
    from connectors.scylla.events.contract import ScyllaPromises
    from connectors.scylla.hooks import SnapshotHook
    from connectors.scylla.model import LogRow, TableId, TableVersion
    from connectors.scylla.source.feeds import TableFeed
    from connectors.scylla.source.lanes import LaneWindow

#: Rows made events of before the event loop may get its turn.
SLICE: Final = 500
#: Seconds of work after which it does.
_TURN_S: Final = 0.004
#: An empty batch is given at least this often.
_QUIET_S: Final = 1.0


class ScyllaReader:
    """Reads the groups of a task and makes batches of what their logs hold.

    Args:
        session: the CQL session.
        settings: options.
        task_metrics: numbers go there.
        log: the task's.
        refresh: reads a table's definition again, at once.
        hook: the snapshot, if one runs.
        rules: how wide windows are; from the settings if not given.
        signals: makes heartbeats of tables, where there are to be any.
    """

    def __init__(
        self,
        session: CqlSession,
        settings: ScyllaReadSettings,
        task_metrics: TaskMetrics,
        log: logging.LoggerAdapter[logging.Logger],
        *,
        refresh: Callable[[TableFeed], Awaitable[None]],
        hook: SnapshotHook | None = None,
        rules: WindowRules | None = None,
        signals: ScyllaPromises | None = None,
    ) -> None:
        self._settings = settings
        self._hook = hook
        self._signals = signals
        #: When the next heartbeat message of each table is due (monotonic).
        self._beats: dict[TableId, float] = {}
        self.clock = ServerClock(unknown_ms=(time.time() - time.monotonic()) * 1000)
        self.confidence = Confidence(settings.confidence_min_ms, settings.confidence_max_ms, settings.confidence_ms)
        # Whoever fixes the window has decided what is late.
        self.recheck: Recheck | None = None
        if settings.confidence_ms is None and self.confidence.ceiling_ms > self.confidence.floor_ms:
            self.recheck = Recheck(session, settings, self.confidence, self.now_ms, log)
        self.rules = rules or rules_of(settings)
        self.fetcher = Fetcher(
            session,
            settings,
            log,
            owner=FetchOwner(self.safe_ms, self._take_item, refresh, self._set_stale, self._watch_job),
            hook=hook,
            rules=self.rules,
        )
        #: Definitions of tables are known as they were at this time: no window goes beyond it. None: they don't change.
        self.defined_ms: int | None = None
        self.stale = asyncio.Event()
        self.states: list[GroupState] = []
        self._ready: deque[FetchedPage] = deque()
        self._something = asyncio.Event()
        self._error: BaseException | None = None
        self._extra: list[asyncio.Task[None]] = []
        self._output = ReaderOutput(settings.max_batch)
        #: Runs of the page under way that are to be encoded together, of one definition, with the groups that they are of.
        self._runs: list[tuple[GroupState, StreamRun]] = []
        self._runs_of: TableVersion | None = None
        self._run_rows = 0
        self._report = ReaderReport(task_metrics, self.fetcher, self.confidence, self.rules.head_ms)

    # What the task calls.

    def now_ms(self) -> float:
        """The slowest known server's time, however this machine's clock is set meanwhile."""
        return time.monotonic() * 1000 + self.clock.offset_ms()

    def safe_ms(self) -> int:
        """Up to here (exclusive) rows are taken to be visible."""
        safe = int(self.now_ms()) - self.confidence.window_ms(time.monotonic())
        return safe if self.defined_ms is None else min(safe, self.defined_ms)

    def add(self, feed: TableFeed, states: Iterable[GroupState]) -> None:
        """Groups to read, all of one table and generation; lanes are made of them. Call inside the event loop."""
        states = list(states)
        if not states:
            return
        generation = states[0].group.generation
        section = LaneSection(feed, generation.start_ms, generation.end_ms, states[0].group.tablets)
        self.fetcher.sections.append(section)
        self.states.extend(states)
        if self._hook is not None:
            for state in states:
                if not state.partial:
                    self._hook.window_ended(state.group, state.start_ms)
        for state in states:
            if state.unsaved:
                self._output.save_position(state)
        self._save_finished(states, generation.end_ms)
        if self._output.moved:
            self._something.set()
        lanes = pack_lanes((len(state.group.streams) for state in states), self._settings.streams_per_query)
        for number, indexes in enumerate(lanes):
            lane = Lane(
                [states[index] for index in indexes],
                self.rules.first_ms,
                phase=number / len(lanes),
            )
            self.fetcher.start(LaneTask(section, lane))

    def sections(self) -> list[LaneSection]:
        """The sections that are read: one for each table and generation."""
        return self.fetcher.sections

    def ends(self, section: LaneSection, end_ms: int) -> None:
        """The generation of ``section`` is now known to end at ``end_ms``."""
        if section.end_ms is None:
            section.end_ms = end_ms
            groups = [
                state
                for state in self.states
                if state.group.table == section.feed.table and state.group.generation.start_ms == section.start_ms
            ]
            self._save_finished(groups, end_ms)
            self.wake()

    def _save_finished(self, states: Iterable[GroupState], end_ms: int | None) -> None:
        """Positions at a generation's end that no window will save: the connector waits for them."""
        for state in states:
            if end_ms is not None and state.start_ms >= end_ms and not state.finished:
                state.finished = True
                self._output.save_position(state)

    def background(self, job: Awaitable[None], name: str) -> None:
        """Run ``job`` at the same time as the lanes; its error ends the reader."""
        task = asyncio.ensure_future(job)
        if isinstance(task, asyncio.Task):
            task.set_name(name)
            self._watch_job(task)
            self._extra.append(task)

    def wake(self) -> None:
        """Whoever waits looks again (a hold was lifted, a snapshot has rows)."""
        self.fetcher.wake()
        self._something.set()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Batches until closed; then everything that was started is stopped.

        Raises:
            Retriable: the cluster is unavailable.
            Fatal: the server refuses a query for good.
        """
        try:
            if self._hook is not None:
                self.background(self._hook.run(self.wake), "scylla snapshot")
            if self.recheck is not None:
                self.background(self.recheck.run(), "scylla second look")
            given_s = time.monotonic()
            while True:
                if not self._ready and not self._something.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_QUIET_S):
                            await self._something.wait()
                if time.monotonic() - given_s > _QUIET_S:
                    given_s = time.monotonic()
                    yield Batch([])
                self._something.clear()
                began = time.perf_counter()
                has_more = self._take_snapshot()
                while True:
                    self._raise_error()
                    if self._output.is_full() or not self._ready:
                        if self._output.pending:
                            yield self._output.make_batch()
                            began = time.perf_counter()
                        if not self._ready and not has_more:
                            break
                        has_more = self._take_snapshot()
                        continue
                    item = self._ready.popleft()
                    for _ in self._make_events(item):
                        if self._output.is_full():
                            yield self._output.make_batch()
                            began = time.perf_counter()
                        elif time.perf_counter() - began > _TURN_S:
                            await asyncio.sleep(0)
                            began = time.perf_counter()
                    self.fetcher.gate.release_rows(len(item.rows))
                    item.task.page_taken.set()
                    del item  # its rows are not kept while the next page is waited for
                self._report.send(self._output.total, self.states, self.now_ms())
        finally:
            await self._stop_jobs()

    # Events.

    def _take_snapshot(self) -> bool:
        return self._hook is not None and self._output.take_snapshot(self._hook)

    def _make_events(self, item: FetchedPage) -> Iterable[None]:
        """Make events of a page; pauses after each slice."""
        task, rows, read, window = item.task, item.rows, item.read, item.window
        owners = task.lane.plan_owner
        feed = task.section.feed
        count = len(rows)
        skip = read.skip if read is not None else None
        ends = item.ends_read and read is not None and read.final
        recheck = self.recheck if self.recheck is not None and self.recheck.young(window) else None
        for start, stop, complete in find_partitions(rows, SLICE):
            stream = rows[start][STREAM]
            open_ = task.open
            if open_ is not None and open_.stream != stream:
                self._close_stream(task, open_)
                open_ = None
            if open_ is None:
                owner = owners[stream]
                open_ = OpenStream(owner, stream, owner.offset(stream, window), item.version, skip)
            last = complete and (stop < count or ends)
            part = rows if count == stop - start else rows[start:stop]
            if recheck is not None:
                recheck.saw(task, window, stream, part)
            self._feed(item, open_, part, last=last)
            if last:
                open_.owner.done |= open_.owner.bit[stream]
                task.open = None
            else:
                task.open = open_
            if not self._runs or self._run_rows >= min(SLICE, self._output.room()):
                self._encode_runs(feed)
                yield
        if ends and read is not None:
            if task.open is not None:
                self._close_stream(task, task.open)
            if not item.ends_window:
                for stream in read.streams:
                    owner = owners[stream]
                    owner.done |= owner.bit[stream]
        self._encode_runs(feed)
        if item.ends_window:
            if recheck is not None:
                recheck.window_read(task, window)
            self._window_ended(task, window)

    def _feed(self, item: FetchedPage, open_: OpenStream, rows: list[LogRow], *, last: bool) -> None:
        """Make events of rows of a page, all of one stream."""
        feed, owner = item.task.section.feed, open_.owner
        if self._hook is not None and (passes := self._hook.row_filter(owner.group)) is not None:
            rows = passes(rows)
            if not rows:
                if last:
                    self._close_builder(feed, open_)
                return
        parts = feed.parts(item.version, item.columns, rows)
        final = len(parts) - 1
        for index, (version, part) in enumerate(parts):
            if version.definition != open_.version.definition:
                # A change is of one definition: whatever the other builder holds is whole.
                self._close_builder(feed, open_)
                open_.version = version
            run = StreamRun(owner.partition, open_.offset, part, open_.skip, last and index == final, item.may_be_bad)
            fast = feed.fast.get(version.definition)
            for part_run, is_encodable in ((run, False),) if fast is None else fast.split_run(run):
                if is_encodable:
                    self._hold_run(feed, version, owner, part_run)
                else:
                    self._feed_builder(feed, version, owner, part_run)

    def _hold_run(self, feed: TableFeed, version: TableVersion, owner: GroupState, run: StreamRun) -> None:
        """Let a run be encoded together with those that follow it."""
        if self._runs_of is not version:
            self._encode_runs(feed)
            self._runs_of = version
        self._runs.append((owner, run))
        self._run_rows += len(run.rows)

    def _encode_runs(self, feed: TableFeed) -> None:
        """Encode the runs that are held; make records of those that can't be."""
        runs, version, output = self._runs, self._runs_of, self._output
        if not runs or version is None:
            return
        self._runs, self._run_rows = [], 0
        fast = feed.fast[version.definition]
        if fast.take([run for _, run in runs], len(output.records), output.encoded):
            for owner, run in {owner.name: (owner, run) for owner, run in runs}.values():
                output.moved[owner.name] = (owner.partition, fast.offset_of(run))
            return
        for owner, run in runs:
            if len(runs) > 1 and fast.take([run], len(output.records), output.encoded):
                output.moved[owner.name] = (owner.partition, fast.offset_of(run))
            else:
                self._feed_builder(feed, version, owner, run)

    def _feed_builder(self, feed: TableFeed, version: TableVersion, owner: GroupState, run: StreamRun) -> None:
        """Make records of a run."""
        self._encode_runs(feed)
        output = self._output
        records, bad = len(output.records), len(output.bad)
        feed.builder(version).feed(run, output.records, output.bad)
        output.note_progress(owner, records, bad)

    def _close_builder(self, feed: TableFeed, open_: OpenStream) -> None:
        run = StreamRun(open_.owner.partition, open_.offset, [], open_.skip, last=True)
        self._feed_builder(feed, open_.version, open_.owner, run)

    def _close_stream(self, task: LaneTask, open_: OpenStream) -> None:
        """The stream turned out to have no more rows in its window."""
        self._close_builder(task.section.feed, open_)
        open_.owner.done |= open_.owner.bit[open_.stream]
        task.open = None

    def _window_ended(self, task: LaneTask, window: LaneWindow) -> None:
        now = time.monotonic()
        end = task.section.end_ms
        for state in window.groups:
            state.advance(window.end_ms)
            finished = state.finished = end is not None and state.start_ms >= end
            if finished or now >= state.save_at:
                state.save_at = now + self._settings.heartbeat_ms / 1000
                self._output.save_position(state)
            if self.recheck is not None:
                for late in self.recheck.due(state):
                    self._make_late_events(task.section.feed, state, late)
            if self._hook is not None:
                self._hook.window_ended(state.group, window.end_ms)
        if self._signals is not None and window.groups:
            self._send_heartbeat(self._signals, task.section.feed, window.groups[-1], now)

    def _send_heartbeat(self, signals: ScyllaPromises, feed: TableFeed, state: GroupState, now: float) -> None:
        """Say up to when all changes of a table were sent, now and then; ``state`` has just ended a window."""
        interval_s = self._settings.heartbeat_ms / 1000
        if now < self._beats.setdefault(feed.table, now + interval_s):
            return
        self._beats[feed.table] = now + interval_s
        reached_ms = min(group_state.start_ms for group_state in self.states if group_state.group.table == feed.table)
        self._output.records += signals.promise(
            feed.version_in_force(reached_ms * 1000),
            reached_ms,
            (state.partition, positions.source_offset(state.position())),
        )

    def _make_late_events(self, feed: TableFeed, state: GroupState, late: Late) -> None:
        """Make events of late rows between two windows; their position is the end of the last one."""
        offset = positions.source_offset(state.position())
        records: list[SourceRecord] = []
        bad: list[BadRecord] = []
        parts = feed.parts(late.version, late.columns, late.rows)
        for version, rows in parts:
            shared = {**offset, positions.OFFSET_STREAM: positions.stream_text(late.stream)}
            run = StreamRun(state.partition, shared, rows, last=True)
            feed.builder(version).feed(run, records, bad)
        for record in records:
            record.source_offset = offset
        for refused in bad:
            refused.source_offset = offset
        self._output.records += records
        self._output.bad += bad
        if records or bad:
            self._output.moved[state.name] = (state.partition, offset)

    # Lanes.

    def _take_item(self, item: FetchedPage) -> None:
        if self.recheck is not None:
            self.recheck.young(item.window)
        self._ready.append(item)
        self._something.set()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _set_stale(self, _: TableFeed) -> None:
        self.stale.set()

    def _watch_job(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and self._error is None:
            self._error = error
            self._something.set()

    async def _stop_jobs(self) -> None:
        jobs = [*self.fetcher.jobs(), *self._extra]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)


def rules_of(settings: ScyllaReadSettings) -> WindowRules:
    """The rules that options give."""
    return WindowRules(
        fixed_ms=settings.window_ms,
        head_ms=settings.window_min_ms,
        first_ms=min(max(60_000, settings.window_min_ms), settings.window_max_ms),
        widest_ms=settings.window_max_ms,
        minimal_wait_ms=settings.minimal_wait_ms,
    )
