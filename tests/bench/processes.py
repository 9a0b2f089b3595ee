"""Throughput of independent tasks with one and with two task hosts (``--processes``)."""
from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from compose.local.kafka import KafkaCluster
from compose.local.worker import MillraceWorker
from tests.bench._common import environment, spread, topic_ends

#: Change events unwrapped and cut down to two fields, not compressed: the work is the task host's. Kafka shares the two cores,
#: and compression runs in threads, so large or compressed records would measure those.
WORK = {
    "connector.class": "datagen", "tasks.max": 1, "records": -1, "envelope": "debezium",
    "transforms": "unwrap,mark,cut",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState", "transforms.unwrap.add.fields": "op,ts_ms",
    "transforms.mark.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.mark.static.field": "origin", "transforms.mark.static.value": "bench",
    "transforms.cut.type": "org.apache.kafka.connect.transforms.ReplaceField$Value", "transforms.cut.include": "id,origin",
    "value.converter.schemas.enable": "false", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false", "key.converter": "org.apache.kafka.connect.json.JsonConverter",
}


async def _rate(worker: MillraceWorker, bootstrap: str, label: str, tasks: int, seconds: float) -> float:
    """Records/s of ``tasks`` connectors over ``seconds`` of steady running, measured at the topics' ends."""
    names = [f"{label}-{number}" for number in range(tasks)]
    async with topic_ends(bootstrap) as end:
        for name in names:
            await asyncio.to_thread(worker.create, name, {**WORK, "topic": name})
        for name in names:
            await asyncio.to_thread(worker.wait_running, name, 1)
        await asyncio.sleep(2)  # past start-up: what follows is a measurement, not a wait for a condition
        before = sum([await end(name) for name in names])
        start = time.monotonic()
        await asyncio.sleep(seconds)
        after = sum([await end(name) for name in names])
        rate = (after - before) / (time.monotonic() - start)
        for name in names:
            await asyncio.to_thread(worker.request, "DELETE", f"/connectors/{name}")
    return rate


def main(argv: list[str]) -> int:
    """Run it; about a minute."""
    parser = argparse.ArgumentParser(prog="millrace bench processes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(argv)
    print(environment())
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name, KafkaCluster(Path(name) / "kafka", port=None) as kafka:
        for run in range(options.runs):
            for hosts, found in rates.items():
                label = f"processes-{run}-{hosts}"
                with MillraceWorker(Path(name) / label, kafka.bootstrap, group=label, processes=hosts) as worker:
                    found.append(asyncio.run(_rate(worker, kafka.bootstrap, label, 2, options.seconds)))
    for hosts, values in rates.items():
        print(f"{hosts} task host(s), 2 tasks: {spread(values, 0)} records/s")
    print(f"ratio: {spread([two / one for one, two in zip(rates[1], rates[2], strict=True)])}")
    return 0
