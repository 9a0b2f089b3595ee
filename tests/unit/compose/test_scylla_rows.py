"""The emulation's log rows: those of the golden cases from their writes, and what the rules say beyond them."""

import random
import re
import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.local.scylla.cells import codec
from compose.local.scylla.cells.cql import parse_literal, parse_write
from compose.local.scylla.cells.rows import apply_changes, log_rows, merge_changes
from compose.local.scylla.schema import EmulatedColumn, EmulatedTable
from compose.local.scylla.writes import (
    Add,
    Append,
    Compiler,
    Delete,
    DeleteRange,
    EmulatedPartition,
    Insert,
    Prepend,
    Remove,
    SetAt,
    Update,
    Write,
    key_cells,
    list_order,
    time_uuid,
)
from connectors.cql.types import CqlType, parse_type, udt_resolver
from tests.unit.connectors.scylla.events import golden_cases

NOW = 1_795_219_200_000_000
BASE = (
    "CREATE TABLE g.t (pk int, ck int, v text, n bigint, m map<text,int>, l list<int>, s set<text>, st text static, "
    "u addr, PRIMARY KEY ((pk), ck))"
)
UDTS = {"addr": (["street", "text"], ["zip", "int"])}


def make_table(ddl: str, udts: Mapping[str, Sequence[Sequence[str]]] | None = None, **options: str) -> EmulatedTable:
    """A table from its CREATE statement, without a server."""
    match = re.match(r"CREATE TABLE (\w+)\.(\w+) \((.*), PRIMARY KEY \((.*)\)\)(.*)$", ddl)
    assert match is not None, ddl
    keyspace, name, body, key, tail = match.groups()
    definitions = {
        type_name: ([field for field, _ in fields], [kind for _, kind in fields])
        for type_name, fields in (udts or UDTS).items()
    }
    resolve = udt_resolver(keyspace, definitions)
    grouped = re.match(r"\(([^)]*)\)(.*)", key)
    partition, clustering = (grouped[1], grouped[2]) if grouped else (key.split(",")[0], ",".join(key.split(",")[1:]))
    keys = [
        [part.strip().strip('"') for part in key_part.split(",") if part.strip()]
        for key_part in (partition, clustering)
    ]
    columns: list[EmulatedColumn] = []
    for part in re.split(r", (?=[\w\"]+ [a-z])", body):
        column, _, kind = part.partition(" ")
        column = column.strip('"')
        static = kind.endswith(" static")
        kind = kind.removesuffix(" static")
        key_index = next((at for at, names in enumerate(keys) if column in names), None)
        where = (
            ("partition_key", "clustering")[key_index] if key_index is not None else "static" if static else "regular"
        )
        position = keys[key_index].index(column) if key_index is not None else -1
        columns.append(
            EmulatedColumn(
                column, parse_type(kind, resolve, keyspace=keyspace), where, position, f"{column} DESC" in tail
            )
        )
    order = ("partition_key", "clustering", "static", "regular")
    columns.sort(key=lambda column: (order.index(column.kind), column.position, column.name))
    return EmulatedTable(keyspace, name, tuple(columns), {"enabled": "true", **options})


def state_of(table: EmulatedTable, key: Mapping[str, Any], row: Mapping[str, Any]) -> EmulatedPartition:
    """A partition with one row."""
    empty = EmulatedPartition(rows={key_cells(table.clustering, key, table="t"): None})
    return apply_changes(table, empty, compiled(table, empty, Insert("g.t", {**key, **row}), time_us=NOW - 1000))


def compiled(table: EmulatedTable, state: EmulatedPartition, *writes: Write, time_us: int = NOW) -> Any:
    compiler = Compiler(table, state, time_us * 10, random.Random(5).getrandbits)
    return merge_changes([change for write in writes for change in compiler.changes(write)])


def logged(table: EmulatedTable, state: EmulatedPartition, *writes: Write) -> list[dict[str, bytes]]:
    first = writes[0].values if isinstance(writes[0], Insert) else writes[0].key
    partition = key_cells(table.partition_key, first, table="t")
    return log_rows(table, partition, compiled(table, state, *writes), state)[0]


_META = {"cdc$operation": "tinyint", "cdc$batch_seq_no": "int", "cdc$end_of_batch": "boolean", "cdc$ttl": "bigint"}


def expected_row(case: Mapping[str, Any], table: EmulatedTable, row: Mapping[str, str]) -> dict[str, bytes]:
    """A golden log row as cells."""
    cells: dict[str, bytes] = {}
    definitions = {name: ([f for f, _ in fields], [k for _, k in fields]) for name, fields in case["udts"].items()}
    types = {
        name: parse_type(text, udt_resolver("g", definitions), keyspace="g") for name, text in table.log_columns.items()
    }
    for column, text in row.items():
        if column in {"cdc$stream_id", "cdc$time"}:
            continue
        kind = CqlType(_META[column]) if column in _META else types[column]
        cell = codec.encode_cell(kind, parse_literal(text))
        assert cell is not None
        cells[column] = cell
    return cells


