"""CPU per record of the file and datagen tasks alone: from the source to records in batches, nothing after."""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.datagen.connector import DatagenConnector
from connectors.file.connector import FileStreamSourceConnector
from connectors.testing import Run
from tests.bench._common import environment, spread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.api import SourceConnector


async def _measure(connector: type[SourceConnector], config: Mapping[str, str], count: int) -> tuple[float, float]:
    """Records/s and CPU microseconds per record of the whole process, threads included."""
    async with Run(connector, config) as run:
        (task,) = run.tasks
        cpu, clock = time.process_time(), time.perf_counter()
        done = 0
        async for batch in task.batches():
            done += len(batch.records)
            if done >= count:
                break
        used = time.process_time() - cpu
        return done / (time.perf_counter() - clock), used / done * 1e6


def write_lines(path: Path, count: int, size: int, text: str) -> None:
    """``count`` lines of about ``size`` characters."""
    filler = text * (size // len(text) + 1)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{number:012d} {filler[: size - 13]}\n" for number in range(count))


def main(argv: list[str]) -> int:
    """Run it; under a minute."""
    parser = argparse.ArgumentParser(prog="millrace bench connector_read", description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(argv)
    print(environment())
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        cases: dict[str, tuple[type[SourceConnector], dict[str, str]]] = {}
        for size, text, label in (
            (200, "abcdefghijklmnop ", "ASCII"),
            (500, "abcdefghijklmnop ", "ASCII"),
            (200, "abcdefghijklmnö ", "UTF-8"),
        ):
            path = Path(name) / f"{label}-{size}.txt"
            write_lines(path, options.rows, size, text)
            base = {"file": str(path), "topic": "lines"}
            cases[f"file, {size} characters, {label}"] = (FileStreamSourceConnector, base)
            if size == 200 and label == "ASCII":
                cases[f"file, {size} characters, {label}, tracking"] = (
                    FileStreamSourceConnector,
                    {**base, "rotation.tracking": "true"},
                )
        for extra in ({}, {"envelope": "debezium"}, {"schema": "users"}):
            label = ", ".join(["datagen", "500 bytes", *extra.values()])
            cases[label] = (
                DatagenConnector,
                {"topic": "rows", "records": str(options.rows), "record.size": "500", **extra},
            )
        for label, (connector, config) in cases.items():
            figures = []
            for _ in range(options.runs + 1):  # the first warms up and is not counted
                gc.collect()
                figures.append(asyncio.run(_measure(connector, config, options.rows)))
            rates, costs = zip(*figures[1:], strict=True)
            print(f"{label:44}{spread(rates, 0):>30} records/s{spread(costs, 3):>24} CPU us/record")
    return 0
