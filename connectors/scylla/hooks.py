"""The interface by which a snapshot runs together with the stream of a task. ``None`` in place of a hook means: no snapshot.

The reader calls all methods on the event loop, one at a time, ``holds`` from its lanes and the others from the coroutine that
makes the task's batches. They must not block and cost close to nothing while no snapshot is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from connectors.api import BadRecord, Position, SourceRecord
    from connectors.scylla.model import LogRow, StreamGroup

#: Looks at rows of one stream in log order before they become events, and returns those that are to be made events: the same
#: list if nothing is suppressed. All rows of one change (``cdc$time``) come in order, perhaps in several calls.
RowFilter = Callable[["list[LogRow]"], "list[LogRow]"]


class SnapshotHook(Protocol):
    """A snapshot that is merged with the streams of a task's groups.

    One chunk of a group is read in these steps: ``holds`` returns True for the group; the reader finishes the window under
    way, calls ``window_ended`` with the watermark and starts no new window; the hook reads its chunk in the background
    (``run``); it lifts the hold and calls ``wake``; the reader continues, passes the rows that it reads then through
    ``row_filter`` and reports each watermark; the hook appends what it emits in ``take``.
    """

    async def run(self, wake: Callable[[], None]) -> None:
        """Background work of the snapshot (reading chunks); runs as one asyncio task next to the reader until cancelled.

        Call ``wake`` whenever ``take`` has something to give or a hold was lifted. The snapshot is finished when this returns.

        Raises:
            Retriable, Fatal: as a task's ``batches`` does; the reader raises it again.
        """

    def holds(self, group: StreamGroup) -> bool:
        """Whether no new window of ``group`` may begin now. Asked before each window; a window under way is finished.

        While it holds a group the others continue. Call ``wake`` when the answer turns to False.
        """

    def window_ended(self, group: StreamGroup, watermark_ms: int) -> None:
        """Everything of ``group`` with ``cdc$time`` before ``watermark_ms`` has been made events (given to a batch, in order).

        Called after each window of each group, and once per group at the start of the task with the group's position if that
        is the end of a window. What ``take`` appends next comes behind those events.
        """

    def row_filter(self, group: StreamGroup) -> RowFilter | None:
        """The filter for the rows of ``group`` now; None (the usual case): all become events. Asked per run of rows."""

    def take(
        self, limit: int, out: list[SourceRecord], bad: list[BadRecord], offsets: list[tuple[Position, Position | None]]
    ) -> bool:
        """Append up to about ``limit`` records that are ready, and offsets to save behind them.

        Asked before each batch and after ``wake``. Snapshot records use source partitions of their own: the position of a
        group is the reader's.

        Returns:
            Whether more is ready at once.
        """
