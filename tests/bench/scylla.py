"""The Scylla connector on the emulation: CPU per row of whole workers, its stages, flatness, rest, and latency.

The Java connector is not measured here: its plugin is in no registry that this project uses. Its figure, measured once on the
same kind of machine with 300,000 rows of ~107 bytes over 512 streams and JSON without schemas, is 160-216 us CPU per row.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import orjson
import uvloop
from aiokafka import AIOKafkaConsumer

from compose.local.kafka import KafkaCluster
from compose.local.process.jvm import Heap
from compose.local.scylla.bulk import fill_log
from compose.local.scylla.client import Emulation
from compose.local.scylla.emulation import ScyllaEmulation
from compose.local.scylla.writes import Insert
from compose.local.worker import MillraceWorker
from connectors.cql.cluster.driver import PreparedCql
from connectors.cql.cluster.session import CqlSession
from connectors.encoded_parts import EncodedParts
from connectors.scylla import events
from connectors.scylla.config.settings import event_settings, read_settings, session_settings
from connectors.scylla.connector import ScyllaConnector
from connectors.scylla.model import StreamRun, TableId
from connectors.scylla.schema import tables
from connectors.scylla.schema.log_table import META_COLUMNS, log_name
from tests.bench._common import cpu_seconds, environment, resident_bytes, spread, topic_ends, until_appended
from tests.bench._scylla_replay import RecordedPages, open_feed, print_scaling
from tests.bench._scylla_volume import fill_volume, read_volume
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from connectors.cql.rows import RawRows
    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.model import TableVersion

JAVA_US = (160, 216)
JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "offset.flush.interval.ms": "10000",
}
#: (vnodes, shards, nodes): streams are their product, groups vnodes x nodes.
LAYOUTS = {512: (256, 2, 1), 8_192: (256, 8, 4), 73_728: (256, 72, 4)}
_TABLE = (
    "(pk bigint, ck int, v text, n bigint, flag boolean, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true, 'ttl': 0}"
)


def config(address: str, tables_read: str, tasks: int, **more: str) -> dict[str, str]:
    """A connector's properties."""
    return {
        "connector.class": "com.scylladb.cdc.debezium.connector.ScyllaConnector",
        "tasks.max": str(tasks),
        "topic.prefix": f"b{secrets.token_hex(4)}",
        "scylla.cluster.ip.addresses": address,
        "scylla.table.names": tables_read,
        "tombstones.on.delete": "false",
        # The server's first generation, which is empty, is not part of what is measured.
        "scylla.initial.lookback.ms": "540000",
        **more,
    }


@contextlib.contextmanager
def scylla(folder: Path, streams: int) -> Iterator[tuple[ScyllaEmulation, Emulation]]:
    """Start an emulation with the given number of streams."""
    with ScyllaEmulation(folder, port=None, heap=Heap(512, 3072)) as node:
        client = Emulation(node.address)
        vnodes, shards, nodes = LAYOUTS[streams]
        client.new_generation(vnodes, shards, nodes, start_ms=int(time.time() * 1000) - 600_000)
        client.create_keyspace("bench")
        yield node, client
        client.close()


def filled(client: Emulation, rows: int) -> str:
    """A new table with ``rows`` log rows; returns its name."""
    name = f"bench.t{secrets.token_hex(4)}"
    client.create_table(f"CREATE TABLE {name} {_TABLE}")
    done = fill_log(client, name, rows)
    print(f"  ({rows} log rows over {done.streams} streams written in {done.seconds:.1f} s)", flush=True)
    return name


async def _read_all(
    worker: MillraceWorker, bootstrap: str, properties: Mapping[str, str], rows: int
) -> tuple[float, float, float]:
    """Run a connector until all rows are in Kafka: (rows/s of the busiest interval, CPU us/row, peak MiB)."""
    name, topic = properties["topic.prefix"], f"{properties['topic.prefix']}.{properties['scylla.table.names']}"
    async with topic_ends(bootstrap) as end:
        cpu = cpu_seconds(worker.pid)
        await asyncio.to_thread(worker.request, "PUT", f"/connectors/{name}/config", dict(properties))
        first = await until_appended(end, topic, 1, 120)
        started = await end(topic)
        peak = 0
        watch = asyncio.create_task(until_appended(end, topic, rows, 900))
        while not watch.done():
            peak = max(peak, *(resident_bytes(host) for host in worker.hosts()))
            await asyncio.sleep(0.1)
        done = await watch
        used = cpu_seconds(worker.pid) - cpu
        await asyncio.to_thread(worker.request, "DELETE", f"/connectors/{name}")
    return (rows - started) / max(done - first, 1e-9), used / rows * 1e6, peak / 2**20


