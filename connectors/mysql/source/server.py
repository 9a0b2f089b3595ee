"""The source as a run asks it: one connection for questions, opened when it is needed and again when it was lost."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from connectors.errors import Retriable
from connectors.mysql.position.promises import SourceMoment
from connectors.mysql.schema import catalog
from connectors.mysql.source import connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from connectors.mysql.model import BinlogPosition, ConnectionSettings, MySqlTable, TableName
    from connectors.mysql.source.connection import ServerInfo

_T = TypeVar("_T")
#: Seconds for an answer. A catalog of very many tables takes minutes; a server that hangs keeps the connection open for good.
_ANSWER_S: Final = 600.0


class SourceServer:
    """Asks a server, one question at a time."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._connection: Any = None
        self._lock = asyncio.Lock()

    async def stay(self, address: str) -> None:
        """From now on ask only this one (``host:port``) of the servers."""
        if self._settings.host != address:
            self._settings = msgspec.structs.replace(self._settings, host=address)
            if self._connection is not None and connection.address_of(self._connection) != address:
                await self.close()

    async def close(self) -> None:
        """Close the connection; does not wait for the server."""
        opened, self._connection = self._connection, None
        if opened is not None:
            opened.close()

    async def info(self) -> ServerInfo:
        """Return the server's own data."""
        return await self._ask_server(connection.server_info)

    async def current_position(self, info: ServerInfo) -> BinlogPosition:
        """Where its binlog ends now."""
        return await self._ask_server(lambda opened: connection.current_place(opened, info))

    async def moment(self, info: ServerInfo) -> SourceMoment:
        """Its time, and where its binlog ends after that."""
        rows = await self._ask_server(lambda opened: connection.query_rows(opened, "SELECT UNIX_TIMESTAMP(NOW(6))"))
        return SourceMoment(int(Decimal(str(rows[0][0])) * 1_000_000), await self.current_position(info))

    async def logs(self) -> list[tuple[str, int]]:
        """Its binlog files with their sizes, oldest first."""
        return await self._ask_server(connection.binary_logs)

    async def gtids_at(self, position: BinlogPosition) -> str:
        """MariaDB: the GTIDs of the transactions before a position; "" if the server can't tell."""
        rows = await self._ask_server(
            lambda opened: connection.query_rows(
                opened, "SELECT BINLOG_GTID_POS(%s, %s)", (position.file, position.pos)
            )
        )
        value = rows[0][0] if rows else None
        return value.decode() if isinstance(value, bytes) else str(value or "")

    async def prepared_transactions(self) -> list[str]:
        """The ids of the XA transactions that are prepared.

        Raises:
            Fatal: the account may not ask.
            Retriable: the server is unavailable.
        """
        return await self._ask_server(connection.prepared_transactions)

    async def has_waiting_commits(self) -> bool:
        """Whether transactions that are in the binlog wait for a replica's acknowledgement before they are executed (MySQL)."""
        sql = "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync%wait_sessions'"
        rows = await self._ask_server(lambda opened: connection.query_rows(opened, sql))
        return any(int(count) for _, count in rows)

    async def definitions(self, names: Sequence[TableName]) -> Mapping[TableName, MySqlTable]:
        """Return the structures in ``information_schema`` of those tables that exist."""
        return await self._ask_server(lambda opened: catalog.read_definitions(opened, names))

    async def names(self, is_captured: Callable[[TableName], bool]) -> list[TableName]:
        """The base tables that are there and wanted."""
        all_names = await self._ask_server(catalog.table_names)
        return [name for name in all_names if is_captured(name)]

    async def _ask_server(self, question: Callable[[Any], Awaitable[_T]]) -> _T:
        """Send a query; if the idle connection was lost, or gives no answer, send it once more.

        Raises:
            MillraceError: the server is unavailable, or refuses.
        """
        async with self._lock:
            for may_retry in (True, False):
                fresh = self._connection is None
                if fresh:
                    self._connection = await connection.connect_first(self._settings)
                try:
                    return await self._await_answer(question(self._connection))
                except Retriable:
                    await self.close()
                    if fresh or not may_retry:
                        raise
                except asyncio.CancelledError:
                    await self.close()  # the answer is on its way
                    raise
        raise AssertionError("unreachable")

    async def _await_answer(self, answer: Awaitable[_T]) -> _T:
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await answer
        except TimeoutError as error:
            raise connection.explain_failure(error, f"answering a query for {_ANSWER_S:g} s") from error
