"""Helpers that benchmarks share: process figures, topic ends, environment, spread."""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from worker.process_tree import list_children

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    pids = [pid]
    for child in list_children(pid):
        pids += family(child)
    return pids


def cpu_seconds(pid: int, *, descendants: bool = True) -> float:
    """User and system CPU seconds of a process, with those of its living descendants unless they are left out."""
    total = 0
    for number in family(pid) if descendants else [pid]:
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its living descendants; shared pages count in each."""
    total = 0
    for number in family(pid):
        try:
            total += int(Path(f"/proc/{number}/statm").read_text().split()[1]) * _PAGE
        except OSError:
            continue
    return total


def environment() -> str:
    """One line about the machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * _PAGE / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def spread(values: Sequence[float], digits: int = 2) -> str:
    """``median (min-max)``."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def make_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic, for messages of up to 8 MiB."""
    new_topic = NewTopic(topic, partitions, 1, config={"max.message.bytes": str(8 << 20)})
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})  # has to live until the answer is there
    admin.create_topics([new_topic])[topic].result(30)


@asynccontextmanager
async def topic_ends(bootstrap: str) -> AsyncIterator[Callable[[str], Awaitable[int]]]:
    """A function that awaits the number of records ever appended to a topic (control records included)."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    cached_partitions: dict[str, list[TopicPartition]] = {}

    async def end(topic: str) -> int:
        if topic not in cached_partitions:
            # Asking for one topic's metadata would create it where the broker creates topics automatically.
            partitions = (await consumer._client.fetch_all_metadata()).partitions_for_topic(topic)
            if not partitions:
                return 0
            cached_partitions[topic] = [TopicPartition(topic, number) for number in partitions]
        return sum((await consumer.end_offsets(cached_partitions[topic])).values())

    try:
        yield end
    finally:
        await consumer.stop()


async def until_appended(end: Callable[[str], Awaitable[int]], topic: str, count: int, limit: float) -> float:
    """Wait until a topic holds ``count`` records; the ``time.monotonic()`` at which it did.

    Raises:
        TimeoutError: with what it holds after ``limit`` seconds.
    """
    deadline = time.monotonic() + limit
    while True:
        appended = await end(topic)
        if appended >= count:
            return time.monotonic()
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic} holds {appended} of {count} records after {limit:g} s")
        await asyncio.sleep(0.02)