async def throughput(
    kafka: KafkaCluster,
    node: ScyllaEmulation,
    table: str,
    rows: int,
    runs: int,
    folder: Path,
    shapes: Sequence[tuple[int, int]],
) -> None:
    """Whole workers, tasks x processes."""
    print(
        f"\n{rows} rows, 512 streams, JSON without schemas, whole worker\n"
        f"{'tasks x processes':20}{'rows/s':>30}{'CPU us/row':>26}{'peak MiB a process':>26}"
    )
    single: list[float] = []
    for tasks, processes in shapes:
        modes: dict[str, list[tuple[float, float, float]]] = {"off": [], "auto": []}
        with MillraceWorker(
            folder / f"w{tasks}-{processes}",
            kafka.bootstrap,
            group=f"bench-{tasks}-{processes}",
            properties=JSON,
            processes=processes,
        ) as worker:
            for run in range(runs + 1):  # the first warms up and is not counted
                for mode, figures in modes.items():
                    properties = config(node.direct, table, tasks, **{"fast.path": mode})
                    figure = await _read_all(worker, kafka.bootstrap, properties, rows)
                    if run:
                        figures.append(figure)
        for mode, figures in modes.items():
            rates, cpus, peaks = zip(*figures, strict=True)
            single = single or list(rates)
            print(
                f"{f'{tasks} x {processes}, {mode}':20}{spread(rates, 0):>30}{spread(cpus):>26}{spread(peaks, 0):>26}"
                f"   {statistics.median(rates) / statistics.median(single):.2f} x the first",
                flush=True,
            )


async def stages(node: ScyllaEmulation, table: str, rows: int, total_us: float | None) -> RecordedPages:
    """CPU per row of reading pages, building events, encoding them; measured one after the other on the same rows.

    Returns the pages that were read.
    """
    parsed = ScyllaConnector.config_def.parse(config(node.direct, table, 1))
    session = await CqlSession.acquire(session_settings(parsed))
    table_id = TableId(*table.split("."))
    try:
        history = await tables.load_history(session, table_id)
        version = history.version_at(int(time.time() * 1e6))
        columns = version.log_columns
        names = ", ".join(f'"{name}"' for name in (*META_COLUMNS, *(name for name, _ in columns)))
        query = f'SELECT {names} FROM {table_id.keyspace}."{log_name(table_id)}"'  # noqa: S608
        types = (None, None, *events_meta_types(), *(kind for _, kind in columns))
        pages: list[list[Any]] = []
        bodies: list[bytes] = []
        cpu, state, seen = time.process_time(), None, 0
        while seen < rows:
            with keeping_bodies(bodies):
                page = await session.page(
                    query, (), fetch_size=read_settings(parsed).fetch_size, state=state, consistency="ONE", types=types
                )
            pages.append(page.rows)
            seen += len(page.rows)
            state = page.state
            if state is None:
                break
        read = (time.process_time() - cpu) / seen * 1e6
    finally:
        await session.release()
    builder = events.build_events(version, event_settings(parsed))
    partition, offset = {"vnode_id": "1"}, {"window_start": "x", "window_end": "y"}
    converter = JsonConverter({"schemas.enable": "false"})
    build = encode = 0.0
    size = count = 0
    for page_rows in pages:
        for start in range(0, len(page_rows), 1000):  # about what is alive at one time in a task
            records: list[Any] = []
            began = time.process_time()
            builder.feed(StreamRun(partition, offset, page_rows[start : start + 1000], None, True), records, [])
            built = time.process_time()
            key = converter.encoder("t", records[0].key_schema)
            value = converter.encoder("t", records[0].value_schema)
            for record in records:
                key(record.key)
                size += len(value(record.value) or b"")
            build, encode = build + built - began, encode + time.process_time() - built
            count += len(records)
    build, encode = build / count * 1e6, encode / count * 1e6
    fast = await _fast_us(version, event_settings(parsed), pages)
    left = f", the rest (produce, offsets, metrics, windows) {total_us - read - build - encode:.2f}" if total_us else ""
    print(
        f"\nstages, CPU us/row over {count} rows ({size / count:.0f} bytes an event): "
        f"read {read:.2f}, fast.path=off: build {build:.2f}, encode {encode:.2f}{left}; auto: both {fast:.2f}",
        flush=True,
    )
    return RecordedPages(version, event_settings(parsed), types, bodies)


