"""Servers for tests: real ones, started when the first test asks for them and shared by the whole session.

Every server ends with the session, also when pytest itself is killed (see compose/local/process/guard.py).
"""

import itertools
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from compose.local.cassandra import CassandraNode, speaks_cql
from compose.local.cassandra_cluster import CassandraCluster, execute_cql
from compose.local.connect import DEBEZIUM, JavaConnect
from compose.local.databases.mariadb_pair import MariaDbPair
from compose.local.databases.mysql_debian import MySqlServer, find_mysql
from compose.local.databases.mysql_pair import MySqlPair
from compose.local.kafka import KafkaCluster, live_brokers
from compose.local.mariadb import MariaDb, find_mariadb, speaks_mysql
from compose.local.monitoring.prometheus import Prometheus, find_prometheus
from compose.local.ports import LOOPBACK
from compose.local.postgres import Postgres
from compose.local.registry import SchemaRegistry
from compose.local.scylla.client import REAL, Emulation
from compose.local.scylla.emulation import ScyllaEmulation
from compose.local.targets.redis import Redis
from compose.local.worker import MillraceWorker
from tests.failures import pytest_runtest_makereport  # noqa: F401 - a hook of pytest
from tests.selection import (  # noqa: F401 - hooks of pytest
    pytest_addoption,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
)
from worker.fetch.errors import Unavailable
from worker.fetch.java import FAST_START
from worker.terminal import say

# By default Hypothesis asserts times (200 ms for an example): times are measured in tests/bench and asserted nowhere. Its other
# defaults stay: with CI set, as .ci/run does, the same examples every time, else other ones each time.
hypothesis_settings.register_profile(
    "millrace", parent=hypothesis_settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("millrace")


class HasBootstrap(Protocol):
    """The part of the shared Kafka that tests may use: its address. Tests that harm a broker use `kafka_cluster`."""

    @property
    def bootstrap(self) -> str:
        """Comma list of `host:port`."""
        ...


@dataclass(frozen=True, slots=True)
class RunningKafka:
    """A Kafka that was started by somebody else and stays."""

    bootstrap: str


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HasBootstrap]:
    """One broker for all tests; `MILLRACE_TEST_KAFKA=host:port` names a running one to use instead."""
    named = os.environ.get("MILLRACE_TEST_KAFKA")
    if named:
        host, _, port = named.split(",")[0].rpartition(":")
        if not live_brokers(int(port), socket.gethostbyname(host)):
            pytest.fail(
                f"MILLRACE_TEST_KAFKA names {named}, but no Kafka answers there; start it or unset the variable"
            )
        yield RunningKafka(named)
        return
    with KafkaCluster(tmp_path_factory.mktemp("kafka"), port=None, jvm_options=FAST_START, say=say) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bootstrap(kafka: HasBootstrap) -> str:
    """Addresses of the shared Kafka."""
    return kafka.bootstrap


@pytest.fixture(scope="module")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers of the module's own, to be killed, paused and started at will; the test leaves them running."""
    with KafkaCluster(
        tmp_path_factory.mktemp("kafka3"), count=3, port=None, jvm_options=FAST_START, say=say
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def java_connect(kafka: HasBootstrap, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., JavaConnect]]:
    """Factory of Java Connect workers on the shared Kafka: `java_connect(group=..., properties=...)` returns a started one.

    Takes the attributes of `JavaConnect`; workers that still run at the end of the session are killed.
    """
    with ExitStack() as stack:

        def start(**attributes: Any) -> JavaConnect:
            defaults: dict[str, Any] = {
                "state_dir": tmp_path_factory.mktemp("connect"),
                "bootstrap": kafka.bootstrap,
                "group": f"java-connect-{secrets.token_hex(4)}",
                "jvm_options": FAST_START,
                "say": say,
            }
            worker = JavaConnect(**(defaults | attributes))
            stack.callback(worker.kill)
            return worker.start()

        yield start


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """One schema registry for all tests; `registry.url` is the Confluent API."""
    with SchemaRegistry(tmp_path_factory.mktemp("registry"), port=None, jvm_options=FAST_START, say=say) as server:
        yield server


@pytest.fixture(scope="session")
def scylla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    """A client of one Scylla for all tests (`scylla.address` is where it listens), which can write and change the topology.

    It is the emulation, unless `MILLRACE_SCYLLA=host:port` names a real one. `MILLRACE_TEST_SCYLLA=host:port` names an
    emulation that runs already.
    """
    named = os.environ.get(REAL) or os.environ.get("MILLRACE_TEST_SCYLLA")
    with ExitStack() as stack:
        if not named:
            folder = tmp_path_factory.mktemp("scylla")
            named = stack.enter_context(ScyllaEmulation(folder, port=None, jvm_options=FAST_START, say=say)).address
        try:
            client = Emulation(named)
        except OSError as error:
            pytest.fail(
                f"no CQL server answers at {named} ({error}); start it, or unset {REAL} and MILLRACE_TEST_SCYLLA"
            )
        stack.callback(client.close)
        yield client


