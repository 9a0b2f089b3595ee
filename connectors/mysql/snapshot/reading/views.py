"""Read views: opens one that has all changes that the stream has seen, and finds its position in the stream.

MariaDB reports the exact position of a consistent view (``binlog_snapshot_file`` and ``_position``); so does Percona Server.
Other servers don't. There the view is opened once everything that the stream has seen is certainly visible, and the position
after the read is used, which is at or after the view's. A replica has positions of its own: they are given as GTIDs.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Fatal
from connectors.mysql.model import BinlogPosition
from connectors.mysql.position import positions
from connectors.mysql.snapshot.reading.keys import quote_name
from connectors.mysql.source import gtid
from connectors.mysql.source.connection import current_place, query_rows, server_info

if TYPE_CHECKING:
    import logging

    from connectors.mysql.model import TableName
    from connectors.mysql.snapshot.model import SnapshotSettings
    from connectors.mysql.source.connection import ServerInfo

_FIRST_S: Final = 0.005
_LONGEST_S: Final = 0.5
#: How often the wait for a view is logged.
_TELL_S: Final = 30.0


class Views:
    """Opens read views on connections to one server.

    Args:
        info: the server.
        exact: whether it tells the place of a view.
    """

    def __init__(
        self, settings: SnapshotSettings, info: ServerInfo, log: logging.LoggerAdapter[logging.Logger], *, exact: bool
    ) -> None:
        self._settings = settings
        self.info = info
        self.exact = exact
        self._log = log

    @classmethod
    async def of(cls, connection: Any, settings: SnapshotSettings, log: logging.LoggerAdapter[logging.Logger]) -> Views:
        """Ask the server what it can.

        Raises:
            Retriable: it is unavailable.
            ConfigInvalid: it is a replica whose positions can't be compared with its source's.
        """
        info = await server_info(connection)
        if settings.replica and not info.has_gtids:
            raise ConfigInvalid(
                f"snapshot.hostname names {info.address}, which has no GTIDs, so that its contents can't be ordered with the "
                "source's changes; set gtid_mode=ON on both servers, or leave the option out"
            )
        rows = await query_rows(connection, "SHOW STATUS LIKE 'binlog_snapshot_file'")
        exact = info.is_on("log_bin") and any(value for _, value in rows)
        if settings.replica and not (info.is_on("log_slave_updates") or info.is_on("log_replica_updates")):
            exact = False
        return cls(settings, info, log, exact=exact)

    @staticmethod
    async def prepare(connection: Any) -> None:
        """Settings that a new connection needs."""
        await query_rows(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    async def open(self, connection: Any, low: BinlogPosition, *, transactional: bool = True) -> BinlogPosition | None:
        """Open a view that has all changes up to ``low``; ``release`` it.

        Args:
            connection: on which.
            low: the newest position that the stream has taken anything from, taken before this call.
            transactional: whether the table's engine keeps to views.

        Returns:
            The view's position, or None: ``after`` has one.

        Raises:
            Retriable: the server is unavailable.
        """
        if not (self.exact and transactional):
            await self._wait_visible(connection, low)
            await query_rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return None
        wait, started_s, reported_s = _FIRST_S, time.monotonic(), 0.0
        while True:
            await query_rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            status = dict(await query_rows(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
            status_values = {str(name).lower(): str(value) for name, value in status.items()}
            position = BinlogPosition(
                file=status_values["binlog_snapshot_file"], pos=int(status_values["binlog_snapshot_position"])
            )
            if self._settings.replica:
                rows = await query_rows(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (position.file, position.pos))
                position = BinlogPosition(file="", pos=0, gtids=str(rows[0][0] or ""))
            if self.has(position, low):
                return position
            await self.release(connection)
            reported_s = self._report_wait(started_s, reported_s, low)
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_S)

    async def open_quiet(self, connection: Any, low: BinlogPosition) -> BinlogPosition | None:
        """Open a view on a server that doesn't report its position: it is certain if nothing is committed meanwhile.

        Args:
            connection: on which.
            low: as ``open``.

        Returns:
            The view's position, or None: something was committed, and the view is closed.

        Raises:
            Retriable: the server is unavailable.
        """
        await self._wait_visible(connection, low)
        start = await self.after(connection, gtids=True)
        await self.open(connection, start, transactional=False)
        end = await self.after(connection)
        if (start.file, start.pos) == (end.file, end.pos) and (end.file or start.gtids == end.gtids):
            return end
        await self.release(connection)
        return None

    async def after(self, connection: Any, *, gtids: bool = False) -> BinlogPosition:
        """A position at or after everything that was read from the server until now.

        Args:
            connection: on which.
            gtids: whether the GTIDs are needed, too; a replica's position has them in any case.

        Raises:
            Retriable: the server is unavailable.
        """
        if not self._settings.replica:
            # By file and position alone: a transaction is visible before it is in the set of executed GTIDs.
            return await current_place(connection, self.info, gtids=gtids)
        sql = "SELECT @@GLOBAL.gtid_current_pos" if self.info.mariadb else "SELECT @@GLOBAL.gtid_executed"
        rows = await query_rows(connection, sql)
        return BinlogPosition(file="", pos=0, gtids="".join(str(rows[0][0] or "").split()))

    @staticmethod
    async def release(connection: Any) -> None:
        """Close the view."""
        await query_rows(connection, "ROLLBACK")

    async def lock(self, connection: Any, name: TableName) -> None:
        """Keep others from writing to a table; ``unlock`` soon.

        Raises:
            Retriable: the lock is not to be had now.
            Fatal: the account may not.
        """
        await query_rows(connection, f"SET SESSION lock_wait_timeout = {self._settings.lock_timeout_s}")
        await query_rows(connection, f"LOCK TABLES {quote_name(name.database)}.{quote_name(name.table)} READ")

    @staticmethod
    async def unlock(connection: Any) -> None:
        """See ``lock``."""
        await query_rows(connection, "UNLOCK TABLES")

    async def _wait_visible(self, connection: Any, low: BinlogPosition) -> None:
        """Wait until a view opened now has all changes up to ``low``."""
        info = self.info
        if self._settings.replica or (low.gtids and not info.mariadb):
            wait, started_s, reported_s = _FIRST_S, time.monotonic(), 0.0
            # GTIDs are in this set once their transactions are visible.
            sql = "SELECT @@GLOBAL.gtid_current_pos" if info.mariadb else "SELECT @@GLOBAL.gtid_executed"
            while True:
                rows = await query_rows(connection, sql)
                if self.has(BinlogPosition(file="", pos=0, gtids="".join(str(rows[0][0] or "").split())), low):
                    return
                reported_s = self._report_wait(started_s, reported_s, low)
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_S)
        # A transaction comes into the binlog a moment before it can be seen, and nothing tells when.
        await asyncio.sleep(self._settings.settle_s)

    def has(self, position: BinlogPosition, low: BinlogPosition) -> bool:
        """Whether a position is at or after another one; both of the same kind, with GTIDs where the first has no file.

        Raises:
            Fatal: there are no GTIDs to compare.
        """
        if position.file:
            return positions.position_number(position.file, position.pos) >= positions.position_number(
                low.file, low.pos
            )
        if not low.gtids:
            raise Fatal(
                "the stream's place has no GTIDs, so that a replica can't be compared with it: leave snapshot.hostname "
                "out, or let the source have GTIDs (gtid_mode=ON)"
            )
        flavor = self.info.flavor
        return gtid.parse_gtids(flavor, low.gtids).is_subset(gtid.parse_gtids(flavor, position.gtids))

    def past(self, stream_position: BinlogPosition, view_position: BinlogPosition) -> bool:
        """Whether the stream has come to a view's position."""
        if view_position.file:
            return self.has(stream_position, view_position)
        flavor = self.info.flavor
        return gtid.parse_gtids(flavor, view_position.gtids).is_subset(gtid.parse_gtids(flavor, stream_position.gtids))

    def _report_wait(self, started_s: float, reported_s: float, low: BinlogPosition) -> float:
        now = time.monotonic()
        if now - max(started_s, reported_s) < _TELL_S:
            return reported_s
        self._log.warning(
            "a snapshot waits for %s to show what the stream has read already (%s): %s",
            self.info.address,
            low.gtids or f"{low.file}:{low.pos}",
            "the replica is behind; check SHOW REPLICA STATUS"
            if self._settings.replica
            else "is a commit stuck? check SHOW PROCESSLIST",
        )
        return now
