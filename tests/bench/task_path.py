"""The whole path of one task in one process: source -> converter -> Kafka -> offsets; CPU per row, and where it goes."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import math
import secrets
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from compose.local.kafka import KafkaCluster
from offsets.topics import ensure_internal_topic, internal_topic
from tests.bench._common import environment, spread
from worker.host.delivery.session import TaskSession
from worker.host.host import TaskHost
from worker.protocol import (
    ConnectorStateChanged,
    HostTaskId,
    Init,
    ReadLease,
    StartConnector,
    StartTask,
    Stats,
    StopTask,
    TaskConfigs,
    TaskStateChanged,
)

if TYPE_CHECKING:
    from worker.protocol import HostMessage, TaskStats

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_STRING = "org.apache.kafka.connect.storage.StringConverter"


class Control:
    """The other side of the host: nothing was saved before, and numbers are kept."""

    def __init__(self) -> None:
        self.stats: TaskStats | None = None
        self.failure: str | None = None
        self.task_config: dict[str, str] | None = None

    def check(self) -> None:
        """End the program if something failed."""
        if self.failure is not None:
            raise SystemExit(self.failure)

    async def request(self, message: HostMessage, deadline_s: float) -> Any:
        """Answer what a host asks."""
        del deadline_s
        return math.inf if isinstance(message, ReadLease) else []

    def event(self, message: HostMessage) -> None:
        """Remember the latest numbers, and a failure."""
        if isinstance(message, Stats):
            self.stats = message.tasks[0] if message.tasks else self.stats
        elif isinstance(message, TaskStateChanged | ConnectorStateChanged) and message.state == "FAILED":
            self.failure = message.trace
        elif isinstance(message, TaskConfigs):
            (self.task_config,) = message.configs


def task_config(source: str, topic: str, rows: int, size: int, folder: Path) -> dict[str, str]:
    """The task's properties; makes the file to be read."""
    if source == "datagen":
        return {"connector.class": "datagen", "topic": topic, "records": str(rows), "record.size": str(size)}
    path = folder / f"{rows}-{size}.txt"
    if not path.exists():
        line = "x" * (size - 8)
        with path.open("w", encoding="ascii") as file:
            file.writelines(f"{number:08d}{line}\n" for number in range(rows))
    return {"connector.class": "FileStreamSource", "file": str(path), "topic": topic}


async def run(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """One run; returns figures by name, times in microseconds per row."""
    name = f"bench-{secrets.token_hex(4)}"
    properties = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": name,
        "offset.storage.topic": f"offsets-{name}",
        "offset.flush.interval.ms": "1000",
        "key.converter": _STRING,
        "value.converter": _STRING if arguments.converter == "string" else _JSON,
        "value.converter.schemas.enable": "true" if arguments.converter == "json-schema" else "false",
        **dict(item.split("=", 1) for item in arguments.worker or ()),
    }
    await ensure_internal_topic(
        {"bootstrap_servers": arguments.bootstrap},
        internal_topic(
            "offset", properties, name=properties["offset.storage.topic"], partitions=1, replication_factor=1
        ),
    )
    control = Control()
    host = TaskHost(control)
    await host.handle(Init("bench:0", 0, properties, {}, "bench"))
    task = HostTaskId(name, 0)
    config = {
        "name": name,
        **task_config(arguments.source, name, arguments.rows, arguments.bytes, folder),
        **dict(item.split("=", 1) for item in arguments.option or ()),
    }
    await host.handle(StartConnector(name, config, 1))
    while control.task_config is None:
        await asyncio.sleep(0.001)
        control.check()
    await host.handle(StartTask(task, config, control.task_config, 1))
    session: TaskSession | None = None
    while session is None or session.producer is None:
        await asyncio.sleep(0.001)
        candidate = host._tasks[task]._session
        session = candidate if isinstance(candidate, TaskSession) else None
        control.check()
    profile = cProfile.Profile() if arguments.profile else None
    if profile:
        profile.enable()
    while session.producer.acked.rows < arguments.skip:
        await asyncio.sleep(0.001)
        control.check()
    skipped = session.producer.acked.rows
    began, cpu = time.perf_counter(), time.process_time()
    while session.producer.acked.rows < arguments.rows:
        await asyncio.sleep(0.005)
        control.check()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    if profile:
        profile.disable()
        profile.dump_stats(arguments.profile)
    stats = session.stats
    rows = arguments.rows - skipped
    figures = {
        "rows/s": rows / wall,
        "CPU us/row": cpu / rows * 1e6,
        "poll": stats.poll_s / rows * 1e6,
        "transform": stats.transform_s / rows * 1e6,
        "convert": stats.convert_s / rows * 1e6,
        "append": session.delivery.append_s / rows * 1e6,
        "batches": session.producer.acked.batches,
    }
    await host.handle(StopTask(task, 5))
    await host.close(5)
    return figures


def main(argv: list[str]) -> int:
    """Run it; about a minute."""
    parser = argparse.ArgumentParser(prog="millrace bench task_path", description=__doc__)
    parser.add_argument("--bootstrap", help="a running Kafka; by default one is started")
    parser.add_argument("--source", choices=("file", "datagen"), default="file")
    parser.add_argument("--converter", choices=("json", "json-schema", "string"), default="json")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--option", action="append", metavar="NAME=VALUE", help="a property of the task")
    parser.add_argument("--worker", action="append", metavar="NAME=VALUE", help="a property of the worker")
    parser.add_argument("--skip", type=int, default=0, help="rows before those that are measured")
    parser.add_argument("--profile", help="write cProfile's data to this file")
    options = parser.parse_args(argv)
    print(environment())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-bench-")))
        if options.bootstrap is None:
            options.bootstrap = stack.enter_context(KafkaCluster(folder / "kafka", count=1, port=None)).bootstrap
        results = [uvloop.run(run(options, folder)) for _ in range(options.runs)]
    print(f"{options.source}, {options.converter}, {options.rows} rows of {options.bytes} bytes")
    for name in results[0]:
        print(f"{name:>12} {spread([result[name] for result in results], 0 if name in {'rows/s', 'batches'} else 2)}")
    print(
        "CPU is this process's, user and system, all threads. Stages are wall time in microseconds per row; what is left of "
        "the CPU is aiokafka and the event loop. Reading that waits in a thread overlaps with other stages."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
