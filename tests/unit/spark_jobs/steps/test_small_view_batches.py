"""By which columns a small batch of a view looks up rows, and when only Spark can find them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from spark_jobs.contract import Column, TableSchema
from spark_jobs.steps import arrow_rows
from spark_jobs.steps.view import small
from spark_jobs.steps.view.query import ViewResolver, names_read, parse_view
from spark_jobs.steps.view.small import Links, find_links


def _table(name: str, /, **columns: t.DataType) -> TableSchema:
    kinds = [Column(column, kind, nullable=column != "id", key=column == "id") for column, kind in columns.items()]
    return TableSchema(f"shop.{name}", tuple(kinds))


INTEGER, LONG, STRING, DOUBLE = t.IntegerType(), t.LongType(), t.StringType(), t.DoubleType()
TABLES = {
    "f": _table("f", id=INTEGER, dim=INTEGER, other=LONG, label=STRING, size=DOUBLE),
    "d": _table("d", id=INTEGER, parent=INTEGER, label=STRING, size=DOUBLE),
    "p": _table("p", id=LONG, label=STRING),
    "x": _table("x", id=DOUBLE, label=STRING),
}


@pytest.mark.parametrize(
    ("sql", "key", "links"),
    [
        ("SELECT f.id FROM f", "id", Links((), None)),
        ("SELECT f.id FROM f LEFT JOIN d ON f.dim = d.id", "id", Links(((0, ((1, 0),)),), None)),
        (
            "SELECT f.id FROM f JOIN d ON f.dim = d.id AND d.label = f.label",
            "id",
            Links(((0, ((1, 0), (3, 2))),), None),
        ),
        (
            "SELECT f.id FROM f JOIN d ON f.dim = d.id JOIN p ON d.parent = p.id",
            "id",
            Links(((0, ((1, 0),)), (1, ((1, 0),))), None),
        ),
        # Equalities of expressions, and of types that Spark and Arrow compare differently, are left to Spark.
        ("SELECT f.id FROM f JOIN d ON f.dim = d.id AND f.size = d.size", "id", Links(((0, ((1, 0),)),), None)),
        ("SELECT f.id, d.id AS d FROM f JOIN d ON f.size = d.size", "id,d", None),
        ("SELECT f.id, d.id AS d FROM f JOIN d ON f.dim + 1 = d.id", "id,d", None),
        ("SELECT f.id, d.id AS d FROM f JOIN d ON f.label = d.id", "id,d", None),
        ("SELECT x.id FROM x", "id", None),
        ("SELECT f.dim, count(*) AS n FROM f GROUP BY f.dim", "dim", Links((), (0, (1,)))),
        (
            "SELECT f.label, f.dim, d.parent, count(*) AS n FROM f JOIN d ON f.dim = d.id GROUP BY f.label, d.parent, f.dim",
            "label,dim,parent",
            Links(((0, ((1, 0),)),), (0, (3, 1))),
        ),
        (
            "SELECT d.label, count(*) AS n FROM f JOIN d ON f.dim = d.id GROUP BY d.label",
            "label",
            Links(((0, ((1, 0),)),), (1, (2,))),
        ),
        # A group of rows without a partner has no row by which it is found.
        ("SELECT d.label, count(*) AS n FROM f LEFT JOIN d ON f.dim = d.id GROUP BY d.label", "label", None),
        ("SELECT f.dim % 2 AS m, count(*) AS n FROM f GROUP BY f.dim % 2", "m", None),
    ],
)
def test_links(sql: str, key: str, links: Links | None) -> None:
    select = parse_view("v", sql)
    query = ViewResolver("v", select, [TABLES[name] for name in names_read(select)]).resolve(key.split(","))
    assert find_links(query) == links


def test_a_change_counts_unless_its_order_number_is_smaller() -> None:
    """Of two changes with one number the later counts, in one batch and over two: an order by seconds has such."""
    stored = pa.table({"k": [1, 2, 3], "order_": [5, 5, 5]})
    rows = pa.table({"k": [1, 2, 3, 4], "order_": [6, 5, 4, 1]})
    assert small.select_newer(rows, stored, ["k"]).to_pylist() == [
        {"k": 1, "order_": 6},
        {"k": 2, "order_": 5},
        {"k": 4, "order_": 1},
    ]


def test_the_newest_row_of_each_key_and_rows_by_key() -> None:
    rows = pa.table(
        {"k": [1, 1, 2, 2], "l": ["a", "a", "a", "b"], "o": [2, 2, 1, 1], "u": [1, 3, 0, 0], "v": [[1], [2], [3], []]}
    )
    newest = arrow_rows.select_newest(rows, ["k", "l"], ["o", "u"])
    assert sorted(newest.column("v").to_pylist()) == [[], [2], [3]]
    others = pa.table({"k": [2, 2, 7], "l": ["b", "b", "a"]})
    assert arrow_rows.keep_matches(rows, others, ["k", "l"]).column("v").to_pylist() == [[]]
    assert sorted(arrow_rows.drop_matches(rows, others, ["k", "l"]).column("v").to_pylist()) == [[1], [2], [3]]
    assert arrow_rows.keep_matches(rows, others.slice(0, 0), ["k", "l"]).num_rows == 0
    assert arrow_rows.drop_matches(rows, others.slice(0, 0), ["k", "l"]).num_rows == 4
