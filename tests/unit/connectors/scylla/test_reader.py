"""The reader against an in-memory log table: however the log is divided, each change comes once and in order.

Hypothesis covers: rows in random streams at random times (several rows of one change, many of one time), groups of random
sizes, random page sizes, window widths and batch sizes, queries that fail, time out, refuse their paging state or complain of
a changed schema, and kills after any batch followed by a restart from the last committed positions (the committed prefix is
random too).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from connectors.api import BadRecord, SourceRecord
from connectors.cql.cluster.failures import NodesAway, SchemaChanged
from connectors.cql.cluster.session import ResultPage
from connectors.cql.types import CqlType
from connectors.errors import Fatal, Retriable, Skippable
from connectors.scylla import positions
from connectors.scylla.events.changes import is_delivered
from connectors.scylla.events.ums_signals import ScyllaUmsSignals
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
from connectors.scylla.source.windows import WindowRules, order_of, start_of, ticks_of
from connectors.testing.contexts import SavedOffsets
from tests.support.eventually import pass_turns
from tests.support.settings import scylla_events, scylla_reading
from worker.host.delivery.batch_delivery import unit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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


@pytest.fixture(autouse=True, scope="module")
def impatience() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("connectors.scylla.reader._QUIET_S", 0.02)
        yield


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
        self.held: dict[str, tuple[StreamRun, list[Any]]] = {}

    def feed(self, run: StreamRun, out: list[SourceRecord], bad: list[Any]) -> None:
        del bad
        key = run.offset[positions.OFFSET_STREAM]
        _, rows = self.held.pop(key, (None, []))
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
            self.held[key] = (run, rows)

    @staticmethod
    def _out(run: StreamRun, rows: list[Any], out: list[SourceRecord]) -> None:
        for row in rows:
            if run.skip is not None and (row[1] == run.skip[0] and row[2] <= run.skip[1]):
                continue
            out.append(
                SourceRecord(
                    run.partition,
                    {**run.offset, positions.OFFSET_TIME: positions.uuid_text(row[1]), positions.OFFSET_SEQ: row[2]},
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
        streams = tuple(bytes([number + each]) * 16 for each in range(size))
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
    **more: Any,
) -> ScyllaReader:
    reader = ScyllaReader(log, options, Metrics(), LOG, refresh=no_refresh, rules=rules, **more)
    states = []
    for group in groups:
        position = positions.saved_position(group, saved) or ReadPosition(START, START)
        states.append(GroupState(group, positions.source_partition(group), position, unsaved=unsaved))
    reader.add(TableFeed(TABLE, (VERSION,), builder), states)
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
    assert {stream: len(each) for stream, each in by_stream.items()} == {
        stream: len(each) for stream, each in expected.items()
    }
    assert by_stream == expected


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[int], list[Any]]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    rows = []
    changes = draw(
        st.lists(
            st.tuples(
                st.integers(0, sum(sizes) - 1),
                st.integers(0, SPAN - 1),
                st.integers(0, 2),
                st.integers(0, (1 << 64) - 1),
                st.integers(1, 9),
                st.booleans(),
            ),
            max_size=60,
            unique_by=lambda change: change[:4],
        )
    )
    for stream, ms, ticks, low, count, closed in changes:
        time = timeuuid(START + ms, ticks, low)
        rows += [
            (bytes([stream]) * 16, time, seq, 1, None, (True if closed and seq == count - 1 else None), seq, 1, None)
            for seq in range(count)
        ]
    return sizes, rows


@settings(
    max_examples=400,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(case=logs(), data=st.data())
def test_each_change_comes_once_and_in_order(case: tuple[list[int], list[Any]], data: st.DataObject) -> None:
    sizes, rows = case
    groups = groups_of(sizes, START + SPAN)
    options = scylla_reading(
        fetch_size=data.draw(st.integers(1, 30)),
        max_batch=data.draw(st.integers(1, 40)),
        max_queue=data.draw(st.integers(40, 200)),
        max_queries=data.draw(st.integers(1, 5)),
        streams_per_query=data.draw(st.integers(1, 7)),
        heartbeat_ms=data.draw(st.sampled_from([1, 60_000])),
        confidence_ms=0,
        retry_base_ms=0,
        retry_max_ms=0,
    )
    fixed = data.draw(st.one_of(st.none(), st.integers(100, SPAN * 2)))
    saved = Saved()
    kept: list[Any] = []
    log = Log(rows, random.Random(data.draw(st.integers(0, 1000))))

    async def scenario() -> None:
        for _ in range(data.draw(st.integers(0, 6))):
            rules = WindowRules(
                fixed_ms=fixed,
                head_ms=50,
                first_ms=data.draw(st.sampled_from([50, 400, 10_000])),
                target_rows=data.draw(st.sampled_from([3, 1000])),
            )
            log.faults = data.draw(st.integers(0, 6))
            stop = data.draw(st.integers(1, 12))
            await run_once(
                reader_of(log, groups, saved, options, rules=rules), saved, kept, stop, data.draw(st.integers(0, stop))
            )
        log.faults = 5
        await run_once(reader_of(log, groups, saved, options, rules=WindowRules(fixed, 50, 400)), saved, kept, None)

    asyncio.run(scenario())
    check(rows, kept)
    for group in groups:
        # The end of the generation is saved at once: the connector waits for it.
        position = positions.saved_position(group, saved)
        assert position is not None
        assert position.window_start_ms == START + SPAN


async def test_heartbeat_messages_promise_what_was_sent_before_them() -> None:
    """Whatever has an earlier time than a heartbeat came before it; promises grow."""
    random_ = random.Random(4)
    rows = [
        (bytes([stream]) * 16, timeuuid(START + ms, 0, 0), 0, 1, None, True, 0, 1, None)
        for stream in range(6)
        for ms in sorted(random_.sample(range(SPAN), 20))
    ]
    groups = groups_of([2, 2, 2], START + SPAN)
    options = scylla_reading(heartbeat_ms=1, confidence_ms=0, retry_base_ms=0, retry_max_ms=0, streams_per_query=2)
    reader = reader_of(
        Log(rows, random_),
        groups,
        Saved(),
        options,
        rules=WindowRules(100, 50, 400),
        signals=ScyllaUmsSignals(scylla_events(topic_prefix="p", output_format="ums"), {str(TABLE): "1/2"}),
    )
    kept: list[Any] = []
    await run_once(reader, Saved(), kept, None)
    beats = [(number, value) for number, value in enumerate(kept) if isinstance(value, dict)]
    assert len(beats) > 3
    times = []
    for number, value in beats:
        assert (value["protocol"]["type"], value["protocol"]["part"]) == ("data_increment_heartbeat", "1/2")
        (stamp,) = value["payload"][0]["tuple"]
        times.append(datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp() * 1000)
        assert all(ticks_of(row[1]) >= round(times[-1]) * 10_000 for row in kept[number:] if not isinstance(row, dict))
    assert times == sorted(set(times))


async def test_a_long_empty_history_costs_few_queries() -> None:
    log = Log([])
    groups = groups_of([1] * 64, START + 86_400_000)
    reader = reader_of(log, groups, Saved(), scylla_reading(streams_per_query=64, confidence_ms=0))
    assert await run_once(reader, Saved(), [], None)
    assert log.queries <= 6


async def test_memory_stays_bounded_while_nobody_takes_batches() -> None:
    stream = 100_000
    rows = [
        (bytes([index % 40]) * 16, timeuuid(START + index // 40, index % 9, index), 0, 1, None, True, 1, 1, None)
        for index in range(stream)
    ]
    groups = groups_of([1] * 40, START + SPAN)
    log = Log(rows)
    options = scylla_reading(fetch_size=500, max_queue=4_000, max_batch=1_000, streams_per_query=4, confidence_ms=0)
    reader = reader_of(log, groups, Saved(), options, builder=Builder)
    generator = reader.batches()
    batch = await anext(generator)
    await pass_turns(3_000)
    assert len(batch.records) <= 2_000
    # What waits, and one page of each query that was under way.
    assert reader.fetcher.gate.rows <= 4_000 + 16 * 500
    await generator.aclose()
    assert all(job.done() for job in reader.fetcher.jobs())


async def test_nothing_works_for_long_is_retriable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.scylla.source.fetching._OUTAGE_S", -1.0)

    class Away(Log):
        async def page(self, *args: Any, **kwargs: Any) -> ResultPage:
            del args, kwargs
            raise Retriable("no host")

    options = scylla_reading(confidence_ms=0, retry_base_ms=0, max_tries=5)
    reader = reader_of(Away([]), groups_of([2], START + SPAN), Saved(), options)
    with pytest.raises(Retriable, match="5 tries"):
        await run_once(reader, Saved(), [], None)


async def test_one_bad_lane_does_not_stop_the_others() -> None:
    rows = [(bytes([stream]) * 16, timeuuid(START + 5, 0, stream), 0, 1, None, True, 1, 1, None) for stream in range(4)]

    class Half(Log):
        broken = True

        async def page(self, text: str, parameters: Any, **more: Any) -> ResultPage:
            await pass_turns()
            if self.broken and parameters[0] == bytes([2]) * 16:
                raise Retriable("replicas of this range are away")
            return await super().page(text, parameters, **more)

    log = Half(rows)
    options = scylla_reading(confidence_ms=0, retry_base_ms=1, retry_max_ms=2, max_tries=3, streams_per_query=1)
    reader = reader_of(log, groups_of([1] * 4, START + SPAN), Saved(), options)
    generator = reader.batches()
    kept: list[Any] = []
    async with asyncio.timeout(20):
        while sum(state.finished for state in reader.states) < 3:
            kept += [record.value for record in (await anext(generator)).records]
        log.broken = False
        while not all(state.finished for state in reader.states):
            kept += [record.value for record in (await anext(generator)).records]
    await generator.aclose()
    check(rows, kept)


async def test_a_held_group_waits_while_the_others_go_on() -> None:
    rows = [(bytes([stream]) * 16, timeuuid(START + 5, 0, stream), 0, 1, None, True, 1, 1, None) for stream in range(3)]

    class Hook:
        def __init__(self) -> None:
            self.held = {"1"}
            self.marks: list[tuple[str, int]] = []
            self.given = False

        async def run(self, wake: Any) -> None:
            self.wake = wake

        def holds(self, group: StreamGroup) -> bool:
            return group.name in self.held

        def window_ended(self, group: StreamGroup, watermark_ms: int) -> None:
            self.marks.append((group.name, watermark_ms))

        def row_filter(self, group: StreamGroup) -> Any:
            return (lambda _: []) if group.name == "2" else None

        def take(self, limit: int, out: list[SourceRecord], bad: Any, offsets: list[Any]) -> bool:
            del limit, bad, offsets
            if not self.held and not self.given:
                self.given = True
                out.append(SourceRecord({"snapshot": "1"}, {"at": 1}, "t", value="snapshot"))
            return False

    hook = Hook()
    options = scylla_reading(confidence_ms=0, streams_per_query=3)
    reader = reader_of(Log(rows), groups_of([1] * 3, START + SPAN), Saved(), options, hook=hook)
    generator = reader.batches()
    kept: list[Any] = []
    async with asyncio.timeout(20):
        while sum(state.finished for state in reader.states) < 2:
            kept += [record.value for record in (await anext(generator)).records]
        assert kept == [rows[0]]
        assert ("1", START) in hook.marks
        assert ("1", START + SPAN) not in hook.marks
        hook.held = set()
        hook.wake()
        while not all(state.finished for state in reader.states):
            kept += [record.value for record in (await anext(generator)).records]
    await generator.aclose()
    assert sorted(map(str, kept)) == sorted(map(str, [rows[0], rows[1], "snapshot"]))


def test_ticks_and_bounds() -> None:
    assert ticks_of(timeuuid(START, 7, 5)) == START * 10_000 + 7


async def test_where_reading_begins_is_saved_before_anything_is_read() -> None:
    """A look-back is counted from the first start on: a log that can't be read yet, and a restart, do not move it."""

    class Silent(Log):
        async def page(self, *args: Any, **kwargs: Any) -> ResultPage:
            del args, kwargs
            return await asyncio.Future()

    groups = groups_of([1, 2], None)
    saved = SavedOffsets()
    options = scylla_reading(confidence_ms=0, heartbeat_ms=60_000)
    reader = reader_of(Silent([]), groups, saved, options, unsaved=True)
    async with asyncio.timeout(20), aclosing(reader.batches()) as stream:
        saved.deliver(await anext(stream))
    assert [positions.saved_position(group, saved) for group in groups] == [ReadPosition(START, START)] * 2


