"""A server for protocols on TCP and TLS: reads, hands lines over, and answers once Kafka has them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from typing import TYPE_CHECKING, Final

from connectors.logs.network.frames import FrameInvalid
from connectors.logs.network.room import RoomLease

if TYPE_CHECKING:
    import logging
    import ssl
    from collections.abc import Callable

    from connectors.logs.network.frames import FrameDecoder, Received
    from connectors.logs.network.intake import Intake, SenderDelivery
    from connectors.logs.network.options import ListenAddress
    from connectors.logs.network.room import Room

#: Bytes that are read at one time.
_READ: Final = 64 * 1024
#: How long a sender may take for the TLS handshake, seconds.
_HANDSHAKE_S: Final = 30.0
#: How long a sender may take to read its answer, seconds.
_WRITE_S: Final = 60.0
#: Answers of one connection that may wait for Kafka.
_MOST_ANSWERS: Final = 64
#: How long a sender may pause within a large message or frame, seconds.
_REST_S: Final = 60.0
#: How often a waiting sender is shown that it is not forgotten, seconds.
_KEEPALIVE_S: Final = 5.0


class StreamServer:
    """Serves one address.

    Args:
        address: where.
        intake: where lines go.
        make_decoder: host of a sender -> the state of its connection.
        max_connections: connections at one time.
        log: for what senders do wrong.
        refused: called for each connection that is refused.
        room: for what of messages and frames has come.
    """

    def __init__(
        self,
        address: ListenAddress,
        intake: Intake,
        make_decoder: Callable[[str], FrameDecoder],
        max_connections: int,
        log: logging.LoggerAdapter[logging.Logger],
        refused: Callable[[], None],
        room: Room,
    ) -> None:
        self._room = room
        self._address = address
        self._intake = intake
        self._make_decoder = make_decoder
        self._most = max_connections
        self._log = log
        self._refused = refused
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, context: ssl.SSLContext | None) -> None:
        """Listen.

        Raises:
            OSError: the address can't be bound.
        """
        self._server = await asyncio.start_server(
            self._accept_connection,
            self._address.host,
            self._address.port,
            limit=_READ,
            ssl=context,
            ssl_handshake_timeout=_HANDSHAKE_S if context is not None else None,
        )

    async def stop(self) -> None:
        """Close the address and all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._most:
            self._refused()
            writer.close()
            return
        task = asyncio.create_task(self._serve_connection(reader, writer), name=f"{self._address.text}|connection")
        self._connections.add(task)
        task.add_done_callback(self._connection_ended)

    def _connection_ended(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("%s: a connection failed", self._address.text, exc_info=error)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str((writer.get_extra_info("peername") or ("unknown",))[0])
        connection = writer.get_extra_info("socket")
        if connection is not None:  # a sender that vanished without a word is noticed
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        decoder = self._make_decoder(peer)
        answers: asyncio.Queue[tuple[SenderDelivery, Received] | None] = asyncio.Queue(_MOST_ANSWERS)
        answering = asyncio.create_task(self._send_answers(writer, decoder, answers))
        reading = asyncio.create_task(self._read_frames(reader, writer, decoder, answers))
        try:
            await asyncio.wait({answering, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and reading.exception() is None:
                await answering  # answers that are due
            for task in (answering, reading):
                if task.done() and not task.cancelled():
                    task.result()
        except FrameInvalid as error:
            self._log.warning("%s: the connection of %s is closed: %s", self._address.text, peer, error)
        except (OSError, TimeoutError) as error:
            self._log.info("%s: the connection of %s has ended: %r", self._address.text, peer, error)
        finally:
            for task in (answering, reading):
                task.cancel()
            await asyncio.gather(answering, reading, return_exceptions=True)
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()

    async def _read_frames(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        decoder: FrameDecoder,
        answers: asyncio.Queue[tuple[SenderDelivery, Received] | None],
    ) -> None:
        sender, count = secrets.token_hex(8), 0
        room, lease = self._room, RoomLease()
        #: The lines since the last answer: the next one is for all of them.
        delivery: SenderDelivery | None = None
        ended = False
        try:
            while not ended:
                # What has come of a large frame takes room that others may wait for.
                async with asyncio.timeout(_REST_S if decoder.incomplete > _READ else None):
                    data = await reader.read(_READ)
                await room.grow(lease, len(data))
                received = decoder.feed(data) if data else decoder.end()
                room.replace(lease, decoder.incomplete + sum(line.size for line in received.lines))
                # A sender that does not read its answers is not read from either.
                await self._write_data(writer, received.at_once)
                if received.lines or received.answer or received.close:
                    delivery = await self._intake.put(self._address.text, sender, count, received.lines, delivery)
                    count += len(received.lines)
                    room.replace(lease, decoder.incomplete)
                    if received.answer or received.close:
                        await answers.put((delivery, received))
                        delivery = None
                ended = not data or received.close
        finally:
            room.replace(lease, 0)
        await answers.put(None)

    async def _send_answers(
        self,
        writer: asyncio.StreamWriter,
        decoder: FrameDecoder,
        answers: asyncio.Queue[tuple[SenderDelivery, Received] | None],
    ) -> None:
        while (item := await answers.get()) is not None:
            delivery, received = item
            while not delivery.done.is_set():
                try:
                    async with asyncio.timeout(_KEEPALIVE_S):
                        await delivery.done.wait()
                except TimeoutError:
                    await self._write_data(writer, decoder.keepalive)
            await self._write_data(writer, received.answer)

    @staticmethod
    async def _write_data(writer: asyncio.StreamWriter, data: bytes) -> None:
        if data:
            writer.write(data)
            async with asyncio.timeout(_WRITE_S):
                await writer.drain()
