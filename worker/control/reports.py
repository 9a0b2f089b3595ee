"""This worker's report to the leader: which units that were revoked still run here."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from connectors.errors import MillraceError
from worker.control.placement.table import WorkerReport, report_record, still_held

if TYPE_CHECKING:
    from worker.control.node import WorkerNode

_log = logging.getLogger(__name__)
#: The pause between two checks for changes to report: this many times the duration of the last check, up to the limit below.
_PAUSE: Final = 4
_LONGEST_PAUSE_S: Final = 0.25


class MemberReports:
    """Writes the reports of one worker.

    Args:
        node: this worker.
    """

    def __init__(self, node: WorkerNode) -> None:
        self._node = node
        self._reported: WorkerReport | None = None
        self._wake = asyncio.Event()
        self._reporter: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to report; does not block."""
        self._reporter = asyncio.create_task(self._send_reports(), name="member-report")

    async def stop(self) -> None:
        """End it."""
        if self._reporter is not None:
            self._reporter.cancel()
            await asyncio.gather(self._reporter, return_exceptions=True)

    def wake(self) -> None:
        """Something that may have to be reported has changed."""
        self._wake.set()

    async def _send_reports(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            began = time.monotonic()
            report = self._due_report()
            looked = time.monotonic() - began
            if report is not None:
                key, value = report_record(self._node.worker_id, report)
                try:
                    await self._node.placement.log.send(key, value, 10)
                    self._reported = report
                except MillraceError as error:
                    _log.warning("This worker's report did not get to Kafka, retrying: %s", error)
                    await asyncio.sleep(1)
                    self._wake.set()
            # A look takes time in proportion to the cluster, and everything that starts or stops here asks for one.
            await asyncio.sleep(min(_LONGEST_PAUSE_S, _PAUSE * looked))

    def _due_report(self) -> WorkerReport | None:
        """Return the report for the leader, or None if the leader waits for no report or already has it."""
        table = self._node.placement.table
        revoked = table.revoked_from(self._node.me)
        if not revoked:
            return None
        stopping = still_held(table.assigned_to(self._node.me), self._node.reconciler.local_runs)
        last = self._reported
        if last is not None and last.stopping == stopping and last.seen >= max(revoked):
            return None
        return WorkerReport(self._node.incarnation, table.epoch, stopping)
