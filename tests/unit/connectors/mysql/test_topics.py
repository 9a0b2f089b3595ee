"""Names of topics, schemas and fields."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.errors import ConfigInvalid
from connectors.mysql.events.names import field_name, schema_name
from connectors.mysql.model import TableName
from connectors.mysql.schema.topics import MySqlTopics
from tests.support.settings import mysql_topics

ORDERS = TableName("shop", "orders")


def topics(**more: Any) -> MySqlTopics:
    return MySqlTopics(mysql_topics(prefix="p", **more))


def test_names_by_default() -> None:
    names = topics()
    assert (names.table(ORDERS), names.schema_changes, names.transactions, names.heartbeat, names.versions) == (
        "p.shop.orders",
        "p",
        "p.transaction",
        "__debezium-heartbeat.p",
        "p.table-versions",
    )
    assert (names.database("shop"), names.everything()) == ("p.shop", "p.ums")


def test_names_can_be_set() -> None:
    names = topics(delimiter="-", heartbeat_prefix="beats", transaction="tx", versions="structures")
    assert (names.table(ORDERS), names.transactions, names.heartbeat, names.versions) == (
        "p-shop-orders",
        "p-tx",
        "beats-p",
        "structures",
    )


@pytest.mark.parametrize(
    ("name", "plain", "escaped"),
    [
        (TableName("shop", "odd-name$1"), "p.shop.odd-name_1", "p.shop.odd-name_u00241"),
        (TableName("a b", "x_y"), "p.a_b.x_y", "p.a_u0020b.x_u005fy"),
        (TableName("d", "ü😀"), "p.d.___", "p.d._u00fc_ud83d_ude00"),
        (TableName("d", "t" * 300), ("p.d." + "t" * 300)[:249], ("p.d." + "t" * 300)[:249]),
    ],
)
def test_characters_that_no_topic_may_have(name: TableName, plain: str, escaped: str) -> None:
    assert topics().table(name) == plain
    assert topics(unicode=True).table(name) == escaped


def test_a_strategy_with_an_expression_renames_and_tells_tables_apart() -> None:
    names = topics(
        regex=r"(.*)shard\d+\.(.*)", replacement="$1all.$2", key_regex=r".*\.(shard\d+)\..*", key_replacement="$1"
    )
    assert names.table(TableName("shard7", "orders")) == "p.all.orders"
    assert names.table(ORDERS) == "p.shop.orders"
    assert names.key_field(TableName("shard7", "orders")) == ("__dbz__physicalTableIdentifier", "shard7")
    assert names.key_field(ORDERS) == ("__dbz__physicalTableIdentifier", "p.shop.orders")
    assert topics(regex="x", replacement="y", key_enabled=False).key_field(ORDERS) is None
    assert topics().key_field(ORDERS) is None
    assert topics(regex=r"p\.shop\.(.*)", replacement="").table(ORDERS) == "p.shop.orders"


def test_wrong_expressions_are_refused() -> None:
    with pytest.raises(ConfigInvalid):
        topics(regex="(", replacement="x")
    with pytest.raises(ConfigInvalid):
        topics(regex="a", replacement="$3")


@pytest.mark.parametrize(
    ("name", "avro", "escaped"),
    [
        ("p.shop.odd-name$1.Value", "p.shop.odd_name_1.Value", "p.shop.odd_u002dname_u00241.Value"),
        ("2nd", "_2nd", "_u0032nd"),
        ("_x", "_x", "_u005fx"),
        ("ü.é", "_._", "_u00fc._u00e9"),
        ("a😀", "a__", "a_ud83d_ude00"),
        ("plain.Name", "plain.Name", "plain.Name"),
    ],
)
def test_names_that_avro_takes(name: str, avro: str, escaped: str) -> None:
    assert [schema_name(name, mode) for mode in ("none", "avro", "avro_unicode")] == [name, avro, escaped]


def test_fields_may_not_have_dots() -> None:
    assert [field_name("a.b_c", mode) for mode in ("none", "avro", "avro_unicode")] == [
        "a.b_c",
        "a_b_c",
        "a_u002eb_u005fc",
    ]
    assert field_name("", "avro") == ""
