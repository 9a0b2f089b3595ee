"""A TCP proxy on the loopback address that can stop, as a network partition does: connections stay open and carry nothing."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from dataclasses import dataclass, field

_CHUNK = 1 << 16


@dataclass(slots=True)
class Proxy:
    """Forwards connections to ``target``; runs in a thread of its own.

    Attributes:
        target: port on the loopback address to forward to.
        port: port it listens on, known after construction.
    """

    target: int
    port: int = 0
    _listener: socket.socket = field(init=False)
    _flowing: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _sockets: set[socket.socket] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._flowing.set()
        threading.Thread(target=self._accept, daemon=True, name="proxy").start()

    def cut(self) -> None:
        """Stop carrying bytes, in both directions and for new connections too; nothing is closed."""
        self._flowing.clear()

    def heal(self) -> None:
        """Carry bytes again, those held back first."""
        self._flowing.set()

    def drop(self) -> None:
        """Close all connections, in the middle of whatever they carry; new ones are let through."""
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close everything."""
        self._stopped.set()
        self._flowing.set()
        for endpoint in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                endpoint.shutdown(socket.SHUT_RDWR)
            endpoint.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                continue
            self._sockets |= {client, server}
            threading.Thread(target=self._carry, args=(client, server), daemon=True, name="proxy-connection").start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        with selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
            for side in other:
                selector.register(side, selectors.EVENT_READ)
            while not self._stopped.is_set() and self._passed_on(selector, other):
                pass
        # The end of one side is the end of the other.
        for side in other:
            self._sockets.discard(side)
            side.close()

    def _passed_on(self, selector: selectors.BaseSelector, other: dict[socket.socket, socket.socket]) -> bool:
        for key, _ in selector.select(0.2):
            source = key.fileobj
            assert isinstance(source, socket.socket)
            data = source.recv(_CHUNK)
            self._flowing.wait()
            if not data:
                return False
            other[source].sendall(data)
        return True
