"""The modelled Kafka cluster: brokers that fail and come back, leaders and coordinators that move, and what clients ask.

What a broker has acknowledged is replicated: a broker's end loses no record. What is not acknowledged may be written or not.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.kafka_group import REBALANCE_IN_PROGRESS, Group
from tests.simulation.kafka_log import PartitionLog, TopicLimits
from tests.simulation.kafka_transactions import INVALID_STATE, RETRY_WRITE, Transaction, Transactions
from tests.simulation.network import Channel

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tests.simulation.loop import Process, VirtualLoop
    from tests.simulation.network import Network

CLUSTER_ID: Final = "modelled"
_UNKNOWN_TOPIC: Final = 3
_NOT_LEADER: Final = 6
_NO_COORDINATOR: Final = 15
_NOT_COORDINATOR: Final = 16
_LOADING: Final = 14
_EXISTS: Final = 36
_PORT: Final = 9092
#: A broker that failed is replaced as leader and coordinator after that many seconds, at least and at most.
_FAILOVER_S: Final = (0.3, 4.0)
_LOADING_S: Final = 0.3
#: So long a broker that came back answers without knowing brokers, at most: it has not read the cluster's metadata yet.
_UNAWARE_S: Final = 1.0
_MARKER_S: Final = 0.02

#: The limits of a compacted topic that has Kafka's defaults otherwise.
COMPACTED: Final = TopicLimits()

Reply = "Callable[..., None]"


def _limits(entries: dict[str, str]) -> TopicLimits:
    """The limits of a topic that a client creates."""
    return TopicLimits(
        int(entries.get("max.message.bytes", COMPACTED.largest_batch)),
        keyless="compact" not in entries.get("cleanup.policy", "delete"),
    )


class ServerConnection:
    """A broker's end of a connection: requests are answered one after the other."""

    def __init__(self, broker: Broker, client_machine: str, client: Process, reset: Callable[[], None]) -> None:
        self.broker = broker
        self._answers = Channel(broker.cluster.network, broker.name, client_machine, client)
        self.waiting: deque[tuple[Any, Callable[[Any], None]]] = deque()
        self.busy = False
        self.reset = reset

    def receive(self, request: Any, answer: Callable[[Any], None]) -> None:
        """A request has arrived."""
        self.waiting.append((request, answer))
        if not self.busy:
            self._next()

    def _next(self) -> None:
        if not self.waiting:
            return
        request, answer = self.waiting.popleft()
        self.busy = True
        done = False

        def reply(*values: Any) -> None:
            nonlocal done
            if done or not self.broker.process.alive:
                return
            done = True
            self.busy = False
            self._answers.send(answer, request.RESPONSE_TYPE(*values))
            self._next()

        self.broker.handle(request, reply)

    def break_off(self) -> None:
        """The broker has gone: its host says so to the client."""
        self._answers.send(self.reset)


