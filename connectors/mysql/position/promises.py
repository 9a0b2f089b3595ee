"""When a task may say that everything before a time was sent: heartbeats of UMS namespaces.

The server is asked for its time and then for the end of its binlog. Whatever was committed before that time is in the binlog
before that position, so the promise holds once the stream has sent everything up to there. The clock is the source's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from connectors.errors import MillraceError

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from connectors.mysql.model import BinlogPosition
    from connectors.mysql.source.connection import ServerInfo
    from connectors.mysql.source.server import SourceServer


class SourceMoment(NamedTuple):
    """A time of the source (µs since 1970), and where its binlog ended then or later."""

    time_us: int
    position: BinlogPosition


class HeartbeatPromises:
    """Asks for moments in the background, one at a time."""

    def __init__(
        self, server: SourceServer, info: ServerInfo, interval_s: float, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self._server = server
        self._info = info
        self._interval_s = interval_s
        self._log = log
        self._moment: SourceMoment | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._ask_moments())

    async def close(self) -> None:
        """Stop; may be repeated."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def due(self, reached: Callable[[BinlogPosition], bool]) -> int | None:
        """The time up to which everything was sent, once for each moment; None: the stream is not there yet."""
        if self._moment is None or not reached(self._moment.position):
            return None
        moment, self._moment = self._moment, None
        return moment.time_us

    async def _ask_moments(self) -> None:
        while True:
            if self._moment is None:
                try:
                    self._moment = await self._server.moment(self._info)
                except MillraceError as error:
                    self._log.debug("no heartbeat: the server does not tell its time: %s", error)
            await asyncio.sleep(self._interval_s)
