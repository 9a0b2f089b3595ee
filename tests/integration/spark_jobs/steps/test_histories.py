"""Random histories of tables through steps, folded at the end, equal DuckDB's answer over the folded input."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from spark_jobs.config import job_files as config
from spark_jobs.contract import Column, TableChanges, TableSchema
from spark_jobs.steps.flow import StepFlow, empty_changes
from spark_jobs.steps.options import build_functions, build_steps
from spark_jobs.testing.batches import make_frame
from spark_jobs.testing.model import make_comparable
from tests.selection import scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

Row = dict[str, Any]
_TABLES: Final = ("shop.orders", "shop.old_orders")
_IDS: Final = 150
_EVENTS: Final = 1500


def schema(namespace: str) -> TableSchema:
    return TableSchema(
        namespace,
        (
            Column("id", t.IntegerType(), nullable=False, key=True),
            Column("name", t.StringType()),
            Column("amount", t.IntegerType()),
        ),
    )


@dataclass(frozen=True)
class Event:
    """One event of a history: the next operation is chosen by what the table holds."""

    table: int
    id: int
    name: str | None
    amount: int | None
    delete: bool
    #: Columns that the image before the change holds, beyond the key; None: there is no image.
    image: tuple[str, ...] | None


def random_events(seed: int) -> list[Event]:
    """Events of many rows, in one history: a batch of many short histories costs no more than one of them."""
    source = Random(seed)
    return [
        Event(
            source.randrange(2),
            source.randint(1, _IDS),
            source.choice(["a", "b", "c", None]),
            source.choice([0, 1, 2, 3, 4, 5, None]),
            source.random() < 0.3,
            source.choice([None, None, ("name", "amount"), ("name", "amount"), ("name",), ("amount",)]),
        )
        for _ in range(_EVENTS)
    ]


@dataclass
class History:
    """Changes per table, and the rows that they leave."""

    changes: list[list[Row]]
    rows: list[dict[int, Row]]


def history(events: Sequence[Event], *, before_rows: bool, whole_images: bool) -> History:
    past = History([[], []], [{}, {}])
    numbers = itertools.count(1)
    for event in events:
        rows, changes = past.rows[event.table], past.changes[event.table]
        old = rows.get(event.id)
        number = next(numbers)
        kept = ("name", "amount") if whole_images else event.image

        def image(old: Row = old or {}, kept: tuple[str, ...] = kept or ()) -> Row:
            return {"id": old["id"], **{name: old[name] for name in kept}}

        if event.delete:
            if old is not None:
                changes.append(_change("d", number, image(), event.id))
                del rows[event.id]
            continue
        # Where images must be whole, a row is not null in every column: such an image would look like no image.
        amount = event.amount if event.amount is not None or not whole_images else 0
        row = {"id": event.id, "name": event.name, "amount": amount}
        if old is None:
            changes.append(_change("i", number, row, event.id))
        else:
            if before_rows and kept is not None:
                changes.append(_change("b", number, image(), event.id))
            changes.append(_change("u", number, row, event.id))
        rows[event.id] = row
    return past


def _change(op: str, number: int, row: Row, key: int) -> Row:
    return {
        **row,
        "ums_id_": number,
        "ums_ts_": 1_780_000_000_000_000 + number,
        "ums_op_": op,
        "ums_uid_": f"{number}{'-b' if op == 'b' else ''}",
        "kafka_topic_": "t",
        "kafka_partition_": key % 2,
        "kafka_offset_": number,
    }


def flow_of(steps: dict[str, str], *, before_rows: bool) -> StepFlow:
    parsed, problems = config.check_job(
        {
            "name": "j",
            "kafka.bootstrap.servers": "b:9092",
            "source.topics": "t",
            "source.format": "debezium",
            "source.before.rows": str(before_rows).lower(),
            "sink.type": "console",
            **{f"transform.{name}": value for name, value in steps.items()},
        }
    )
    assert parsed is not None, problems
    return StepFlow(build_steps(parsed), build_functions(parsed))


def fold(table: TableSchema, changes: Sequence[Row]) -> list[Row]:
    """The rows that the changes leave: of each key the change with the largest order number."""
    key = [column.name for column in table.key]
    newest: dict[Any, Row] = {}
    for row in changes:
        assert all(row[name] is not None for name in key)
        at = tuple(row[name] for name in key)
        if row["ums_op_"] != "b" and (at not in newest or newest[at]["ums_id_"] <= row["ums_id_"]):
            newest[at] = row
    names = [column.name for column in table.columns]
    return [{name: row[name] for name in names} for row in newest.values() if row["ums_op_"] != "d"]


def answer(past: History, query: str) -> list[Row]:
    """DuckDB's answer over the folded input."""
    with duckdb.connect() as database:
        database.execute("CREATE SCHEMA shop")
        for name, rows in zip(_TABLES, past.rows, strict=True):
            database.execute(f"CREATE TABLE {name} (id INTEGER, name VARCHAR, amount INTEGER)")
            if rows:
                values = [(row["id"], row["name"], row["amount"]) for row in rows.values()]
                database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", values)  # noqa: S608 - names of the test
        result = database.execute(query)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def rows_in_order(rows: Sequence[Row]) -> list[Any]:
    return sorted(
        (tuple(sorted((name, make_comparable(value)) for name, value in row.items())) for row in rows), key=repr
    )


