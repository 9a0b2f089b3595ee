"""The connections of a run to its source, and the position at which it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from connectors.errors import Fatal
from connectors.mysql.position import start
from connectors.mysql.position.begin import RunStart, find_start
from connectors.mysql.source import connection, gtid
from connectors.mysql.source.binlog import BinlogClient, PurgedError
from connectors.mysql.source.server import SourceServer
from connectors.snapshot.requests import INITIAL

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence

    from connectors.api import Position
    from connectors.mysql.model import BinlogPosition, ConnectionSettings, StreamSettings
    from connectors.mysql.source.connection import ServerInfo

#: Bytes that are received at once: about 10 ms of work.
_READ_BYTES: Final = 1 << 18


class OpenedSource(NamedTuple):
    """A source that is being read.

    Attributes:
        info: of the server that answers questions.
        begin: the position at which the run begins.
        client: reads the binlog from there.
        offsets: the saved offsets that still count.
        asked_until: where the binlog ended when the client had asked for it by GTIDs; None: it has asked by position.
    """

    info: ServerInfo
    begin: RunStart
    client: BinlogClient
    offsets: Sequence[tuple[Position, Position]]
    asked_until: BinlogPosition | None = None

    @property
    def server_id(self) -> int:
        """The id of the server whose binlog is read."""
        return (self.client.info or self.info).server_id

    @property
    def same_server(self) -> bool:
        """Whether the position counts events of the server whose binlog is read."""
        return not self.client.by_gtid or (self.begin.same_server and self.server_id == self.info.server_id)


class RunSource:
    """Opens the connections of a run. ``open`` may be called once.

    Attributes:
        connection: how to reach the server; once open, that one server whose positions count.
        server: answers questions.
    """

    def __init__(
        self,
        connection_settings: ConnectionSettings,
        settings: StreamSettings,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.connection = connection_settings
        self.server = SourceServer(connection_settings)
        self._settings = settings
        self._log = log
        self._client: BinlogClient | None = None

    async def open(self, offsets: Sequence[tuple[Position, Position]]) -> OpenedSource:
        """Connect, and find the position in the binlog.

        Raises:
            PurgedError: the server does not have the position any more, and snapshot.mode allows no new beginning.
            Retriable: the server is unavailable.
            ConfigInvalid: it refuses the account, or a saved offset is not understood.
            Fatal: the servers behind one name are of different kinds.
        """
        info = await self.server.info()
        await self.server.stay(info.address)
        try:
            return await self._open_at(info, offsets)
        except PurgedError as error:
            if not self._settings.plan.on_purged:
                raise
            self._log.warning("%s; the tables are read again (snapshot.mode=when_needed)", error)
            opened = await self._open_at(
                info,
                [
                    (partition, offset)
                    for partition, offset in offsets
                    if not (
                        start.is_position(self._settings.prefix, partition) or partition.get(start.SNAPSHOT) == INITIAL
                    )
                ],
            )
            # Positions of earlier divisions into tasks are still saved: they must not count as newer than this one's.
            layout = start.start_of(self._settings.prefix, self._settings.shard, offsets).layout
            return opened._replace(begin=opened.begin._replace(start=opened.begin.start._replace(layout=layout)))

    async def _open_at(self, info: ServerInfo, offsets: Sequence[tuple[Position, Position]]) -> OpenedSource:
        begin = await find_start(self._settings, offsets, self.server, info)
        client = await self._open_client(info, begin)
        asked_until = await self.server.current_position(client.info or info) if client.by_gtid else None
        if asked_until is not None and (
            lacking := gtid.lacking_text(info.flavor, begin.position.gtids, asked_until.gtids)
        ):
            self._log.warning(
                "%s lacks transactions that the stream has read: %s. If no replication brings them, their rows were lost with "
                "the server that had them: start a new snapshot of the tables",
                client.address,
                lacking,
            )
        return OpenedSource(info, begin, client, offsets, asked_until)

    async def _open_client(self, info: ServerInfo, begin: RunStart) -> BinlogClient:
        # A position is valid only on the server that reported it; with GTIDs any of the servers can continue.
        target = self.connection if begin.by_gtid else msgspec.structs.replace(self.connection, host=info.address)
        client = self._client = BinlogClient(
            target,
            begin.position,
            use_gtid=begin.by_gtid,
            log=self._log,
            annotate=self._settings.query,
            read_bytes=_READ_BYTES,
        )
        stream_info = await client.start()
        if stream_info.flavor != info.flavor:
            raise Fatal(
                f"{stream_info.address} is {stream_info.flavor}, the server that answered questions is {info.flavor}: "
                "database.hostname must name copies of one server"
            )
        # Positions and definitions are those of this server from now on; with another one a new run begins.
        self.connection = msgspec.structs.replace(self.connection, host=str(client.address))
        await self.server.stay(str(client.address))
        return client

    async def connect(self) -> Any:
        """A new connection to the server."""
        return await connection.connect_first(self.connection)

    async def close(self) -> None:
        """Release everything; may be repeated."""
        if self._client is not None:
            await self._client.close()
        await self.server.close()
