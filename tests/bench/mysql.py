"""The MySQL/MariaDB connector and Debezium for MariaDB on Kafka Connect: streaming, snapshots, processes, flatness, stages.

Both get the same options, converters (JSON without schemas) and events: rows are written while the connectors are stopped, then
each is resumed in turn. Rows/s and CPU (user and system, of the whole worker) count from its first record to its last: without
its start.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import uvloop

from compose.local.connect import DEBEZIUM, JavaConnect
from compose.local.databases.server_pair import execute_sql
from compose.local.kafka import KafkaCluster
from compose.local.mariadb import MariaDb
from compose.local.process.jvm import Heap
from compose.local.worker import MillraceWorker
from tests.bench import _mysql_rows as rows_of
from tests.bench._common import cpu_seconds, environment, resident_bytes, spread, topic_ends, until_appended
from tests.bench._mysql_rows import DATABASE, Write
from worker.kafka.whole_topics import read_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

Worker = JavaConnect | MillraceWorker
JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "offset.flush.interval.ms": "10000",
}
#: What both get in the "tuned" variant; "default" gives neither of them any.
TUNED = {
    "producer.linger.ms": "50",
    "producer.batch.size": "1000000",
    "producer.compression.type": "lz4",
    "producer.max.request.size": "4000000",
}
TUNED_CONNECTOR = {"max.batch.size": "20480", "max.queue.size": "81920"}
PEER, OURS, GENERAL = "Debezium", "Millrace", "Millrace, fast.path=off"
#: Kafka keeps little of what was measured: a run writes many gigabytes otherwise.
BROKER = {
    "log.retention.bytes": "200000000",
    "log.segment.bytes": "50000000",
    "log.retention.check.interval.ms": "5000",
}
PARTS = ("stream", "snapshot", "processes", "flat", "stages")


class Figure(NamedTuple):
    """One measurement: rows/s, CPU microseconds a row, peak of resident memory in MiB."""

    rate: float
    cpu: float
    peak: float


class Connector(NamedTuple):
    """One connector on one worker."""

    worker: Worker
    name: str

    def topic(self, table: str) -> str:
        """Where a table's rows go."""
        return f"{self.name}.{DATABASE}.{table}"

    async def ask(self, method: str, path: str, body: object = None) -> None:
        """Call the worker about it; it ends the benchmark to be refused."""
        status, answer = await asyncio.to_thread(self.worker.request, method, f"/connectors/{self.name}{path}", body)
        if status >= 400:
            raise RuntimeError(f"{method} {path} of {self.name} was refused: {status} {answer}")

    async def failed(self) -> None:
        """End the benchmark if it has failed."""
        status, answer = await asyncio.to_thread(self.worker.request, "GET", f"/connectors/{self.name}/status")
        if status == 200:
            for part in [answer["connector"], *answer["tasks"]]:
                if part["state"] == "FAILED":
                    raise RuntimeError(f"{self.name} has failed: {part.get('trace')}")

    async def stop(self) -> None:
        """Stop it and wait until its tasks have ended."""
        await self.ask("PUT", "/stop")
        deadline = time.monotonic() + 60
        while True:
            _, answer = await asyncio.to_thread(self.worker.request, "GET", f"/connectors/{self.name}/status")
            if answer["connector"]["state"] == "STOPPED" and not answer["tasks"]:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not stop: {answer}")
            await asyncio.sleep(0.05)


