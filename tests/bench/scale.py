"""Many connectors and tasks on a small cluster: creation, memory, REST, placement, a lost worker, a rolling restart."""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import re
import statistics
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from compose.local.kafka import KafkaCluster
from compose.local.process.jvm import Heap
from compose.local.process.service import wait_until
from compose.local.worker import MillraceWorker
from connectors.datagen.generator import identify
from tests.bench._common import cpu_seconds, environment, resident_bytes
from worker.control.placement.planning import ANYWHERE, Unit, Worker, place_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_DEADLINE_S = 1800.0
_TOPIC = "scale"
_STARTED = re.compile(r"Read the cluster's state and started \d+ task hosts in ([\d.]+) s: (\d+) connectors")


def config(tasks: int, rate: float, seed: int) -> dict[str, str]:
    """A connector whose every task gives ``rate`` records a second."""
    return {
        "connector.class": "connectors.datagen.connector.DatagenConnector",
        "tasks.max": str(tasks),
        "topic": _TOPIC,
        "partitions": str(tasks),
        "rate": str(rate),
        "seed": str(seed),
        "keys": "10",
    }


def timed(call: Callable[[], Any]) -> float:
    """Milliseconds that ``call`` takes."""
    begin = time.monotonic()
    call()
    return (time.monotonic() - begin) * 1000


def cpu_text(before: collections.Counter[str], after: collections.Counter[str]) -> str:
    """The CPU seconds between two looks at ``Cluster.cpu``."""
    return "CPU: " + ", ".join(f"{name} {after[name] - before[name]:.0f} s" for name in after)


def percentiles(values: Iterable[float]) -> str:
    """``median, 99th, max`` in ms."""
    ordered = sorted(values)
    return (
        f"p50 {statistics.median(ordered):.1f}, p99 {ordered[int(len(ordered) * 0.99)]:.1f}, max {ordered[-1]:.1f} ms"
    )


class Cluster:
    """The workers and what is asked of them."""

    def __init__(
        self, folder: Path, kafka: KafkaCluster, count: int, processes: int, properties: dict[str, str]
    ) -> None:
        self._brokers = [broker.service.pid for broker in kafka.brokers]
        self.workers = [
            MillraceWorker(
                folder / f"w{number}",
                kafka.bootstrap,
                group="scale",
                processes=processes,
                properties=properties,
                start_timeout=300,
            )
            for number in range(count)
        ]
        self.asked = 0
        #: Answers that asked for a retry.
        self.busy = 0

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Ask any running worker, again while it is busy, as clients do.

        Raises:
            RuntimeError: it refused.
        """
        deadline = time.monotonic() + 60
        while True:
            self.asked += 1
            alive = [worker for worker in self.workers if worker.running]
            status, answer = alive[self.asked % len(alive)].request(method, path, body, timeout=300)
            if status < 300:
                return answer
            if status not in {409, 503} or time.monotonic() > deadline:
                raise RuntimeError(f"{method} {path}: {status} {answer}")
            self.busy += 1
            time.sleep(0.5)

    def states(self) -> collections.Counter[str]:
        """How many tasks are in each state."""
        answer = self.request("GET", "/connectors?expand=status")
        return collections.Counter(task["state"] for item in answer.values() for task in item["status"]["tasks"])

    def wait_running(self, tasks: int, without: str = "") -> float:
        """Seconds until all tasks run, none on the worker ``without``.

        Raises:
            RuntimeError: not within the deadline; with the states.
        """
        begin = time.monotonic()

        def settled() -> bool:
            try:
                answer = self.request("GET", "/connectors?expand=status")
            except (RuntimeError, OSError):
                return False
            reported_tasks: list[dict[str, str]] = [
                task for item in answer.values() for task in item["status"]["tasks"]
            ]
            return tasks == sum(task["state"] == "RUNNING" and task["worker_id"] != without for task in reported_tasks)

        if not wait_until(settled, _DEADLINE_S, 1):
            raise RuntimeError(f"not all tasks run: {self.states()}")
        return time.monotonic() - begin

    def cpu(self) -> collections.Counter[str]:
        """CPU seconds so far of the brokers, and of the living workers' control processes and task hosts."""
        pids = [worker.pid for worker in self.workers if worker.running]
        control = sum(cpu_seconds(pid, descendants=False) for pid in pids)
        return collections.Counter(
            {
                "brokers": sum(map(cpu_seconds, self._brokers)),
                "control processes": control,
                "task hosts": sum(map(cpu_seconds, pids)) - control,
            }
        )

    def memory(self) -> float:
        """Resident MiB of all processes."""
        return sum(resident_bytes(worker.pid) for worker in self.workers if worker.running) / 2**20