class Broker:
    """A broker."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.name = f"kafka-{number}"
        self.process = cluster.loop.spawn(self.name)
        self.connections: list[ServerConnection] = []
        #: When it knows the cluster.
        self.aware_s = 0.0

    def handle(self, request: Any, reply: Callable[..., None]) -> None:
        """Answer a request, now or later."""
        name = type(request).__name__.rpartition("Request")[0]
        getattr(self, f"_{name.lower()}")(request, reply)

    # Topics.

    def _metadata(self, request: Any, reply: Callable[..., None]) -> None:
        cluster = self.cluster
        names = sorted(cluster.topics) if request.topics is None else request.topics
        if cluster.loop.time() < self.aware_s:
            reply(0, [], CLUSTER_ID, -1, [(_UNKNOWN_TOPIC, name, False, []) for name in request.topics or ()])
            return
        # Not None for no rack: clients keep brokers in sets, and the hash of None is an address.
        brokers = [(broker.number, broker.name, _PORT, "") for broker in cluster.brokers if broker.process.alive]
        topics: list[Any] = [
            (
                0 if name in cluster.topics else _UNKNOWN_TOPIC,
                name,
                False,
                [
                    (0, log.number, cluster.leaders[name, log.number], [0], [0], [])
                    for log in cluster.topics.get(name, ())
                ],
            )
            for name in names
        ]
        reply(0, brokers, CLUSTER_ID, min((number for number, *_ in brokers), default=-1), topics)

    def _createtopics(self, request: Any, reply: Callable[..., None]) -> None:
        errors = []
        for name, partitions, _, _, entries in request.create_topic_requests:
            exists = name in self.cluster.topics
            errors.append((name, _EXISTS if exists else 0, None))
            if not exists:
                self.cluster.create(name, max(1, partitions), _limits(dict(entries)))
        reply(0, errors)

    def _describeconfigs(self, request: Any, reply: Callable[..., None]) -> None:
        entries: list[Any] = [("cleanup.policy", "compact", False, 1, False, [])]
        reply(0, [(0, None, kind, name, entries) for kind, name, *_ in request.resources])

    def _offset(self, request: Any, reply: Callable[..., None]) -> None:
        answers = []
        for topic, partitions in request.topics:
            rows: list[Any] = []
            for partition, at in partitions:
                log = self._led(topic, partition)
                if log is None:
                    rows.append((partition, _NOT_LEADER, -1, -1))
                elif at == -2:
                    rows.append((partition, 0, -1, 0))
                else:
                    rows.append((partition, 0, -1, log.stable_end if request.isolation_level else log.end))
            answers.append((topic, rows))
        reply(0, answers)

    def _led(self, topic: str, partition: int) -> PartitionLog | None:
        """The partition if this broker leads it."""
        if self.cluster.leaders.get((topic, partition)) != self.number:
            return None
        return self.cluster.topics[topic][partition]

    # Records.

    def _produce(self, request: Any, reply: Callable[..., None]) -> None:
        answers = []
        for topic, partitions in request.topics:
            rows: list[Any] = []
            for partition, data in partitions:
                log = self._led(topic, partition)
                if log is None:
                    rows.append((partition, _NOT_LEADER, -1, -1, 0))
                    continue
                code, offset = log.append(
                    bytes(data),
                    int(time.time() * 1000),
                    partial(self._check_write, request.transactional_id, (topic, partition)),
                )
                rows.append((partition, code, offset, -1, 0))
            answers.append((topic, rows))
        # Replication and a disk that is slow for a moment.
        self.cluster.loop.call_in(self.process, self.cluster.network.delay(), reply, answers, 0)

    def _check_write(self, name: str | None, target: tuple[str, int], producer: int, epoch: int) -> int:
        """The error code for a producer that writes in a transaction, which its coordinator is asked about."""
        if name is None:
            return INVALID_STATE
        if self.cluster.coordinator(name) is None or self.cluster.is_loading(name):
            return RETRY_WRITE
        return self.cluster.transactions.check_write(name, producer, epoch, target)

    def _fetch(self, request: Any, reply: Callable[..., None]) -> None:
        logs = [
            log
            for topic, partitions in request.topics
            for partition, *_ in partitions
            if (log := self._led(topic, partition)) is not None
        ]
        timer: asyncio.TimerHandle | None = None
        done = False

        def look(*, last: bool = False) -> None:
            nonlocal done, timer
            if done:
                return
            answers, something = self._fetched(request)
            if something or last:
                done = True
                if timer is not None:
                    timer.cancel()
                reply(0, 0, 0, answers)
                return
            for log in logs:
                log.waiters.append(look)

        look()
        if not done:
            timer = self.cluster.loop.call_later(
                request.max_wait_time / 1000,
                lambda: look(last=True),
                context=self.cluster.loop.context_of(self.process),
            )

    def _fetched(self, request: Any) -> tuple[list[Any], bool]:
        something = False
        answers = []
        for topic, partitions in request.topics:
            rows: list[Any] = []
            for partition, _epoch, position, _start, at_most in partitions:
                log = self._led(topic, partition)
                if log is None:
                    rows.append((partition, _NOT_LEADER, -1, -1, 0, [], -1, b""))
                    something = True
                    continue
                code, data, aborted = log.read(position, committed=bool(request.isolation_level), at_most=at_most)
                something |= bool(code or data)
                rows.append((partition, code, log.end, log.stable_end, 0, aborted, -1, data))
            answers.append((topic, rows))
        return answers, something

    # Coordinators.

    def _findcoordinator(self, request: Any, reply: Callable[..., None]) -> None:
        coordinator = self.cluster.coordinator(request.coordinator_key)
        if coordinator is None:
            reply(0, _NO_COORDINATOR, None, -1, "", -1)
        else:
            reply(0, 0, None, coordinator.number, coordinator.name, _PORT)

    def _not_mine(self, key: str) -> int:
        """The error code for a key that this broker does not coordinate, or not yet; else 0."""
        if self.cluster.coordinator(key) is not self:
            return _NOT_COORDINATOR
        return _LOADING if self.cluster.is_loading(key) else 0

    def _initproducerid(self, request: Any, reply: Callable[..., None]) -> None:
        name = request.transactional_id
        if name is None:
            reply(0, 0, self.cluster.transactions.new_producer(), 0)
        elif error := self._not_mine(name):
            reply(0, error, -1, -1)
        else:
            reply(0, *self.cluster.transactions.init(name, request.transaction_timeout_ms / 1000))

    def _addpartitionstotxn(self, request: Any, reply: Callable[..., None]) -> None:
        added = {(topic, partition) for topic, partitions in request.topics for partition in partitions}
        error = self._not_mine(request.transactional_id) or self.cluster.transactions.add(
            request.transactional_id, request.producer_id, request.producer_epoch, added
        )
        reply(0, [(topic, [(partition, error) for partition in partitions]) for topic, partitions in request.topics])

    def _endtxn(self, request: Any, reply: Callable[..., None]) -> None:
        error = self._not_mine(request.transactional_id) or self.cluster.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commit=bool(request.transaction_result),
        )
        reply(0, error)

    def _joingroup(self, request: Any, reply: Callable[..., None]) -> None:
        if error := self._not_mine(request.group):
            reply(0, error, -1, "", "", request.member_id, [])
            return
        self.cluster.group(request.group).join(
            request.member_id,
            request.session_timeout / 1000,
            request.rebalance_timeout / 1000,
            dict(request.group_protocols),
            lambda joined: reply(0, *joined),
        )

    def _syncgroup(self, request: Any, reply: Callable[..., None]) -> None:
        if error := self._not_mine(request.group):
            # What a coordinator knew of a rebalance is lost: members begin again.
            reply(0, REBALANCE_IN_PROGRESS if error == _LOADING else error, b"")
            return
        self.cluster.group(request.group).sync(
            request.member_id,
            request.generation_id,
            dict(request.group_assignment),
            lambda synced: reply(0, *synced),
        )

    def _heartbeat(self, request: Any, reply: Callable[..., None]) -> None:
        error = self._not_mine(request.group)
        if error == _LOADING:
            reply(0, 0)  # as Kafka's coordinator does, which does not know better yet
            return
        reply(0, error or self.cluster.group(request.group).heartbeat(request.member_id, request.generation_id))

    def _leavegroup(self, request: Any, reply: Callable[..., None]) -> None:
        error = self._not_mine(request.group)
        reply(0, error or self.cluster.group(request.group).leave(request.member_id))

    def _offsetfetch(self, request: Any, reply: Callable[..., None]) -> None:
        if error := self._not_mine(request.consumer_group):
            reply(0, [], error)
            return
        offsets = self.cluster.group(request.consumer_group).offsets
        rows = [
            (topic, [(partition, offsets.get((topic, partition), -1), "", 0) for partition in partitions])
            for topic, partitions in request.topics
        ]
        reply(0, rows, 0)

    def _offsetcommit(self, request: Any, reply: Callable[..., None]) -> None:
        error = self._not_mine(request.consumer_group)
        answers = []
        for topic, partitions in request.topics:
            if not error:
                for partition, offset, *_ in partitions:
                    self.cluster.group(request.consumer_group).offsets[topic, partition] = offset
            answers.append((topic, [(partition, error) for partition, *_ in partitions]))
        reply(0, answers)


class Cluster:
    """All brokers and what they share.

    Args:
        loop: the simulation's.
        network: between brokers and clients.
        brokers: how many.
    """

    def __init__(self, loop: VirtualLoop, network: Network, brokers: int = 3) -> None:
        self.loop = loop
        self.network = network
        self.topics: dict[str, list[PartitionLog]] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self._loaded_at: dict[str, float] = {}
        self._coordinators: dict[str, int] = {}
        self._groups: dict[str, Group] = {}
        self.brokers = [Broker(self, number) for number in range(brokers)]
        self.controller = loop.spawn("kafka-controller")
        self.transactions = Transactions(self._write_markers, self._schedule)

    @property
    def addresses(self) -> str:
        """For ``bootstrap.servers``."""
        return ",".join(f"{broker.name}:{_PORT}" for broker in self.brokers)

    def create(self, topic: str, partitions: int, limits: TopicLimits = COMPACTED) -> None:
        """Create a topic."""
        self.topics[topic] = [PartitionLog(topic, number, limits) for number in range(partitions)]
        for number in range(partitions):
            self.leaders[topic, number] = self._elect(f"{topic}-{number}")

    def _elect(self, key: str) -> int:
        alive = [broker.number for broker in self.brokers if broker.process.alive]
        return alive[zlib.crc32(key.encode()) % len(alive)] if alive else -1

    def coordinator(self, key: str) -> Broker | None:
        """The broker that coordinates a group or a transactional id; None while no broker does."""
        if key not in self._coordinators:
            self._coordinators[key] = self._elect(key)
        number = self._coordinators[key]
        return self.brokers[number] if number >= 0 and self.brokers[number].process.alive else None

    def is_loading(self, key: str) -> bool:
        """Whether the coordinator of a group or a transactional id still reads what is known of it."""
        return self.loop.time() < self._loaded_at.get(key, 0.0)

    def group(self, name: str) -> Group:
        """A consumer group."""
        group = self._groups.get(name)
        if group is None:
            broker = self.coordinator(name)
            process = self.controller if broker is None else broker.process
            group = self._groups[name] = Group(self.loop, process, name)
        return group

    # Transactions' markers.

    def _schedule(self, transaction: Transaction) -> asyncio.TimerHandle:
        return self.loop.call_later(
            transaction.timeout_s,
            self.transactions.expire,
            transaction,
            transaction.epoch,
            context=self.loop.context_of(self.controller),
        )

    def _write_markers(self, transaction: Transaction) -> None:
        delay = self.network.delay() + self.loop.random.random() * _MARKER_S
        self.loop.call_in(self.controller, delay, self._write_next_marker, transaction, sorted(transaction.partitions))

    def _write_next_marker(self, transaction: Transaction, partitions_left: list[tuple[str, int]]) -> None:
        """Write the next marker: partitions get theirs one after the other."""
        if not partitions_left:
            self.transactions.finish(transaction)
            return
        topic, partition = partitions_left[0]
        leader = self.leaders[topic, partition]
        if leader >= 0 and self.brokers[leader].process.alive:
            partitions_left = partitions_left[1:]
            self.topics[topic][partition].write_marker(
                transaction.producer,
                transaction.epoch,
                int(self.loop.time() * 1000),
                commit=transaction.state == "Commit",
            )
        self.loop.call_in(
            self.controller, self.network.delay() / 4, self._write_next_marker, transaction, partitions_left
        )

    # Failures.

    def stop_broker(self, number: int, *, silent: bool) -> None:
        """A broker fails; with ``silent`` its clients hear nothing, as when its machine is gone."""
        broker = self.brokers[number]
        if not broker.process.alive:
            return
        self.loop.kill(broker.process)
        if not silent:
            for connection in broker.connections:
                connection.break_off()
        broker.connections.clear()
        least, most = _FAILOVER_S
        self.loop.call_in(self.controller, least + (most - least) * self.loop.random.random(), self._fail_over)

    def start_broker(self, number: int) -> None:
        """A broker that failed comes back."""
        broker = self.brokers[number]
        if broker.process.alive:
            return
        broker.process = self.loop.spawn(broker.name)
        broker.aware_s = self.loop.time() + _UNAWARE_S * self.loop.random.random()
        broker.connections.clear()
        for key, coordinator in list(self._coordinators.items()):
            if coordinator == number:  # it came back before another took over, and has to read what it knew
                self._move_coordinator(key, number)
        self.loop.call_in(self.controller, 0.1, self._fail_over)

    def _fail_over(self) -> None:
        """Give partitions and coordination of brokers that are gone to others."""
        alive = {broker.number for broker in self.brokers if broker.process.alive}
        for (topic, partition), leader in list(self.leaders.items()):
            if leader not in alive:
                self.leaders[topic, partition] = self._elect(f"{topic}-{partition}")
        for key, number in list(self._coordinators.items()):
            if number not in alive or number < 0:
                self._move_coordinator(key, self._elect(key))

    def move_leader(self, topic: str, partition: int) -> None:
        """Another broker leads a partition from now on."""
        alive = [broker.number for broker in self.brokers if broker.process.alive]
        if alive:
            self.leaders[topic, partition] = self.loop.random.choice(alive)

    def move_coordinators(self) -> None:
        """Other brokers coordinate groups and transactions from now on."""
        alive = [broker.number for broker in self.brokers if broker.process.alive]
        for key, number in list(self._coordinators.items()):
            target = self.loop.random.choice(alive) if alive else -1
            if target not in (number, -1):
                self._move_coordinator(key, target)

    def _move_coordinator(self, key: str, number: int) -> None:
        self._coordinators[key] = number
        self._loaded_at[key] = self.loop.time() + self.loop.random.random() * _LOADING_S
        group = self._groups.get(key)
        if group is not None:
            group.move(self.controller if number < 0 else self.brokers[number].process)
