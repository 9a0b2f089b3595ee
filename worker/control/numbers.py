"""The numbers of one worker: its counters, and measures of the control process."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from worker.control.placement.planning import INSTANCE
from worker.metrics.exporter import ProcessNumbers, WorkerStats, process_numbers
from worker.metrics.process import GcWatch, LoopLag
from worker.metrics.traffic import client_traffic
from worker.metrics.windows import ClientWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from worker.control.group.membership import Contact
    from worker.control.placement.planning import Unit
    from worker.control.placement.reconciler import LocalRun
    from worker.protocol import ClientStats


class WorkerNumbers:
    """Counts and measures for ``/metrics`` and REST.

    Args:
        client_id: of the worker's Kafka clients.

    Attributes:
        stats: the counters.
        membership_traffic: the counters of the Kafka clients in the membership's own loop.
    """

    def __init__(self, client_id: str) -> None:
        self.stats = WorkerStats(client_id=client_id, protocol="millrace", started_at=time.time())
        self.membership_traffic: Callable[[], Sequence[ClientStats]] = tuple
        self._garbage = GcWatch()
        self._lag = LoopLag()
        self._group_window: ClientWindow | None = None
        self._threads_peak = 0

    def start(self) -> None:
        """Begin to measure."""
        self._garbage.start()
        self._lag.start()

    def stop(self) -> None:
        """End it."""
        self._garbage.stop()
        self._lag.stop()

    def process_numbers(self) -> ProcessNumbers:
        """Of the control process, now."""
        python = self._garbage.stats()
        self._threads_peak = max(self._threads_peak, python.threads)
        return dataclasses.replace(
            process_numbers(self.stats.started_at),
            python=python,
            threads_peak=self._threads_peak,
            clients=(*client_traffic(), *self.membership_traffic()),
            group=self._group_window,
        )

    def refresh(self, contact: Contact | None) -> None:
        """Bring ``stats`` up to date with what is measured elsewhere; ``contact`` is that with the group's coordinator."""
        stats = self.stats
        stats.loop_lag_s = self._lag.seconds()
        if contact is not None:
            stats.rebalancing = contact.joining_since > 0
            stats.rebalance_s, stats.rebalance_s_max = contact.joins_s, contact.join_s_max

    def observe_group(self) -> None:
        """Sample the group client's counters for their rates."""
        now = time.monotonic()
        for stats in self.membership_traffic():
            if self._group_window is None:
                self._group_window = ClientWindow(stats, now)
            else:
                self._group_window.observe(stats, now)

    def count_state(self, unit: Unit, local_run: LocalRun, state: str) -> None:
        """A start has succeeded when what was started runs for the first time, and failed when it does not come so far."""
        runs = state in ("RUNNING", "PAUSED")
        if runs or state in ("RESTARTING", "FAILED"):
            if not local_run.started:
                self.count_start(unit, failed=not runs)
            local_run.started = runs

    def count_start(self, unit: Unit, *, failed: bool) -> None:
        """Count a start that was tried."""
        kind = "connector" if unit.task == INSTANCE else "task"
        for name in (f"{kind}_startup_attempts", f"{kind}_startup_{'failure' if failed else 'success'}"):
            setattr(self.stats, name, getattr(self.stats, name) + 1)
