"""Kafka clients that many producers of one process share, so that thousands of tasks don't need thousands of connections.

Kafka knows a producer by its id and epoch, not by its connection, so producers can share connections. But a broker answers
the requests of one connection one after another: producers that share one may wait for each other. So the first producers
have clients of their own, and all others share a bounded number of clients.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import TYPE_CHECKING, Any, Final

from aiokafka import errors as kafka
from aiokafka.client import AIOKafkaClient, ConnectionGroup

from offsets.aiokafka_internals import replace_client, tracked_topics, wait_for_partitions
from offsets.refusal import CONNECTION_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka import AIOKafkaProducer

    from worker.host.delivery.routes import ProducerSettings

#: Producers of a process that have clients of their own.
OWN_CLIENTS: Final = 64
#: Clients for all further producers with the same connection properties.
SHARED_CLIENTS: Final = 32
#: The arguments of a producer that are its client's.
_CLIENT_ARGUMENTS: Final = (
    *CONNECTION_ARGUMENTS,
    "bootstrap_servers",
    "metadata_max_age_ms",
    "request_timeout_ms",
    "retry_backoff_ms",
    "connections_max_idle_ms",
)


class SharedClient:
    """A client with its users.

    Args:
        arguments: of the client.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.client = AIOKafkaClient(**arguments)
        self.users = 0
        self._connecting = asyncio.Lock()
        self._connected = False
        self._topics: collections.Counter[str] = collections.Counter()

    async def connect(self) -> None:
        """Ask a bootstrap server for the brokers, once for all users. Raises as ``AIOKafkaClient.bootstrap``."""
        async with self._connecting:
            if not self._connected:
                await self.client.bootstrap()
                self._connected = True

    async def disconnect(self) -> None:
        """Close all connections, giving up after two seconds."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2.0):
                await self.client.close()

    def use_topic(self, topic: str) -> None:
        """One more user writes to ``topic``."""
        self._topics[topic] += 1

    def leave_topics(self, topics: set[str]) -> None:
        """Ask no more for topics whose last user has left: Kafka may create again what a user has deleted."""
        self._topics.subtract(topics)
        gone = {topic for topic in topics if self._topics[topic] <= 0}
        for topic in gone:
            del self._topics[topic]
        tracked_topics(self.client).difference_update(gone)


class LentClient:
    """A shared client as one producer has it."""

    def __init__(self, shared: SharedClient) -> None:
        self.shared = shared
        self._client = shared.client
        self._topics: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        """Return what is the same for all users."""
        return getattr(self._client, name)

    async def bootstrap(self) -> None:
        """Connect; immediate where another user has."""
        await self.shared.connect()

    async def close(self) -> None:
        """End nothing: others use the connections. ``ClientPool.release`` closes them behind the last one."""
        self.shared.leave_topics(self._topics)
        self._topics = set()

    async def send(self, node_id: int, request: Any, *, group: int = ConnectionGroup.DEFAULT) -> Any:
        """Send a request. Raises as ``AIOKafkaClient.send``."""
        try:
            return await self._client.send(node_id, request, group=group)
        except KeyError:
            # Requests of two users ran into their timeout on one connection: the second finds it closed and gone.
            raise kafka.RequestTimedOutError from None

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        if topic not in self._topics:
            self._topics.add(topic)
            self.shared.use_topic(topic)
        return await wait_for_partitions(self._client, topic)


def connections_of(producer: AIOKafkaProducer) -> AIOKafkaClient:
    """The client whose connections a producer uses, its own or a shared one."""
    client = producer.client
    return client.shared.client if isinstance(client, LentClient) else client


class ClientPool:
    """Decides which producer has a client of its own, and lends the others one. Belongs to one event loop.

    Args:
        own_clients: producers that have clients of their own.
        shared_clients: clients for all others with the same connection properties.
    """

    def __init__(self, own_clients: int = OWN_CLIENTS, shared_clients: int = SHARED_CLIENTS) -> None:
        self._most_own = own_clients
        self._most_shared = shared_clients
        self._owners: set[AIOKafkaProducer] = set()
        self._shared: dict[frozenset[tuple[str, str]], list[SharedClient]] = {}
        self._last_number = 0

    def equip(self, producer: AIOKafkaProducer, settings: ProducerSettings) -> None:
        """Give a producer that was made with ``settings``, and is not started, its client."""
        if len(self._owners) < self._most_own:
            self._owners.add(producer)
            return
        clients = self._shared.setdefault(settings.connection, [])
        shared = min(clients, key=lambda client: client.users, default=None)
        if shared is None or (shared.users and len(clients) < self._most_shared):
            self._last_number += 1
            arguments: dict[str, Any] = {
                name: settings.arguments[name] for name in _CLIENT_ARGUMENTS if name in settings.arguments
            }
            if "client.id" not in dict(settings.connection):
                arguments["client_id"] = f"connector-producers-{self._last_number}"
            shared = SharedClient(arguments)
            clients.append(shared)
        shared.users += 1
        replace_client(producer, LentClient(shared))

    async def release(self, producer: AIOKafkaProducer, *, failed: bool) -> None:
        """Take back what ``equip`` gave to a producer that has ended; takes two seconds at most.

        Args:
            producer: the producer.
            failed: whether it ended with an error: its client is not lent again then, as what it knows of the cluster may
                be out of date.
        """
        self._owners.discard(producer)
        lent = producer.client
        if not isinstance(lent, LentClient):
            return
        shared = lent.shared
        shared.users -= 1
        if failed or not shared.users:
            for connection, clients in list(self._shared.items()):
                if shared in clients:
                    clients.remove(shared)
                if not clients:
                    del self._shared[connection]
        if not shared.users:
            closing = asyncio.create_task(shared.disconnect(), name="close shared Kafka client")
            try:
                await asyncio.shield(closing)
            except asyncio.CancelledError:
                await asyncio.wait({closing})
                raise
