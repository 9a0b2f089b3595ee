"""The update made from a row of a SELECT, where times and names can't be read."""

from __future__ import annotations

from typing import Any

from connectors.cassandra.snapshot.rows import MOST_ROWS, UNKNOWN_US, ReadMoment, SnapshotRowReader, element_name
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, make_definition
from connectors.cql.types import parse_type, udt_resolver
from connectors.cql.values import BadCell
from connectors.formats import timeuuid
from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateDeletion, UpdateRow

NOW_S = 1_790_000_000
US = 1_000_000
SETTLED_US = NOW_S * US
MOMENT = ReadMoment(SETTLED_US, NOW_S * 1000)
LONG_AGO_US = 1_500_000_000 * US
RESOLVE = udt_resolver("ks", {"u": (["a", "b"], ["int", "text"])})


def table(*regular: str, static: str = "", clustering: bool = True) -> CqlTableDefinition:
    columns = [CqlColumn("k", parse_type("int"), "partition_key", 0)]
    if clustering:
        columns.append(CqlColumn("c", parse_type("int"), "clustering", 0))
    if static:
        columns.append(CqlColumn("s", parse_type(static), "static"))
    columns += [CqlColumn(f"v{number}", parse_type(text, RESOLVE), "regular") for number, text in enumerate(regular)]
    return make_definition("ks", "t", "11111111-1111-1111-1111-111111111111", columns, cdc=True)


def read(
    definition: CqlTableDefinition, *rows: tuple[Any, ...], elements: bool = True, moment: ReadMoment = MOMENT
) -> list[PartitionUpdate]:
    read_rows = SnapshotRowReader("shop", definition, elements=elements).read(
        [(0, NOW_S * 1000, *row) for row in rows], moment
    )
    assert not read_rows.bad
    return read_rows.updates


def read_row(
    definition: CqlTableDefinition, *cells: Any, elements: bool = True, moment: ReadMoment = MOMENT
) -> UpdateRow:
    (update,) = read(definition, (1, 2, *cells), elements=elements, moment=moment)
    (row,) = update.rows
    return row


def test_the_statement() -> None:
    definition = make_definition(
        "Ks",
        "t",
        "",
        [
            CqlColumn("K", parse_type("int"), "partition_key", 0),
            CqlColumn("k2", parse_type("text"), "partition_key", 1),
            CqlColumn("select", parse_type("text"), "regular"),
            CqlColumn("m", parse_type("map<int, int>"), "regular"),
        ],
    )
    assert SnapshotRowReader("shop", definition, elements=True).select.text == (
        'SELECT token("K", k2), CAST(now() AS timestamp), "K", k2, m, writetime(m), ttl(m), "select", writetime("select"), '
        'ttl("select") FROM "Ks".t WHERE token("K", k2) > ? AND token("K", k2) <= ?'
    )
    old = SnapshotRowReader("shop", definition, elements=False).select
    assert old.text.startswith(
        'SELECT token("K", k2), CAST(now() AS timestamp), "K", k2, m, "select", writetime("select")'
    )
    assert len(old.types) == 8


def test_times_and_ttls_of_simple_cells() -> None:
    row = read_row(table("int", "text", "int"), 7, LONG_AGO_US, None, "x", 5, 60, None, None, None)
    assert row.cells == (
        Cell("v0", None, 7, CellStamp(LONG_AGO_US)),
        Cell("v1", None, "x", CellStamp(5, 60, NOW_S + 60)),
    )
    # An empty value of a type that shows none, as the log has it.
    assert read_row(table("int"), None, 9, 60).cells == (Cell("v0", None, None, CellStamp(9)),)


def test_liveness_is_older_than_anything_and_lasts_as_long_as_the_cells() -> None:
    definition = table("int", "int")
    assert read_row(definition, 1, LONG_AGO_US, None, 2, 5, 60).liveness == CellStamp(UNKNOWN_US)
    assert read_row(definition, 1, LONG_AGO_US, 90, 2, 5, 60).liveness == CellStamp(UNKNOWN_US, 90, NOW_S + 90)
    nothing = (None,) * 6
    assert read_row(definition, *nothing).liveness == CellStamp(UNKNOWN_US)
    assert read_row(definition, *nothing, moment=MOMENT._replace(default_ttl=30)).liveness == CellStamp(
        UNKNOWN_US, 30, NOW_S + 30
    )
    # An empty int with a TTL is no cell that lives.
    assert read_row(definition, None, 5, 60, None, None, None).liveness == CellStamp(UNKNOWN_US)


