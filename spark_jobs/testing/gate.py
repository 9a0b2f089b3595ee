"""A TCP proxy between a sink and its server that counts requests and can break, slow down or silence connections."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHUNK: Final = 1 << 16


class Gate:
    """Forwards connections on a port of the loopback address to a server; threads of its own. Use as a context manager.

    A request is the chunk that a client sends at once: the result of one ``recv``.

    Args:
        host: the server's.
        port: the server's.

    Attributes:
        port: where clients connect.
        requests: how many requests there were.
        on_request: called with their number before one is passed on, in the connection's thread.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._delay_s = 0.0
        self._break_at = -1
        self._lose_answer = False
        self._listener: socket.socket | None = None
        self.requests = 0
        self.on_request: Callable[[int], None] | None = None
        self.port = 0
        self._open_listener()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flowing.set()
        self._close_listener()

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"

    def break_at(self, request: int, *, lose_answer: bool = False) -> None:
        """Close all connections once, when the given number of further requests has come; the last one is not passed on.

        Args:
            request: 1 is the next one.
            lose_answer: pass the last one on, and close when its answer comes.
        """
        with self._lock:
            self._break_at, self._lose_answer = self.requests + request, lose_answer

    def keep_whole(self) -> bool:
        """Break nothing any more.

        Returns:
            Whether the break that was asked for has not happened.
        """
        with self._lock:
            waiting, self._break_at = self._break_at > 0, -1
        return waiting

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Connections are refused, and the present ones closed."""
        self._close_listener()
        try:
            yield
        finally:
            self._open_listener()

    @contextlib.contextmanager
    def delayed(self, seconds: float) -> Iterator[None]:
        """Each request waits."""
        self._delay_s = seconds
        try:
            yield
        finally:
            self._delay_s = 0.0

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Connections are taken, and nothing is passed on; at the end all of them are closed."""
        self._flowing.clear()
        try:
            yield
        finally:
            self.drop()
            self._flowing.set()

    def drop(self) -> None:
        """Close all connections, in the middle of whatever they carry."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for connection in pair:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _open_listener(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept_clients, args=(listener,), daemon=True, name="gate").start()

    def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.drop()

    def _accept_clients(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            for endpoint in (client, server):
                endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._lock:
                if self._listener is not listener:
                    client.close()
                    server.close()
                    return
                self._pairs.add(pair)
            losing = threading.Event()
            for source, goal, step in ((client, server, self._pass_request), (server, client, self._pass_answer)):
                threading.Thread(
                    target=self._carry_bytes,
                    args=(source, goal, pair, step, losing),
                    daemon=True,
                    name="gate-connection",
                ).start()

    def _carry_bytes(
        self,
        source: socket.socket,
        goal: socket.socket,
        pair: tuple[socket.socket, socket.socket],
        step: Callable[[threading.Event], bool],
        losing: threading.Event,
    ) -> None:
        """One direction of a connection; the end of one is the end of the other."""
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                self._flowing.wait()
                if not step(losing):
                    self.drop()
                    break
                goal.sendall(data)
        with self._lock:
            self._pairs.discard(pair)
        for endpoint in pair:
            with contextlib.suppress(OSError):
                endpoint.shutdown(socket.SHUT_RDWR)
        source.close()

    def _pass_request(self, losing: threading.Event) -> bool:
        """Whether a request is passed on."""
        if self._delay_s:
            time.sleep(self._delay_s)
        with self._lock:
            self.requests += 1
            number = self.requests
            breaks = 0 < self._break_at <= number
            if breaks:
                self._break_at = -1
                if self._lose_answer:
                    losing.set()
        if self.on_request is not None:
            self.on_request(number)
        return not breaks or losing.is_set()

    def _pass_answer(self, losing: threading.Event) -> bool:
        """Whether an answer is passed on."""
        return not losing.is_set()
