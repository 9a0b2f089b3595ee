"""The tables of a task as its snapshots read them, and which of them a request names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.java_regex import compile_java
from connectors.scylla.snapshot.rows import RowPlan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from connectors.scylla.model import TableId
    from connectors.scylla.source.feeds import TableFeed
    from connectors.snapshot.requests import SnapshotRequest


class SnapshotFeeds:
    """Definitions of tables, and how their rows are read.

    Args:
        feed_of: a table's definitions and builders.
        refresh: reads a table's definition again, at once; may raise Retriable.
    """

    def __init__(
        self, feed_of: Callable[[TableId], TableFeed], refresh: Callable[[TableFeed], Awaitable[None]]
    ) -> None:
        self.feed = feed_of
        self.refresh = refresh
        self._plans: dict[tuple[TableId, str], RowPlan] = {}

    def row_plan(self, table: TableId) -> RowPlan:
        """How rows of a table are read, by its newest definition."""
        version = self.feed(table).newest
        plan = self._plans.get((table, version.version))
        if plan is None:
            plan = self._plans[table, version.version] = RowPlan(version)
        return plan


class TableRequests:
    """The requests of a task in the order in which they are read."""

    def __init__(self, requests: Iterable[SnapshotRequest] = ()) -> None:
        self.all = sorted(requests, key=lambda request: request.order)
        self._named: dict[tuple[str, TableId], bool] = {}

    def names(self, request: SnapshotRequest, table: TableId) -> bool:
        """Whether a request names a table."""
        key = request.id, table
        if key not in self._named:
            self._named[key] = any(compile_java(name).fullmatch(str(table)) for name in request.tables)
        return self._named[key]

    def of(self, table: TableId) -> list[SnapshotRequest]:
        """The requests that name a table."""
        return [request for request in self.all if self.names(request, table)]
