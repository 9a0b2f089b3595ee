"""Rows/s and CPU per row of whole workers: file lines and ~500-byte records, Kafka Connect and Millrace."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from compose.local.connect import JavaConnect
from compose.local.kafka import KafkaCluster
from compose.local.process.jvm import Heap
from compose.local.worker import MillraceWorker
from tests.bench._common import cpu_seconds, environment, spread, topic_ends, until_appended

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Settings both workers get in the "tuned" variant; "default" gives neither of them any.
TUNED = {
    "producer.linger.ms": "50",
    "producer.batch.size": "1000000",
    "producer.compression.type": "lz4",
    "producer.max.request.size": "4000000",
}
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "header.converter": "org.apache.kafka.connect.storage.StringConverter",
}


def write_lines(path: Path, count: int, size: int) -> None:
    """``count`` different lines of ``size`` characters."""
    filler = "abcdefghijklmnopqrstuvwxyz0123456789 " * (size // 37 + 1)
    with path.open("w", encoding="ascii") as file:
        for start in range(0, count, 10_000):
            file.writelines(
                f"{number:012d} {filler[: size - 13]}\n" for number in range(start, min(start + 10_000, count))
            )


async def measure(
    worker: JavaConnect | MillraceWorker, bootstrap: str, name: str, config: Mapping[str, str], topic: str, count: int
) -> tuple[float, float]:
    """Run one connector until its topic holds ``count`` records: (rows/s, CPU microseconds per row)."""
    async with topic_ends(bootstrap) as end:
        cpu = cpu_seconds(worker.pid)
        start = time.monotonic()
        status, body = await asyncio.to_thread(worker.request, "PUT", f"/connectors/{name}/config", dict(config))
        if status not in {200, 201}:
            raise RuntimeError(f"{name} was refused: {status} {body}")
        done = await until_appended(end, topic, count, 300)
        used = cpu_seconds(worker.pid) - cpu
        await asyncio.to_thread(worker.request, "DELETE", f"/connectors/{name}")
    return count / (done - start), used / count * 1e6


async def _compare(kafka: KafkaCluster, folder: Path, count: int, runs: int) -> None:
    for size, label in ((200, "lines of 200 bytes"), (500, "lines of 500 bytes")):
        source = folder / f"lines-{size}.txt"
        write_lines(source, count, size)
        for variant, tuning in (("default", {}), ("tuned", TUNED)):
            figures: dict[str, list[tuple[float, float]]] = {"Kafka Connect": [], "Millrace": []}
            properties = {**JSON, **tuning, "offset.flush.interval.ms": "10000"}
            group = f"bench-{size}-{variant}"
            with (
                JavaConnect(
                    folder / f"java-{group}",
                    kafka.bootstrap,
                    group=f"java-{group}",
                    properties=properties,
                    heap=Heap(512, 2048),
                ) as java,
                MillraceWorker(
                    folder / f"millrace-{group}", kafka.bootstrap, group=group, properties=properties
                ) as ours,
            ):
                for run in range(runs + 1):  # the first warms both up and is not counted
                    for worker, system in ((java, "Kafka Connect"), (ours, "Millrace")):
                        topic = f"{group}-{run}-{system.split()[0].lower()}"
                        config = {
                            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                            "tasks.max": "1",
                            "file": str(source),
                            "topic": topic,
                        }
                        figure = await measure(worker, kafka.bootstrap, topic, config, topic, count)
                        if run:
                            figures[system].append(figure)
                    if size == 500:
                        topic = f"{group}-{run}-datagen"
                        config = {
                            "connector.class": "datagen",
                            "tasks.max": "1",
                            "topic": topic,
                            "records": str(count),
                            "record.size": "500",
                        }
                        figure = await measure(ours, kafka.bootstrap, topic, config, topic, count)
                        if run:
                            figures.setdefault("Millrace datagen", []).append(figure)
            report(f"{label}, JSON, {variant} producer", figures)


def report(title: str, figures: Mapping[str, list[tuple[float, float]]]) -> None:
    """Print one comparison: the peer first."""
    print(f"\n{title}\n{'':20}{'rows/s':>34}{'CPU us/row':>24}{'CPU ratio to Connect':>24}")
    peer = figures["Kafka Connect"]
    for system, values in figures.items():
        ratios = [mine[1] / theirs[1] for mine, theirs in zip(values, peer, strict=True)]
        print(
            f"{system:20}{spread([value[0] for value in values], 0):>34}{spread([value[1] for value in values]):>24}"
            f"{spread(ratios):>24}"
        )


def main(argv: list[str]) -> int:
    """Run it; about five minutes."""
    parser = argparse.ArgumentParser(prog="millrace bench connect", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(argv)
    print(environment())
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as name,
        KafkaCluster(Path(name) / "kafka", port=None) as kafka,
    ):
        asyncio.run(_compare(kafka, Path(name), options.rows, options.runs))
    return 0
