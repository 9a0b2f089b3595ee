"""``millrace bench sinks [NAME ...]``: rows/s and CPU per row of sinks into servers on this machine, each from one core.

The whole sink is measured, as a job drives it: changes, each of another key, through Arrow, reduction to the newest per key,
requests and answers. They come as Spark's rows, and as the record batches that the single pass over Debezium's events keeps
(``packed``), where the sink takes these. The sink's side (JVM and Python worker) is bound to the first core; the server has the
rest of the machine. A first batch warms both up, the second one is measured, and the third is the second again: a replay, of
which the target takes nothing. The guarantee is the strongest that the sink has. A sink that fails, or takes longer than
``--limit-s``, is said to, and the others follow; the exit code is 1 then.

To add a sink, add a line to ``ENTRIES``: its name, ``sink.type``, the rows/s that are wanted, and a function that starts its
server in a folder and gives the sink's options and the server's process.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel

from compose.local.cassandra import CassandraNode
from compose.local.process.jvm import Heap
from compose.local.targets.clickhouse import ClickHouse
from compose.local.targets.hbase import HBase
from compose.local.targets.mongodb import MongoDb
from compose.local.targets.opensearch import OpenSearch
from compose.local.targets.redis import Redis
from connectors.errors import ConfigInvalid
from spark_jobs import registry
from spark_jobs.config import job_files as job_config
from spark_jobs.contract import Batch, JobContext, Packed, TableChanges, TableSchema
from spark_jobs.spark.session import build_session
from tests.bench._common import cpu_seconds, environment
from tests.bench.jdbc import changes, schema
from tests.support.job_process import cpu_by_kind
from tests.support.packed_rows import pack_rows
from worker.fetch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.contract import Sink


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs.

    Attributes:
        options: the sink's, as a user would write them.
        pid: the server's process; None where it is not a child of this one.
        port: the server's; None where there is no server.
        note: about the server, for people (that it is a stand-in, for instance).
        others: further processes of the server.
        relay: the process between the sink and its server; its CPU counts for neither of them.
    """

    options: Mapping[str, str]
    pid: int | None
    port: int | None
    note: str = ""
    others: tuple[int, ...] = ()
    relay: int | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """All processes of the server."""
        return self.others if self.pid is None else (self.pid, *self.others)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a batch, as Spark's rows and packed."""

    frame: DataFrame
    packed: Packed


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the table.

    Attributes:
        name: on the command line and in the output.
        sink: ``sink.type``.
        target: rows/s that are wanted; 0 for none.
        start: starts the server in a folder; ends it on exit.
        takes_packed: whether it writes record batches as they come.
        most: the most rows that make sense, for a server that is slow.
    """

    name: str
    sink: str
    target: int
    start: Callable[[Path], AbstractContextManager[Running]]
    takes_packed: bool = True
    most: int = 10_000_000


@contextmanager
def child(module: str, *arguments: str) -> Iterator[tuple[int, int]]:
    """A server of the benchmarks' own: its process, and the port that its first line names."""
    with subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def _redis(folder: Path) -> Iterator[Running]:
    with Redis(folder, port=None) as server:
        yield Running({"sink.redis.url": f"redis://{server.address}"}, server.pid, server.port)


@contextmanager
def _opensearch(folder: Path) -> Iterator[Running]:
    with OpenSearch(folder, port=None, heap=Heap(1024, 1024)) as server:
        yield Running({"sink.opensearch.url": server.url}, server.pid, server.port)


@contextmanager
def _clickhouse(folder: Path) -> Iterator[Running]:
    with ClickHouse(folder) as server:
        yield Running(
            {"sink.clickhouse.url": server.url}, server.pid, server.port, "the real engine behind an emulated server"
        )


@contextmanager
def _cassandra(folder: Path) -> Iterator[Running]:
    with CassandraNode(folder, port=None, cdc=False) as server:
        options = {"sink.cassandra.hosts": server.address, "sink.cassandra.keyspace": "bench"}
        yield Running({**options, "sink.cassandra.replication": "1"}, server.pid, server.port)


