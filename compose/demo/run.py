"""The demo from its first server to its last comparison."""

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pymysql

from compose.demo import show
from compose.demo.payments import PAYMENTS, Payments
from compose.demo.requests import IDENTITY, REQUESTS, RULES, AccessLog
from compose.demo.rest import Rest
from compose.demo.shop import CUSTOMERS, ORDERS, TABLES, Shop
from compose.local.cassandra import CassandraNode
from compose.local.kafka import KafkaCluster
from compose.local.mariadb import MariaDb
from compose.local.postgres import Postgres
from compose.local.process.service import Managed, wait_until
from compose.local.registry import SchemaRegistry
from compose.local.scylla.client import Emulation
from compose.local.scylla.emulation import ScyllaEmulation
from compose.local.worker import MillraceWorker
from worker.fetch.errors import StackError
from worker.fetch.java import FAST_START
from worker.terminal import Say, drop_line, progress, say

#: The connectors: customers out of MariaDB, orders out of Scylla, payments out of Cassandra's commit log, requests out of an
#: access log.
CUSTOMERS_SOURCE = "customers"
ORDERS_SOURCE = "orders"
PAYMENTS_SOURCE = "payments"
REQUESTS_SOURCE = "requests"
SOURCES = (CUSTOMERS_SOURCE, ORDERS_SOURCE, PAYMENTS_SOURCE, REQUESTS_SOURCE)
#: Materializers by table, and the topics that they read.
MATERIALIZERS = {ORDERS: "orders-rows", PAYMENTS: "payments-rows"}
UPDATES = {ORDERS: f"shop.{ORDERS}", PAYMENTS: f"ledger.{PAYMENTS}"}
HISTORY = "shop-history"
WAREHOUSE = "shop-warehouse"
JOBS = (*MATERIALIZERS.values(), HISTORY, WAREHOUSE)
#: Topics of whole rows: of MariaDB and the log as their connectors deliver them, of Scylla and Cassandra as the materializers
#: make them.
ROWS = {CUSTOMERS: f"crm.{CUSTOMERS}", ORDERS: "orders.rows", PAYMENTS: "payments.rows", REQUESTS: REQUESTS}
#: The topic of lines that no rule accepts.
UNKNOWN = f"{REQUESTS.partition('.')[0]}.unknown_table"
_CLASS = "spark_jobs.SparkJob"
_LIMIT = 120.0


def short_name(table: str) -> str:
    """``shop.orders`` -> ``orders``."""
    return table.rpartition(".")[2]


