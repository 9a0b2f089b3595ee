"""The reader against an in-memory log table: however the log is divided, each change comes once and in order.

Hypothesis covers: rows in random streams at random times (several rows of one change, many of one time), groups of random
sizes, random page sizes, window widths and batch sizes, queries that fail, time out, refuse their paging state or complain of
a changed schema, and kills after any batch followed by a restart from the last committed positions (the committed prefix is
random too).
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from connectors.api import SourceRecord
from connectors.cql.types import CqlType
from connectors.errors import Retriable
from connectors.scylla import positions
from connectors.scylla.events.ums_signals import ScyllaUmsSignals
from connectors.scylla.model import CdcOptions, ReadPosition, ScyllaColumn, TableVersion
from connectors.scylla.source.windows import WindowRules, ticks_of
from connectors.testing.contexts import SavedOffsets
from tests.support.eventually import pass_turns
from tests.support.settings import scylla_events, scylla_reading
from tests.unit.connectors.scylla.reader_world import (
    SPAN,
    START,
    TABLE,
    Builder,
    Log,
    Saved,
    check,
    groups_of,
    reader_of,
    run_once,
    timeuuid,
)

if TYPE_CHECKING:
    from connectors.cql.cluster.session import ResultPage
    from connectors.scylla.model import StreamGroup

pytestmark = pytest.mark.usefixtures("impatience")


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
            self.held_groups = {"1"}
            self.watermarks: list[tuple[str, int]] = []
            self.has_sent = False

        async def run(self, wake: Any) -> None:
            self.wake = wake

        def holds(self, group: StreamGroup) -> bool:
            return group.name in self.held_groups

        def window_ended(self, group: StreamGroup, watermark_ms: int) -> None:
            self.watermarks.append((group.name, watermark_ms))

        def row_filter(self, group: StreamGroup) -> Any:
            return (lambda _: []) if group.name == "2" else None

        def take(self, limit: int, out: list[SourceRecord], bad: Any, offsets: list[Any]) -> bool:
            del limit, bad, offsets
            if not self.held_groups and not self.has_sent:
                self.has_sent = True
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
        assert ("1", START) in hook.watermarks
        assert ("1", START + SPAN) not in hook.watermarks
        hook.held_groups = set()
        hook.wake()
        while not all(state.finished for state in reader.states):
            kept += [record.value for record in (await anext(generator)).records]
    await generator.aclose()
    assert sorted(map(str, kept)) == sorted(map(str, [rows[0], rows[1], "snapshot"]))


def test_ticks_and_bounds() -> None:
    assert ticks_of(timeuuid(START, 7, 5)) == START * 10_000 + 7


async def test_rows_that_were_read_before_a_column_was_dropped_keep_their_values() -> None:
    """A page waits to be made records while the definition is read again, and the log has fewer columns by then."""
    columns = (
        ScyllaColumn("pk", CqlType("int"), "partition_key", 0),
        *(ScyllaColumn(name, CqlType("int"), "regular") for name in ("a", "b")),
    )
    before = TableVersion(TABLE, columns, CdcOptions(), "before")
    after = TableVersion(TABLE, (columns[0], columns[2]), CdcOptions(), "after", (START + SPAN) * 1000)
    rows = [
        (bytes([stream]) * 16, timeuuid(START + 5, 0, stream), 0, 1, None, True, stream, 10 + stream, None, 20, None)
        for stream in range(2)
    ]
    options = scylla_reading(confidence_ms=0, max_batch=1)
    reader = reader_of(Log(rows), groups_of([2], START + SPAN), Saved(), options, version=before)
    kept: list[Any] = []
    async with asyncio.timeout(20), aclosing(reader.batches()) as stream:
        async for batch in stream:
            kept += [record.value for record in batch.records]
            if len(kept) == 1:
                (section,) = reader.sections()
                section.feed.update((before, after), frozenset({"pk", "b", "cdc$deleted_b"}))
            if len(kept) == 2:
                break
    check(rows, kept)


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


async def test_a_window_that_waited_for_its_turn_is_looked_at_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """While Kafka takes no batches a window that was read young gets old; how late a row was does not grow by that."""
    monkeypatch.setattr("connectors.scylla.source.recheck.ZONE_MS", 300)
    now = int(time.time() * 1000)
    (group,) = groups_of([2], None)
    log = Log([])
    saved = Saved()
    saved.offsets[str(positions.source_partition(group))] = positions.source_offset(
        ReadPosition(now - 9_000, now - 9_000)
    )
    options = scylla_reading(confidence_min_ms=50, confidence_max_ms=30_000, window_min_ms=50, heartbeat_ms=60_000)
    reader = reader_of(log, [group], saved, options, rules=WindowRules(head_ms=50), unsaved=True)
    late = (bytes([1]) * 16, timeuuid(now - 4_000, 0, 2), 0, 1, None, True, 1, 1, None)
    records: list[Any] = []
    async with asyncio.timeout(20), aclosing(reader.batches()) as stream:
        assert not (await anext(stream)).records
        while not log.queries:
            await pass_turns()
        await pass_turns()
        log.streams[late[0]] = [late]
        reader.clock.sample("a", time.monotonic() * 1000, time.time() * 1000 + 60_000)
        while not records:
            records += (await anext(stream)).records
    assert [record.value for record in records] == [late]
    assert 3_900 < reader.confidence.lateness_ms(time.monotonic()) < 20_000
