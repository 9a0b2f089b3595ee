"""Pages of tables for snapshots: how many at a time, how large, how fast, and what happens when one can't be read."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from connectors.cql.cluster.throttle import InFlightLimit, Pace, PageSize, pause_s
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
        progressed_s: when a page was read last (monotonic).
    """

    def __init__(
        self, session: CqlSession, settings: ScyllaReadSettings, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self._session = session
        self._settings = settings
        self._log = log
        chunks = max(settings.snapshot_chunks, 1)
        self._limit = InFlightLimit(least=1, maximum=chunks, first=chunks)
        self._size = PageSize(settings.snapshot_rows)
        self._pace = Pace(settings.snapshot_rate)
        self._in_flight = 0
        self._failures = 0
        self.progressed_s = time.monotonic()

    @property
    def limit(self) -> int:
        """Pages that may be read at a time."""
        return int(self._limit.value)

    async def wait(self) -> None:
        """Wait until the next page may be read."""
        while (wait := self._pace.wait_s(time.monotonic())) > 0:  # noqa: ASYNC110 - what it waits for is time
            await asyncio.sleep(wait)

    async def read(self, query: str, tokens: TokenRange, state: bytes | None) -> ResultPage:
        """Read a page.

        Args:
            query: its parameters are the token before the first and the last token.
            tokens: of which range.
            state: where the page begins; None: at the start of the range.

        Raises:
            SchemaChanged: the table has another definition by now.
            Retriable: it can't be read now.
            Fatal: the server refuses it.
        """
        settings, asked = self._settings, self._size.rows
        self._in_flight += 1
        began = time.monotonic()
        try:
            page = await self._session.page(
                query,
                (tokens.after, tokens.upto),
                fetch_size=asked,
                state=state,
                consistency=settings.consistency,
                timeout_s=settings.query_timeout_s,
                token=tokens.after + 1,
            )
        finally:
            self._in_flight -= 1
        now = time.monotonic()
        self._pace.spent(len(page.rows), now)
        self._limit.answered(now - began, full=2 * len(page.rows) >= asked, in_flight=self._in_flight + 1)
        self._size.answered(page.rows)
        self._failures = 0
        self.progressed_s = now
        return page

    async def failed(self, table: TableId, error: Exception) -> None:
        """A page can't be read: the next ones are smaller and fewer; wait for a while.

        Raises:
            Retriable: too many in a row have failed.
        """
        self._failures += 1
        self._limit.failed()
        self._size.failed()
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