async def read_all(bootstrap: str) -> tuple[int, list[str], list[str]]:
    """Records, and which are repeated and lost, of those committed: sequences per connector and source partition have no gap.

    Reads to the present end. What a source partition gave last is not known here, so only gaps count as lost.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_bytes=64 << 20,
        max_partition_fetch_bytes=8 << 20,
    )
    await consumer.start()
    seen: dict[tuple[int, int], collections.Counter[int]] = collections.defaultdict(collections.Counter)
    try:
        metadata = await consumer._client.fetch_all_metadata()
        parts = [TopicPartition(_TOPIC, number) for number in metadata.partitions_for_topic(_TOPIC) or ()]
        consumer.assign(parts)
        await consumer.seek_to_beginning(*parts)
        ends = await consumer.end_offsets(parts)
        while any([await consumer.position(part) < ends[part] for part in parts]):
            for batch in (await consumer.getmany(timeout_ms=1000)).values():
                for record in batch:
                    value = json.loads(record.value)
                    connector = value.pop("from_connector")
                    partition, number = identify(value)
                    seen[int(connector), partition][number] += 1
    finally:
        await consumer.stop()
    repeated = [
        f"c{connector}-{partition}:{number}"
        for (connector, partition), numbers in sorted(seen.items())
        for number, count in sorted(numbers.items())
        for _ in range(count - 1)
    ]
    lost = [
        f"c{connector}-{partition}:{number}"
        for (connector, partition), numbers in sorted(seen.items())
        for number in sorted(set(range(max(numbers))) - set(numbers))
    ]
    return sum(map(len, seen.values())), repeated, lost


def main(argv: list[str]) -> int:
    """Run it; up to half an hour."""
    parser = argparse.ArgumentParser(prog="millrace bench scale", description=__doc__)
    parser.add_argument("--connectors", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=10, help="of each connector")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="task hosts of each worker")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.02, help="records a second of each task")
    parser.add_argument("--at-least-once", action="store_true", help="without exactly.once.source.support")
    parser.add_argument("--commit-ms", type=int, default=60_000, help="transaction and offset commit interval")
    options = parser.parse_args(argv)
    print(environment())
    tasks = options.connectors * options.tasks
    properties = {
        "offset.flush.interval.ms": str(options.commit_ms),
        "producer.linger.ms": "0",
        "exactly.once.source.support": "disabled" if options.at_least_once else "enabled",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as name,
        KafkaCluster(Path(name) / "kafka", count=options.brokers, port=None, heap=Heap(256, 1536)) as kafka,
    ):
        cluster = Cluster(Path(name), kafka, options.workers, options.processes, properties)
        try:
            for worker in cluster.workers:
                worker.start()
            empty = cluster.memory()
            print(f"{options.workers} workers of {options.processes} task hosts: {empty:.0f} MiB without connectors")
            run(cluster, kafka.bootstrap, tasks, options, empty)
        finally:
            for worker in cluster.workers:
                if worker.running:
                    worker.kill()
    return 0


def run(cluster: Cluster, bootstrap: str, tasks: int, options: argparse.Namespace, empty: float) -> None:
    """All measurements, in order."""
    begin = time.monotonic()
    cpu = cluster.cpu()
    with ThreadPoolExecutor(4) as pool:
        creation_seconds = list(
            pool.map(
                lambda number: timed(
                    lambda: cluster.request(
                        "PUT",
                        f"/connectors/c{number}/config",
                        {
                            **config(options.tasks, options.rate, number),
                            "transaction.boundary": "interval",
                            "transaction.boundary.interval.ms": str(options.commit_ms),
                            "transforms": "who",
                            "transforms.who.type": "org.apache.kafka.connect.transforms.InsertField$Value",
                            "transforms.who.static.field": "from_connector",
                            "transforms.who.static.value": str(number),
                        },
                    )
                ),
                range(options.connectors),
            )
        )
    print(
        f"{options.connectors} connectors created in {time.monotonic() - begin:.1f} s by 4 clients: "
        f"{percentiles(creation_seconds)}; {cluster.busy} answers asked for a retry"
    )
    print(
        f"all {tasks} tasks run {cluster.wait_running(tasks):.1f} s after the last was created; "
        f"{cpu_text(cpu, cluster.cpu())}"
    )
    settle = time.monotonic()
    time.sleep(20)  # let it come to rest: what follows is a measurement
    before = [cpu_seconds(worker.pid) for worker in cluster.workers]
    time.sleep(30)
    spent = sum(cpu_seconds(worker.pid) - was for worker, was in zip(cluster.workers, before, strict=True)) / 30
    full = cluster.memory()
    print(
        f"memory {full:.0f} MiB: {(full - empty) * 1024 / tasks:.0f} KiB a task; CPU at this trickle {spent * 100:.0f} % of "
        f"a core ({time.monotonic() - settle:.0f} s after the start)"
    )
    for path, count in (
        ("/connectors", 50),
        ("/connectors/c1/status", 200),
        ("/connectors/c1", 200),
        ("/health", 200),
        ("/connectors?expand=status&expand=info", 10),
        ("/metrics", 5),
    ):
        print(f"GET {path}: " + percentiles(timed(partial(fetch, cluster, path)) for _ in range(count)))
    changed = [
        timed(
            partial(
                cluster.request,
                "PUT",
                f"/connectors/c{number}/config",
                {**cluster.request("GET", f"/connectors/c{number}/config"), "keys": "11"},
            )
        )
        for number in range(5)
    ]
    restart_seconds = cluster.wait_running(tasks)
    print(f"PUT of a changed configuration: {percentiles(changed)}; all tasks run again after {restart_seconds:.1f} s")
    placement(options.workers, options.connectors, options.tasks)
    victim = cluster.workers[-1]
    identity = victim.worker_id
    victim.kill()
    cpu = cluster.cpu()
    print(
        f"kill -9 of a worker with a {1 / len(cluster.workers):.0%} share: all tasks run elsewhere after "
        f"{cluster.wait_running(tasks, identity):.1f} s; {cpu_text(cpu, cluster.cpu())}"
    )
    victim.start()
    lines = _STARTED.findall(victim.service.log_path.read_text(encoding="utf-8"))
    print(f"a worker that starts reads the config topic and is ready for {lines[-1][1]} connectors in {lines[-1][0]} s")
    cluster.wait_running(tasks)
    begin = time.monotonic()
    for worker in cluster.workers:
        worker.stop()
        worker.start()
        cluster.wait_running(tasks)
    print(f"rolling restart of {len(cluster.workers)} workers, each waited for: {time.monotonic() - begin:.1f} s")
    for number in range(options.connectors):
        cluster.request("PUT", f"/connectors/c{number}/stop")
    wait_until(lambda: not cluster.states(), 300, 1)
    records, repeated, lost = asyncio.run(read_all(bootstrap))
    print(
        f"{records} records of {tasks} partitions: {len(repeated)} repeated {repeated[:9]}, {len(lost)} lost {lost[:9]}"
        + ("" if options.at_least_once else " (exactly once, through the kill and the rolling restart)")
    )


def fetch(cluster: Cluster, path: str) -> None:
    """GET whatever it answers."""
    cluster.asked += 1
    worker = cluster.workers[cluster.asked % len(cluster.workers)]
    with urllib.request.urlopen(worker.url + path, timeout=300) as answer:  # noqa: S310 - a worker's address
        answer.read()


def placement(workers: int, connectors: int, tasks: int) -> None:
    """Print how long the leader's decision takes: the pure function over as many units, then without one of the workers."""
    units = {Unit(f"c{number}", task): ANYWHERE for number in range(connectors) for task in range(-1, tasks)}
    alive = {f"w{number}:8083": Worker() for number in range(workers)}
    begin = time.process_time()
    first = place_units(units, alive, {}, rebalance=False)
    middle = time.process_time()
    del alive[f"w{workers - 1}:8083"]
    place_units(units, alive, first.assigned, rebalance=True)
    print(
        f"placement of {len(units)} units: {(middle - begin) * 1000:.0f} ms from nothing, "
        f"{(time.process_time() - middle) * 1000:.0f} ms after the loss of a worker"
    )