@dataclass
class Demo:
    """The servers, the cluster and the shop.

    Attributes:
        folder: State of everything.
        options: By connector: options that it gets in addition to the demo's, or in place of them.
        worker_properties: Properties that both workers get in addition to the demo's.
        detail: Where the lines go that only ``-v`` prints.
    """

    folder: Path
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    worker_properties: Mapping[str, str] = field(default_factory=dict)
    detail: Say = drop_line
    rest: Rest = field(init=False)

    def __post_init__(self) -> None:
        self.rest = Rest(detail=self.detail)
        self.requests = AccessLog(self.folder / "access.log")
        # A demo is over before Java's slow compiler pays for what it takes from two cores.
        java: dict[str, Any] = {"port": None, "say": say, "jvm_options": FAST_START}
        self.kafka = KafkaCluster(self.folder / "kafka", **java)
        self.scylla = ScyllaEmulation(self.folder / "scylla", **java)
        self.registry = SchemaRegistry(self.folder / "registry", **java)
        self.cassandra = CassandraNode(self.folder / "cassandra", **java)
        self.mariadb = MariaDb(self.folder / "mariadb", port=None, say=say)
        self.postgres = Postgres(self.folder / "postgres", port=None, say=say)

    def start(self) -> None:
        """Start all servers side by side, then two workers. Blocks.

        Raises:
            StackError: One did not start.
        """
        servers: list[tuple[str, Managed | KafkaCluster]] = [
            ("Kafka", self.kafka),
            ("Scylla (an emulation on Cassandra)", self.scylla),
            ("schema registry", self.registry),
            ("Cassandra", self.cassandra),
            ("MariaDB", self.mariadb),
            ("PostgreSQL", self.postgres),
        ]
        failures: list[BaseException] = []

        def start(name: str, server: Managed | KafkaCluster) -> None:
            begin = time.monotonic()
            try:
                server.start()
            except BaseException as error:  # noqa: BLE001 - raised below
                failures.append(error)
                return
            self.detail(f"{name} is ready after {time.monotonic() - begin:.1f} s")

        began = time.monotonic()
        # Daemons: a program that is interrupted does not wait for them.
        threads = {name: threading.Thread(target=start, args=(name, server), daemon=True) for name, server in servers}
        with progress(f"starting {', '.join(threads)}") as step:
            for thread in threads.values():
                thread.start()
            for name, thread in threads.items():
                step.note = f"waiting for {name}"
                thread.join()
        if failures:
            raise failures[0]
        say(f"all servers are ready after {time.monotonic() - began:.1f} s")
        for number in (1, 2):
            worker = MillraceWorker(
                self.folder / f"worker-{number}",
                self.kafka.bootstrap,
                group="demo",
                processes=1,
                properties={
                    "exactly.once.source.support": "enabled",
                    "session.timeout.ms": "6000",
                    "task.shutdown.graceful.timeout.ms": "20000",
                    **self.worker_properties,
                },
            )
            self.rest.workers.append(worker)
            worker.start()
            self.detail(f"worker {number} is ready at {worker.url}, its console at {worker.url}/console")
        say(f"two workers are ready; watch them: {self.rest.workers[0].url}/console")

    def stop(self) -> None:
        """End everything, also what is still starting. Blocks."""
        with progress("stopping everything"):
            for server in (*self.rest.workers, *self._servers()):
                server.stop()
            self.kafka.stop()

    def detach(self) -> None:
        """Let everything outlive this program."""
        for server in (*self.rest.workers, *self._servers(), *self.kafka.brokers):
            server.service.detach()

    def _servers(self) -> tuple[Managed, ...]:
        return self.scylla, self.registry, self.cassandra, self.mariadb, self.postgres

    def create_sources(self) -> None:
        """The source connectors, through REST."""
        topics = {"topic.creation.default.partitions": "2", "topic.creation.default.replication.factor": "1"}
        avro = {
            f"{side}.converter{suffix}": value
            for side in ("key", "value")
            for suffix, value in (
                ("", "io.confluent.connect.avro.AvroConverter"),
                (".schema.registry.url", self.registry.url),
            )
        }
        self._create_connector(
            CUSTOMERS_SOURCE,
            {
                "connector.class": "mysql",
                "topic.prefix": "crm",
                "database.hostname": "127.0.0.1",
                "database.port": str(self.mariadb.port),
                "database.user": self.mariadb.user,
                "database.password": self.mariadb.password,
                "table.include.list": CUSTOMERS,
                **avro,
                **topics,
            },
        )
        self._create_connector(
            ORDERS_SOURCE,
            {
                "connector.class": "scylla",
                "tasks.max": "2",
                "topic.prefix": "shop",
                "scylla.cluster.ip.addresses": self.scylla.address,
                "scylla.table.names": ORDERS,
                "output.format": "partition-update",
                **avro,
                "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
                **topics,
            },
        )
        self._create_connector(
            PAYMENTS_SOURCE,
            {
                "connector.class": "cassandra",
                "topic.prefix": "ledger",
                "cassandra.hosts": self.cassandra.address,
                # No label: both workers see the directory, so whichever is alive reads it.
                "cdc.raw.directories": str(self.cassandra.cdc_raw),
                "table.include.list": PAYMENTS,
                "output.format": "partition-update-raw",
                **avro,
                "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
                **topics,
            },
        )
        self._create_connector(
            REQUESTS_SOURCE,
            {
                "connector.class": "logs",
                "topic.prefix": REQUESTS.partition(".")[0],
                "file": str(self.requests.path),
                "rotation.tracking": "true",
                "rules": RULES,
                "output": "debezium",
                "row.id.column": IDENTITY,
                "row.timestamp.column": "time",
                **avro,
                **topics,
            },
        )
        self.rest.until_running(SOURCES)

    def create_jobs(self) -> None:
        """The Spark jobs, through REST: materializers for orders and payments, and two sinks for all rows."""
        registry = self.registry.url
        for table, name in MATERIALIZERS.items():
            self._create_connector(
                name,
                {
                    "connector.class": _CLASS,
                    "source.topics": UPDATES[table],
                    "source.format": "partition-update",
                    "source.value.encoding": "avro",
                    "source.schema.registry.url": registry,
                    "transform.type": "materialize",
                    "sink.type": "kafka",
                    "sink.kafka.topic": ROWS[table],
                    **self._local_options(name),
                },
            )
        rows = {
            "connector.class": _CLASS,
            "source.topics": ",".join(ROWS.values()),
            "source.format": "debezium",
            "source.value.encoding": "avro",
            "source.key.encoding": "avro",
            "source.schema.registry.url": registry,
        }
        self._create_connector(
            HISTORY,
            {
                **rows,
                "sink.type": "files",
                "sink.files.path": str(self.folder / "history"),
                **self._local_options(HISTORY),
            },
        )
        self._create_connector(
            WAREHOUSE,
            {
                **rows,
                "sink.type": "jdbc",
                "sink.jdbc.url": self.postgres.url,
                "sink.jdbc.user": self.postgres.user,
                "sink.jdbc.password": self.postgres.password,
                **self._local_options(WAREHOUSE),
            },
        )
        self.rest.until_running(JOBS)

    def _create_connector(self, name: str, config: Mapping[str, str]) -> None:
        self.rest.create(name, {**config, **self.options.get(name, {})})

    def open_shop(self, stack: ExitStack, seed: int = 7) -> Shop:
        """Connect the shop to its databases; ``stack`` closes the connections. Blocks."""
        client = Emulation(self.scylla.address)
        stack.callback(client.close)
        database: pymysql.Connection[Any] = pymysql.connect(
            host="127.0.0.1",
            port=int(self.mariadb.port or 0),
            user=self.mariadb.user,
            password=self.mariadb.password,
            autocommit=True,
        )
        stack.enter_context(closing(database))
        payments = Payments(self.cassandra)
        stack.callback(payments.close)
        return Shop(client, database, payments, self.requests, seed)

    def _local_options(self, name: str) -> dict[str, str]:
        return {
            "checkpoint.location": str(self.folder / "jobs" / name),
            "spark.master": "local[2]",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": " ".join(FAST_START),
        }

    def settled(self, shop: Shop, timeout: float = _LIMIT) -> float:
        """Wait until every copy equals the source; the seconds it took. Blocks.

        Raises:
            StackError: What still differs.
        """
        begin = time.monotonic()
        expected_tables = {table: show.by_key(shop.rows(table), show.KEYS[table]) for table in TABLES}
        copies: dict[str, Callable[[str], show.Rows]] = {
            "topic": lambda table: show.fold_events(
                self.kafka.bootstrap, ROWS[table], self.registry.url, show.KEYS[table]
            ),
            "PostgreSQL": lambda table: show.select_rows(self.postgres, short_name(table), show.KEYS[table]),
        }
        with progress("comparing every copy with its source") as step:
            for table, (name, copy) in product(TABLES, copies.items()):
                step.note = f"{table} and {name}"
                left = timeout - (time.monotonic() - begin)

                def equal(copy: Callable[[str], show.Rows] = copy, table: str = table) -> bool:
                    return bool(copy(table) == expected_tables[table])

                if not wait_until(equal, left, 0.5):
                    raise StackError(
                        f"after {timeout:g} s {name} differs from {table}: "
                        f"{show.describe_difference(expected_tables[table], copy(table))}"
                    )
        return time.monotonic() - begin


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM interrupt the block as Ctrl-C does, so that it takes down what it started."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_demo(*, writes: int = 600, once: bool = False, verbose: bool = False) -> int:
    """Run the demo. Blocks: about two minutes when everything is downloaded.

    Args:
        writes: Writes to the shop, half of them after a worker was killed.
        once: Take everything down at the end.
        verbose: Print each call, event and row that is compared, too.

    Returns:
        0 when every copy equals the source, row by row.

    Raises:
        StackError: A part did not start, or a copy differs.
        KeyboardInterrupt: It was interrupted; everything is taken down.
    """
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="millrace-demo-"))
    demo = Demo(folder, detail=say if verbose else drop_line)
    with ExitStack() as stack:
        stack.enter_context(interrupted_by_sigterm())
        # A demo that failed or was interrupted leaves nothing behind, whatever was asked for.
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(demo.stop)
        demo.start()
        shop = demo.open_shop(stack)
        _play_demo(demo, shop, writes)
        say(f"done in {time.monotonic() - started:.0f} s")
        if not once:
            stack.pop_all()
            demo.detach()
            for resource in (shop.client, shop.database, shop.payments):
                resource.close()
            show.left_running(
                demo.kafka, demo.registry, demo.scylla, demo.cassandra, demo.mariadb, demo.postgres, demo.rest, folder
            )
            say(f"the whole pipeline, as it runs now: {demo.rest.alive.url}/console#/overview")
    return 0