async def test_late_rows_come_after_all_and_widen_the_confidence_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.scylla.source.recheck.ZONE_MS", 300)
    now = int(time.time() * 1000)
    (group,) = groups_of([2], None)
    log = Log([])
    saved = Saved()
    saved.offsets[str(positions.source_partition(group))] = positions.source_offset(ReadPosition(now - 500, now - 500))
    options = scylla_reading(confidence_min_ms=50, confidence_max_ms=1_500, window_min_ms=50, heartbeat_ms=60_000)
    reader = reader_of(log, [group], saved, options, rules=WindowRules(head_ms=50))
    generator = reader.batches()
    early = (bytes([0]) * 16, timeuuid(now - 100, 0, 1), 0, 1, None, True, 1, 1, None)
    late = (bytes([1]) * 16, timeuuid(now - 100, 0, 2), 0, 1, None, True, 1, 1, None)
    log.streams[early[0]] = [early]
    records: list[Any] = []
    async with asyncio.timeout(20):
        while not records or reader.states[0].start_ms <= now:
            records += (await anext(generator)).records
        log.streams[late[0]] = [late]
        while len(records) < 2:
            records += (await anext(generator)).records
    await generator.aclose()
    assert [record.value for record in records] == [early, late]
    # A position between two windows: it repeats nothing and passes over nothing.
    position = positions.parse_offset(records[1].source_offset, group.streams)
    assert position.stream is None
    assert position.window_start_ms == position.window_end_ms
    assert reader.confidence.late_rows == 1
    assert reader.confidence.window_ms(time.monotonic()) > 50


