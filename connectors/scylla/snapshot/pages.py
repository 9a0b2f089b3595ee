"""Pages of tables for snapshots: when one was read last, and what happens when one can't be read."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from connectors.cql.cluster.table_pages import PageSettings, TablePages
from connectors.cql.cluster.throttle import pause_s
from connectors.errors import Retriable

if TYPE_CHECKING:
    import logging

    from connectors.cql.cluster.session import CqlSession, ResultPage
    from connectors.cql.token_ranges import TokenRange
    from connectors.scylla.config.settings import ScyllaReadSettings
    from connectors.scylla.model import TableId


class PageReader:
    """Reads the pages of a task.

    Attributes:
        pages: reads them.
        progressed_s: when a page was read last (monotonic).
    """

    def __init__(
        self, session: CqlSession, settings: ScyllaReadSettings, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self.pages = TablePages(
            session,
            PageSettings(
                queries=max(settings.snapshot_chunks, 1),
                rows=settings.snapshot_rows,
                rows_per_s=settings.snapshot_rate,
                consistency=settings.consistency,
                timeout_s=settings.query_timeout_s,
            ),
        )
        self._settings = settings
        self._log = log
        self._failures = 0
        self.progressed_s = time.monotonic()

    @property
    def limit(self) -> int:
        """Pages that may be read at a time."""
        return int(self.pages.limit.value)

    async def read(self, table: TableId, query: str, tokens: TokenRange, state: bytes | None) -> ResultPage:
        """See ``TablePages``."""
        page = await self.pages.read(str(table), query, (tokens.after, tokens.upto), state)
        self._failures = 0
        self.progressed_s = time.monotonic()
        return page

    async def failed(self, table: TableId, error: Exception) -> None:
        """A page can't be read: the next ones are smaller and fewer; wait for a while.

        Raises:
            Retriable: too many in a row have failed.
        """
        self._failures += 1
        self.pages.failed(str(table))
        settings = self._settings
        if settings.max_tries is not None and self._failures > settings.max_tries:
            raise Retriable(
                f"{table}: reading it for the snapshot failed {self._failures} times in a row: {error}"
            ) from error
        if self._failures == 1:
            self._log.warning("%s: a page of the snapshot could not be read; it is retried: %s", table, error)
        await asyncio.sleep(
            pause_s(
                self._failures,
                settings.retry_base_ms,
                settings.retry_max_ms,
                int(settings.retry_jitter * 100),
                random.random(),  # noqa: S311
            )
        )
