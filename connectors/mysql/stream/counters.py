"""Numbers of a stream."""

from __future__ import annotations

from connectors.mysql.stream.latency import TableLags


class StreamCounters:
    """Counts of events and rows since the task was started.

    Attributes:
        tables: the same per table, for the lag.
    """

    def __init__(self) -> None:
        self.tables = TableLags()
        self.events = self.creates = self.updates = self.deletes = self.filtered = self.bad = 0
        self.transactions = self.rolled_back = self.large = self.unended = 0
        self.last_ts_ms = 0
        self.snapshot_bad = 0
