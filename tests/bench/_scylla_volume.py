"""A large log that the Scylla connector reads once: rate, CPU and memory over time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compose.local.scylla.bulk import fill_log
from tests.bench._common import cpu_seconds, resident_bytes, spread, topic_ends

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compose.local.kafka import KafkaCluster
    from compose.local.scylla.client import Emulation
    from compose.local.worker import MillraceWorker

_SPAN_US = 540_000_000
_STALLED_S = 180


@dataclass(frozen=True, slots=True)
class Interval:
    """The work of a worker between two looks at it.

    Attributes:
        seconds: Its length.
        rows: Records that were appended to the topic.
        cpu: CPU seconds of the worker with all its processes.
        memory: Resident bytes at its end; pages that processes share count in each process.
    """

    seconds: float
    rows: int
    cpu: float
    memory: int


def fill_volume(client: Emulation, table: str, rows: int) -> None:
    """Write ``rows`` log rows of about 107 bytes; their times are the nine minutes before the call. Blocks."""
    end = int(time.time() * 1e6)
    filled = fill_log(client, table, rows, start_us=end - _SPAN_US, end_us=end)
    print(
        f"\n{rows} log rows over {filled.streams} streams, written in {filled.seconds:.0f} s "
        f"({rows / filled.seconds:.0f} rows/s)",
        flush=True,
    )


async def read_volume(
    kafka: KafkaCluster, worker: MillraceWorker, properties: Mapping[str, str], rows: int, every: float
) -> None:
    """Create the connector, print a line every ``every`` seconds, and a summary once all rows are in Kafka.

    Raises:
        TimeoutError: No row came for three minutes.
        ValueError: More records than rows came.
    """
    name = properties["topic.prefix"]
    topic = f"{name}.{properties['scylla.table.names']}"
    print(f"{'seconds':>8}{'rows':>12}{'rows/s':>9}{'CPU us/row':>12}{'worker MiB':>12}", flush=True)
    intervals: list[Interval] = []
    async with topic_ends(kafka.bootstrap) as end:
        created = previous = advanced = time.monotonic()
        seen, cpu = 0, cpu_seconds(worker.pid)
        await asyncio.to_thread(worker.request, "PUT", f"/connectors/{name}/config", dict(properties))
        while seen < rows:
            await asyncio.sleep(every)
            appended, now, used = await end(topic), time.monotonic(), cpu_seconds(worker.pid)
            interval = Interval(now - previous, appended - seen, used - cpu, resident_bytes(worker.pid))
            intervals.append(interval)
            _print_interval(interval, now - created, appended)
            advanced = now if interval.rows else advanced
            if now - advanced > _STALLED_S:
                raise TimeoutError(f"topic {topic} holds {appended} of {rows} rows, and none came for {_STALLED_S} s")
            seen, previous, cpu = appended, now, used
        await asyncio.sleep(every)  # a repeated row would come in this time
        total = await end(topic)
    if total != rows:
        raise ValueError(f"topic {topic} holds {total} records for {rows} rows")
    whole = [interval for interval in intervals[1:-1] if interval.rows] or intervals  # the first and last are partial
    print(
        f"{rows} rows in {previous - created:.0f} s: "
        f"{spread([interval.rows / interval.seconds for interval in whole], 0)} rows/s, "
        f"{sum(interval.cpu for interval in intervals) / rows * 1e6:.2f} CPU us/row, "
        f"{spread([interval.memory / 2**20 for interval in whole], 0)} MiB of the worker",
        flush=True,
    )


def _print_interval(interval: Interval, seconds: float, appended: int) -> None:
    cpu = interval.cpu / interval.rows * 1e6 if interval.rows else float("nan")
    print(
        f"{seconds:8.0f}{appended:12}{interval.rows / interval.seconds:9.0f}{cpu:12.2f}{interval.memory / 2**20:12.0f}",
        flush=True,
    )
