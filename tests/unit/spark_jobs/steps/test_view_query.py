"""The SELECT of a view: what is refused, by name and with a fix, and what its key must tell apart."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from spark_jobs.contract import Column, TableSchema
from spark_jobs.steps.planning.model import StepRefused
from spark_jobs.steps.view.query import ViewQuery, ViewResolver, names_read, parse_view
from spark_jobs.steps.view.step import stored_name


def table(name: str, key: str, *names: str) -> TableSchema:
    kinds = [Column(column, t.IntegerType(), nullable=column != key, key=column == key) for column in (key, *names)]
    return TableSchema(f"shop.{name}", tuple(kinds))


TABLES = {
    "orders": table("orders", "id", "customer", "amount"),
    "customers": table("customers", "id", "region", "city"),
    "lines": table("lines", "id", "order_id", "price"),
}


def resolved(sql: str, *key: str) -> ViewQuery:
    select = parse_view("v", sql)
    return ViewResolver("v", select, [TABLES[name] for name in names_read(select)]).resolve(key)


@pytest.mark.parametrize(
    ("sql", "construct"),
    [
        ("SELECT a.id FROM a RIGHT JOIN b ON a.x = b.x", "RIGHT JOIN"),
        ("SELECT a.id FROM a FULL JOIN b ON a.x = b.x", "FULL JOIN"),
        ("SELECT a.id FROM a CROSS JOIN b", "CROSS JOIN"),
        ("SELECT a.id FROM a JOIN b USING (x)", "USING"),
        ("SELECT a.id FROM a LEFT ANTI JOIN b ON a.x = b.x", "ANTI JOIN"),
        ("SELECT DISTINCT id FROM a", "DISTINCT"),
        ("SELECT id, row_number() OVER (PARTITION BY x ORDER BY y) AS n FROM a", "a window function"),
        ("SELECT id FROM (SELECT id FROM a) AS b", "a subquery"),
        ("SELECT id FROM a WHERE x IN (SELECT x FROM b)", "IN (SELECT ...)"),
        ("WITH b AS (SELECT id FROM a) SELECT id FROM b", "WITH"),
        ("SELECT id, rand() AS r FROM a", "rand()"),
        ("SELECT id, current_date() AS d FROM a", "current_date()"),
        ("SELECT id FROM a ORDER BY id", "ORDER BY"),
        ("SELECT id FROM a LIMIT 1", "LIMIT"),
        ("SELECT x, median(y) AS m FROM a GROUP BY x", "the aggregate median()"),
        ("SELECT count(*) AS n FROM a", "an aggregate without GROUP BY"),
        ("SELECT x, count(*) AS n FROM a GROUP BY 1", "this GROUP BY"),
        ("SELECT id, explode(x) AS y FROM a", "explode()"),
        ("SELECT a.i FROM a" + " JOIN b ON a.i = b.i" * 5, "6 tables"),
    ],
)  # fmt: skip
def test_a_construct_is_refused_by_name_with_a_fix(sql: str, construct: str) -> None:
    with pytest.raises(StepRefused, match="step v: a view can't have ") as caught:
        parse_view("v", sql)
    assert construct in str(caught.value)
    assert "Instead, " in str(caught.value)


def test_two_selects_are_no_view() -> None:
    with pytest.raises(StepRefused, match="a view is one SELECT"):
        parse_view("v", "SELECT id FROM a UNION ALL SELECT id FROM b")


_JOIN = "FROM orders o JOIN customers c ON o.customer = c.id"


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        (f"SELECT o.id, c.region {_JOIN}", ["id"]),
        ("SELECT o.id, c.region FROM orders o LEFT JOIN customers c ON o.customer = c.id", ["id"]),
        ("SELECT l.id, o.amount FROM orders o JOIN lines l ON l.order_id = o.id", ["id"]),
        ("SELECT o.id AS o, l.id AS l FROM orders o JOIN lines l ON l.order_id = o.id", ["o", "l"]),
        (f"SELECT c.region, count(*) AS n {_JOIN} GROUP BY region", ["region"]),
        (f"SELECT c.region AS r, c.city, sum(o.amount) AS n {_JOIN} GROUP BY r, city", ["city", "r"]),
    ],
)
def test_a_key_that_tells_rows_apart(sql: str, key: list[str]) -> None:
    query = resolved(sql, *key)
    assert list(query.names[: query.key]) == key


@pytest.mark.parametrize(
    ("sql", "key", "message"),
    [
        ("SELECT o.id, l.price FROM orders o JOIN lines l ON l.order_id = o.id", ["id"], "several rows of shop.lines"),
        (f"SELECT o.amount, c.region {_JOIN}", ["region"], "several rows of shop.orders"),
        (f"SELECT o.id {_JOIN}", ["number"], "key names the column number"),
        ("SELECT o.id AS o, l.id AS l FROM orders o LEFT JOIN lines l ON l.order_id = o.id", ["o", "l"], "LEFT JOIN"),
        (
            f"SELECT c.region, c.city, count(*) AS n {_JOIN} GROUP BY c.region, c.city",
            ["region"],
            "`city` is in GROUP BY",
        ),
        (f"SELECT c.region, count(*) AS n {_JOIN} GROUP BY c.region", ["region", "n"], "n is not in GROUP BY"),
        ("SELECT o.id FROM orders o JOIN customers c ON o.customer > c.id", ["id"], "has no equality"),
        (f"SELECT id, c.region {_JOIN}", ["id"], "column id may be of each of shop.orders, shop.customers"),
        (f"SELECT o.id, c.name {_JOIN}", ["id"], "no table has the column c.name"),
        (f"SELECT o.*, c.id {_JOIN}", ["id"], "gives two columns id"),
        ("SELECT o.id, p.amount FROM orders o JOIN orders o ON o.id = p.id", ["id"], "two tables are called o"),
    ],
)
def test_what_does_not_fit_the_tables_is_refused(sql: str, key: list[str], message: str) -> None:
    with pytest.raises(StepRefused) as caught:
        resolved(sql, *key)
    assert message in str(caught.value)


def test_the_columns_that_a_view_reads_and_where_they_come_from() -> None:
    query = resolved(f"SELECT o.id, concat(c.region, 't0_c2') AS label {_JOIN} WHERE o.id > 1", "id")
    assert query.read == (frozenset({0, 1}), frozenset({0, 1}))
    output = query.output("v")
    assert [branch.columns[1].columns for branch in output.branches] == [(), ("region",)]
    assert [branch.columns[0].direct for branch in output.branches] == ["id", ""]


def test_arrays_of_aggregates_are_sorted() -> None:
    query = resolved(
        "SELECT c.region, collect_list(o.amount) AS a, collect_set(o.id) FILTER (WHERE o.id > 1) AS b "
        f"{_JOIN} GROUP BY c.region",
        "region",
    )
    assert query.columns[1:] == (
        "array_sort(collect_list(t0_c2))",
        "array_sort(collect_set(t0_c0) FILTER(WHERE t0_c0 > 1))",
    )


def test_stored_names_are_apart() -> None:
    names = ["id", "Id", "a b", "a_b", "ä", "order_"]
    assert len({stored_name(name).lower() for name in names}) == len(names)
