"""Writes of Cassandra's and Scylla's messages, what they add up to, and the comparison of two sides."""

from __future__ import annotations

import base64
import itertools
import random
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from connectors.cql.mutations.definition import CqlColumn
from connectors.cql.types import CqlType, freeze_type
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    ClusteringBound,
    PartitionUpdate,
    RangeDeletion,
    UpdateDeletion,
    UpdateLayout,
    UpdateRow,
    UpdateSource,
)
from connectors.formats.partition_update_codec import make_encoder
from connectors.verify.cells import CellComparison
from connectors.verify.source import token_chunks
from connectors.verify.writes import Merged, Write, cell_table, event_writes, update_writes
from tests.support.partition_merge import Table

if TYPE_CHECKING:
    from pathlib import Path

INT, TEXT, BLOB = CqlType("int"), CqlType("text"), CqlType("blob")
COLUMNS = (
    CqlColumn("pk", INT, "partition_key", 0),
    CqlColumn("c1", INT, "clustering", 0),
    CqlColumn("c2", TEXT, "clustering", 1, reversed=True),
    CqlColumn("st", INT, "static"),
    CqlColumn("v", TEXT, "regular"),
    CqlColumn("n", INT, "regular"),
    CqlColumn("s", CqlType("set", (INT,)), "regular"),
    CqlColumn("m", CqlType("map", (TEXT, INT)), "regular"),
)
SOURCE = UpdateSource(connector="x", cluster="c", keyspace="k", table="t")
TABLE = cell_table("k.t", COLUMNS)
ENCODE = make_encoder(UpdateLayout(source=SOURCE, columns=COLUMNS, position={}))


def random_update(chance: random.Random) -> PartitionUpdate:
    """Any mutation of one of few partitions, with few times."""

    def stamp() -> CellStamp:
        expires = chance.choice([None, None, None, 50, 150])
        return CellStamp(chance.randrange(20), None if expires is None else 10, expires)

    def cells() -> tuple[Cell, ...]:
        writes: list[Cell] = []
        if chance.random() < 0.6:
            writes.append(Cell("v", None, chance.choice(["a", "b", None]), stamp()))
        if chance.random() < 0.5:
            writes.append(Cell("n", None, chance.choice([-1, 5, 300, None]), stamp()))
        writes += [Cell("s", item, chance.choice([True, None]), stamp()) for item in chance.sample(range(3), 2)]
        writes += [Cell("m", item, chance.choice([1, -2, None]), stamp()) for item in chance.sample("xyz", 1)]
        # A tombstone has no TTL.
        return tuple(
            cell._replace(stamp=CellStamp(cell.stamp.write_time)) if cell.value is None else cell for cell in writes
        )

    def deletion() -> UpdateDeletion:
        return UpdateDeletion(chance.randrange(15), 0)

    def bound() -> ClusteringBound:
        values = (chance.randrange(3), chance.choice("pqr"))
        return ClusteringBound(values[: chance.randrange(3)], chance.random() < 0.5)

    rows = tuple(
        UpdateRow(
            (chance.randrange(3), chance.choice("pqr")),
            stamp() if chance.random() < 0.4 else None,
            deletion() if chance.random() < 0.2 else None,
            cells(),
            (("s", deletion()),) if chance.random() < 0.2 else (),
        )
        for _ in range(chance.randrange(3))
    )
    static = (
        UpdateRow((), None, None, (Cell("st", None, chance.randrange(3), stamp()),)) if chance.random() < 0.3 else None
    )
    return PartitionUpdate(
        source=SOURCE,
        key=(1,),
        write_time=chance.randrange(20),
        deletion=deletion() if chance.random() < 0.05 else None,
        static=static,
        rows=rows,
        ranges=(RangeDeletion(bound(), bound(), deletion()),) if chance.random() < 0.15 else (),
    )