def _play_demo(demo: Demo, shop: Shop, writes: int) -> None:
    shop.create()
    say(f"{CUSTOMERS} in MariaDB, {ORDERS} in Scylla, {PAYMENTS} in Cassandra, requests in {demo.requests.path}")
    demo.create_sources()
    shop.trade(writes // 4)
    say(f"{writes // 4} writes to the shop; each table has a topic now")
    demo.create_jobs()
    say(f"{writes // 4} writes more")
    shop.trade(writes // 4)
    say(
        f"every copy equals the source, {demo.settled(shop):.1f} s after the last write; "
        + ", ".join(f"{kind}s: {count}" for kind, count in sorted(shop.counts.items()))
    )
    moment = time.time()
    earlier = {table: shop.rows(table) for table in TABLES}

    say(f"while everything runs: {shop.add_column()}")
    demo.requests.rotate()
    say(f"mv {demo.requests.path.name} {demo.requests.path.name}.1")
    trading = shop.trading(writes - writes // 4 * 2)
    victim = max(
        demo.rest.workers,
        key=lambda worker: sum(worker.worker_id in demo.rest.where(name) for name in (*SOURCES, *JOBS)),
    )
    moved = [name for name in (*SOURCES, *JOBS) if victim.worker_id in demo.rest.where(name)]
    say(f"kill -9 worker {victim.worker_id}, which runs {', '.join(moved)}, while writes continue")
    victim.kill()
    begin = time.monotonic()
    with progress("waiting for the other worker") as step:
        for name in moved:
            step.note = name
            demo.rest.wait_running(name, without=victim.worker_id)
    say(f"all of it runs on the other worker, {time.monotonic() - begin:.1f} s after the kill")
    shop.finish(trading)
    say(f"every copy equals the source again, {demo.settled(shop):.1f} s after the last write")

    show.show_topics(demo.kafka.bootstrap, [*UPDATES.values(), *ROWS.values()], demo.detail)
    for table in TABLES:
        show.show_events(demo.kafka.bootstrap, ROWS[table], demo.registry.url, demo.detail)
    show.side_by_side(shop, demo.kafka.bootstrap, demo.registry.url, demo.postgres, ROWS, demo.detail)
    show.compare_join(shop, demo.postgres)
    counts = demo.requests.counts
    show.show_unknown(demo.kafka.bootstrap, demo.registry.url, UNKNOWN, counts["others"])
    say(f"{counts['requests']} lines of {demo.requests.path.name} are rows, {counts['health checks']} were dropped")
    show.show_history(demo.folder / "history", ORDERS, moment, earlier[ORDERS])
    show.show_lag(demo.rest, demo.detail)
