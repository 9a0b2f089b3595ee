"""Kafka in KRaft mode as plain processes: one broker by default, or several with replication."""

import base64
import contextlib
import socket
import struct
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Self

from compose.local.ports import LOOPBACK, free_ports
from compose.local.process.jvm import Heap, java_command, write_log4j, write_log4j_1, write_properties
from compose.local.process.service import Managed, Service, wait_until
from compose.local.security.kafka_security import KafkaListener, KafkaSecurity
from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import StackError
from worker.fetch.java import FAST_START, Java, find_java
from worker.fetch.resolver import ArtifactResolver
from worker.terminal import Say, drop_line

DEFAULT_PORT = 9092
#: The set of files of the manifest by version.
VERSIONS: Final[Mapping[str, str]] = {"4.1": "kafka", "3.3": "kafka-33", "3.9": "kafka-39", "4.3": "kafka-43"}
_METADATA = 3  # the API key of Kafka's Metadata request
_METADATA_LIMIT = 1 << 20  # bytes; more than that did not come from a broker


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of one broker: for clients, for other brokers, for the controllers' quorum."""

    client: int
    broker: int
    controller: int


def known_brokers(port: int, host: str = LOOPBACK, timeout: float = 1.0) -> frozenset[int]:
    """Node ids of the brokers that the broker on that port knows to be alive; empty when it does not answer like Kafka.

    Speaks Kafka's Metadata request (version 1) over a plaintext listener. Blocks for a few times `timeout` seconds at most.
    """
    client = b"millrace-stack"
    # api key, version, correlation id, client id, and an empty list of topics
    request = struct.pack(">hhih", _METADATA, 1, 7, len(client)) + client + struct.pack(">i", 0)
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _read_exactly(connection, 4))
            if not 8 <= size <= _METADATA_LIMIT:
                return frozenset()
            return _parse_brokers(_read_exactly(connection, size))
    except (OSError, EOFError, struct.error):
        return frozenset()


