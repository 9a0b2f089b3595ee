"""Flows in a driver for each (``spark.application=own``) next to a driver that all share (the default).

Idle flows under one worker, or with ``--demo`` the four jobs of the demo next to its sources on two workers. For each way:
memory and CPU of one flow, of all flows, seconds from POST to RUNNING, and to the first row in the sink.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from compose.demo.run import JOBS, Demo
from compose.local.kafka import KafkaCluster
from compose.local.process.service import wait_until
from compose.local.worker import MillraceWorker
from tests.bench._common import cpu_seconds, environment, family, spread

_LIMIT_S: Final = 300.0
_SETTLE_S: Final = 20.0
_MIB: Final = 2**20


def proportional_bytes(pid: int) -> int:
    """Memory of a process and its living descendants; a page that several share counts once."""
    total = 0
    for number in family(pid):
        try:
            lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


@dataclass
class Figures:
    """Figures of one way to run flows.

    Attributes:
        running_s: from POST to RUNNING, per flow, in the order of creation.
        row_s: from POST to the first row in the sink, per flow.
        memory: bytes above the worker's own, after the given number of flows.
        start_cpu_s: CPU seconds from the first POST until all flows have written.
        idle_cpu: cores that all idle flows use.
    """

    running_s: list[float] = field(default_factory=list)
    row_s: list[float] = field(default_factory=list)
    memory: dict[int, int] = field(default_factory=dict)
    start_cpu_s: float = 0.0
    idle_cpu: float = 0.0


def create_flow(
    worker: MillraceWorker, bootstrap: str, folder: Path, name: str, application: str
) -> tuple[float, float]:
    """Create a flow whose topic holds one record; seconds to RUNNING and to its first row."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b'{"id": 1}')
    producer.flush(30)
    output = folder / name
    config = {
        "connector.class": "spark_jobs.SparkJob",
        "source.topics": name,
        "source.format": "plain",
        "source.key.columns": "id",
        "sink.type": "files",
        "sink.files.path": str(output),
        "trigger.interval.ms": "1000",
    }
    if application:
        config["spark.application"] = application
    begin = time.monotonic()
    status, body = worker.request("POST", "/connectors", {"name": name, "config": config})
    if status != 201:
        raise RuntimeError(f"{name} was refused: {status} {body}")

    def running() -> bool:
        code, answer = worker.request("GET", f"/connectors/{name}/status")
        return code == 200 and [task["state"] for task in answer["tasks"]] == ["RUNNING"]

    if not wait_until(running, _LIMIT_S, 0.02):
        raise RuntimeError(f"{name} does not run: {worker.request('GET', f'/connectors/{name}/status')}")
    running_s = time.monotonic() - begin

    def written() -> bool:
        code, answer = worker.request("GET", f"/connectors/{name}/progress")
        return code == 200 and any(task.get("records_written") for task in answer["tasks"])

    if not wait_until(written, _LIMIT_S, 0.05):
        raise RuntimeError(f"{name} wrote nothing: {worker.request('GET', f'/connectors/{name}/status')}")
    return running_s, time.monotonic() - begin


def measure(folder: Path, bootstrap: str, application: str, count: int) -> Figures:
    """Create ``count`` flows one after the other and let them idle."""
    figures = Figures()
    os.environ["MILLRACE_HOME"] = str(folder / "home")
    with MillraceWorker(folder / "worker", bootstrap, group=f"flows-{application or 'shared'}") as worker:
        before, cpu = proportional_bytes(worker.pid), cpu_seconds(worker.pid)
        for number in range(1, count + 1):
            running_s, row_s = create_flow(
                worker, bootstrap, folder, f"{application or 'shared'}-{number:02d}", application
            )
            figures.running_s.append(running_s)
            figures.row_s.append(row_s)
            if number in (1, count):
                time.sleep(_SETTLE_S)
                figures.memory[number] = proportional_bytes(worker.pid) - before
        figures.start_cpu_s = cpu_seconds(worker.pid) - cpu
        begin, cpu = time.monotonic(), cpu_seconds(worker.pid)
        time.sleep(_SETTLE_S)
        figures.idle_cpu = (cpu_seconds(worker.pid) - cpu) / (time.monotonic() - begin)
    return figures


