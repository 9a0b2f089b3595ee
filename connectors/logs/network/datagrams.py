"""Syslog over UDP: one message a datagram, at most once."""

from __future__ import annotations

import asyncio
import secrets
import socket
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.logs.network.intake import Intake
    from connectors.logs.network.lines import NetworkLine
    from connectors.logs.network.options import ListenAddress

#: The kernel's buffer for datagrams that wait, bytes (it may allow less).
_BUFFER: Final = 4 * 1024 * 1024


class DatagramServer(asyncio.DatagramProtocol):
    """Serves one address.

    Args:
        address: where.
        intake: where lines go.
        make: makes a line of a message and its sender's address.
        lost: called for each datagram for which there is no room.
    """

    def __init__(
        self,
        address: ListenAddress,
        intake: Intake,
        make: Callable[[bytes, str], NetworkLine],
        lost: Callable[[], None],
    ) -> None:
        self._address = address
        self._intake = intake
        self._make = make
        self._lost = lost
        self._sender = secrets.token_hex(8)
        self._count = 0
        self._transport: asyncio.DatagramTransport | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address can't be bound.
        """
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=(self._address.host, self._address.port)
        )
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)

    async def stop(self) -> None:
        """Close the address."""
        if self._transport is not None:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Take a message, or count it as lost."""
        line = self._make(data, str(addr[0]))
        if self._intake.put_now(self._address.text, self._sender, self._count, [line]):
            self._count += 1
        else:
            self._lost()
