"""Definitions of tables: rows of ``system_schema`` become definitions; none is forgotten or goes back to an older one."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

import pytest

from connectors.cassandra import metrics as names
from connectors.cassandra.capture import SETTLED_MS, Capture
from connectors.cassandra.connector import CassandraConnector
from connectors.cassandra.run.reporting import CaptureReport
from connectors.cassandra.schema.catalog import (
    CassandraTableFilter,
    build_definition,
    find_disagreeing,
    id_bytes,
    is_older,
)
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, DroppedColumn, make_definition
from connectors.cql.types import CqlType, UnknownType, udt_resolver
from connectors.errors import ConfigInvalid, Retriable
from connectors.testing.contexts import LogCapture, RecordedMetrics, make_logger
from tests.support.eventually import eventually_async, pass_turns
from tests.unit.connectors.cassandra.catalog_world import T1, T2, T3, Numbers, Schema, catalog_of, columns, find_table


@pytest.mark.parametrize(
    ("include", "exclude", "name", "expected"),
    [
        ("", "", "shop.t", True),
        ("", "", "system.local", False),
        (r"system\.local", "", "system.local", False),
        (r"shop\.t", "", "shop.t", True),
        (r"shop\.t", "", "shop.tt", False),
        (r"SHOP\.T", "", "shop.t", True),
        (r"crm\..*,shop\.[ab]", "", "shop.b", True),
        (r"crm\..*,shop\.[ab]", "", "shop.c", False),
        ("", r"shop\..*", "shop.t", False),
        ("", r"shop\..*", "shops.t", True),
        (r"shop\.t{1\,2}", "", "shop.tt", True),
        ("shop.t", "shop.t", "shop.t", True),
    ],
)
def test_which_tables_the_lists_let_through(include: str, exclude: str, name: str, expected: bool) -> None:
    keyspace, _, table = name.partition(".")
    assert CassandraTableFilter(include, exclude).matches(keyspace, table) is expected


def test_a_definition_from_rows() -> None:
    types = udt_resolver("ks", {"address": (["street", "zip"], ["text", "int"])})

    def row(name: str, kind: str, cql: str, position: int = -1, order: str = "none") -> dict[str, Any]:
        return {"column_name": name, "kind": kind, "type": cql, "position": position, "clustering_order": order}

    table = build_definition(
        "ks",
        "t",
        {"id": T1, "cdc": True},
        [
            row("r", "regular", "frozen<address>"),
            row("c2", "clustering", "int", 1, "asc"),
            row("p2", "partition_key", "text", 1),
            row("c1", "clustering", "timestamp", 0, "desc"),
            row("p1", "partition_key", "int", 0),
            row("s", "static", "list<text>"),
        ],
        [
            {
                "column_name": "gone",
                "kind": "regular",
                "type": "frozen<tuple<text, int>>",
                "dropped_ms": 1_700_000_000_001,
            },
            {"column_name": "r", "kind": "regular", "type": "frozen<nowhere>", "dropped_ms": 5},
        ],
        lambda _: types,
    )
    assert columns(table) == ["p1", "p2", "c1", "c2", "s", "r"]
    assert [(column.position, column.reversed) for column in table.columns] == [
        (0, False),
        (1, False),
        (0, True),
        (1, False),
        (-1, False),
        (-1, False),
    ]
    assert table.regular[0].type.field_names == ("street", "zip")
    assert [(column.name, column.dropped_us) for column in table.dropped] == [
        ("gone", 1_700_000_000_001_000),
        ("r", 5_000),
    ]
    assert table.dropped[1].type == table.regular[0].type
    assert (table.table_id, table.cdc) == (T1, True)
    with pytest.raises(UnknownType):
        build_definition(
            "ks",
            "t",
            {"id": T1, "cdc": True},
            [row("p", "partition_key", "int", 0)],
            [{"column_name": "x", "kind": "regular", "type": "nowhere", "dropped_ms": 5}],
            lambda _: types,
        )


def define_table(*extra_columns: CqlColumn, dropped: tuple[DroppedColumn, ...] = ()) -> CqlTableDefinition:
    return make_definition(
        "ks", "t", T1, [CqlColumn("p", CqlType("int"), "partition_key", 0), *extra_columns], dropped=dropped
    )


def test_what_can_only_be_an_older_definition() -> None:
    int_, text = CqlType("int"), CqlType("text")
    a, b = CqlColumn("a", int_, "regular"), CqlColumn("b", text, "static")
    one_field, two_fields = (
        CqlColumn(
            "u", CqlType("udt", (int_,) * count, keyspace="ks", udt_name="u", field_names=("x", "y")[:count]), "regular"
        )
        for count in (1, 2)
    )
    assert is_older(define_table(a), define_table(a, b))
    assert not is_older(define_table(a, b), define_table(a))
    assert not is_older(define_table(a, dropped=(DroppedColumn("b", text, "static", 1),)), define_table(a, b))
    assert is_older(define_table(a, b), define_table(a, dropped=(DroppedColumn("b", text, "static", 1),)))
    once, twice = (define_table(a, dropped=(DroppedColumn("b", text, "static", at),)) for at in (1, 2))
    assert is_older(once, twice)
    assert not is_older(twice, once)
    assert is_older(define_table(one_field), define_table(two_fields))
    assert not is_older(define_table(two_fields), define_table(one_field))
    renamed = make_definition("ks", "t", T1, [CqlColumn("q", int_, "partition_key", 0)])
    assert not is_older(renamed, define_table())


async def test_tables_are_found_by_id_and_never_forgotten() -> None:
    schema, numbers = Schema(), Numbers()
    schema.add("ks", "t", T1, {"p": "int", "v": "text"})
    schema.add("ks", "off", T2, {"p": "int"}, cdc=False)
    schema.add("system", "local", T3, {"p": "int"}, cdc=False)
    catalog = catalog_of(schema, numbers=numbers)
    assert await catalog.refresh() == {T1, T2, T3}
    assert [str(table) for table in catalog.tables()] == ["ks.t"]
    assert [catalog.captured(find_table(catalog, table_id)) for table_id in (T1, T2, T3)] == [True, False, False]
    assert catalog.by_id(b"\1" * 16) is None
    assert numbers.values == {
        names.SCHEMA_REFRESHES: 1,
        names.TABLES: 1,
        names.REFUSED_TABLES: 0,
    }
    assert not await catalog.moved()
    # Recreated under the same name: another table.
    recreated = str(uuid.UUID(int=9))
    schema.add("ks", "t", recreated, {"p": "int", "w": "int"})
    schema.version("v2")
    assert await catalog.moved()
    assert await catalog.refresh() == {recreated}
    assert numbers.values[f"{names.SCHEMA_CHANGES} ks.t"] == 1
    assert columns(find_table(catalog, T1)) == ["p", "v"]
    assert columns(find_table(catalog, recreated)) == ["p", "w"]
    assert catalog.captured(find_table(catalog, T1))
    assert [table.table_id for table in catalog.tables()] == [recreated]
    assert {table.table_id for table in catalog.list_known_tables()} == {T1, T2, T3, recreated}
    schema.drop("ks", "t")
    assert await catalog.refresh() == set()
    assert catalog.tables() == []
    assert find_table(catalog, recreated).table == "t"


async def test_views_are_known_and_not_captured() -> None:
    schema = Schema()
    schema.rows["views"].append({"keyspace_name": "ks", "view_name": "v", "id": T2})
    schema.rows["columns"].append(
        {
            "keyspace_name": "ks",
            "table_name": "v",
            "column_name": "p",
            "type": "int",
            "clustering_order": "none",
            "kind": "partition_key",
            "position": 0,
        }
    )
    catalog = catalog_of(schema)
    await catalog.refresh()
    assert not catalog.captured(find_table(catalog, T2))


async def test_patterns_choose_among_the_captured_tables() -> None:
    schema = Schema()
    for number, name in enumerate(("a", "b", "left_out"), 1):
        schema.add("ks", name, str(uuid.UUID(int=number)), {"p": "int"})
    catalog = catalog_of(schema, exclude=r"ks\.left.*")
    await catalog.refresh()
    assert [str(table) for table in catalog.tables([r"ks\.[Bl].*"])] == ["ks.b"]
    assert [str(table) for table in catalog.tables()] == ["ks.a", "ks.b"]
    with pytest.raises(ConfigInvalid):
        catalog.tables(["("])


async def test_counters_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    schema = Schema()
    schema.add("ks", "c", T1, {"p": "int", "n": "counter"})
    catalog = catalog_of(schema)
    with caplog.at_level(logging.WARNING):
        await catalog.refresh()
        await catalog.refresh()
    assert [str(table) for table in catalog.refused()] == ["ks.c"]
    assert catalog.tables() == []
    assert not catalog.captured(find_table(catalog, T1))
    assert len([message for message in caplog.messages if "ALTER TABLE ks.c WITH cdc = false" in message]) == 1


async def test_a_table_whose_cdc_was_turned_off_is_delivered_up_to_its_last_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr("connectors.cassandra.schema.catalog.time.time_ns", lambda: int(now_s * 1e9))
    schema = Schema()
    schema.add("ks", "t", T1, {"p": "int"})
    catalog = catalog_of(schema)
    await catalog.refresh()
    schema.add("ks", "t", T1, {"p": "int"}, cdc=False)
    schema.version("v2")
    assert await catalog.refresh() == {T1}
    off = find_table(catalog, T1)
    assert catalog.captured(off)
    assert catalog.tables() == []
    # Also by a task that starts with what was saved before or after; only one that never knew it with cdc passes it over.
    before = make_definition("ks", "t", T1, off.columns, cdc=True)
    for definition_, capture, expected in ((before, None, True), (off, Capture(ever=True), True), (off, None, False)):
        later = catalog_of(schema)
        later.remember([definition_], {} if capture is None else {T1: capture})
        await later.refresh()
        assert later.captured(find_table(later, T1), 10**12) is expected
    # Another change of the schema: the nodes have to agree again.
    now_s += 9.5
    schema.local = "v3"
    await catalog.refresh()
    apart = catalog.agreed
    schema.version("v3")
    await catalog.refresh()
    assert (apart, catalog.agreed) == (False, True)
    now_ms = int(now_s * 1000)
    assert catalog.captures.settled(now_ms + SETTLED_MS - 1) == {}
    assert catalog.captures.end(catalog.captures.settled(now_ms + SETTLED_MS), 77) == [id_bytes(T1)]
    assert [catalog.captured(off, segment) for segment in (76, 77, 78)] == [True, True, False]
    # Altered since then, maybe more than once: the definition is the same, and the stream has to look again all the same.
    schema.rows["tables"][-1]["altered_us"] = 5
    schema.version("v4")
    assert await catalog.refresh() == set()  # the time was not known before
    schema.rows["tables"][-1]["altered_us"] = 6
    schema.version("v5")
    assert await catalog.refresh() == {T1}
    assert catalog.captured(off, 78)


@pytest.mark.parametrize(
    ("include", "altered", "expected"),
    [(r"ks\.t", True, True), (r"ks\.t", False, False), ("", True, False), (r"ks\.other", True, False)],
)
async def test_a_table_that_is_met_without_cdc_may_have_had_it(include: str, altered: bool, expected: bool) -> None:
    schema = Schema()
    schema.add("ks", "t", T1, {"p": "int", "v": "text"}, cdc=False)
    schema.rows["tables"][0]["altered_us"] = 20 if altered else 10
    for row in schema.rows["columns"]:
        row["created_us"] = 10
    catalog = catalog_of(schema, include)
    await catalog.refresh()
    assert catalog.captured(find_table(catalog, T1), 10**12) is expected


async def test_a_node_that_is_behind_takes_nothing_back() -> None:
    schema = Schema()
    schema.add("ks", "t", T1, {"p": "int", "v": "text", "w": "int"})
    catalog = catalog_of(schema)
    await catalog.refresh()
    # Another node answers, which has not heard of w; and one that has columns of a table not at all.
    schema.add("ks", "t", T1, {"p": "int", "v": "text"})
    schema.add("ks", "n", T2, {})
    schema.local = "v0"
    assert await catalog.refresh() == set()
    assert columns(find_table(catalog, T1)) == ["p", "v", "w"]
    assert catalog.by_id(id_bytes(T2)) is None
    assert await catalog.moved()
    # They agree: what they say counts, and what is gone has left a note.
    schema.add("ks", "t", T1, {"p": "int", "v": "text", "w": "int"})
    schema.drop_column("ks", "t", "w", 17)
    schema.add("ks", "n", T2, {"p": "int"})
    schema.version("v2")
    assert await catalog.refresh() == {T1, T2}
    assert columns(find_table(catalog, T1)) == ["p", "v"]
    assert find_table(catalog, T1).dropped == (DroppedColumn("w", CqlType("int"), "regular", 17_000),)
    assert not await catalog.moved()


async def test_a_node_that_is_behind_does_not_take_cdc_away() -> None:
    """A snapshot of the table would take that for its end."""
    schema = Schema()
    catalog = catalog_of(schema)

    def report(cdc: bool, altered_us: int) -> None:
        schema.add("ks", "t", T1, {"p": "int"}, cdc=cdc)
        schema.rows["tables"][-1]["altered_us"] = altered_us

    report(False, 5)
    await catalog.refresh()
    # The node that answers has heard of the ALTER, and the next one has not.
    schema.peers = ["v2", "v1"]
    report(True, 6)
    await catalog.refresh()
    assert [str(table) for table in catalog.tables()] == ["ks.t"]
    for _ in range(2):
        report(False, 5)
        assert await catalog.refresh() == set()
        assert [str(table) for table in catalog.tables()] == ["ks.t"]
    # That cdc is off is believed at once where the ALTER is a later one.
    report(False, 7)
    assert await catalog.refresh() == {T1}
    assert catalog.tables() == []
    # And where all nodes tell the same.
    report(True, 8)
    await catalog.refresh()
    report(False, 5)
    schema.version("v3")
    assert await catalog.refresh() == {T1}
    assert catalog.tables() == []


async def test_a_table_is_gone_when_the_nodes_agree_on_it_or_disagree_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr("connectors.cassandra.schema.catalog.time.time_ns", lambda: int(now_s * 1e9))
    schema = Schema()
    schema.add("ks", "t", T1, {"p": "int"})
    catalog = catalog_of(schema)
    await catalog.refresh()
    # A node that reads its schema again (nodetool resetlocalschema) has no tables for a moment.
    schema.peers = ["v1", "empty"]
    schema.drop("ks", "t")
    for _ in range(3):
        await catalog.refresh()
        assert [str(table) for table in catalog.tables()] == ["ks.t"]
        assert await catalog.moved()
        now_s += 1
    schema.add("ks", "t", T1, {"p": "int"})
    schema.version("v1")
    await catalog.refresh()
    assert [str(table) for table in catalog.tables()] == ["ks.t"]
    # It is dropped while a node is down.
    schema.local, schema.peers = "v2", ["v2", "v1"]
    schema.drop("ks", "t")
    await catalog.refresh()
    now_s += 4
    await catalog.refresh()
    assert catalog.tables() == []
    assert not await catalog.moved()
    schema.add("ks", "n", T2, {"p": "int"})
    schema.version("v3")
    await catalog.refresh()
    schema.drop("ks", "n")
    schema.version("v4")
    await catalog.refresh()
    assert catalog.tables() == []


async def test_nodes_that_never_agree_are_believed_the_second_time() -> None:
    schema = Schema()
    schema.add("ks", "t", T1, {"p": "int", "v": "text"})
    catalog = catalog_of(schema)
    await catalog.refresh()
    schema.peers = ["v1", "old"]
    schema.add("ks", "t", T1, {"p": "int"})
    assert await catalog.refresh() == set()
    assert await catalog.moved()
    assert await catalog.refresh() == {T1}
    assert not await catalog.moved()


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({}, []),
        ({"a": "1"}, []),
        ({"a": "1", "b": "1"}, []),
        ({"a": "1", "b": "2", "c": "1"}, ["b"]),
        ({"a": "2", "b": "1", "c": "1", "d": "3"}, ["a", "d"]),
        ({"asked": "2", "b": "1"}, ["b"]),
    ],
)
def test_nodes_whose_schema_is_not_that_of_most(versions: dict[str, str], expected: list[str]) -> None:
    assert find_disagreeing(versions) == expected


async def test_nodes_that_hold_a_last_segment_up_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr("time.time_ns", lambda: int(now_s * 1e9))
    schema = Schema()
    schema.add("ks", "t", T1, {"p": "int"})
    catalog = catalog_of(schema)
    await catalog.refresh()
    capture, numbers = LogCapture(), RecordedMetrics(CassandraConnector.metrics)
    report = CaptureReport(catalog, numbers, make_logger("c", capture))

    def gauges() -> tuple[float, float]:
        report.send()
        return numbers.values[names.TABLES_WAITING], numbers.values[names.NODES_APART]

    assert gauges() == (0, 0)
    # cdc goes off while the third node is down.
    schema.add("ks", "t", T1, {"p": "int"}, cdc=False)
    schema.local, schema.peers = "v2", ["v2", "v1"]
    await catalog.refresh()
    assert gauges() == (1, 1)
    assert capture.text() == "", "the change may still spread"
    for _ in range(3):
        now_s += 61
        await catalog.moved()
        assert gauges() == (1, 1)
    assert capture.text().count("cdc of ks.t is off, but 10.0.0.3 has another version of the schema") == 1
    assert "nodetool removenode" in capture.text()
    schema.version("v2")
    await catalog.refresh()
    assert gauges() == (1, 0)
    now_s += SETTLED_MS / 1000
    assert catalog.captures.end(catalog.captures.settled(int(now_s * 1000)), 77) == [id_bytes(T1)]
    assert gauges() == (0, 0)


async def test_a_node_that_is_behind_at_the_start_takes_no_saved_table_away(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr("time.time_ns", lambda: int(now_s * 1e9))
    schema = Schema()
    schema.add("ks", "t", T1, {"p": "int"})
    before = catalog_of(schema)
    await before.refresh()
    catalog = catalog_of(schema)
    catalog.remember(before.list_known_tables())
    schema.drop("ks", "t")
    schema.peers = ["v2", "v2"]
    await catalog.refresh()
    # A snapshot that was under way would take it for gone, and end.
    assert list(map(str, catalog.tables())) == ["ks.t"]
    now_s += 5
    await catalog.refresh()
    assert catalog.tables() == []


async def test_new_fields_of_a_type_change_the_table() -> None:
    schema = Schema()
    schema.rows["types"].append({"keyspace_name": "ks", "type_name": "u", "field_names": ["a"], "field_types": ["int"]})
    schema.add("ks", "t", T1, {"p": "int", "v": "u"})
    schema.add("other", "t", T2, {"p": "int"})
    catalog = catalog_of(schema)
    await catalog.refresh()
    before = find_table(catalog, T1).version
    schema.rows["types"][0].update(field_names=["a", "b"], field_types=["int", "text"])
    assert await catalog.refresh() == {T1}
    assert find_table(catalog, T1).version != before
    assert find_table(catalog, T1).regular[0].type.field_names == ("a", "b")


async def test_a_type_that_is_not_understood_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    schema = Schema()
    schema.add("ks", "bad", T1, {"p": "int", "v": "nowhere"})
    schema.add("ks", "good", T2, {"p": "int"})
    catalog = catalog_of(schema)
    assert await catalog.refresh() == {T2}
    assert await catalog.refresh() == set()
    assert catalog.by_id(id_bytes(T1)) is None
    assert len([message for message in caplog.messages if "ks.bad" in message]) == 1
    schema.rows["types"].append(
        {"keyspace_name": "ks", "type_name": "nowhere", "field_names": ["a"], "field_types": ["int"]}
    )
    assert await catalog.refresh() == {T1}


async def test_calls_that_come_together_read_once() -> None:
    schema = Schema()
    schema.add("ks", "t", T1, {"p": "int"})
    schema.gate = asyncio.Event()
    catalog = catalog_of(schema)
    first = asyncio.create_task(catalog.refresh())
    await eventually_async(lambda: schema.asked, "the schema is asked for", every=0)
    later = [asyncio.create_task(catalog.refresh()) for _ in range(5)]
    await pass_turns()
    schema.add("ks", "new", T2, {"p": "int"})
    schema.gate.set()
    assert T1 in await first
    # What came while the first one was reading might have missed what it needs: one more reading for all of them.
    assert all(changed_ids in ({T2}, set()) for changed_ids in await asyncio.gather(*later))
    assert catalog.by_id(id_bytes(T2)) is not None
    assert schema.asked == 2


async def test_what_was_known_stays_while_the_cluster_is_away() -> None:
    schema, numbers = Schema(), Numbers()
    schema.add("ks", "t", T1, {"p": "int"})
    catalog = catalog_of(schema, numbers=numbers)
    await catalog.refresh()
    schema.away = True
    for call in (catalog.refresh, catalog.moved):
        with pytest.raises(Retriable):
            await call()
    assert numbers.values[names.SCHEMA_ERRORS] == 1
    assert columns(find_table(catalog, T1)) == ["p"]
    schema.away = False
    assert await catalog.refresh() == set()
