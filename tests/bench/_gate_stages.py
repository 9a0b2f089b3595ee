"""Stages of a row's way, measured on the code that is first on PYTHONPATH: ``python _gate_stages.py EVENTS``.

A line with a stage's name on standard input is answered by its CPU microseconds per row. EVENTS is a pickle of
``_binlog_events.binlog`` by name: both sides of a comparison get the same bytes. Nothing of ``tests`` is imported: older
revisions, which are measured, too, have no such module. ``decode`` makes records; ``whole`` goes the way that a task with
default options goes, or that of ``fast.path=off`` where the environment variable FAST_PATH says ``off``.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import connectors
from connectors.api import Batch
from connectors.mysql.config.filters import MySqlTableFilter
from connectors.mysql.config.settings import event_settings, stream_settings, value_options
from connectors.mysql.connector import MySqlConnector
from connectors.mysql.model import Shard
from connectors.mysql.position import start
from connectors.mysql.position.cursor import BinlogCursor
from connectors.mysql.schema import tables as stream_tables
from connectors.mysql.schema.tables import StreamTables
from connectors.mysql.schema.versions import VersionBook
from connectors.mysql.source import gtid
from connectors.mysql.stream import binlog_stream
from connectors.mysql.stream.binlog_stream import BinlogStream
from connectors.mysql.stream.latency import TableLags
from worker.converters.json import JsonConverter
from worker.converters.simple_header import SimpleHeaderConverter
from worker.host.delivery.producer import Producer
from worker.host.delivery.routes import ProducerSettings
from worker.host.delivery.session import TaskSession
from worker.host.options import CONNECTOR
from worker.metrics.process import settle_heap
from worker.protocol import HostTaskId, TaskStats
from worker.transforms.pipeline import TransformPipeline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_LOG: Final = logging.LoggerAdapter(logging.getLogger("gate"))
_CONFIG: Final = {
    "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
    "topic.prefix": "gate",
    "database.hostname": "127.0.0.1",
    "database.user": "u",
    "database.password": "p",
    "database.include.list": "bench",
}
_PARTITION: Final = {"server": "gate"}
#: Bytes of events that a read of the connection gives at once, about, while the task is behind.
_READ: Final = 1 << 16

#: Whether the stream's constructors take the parts of their subjects; revisions before did not.
_DIVIDED: Final = hasattr(stream_tables, "TableSelection")
#: About what a broker takes for a batch: meanwhile the next one fills.
_BROKER_S: Final = 0.003


def _acknowledge(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Cluster:
    def available_partitions_for_topic(self, _topic: str) -> set[int]:
        return {0}

    def partitions_for_topic(self, _topic: str) -> set[int]:
        return {0}


class _Client:
    """In place of aiokafka's producer: what it does to a batch before the socket, and the acknowledgement at once."""

    def __init__(self) -> None:
        self.client = SimpleNamespace(cluster=_Cluster())

    async def partitions_for(self, _topic: str) -> set[int]:
        return {0}

    async def send_batch(self, chunk: Any, topic: str, partition: int) -> asyncio.Future[None]:
        del topic, partition
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        chunk._set_producer_state(1, 0, 0)
        chunk._build()
        loop.call_later(_BROKER_S, _acknowledge, future)
        return future


def _wire() -> Any:
    """The wire of a task; None for a revision without, or with FAST_PATH=off."""
    if os.environ.get("FAST_PATH") == "off":
        return None
    try:
        from worker.host.delivery.fast_path import wire_of
    except ImportError:
        return None
    json = JsonConverter({"schemas.enable": "false"})
    return wire_of("auto", TransformPipeline(), json, json, SimpleHeaderConverter({}))


def _reads(events: list[bytes]) -> list[list[bytes]]:
    """The events, in lists of about as many bytes as a read gives."""
    reads: list[list[bytes]] = [[]]
    size = 0
    for raw in events:
        if size > _READ:
            reads.append([])
            size = 0
        reads[-1].append(raw)
        size += len(raw)
    return reads


