"""The Cassandra connector on a real node: stages, whole workers and Debezium, latency from write to topic, CPU when idle.

Mutations are written first; every run reads its own links to the same complete segments, and deletes them as it delivers.
Mutations/s and CPU (user and system, of the whole worker) count from the first record in Kafka to the last: without the start.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import orjson
import uvloop
from aiokafka import AIOKafkaConsumer

from compose.local.cassandra import CassandraNode
from compose.local.kafka import KafkaCluster
from compose.local.registry import SchemaRegistry
from compose.local.scylla.wire import WireConnection
from compose.local.worker import MillraceWorker
from tests.bench import _cassandra_rows as rows_of
from tests.bench import _cassandra_stages as stages
from tests.bench._cassandra_peer import DebeziumCassandra
from tests.bench._cassandra_rows import FULL
from tests.bench._common import cpu_seconds, environment, resident_bytes, spread, topic_ends, until_appended

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

#: CPU microseconds a record of Debezium's jar without Kafka, measured before and not in this run.
RECORDED_US = 19
PARTS = ("stages", "throughput", "latency", "idle")
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_AVRO = "io.confluent.connect.avro.AvroConverter"
#: What both programs' producers get: linger makes batches, and lz4 is what large topics use.
_PRODUCER = {"linger.ms": "50", "batch.size": "1000000", "compression.type": "lz4", "max.request.size": "4000000"}
_DEBEZIUM = "debezium, JSON"


class Figure(NamedTuple):
    """Mutations/s, CPU microseconds a mutation, peak of resident memory in MiB."""

    rate: float
    cpu: float
    peak: float


class Bench:
    """The servers and what the parts share."""

    def __init__(
        self,
        options: argparse.Namespace,
        folder: Path,
        kafka: KafkaCluster,
        node: CassandraNode,
        registry: SchemaRegistry,
        end: Callable[[str], Awaitable[int]],
    ) -> None:
        self.options = options
        self.folder = folder
        self.kafka = kafka
        self.node = node
        self.registry = registry
        self.end = end

    def config(self, prefix: str, directory: Path, **more: str) -> dict[str, str]:
        """A connector's properties; keys of ``more`` have underscores for dots."""
        return {
            "connector.class": "cassandra",
            "tasks.max": "1",
            "topic.prefix": prefix,
            "cassandra.hosts": self.node.address,
            "cdc.raw.directories": str(directory),
            "snapshot.mode": "never",
            "table.include.list": FULL.replace(".", r"\."),
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def form(self, label: str) -> dict[str, str]:
        """The properties of an output form with its converters."""
        if label == _DEBEZIUM:
            return {
                "output.format": "debezium",
                "tombstones.on.delete": "false",
                **{
                    f"{side}.converter{suffix}": value
                    for side in ("key", "value")
                    for suffix, value in (("", _JSON), (".schemas.enable", "false"))
                },
            }
        return {
            "output.format": label.partition(",")[0],
            "key.converter": _BYTES,
            "value.converter": _AVRO,
            "value.converter.schema.registry.url": self.registry.url,
        }

    async def counted(self, pid: int, topic: str, rows: int) -> Figure:
        """The figures from the topic's first record to its last."""
        first = await until_appended(self.end, topic, 1, 120)
        cpu, started = cpu_seconds(pid), await self.end(topic)
        watch, peak = asyncio.create_task(until_appended(self.end, topic, rows, 900)), 0
        while not watch.done():
            peak = max(peak, resident_bytes(pid))
            await asyncio.wait([watch], timeout=0.2)
        done = await watch
        counted = max(rows - started, 1)
        return Figure(counted / max(done - first, 1e-9), (cpu_seconds(pid) - cpu) / counted * 1e6, peak / 2**20)

    async def create(self, worker: MillraceWorker, config: Mapping[str, str]) -> None:
        """Create a connector, named by its prefix; it ends the benchmark to be refused."""
        status, answer = await asyncio.to_thread(
            worker.request, "PUT", f"/connectors/{config['topic.prefix']}/config", dict(config)
        )
        if status >= 400:
            raise RuntimeError(f"the connector was refused: {status} {answer}")

    def worker(self, name: str, **properties: str) -> MillraceWorker:
        """A worker of one process, not started."""
        return MillraceWorker(
            self.folder / name,
            self.kafka.bootstrap,
            group=name,
            processes=1,
            port=None,
            properties={"offset.flush.interval.ms": "10000", **properties},
        )

    async def throughput(self, rows: int) -> None:
        """Every output form by a whole worker, then the peer."""
        print(
            f"\nwhole worker, 1 task, {rows} mutations\n{'':30}{'mutations/s':>28}{'CPU us/mutation':>24}{'peak MiB':>22}"
        )
        producer = {f"producer.{name}": value for name, value in _PRODUCER.items()}
        with self.worker("throughput", **producer) as worker:
            for form in stages.FORMS:
                modes: dict[str, list[Figure]] = {"auto": [], "off": []}
                for run in range(self.options.runs + 1):  # the first warms up and is not counted
                    for mode, measured in modes.items():
                        prefix = f"b{secrets.token_hex(4)}"
                        directory = rows_of.copied(self.node.cdc_raw, self.folder / "raw" / prefix)
                        config = {**self.config(prefix, directory), **self.form(form.label), "fast.path": mode}
                        await self.create(worker, config)
                        figure = await self.counted(worker.pid, f"{prefix}.{FULL}", rows)
                        await asyncio.to_thread(worker.request, "DELETE", f"/connectors/{prefix}")
                        if run:
                            measured.append(figure)
                for mode, measured in modes.items():
                    report(form.label + (", fast.path=off" if mode == "off" else ""), measured)
        if self.options.no_peer:
            print(
                f"Debezium's jar took about {RECORDED_US} us a record without Kafka (recorded before, not in this run)"
            )
            return
        figures = []
        for run in range(
            self.options.runs
        ):  # each is a program of its own: its first seconds, when Java compiles, count
            prefix = f"p{secrets.token_hex(4)}"
            directory = rows_of.copied(self.node.cdc_raw, self.folder / "raw" / prefix)
            peer = DebeziumCassandra(
                self.folder / f"peer-{run}", self.node, directory, self.kafka.bootstrap, prefix, _PRODUCER
            )
            with peer:
                figures.append(await self.counted(peer.pid, f"{prefix}.{FULL}", rows))
                peer.kill()
        report("Debezium 3.4.1, JSON", figures)

    async def latency(self, mode: str) -> None:
        """Measure the time from a client's write until the broker appended its record, at a fixed rate of writes."""
        prefix, stop = f"l{secrets.token_hex(4)}", threading.Event()
        topic = f"{prefix}.{FULL}"
        writer = threading.Thread(target=self._write_slowly, args=(stop,), daemon=True)
        with self.worker(f"latency-{mode}") as worker:
            config = self.config(prefix, self.node.cdc_raw, commit_log_read_mode=mode, commit_log_delete="false")
            await self.create(
                worker,
                {**config, **self.form(_DEBEZIUM), "topic.creation.default.message.timestamp.type": "LogAppendTime"},
            )
            writer.start()
            await until_appended(self.end, topic, 1, 120)
            appended = -1
            while (
                now := await self.end(topic)
            ) != appended and now - appended > self.options.rate * 2:  # what was there before
                appended = now
                await asyncio.sleep(1)
            consumer = AIOKafkaConsumer(topic, bootstrap_servers=self.kafka.bootstrap, auto_offset_reset="latest")
            await consumer.start()
            cpu, began = cpu_seconds(worker.pid), time.monotonic()
            latencies: list[float] = []
            while time.monotonic() - began < self.options.seconds:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    latencies += [
                        record.timestamp - orjson.loads(record.value)["after"]["sent_us"]["value"] / 1000
                        for record in records
                    ]
            used = (cpu_seconds(worker.pid) - cpu) / (time.monotonic() - began)
            await consumer.stop()
        stop.set()
        writer.join()
        cuts = statistics.quantiles(latencies, n=100)
        print(
            f"write to topic, {mode:6} mode, {self.options.rate} writes/s: p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms "
            f"({len(latencies)} writes), {used * 100:.1f} % of a core",
            flush=True,
        )

    def _write_slowly(self, stop: threading.Event) -> None:
        connection, number = WireConnection(self.node.address), 1 << 40
        statement = rows_of.insert()
        while not stop.wait(1 / self.options.rate):
            number += 1
            connection.execute(statement, rows_of.cells(number, time.time_ns() // 1000))
        connection.close()

    async def idle(self) -> None:
        """CPU of a worker without a connector, and with one that has nothing to do."""
        for mode in ("", "idx", "marker"):
            prefix = f"i{secrets.token_hex(4)}"
            with self.worker(f"idle-{mode or 'none'}") as worker:
                if mode:
                    config = self.config(
                        prefix, self.node.cdc_raw, commit_log_read_mode=mode, commit_log_delete="false"
                    )
                    await self.create(worker, {**config, **self.form(_DEBEZIUM)})
                    await self._settled(f"{prefix}.{FULL}")
                await asyncio.sleep(3)
                cpu, began = cpu_seconds(worker.pid), time.monotonic()
                await asyncio.sleep(self.options.seconds)
                used = (cpu_seconds(worker.pid) - cpu) / (time.monotonic() - began)
            label = f"one connector in {mode} mode" if mode else "no connector"
            print(f"idle worker, {label:30}: {used * 100:.1f} % of a core", flush=True)

    async def _settled(self, topic: str) -> None:
        """Wait until nothing more comes."""
        appended = -1
        while (now := await self.end(topic)) != appended or not now:
            appended = now
            await asyncio.sleep(2)


def report(label: str, figures: list[Figure]) -> None:
    """Print one line."""
    rates, cpus, peaks = zip(*figures, strict=True)
    print(f"{label:30}{spread(rates, 0):>28}{spread(cpus):>24}{spread(peaks, 0):>22}", flush=True)


async def _run(options: argparse.Namespace, folder: Path) -> None:
    # Everything that is written stays: enough room that the node refuses nothing.
    settings = {"cdc_total_space": "8GiB"}
    with (
        KafkaCluster(folder / "kafka", port=None) as kafka,
        SchemaRegistry(folder / "registry", port=None) as registry,
        CassandraNode(folder / "cassandra", port=None, settings=settings) as node,
    ):
        rows_of.make_table(node)
        async with topic_ends(kafka.bootstrap) as end:
            bench = Bench(options, folder, kafka, node, registry, end)
            if "stages" in options.parts or "throughput" in options.parts:
                written = await asyncio.to_thread(rows_of.write, node, options.rows)
                size = written.bytes / 1e6
                print(f"\n{written.rows} mutations, {size:.0f} MB of segments, written in {written.seconds:.0f} s")
            if "stages" in options.parts:
                await stages.run(node.cdc_raw, bench.config("stages", node.cdc_raw))
            if "throughput" in options.parts:
                await bench.throughput(options.rows)
            rows_of.remove(node.cdc_raw)
            if "latency" in options.parts:
                for mode in ("marker", "idx"):
                    await bench.latency(mode)
            if "idle" in options.parts:
                await bench.idle()


def main(argv: list[str]) -> int:
    """Run it; about ten minutes with all parts."""
    parser = argparse.ArgumentParser(prog="millrace bench cassandra", description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="mutations of the throughput and the stages")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rate", type=int, default=100, help="writes a second, for latency")
    parser.add_argument("--seconds", type=float, default=20, help="how long to look at latency and at an idle worker")
    parser.add_argument("--no-peer", action="store_true", help="without Debezium")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    options = parser.parse_args(argv)
    print(environment())
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        uvloop.run(_run(options, Path(name)))
    return 0
