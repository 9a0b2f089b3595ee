"""Seconds until a lost worker's tasks run again elsewhere, Kafka Connect and Millrace."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from compose.local.connect import JavaConnect
from compose.local.kafka import KafkaCluster
from compose.local.process.service import wait_until
from compose.local.worker import MillraceWorker
from tests.bench._common import environment, spread

CONNECTORS = 4


def measure(workers: list[JavaConnect] | list[MillraceWorker], source: Path, label: str) -> float:
    """Start connectors over all workers, kill the last worker, and time until all tasks run on the others."""
    first, victim = workers[0], workers[-1]
    for number in range(CONNECTORS):
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(source),
            "topic": f"{label}-{number}",
        }
        status, body = first.request("PUT", f"/connectors/{label}-{number}/config", config)
        if status not in {200, 201}:
            raise RuntimeError(f"{label}-{number} was refused: {status} {body}")
    victim_id = victim.url.removeprefix("http://")

    def placed() -> list[tuple[str, str]]:
        status, body = first.request("GET", "/connectors?expand=status")
        if status != 200:
            return []
        return [(task["state"], task["worker_id"]) for item in body.values() for task in item["status"]["tasks"]]

    def settled() -> bool:
        tasks = placed()
        return (
            len(tasks) == CONNECTORS
            and all(state == "RUNNING" for state, _ in tasks)
            and any(worker == victim_id for _, worker in tasks)
        )

    if not wait_until(settled, 60):
        raise RuntimeError(f"no steady state to start from: {placed()}")
    victim.kill()
    start = time.monotonic()

    def moved() -> bool:
        tasks = placed()
        return len(tasks) == CONNECTORS and all(state == "RUNNING" and worker != victim_id for state, worker in tasks)

    if not wait_until(moved, 400, 0.05):
        raise RuntimeError(f"tasks did not move: {placed()}")
    return time.monotonic() - start


def main(argv: list[str]) -> int:
    """Run it; about two minutes."""
    parser = argparse.ArgumentParser(prog="millrace bench failover", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true", help="leave Kafka Connect out")
    parser.add_argument(
        "--connect-default",
        action="store_true",
        help="also run Kafka Connect with its default five-minute delay (one run)",
    )
    options = parser.parse_args(argv)
    print(environment())
    ours: list[float] = []
    by_session: list[float] = []
    theirs: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as name,
        KafkaCluster(Path(name) / "kafka", port=None) as kafka,
    ):
        folder = Path(name)
        source = folder / "lines.txt"
        source.write_text("one\ntwo\n", encoding="ascii")

        def java(label: str, properties: dict[str, str]) -> float:
            workers = [
                JavaConnect(folder / f"{label}-{number}", kafka.bootstrap, group=label, properties=properties)
                for number in (0, 1)
            ]
            try:
                return measure([worker.start() for worker in workers], source, label)
            finally:
                for worker in workers:
                    worker.stop(5)

        def millrace(label: str, properties: dict[str, str]) -> float:
            workers = [
                MillraceWorker(
                    folder / f"{label}-{number}", kafka.bootstrap, group=label, processes=1, properties=properties
                )
                for number in (0, 1)
            ]
            try:
                return measure([worker.start() for worker in workers], source, label)
            finally:
                for worker in workers:
                    worker.stop()

        for run in range(options.runs):
            ours.append(millrace(f"failover-{run}", {}))
            by_session.append(millrace(f"session-{run}", {"takeover.on.refused.connections": "false"}))
            if not options.no_peer:
                theirs.append(java(f"java-failover-{run}", {"scheduled.rebalance.max.delay.ms": "0"}))
        print(f"Millrace, default settings:                          {spread(ours, 1)} s")
        print(f"Millrace, takeover.on.refused.connections=false:     {spread(by_session, 1)} s")
        if theirs:
            print(f"Kafka Connect, scheduled.rebalance.max.delay.ms=0:   {spread(theirs, 1)} s")
        if options.connect_default:
            print(f"Kafka Connect, default settings:                     {java('java-failover-default', {}):.1f} s")
    return 0