@contextmanager
def _http(folder: Path) -> Iterator[Running]:
    folder.mkdir()
    with child("tests.bench._http_target") as (pid, port):
        yield Running(
            {"sink.http.url": f"http://127.0.0.1:{port}/rows"}, pid, port, "batches to a small server in Python"
        )


@contextmanager
def _delta(folder: Path, **options: str) -> Iterator[Running]:
    options = {f"sink.delta.{name}": value for name, value in options.items()}
    yield Running({"sink.delta.path": str(folder), **options}, None, None, "local disk")


@contextmanager
def _iceberg(folder: Path, **options: str) -> Iterator[Running]:
    folder.mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    options = {f"catalog.{name}": value for name, value in catalog.items()} | options
    options = {f"sink.iceberg.{name}": value for name, value in options.items()}
    yield Running(options, None, None, "SQLite catalog, local disk")


@contextmanager
def _hbase(folder: Path) -> Iterator[Running]:
    with HBase(folder, port=None, heap=Heap(1024, 1024)) as server:
        options = {"sink.hbase.address": server.address, "sink.hbase.timeout.ms": "60000"}
        note = "master, region server and ZooKeeper in one process, the Thrift server in another"
        yield Running(options, server.pid, server.port, note, (server.master.pid,))


@contextmanager
def _mongodb(folder: Path) -> Iterator[Running]:
    with MongoDb(folder) as server:
        options = {
            "sink.mongodb.url": f"mongodb://127.0.0.1:{server.port}/?directConnection=true",
            "sink.mongodb.database": "bench",
            "sink.mongodb.timeout.ms": "120000",
        }
        yield Running(options, server.pid, server.port, "a stand-in in Python over MongoDB's storage engine")


ENTRIES: Final = (
    Entry("redis", "redis", 150_000, _redis),
    Entry("opensearch", "opensearch", 30_000, _opensearch),
    Entry("clickhouse", "clickhouse", 500_000, _clickhouse),
    Entry("cassandra", "cassandra", 20_000, _cassandra),
    Entry("http", "http", 10_000, _http, takes_packed=False),
    Entry("delta-append", "delta", 300_000, partial(_delta, mode="insert")),
    Entry("delta-upsert", "delta", 100_000, _delta, takes_packed=False),
    Entry("iceberg-append", "iceberg", 300_000, partial(_iceberg, mode="insert")),
    Entry("iceberg-upsert", "iceberg", 0, _iceberg, takes_packed=False),
    Entry("hbase", "hbase", 25_000, _hbase),
    Entry("mongodb", "mongodb", 0, _mongodb, most=10_000),
)


#: A write of nothing that took less seconds looked at no row.
_KNOWN_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement; CPU in seconds, the sink's by kind of process."""

    label: str
    rows: int
    written: int
    seconds: float
    cpu: Mapping[str, float]
    server_cpu: float

    @property
    def speed(self) -> float:
        """Rows/s."""
        return self.rows / self.seconds

    def alone(self) -> str:
        """The rows/s that the CPU of a row allows, for each side with a core of its own; it depends little on other load."""
        sides = {"sink": sum(self.cpu.values()), "Python worker": self.cpu["python"], "server": self.server_cpu}
        return ", ".join(f"{side} {self.rows / cpu:,.0f}" for side, cpu in sides.items() if cpu)

    def line(self) -> str:
        """As text."""
        if not self.written and self.seconds < _KNOWN_S:
            return (
                f"  {self.label:<28} {self.rows:>9,} rows: the sink knows that the batch is written, and sends nothing"
            )
        micro = 1e6 / self.rows
        parts = ", ".join(f"{kind} {cpu * micro:.1f}" for kind, cpu in self.cpu.items())
        return (
            f"  {self.label:<28} {self.rows:>9,} rows {self.seconds:7.2f} s {self.speed:>10,.0f} rows/s   "
            f"CPU {sum(self.cpu.values()) * micro:6.1f} us/row ({parts}) + server {self.server_cpu * micro:6.1f}   "
            f"{self.written:,} written"
        )


