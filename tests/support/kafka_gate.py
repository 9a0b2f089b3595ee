"""A proxy for Kafka's protocol that takes the broker away from one client, at a request of that client's that a test names."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Requests of a transactional producer by their number in Kafka's protocol.
REQUESTS: Final = {
    "Produce": 0,
    "Metadata": 3,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
}
#: Size, API key, API version, correlation id, length of the client's id.
_HEADER: Final = struct.Struct(">ihhih")


class Moment(NamedTuple):
    """When the broker goes away for a client.

    Attributes:
        request: see ``REQUESTS``.
        before: the request is lost; else its answer.
        closed: connections are closed and new ones refused, as by a broker that died; else they stay open and carry nothing,
            as to a broker that hangs.
    """

    request: str
    before: bool
    closed: bool


@dataclass(slots=True)
class Gate:
    """Forwards connections to ``target`` on the loopback address; threads of its own. ``port``: where it listens."""

    target: int
    port: int = field(init=False)
    _listener: socket.socket = field(init=False)
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _moments: dict[str, Moment] = field(default_factory=dict)
    _away: dict[str, Moment] = field(default_factory=dict)
    _pairs: dict[tuple[socket.socket, socket.socket], str] = field(default_factory=dict)
    _ended: bool = False

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name="gate").start()

    def take_away(self, client: str, moment: Moment) -> None:
        """From that moment on the client has no broker."""
        with self._lock:
            self._moments[client] = moment

    def gone(self, client: str) -> bool:
        """Whether the client has lost its broker."""
        return client in self._away

    def give_back(self) -> None:
        """All clients have their broker again. Connections that carried nothing are closed, as by a broker that was started."""
        with self._lock:
            for pair, client in list(self._pairs.items()):
                if client in self._away:
                    _close(*pair)
            self._away.clear()
            self._lock.notify_all()

    def close(self) -> None:
        """Close everything."""
        self._ended = True
        _close(self._listener)
        with self._lock:
            for pair in self._pairs:
                _close(*pair)
            self._lock.notify_all()

    def _accept(self) -> None:
        while not self._ended:
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                pair = client, socket.create_connection(("127.0.0.1", self.target))
                self._pairs[pair] = ""
                for way in (self._requests, self._answers):
                    threading.Thread(target=way, args=(pair,), daemon=True, name="gate-connection").start()

    def _requests(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        with contextlib.suppress(OSError):
            for name, request, frame in _frames(client):
                self._pairs[pair] = name
                moment = self._moments.get(name)
                due = moment is not None and request == REQUESTS[moment.request]
                if due and moment is not None and moment.before:
                    self._lose(name, moment)
                self._pass(pair)
                server.sendall(frame)
                if due and moment is not None and not moment.before:
                    self._lose(name, moment)
        self._end(pair)

    def _answers(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                self._pass(pair)
                client.sendall(data)
        self._end(pair)

    def _lose(self, name: str, moment: Moment) -> None:
        with self._lock:
            if self._moments.pop(name, None) is not None:
                self._away[name] = moment

    def _pass(self, pair: tuple[socket.socket, socket.socket]) -> None:
        """Let a connection carry on, or hold it, or close it."""
        with self._lock:
            moment = self._away.get(self._pairs.get(pair, ""))
            if moment is not None and moment.closed:
                _close(*pair)
            self._lock.wait_for(lambda: self._ended or self._pairs.get(pair, "") not in self._away)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.pop(pair, None)
        _close(*pair)


def _frames(connection: socket.socket) -> Iterator[tuple[str, int, bytes]]:
    """Requests of a connection: the client's id, the API key, all bytes."""
    with connection.makefile("rb") as stream:
        while len(head := stream.read(_HEADER.size)) == _HEADER.size:
            size, request, _, _, length = _HEADER.unpack(head)
            rest = stream.read(size + 4 - _HEADER.size)
            yield rest[: max(length, 0)].decode("utf-8", "replace"), request, head + rest


def _close(*connections: socket.socket) -> None:
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
