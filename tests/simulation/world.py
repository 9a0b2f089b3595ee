"""The simulated cluster: Kafka, workers, their task hosts, and a client that calls REST."""

from __future__ import annotations

import asyncio
import itertools
import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from connectors.errors import MillraceError, Retriable
from tests.simulation.control import SimulatedControl, worker_properties
from tests.simulation.hosts import CONNECTOR, ModelledHost, current_machine
from tests.simulation.kafka_cluster import Cluster
from tests.simulation.kafka_connection import connected
from tests.simulation.network import Channel, Network
from tests.simulation.processes import Children
from tests.simulation.real_hosts import RealHost, real_config
from tests.simulation.verification import INTERVAL_MS, compare_tables, is_scheduled
from tests.simulation.watch import Watch
from worker.control.group.membership import return_s
from worker.control.herder.verify import VerifyOperations
from worker.control.state.rule_sets import RULES_NAME
from worker.control.state.verifications import INTERVAL
from worker.rest.facade import NotLeader, RestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.simulation.loop import Process, VirtualLoop
    from tests.simulation.processes import Child

_CALL_S: Final = 30.0
_HOSTS: Final = 2
#: How often a connection looks whether its other end is there.
_LOOK_S: Final = 0.1
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass
class Worker:
    """A worker's machine.

    Attributes:
        name: of the machine.
        process: its control process now.
        control: the same from inside, once it is being started.
    """

    name: str
    process: Process
    control: SimulatedControl | None = None
    task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Its REST address."""
        return f"http://{self.name}:8083"


class World:
    """Everything.

    Args:
        loop: the simulation's.
        workers: how many workers.
        exactly_once: whether tasks are fenced.
        real_hosts: whether task hosts are real.
    """

    def __init__(self, loop: VirtualLoop, workers: int, *, exactly_once: bool, real_hosts: bool) -> None:
        self.loop = loop
        self.network = Network(loop)
        self.kafka = Cluster(loop, self.network)
        self.watch = Watch(loop)
        self.children = Children(loop, self._host_main)
        loop.children = self.children
        self._properties = worker_properties(self.kafka.addresses, exactly_once=exactly_once)
        self._real_hosts = real_hosts
        self.hosts: dict[int, ModelledHost | RealHost] = {}
        self.client = loop.spawn("client")
        #: Workers whose REST addresses refuse all connections though they live.
        self.refusing: set[str] = set()
        self._refused: dict[str, float] = {}
        self.watch.left_behind = self._left_behind
        self.workers = [Worker(f"worker-{number}", loop.spawn(f"worker-{number}")) for number in range(workers)]
        self._starts = itertools.count(1)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put the models where the product finds them."""
        with ExitStack() as stack:
            stack.enter_context(connected(self.kafka, current_machine))
            stack.enter_context(
                mock.patch("worker.control.hosts.socket", SimpleNamespace(socketpair=self.children.socketpair))
            )
            stack.enter_context(mock.patch("worker.control.group.membership.MeteredSelectorLoop", _NoLoop))
            stack.enter_context(
                mock.patch.object(
                    VerifyOperations,
                    "_talk_to_process",
                    lambda operations, name, body: compare_tables(self.loop.random, operations, name, body),
                )
            )
            yield

    # Workers.

    def start_worker(self, worker: Worker) -> None:
        """Start a worker's control process."""
        if worker.task is not None and not worker.task.done() and worker.process.alive:
            return
        if not worker.process.alive or worker.task is not None:
            if worker.process.alive:
                self.loop.kill(worker.process)
                self.children.orphan(worker.name)
            worker.process = self.loop.spawn(worker.name)
        self.watch.controls[worker.name] = worker.process
        worker.task = self.loop.run_in(worker.process, self._control_main(worker), name=worker.name)
        self.loop.note("is started", worker.process)

    async def _control_main(self, worker: Worker) -> None:
        """Start it until it runs, as a supervisor does, and start it again when it gives up."""
        while True:
            control = worker.control = SimulatedControl(self._properties, worker.url, self.call, self.connect, _HOSTS)
            try:
                await control.start()
                reason = await control.failed
                self.loop.note(f"gives up: {reason}")
            except Exception as error:  # noqa: BLE001 - its supervisor starts it again
                self.loop.note(f"could not start: {error!r}"[:200])
            await control.stop()
            await asyncio.sleep(1)

    def kill_worker(self, worker: Worker) -> None:
        """SIGKILL to the control process; its hosts end with it."""
        if not worker.process.alive or worker.task is None:
            return
        self.loop.note("is killed", worker.process)
        self.loop.kill(worker.process)
        worker.control = None
        worker.task = None
        self.loop.call_in(self.client, self.loop.random.random() * 0.05, self.children.orphan, worker.name)

    def drain_worker(self, worker: Worker) -> None:
        """Stop a worker as an operator does, and start it again: one step of a rolling restart."""
        control = worker.control
        if control is None or control.herder is None or not worker.process.alive or worker.process.paused:
            return
        self.loop.note("drains", worker.process)
        self.loop.run_in(worker.process, self._drain(worker, control))

    async def _drain(self, worker: Worker, control: SimulatedControl) -> None:
        await control.drain(20)
        if worker.control is not control:
            return
        if worker.task is not None:
            worker.task.cancel()
        await control.stop()
        self.loop.note("has stopped")
        self.loop.call_in(self.client, 0.5, self._restart, worker, control)

    def _restart(self, worker: Worker, control: SimulatedControl) -> None:
        if worker.control is control:
            self.children.orphan(worker.name)
            self.loop.kill(worker.process)
            worker.task = None
            self.start_worker(worker)

    def pause(self, worker: Worker, *, whole: bool) -> None:
        """SIGSTOP to the control process, or to the whole machine."""
        self.loop.note("is paused with its hosts" if whole else "is paused", worker.process)
        worker.process.paused = True
        if whole:
            for child in self._children_of(worker):
                child.process.paused = True

    def resume(self, worker: Worker) -> None:
        """SIGCONT."""
        if worker.process.paused:
            self.loop.note("continues", worker.process)
            self.watch.resumed[worker.name] = self.loop.time()
        worker.process.paused = False
        for child in self._children_of(worker):
            child.process.paused = False

    def _children_of(self, worker: Worker) -> list[Child]:
        return [child for child in self.children.alive if child.process.machine == worker.name]

    # Hosts.

    async def _host_main(self, child: Child) -> None:
        kind = RealHost if self._real_hosts else ModelledHost
        host = self.hosts[child.get_pid()] = kind(self.loop, self.watch, child)
        try:
            await host.main()
        finally:
            self.hosts.pop(child.get_pid(), None)

    def connector_config(self, name: str, count: int, version: str) -> dict[str, str]:
        """A connector's configuration with ``count`` tasks."""
        config = {"name": name, "connector.class": CONNECTOR, "count": str(count), "version": version}
        if self._real_hosts:
            return real_config(config)
        scheduled = {INTERVAL: str(INTERVAL_MS)} if is_scheduled(version) else {}
        return {**config, RULES_NAME: name, **scheduled}

    def live_hosts(self) -> list[ModelledHost | RealHost]:
        """All hosts whose processes are there."""
        return [self.hosts[pid] for pid in sorted(self.hosts) if self.hosts[pid].child in self.children.alive]

    # Connections between workers.

    def refuse(self, worker: Worker) -> None:
        """Let a worker's REST address refuse connections, those that are open included, though the worker lives."""
        self.loop.note("refuses connections", worker.process)
        self.refusing.add(worker.name)
        self._refused[worker.name] = math.inf

    def accept_again(self, worker: Worker) -> None:
        """End that."""
        if worker.name in self.refusing:
            self.refusing.discard(worker.name)
            self._refused[worker.name] = self.loop.time()

    def _left_behind(self, machine: str) -> bool:
        """Whether a worker whose address refused connections within a session has not heard of Kafka for too long."""
        control = next(worker.control for worker in self.workers if worker.name == machine)
        contact = None if control is None else control.node.contact
        if contact is None or self.loop.time() - self._refused.get(machine, -math.inf) > contact.session_s:
            return False
        return contact.age() > return_s(contact.heartbeat_s)

    def accepts(self, worker: Worker) -> bool:
        """Whether a worker's machine accepts connections to its REST address."""
        control = worker.control
        return worker.process.alive and control is not None and control.listening and worker.name not in self.refusing

    async def connect(self, host: str, port: int) -> ModelledConnection:
        """Connect to a worker's REST address.

        Raises:
            ConnectionRefusedError: nothing listens there, or something on the way says so.
        """
        worker = next(worker for worker in self.workers if worker.name == host)
        connection = ModelledConnection(self, current_machine(), worker, (host, port))
        await connection.until_reached()
        if not self.accepts(worker):
            raise ConnectionRefusedError(f"{host} refuses the connection")
        return connection

    # REST.

    async def call(self, url: str, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any] = _NOTHING) -> Any:
        """Call a method of a worker's herder, or of one of its subjects (``offsets.NAME``), over the network.

        Raises:
            RestError: as it answers.
            NotLeader: the same.
            Retriable: it can't be reached, or does not answer in time.
        """
        worker = next((worker for worker in self.workers if worker.url == url), None)
        source = current_machine()
        await asyncio.sleep(self.network.delay())
        if worker is None or not worker.process.alive or worker.control is None or worker.control.herder is None:
            raise Retriable(f"{url} refuses the connection")
        answer: asyncio.Future[Any] = self.loop.create_future()
        caller = _current(self)
        there = Channel(self.network, source, worker.name, worker.process)
        back = Channel(self.network, worker.name, source, caller)

        def deliver(error: BaseException | None, value: Any) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)

        async def serve() -> None:
            herder = None if worker.control is None else worker.control.herder
            try:
                if herder is None or not herder.admin.ready():
                    raise RestError(503, "the worker is starting")
                value = await attrgetter(method)(herder)(*arguments, **named)
            except (MillraceError, TimeoutError, OSError) as error:
                back.send(deliver, error, None)
            else:
                back.send(deliver, None, value)

        there.send(lambda: self.loop.create_task(serve()))
        try:
            async with asyncio.timeout(_CALL_S):
                return await answer
        except TimeoutError:
            raise Retriable(f"{url} does not answer") from None

    async def request(self, worker: Worker, method: str, *arguments: Any, **named: Any) -> Any:
        """Ask a worker as a client does; a follower hands it on to the leader."""
        url: str | None = worker.url
        for _ in range(3):
            if url is None:
                raise RestError(409, "there is no leader")
            try:
                return await self.call(url, method, arguments, named)
            except NotLeader as error:
                url = error.leader_url
        raise RestError(409, "there is no leader")


class ModelledConnection:
    """An open connection from a machine to a worker's REST address."""

    def __init__(self, world: World, source: str, worker: Worker, address: tuple[str, int]) -> None:
        self._world = world
        self._source = source
        self._worker = worker
        self._process = worker.process
        self.address = address

    async def until_reached(self) -> None:
        """Return when a message has got there and back."""
        network = self._world.network
        await asyncio.sleep(network.delay() + network.delay())
        while network.blocked(self._source, self._worker.name):
            await asyncio.sleep(_LOOK_S)

    async def wait_closed(self) -> None:
        """Return when the worker's machine has closed it."""
        while self._process.alive and self._world.accepts(self._worker):
            await asyncio.sleep(_LOOK_S)
        await self.until_reached()

    def close(self) -> None:
        """There is nothing to close."""


class _NoLoop:
    """In place of the event loop of Faust's thread."""

    def __init__(self) -> None:
        self.meter = SimpleNamespace(report=list)

    def is_running(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """There is nothing to close."""


def _current(world: World) -> Process:
    from tests.simulation.loop import CURRENT

    del world
    return CURRENT.get()