@pytest.mark.parametrize("seed", range(200))
def test_partition_updates_add_up_to_what_the_reference_merge_shows(seed: int) -> None:
    chance = random.Random(seed)
    updates = [random_update(chance) for _ in range(chance.randrange(1, 12))]
    expected = Table(COLUMNS).apply_all(updates).contents(now_s=100)
    writes: list[Write] = []
    for update in chance.sample(updates, len(updates)):
        key, more = update_writes(TABLE, ENCODE(update))
        assert key == {"pk": 1}
        writes += more
    merged = Merged(TABLE, writes, now_s=100)
    assert not merged.unknown
    static, rows = expected.get(repr((1,)), ({}, []))
    live = dict(merged.rows)
    assert live.pop(b"null", {}) == static
    assert len(live) == len(rows)
    for row in rows:
        mine = live[f'[{row["c1"]},"{row["c2"]}"]'.encode()]
        assert mine.get("v") == row["v"]
        assert mine.get("n") == row["n"]
        assert sorted(int(path) for path, _ in mine.get("s", [])) == sorted(row["s"] or [])
        pairs = {repr(path.strip('"')): value for path, value in mine.get("m", [])}
        assert pairs == (row["m"] or {})


def test_ranges_of_other_types_than_can_be_ordered_are_unknown() -> None:
    columns = (CqlColumn("pk", INT, "partition_key", 0), CqlColumn("c", CqlType("uuid"), "clustering", 0))
    table = cell_table("k.t", columns)
    writes: list[Write] = [["row", ["aaaa"], [1, None], None, {}, []], ["range", 5, ["bbbb"], True, [], True]]
    assert Merged(table, writes, 0).unknown
    blobs = cell_table("k.t", (columns[0], CqlColumn("c", BLOB, "clustering", 0)))
    first, second = (base64.b64encode(data).decode() for data in (b"\x01", b"\xff"))
    writes = [["row", [name], [1, None], None, {}, []] for name in (first, second)]
    merged = Merged(blobs, [*writes, ["range", 5, [second], True, [], True]], 0)
    assert list(merged.rows) == [f'["{first}"]'.encode()]
    assert not merged.unknown


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        ([0.0], [], ["-Infinity", -0.0]),
        ([], [-0.0], [-0.0, 0.0, "Infinity", "NaN"]),
        (["Infinity"], ["NaN"], ["-Infinity", -0.0, 0.0, "NaN"]),
    ],
)
def test_ranges_of_floating_point_numbers_are_in_the_order_of_the_server(
    kind: str, start: list[Any], end: list[Any], left: list[Any]
) -> None:
    columns = (CqlColumn("pk", INT, "partition_key", 0), CqlColumn("c", CqlType(kind), "clustering", 0))
    table = cell_table("k.t", columns)
    values: list[Any] = ["-Infinity", -0.0, 0.0, "Infinity", "NaN"]
    writes: list[Write] = [["row", [value], [1, None], None, {}, []] for value in values]
    merged = Merged(table, [*writes, ["range", 5, start, True, end, False]], 0)
    assert not merged.unknown
    assert len(merged.rows) == len(left)
    assert [str(orjson.loads(key)[0]) for key in merged.rows] == [str(value) for value in left]


def test_row_events_of_each_dialect() -> None:
    key = {"pk": 1, "c1": 2, "c2": "x"}
    source = {"ts_us": 7}
    legacy = {"op": "u", "source": source, "after": {"pk": 1, "v": {"value": None}, "n": None, "s": {"value": [1]}}}
    assert event_writes(TABLE, key, legacy, dialect="legacy") == (
        {"pk": 1},
        [["row", [2, "x"], [7, None], None, {}, [["v", None, 7, None, None]]]],
    )
    static = {"op": "u", "source": source, "after": {"pk": 1, "st": {"value": 4}}}
    assert event_writes(TABLE, {"pk": 1, "c1": None, "c2": None}, static, dialect="legacy")[1] == [
        ["row", None, None, None, {}, [["st", None, 7, None, 4]]]
    ]
    advanced = {"op": "c", "source": {"ts_us": 7, "ttl": 3}, "after": {"v": "a", "n": None, "st": None}}
    assert event_writes(TABLE, key, advanced, dialect="advanced")[1] == [
        ["row", [2, "x"], [7, 3], None, {}, [["v", None, 7, 3, "a"], ["n", None, 7, 3, None]]]
    ]
    assert event_writes(TABLE, key, {**advanced, "op": "u", "after": None}, dialect="advanced")[1] == [
        ["row", [2, "x"], None, 7, {}, []]
    ]
    deleted = {"op": "d", "source": {"ts_ms": 1}, "after": None}
    assert event_writes(TABLE, key, deleted, dialect="cassandra")[1] == [["row", [2, "x"], None, 1000, {}, []]]
    whole = {"pk": 1, "c1": None, "c2": None}
    assert event_writes(TABLE, whole, deleted, dialect="cassandra")[1] == [["partition", 1000]]
    expiring = {"op": "i", "source": source, "after": {"v": {"value": "a", "deletion_ts": 9_000_000, "set": True}}}
    assert event_writes(TABLE, key, expiring, dialect="cassandra")[1] == [
        ["row", [2, "x"], [7, 9], None, {}, [["v", None, 7, 9, "a"]]]
    ]
    assert event_writes(TABLE, whole, {**expiring, "op": "r"}, dialect="cassandra")[1] == [["unknown"]]
    with pytest.raises(ValueError, match="no key"):
        event_writes(TABLE, None, deleted, dialect="legacy")


