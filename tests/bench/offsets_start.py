"""Start with a large offsets topic: 73,728 keys (a large Scylla cluster's streams), each written 20 times, uncompacted and
compacted; the time and CPU to read it, compared with Kafka Connect's worker on the same topic.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
import zlib
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import uvloop
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from compose.local.connect import JavaConnect
from compose.local.kafka import KafkaCluster
from compose.local.process.jvm import Heap
from compose.local.worker import MillraceWorker
from offsets.log import CompactedLog
from offsets.store import OffsetStore
from tests.bench._common import cpu_seconds, environment, spread
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offsets.fetch import FetchedRecord

_PARTITIONS = 25
_CONNECTOR = "scylla-orders"
_LOG_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}")


def keys(count: int) -> list[bytes]:
    """Offset keys as a Scylla connector has them, one per stream."""
    return [
        orjson.dumps(
            [
                _CONNECTOR,
                {
                    "keyspace_name": "ks",
                    "table_name": "orders",
                    "generation_start": 1718000000000,
                    "stream": f"{zlib.crc32(b'%d' % number):032x}",
                },
            ]
        )
        for number in range(count)
    ]


async def fill(bootstrap: str, topic: str, count: int, versions: int, settings: dict[str, str]) -> None:
    """Write every key ``versions`` times, in turns, as flushes do."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics(
        [NewTopic(topic, _PARTITIONS, 1, topic_configs={"cleanup.policy": "compact", **settings})]
    )
    await admin.close()
    shares: list[list[bytes]] = [[] for _ in range(_PARTITIONS)]
    for key in keys(count):
        shares[zlib.crc32(key) % _PARTITIONS].append(key)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, max_batch_size=1 << 17
    )
    await producer.start()
    for version in range(versions):
        value = orjson.dumps(
            {
                "window_start": f"2c3c1a50-0000-11ef-0000-{version:012x}",
                "window_end": f"2c3c1a50-0000-11ef-ffff-{version:012x}",
                "change_id": version,
            }
        )
        for partition, share in enumerate(shares):
            batch = producer.create_batch()
            sent = []
            for key in share:
                if batch.append(key=key, value=value, timestamp=None) is None:
                    sent.append(await producer.send_batch(batch, topic, partition=partition))
                    batch = producer.create_batch()
                    batch.append(key=key, value=value, timestamp=None)
            sent.append(await producer.send_batch(batch, topic, partition=partition))
            await asyncio.gather(*sent)
    await producer.stop()


async def compact(bootstrap: str, topic: str, count: int, deadline_s: float = 120.0) -> int:
    """Wait for the broker to compact; returns how many records are left."""
    end = time.monotonic() + deadline_s
    while True:
        left = 0

        def sink(partition: int, records: Iterable[FetchedRecord]) -> None:
            del partition
            nonlocal left
            left += sum(1 for _ in records)

        log = CompactedLog(topic, {"bootstrap_servers": bootstrap}, sink)
        await log.start(60)
        # a write to each partition rolls its segment; only closed ones are compacted
        await log.send_all([(b'["roll",{"n":%d}]' % number, b"{}") for number in range(_PARTITIONS * 20)])
        await log.stop()
        if left < 1.1 * count or time.monotonic() > end:
            return left
        await asyncio.sleep(0.5)


async def read(bootstrap: str, topic: str) -> dict[str, float]:
    """Read the topic to its end as a worker does at its start; seconds of reading, and CPU seconds of the process so far."""
    store = OffsetStore(topic, {"bootstrap_servers": bootstrap})
    began = time.perf_counter()
    await store.start()
    took = time.perf_counter() - began
    used = time.process_time()
    key_count = len(store.raw(_CONNECTOR))
    await store.stop()
    return {"read_s": took, "cpu_s": used, "keys": key_count}


def started(worker: JavaConnect | MillraceWorker) -> dict[str, float]:
    """Start a whole worker on the topic; seconds until it is ready, and CPU seconds of its processes until then."""
    began = time.perf_counter()
    worker.start()
    return {"start_s": time.perf_counter() - began, "cpu_s": cpu_seconds(worker.pid)}


