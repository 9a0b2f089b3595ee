"""From counters to rates, averages and maxima: kept by the control process from what hosts report every second.

As Kafka's ``SampledStat`` with its default settings: two samples of 30 seconds each, so that a value covers the last 30 to 60
seconds. A task that was restarted begins with an empty window, even where its counters continue, as they do after an
automatic restart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from worker.metrics.clients import ClientSeries
from worker.protocol import ClientStats, HostTaskId, ProcessStats, Stats, TaskStats

if TYPE_CHECKING:
    from collections.abc import Iterable

SAMPLE_S: Final = 30.0
_REPORT_S: Final = 1.0
#: What rates are made of: it begins with 0 in another run of the task's, and in nothing else.
_COUNTERS: Final = ("polled", "polls", "written", "poll_s", "commits", "commit_s", "commit_failures")
#: Upper bounds in seconds of the lag histogram's buckets.
LAG_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)


class Maximum:
    """The largest value of the last 30 to 60 seconds."""

    __slots__ = ("_began", "_newer", "_older")

    def __init__(self, now: float) -> None:
        self._began = now
        self._older = 0.0
        self._newer = 0.0

    def add(self, value: float, now: float) -> None:
        """Take a value in; ``now`` is in seconds of any clock that only goes forward."""
        if now - self._began >= SAMPLE_S:
            self._older = self._newer if now - self._began < 2 * SAMPLE_S else 0.0
            self._newer = 0.0
            self._began = now
        self._newer = max(self._newer, value)

    def value(self, now: float) -> float:
        """The maximum; 0 if nothing came in the window."""
        age = now - self._began
        if age < SAMPLE_S:
            return max(self._older, self._newer)
        return self._newer if age < 2 * SAMPLE_S else 0.0


class Rates(msgspec.Struct, frozen=True):
    """A task's numbers over its window; times in milliseconds, rates per second, shares from 0 to 1."""

    poll_rate: float = 0.0
    batch_rate: float = 0.0
    write_rate: float = 0.0
    batch_avg: float = 0.0
    batch_max: float = 0.0
    poll_ms_avg: float = 0.0
    poll_ms_max: float = 0.0
    active_avg: float = 0.0
    active_max: float = 0.0
    commit_ms_avg: float = 0.0
    commit_ms_max: float = 0.0
    commit_success: float = 0.0
    commit_failure: float = 0.0


class TaskWindow:
    """The last reports of one task. Feed ``observe`` in the order of time."""

    __slots__ = ("_active_max", "_batch_max", "_commit_max", "_newer", "_older", "_poll_max", "latest", "seen_at")

    def __init__(self, stats: TaskStats, now: float) -> None:
        self._restart_window(stats, now)
        self._update_maxima(stats, now)

    def _restart_window(self, stats: TaskStats, now: float, earlier: tuple[float, TaskStats] | None = None) -> None:
        if earlier is None:
            # the first report tells of the time since the report before, which did not have the task yet
            earlier = (now - _REPORT_S if stats.polls else now, TaskStats(stats.id, started_at=stats.started_at))
        #: (when, counters then, sum and number of ``active`` seen since).
        self._older: tuple[float, TaskStats, float, int] = (*earlier, 0.0, 0)
        self._newer: tuple[float, TaskStats, float, int] = self._older
        self._batch_max = Maximum(now)
        self._poll_max = Maximum(now)
        self._active_max = Maximum(now)
        self._commit_max = Maximum(now)
        self.latest = stats
        self.seen_at = now

    def observe(self, stats: TaskStats, now: float) -> None:
        """Take a report in; ``now`` is in seconds of any clock that only goes forward."""
        before = self.latest
        if any(getattr(stats, name) < getattr(before, name) for name in _COUNTERS):
            self._restart_window(stats, now)
        elif stats.started_at != before.started_at:
            self._restart_window(stats, now, (self.seen_at, before))
        elif now - self._newer[0] >= SAMPLE_S:
            self._older = self._newer
            self._newer = (self.seen_at, before, 0.0, 0)
        self._update_maxima(stats, now)
        self.latest = stats
        self.seen_at = now

    def _update_maxima(self, stats: TaskStats, now: float) -> None:
        began, counters, active, number = self._newer
        self._newer = (began, counters, active + stats.active, number + 1)
        self._batch_max.add(stats.batch_size_max, now)
        self._poll_max.add(stats.poll_s_max, now)
        self._active_max.add(stats.active_max, now)
        self._commit_max.add(stats.commit_s_max, now)

    def write_rate(self) -> float:
        """Records written per second, as in ``rates``."""
        began, earlier, *_ = self._older
        return (self.latest.written - earlier.written) / max(self.seen_at - began, 1.0)

    def rates(self, now: float) -> Rates:
        """The window's numbers as of the last report."""
        began, earlier, active, number = self._older
        latest = self.latest
        elapsed = max(self.seen_at - began, 1.0)
        polls = latest.polls - earlier.polls
        commits = latest.commits - earlier.commits
        failures = latest.commit_failures - earlier.commit_failures
        if self._newer is not self._older:
            active += self._newer[2]
            number += self._newer[3]
        return Rates(
            poll_rate=(latest.polled - earlier.polled) / elapsed,
            batch_rate=polls / elapsed,
            write_rate=self.write_rate(),
            batch_avg=(latest.polled - earlier.polled) / polls if polls else 0.0,
            batch_max=self._batch_max.value(now),
            poll_ms_avg=(latest.poll_s - earlier.poll_s) / polls * 1000 if polls else 0.0,
            poll_ms_max=self._poll_max.value(now) * 1000,
            active_avg=active / number if number else 0.0,
            active_max=self._active_max.value(now),
            commit_ms_avg=(latest.commit_s - earlier.commit_s) / commits * 1000 if commits else 0.0,
            commit_ms_max=self._commit_max.value(now) * 1000,
            commit_success=commits / (commits + failures) if commits + failures else 0.0,
            commit_failure=failures / (commits + failures) if commits + failures else 0.0,
        )


