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
    engine_bench = Bench(
        registry=registry, input_encoding="avro" if avro else "json", input_schemas=(written.text,), **options
    )
    return engine_bench, written


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
    engine_bench, written = bench(columns, avro=avro, limit=chance.random.choice([1, 2, 1000]))
    for offset, update in enumerate(order):
        engine_bench.apply(written.record(update, offset))
    assert engine_bench.table() == expected(Table(columns).apply_all(several).contents(), columns)


@pytest.mark.parametrize("name", TABLES)
@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_what_expires_goes_in_time(name: str, seed: int) -> None:
    columns = TABLES[name]
    chance = Chance(seed, ttl=True)
    engine_bench, written = bench(columns, limit=chance.random.choice([1, 1000]))
    oracle = Table(columns)
    for offset, update in enumerate(chance.several(columns)):
        engine_bench.apply(written.record(update, offset))
        oracle.apply(update)
        engine_bench.expire(engine_bench.now_s + chance.random.randint(0, 2))
        assert engine_bench.table() == expected(oracle.contents(now_s=engine_bench.now_s), columns)
    engine_bench.expire(10)
    assert engine_bench.table() == expected(oracle.contents(now_s=10), columns)


@pytest.mark.parametrize("name", TABLES)
@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_mutation_is_one_event_per_row_with_the_image_after_all_of_it(name: str, seed: int) -> None:
    """Also where copies of a mutation follow it, a transaction ends in the middle, and time continues the work."""
    columns = TABLES[name]
    chance = Chance(seed, ttl=seed % 3 == 0)
    engine_bench, written = bench(columns, limit=chance.random.choice([1, 2, 1000]))
    oracle = Table(columns)
    by_time = chance.random.random() < 0.5

    def go_on() -> None:
        if by_time:
            engine_bench.expire(engine_bench.now_s)

    several = chance.several(columns)
    for offset, mutation in enumerate(
        [copy for original in several for copy in [original] * chance.random.choice([1, 1, 3])]
    ):
        first = len(engine_bench.events)
        engine_bench.apply(written.record(mutation, offset), between=go_on)
        events = [event for event in engine_bench.events[first:] if event["source"]["cause"] == "write"]
        keys = [
            json.dumps([(event["after"] or event["before"]).get(part) for part in ("pk", "x", "y")]) for event in events
        ]
        assert len(set(keys)) == len(keys)
        assert engine_bench.table() == expected(
            oracle.apply_all([mutation]).contents(now_s=engine_bench.now_s), columns
        )


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


def operations(engine_bench: Bench) -> str:
    return "".join(event["op"] for event in engine_bench.events)


def test_create_update_delete_with_images_and_what_is_around_them() -> None:
    engine_bench, written = bench(PLAIN)
    engine_bench.now_s = 101
    engine_bench.apply(written.record(plain("x", 100), 7))
    engine_bench.apply(written.record(plain("y", 100.5), 8))
    engine_bench.apply(written.record(update(deletion=UpdateDeletion(100_700_000, 100), at=100.7), 9))
    create, change, delete = engine_bench.events
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
    assert [(output.key, output.value is None, output.timestamp_ms) for output in engine_bench.output] == [
        (b'{"pk":"a"}', False, 100_000),
        (b'{"pk":"a"}', False, 100_500),
        (b'{"pk":"a"}', False, 100_700),
        (b'{"pk":"a"}', True, 100_700),
    ]
    assert engine_bench.engine.sequence == 101_000_002
    assert engine_bench.engine.latency.take() == (3, 1800, 1000)
    assert engine_bench.engine.latency.take() == (0, 0, 0)


@pytest.mark.parametrize("unchanged", [False, True])
def test_what_changes_nothing_is_not_said_unless_asked_for(unchanged: bool) -> None:
    engine_bench, written = bench(PLAIN, emit_unchanged=unchanged)
    engine_bench.apply(written.record(plain("x", 100)))
    engine_bench.apply(written.record(plain("x", 100)))
    assert operations(engine_bench) == "c"
    engine_bench.apply(written.record(plain("x", 101)))
    assert operations(engine_bench) == ("cu" if unchanged else "c")


def test_a_snapshot_is_read_and_tombstones_can_be_left_out() -> None:
    engine_bench, written = bench(PLAIN, tombstones_on_delete=False)
    written = Written(PLAIN, where=source(snapshot=True))
    engine_bench.apply(written.record(update(UpdateRow((), stamp(100)), source=source(snapshot=True))))
    engine_bench.apply(written.record(update(deletion=UpdateDeletion(200_000_000, 200), at=200)))
    assert operations(engine_bench) == "rd"
    assert len(engine_bench.output) == 2


