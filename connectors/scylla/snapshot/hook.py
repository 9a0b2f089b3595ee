"""The snapshots of a task's groups as the reader knows them (``connectors.scylla.hooks``): reads pages, next to the streams.

A group reads for one request at a time: the first of the list of which rows are left and that is not paused.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from connectors.cql.cluster.session import SchemaChanged
from connectors.errors import Fatal, Retriable
from connectors.scylla.positions import saved_windows, source_partition
from connectors.scylla.snapshot.feeds import TableRequests
from connectors.scylla.snapshot.group import GroupSnapshot
from connectors.scylla.snapshot.index import SavedSnapshots, shares_of
from connectors.scylla.snapshot.merging import (
    SNAPSHOT_ID,
    SnapshotPosition,
    first_position,
    of_dropped,
    partition_of,
    to_offset,
    unwrap_range,
)
from connectors.scylla.snapshot.pages import PageReader
from connectors.snapshot.jobs import JobRunner
from connectors.snapshot.requests import INITIAL, RequestList, SnapshotRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connectors.api import BadRecord, Instruction, OffsetReader, Position, SourceRecord
    from connectors.cql.cluster.session import CqlSession
    from connectors.cql.token_ranges import TokenRange
    from connectors.scylla.config.settings import ScyllaReadSettings
    from connectors.scylla.events.ums_signals import ScyllaUmsSignals
    from connectors.scylla.hooks import RowFilter
    from connectors.scylla.model import LogRow, StreamGroup, TableId, TableVersion
    from connectors.scylla.snapshot.feeds import SnapshotFeeds
    from connectors.scylla.snapshot.index import SnapshotIndex
    from connectors.scylla.snapshot.report import SnapshotReport
    from connectors.scylla.source.feeds import TableFeed

#: The stream goes first: no page is read of a group whose stream is this far behind ...
HEAD_MS: Final = 60_000
#: ... unless none was read for this long.
PATIENCE_S: Final = 600.0
#: Windows of a stream without a saved position that have to end first: with the second one the first one's position was given.
_WINDOWS_FIRST: Final = 2
_RECHECK_S: Final = 1.0
#: See ``ChangeTraces``: 128 kB each.
_SLOTS: Final = 1 << 14
_FEW_GROUPS: Final = 64
_FEW_SLOTS: Final = 1 << 9


class ScyllaSnapshot:
    """Implements ``SnapshotHook``. One per run of a task; use it inside one event loop.

    Args:
        session: the CQL session.
        settings: options.
        offsets: the positions saved before the task began.
        groups: all of the task.
        feeds: the tables.
        now_ms: the servers' time.
        report: numbers and log lines go there.
        signals: makes the message at a table's end, where the output form has one.
    """

    def __init__(
        self,
        session: CqlSession,
        settings: ScyllaReadSettings,
        offsets: OffsetReader,
        groups: Sequence[StreamGroup],
        *,
        feeds: SnapshotFeeds,
        now_ms: Callable[[], float],
        report: SnapshotReport,
        signals: ScyllaUmsSignals | None = None,
    ) -> None:
        self._signals = signals
        self._settings = settings
        self._offsets = offsets
        self._feeds = feeds
        self._now_ms = now_ms
        self._report = report
        self._log = report.log
        self._groups: dict[tuple[TableId, int, str], GroupSnapshot] = {}
        #: By table and start of a generation: groups that are not closed for a newer generation.
        self._generations: dict[TableId, dict[int, list[GroupSnapshot]]] = {}
        self._all = groups
        items = offsets.items()
        self._saved = SavedSnapshots(items)
        self._streamed = saved_windows(items)
        self._moved: list[tuple[Position, Position | None]] = []
        #: Definitions of tables as they were when they were looked at last.
        self._seen: dict[TableId, TableVersion] = {}
        self._pages = PageReader(session, settings, report.log)
        self._runner = JobRunner(self._due_groups, self._read_chunk, lambda: self._pages.limit, self._recheck_s)
        #: Groups of which a page is being read, or waits to be handed over.
        self._busy: set[GroupSnapshot] = set()
        self._wake: Callable[[], None] = lambda: None
        self._requests = TableRequests()
        self._list = RequestList(lambda name: {SNAPSHOT_ID: name}, self._take_requests)
        if settings.snapshot == "initial":
            self._list.add(SnapshotRequest(id=INITIAL, tables=[".*"], origin="initial"))
            self._list.hand_over()

    # Requests.

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """The operator's complete list (``SourceTask.instruct``). Does not block."""
        known_ids = self._saved.requests() | {request.id for request in self._requests.all}
        self._list.instruct(instructions, lambda name: name == INITIAL)
        for name in known_ids - {INITIAL, *(str(row["id"]) for row in instructions)}:
            self._delete_request(name)

    def _take_requests(self, requests: list[SnapshotRequest]) -> None:
        self._requests = TableRequests(requests)
        for snapshot in self._groups.values():
            self._follow_requests(snapshot)
        self._report.restart()
        self._runner.wake()
        self._wake()

    def _delete_request(self, request: str) -> None:
        """The operator has deleted a request: keep nothing of it."""
        partitions = self._saved.drop(request, self._all)
        for snapshot in self._groups.values():
            if snapshot.position_of(request) is not None:
                partitions.append(partition_of(snapshot.group, request))
                snapshot.forget(request)
        self._moved = [(partition, offset) for partition, offset in self._moved if partition not in partitions]
        self._moved += [(partition, None) for partition in partitions]

    def _follow_requests(self, snapshot: GroupSnapshot) -> None:
        """Let a group do what is asked for."""
        if snapshot.closed:
            return
        group, now_ms = snapshot.group, int(self._now_ms())
        requests = self._requests.of(group.table)
        for request in requests:
            position = snapshot.position_of(request.id)
            if position is None:
                position = self._first_position(group, snapshot.position.whole, request.id)
                snapshot.put(request.id, position)
                self._register_share(snapshot, request.id)
            if request.state == "cancelled" and not position.finished:
                position = replace(position, cancelled=True, finished_ms=now_ms)
                if request.id == snapshot.request:
                    snapshot.start_again(position, now_ms)
                snapshot.put(request.id, position)
                self._moved.append((partition_of(group, request.id), to_offset(position)))
        chosen = _choose_request(snapshot, requests)
        if chosen == snapshot.request:
            states = {request.id: request.state for request in requests}
            snapshot.pause(paused=states.get(chosen) == "paused")
            if snapshot.finished:
                snapshot.traces.forget()
            return
        position = self._mark_started(self._feeds.feed(group.table), snapshot.position_of(chosen) or snapshot.position)
        snapshot.turn_to(chosen, position, now_ms)
        snapshot.pause(paused=False)
        self._moved.append((snapshot.partition, to_offset(position)))
        self._report.settled = False
        self._runner.wake()

    # The reader's calls.

    def holds(self, group: StreamGroup) -> bool:
        """See ``SnapshotHook``."""
        snapshot = self._groups.get(_group_key(group))
        if snapshot is None or snapshot.closed:
            return False
        before = snapshot.ready
        request = snapshot.turns.asked()
        if snapshot.ready and not before:
            self._wake()
        return request

    def window_ended(self, group: StreamGroup, watermark_ms: int) -> None:
        """See ``SnapshotHook``; a group that is new here joins the snapshot."""
        snapshot = self._groups.get(_group_key(group))
        if snapshot is None:
            snapshot = self._join_group(group, watermark_ms)
        before = snapshot.ready
        snapshot.turns.ended(watermark_ms)
        if snapshot.ready and not before:
            self._wake()
        if not snapshot.finished:
            self._runner.wake()

    def row_filter(self, group: StreamGroup) -> RowFilter | None:
        """See ``SnapshotHook``: nothing is suppressed, but changes that the table will not show are noted."""
        snapshot = self._groups.get(_group_key(group))
        if snapshot is None or snapshot.finished:
            return None
        plan = self._feeds.row_plan(group.table)
        traces = snapshot.traces

        def watch(rows: list[LogRow]) -> list[LogRow]:
            plan.trace(rows, traces)
            return rows

        return watch

    def take(
        self, limit: int, out: list[SourceRecord], bad: list[BadRecord], offsets: list[tuple[Position, Position | None]]
    ) -> bool:
        """See ``SnapshotHook``."""
        self._list.start_due()
        self._look_at_tables()
        if self._moved:
            offsets.extend(self._moved)
            self._moved = []
        room = limit
        has_more = released = False
        for snapshot in () if self._report.settled else list(self._groups.values()):
            page = snapshot.page
            if page is None or not snapshot.ready:
                continue
            feed = self._feeds.feed(snapshot.group.table)
            if page.plan.version != feed.newest.version:
                snapshot.restart()  # a page without a new column would be older than a change that was sent
                snapshot.give_up()
                released = True
                continue
            if room <= 0:
                has_more = True
                continue
            before = len(out)
            finished = snapshot.emit(room, feed.builder(feed.newest), out, bad, offsets, int(self._now_ms()))
            room -= len(out) - before
            if finished:
                released = True
                self._report.count_chunk()
                if snapshot.finished:
                    if self._signals is not None and self._all_sent(snapshot.group.table, snapshot.request):
                        out.append(
                            self._signals.read(
                                feed.newest, int(self._now_ms()), (snapshot.partition, to_offset(snapshot.position))
                            )
                        )
                    self._forget_group(snapshot)
            else:
                has_more = True
        if released:
            self._runner.wake()
            self._wake()
        self._report.report(self._groups.values(), self._requests.all, self._group_positions, int(self._now_ms()))
        return has_more

    def _all_sent(self, table: TableId, request: str) -> bool:
        """Whether all rows of the table that are this task's were sent."""
        return all(
            (snapshot := self._groups.get(_group_key(group))) is not None
            and (position := snapshot.position_of(request)) is not None
            and position.finished
            for group in self._all
            if group.table == table
        )

    # Groups.

    def _join_group(self, group: StreamGroup, watermark_ms: int) -> GroupSnapshot:
        table = group.table
        feed = self._feeds.feed(table)
        if group.token_range is None:
            reason = (
                f"The token range of the streams '{group.name}' of {table} is not known, so a snapshot of the table "
                "can't be merged with them"
            )
            if self._settings.snapshot == "initial":
                raise Fatal(f"{reason}: set snapshot.mode=never")
            self._log.debug("%s", reason)
        whole = unwrap_range(group.token_range) if group.token_range is not None else ()
        of_table = self._generations.setdefault(table, {})
        older = False
        for start_ms, others in of_table.items():
            if start_ms < group.generation.start_ms:
                older = True
                while others:
                    others.pop().close()
        requests = self._requests.of(table) if whole else []
        positions = {request.id: self._first_position(group, whole, request.id) for request in requests}
        first = next(
            (request.id for request in requests if request.state == "running" and not positions[request.id].finished),
            next(iter(positions), ""),
        )
        position = self._mark_started(feed, positions.pop(first, SnapshotPosition(whole, ())))
        fresh = self._offsets.get(source_partition(group)) is None
        # Many groups share the memory: with few rows changed while the snapshot runs it does not matter how little each has.
        slots = _SLOTS if len(self._groups) < _FEW_GROUPS else _FEW_SLOTS
        # The stream brings all that was written that long after a moment at which the log was there.
        settings = self._settings
        settle_ms = settings.confidence_max_ms if settings.confidence_ms is None else settings.confidence_ms
        snapshot = GroupSnapshot(group, position, _WINDOWS_FIRST if fresh else 0, slots, settle_ms, first)
        snapshot.others = positions
        if older or table in self._streamed:
            # What was sent before this run is not remembered.
            snapshot.traces.add_all(watermark_ms * 1000 - 1)
        if not first:
            snapshot.traces.forget()
        self._groups[_group_key(group)] = snapshot
        of_table.setdefault(group.generation.start_ms, []).append(snapshot)
        self._report.settled = False
        if "r" in self._settings.skipped or not whole:
            snapshot.close()  # the rows are not wanted; that they were not sent is not saved either
            return snapshot
        for request in requests:
            self._register_share(snapshot, request.id)
        if table not in self._seen:
            self._seen[table] = feed.newest
            self._forget_dropped(group, feed.newest)
        self._look_at(snapshot, feed.newest)
        return snapshot

    def _first_position(self, group: StreamGroup, whole: tuple[TokenRange, ...], request: str) -> SnapshotPosition:
        """The position at which a group's share of a request starts or resumes."""
        table_id = self._feeds.feed(group.table).newest.table_id
        saved = self._find_index(group.table, request).about(whole)
        if group.later and request == INITIAL:
            return SnapshotPosition(whole, (), table_id)
        return first_position(group, whole, table_id, saved, request)

    def _register_share(self, snapshot: GroupSnapshot, request: str) -> None:
        """Keep a group's new share of a request among the positions of the table."""
        index = self._find_index(snapshot.group.table, request)
        partition = partition_of(snapshot.group, request)
        position = snapshot.position_of(request) or snapshot.position
        if partition not in index:
            self._moved.append((partition, to_offset(position)))
        index.put(partition, position.whole, lambda: snapshot.position_of(request) or position)
        self._moved.extend((superseded, None) for superseded in index.superseded_by(position.whole))

    def _find_index(self, table: TableId, request: str) -> SnapshotIndex:
        """The positions of a table: those of this run, and what was saved of others when it began."""
        return self._saved.index(table, self._feeds.feed(table).newest.table_id, request, self._groups.values())

    def _mark_started(self, feed: TableFeed, position: SnapshotPosition) -> SnapshotPosition:
        """``position`` with the time of its start, if it is to be read and the table's changes are logged."""
        if position.started_ms or position.finished or feed.newest.options.off:
            return position
        return replace(position, started_ms=int(self._now_ms()))

    def _look_at_tables(self) -> None:
        """Start the snapshots again of tables that were dropped and recreated, or whose log has or had a gap."""
        for table, seen_version in self._seen.items():
            newest = self._feeds.feed(table).newest
            if newest is not seen_version:
                self._seen[table] = newest
                snapshots = [
                    snapshot
                    for snapshot in self._groups.values()
                    if snapshot.group.table == table and not snapshot.closed
                ]
                for snapshot in snapshots:
                    self._look_at(snapshot, newest)
                if snapshots and newest.table_id != seen_version.table_id:
                    self._forget_dropped(snapshots[-1].group, newest)

    def _forget_dropped(self, group: StreamGroup, newest: TableVersion) -> None:
        """Remove what is saved of older generations of a table that was dropped and recreated."""
        self._moved.extend((partition, None) for partition in of_dropped(group, newest.table_id, self._saved.items))

    def _look_at(self, snapshot: GroupSnapshot, newest: TableVersion) -> None:
        for request in [snapshot.request, *snapshot.others]:
            if request:
                self._look_at_share(snapshot, request, newest)
        self._follow_requests(snapshot)

    def _look_at_share(self, snapshot: GroupSnapshot, request: str, newest: TableVersion) -> None:
        position, feed = snapshot.position_of(request), self._feeds.feed(snapshot.group.table)
        if position is None or (request != INITIAL and position.finished):
            return
        replaced = bool(newest.table_id and position.table_id and newest.table_id != position.table_id)
        if replaced or (newest.options.off and position.started_ms):
            is_wanted = self._settings.snapshot_new_tables or request != INITIAL
            if not (is_wanted or replaced):
                return  # a snapshot that was started continues
            restarted = SnapshotPosition(position.whole, position.whole if is_wanted else (), newest.table_id)
        else:
            restarted = position
        current = request == snapshot.request
        if current:
            restarted = self._mark_started(feed, restarted)
        if restarted == position:
            return
        if restarted.left != position.left or replaced:
            self._log.info(
                "%s: %s; the snapshot of group %s %s",
                snapshot.group.table,
                "it was dropped and recreated" if replaced else "its cdc was turned off",
                snapshot.group.name,
                "starts again" if restarted.left else "is left out",
            )
            if current:
                snapshot.start_again(restarted, int(self._now_ms()))
        snapshot.put(request, restarted)
        self._moved.append((partition_of(snapshot.group, request), to_offset(restarted)))
        self._report.restart()
        self._runner.wake()
        self._wake()

    def _forget_group(self, snapshot: GroupSnapshot) -> None:
        self._follow_requests(snapshot)
        self._report.group_finished(self._groups.values())

    # Reading.

    async def run(self, wake: Callable[[], None]) -> None:
        """See ``SnapshotHook``: reads pages until the task ends; new groups may come at any time."""
        self._wake = wake
        await self._runner.run()

    def _due_groups(self) -> Iterator[GroupSnapshot]:
        """The groups of which a page may be read now."""
        for snapshot in self._groups.values():
            if not snapshot.finished and snapshot not in self._busy and self._is_due(snapshot):
                self._busy.add(snapshot)
                yield snapshot

    def _recheck_s(self) -> float | None:
        """For changes that come with time only (see ``_is_due``)."""
        return None if all(snapshot.finished for snapshot in self._groups.values()) else _RECHECK_S

    def _is_due(self, snapshot: GroupSnapshot) -> bool:
        if not snapshot.may_begin or snapshot.turns.watermark_ms is None:
            return False
        return (
            self._now_ms() - snapshot.turns.watermark_ms < HEAD_MS + self._settings.confidence_max_ms
            or time.monotonic() - self._pages.progressed_s > PATIENCE_S
        )

    async def _read_chunk(self, snapshot: GroupSnapshot) -> None:
        """Read one page of a group and wait until it was handed over: no more pages are held than may be read at once."""
        try:
            await self._read_page(snapshot)
        finally:
            self._busy.discard(snapshot)

    async def _read_page(self, snapshot: GroupSnapshot) -> None:
        await self._pages.pages.wait()
        if not snapshot.may_begin:
            return
        released = asyncio.Event()
        snapshot.turns.on_release = released.set
        snapshot.turns.begin()
        self._wake()  # a lane that rests looks again, and thereby says that no window of the group is under way
        try:
            await self._load_pages(snapshot)
        except BaseException:
            snapshot.give_up()
            self._wake()
            raise
        if snapshot.ready:
            self._wake()
        if snapshot.turns.is_held:
            await released.wait()

    async def _load_pages(self, snapshot: GroupSnapshot) -> None:
        """Read pages until one has something new, or an error says to retry later (then the hold is lifted)."""
        while True:
            feed = self._feeds.feed(snapshot.group.table)
            plan = self._feeds.row_plan(snapshot.group.table)
            if snapshot.version != plan.version:
                snapshot.version = plan.version
                snapshot.restart()
            epoch = snapshot.epoch
            try:
                page = await self._pages.read(
                    snapshot.group.table, plan.query, snapshot.position.left[0], snapshot.state
                )
            except SchemaChanged as error:
                await self._handle_fault(snapshot, error)
                with contextlib.suppress(Retriable):  # a table that is gone: the stream knows what to do
                    await self._feeds.refresh(feed)
                return
            except Retriable as error:
                await self._handle_fault(snapshot, error)
                return
            except Fatal as error:
                if snapshot.state is None:
                    raise
                snapshot.restart()  # a paging state that is not accepted any more
                await self._handle_fault(snapshot, error)
                return
            if snapshot.epoch != epoch:
                return  # rows of a table that is gone
            if snapshot.closed or snapshot.loaded(plan, page.rows, page.state):
                return

    async def _handle_fault(self, snapshot: GroupSnapshot, error: Exception) -> None:
        """Lift the hold, pause; raises Retriable when too many tries in a row failed."""
        snapshot.give_up()
        self._wake()
        await self._pages.failed(snapshot.group.table, error)

    def _group_positions(self, request: SnapshotRequest) -> dict[TableId, list[SnapshotPosition]]:
        """Where the task's groups stand, those of which the reader has said nothing yet as they are saved."""
        if "r" in self._settings.skipped:
            return {}
        groups = {
            _group_key(group): group
            for group in (*self._all, *(group_snapshot.group for group_snapshot in self._groups.values()))
        }
        joined = {
            key: group_snapshot
            for key, group_snapshot in self._groups.items()
            if self._requests.names(request, group_snapshot.group.table)
        }
        waiting = [
            group
            for key, group in groups.items()
            if key not in self._groups and self._requests.names(request, group.table)
        ]
        return shares_of(request.id, joined.values(), waiting, self._offsets)


def _choose_request(snapshot: GroupSnapshot, requests: Sequence[SnapshotRequest]) -> str:
    """The request that a group reads for: the first that is not paused and of which rows are left, else the one so far."""
    for request in requests:
        position = snapshot.position_of(request.id)
        if request.state == "running" and position is not None and not position.finished:
            return request.id
    return snapshot.request


def _group_key(group: StreamGroup) -> tuple[TableId, int, str]:
    return group.table, group.generation.start_ms, group.name
