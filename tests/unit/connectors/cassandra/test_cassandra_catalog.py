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
from connectors.cassandra.schema import saved
from connectors.cassandra.schema.catalog import (
    CassandraCatalog,
    CassandraTableFilter,
    build_definition,
    find_disagreeing,
    id_bytes,
    is_older,
)
from connectors.cassandra.server import (
    Copies,
    NodeSettings,
    longest_sync_s,
    parse_replication,
    settings_of,
    size_of,
    smallest_space,
    version_of,
)
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, DroppedColumn, make_definition
from connectors.cql.types import CqlType, UnknownType, parse_type, udt_resolver
from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.testing.contexts import LogCapture, RecordedMetrics, make_logger
from tests.support.eventually import eventually_async, pass_turns

T1, T2, T3 = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


class Schema:
    """A cluster's ``system_schema`` in memory: rows by table, and the versions that nodes tell."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("tables", "views", "columns", "dropped_columns", "types")
        }
        self.local, self.peers = "v1", ["v1", "v1"]
        self.asked = 0
        self.away = False
        self.gate: asyncio.Event | None = None

    async def query(self, text: str, parameters: Any = (), **_: Any) -> list[dict[str, Any]]:
        assert not parameters
        if self.away:
            raise Retriable("no node answers")
        source = text.split(" FROM ")[1]
        if source == "system.local":
            return [{"broadcast_address": "10.0.0.1", "schema_version": self.local}]
        if source == "system.peers":
            return [
                {"peer": f"10.0.0.{number}", "schema_version": version} for number, version in enumerate(self.peers, 2)
            ]
        if source == "system_schema.tables":
            self.asked += 1
            if self.gate is not None:
                await self.gate.wait()
        return [dict(row) for row in self.rows[source.removeprefix("system_schema.")]]

    def version(self, text: str) -> None:
        self.local, self.peers = text, [text, text]

    def add(self, keyspace: str, table: str, table_id: str, columns: dict[str, str], *, cdc: bool = True) -> None:
        self.drop(keyspace, table)
        self.rows["tables"].append({"keyspace_name": keyspace, "table_name": table, "id": table_id, "cdc": cdc})
        for index, (name, kind) in enumerate(columns.items()):
            self.rows["columns"].append(
                {
                    "keyspace_name": keyspace,
                    "table_name": table,
                    "column_name": name,
                    "type": kind,
                    "clustering_order": "none",
                    "kind": "regular" if index else "partition_key",
                    "position": -1 if index else 0,
                }
            )

    def drop(self, keyspace: str, table: str) -> None:
        for name in ("tables", "columns"):
            self.rows[name] = [
                row for row in self.rows[name] if (row["keyspace_name"], row["table_name"]) != (keyspace, table)
            ]

    def drop_column(self, keyspace: str, table: str, column: str, ms: int) -> None:
        row = next(row for row in self.rows["columns"] if (row["table_name"], row["column_name"]) == (table, column))
        self.rows["columns"].remove(row)
        self.rows["dropped_columns"].append(
            {
                "keyspace_name": keyspace,
                "table_name": table,
                "column_name": column,
                "kind": row["kind"],
                "type": row["type"],
                "dropped_ms": ms,
            }
        )


class Numbers:
    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def set(self, name: str, value: float, labels: Any = None) -> None:
        self.values[" ".join([name, *(labels or {}).values()])] = value

    def add(self, name: str, value: float = 1, labels: Any = None) -> None:
        self.set(name, self.values.get(" ".join([name, *(labels or {}).values()]), 0) + value, labels)


def catalog_of(schema: Any, include: str = "", exclude: str = "", numbers: Numbers | None = None) -> CassandraCatalog:
    return CassandraCatalog(CassandraTableFilter(include, exclude), logging.getLogger("test"), numbers, schema)


def find_table(catalog: CassandraCatalog, table_id: str) -> CqlTableDefinition:
    table = catalog.by_id(id_bytes(table_id))
    assert table is not None
    return table


def columns(table: CqlTableDefinition) -> list[str]:
    return [column.name for column in table.columns]


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
    assert {table.table_id for table in catalog.known()} == {T1, T2, T3, recreated}
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


# Definitions among the offsets.


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


# Settings of nodes.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096MiB", 4 << 30),
        ("1GiB", 1 << 30),
        ("10 KiB", 10_240),
        ("7B", 7),
        ("8", 8),
        ("", None),
        (None, None),
        ("4MB", None),
    ],
)
def test_sizes(text: str | None, expected: int | None) -> None:
    assert size_of(text) == expected


def test_settings_of_new_and_old_servers() -> None:
    new = settings_of(
        {
            "broadcast_address": "10.0.0.1",
            "cdc_enabled": "true",
            "cdc_block_writes": "false",
            "cdc_total_space": "4096MiB",
            "commitlog_segment_size": "32MiB",
            "cdc_raw_directory": "/c/cdc_raw/",
            "commitlog_directory": "/c/commitlog",
            "transparent_data_encryption_options.enabled": "true",
            "commitlog_sync": "periodic",
            "commitlog_sync_period": "1000ms",
        }
    )
    assert new == NodeSettings(
        address="10.0.0.1",
        cdc_enabled=True,
        cdc_block_writes=False,
        total_space=4 << 30,
        segment_size=32 << 20,
        cdc_raw="/c/cdc_raw",
        commitlog="/c/commitlog",
        encrypted=True,
        sync_s=1.5,
    )
    old = settings_of(
        {
            "listen_address": "h",
            "cdc_enabled": "false",
            "cdc_total_space_in_mb": "0",
            "commitlog_segment_size_in_mb": "32",
            "transparent_data_encryption_options_enabled": "false",
        }
    )
    assert old == NodeSettings(address="h", cdc_enabled=False, segment_size=32 << 20)
    assert smallest_space([new, old]) == 4 << 30
    assert smallest_space([old]) == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"commitlog_sync": "periodic", "commitlog_sync_period": "10s"}, 15.0),
        ({"commitlog_sync": "periodic", "commitlog_sync_period": "200ms"}, 0.3),
        ({"commitlog_sync": "periodic", "commitlog_sync_period_in_ms": "10000"}, 15.0),
        ({"commitlog_sync": "group", "commitlog_sync_period": "0ms"}, 0.0),
        ({"commitlog_sync": "batch"}, 0.0),
        ({"commitlog_sync": "periodic", "commitlog_sync_period": "null"}, None),
        ({}, None),
    ],
)
def test_how_late_a_change_becomes_readable(values: dict[str, str], expected: float | None) -> None:
    assert settings_of(values).sync_s == (None if expected is None else pytest.approx(expected))


def test_the_slowest_node_counts_and_an_unknown_one_makes_all_unknown() -> None:
    fast, slow, unknown = NodeSettings("a", sync_s=0.0), NodeSettings("b", sync_s=15.0), NodeSettings("c")
    assert longest_sync_s([fast, slow]) == 15.0
    assert longest_sync_s([fast]) == 0.0
    assert longest_sync_s([fast, unknown]) is None
    assert longest_sync_s([]) is None


def test_versions_and_replicas() -> None:
    assert [version_of(text) for text in ("5.0.9", "4.1-beta1", "6.0-alpha2-SNAPSHOT", None, "x")] == [
        (5, 0),
        (4, 1),
        (6, 0),
        (0, 0),
        (0, 0),
    ]
    assert parse_replication(
        [{"key": "class", "value": "x.SimpleStrategy"}, {"key": "replication_factor", "value": "3"}]
    ) == Copies({}, 3)
    assert parse_replication({"class": "NetworkTopologyStrategy", "dc1": "3", "dc2": "3/1"}) == Copies(
        {"dc1": 3, "dc2": 3}
    )
    assert parse_replication({"class": "LocalStrategy"}) == Copies({})