@contextlib.contextmanager
def keeping_bodies(bodies: list[bytes]) -> Iterator[None]:
    """Also keep pages as they came."""
    decode = PreparedCql.decode

    def keep(prepared: PreparedCql, rows: RawRows) -> list[tuple[Any, ...]]:
        bodies.append(rows.body)
        return decode(prepared, rows)

    with mock.patch.object(PreparedCql, "decode", keep):
        yield


async def _fast_us(version: TableVersion, settings: ScyllaEventSettings, pages: Sequence[list[Any]]) -> float:
    """CPU microseconds a row of the fast path, from rows to bytes."""
    feed = await open_feed(version, settings)
    partition, offset = {"vnode_id": "1"}, {"window_start": "x", "window_end": "y"}
    used, count = 0.0, 0
    for rows in pages:
        for start in range(0, len(rows), 500):
            parts = EncodedParts()
            run = StreamRun(partition, offset, rows[start : start + 500], None, True, False)
            began = time.process_time()
            if not feed.take([run], 0, parts):
                raise RuntimeError("the fast path does not take a run")
            count += parts.count
            encoded = parts.collect()
            del encoded
            used += time.process_time() - began
    return used / count * 1e6


def events_meta_types() -> tuple[Any, ...]:
    """Types of the columns after stream and time."""
    from connectors.cql.types import CqlType

    return CqlType("int"), CqlType("tinyint"), CqlType("bigint"), CqlType("boolean")


def metric(worker: MillraceWorker, name: str) -> float:
    """Sum of a metric of the worker over its labels."""
    _, text = worker.request("GET", "/metrics")
    lines = str(text).splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " ", f"millrace_{name}"))
    )


async def rest(
    kafka: KafkaCluster, node: ScyllaEmulation, client: Emulation, streams: int, folder: Path, seconds: float
) -> None:
    """Queries/s, CPU and latency of a table that gets ten changes a second; seconds until the first event."""
    name = f"bench.t{secrets.token_hex(4)}"
    client.create_table(f"CREATE TABLE {name} {_TABLE}")
    properties = config(node.direct, name, 1)
    topic = f"{properties['topic.prefix']}.{name}"
    stop = threading.Event()

    def write() -> None:
        writer = Emulation(node.address)
        number = 0
        while not stop.wait(0.1):
            number += 1
            writer.apply(Insert(name, {"pk": number, "ck": 1, "v": "x", "n": number}))
        writer.close()

    with MillraceWorker(
        folder / f"rest-{streams}", kafka.bootstrap, group=f"rest-{streams}", properties=JSON, processes=1
    ) as worker:
        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        created = time.monotonic()
        await asyncio.to_thread(worker.request, "PUT", f"/connectors/{topic}/config", properties)
        async with topic_ends(kafka.bootstrap) as end:
            first = await until_appended(end, topic, 1, 180) - created
        await asyncio.sleep(5)
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=kafka.bootstrap, auto_offset_reset="latest")
        await consumer.start()
        queries = await asyncio.to_thread(metric, worker, "scylla_queries_total")
        cpu, began = cpu_seconds(worker.pid), time.monotonic()
        latencies = []
        while time.monotonic() - began < seconds:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                latencies += [
                    record.timestamp / 1000 - orjson.loads(record.value)["source"]["ts_us"] / 1e6 for record in records
                ]
        took = time.monotonic() - began
        queries = (await asyncio.to_thread(metric, worker, "scylla_queries_total") - queries) / took
        cpu = (cpu_seconds(worker.pid) - cpu) / took
        await consumer.stop()
        stop.set()
        thread.join()
    middle = statistics.quantiles(latencies, n=100)
    print(
        f"{streams:>7} streams at rest: first event after {first:.1f} s, {queries:.1f} queries/s, "
        f"{cpu * 100:.1f} % of a core, latency p50 {middle[49]:.2f} s, p99 {middle[98]:.2f} s ({len(latencies)} changes)",
        flush=True,
    )


