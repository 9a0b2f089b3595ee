"""Cost of many connectors with one task each on two workers: memory, idle CPU, REST latency; Kafka Connect and Millrace."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compose.local.connect import JavaConnect
from compose.local.kafka import KafkaCluster
from compose.local.process.jvm import Heap
from compose.local.process.service import wait_until
from compose.local.worker import MillraceWorker
from tests.bench._common import cpu_seconds, environment, resident_bytes


def measure(system: str, workers: list[JavaConnect] | list[MillraceWorker], source: Path, count: int) -> None:
    """Create ``count`` connectors, wait until all run, and print what they cost at rest."""
    first = workers[0]

    def create(number: int) -> None:
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(source),
            "topic": "thousand",
        }
        deadline = time.monotonic() + 300
        while True:
            status, body = first.request("PUT", f"/connectors/c{number}/config", config, timeout=120)
            if status in {200, 201}:
                return
            if status != 409 or time.monotonic() > deadline:
                raise RuntimeError(f"c{number} was refused: {status} {body}")
            time.sleep(0.1)

    start = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, range(count)))
    created = time.monotonic() - start

    def states() -> list[str]:
        status, body = first.request("GET", "/connectors?expand=status", timeout=120)
        return [task["state"] for item in body.values() for task in item["status"]["tasks"]] if status == 200 else []

    if not wait_until(lambda: states().count("RUNNING") == count, 600, 0.5):
        task_states = states()
        raise RuntimeError(f"{system}: {task_states.count('RUNNING')} of {count} tasks run; states {set(task_states)}")
    running = time.monotonic() - start
    time.sleep(5)  # let it come to rest: what follows is a measurement
    cpu = [cpu_seconds(worker.pid) for worker in workers]
    begin = time.monotonic()
    time.sleep(20)
    spent = sum(cpu_seconds(worker.pid) - before for worker, before in zip(workers, cpu, strict=True))
    idle = spent / (time.monotonic() - begin)
    memory = sum(resident_bytes(worker.pid) for worker in workers) / 2**20
    latencies: dict[str, list[float]] = {}
    for path in ("/connectors", "/connectors?expand=status&expand=info", "/connectors/c1/status"):
        for _ in range(10):
            begin = time.monotonic()
            first.request("GET", path, timeout=120)
            latencies.setdefault(path, []).append((time.monotonic() - begin) * 1000)
    print(
        f"{system:14} created in {created:.1f} s, all running after {running:.1f} s; "
        f"memory {memory:.0f} MiB; idle CPU {idle * 100:.1f} % of a core"
    )
    for path, values in latencies.items():
        print(f"{'':14} GET {path}: median {statistics.median(values):.1f} ms, max {max(values):.1f} ms")


def main(argv: list[str]) -> int:
    """Run it; a few minutes."""
    parser = argparse.ArgumentParser(prog="millrace bench thousand-connectors", description=__doc__)
    parser.add_argument("--connectors", type=int, default=1000)
    parser.add_argument("--no-peer", action="store_true", help="leave Kafka Connect out")
    options = parser.parse_args(argv)
    print(environment())
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as name,
        KafkaCluster(Path(name) / "kafka", port=None) as kafka,
    ):
        folder = Path(name)
        source = folder / "lines.txt"
        source.write_text("one\n", encoding="ascii")
        ours = [MillraceWorker(folder / f"ours-{number}", kafka.bootstrap, group="thousand") for number in (0, 1)]
        try:
            measure("Millrace", [worker.start() for worker in ours], source, options.connectors)
        finally:
            for worker in ours:
                worker.stop()
        if not options.no_peer:
            java = [
                JavaConnect(folder / f"java-{number}", kafka.bootstrap, group="java-thousand", heap=Heap(512, 3072))
                for number in (0, 1)
            ]
            try:
                measure("Kafka Connect", [worker.start() for worker in java], source, options.connectors)
            finally:
                for peer in java:
                    peer.stop(5)
    return 0
