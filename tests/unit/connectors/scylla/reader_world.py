"""The reader's world: a log table in memory, a builder of plain records, saved positions and runs up to a kill."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING, Any

from connectors.api import SourceRecord
from connectors.cql.cluster.failures import NodesAway, SchemaChanged
from connectors.cql.cluster.session import ResultPage
from connectors.cql.types import CqlType
from connectors.errors import Fatal, Retriable
from connectors.formats.timeuuid import format_uuid
from connectors.scylla import positions
from connectors.scylla.model import (
    CdcOptions,
    Generation,
    ReadPosition,
    ScyllaColumn,
    StreamGroup,
    StreamRun,
    TableId,
    TableVersion,
)
from connectors.scylla.reader import ScyllaReader
from connectors.scylla.source.feeds import TableFeed
from connectors.scylla.source.lanes import GroupState
from connectors.scylla.source.windows import WindowRules, order_of, start_of
from tests.support.eventually import pass_turns
from worker.host.delivery.batch_delivery import unit_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from connectors.api import OffsetReader
    from connectors.scylla.config.settings import ScyllaReadSettings

TABLE = TableId("ks", "t")
START = 1_700_000_000_000
SPAN = 4_000
VERSION = TableVersion(
    TABLE,
    (ScyllaColumn("pk", CqlType("int"), "partition_key", 0), ScyllaColumn("v", CqlType("int"), "regular")),
    CdcOptions(),
    "one",
)
LOG = logging.LoggerAdapter(logging.getLogger("test"), {})


class Metrics:
    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def set(self, name: str, value: float, labels: Any = None) -> None:
        del labels
        self.values[name] = value

    def add(self, name: str, value: float = 1, labels: Any = None) -> None:
        del labels
        self.values[name] = self.values.get(name, 0) + value


def timeuuid(ms: int, ticks: int, low: int) -> bytes:
    raw = uuid.UUID(bytes=start_of(ms)).int
    base = uuid.UUID(int=raw)
    count = base.time + ticks
    return uuid.UUID(
        fields=(
            count & 0xFFFFFFFF,
            (count >> 32) & 0xFFFF,
            0x1000 | (count >> 48),
            low >> 56,
            (low >> 48) & 0xFF,
            low & 0xFFFFFFFFFFFF,
        )
    ).bytes


class Log:
    """A log table: pages of it as a server would give them, with the streams of an IN in an order of its own."""

    def __init__(self, rows: Iterable[tuple[Any, ...]], chance: random.Random | None = None) -> None:
        self.streams: dict[bytes, list[tuple[Any, ...]]] = {}
        for row in rows:
            self.streams.setdefault(row[0], []).append(row)
        for stream in self.streams.values():
            stream.sort(key=lambda row: (order_of(row[1]), row[2]))
        self.chance = chance
        self.faults = 0
        self.queries = 0
        self.pages = 0

    async def page(
        self,
        text: str,
        parameters: Any,
        *,
        fetch_size: int,
        state: bytes | None = None,
        consistency: str = "QUORUM",
        timeout_s: float = 12.0,
        types: Any = None,
        token: int | None = None,
    ) -> ResultPage:
        del consistency, timeout_s, types, token
        await pass_turns()
        if self.chance is not None and self.faults and self.chance.random() < 0.2:
            self.faults -= 1
            raise self.chance.choice(self._faults(state))
        self.queries += state is None
        self.pages += 1
        streams, lower, upper = parameters
        assert ("IN ?" in text) == isinstance(streams, list)
        asked = streams if isinstance(streams, list) else [streams]
        low, high = order_of(lower), order_of(upper)
        rows = [
            row
            for stream in sorted(asked, key=hash_of)
            for row in self.streams.get(stream, ())
            if low <= order_of(row[1]) <= high
        ]
        start = int(state) if state else 0
        stop = start + fetch_size
        return ResultPage(columns=(), rows=rows[start:stop], state=str(stop).encode() if stop < len(rows) else None)

    @staticmethod
    def _faults(state: bytes | None) -> list[Exception]:
        faults: list[Exception] = [NodesAway("away"), Retriable("too slow"), SchemaChanged("no such column")]
        return [*faults, Fatal("unknown paging state")] if state else faults


def hash_of(stream: bytes) -> int:
    return hash(stream)


class Builder:
    """Each row is a record; the rows of a change without its end are held back, as builders with images do."""

    def __init__(self, _: TableVersion) -> None:
        self.pending: dict[str, tuple[StreamRun, list[Any]]] = {}

    def feed(self, run: StreamRun, out: list[SourceRecord], bad: list[Any]) -> None:
        del bad
        key = run.offset[positions.OFFSET_STREAM]
        _, rows = self.pending.pop(key, (None, []))
        for row in run.rows:
            if rows and rows[-1][1] != row[1]:
                self._out(run, rows, out)
                rows = []
            rows = [*rows, row]
            if row[5]:
                self._out(run, rows, out)
                rows = []
        if rows and run.last:
            self._out(run, rows, out)
        elif rows:
            self.pending[key] = (run, rows)

    @staticmethod
    def _out(run: StreamRun, rows: list[Any], out: list[SourceRecord]) -> None:
        for row in rows:
            if run.skip is not None and (row[1] == run.skip[0] and row[2] <= run.skip[1]):
                continue
            out.append(
                SourceRecord(
                    run.partition,
                    {**run.offset, positions.OFFSET_TIME: format_uuid(row[1]), positions.OFFSET_SEQ: row[2]},
                    "t",
                    value=row,
                )
            )


class Saved:
    def __init__(self) -> None:
        self.offsets: dict[str, dict[str, Any]] = {}

    def get(self, partition: dict[str, Any]) -> dict[str, Any] | None:
        return self.offsets.get(str(partition))

    def items(self) -> list[Any]:
        return []


def groups_of(sizes: list[int], end_ms: int | None) -> list[StreamGroup]:
    groups, number = [], 0
    for index, size in enumerate(sizes):
        streams = tuple(bytes([number + step]) * 16 for step in range(size))
        number += size
        groups.append(StreamGroup(TABLE, Generation(START, end_ms), str(index), False, streams))
    return groups


async def no_refresh(_: TableFeed) -> None:
    await pass_turns()


def reader_of(
    log: Any,
    groups: list[StreamGroup],
    saved: OffsetReader,
    options: ScyllaReadSettings,
    *,
    rules: WindowRules | None = None,
    builder: Callable[[TableVersion], Any] = Builder,
    unsaved: bool = False,
    version: TableVersion = VERSION,
    **more: Any,
) -> ScyllaReader:
    reader = ScyllaReader(log, options, Metrics(), LOG, refresh=no_refresh, rules=rules, **more)
    states = []
    for group in groups:
        position = positions.saved_position(group, saved) or ReadPosition(START, START)
        states.append(GroupState(group, positions.source_partition(group), position, unsaved=unsaved))
    reader.add(TableFeed(TABLE, (version,), builder), states)
    return reader


async def run_once(reader: ScyllaReader, saved: Saved, kept: list[Any], stop_after: int | None, lose: int = 0) -> bool:
    """Run until all groups are finished (True), or until a kill after some batches of which the last ``lose`` are lost."""
    generator = reader.batches()
    got: list[Any] = []
    try:
        async with asyncio.timeout(20):
            while not all(state.finished for state in reader.states):
                if stop_after is not None and len(got) >= stop_after:
                    break
                batch = await anext(generator)
                if batch.records or batch.offsets:
                    got.append(batch)
    finally:
        await generator.aclose()
    for batch in got[: len(got) - lose] if lose else got:
        kept.extend(record.value for record in batch.records)
        for _, partition, offset in unit_of(batch).positions:
            assert offset is not None
            saved.offsets[str(partition)] = offset
    return stop_after is None


def check(rows: list[Any], kept: list[Any]) -> None:
    """Each row once, and within a stream in the log's order."""
    by_stream: dict[bytes, list[Any]] = {}
    for row in kept:
        by_stream.setdefault(row[0], []).append(row)
    expected = Log(rows).streams
    assert {stream: len(stream_rows) for stream, stream_rows in by_stream.items()} == {
        stream: len(stream_rows) for stream, stream_rows in expected.items()
    }
    assert by_stream == expected