def java(folder: Path, bootstrap: str, group: str) -> dict[str, float]:
    """Start Kafka Connect; as ``started``, and the seconds between its own log lines about reading the topic."""
    worker = JavaConnect(
        folder,
        bootstrap=bootstrap,
        group=group,
        heap=Heap(512, 2048),
        properties={"offset.storage.partitions": str(_PARTITIONS)},
    )
    try:
        figures = started(worker)
        moments: dict[str, datetime] = {}
        for line in (folder / "connect.log").read_text(errors="replace").splitlines():
            stamp = _LOG_TIME.search(line)
            for phrase in ("Starting KafkaBasedLog with topic", "Finished reading KafkaBasedLog for topic"):
                if stamp and f"{phrase} {group}-offsets" in line:
                    moments[phrase.split()[0]] = datetime.strptime(stamp[0], "%Y-%m-%dT%H:%M:%S,%f")  # noqa: DTZ007
        return {"read_s": (moments["Finished"] - moments["Starting"]).total_seconds(), **figures}
    finally:
        worker.kill()


def millrace(folder: Path, bootstrap: str, group: str) -> dict[str, float]:
    """Start a Millrace worker; as ``started``."""
    worker = MillraceWorker(folder, bootstrap=bootstrap, group=group, processes=1)
    try:
        return started(worker)
    finally:
        worker.kill()


def row(label: str, runs: list[dict[str, float]]) -> str:
    """One line of the result."""
    names = {"read_s": "s to read", "start_s": "s until ready", "cpu_s": "CPU s"}
    return f"  {label:26}" + "".join(
        f"{spread([run[figure] for run in runs]):>22} {text}" for figure, text in names.items() if figure in runs[0]
    )


def best(runs: list[dict[str, float]], figure: str) -> float:
    """The smallest figure."""
    return min(run[figure] for run in runs)


def main(argv: list[str]) -> int:
    """Run it; about three minutes."""
    parser = argparse.ArgumentParser(prog="millrace bench offsets-start", description=__doc__)
    parser.add_argument("--keys", type=int, default=73_728)
    parser.add_argument("--versions", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-java", action="store_true", help="leave Kafka Connect out")
    parser.add_argument("--child", nargs=2, metavar=("BOOTSTRAP", "TOPIC"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        print(json.dumps(uvloop.run(read(*options.child))))
        return 0
    print(environment())
    quick = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as name,
        KafkaCluster(Path(name) / "kafka", port=None, properties={"log.cleaner.backoff.ms": "200"}) as kafka,
    ):
        bootstrap = kafka.bootstrap
        for group, settings in (("uncompacted", {}), ("compacted", quick)):
            topic = f"{group}-offsets"
            asyncio.run(fill(bootstrap, topic, options.keys, options.versions, settings))
            records = options.keys * options.versions
            if settings:
                records = asyncio.run(compact(bootstrap, topic, options.keys))
            ours = [
                json.loads(
                    subprocess.run(
                        [sys.executable, "-m", "tests.bench.offsets_start", "--child", bootstrap, topic],
                        check=True,
                        capture_output=True,
                        text=True,
                    ).stdout
                )
                for _ in range(options.runs)
            ]
            assert all(run["keys"] == options.keys for run in ours), ours
            label = f"{group}, {records:,} records of {options.keys:,} keys"
            print(f"{label}\n{row('offset store alone', ours)}")
            workers = [
                millrace(Path(name) / f"{group}-m{run}", bootstrap, group) for run in range(max(1, options.runs // 2))
            ]
            print(row("Millrace worker, 1 host", workers))
            if options.no_java:
                continue
            try:
                theirs = [
                    java(Path(name) / f"{group}-{run}", bootstrap, group) for run in range(max(1, options.runs // 2))
                ]
            except StackError as error:
                print(f"  Kafka Connect  not measured: {error}")
                continue
            print(row("Kafka Connect worker", theirs))
            print(
                "  ratio of the best runs to Kafka Connect's: "
                f"{best(ours, 'read_s') / best(theirs, 'read_s'):.2f} of the time to read, "
                f"{best(workers, 'start_s') / best(theirs, 'start_s'):.2f} until ready, "
                f"{best(workers, 'cpu_s') / best(theirs, 'cpu_s'):.2f} of its CPU"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