@pytest.fixture
def scylla_keyspace(scylla: Emulation) -> Iterator[Callable[..., str]]:
    """Makes keyspaces of the test's own: `scylla_keyspace(tablets=True)` returns the name; they are dropped after the test."""
    with ExitStack() as stack:

        def make(*, tablets: bool = False, initial_tablets: int = 4) -> str:
            name = f"k{secrets.token_hex(5)}"
            scylla.create_keyspace(name, tablets=tablets, initial_tablets=initial_tablets)
            stack.callback(scylla.drop_keyspace, name)
            return name

        yield make


@pytest.fixture(scope="module")
def scylla_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScyllaEmulation]:
    """An emulated Scylla of the module's own, to be killed, paused and started at will; the test leaves it running.

    What it confirmed is on the disk: a kill loses nothing.
    """
    folder = tmp_path_factory.mktemp("scylla")
    with ScyllaEmulation(folder, port=None, durable=True, jvm_options=FAST_START, say=say) as node:
        yield node


@pytest.fixture(scope="module")
def cassandra_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraNode]:
    """A Cassandra of the module's own, to be killed, paused and started at will; the test leaves it running."""
    with CassandraNode(tmp_path_factory.mktemp("cassandra"), port=None, jvm_options=FAST_START, say=say) as node:
        yield node


class HasCassandra(Protocol):
    """The part of the shared Cassandra that tests may use. Tests that harm a server use `cassandra_node`."""

    host: str
    port: int | None

    @property
    def address(self) -> str:
        """`host:port`."""
        ...

    @property
    def cdc_raw(self) -> Path:
        """Folder of its change log. Others read it too: nothing in it may be deleted (`commit.log.delete=false`)."""
        ...

    @property
    def commitlog(self) -> Path:
        """Folder of its commit log."""
        ...


@dataclass(slots=True)
class RunningCassandra:
    """A Cassandra that was started by somebody else and stays."""

    host: str
    port: int | None
    data: Path

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def cdc_raw(self) -> Path:
        """Folder of its change log."""
        return self.data / "cdc_raw"

    @property
    def commitlog(self) -> Path:
        """Folder of its commit log."""
        return self.data / "commitlog"


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HasCassandra]:
    """One Cassandra 5.0 with its change log for all tests: `.address`, `.host`, `.port`, `.cdc_raw`, `.commitlog`.

    `MILLRACE_TEST_CASSANDRA=host:port:folder` names a running one to use instead; its `cdc_raw` is in the folder.
    """
    named = os.environ.get("MILLRACE_TEST_CASSANDRA")
    if named:
        host, port, folder = named.split(":", 2)
        if not speaks_cql(int(port), host) or not (Path(folder) / "cdc_raw").is_dir():
            pytest.fail(
                f"MILLRACE_TEST_CASSANDRA names {named}, but no Cassandra answers there or {folder}/cdc_raw is missing"
            )
        yield RunningCassandra(host, int(port), Path(folder))
        return
    with CassandraNode(tmp_path_factory.mktemp("cassandra"), port=None, jvm_options=FAST_START, say=say) as node:
        yield node


@pytest.fixture
def cassandra_keyspace(cassandra: HasCassandra) -> Iterator[Callable[[], str]]:
    """Makes keyspaces of the test's own on `cassandra`: `cassandra_keyspace()` returns the name; dropped after the test."""
    with ExitStack() as stack:

        def make() -> str:
            name = f"k{secrets.token_hex(5)}"
            execute_cql(cassandra.address, f"CREATE KEYSPACE {name} WITH replication = "
                                       "{'class': 'SimpleStrategy', 'replication_factor': 1}")  # fmt: skip
            stack.callback(execute_cql, cassandra.address, f"DROP KEYSPACE {name}")
            return name

        yield make