def without_times(table: EmulatedTable, row: Mapping[str, bytes]) -> dict[str, bytes]:
    """A log row with time uuids of list cells replaced by their positions: the uuids differ each time."""
    result = dict(row)
    for column in table.lists:
        cell = result.get(column.name)
        if cell is not None:
            parts = codec.split_cells(cell, 2)
            result[column.name] = codec.join_cells(parts[1::2])
    return result


T = "g.t"
ROW = {"pk": 1, "ck": 1}
#: Golden case -> (the row that was there, calls of one or more writes each).
CASES: dict[str, tuple[dict[str, Any] | None, list[list[Write]]]] = {
    "insert_basic": (None, [[Insert(T, {**ROW, "v": "a", "n": 10})]]),
    "insert_null_vs_unset": (
        None, [[Insert(T, {**ROW, "v": None, "n": 10})], [Insert(T, {"pk": 1, "ck": 2, "n": 11})]]
    ),
    "update_regular": (None, [[Update(T, ROW, {"v": "b"})]]),
    "update_ttl": (None, [[Update(T, ROW, {"v": "b"}, ttl=60)]]),
    "update_static": (None, [[Update(T, {"pk": 1}, {"st": "S"})]]),
    "row_delete": (None, [[Delete(T, ROW)]]),
    "partition_delete_with_ck": (None, [[Delete(T, {"pk": 1})]]),
    "list_append": (None, [[Update(T, ROW, {"l": Append([9])})]]),
    "map_add": (None, [[Update(T, ROW, {"m": Add({"z": 3})})]]),
    "map_remove_key": (None, [[Update(T, ROW, {"m": Remove(["x"])})]]),
    "set_add_remove": (None, [[Update(T, ROW, {"s": Add(["new"])})], [Update(T, ROW, {"s": Remove(["p"])})]]),
    "composite_key_order": (
        None,
        [
            [Insert(T, {"p1": "P", "p2": 2, "c1": "C", "c2": 4, "z": 9})],
            [Delete(T, {"p1": "P", "p2": 2, "c1": "C", "c2": 4})],
            [Delete(T, {"p1": "P", "p2": 2, "c1": "C"})],
        ],
    ),
    "pkonly_insert_update_delete": (
        None,
        [
            [Insert(T, {"a": 1, "b": "x", "v": 1})],
            [Update(T, {"a": 1, "b": "x"}, {"v": 2})],
            [Delete(T, {"a": 1, "b": "x"})],
        ],
    ),
    "quoted_identifiers": (
        None,
        [[Insert(T, {"Pk": 1, "MyCol": "m", "select": 5, "cdc_x": "c"})], [Delete(T, {"Pk": 1}, ["MyCol"])]],
    ),
    "img_insert_new": (None, [[Insert(T, {**ROW, "v": "a", "n": 1})]]),
    "img_update": ({"v": "old", "n": 5, "m": {"x": 1}}, [[Update(T, ROW, {"v": "new"})]]),
    "img_row_delete": ({"v": "old", "n": 3, "s": ["q"]}, [[Delete(T, ROW)]]),
    "img_collection": (
        {"m": {"x": 1}, "l": [1]}, [[Update(T, ROW, {"m": [Remove(["x"]), Add({"y": 2})], "l": Append([2])})]]
    ),
    "batch_rows_same_time": (
        None,
        [[
            *(Insert(T, {"pk": 1, "ck": number, "v": f"b{number}"}) for number in range(4)),
            Delete(T, {"pk": 1, "ck": 9}),
            Update(T, {"pk": 1}, {"st": "x"}),
        ]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
def test_golden_log_rows(name: str) -> None:
    case = golden_cases.load(name)
    images = {key: "true" for key in ("preimage", "postimage") if f"'{key}': true" in case["ddl"]["scylla"]}
    table = make_table(case["ddl"]["base"], case["udts"], **images)
    before, calls = CASES[name]
    state = state_of(table, ROW, before) if before is not None else EmulatedPartition()
    log_rows: list[dict[str, bytes]] = []
    for writes in calls:
        log_rows += logged(table, state, *writes)
    expected_rows = [expected_row(case, table, row) for row in case["log_rows"]]
    if name == "batch_rows_same_time":
        # The case has the statements' order; Scylla has the static row first, see `rows`.
        assert log_rows[0]["st"] == b"x"
        for row in (*log_rows, *expected_rows):
            row.pop("cdc$batch_seq_no")
            row.pop("cdc$end_of_batch", None)
        log_rows, expected_rows = (
            sorted(rows, key=lambda row: sorted(row.items())) for rows in (log_rows, expected_rows)
        )
    assert [without_times(table, row) for row in log_rows] == [without_times(table, row) for row in expected_rows]


def test_the_typical_value_of_every_type_is_the_golden_one() -> None:
    case = golden_cases.load("types_scalar_typical")
    table = make_table(case["ddl"]["base"], case["udts"])
    values = {name: parse_literal(text) for name, text in case["log_rows"][0].items() if not name.startswith("cdc$")}
    (row,) = logged(table, EmulatedPartition(), Insert(T, values))
    assert row == expected_row(case, table, case["log_rows"][0])


def test_numbers_and_the_end_of_the_batch() -> None:
    table = make_table(BASE, preimage="full", postimage="true")
    state = state_of(table, ROW, {"v": "a"})
    static = Update(T, {"pk": 1}, {"st": "s"})
    rows = logged(table, state, Update(T, ROW, {"v": "b"}), Insert(T, {"pk": 1, "ck": 0, "v": "c"}), static)
    assert [int.from_bytes(row["cdc$batch_seq_no"], "big") for row in rows] == list(range(7))
    assert ["cdc$end_of_batch" in row for row in rows] == [False] * 6 + [True]
    # One row was there; static row and rows by key: changes, then postimages.
    assert [row["cdc$operation"][0] for row in rows] == [0, 1, 2, 1, 9, 9, 9]
    assert [row.get("ck", b"")[-1:] for row in rows] == [b"\1", b"", b"\0", b"\1", b"", b"\0", b"\1"]


def test_a_row_with_two_times_to_live_is_two_changes() -> None:
    table = make_table(BASE)
    rows = logged(table, EmulatedPartition(), Insert(T, {**ROW, "v": "a"}, ttl=9), Update(T, ROW, {"n": 1}))
    assert [(row["cdc$operation"][0], row.get("cdc$ttl")) for row in rows] == [(2, struct.pack(">q", 9)), (1, None)]


def test_statements_to_one_row_are_one_change_and_null_wins() -> None:
    table = make_table(BASE)
    (row,) = logged(
        table, EmulatedPartition(), Insert(T, {**ROW, "v": "a", "n": 1}), Update(T, ROW, {"v": None, "n": 2})
    )
    assert row["cdc$operation"] == b"\x02"
    assert row["cdc$deleted_v"] == b"\x01"
    assert row["n"] == struct.pack(">q", 2)


@pytest.mark.parametrize(
    ("descending", "lower", "upper", "inclusive", "expected"),
    [
        (False, 1, 5, (True, False), [(5, 1), (8, 5)]),
        (False, None, 5, (False, True), [(5, None), (7, 5)]),
        (False, 1, None, (False, False), [(6, 1), (7, None)]),
        (True, 1, 5, (True, False), [(6, 5), (7, 1)]),
    ],
)
def test_range_bounds(
    descending: bool,
    lower: int | None,
    upper: int | None,
    inclusive: tuple[bool, bool],
    expected: list[tuple[int, int | None]],
) -> None:
    table = make_table(BASE + (" WITH CLUSTERING ORDER BY (ck DESC)" if descending else ""))
    write = DeleteRange(T, {"pk": 1}, lower, upper, *inclusive)
    rows = logged(table, EmulatedPartition(), write)
    bounds = [(row["cdc$operation"][0], int.from_bytes(row["ck"], "big") if "ck" in row else None) for row in rows]
    assert bounds == expected


def test_a_range_takes_its_rows_from_what_is_known_of_the_partition() -> None:
    table = make_table(BASE)
    state = state_of(table, ROW, {"v": "a"})
    state.rows[(struct.pack(">i", 7),)] = {"v": b"z"}
    after = apply_changes(table, state, compiled(table, state, DeleteRange(T, {"pk": 1}, lower=2)))
    assert [row is None for _, row in sorted(after.rows.items())] == [False, True]
    assert state.rows[(struct.pack(">i", 7),)] is not None


def test_a_partition_of_one_row_has_a_preimage_when_it_is_deleted() -> None:
    table = make_table("CREATE TABLE g.t (pk int, v text, n int, PRIMARY KEY (pk))", preimage="true", postimage="true")
    state = state_of(table, {"pk": 1}, {"v": "a", "n": 2})
    rows = logged(table, state, Delete(T, {"pk": 1}))
    assert [row["cdc$operation"][0] for row in rows] == [0, 4]
    assert rows[0]["v"] == b"a"


def test_lists_by_place_and_by_value() -> None:
    table = make_table(BASE, postimage="true")
    state = state_of(table, ROW, {"l": [1, 2, 3, 2]})
    row = logged(table, state, Update(T, ROW, {"l": [Prepend([8, 9]), SetAt(2, 33), Remove([2]), Append([4])]}))[-1]
    parts = codec.split_cells(row["l"], 2)
    assert [int.from_bytes(element, "big") for element in parts[1::2]] == [8, 9, 1, 33, 4]
    assert parts[::2] == sorted(parts[::2], key=list_order)


def test_fields_of_a_type() -> None:
    table = make_table(BASE, postimage="true")
    state = state_of(table, ROW, {"u": {"street": "S", "zip": 5}})
    delta, after = logged(table, state, Update(T, ROW, {"u": [SetAt("street", None), SetAt("zip", 6)]}))
    assert delta["cdc$deleted_elements_u"] == codec.join_cells([b"\0\0"])
    assert delta["u"] == after["u"] == codec.join_fields([None, struct.pack(">i", 6)])
    assert "cdc$deleted_u" not in delta


def test_only_keys_where_the_table_wants_no_more() -> None:
    table = make_table(BASE, delta="keys")
    (row,) = logged(table, EmulatedPartition(), Insert(T, {**ROW, "v": "a"}))
    assert set(row) == {"pk", "ck", "cdc$operation", "cdc$batch_seq_no", "cdc$end_of_batch"}


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("INSERT INTO g.t (pk, ck, v) VALUES (1, 2, 'it''s') USING TTL 5;", Insert(T, {"pk": 1, "ck": 2, "v": "it's"}, ttl=5)),
        (
            "UPDATE g.t USING TIMESTAMP 7 SET m = m + {'x': 1}, l[0] = 3, u.zip = null WHERE pk = 1 AND ck = -2",
            Update(
                T, {"pk": 1, "ck": -2}, {"m": Append({"x": 1}), "l": SetAt(0, 3), "u": SetAt("zip", None)}, timestamp_us=7
            ),
        ),
        ('DELETE v, "MyCol" FROM g.t WHERE pk = 1 IF EXISTS', Delete(T, {"pk": 1}, ["v", "MyCol"], condition="exists")),
        (
            "DELETE FROM g.t WHERE pk = 1 AND ck > 2 AND ck <= 9",
            DeleteRange(T, {"pk": 1}, 2, 9, lower_inclusive=False, upper_inclusive=True),
        ),
    ],
)  # fmt: skip
def test_cql_text(text: str, write: Write) -> None:
    assert parse_write(text) == write


@given(st.integers(-(2**200), 2**200))
def test_varint_is_as_short_as_it_can_be(value: int) -> None:
    cell = codec.encode_varint(value)
    assert int.from_bytes(cell, "big", signed=True) == value
    assert len(cell) == 1 or not -(1 << (8 * len(cell) - 9)) <= value < 1 << (8 * len(cell) - 9)


@given(st.integers(-(2**52), 2**52), st.integers(0, 2**62 - 1))
def test_time_uuids_say_their_time(time_us: int, low: int) -> None:
    if time_us * 10 + 0x01B21DD213814000 < 0:
        return
    time_id = uuid.UUID(bytes=time_uuid(time_us, lambda _: low))
    assert (time_id.version, time_id.variant) == (1, uuid.RFC_4122)
    assert time_id.time - 0x01B21DD213814000 == time_us * 10


@given(
    st.lists(st.integers(0, 9), max_size=6), st.lists(st.tuples(st.sampled_from("apxs"), st.integers(0, 9)), max_size=8)
)
def test_a_list_is_what_python_would_make_of_it(start: list[int], steps: list[tuple[str, int]]) -> None:
    """Any sequence of appends, prepends, removals and replacements, one write each."""
    table = make_table(BASE, postimage="true")
    state, model = state_of(table, ROW, {"l": start, "v": "a"}), list(start)
    chance = random.Random(1)
    for number, (step, value) in enumerate(steps):
        if step == "x":
            operation: Any = Remove([value])
            model = [element for element in model if element != value]
        elif step == "a":
            operation, model = Append([value]), [*model, value]
        elif step == "p":
            operation, model = Prepend([value]), [value, *model]
        elif model:
            operation = SetAt(value % len(model), value)
            model[value % len(model)] = value
        else:
            continue
        compiler = Compiler(table, state, (NOW + number) * 10, chance.getrandbits)
        state = apply_changes(table, state, compiler.changes(Update(T, ROW, {"l": operation})))
    (row,) = state.rows.values()
    elements = (row or {}).get("l", {})
    assert [int.from_bytes(elements[at], "big") for at in sorted(elements, key=list_order)] == model
