"""The partition update's codec and the rules of its merge.

Hypothesis covers: any partition update (every kind of column, stamps that all cells share or not, deletions of every kind) is
what is read back, through Avro and JSON; and the merge gives the same table in any order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.cql.types import CqlType, parse_type
from connectors.errors import Skippable
from connectors.formats import timeuuid
from connectors.formats.names import column_name, field_name
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
from connectors.formats.partition_update_codec import decode_update, make_encoder
from connectors.schema import OPTIONAL_INT64, OPTIONAL_STRING, STRING
from tests.support.partition_merge import Table
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.json import JsonConverter


class Column(NamedTuple):
    name: str
    type: CqlType
    kind: Any
    position: int = -1
    reversed: bool = False


UDT = CqlType("udt", (parse_type("text"), parse_type("blob")), keyspace="k", udt_name="odd", field_names=("a", "b c"))
FROZEN = CqlType("udt", UDT.arguments, frozen=True, keyspace="k", udt_name="odd", field_names=UDT.field_names)
COLUMNS = [
    Column("pk", parse_type("text"), "partition_key", 0),
    Column("x", parse_type("int"), "clustering", 0),
    Column("y", parse_type("int"), "clustering", 1, reversed=True),
    Column("st", parse_type("bigint"), "static"),
    Column("sl", parse_type("list<text>"), "static"),
    Column("v", parse_type("text"), "regular"),
    Column("Größe", parse_type("double"), "regular"),
    Column("_x61", parse_type("blob"), "regular"),
    Column("f", FROZEN, "regular"),
    Column("lf", CqlType("list", (FROZEN,)), "regular"),
    Column("m", parse_type("map<text, bigint>"), "regular"),
    Column("s", parse_type("set<int>"), "regular"),
    Column("u", UDT, "regular"),
]
SOURCE = UpdateSource(
    connector="cassandra",
    cluster="c-1",
    keyspace="ks",
    table="T t",
    table_id="5f1f",
    schema_version="9",
    position={"node": "n1", "offset": 5},
    read_time=7,
)
LAYOUT = UpdateLayout(source=SOURCE, columns=COLUMNS, position={"node": OPTIONAL_STRING, "offset": OPTIONAL_INT64})
ENCODE = make_encoder(LAYOUT)
AVRO = AvroSettings()
AVRO_TEXT = avro_text(LAYOUT.schema, AVRO)
AVRO_ENCODE = compile_avro(LAYOUT.schema, AVRO, b"")
READER = avro_reader(AVRO_TEXT, AVRO)

_times = st.integers(1_000_000, 1_000_004)
_stamps = st.builds(
    lambda time, ttl: CellStamp(time, ttl, None if ttl is None else 1 + ttl), _times, st.none() | st.integers(1, 3)
)
_deletions = st.builds(UpdateDeletion, _times, st.integers(0, 3))
_strings = st.text("aé\u2028", max_size=2)
_frozen = st.fixed_dictionaries({"a": st.none() | _strings, "b c": st.none() | st.binary(max_size=2)})
_uuids = st.integers(0, 3).map(lambda number: timeuuid.format_uuid(timeuuid.make_uuid(1_000_000 + number, number)))


def _cells(column: str, paths: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Cell]]:
    def build_cell(path: Any, value: Any, stamp: CellStamp) -> Cell:
        return Cell(column, path, value, CellStamp(stamp.write_time) if value is None else stamp)

    return st.lists(
        st.builds(build_cell, paths, st.none() | values, _stamps), max_size=2, unique_by=lambda cell: repr(cell.path)
    )


def _udt_cells() -> st.SearchStrategy[list[Cell]]:
    return st.tuples(_cells("u", st.just("a"), _strings), _cells("u", st.just("b c"), st.binary(max_size=2))).map(
        lambda both: both[0] + both[1]
    )


def _rows(
    parts: list[st.SearchStrategy[list[Cell]]],
    multicell: list[str],
    clustering: st.SearchStrategy[Any],
    *,
    static: bool = False,
) -> st.SearchStrategy[UpdateRow]:
    cells = st.tuples(*parts).map(lambda lists: tuple(cell for column_cells in lists for cell in column_cells))
    complex_ = st.lists(st.tuples(st.sampled_from(multicell), _deletions), max_size=2).map(tuple)
    if static:
        return st.builds(UpdateRow, clustering, st.none(), st.none(), cells, complex_)
    return st.builds(UpdateRow, clustering, st.none() | _stamps, st.none() | _deletions, cells, complex_)


_none = st.none()
_clustering = st.tuples(st.integers(0, 2), st.integers(0, 2))
_regular = _rows(
    [
        _cells("Größe", _none, st.floats(allow_nan=False)),
        _cells("_x61", _none, st.binary(max_size=2)),
        _cells("f", _none, _frozen),
        _cells("lf", _uuids, _frozen),
        _cells("m", _strings, st.integers(-1, 1)),
        _cells("s", st.integers(0, 2), st.just(value=True)),
        _udt_cells(),
        _cells("v", _none, _strings),
    ],
    ["lf", "m", "s", "u"],
    _clustering,
)
_static = _rows(
    [_cells("sl", _uuids, _strings), _cells("st", _none, st.integers(0, 3))], ["sl"], st.just(()), static=True
)
_bounds = st.builds(ClusteringBound, st.lists(st.integers(0, 2), max_size=2).map(tuple), st.booleans())
updates = st.builds(
    PartitionUpdate,
    source=st.just(SOURCE),
    key=st.tuples(_strings),
    write_time=_times,
    deletion=st.none() | _deletions,
    static=st.none() | _static,
    rows=st.lists(_regular, max_size=3).map(tuple),
    ranges=st.lists(st.builds(RangeDeletion, _bounds, _bounds, _deletions), max_size=2).map(tuple),
)


def through(way: str, value: Any) -> PartitionUpdate:
    if way == "avro":
        return decode_update(READER.decode(AVRO_ENCODE(value) or b""), READER.schema)  # type: ignore[arg-type]
    converter = JsonConverter({"schemas.enable": "true" if way == "enveloped" else "false"})
    schema, read = converter.to_connect("t", converter.encoder("t", LAYOUT.schema)(value))
    return decode_update(read, schema or LAYOUT.schema)


@given(updates, st.sampled_from(["avro", "json", "enveloped"]))
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read(update: PartitionUpdate, way: str) -> None:
    read = through(way, ENCODE(update))

    def plain(update: PartitionUpdate) -> Any:
        def row(update_row: UpdateRow | None) -> Any:
            return update_row and update_row._replace(cells=tuple(sorted(update_row.cells, key=repr)))

        rows = [row(update_row) for update_row in update.rows]
        return update.source, update.key, update.write_time, update.deletion, row(update.static), rows, update.ranges

    assert plain(read) == plain(update)


@given(st.data(), st.lists(updates, max_size=5))
@settings(max_examples=100, deadline=None)
def test_the_order_of_updates_makes_no_difference(data: st.DataObject, several: list[PartitionUpdate]) -> None:
    now = data.draw(st.integers(0, 4))
    expected = Table(COLUMNS).apply_all(several).contents(now_s=now)
    repeated = data.draw(st.permutations(several + several[:2]))
    assert Table(COLUMNS).apply_all(repeated).contents(now_s=now) == expected


def test_a_stamp_that_cells_share_is_written_once() -> None:
    stamp = CellStamp(5, 60, 65)
    cells = tuple(Cell(name, None, value, stamp) for name, value in (("v", "a"), ("Größe", 1.0)))
    value = ENCODE(
        PartitionUpdate(source=SOURCE, key=("k",), write_time=5, rows=(UpdateRow((1, 2), stamp, None, cells),))
    )
    (row,) = value["rows"]
    assert (value["write_time"], value["ttl"], value["expires"]) == (5, 60, 65)
    assert (row["stamp"], row["liveness"], row.get("stamps")) == (None, {"stamp": None}, None)


def test_names_in_the_schema() -> None:
    for name in ("a", "_x61", "_x6", "Größe", "a b", "1"):
        assert column_name(field_name(name)) == name
    assert LAYOUT.schema.name == "c_1.ks.T_t.t_5f1f.v_9.PartitionUpdate"
    parameters = dict(LAYOUT.schema.parameters)
    assert (parameters["table_id"], parameters["schema_version"], parameters["form"]) == (
        "5f1f",
        "9",
        "partition-update",
    )
    rows = LAYOUT.schema.field("rows")
    assert rows is not None
    assert rows.schema.value_schema is not None
    clustering = rows.schema.value_schema.field("clustering")
    assert clustering is not None
    assert [field.schema.parameter("clustering.order") for field in clustering.schema.fields] == ["ASC", "DESC"]
    assert [field.schema.parameter("cql.type") for field in clustering.schema.fields] == ["int", "int"]


def test_other_messages_are_refused() -> None:
    with pytest.raises(Skippable, match="partition update"):
        decode_update({"rows": []}, LAYOUT.schema)
    with pytest.raises(Skippable, match="partition update"):
        decode_update({}, STRING)


# The merge, rule by rule


def table(
    *rows: UpdateRow,
    ranges: tuple[RangeDeletion, ...] = (),
    deletion: UpdateDeletion | None = None,
    static: UpdateRow | None = None,
    now: int = 0,
) -> Any:
    results = []
    several = [PartitionUpdate(source=SOURCE, key=("k",), write_time=1, rows=(row,)) for row in rows]
    several.append(
        PartitionUpdate(source=SOURCE, key=("k",), write_time=1, ranges=ranges, deletion=deletion, static=static)
    )
    for order in (several, several[::-1]):
        partition = Table(COLUMNS).apply_all(order).contents(now_s=now).get("('k',)")
        shown = (
            [{name: value for name, value in row.items() if value is not None} for row in partition[1]]
            if partition
            else []
        )
        results.append(partition and (partition[0], shown))
    assert results[0] == results[1]
    return results[0]


def v(value: str | None, time: int, ttl: int | None = None, expires: int | None = None) -> UpdateRow:
    return UpdateRow((1, 2), None, None, (Cell("v", None, value, CellStamp(time, ttl, expires)),))


ROW = {"x": 1, "y": 2}
LIVE = UpdateRow((1, 2), CellStamp(1))


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [
        (v("b", 5), v("a", 6), "a"),
        (v("b", 5), v("a", 5), "b"),
        (v("b", 5), v(None, 5), None),
        (v(None, 4), v("a", 5), "a"),
        (v("a", 5, 10, 20), v("b", 5), "a"),
        (v("a", 5, 10, 21), v("b", 5, 10, 20), "a"),
        (v("a", 5, 10, 3), v("b", 4), None),
    ],
)
def test_which_cell_wins(first: UpdateRow, second: UpdateRow, value: str | None) -> None:
    assert table(first, second, LIVE, now=3) == ({}, [ROW | ({"v": value} if value else {})])


def test_a_row_lives_by_liveness_or_by_a_cell() -> None:
    assert table(LIVE) == ({}, [ROW])
    assert table(v("a", 1)) == ({}, [ROW | {"v": "a"}])
    assert table(v("a", 1), v(None, 2)) is None
    assert table(UpdateRow((1, 2), CellStamp(1, 1, 5)), now=5) is None
    assert table(UpdateRow((1, 2), CellStamp(1, 1, 5)), LIVE, now=5) is None
    assert table(UpdateRow((1, 2), CellStamp(1, 1, 5)), UpdateRow((1, 2), CellStamp(2)), now=5) == ({}, [ROW])


def test_deletions_hide_what_is_not_younger() -> None:
    gone = UpdateDeletion(5, 0)
    whole = RangeDeletion(ClusteringBound(), ClusteringBound(), gone)
    for time, shown in ((5, None), (6, ({}, [ROW | {"v": "a"}]))):
        assert table(v("a", time), UpdateRow((1, 2), None, gone)) == shown
        assert table(v("a", time), ranges=(whole,)) == shown
        assert table(v("a", time), deletion=gone) == shown
    assert table(LIVE, v("a", 5), UpdateRow((1, 2), None, UpdateDeletion(4, 0))) == ({}, [ROW | {"v": "a"}])


def test_complex_deletions_hide_elements_of_their_column() -> None:
    row = UpdateRow(
        (1, 2),
        None,
        None,
        (Cell("m", "old", 1, CellStamp(4)), Cell("m", "new", 2, CellStamp(5)), Cell("s", 1, True, CellStamp(1))),
        (("m", UpdateDeletion(4, 0)),),
    )
    assert table(row) == ({}, [ROW | {"m": {"'new'": 2}, "s": [1]}])


def test_static_cells_are_hidden_by_the_partition_alone() -> None:
    static = UpdateRow((), None, None, (Cell("st", None, 7, CellStamp(5)),))
    assert table(
        static=static, ranges=(RangeDeletion(ClusteringBound(), ClusteringBound(), UpdateDeletion(9, 0)),)
    ) == ({"st": 7}, [])
    assert table(static=static, deletion=UpdateDeletion(5, 0)) is None


@pytest.mark.parametrize(
    ("start", "end", "inside"),
    [
        (ClusteringBound((1,)), ClusteringBound((1,)), True),
        (ClusteringBound((1,), inclusive=False), ClusteringBound(), False),
        (ClusteringBound((1, 3)), ClusteringBound((1, 1)), True),
        (ClusteringBound((1, 2), inclusive=False), ClusteringBound((1,)), False),
        (ClusteringBound((0,), inclusive=False), ClusteringBound((1, 2)), True),
        (ClusteringBound((1, 1)), ClusteringBound((1, 3)), False),
        (ClusteringBound(), ClusteringBound((1, 2), inclusive=False), False),
    ],
)
def test_ranges_are_in_clustering_order(start: ClusteringBound, end: ClusteringBound, *, inside: bool) -> None:
    assert (table(LIVE, ranges=(RangeDeletion(start, end, UpdateDeletion(9, 0)),)) is None) == inside


def test_lists_are_in_the_order_of_their_uuids() -> None:
    times = [
        timeuuid.format_uuid(timeuuid.make_uuid(time, low)) for time, low in ((3, 0), (1, 0x80 << 56), (1, 0x7F << 56))
    ]
    row = UpdateRow(
        (), None, None, tuple(Cell("sl", path, text, CellStamp(1)) for path, text in zip(times, "cab", strict=True))
    )
    assert table(static=row) == ({"sl": ["a", "b", "c"]}, [])
