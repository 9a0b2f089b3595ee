"""The transactions that a server's earlier binlog files end with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.mysql.model import BinlogPosition
from connectors.mysql.position.positions import FIRST, next_log
from connectors.mysql.source.gtid import MariaDbGtids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.mysql.source.server import SourceServer

#: No transaction at all.
_NONE: Final = MariaDbGtids()


class FileEnds:
    """Tells which transactions of a MariaDB's binlog file have an end.

    After a crash the file that was written last may end in the middle of a transaction, which the server has forgotten. The
    next file begins with the GTIDs of those that count.
    """

    def __init__(self, server: SourceServer) -> None:
        self._server = server
        #: When the first file is entered; the last of them, and later ones, end well as long as the connection lasts.
        self._files: Sequence[str] | None = None

    async def complete_transactions(self, file: str) -> MariaDbGtids | None:
        """The GTIDs of the transactions before the end of a file; None: all that come out of it have an end.

        Raises:
            Retriable: the server is unavailable.
        """
        if self._files is None:
            self._files = [name for name, _ in await self._server.logs()]
        next_file = next_log(file, self._files)
        if next_file is None:
            return None
        gtids = await self._server.gtids_at(BinlogPosition(file=next_file, pos=FIRST))
        return MariaDbGtids.parse(gtids) if gtids else _NONE