def test_a_row_of_a_table_of_key_columns_only_is_there() -> None:
    assert read_row(table()).liveness == CellStamp(UNKNOWN_US)
    assert read_row(table(), moment=MOMENT._replace(default_ttl=30)).liveness == CellStamp(UNKNOWN_US, 30, NOW_S + 30)
    (update,) = read(table(clustering=False), (1,))
    assert update.rows == (UpdateRow((), CellStamp(UNKNOWN_US), None, (), ()),)


def test_elements_of_sets_maps_and_types() -> None:
    row = read_row(
        table("set<int>", "map<text, int>", "u"),
        [3, 4],
        [10, 11],
        [None, 60],
        [{"key": "a", "value": 1}],
        [12],
        [None],
        {"a": 1, "b": None},
        [13, None],
        [5, None],
    )
    assert row.cells == (
        Cell("v0", 3, True, CellStamp(10)),
        Cell("v0", 4, True, CellStamp(11, 60, NOW_S + 60)),
        Cell("v1", "a", 1, CellStamp(12)),
        Cell("v2", "a", 1, CellStamp(13, 5, NOW_S + 5)),
    )
    assert not row.complex_deletions


def test_lists_are_overwritten_as_of_the_settled_moment() -> None:
    young = SETTLED_US - 1
    row = read_row(table("list<int>"), [1, 2, 3], [LONG_AGO_US, SETTLED_US - 2, young], [None, 60, None])
    assert row.complex_deletions == (("v0", UpdateDeletion(SETTLED_US - 2, NOW_S - 1)),)
    # The young one is left to the log: with its own name it would be there twice.
    assert row.cells == (
        Cell("v0", element_name(0), 1, CellStamp(SETTLED_US - 1)),
        Cell("v0", element_name(1), 2, CellStamp(SETTLED_US - 1, 60, NOW_S + 60)),
    )
    # Whoever overwrites it then hides them: his deletion is one before his time.
    assert row.cells[0].stamp.write_time <= SETTLED_US - 1


def test_lists_of_writers_who_do_not_tell_moments() -> None:
    definition = table("list<int>", "int")
    counted = read_row(definition, [1, 2], [7, 9], [None, None], 5, 8, None)
    assert counted.complex_deletions == (("v0", UpdateDeletion(9, 0)),)
    assert [cell.stamp.write_time for cell in counted.cells if cell.column == "v0"] == [10, 10]
    future = NOW_S * US + 7_200 * US
    ahead = read_row(definition, [1], [future], [None], None, None, None)
    assert [cell.stamp for cell in ahead.cells] == [CellStamp(future)]


def test_lists_without_elements() -> None:
    definition = table("list<int>", "int")
    emptied = read_row(definition, None, None, None, 5, LONG_AGO_US, None)
    assert emptied.complex_deletions == (("v0", UpdateDeletion(SETTLED_US - 2, NOW_S - 1)),)
    # Nothing says that writers use moments: nothing is hidden.
    assert not read_row(definition, None, None, None, 5, 8, None).complex_deletions
    assert not read_row(definition, None, None, None, None, None, None).complex_deletions


def test_names_of_elements_are_between_those_of_both_ends() -> None:
    names = [element_name(number) for number in range(300)]
    assert sorted(names, key=timeuuid.order_key) == names
    appended = timeuuid.format_uuid(timeuuid.make_uuid(1_300_000_000 * US, 0))
    # Cassandra counts back from 2010 for what is put in front.
    in_front = timeuuid.format_uuid(timeuuid.make_uuid(2 * 1_262_304_000 * US - NOW_S * US, 0))
    assert sorted([appended, *names, in_front], key=timeuuid.order_key) == [in_front, *names, appended]


