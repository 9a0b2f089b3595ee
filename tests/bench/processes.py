"""Throughput of independent tasks with one and with two task hosts (``--processes``)."""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from compose.local.kafka import KafkaCluster
from compose.local.worker import MillraceWorker
from tests.bench._common import environment, spread

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Change events unwrapped and cut down to two fields, not compressed: mostly the task host's work.
WORK = {
    "connector.class": "datagen",
    "tasks.max": 1,
    "records": -1,
    "envelope": "debezium",
    "transforms": "unwrap,mark,cut",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.add.fields": "op,ts_ms",
    "transforms.mark.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.mark.static.field": "origin",
    "transforms.mark.static.value": "bench",
    "transforms.cut.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.cut.include": "id,origin",
    "value.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
}
#: The same with a filter behind it that drops every record: Kafka, which shares the two cores here, has nothing to do.
FILTERED = {
    **WORK,
    "transforms": "unwrap,mark,cut,drop",
    "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
}
TASKS = 2


def _polled(worker: MillraceWorker, name: str) -> float:
    _, text = worker.request("GET", "/metrics")
    start = f'kafka_connect_source_task_source_record_poll_total{{connector="{name}"'
    return next((float(line.rpartition(" ")[2]) for line in str(text).splitlines() if line.startswith(start)), 0.0)


def _change(worker: MillraceWorker, name: str) -> tuple[float, float]:
    """When a task's counter is next reported (hosts report each second), and what it says then."""
    first = _polled(worker, name)
    while (now := _polled(worker, name)) == first:
        time.sleep(0.02)
    return time.monotonic(), now


def _task_rate(worker: MillraceWorker, name: str, seconds: float) -> float:
    began, before = _change(worker, name)
    time.sleep(seconds)  # the measurement itself
    ended, after = _change(worker, name)
    return (after - before) / (ended - began)


def measure(worker: MillraceWorker, label: str, work: Mapping[str, object], seconds: float) -> float:
    """Records/s of the tasks together, over ``seconds`` of steady running."""
    names = [f"{label}-{number}" for number in range(TASKS)]
    for name in names:
        worker.create(name, {**work, "topic": name})
    for name in names:
        worker.wait_running(name, 1)
    time.sleep(2)  # past start-up
    with ThreadPoolExecutor(TASKS) as pool:
        rates = list(pool.map(lambda name: _task_rate(worker, name, seconds), names))
    for name in names:
        worker.request("DELETE", f"/connectors/{name}")
    return sum(rates)


def main(argv: list[str]) -> int:
    """Run it; about a minute."""
    parser = argparse.ArgumentParser(prog="millrace bench processes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(argv)
    print(environment())
    rates: dict[tuple[str, int], list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as name,
        KafkaCluster(Path(name) / "kafka", port=None) as kafka,
    ):
        for run in range(options.runs):
            for hosts in (1, 2):
                group = f"processes-{run}-{hosts}"
                with MillraceWorker(Path(name) / group, kafka.bootstrap, group=group, processes=hosts) as worker:
                    for kind, work in (("to Kafka on the same cores", WORK), ("filtered in the host", FILTERED)):
                        label = f"{group}-{'w' if work is WORK else 'f'}"
                        rates.setdefault((kind, hosts), []).append(measure(worker, label, work, options.seconds))
    for kind in dict.fromkeys(kind for kind, _ in rates):
        one_host, two_hosts = rates[kind, 1], rates[kind, 2]
        print(
            f"{TASKS} tasks, {kind}: one host {spread(one_host, 0)} records/s, two hosts {spread(two_hosts, 0)}, "
            f"ratio {spread([b / a for a, b in zip(one_host, two_hosts, strict=True)])}"
        )
    return 0
