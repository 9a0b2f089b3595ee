"""Updates whose definition changed, lacks something, or can't be served at all; and rows of many columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, DroppedColumn, make_definition
from connectors.cql.mutations.encode import write_update
from connectors.cql.mutations.reference import Damaged, UnknownColumn, read_update, skip_update
from connectors.cql.types import CqlType, freeze_type
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
from tests.unit.connectors.cql.mutation_world import SOURCE, TABLE_ID, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable

US = 1_790_000_000_000_000
INT, TEXT = CqlType("int"), CqlType("text")
PAIR = CqlType("udt", (INT, TEXT), keyspace="ks", udt_name="pair", field_names=("x", "y"))
LONGER = CqlType("udt", (INT, TEXT, INT), keyspace="ks", udt_name="pair", field_names=("x", "y", "z"))


def table(
    *columns: CqlColumn, dropped: tuple[DroppedColumn, ...] = (), clustering: CqlType | None = None
) -> CqlTableDefinition:
    keys = [CqlColumn("pk", INT, "partition_key", 0)]
    keys += [CqlColumn("ck", clustering, "clustering", 0)] if clustering else []
    return make_definition("ks", "t", TABLE_ID, [*keys, *columns], dropped=dropped)


def regular(name: str, kind: CqlType) -> CqlColumn:
    return CqlColumn(name, kind, "regular")


def update(*cells: Cell, clustering: tuple[Any, ...] = (), **parts: Any) -> PartitionUpdate:
    rows = (UpdateRow(clustering, None, None, cells, **parts),)
    return PartitionUpdate(source=SOURCE, key=(1,), write_time=max(cell.stamp.write_time for cell in cells), rows=rows)


def plain(definition: CqlTableDefinition, data: bytes) -> Any:
    decoder = CompiledDecoder(definition, 7)
    for _ in range(3):
        decoded = decoder.plain(data, 0)
    return decoded


def test_an_unknown_column_is_named() -> None:
    definition = table(regular("a", INT))
    newer = table(regular("a", INT), regular("b", TEXT))
    data = write_update(update(Cell("b", None, "x", CellStamp(US))), newer, 7)
    for ask in (lambda: read_update(data, 0, definition, 7, SOURCE), lambda: skip_update(data, 0, definition, 7)):
        with pytest.raises(UnknownColumn, match=r"ks\.t at byte 0 is newer than the definition .* column b ") as caught:
            ask()
        assert caught.value.column == "b"
    assert plain(definition, data) is None
    assert plain(newer, data) is not None


NESTED: dict[str, Callable[[CqlType], CqlType]] = {
    "itself": lambda udt: udt,
    "list": lambda udt: CqlType("list", (udt,)),
    "map": lambda udt: CqlType("map", (INT, udt)),
    "tuple": lambda udt: CqlType("tuple", (INT, udt)),
    "vector": lambda udt: CqlType("vector", (udt,), dimension=1),
    "udt": lambda udt: CqlType("udt", (udt, INT), keyspace="ks", udt_name="outer", field_names=("inner", "n")),
}
VALUES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda inner: inner,
    "list": lambda inner: [None, inner],
    "map": lambda inner: [{"key": 1, "value": inner}],
    "tuple": lambda inner: {"field_0": None, "field_1": inner},
    "vector": lambda inner: [inner],
    "udt": lambda inner: {"inner": inner, "n": 1},
}


@pytest.mark.parametrize("shape", NESTED)
def test_values_with_newer_fields_are_found_at_any_depth(shape: str) -> None:
    definition, newer = (table(regular("f", freeze_type(NESTED[shape](kind)))) for kind in (PAIR, LONGER))
    data = write_update(update(Cell("f", None, VALUES[shape]({"x": 1, "y": "y", "z": 5}), CellStamp(US))), newer, 7)
    with pytest.raises(UnknownColumn, match="more fields than its user-defined type") as caught:
        read_update(data, 0, definition, 7, SOURCE)
    assert caught.value.column == "f"
    assert plain(definition, data) is None
    assert skip_update(data, 0, definition, 7) == len(data)
    # Older values have fewer fields: the later definition shows null.
    older = write_update(update(Cell("f", None, VALUES[shape]({"x": 1, "y": "y"}), CellStamp(US))), definition, 7)
    (row,) = read_update(older, 0, newer, 7, SOURCE)[0].rows
    assert row.cells[0].value == VALUES[shape]({"x": 1, "y": "y", "z": None})
    assert unpacked(plain(newer, older)).rows == (row,)


def test_newer_fields_of_multicell_columns_and_keys() -> None:
    definition, newer = (
        table(regular("u", kind), regular("m", CqlType("map", (freeze_type(kind), INT)))) for kind in (PAIR, LONGER)
    )
    for cell in (Cell("u", "z", 1, CellStamp(US)), Cell("m", {"x": 1, "y": "", "z": 2}, 1, CellStamp(US))):
        data = write_update(update(cell), newer, 7)
        with pytest.raises(UnknownColumn) as caught:
            read_update(data, 0, definition, 7, SOURCE)
        assert caught.value.column == cell.column
    definition, newer = (table(regular("v", INT), clustering=freeze_type(kind)) for kind in (PAIR, LONGER))
    data = write_update(update(Cell("v", None, 1, CellStamp(US)), clustering=({"x": 1, "y": "", "z": 2},)), newer, 7)
    with pytest.raises(UnknownColumn):
        read_update(data, 0, definition, 7, SOURCE)
    assert plain(definition, data) is None


def test_cells_of_dropped_columns_are_hidden() -> None:
    written = table(regular("a", INT), regular("gone", TEXT), regular("l", CqlType("list", (INT,))))
    drops = (DroppedColumn("gone", TEXT, "regular", US), DroppedColumn("l", CqlType("list", (INT,)), "regular", US))
    path = "50554d6e-29bb-11e5-b345-feff819cdc9f"

    def cells(stamp: CellStamp) -> tuple[Cell, ...]:
        return Cell("a", None, 1, stamp), Cell("gone", None, "x", stamp), Cell("l", path, 1, stamp)

    def row(definition: CqlTableDefinition, stamp: CellStamp) -> UpdateRow:
        data = write_update(
            update(*cells(stamp), complex_deletions=(("l", UpdateDeletion(stamp.write_time, 5)),)), written, 7
        )
        read, end = read_update(data, 0, definition, 7, SOURCE)
        assert end == len(data) == skip_update(data, 0, definition, 7)
        return read.rows[0]

    without = table(regular("a", INT), dropped=drops)
    readded = table(*written.regular, dropped=drops)
    for stamp in (CellStamp(US), CellStamp(US + 1)):
        assert row(without, stamp) == UpdateRow((), None, None, cells(stamp)[:1])
    assert row(readded, CellStamp(US)) == UpdateRow((), None, None, cells(CellStamp(US))[:1])
    assert row(readded, CellStamp(US + 1)) == UpdateRow(
        (), None, None, cells(CellStamp(US + 1)), (("l", UpdateDeletion(US + 1, 5)),)
    )
    # Generated code knows what is shown, and leaves the rest alone.
    simple = [write_update(update(*cells(stamp)[:2]), written, 7) for stamp in (CellStamp(US), CellStamp(US + 1))]
    assert plain(without, simple[1]) is None
    assert plain(readded, simple[0]) is None
    assert unpacked(plain(readded, simple[1])).rows[0].cells == cells(CellStamp(US + 1))[:2]


def test_counters_are_passed_over_but_not_read() -> None:
    counted = table(regular("n", CqlType("counter")))
    data = write_update(update(Cell("n", None, 5, CellStamp(US))), counted, 7)
    assert skip_update(data, 0, counted, 7) == len(data)
    with pytest.raises(Skippable, match=r"counters.*cdc = false"):
        read_update(data, 0, counted, 7, SOURCE)
    assert plain(counted, data) is None


def test_another_table_is_reported() -> None:
    data = write_update(update(Cell("a", None, 1, CellStamp(US))), table(regular("a", INT)), 7)
    other = make_definition("ks", "u", "00000000-0000-1000-8000-000000000000", table(regular("a", INT)).columns)
    with pytest.raises(Damaged, match=r"ks\.u .*6a1f2be0c6f511f09d3e3b7c2f5a9e01"):
        read_update(data, 0, other, 7, SOURCE)
    assert plain(other, data) is None


@pytest.mark.parametrize("cells", [Cell("b", None, 1, CellStamp(US)), Cell("a", None, "x", CellStamp(US))])
def test_what_a_table_can_not_have_is_not_written(cells: Cell) -> None:
    with pytest.raises(Fatal, match=r"ks\.t can't be written with the definition"):
        write_update(update(cells), table(regular("a", INT)), 7)


@pytest.mark.parametrize("count", [63, 64, 65, 130])
def test_rows_that_lack_some_of_many_columns(count: int) -> None:
    names = [f"c{index:03}" for index in range(count)]
    wide = table(*(regular(name, INT) for name in names), clustering=INT)
    # All; the first, the last, none, about half, all but one.
    chosen = [names, names[:1], names[-1:], [], names[::2], names[1::2], names[1:], names[:-1]]
    rows = tuple(
        UpdateRow((index,), CellStamp(US), None, tuple(Cell(name, None, index, CellStamp(US)) for name in present))
        for index, present in enumerate(chosen)
    )
    written = PartitionUpdate(source=SOURCE, key=(1,), write_time=US, rows=rows)
    data = write_update(written, wide, 7)
    assert read_update(data, 0, wide, 7, SOURCE) == (written, len(data))
    decoded = plain(wide, data)
    assert (decoded is not None) == (count < 64)
    if decoded is not None:
        assert unpacked(decoded) == written


def test_equal_rows_share_their_names() -> None:
    many = table(*(regular(name, INT) for name in "abc"), clustering=INT)
    rows = tuple(
        UpdateRow((index,), CellStamp(US), None, tuple(Cell(name, None, 1, CellStamp(US)) for name in names))
        for index, names in enumerate(("abc", "ac", "ac", "abc"))
    )
    data = write_update(PartitionUpdate(source=SOURCE, key=(1,), write_time=US, rows=rows), many, 7)
    decoder = CompiledDecoder(many, 7)
    assert decoder.plain(data, 0) is None  # the first few of a kind are not worth code of their own
    decoder.plain(data, 0)
    first, second = (decoder.plain(data, 0) for _ in range(2))
    assert first is not None
    assert second is not None
    names = [row[6] for row in first[2] + second[2]]
    assert names[:4] == [("a", "b", "c"), ("a", "c"), ("a", "c"), ("a", "b", "c")]
    assert {id(row_names) for row_names in names} == {id(names[0]), id(names[1])}


@pytest.mark.parametrize(
    ("there", "instead", "problem"),
    [
        ("02060001", "02030001", "unknown kind 3"),
        ("02060001", "02060002", "a bound of 2 clustering values where the table has 1"),
        ("02060001", "02010001", "begins inside of another"),
        ("02010001", "02060001", "ends that has not started"),
        ("02060001", "01060001", "has no end"),
    ],
)
def test_bounds_that_do_not_pair_are_damage(there: str, instead: str, problem: str) -> None:
    definition = table(clustering=INT)
    deleted = PartitionUpdate(
        source=SOURCE,
        key=(1,),
        write_time=US,
        ranges=(RangeDeletion(ClusteringBound((1,)), ClusteringBound((2,)), UpdateDeletion(US, 1_790_000_000)),),
    )
    data = write_update(deleted, definition, 7)
    assert read_update(data, 0, definition, 7, SOURCE) == (deleted, len(data))
    assert data.count(bytes.fromhex(there)) == 1
    with pytest.raises(Damaged, match=problem):
        read_update(data.replace(bytes.fromhex(there), bytes.fromhex(instead)), 0, definition, 7, SOURCE)


def test_cells_with_the_time_of_a_row_that_has_none_are_damage() -> None:
    definition = table(regular("a", INT))
    data = write_update(update(Cell("a", None, 7, CellStamp(US))), definition, 7)
    row_bytes = bytes.fromhex("20000000000007")  # flags of the row; flags and time of the cell; its value
    assert data.count(row_bytes) == 1
    for flags in ("08", "10"):
        with pytest.raises(Damaged, match="the time of a row that has none"):
            read_update(data.replace(row_bytes, bytes.fromhex("20" + flags + "00000007")), 0, definition, 7, SOURCE)


def test_equal_definitions_have_equal_hashes() -> None:
    first, second = (table(regular("a", INT), regular("b", TEXT)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != table(regular("a", INT), regular("b", INT))


@pytest.mark.parametrize("value", [None, "", "x"])
@pytest.mark.parametrize(
    "stamps",
    [
        (CellStamp(US), CellStamp(US + 5)),
        (CellStamp(US + 5), CellStamp(US)),
        (CellStamp(US, 60, 5000), CellStamp(US, 61, 5000)),
        (CellStamp(US, 60, 5000), CellStamp(US, 60, 5001)),
        (CellStamp(US, 60, 5000), CellStamp(US + 5, 60, 5000)),
        (CellStamp(US), CellStamp(US, 60, 5000)),
    ],
)
def test_rows_whose_cells_differ_in_time_are_not_simple(value: str | None, stamps: tuple[CellStamp, CellStamp]) -> None:
    definition = table(regular("a", TEXT), regular("b", TEXT))
    first, second = stamps
    cells = (
        Cell("a", None, "x", first),
        Cell("b", None, value, second if value is not None else CellStamp(second.write_time)),
    )
    written = update(*cells)
    data = write_update(written, definition, 7)
    assert read_update(data, 0, definition, 7, SOURCE)[0] == written
    decoded = plain(definition, data)
    # A tombstone has no TTL: it may be in a row that has one, and next to cells that have none.
    assert decoded is None or unpacked(decoded) == written
    if value is not None or first.write_time != second.write_time:
        assert decoded is None
