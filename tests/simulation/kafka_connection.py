"""aiokafka's connection, to the modelled brokers: the one part of the Kafka clients that is replaced.

Everything above it is real: aiokafka's client, producer, transactions, group coordinator, and the product's own reader.
Requests go over as objects, without their bytes; record batches are bytes.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaConnectionError
from aiokafka.util import wait_for

from tests.simulation.kafka_cluster import Broker, Cluster, ServerConnection
from tests.simulation.loop import CURRENT
from tests.simulation.network import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The newest of each request that aiokafka knows.
_VERSIONS: Final = dict.fromkeys(range(80), (0, 100))


class ModelConnection:
    """A client's end of a connection."""

    def __init__(
        self,
        cluster: Cluster,
        broker: Broker,
        machine: str,
        timeout_s: float,
        on_close: Callable[[Any, Any], None] | None,
    ) -> None:
        self._loop = cluster.loop
        self.host = broker.name
        self.port = 9092
        self._timeout_s = timeout_s
        self._on_close = on_close
        process = CURRENT.get()
        self._requests = Channel(cluster.network, machine, broker.name, broker.process)
        self._server = ServerConnection(broker, machine, process, self._reset)
        broker.connections.append(self._server)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._open = True

    def connected(self) -> bool:
        """Whether it is open, as far as the client knows."""
        return self._open

    def send(self, request: Any, expect_response: bool = True) -> Any:  # noqa: FBT002 - aiokafka's signature
        """Send a request; the answer is awaited."""
        if not self._open:
            raise KafkaConnectionError(f"No connection to broker at {self.host}:{self.port}")
        prepared = request.prepare(_VERSIONS)
        self._count += 1
        number = self._count
        future = self._loop.create_future()
        if expect_response:
            self._pending[number] = future
        else:
            future.set_result(None)
        self._requests.send(self._server.receive, prepared, lambda response: self._answered(number, response))
        return wait_for(future, self._timeout_s)

    def _answered(self, number: int, response: Any) -> None:
        future = self._pending.pop(number, None)
        if future is not None and not future.done():
            future.set_result(response)

    def _reset(self) -> None:
        if self._open:
            self.close(CloseReason.CONNECTION_BROKEN)

    def close(self, reason: Any = None, exc: BaseException | None = None) -> asyncio.Future[None]:
        """Close this end; what was sent may still arrive."""
        if self._open:
            self._open = False
            if self._server in self._server.broker.connections:
                self._server.broker.connections.remove(self._server)
            for future in self._pending.values():
                if not future.done():
                    error = KafkaConnectionError(f"Connection at {self.host}:{self.port} closed")
                    error.__cause__ = exc
                    future.set_exception(error)
            self._pending = {}
            if self._on_close is not None:
                self._on_close(self, reason)
                self._on_close = None
        closed: asyncio.Future[None] = self._loop.create_future()
        closed.set_result(None)
        return closed


def connector(cluster: Cluster, machine_of: Callable[[], str]) -> Any:
    """The function that replaces ``aiokafka.client.create_conn``.

    Args:
        cluster: the modelled Kafka.
        machine_of: the machine of the process that connects.
    """

    async def create_conn(
        host: str,
        port: int,
        *,
        request_timeout_ms: int = 40000,
        on_close: Callable[[Any, Any], None] | None = None,
        **_options: Any,
    ) -> ModelConnection:
        del port
        broker = next(broker for broker in cluster.brokers if broker.name == host)
        machine, timeout_s = machine_of(), request_timeout_ms / 1000
        network = cluster.network
        waited = 0.0
        await asyncio.sleep(network.delay() + network.delay())
        while network.blocked(machine, broker.name):
            if waited >= timeout_s:
                raise TimeoutError
            await asyncio.sleep(0.2)
            waited += 0.2
        if not broker.process.alive:
            raise ConnectionRefusedError(f"{host} refuses the connection")
        return ModelConnection(cluster, broker, machine, timeout_s, on_close)

    return create_conn


@contextmanager
def connected(cluster: Cluster, machine_of: Callable[[], str]) -> Iterator[None]:
    """Let all Kafka clients connect to the modelled brokers."""
    connect = connector(cluster, machine_of)
    with mock.patch("aiokafka.client.create_conn", connect), mock.patch("offsets.refusal.create_conn", connect):
        yield