class MetricHistogram:
    """Counts of observations by upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[int]:
        """Observations at or below each bound, and all of them last."""
        running = 0
        result = []
        for count in self.counts:
            running += count
            result.append(running)
        return result


class ClientWindow:
    """Rates of a Kafka client's counters over the last 30 to 60 seconds."""

    __slots__ = ("_newer", "_older", "latest", "seen_at")

    def __init__(self, stats: ClientStats, now: float) -> None:
        #: (when, counters then)
        self._older: tuple[float, ClientStats] = (now, stats)
        self._newer = self._older
        self.latest = stats
        self.seen_at = now

    def observe(self, stats: ClientStats, now: float) -> None:
        """Take the counters in; ``now`` is in seconds of any clock that only goes forward."""
        if now - self._newer[0] >= SAMPLE_S:
            self._older = self._newer
            self._newer = (self.seen_at, self.latest)
        self.latest = stats
        self.seen_at = now

    def rate(self, name: str) -> float:
        """How fast a counter grows, per second."""
        began, earlier = self._older
        grown: int = getattr(self.latest, name) - getattr(earlier, name)
        return grown / max(self.seen_at - began, 1.0)


class HostNumbers(msgspec.Struct):
    """The numbers of one task host; the control process keeps ``up``, ``restarts``, ``stuck`` and ``environment``."""

    up: bool = True
    environment: str = "main"
    restarts: int = 0
    stuck: int = 0
    tasks: int = 0
    connectors: int = 0
    cpu_s: float = 0.0
    rss_bytes: int = 0
    loop_lag_s: float = 0.0
    process: ProcessStats = ProcessStats()
    threads_peak: int = 0
    clients: list[ClientStats] = []
    provider_failures: int = 0
    provider_stale: int = 0


class TaskTable:
    """The numbers of all tasks and hosts of this worker: feed it each host's ``Stats``, and hand it to the exporter.

    A task stays, failed ones too, until ``forget``: a failure must not vanish from dashboards with the task's host.
    """

    def __init__(self) -> None:
        self.tasks: dict[HostTaskId, TaskWindow] = {}
        self.hosts: dict[int, HostNumbers] = {}
        self.lags: dict[str, MetricHistogram] = {}
        self.clients = ClientSeries()
        self._host_lags: dict[int, Maximum] = {}
        #: Connector -> how many of ``tasks`` it has.
        self._counts: Counter[str] = Counter()

    def observe(self, host: int, stats: Stats, now: float) -> None:
        """Take in what a host reported."""
        numbers = self.hosts.setdefault(host, HostNumbers())
        numbers.up = True
        numbers.tasks = len(stats.tasks)
        numbers.connectors = stats.connectors
        numbers.cpu_s = stats.cpu_s
        numbers.rss_bytes = stats.rss_bytes
        numbers.process = stats.process
        numbers.threads_peak = max(numbers.threads_peak, stats.process.threads)
        numbers.clients = stats.clients
        numbers.provider_failures, numbers.provider_stale = stats.provider_failures, stats.provider_stale
        lag = self._host_lags.get(host)
        if lag is None:
            lag = self._host_lags[host] = Maximum(now)
        lag.add(stats.loop_lag_s, now)
        numbers.loop_lag_s = lag.value(now)
        for task in stats.tasks:
            window = self.tasks.get(task.id)
            if window is None:
                self.tasks[task.id] = TaskWindow(task, now)
                self._counts[task.id.connector] += 1
                fresh = task.written > 0
            else:
                fresh = task.written != window.latest.written
                window.observe(task, now)
            if fresh and task.lag_ms >= 0:
                self.lags.setdefault(task.id.connector, MetricHistogram(LAG_BOUNDS)).observe(task.lag_ms / 1000)

    def set_state(self, task: HostTaskId, state: str) -> None:
        """Correct a task's state when its host can't report it any more (the host died)."""
        window = self.tasks.get(task)
        if window is not None:
            window.latest = msgspec.structs.replace(window.latest, state=state)

    def forget_host(self, host: int) -> None:
        """Drop a host that has been ended because nothing needed it."""
        self.hosts.pop(host, None)
        self._host_lags.pop(host, None)

    def forget(self, tasks: Iterable[HostTaskId]) -> None:
        """Drop tasks that are no longer this worker's."""
        for task in tasks:
            if self.tasks.pop(task, None) is None:
                continue
            self._counts[task.connector] -= 1
            if not self._counts[task.connector]:
                del self._counts[task.connector]
                self.lags.pop(task.connector, None)
