"""The snapshot of one group of streams: when its pages may be read and handed over, and what they become. No I/O, no clock.

The turns: ``may_begin`` - ``begin`` (the group is held from here on) - a page is read - ``loaded`` or ``give_up`` - ``ready`` -
``emit`` until it returns that the page is finished, which ends the hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from connectors.scylla.snapshot.merging import LEFT, ROWS, ChangeTraces, SnapshotPosition, partition_of, to_offset
from connectors.scylla.snapshot.order import Seek
from connectors.snapshot.requests import INITIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import BadRecord, Position, SourceRecord
    from connectors.scylla.events.contract import EventBuilder
    from connectors.scylla.model import StreamGroup
    from connectors.scylla.snapshot.rows import RawRow, RowPlan, SnapshotRow


@dataclass(slots=True)
class Loaded:
    """A page that waits to be handed over.

    Attributes:
        plan: of the table version that it was read with.
        items: rows to be sent.
        state: where the next page begins, None at the end of the range.
        at: how many items were handed over.
    """

    plan: RowPlan
    items: list[SnapshotRow]
    state: bytes | None
    at: int = 0


def _ignore_call() -> None:
    """Do nothing: no caller waits."""


@dataclass(slots=True)
class GroupTurns:
    """The turns of a group's stream and its snapshot: a page is handed over while no window is under way.

    Attributes:
        windows_first: windows of the stream that still have to end before a page may be read.
        watermark_ms: everything before was handed over; None until the reader has said so.
        is_held: whether the stream waits for a page.
        on_release: called when a hold ends.
    """

    windows_first: int
    watermark_ms: int | None = None
    is_held: bool = False
    on_release: Callable[[], None] = _ignore_call
    under_way: bool = True
    _asked: bool = False
    #: Whether a hold has kept the stream waiting, and it has not had its turn since.
    _owed: bool = False
    _refused: bool = False

    def asked(self) -> bool:
        """The reader would begin a window: whether it must not."""
        self._asked = True
        if self.is_held:
            self._refused = True
        self.under_way = not self.is_held
        return self.is_held

    def ended(self, watermark_ms: int) -> None:
        """A window has ended, or the reader says where it begins."""
        self.watermark_ms = watermark_ms
        self.under_way = False
        if self._asked:
            self.windows_first -= 1
            self._owed = False

    @property
    def may_begin(self) -> bool:
        """Whether it is the snapshot's turn. After a hold that kept the reader waiting, the reader has its turn first."""
        return not (self.is_held or self._owed or self.windows_first > 0)

    def begin(self) -> None:
        """Hold the group."""
        self.is_held = True
        self._refused = False

    def release(self) -> None:
        """End the hold."""
        self.is_held = False
        self._owed = self._refused
        self.on_release()