def bad_row(stream: int, ms: int, kind: str = "row") -> tuple[Any, ...]:
    """A row of a change of its own; of the kind ``bad`` it can't be made a record."""
    return (bytes([stream]) * 16, timeuuid(START + ms, 0, 1), 0, 1, None, True, kind, 1, None)


class PickyBuilder(Builder):
    """Rows of the kind ``bad`` are bad records, reported before the records of their run, as builders do with bad cells."""

    def feed(self, run: StreamRun, out: list[SourceRecord], bad: list[Any]) -> None:
        bad.extend(
            BadRecord(
                run.partition,
                {**run.offset, positions.OFFSET_TIME: positions.uuid_text(row[1]), positions.OFFSET_SEQ: row[2]},
                Skippable("bad"),
                repr(row).encode(),
            )
            for row in run.rows
            if row[6] == "bad" and not is_delivered(row, run.skip)
        )
        super().feed(run._replace(rows=[row for row in run.rows if row[6] != "bad"]), out, bad)


async def taken(
    reader: ScyllaReader, saved: SavedOffsets, stop: Callable[[list[Any], list[Any]], bool]
) -> tuple[list[Any], list[Any]]:
    """Rows and bad ones until ``stop`` says so, their batches delivered as the conformance kit does it."""
    rows: list[Any] = []
    bad: list[Any] = []
    async with asyncio.timeout(20), aclosing(reader.batches()) as stream:
        async for batch in stream:
            saved.deliver(batch)
            rows += [record.value for record in batch.records]
            bad += [each.raw for each in batch.bad]
            if stop(rows, bad) or all(state.finished for state in reader.states):
                break
    return rows, bad


