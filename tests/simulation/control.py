"""A real control process on the simulation's loop: what needs threads, sockets or Faust is replaced, and nothing else.

Real are ``ControlProcess`` with its watches, ``Node``, ``Leader``, ``Reconciler``, ``HostPool``, the stores, the herder, and
aiokafka's consumer with its group coordinator. Replaced are Faust's thread around that consumer, and REST's server and client.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from connectors.errors import Fatal
from worker.config.worker_config import parse_worker
from worker.control.app import ControlProcess
from worker.control.group.membership import GroupMembership, note_contact, put_member_out, shell_classes
from worker.control.group.peers import PeerConnection, PeerWatch
from worker.control.herder.base import HerderContext
from worker.control.herder.cluster import ClusterHerder
from worker.control.waiting import wait_until
from worker.logs import LoggerRegistry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from worker.control.group.membership import WorkerMember

_JOIN_S: Final = 180.0
#: Seconds between two looks for errors of the group's coordinator.
_POLL_S: Final = 0.5


class GroupMember:
    """The part that ``GroupMembership`` needs of Faust's consumer thread."""

    def __init__(self, consumer: AIOKafkaConsumer, membership: GroupMembership) -> None:
        self._coordinator = consumer._coordinator
        self._membership = membership

    def generation(self) -> int:
        """Kafka's generation number of the group."""
        number: int = self._coordinator.generation
        return number

    def rejoin(self) -> None:
        """Join again."""
        asyncio.get_running_loop().call_soon(self._coordinator.request_rejoin)

    async def put_out(self, member: WorkerMember) -> bool:
        """Leave the group on behalf of another worker."""
        return await put_member_out(self._coordinator, self._membership, member)

    def renew(self, arguments: Mapping[str, Any]) -> None:
        """Credentials don't change here."""
        del arguments


class WorkersClient:
    """The part that ``Node`` needs of the client for other workers.

    Args:
        call: calls a method of another worker's herder, given its address.
    """

    def __init__(self, call: Callable[[str, str, tuple[Any, ...]], Awaitable[Any]]) -> None:
        self._call = call

    async def send_signed(self, method: str, url: str, path: str, body: bytes, key: Any) -> None:
        """Send task configurations to the leader."""
        del method, key
        await self._call(url, "put_task_configs", (path.split("/")[2], orjson.loads(body)))

    async def close(self) -> None:
        """There is nothing to close."""


class _Secrets:
    async def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """There are no references."""
        return dict(config)

    async def close(self) -> None:
        """There is nothing to close."""


class SimulatedControl(ControlProcess):
    """A control process.

    Args:
        properties: the worker's.
        url: its REST address.
        call: see ``WorkersClient``.
        connect: connects to another worker's REST address.
        hosts: how many task hosts.

    Attributes:
        listening: whether REST's listener is open.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        url: str,
        call: Callable[[str, str, tuple[Any, ...]], Awaitable[Any]],
        connect: Callable[[str, int], Awaitable[PeerConnection]],
        hosts: int,
    ) -> None:
        config, _ = parse_worker(properties)
        super().__init__(properties, properties, config, LoggerRegistry(), _Secrets(), hosts)  # type: ignore[arg-type]
        self._url = url
        self._call_worker = call
        self._peers = PeerWatch(self._incarnation, self._put_out, connect)
        self.listening = False
        self._consumer: AIOKafkaConsumer | None = None
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start everything; returns when the worker has joined the group."""
        loop = asyncio.get_running_loop()
        group = self.config["group.id"]
        self._membership = GroupMembership(
            self._describe,
            self._see,
            loop,
            f"{group}-millrace-members",
            60.0,
            self._session_s,
            self.config["heartbeat.interval.ms"] / 1000,
        )
        self.node.contact = self._membership.contact
        self._app = SimpleNamespace(crashed=False, stop=self._stop_parts)
        await self._start_topics()
        await self._start_rest()
        await self._start_node()
        await self._join()
        if not await wait_until(lambda: self.node.view is not None, _JOIN_S):
            raise Fatal("the group could not be joined")
        self._start_watch(self._membership)

    async def _start_rest(self) -> None:
        node = self.node
        self.context = HerderContext(
            node, self.config, "modelled", ("1", "unknown"), self._connector_clients.own_offsets
        )
        self.context.start_drain = self.start_drain
        self.context.properties = self.properties
        self.herder = ClusterHerder(self.context)
        node.client = WorkersClient(self._call_worker)  # type: ignore[assignment]
        self._build_node()
        node.worker_id = self._url.removeprefix("http://")
        self._rest = SimpleNamespace(advertised_url=self._url, worker_id=node.worker_id, stop=self._stop_listening)  # type: ignore[assignment]
        self.herder.verifications.watch_verifications()
        self.listening = True

    async def _stop_listening(self) -> None:
        self.listening = False

    async def _join(self) -> None:
        membership = self._membership
        if membership is None:
            return
        arguments = self._consumer_arguments()
        assignor = shell_classes(membership, arguments)[0]
        # It keeps nothing in itself, and what it would inherit needs a Faust app.
        consumer = AIOKafkaConsumer(**arguments, partition_assignment_strategy=[object.__new__(assignor)])
        self._consumer = consumer
        while True:
            try:
                await consumer.start()
                break
            except Exception:  # noqa: BLE001 - Faust's supervisor starts it again
                await asyncio.sleep(1)
        note_contact(consumer._coordinator, membership)
        membership.attach(GroupMember(consumer, membership))  # type: ignore[arg-type]
        consumer.subscribe([membership.topic])
        self._polling = asyncio.create_task(self._poll(consumer), name="group-errors")

    async def _poll(self, consumer: AIOKafkaConsumer) -> None:
        """Errors of the coordinator crash Faust's app."""
        while True:
            await asyncio.sleep(_POLL_S)
            try:
                consumer._coordinator.check_errors()
            except KafkaError as error:
                self._app.crashed, self._app.crash_reason = True, error
                return

    async def _stop_parts(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
        if self._consumer is not None:
            await self._consumer.stop()
        if self._rest is not None:  # as Faust's app, which stops what it has started
            await self._stop_node()
            await self._stop_rest()


def worker_properties(addresses: str, *, exactly_once: bool) -> dict[str, str]:
    """A worker's properties with short times, so that little virtual time shows much."""
    return {
        "bootstrap.servers": addresses,
        "group.id": "cluster",
        "config.storage.topic": "configs",
        "config.storage.replication.factor": "1",
        "offset.storage.topic": "offsets",
        "offset.storage.partitions": "2",
        "offset.storage.replication.factor": "1",
        "status.storage.topic": "statuses",
        "status.storage.partitions": "2",
        "status.storage.replication.factor": "1",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "exactly.once.source.support": "enabled" if exactly_once else "disabled",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "task.host.stuck.ms": "4000",
        "task.host.crash.limit": "1000",
        "task.host.restart.backoff.ms": "200",
        "task.host.restart.backoff.max.ms": "2000",
        "listeners": "http://127.0.0.1:8083",
        "plugin.path": "tests.simulation.source:CountingConnector",
        "offset.flush.interval.ms": "300",
        "producer.request.timeout.ms": "5000",
        "producer.transaction.timeout.ms": "20000",
        "topic.creation.enable": "false",
    }
