"""The numbers that tasks of the logs connector report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from connectors.api import TaskMetrics

LINES: Final = "logs_lines_total"
ROWS: Final = "logs_rows_total"
DROPPED: Final = "logs_dropped_records_total"
UNKNOWN: Final = "logs_unknown_lines_total"
FAILURES: Final = "logs_step_failures_total"
CUT: Final = "logs_cut_lines_total"
LOST_DATAGRAMS: Final = "logs_lost_datagrams_total"
REFUSED: Final = "logs_refused_total"
REPLAYED: Final = "logs_replayed_lines_total"
RULES_VERSION: Final = "logs_rules_version"

#: Name -> (kind, help), for ``SourceConnector.metrics``.
METRICS: Final[dict[str, tuple[str, str]]] = {
    LINES: ("counter", "Lines that were read and given to the rules."),
    ROWS: ("counter", "Rows made of lines. Label: table."),
    DROPPED: ("counter", "Records that a drop step ended on purpose. Labels: table, reason."),
    UNKNOWN: ("counter", "Lines that no group accepts, which went to unknown_table."),
    FAILURES: ("counter", "Lines of unknown_table by the step at which a group failed. Labels: table, group, step."),
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


class LineCounts:
    """Counts what becomes of the lines of a batch, and reports it at once."""

    def __init__(self, metrics: TaskMetrics) -> None:
        self._metrics = metrics
        self.lines = 0
        self.unknown = 0
        self.rows: Counter[str] = Counter()
        self.dropped: Counter[tuple[str, str]] = Counter()
        self.failures: Counter[tuple[str, str, int]] = Counter()
        for name in (LINES, UNKNOWN):
            metrics.add(name, 0)

    def report(self) -> None:
        """Add the counts to the metrics, and start again from 0."""
        add = self._metrics.add
        add(LINES, self.lines)
        if self.unknown:
            add(UNKNOWN, self.unknown)
        for table, count in self.rows.items():
            add(ROWS, count, {"table": table})
        for (table, reason), count in self.dropped.items():
            add(DROPPED, count, {"table": table, "reason": reason})
        for (table, group, step), count in self.failures.items():
            add(FAILURES, count, {"table": table, "group": group, "step": str(step)})
        self.lines = self.unknown = 0
        for counter in (self.rows, self.dropped, self.failures):
            counter.clear()
