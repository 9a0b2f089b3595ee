"""Include and exclude lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid
from connectors.mysql.config import filters
from connectors.mysql.config.filters import MySqlTableFilter, column_filter, matches_any, parse_patterns
from connectors.mysql.model import TableName
from tests.support.settings import mysql_events, mysql_topics

if TYPE_CHECKING:
    from connectors.mysql.events.contract import MySqlEventSettings


def settings(**more: Any) -> MySqlEventSettings:
    return mysql_events(topics=mysql_topics(prefix="p"), **more)


def captured(name: str, **more: Any) -> bool:
    database, _, table = name.partition(".")
    return MySqlTableFilter(settings(**more)).matches(TableName(database, table))


def test_a_pattern_matches_whole_names_in_any_case() -> None:
    assert matches_any(parse_patterns(r"shop\.orders, Shop\.cust.*"), "SHOP.Customers")
    assert not matches_any(parse_patterns(r"shop\.order"), "shop.orders")
    assert not matches_any(parse_patterns("shop"), "shop.orders")
    assert not parse_patterns(" , ,")


def test_a_comma_can_be_part_of_an_expression() -> None:
    assert matches_any(parse_patterns(r"shop\.a{2\,3},x"), "shop.aaa")
    assert not matches_any(parse_patterns(r"shop\.a{2\,3},x"), "shop.a")


def test_without_lists_all_tables_but_the_servers_own_are_captured() -> None:
    assert captured("shop.orders")
    assert not captured("mysql.user")
    assert not captured("Sys.x")
    assert captured("mysql.user", builtin_tables=True)
    assert not captured("mysql.user", tables=r"mysql\.user")


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({"databases": "shop"}, ["shop.orders", "shop.audit"]),
        ({"not_databases": "shop"}, ["other.orders"]),
        ({"tables": r".*\.orders"}, ["shop.orders", "other.orders"]),
        ({"not_tables": r".*\.orders"}, ["shop.audit"]),
        ({"databases": "shop", "tables": r".*\.orders"}, ["shop.orders"]),
        ({"databases": "shop", "not_databases": "shop", "not_tables": "shop.audit"}, ["shop.orders"]),
    ],
)
def test_lists_go_together(lists: dict[str, str], expected: list[str]) -> None:
    assert [name for name in ("shop.orders", "shop.audit", "other.orders") if captured(name, **lists)] == expected


def test_signal_tables_are_always_captured() -> None:
    assert captured("admin.signals", databases="shop", signal_tables=("Admin.Signals",))
    assert not captured("admin.other", databases="shop", signal_tables=("admin.signals",))


def test_a_database_can_be_asked_about() -> None:
    chosen = MySqlTableFilter(settings(databases="shop.*"))
    assert [chosen.database(name) for name in ("shop2", "other", "mysql")] == [True, False, False]


def test_answers_are_kept_for_a_bounded_number_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "_KEPT", 10)
    chosen = MySqlTableFilter(settings(tables=r"d\.t1.*"))
    for _ in range(2):
        assert [chosen.matches(TableName("d", f"t{number}")) for number in range(25)] == [
            str(number).startswith("1") for number in range(25)
        ]
    assert len(chosen._captured) <= 10


def test_columns_are_chosen_by_their_full_names() -> None:
    name = TableName("shop", "orders")
    chosen = column_filter(settings(columns=r"shop\.orders\.(id|TOTAL)"))
    assert [chosen(name, column) for column in ("id", "total", "note")] == [True, True, False]
    chosen = column_filter(settings(not_columns=r"shop\..*\.note"))
    assert [chosen(name, column) for column in ("id", "note")] == [True, False]


def test_a_wrong_expression_is_named() -> None:
    with pytest.raises(ConfigInvalid, match=r"shop\(\["):
        MySqlTableFilter(settings(tables="shop(["))
