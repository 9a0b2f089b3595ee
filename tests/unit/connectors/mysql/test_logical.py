"""``logical.tables``: which logical table and numbers a name has, what is refused, and what both event forms make of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.api import SameAs
from connectors.errors import ConfigInvalid, Retriable
from connectors.formats import ums
from connectors.mysql import connector
from connectors.mysql.config.filters import MySqlTableFilter
from connectors.mysql.config.settings import CONFIG
from connectors.mysql.connector import MySqlConnector
from connectors.mysql.events.contract import EventContext
from connectors.mysql.events.ums_signals import MySqlUmsSignals
from connectors.mysql.model import MySqlTable, Shard
from connectors.mysql.model import TableName as T
from connectors.mysql.schema import topics
from connectors.mysql.schema.tables import StreamTables, Structure, TableSelection
from connectors.mysql.schema.versions import VersionBook
from connectors.mysql.source.statements import classify_statement
from connectors.mysql.stream.logical import Logical, LogicalTables, Partitions, compare_columns
from connectors.mysql.verify import MessageReader
from connectors.testing.contexts import LogCapture, make_logger
from tests.support.settings import mysql_values
from tests.unit.connectors.mysql.events import making

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import SourceRecord
    from connectors.mysql.events.contract import MySqlEventSettings

OPTION = r"shop_(\d+)\.orders_(\d+):shop.orders"
ORDERS = T("shop", "orders")
PART = T("shop_3", "orders_17")


def orders(name: T = PART, *columns: Any, key: tuple[str, ...] = ("id",)) -> MySqlTable:
    members = columns or (making.number("id", nullable=False), making.text("note", 10))
    return msgspec.structs.replace(making.table("orders", *members, key=key), name=name)


def events_of(
    form: str, table: MySqlTable, event_settings: MySqlEventSettings | None = None, **more: Any
) -> list[SourceRecord]:
    """An insert, an update and a delete from the stream, and a row of a snapshot."""
    settings = event_settings or making.settings(logical=OPTION, output_format=form, **more)
    builder = making.make_builder(table, settings)
    out: list[SourceRecord] = []
    rows: list[dict[str, Any]] = [{"id": 1, "note": "a"}, {"id": 1, "note": "b"}]
    builder.changes("c", rows[:1], making.SOURCE, 0, making.BASE, making.AFTER, out)
    builder.changes("u", rows, making.SOURCE, 0, making.BASE, making.AFTER, out)
    builder.changes("d", rows[1:], making.SOURCE, 0, making.BASE, making.AFTER, out)
    builder.snapshot(rows[:1], making.SOURCE, "true", making.BASE, out)
    return out


@given(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1))
def test_groups_are_the_numbers(database: int, table: int) -> None:
    logical = LogicalTables(OPTION).of(T(f"shop_{database}", f"orders_{table:03}"))
    assert logical == Logical(ORDERS, database, table, mapped=True)


@pytest.mark.parametrize(
    ("option", "name", "expected"),
    [
        (OPTION, T("SHOP_3", "Orders_017"), Logical(ORDERS, 3, 17, mapped=True)),
        (OPTION, T("shop_3", "orders_17_old"), Logical(T("shop_3", "orders_17_old"))),
        (OPTION, T("a", "b"), Logical(T("a", "b"))),
        ("", T("a", "b"), Logical(T("a", "b"))),
        (r"shop_(\d+)\.orders:shop.orders", T("shop_9", "orders"), Logical(ORDERS, 9, 0, mapped=True)),
        (r"shop\.orders_(\d+):shop.orders", T("shop", "orders_9"), Logical(ORDERS, 0, 9, mapped=True)),
        (r"shop(?:_(\d+))?\.orders:shop.orders", T("shop", "orders"), Logical(ORDERS, 0, 0, mapped=True)),
        (r"a\.x:l.x; b_(\d+)\.y:l.y;", T("b_2", "y"), Logical(T("l", "y"), 2, 0, mapped=True)),
        (r"(?:eu|us)\.x:l.x", T("us", "x"), Logical(T("l", "x"), mapped=True)),
        (r"eu\.x:l.x:1.0;us\.x:l.x:2.5", T("us", "x"), Logical(T("l", "x"), 2, 5, mapped=True)),
        (r"(?:eu|us)\.x:l.x:4.2", T("eu", "x"), Logical(T("l", "x"), 4, 2, mapped=True)),
        # A dot in a database's name does not move the border between the two parts.
        (r"a\.b(\d)\.c(\d):l.x", T("a.b1", "c2"), Logical(T("l", "x"), 1, 2, mapped=True)),
    ],
)
def test_what_a_name_stands_for(option: str, name: T, expected: Logical) -> None:
    assert LogicalTables(option).of(name) == expected
    assert LogicalTables(option).concerns(name) == expected.mapped
    assert not LogicalTables("l:o.g").concerns(name)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("orders", "not of the form"),
        (":shop.orders", "not of the form"),
        ("a.b:shop", "not of the form"),
        ("a.b:shop.", "not of the form"),
        ("a.b:x.y.z", "not of the form"),
        (r"a_(\d+\.b:x.y", "Invalid regex"),
        (r"(a)(b)\.(c):x.y", "3 groups"),
        (r"a_(\d)\.b:x.y:1.2", "fixed numbers"),
        ("a:x.y:1." + "9" * 19, "at most 18 digits"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_with_what_is_wrong(option: str, message: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape(message)):
        LogicalTables(option)
    with pytest.raises(ConfigInvalid, match=rf"logical\.tables.*{re.escape(message)}"):
        CONFIG.parse(
            {
                "connector.class": "mysql",
                "topic.prefix": "p",
                "database.hostname": "h",
                "database.user": "u",
                "logical.tables": option,
            }
        )


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        (r"shop_(\w+)\.orders:shop.orders", T("shop_eu", "orders"), "'eu', which is not a number"),
        (r"shop_(\d+)\.orders:shop.orders", T("shop_" + "1" * 19, "orders"), "at most 18 digits"),
        (
            r"shop_(\d+)_(\d+)\.orders:shop.orders",
            T("shop_1_2", "orders"),
            "two groups in the database's part of shop_1_2.orders",
        ),
        (r"shop_\d\.orders:a.b;shop_1\..*:c.d", T("shop_1", "orders"), r"is matched by shop_\d\.orders and by shop_1"),
    ],
)
def test_a_name_that_has_no_clear_numbers_is_refused(option: str, name: T, message: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape(message)):
        LogicalTables(option).of(name)


def test_expressions_that_match_nothing_are_named() -> None:
    assert LogicalTables(rf"{OPTION};x\.y:l.y").unused([PART]) == [r"x\.y"]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), unique=True))
def test_two_tables_never_share_numbers(parts: list[tuple[int, int, bool]]) -> None:
    names = [T(f"shop_{database}", f"orders_{'0' if padded else ''}{table}") for database, table, padded in parts]
    partitions = Partitions(LogicalTables(OPTION))
    seen: set[tuple[int, int]] = set()
    for name, (database, table, _padded) in zip(names, parts, strict=True):
        if (database, table) in seen:
            with pytest.raises(ConfigInvalid, match="could not be distinguished"):
                partitions.add(name, ("id",))
        else:
            assert partitions.add(name, ("id",)) == partitions.add(name, ("id",)) == ""
        seen.add((database, table))


def test_a_dropped_table_leaves_its_numbers_to_another() -> None:
    partitions = Partitions(LogicalTables(r"(?:a|b)\.orders_(\d+):shop.orders"))
    old, new = T("a", "orders_1"), T("b", "orders_1")
    partitions.add(old, ("id",))
    with pytest.raises(ConfigInvalid, match=r"a\.orders_1 and b\.orders_1 would both be shop\.orders"):
        partitions.add(new, ("id",))
    partitions.forget(lambda name: name == old)
    assert partitions.add(new, ("id",)) == ""


def test_keys_that_differ_and_a_table_of_the_logical_name_are_complaints() -> None:
    other = T("shop_3", "orders_18")
    partitions = Partitions(LogicalTables(OPTION))
    assert partitions.add(PART, ("id",)) == ""
    complaint = partitions.add(other, ("id", "day"))
    assert "shop_3.orders_17 and shop_3.orders_18 are partitions of shop.orders" in complaint
    assert "(id) and (id, day)" in complaint
    # The second partition's ALTER arrives: nothing is left to complain about.
    assert partitions.add(PART, ("id", "day")) == ""
    assert "shop.orders is captured itself" in partitions.add(ORDERS, ("id", "day"))


def test_columns_that_differ_are_named_with_their_tables() -> None:
    logical = LogicalTables(OPTION)
    whole = orders()
    changed = orders(T("shop_4", "orders_1"), making.number("id"), making.text("note", 20))
    short = orders(T("shop_5", "orders_1"), making.number("id"))
    stranger = orders(T("other", "orders"), making.text("id", 3))
    differences = compare_columns([whole, changed, short, stranger], logical)
    assert [
        ("note of shop.orders is varchar(10) in shop_3.orders_17 and varchar(20) in shop_4.orders_1" in message)
        for message in differences.types
    ] == [True]
    assert [
        "shop_5.orders_1 has no column note, which shop_3.orders_17 has" in message for message in differences.missing
    ] == [True]
    assert compare_columns([whole, stranger], logical) == ([], [])


def test_debezium_events_of_partitions_share_a_topic_and_say_their_numbers() -> None:
    records = events_of("debezium", orders())
    assert {record.topic for record in records} == {"server.shop.orders"}
    assert [record.value and record.value["op"] for record in records] == ["c", "u", "d", None, "r"]
    for record in records:
        assert record.key == {"id": 1, "__dbz__physicalTableIdentifier": "server.shop_3.orders_17"}
        assert record.key_schema is not None
        assert record.key_schema.name == "server.shop.orders.Key"
        if record.value is not None:
            assert record.value_schema is not None
            assert record.value_schema.name == "server.shop.orders.Envelope"
            document = making.written(record.value_schema, record.value)
            fields = next(field for field in document["schema"]["fields"] if field["field"] == "source")["fields"]
            assert [(field["field"], field["type"]) for field in fields[-4:]] == [
                ("logical_db", "string"),
                ("logical_table", "string"),
                ("database_partition", "int64"),
                ("table_partition", "int64"),
            ]
            source = document["payload"]["source"]
            assert {
                name: source[name]
                for name in ("db", "table", "logical_db", "logical_table", "database_partition", "table_partition")
            } == {
                "db": "shop_3",
                "table": "orders_17",
                "logical_db": "shop",
                "logical_table": "orders",
                "database_partition": 3,
                "table_partition": 17,
            }


def test_a_table_that_is_not_mapped_has_debeziums_own_events() -> None:
    table = orders(T("world", "orders"))
    mapped, plain = (events_of("debezium", table, making.settings(logical=option)) for option in (OPTION, ""))
    assert [(record.topic, record.key, record.key_schema, record.value, record.value_schema) for record in mapped] == [
        (record.topic, record.key, record.key_schema, record.value, record.value_schema) for record in plain
    ]
    assert plain[0].key == {"id": 1}
    assert not plain[0].value["source"].keys() & {
        "logical_db",
        "logical_table",
        "database_partition",
        "table_partition",
    }


def test_keys_without_a_field_for_the_table() -> None:
    # A table without key gets none: one key for all of its rows would let compaction keep only one of them.
    assert {record.key for record in events_of("debezium", orders(key=()))} == {None}
    event_settings = making.settings(logical=OPTION, topics={"key_enabled": False})
    assert events_of("debezium", orders(), event_settings)[0].key == {"id": 1}


def test_a_truncation_says_its_numbers() -> None:
    out: list[SourceRecord] = []
    making.make_builder(orders(), making.settings(logical=OPTION, skipped=frozenset())).truncate(
        making.SOURCE, making.BASE, out
    )
    assert (out[0].topic, out[0].value["source"]["table_partition"]) == ("server.shop.orders", 17)


@pytest.mark.parametrize(
    ("per", "topic"), [("table", "server.shop.orders"), ("schema", "server.shop"), ("all", "server.ums")]
)
def test_ums_messages_with_and_without_rows_have_one_namespace(per: str, topic: str) -> None:
    event_settings = making.settings(logical=OPTION, output_format="ums", ums={"topic_per": per})
    records = events_of("ums", orders(), event_settings)
    signals = MySqlUmsSignals(event_settings, making.PARTITION, Shard())
    beats = [
        signals.heartbeat(PART, 3, 1, making.BASE),
        signals.ended(PART, 3, 1, making.BASE),
        signals.read(PART, 3, 1, making.BASE, 0),
    ]
    namespace = "mariadb.server.shop.orders.3.3.17"
    assert {record.topic for record in [*records, *beats]} == {topic}
    assert {record.value["schema"]["namespace"] for record in [*records, *beats]} == {namespace}
    assert {record.key for record in records} == {f"{ums.INCREMENT}.{namespace}", f"{ums.INITIAL}.{namespace}"}
    assert [record.partition for record in beats] == [
        SameAs(f"{kind}.{namespace}") for kind in (ums.INCREMENT, ums.INCREMENT, ums.INITIAL)
    ]


def test_verify_finds_the_physical_table_of_a_namespace() -> None:
    other = T("shop_4", "orders_17")
    names = {str(PART): ("id",), str(other): ("id",), "shop.orders": ("id",)}
    parts = {str(name): LogicalTables(OPTION).of(name) for name in (PART, other)}
    reader = MessageReader(names, {}, None, parts)
    for name in (PART, other, ORDERS):
        record = events_of("ums", orders(name))[0]
        assert [change.table for change in reader.changes(record.topic, record.key, record.value)] == [str(name)]


def test_the_key_field_can_be_asked_for_without_a_topic_expression() -> None:
    table_topics = topics.MySqlTopics(making.settings().topics)
    assert table_topics.key_field(PART) is None
    assert table_topics.key_field(PART, shared=True) == ("__dbz__physicalTableIdentifier", "server.shop_3.orders_17")


def known_tables(option: str) -> tuple[StreamTables, LogCapture]:
    async def none(_names: Sequence[T]) -> dict[T, MySqlTable]:
        return {}

    log, settings = LogCapture(), making.settings(logical=option)
    return StreamTables(
        TableSelection(MySqlTableFilter(settings), {}, Shard()),
        EventContext(settings, making.PARTITION),
        mysql_values(),
        VersionBook("p", "", ()),
        none,
        make_logger("tables", log),
    ), log


def test_a_stream_stops_at_two_tables_with_the_same_numbers_until_one_is_dropped() -> None:
    tables, log = known_tables(r"(?:a|b)\.orders_(\d+):shop.orders")
    old, new = T("a", "orders_1"), T("b", "orders_1")
    tables.state(orders(old), None)
    with pytest.raises(ConfigInvalid, match=r"a\.orders_1 and b\.orders_1 would both be shop\.orders"):
        tables.state(orders(new), None)
    tables.forget(classify_statement("ALTER TABLE other ADD x INT", "a"))
    with pytest.raises(ConfigInvalid, match="could not be distinguished"):
        tables.state(orders(new), None)
    tables.forget(classify_statement("DROP TABLE orders_1", "a"))
    assert tables.state(orders(new), None).captured
    assert log.text() == ""


def test_an_alter_that_arrives_shard_by_shard_gives_each_shard_its_own_schema() -> None:
    tables, log = known_tables(OPTION)
    first, second = PART, T("shop_3", "orders_18")
    longer = (making.number("id", nullable=False), making.text("note", 10), making.number("amount"))
    builders = [tables.state(orders(first, *longer), None).events, tables.state(orders(second), None).events]
    out: list[SourceRecord] = []
    for builder in builders:
        builder.changes("c", [{"id": 1, "note": "a", "amount": 2}], making.SOURCE, 0, making.BASE, making.AFTER, out)
    afters = [record.value_schema.field("after") for record in out if record.value_schema is not None]
    assert [[field.name for field in after.schema.fields] for after in afters if after is not None] == [
        ["id", "note", "amount"],
        ["id", "note"],
    ]
    assert {record.topic for record in out} == {"server.shop.orders"}
    assert log.text() == ""
    # Another key is worth a warning, once the second structure is met.
    tables.state(orders(second, *longer, key=("id", "amount")), None)
    assert "partitions of shop.orders with different keys: (id) and (id, amount)" in log.text()


async def test_rest_shows_what_the_tables_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    book = VersionBook("p", "", ())
    met = Structure(1, "b.000001", 4, "", "")
    for name in (PART, T("other", "x")):
        book.version(orders(name), met)
    config = CONFIG.parse(
        {
            "connector.class": "mysql",
            "topic.prefix": "p",
            "database.hostname": "h",
            "database.user": "u",
            "logical.tables": OPTION,
        }
    )

    async def refuse(_: Any) -> list[T]:
        raise Retriable("the server is unavailable")

    async def list_captured(_: Any) -> list[T]:
        return [PART, T("other", "a")]

    offsets = book.take()[1]
    monkeypatch.setattr(connector, "captured_tables", refuse)
    saved = await MySqlConnector.tables(config, offsets)
    assert [table["table"] for table in saved] == ["other.x", "shop_3.orders_17"]
    monkeypatch.setattr(connector, "captured_tables", list_captured)
    shown = {table["table"]: table for table in await MySqlConnector.tables(config, offsets)}
    assert list(shown) == ["other.a", "other.x", "shop_3.orders_17"]
    assert shown.pop("other.a") == {"table": "other.a", "version": 1, "versions": []}
    assert list(shown.values()) == saved
    assert {
        name: shown["shop_3.orders_17"][name]
        for name in ("version", "logical_db", "logical_table", "database_partition", "table_partition")
    } == {"version": 1, "logical_db": "shop", "logical_table": "orders", "database_partition": 3, "table_partition": 17}
    assert "logical_db" not in shown["other.x"]
