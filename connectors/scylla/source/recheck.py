"""A second look at what was read young: late rows still become events, and the confidence window is adapted to them.

A time range that was read as soon as the confidence window allowed is queried again, keys only, when it is older than the
longest confidence window. A row that was not there the first time is read whole and becomes an event at the end of its group's
next window: with the position of that window's end, so that no position says anything wrong. It comes behind newer changes of
its stream, as its write time shows. What is remembered for the second look is lost in a restart: the time range under way is
then not looked at again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal, Retriable
from connectors.scylla.model import STREAM, TIME
from connectors.scylla.source.windows import end_of, millis_of, start_of

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from connectors.cql.cluster.session import CqlSession
    from connectors.scylla.config.settings import ScyllaReadSettings
    from connectors.scylla.model import LogRow, TableVersion
    from connectors.scylla.source.feeds import TableFeed
    from connectors.scylla.source.fetching import LaneTask
    from connectors.scylla.source.lanes import GroupState, LaneWindow
    from connectors.scylla.source.lateness import Confidence

#: Windows are looked at again together, up to this long.
ZONE_MS: Final = 30_000
#: The most times of rows and windows that are remembered; time ranges beyond them are not looked at again.
MOST_TIMES: Final = 200_000
#: The most late rows of one time range of one stream that become events.
_MOST_LATE: Final = 1_000
_PAGE: Final = 2_000
#: The pause between two time ranges, and the longest that all that wait may take by such pauses.
_PAUSE_S: Final = 0.02
_SPREAD_S: Final = 10.0


@dataclass(slots=True)
class Late:
    """Late rows of one stream, with the definition and the log columns that they were selected with."""

    stream: bytes
    version: TableVersion
    columns: tuple[str, ...]
    rows: list[LogRow]


@dataclass(slots=True)
class RecheckZone:
    """A time range of some groups that was read young, with the times of the rows that were there."""

    feed: TableFeed
    groups: tuple[GroupState, ...]
    start_ms: int
    end_ms: int
    #: Whether a window is under way whose rows are in ``times`` and whose end is not in ``end_ms`` yet.
    is_reading: bool = False
    #: (end of a window, when it was read), in order.
    reads: list[tuple[int, float]] = field(default_factory=list)
    times: dict[bytes, set[bytes]] = field(default_factory=dict)
    #: Both together.
    count: int = 0


class Recheck:
    """Remembers what was read young and looks at it again.

    Args:
        session: the CQL session.
        settings: options.
        confidence: learns from late rows.
        now_ms: the servers' time.
        log: the task's.
    """

    def __init__(
        self,
        session: CqlSession,
        settings: ScyllaReadSettings,
        confidence: Confidence,
        now_ms: Callable[[], float],
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._session = session
        self._settings = settings
        self._confidence = confidence
        self._now_ms = now_ms
        self._log = log
        self._open: dict[int, RecheckZone] = {}
        self._waiting: deque[RecheckZone] = deque()
        self._late_rows: dict[str, list[Late]] = {}
        self._count = 0
        #: Number of time ranges that were not looked at again, for lack of memory or because a query failed.
        self.left_out = 0

    # Called while windows are read.

    @property
    def kept_times(self) -> int:
        """The number of times of rows and windows that are remembered."""
        return self._count

    def young(self, window: LaneWindow) -> bool:
        """Whether ``window`` is read so early that rows of it may still come.

        It is decided when the first page of a window comes: rows of pages that were not seen would count as late, and pages may
        wait for long before events are made of them.
        """
        if window.is_young is None:
            window.read_ms = self._now_ms()
            window.is_young = window.end_ms > window.read_ms - self._confidence.ceiling_ms
        return window.is_young

    def saw(self, task: LaneTask, window: LaneWindow, stream: bytes, rows: list[LogRow]) -> None:
        """Rows of a young window were read."""
        if not window.is_young:
            return
        zone = self._extend_zone(task, window)
        times = zone.times.setdefault(stream, set())
        before = len(times)
        times.update([row[TIME] for row in rows])
        zone.count += len(times) - before
        self._count += len(times) - before
        if self._count > MOST_TIMES:
            self._close_zone(id(task))
            window.is_young = False

    def window_read(self, task: LaneTask, window: LaneWindow) -> None:
        """A young window was read to its end."""
        if not window.is_young:
            return
        zone = self._extend_zone(task, window)
        zone.is_reading = False
        zone.end_ms = window.end_ms
        zone.reads.append((window.end_ms, window.read_ms))
        zone.count += 1
        self._count += 1
        if zone.end_ms - zone.start_ms >= ZONE_MS:
            self._close_zone(id(task))

    def _extend_zone(self, task: LaneTask, window: LaneWindow) -> RecheckZone:
        zone = self._open.get(id(task))
        if zone is not None and (zone.groups != window.groups or zone.end_ms != window.start_ms):
            self._close_zone(id(task))
            zone = None
        if zone is None:
            zone = self._open[id(task)] = RecheckZone(
                task.section.feed, window.groups, window.start_ms, window.start_ms
            )
        zone.is_reading = True
        return zone

    def _close_zone(self, key: int) -> None:
        zone = self._open.pop(key)
        if self._count > MOST_TIMES or not zone.reads:
            self._count -= zone.count
            self.left_out += 1
        else:
            self._waiting.append(zone)

    def due(self, state: GroupState) -> list[Late]:
        """Late rows of a group, to be made events now."""
        return self._late_rows.pop(state.name, []) if self._late_rows else []

    # In the background.

    async def run(self) -> None:
        """Look again every second until cancelled."""
        while True:
            await asyncio.sleep(1)
            await self.look_again()

    async def look_again(self) -> None:
        """Look again at whatever is old enough."""
        old = self._now_ms() - self._confidence.ceiling_ms
        for key, zone in list(self._open.items()):
            if not zone.is_reading and zone.end_ms < old - ZONE_MS:  # its lane is gone, or far from the head
                self._close_zone(key)
        due: list[RecheckZone] = []
        while self._waiting and self._waiting[0].end_ms < old:
            due.append(self._waiting.popleft())
        for zone in due:
            self._count -= zone.count
            try:
                await self._check_zone(zone)
            except (Retriable, Fatal) as error:
                # Perhaps only a paging state was refused. If all queries are, those of the reader fail, too.
                self.left_out += 1
                self._log.debug("%s: a time range could not be read again: %s", zone.feed.table, error)
            # A thousand lanes that started together are due together: their first reads must not wait for this.
            await asyncio.sleep(min(_PAUSE_S, _SPREAD_S / len(due)))

    async def _check_zone(self, zone: RecheckZone) -> None:
        owners = {stream: state for state in zone.groups for stream in state.group.streams}
        streams = list(owners)
        limit = self._settings.streams_per_query
        for first in range(0, len(streams), limit):
            part = streams[first : first + limit]
            late = await self._find_late(zone, part)
            for stream, times in late.items():
                await self._fetch_rows(zone, owners[stream], stream, sorted(times, key=millis_of)[:_MOST_LATE])

    async def _find_late(self, zone: RecheckZone, streams: list[bytes]) -> dict[bytes, set[bytes]]:
        """Times of rows that are there and were not."""
        feed = zone.feed
        single = len(streams) == 1
        cql = feed.text(feed.newest, single=single, keys_only=True)
        late: dict[bytes, set[bytes]] = {}
        nothing: set[bytes] = set()
        state: bytes | None = None
        while True:
            page = await self._session.page(
                cql,
                (streams[0] if single else streams, start_of(zone.start_ms), end_of(zone.end_ms - 1)),
                fetch_size=_PAGE,
                state=state,
                consistency=self._settings.consistency,
                types=feed.types(feed.newest)[:3],
                timeout_s=self._settings.query_timeout_s,
            )
            for row in page.rows:
                stream, moment = row[STREAM], row[TIME]
                if moment not in zone.times.get(stream, nothing):
                    late.setdefault(stream, set()).add(moment)
            state = page.state
            if state is None:
                return late

    async def _fetch_rows(self, zone: RecheckZone, owner: GroupState, stream: bytes, times: list[bytes]) -> None:
        feed = zone.feed
        version = feed.newest
        cql, types, columns = feed.text(version, single=True), feed.types(version), feed.selected_columns(version)
        for moment in times:
            rows: list[LogRow] = []
            state: bytes | None = None
            while True:
                page = await self._session.page(
                    cql,
                    (stream, moment, moment),
                    fetch_size=_PAGE,
                    state=state,
                    consistency=self._settings.consistency,
                    types=types,
                    timeout_s=self._settings.query_timeout_s,
                )
                rows += page.rows
                state = page.state
                if state is None:
                    break
            if not rows:
                continue
            at = millis_of(moment)
            read_ms = next((read for end, read in zone.reads if at < end), zone.reads[-1][1])
            self._confidence.observe(read_ms - at, time.monotonic(), len(rows))
            self._log.warning(
                "%s: %d rows written at %d became readable more than %.1f s later; they come now, behind newer "
                "ones. The confidence window is now %.1f s; is a writer's clock behind?",
                feed.table,
                len(rows),
                at,
                (read_ms - at) / 1000,
                self._confidence.window_ms(time.monotonic()) / 1000,
            )
            self._late_rows.setdefault(owner.name, []).append(Late(stream, version, columns, rows))
