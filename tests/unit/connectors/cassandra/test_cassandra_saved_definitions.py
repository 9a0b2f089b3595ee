"""Definitions of tables among the offsets: saved, read, shown, and used until the server is asked."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.cassandra.capture import Capture
from connectors.cassandra.schema import saved
from connectors.cql.mutations.definition import CqlColumn, DroppedColumn, make_definition
from connectors.cql.types import CqlType, parse_type
from connectors.errors import Fatal, Retriable
from tests.unit.connectors.cassandra.catalog_world import T1, T2, Schema, catalog_of, columns, find_table


async def test_saved_definitions_count_until_the_server_is_asked() -> None:
    schema = Schema()
    schema.add("ks", "t", T1, {"p": "int", "v": "text"})
    gone = make_definition("ks", "gone", T2, [CqlColumn("p", CqlType("int"), "partition_key", 0)], cdc=True)
    old = make_definition("ks", "t", T1, [CqlColumn("p", CqlType("int"), "partition_key", 0)], cdc=True)
    catalog = catalog_of(None)
    catalog.remember([old, gone])
    assert columns(find_table(catalog, T1)) == ["p"]
    assert catalog.captured(gone)
    with pytest.raises(Retriable):
        await catalog.refresh()
    catalog.session = schema  # type: ignore[assignment]
    assert await catalog.refresh() == {T1}
    assert columns(find_table(catalog, T1)) == ["p", "v"]
    assert find_table(catalog, T2) == gone
    catalog.remember([old])
    assert columns(find_table(catalog, T1)) == ["p", "v"]


def test_what_is_saved_of_cdc_comes_back() -> None:
    on = make_definition("ks", "t", T1, [CqlColumn("p", CqlType("int"), "partition_key", 0)], cdc=True)
    off = make_definition("ks", "t", T1, on.columns)
    never = make_definition("ks", "n", T2, on.columns)
    ended = Capture(ever=True, last_segment=77)

    def read_back(*offsets: tuple[str, Any]) -> Capture:
        return saved.read_captures(
            "p", "n1", [(saved.definition_partition("p", node, T1), offset) for node, offset in offsets]
        )[T1]

    assert read_back(("n1", saved.definition_offset(on, 1))) == Capture(now=True, ever=True)
    assert read_back(("n1", saved.definition_offset(off, 1, Capture(ever=True)))) == Capture(ever=True)
    assert read_back(("n1", saved.definition_offset(off, 1, ended))) == ended
    # Segments of another node mean nothing here, but that the table had cdc does.
    assert read_back(("n2", saved.definition_offset(off, 1, ended))) == Capture(ever=True)
    assert read_back(("n2", saved.definition_offset(on, 1)), ("n1", saved.definition_offset(off, 2))) == Capture(
        ever=True
    )
    # Turned on again, which this node's task has not saved yet.
    assert read_back(("n1", saved.definition_offset(off, 1, ended)), ("n2", saved.definition_offset(on, 2))).counts(78)
    assert saved.read_captures(
        "p", "n1", [(saved.definition_partition("p", "n1", T2), saved.definition_offset(never, 1))]
    ) == {T2: Capture()}
    assert set(saved.definition_offset(on, 1, Capture(now=True, ever=True))) == set(saved.definition_offset(on, 1))


def test_saved_definitions_come_back() -> None:
    table = make_definition(
        "ks", "t", T1, [CqlColumn("p", parse_type("frozen<map<int, text>>"), "partition_key", 0)], cdc=True
    )
    newer = make_definition(
        "ks",
        "t",
        T1,
        [*table.columns, CqlColumn("v", CqlType("int"), "regular")],
        dropped=[DroppedColumn("x", CqlType("int"), "regular", 7_000)],
        cdc=True,
    )
    offsets = [
        (saved.definition_partition("shop", "n1", T1), saved.definition_offset(newer, 20)),
        (saved.definition_partition("shop", "n2", T1), saved.definition_offset(table, 10)),
        (saved.definition_partition("other", "n1", T2), saved.definition_offset(table, 30)),
        ({"cluster": "shop", "node": "n1"}, {"segment": 1}),
    ]
    assert saved.read_definitions("shop", offsets) == [newer]
    (shown,) = saved.show_tables("shop", offsets)
    assert (shown["table"], shown["version"]) == ("ks.t", newer.version)
    (version,) = shown["versions"]
    assert (version["table_id"], version["ts_ms"], version["nodes"], version["cdc"]) == (T1, 20, ["n1", "n2"], True)
    assert version["columns"][0] == {"name": "p", "type": "frozen<map<int, text>>", "kind": "partition_key"}
    assert version["dropped_columns"] == [{"name": "x", "type": "int", "dropped_ms": 7}]


def test_a_recreated_table_is_shown_with_both_definitions() -> None:
    first, second = (
        make_definition("ks", "t", table_id, [CqlColumn("p", CqlType("int"), "partition_key", 0)])
        for table_id in (T1, T2)
    )
    offsets = [
        (saved.definition_partition("shop", "n", table.table_id), saved.definition_offset(table, seen))
        for seen, table in enumerate((first, second), 1)
    ]
    (shown,) = saved.show_tables("shop", offsets)
    assert [version["table_id"] for version in shown["versions"]] == [T2, T1]
    assert {definition.table_id for definition in saved.read_definitions("shop", offsets)} == {T1, T2}


def test_a_saved_definition_that_was_altered_by_hand_is_named() -> None:
    offsets = [(saved.definition_partition("shop", "n", T1), {"definition": "{}", "seen_ms": 1})]
    with pytest.raises(Fatal, match=f"table_id={T1}"):
        saved.read_definitions("shop", offsets)
    assert saved.show_tables("shop", offsets) == []
