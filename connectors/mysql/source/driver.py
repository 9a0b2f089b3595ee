"""The one place that reaches into aiomysql: results whose rows the driver must not decode. Its version is in setup.cfg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymysql.constants import COMMAND
from pymysql.protocol import MysqlPacket

if TYPE_CHECKING:
    from asyncio import StreamReader


async def open_connection(connection: Any) -> None:
    """Connect and log in; the driver's own ``connect()`` takes no class of ours."""
    await connection._connect()


def socket_of(connection: Any) -> Any:
    """The socket of an open connection."""
    return connection._writer.transport.get_extra_info("socket")


async def send_query(connection: Any, sql: str) -> None:
    """Send a query; the caller reads its result."""
    await connection._execute_command(COMMAND.COM_QUERY, sql)
    connection._result = None


async def read_packet(connection: Any) -> Any:
    """The next packet of a result, a ``MysqlPacket``."""
    return await connection._read_packet(MysqlPacket)


def stream_of(connection: Any) -> StreamReader:
    """The bytes that come from the server."""
    reader: StreamReader = connection._reader
    return reader