def test_without_times_of_elements_anything_wins() -> None:
    definition = table("set<int>", "u", "list<int>", "int")
    row = read_row(
        definition,
        [3],
        {"a": 1, "b": None},
        [5],
        7,
        LONG_AGO_US,
        None,
        elements=False,
        moment=MOMENT._replace(default_ttl=30),
    )
    lasting = CellStamp(UNKNOWN_US, 30, NOW_S + 30)
    assert row.cells == (
        Cell("v3", None, 7, CellStamp(LONG_AGO_US)),
        Cell("v0", 3, True, lasting),
        Cell("v1", "a", 1, lasting),
        Cell("v2", element_name(0), 5, CellStamp(SETTLED_US - 1, 30, NOW_S + 30)),
    )
    assert [name for name, _ in row.complex_deletions] == ["v2"]
    assert not read_row(definition, None, None, [5], 7, 8, None, elements=False).complex_deletions


def test_static_rows_once_and_partitions_with_nothing_else() -> None:
    definition = table("int", static="text")
    first, second = read(
        definition,
        (1, 1, "s", 50, None, 7, 60, None),
        (1, 2, "s", 50, None, 8, 70, None),
        (2, None, "t", 40, None, None, None, None),
    )
    assert first.static == UpdateRow((), None, None, (Cell("s", None, "s", CellStamp(50)),), ())
    assert [row.clustering for row in first.rows] == [(1,), (2,)]
    assert (first.write_time, second.write_time) == (70, 40)
    assert (second.key, second.rows, second.static) == (
        (2,),
        (),
        UpdateRow((), None, None, (Cell("s", None, "t", CellStamp(40)),), ()),
    )
    (without,) = read(definition, (1, 1, None, None, None, 7, 60, None))
    assert without.static is None


def test_large_partitions_are_divided_and_tables_without_clustering_are_not_merged() -> None:
    definition = table("int", static="text")
    updates = read(definition, *((1, number, "s", 50, None, 7, 60, None) for number in range(MOST_ROWS + 1)))
    assert [len(update.rows) for update in updates] == [MOST_ROWS, 1]
    assert [update.static is not None for update in updates] == [True, False]
    updates = read(table("int", clustering=False), (1, 7, 60, None), (2, 8, 60, None))
    assert [[row.clustering for row in update.rows] for update in updates] == [[()], [()]]


def test_a_row_whose_clustering_value_is_an_empty_number_is_no_static_row() -> None:
    (update,) = read(table("int", static="text"), (1, None, "s", 50, None, 7, 60, None))
    assert [(row.clustering, [cell.value for cell in row.cells]) for row in update.rows] == [((None,), [7])]


def test_neighbouring_partitions_of_zero_and_negative_zero_stay_two() -> None:
    definition = make_definition(
        "ks",
        "t",
        "11111111-1111-1111-1111-111111111111",
        [CqlColumn("k", parse_type("double"), "partition_key", 0), CqlColumn("v", parse_type("int"), "regular")],
        cdc=True,
    )
    zero, negative = (5, NOW_S * 1000, 0.0, 1, 7, None), (9, NOW_S * 1000, -0.0, 2, 7, None)
    updates = SnapshotRowReader("shop", definition, elements=True).read([zero, negative], MOMENT).updates
    assert [str(update.key[0]) for update in updates] == ["0.0", "-0.0"]
    assert [[cell.value for row in update.rows for cell in row.cells] for update in updates] == [[1], [2]]


def test_source_and_bad_rows() -> None:
    read_rows = SnapshotRowReader("shop", table("text"), elements=True).read(
        [
            (0, NOW_S * 1000, 1, 2, BadCell(b"\xff", ValueError("no text")), 5, None),
            (0, NOW_S * 1000, 1, 3, "x", 5, None),
        ],
        MOMENT,
    )
    assert len(read_rows.bad) == 1
    assert all(part in read_rows.bad[0] for part in ("k=1, c=2", "ks.t", "v0: no text"))
    (update,) = read_rows.updates
    assert [row.clustering for row in update.rows] == [(3,)]
    source = update.source
    assert (source.connector, source.cluster, source.snapshot, source.read_time) == (
        "cassandra",
        "shop",
        True,
        NOW_S * 1000,
    )
    assert source.schema_version == table("text").version