async def _run(options: argparse.Namespace, folder: Path) -> None:
    with KafkaCluster(folder / "kafka", port=None) as kafka:
        with scylla(folder / "scylla-512", 512) as (node, client):
            if "throughput" in options.parts:
                table = filled(client, options.rows)
                shapes = [shape.split("x") for shape in options.shapes]
                await throughput(
                    kafka,
                    node,
                    table,
                    options.rows,
                    options.runs,
                    folder,
                    [(int(tasks), int(processes)) for tasks, processes in shapes],
                )
            if "stages" in options.parts or "processes" in options.parts:
                rows = min(options.rows, 100_000)
                recorded = await stages(node, filled(client, rows), rows, options.total)
                if "processes" in options.parts:
                    await asyncio.to_thread(print_scaling, recorded, (1, 2, 3), options.seconds)
            if "volume" in options.parts:
                await _volume(kafka, node, client, options.rows, folder)
            if "flat" in options.parts:
                print("\nflatness, 1 task, 1 process")
                for rows in options.sizes:
                    await _flat(kafka, node, client, 512, rows, folder)
            if "rest" in options.parts:
                print()
                await rest(kafka, node, client, 512, folder, options.seconds)
        for streams in options.streams:
            with scylla(folder / f"scylla-{streams}", streams) as (node, client):
                if "flat" in options.parts:
                    await _flat(kafka, node, client, streams, options.rows, folder)
                if "rest" in options.parts:
                    await rest(kafka, node, client, streams, folder, options.seconds)


async def _flat(
    kafka: KafkaCluster, node: ScyllaEmulation, client: Emulation, streams: int, rows: int, folder: Path
) -> None:
    table = filled(client, rows)
    with MillraceWorker(
        folder / f"flat-{streams}-{rows}", kafka.bootstrap, group=f"flat-{streams}-{rows}", properties=JSON, processes=1
    ) as worker:
        rate, cpu, peak = await _read_all(worker, kafka.bootstrap, config(node.direct, table, 1), rows)
    print(
        f"{rows:>9} rows, {streams:>6} streams: {cpu:.2f} CPU us/row, {rate:.0f} rows/s, peak {peak:.0f} MiB "
        "(start and warm-up included)",
        flush=True,
    )


async def _volume(kafka: KafkaCluster, node: ScyllaEmulation, client: Emulation, rows: int, folder: Path) -> None:
    """One task in one process reads a large log to its end."""
    name = f"bench.t{secrets.token_hex(4)}"
    client.create_table(f"CREATE TABLE {name} {_TABLE}")
    began = time.time()
    await asyncio.to_thread(fill_volume, client, name, rows)
    lookback_ms = int((time.time() - began) * 1000) + 600_000
    properties = config(node.direct, name, 1, **{"scylla.initial.lookback.ms": str(lookback_ms)})
    with MillraceWorker(folder / "volume", kafka.bootstrap, group="volume", properties=JSON, processes=1) as worker:
        await read_volume(kafka, worker, properties, rows, max(2.0, rows / 1_000_000))


def main(argv: list[str]) -> int:
    """Run it; about fifteen minutes with all parts."""
    parser = argparse.ArgumentParser(prog="millrace bench scylla", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--shapes", nargs="*", default=["1x1", "2x2", "4x2", "2x1"], help="tasks x processes, for throughput"
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=[30_000, 300_000, 3_000_000], help="rows, for flatness")
    parser.add_argument("--streams", type=int, nargs="*", default=[73_728], choices=list(LAYOUTS), help="beside 512")
    parser.add_argument("--seconds", type=float, default=30, help="how long to look at a connector at rest")
    parser.add_argument("--total", type=float, help="CPU us/row of the whole worker, to print what the stages leave")
    parser.add_argument(
        "--parts",
        nargs="*",
        default=["throughput", "stages", "flat", "rest"],
        choices=["throughput", "stages", "processes", "volume", "flat", "rest"],
        help="processes: recorded pages in one, two and three processes, without server and Kafka; "
        "volume: a log of --rows rows is read once, with a line every few seconds",
    )
    options = parser.parse_args(argv)
    print(environment())
    print(
        f"reference: the Java connector took {JAVA_US[0]}-{JAVA_US[1]} us CPU per row (measured before, not in this run)"
    )
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        uvloop.run(_run(options, Path(name)))
    return 0
