"""Rows of snapshots straight to bytes: the records are those of the general path, with the same positions."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.errors import Skippable
from connectors.mysql.model import MySqlTable, TableName
from connectors.mysql.rows.decode import BadRow
from tests.unit.connectors.mysql.events import making
from tests.unit.connectors.mysql.row_strategies import image, rows_event
from tests.unit.connectors.mysql.test_fast_rows import CHAINS, CONVERTERS, MASKS, OPTIONS, WIDE, Both, json, tables

if TYPE_CHECKING:
    from connectors.mysql.schema.types import ValueOptions

MARKERS: list[tuple[Any, Any, Any]] = [
    ("true", "first", "last"),
    ("true", None, "last_in_data_collection"),
    ("incremental", None, None),
]
OFFSET = {"server": "x", "pos": 7}


def snapshot_of(both: Both) -> Any:
    wire = both.paths.wire
    asyncio.run(both.state.agree_on_snapshot(wire))
    return both.state.snapshot


def rows_of(both: Both, table: MySqlTable, stored: list[list[bytes | None]]) -> list[dict[str, Any]] | None:
    """Values as rows of a snapshot have them, which are those of the stream; None: one can't be decoded."""
    raw = rows_event(table, "write", [image(table, row) for row in stored])
    start, decode = both.state.reader(raw, raw[4])
    try:
        return decode(raw, start, len(raw))
    except BadRow:
        return None


def compare(both: Both, rows: list[dict[str, Any]], markers: tuple[Any, Any, Any]) -> Any:
    snapshot = snapshot_of(both)
    if snapshot is None:
        return None
    marker, first, last = markers
    general: list[Any] = []
    both.paths.refused.clear()
    try:
        both.state.events.snapshot(rows, making.SOURCE, marker, OFFSET, general, first=first, last=last)
        expected = asyncio.run(both.paths.convert(general))
    except Skippable:
        expected, general = [], []
    part = snapshot.encode(rows, making.SOURCE, marker, OFFSET, first, last)
    if len(expected) < len(rows):
        assert part is None
        return None
    assert part is not None
    plain = [record._replace(position=None) for record in both.paths.encoded(part, positions=False)]
    assert plain == [record._replace(position=None) for record in expected]
    remade = part.records()
    assert [(record.source_partition, record.source_offset) for record in remade] == [
        (record.source_partition, record.source_offset) for record in general
    ]
    assert [record.value for record in remade] == [record.value for record in general]
    return part


@settings(max_examples=200, deadline=None)
@given(tables(), OPTIONS, MASKS, CONVERTERS, CONVERTERS, st.sampled_from(MARKERS), st.sampled_from([None, *CHAINS]))
def test_bytes_are_those_of_the_general_path(
    table_and_rows: tuple[MySqlTable, list[list[bytes | None]]],
    options: ValueOptions,
    masks: dict[str, str],
    key_options: dict[str, str],
    value_options: dict[str, str],
    markers: tuple[Any, Any, Any],
    transforms: dict[str, str] | None,
) -> None:
    table, stored = table_and_rows
    both = Both(
        table,
        chosen=making.settings(masks),
        options=options,
        key=json(**key_options),
        value=json(**value_options),
        transforms=transforms,
    )
    rows = rows_of(both, table, stored)
    if rows is not None:
        compare(both, rows, markers)


def test_a_chunk_of_a_snapshot_is_bytes() -> None:
    part = compare(Both(WIDE), [{"id": number, "t": f"ä{number}"} for number in range(200)], MARKERS[0])
    assert len(part.values) == 200
    assert b'"snapshot":"first"' in part.values[0]
    assert b'"snapshot":"true"' in part.values[1]
    assert b'"snapshot":"last"' in part.values[199]


def test_decimals_of_queries_have_the_bytes_of_their_numbers() -> None:
    table = MySqlTable(
        name=TableName("world", "customers"), columns=making.CUSTOMERS.columns, key=("id",), completed=True
    )
    rows = [
        {"id": number, "name": "n", "email": None, "card": None, "credit": credit}
        for number, credit in enumerate([Decimal("0.00"), Decimal("-0.01"), Decimal("999999.99"), None])
    ]
    assert compare(Both(table), rows, MARKERS[2]) is not None


def test_a_value_that_no_column_has_goes_the_general_way() -> None:
    snapshot = snapshot_of(Both(WIDE))
    assert snapshot.encode([{"id": 1, "t": "\ud800"}], making.SOURCE, "true", OFFSET, None, None) is None
    assert snapshot.encode([], making.SOURCE, "true", OFFSET, None, None) is None


@pytest.mark.parametrize("more", [{"output_format": "ums"}, {"skipped": frozenset({"r"})}])
def test_tables_whose_snapshots_need_records(more: dict[str, Any]) -> None:
    assert snapshot_of(Both(WIDE, chosen=making.settings(**more))) is None
