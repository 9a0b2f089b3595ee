"""Positions of snapshots: ranges of tokens, what is left for groups of a new generation; rows as they are read."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.cql.cluster.throttle import Pace
from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN, TokenRange, count_tokens, subtract_ranges
from connectors.cql.types import CqlType
from connectors.errors import Fatal
from connectors.scylla.model import CdcOptions, Generation, ScyllaColumn, StreamGroup, TableId, TableVersion
from connectors.scylla.positions import saved_windows, source_partition
from connectors.scylla.snapshot.index import SnapshotIndex
from connectors.scylla.snapshot.merging import (
    ChangeTraces,
    SnapshotPosition,
    find_remaining,
    first_position,
    from_offset,
    is_snapshot,
    partition_of,
    positions_of,
    show_share,
    to_offset,
    unwrap_range,
)
from connectors.scylla.snapshot.rows import RowPlan
from tests.unit.connectors.scylla.snapshot_world import superseded

if TYPE_CHECKING:
    from connectors.api import Position

    Saved = list[tuple[Position, SnapshotPosition]]

TABLE = TableId("ks", "t")
small = st.integers(-6, 6)
ranges = st.lists(small, min_size=2, max_size=2, unique=True).map(lambda pair: TokenRange(min(pair), max(pair)))
parts = st.lists(ranges, max_size=4)
some_parts = st.lists(ranges, min_size=1, max_size=4)
cuts = st.lists(st.one_of(small, st.sampled_from([MIN_TOKEN + 1, MAX_TOKEN])), min_size=1, max_size=4, unique=True).map(
    sorted
)


def group(name: str, token_range: tuple[int, int], generation: int = 1) -> StreamGroup:
    return StreamGroup(TABLE, Generation(generation), name, False, (bytes(16),), token_range)


def tokens(ranges: list[TokenRange] | tuple[TokenRange, ...]) -> set[int]:
    return {token for part in ranges for token in range(part.after + 1, part.upto + 1)}


@given(parts, parts)
def test_subtract_leaves_what_is_in_none_of_the_others(mine: list[TokenRange], others: list[TokenRange]) -> None:
    assert tokens(subtract_ranges(mine, others)) == tokens(mine) - tokens(others)


@given(cuts)
def test_the_ranges_of_a_ring_cover_each_token_once(ends: list[int]) -> None:
    ranges = [part for number, end in enumerate(ends) for part in unwrap_range((ends[number - 1], end))]

    assert count_tokens(ranges) == MAX_TOKEN - MIN_TOKEN
    assert subtract_ranges([TokenRange(MIN_TOKEN, MAX_TOKEN)], ranges) == []


@given(cuts, cuts, st.data())
def test_groups_of_a_new_generation_go_on_with_what_is_left(
    old: list[int], new: list[int], data: st.DataObject
) -> None:
    saved = []
    left: list[TokenRange] = []
    for number, end in enumerate(old):
        old_group = group(str(number), (old[number - 1], end))
        whole = unwrap_range((old[number - 1], end))
        done = data.draw(parts)
        position = SnapshotPosition(whole, tuple(subtract_ranges(whole, done)), "id")
        left += position.left
        saved.append((partition_of(old_group), position))
    positions = [
        first_position(group(str(number), (new[number - 1], end), 2), unwrap_range((new[number - 1], end)), "id", saved)
        for number, end in enumerate(new)
    ]

    assert count_tokens(subtract_ranges(left, [part for position in positions for part in position.left])) == 0
    assert sum(count_tokens(position.left) for position in positions) == count_tokens(left)


@given(cuts, cuts, cuts)
def test_rows_and_times_are_taken_over_by_a_new_generation(old: list[int], new: list[int], newest: list[int]) -> None:
    def cut(ends: list[int], generation: int, saved: Saved) -> Saved:
        groups = [group(str(number), (ends[number - 1], end), generation) for number, end in enumerate(ends)]
        return [
            (
                partition_of(new_group),
                first_position(new_group, unwrap_range(new_group.token_range or (0, 0)), "id", saved),
            )
            for new_group in groups
        ]

    first = [
        (partition, replace(position, left=(), rows=1_000_000, started_ms=5 + number, finished_ms=50 + number))
        for number, (partition, position) in enumerate(cut(old, 1, []))
    ]
    second = cut(new, 2, first)
    # Positions of the first generation are still there: what the second has taken over does not count twice.
    third = cut(newest, 3, [*first, *second])

    for positions in (second, third):
        assert all(position.finished for _, position in positions)
        assert 0 <= 1_000_000 * len(old) - sum(position.rows for _, position in positions) <= 40
        assert min(position.started_ms for _, position in positions) == 5
        assert max(position.finished_ms for _, position in positions) == 50 + len(old) - 1


def test_a_snapshot_is_shown_by_table() -> None:
    whole = (TokenRange(0, 100),)
    done = SnapshotPosition(whole, (), "id", 7, 5, 9)
    assert show_share({}) == []
    (shown,) = show_share({TABLE: [done, SnapshotPosition(whole, whole, "id", 2, 4)], TableId("ks", "other"): [done]})
    assert (shown["state"], shown["started_ms"], shown["finished_ms"]) == ("running", 4, None)
    assert [(table["table"], table["state"], table["rows_done"]) for table in shown["tables"]] == [
        (str(TABLE), "running", 9),
        ("ks.other", "done", 7),
    ]
    (shown,) = show_share({TABLE: [done, done]})
    assert (shown["state"], shown["started_ms"], shown["finished_ms"]) == ("completed", 5, 9)


def test_a_token_under_way_goes_on_behind_the_row_that_was_sent() -> None:
    whole = (TokenRange(0, 100),)
    position = SnapshotPosition(whole, whole, "id").sent(50, "abcd")

    assert find_remaining([TokenRange(-10, 70)], [position]) == (TokenRange(-10, 0), TokenRange(49, 70, "abcd"))
    assert find_remaining([TokenRange(60, 70)], [position]) == (TokenRange(60, 70),)
    assert position.resend_first_token().left == (TokenRange(49, 100),)
    assert position.range_sent(7) == SnapshotPosition(whole, (), "id", finished_ms=7)


@given(parts, st.sampled_from(["", "0123456789abcdef"]), st.sampled_from(["", "an-id"]))
def test_offsets_survive_json(left: list[TokenRange], row: str, table_id: str) -> None:
    position = SnapshotPosition(
        (TokenRange(-6, 6),), tuple(part._replace(resume=row) for part in left), table_id, len(left), 5
    )

    assert from_offset(json.loads(json.dumps(to_offset(position)))) == position


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"token_range": "1:2"},
        {"token_range": "2:1", "token_range_left": ""},
        {"token_range": "1:2", "token_range_left": "x:2"},
        {"token_range": "1:2:a:b", "token_range_left": ""},
        {"token_range": "1:2", "token_range_left": "", "rows": "many"},
    ],
)
def test_offsets_that_are_none(offset: dict[str, str]) -> None:
    with pytest.raises(Fatal, match="snapshot"):
        from_offset(offset)


def test_partitions_of_snapshots_are_none_of_streams() -> None:
    snapshot_group = group("3", (0, 9))
    offset = to_offset(SnapshotPosition((TokenRange(0, 9),), ()))

    assert is_snapshot(partition_of(snapshot_group))
    assert not is_snapshot(source_partition(snapshot_group))
    assert saved_windows([(partition_of(snapshot_group), offset)]) == {}


def test_a_table_made_again_is_read_again() -> None:
    saved = [(partition_of(group("3", (0, 9))), to_offset(SnapshotPosition((TokenRange(0, 9),), (), "old")))]

    assert positions_of(TABLE, "new", saved) == []
    assert len(positions_of(TABLE, "old", saved)) == 1
    assert positions_of(TableId("ks", "other"), "old", saved) == []


def test_positions_go_when_newer_ones_cover_them() -> None:
    old = partition_of(group("0", (0, 10), 1)), SnapshotPosition((TokenRange(0, 10),), ())
    half = partition_of(group("0", (0, 5), 2)), SnapshotPosition((TokenRange(0, 5),), ())
    rest = partition_of(group("1", (5, 20), 2)), SnapshotPosition((TokenRange(5, 20),), (TokenRange(10, 20),))

    assert superseded([old, half]) == []
    assert superseded([old, half, rest]) == [old[0]]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), some_parts, parts), max_size=8), some_parts)
def test_an_index_finds_what_all_positions_together_say(
    writes: list[tuple[int, int, list[TokenRange], list[TokenRange]]], whole: list[TokenRange]
) -> None:
    positions: dict[str, tuple[Any, SnapshotPosition]] = {}
    index = SnapshotIndex()
    gone: set[str] = set()
    for generation, name, mine, left in writes:
        partition = partition_of(group(str(name), (0, 1), generation))
        position = SnapshotPosition(tuple(mine), tuple(left), rows=len(left), started_ms=generation)
        index.put(partition, position.whole, partial(replace, position))
        key = repr(partition)
        if key in positions and positions[key][1].whole != position.whole:
            del positions[key]  # as in the index: a position with other tokens comes behind the others
        positions[key] = (partition, position)
        gone |= {repr(older) for older in index.superseded_by(position.whole)}
        assert partition in index
    saved = list(positions.values())
    joining = group("new", (0, 1), 4)
    from_index = first_position(joining, whole, "id", index.about(whole))
    assert replace(from_index, left=()) == replace(first_position(joining, whole, "id", saved), left=())
    assert tokens(from_index.left) == tokens(first_position(joining, whole, "id", saved).left)
    assert {repr(older) for older in superseded(saved)} <= gone


def test_traces_are_never_too_early() -> None:
    traces = ChangeTraces(4)
    times = {key: (key * 37) % 1000 for key in range(50)}
    for key, us in times.items():
        ticks = us * 10 + 0x01B21DD213814000
        traces.add(
            key,
            (ticks & 0xFFFFFFFF).to_bytes(4)
            + (ticks >> 32 & 0xFFFF).to_bytes(2)
            + (0x1000 | ticks >> 48).to_bytes(2)
            + bytes(8),
        )

    assert all(traces.newest(key) >= us for key, us in times.items())
    assert traces.newest(4000) <= 1000
    traces.add_all(5000)
    assert traces.newest(1) == 5000


def test_pace() -> None:
    pace = Pace(100)
    pace.spent(50, 10.0)

    assert pace.wait_s(10.0) == pytest.approx(0.5)
    assert pace.wait_s(11.0) == 0
    unlimited = Pace(0)
    unlimited.spent(1000, 1.0)
    assert unlimited.wait_s(1.0) == 0


INT = CqlType("int")
VERSION = TableVersion(
    TABLE,
    (
        ScyllaColumn("p", INT, "partition_key", 0),
        ScyllaColumn('c"k', INT, "clustering", 0),
        ScyllaColumn("st", INT, "static"),
        ScyllaColumn("a", INT, "regular"),
        ScyllaColumn("f", CqlType("set", (INT,), frozen=True), "regular"),
        ScyllaColumn("m", CqlType("set", (INT,)), "regular"),
    ),
    CdcOptions(),
    "v",
)


def test_the_query_asks_for_write_times_where_there_are_some() -> None:
    assert RowPlan(VERSION).query == (
        'SELECT token("p"), "p", "c""k", "st", "a", "f", "m", writetime("st"), writetime("a"), writetime("f") '
        'FROM "ks"."t" WHERE token("p") > ? AND token("p") <= ?'
    )


def test_rows_of_a_page() -> None:
    plan = RowPlan(VERSION)
    rows = [
        (7, 1, 1, 5, 10, [1], None, 100, 200, 300),
        (7, 1, 2, 5, None, None, [9], 100, None, None),
        (8, 2, None, 6, None, None, None, 250, None, None),
        (9, 3, 1, None, None, None, None, None, None, None),
    ]
    items = plan.items(rows)

    assert [(item.token, item.static) for item in items] == [(7, True), (7, False), (7, False), (8, True), (9, False)]
    assert [plan.keep(item, 250) for item in items] == [
        ([1, None, 5, None, None, None], 100, 0),
        ([1, 1, None, 10, None, None], 200, 1),
        ([1, 2, None, None, None, [9]], None, 0),
        None,
        ([3, 1, None, None, None, None], None, 0),
    ]
    assert plan.keep(items[1], 150) is None, "all of it is still to come"
    assert [item.token for item in plan.items(rows[1:], items[1].digest)] == [7, 8, 9], "static cells once"
    assert len({item.digest for item in items}) == len(items)
