"""Numbers and log lines of a task's snapshots."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from connectors.cql.token_ranges import count_tokens
from connectors.debezium_metrics import report_snapshots
from connectors.scylla import metrics
from connectors.scylla.snapshot.merging import show_share

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Collection, Sequence

    from connectors.debezium_metrics import Mirror
    from connectors.scylla.model import TableId
    from connectors.scylla.snapshot.group import GroupSnapshot
    from connectors.scylla.snapshot.merging import SnapshotPosition
    from connectors.snapshot.requests import SnapshotRequest

_REPORT_S: Final = 1.0


class SnapshotReport:
    """Reports of one run.

    Attributes:
        settled: whether what was reported last stays as it is: nothing is left to be read.
        log: the task's.

    Args:
        task_metrics: numbers go there.
        log: the task's.
    """

    def __init__(self, task_metrics: Mirror, log: logging.LoggerAdapter[logging.Logger]) -> None:
        self.log = log
        self.settled = False
        self._metrics = task_metrics
        self._reported_s = 0.0
        self._sent = (0, 0)
        self._began_s = time.monotonic()
        self._announced = False

    def restart(self) -> None:
        """Something may be left to be read again."""
        self.settled = self._announced = False
        self._reported_s = 0.0

    def count_chunk(self) -> None:
        """A page was handed over."""
        self._metrics.add(metrics.SNAPSHOT_CHUNKS, 1)

    def group_finished(self, groups: Collection[GroupSnapshot]) -> None:
        """A group is finished; the log says so of the last one."""
        self._reported_s = 0.0
        if all(snapshot.finished for snapshot in groups) and not self._announced:
            self._announced = True
            self.log.info(
                "The snapshot of this task's share is finished: %d rows in %.0f s",
                sum(snapshot.rows for snapshot in groups),
                time.monotonic() - self._began_s,
            )

    def report(
        self,
        groups: Collection[GroupSnapshot],
        requests: Sequence[SnapshotRequest],
        positions: Callable[[SnapshotRequest], dict[TableId, list[SnapshotPosition]]],
        now_ms: int,
    ) -> None:
        """Report from time to time, as long as something changes.

        Args:
            groups: all of the run.
            requests: all of the task.
            positions: those of a request by table.
            now_ms: the servers' time.
        """
        now = time.monotonic()
        if self.settled or now - self._reported_s < _REPORT_S:
            return
        self._reported_s = now
        rows = sum(snapshot.rows for snapshot in groups)
        skipped = sum(snapshot.skipped for snapshot in groups)
        if rows > self._sent[0]:
            self._metrics.add(metrics.SNAPSHOT_ROWS, rows - self._sent[0])
        if skipped > self._sent[1]:
            self._metrics.add(metrics.SNAPSHOT_SKIPPED, skipped - self._sent[1])
        self._sent = (rows, skipped)
        shares = {request.id: positions(request) for request in requests}
        parts = [position for tables in shares.values() for members in tables.values() for position in members]
        whole = sum(count_tokens(position.whole) for position in parts)
        left = sum(count_tokens(position.left) for position in parts if not position.finished)
        self._metrics.set(metrics.SNAPSHOT_PROGRESS, 1 - left / whole if whole else 1.0)
        self._metrics.set(metrics.SNAPSHOT_RUNNING, float(left > 0))
        rows_of_requests = [
            row
            for request in requests
            for row in show_share(shares[request.id], request.id, paused=request.state == "paused")
        ]
        report_snapshots(self._metrics.debezium, rows_of_requests, now_ms)
        self.settled = not left