@pytest.fixture(scope="session")
def cassandra_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraCluster]:
    """Three Cassandra nodes on 127.0.0.1, 127.0.0.2 and 127.0.0.3 that form a cluster; all three have their change log.

    `.members` may be killed and started again: a test leaves all three running. See also `.directories`, `.hosts`, `.execute`.
    """
    with CassandraCluster(tmp_path_factory.mktemp("cassandra3"), jvm_options=FAST_START, say=say) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One PostgreSQL for all tests: `postgres.url` (JDBC), `.dsn` (libpq), `.user`, `.password`; skips where it cannot run."""
    try:
        server = Postgres(tmp_path_factory.mktemp("postgres"), port=None, durable=False, say=say)
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """One Redis with a password for all tests: `redis.address`, `.password`; skips where it cannot be had."""
    try:
        server = Redis(tmp_path_factory.mktemp("redis"), port=None, password="secret", say=say)
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


class HasMariaDb(Protocol):
    """The part of the shared MariaDB that tests may use. Tests that harm a server use `mariadb_pair`."""

    port: int | None
    user: str
    password: str
    database: str

    @property
    def address(self) -> str:
        """`host:port`."""
        ...

    @property
    def url(self) -> str:
        """The JDBC URL of the database."""
        ...


@dataclass(slots=True)
class RunningMariaDb:
    """A MariaDB that was started by somebody else and stays."""

    port: int | None
    user: str = "millrace"
    password: str = "millrace"
    database: str = "millrace"

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        """The JDBC URL of the database."""
        return f"jdbc:mariadb://{self.address}/{self.database}"


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HasMariaDb]:
    """One MariaDB for all tests: `mariadb.url` (JDBC), `.port`, `.user`, `.password`; skips where it cannot run.

    `MILLRACE_TEST_MARIADB=127.0.0.1:port` names a running one of the local stack to use instead.
    """
    named = os.environ.get("MILLRACE_TEST_MARIADB")
    if named:
        host, _, port = named.rpartition(":")
        if socket.gethostbyname(host) != LOOPBACK or not speaks_mysql(int(port)):
            pytest.fail(f"MILLRACE_TEST_MARIADB names {named}, but no MariaDB of {LOOPBACK} answers there; start it")
        yield RunningMariaDb(int(port))
        return
    try:
        server = MariaDb(tmp_path_factory.mktemp("mariadb"), port=None, durable=False, say=say)
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="module")
def mariadb_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbPair]:
    """A primary and its replica of the module's own, to be killed, paused and started at will; skips where they cannot run.

    `.primary` and `.replica` are servers like `mariadb`; see also `.caught_up()`, `.fail_over()` and `.hosts`.
    """
    try:
        find_mariadb(say)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with MariaDbPair(tmp_path_factory.mktemp("mariadb-pair"), say=say) as pair:
        yield pair


@pytest.fixture(scope="module")
def mysql_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySqlPair]:
    """Like `mariadb_pair`, of real MySQL servers; skips like `mysql`."""
    try:
        find_mysql(say)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with MySqlPair(
        tmp_path_factory.mktemp("mysql-pair"), settings={"cte-max-recursion-depth": "1000000"}, say=say
    ) as pair:
        yield pair


@pytest.fixture(scope="session")
def mariadb_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """The machine's own MariaDB (Debian 12 has 10.11), started for all tests; skips where it is not installed."""
    server = MariaDb(tmp_path_factory.mktemp("mariadb-installed"), port=None, durable=False, installed=True, say=say)
    try:
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="session")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySqlServer]:
    """A real MySQL for all tests: `.port`, `.user`, `.password`, `.database`.

    Tests that ask for it are of the slow suite. Skips where Debian's packages can't be had.
    """
    # Queries that count to a million make tables of numbers, which MariaDB has built in.
    settings = {"cte-max-recursion-depth": "1000000", "local-infile": "ON"}
    server = MySqlServer(tmp_path_factory.mktemp("mysql"), settings=settings, say=say)
    try:
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="session")
def debezium(java_connect: Callable[..., JavaConnect]) -> Callable[..., JavaConnect]:
    """Like `java_connect`, with Debezium's MariaDB connector: `io.debezium.connector.mariadb.MariaDbConnector`."""
    return partial(java_connect, plugins=[DEBEZIUM])


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[..., Prometheus]]:
    """Factory of Prometheus servers: `prometheus(targets=["127.0.0.1:8083"])` returns a started one.

    It skips the test where Prometheus is not installed.
    Prometheus waits five seconds before its first scrape, whatever the interval.
    """
    try:
        find_prometheus(say)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with ExitStack() as stack:
        number = itertools.count()

        def start(**attributes: Any) -> Prometheus:
            defaults: dict[str, Any] = {"state_dir": tmp_path / f"prometheus-{next(number)}", "port": None}
            return stack.enter_context(Prometheus(**(defaults | attributes)))

        yield start


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes names that no other test and no other run uses: `unique("topic")`; fit for topics, groups and connectors."""
    test = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:40].strip("-")
    run = secrets.token_hex(4)

    def name(prefix: str = "t") -> str:
        return f"{prefix}-{test}-{run}"

    return name


@pytest.fixture
def millrace(kafka: HasBootstrap, tmp_path: Path) -> Iterator[Callable[..., MillraceWorker]]:
    """Factory of Millrace workers: `millrace(group=..., properties=...)` returns a started one.

    Takes the attributes of `MillraceWorker`; workers that still run at the end of the test are killed.
    """
    with ExitStack() as stack:
        number = itertools.count()

        def start(**attributes: Any) -> MillraceWorker:
            defaults: dict[str, Any] = {
                "state_dir": tmp_path / f"millrace-{next(number)}",
                "bootstrap": kafka.bootstrap,
                "group": f"millrace-{secrets.token_hex(4)}",
                "processes": 1,
            }
            worker = MillraceWorker(**(defaults | attributes))
            stack.callback(worker.kill)
            return worker.start()

        yield start
