"""The loop of a run: what a batch holds."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from connectors.mysql.model import MARIADB, BinlogPosition, Shard
from connectors.mysql.run.batching import BatchMaker
from connectors.mysql.run.heartbeats import RunHeartbeats
from connectors.mysql.run.reading import StreamReading
from connectors.mysql.schema.versions import VersionBook
from connectors.mysql.snapshot.tables import StreamPosition
from connectors.mysql.source import event_types as types
from connectors.mysql.stream.counters import StreamCounters
from connectors.mysql.stream.latency import HeartbeatLatency
from tests.support.eventually import patience
from tests.support.settings import mysql_events, mysql_topics
from tests.unit.connectors.mysql.snapshot.run_world import settings
from tests.unit.connectors.mysql.synthetic import (
    PARTITION,
    UUID,
    Log,
    description,
    keys,
    payload,
    query,
    reader,
    rotate,
    rows_body,
    table_map,
)

if TYPE_CHECKING:
    from connectors.api import Position, SourceRecord
    from connectors.mysql.run.records import RunRecords
    from connectors.mysql.run.reporting import RunReport
    from connectors.mysql.run.signalling import RunSignals
    from connectors.mysql.run.statements import RunStatements
    from connectors.mysql.snapshots import RunSnapshots
    from connectors.mysql.source.binlog import BinlogClient
    from tests.unit.connectors.mysql.synthetic import Reader


class Client:
    """A server that sends some events, and then nothing."""

    def __init__(self, raws: list[bytes]) -> None:
        self._raws = raws

    @property
    def pending(self) -> bool:
        return bool(self._raws)

    def take(self) -> list[bytes]:
        raws, self._raws = self._raws, []
        return raws

    async def wait(self) -> None:
        await asyncio.Event().wait()


class QuietSnapshots:
    """Snapshots of which there are none."""

    finished = False

    def __init__(self) -> None:
        self.reader = SimpleNamespace(watched={}, withheld={}, advance=lambda _reached: None)

    async def agree(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_options: None if name == "ready" else ()


def reading_of(
    stream: Reader, raws: list[bytes], max_batch: int, snapshots: QuietSnapshots | None = None
) -> StreamReading:
    context = SimpleNamespace(
        settings=mysql_events(topics=mysql_topics(prefix="p")), partition=PARTITION, held_rows=None, signals=None
    )
    records = cast("RunRecords", SimpleNamespace(context=context, versions=VersionBook("p", "", ())))
    stream_settings = settings(max_batch_size=str(max_batch))
    run_snapshots = cast("RunSnapshots", snapshots or QuietSnapshots())
    return StreamReading(
        stream_settings,
        cast("BinlogClient", Client(raws)),
        stream.stream,
        BatchMaker(stream_settings, records, run_snapshots, HeartbeatLatency(60), StreamCounters(), atomic=False),
        cast("RunStatements", SimpleNamespace(waiting=[])),
        cast("RunSignals", SimpleNamespace(moved_to=None, moved_by="", moved_by_record="", start=lambda: None)),
        RunHeartbeats(0, records, None, None, Shard()),
        cast("RunReport", SimpleNamespace(send=lambda *_args: False, start=lambda _cursor: None)),
    )


def compressed_transaction(groups: int, rows: int) -> Log:
    log = Log()
    log.gtid(5)
    inner = [(types.QUERY, query("BEGIN", ""))]
    for group in range(groups):
        numbers = range(group * rows, (group + 1) * rows)
        inner += [
            (types.TABLE_MAP, table_map("t", 90)),
            (types.WRITE_ROWS, rows_body([(number, number, b"") for number in numbers], 90)),
        ]
    log.event(types.TRANSACTION_PAYLOAD, payload(*inner, (types.XID, bytes(8)), compressed=True))
    log.transaction(6, [1_000_000])
    return log


async def test_a_compressed_transaction_is_handed_over_in_parts_and_can_be_resumed_after_each() -> None:
    log = compressed_transaction(20, 10)
    begin: Position = {"file": "b.000007", "pos": 1000, "gtids": f"{UUID}:1-4"}
    received: list[SourceRecord] = []
    async with (
        patience(20),
        aclosing(reading_of(reader(begin), log.since(1000), 25).read()) as batches,
    ):
        async for batch in batches:
            assert len(batch.records) < 25 + 10
            received += batch.records
            if received:
                offset = received[-1].source_offset
                remainder = await reader(offset).feed(log.since(offset["pos"]))
                assert keys(received) + keys(remainder) == [*range(200), 1_000_000]
            if len(received) == 201:
                break


async def test_positions_inside_a_compressed_transaction_count_its_rows() -> None:
    log = compressed_transaction(4, 3)
    stream = reader({"file": "b.000007", "pos": 1000, "gtids": f"{UUID}:1-4"})
    raws = log.since(1000)
    pauses = 0
    for raw in raws:
        if (waiting := stream.stream.accept(raw)) is not None:
            await waiting
            while stream.stream.unfinished:
                before = keys(stream.stream.output.records)
                resumed = reader(stream.cursor.now())
                assert before + keys(await resumed.feed(raws)) == [*range(12), 1_000_000]
                pauses += 1
                await stream.stream.proceed()
    assert pauses == 4


class Started(QuietSnapshots):
    """Snapshots that open a view as soon as they start."""

    def __init__(self, position: StreamPosition) -> None:
        super().__init__()
        self.position = position
        self.low: BinlogPosition | None = None

    async def start(self) -> None:
        self.low = self.position.seen()


async def test_a_snapshot_that_starts_after_a_failover_does_not_wait_for_the_file_of_the_server_before() -> None:
    stream = reader({"file": "a.000103", "pos": 9_000, "gtids": f"{UUID}:1-4"}, same_server=False)
    log = Log(4)
    log.transaction(5, [5])
    snapshots = Started(StreamPosition(stream.cursor, MARIADB, by_gtid=False))
    reading = reading_of(stream, [rotate("b.000007", 4), description(0), *log.since(4)[2:]], 1, snapshots)
    await reading.start()
    assert snapshots.low == BinlogPosition(file="b.000007", pos=4)
    async with patience(20), aclosing(reading.read()) as batches:
        async for batch in batches:
            if batch.records:
                assert keys(batch.records) == [5]
                break
