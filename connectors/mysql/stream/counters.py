"""Numbers of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connectors.mysql.stream.latency import TableLags


class StreamCounters:
    """Counts of events and rows since the task was started.

    Attributes:
        tables: keeps numbers per table, or None.
    """

    def __init__(self, tables: TableLags | None = None) -> None:
        self.tables = tables
        self.events = self.creates = self.updates = self.deletes = self.filtered = self.bad = 0
        self.transactions = self.rolled_back = self.large = self.unended = 0
        self.last_ts_ms = 0
        self.snapshot_bad = 0
