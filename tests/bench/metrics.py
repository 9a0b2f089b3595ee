"""How long `/metrics` of a worker with many tasks takes, how long it keeps the event loop, and how many series there are."""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import statistics
import sys
import time

import uvloop

from connectors import debezium_metrics as debezium
from tests.bench._common import environment
from worker.metrics.exporter import ConnectorNumbers, Options, WorkerStats, collect_parts, process_numbers, render_parts
from worker.metrics.process import settle_heap
from worker.metrics.registry import Family
from worker.metrics.windows import TaskTable
from worker.protocol import ClientStats, CustomMetric, HostTaskId, Stats, TaskStats


def table(connectors: int, tasks: int, tables: int) -> TaskTable:
    """A worker's numbers: the tasks are spread over the connectors, and each reports the given number of tables."""

    def build_stats(number: int) -> TaskStats:
        task = HostTaskId(f"connector-{number % connectors:04d}", number // connectors)
        labels = {"plugin": "mysql", "name": task.connector, "context": debezium.STREAMING}
        custom = [CustomMetric(debezium.CONNECTED, "gauge", 1.0, labels)] + [
            CustomMetric(
                f"{debezium.PREFIX}RowsScanned",
                "gauge",
                5.0,
                {**labels, "context": debezium.SNAPSHOT, "table": f"db.t{table_number}"},
            )
            for table_number in range(tables)
        ]
        return TaskStats(
            task,
            state="RUNNING",
            started_at=1.7e9,
            running_s=1234.567,
            polled=10_000 + number,
            polls=100,
            written=9_999,
            active=3,
            active_limit=20_000,
            commits=5,
            commit_s=0.25,
            lag_ms=17.0,
            custom=custom if tables else [],
        )

    task_table = TaskTable()
    clients = [ClientStats(f"connector-producer-{number}", "producer", 2) for number in range(tasks)]
    task_table.observe(
        0,
        Stats([build_stats(number) for number in range(tasks)], 1.0, 1 << 28, 0.0, connectors, clients),
        time.monotonic(),
    )
    return task_table


async def measure(numbers: TaskTable, connectors: int, families: tuple[Family, ...]) -> tuple[float, float, bytes]:
    """Seconds for an answer, the longest that other work waited, and the answer."""
    waited = 0.0

    async def tick() -> None:
        nonlocal waited
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            waited = max(waited, time.perf_counter() - began)

    ticking = asyncio.create_task(tick())
    running = [ConnectorNumbers(f"connector-{number:04d}", "RUNNING", "mysql", "1") for number in range(connectors)]
    began = time.perf_counter()
    body, _ = await collect_parts(
        render_parts(
            WorkerStats(client_id="w"),
            running,
            numbers,
            process_numbers(1.0),
            options=Options(families),
            now=time.monotonic(),
        )
    )
    took = time.perf_counter() - began
    ticking.cancel()
    return took, waited, body


def series(body: bytes) -> int:
    """Series in an answer."""
    return sum(not line.startswith(b"#") for line in body.splitlines())


def main(argv: list[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="millrace bench metrics", description=__doc__)
    parser.add_argument("--connectors", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(argv)
    sys.stdout.write(f"{environment()}\n{options.connectors} connectors, {options.tasks} tasks in one worker\n")
    for families in ((Family.A, Family.D), (Family.A, Family.B, Family.C, Family.D)):
        names = "".join(families)
        sizes = {count: series(asyncio.run(measure(table(1, count, 0), 1, families))[2]) for count in (0, 1, 2)}
        first, further = sizes[1] - sizes[0], sizes[2] - sizes[1]
        numbers = table(options.connectors, options.tasks, 0)
        settle_heap()
        runs = [uvloop.run(measure(numbers, options.connectors, families)) for _ in range(options.runs)]
        body = runs[0][2]
        began = time.perf_counter()
        packed = gzip.compress(body, 1)
        sys.stdout.write(
            f"families {names}: {statistics.median(run[0] for run in runs):.2f} s, longest wait of other work "
            f"{1000 * statistics.median(run[1] for run in runs):.0f} ms (worst {1000 * max(run[1] for run in runs):.0f}), "
            f"{series(body)} series, {len(body) / 1e6:.1f} MB, gzip {len(packed) / 1e6:.1f} MB in "
            f"{time.perf_counter() - began:.2f} s (in a thread); a worker without tasks has {sizes[0]} series, "
            f"a connector with one task {first} more, each further task {further}\n"
        )
        gc.unfreeze()
    return 0


if __name__ == "__main__":
    sys.exit(main())
