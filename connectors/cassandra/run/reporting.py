"""The numbers of a run, and the warnings about nodes that hold up a change of cdc."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from connectors.cassandra import metrics
from connectors.cassandra.capture import waiting_text
from connectors.cassandra.stream import StreamCounts
from connectors.debezium_metrics import Mirror, report_snapshots

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

    from connectors.api import TaskMetrics
    from connectors.cassandra.latency import CassandraLatency
    from connectors.cassandra.schema.catalog import CassandraCatalog
    from connectors.cassandra.snapshots import CassandraSnapshots
    from connectors.cassandra.stream import CassandraStream

#: How often numbers are reported.
_REPORT_S: Final = 1.0
#: How long a table may wait for its last segment before the nodes that prevent it are named.
_WAIT_MS: Final = 60_000


class LogReport:
    """Reports the numbers of a stream at intervals.

    Args:
        stream: counts.
        latency: has numbers of its own.
        numbers: takes the metrics.
        labels: of the stream's metrics.
    """

    def __init__(
        self, stream: CassandraStream, latency: CassandraLatency, numbers: Mirror, labels: Mapping[str, str]
    ) -> None:
        self._stream = stream
        self._latency = latency
        self._numbers = numbers
        self._labels = labels
        self._reported = 0.0
        self._skipped = self._decoded = 0

    def send(self, snapshots: CassandraSnapshots) -> None:
        """Report the numbers if they are due. Does not block."""
        now = time.monotonic()
        if now - self._reported < _REPORT_S:
            return
        self._reported = now
        counts, self._stream.counts = self._stream.counts, StreamCounts()
        for name, value in (
            (metrics.ENTRIES, counts.entries),
            (metrics.UPDATES, counts.updates),
            (metrics.EVENTS, counts.events),
            (metrics.IGNORED, counts.ignored),
            (metrics.UNKNOWN_TABLES, counts.unknown),
            (metrics.COUNTERS, counts.counters),
            (metrics.BAD, counts.bad),
            (metrics.DROPPED_CHANGES, self._stream.skipped() - self._skipped),
            (metrics.FULL_DECODES, self._stream.full_decodes() - self._decoded),
        ):
            if value > 0:
                self._numbers.add(name, value, self._labels)
        self._skipped, self._decoded = self._stream.skipped(), self._stream.full_decodes()
        self._latency.report()
        if (progress := snapshots.progress()) is not None:
            report_snapshots(self._numbers.debezium, progress, time.time_ns() // 1_000_000)


class CaptureReport:
    """Names the nodes that prevent that tables without cdc get their last segment, each of them once.

    Args:
        catalog: knows tables and nodes.
        numbers: takes the metrics.
        log: gets the warnings.
    """

    def __init__(
        self, catalog: CassandraCatalog, numbers: TaskMetrics, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self._catalog = catalog
        self._numbers = numbers
        self._log = log
        #: The tables that wait, and the nodes, as the log named them last.
        self._warned: tuple[list[str], list[str]] = ([], [])

    def send(self) -> None:
        """Report what waits now. Does not block."""
        captures, nodes = self._catalog.captures, self._catalog.nodes_apart()
        self._numbers.set(metrics.NODES_APART, len(nodes))
        now_ms = time.time_ns() // 1_000_000
        self._numbers.set(metrics.TABLES_WAITING, len(captures.waiting(now_ms)))
        tables = sorted(str(self._catalog.by_id(key)) for key in captures.waiting(now_ms - _WAIT_MS))
        if tables and nodes and (tables, nodes) != self._warned:
            self._log.warning("%s", waiting_text(tables, nodes))
        self._warned = (tables, nodes)