def _parse_brokers(answer: bytes) -> frozenset[int]:
    correlation, count = struct.unpack_from(">ii", answer)
    if correlation != 7:
        return frozenset()
    ids: set[int] = set()
    at = 8
    for _ in range(count):
        node, host_size = struct.unpack_from(">ih", answer, at)
        at += 6 + host_size + 4
        (rack_size,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(0, rack_size)
        ids.add(node)
    return frozenset(ids)


def live_brokers(port: int, host: str = LOOPBACK, timeout: float = 1.0) -> int:
    """How many brokers the broker on that port knows to be alive; 0 when it does not answer like Kafka."""
    return len(known_brokers(port, host, timeout))


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def broker_properties(node: int, ports: list[Ports], data: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The server properties of one broker. Pure.

    Clients have a listener of their own (`CLIENT`), so that it can be given SASL or TLS, or be cut by a proxy, without
    touching replication.

    Args:
        node: Index of the broker, from 0; its node id is one more.
        ports: Ports of all brokers of the cluster.
        data: Folder of its log segments.
        extra: Properties that override those made here.
    """
    own_ports, count = ports[node], len(ports)
    replicas = str(min(3, count))
    in_sync = str(max(1, min(3, count) - 1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node + 1),
        "controller.quorum.voters": ",".join(
            f"{i + 1}@{LOOPBACK}:{broker_ports.controller}" for i, broker_ports in enumerate(ports)
        ),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "BROKER",
        "listeners": ",".join(
            f"{name}://{LOOPBACK}:{port}"
            for name, port in (
                ("CLIENT", own_ports.client),
                ("BROKER", own_ports.broker),
                ("CONTROLLER", own_ports.controller),
            )
        ),
        "advertised.listeners": f"CLIENT://{LOOPBACK}:{own_ports.client},BROKER://{LOOPBACK}:{own_ports.broker}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "true",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # Fewer partitions than Kafka's 50: their creation is most of the first consumer's and producer's wait.
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.num.partitions": "8",
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker can come back only when the controller has given up its earlier life: 9 s by default.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        # The default of 128 MB would be half of the heap.
        "log.cleaner.dedupe.buffer.size": str(32 << 20),
        "num.network.threads": "2",
        "num.io.threads": "4",
        **extra,
    }


def _knows_itself(port: int, node_id: int) -> bool:
    return node_id in known_brokers(port)


@dataclass(slots=True)
class KafkaBroker(Managed):
    """One broker of a cluster; made by `KafkaCluster`.

    Attributes:
        node: Its index, from 0.
        ports: Where it listens.
        process: The process.
    """

    node: int
    ports: Ports
    process: Service

    def __post_init__(self) -> None:
        self._service = self.process

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{LOOPBACK}:{self.ports.client}"


@dataclass(slots=True)
class KafkaCluster:
    """A Kafka cluster on this machine, listening on the loopback address only.

    Example:
        >>> kafka = KafkaCluster(Path("state"), brokers=3)  # doctest: +SKIP
        >>> kafka.start()  # doctest: +SKIP
        >>> kafka.bootstrap  # doctest: +SKIP
        '127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094'

    Attributes:
        state_dir: Folder of configuration, data and logs; data found there is used again.
        count: Number of brokers; each is a controller too. Three give replication factor 3 and two in-sync replicas.
        port: Port of the first broker's client listener when it is free, the others' follow it; None for any ports.
        ports: Ports of all brokers, to start a cluster again where it was; empty to choose them.
        properties: Server properties that override the defaults, for all brokers.
        security: Listeners with logins and TLS, and permissions; see there. None for neither.
        version: `4.1`, or one of the others in `VERSIONS`.
        heap: Heap of each broker.
        jvm_options: Further options of the JVM, see `jvm.FAST_START`.
        detached: Whether the brokers outlive this program.
        start_timeout: Seconds each broker may take to be ready.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    count: int = 1
    port: int | None = DEFAULT_PORT
    ports: Sequence[Ports] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    security: KafkaSecurity | None = None
    version: str = "4.1"
    heap: Heap = field(default_factory=Heap)
    jvm_options: Sequence[str] = ()
    detached: bool = False
    start_timeout: float = 60.0
    say: Say = drop_line
    _brokers: list[KafkaBroker] = field(default_factory=list, init=False)
    _secured: dict[KafkaListener, list[int]] = field(default_factory=dict, init=False)

    @property
    def brokers(self) -> tuple[KafkaBroker, ...]:
        """The brokers, in order of their index; empty before the first `prepare` or `start`."""
        return tuple(self._brokers)

    @property
    def bootstrap(self) -> str:
        """Comma list of `host:port`, as clients want it.

        Raises:
            StackError: The cluster was never started.
        """
        if not self._brokers:
            raise StackError("this Kafka cluster has no addresses yet; call start() first")
        return ",".join(broker.address for broker in self._brokers)

    def secured(self, listener: KafkaListener) -> str:
        """Comma list of `host:port` of the brokers' listeners of that kind.

        Raises:
            StackError: The cluster was never started, or has no such listener.
        """
        if listener not in self._secured:
            raise StackError(
                f"this Kafka cluster has no listener {listener.name}; give it one with security=, then start it"
            )
        return ",".join(f"{LOOPBACK}:{port}" for port in self._secured[listener])

    def broker(self, index: int) -> KafkaBroker:
        """One broker, counted from 0."""
        return self._brokers[index]

    def start(self) -> Self:
        """Start all brokers that do not run and wait until every one knows all others. Blocks.

        Raises:
            StackError: A broker ended or was not ready in time, or its jars or Java could not be had. No broker that
                this call started is left running.
        """
        started = [broker for broker in self.prepare() if not broker.running]
        try:
            for broker in started:
                broker.service.launch()
            for broker in started:
                broker.service.wait_ready()
            self._wait_complete()
        except BaseException:
            for broker in started:
                broker.kill()
            raise
        return self

    def complete(self) -> bool:
        """Whether every broker knows all brokers."""
        return all(live_brokers(broker.ports.broker) >= self.count for broker in self._brokers)

    def stop(self, timeout: float = 10.0) -> None:
        """Shut all brokers down at the same time and wait; those that have not ended after `timeout` seconds are killed."""
        for broker in self._brokers:
            broker.service.terminate()
        for broker in self._brokers:
            broker.service.wait_stopped(timeout)

    def kill(self) -> None:
        """End all brokers at once."""
        for broker in self._brokers:
            broker.service.kill()

    def __enter__(self) -> Self:
        """Start the cluster."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop the cluster."""
        self.stop()

    def prepare(self) -> tuple[KafkaBroker, ...]:
        """Do all that comes before the start: download, choose ports, format storage. Done once; blocks.

        Raises:
            StackError: Jars, Java or ports could not be had, or the storage could not be formatted.
        """
        if self._brokers:
            return self.brokers
        if self.count < 1:
            raise StackError(f"a Kafka cluster needs at least one broker, not {self.count}")
        if self.version not in VERSIONS:
            raise StackError(f"there is no Kafka {self.version} in the local stack; there are: {', '.join(VERSIONS)}")
        java = find_java(say=self.say)
        jars = ArtifactResolver(say=self.say).fetch(
            load_manifest().members(VERSIONS[self.version]), f"Kafka {self.version}"
        )
        ports = list(self.ports) or self._choose_ports()
        cluster_id = self._cluster_id()
        kinds = self.security.listeners if self.security is not None else ()
        preferred: list[int | None] = [
            number
            for broker_ports in ports
            for number in (broker_ports.client, broker_ports.broker, broker_ports.controller)
        ]
        for kind in kinds:
            chosen = free_ports([*preferred, *[None] * self.count])
            self._secured[kind] = chosen[len(preferred) :]
            preferred = [*chosen]
        brokers: list[KafkaBroker] = []
        formats: list[tuple[Path, subprocess.Popen[bytes]]] = []
        for node in range(self.count):
            folder = self.state_dir.absolute() / f"broker-{node + 1}"
            data = folder / "data"
            data.mkdir(parents=True, exist_ok=True)
            properties = broker_properties(node, ports, data, self.properties)
            if self.security is not None:
                properties = self.security.properties(properties, [self._secured[kind][node] for kind in kinds])
            config = write_properties(folder / "server.properties", properties)
            if not (data / "meta.properties").exists():
                formats.append((folder, self._format_storage(java, jars, config, cluster_id)))
            options = [*self.jvm_options, f"-Dlog4j2.configurationFile={write_log4j(folder)}"]
            if self.version.startswith("3."):
                options.append(f"-Dlog4j.configuration=file:{write_log4j_1(folder)}")
            service = Service(
                name=f"Kafka broker {node + 1} (port {ports[node].client})",
                command=java_command(java, jars, "kafka.Kafka", [str(config)], self.heap, options),
                log_path=folder / "kafka.log",
                ready=partial(_knows_itself, ports[node].broker, node + 1),
                detached=self.detached,
                start_timeout=self.start_timeout,
            )
            brokers.append(KafkaBroker(node, ports[node], service))
        # All are awaited before the first failure is reported, so that none is left running.
        outcomes = [(folder, process, process.communicate()[0]) for folder, process in formats]
        for folder, process, output in outcomes:
            if process.returncode:
                message = output.decode("utf-8", "replace")[-2000:]
                raise StackError(f"Kafka's storage in {folder / 'data'} could not be formatted:\n{message}")
        self._brokers = brokers
        return self.brokers

    def _wait_complete(self) -> None:
        if not wait_until(self.complete, self.start_timeout):
            raise StackError(
                f"the Kafka brokers {self.bootstrap} run, but did not all find each other within "
                f"{self.start_timeout:g} s; see the logs in {self.state_dir}"
            )

    def _choose_ports(self) -> list[Ports]:
        count = self.count
        clients = [None] * count if self.port is None else [self.port + node for node in range(count)]
        numbers = free_ports([*clients, *[None] * (count * 2)])
        return [Ports(numbers[i], numbers[count + 2 * i], numbers[count + 2 * i + 1]) for i in range(count)]

    def _format_storage(self, java: Java, jars: list[Path], config: Path, cluster_id: str) -> "subprocess.Popen[bytes]":
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(config), "--ignore-formatted"]
        if self.security is not None:
            arguments += self.security.scram_arguments()
        command = java_command(java, jars, "kafka.tools.StorageTool", arguments, Heap(32, 128), FAST_START)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def _cluster_id(self) -> str:
        """The id all brokers share, kept next to their data."""
        path = self.state_dir / "cluster-id"
        with contextlib.suppress(OSError):
            if saved_id := path.read_text(encoding="ascii").strip():
                return saved_id
        new_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        while new_id.startswith("-"):  # Kafka's tools would take it for an option
            new_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new_id + "\n", encoding="ascii")
        return new_id