class GroupSnapshot:
    """See the module.

    Args:
        group: the group.
        position: of its snapshot.
        windows_first: windows of the stream that have to end before the first page is handed over. Without a saved position the
            stream would begin later after a crash than it did now, and changes that the page leaves to it would be lost.
        slots: see ``ChangeTraces``.
        settle_ms: how far the stream has to be past the snapshot's start before the first page is read. It covers nodes that
            did not know of ``cdc`` at the start, and clocks that are ahead.
        request: the id of the request that ``position`` is of.
    """

    def __init__(
        self,
        group: StreamGroup,
        position: SnapshotPosition,
        windows_first: int = 0,
        slots: int = 1 << 12,
        settle_ms: int = 0,
        request: str = INITIAL,
    ) -> None:
        self.group: Final = group
        self._slots = slots
        self._settle_ms = settle_ms
        #: Goes up when the snapshot starts again: a page that was asked for before is of no use.
        self.epoch = 0
        self.request = request
        self.partition: Position = partition_of(group, request)
        self.position = position
        #: Positions of the group's other requests, by id.
        self.others: dict[str, SnapshotPosition] = {}
        self.paused = False
        self.traces = ChangeTraces(slots)
        self.turns = GroupTurns(windows_first)
        self.closed = False
        self.page: Loaded | None = None
        #: Of the range being read: where the next page begins; None: at its start.
        self.state: bytes | None = None
        self.version = ""
        self.rows = 0
        self.left_out = 0
        self.skipped = 0
        #: Whether the range is read from its start, and what was sent of its first token is still to be found.
        self._seeking = True
        self._seek: Seek | None = None

    # A page's way.

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be read by this group."""
        return self.closed or self.position.finished

    @property
    def may_begin(self) -> bool:
        """Whether a page may be read."""
        return self.settled and self.turns.may_begin and not (self.finished or self.paused)

    @property
    def settled(self) -> bool:
        """Whether the stream is so far past the start that it brings every change at its position or later."""
        started_ms, watermark_ms = self.position.started_ms, self.turns.watermark_ms
        return watermark_ms is not None and started_ms > 0 and watermark_ms >= started_ms + self._settle_ms

    def give_up(self) -> None:
        """No page, for now."""
        self.page = None
        self.turns.release()

    def close(self) -> None:
        """The group is not read any more: its rows come with the groups of a newer generation."""
        self.closed = True
        self.give_up()

    def turn_to(self, request: str, position: SnapshotPosition, now_ms: int) -> None:
        """Read for another request from now on."""
        if self.request:
            self.others[self.request] = self.position
        self.others.pop(request, None)
        self.request, self.partition = request, partition_of(self.group, request)
        self.start_again(position, now_ms)

    def pause(self, *, paused: bool) -> None:
        """Read no more pages for now; or continue."""
        if paused and not self.paused:
            self.epoch += 1
            self.restart()
            self.give_up()
        self.paused = paused

    def position_of(self, request: str) -> SnapshotPosition | None:
        """The position of the group's share of a request; None: it has none."""
        return self.position if request == self.request else self.others.get(request)

    def put(self, request: str, position: SnapshotPosition) -> None:
        """Set that."""
        if request == self.request:
            self.position = position
        else:
            self.others[request] = position

    def forget(self, request: str) -> None:
        """Read no more of a request."""
        self.others.pop(request, None)
        if request == self.request:
            self.request = ""
            self.position = SnapshotPosition(self.position.whole, ())
            self.epoch += 1
            self.restart()
            self.give_up()

    def start_again(self, position: SnapshotPosition, now_ms: int) -> None:
        """Forget what was read, and stand at ``position``: the table is another one, or had no log for a while."""
        self.epoch += 1
        self.position = position
        self.traces = ChangeTraces(self._slots)
        self.traces.add_all(now_ms * 1000)  # changes that were sent before now were not noted
        self.restart()
        self.give_up()

    def restart(self) -> None:
        """Read the range again from the row that was sent last: the paging state is of no use any more."""
        self.state = None
        self._seeking = True
        self._seek = None

    def loaded(self, plan: RowPlan, rows: Sequence[RawRow], state: bytes | None) -> bool:
        """Take a page.

        Returns:
            Whether it is to be handed over; if not, the next page has to be read: ``self.state`` says from where.
        """
        first = self.position.left[0]
        items = plan.items(rows, "" if self._seeking else first.resume)
        if self._seeking and first.resume:
            # Read again from the start of the partition that was under way: what was sent of it is left out.
            seek = self._seek
            if seek is None:
                seek = self._seek = Seek(first.after + 1, first.resume)
            new_items = seek.rest(items, has_more=state is not None)
            if seek.lost:
                # The row is gone, and what came after it is unknown: all of the partition is sent again.
                self.position = self.position.resend_first_token()
                self.restart()
                return False
            if new_items is None:
                self.state = state
                return False
            items = new_items
        self._seeking = False
        self.page = Loaded(plan, items, state)
        return True

    @property
    def ready(self) -> bool:
        """Whether a page can be handed over now: no window is under way."""
        return self.page is not None and not self.turns.under_way

    def emit(
        self,
        limit: int,
        builder: EventBuilder,
        out: list[SourceRecord],
        bad: list[BadRecord],
        offsets: list[tuple[Position, Position | None]],
        now_ms: int,
    ) -> bool:
        """Hand over up to ``limit`` rows of the page, behind everything before the watermark; ``now_ms`` is of the clock.

        Returns:
            Whether the page is finished, and with it the hold.
        """
        page = self.page
        assert page is not None  # noqa: S101 - see ``ready``
        assert self.turns.watermark_ms is not None  # noqa: S101 - see ``may_begin``
        plan, partition, position = page.plan, self.partition, self.position
        below_us = self.turns.watermark_ms * 1000
        stop = min(page.at + max(limit, 0), len(page.items))
        base = to_offset(position)
        first = position.left[0]
        _, comma, others = base[LEFT].partition(",")
        before = len(out)
        offset: Position | None = None
        for item in page.items[page.at : stop]:
            offset = {
                **base,
                LEFT: f"{item.token - 1}:{first.upto}:{item.digest}{comma}{others}",
                ROWS: str(position.rows + len(out) - before + 1),
            }
            kept = plan.keep(item, below_us)
            if kept is None:
                self.skipped += 1
                continue
            self.left_out += kept.left_out
            time_us = (
                below_us - 1 if kept.newest_us is None else max(kept.newest_us, self.traces.newest(plan.key(item)))
            )
            builder.snapshot_row(partition, offset, kept.cells, time_us, out, bad)
        sent = len(out) - before
        self.rows += sent
        if stop > page.at:
            item = page.items[stop - 1]
            self.position = position = position.sent(item.token, item.digest, sent)
        page.at = stop
        finished = stop == len(page.items)
        if finished:
            self.state = page.state
            if page.state is None:
                self.position = position.range_sent(now_ms)
                self.restart()
            self.give_up()
        end = to_offset(self.position)
        if end != base and (len(out) == before or end != out[-1].source_offset):
            offsets.append((partition, end))
        return finished