def watch_jobs(demo: Demo, seen: dict[str, list[float]], ended: threading.Event) -> None:
    """Note for each job of the demo the seconds until it runs and until its first row is written. Blocks until ``ended``."""
    begin = time.monotonic()
    while not ended.wait(0.1):
        worker = demo.rest.alive
        for name in JOBS:
            if (
                not seen[name]
                and worker.request("GET", f"/connectors/{name}/status")[0] == 200
                and demo.rest.where(name)
            ):
                seen[name].append(time.monotonic() - begin)
            if len(seen[name]) == 1:
                status, answer = worker.request("GET", f"/connectors/{name}/progress")
                if status == 200 and any(task.get("records_written") for task in answer["tasks"]):
                    seen[name].append(time.monotonic() - begin)


def measure_demo(folder: Path, application: str) -> str:
    """The demo with its jobs in drivers of their own or in shared ones, until they idle; the figures as a line."""
    os.environ["MILLRACE_HOME"] = str(folder / "home")
    options = {name: {"spark.application": application} for name in JOBS} if application else {}
    demo = Demo(folder, options=options)
    with ExitStack() as stack:
        stack.callback(demo.stop)
        demo.start()
        shop = demo.open_shop(stack)
        shop.create()
        demo.create_sources()
        shop.trade(150)
        workers = [worker.pid for worker in demo.rest.workers]
        time.sleep(_SETTLE_S)
        memory, cpu = sum(map(proportional_bytes, workers)), sum(map(cpu_seconds, workers))
        seen: dict[str, list[float]] = {name: [] for name in JOBS}
        ended = threading.Event()
        watcher = threading.Thread(target=watch_jobs, args=(demo, seen, ended))
        watcher.start()
        try:
            demo.create_jobs()
            complete = wait_until(lambda: all(len(times) == 2 for times in seen.values()), _LIMIT_S, 0.1)
        finally:
            ended.set()
            watcher.join()
        if not complete:
            raise RuntimeError(f"jobs wrote nothing: {seen}")
        demo.settled(shop)
        start_cpu = sum(map(cpu_seconds, workers)) - cpu
        time.sleep(_SETTLE_S)
        used = sum(map(proportional_bytes, workers)) - memory
        begin, cpu = time.monotonic(), sum(map(cpu_seconds, workers))
        time.sleep(_SETTLE_S)
        idle = (sum(map(cpu_seconds, workers)) - cpu) / (time.monotonic() - begin)
    running, rows = ([times[number] for times in seen.values()] for number in (0, 1))
    return (
        f"{used / _MIB:,.0f} MiB, {start_cpu:.0f} CPU s until all copies equal the source, {idle:.2f} cores idle; from the "
        f"first POST: running after {spread(running, 1)} s, first row after {spread(rows, 1)} s"
    )


def main(argv: list[str]) -> int:
    """Run it; some minutes, and as much memory as that many drivers take."""
    parser = argparse.ArgumentParser(prog="millrace bench flows", description=__doc__)
    parser.add_argument("--flows", type=int, default=10)
    parser.add_argument("--only", choices=("own", "shared"), help="one of the two ways")
    parser.add_argument("--demo", action="store_true", help="the jobs of the demo in place of idle flows")
    options = parser.parse_args(argv)
    print(environment())
    for way in (options.only,) if options.only else ("shared", "own"):
        if options.demo:
            with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
                print(f"{way:7} demo, {len(JOBS)} jobs: {measure_demo(Path(name), 'own' if way == 'own' else '')}")
            continue
        with (
            tempfile.TemporaryDirectory(prefix="millrace-bench-") as name,
            KafkaCluster(Path(name) / "kafka", port=None) as kafka,
        ):
            figures = measure(Path(name), kafka.bootstrap, "own" if way == "own" else "", options.flows)
        first, last = figures.memory[1], figures.memory[options.flows]
        print(
            f"{way:7} {options.flows} flows: {last / _MIB:,.0f} MiB ({last / first:.2f} times one: {first / _MIB:,.0f} MiB), "
            f"{figures.start_cpu_s:.0f} CPU s to start, {figures.idle_cpu:.2f} cores idle; "
            f"running after {figures.running_s[0]:.1f} s (first), {spread(figures.running_s[1:])} s (others); "
            f"first row after {figures.row_s[0]:.1f} s (first), {spread(figures.row_s[1:])} s (others)"
        )
    return 0