class _Path:
    """From raw binlog events to acknowledged batches, by the product's own parts."""

    def __init__(self, events: list[bytes], rows: int) -> None:
        self.reads = _reads(events)
        self.rows = rows
        self.config = MySqlConnector.config_def.parse(_CONFIG)
        self.settings = event_settings(self.config, "mariadb")
        self.most = stream_settings(self.config).max_batch
        self.records = self._tables()
        wire = _wire()
        self.tables = self._tables(wire=wire) if wire is not None else self.records
        self.session: TaskSession | None = None

    def _tables(self, **more: Any) -> StreamTables:
        options, versions = value_options(self.config, "mariadb"), VersionBook("gate", "", ())
        if not _DIVIDED:
            make_older: Callable[..., StreamTables] = StreamTables
            return make_older(
                table_filter=MySqlTableFilter(self.settings),
                special={},
                settings=self.settings,
                options=options,
                shard=Shard(),
                partition=_PARTITION,
                versions=versions,
                transactions=None,
                held_rows=None,
                headers=(),
                log=_LOG,
                definitions=self._nothing,
                **more,
            )
        from connectors.mysql.events.contract import EventContext

        selection = stream_tables.TableSelection(MySqlTableFilter(self.settings), {}, Shard())
        context = EventContext(self.settings, _PARTITION)
        return StreamTables(selection, context, options, versions, self._nothing, _LOG, **more)

    @staticmethod
    async def _nothing(_names: Any) -> dict[Any, Any]:
        return {}

    @staticmethod
    async def _ignore(_statement: Any, _source: Any) -> None:
        pass

    def _stream(self, *, fast: bool) -> tuple[BinlogStream, BinlogCursor]:
        resumed = start.start_of("gate", Shard(), [(_PARTITION, {"file": "b.000007", "pos": 1000})])
        assert resumed.position is not None
        cursor = BinlogCursor(resumed, resumed.position, 1, gtid.parse_gtids("mariadb", ""))
        tables = self.tables if fast else self.records
        if not _DIVIDED:
            older: Any = binlog_stream
            return older.BinlogStream(
                cursor=cursor,
                tables=tables,
                run_start=resumed,
                position=resumed.position,
                same_server=True,
                partition=_PARTITION,
                counters=older.StreamCounters(),
                log=_LOG,
                on_rows=lambda *_: None,
                on_statement=self._ignore,
                lags=TableLags(),
            ), cursor
        from connectors.mysql.events.contract import EventContext
        from connectors.mysql.stream.counters import StreamCounters
        from connectors.mysql.stream.options import StreamListener, StreamOptions

        stream = BinlogStream(
            cursor,
            start.ConnectionStart(resumed, resumed.position, same_server=True),
            tables,
            EventContext(self.settings, _PARTITION),
            StreamOptions(),
            StreamListener(lambda *_: None, self._ignore),
            StreamCounters(),
            _LOG,
        )
        return stream, cursor

    async def batches(self, *, fast: bool = True) -> AsyncIterator[Batch]:
        """As ``run.Run._stream`` makes them."""
        stream, cursor = self._stream(fast=fast)
        accept = getattr(stream, "accept", None) or stream.feed
        output: Any = stream.output if _DIVIDED else stream
        records = "records" if _DIVIDED else "out"
        encoded: Any = getattr(output, "encoded", None) or SimpleNamespace(count=0)
        for events in self.reads:
            await asyncio.sleep(0)
            for raw in events:
                if (unfinished := accept(raw)) is not None:
                    await unfinished
                if len(getattr(output, records)) + encoded.count >= self.most:
                    yield self._batch(output, len(getattr(output, records)), cursor)
        if getattr(output, records) or encoded.count:
            yield self._batch(output, len(getattr(output, records)), cursor)

    @staticmethod
    def _batch(output: Any, count: int, cursor: BinlogCursor) -> Batch:
        records, bad = output.take(count)
        encoded = output.encoded.collect() if hasattr(output, "encoded") else ()
        more: Any = {"encoded": encoded} if encoded else {}
        offsets = () if cursor.open and not encoded else ((_PARTITION, cursor.now()),)
        return Batch(records, bad, offsets, **more)

    def _session(self) -> TaskSession:
        async def ensure(_topic: str) -> None:
            pass

        plan: Any = SimpleNamespace(
            id=HostTaskId("gate", 0),
            options=CONNECTOR.parse({"name": "gate", "connector.class": "mysql"}),
            log=_LOG,
            producer=ProducerSettings({}),
            scrub=str,
            key_converter=JsonConverter({"schemas.enable": "false"}, is_key=True),
            value_converter=JsonConverter({"schemas.enable": "false"}),
            header_converter=SimpleHeaderConverter({}),
            pipeline=(),
            tracing=None,
            topics=SimpleNamespace(ensure=ensure),
            own_offsets_topic=None,
            active_topics=set(),
            topic_used=lambda _: None,
            metrics=None,
            refresh_secrets=None,
            wire=None,
        )
        session = TaskSession(plan, TaskStats(HostTaskId("gate", 0)), lambda: None)
        producer: Any = Producer("gate", plan.producer, session.fail)
        producer._client = _Client()
        producer._ready.set()
        session.producer = producer
        return session

    async def decode(self) -> float:
        """Events to records."""
        gc.collect()
        began = time.process_time()
        async for _ in self.batches(fast=False):
            pass
        return time.process_time() - began

    async def whole(self) -> float:
        """Events to acknowledged batches."""
        session = self.session = self.session or self._session()
        session._worker = asyncio.current_task()
        gc.collect()
        began = time.process_time()
        generator = self.batches()
        while True:
            await session.kafka.room.wait()
            try:
                batch = await anext(generator)
            except StopAsyncIteration:
                break
            await session.handle(batch)
            await asyncio.sleep(0)
        await session.kafka.drain()
        session.ledger.take()
        return time.process_time() - began


async def _serve(events: dict[str, tuple[list[bytes], int]]) -> None:
    paths = {name: _Path(raws, rows) for name, (raws, rows) in events.items()}
    for path in paths.values():
        await path.decode()
        await path.whole()
    settle_heap()
    print(Path(connectors.__file__).parent.parent, flush=True)
    for line in sys.stdin:
        kind, _, name = line.strip().partition(" ")
        path = paths[name]
        print(await getattr(path, kind)() / path.rows * 1e6, flush=True)


if __name__ == "__main__":
    # Made by the parent of this process, in this run.
    asyncio.run(_serve(pickle.loads(Path(sys.argv[1]).read_bytes())))  # noqa: S301
