"""Results of queries in bulk: packets as they come, not values one by one. For large results over aiomysql's connections."""

from __future__ import annotations

from typing import Any, Final

from pymysql.constants import CR
from pymysql.err import OperationalError, raise_mysql_exception

from connectors.mysql.source.driver import send_query, stream_of

_READ: Final = 1 << 18
_FULL: Final = 0xFFFFFF


class PacketRows:
    """The rows of one query in the text protocol.

    ``begin``, then ``read`` until it gives []; nothing else may use the connection before that. Whoever stops earlier, or is
    cancelled, has to close the connection.

    Raises (all methods): the driver's errors, ``OSError``.
    """

    __slots__ = ("_at", "_buffer", "_connection", "_over", "_reader", "_whole")

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._reader = stream_of(connection)
        self._buffer = b""
        self._at = 0
        self._over = False
        self._whole: list[bytes] = []

    async def begin(self, sql: str) -> int:
        """Send the query and read up to its rows; how many columns they have."""
        connection = self._connection
        await send_query(connection, sql)
        self._over = False
        first = await self._read_packet()
        if first[0] == 0:
            self._over = True
            return 0
        count = int.from_bytes(first[1:3], "little") if first[0] == 0xFC else first[0]
        for _ in range(count + 1):  # the columns, and the packet that ends them
            await self._read_packet()
        return count

    async def read(self) -> list[bytes]:
        """The next rows' packets, as many as are there; [] at the end."""
        while not self._over:
            packets = self._split_packets()
            if packets or self._over:
                return packets
            await self._read_more()
        return []

    async def all(self, sql: str) -> list[bytes]:
        """All rows of a query whose result is small."""
        await self.begin(sql)
        packets: list[bytes] = []
        while part := await self.read():
            packets += part
        return packets

    def _split_packets(self) -> list[bytes]:
        buffer, at = self._buffer, self._at
        end = len(buffer) - 4
        packets: list[bytes] = []
        append = packets.append
        while at <= end:
            size = buffer[at] | buffer[at + 1] << 8 | buffer[at + 2] << 16
            stop = at + 4 + size
            if stop > end + 4:
                break
            packet = buffer[at + 4 : stop]
            at = stop
            if size == _FULL:
                self._whole.append(packet)
                continue
            if self._whole:
                packet = b"".join([*self._whole, packet])
                self._whole.clear()
            elif size and packet[0] >= 0xFE and (packet[0] == 0xFF or size < 9):
                self._over = True
                if packet[0] == 0xFF:
                    raise_mysql_exception(packet)
                break
            append(packet)
        self._at = at
        return packets

    async def _read_packet(self) -> bytes:
        """One packet of the head."""
        while True:
            buffer, at = self._buffer, self._at
            if len(buffer) - at >= 4:
                size = int.from_bytes(buffer[at : at + 3], "little")
                if len(buffer) - at >= 4 + size:
                    packet = buffer[at + 4 : at + 4 + size]
                    self._at = at + 4 + size
                    if packet[:1] == b"\xff":
                        self._over = True
                        raise_mysql_exception(packet)
                    return packet
            await self._read_more()

    async def _read_more(self) -> None:
        part = await self._reader.read(_READ)
        if not part:
            raise OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server during query")
        remainder = self._buffer[self._at :]
        self._buffer = remainder + part if remainder else part
        self._at = 0
