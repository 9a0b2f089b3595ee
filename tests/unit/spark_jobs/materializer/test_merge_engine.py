"""The merge engine against the reference merge (tests/support/partition_merge.py).

Hypothesis covers: what the events fold to is what the reference shows, for tables of every shape, in any order, with
repetition, through JSON and Avro, with TTLs at any time, with transactions that are full in the middle; each event continues
from the last one of its row (``Bench`` checks that for every event). The rest are rules one by one.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.cql.types import parse_type
from connectors.errors import Fatal, Skippable
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    ClusteringBound,
    PartitionUpdate,
    RangeDeletion,
    UpdateDeletion,
    UpdateRow,
)
from spark_jobs.materializer.engine.keys import CATALOG
from spark_jobs.materializer.engine.merge import NO_LIMIT, add_range, range_at
from spark_jobs.materializer.engine.model import state_key_parts
from tests.support.materializer import (
    ALONE,
    PLAIN,
    WIDE,
    Bench,
    Chance,
    Column,
    MemoryRegistry,
    Written,
    expected,
    source,
)
from tests.support.partition_merge import Table

if TYPE_CHECKING:
    from spark_jobs.materializer.contract import OutputRecord

TABLES = {"wide": WIDE, "alone": ALONE, "plain": PLAIN}


def bench(columns: Any, *, avro: bool = False, **options: Any) -> tuple[Bench, Written]:
    registry = MemoryRegistry()
    written = Written(columns, registry if avro else None)
    made = Bench(registry=registry, input_encoding="avro" if avro else "json", input_schemas=(written.text,), **options)
    return made, written


SEEDS = st.integers(0, 1 << 32)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("avro", [False, True], ids=["json", "avro"])
@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_events_fold_to_the_contents(name: str, avro: bool, seed: int) -> None:
    columns = TABLES[name]
    chance = Chance(seed)
    several = chance.several(columns)
    order = several + several[:2]
    chance.random.shuffle(order)
    made, written = bench(columns, avro=avro, limit=chance.random.choice([1, 2, 1000]))
    for offset, update in enumerate(order):
        made.apply(written.record(update, offset))
    assert made.table() == expected(Table(columns).apply_all(several).contents(), columns)


@pytest.mark.parametrize("name", TABLES)
@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_what_expires_goes_in_time(name: str, seed: int) -> None:
    columns = TABLES[name]
    chance = Chance(seed, ttl=True)
    made, written = bench(columns, limit=chance.random.choice([1, 1000]))
    oracle = Table(columns)
    for offset, update in enumerate(chance.several(columns)):
        made.apply(written.record(update, offset))
        oracle.apply(update)
        made.expire(made.now_s + chance.random.randint(0, 2))
        assert made.table() == expected(oracle.contents(now_s=made.now_s), columns)
    made.expire(10)
    assert made.table() == expected(oracle.contents(now_s=10), columns)


@pytest.mark.parametrize("name", TABLES)
@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_mutation_is_one_event_per_row_with_the_image_after_all_of_it(name: str, seed: int) -> None:
    """Also where copies of a mutation follow it, a transaction ends in the middle, and time continues the work."""
    columns = TABLES[name]
    chance = Chance(seed, ttl=seed % 3 == 0)
    made, written = bench(columns, limit=chance.random.choice([1, 2, 1000]))
    oracle = Table(columns)
    by_time = chance.random.random() < 0.5

    def go_on() -> None:
        if by_time:
            made.expire(made.now_s)

    several = chance.several(columns)
    for offset, each in enumerate([copy for one in several for copy in [one] * chance.random.choice([1, 1, 3])]):
        first = len(made.events)
        made.apply(written.record(each, offset), between=go_on)
        events = [event for event in made.events[first:] if event["source"]["cause"] == "write"]
        keys = [
            json.dumps([(event["after"] or event["before"]).get(part) for part in ("pk", "x", "y")]) for event in events
        ]
        assert len(set(keys)) == len(keys)
        assert made.table() == expected(oracle.apply_all([each]).contents(now_s=made.now_s), columns)


# Rules one by one. Times: s of the clock; write times are clock times in µs.


def stamp(second: float, ttl: int | None = None) -> CellStamp:
    return CellStamp(int(second * 1_000_000), ttl, None if ttl is None else int(second) + ttl)


def update(*rows: UpdateRow, key: str = "a", at: float = 100, **parts: Any) -> PartitionUpdate:
    return PartitionUpdate(
        source=parts.pop("source", source()), key=(key,), write_time=int(at * 1_000_000), rows=rows, **parts
    )


def plain(value: str | None, at: float, ttl: int | None = None, *, live: bool = True) -> PartitionUpdate:
    when = stamp(at, ttl)
    cell = Cell("v", None, value, when if value is not None else CellStamp(when.write_time))
    return update(UpdateRow((), when if live else None, None, (cell,)), at=at)


def operations(made: Bench) -> str:
    return "".join(event["op"] for event in made.events)


def test_create_update_delete_with_images_and_what_is_around_them() -> None:
    made, written = bench(PLAIN)
    made.now_s = 101
    made.apply(written.record(plain("x", 100), 7))
    made.apply(written.record(plain("y", 100.5), 8))
    made.apply(written.record(update(deletion=UpdateDeletion(100_700_000, 100), at=100.7), 9))
    create, change, delete = made.events
    assert (create["before"], create["after"]) == (None, {"pk": "a", "n": None, "v": "x"})
    assert (change["before"], change["after"]) == (create["after"], {"pk": "a", "n": None, "v": "y"})
    assert (delete["before"], delete["after"]) == (change["after"], None)
    assert change["source"] == {
        "connector": "cassandra",
        "name": "job",
        "cluster": "c-1",
        "keyspace": "ks",
        "table": "t",
        "ts_ms": 100_500,
        "ts_us": 100_500_000,
        "snapshot": "false",
        "ums_id": 101_000_001,
        "latency_ms": 500,
        "offset": 8,
        "cause": "write",
    }
    assert [(output.key, output.value is None, output.timestamp_ms) for output in made.output] == [
        (b'{"pk":"a"}', False, 100_000),
        (b'{"pk":"a"}', False, 100_500),
        (b'{"pk":"a"}', False, 100_700),
        (b'{"pk":"a"}', True, 100_700),
    ]
    assert made.engine.sequence == 101_000_002
    assert made.engine.latency.take() == (3, 1800, 1000)
    assert made.engine.latency.take() == (0, 0, 0)


@pytest.mark.parametrize("unchanged", [False, True])
def test_what_changes_nothing_is_not_said_unless_asked_for(unchanged: bool) -> None:
    made, written = bench(PLAIN, emit_unchanged=unchanged)
    made.apply(written.record(plain("x", 100)))
    made.apply(written.record(plain("x", 100)))
    assert operations(made) == "c"
    made.apply(written.record(plain("x", 101)))
    assert operations(made) == ("cu" if unchanged else "c")


def test_a_snapshot_is_read_and_tombstones_can_be_left_out() -> None:
    made, written = bench(PLAIN, tombstones_on_delete=False)
    written = Written(PLAIN, where=source(snapshot=True))
    made.apply(written.record(update(UpdateRow((), stamp(100)), source=source(snapshot=True))))
    made.apply(written.record(update(deletion=UpdateDeletion(200_000_000, 200), at=200)))
    assert operations(made) == "rd"
    assert len(made.output) == 2


def test_expiry_shows_cells_and_rows_in_the_order_in_which_they_run_out() -> None:
    made, written = bench(PLAIN)
    made.now_s = 100
    made.apply(written.record(plain("x", 100, ttl=50)))
    late = update(UpdateRow((), stamp(100, 10)), key="b")
    made.apply(written.record(late))
    made.apply(written.record(update(UpdateRow((), stamp(100)))))  # loses: the row's liveness expires
    made.expire(109)
    assert operations(made) == "cc"
    made.expire(200)
    assert [
        (event["op"], event["before"]["pk"], event["source"]["cause"], event["source"]["ts_ms"])
        for event in made.events[2:]
    ] == [("d", "b", "expiry", 110_000), ("d", "a", "expiry", 150_000)]
    assert made.rows == {}


def test_what_ran_out_unnoticed_is_shown_before_the_update_that_finds_it() -> None:
    made, written = bench(PLAIN)
    made.now_s = 100
    made.apply(written.record(plain("x", 100, ttl=10)))
    made.now_s = 120
    made.apply(written.record(plain("y", 119)))
    assert operations(made) == "cdc"


def test_tombstones_are_kept_for_the_grace_and_no_longer() -> None:
    made, written = bench(PLAIN, grace_s=50)
    made.now_s = 100
    made.apply(written.record(plain("x", 90)))
    made.apply(written.record(plain(None, 95, live=False)))
    made.apply(written.record(update(deletion=UpdateDeletion(97_000_000, 97), at=97)))
    made.expire(149)
    made.apply(written.record(plain("old", 96)))
    assert made.rows == {}
    made.expire(150)
    assert [key for key in made.store.values if key != CATALOG] == []
    made.apply(written.record(plain("old", 96)))
    assert operations(made) == "cudc"


def test_a_deletion_of_the_future_is_kept_from_then_on() -> None:
    made, written = bench(PLAIN, grace_s=50)
    made.now_s = 100
    made.apply(written.record(update(deletion=UpdateDeletion(1_000_000_000, 1000), at=1000)))
    made.expire(1049)
    assert len(made.store.values) == 2
    made.expire(1050)
    assert len(made.store.values) == 1


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_after_the_grace_nothing_dead_is_left_and_nothing_living_lost(seed: int) -> None:
    chance = Chance(seed, ttl=True)
    several = chance.several(WIDE)
    made, written = bench(WIDE, grace_s=50, limit=chance.random.choice([1, 1000]))
    made.now_s = 5
    for each in several:
        made.apply(written.record(each))
    for now in (10, 59, 60, 61, 120):
        made.expire(now)
    assert made.table() == expected(Table(WIDE).apply_all(several).contents(now_s=120), WIDE)
    assert next(made.store.due(1 << 60), None) is None
    shown = sum(map(len, made.table().values()))
    assert len([key for key in made.store.values if key != CATALOG and state_key_parts(key)[1] == 1]) == shown


def filled(made: Bench, written: Written, rows: int = 30) -> None:
    made.now_s = 100
    for x in range(rows // 3):
        for y in range(3):
            made.apply(
                written.record(
                    update(UpdateRow((x, y), stamp(90), None, (Cell("v", None, f"{x}.{y}", stamp(90)),)), at=90)
                )
            )
    made.events.clear()


@pytest.mark.parametrize("limit", [1, 4, 1000])
def test_a_partition_delete_takes_its_rows_in_clustering_order(limit: int) -> None:
    made, written = bench(WIDE)
    filled(made, written)
    made.apply(written.record(update(UpdateRow((2, 1), stamp(99)), at=99)))
    made.events.clear()
    made.store.limit = limit
    made.apply(written.record(update(deletion=UpdateDeletion(95_000_000, 95), at=95)))
    assert [(event["op"], event["before"]["x"], event["before"]["y"]) for event in made.events] == [
        ("u" if (x, y) == (2, 1) else "d", x, y) for x in range(10) for y in (2, 1, 0)
    ]
    assert list(made.rows) == [b'{"pk":"a","x":2,"y":1}']
    if limit < 1000:
        assert made.transactions > 30 / limit
    before = made.transactions
    made.apply(written.record(update(deletion=UpdateDeletion(95_000_000, 95), at=95)))
    assert (len(made.events), made.transactions) == (30, before + 1)


@pytest.mark.parametrize(
    ("start", "end", "gone"),
    [
        (ClusteringBound((3,)), ClusteringBound((3,)), [(3, 2), (3, 1), (3, 0)]),
        (ClusteringBound((3, 1)), ClusteringBound((4, 2)), [(3, 1), (3, 0), (4, 2)]),
        (ClusteringBound((3, 1), inclusive=False), ClusteringBound((4, 2), inclusive=False), [(3, 0)]),
        (ClusteringBound((8,), inclusive=False), ClusteringBound(), [(9, 2), (9, 1), (9, 0)]),
        (ClusteringBound(), ClusteringBound((0, 2)), [(0, 2)]),
    ],
)
def test_range_deletes(start: ClusteringBound, end: ClusteringBound, gone: list[tuple[int, int]]) -> None:
    made, written = bench(WIDE)
    filled(made, written)
    deletion = RangeDeletion(start, end, UpdateDeletion(95_000_000, 95))
    made.apply(written.record(update(ranges=(deletion,), at=95)))
    assert operations(made) == "d" * len(gone)
    assert [(event["before"]["x"], event["before"]["y"]) for event in made.events] == gone
    made.apply(written.record(update(UpdateRow(gone[0], stamp(94)), UpdateRow((7, 7), stamp(94)), at=94)))
    assert len(made.rows) == 30 - len(gone) + 1  # (7, 7) is new, what is in the range stays away


@pytest.mark.parametrize("limit", [3, 1000])
def test_a_static_change_is_an_update_of_each_row(limit: int) -> None:
    made, written = bench(WIDE)
    filled(made, written)
    made.store.limit = limit
    made.apply(written.record(update(static=UpdateRow((), None, None, (Cell("st", None, 5, stamp(95, 50)),)), at=95)))
    assert operations(made) == "u" * 30
    assert {event["after"]["st"] for event in made.events} == {5}
    made.apply(written.record(update(static=UpdateRow((), None, None, (Cell("st", None, 5, stamp(96, 49)),)), at=96)))
    assert operations(made) == "u" * 30
    made.expire(145)
    assert operations(made) == "u" * 60
    assert {(event["before"]["st"], event["after"]["st"]) for event in made.events[30:]} == {(5, None)}


@pytest.mark.parametrize("limit", [1, 4, 1000])
@pytest.mark.parametrize("kind", ["static", "deletion", "range"])
def test_a_row_of_a_message_that_changes_its_partition_has_one_event(kind: str, limit: int) -> None:
    made, written = bench(WIDE)
    filled(made, written)
    made.store.limit = limit
    row = UpdateRow((2, 1), stamp(96), None, (Cell("v", None, "new", stamp(96)),))
    gone = UpdateDeletion(95_000_000, 95)
    parts: dict[str, Any] = {
        "static": {"static": UpdateRow((), None, None, (Cell("st", None, 5, stamp(96)),))},
        "deletion": {"deletion": gone},
        "range": {"ranges": (RangeDeletion(ClusteringBound(), ClusteringBound((5,)), gone),)},
    }
    message = written.record(update(row, at=96, **parts[kind]))
    made.apply(message)
    about = [
        event for event in made.events if ((event["after"] or event["before"])["x"], event["before"]["y"]) == (2, 1)
    ]
    assert [(event["op"], event["before"]["v"], event["after"]["v"], event["after"]["st"]) for event in about] == [
        ("u", "2.1", "new", 5 if kind == "static" else None)
    ]
    assert len(made.events) == (18 if kind == "range" else 30)
    made.apply(message)
    assert len(made.events) == (18 if kind == "range" else 30)


def test_a_message_with_a_row_that_cannot_be_merged_changes_nothing_of_its_partition() -> None:
    made, written = bench(WIDE)
    filled(made, written)
    before = dict(made.store.values)
    row = UpdateRow((50, 0), stamp(96), None, (Cell("v", None, "new", CellStamp(-(1 << 63) + 1)),))
    static = UpdateRow((), None, None, (Cell("st", None, 5, stamp(96)),))
    with pytest.raises(Skippable, match="64 bits"):
        made.engine.apply(written.record(update(row, static=static, at=(1 << 62) / 1_000_000)), made.store, [])
    assert made.store.values == before


def test_a_static_change_of_many_rows_is_written_in_pieces() -> None:
    made, written = bench(WIDE)
    made.now_s = 100
    for x in range(50):
        made.apply(written.record(update(*(UpdateRow((x, y), stamp(90)) for y in range(100)), at=90)))
    made.events.clear()
    before = made.transactions
    made.apply(written.record(update(static=UpdateRow((), None, None, (Cell("st", None, 5, stamp(95)),)), at=95)))
    assert operations(made) == "u" * 5000
    assert made.transactions - before == 3


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5) | st.none(), st.integers(1, 4), st.integers(1, 4)), max_size=6
    )
)
@settings(max_examples=200, deadline=None)
def test_deleted_ranges_stay_apart_and_cover_the_same(several: list[Any]) -> None:
    ranges: list[Any] = []
    for start, end, time, forget in several:
        ranges, _ = add_range(ranges, (bytes([start]), None if end is None else bytes([end]), time, forget))
    for left, right in itertools.pairwise(ranges):
        assert left[1] is not None
        assert left[1] <= right[0]
    for place in range(8):
        covering = [
            (time, forget)
            for start, end, time, forget in several
            if start <= place and (end is None or place < end) and (end is None or start < end)
        ]
        time, forget = range_at(ranges, bytes([place]))
        assert time == (max(each[0] for each in covering) if covering else NO_LIMIT[0])
        assert not covering or forget >= min(each[1] for each in covering if each[0] == time)


# Versions of a table


def versions() -> tuple[Bench, list[Written]]:
    registry = MemoryRegistry()
    made = Bench(registry=registry, input_encoding="avro")
    made.chained = False
    key, n, _ = PLAIN
    tables = [(PLAIN, "1"), ([key, n], "2"), (PLAIN, "3"), ([key, n, Column("v", parse_type("int"), "regular")], "4")]
    return made, [Written(columns, registry, source(version=version)) for columns, version in tables]


def cell(name: str, value: Any, at: float, *, live: bool = False) -> PartitionUpdate:
    return update(UpdateRow((), stamp(at) if live else None, None, (Cell(name, None, value, stamp(at)),)), at=at)


def test_a_dropped_column_does_not_come_back() -> None:
    made, (first, without, again, other) = versions()
    made.apply(first.record(cell("v", "old", 100, live=True)))
    made.apply(without.record(cell("n", 1, 101)))
    assert (made.events[-1]["before"], made.events[-1]["after"]) == ({"pk": "a", "n": None}, {"pk": "a", "n": 1})
    made.apply(again.record(cell("n", 2, 102)))
    assert made.events[-1]["after"] == {"pk": "a", "n": 2, "v": None}
    made.apply(first.record(cell("v", "late", 200)))
    assert made.events[-1]["after"] == {"pk": "a", "n": 2, "v": None}
    made.apply(again.record(cell("v", "new", 103)))
    assert made.events[-1]["after"] == {"pk": "a", "n": 2, "v": "new"}
    made.apply(other.record(cell("v", 7, 104)))
    assert made.events[-1]["after"] == {"pk": "a", "n": 2, "v": 7}
    made.apply(again.record(cell("v", "text", 300)))
    assert made.events[-1]["after"] == {"pk": "a", "n": 2, "v": 7}


def test_a_row_that_lived_by_a_dropped_column_is_deleted_when_it_is_touched() -> None:
    made, (first, without, *_) = versions()
    made.apply(first.record(cell("v", "old", 100)))
    made.apply(without.record(cell("n", None, 101)))
    assert operations(made) == "cd"


def test_another_table_of_the_same_name_begins_anew() -> None:
    registry = MemoryRegistry()
    made = Bench(registry=registry, input_encoding="avro")
    made.chained = False
    old = Written(PLAIN, registry)
    new = Written(PLAIN, registry, source(table_id="beef"))
    made.apply(old.record(cell("v", "old", 500, live=True)))
    made.apply(new.record(cell("n", 1, 100, live=True)))
    assert (made.events[-1]["op"], made.events[-1]["after"]) == ("u", {"pk": "a", "n": 1, "v": None})
    made.apply(old.record(cell("v", "late", 900, live=True)))
    assert made.events[-1]["after"]["v"] is None


def test_the_state_is_read_without_the_messages_it_came_from() -> None:
    made, written = bench(WIDE)
    filled(made, written)
    made.apply(written.record(update(static=UpdateRow((), None, None, (Cell("st", None, 5, stamp(95)),)), at=95)))
    made.restart()
    rows = list(made.engine.rows(made.store))
    assert len(rows) == 30
    assert (rows[0].table, rows[0].values["st"], rows[0].values["v"], rows[0].write_time_us) == (
        "ks.t",
        5,
        "0.2",
        90_000_000,
    )
    assert dict(zip(rows[0].values, rows[0].types, strict=True))["m"] == "array<struct<`key`:string,`value`:bigint>>"
    emit: list[OutputRecord] = []
    assert made.engine.replay(made.store, emit) is None
    assert {output.key: json.loads(output.value or b"")["after"] for output in emit} == made.rows
    assert {json.loads(output.value or b"")["op"] for output in emit} == {"r"}


# What is refused


def test_bad_messages_change_nothing() -> None:
    made, written = bench(PLAIN)
    good = written.record(plain("x", 100))
    for value in (
        b"",
        b"nonsense",
        b"{}",
        b'{"source":{"schema":"1.2"}}',
        (good.value or b"").replace(b'"x"', b"5"),
        (good.value or b"").replace(b'{"pk":"a"}', b'{"pk":""}'),
    ):
        with pytest.raises(Skippable):
            made.engine.apply(good._replace(value=value), made.store, [])
    assert set(made.store.values) <= {CATALOG}
    registry = MemoryRegistry()
    made, written = bench(PLAIN, avro=True)
    good = written.record(plain("x", 100))
    for value in (b"", b"\x00\x00", b"{}", (good.value or b"")[:-3], (good.value or b"") + b"x"):
        with pytest.raises(Skippable):
            made.engine.apply(good._replace(value=value), made.store, [])
    assert not registry.schemas
    assert set(made.store.values) <= {CATALOG}


def test_damaged_state_stops() -> None:
    made, written = bench(PLAIN)
    made.apply(written.record(plain("x", 100)))
    key = next(key for key in made.store.values if key != CATALOG)
    made.store.values[key] = bytes(8) + b"\xc1"
    with pytest.raises(Fatal, match="rebuild"):
        made.apply(written.record(plain("y", 101)))
