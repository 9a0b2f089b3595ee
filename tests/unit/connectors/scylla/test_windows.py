"""Windows, lanes, throttles and confidence: the decisions of the reader, without clock or server.

Hypothesis covers: any position, generation end, safe time, width and rules; any rows of streams for the cutting of pages; any
read for continuing after a row and for halving.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.cql.cluster.throttle import InFlightLimit, PageSize, pause_s
from connectors.cql.types import CqlType
from connectors.scylla.model import (
    CdcOptions,
    Generation,
    ReadPosition,
    ScyllaColumn,
    StreamGroup,
    TableId,
    TableVersion,
)
from connectors.scylla.source.feeds import TableFeed, decoded_types, select_text
from connectors.scylla.source.lanes import (
    GroupState,
    Lane,
    ReadProgress,
    StreamRead,
    drop_until,
    find_partitions,
    halve_read,
    plan_lane,
)
from connectors.scylla.source.lateness import HALF_LIFE_S, Confidence, ServerClock
from connectors.scylla.source.windows import (
    WindowRules,
    end_of,
    head_tick_ms,
    millis_of,
    next_width,
    next_window,
    order_of,
    pack_lanes,
    start_of,
)

T0 = 1_700_000_000_000
TABLE = TableId("ks", "t")


def test_bounds_are_those_of_the_server() -> None:
    assert uuid.UUID(bytes=start_of(0)) == uuid.UUID("13814000-1dd2-11b2-8080-808080808080")
    assert uuid.UUID(bytes=end_of(0)) == uuid.UUID("1381670f-1dd2-11b2-7f7f-7f7f7f7f7f7f")
    assert millis_of(start_of(T0)) == millis_of(end_of(T0)) == T0
    assert order_of(start_of(T0)) < order_of(end_of(T0)) < order_of(start_of(T0 + 1))


@given(
    start=st.integers(0, 10_000),
    ahead=st.integers(-5_000, 100_000),
    width=st.integers(1, 100_000),
    end=st.one_of(st.none(), st.integers(0, 50_000)),
    more=st.one_of(st.none(), st.integers(1, 1_000)),
    fixed=st.one_of(st.none(), st.integers(1, 5_000)),
    head=st.integers(1, 2_000),
)
def test_a_window_is_never_wrong(
    start: int, ahead: int, width: int, end: int | None, more: int | None, fixed: int | None, head: int
) -> None:
    rules = WindowRules(fixed_ms=fixed, head_ms=head)
    limit = None if more is None else start + more
    safe = start + ahead
    step = next_window(start, safe, width, rules, end_ms=end, not_after_ms=limit)
    if end is not None and start >= end:
        assert step.finished
        return
    assert not step.finished
    if step.end_ms is None:
        assert step.wait_ms > 0
        # After the wait there is something to read, unless time has not advanced.
        assert next_window(start, safe + step.wait_ms, width, rules, end_ms=end, not_after_ms=limit).end_ms is not None
        return
    assert start < step.end_ms <= safe
    assert end is None or step.end_ms <= end
    assert limit is None or step.end_ms <= limit
    if fixed is not None:
        assert step.end_ms - start <= fixed


def test_the_last_window_ends_exactly_at_the_generation() -> None:
    assert next_window(T0, T0 + 10_000, 60_000, WindowRules(), end_ms=T0 + 300).end_ms == T0 + 300


def test_a_day_of_nothing_takes_a_handful_of_windows() -> None:
    rules, at, width, windows = WindowRules(), T0, WindowRules().first_ms, 0
    while at < T0 + 86_400_000:
        step = next_window(at, T0 + 86_400_000, width, rules)
        assert step.end_ms is not None
        width = next_width(width, step.end_ms - at, 0, rules)
        at, windows = step.end_ms, windows + 1
    assert windows <= 6


def test_dense_windows_become_narrower_and_sparse_ones_wider() -> None:
    rules = WindowRules(target_rows=1_000)
    assert next_width(80_000, 80_000, 4_000, rules) == 20_000
    assert next_width(80_000, 80_000, 1_000_000, rules) == 10_000
    assert next_width(80_000, 80_000, 500, rules) == 160_000
    assert next_width(rules.widest_ms, rules.widest_ms, 0, rules) == rules.widest_ms


def test_many_lanes_tick_slower() -> None:
    assert head_tick_ms(1_000, 16, 200) == 1_000
    assert head_tick_ms(1_000, 2_304, 200) == 11_520


@given(sizes=st.lists(st.integers(1, 150)), limit=st.integers(1, 100))
def test_packing_keeps_order_and_limit(sizes: list[int], limit: int) -> None:
    lanes = pack_lanes(sizes, limit)
    assert [index for lane in lanes for index in lane] == list(range(len(sizes)))
    assert all(len(lane) == 1 or sum(sizes[index] for index in lane) <= limit for lane in lanes)


@given(lengths=st.lists(st.integers(1, 40), max_size=12), limit=st.integers(1, 20))
def test_partitions_are_the_runs_of_streams(lengths: list[int], limit: int) -> None:
    rows = [(stream, index) for stream, length in enumerate(lengths) for index in range(length)]
    partitions = list(find_partitions(rows, limit))
    assert [row for start, stop, _ in partitions for row in rows[start:stop]] == rows
    assert all(
        0 < stop - start <= limit and len({row[0] for row in rows[start:stop]}) == 1 for start, stop, _ in partitions
    )
    ends = [sum(1 for _ in group) for _, group in groupby(rows, key=lambda row: row[0])]
    assert [stop for _, stop, complete in partitions if complete] == [
        sum(ends[: index + 1]) for index in range(len(ends))
    ]


def state_of(
    name: str, start: int, end: int = 0, done: int = 0, resume: tuple[bytes, bytes, int] | None = None
) -> GroupState:
    group = StreamGroup(TABLE, Generation(T0), name, False, tuple(f"{name}{index}".encode() * 8 for index in range(3)))
    stream, time, seq = resume or (None, None, -1)
    return GroupState(group, {"g": name}, ReadPosition(start, end or start, done, stream, time, seq))


def test_groups_that_stand_apart_meet() -> None:
    behind, ahead = state_of("a", T0), state_of("b", T0 + 700)
    lane = Lane([behind, ahead], 60_000)
    first = plan_lane(lane, T0 + 5_000, WindowRules(), 10, end_ms=None).window
    assert first is not None
    assert (first.start_ms, first.end_ms, first.groups) == (T0, T0 + 700, (behind,))
    behind.advance(first.end_ms)
    second = plan_lane(lane, T0 + 5_000, WindowRules(), 10, end_ms=None).window
    assert second is not None
    assert (second.end_ms, second.groups) == (T0 + 5_000, (behind, ahead))
    assert [len(read.streams) for read in second.reads] == [6]


def test_a_group_stopped_inside_a_window_finishes_it_alone_from_where_it_was() -> None:
    time = start_of(T0 + 300)
    state = state_of("a", T0, T0 + 1_000, done=0b001, resume=(b"a1" * 8, time, 4))
    window = plan_lane(Lane([state, state_of("b", T0)], 60_000), T0 + 5_000, WindowRules(), 10, end_ms=None).window
    assert window is not None
    assert (window.start_ms, window.end_ms, window.groups) == (T0, T0 + 1_000, (state,))
    assert [(read.streams, read.lower, read.skip) for read in window.reads] == [
        ((b"a1" * 8,), time, (time, 4)),
        ((b"a2" * 8,), start_of(T0), None),
    ]


def test_a_held_group_is_left_behind_and_others_go_on() -> None:
    lane = Lane([state_of("a", T0), state_of("b", T0)], 60_000)
    held_groups = frozenset({lane.groups[0].name})
    window = plan_lane(lane, T0 + 5_000, WindowRules(), 10, end_ms=None, held_groups=held_groups).window
    assert window is not None
    assert window.groups == (lane.groups[1],)
    assert (
        plan_lane(Lane(lane.groups[:1], 1), T0 + 5_000, WindowRules(), 10, end_ms=None, held_groups=held_groups).window
        is None
    )


@given(count=st.integers(1, 9), span=st.integers(1, 5_000))
def test_halves_cover_what_they_came_from(count: int, span: int) -> None:
    streams = tuple(bytes([index]) * 16 for index in range(count))
    read = StreamRead(streams, start_of(T0), end_of(T0 + span - 1))
    parts = halve_read(read)
    assert tuple(dict.fromkeys(stream for part in parts for stream in part.streams)) == streams
    if count == 1 and len(parts) == 2:
        assert (parts[0].lower, parts[1].upper) == (read.lower, read.upper)
        assert millis_of(parts[0].upper) + 1 == millis_of(parts[1].lower)
        assert [part.final for part in parts] == [False, True]


def test_going_on_after_a_row() -> None:
    a, b, c = (bytes([index]) * 16 for index in range(3))
    moment = start_of(T0 + 5)
    read = StreamRead((a, b, c), start_of(T0), end_of(T0 + 9))
    progress = ReadProgress(read)
    assert progress.take([]) == []
    assert progress.remainder() == [read]
    page: list[Any] = [(b, moment, 0), (a, moment, 3)]
    assert progress.take(page) == page
    assert [(part.streams, part.lower, part.after) for part in progress.remainder()] == [
        ((a,), moment, (moment, 3)),
        ((c,), start_of(T0), None),
    ]
    rows: list[Any] = [(a, moment, seq) for seq in range(6)]
    assert drop_until(rows, a, (moment, 3)) == rows[4:]
    assert drop_until(rows, a, (start_of(T0 + 6), 0)) == []


def test_the_limit_grows_while_answers_are_quick_and_falls_when_they_are_not() -> None:
    limit = InFlightLimit(2, 32, 4)
    for _ in range(200):
        limit.answered(0.01, full=True, in_flight=limit.value)
    grown = limit.value
    assert grown > 10
    for _ in range(60):
        limit.answered(0.5, full=True, in_flight=limit.value)
    assert limit.value < grown / 2
    limit.failed()
    assert limit.value >= 2


def test_pages_are_smaller_where_rows_are_large_or_slow() -> None:
    size = PageSize(2_000, 1_000_000)
    assert size.rows == 2_000
    size.answered([("x" * 100_000,)])
    assert size.rows == 10
    slow = PageSize(2_000)
    slow.failed()
    assert slow.rows == 1_000
    for _ in range(20):
        slow.answered([("x",)])
    assert slow.rows == 2_000


def test_pauses_double_up_to_their_bound() -> None:
    assert [pause_s(attempt, 50, 1_000, 20, 0.0) for attempt in (1, 2, 3, 9)] == [0.05, 0.1, 0.2, 1.0]
    assert pause_s(1, 50, 1_000, 20, 0.5) == 0.045


def test_confidence_follows_lateness_and_forgets_it() -> None:
    confidence = Confidence(2_000, 30_000)
    assert confidence.window_ms(0) == 2_000
    confidence.observe(4_000, 10)
    assert confidence.window_ms(10) == 6_000
    confidence.observe(100_000, 20)
    assert confidence.window_ms(20) == 30_000
    assert confidence.window_ms(20 + HALF_LIFE_S) == 22_500
    assert confidence.window_ms(20 + 20 * HALF_LIFE_S) == 2_000
    fixed = Confidence(2_000, 30_000, 5_000)
    fixed.observe(20_000, 1)
    assert fixed.window_ms(1) == 5_000


def test_the_slowest_server_tells_the_time() -> None:
    clock = ServerClock()
    assert clock.offset_ms() == 0
    clock.sample("a", 900, 1_100)
    assert clock.offset_ms() == 200  # slow, but all there is
    clock.sample("a", 1_010, 1_405)
    clock.sample("a", 4_000, 1_500)
    assert clock.offset_ms() == 395  # a slow answer takes nothing away
    clock.sample("b", 2_010, 1_905)
    clock.sample("b", 3_900, 0)
    assert clock.offset_ms() == -105


def test_a_clock_that_was_set_back_and_a_server_that_is_gone() -> None:
    clock = ServerClock(keep=3)
    clock.sample("gone", 0, -5_000)
    clock.sample("a", 1_000, 1_400)
    assert clock.offset_ms() == -5_000
    for second in range(700, 703):
        clock.sample("a", second * 1_000, second * 1_000 + 100)
    assert clock.offset_ms() == 100


@given(
    ahead=st.integers(-5_000, 5_000),
    trips=st.lists(st.tuples(st.integers(0, 8_000), st.integers(0, 8_000)), min_size=1),
)
def test_now_is_never_later_than_the_servers_time(ahead: int, trips: list[tuple[int, int]]) -> None:
    """However slow the answers are, and wherever on their way the time was spent."""
    clock, now = ServerClock(), 1_000_000
    for there, back in trips:
        clock.sample("a", now + there + back, now + there + ahead)
        now += there + back + 1_000
        assert clock.offset_ms() <= ahead


def version(name: str, since_us: int, *columns: tuple[str, str]) -> TableVersion:
    cells = [ScyllaColumn("pk", CqlType("int"), "partition_key", 0)]
    return TableVersion(
        TABLE,
        (*cells, *(ScyllaColumn(column, CqlType(kind), "regular") for column, kind in columns)),
        CdcOptions(),
        name,
        since_us,
    )


def row(ms: int, *cells: Any) -> tuple[Any, ...]:
    return (b"s" * 16, start_of(ms), 0, 1, None, True, 1, *cells)


def test_rows_come_in_the_form_of_their_own_definition() -> None:
    first, second = version("1", 0, ("a", "text")), version("2", T0 * 1000, ("a", "text"), ("b", "int"))
    feed = TableFeed(TABLE, (first, second), lambda _: None)  # type: ignore[arg-type, return-value]
    rows = [row(T0 - 5, "x", None, None, None), row(T0 - 1, "y", None, None, None), row(T0, "z", None, 7, None)]
    columns = feed.selected_columns(second)
    assert feed.parts(second, columns, rows) == [
        (first, [(*rows[0][:7], "x", None), (*rows[1][:7], "y", None)]),
        (second, rows[2:]),
    ]
    assert feed.parts(second, columns, rows[2:]) == [(second, rows[2:])]


def address(*names: str, kinds: tuple[str, ...] = ("text", "int")) -> CqlType:
    """A user-defined type as it was or is."""
    types = tuple(CqlType(kind) for kind in kinds[: len(names)])
    return CqlType("udt", types, frozen=True, keyspace="ks", udt_name="addr", field_names=names)


@pytest.mark.parametrize(
    ("around", "wrap"),
    [
        (lambda kind: kind, lambda value: value),
        (lambda kind: CqlType("list", (kind,)), lambda value: [(b"t" * 16, value), (b"u" * 16, None)]),
        (lambda kind: CqlType("set", (kind,)), lambda value: [value]),
        (
            lambda kind: CqlType("map", (CqlType("int"), kind), frozen=True),
            lambda value: [{"key": 1, "value": value}],
        ),
        (
            lambda kind: CqlType("tuple", (CqlType("int"), kind), frozen=True),
            lambda value: {"field_0": 1, "field_1": value},
        ),
    ],
)
def test_rows_from_before_a_type_was_altered_keep_their_values(around: Any, wrap: Any) -> None:
    """The last seconds before ALTER TYPE are always read after it."""
    shorter, longer = around(address("street")), around(address("road", "zip"))
    first, second = (
        replace(
            version(name, since_us),
            columns=(
                ScyllaColumn("pk", CqlType("int"), "partition_key", 0),
                ScyllaColumn("home", kind, "regular"),
            ),
        )
        for name, since_us, kind in (("1", 0, shorter), ("2", T0 * 1000, longer))
    )
    feed = TableFeed(TABLE, (first, second), lambda _: None)  # type: ignore[arg-type, return-value]
    tail = [None] * (len(first.log_columns) - 2)
    old, new = wrap({"street": "x"}), wrap({"road": "x", "zip": None})
    columns = feed.selected_columns(second)
    for time_ms, expected in ((T0 - 1, old), (T0, new)):
        for selected, value in ((first, old), (second, new)):
            ((row_version, rows),) = feed.parts(selected, columns, [row(time_ms, value, *tail)])
            assert row_version is (first if time_ms < T0 else second)
            assert rows == [row(time_ms, expected, *tail)]
    ((_, (nothing,)),) = feed.parts(second, columns, [row(T0 - 1, None, *tail)])
    assert nothing[7] is None


def test_a_column_that_came_again_with_another_type_is_null_before() -> None:
    first, second = version("1", 0, ("a", "text")), version("2", T0 * 1000, ("a", "int"))
    feed = TableFeed(TABLE, (first, second), lambda _: None)  # type: ignore[arg-type, return-value]
    columns = feed.selected_columns(second)
    assert feed.parts(second, columns, [row(T0 - 1, 5, None)]) == [(first, [row(T0 - 1, None, None)])]


def test_what_the_log_does_not_have_is_null() -> None:
    two = version("2", 0, ("a", "text"), ("b", "int"))
    feed = TableFeed(
        TABLE,
        (two,),
        lambda _: None,  # type: ignore[arg-type, return-value]
        frozenset({"pk", "a", "cdc$deleted_a"}),
    )
    assert '"b"' not in feed.text(two, single=True)
    assert feed.parts(two, feed.selected_columns(two), [row(T0, "x", True)]) == [
        (two, [row(T0, "x", True, None, None)])
    ]
    assert feed.update((two,), frozenset({"pk", "a", "cdc$deleted_a", "b", "cdc$deleted_b"}))
    assert '"b"' in feed.text(two, single=True)


def test_lists_are_decoded_with_their_times() -> None:
    table = TableVersion(
        TABLE,
        (
            ScyllaColumn("pk", CqlType("int"), "partition_key", 0),
            ScyllaColumn("l", CqlType("list", (CqlType("int"),)), "regular"),
        ),
        CdcOptions(),
        "1",
    )
    columns = tuple(name for name, _ in table.log_columns)
    assert columns == ("pk", "l", "cdc$deleted_l", "cdc$deleted_elements_l")
    assert [kind.name for kind in decoded_types(table, columns)[6:]] == ["int", "timed_list", "boolean", "set"]
    assert 'IN ? AND "cdc$time" >= ?' in select_text(table, columns, single=False)