def measure(label: str, rows: int, server: Running, write: Callable[[], int]) -> Measured:
    """Write once, with the clock and the CPU of both sides."""
    others = (*server.pids, *([server.relay] if server.relay is not None else []))

    def spent() -> tuple[dict[str, float], float]:
        return cpu_by_kind(os.getpid(), others), sum(map(cpu_seconds, server.pids), 0.0)

    (ours, theirs), begin = spent(), time.perf_counter()
    written = write()
    seconds = time.perf_counter() - begin
    ours_after, theirs_after = spent()
    cpu = {kind: ours_after[kind] - before for kind, before in ours.items()}
    return Measured(label, rows, written, seconds, cpu, theirs_after - theirs)


def open_sink(spark: SparkSession, entry: Entry, options: Mapping[str, str], checkpoint: Path) -> Sink:
    """The sink as a job has it, with one connection where it has several.

    Args:
        spark: the session.
        entry: the sink.
        options: the sink's.
        checkpoint: a folder of this run's own: a write-ahead log in it is of these batches.
    """
    kind = registry.sink_class(entry.sink)
    alone = f"sink.{entry.sink}.connections"
    properties = {
        "name": "bench-sinks",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "source.topics": "orders",
        "source.format": "plain",
        "sink.type": entry.sink,
        "checkpoint.location": str(checkpoint),
        **({alone: "1"} if alone in kind.config_def.keys else {}),
        **options,
    }
    config, problems = job_config.check_job(properties)
    if config is None:
        raise ConfigInvalid("; ".join(problem.message for problem in problems))
    log = logging.LoggerAdapter(logging.getLogger("bench"), {})
    sink = kind(JobContext("bench-sinks", config, spark, log))
    sink.open()
    return sink


def pack(spark: SparkSession, frame: DataFrame, file: str) -> Changes:
    """Changes as a job has them after the single pass over its records: kept by Spark, a value per record batch."""
    packed = pack_rows(frame, schema())
    packed.frame.write.parquet(file)
    kept = spark.read.parquet(file).persist(StorageLevel.MEMORY_AND_DISK_DESER)
    kept.count()
    return Changes(frame, replace(packed, frame=kept))


def make_batches(spark: SparkSession, folder: Path, rows: int) -> list[Changes]:
    """Two batches of changes."""
    batches = []
    for number in range(2):
        file = str(folder / f"changes-{rows}-{number}")
        # The second batch has keys of its own: a first one must not have written them.
        frame = changes(spark, rows, rows, number * rows, 1)
        frame.withColumn("id", frame["id"] + number * rows).write.parquet(file)
        batches.append(pack(spark, spark.read.parquet(file), f"{file}-packed"))
    return batches


@contextmanager
def far_away(server: Running, round_trip_ms: float) -> Iterator[Running]:
    """The server behind a line with a round-trip time; as it is with 0, and where there is no server."""
    if not round_trip_ms:
        yield server
        return
    if server.port is None:
        yield replace(server, note=f"no server, so no round trip. {server.note}")
        return
    with child("tests.bench._slow_network", str(server.port), str(round_trip_ms)) as (pid, port):
        options = {name: text.replace(f":{server.port}", f":{port}") for name, text in server.options.items()}
        note = f"{round_trip_ms:g} ms of round-trip time. {server.note}"
        yield replace(server, options=options, note=note, relay=pid)


class TookTooLong(Exception):
    """A sink did not end in time."""


