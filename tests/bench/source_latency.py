"""Latency from a commit in the source to a consumer, at steady rates: every source, its peer on Kafka Connect next to it.

A thread writes rows into the source and notes when each commit returned; a consumer of committed records, a process of its own,
notes when each row came. Both read one clock, and rows carry a number. All rows that became due within 5 ms are one commit: one
row at 200 rows/s, 25 at 5,000. Workers and connectors have their defaults but for JSON without schemas. Connectors run one
after the other, each with a new table or file and a warm-up that is not counted. A measurement takes less than a minute.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from compose.local.cassandra import CassandraNode
from compose.local.cassandra_cluster import execute_cql
from compose.local.connect import DEBEZIUM, JavaConnect
from compose.local.kafka import KafkaCluster
from compose.local.mariadb import MariaDb
from compose.local.ports import LOOPBACK, free_port
from compose.local.process.jvm import Heap
from compose.local.worker import MillraceWorker
from tests.bench import _cassandra_rows as cassandra_rows
from tests.bench import scylla as scylla_bench
from tests.bench._cassandra_peer import DebeziumCassandra
from tests.bench._common import cpu_seconds, environment, make_topic
from tests.bench._latency_loads import CassandraRows, FileLines, Load, MySqlRows, ScyllaRows, SyslogMessages
from tests.bench.mysql import BROKER, JSON, config
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.bench._latency_loads import Source

_SOURCES: Final = ("mysql", "scylla", "cassandra", "file", "logs")
_DATABASE: Final = "bench"
_EXACTLY_ONCE: Final = {"exactly.once.source.support": "enabled"}
_WORKER: Final = {name: value for name, value in JSON.items() if "converter" in name}
_STREAMS: Final = 512
_RULES: Final = """
tables:
  - name: lines
    groups:
      - name: all
        steps:
          - saveAs:
              columns:
                - {name: line}
                - {name: host, field: '@host'}
"""
#: A connector gets so long to deliver its first row, and the last ones to come, seconds.
_FIRST_S: Final = 60
_LAST_S: Final = 15


class Route(NamedTuple):
    """One way from a source to a topic, created for each measurement.

    Attributes:
        source: what is written into.
        topic: where its rows go.
        properties: the connector's.
    """

    source: Source
    topic: str
    properties: Mapping[str, str]


class Reader(Protocol):
    """A reader of a source into a topic, one measurement after the other.

    Attributes:
        pid: of its process.
    """

    @property
    def pid(self) -> int: ...

    def start(self, properties: Mapping[str, str]) -> None:
        """Begin, with these properties."""

    def running(self) -> bool:
        """Whether it reads by now.

        Raises:
            RuntimeError: it has failed.
        """

    def stop(self) -> None:
        """End the reader, also one that has not started."""


class Connector:
    """A connector on a worker; see ``Reader``."""

    def __init__(self, worker: JavaConnect | MillraceWorker) -> None:
        self._worker = worker
        self._name = ""

    @property
    def pid(self) -> int:
        """Of the worker."""
        return self._worker.pid

    def start(self, properties: Mapping[str, str]) -> None:
        """Create it; each time it has another name."""
        self._name = f"l{secrets.token_hex(4)}"
        status, answer = self._worker.request("PUT", f"/connectors/{self._name}/config", dict(properties))
        if status >= 400:
            raise RuntimeError(f"the connector was refused: {status} {answer}")

    def running(self) -> bool:
        """See ``Reader``."""
        status, answer = self._worker.request("GET", f"/connectors/{self._name}/status")
        if status != 200:
            return False
        for part in [answer["connector"], *answer["tasks"]]:
            if part["state"] == "FAILED":
                raise RuntimeError(f"the connector has failed: {str(part.get('trace')).splitlines()[0]}")
        return bool(answer["tasks"]) and all(task["state"] == "RUNNING" for task in answer["tasks"])

    def stop(self) -> None:
        """Delete it."""
        self._worker.request("DELETE", f"/connectors/{self._name}")


class CassandraPeer:
    """Debezium's connector, a program of its own; see ``Reader``."""

    def __init__(self, bench: Bench, node: CassandraNode) -> None:
        self._bench = bench
        self._node = node
        self._program: DebeziumCassandra | None = None

    @property
    def pid(self) -> int:
        """Of the program."""
        assert self._program is not None
        return self._program.pid

    def start(self, properties: Mapping[str, str]) -> None:
        """Start the program. Without the option it reads complete segments only, which takes minutes at a low rate."""
        self._program = DebeziumCassandra(
            self._bench.folder / f"peer-{properties['topic.prefix']}",
            self._node,
            self._node.cdc_raw,
            self._bench.kafka.bootstrap,
            properties["topic.prefix"],
            more={"commit.log.real.time.processing.enabled": "true"},
        )
        self._program.start()

    def running(self) -> bool:
        """See ``Reader``."""
        return True

    def stop(self) -> None:
        """End the program."""
        if self._program is not None:
            self._program.kill()


