"""The snapshot of a task's groups as the reader knows it (``connectors.scylla.hooks``): reads pages, beside the streams."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from connectors.cql.session import SchemaChanged
from connectors.cql.throttle import InFlightLimit, Pace, PageSize, pause_s
from connectors.debezium_metrics import report_snapshots
from connectors.errors import Fatal, Retriable
from connectors.scylla import metrics
from connectors.scylla.positions import saved_windows, source_partition
from connectors.scylla.snapshot import (
    SnapshotPosition,
    first_position,
    from_offset,
    of_dropped,
    partition_of,
    positions_of,
    shown,
    size,
    to_offset,
    unwrapped,
)
from connectors.scylla.snapshot_group import GroupSnapshot
from connectors.scylla.snapshot_index import SnapshotIndex
from connectors.scylla.snapshot_rows import RowPlan

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Sequence

    from connectors.api import BadRecord, OffsetReader, Position, SourceRecord
    from connectors.cql.session import CqlSession, Page
    from connectors.debezium_metrics import Mirror
    from connectors.scylla.config import ReadSettings
    from connectors.scylla.events.ums_signals import UmsSignals
    from connectors.scylla.feeds import TableFeed
    from connectors.scylla.hooks import RowFilter
    from connectors.scylla.model import LogRow, StreamGroup, TableId, TableVersion

#: The stream goes first: no page is read of a group whose stream is this far behind ...
HEAD_MS: Final = 60_000
#: ... unless none was read for this long.
PATIENCE_S: Final = 600.0
#: Windows of a stream without a saved position that have to end first: with the second one the first one's position was given.
_WINDOWS_FIRST: Final = 2
_REPORT_S: Final = 1.0
#: See ``Traces``: 128 kB each.
_SLOTS: Final = 1 << 14
_FEW_GROUPS: Final = 64
_FEW_SLOTS: Final = 1 << 9


class Snapshot:
    """Implements ``SnapshotHook``. One per run of a task; use it inside one event loop.

    Args:
        session: the CQL session.
        settings: options.
        offsets: the positions saved before the task began.
        groups: all of the task.
        feed_of: a table's definitions and builders.
        refresh: reads a table's definition again, at once; may raise Retriable.
        now_ms: the servers' time.
        task_metrics: numbers go there.
        log: the task's.
        signals: makes the message at a table's end, where the output form has one.
    """

    def __init__(
        self,
        session: CqlSession,
        settings: ReadSettings,
        offsets: OffsetReader,
        groups: Sequence[StreamGroup],
        *,
        feed_of: Callable[[TableId], TableFeed],
        refresh: Callable[[TableFeed], Awaitable[None]],
        now_ms: Callable[[], float],
        task_metrics: Mirror,
        log: logging.LoggerAdapter[logging.Logger],
        signals: UmsSignals | None = None,
    ) -> None:
        self._session = session
        self._signals = signals
        self._settings = settings
        self._offsets = offsets
        self._feed_of = feed_of
        self._refresh = refresh
        self._now_ms = now_ms
        self._metrics = task_metrics
        self._log = log
        self._groups: dict[tuple[TableId, int, str], GroupSnapshot] = {}
        #: By table: its id, and its positions by tokens.
        self._indexes: dict[TableId, tuple[str, SnapshotIndex]] = {}
        #: By table and start of a generation: groups that are not closed for a newer generation.
        self._generations: dict[TableId, dict[int, list[GroupSnapshot]]] = {}
        self._all = groups
        self._saved = offsets.items()
        self._streamed = saved_windows(self._saved)
        self._moved: list[tuple[Position, Position | None]] = []
        self._plans: dict[tuple[TableId, str], RowPlan] = {}
        #: Definitions of tables as they were when they were looked at last.
        self._seen: dict[TableId, TableVersion] = {}
        #: The stream brings all that was written so long after a moment at which the log was there.
        self._settle_ms = settings.confidence_max_ms if settings.confidence_ms is None else settings.confidence_ms
        chunks = max(settings.snapshot_chunks, 1)
        self._limit = InFlightLimit(least=1, most=chunks, first=chunks)
        self._page_size = PageSize(settings.snapshot_rows)
        self._pace = Pace(settings.snapshot_rate)
        self._changed = asyncio.Event()
        self._wake: Callable[[], None] = lambda: None
        self._in_flight = 0
        self._progressed_s = time.monotonic()
        self._reported_s = 0.0
        self._sent = (0, 0)
        #: Whether what was reported last stays as it is.
        self._settled = False
        self._failures = 0
        self._began_s = time.monotonic()
        self._announced = False

    # The reader's calls.

    def holds(self, group: StreamGroup) -> bool:
        """See ``SnapshotHook``."""
        snapshot = self._groups.get(_key(group))
        if snapshot is None or snapshot.finished:
            return False
        before = snapshot.ready
        held = snapshot.asked()
        if snapshot.ready and not before:
            self._wake()
        return held

    def window_ended(self, group: StreamGroup, watermark_ms: int) -> None:
        """See ``SnapshotHook``; a group that is new here joins the snapshot."""
        snapshot = self._groups.get(_key(group))
        if snapshot is None:
            snapshot = self._join(group, watermark_ms)
        before = snapshot.ready
        snapshot.ended(watermark_ms)
        if snapshot.ready and not before:
            self._wake()
        if not snapshot.finished:
            self._changed.set()

    def row_filter(self, group: StreamGroup) -> RowFilter | None:
        """See ``SnapshotHook``: nothing is suppressed, but changes that the table will not show are noted."""
        snapshot = self._groups.get(_key(group))
        if snapshot is None or snapshot.finished:
            return None
        plan = self._plan(group.table)
        traces = snapshot.traces

        def watch(rows: list[LogRow]) -> list[LogRow]:
            plan.trace(rows, traces)
            return rows

        return watch

    def take(
        self, limit: int, out: list[SourceRecord], bad: list[BadRecord], offsets: list[tuple[Position, Position | None]]
    ) -> bool:
        """See ``SnapshotHook``."""
        self._look_at_tables()
        if self._moved:
            offsets.extend(self._moved)
            self._moved = []
        room = limit
        more = released = False
        for snapshot in list(self._groups.values()):
            page = snapshot.page
            if page is None or not snapshot.ready:
                continue
            feed = self._feed_of(snapshot.group.table)
            if page.plan.version != feed.newest.version:
                snapshot.restart()  # a page without a new column would be older than a change that was sent
                snapshot.give_up()
                released = True
                continue
            if room <= 0:
                more = True
                continue
            before = len(out)
            finished = snapshot.emit(room, feed.builder(feed.newest), out, bad, offsets, int(self._now_ms()))
            room -= len(out) - before
            if finished:
                released = True
                self._metrics.add(metrics.SNAPSHOT_CHUNKS, 1)
                if snapshot.finished:
                    self._forget(snapshot)
                    if self._signals is not None and self._all_sent(snapshot.group.table):
                        out.append(
                            self._signals.read(
                                feed.newest, int(self._now_ms()), (snapshot.partition, to_offset(snapshot.position))
                            )
                        )
            else:
                more = True
        if released:
            self._changed.set()
            self._wake()
        self._report()
        return more

    def _all_sent(self, table: TableId) -> bool:
        """Whether all rows of the table that are this task's were sent."""
        return all(
            (snapshot := self._groups.get(_key(group))) is not None and snapshot.finished
            for group in self._all
            if group.table == table
        )

    # Groups.

    def _join(self, group: StreamGroup, watermark_ms: int) -> GroupSnapshot:
        table = group.table
        feed = self._feed_of(table)
        if group.token_range is None:
            raise Fatal(
                f"The token range of the streams '{group.name}' of {table} is not known, so a snapshot of the table "
                "can't be merged with them: set snapshot.mode=never"
            )
        whole = unwrapped(group.token_range)
        index = self._index(table, feed.newest.table_id)
        of_table = self._generations.setdefault(table, {})
        older = False
        for start_ms, others in of_table.items():
            if start_ms < group.generation.start_ms:
                older = True
                while others:
                    others.pop().close()
        position = first_position(group, whole, feed.newest.table_id, index.about(whole))
        if group.later:
            position = SnapshotPosition(whole, (), feed.newest.table_id)
        position = self._started(feed, position)
        fresh = self._offsets.get(source_partition(group)) is None
        # Many groups share the memory: with few rows changed while the snapshot runs it does not matter how little each has.
        slots = _SLOTS if len(self._groups) < _FEW_GROUPS else _FEW_SLOTS
        snapshot = GroupSnapshot(group, position, _WINDOWS_FIRST if fresh else 0, slots, self._settle_ms)
        if older or table in self._streamed:
            # What was sent before this run is not remembered.
            snapshot.traces.add_all(watermark_ms * 1000 - 1)
        self._groups[_key(group)] = snapshot
        of_table.setdefault(group.generation.start_ms, []).append(snapshot)
        self._settled = False
        if "r" in self._settings.skipped:
            snapshot.close()  # nobody wants the rows; that they were not sent is not saved either
            return snapshot
        if snapshot.partition not in index:
            self._moved.append((snapshot.partition, to_offset(position)))
        index.put(snapshot.partition, whole, lambda: snapshot.position)
        self._moved.extend((partition, None) for partition in index.superseded_by(whole))
        if table not in self._seen:
            self._seen[table] = feed.newest
            self._forget_dropped(group, feed.newest)
        self._look_at(snapshot, feed.newest)
        return snapshot

    def _index(self, table: TableId, table_id: str) -> SnapshotIndex:
        """The positions of a table: those of this run, and what was saved of others when it began."""
        known = self._indexes.get(table)
        if known is None or known[0] != table_id:
            index = SnapshotIndex()
            for partition, position in positions_of(table, table_id, self._saved):
                index.put(partition, position.whole, lambda position=position: position)  # type: ignore[misc]
            for each in self._groups.values():
                if each.group.table == table:
                    index.put(each.partition, each.position.whole, lambda each=each: each.position)  # type: ignore[misc]
            known = self._indexes[table] = (table_id, index)
        return known[1]

    def _started(self, feed: TableFeed, position: SnapshotPosition) -> SnapshotPosition:
        """``position`` with the time of its start, if it is to be read and the table's changes are logged."""
        if position.started_ms or position.finished or feed.newest.options.off:
            return position
        return replace(position, started_ms=int(self._now_ms()))

    def _look_at_tables(self) -> None:
        """Start the snapshots again of tables that were dropped and made again, or whose log has or had a gap."""
        for table, seen in self._seen.items():
            newest = self._feed_of(table).newest
            if newest is not seen:
                self._seen[table] = newest
                snapshots = [
                    snapshot
                    for snapshot in self._groups.values()
                    if snapshot.group.table == table and not snapshot.closed
                ]
                for snapshot in snapshots:
                    self._look_at(snapshot, newest)
                if snapshots and newest.table_id != seen.table_id:
                    self._forget_dropped(snapshots[-1].group, newest)

    def _forget_dropped(self, group: StreamGroup, newest: TableVersion) -> None:
        """Remove what is saved of older generations of a table that was dropped and recreated."""
        self._moved.extend((partition, None) for partition in of_dropped(group, newest.table_id, self._saved))

    def _look_at(self, snapshot: GroupSnapshot, newest: TableVersion) -> None:
        position, feed = snapshot.position, self._feed_of(snapshot.group.table)
        replaced = bool(newest.table_id and position.table_id and newest.table_id != position.table_id)
        if replaced or (newest.options.off and position.started_ms):
            wanted = self._settings.snapshot_new_tables
            if not (wanted or replaced):
                return  # what was begun goes on
            restarted = SnapshotPosition(position.whole, position.whole if wanted else (), newest.table_id)
        else:
            restarted = position
        restarted = self._started(feed, restarted)
        if restarted == position:
            return
        if restarted.left != position.left or replaced:
            self._log.info(
                "%s: %s; the snapshot of group %s %s",
                snapshot.group.table,
                "it was dropped and made again" if replaced else "its cdc was turned off",
                snapshot.group.name,
                "starts again" if restarted.left else "is left out",
            )
            snapshot.start_again(restarted, int(self._now_ms()))
        else:
            snapshot.position = restarted
        self._moved.append((snapshot.partition, to_offset(restarted)))
        self._settled = self._announced = False
        self._changed.set()
        self._wake()

    def _forget(self, snapshot: GroupSnapshot) -> None:
        snapshot.traces.forget()
        self._reported_s = 0.0
        if all(other.finished for other in self._groups.values()) and not self._announced:
            self._announced = True
            self._log.info(
                "The snapshot of this task's share is finished: %d rows in %.0f s",
                sum(other.rows for other in self._groups.values()),
                time.monotonic() - self._began_s,
            )

    def _plan(self, table: TableId) -> RowPlan:
        version = self._feed_of(table).newest
        plan = self._plans.get((table, version.version))
        if plan is None:
            plan = self._plans[table, version.version] = RowPlan(version)
        return plan

    # Reading.

    async def run(self, wake: Callable[[], None]) -> None:
        """See ``SnapshotHook``: reads pages until the task ends; new groups may come at any time."""
        self._wake = wake
        busy: set[int] = set()

        async def chunk(snapshot: GroupSnapshot) -> None:
            try:
                await self._chunk(snapshot)
            finally:
                busy.discard(id(snapshot))
                self._changed.set()

        try:
            async with asyncio.TaskGroup() as jobs:
                while True:
                    self._changed.clear()
                    unfinished = [snapshot for snapshot in self._groups.values() if not snapshot.finished]
                    for snapshot in unfinished:
                        if len(busy) >= self._limit.value:
                            break
                        if id(snapshot) not in busy and self._due(snapshot):
                            busy.add(id(snapshot))
                            jobs.create_task(chunk(snapshot), name="scylla snapshot page")
                    with contextlib.suppress(TimeoutError):
                        # The limit is for what changes with time only (see ``_due``).
                        async with asyncio.timeout(1.0 if unfinished else None):
                            await self._changed.wait()
        except BaseExceptionGroup as group:
            # The first that failed; the others were cancelled.
            raise group.exceptions[0] from None

    def _due(self, snapshot: GroupSnapshot) -> bool:
        if not snapshot.may_begin or snapshot.watermark_ms is None:
            return False
        return (
            self._now_ms() - snapshot.watermark_ms < HEAD_MS + self._settings.confidence_max_ms
            or time.monotonic() - self._progressed_s > PATIENCE_S
        )

    async def _chunk(self, snapshot: GroupSnapshot) -> None:
        """Read one page of a group and wait until it was handed over: no more pages are held than may be read at once."""
        while (wait := self._pace.wait_s(time.monotonic())) > 0:  # noqa: ASYNC110 - what it waits for is time
            await asyncio.sleep(wait)
        if not snapshot.may_begin:
            return
        released = asyncio.Event()
        snapshot.on_release = released.set
        snapshot.begin()
        self._wake()  # a lane that rests looks again, and thereby says that no window of the group is under way
        try:
            await self._load(snapshot)
        except BaseException:
            snapshot.give_up()
            self._wake()
            raise
        if snapshot.ready:
            self._wake()
        if snapshot.held:
            await released.wait()

    async def _load(self, snapshot: GroupSnapshot) -> None:
        """Read pages until one has something new, or a fault says to try again later (then the hold is lifted)."""
        while True:
            feed = self._feed_of(snapshot.group.table)
            plan = self._plan(snapshot.group.table)
            if snapshot.version != plan.version:
                snapshot.version = plan.version
                snapshot.restart()
            epoch = snapshot.epoch
            try:
                page = await self._page(snapshot, plan)
            except SchemaChanged as error:
                await self._failed(snapshot, error)
                with contextlib.suppress(Retriable):  # a table that is gone: the stream knows what to do
                    await self._refresh(feed)
                return
            except Retriable as error:
                await self._failed(snapshot, error)
                return
            except Fatal as error:
                if snapshot.state is None:
                    raise
                snapshot.restart()  # a paging state that is not accepted any more
                await self._failed(snapshot, error)
                return
            self._failures = 0
            self._progressed_s = time.monotonic()
            if snapshot.epoch != epoch:
                return  # rows of a table that is gone
            if snapshot.closed or snapshot.loaded(plan, page.rows, page.state):
                return

    async def _page(self, snapshot: GroupSnapshot, plan: RowPlan) -> Page:
        settings = self._settings
        tokens = snapshot.position.left[0]
        asked = self._page_size.rows
        self._in_flight += 1
        began = time.monotonic()
        try:
            page = await self._session.page(
                plan.query,
                (tokens.after, tokens.upto),
                fetch_size=asked,
                state=snapshot.state,
                consistency=settings.consistency,
                timeout_s=settings.query_timeout_s,
                token=tokens.after + 1,
            )
        finally:
            self._in_flight -= 1
        now = time.monotonic()
        self._pace.spent(len(page.rows), now)
        self._limit.answered(now - began, full=2 * len(page.rows) >= asked, in_flight=self._in_flight + 1)
        self._page_size.answered(page.rows)
        return page

    async def _failed(self, snapshot: GroupSnapshot, error: Exception) -> None:
        """Lift the hold, pause; raises Retriable when too many tries in a row failed."""
        snapshot.give_up()
        self._wake()
        self._failures += 1
        self._limit.failed()
        self._page_size.failed()
        settings = self._settings
        if settings.max_tries is not None and self._failures > settings.max_tries:
            raise Retriable(
                f"{snapshot.group.table}: reading it for the snapshot failed {self._failures} times in a row: {error}"
            ) from error
        if self._failures == 1:
            self._log.warning(
                "%s: a page of the snapshot could not be read, trying again: %s", snapshot.group.table, error
            )
        await asyncio.sleep(
            pause_s(
                self._failures,
                settings.retry_base_ms,
                settings.retry_max_ms,
                int(settings.retry_jitter * 100),
                random.random(),  # noqa: S311
            )
        )

    # Numbers.

    def _report(self) -> None:
        now = time.monotonic()
        if self._settled or now - self._reported_s < _REPORT_S:
            return
        self._reported_s = now
        rows = sum(snapshot.rows for snapshot in self._groups.values())
        skipped = sum(snapshot.skipped for snapshot in self._groups.values())
        if rows > self._sent[0]:
            self._metrics.add(metrics.SNAPSHOT_ROWS, rows - self._sent[0])
        if skipped > self._sent[1]:
            self._metrics.add(metrics.SNAPSHOT_SKIPPED, skipped - self._sent[1])
        self._sent = (rows, skipped)
        found = self._positions()
        parts = [position for positions in found.values() for position in positions]
        whole = sum(size(position.whole) for position in parts)
        left = sum(size(position.left) for position in parts)
        self._metrics.set(metrics.SNAPSHOT_PROGRESS, 1 - left / whole if whole else 1.0)
        self._metrics.set(metrics.SNAPSHOT_RUNNING, float(left > 0))
        report_snapshots(self._metrics.debezium, shown(found), int(self._now_ms()))
        self._settled = not left

    def _positions(self) -> dict[TableId, list[SnapshotPosition]]:
        """Where the task's groups stand, those of which the reader has said nothing yet as they are saved.

        Without those that are not read: their rows are left out, or come with the groups of a newer generation.
        """
        found: dict[TableId, list[SnapshotPosition]] = {}
        for key, group in {
            **{_key(each): each for each in self._all},
            **{key: each.group for key, each in self._groups.items()},
        }.items():
            snapshot = self._groups.get(key)
            if snapshot is not None and not snapshot.closed:
                found.setdefault(group.table, []).append(snapshot.position)
            elif (
                snapshot is None
                and group.token_range is not None
                and not group.later
                and "r" not in self._settings.skipped
            ):
                whole = unwrapped(group.token_range)
                saved = self._offsets.get(partition_of(group))
                found.setdefault(group.table, []).append(
                    from_offset(saved) if saved else SnapshotPosition(whole, whole)
                )
        return found


def _key(group: StreamGroup) -> tuple[TableId, int, str]:
    return group.table, group.generation.start_ms, group.name
