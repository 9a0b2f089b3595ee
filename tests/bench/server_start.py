"""Time until the local stack's servers answer, as `./millrace up` starts them; Kafka also with the tests' JVM options."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from compose.local.kafka import KafkaCluster
from compose.local.registry import SchemaRegistry
from tests.bench._common import environment, spread
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable


def _registry(folder: Path) -> SchemaRegistry:
    registry = SchemaRegistry(folder, port=None)
    _ = registry.service  # fetches it
    return registry


def _kafka(folder: Path, options: tuple[str, ...]) -> KafkaCluster:
    kafka = KafkaCluster(folder, port=None, jvm_options=options)
    kafka.prepare()
    return kafka


_SERVERS: dict[str, Callable[[Path], KafkaCluster | SchemaRegistry]] = {
    "Kafka": lambda folder: _kafka(folder, ()),
    "Kafka, options of the tests": lambda folder: _kafka(folder, FAST_START),
    "schema registry": _registry,
}


def main(argv: list[str]) -> int:
    """Run it; about a minute and a half."""
    parser = argparse.ArgumentParser(prog="millrace bench server-start", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(argv)
    print(environment())
    figures: dict[str, list[float]] = {name: [] for name in _SERVERS}
    for run in range(options.runs + 1):  # the first fills the disk's cache
        for name, make in _SERVERS.items():
            with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
                server = make(Path(folder))
                began = time.monotonic()
                with server:
                    if run:
                        figures[name].append(time.monotonic() - began)
    for name, values in figures.items():
        print(f"{name:28} ready after {spread(values, 1)} s")
    return 0