@contextmanager
def limited(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Cancel Spark's jobs of a sink that takes longer.

    Raises:
        TookTooLong: it did.
    """
    done = threading.Event()
    late = threading.Event()

    def watch() -> None:
        if done.wait(seconds):
            return
        late.set()
        while not done.wait(1.0):
            spark.sparkContext.cancelAllJobs()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except Exception as error:
        if late.is_set():
            raise TookTooLong(f"it took longer than {seconds:g} s (--limit-s)") from error
        raise
    finally:
        done.set()
        watcher.join()


def run_entry(
    spark: SparkSession, entry: Entry, server: Running, batches: Sequence[Changes], rows: int, checkpoint: Path
) -> None:
    """Measure one sink and print it; a line before each step says what is under way."""
    sink = open_sink(spark, entry, server.options, checkpoint)
    columns = schema().columns
    numbers = itertools.count()

    def write(changes: Changes, name: str, *, packed: bool) -> Callable[[], int]:
        number = next(numbers)
        ranges = {("orders", 0): (number * rows, (number + 1) * rows)}
        table = TableChanges(TableSchema(name, columns), changes.frame, packed=changes.packed if packed else None)
        return lambda: sink.write(Batch(number, changes.frame, ranges, lambda: (table,)))

    best = 0.0
    try:
        for packed in (False, True)[: 1 + entry.takes_packed]:
            form = "packed" if packed else "rows"
            table = f"shop.{form}"
            warm = measure(f"{form}, warm-up", rows, server, write(batches[0], table, packed=packed))
            print(warm.line(), flush=True)
            written = write(batches[1], table, packed=packed)
            first = measure(f"{form}, new keys", rows, server, written)
            print(first.line(), flush=True)
            print(measure(f"{form}, the same batch again", rows, server, written).line(), flush=True)
            print(
                f"  {form}, new keys, what the CPU allows with a core for each, in rows/s: {first.alone()}", flush=True
            )
            best = max(best, first.speed)
    finally:
        sink.close()
    if entry.target:
        verdict = "met" if best >= entry.target else "MISSED"
        print(f"  target {entry.target:,} rows/s: {verdict} ({best / entry.target:.2f} of it)", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; see the module."""
    names = [entry.name for entry in ENTRIES]
    parser = argparse.ArgumentParser(prog="millrace bench sinks", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(names)}; all where none is named")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--round-trip-ms", type=float, default=0.0, help="added between the sink and its server")
    parser.add_argument(
        "--limit-s", type=float, default=240.0, help="seconds that a sink may take, with its server's start"
    )
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(names))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = [entry for entry in ENTRIES if entry.name in (options.names or names)]
    print(f"sinks from one core, {options.rows:,} changes of 8 columns in a batch, 5 % deletes; {environment()}")
    cores = os.sched_getaffinity(0)
    failed = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-sinks-")))
        os.sched_setaffinity(0, {min(cores)})  # inherited by the JVM and its Python workers
        spark = build_session(
            "bench-sinks",
            master="local[1]",
            conf={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"},
            extra_jars=tuple(sorted({jar for entry in chosen for jar in registry.sink_class(entry.sink).extra_jars})),
        )
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        batches: dict[int, list[Changes]] = {}
        for entry in chosen:
            rows = min(options.rows, entry.most)
            if rows not in batches:
                batches[rows] = make_batches(spark, folder, rows)
            os.sched_setaffinity(0, cores)  # for the server, which this thread starts
            home = folder / entry.name
            print(f"{entry.name}: starts", flush=True)
            try:
                with (
                    limited(spark, options.limit_s),
                    entry.start(home) as near,
                    far_away(near, options.round_trip_ms) as server,
                ):
                    os.sched_setaffinity(0, {min(cores)})
                    print(f"{entry.name}{': ' + server.note if server.note else ''}", flush=True)
                    run_entry(spark, entry, server, batches[rows], rows, folder / f"{entry.name}-checkpoint")
            except Unavailable as reason:
                print(f"{entry.name}: not measured: {reason}", flush=True)
            except Exception as error:  # noqa: BLE001 - of a server or a sink; the next one is measured
                failed = 1
                text = str(error).partition("\n")[0]
                print(f"{entry.name}: FAILED: {type(error).__name__}: {text}", flush=True)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
