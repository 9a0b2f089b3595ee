"""Pages of tables by token ranges: how many at a time, how large, how fast, and what their queries cost."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.cql.cluster.session import QueryStats, SchemaChanged
from connectors.cql.cluster.throttle import InFlightLimit, Pace, PageSize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.cql.cluster.session import CqlSession, ResultPage
    from connectors.cql.types import CqlType


@dataclass(frozen=True)
class PageSettings:
    """How pages are read.

    Attributes:
        queries: in flight at most.
        rows: of a page at most; fewer where rows are large.
        page_bytes: what a page should hold at most.
        rows_per_s: the most rows read per second; 0: no limit.
        consistency: of the queries.
        timeout_s: of one query.
    """

    queries: int
    rows: int
    rows_per_s: int
    consistency: str
    timeout_s: float
    page_bytes: int = 2_000_000


class TablePages:
    """Reads the pages of a task. Use it inside one event loop.

    Attributes:
        limit: queries that may be in flight now.
        stats: of all queries.
    """

    def __init__(self, session: CqlSession, settings: PageSettings) -> None:
        self.limit = InFlightLimit(1, settings.queries, settings.queries)
        self.stats = QueryStats()
        self._session = session
        self._settings = settings
        self._sizes: dict[str, PageSize] = {}
        self._pace = Pace(settings.rows_per_s)

    async def wait(self) -> None:
        """Wait until the next page may be read."""
        while (wait := self._pace.wait_s(time.monotonic())) > 0:  # noqa: ASYNC110 - what it waits for is time
            await asyncio.sleep(wait)

    async def read(
        self,
        table: str,
        query: str,
        tokens: tuple[int, int],
        state: bytes | None,
        types: Sequence[CqlType | None] | None = None,
    ) -> ResultPage:
        """Read a page.

        Args:
            table: its name; each has a page size of its own.
            query: its parameters are ``tokens``.
            tokens: the one before the first, and the last.
            state: where the page begins; None: at the start of the range.
            types: how to decode the columns; None: as the server says.

        Raises:
            SchemaChanged: the table has another definition by now.
            Retriable: it can't be read now.
            Fatal: the server refuses it.
        """
        size, stats, totals = self._size(table), QueryStats(), self.stats
        asked = size.rows
        totals.in_flight += 1
        try:
            page = await self._session.page(
                query,
                tokens,
                fetch_size=asked,
                state=state,
                consistency=self._settings.consistency,
                timeout_s=self._settings.timeout_s,
                types=types,
                token=tokens[0] + 1,
                stats=stats,
            )
        finally:
            totals.in_flight -= 1
            totals.queries += stats.queries
            totals.errors += stats.errors
            totals.latency_s += stats.latency_s
        if page.newer_fields:
            raise SchemaChanged(f"a user-defined type in {table} has got new fields")
        self._pace.spent(len(page.rows), time.monotonic())
        self.limit.answered(stats.latency_s, full=2 * len(page.rows) >= asked, in_flight=totals.in_flight + 1)
        size.answered(page.rows)
        return page

    def failed(self, table: str) -> None:
        """A page of a table can't be read: the next ones are smaller and fewer."""
        self.limit.failed()
        self._size(table).failed()

    def _size(self, table: str) -> PageSize:
        size = self._sizes.get(table)
        if size is None:
            size = self._sizes[table] = PageSize(self._settings.rows, self._settings.page_bytes)
        return size
