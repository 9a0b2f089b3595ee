"""The numbers that tasks of the logs connector report."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import TaskMetrics

LINES: Final = "logs_lines_total"
ROWS: Final = "logs_rows_total"
DROPPED: Final = "logs_dropped_records_total"
UNKNOWN: Final = "logs_unknown_lines_total"
FAILURES: Final = "logs_step_failures_total"
DELIVERED_ROWS: Final = "logs_delivered_rows_total"
DELAY: Final = "logs_delivery_delay_seconds_total"
HEARTBEAT_AGE: Final = "logs_heartbeat_age_seconds"
HOST_HEARTBEAT_AGE: Final = "logs_host_heartbeat_age_seconds"
CUT: Final = "logs_cut_lines_total"
LOST_DATAGRAMS: Final = "logs_lost_datagrams_total"
REFUSED: Final = "logs_refused_total"
REPLAYED: Final = "logs_replayed_lines_total"
RULES_VERSION: Final = "logs_rules_version"
#: Reasons of ``REFUSED``.
REASONS: Final = ("connections", "token", "size", "form", "time")

#: Name -> (kind, help), for ``SourceConnector.metrics``.
METRICS: Final[dict[str, tuple[str, str]]] = {
    LINES: ("counter", "Lines that were read and given to the rules. Label: host."),
    ROWS: ("counter", "Rows made of lines. Labels: table, host."),
    DROPPED: ("counter", "Records that a drop step ended on purpose. Labels: table, reason."),
    UNKNOWN: ("counter", "Lines that no group accepts, which went to unknown_table. Label: host."),
    FAILURES: ("counter", "Lines of unknown_table by the step at which a group failed. Labels: table, group, step."),
    DELIVERED_ROWS: ("counter", "Rows that Kafka has. Labels: table, host."),
    DELAY: (
        "counter",
        "Seconds from the time of a row (its record's timestamp) until Kafka had it, the sum of all rows. Labels: table, host.",
    ),
    HEARTBEAT_AGE: (
        "gauge",
        "Seconds since a readable file, an answering topic or an open address was last seen. Labels: host (the task's), input.",
    ),
    HOST_HEARTBEAT_AGE: ("gauge", "Age of the last heartbeat line of a host. Labels: host, input."),
    CUT: (
        "counter",
        "Lines from the network that were longer than line.max.bytes, so that their end is lost.",
    ),
    LOST_DATAGRAMS: ("counter", "Datagrams that came while there was no room for them, and are lost."),
    REPLAYED: ("counter", "Lines that replays gave to the rules again. Label: result (accepted, unknown)."),
    RULES_VERSION: (
        "gauge",
        "The version of the rule set that the task runs, of those that the cluster keeps. Label: rules.",
    ),
    REFUSED: ("counter", "Connections and requests that a listener refused. Label: reason."),
}


class HostCounts:
    """The counts of one host's lines of a batch.

    Attributes:
        lines: lines.
        unknown: lines that no group accepts.
        rows: table -> how many rows, and the sum of their timestamps, milliseconds since 1970.
    """

    __slots__ = ("lines", "rows", "unknown")

    def __init__(self) -> None:
        self.lines = 0
        self.unknown = 0
        self.rows: dict[str, list[int]] = {}

    def add_rows(self, table: str, count: int, times: int) -> None:
        """Count rows of a table, with the sum of their timestamps."""
        tally = self.rows.get(table)
        if tally is None:
            tally = self.rows[table] = [0, 0]
        tally[0] += count
        tally[1] += times


class BatchDelivery:
    """The receipt of a batch: ``confirm`` says that Kafka has it.

    Args:
        metrics: where the delay of its rows is reported.
        hosts: what is in it.
        answer: called with no arguments as well.
        clock: milliseconds since 1970.
    """

    __slots__ = ("_answer", "_clock", "_hosts", "_metrics")

    def __init__(
        self,
        metrics: TaskMetrics,
        hosts: dict[str, HostCounts],
        answer: Callable[[], None] | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._metrics = metrics
        self._hosts = hosts
        self._answer = answer
        self._clock = clock

    def confirm(self) -> None:
        """Kafka has the batch."""
        now = self._clock()
        for host, counts in self._hosts.items():
            for table, (rows, times) in counts.rows.items():
                labels = {"table": table, "host": host}
                self._metrics.add(DELIVERED_ROWS, rows, labels)
                # Clocks that are ahead do not make other rows look faster than they are by more than their batch.
                self._metrics.add(DELAY, max(0, rows * now - times) / 1000, labels)
        if self._answer is not None:
            self._answer()


class LineCounts:
    """Counts what becomes of the lines of a batch, and reports it at once.

    Attributes:
        hosts: what was counted of each host since the last report.
    """

    def __init__(self, metrics: TaskMetrics) -> None:
        self._metrics = metrics
        self.hosts: dict[str, HostCounts] = {}
        self.dropped: Counter[tuple[str, str]] = Counter()
        self.failures: Counter[tuple[str, str, int]] = Counter()

    def of_host(self, host: str) -> HostCounts:
        """The counts of a host."""
        counts = self.hosts.get(host)
        if counts is None:
            counts = self.hosts[host] = HostCounts()
        return counts

    def report(self, answer: Callable[[], None] | None = None) -> BatchDelivery:
        """Add the counts to the metrics, and start again from 0.

        Args:
            answer: called once Kafka has the batch.

        Returns:
            The receipt of the batch.
        """
        add = self._metrics.add
        for host, counts in self.hosts.items():
            label = {"host": host}
            add(LINES, counts.lines, label)
            add(UNKNOWN, counts.unknown, label)
            for table, (rows, _) in counts.rows.items():
                add(ROWS, rows, {"table": table, "host": host})
        for (table, reason), count in self.dropped.items():
            add(DROPPED, count, {"table": table, "reason": reason})
        for (table, group, step), count in self.failures.items():
            add(FAILURES, count, {"table": table, "group": group, "step": str(step)})
        delivery = BatchDelivery(self._metrics, self.hosts, answer)
        self.hosts = {}
        for counter in (self.dropped, self.failures):
            counter.clear()
        return delivery
