"""The second look: rows are late only if they were not there the first time, memory is bounded, and looks are spread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from connectors.errors import Fatal
from connectors.scylla import positions
from connectors.scylla.model import ReadPosition
from connectors.scylla.source import recheck
from connectors.scylla.source.feeds import TableFeed
from connectors.scylla.source.fetching import LaneSection, LaneTask
from connectors.scylla.source.lanes import GroupState, Lane, plan_lane
from connectors.scylla.source.lateness import Confidence
from connectors.scylla.source.recheck import Recheck
from connectors.scylla.source.windows import WindowRules
from tests.support.settings import scylla_reading
from tests.unit.connectors.scylla.reader_world import LOG, TABLE, VERSION, Builder, Log, groups_of, timeuuid

if TYPE_CHECKING:
    import pytest

    from connectors.cql.cluster.session import ResultPage
    from connectors.scylla.source.lanes import LaneWindow

CEILING_MS = 30_000


class Refusing(Log):
    """A server that accepts no paging state."""

    async def page(self, *args: Any, state: bytes | None = None, **more: Any) -> ResultPage:
        if state is not None:
            raise Fatal("the server refuses the query: invalid paging state")
        return await super().page(*args, **more)


class World:
    """One lane of two streams, whose windows are read by hand, with a clock that only the test moves."""

    def __init__(self, rows: list[tuple[Any, ...]], position: ReadPosition, log: Log | None = None) -> None:
        self.now_ms = float(int(time.time() * 1000))
        (self.group,) = groups_of([2], None)
        self.state = GroupState(self.group, positions.source_partition(self.group), position)
        self.log = log or Log(rows)
        session: Any = self.log
        make_builder: Any = Builder
        self.confidence = Confidence(2_000, CEILING_MS)
        self.recheck = Recheck(session, scylla_reading(), self.confidence, lambda: self.now_ms, LOG)
        section = LaneSection(TableFeed(TABLE, (VERSION,), make_builder), self.state.start_ms, None, False)
        self.task = LaneTask(section, Lane([self.state], 480_000))

    def plan(self) -> LaneWindow:
        """The next window of the lane."""
        step = plan_lane(self.task.lane, int(self.now_ms) - 2_000, WindowRules(), 100, end_ms=None)
        assert step.window is not None
        return step.window

    def see(self, window: LaneWindow, rows: list[tuple[Any, ...]]) -> None:
        """A page of ``window`` with ``rows`` of one stream."""
        assert self.recheck.young(window)
        self.recheck.saw(self.task, window, rows[0][0], rows)

    def end(self, window: LaneWindow) -> None:
        """The last page of ``window``."""
        assert self.recheck.young(window)
        self.recheck.window_read(self.task, window)
        self.state.advance(window.end_ms)


def rows_of(stream: int, times: list[int]) -> list[tuple[Any, ...]]:
    return [(bytes([stream]) * 16, timeuuid(at, 0, 1), 0, 1, None, True, 1, 1, None) for at in times]


async def test_a_look_at_other_ranges_does_not_end_a_window_that_is_read_in_pages() -> None:
    """A lane that was behind reads its last window over many pages, while the second look comes by every second."""
    now = int(time.time() * 1000)
    first, second = rows_of(0, [now - 300_000, now - 200_000]), rows_of(1, [now - 100_000, now - 3_000])
    world = World([*first, *second], ReadPosition(now - 400_000, now - 400_000))
    window = world.plan()
    world.see(window, first)
    await world.recheck.look_again()
    world.see(window, second)
    world.end(window)
    world.now_ms += 2 * CEILING_MS + recheck.ZONE_MS
    await world.recheck.look_again()
    assert world.log.queries == 1, "the window was looked at again"
    assert world.recheck.due(world.state) == []
    assert world.confidence.late_rows == 0


async def test_a_window_that_was_young_at_its_first_page_is_so_until_its_last() -> None:
    now = int(time.time() * 1000)
    first, second = rows_of(0, [now - 20_000]), rows_of(1, [now - 10_000])
    world = World([*first, *second], ReadPosition(now - 25_000, now - 25_000))
    window = world.plan()
    world.see(window, first)
    world.now_ms += 2 * CEILING_MS
    world.see(window, second)
    world.end(window)
    world.now_ms += CEILING_MS
    await world.recheck.look_again()
    await world.recheck.look_again()
    assert world.confidence.late_rows == 0


async def test_rows_that_were_delivered_before_a_restart_are_not_late() -> None:
    """The first window after a restart is read from where it was left: what came before is not known to be there."""
    now = int(time.time() * 1000)
    before, after = rows_of(0, [now - 9_000]), rows_of(1, [now - 8_000])
    world = World([*before, *after], ReadPosition(now - 10_000, now - 5_000, done=1))
    window = world.plan()
    assert [read.streams for read in window.reads] == [(after[0][0],)]
    assert not world.recheck.young(window)
    world.state.advance(window.end_ms)
    following = world.plan()
    world.end(following)
    world.now_ms += 2 * CEILING_MS + recheck.ZONE_MS
    await world.recheck.look_again()
    await world.recheck.look_again()
    assert world.recheck.due(world.state) == []
    assert world.confidence.late_rows == 0


async def test_a_row_that_was_not_there_is_late() -> None:
    now = int(time.time() * 1000)
    world = World([], ReadPosition(now - 10_000, now - 10_000))
    window = world.plan()
    world.end(window)
    (late,) = rows_of(1, [now - 5_000])
    world.log.streams[late[0]] = [late]
    world.now_ms += 2 * CEILING_MS + recheck.ZONE_MS
    await world.recheck.look_again()
    assert [late_rows.rows for late_rows in world.recheck.due(world.state)] == [[late]]
    assert world.confidence.late_rows == 1


async def test_times_beyond_the_bound_are_not_kept_while_a_window_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window over a long quiet time may hold any number of rows."""
    monkeypatch.setattr(recheck, "MOST_TIMES", 5)
    now = int(time.time() * 1000)
    rows = rows_of(0, [now - 9_000 + number for number in range(20)])
    world = World(rows, ReadPosition(now - 10_000, now - 10_000))
    window = world.plan()
    assert world.recheck.young(window)
    for row in rows:
        world.recheck.saw(world.task, window, row[0], [row])
        assert world.recheck.kept_times <= 6
    assert world.recheck.left_out == 1
    assert not world.recheck.young(window)
    world.recheck.window_read(world.task, window)
    world.now_ms += 2 * CEILING_MS + recheck.ZONE_MS
    await world.recheck.look_again()
    assert world.log.queries == 0
    assert world.recheck.kept_times == 0


