"""The services that `up` can start, each built on the handle of its own module."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compose.local import cassandra, connect, mariadb, postgres, registry, spark
from compose.local.cassandra import CassandraNode
from compose.local.commands.state import StackEntry
from compose.local.connect import JavaConnect
from compose.local.kafka import DEFAULT_PORT as KAFKA_PORT
from compose.local.kafka import KafkaCluster, Ports
from compose.local.mariadb import MariaDb
from compose.local.monitoring import alertmanager, prometheus
from compose.local.monitoring.alertmanager import Alertmanager
from compose.local.monitoring.prometheus import Prometheus, tell_alertmanager
from compose.local.ports import LOOPBACK, free_ports, is_free
from compose.local.postgres import Postgres
from compose.local.process.service import Service
from compose.local.registry import SchemaRegistry
from compose.local.scylla import emulation
from compose.local.scylla.emulation import ScyllaEmulation
from compose.local.targets import opensearch
from compose.local.targets.opensearch import OpenSearch
from worker.fetch.errors import StackError
from worker.terminal import Say

WORKER_PORT = connect.DEFAULT_PORT
_RULES = Path(__file__).parents[2] / "prometheus" / "alerts.yml"
_RECEIVERS = Path(__file__).parents[2] / "alertmanager" / "alertmanager.yml"


_SHOWN_ONLY = "route: {receiver: shown-only}\nreceivers: [{name: shown-only}]\n"


@dataclass(frozen=True, slots=True)
class ServicePart:
    """One process of a service, prepared but not necessarily running.

    Attributes:
        name: Its name within the service.
        service: The process.
        address: Where clients find it.
        port: Port that must accept connections while it is well.
        ports: All its ports, by what they are for.
        folders: Folders that its users read, by what they hold.
    """

    name: str
    service: Service
    address: str
    port: int
    ports: Mapping[str, int]
    folders: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """The request to build a service.

    Attributes:
        home: The stack's folder.
        brokers: Number of Kafka brokers asked for; None for as many as run, else one.
        previous: What is recorded of this service, by part: its ports are used again.
        addresses: Addresses of the services it needs, by their names.
        say: Where progress lines go.
        stopped: What is recorded of it from before it was stopped, by part.
    """

    home: Path
    brokers: int | None
    previous: Mapping[str, StackEntry]
    addresses: Mapping[str, str]
    say: Say
    stopped: Mapping[str, StackEntry] = field(default_factory=dict)

    @property
    def earlier_entries(self) -> Mapping[str, StackEntry]:
        """The entries whose ports are used again."""
        return self.previous or self.stopped


@dataclass(frozen=True, slots=True)
class Offer:
    """A service that `up` can start.

    Attributes:
        name: How the command line calls it.
        summary: One line for people.
        build: Prepares its parts; detached, so that they outlive the command.
        needs: Services that must run first.
        stop_signal: What tells its processes to end in good order.
    """

    name: str
    summary: str
    build: Callable[[ServiceRequest], Sequence[ServicePart]]
    needs: tuple[str, ...] = ()
    stop_signal: int = signal.SIGTERM


def _build_kafka(request: ServiceRequest) -> Sequence[ServicePart]:
    previous = [request.previous[name] for name in sorted(request.previous)]
    count = request.brokers or len(previous) or 1
    living = [entry for entry in previous if entry.alive]
    if living and count != len(previous):
        raise StackError(
            f"Kafka runs with {len(previous)} broker(s), not {count}; stop it first: millrace down kafka. "
            "Each number of brokers has its own data"
        )
    known_entries = [request.earlier_entries[name] for name in sorted(request.earlier_entries)]
    ports = [Ports(**entry.ports) for entry in known_entries] if count == len(known_entries) else []
    if not living and not all(is_free(port) for entry in known_entries for port in entry.ports.values()):
        ports = []
    folder = request.home / ("kafka" if count == 1 else f"kafka-{count}")
    cluster = KafkaCluster(folder, count=count, ports=ports, detached=True, say=request.say)
    brokers = cluster.prepare()
    if not ports and brokers[0].ports.client != KAFKA_PORT:
        request.say(f"port {KAFKA_PORT} is taken by another program, Kafka uses {brokers[0].ports.client}")
    return [
        ServicePart(
            f"broker-{broker.node + 1}",
            broker.service,
            broker.address,
            broker.ports.client,
            {"client": broker.ports.client, "broker": broker.ports.broker, "controller": broker.ports.controller},
        )
        for broker in brokers
    ]


def _known_port(request: ServiceRequest, default: int) -> int:
    """The port the service had, else its default."""
    return next((entry.port for entry in request.earlier_entries.values()), default)


def _single_part(service: Service, address: str, port: int | None) -> Sequence[ServicePart]:
    if port is None:
        raise StackError(f"{service.name} has no port")  # cannot be: preparing the service chose one
    return [ServicePart("server", service, address, port, {"http": port})]


def _build_registry(request: ServiceRequest) -> Sequence[ServicePart]:
    server = SchemaRegistry(
        request.home / "registry", port=_known_port(request, registry.DEFAULT_PORT), detached=True, say=request.say
    )
    return _single_part(server.service, server.url, server.port)


def _build_prometheus(request: ServiceRequest) -> Sequence[ServicePart]:
    server = Prometheus(
        request.home / "prometheus",
        targets=[f"{LOOPBACK}:{WORKER_PORT}"],
        rules=[_RULES] if _RULES.exists() else [],  # a wheel has no compose files
        interval=5.0,
        port=_known_port(request, prometheus.DEFAULT_PORT),
        detached=True,
        say=request.say,
    )
    return _single_part(server.service, server.url, server.port)


def _alertmanager(request: ServiceRequest) -> Sequence[ServicePart]:
    folder = request.home / "alertmanager"
    config = folder / "alertmanager.yml"
    if not config.exists():  # else it has the user's receivers
        folder.mkdir(parents=True, exist_ok=True)
        # A wheel has no compose files.
        example = _RECEIVERS.read_text(encoding="utf-8") if _RECEIVERS.exists() else _SHOWN_ONLY
        config.write_text(example, encoding="utf-8")
    server = Alertmanager(
        folder, config, port=_known_port(request, alertmanager.DEFAULT_PORT), detached=True, say=request.say
    )
    tell_alertmanager(request.home / "prometheus", server.address)
    return _single_part(server.service, server.url, server.port)


def _java_connect(request: ServiceRequest) -> Sequence[ServicePart]:
    bootstrap = request.addresses["kafka"]
    worker = JavaConnect(
        request.home / "java-connect",
        bootstrap=bootstrap,
        # One in addition to Millrace's own worker, which has the default port.
        port=_known_port(request, WORKER_PORT + 1),
        replication=min(3, len(bootstrap.split(","))),
        plugins=[connect.DEBEZIUM],
        detached=True,
        say=request.say,
    )
    return _single_part(worker.service, worker.url, worker.port)


def _previous_port(request: ServiceRequest, name: str, default: int | None) -> int | None:
    return next((entry.ports.get(name, default) for entry in request.earlier_entries.values()), default)


def _build_cassandra(request: ServiceRequest) -> Sequence[ServicePart]:
    node = CassandraNode(
        request.home / "cassandra",
        port=_previous_port(request, "client", cassandra.DEFAULT_PORT),
        storage_port=_previous_port(request, "storage", None),
        detached=True,
        say=request.say,
    )
    service = node.service
    ports = {"client": node.port or 0, "storage": node.storage_port or 0}
    return [ServicePart("node-1", service, node.address, node.port or 0, ports, {"cdc_raw": str(node.cdc_raw)})]


def _build_scylla(request: ServiceRequest) -> Sequence[ServicePart]:
    server = ScyllaEmulation(
        request.home / "scylla",
        port=_previous_port(request, "client", emulation.DEFAULT_PORT),
        inner_port=_previous_port(request, "cassandra", None),
        detached=True,
        say=request.say,
    )
    service = server.service
    ports = {"client": server.port or 0, "cassandra": server.inner_port or 0}
    return [ServicePart("emulation", service, server.address, server.port or 0, ports)]


def _build_postgres(request: ServiceRequest) -> Sequence[ServicePart]:
    server = Postgres(
        request.home / "postgres",
        port=_previous_port(request, "client", postgres.DEFAULT_PORT),
        detached=True,
        say=request.say,
    )
    service = server.service
    return [ServicePart("server", service, server.address, server.port or 0, {"client": server.port or 0})]


def _build_mariadb(request: ServiceRequest) -> Sequence[ServicePart]:
    server = MariaDb(
        request.home / "mariadb",
        port=_previous_port(request, "client", mariadb.DEFAULT_PORT),
        detached=True,
        say=request.say,
    )
    service = server.service
    return [ServicePart("server", service, server.address, server.port or 0, {"client": server.port or 0})]


def _build_opensearch(request: ServiceRequest) -> Sequence[ServicePart]:
    server = OpenSearch(
        request.home / "opensearch", port=_known_port(request, opensearch.DEFAULT_PORT), detached=True, say=request.say
    )
    return _single_part(server.service, server.url, server.port)


_SPARK_PARTS = ("master", "worker")


def _build_spark(request: ServiceRequest) -> Sequence[ServicePart]:
    # Its Java is Spark's: only this service needs what runs jobs.
    from spark_jobs.spark.session import java_home

    ports = [
        entry.ports.get(purpose) if entry is not None else None
        for entry in map(request.earlier_entries.get, _SPARK_PARTS)
        for purpose in ("client", "page")
    ]
    master, master_page, worker, worker_page = free_ports([ports[0] or spark.DEFAULT_PORT, *ports[1:]])
    folder, java = request.home / "spark", java_home()
    services = (
        spark.master_service(folder, java, master, master_page, detached=True),
        spark.worker_service(folder, java, master, worker, worker_page, detached=True),
    )
    address = f"spark://{LOOPBACK}:{master}"
    return [
        ServicePart(name, service, address, port, {"client": port, "page": page})
        for name, service, port, page in zip(
            _SPARK_PARTS, services, (master, worker), (master_page, worker_page), strict=True
        )
    ]


OFFERS: Mapping[str, Offer] = {
    offer.name: offer
    for offer in (
        Offer("kafka", "Kafka in KRaft mode, one broker or several (--brokers)", _build_kafka),
        Offer("registry", "schema registry with Confluent's API (Apicurio)", _build_registry),
        Offer(
            "prometheus",
            "Prometheus that scrapes a worker on its default port, with the alert rules",
            _build_prometheus,
        ),
        Offer(
            "alertmanager",
            "Alertmanager for Prometheus' alerts; its receivers are in alertmanager/alertmanager.yml of the stack's folder",
            _alertmanager,
        ),
        Offer("cassandra", "Apache Cassandra 5.0, one node, with its change log (cdc_enabled)", _build_cassandra),
        Offer(
            "scylla",
            "an emulation of Scylla with CDC: a Cassandra dressed as one, for clients on one port",
            _build_scylla,
        ),
        Offer(
            "postgres",
            "PostgreSQL 18; user, password and database are 'millrace'",
            _build_postgres,
            stop_signal=postgres.STOP_SIGNAL,
        ),
        Offer("opensearch", "OpenSearch, one node without logins", _build_opensearch),
        Offer("spark", "a standalone Spark cluster: a master, and a worker with one core", _build_spark),
        Offer(
            "mariadb", "MariaDB 11.4 with its binary log; user, password and database are 'millrace'", _build_mariadb
        ),
        Offer(
            "java-connect", "the Java Kafka Connect worker with Debezium, to compare with", _java_connect, ("kafka",)
        ),
    )
}
