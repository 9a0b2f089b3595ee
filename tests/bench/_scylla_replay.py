"""Recorded pages of a Scylla log through a task's stages, in several processes at once: no server, no Kafka.

On a machine where database and broker share the cores with the workers, this shows what further processes add by themselves.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.cql.rows import CqlRowDecoder
from connectors.encoded_parts import EncodedParts
from connectors.scylla import events
from connectors.scylla.events.fast_rows import fast_feed
from connectors.scylla.model import StreamRun
from worker.converters.json import JsonConverter
from worker.converters.simple_header import SimpleHeaderConverter
from worker.host.delivery.fast_path import wire_of
from worker.transforms.pipeline import build_pipeline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Barrier

    from connectors.cql.types import CqlType
    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.events.fast_rows import FastFeed
    from connectors.scylla.model import TableVersion

#: Rows that a task hands on at once.
_RUN: Final = 500
#: Of a process of the pool: where all wait for each other.
_start: list[Barrier] = []


class RecordedPages(NamedTuple):
    """Pages as they came from the server.

    Attributes:
        version: the table's definition.
        settings: the form of events.
        types: of the columns of the log.
        bodies: the pages.
    """

    version: TableVersion
    settings: ScyllaEventSettings
    types: tuple[CqlType | None, ...]
    bodies: list[bytes]


async def open_feed(version: TableVersion, settings: ScyllaEventSettings) -> FastFeed:
    """The fast path from rows of a log to JSON without schemas.

    Raises:
        RuntimeError: the table can't take it.
    """
    converter = JsonConverter({"schemas.enable": "false"})
    wire = wire_of("auto", build_pipeline({}), converter, converter, SimpleHeaderConverter({}))
    feed = None if wire is None else await fast_feed(wire, events.build_events(version, settings))
    if feed is None:
        raise RuntimeError("the fast path does not take the table")
    return feed


def _keep_barrier(barrier: Barrier) -> None:
    _start.append(barrier)


def replay(recorded: RecordedPages, seconds: float) -> float:
    """Rows per second of one process: pages are decoded, made events and encoded again and again for ``seconds``."""
    feed = asyncio.run(open_feed(recorded.version, recorded.settings))
    decoder = CqlRowDecoder([str(number) for number in range(len(recorded.types))], recorded.types)
    partition, offset = {"vnode_id": "1"}, {"window_start": "x", "window_end": "y"}

    def run_pages() -> int:
        count = 0
        for body in recorded.bodies:
            rows = decoder.decode(body)
            for start in range(0, len(rows), _RUN):
                parts = EncodedParts()
                run = StreamRun(partition, offset, rows[start : start + _RUN], None, True, False)
                if not feed.take([run], 0, parts):
                    raise RuntimeError("the fast path does not take a run")
                count += parts.count
                parts.collect()
        return count

    run_pages()
    _start[0].wait()
    began = time.perf_counter()
    count = 0
    while time.perf_counter() - began < seconds:
        count += run_pages()
    return count / (time.perf_counter() - began)


def print_scaling(recorded: RecordedPages, processes: Sequence[int], seconds: float) -> None:
    """Print what each number of processes reaches together."""
    print("\nrecorded pages, decoded, made events and encoded; nothing is sent to Kafka")
    context = multiprocessing.get_context("spawn")
    single = 0.0
    for count in processes:
        with ProcessPoolExecutor(count, context, initializer=_keep_barrier, initargs=(context.Barrier(count),)) as pool:
            rates = list(pool.map(replay, [recorded] * count, [seconds] * count))
        single = single or sum(rates)
        print(f"{count} process(es):{sum(rates):>9.0f} rows/s   {sum(rates) / single:.2f} x the first", flush=True)
