"""The news for open pages: rows are made once for all of them, and each page gets those that have changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import MillraceError
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from worker.rest.facade import Herder

_TICK_S: Final = 1.0
#: Streams at a time; a browser has one for each page.
_MOST: Final = 128
_log = logging.getLogger("worker.console")


class Feed:
    """The rows of all connectors, kept up to date while somebody watches. For one event loop.

    Args:
        herder: the cluster.
    """

    def __init__(self, herder: Herder) -> None:
        self._herder = herder
        self._watching = 0
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self._closed = False
        #: Name -> the row and its JSON; a row that has not changed stays the same object.
        self.rows: dict[str, tuple[dict[str, Any], bytes]] = {}

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Keep the rows up to date in here.

        Raises:
            RestError: 503: too many do.
        """
        if self._watching >= _MOST or self._closed:
            raise RestError(503, f"As many as {_MOST} pages are open at this worker; close some", {"Retry-After": "5"})
        self._watching += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="console-feed")
        try:
            yield
        finally:
            self._watching -= 1

    async def ticks(self, until: float) -> AsyncIterator[None]:
        """Once now, then after each look at the cluster, until this time of the loop; ends when the feed is closed.

        Call ``refresh`` before the first stream.
        """
        loop = asyncio.get_running_loop()
        while not self._closed:
            yield
            left = until - loop.time()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left), self._news:
                    await self._news.wait()
            except TimeoutError:
                return

    async def refresh(self) -> None:
        """Look at the cluster now."""
        rows: dict[str, tuple[dict[str, Any], bytes]] = {}
        for row in await self._herder.connector_rows():
            before = self.rows.get(row["name"])
            rows[row["name"]] = before if before is not None and before[0] == row else (row, orjson.dumps(row))
        self.rows = rows

    async def close(self) -> None:
        """End all streams."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        async with self._news:
            self._news.notify_all()

    async def _run(self) -> None:
        while self._watching:
            try:
                await self.refresh()
            except MillraceError as error:
                _log.debug("The console's rows are not up to date: %s", error)
            except Exception:  # noqa: BLE001 - pages wait for the next rows
                _log.exception("The console's rows can't be made; this is retried")
            async with self._news:
                self._news.notify_all()
            await asyncio.sleep(_TICK_S)
        # What is old is not shown to whoever comes next.
        self.rows = {}