def config(server: MariaDb, prefix: str, folder: Path, *, tasks: int = 1, **more: str) -> dict[str, str]:
    """A connector's properties, the same for both."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "tasks.max": str(tasks),
        "topic.prefix": prefix,
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.server.id": str(10_000 + secrets.randbelow(1 << 20)),
        "database.include.list": DATABASE,
        # For Debezium alone: it cannot be resumed without what this keeps.
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / f"{prefix}.history"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


async def _busy(
    connector: Connector, end: Callable[[str], Awaitable[int]], topic: str, base: int, rows: int, limit: float
) -> Figure:
    """Wait for ``rows`` more records than ``base``; the figures from the first of them on."""
    worker = connector.worker
    watch = asyncio.create_task(until_appended(end, topic, base + 1, 120))
    while not watch.done():
        await connector.failed()
        await asyncio.wait([watch], timeout=1)
    first = await watch
    cpu, started = cpu_seconds(worker.pid), await end(topic)
    watch, peak = asyncio.create_task(until_appended(end, topic, base + rows, limit)), 0
    while not watch.done():
        peak = max(peak, resident_bytes(worker.pid))
        await asyncio.wait([watch], timeout=0.2)
    done = await watch
    counted = max(base + rows - started, 1)
    return Figure(counted / max(done - first, 1e-9), (cpu_seconds(worker.pid) - cpu) / counted * 1e6, peak / 2**20)


async def begin(
    connector: Connector,
    server: MariaDb,
    end: Callable[[str], Awaitable[int]],
    tables: Sequence[str],
    properties: Mapping[str, str],
) -> None:
    """Create the connector, wait until it streams every table, and stop it: its place is saved then."""
    await connector.ask("PUT", "/config", dict(properties))
    deadline, number = time.monotonic() + 90, rows_marker(server)
    while not all([await end(connector.topic(table)) for table in tables]):
        # A row that was written before the connector had chosen its place never comes: write another one.
        for table in tables:
            number -= 1
            await asyncio.to_thread(rows_of.marker, server, table, number)
        await connector.failed()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{connector.name} does not stream after 90 s")
        await asyncio.sleep(0.5)
    await connector.stop()


def rows_marker(server: MariaDb) -> int:
    """A key below all of those that mark something."""
    lowest_keys = [
        execute_sql(server, f"SELECT LEAST(COALESCE(MIN(id), 0), 0) FROM {DATABASE}.{table}")[0][0]
        for table in rows_of.TABLES
    ]
    return int(min(lowest_keys))


async def resume(
    connector: Connector, end: Callable[[str], Awaitable[int]], write: Write, limit: float = 900
) -> Figure:
    """Have a stopped connector stream what was written meanwhile, and stop it again."""
    topic = connector.topic(write.table)
    base = await end(topic)
    await connector.ask("PUT", "/resume")
    figure = await _busy(connector, end, topic, base, write.rows, limit)
    await connector.stop()
    return figure


def run_write(server: MariaDb, write: Write, first: int) -> None:
    """Write the rows. Blocks."""
    act = rows_of.update if write.update else rows_of.insert
    act(server, write.table, first, write.rows, write.per_transaction)


def writes(options: argparse.Namespace) -> list[Write]:
    """The writes that the streaming part measures."""
    rows, size = options.rows, options.per_transaction
    return [
        Write(f"narrow inserts, {size} rows a transaction", "narrow", rows, False, size),
        Write(f"narrow updates, both images, {size} rows a transaction", "narrow", rows, True, size),
        Write(f"wide inserts (60 columns), {size} rows a transaction", "wide", rows // 4, False, size),
        Write(f"one transaction of {rows} narrow inserts", "large", rows, False, rows),
        Write("narrow inserts, 1 row a transaction", "narrow", max(1, rows // 10), False, 1),
    ]


async def message_bytes(bootstrap: str, topic: str) -> float:
    """Mean size of what is left in a topic: key and value."""
    records = await read_all(bootstrap, topic)
    return statistics.fmean(len(record.key or b"") + len(record.value or b"") for record in records) if records else 0.0


def report(title: str, figures: Mapping[str, Sequence[Figure]], base: str) -> None:
    """Print one comparison; ratios are to ``base``, run by run."""
    print(
        f"\n{title}; ratios are to: {base}\n{'':32}{'rows/s':>26}{'rows/CPU s':>26}{'CPU us/row':>22}"
        f"{'peak MiB':>20}{'ratio rows/CPU s':>22}{'ratio rows/s':>22}"
    )
    for label, values in figures.items():
        pairs = list(zip(values, figures.get(base, values), strict=True))
        print(
            f"{label:32}{spread([figure.rate for figure in values], 0):>26}"
            f"{spread([1e6 / figure.cpu for figure in values], 0):>26}"
            f"{spread([figure.cpu for figure in values]):>22}{spread([figure.peak for figure in values], 0):>20}"
            f"{spread([theirs.cpu / mine.cpu for mine, theirs in pairs]):>22}"
            f"{spread([mine.rate / theirs.rate for mine, theirs in pairs]):>22}",
            flush=True,
        )


class Bench:
    """The servers and what the parts share."""

    def __init__(
        self,
        options: argparse.Namespace,
        folder: Path,
        kafka: KafkaCluster,
        server: MariaDb,
        end: Callable[[str], Awaitable[int]],
    ) -> None:
        self.options = options
        self.folder = folder
        self.kafka = kafka
        self.server = server
        self.end = end

    def workers(self, stack: ExitStack, label: str, tuned: Mapping[str, str], processes: int = 1) -> dict[str, Worker]:
        """The peer first, if it is wanted, then ours."""
        workers: dict[str, Worker] = {}
        properties = {**JSON, **tuned}
        if not self.options.no_peer:
            workers[PEER] = stack.enter_context(
                JavaConnect(
                    self.folder / f"java-{label}",
                    self.kafka.bootstrap,
                    group=f"java-{label}",
                    port=None,
                    plugins=[DEBEZIUM],
                    properties=properties,
                    heap=Heap(512, 2048),
                )
            )
        workers[OURS] = self.ours(stack, label, processes, tuned)
        return workers

    def ours(self, stack: ExitStack, label: str, processes: int, tuned: Mapping[str, str]) -> MillraceWorker:
        """A worker of ours."""
        return stack.enter_context(
            MillraceWorker(
                self.folder / f"millrace-{label}",
                self.kafka.bootstrap,
                group=f"millrace-{label}",
                port=None,
                properties={**JSON, **tuned},
                processes=processes,
            )
        )

    async def stream(self, variant: str) -> None:
        """Streaming, one task, one process."""
        tuned = variant == "tuned"
        figures: dict[str, dict[str, list[Figure]]] = {}
        sizes: dict[str, float] = {}
        with ExitStack() as stack:
            workers = await asyncio.to_thread(self.workers, stack, f"stream-{variant}", TUNED if tuned else {})
            connectors = {
                system: Connector(worker, f"s{system.lower()}{secrets.token_hex(3)}")
                for system, worker in workers.items()
            }
            if self.options.general:
                connectors[GENERAL] = Connector(workers[OURS], f"sgeneral{secrets.token_hex(3)}")
            for label, connector in connectors.items():
                await begin(
                    connector,
                    self.server,
                    self.end,
                    list(rows_of.TABLES),
                    {
                        **config(self.server, connector.name, self.folder, snapshot_mode="no_data"),
                        **(TUNED_CONNECTOR if tuned else {}),
                        **({"fast.path": "off"} if label == GENERAL else {}),
                    },
                )
            for run in range(self.options.runs + 1):  # the first warms up and is not counted
                newest: dict[str, int] = {}
                for write in writes(self.options):
                    if not write.update:
                        newest[write.table] = await asyncio.to_thread(rows_of.highest, self.server, write.table) + 1
                    await asyncio.to_thread(run_write, self.server, write, newest[write.table])
                    for system, connector in connectors.items():
                        figure = await resume(connector, self.end, write)
                        if run:
                            figures.setdefault(write.label, {}).setdefault(system, []).append(figure)
                        if not run and system == OURS:
                            sizes[write.label] = await message_bytes(self.kafka.bootstrap, connector.topic(write.table))
        for write in writes(self.options):
            report(
                f"streaming, {variant}: {write.label}, ~{sizes[write.label]:.0f} bytes a record",
                figures[write.label],
                OURS if self.options.no_peer else PEER,
            )

    async def snapshot(self) -> None:
        """One large table, read by the initial snapshot with one task, and by ours with four in two processes."""
        rows = self.options.snapshot_rows
        rows_of.add_table(self.server, "pulled")
        await asyncio.to_thread(rows_of.insert, self.server, "pulled", 1, rows, 10_000)
        figures: dict[str, list[Figure]] = {}
        with ExitStack() as stack:
            workers = await asyncio.to_thread(self.workers, stack, "snapshot", {})
            shapes: list[tuple[str, Worker, int]] = [
                (f"{system}, 1 task", worker, 1) for system, worker in workers.items()
            ]
            shapes.append((f"{OURS}, 4 tasks", workers[OURS], 4))
            two = await asyncio.to_thread(self.ours, stack, "snapshot-2", 2, {})
            shapes.append((f"{OURS}, 4 tasks, 2 processes", two, 4))
            for run in range(self.options.runs + 1):
                for label, worker, tasks in shapes:
                    connector = Connector(worker, f"p{secrets.token_hex(4)}")
                    properties = config(
                        self.server,
                        connector.name,
                        self.folder,
                        tasks=tasks,
                        snapshot_mode="initial_only",
                        table_include_list=rf"{DATABASE}\.pulled",
                    )
                    await connector.ask("PUT", "/config", properties)
                    figure = await _busy(connector, self.end, connector.topic("pulled"), 0, rows, 900)
                    await connector.ask("DELETE", "")
                    if run:
                        figures.setdefault(label, []).append(figure)
        report(
            f"snapshot of one table of {rows} narrow rows",
            figures,
            f"{OURS}, 1 task" if self.options.no_peer else f"{PEER}, 1 task",
        )

    async def processes(self) -> None:
        """The same stream by one task in one process, and by two in two."""
        write = writes(self.options)[0]
        figures: dict[str, list[Figure]] = {}
        with ExitStack() as stack:
            connectors = {}
            for count in (1, 2):
                worker = await asyncio.to_thread(self.ours, stack, f"processes-{count}", count, {})
                connector = connectors[count] = Connector(worker, f"w{count}{secrets.token_hex(3)}")
                await begin(
                    connector,
                    self.server,
                    self.end,
                    [write.table],
                    config(self.server, connector.name, self.folder, tasks=count, snapshot_mode="no_data"),
                )
            for run in range(self.options.runs + 1):
                first = await asyncio.to_thread(rows_of.highest, self.server, write.table) + 1
                await asyncio.to_thread(run_write, self.server, write, first)
                for count, connector in connectors.items():
                    figure = await resume(connector, self.end, write)
                    if run:
                        figures.setdefault(f"{count} x {count}", []).append(figure)
        report(f"tasks x processes: {write.label}", figures, "1 x 1")

    async def flat(self) -> None:
        """Measure the CPU per row for growing numbers of rows; the log is removed after each run."""
        print("\nflatness: narrow inserts, 1 task, 1 process, lz4")
        with ExitStack() as stack:
            worker = await asyncio.to_thread(self.ours, stack, "flat", 1, {"producer.compression.type": "lz4"})
            connector = Connector(worker, f"f{secrets.token_hex(3)}")
            await begin(
                connector,
                self.server,
                self.end,
                ["narrow"],
                config(self.server, connector.name, self.folder, snapshot_mode="no_data"),
            )
            for rows in self.options.sizes:
                write = Write("", "narrow", rows, False, 1000)
                first = await asyncio.to_thread(rows_of.highest, self.server, "narrow") + 1
                await asyncio.to_thread(run_write, self.server, write, first)
                figure = await resume(connector, self.end, write, 3600)
                print(
                    f"{rows:>9} rows: {figure.cpu:.2f} CPU us/row, {figure.rate:.0f} rows/s, peak {figure.peak:.0f} MiB",
                    flush=True,
                )
                await asyncio.to_thread(rows_of.forget_log, self.server)


async def _run(options: argparse.Namespace, folder: Path) -> None:
    settings = {"innodb-buffer-pool-size": "512M", "max-binlog-size": "512M"}
    with (
        KafkaCluster(folder / "kafka", port=None, properties=BROKER) as kafka,
        MariaDb(folder / "mariadb", port=None, durable=False, settings=settings) as server,
    ):
        rows_of.make_tables(server)
        async with topic_ends(kafka.bootstrap) as end:
            bench = Bench(options, folder, kafka, server, end)
            if "stream" in options.parts:
                for variant in options.variants:
                    await bench.stream(variant)
            if "snapshot" in options.parts:
                await bench.snapshot()
            if "processes" in options.parts:
                await bench.processes()
            if "stages" in options.parts:
                from tests.bench import _mysql_stages

                await _mysql_stages.run(server, min(options.rows, 200_000))
            if "flat" in options.parts:
                await bench.flat()


def main(argv: list[str]) -> int:
    """Run it; about a quarter of an hour with all parts."""
    parser = argparse.ArgumentParser(prog="millrace bench mysql", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="rows of each streaming measurement")
    parser.add_argument("--per-transaction", type=int, default=100)
    parser.add_argument("--snapshot-rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[100_000, 1_000_000, 10_000_000], help="rows, for flatness"
    )
    parser.add_argument(
        "--variants", nargs="*", default=["default"], choices=["default", "tuned"], help="for streaming"
    )
    parser.add_argument("--no-peer", action="store_true", help="without Debezium")
    parser.add_argument("--general", action="store_true", help="streaming with fast.path=off, too, in the same run")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    options = parser.parse_args(argv)
    print(environment())
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        uvloop.run(_run(options, Path(name)))
    return 0