def test_expiry_shows_cells_and_rows_in_the_order_in_which_they_run_out() -> None:
    engine_bench, written = bench(PLAIN)
    engine_bench.now_s = 100
    engine_bench.apply(written.record(plain("x", 100, ttl=50)))
    late = update(UpdateRow((), stamp(100, 10)), key="b")
    engine_bench.apply(written.record(late))
    engine_bench.apply(written.record(update(UpdateRow((), stamp(100)))))  # loses: the row's liveness expires
    engine_bench.expire(109)
    assert operations(engine_bench) == "cc"
    engine_bench.expire(200)
    assert [
        (event["op"], event["before"]["pk"], event["source"]["cause"], event["source"]["ts_ms"])
        for event in engine_bench.events[2:]
    ] == [("d", "b", "expiry", 110_000), ("d", "a", "expiry", 150_000)]
    assert engine_bench.rows == {}


def test_what_ran_out_unnoticed_is_shown_before_the_update_that_finds_it() -> None:
    engine_bench, written = bench(PLAIN)
    engine_bench.now_s = 100
    engine_bench.apply(written.record(plain("x", 100, ttl=10)))
    engine_bench.now_s = 120
    engine_bench.apply(written.record(plain("y", 119)))
    assert operations(engine_bench) == "cdc"


def test_tombstones_are_kept_for_the_grace_and_no_longer() -> None:
    engine_bench, written = bench(PLAIN, grace_s=50)
    engine_bench.now_s = 100
    engine_bench.apply(written.record(plain("x", 90)))
    engine_bench.apply(written.record(plain(None, 95, live=False)))
    engine_bench.apply(written.record(update(deletion=UpdateDeletion(97_000_000, 97), at=97)))
    engine_bench.expire(149)
    engine_bench.apply(written.record(plain("old", 96)))
    assert engine_bench.rows == {}
    engine_bench.expire(150)
    assert [key for key in engine_bench.store.values if key != CATALOG] == []
    engine_bench.apply(written.record(plain("old", 96)))
    assert operations(engine_bench) == "cudc"


def test_events_of_writes_of_the_future_have_the_time_of_the_clock() -> None:
    """Brokers refuse records whose time is later than theirs (``message.timestamp.after.max.ms``)."""
    engine_bench, written = bench(PLAIN)
    engine_bench.now_s = 100
    engine_bench.apply(written.record(plain("x", 100_000)))
    assert [output.timestamp_ms for output in engine_bench.output] == [100_000]
    assert engine_bench.events[0]["source"]["ts_ms"] == 100_000_000


def test_a_deletion_of_the_future_is_kept_from_then_on() -> None:
    engine_bench, written = bench(PLAIN, grace_s=50)
    engine_bench.now_s = 100
    engine_bench.apply(written.record(update(deletion=UpdateDeletion(1_000_000_000, 1000), at=1000)))
    engine_bench.expire(1049)
    assert len(engine_bench.store.values) == 2
    engine_bench.expire(1050)
    assert len(engine_bench.store.values) == 1


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_after_the_grace_nothing_dead_is_left_and_nothing_living_lost(seed: int) -> None:
    chance = Chance(seed, ttl=True)
    several = chance.several(WIDE)
    engine_bench, written = bench(WIDE, grace_s=50, limit=chance.random.choice([1, 1000]))
    engine_bench.now_s = 5
    for mutation in several:
        engine_bench.apply(written.record(mutation))
    for now in (10, 59, 60, 61, 120):
        engine_bench.expire(now)
    assert engine_bench.table() == expected(Table(WIDE).apply_all(several).contents(now_s=120), WIDE)
    assert next(engine_bench.store.due(1 << 60), None) is None
    shown = sum(map(len, engine_bench.table().values()))
    assert len([key for key in engine_bench.store.values if key != CATALOG and state_key_parts(key)[1] == 1]) == shown