_SQL: Final = """
WITH big AS (SELECT o.*, amount * 2 AS twice FROM shop.orders AS o WHERE amount >= 1),
named AS (SELECT id AS order_id, upper(name) AS label, twice FROM big WHERE twice < 10)
SELECT order_id, label, twice + 1 AS more FROM named WHERE label <> 'B' OR label IS NULL
"""
_UNION: Final = """
SELECT 'new' AS origin, id, name FROM shop.orders WHERE amount > 1
UNION ALL SELECT 'old' AS origin, id, name FROM shop.old_orders WHERE name = 'a'
"""

#: Steps, the name of the output, and DuckDB's query.
CASES: Final[dict[str, tuple[dict[str, str], str, str]]] = {
    "filter": (
        {"steps": "f", "step.f.type": "filter", "step.f.condition": "amount > 2", "step.f.tables": "orders"},
        "shop.orders",
        "SELECT * FROM shop.orders WHERE amount > 2",
    ),
    "filter that nulls pass": (
        {"steps": "f", "step.f.type": "filter", "step.f.condition": "amount IS NULL OR name = 'a'"},
        "shop.orders",
        "SELECT * FROM shop.orders WHERE amount IS NULL OR name = 'a'",
    ),
    "filter on the key": (
        {"steps": "f", "step.f.type": "filter", "step.f.condition": "id % 3 <> 0 AND amount BETWEEN 1 AND 3"},
        "shop.orders",
        "SELECT * FROM shop.orders WHERE id % 3 <> 0 AND amount BETWEEN 1 AND 3",
    ),
    "select": (
        {
            "steps": "s",
            "step.s.type": "select",
            "step.s.columns": "id AS number, upper(name) AS label, coalesce(amount, -1) AS filled",
        },
        "shop.orders",
        "SELECT id AS number, upper(name) AS label, coalesce(amount, -1) AS filled FROM shop.orders",
    ),
    "several steps": (
        {
            "steps": "a,b,c",
            "step.a.type": "filter",
            "step.a.condition": "amount > 0",
            "step.b.type": "select",
            "step.b.columns": "*, concat(name, '!') AS loud",
            "step.c.type": "filter",
            "step.c.condition": "loud <> 'b!'",
        },
        "shop.orders",
        "SELECT *, name || '!' AS loud FROM shop.orders WHERE amount > 0 AND name || '!' <> 'b!'",
    ),
    "sql": ({"steps": "q", "step.q.type": "sql", "step.q.sql": _SQL}, "q", _SQL),
    "sql over two tables": (
        {"steps": "q", "step.q.type": "sql", "step.q.sql": _UNION, "step.q.key": "origin,id"},
        "q",
        _UNION,
    ),
    "union": (
        {
            "steps": "u",
            "step.u.type": "union",
            "step.u.output": "everything",
            "step.u.table.column": "origin",
        },
        "everything",
        (
            "SELECT 'shop.orders' AS origin, * FROM shop.orders UNION ALL "
            "SELECT 'shop.old_orders' AS origin, * FROM shop.old_orders"
        ),
    ),
    "deduplicate": (
        {"steps": "d", "step.d.type": "deduplicate"},
        "shop.orders",
        "SELECT * FROM shop.orders",
    ),
    "deduplicate, all changes": (
        {"steps": "d", "step.d.type": "deduplicate", "step.d.keep": "changes"},
        "shop.orders",
        "SELECT * FROM shop.orders",
    ),
}
#: A null in an image may be a value that is missing, so the filter passes on a delete or an update without its image, and the
#: step after it stops the job: see Limits in docs/jobs/steps.md.
_NULL_FILTER: Final = "a filter by null before another key"
#: Steps that need whole images before changes.
MOVING: Final[dict[str, tuple[dict[str, str], str, str]]] = {
    "a filter before another key": (
        {
            "steps": "f,s",
            "step.f.type": "filter",
            "step.f.condition": "amount > 2",
            "step.s.type": "select",
            "step.s.columns": "coalesce(name, '-') AS name, id, amount",
            "step.s.key": "name,id",
        },
        "shop.orders",
        "SELECT coalesce(name, '-') AS name, id, amount FROM shop.orders WHERE amount > 2",
    ),
    _NULL_FILTER: (
        {
            "steps": "f,s",
            "step.f.type": "filter",
            "step.f.condition": "name IS NOT NULL",
            "step.s.type": "select",
            "step.s.columns": "name, id, amount",
            "step.s.key": "name,id",
        },
        "shop.orders",
        "SELECT * FROM shop.orders WHERE name IS NOT NULL",
    ),
    "a filter after another key": (
        {
            "steps": "s,f",
            "step.s.type": "select",
            "step.s.columns": "coalesce(name, '-') AS name, id, amount",
            "step.s.key": "name,id",
            "step.f.type": "filter",
            "step.f.condition": "amount > 2 AND name <> 'b'",
        },
        "shop.orders",
        "SELECT coalesce(name, '-') AS name, id, amount FROM shop.orders WHERE amount > 2 AND coalesce(name, '-') <> 'b'",
    ),
}