def row(value: str, time: int = 1) -> list[Write]:
    """A write of one row."""
    return [["row", [1, "a"], [time, None], None, {}, [["v", None, time, None, value]]]]


def test_what_differs_is_looked_at_again(tmp_path: Path) -> None:
    with CellComparison({"k.t": TABLE}, folder=str(tmp_path)) as comparison:
        for number in range(1, 4):
            comparison.source("k.t", {"pk": number}, row("new" if number < 3 else "same"))
            comparison.topic("k.t", {"pk": number}, row("old" if number < 3 else "same"))
        comparison.source("k.t", {"pk": 4}, row("deleted meanwhile"))
        comparison.topic("k.t", {"pk": 5}, row("only there"))
        assert list(comparison.compare(0))[-1] == (8, 8)
        assert len(comparison.open) == 4
        report = comparison.reports["k.t"]
        assert (report.total.source_rows, report.equal) == (1, True)

        def look(*, late: bool) -> int:
            comparison.reread()
            for number in range(1, 4):
                comparison.source_again("k.t", {"pk": number}, row("new" if number < 3 else "same"))
            if late:
                comparison.topic_again("k.t", {"pk": 1}, row("new", 2))
                comparison.topic_again("k.t", {"pk": 9}, row("of no interest", 2))
            return comparison.look_again(0)

        # 1 has come, 4 is gone from the source; 2 and 5 are as they were.
        assert look(late=True) == 0
        assert sorted(key for _, key in comparison.open) == [b'{"pk":2}', b'{"pk":5}']
        assert look(late=False) == 0
        comparison.finish(0)
    assert (report.missing, report.extra, report.different, report.unsettled) == (0, 1, 1, 0)
    assert report.examples == {"different": ['{"pk":2,"c1":1,"c2":"a"}'], "extra": ['{"pk":5,"c1":1,"c2":"a"}']}
    assert (report.total.source_rows, report.total.topic_rows) == (3, 4)
    assert not list(tmp_path.iterdir())


def test_what_still_changes_is_no_difference(tmp_path: Path) -> None:
    with CellComparison({"k.t": TABLE}, folder=str(tmp_path)) as comparison:
        comparison.source("k.t", {"pk": 1}, row("new"))
        comparison.topic("k.t", {"pk": 1}, row("old"))
        list(comparison.compare(0))
        comparison.reread()
        comparison.source_again("k.t", {"pk": 1}, row("newer", 2))
        assert comparison.look_again(0) == 1
        comparison.finish(0)
    report = comparison.reports["k.t"]
    assert (report.unsettled, report.different, report.equal) == (1, 0, True)


def test_the_chunks_are_the_whole_ring() -> None:
    chunks = token_chunks()
    assert chunks[0][0] == -(1 << 63)
    assert chunks[-1][1] == (1 << 63) - 1
    assert all(left[1] == right[0] for left, right in itertools.pairwise(chunks))


def test_a_table_of_a_source() -> None:
    assert TABLE.key == ("pk",)
    assert TABLE.clustering == ("c1", "c2")
    assert TABLE.reversed == (False, True)
    assert TABLE.multicell == {"s": "set", "m": "map"}
    assert cell_table("k.t", (CqlColumn("f", freeze_type(CqlType("list", (INT,))), "regular"),)).multicell == {}
