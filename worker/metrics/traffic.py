"""Bytes, requests and connections of this process's Kafka clients, counted where they go through the event loop.

``MeteredLoop`` is uvloop's loop with one method more: a TCP connection that aiokafka opens is counted on its way in and out.
What is counted is read off Kafka's own frames (kafka.apache.org/protocol: size, api key, api version, correlation id, client
id), so that nothing of aiokafka but the module of its protocol class is relied upon.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import uvloop

from worker.protocol import ClientStats

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_LIBRARY: Final = "aiokafka."
#: Api keys that only one kind of client sends; what all of them send (metadata, versions, coordinators) tells nothing.
_KINDS: Final[dict[int, str]] = {
    **dict.fromkeys((0, 22, 24, 25, 26, 28), "producer"),
    **dict.fromkeys((1, 2, 8, 9, 11, 12, 13, 14), "consumer"),
    **dict.fromkeys((15, 16, 19, 20, 21, 29, 30, 31, 32, 33, 37, 42, 43), "admin"),
}
_SASL: Final = frozenset({17, 36})
_HEADER: Final = 14
#: What a client sends only when it is logged in.
_AFTER_LOGIN: Final = frozenset({*_KINDS, 3, 10})
#: Clients that are counted one by one; those that come later share one entry of their kind.
MOST_CLIENTS: Final = 10_000
OTHER: Final = "other"


class TrafficMeter:
    """Counts by client. Not thread-safe: all calls from the loop's thread."""

    def __init__(self, max_clients: int = MOST_CLIENTS) -> None:
        self._most = max_clients
        self._clients: dict[str, ClientStats] = {}

    def client(self, client_id: str) -> ClientStats:
        """The counters of a client, made when it is met first; ``OTHER``'s once there are too many."""
        stats = self._clients.get(client_id)
        if stats is None:
            if len(self._clients) >= self._most:
                self._drop_idle()
            if len(self._clients) >= self._most:
                client_id = OTHER
            stats = self._clients.setdefault(client_id, ClientStats(client_id))
        return stats

    def _drop_idle(self) -> None:
        """Make room: clients without a connection go into ``OTHER``, so that totals never fall."""
        other_stats = self._clients.setdefault(OTHER, ClientStats(OTHER))
        for client_id in [
            name for name, stats in self._clients.items() if stats.connections == 0 and stats is not other_stats
        ]:
            gone = self._clients.pop(client_id)
            other_stats.add(gone)

    def report(self) -> list[ClientStats]:
        """All counters as they are now; a copy."""
        return [stats.copy() for stats in self._clients.values()]


class _MeteredConnection:
    """The counters of one connection; its client is known from the first request on."""

    __slots__ = ("_early", "_header", "_left", "_meter", "_open", "_sasl", "_stats")

    def __init__(self, meter: TrafficMeter) -> None:
        self._meter = meter
        self._stats: ClientStats | None = None
        self._early = 0
        self._open = True
        self._sasl = False
        #: Bytes of the answer under way that are still to come, and the part of the next one's size that is there.
        self._left = 0
        self._header = b""

    def wrote(self, data: bytes) -> None:
        """A request went out: aiokafka writes each with one call."""
        key = int.from_bytes(data[4:6]) if len(data) >= _HEADER else -1
        stats = self._stats
        if stats is None:
            stats = self._stats = self._meter.client(_client_id(data))
            stats.connections += 1
            stats.connections_made += 1
            stats.bytes_in += self._early
        stats.bytes_out += len(data)
        stats.requests += 1
        stats.network_ios += 1
        if key in _SASL:
            self._sasl = True
        elif self._sasl and key in _AFTER_LOGIN:
            self._sasl = False
            stats.logins += 1
        if not stats.kind and key in _KINDS:
            stats.kind = _KINDS[key]

    def received(self, data: bytes) -> None:
        """Count received bytes, which may hold several answers or a part of one."""
        stats = self._stats
        if stats is None:
            self._early += len(data)
            return
        size = len(data)
        stats.bytes_in += size
        stats.network_ios += 1
        at = 0
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                at += step
                stats.responses += self._left == 0
                continue
            part = data[at : at + 4 - len(self._header)]
            at += len(part)
            self._header += part
            if len(self._header) == 4:
                self._left = int.from_bytes(self._header)
                self._header = b""
                stats.responses += self._left == 0

    def closed(self) -> None:
        """The connection has ended."""
        stats = self._stats
        if stats is not None and self._open:
            stats.connections -= 1
            stats.connections_closed += 1
            stats.failed_logins += self._sasl
        self._open = False


def _client_id(request: bytes) -> str:
    size = int.from_bytes(request[12:_HEADER], signed=True)
    return request[_HEADER : _HEADER + max(0, size)].decode("utf-8", "replace") or "unnamed"


class _CountingProtocol(asyncio.Protocol):
    """Passes everything on to another protocol."""

    def __init__(self, inner: asyncio.Protocol, connection: _MeteredConnection) -> None:
        self._inner = inner
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._connection.received(data)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.closed()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _CountingTransport(asyncio.Transport):
    """Passes everything on to another transport: what a stream's writer calls."""

    def __init__(self, inner: asyncio.Transport, connection: _MeteredConnection) -> None:
        super().__init__()
        self._inner = inner
        self._connection = connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.wrote(data if isinstance(data, bytes) else bytes(data))
        self._inner.write(data)

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def close(self) -> None:
        self._inner.close()

    def abort(self) -> None:
        self._inner.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return self._inner.can_write_eof()

    def write_eof(self) -> None:
        self._inner.write_eof()


async def _connect_metered(
    create: Callable[..., Awaitable[tuple[Any, Any]]],
    meter: TrafficMeter,
    protocol_factory: Callable[[], Any],
    *args: Any,
    **options: Any,
) -> tuple[Any, Any]:
    """A connection by a loop's own ``create_connection``, counted if it is a Kafka client's."""
    protocol = protocol_factory()
    if not type(protocol).__module__.startswith(_LIBRARY):
        return await create(lambda: protocol, *args, **options)
    connection = _MeteredConnection(meter)
    transport, _ = await create(lambda: _CountingProtocol(protocol, connection), *args, **options)
    return _CountingTransport(transport, connection), protocol


class MeteredLoop(uvloop.Loop):
    """uvloop's event loop; ``meter`` counts the connections of Kafka clients."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = TrafficMeter()

    async def create_connection(
        self, protocol_factory: Callable[[], Any], *args: Any, **options: Any
    ) -> tuple[Any, Any]:
        """As asyncio's."""
        return await _connect_metered(super().create_connection, self.meter, protocol_factory, *args, **options)


class MeteredSelectorLoop(asyncio.SelectorEventLoop):
    """The same of asyncio's own event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = TrafficMeter()

    async def create_connection(
        self, protocol_factory: Callable[[], Any], *args: Any, **options: Any
    ) -> tuple[Any, Any]:
        """As asyncio's."""
        return await _connect_metered(super().create_connection, self.meter, protocol_factory, *args, **options)


def client_traffic() -> list[ClientStats]:
    """Counters of the running loop's Kafka clients; none where the loop does not count."""
    loop = asyncio.get_running_loop()
    return loop.meter.report() if isinstance(loop, MeteredLoop | MeteredSelectorLoop) else []
