"""The choice of tables by ``source.tables``."""

from __future__ import annotations

import pytest

from spark_jobs.sources.table_filter import is_selected

ORDERS = "mysql.crm.shop.orders.v3.0.7"


@pytest.mark.parametrize(
    ("patterns", "namespace", "chosen"),
    [
        ([], ORDERS, True),
        (["mysql.crm.shop.*"], ORDERS, True),
        (["mysql.crm.shop.orders"], ORDERS, True),
        (["mysql.*.shop.orders.v3"], ORDERS, True),
        (["mysql.crm.shop.orders.*.*.7"], ORDERS, True),
        (["mysql.crm.shop.orders.*.*.8"], ORDERS, False),
        (["mysql.crm.shop.order"], ORDERS, False),
        (["mysql.crm.stock.*"], ORDERS, False),
        (["shop.orders"], ORDERS, True),
        (["orders", "lines"], ORDERS, True),
        (["lines"], ORDERS, False),
        (["shop.*"], "shop.orders", True),
        (["stock.*"], "shop.orders", False),
        (["orders"], "shop.orders", True),
        (["a.b.c.d"], "a.b.c.d.e", False),
    ],
)
def test_selects(patterns: list[str], namespace: str, *, chosen: bool) -> None:
    assert is_selected(patterns, namespace) is chosen


def test_one_of_several_names_is_enough() -> None:
    assert is_selected(["orders"], ["elsewhere", "shop.orders"])