def compare(
    spark: SparkSession,
    case: tuple[dict[str, str], str, str],
    events: Sequence[Event],
    *,
    before: bool,
    whole: bool,
    batches: int = 1,
) -> None:
    steps, output, query = case
    past = history(events, before_rows=before, whole_images=whole)
    flow = flow_of(steps, before_rows=before)
    schemas = [schema(name) for name in _TABLES]
    outputs, written = [], []
    for first, last in pairwise(range(0, _EVENTS + 1, _EVENTS // batches)):
        changes = [
            TableChanges(table, make_frame(spark, table, [row for row in rows if first < row["ums_id_"] <= last]))
            for table, rows in zip(schemas, past.changes, strict=True)
        ]
        tables = flow.apply(changes, spark, lambda: empty_changes(spark, schemas))
        outputs += [table for table in tables if table.schema.namespace == output]
        written += [record.asDict() for record in outputs[-1].frame.collect()]
        flow.end_batch()
    result = rows_in_order(fold(outputs[-1].schema, written))
    expected = rows_in_order(answer(past, query))
    surplus, missing = [row for row in result if row not in expected], [row for row in expected if row not in result]
    assert not surplus + missing, f"too many: {surplus[:3]}\nmissing: {missing[:3]}"
    assert result == expected
    assert result, "a history that leaves nothing shows nothing"


@pytest.mark.scaled
@pytest.mark.parametrize("before", [False, True], ids=["alone", "with images"])
@pytest.mark.parametrize("name", CASES)
def test_a_delete_stays_a_delete(spark: SparkSession, name: str, before: bool) -> None:
    for seed in range(scaled(1, 10)):
        compare(spark, CASES[name], random_events(seed), before=before, whole=False)


@pytest.mark.scaled
def test_a_row_that_comes_back_replaces_the_one_of_an_earlier_batch(spark: SparkSession) -> None:
    steps, table, query = CASES["filter"]
    both = {"steps": "d,f", "step.d.type": "deduplicate", **{name: steps[name] for name in steps if name != "steps"}}
    for seed in range(scaled(1, 10)):
        compare(spark, (both, table, query), random_events(seed), before=False, whole=False, batches=3)


@pytest.mark.scaled
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(raises=PySparkException, strict=True))
        if name == _NULL_FILTER
        else name
        for name in MOVING
    ],
)
def test_rows_that_change_their_key_move(spark: SparkSession, name: str) -> None:
    for seed in range(scaled(1, 10)):
        compare(spark, MOVING[name], random_events(seed), before=True, whole=True)
