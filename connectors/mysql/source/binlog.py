"""Reads the binlog of a server: raw events, in order, from a position on.

Logging in is done by the driver, in a thread. After that the server only sends, and the event loop receives: without waiting,
into a large buffer, and only when the reader asks for more. So a slow reader holds the server back by TCP itself, and besides
the system's buffer of the connection there is one of a megabyte (or the size of the largest event).
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import threading
from typing import TYPE_CHECKING, Final

from connectors.errors import MillraceError, Retriable
from connectors.mysql.source.connection import ssl_context
from connectors.mysql.source.login import BinlogSession, log_in
from connectors.mysql.source.packets import DuplicateIdError, Framer, PurgedError, TornFileError

if TYPE_CHECKING:
    import logging
    import socket

    from connectors.mysql.model import BinlogPosition, ConnectionSettings, ServerAddress
    from connectors.mysql.source.connection import ServerInfo

__all__ = ["BinlogClient", "DuplicateIdError", "PurgedError", "TornFileError"]

_READ: Final = 1 << 20


class BinlogClient:
    """One connection that reads the binlog from ``position`` on; to reconnect, make another one. Not thread-safe.

    Attributes:
        info: what the server says about itself; after ``start``.
        address: the server that was taken; after ``start``.
        server_id: the number under which it knows us; after ``start``.
        thread: number of the connection in the server's process list; after ``start``.
        by_gtid: whether the stream began behind GTIDs: its first ROTATE event then tells a file of this server, and file
            and position of ``position`` mean nothing.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        position: BinlogPosition,
        *,
        use_gtid: bool,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger],
        annotate: bool = False,
        read_bytes: int = _READ,
    ) -> None:
        """Does not block.

        Args:
            settings: the servers; others than the first are tried only with GTIDs, a position means nothing there.
            position: where to begin: behind ``gtids`` with ``use_gtid`` and if there are some, else at ``pos`` of ``file``.
            use_gtid: see ``position``.
            log: for which server was taken.
            annotate: whether MariaDB sends the statements before their rows; without, positions inside transactions are not
                exact.
            read_bytes: size of the buffer, about the most that ``read`` gives at once.
        """
        self.info: ServerInfo | None = None
        self.address: ServerAddress | None = None
        self.server_id = 0
        self.thread = 0
        self.by_gtid = False
        self._settings = settings
        self._start_position = position
        self._use_gtid = use_gtid and bool(position.gtids)
        self._log = log
        self._annotate = annotate
        self._read_bytes = read_bytes
        self._session: BinlogSession | None = None
        self._framer = Framer(size=read_bytes)
        self._ready: list[bytes] = []
        self._error: MillraceError | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._writing = False
        self._reading = False

    async def start(self) -> ServerInfo:
        """Connect, log in, and wait until the server has started to send.

        Raises:
            Retriable: no server answers, or one doesn't and the others don't have the position.
            PurgedError: no server has the position (any more).
            ConfigInvalid: one refuses us.
            Fatal: one can't send its binlog.
        """
        context = await asyncio.to_thread(ssl_context, self._settings.tls)
        addresses = self._settings.addresses()
        if not self._use_gtid and len(addresses) > 1:
            self._log.warning(
                "without GTIDs the position counts at %s only: the other servers are not tried", addresses[0]
            )
            addresses = addresses[:1]
        failed: list[MillraceError] = []
        refused = ""
        for address in addresses:
            try:
                return await self._start_session(address, context)
            except (Retriable, PurgedError) as error:
                await self.close()
                failed.append(error)
                refused = f"{address} answers: {error}" if isinstance(error, PurgedError) else refused
                if len(failed) < len(addresses):
                    self._log.warning("the binlog can't be read from %s, trying the next server: %s", address, error)
            except BaseException:
                await self.close()
                raise
        # A server that is unavailable may still have the files that the others lack.
        unavailable = next((error for error in failed if isinstance(error, Retriable)), None)
        if unavailable is not None and refused:
            raise Retriable(
                f"{unavailable}. {refused}. The stream waits for the unavailable server, which may have the place: if it is "
                "lost for good, take it out of database.hostname"
            ) from failed[-1]
        raise unavailable or failed[-1]

    async def _start_session(self, address: ServerAddress, context: ssl.SSLContext | None) -> ServerInfo:
        given_up = threading.Event()
        session = await _in_thread(
            functools.partial(
                log_in,
                self._settings,
                address,
                context,
                self._start_position,
                by_gtid=self._use_gtid,
                annotate=self._annotate,
                given_up=given_up,
            ),
            given_up,
        )
        self._session = session
        self._error = None
        self._framer = Framer(verify=self._settings.verify_checksums, size=self._read_bytes)
        self.info, self.address, self.by_gtid = session.info, address, session.by_gtid
        self.server_id, self.thread = session.server_id, session.thread
        while not self.pending:
            await self._wait_readable(self._settings.connect_timeout_s)
        self._ready = self.take()
        info = session.info
        self._log.info(
            "reading the binlog of %s %s at %s as server %d%s, from %s",
            info.flavor,
            info.version_text,
            address,
            session.server_id,
            " (TLS)" if info.encrypted else "",
            f"GTIDs {self._start_position.gtids}"
            if session.by_gtid
            else f"{self._start_position.file}:{self._start_position.pos}",
        )
        return info

    async def read(self) -> list[bytes]:
        """The next events, at least one; waits for them. Without checksums; artificial ones and heartbeats are among them.

        Cancelling it loses nothing. Do not run it in the background while other code takes events: they would come out of
        order. Use ``wait`` for that.

        Raises:
            Retriable: the connection is lost, or silent for too long.
            PurgedError: the server does not have the position any more.
            Fatal: the server can't continue.
            RuntimeError: another ``read`` is running.
        """
        if self._reading:
            raise RuntimeError("two reads at the same time would give events out of order: use wait() and take()")
        self._reading = True
        try:
            await asyncio.sleep(0)  # others run, also if there is always more
            while not (events := self.take()):
                await self.wait()
        finally:
            self._reading = False
        return events

    async def wait(self) -> None:
        """Wait until ``take`` gives events (or a part of a very large one is there) or raises.

        It takes nothing itself, so that it may run in the background, or be cancelled.

        Raises:
            Retriable: the server has said nothing for too long.
        """
        while not self.pending:
            if self._waiting is not None:
                await asyncio.wait((self._waiting,))
                continue
            await self._wait_readable(max(self._settings.silence_s, 3 * self._settings.heartbeat_s))

    def take(self) -> list[bytes]:
        """The events that are there, at most about a buffer full; none if there are none. Does not block.

        Raises:
            Retriable, PurgedError, Fatal: as ``read``.
        """
        if not self.pending:
            return []
        if self._ready:
            events, self._ready = self._ready, []
            return events
        if self._error is not None and not self._framer.complete:
            raise self._error
        try:
            return self._framer.events()
        except DuplicateIdError as error:
            self._error = self._duplicate_error(error)
            raise self._error from error
        except MillraceError as error:
            self._error = error
            raise

    @property
    def pending(self) -> bool:
        """Whether ``take`` would give events, or raise. Does not block; receives what the system has."""
        session = self._session
        while not self._has_some():
            if session is None or not self._receive_data(session.driver.socket):
                return self._has_some()
        return True

    def _has_some(self) -> bool:
        return bool(self._ready) or self._framer.complete or self._error is not None

    @property
    def received(self) -> int:
        """Bytes received so far."""
        return self._framer.received

    async def close(self) -> None:
        """Close the connection. Does not block; may be repeated."""
        session, self._session = self._session, None
        if session is not None:
            if self._waiting is not None:
                loop = asyncio.get_running_loop()
                loop.remove_reader(session.driver.socket.fileno())
                loop.remove_writer(session.driver.socket.fileno())
                _wake_waiter(self._waiting)
            session.driver.drop()
        if self._error is None:
            self._error = Retriable("the binlog connection is closed")

    def _receive_data(self, connection: socket.socket) -> bool:
        """Receive what is there into the buffer. False: there is no more now."""
        framer = self._framer
        count = -1
        self._writing = False
        try:
            room = framer.room()
            count = connection.recv_into(room)
            while (
                count > 0 and count < len(room) and isinstance(connection, ssl.SSLSocket)
            ):  # it gives 16 KiB at a time
                framer.filled(count)
                count = -1
                room = framer.room()
                count = connection.recv_into(room)
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except ssl.SSLWantWriteError:
            self._writing = True
        except OSError as error:
            self._error = Retriable(f"the binlog connection to {self._describe_server()} is lost: {error}")
        if count == 0:
            self._error = Retriable(f"{self._describe_server()} has closed the binlog connection")
        if count <= 0:
            return False
        framer.filled(count)
        if self._waiting is not None:
            _wake_waiter(self._waiting)
        return True

    async def _wait_readable(self, patience: float) -> None:
        session = self._session
        if session is None:
            return
        connection, writing = session.driver.socket, self._writing
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        number = connection.fileno()
        (loop.add_writer if writing else loop.add_reader)(number, _wake_waiter, waiting)
        try:
            async with asyncio.timeout(patience):
                await waiting
        except TimeoutError:
            raise Retriable(
                f"{self._describe_server()} has said nothing for {patience:g} s, not even a heartbeat: the binlog connection "
                "is taken as lost"
            ) from None
        finally:
            if self._session is session:  # else it is closed, and the number may be another's by now
                (loop.remove_writer if writing else loop.remove_reader)(number)
            _wake_waiter(waiting)
            self._waiting = None

    def _describe_server(self) -> str:
        return f"the server at {self.address}"

    def _duplicate_error(self, error: DuplicateIdError) -> MillraceError:
        """With a number that was drawn, drawing again helps."""
        return error if self._settings.server_id else Retriable(str(error))


def _wake_waiter(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def _in_thread(work: functools.partial[BinlogSession], given_up: threading.Event) -> BinlogSession:
    """Return the thread's result; if the caller is cancelled meanwhile, stop the thread and close its connection."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        given_up.set()
        running.add_done_callback(_drop_session)
        raise


def _drop_session(done: asyncio.Future[BinlogSession]) -> None:
    if not done.cancelled() and done.exception() is None:
        done.result().driver.drop()