def filled(engine_bench: Bench, written: Written, rows: int = 30) -> None:
    engine_bench.now_s = 100
    for x in range(rows // 3):
        for y in range(3):
            engine_bench.apply(
                written.record(
                    update(UpdateRow((x, y), stamp(90), None, (Cell("v", None, f"{x}.{y}", stamp(90)),)), at=90)
                )
            )
    engine_bench.events.clear()


@pytest.mark.parametrize("limit", [1, 4, 1000])
def test_a_partition_delete_takes_its_rows_in_clustering_order(limit: int) -> None:
    engine_bench, written = bench(WIDE)
    filled(engine_bench, written)
    engine_bench.apply(written.record(update(UpdateRow((2, 1), stamp(99)), at=99)))
    engine_bench.events.clear()
    engine_bench.store.limit = limit
    engine_bench.apply(written.record(update(deletion=UpdateDeletion(95_000_000, 95), at=95)))
    assert [(event["op"], event["before"]["x"], event["before"]["y"]) for event in engine_bench.events] == [
        ("u" if (x, y) == (2, 1) else "d", x, y) for x in range(10) for y in (2, 1, 0)
    ]
    assert list(engine_bench.rows) == [b'{"pk":"a","x":2,"y":1}']
    if limit < 1000:
        assert engine_bench.transactions > 30 / limit
    before = engine_bench.transactions
    engine_bench.apply(written.record(update(deletion=UpdateDeletion(95_000_000, 95), at=95)))
    assert (len(engine_bench.events), engine_bench.transactions) == (30, before + 1)


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
    engine_bench, written = bench(WIDE)
    filled(engine_bench, written)
    deletion = RangeDeletion(start, end, UpdateDeletion(95_000_000, 95))
    engine_bench.apply(written.record(update(ranges=(deletion,), at=95)))
    assert operations(engine_bench) == "d" * len(gone)
    assert [(event["before"]["x"], event["before"]["y"]) for event in engine_bench.events] == gone
    engine_bench.apply(written.record(update(UpdateRow(gone[0], stamp(94)), UpdateRow((7, 7), stamp(94)), at=94)))
    assert len(engine_bench.rows) == 30 - len(gone) + 1  # (7, 7) is new, what is in the range stays away


@pytest.mark.parametrize("limit", [3, 1000])
def test_a_static_change_is_an_update_of_each_row(limit: int) -> None:
    engine_bench, written = bench(WIDE)
    filled(engine_bench, written)
    engine_bench.store.limit = limit
    engine_bench.apply(
        written.record(update(static=UpdateRow((), None, None, (Cell("st", None, 5, stamp(95, 50)),)), at=95))
    )
    assert operations(engine_bench) == "u" * 30
    assert {event["after"]["st"] for event in engine_bench.events} == {5}
    engine_bench.apply(
        written.record(update(static=UpdateRow((), None, None, (Cell("st", None, 5, stamp(96, 49)),)), at=96))
    )
    assert operations(engine_bench) == "u" * 30
    engine_bench.expire(145)
    assert operations(engine_bench) == "u" * 60
    assert {(event["before"]["st"], event["after"]["st"]) for event in engine_bench.events[30:]} == {(5, None)}


@pytest.mark.parametrize("limit", [1, 4, 1000])
@pytest.mark.parametrize("kind", ["static", "deletion", "range"])
def test_a_row_of_a_message_that_changes_its_partition_has_one_event(kind: str, limit: int) -> None:
    engine_bench, written = bench(WIDE)
    filled(engine_bench, written)
    engine_bench.store.limit = limit
    row = UpdateRow((2, 1), stamp(96), None, (Cell("v", None, "new", stamp(96)),))
    gone = UpdateDeletion(95_000_000, 95)
    parts: dict[str, Any] = {
        "static": {"static": UpdateRow((), None, None, (Cell("st", None, 5, stamp(96)),))},
        "deletion": {"deletion": gone},
        "range": {"ranges": (RangeDeletion(ClusteringBound(), ClusteringBound((5,)), gone),)},
    }
    message = written.record(update(row, at=96, **parts[kind]))
    engine_bench.apply(message)
    about = [
        event
        for event in engine_bench.events
        if ((event["after"] or event["before"])["x"], event["before"]["y"]) == (2, 1)
    ]
    assert [(event["op"], event["before"]["v"], event["after"]["v"], event["after"]["st"]) for event in about] == [
        ("u", "2.1", "new", 5 if kind == "static" else None)
    ]
    assert len(engine_bench.events) == (18 if kind == "range" else 30)
    engine_bench.apply(message)
    assert len(engine_bench.events) == (18 if kind == "range" else 30)


def test_a_row_has_one_key_however_its_clustering_values_are_written() -> None:
    """To Cassandra 1.0 and 1.00 are one clustering value."""
    engine_bench, written = bench([PLAIN[0], Column("x", parse_type("decimal"), "clustering", 0), PLAIN[2]])
    engine_bench.now_s = 100
    engine_bench.apply(written.record(update(UpdateRow(("1.0",), stamp(90, 50)), at=90)))
    engine_bench.apply(written.record(update(UpdateRow(("1.00",), stamp(91)), at=91)))
    several = (UpdateRow(("1.000",), None, None, (Cell("v", None, "a", stamp(92)),)), UpdateRow(("2",), stamp(92)))
    engine_bench.apply(written.record(update(*several, at=92)))
    engine_bench.expire(150)
    engine_bench.apply(written.record(update(UpdateRow(("1.00",), None, UpdateDeletion(93_000_000, 93)), at=93)))
    assert [(key, value is None) for key, value, *_ in engine_bench.output] == [
        (b'{"pk":"a","x":"1.0"}', False),
        (b'{"pk":"a","x":"1.0"}', False),
        (b'{"pk":"a","x":"2"}', False),
        (b'{"pk":"a","x":"1.0"}', False),
        (b'{"pk":"a","x":"1.0"}', True),
    ]


@pytest.mark.parametrize("order", [(0.0, -0.0), (-0.0, 0.0)])
def test_of_zeros_with_one_write_time_the_negative_one_counts(order: tuple[float, ...]) -> None:
    """Cassandra compares bytes."""
    engine_bench, written = bench([PLAIN[0], Column("d", parse_type("double"), "regular")])
    for zero in order:
        row = UpdateRow((), stamp(100), None, (Cell("d", None, zero, stamp(100)),))
        engine_bench.apply(written.record(update(row)))
    (merged,) = engine_bench.rows.values()
    assert repr(merged["d"]) == "-0.0"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_write_times_may_be_any_number_of_64_bits(order: tuple[int, ...]) -> None:
    """``USING TIMESTAMP``: the earliest and the latest that servers take, in one row and one static row."""
    engine_bench, written = bench(WIDE)
    messages: list[Any] = []
    for name, value, micros in (
        ("v", "late", (1 << 63) - 1),
        ("v", "early", 1 - (1 << 63)),
        ("f", {"a": "x", "b c": None}, 1 - (1 << 63)),
    ):
        at = CellStamp(micros)
        row = UpdateRow((1, 1), at, None, (Cell(name, None, value, at),))
        static = UpdateRow((), None, None, (Cell("st", None, len(messages), at),))
        messages.append(
            written.record(PartitionUpdate(source=source(), key=("a",), write_time=micros, rows=(row,), static=static))
        )
    for number in order:
        engine_bench.apply(messages[number])
    (merged,) = engine_bench.rows.values()
    assert (merged["v"], merged["f"], merged["st"]) == ("late", {"a": "x", "_x622063": None}, 0)


def test_a_static_change_of_many_rows_is_written_in_chunks() -> None:
    engine_bench, written = bench(WIDE)
    engine_bench.now_s = 100
    for x in range(50):
        engine_bench.apply(written.record(update(*(UpdateRow((x, y), stamp(90)) for y in range(100)), at=90)))
    engine_bench.events.clear()
    before = engine_bench.transactions
    engine_bench.apply(
        written.record(update(static=UpdateRow((), None, None, (Cell("st", None, 5, stamp(95)),)), at=95))
    )
    assert operations(engine_bench) == "u" * 5000
    assert engine_bench.transactions - before == 3


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
    for position in range(8):
        covering = [
            (time, forget)
            for start, end, time, forget in several
            if start <= position and (end is None or position < end) and (end is None or start < end)
        ]
        time, forget = range_at(ranges, bytes([position]))
        assert time == (max(deletion[0] for deletion in covering) if covering else NO_LIMIT[0])
        assert not covering or forget >= min(deletion[1] for deletion in covering if deletion[0] == time)


def test_the_state_is_read_without_the_messages_it_came_from() -> None:
    engine_bench, written = bench(WIDE)
    filled(engine_bench, written)
    engine_bench.apply(
        written.record(update(static=UpdateRow((), None, None, (Cell("st", None, 5, stamp(95)),)), at=95))
    )
    engine_bench.restart()
    rows = list(engine_bench.engine.rows(engine_bench.store))
    assert len(rows) == 30
    assert (rows[0].table, rows[0].values["st"], rows[0].values["v"], rows[0].write_time_us) == (
        "ks.t",
        5,
        "0.2",
        90_000_000,
    )
    assert dict(zip(rows[0].values, rows[0].types, strict=True))["m"] == "array<struct<`key`:string,`value`:bigint>>"
    emit: list[OutputRecord] = []
    assert engine_bench.engine.replay(engine_bench.store, emit) is None
    assert {output.key: json.loads(output.value or b"")["after"] for output in emit} == engine_bench.rows
    assert {json.loads(output.value or b"")["op"] for output in emit} == {"r"}