class Arrivals:
    """A consumer in a process of its own.

    Attributes:
        at: by number, when a row came first, nanoseconds of the monotonic clock; as of the last ``read``.
    """

    def __init__(self, bootstrap: str, topic: str, path: Path) -> None:
        self.at: dict[int, int] = {}
        path.touch()
        self._file = path.open("rb")
        self._rest = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench._latency_consumer", bootstrap, topic, str(path)]
        )

    def read(self) -> None:
        """Take what it has written down until now."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            number, _, moment = line.partition(b" ")
            self.at.setdefault(int(number), int(moment))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._file.close()


class Bench:
    """Kafka, and what the sources share."""

    def __init__(self, options: argparse.Namespace, folder: Path, kafka: KafkaCluster) -> None:
        self.options = options
        self.folder = folder
        self.kafka = kafka

    def ours(self, stack: ExitStack, name: str, **properties: str) -> Connector:
        """A worker of ours, with one process; keys of ``properties`` have underscores for dots."""
        more = {key.replace("_", "."): value for key, value in properties.items()}
        worker = MillraceWorker(
            self.folder / name,
            self.kafka.bootstrap,
            group=name,
            port=None,
            properties={**_WORKER, **more},
            processes=1,
        )
        return Connector(stack.enter_context(worker))

    def java(self, stack: ExitStack, name: str, plugins: Sequence[str] = (), **properties: str) -> Connector:
        """A worker of Kafka Connect; as ``ours``."""
        more = {key.replace("_", "."): value for key, value in properties.items()}
        worker = JavaConnect(
            self.folder / name,
            self.kafka.bootstrap,
            group=name,
            port=None,
            plugins=list(plugins),
            properties={**_WORKER, **more},
            heap=Heap(512, 2048),
        )
        return Connector(stack.enter_context(worker))

    def measure(self, label: str, reader: Reader, make_route: Callable[[], Route]) -> None:
        """Print a line for each rate."""
        for rate in self.options.rates:
            line = f"{label:42} {rate:>6,}/s"
            try:
                self._measure(line, reader, make_route(), rate)
            except (RuntimeError, StackError) as error:
                print(f"{line}: not measured: {error}", flush=True)

    def _measure(self, line: str, reader: Reader, route: Route, rate: int) -> None:
        make_topic(self.kafka.bootstrap, route.topic, 1)
        path = self.folder / f"{route.topic}.arrivals"
        with ExitStack() as stack:
            stack.callback(route.source.close)
            arrivals = stack.enter_context(Arrivals(self.kafka.bootstrap, route.topic, path))
            stack.callback(reader.stop)
            reader.start(route.properties)
            _wait(reader.running, "the connector does not run")
            load = Load(route.source, rate)
            stack.callback(load.stop)
            _wait(lambda: _arrived(arrivals, load), "no row has come")
            time.sleep(self.options.warm)
            first, cpu, began = len(load.committed), cpu_seconds(reader.pid), time.monotonic()
            time.sleep(self.options.seconds)
            end, took = len(load.committed), time.monotonic() - began
            cores = (cpu_seconds(reader.pid) - cpu) / took
            reader.running()
            missing = _await_rows(arrivals, range(first, end))
            load.stop()
            _report(line, load, arrivals, range(first, end), took, cores, missing)


def _wait(condition: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + _FIRST_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{problem} after {_FIRST_S} s")
        time.sleep(0.1)


def _arrived(arrivals: Arrivals, load: Load) -> bool:
    if load.failure is not None:
        raise RuntimeError(f"the load ended: {load.failure}") from load.failure
    arrivals.read()
    return bool(arrivals.at)


def _await_rows(arrivals: Arrivals, numbers: range) -> int:
    """Wait until the rows have come; how many have not after some time."""
    deadline = time.monotonic() + _LAST_S
    while True:
        arrivals.read()
        missing = sum(number not in arrivals.at for number in numbers)
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(0.3)


def _report(
    label: str, load: Load, arrivals: Arrivals, numbers: range, took: float, cores: float, missing: int
) -> None:
    latencies = sorted(arrivals.at[n] - load.committed[n] for n in numbers if n in arrivals.at)
    if not latencies:
        raise RuntimeError("no row of the measured time has come")
    p50, p99 = (latencies[min(int(len(latencies) * share), len(latencies) - 1)] / 1e6 for share in (0.5, 0.99))
    late = f", {missing} NOT THERE after {_LAST_S} s more" if missing else ""
    print(
        f"{label}: p50 {p50:8.1f} ms, p99 {p99:8.1f} ms, max {latencies[-1] / 1e6:8.1f} ms; {len(numbers) / took:,.0f} rows/s "
        f"committed, {cores:.2f} cores of the worker{late}",
        flush=True,
    )


def _mysql(bench: Bench, stack: ExitStack) -> None:
    server = stack.enter_context(MariaDb(bench.folder / "mariadb", port=None, durable=False))

    def route() -> Route:
        rows = MySqlRows(server, _DATABASE)
        prefix = f"m{secrets.token_hex(4)}"
        properties = config(
            server,
            prefix,
            bench.folder,
            snapshot_mode="no_data",
            table_include_list=rows.table.replace(".", r"\."),
        )
        return Route(rows, f"{prefix}.{rows.table}", properties)

    for guarantee, properties in (("at least once", {}), ("exactly once", _EXACTLY_ONCE)):
        more = {name.replace(".", "_"): value for name, value in properties.items()}
        group = guarantee.replace(" ", "-")
        with ExitStack() as workers:
            if not bench.options.no_peer:
                java = bench.java(workers, f"java-mysql-{group}", [DEBEZIUM], **more)
                bench.measure(f"MariaDB, Debezium, {guarantee}", java, route)
            bench.measure(f"MariaDB, Millrace, {guarantee}", bench.ours(workers, f"mysql-{group}", **more), route)


def _scylla(bench: Bench, stack: ExitStack) -> None:
    node, _ = stack.enter_context(scylla_bench.scylla(bench.folder / "scylla", _STREAMS))

    def route() -> Route:
        rows = ScyllaRows(node.address, "bench")
        properties = scylla_bench.config(node.direct, rows.table, 1)
        return Route(rows, f"{properties['topic.prefix']}.{rows.table}", properties)

    bench.measure(f"Scylla (emulation, {_STREAMS} streams), Millrace", bench.ours(stack, "scylla-worker"), route)


def _cassandra(bench: Bench, stack: ExitStack) -> None:
    node = stack.enter_context(CassandraNode(bench.folder / "cassandra", port=None))
    execute_cql(
        node.address,
        f"CREATE KEYSPACE {cassandra_rows.KEYSPACE} WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}",
    )

    def route() -> Route:
        rows = CassandraRows(node, cassandra_rows.KEYSPACE)
        prefix = f"c{secrets.token_hex(4)}"
        properties = {
            "connector.class": "cassandra",
            "tasks.max": "1",
            "topic.prefix": prefix,
            "cassandra.hosts": node.address,
            "cdc.raw.directories": str(node.cdc_raw),
            "snapshot.mode": "never",
            "commit.log.read.mode": "marker",
            "output.format": "debezium",
            "table.include.list": rows.table.replace(".", r"\."),
        }
        return Route(rows, f"{prefix}.{rows.table}", properties)

    if not bench.options.no_peer:
        bench.measure("Cassandra, Debezium, real-time processing", CassandraPeer(bench, node), route)
    bench.measure("Cassandra (marker mode), Millrace", bench.ours(stack, "cassandra-worker"), route)


def _file(bench: Bench, stack: ExitStack) -> None:
    def route() -> Route:
        topic = f"f{secrets.token_hex(4)}"
        path = bench.folder / f"{topic}.txt"
        properties = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(path),
            "topic": topic,
        }
        return Route(FileLines(path), topic, properties)

    if not bench.options.no_peer:
        bench.measure("file, FileStreamSource of Kafka Connect", bench.java(stack, "java-file"), route)
    bench.measure("file, Millrace", bench.ours(stack, "file-worker"), route)


def _logs(bench: Bench, stack: ExitStack) -> None:
    def route() -> Route:
        prefix, port = f"g{secrets.token_hex(4)}", free_port()
        properties = {
            "connector.class": "logs",
            "tasks.max": "1",
            "topic.prefix": prefix,
            "input": "syslog",
            "listen": f"tcp://{LOOPBACK}:{port}",
            "rules": _RULES,
        }
        return Route(SyslogMessages(port), f"{prefix}.lines", properties)

    bench.measure("logs (syslog over TCP), Millrace", bench.ours(stack, "logs-worker"), route)


_RUN: Final = {"mysql": _mysql, "scylla": _scylla, "cassandra": _cassandra, "file": _file, "logs": _logs}


def main(argv: list[str]) -> int:
    """Run it; about ten minutes with all sources."""
    parser = argparse.ArgumentParser(prog="millrace bench source_latency", description=__doc__)
    parser.add_argument("--sources", nargs="+", choices=_SOURCES, default=list(_SOURCES))
    parser.add_argument("--rates", type=int, nargs="+", default=[200, 5000], help="rows a second")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds before measuring")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds that are measured")
    parser.add_argument("--no-peer", action="store_true", help="without Debezium and Kafka Connect")
    options = parser.parse_args(argv)
    print(environment())
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        with KafkaCluster(folder / "kafka", port=None, properties=BROKER) as kafka:
            bench = Bench(options, folder, kafka)
            for source in options.sources:
                with ExitStack() as stack:
                    _RUN[source](bench, stack)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
