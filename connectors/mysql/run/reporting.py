"""The numbers of a run: metrics, and the lag that REST reports."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from connectors.debezium_metrics import Behind, Labelled
from connectors.errors import MillraceError
from connectors.mysql import metrics
from connectors.mysql.position import positions
from connectors.mysql.stream import lag

if TYPE_CHECKING:
    import logging

    from connectors.api import Position
    from connectors.mysql.model import StreamSettings
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.snapshots import RunSnapshots
    from connectors.mysql.source.binlog import BinlogClient
    from connectors.mysql.source.server import SourceServer
    from connectors.mysql.stream.counters import StreamCounters
    from connectors.mysql.stream.latency import HeartbeatLatency

#: How often numbers are reported, and positions of quiet times saved.
_REPORT_S: Final = 1.0
#: How often latency is reported.
_LAG_S: Final = 5.0
#: How often the server is asked for its binlogs.
_WATCH_S: Final = 10.0


class RunReport:
    """Reports the numbers of a run at intervals.

    Args:
        settings: of the stream.
        numbers: takes the metrics.
        latency: of heartbeats.
        counters: counts of the stream.
        history: counts of the changes of structures.
        server: is asked for its binlogs.
        log: for a server that does not show them.
    """

    def __init__(
        self,
        settings: StreamSettings,
        numbers: Labelled,
        latency: HeartbeatLatency,
        counters: StreamCounters,
        history: metrics.SchemaHistory,
        server: SourceServer,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._settings = settings
        self._numbers = numbers
        self._latency = latency
        self._counters = counters
        self._history = history
        self._server = server
        self._log = log
        self._behind_source = Behind()
        #: Bytes of the binlog that were not read when that was last asked; None: unknown.
        self._behind: int | None = None
        self._watch: asyncio.Task[None] | None = None
        self._reported = self._saved = 0.0
        self._closed = False
        self._lag: Position = {}

    def start(self, cursor: BinlogCursor) -> None:
        """Ask for the end of the binlog from now on. Does not block."""
        self._watch = asyncio.create_task(self._watch_binlog(cursor))

    async def close(self) -> None:
        """Stop, and report that nothing is read any more; may be repeated."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if not self._closed:
            self._closed = True
            metrics.report_stopped(self._numbers)

    async def _watch_binlog(self, cursor: BinlogCursor) -> None:
        """Ask now and then how much of the binlog there is."""
        while True:
            try:
                self._behind = positions.bytes_behind(cursor.restart_position(), await self._server.logs())
            except MillraceError as error:
                self._log.debug("the server does not tell its binlogs: %s", error)
            await asyncio.sleep(_WATCH_S)

    def send(self, now: float, client: BinlogClient, cursor: BinlogCursor, snapshots: RunSnapshots) -> bool:
        """Report the metrics if they are due at ``now`` (monotonic); return whether they were. Does not block."""
        if now - self._reported < _REPORT_S:
            return False
        self._reported = now
        metrics.report_task(
            self._numbers,
            counters=self._counters,
            cursor=cursor,
            client=client,
            latency=self._latency.numbers(),
            snapshots=snapshots.progress(),
            behind=self._behind_source,
            keep_going=self._settings.failures != "fail",
            behind_bytes=self._behind,
        )
        self._history.report(self._numbers)
        return True

    def lag_offset(self, now: float) -> tuple[Position, Position] | None:
        """Return the latency that REST reports, if it is due at ``now`` and has changed."""
        if now - self._saved < _LAG_S:
            return None
        self._saved = now
        offset = lag.lag_offset(self._latency, self._counters.tables)
        if {**offset, "ts_ms": 0} == {**self._lag, "ts_ms": 0}:
            return None
        self._lag = offset
        return lag.lag_partition(self._settings.prefix, self._settings.shard), offset
