"""Time from POST to the 201 and to RUNNING, Kafka Connect and Millrace."""

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


def measure(worker: JavaConnect | MillraceWorker, source: Path, name: str) -> tuple[float, float]:
    """Create one connector and delete it: seconds to the answer, seconds until its task runs."""
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": "create-latency",
    }
    start = time.monotonic()
    status, body = worker.request("POST", "/connectors", {"name": name, "config": config})
    answered = time.monotonic() - start
    if status != 201:
        raise RuntimeError(f"{name} was refused: {status} {body}")

    def running() -> bool:
        code, answer = worker.request("GET", f"/connectors/{name}/status")
        return code == 200 and [task["state"] for task in answer["tasks"]] == ["RUNNING"]

    if not wait_until(running, 60, 0.005):
        raise RuntimeError(f"{name} does not run: {worker.request('GET', f'/connectors/{name}/status')}")
    total = time.monotonic() - start
    worker.request("DELETE", f"/connectors/{name}")
    return answered, total


def main(argv: list[str]) -> int:
    """Run it; about half a minute."""
    parser = argparse.ArgumentParser(prog="millrace bench create-latency", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args(argv)
    print(environment())
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as name,
        KafkaCluster(Path(name) / "kafka", port=None) as kafka,
    ):
        folder = Path(name)
        source = folder / "lines.txt"
        source.write_text("one\n", encoding="ascii")
        with (
            JavaConnect(folder / "java", kafka.bootstrap, group="java-create") as java,
            MillraceWorker(folder / "ours", kafka.bootstrap, group="create") as ours,
        ):
            figures: dict[str, list[tuple[float, float]]] = {"Kafka Connect": [], "Millrace": []}
            for run in range(options.runs + 2):  # two to warm up
                for worker, system in ((java, "Kafka Connect"), (ours, "Millrace")):
                    figure = measure(worker, source, f"create-{run}")
                    if run >= 2:
                        figures[system].append(figure)
    for system, values in figures.items():
        print(
            f"{system:16} 201 after {spread([value[0] * 1000 for value in values], 0)} ms, "
            f"running after {spread([value[1] * 1000 for value in values], 0)} ms"
        )
    return 0
