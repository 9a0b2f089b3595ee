"""The news for open pages: rows are made once for all of them, and each page gets those that have changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import MillraceError
from worker.console.rows import highest_role
from worker.rest.facade import RestError
from worker.rest.routing import RequiredAccess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from worker.rest.facade import Herder
    from worker.rest.security.access import Grant, Principal

_TICK_S: Final = 1.0
#: Streams at a time; a browser has one for each page.
_MOST: Final = 128
_log = logging.getLogger("worker.console")


def rows_event(
    principal: Principal, rows: Iterable[tuple[dict[str, Any], bytes]], gone: Iterable[str], *, whole: bool = False
) -> bytes:
    """Rows that a caller may see with its role for each, as an event; empty if there are none. Pure.

    Args:
        principal: the caller.
        rows: those that are new or have changed; with ``whole`` all.
        gone: names of connectors that are there no more.
        whole: whether these are all rows.
    """
    shown = [
        row[1][:-1] + b',"role":"%s"}' % (highest_role(principal, row[0]["name"]) or "").encode()
        for row in rows
        if principal.may(RequiredAccess.READ, row[0]["name"])
    ]
    left = [name for name in gone if principal.may(RequiredAccess.READ, name)]
    if not (whole or shown or left):
        return b""
    return b'event: rows\ndata: {"all":%s,"rows":[%s],"gone":%s}\n\n' % (
        b"true" if whole else b"false",
        b",".join(shown),
        orjson.dumps(left),
    )


class RowFeed:
    """The rows of all connectors, kept up to date while somebody watches. For one event loop.

    Args:
        herder: the cluster.
        every_s: seconds between two looks at it.
    """

    def __init__(self, herder: Herder, every_s: float = _TICK_S) -> None:
        self._herder = herder
        self._every_s = every_s
        self._watching = 0
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self._closed = False
        #: Why the last look at the cluster failed; None if it did not. Streams end then.
        self.trouble: str | None = None
        #: Name -> the row and its JSON; a row that has not changed stays the same object.
        self.rows: dict[str, tuple[dict[str, Any], bytes]] = {}
        #: Raised with each look that finds something changed, and then what has: rows, and names that are gone.
        self.version = 0
        self.changed: list[tuple[dict[str, Any], bytes]] = []
        self.gone: list[str] = []
        #: What callers with the same rights get of this version, by their rights: made once for all of their pages.
        self._messages: dict[tuple[Grant, ...], bytes] = {}

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
            self._task = asyncio.create_task(self._refresh_rows(), name="console-feed")
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
        try:
            newest = await self._herder.console.connector_rows()
        except MillraceError as error:
            self.trouble = str(error)
            raise
        self.trouble = None
        for row in newest:
            before = self.rows.get(row["name"])
            if before is None or (before[0] is not row and before[0] != row):
                before = row, orjson.dumps(row)
            rows[row["name"]] = before
        changed = [row for name, row in rows.items() if self.rows.get(name) is not row]
        gone = [name for name in self.rows if name not in rows]
        if changed or gone:
            self.version += 1
            self.changed, self.gone = changed, gone
            self._messages = {}
        self.rows = rows

    def news(self, principal: Principal) -> bytes:
        """The event with what the newest version changes for a caller; empty if the caller may see none of it."""
        message = self._messages.get(principal.grants)
        if message is None:
            message = rows_event(principal, self.changed, self.gone)
            self._messages[principal.grants] = message
        return message

    async def close(self) -> None:
        """End all streams."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        async with self._news:
            self._news.notify_all()

    async def _refresh_rows(self) -> None:
        while self._watching:
            try:
                await self.refresh()
            except MillraceError as error:
                _log.debug("The console's rows are not up to date: %s", error)
            except Exception:  # noqa: BLE001 - pages wait for the next rows
                _log.exception("The console's rows can't be made; this is retried")
            async with self._news:
                self._news.notify_all()
            await asyncio.sleep(self._every_s)
        # What is old is not shown to whoever comes next, who begins with all rows.
        self.rows = {}
        self.version += 1