async def test_quiet_windows_that_wait_for_a_slow_server_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of very many streams ends windows faster than they can be looked at again, also without any rows."""
    monkeypatch.setattr(recheck, "MOST_TIMES", 5)
    monkeypatch.setattr(recheck, "ZONE_MS", 1)
    now = int(time.time() * 1000)
    world = World([], ReadPosition(now - 10_000, now - 10_000))
    for _ in range(20):
        world.now_ms += 1_000
        world.end(world.plan())
    assert world.recheck.left_out >= 14
    world.now_ms += 2 * CEILING_MS
    await world.recheck.look_again()
    assert 0 < world.log.queries <= 6
    assert world.recheck.kept_times == 0


async def test_a_paging_state_that_is_not_accepted_any_more_does_not_end_the_task() -> None:
    """As after an upgrade of a node: the server says the same of it as of a query that is wrong."""
    now = int(time.time() * 1000)
    rows = rows_of(0, [now - 9_000 + number for number in range(2_500)])
    world = World([], ReadPosition(now - 10_000, now - 10_000), Refusing(rows))
    window = world.plan()
    world.see(window, rows)
    world.end(window)
    world.now_ms += 2 * CEILING_MS + recheck.ZONE_MS
    await world.recheck.look_again()
    assert world.recheck.left_out == 1
    assert world.confidence.late_rows == 0


async def test_looks_that_are_due_together_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few wait their full pause each, and a thousand no longer than ten seconds together."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)

    monkeypatch.setattr("connectors.scylla.source.recheck.asyncio.sleep", pause)
    now = int(time.time() * 1000)
    world = World([], ReadPosition(now - 10_000, now - 10_000))
    for count in (3, 2_000):
        tasks = [LaneTask(world.task.section, world.task.lane) for _ in range(count)]
        for task in tasks:
            window = world.plan()
            assert world.recheck.young(window)
            world.recheck.window_read(task, window)
        world.now_ms += 2 * CEILING_MS + recheck.ZONE_MS
        await world.recheck.look_again()
        world.state.advance(int(world.now_ms) - 10_000)
        assert len(pauses) == count
        assert max(pauses) <= 0.02
        assert sum(pauses) <= 10.001
        pauses.clear()