@settings(
    max_examples=200,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_delivered_batch_passes_its_bad_records(data: st.DataObject) -> None:
    """Whatever window, page or batch they come in, and however rarely positions are saved in quiet times."""
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    place = st.tuples(st.integers(0, sum(sizes) - 1), st.integers(0, SPAN - 1), st.sampled_from(["bad", "row"]))
    places = data.draw(st.lists(place, min_size=1, max_size=20, unique_by=lambda place: place[:2]))
    rows = [bad_row(*place) for place in places]
    log, groups = Log(rows), groups_of(sizes, START + SPAN)
    options = scylla_reading(
        confidence_ms=0,
        streams_per_query=data.draw(st.integers(1, 9)),
        heartbeat_ms=60_000,
        fetch_size=data.draw(st.integers(1, 9)),
        max_batch=data.draw(st.sampled_from([1, 3, 100])),
    )
    rules = WindowRules(head_ms=50, first_ms=data.draw(st.sampled_from([50, 400, 10_000])), target_rows=3)
    saved = SavedOffsets()
    got: list[Any] = []
    refused: list[Any] = []

    async def scenario() -> None:
        while len(got) + len(refused) < len(
            rows
        ):  # each incarnation ends with the batch of a bad record, or with the log
            reader = reader_of(log, groups, saved, options, rules=rules, builder=PickyBuilder)
            more, bad = await taken(reader, saved, lambda _, bad: bool(bad))
            assert more or bad
            got.extend(more)
            refused.extend(bad)

    asyncio.run(scenario())
    assert sorted(refused) == sorted(repr(row).encode() for row in rows if row[6] == "bad")
    check([row for row in rows if row[6] != "bad"], got)


async def test_a_bad_record_is_passed_although_its_windows_end_is_not_saved() -> None:
    (group,) = groups_of([2], None)
    saved = SavedOffsets()
    log = Log([bad_row(0, 100), bad_row(0, 200, "bad")])
    options = scylla_reading(confidence_ms=0, heartbeat_ms=60_000, max_batch=1)
    # The first window ends before there is anything: its end is saved, and then no other for a minute.
    rules = WindowRules(head_ms=50, first_ms=50)
    rows, bad = await taken(
        reader_of(log, [group], saved, options, rules=rules, builder=PickyBuilder), saved, lambda _, bad: bool(bad)
    )
    assert (len(rows), len(bad)) == (1, 1)
    log.streams[b"\x00" * 16].append(bad_row(0, 900))
    rows, bad = await taken(
        reader_of(log, [group], saved, options, rules=rules, builder=PickyBuilder), saved, lambda rows, _: bool(rows)
    )
    assert ([row[1] for row in rows], bad) == ([timeuuid(START + 900, 0, 1)], [])
