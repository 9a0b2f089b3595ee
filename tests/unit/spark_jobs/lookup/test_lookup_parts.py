"""Parts of lookups without a server: columns, values, the cache, documents, queries."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from cassandra.util import OrderedMap, SortedSet

from spark_jobs.steps.lookup import cql_client, sql_client
from spark_jobs.steps.lookup.cache import LookupCache
from spark_jobs.steps.lookup.documents import field_of
from spark_jobs.steps.lookup.model import LookupAccess, LookupColumn, Spec, parse_columns, parse_on
from spark_jobs.steps.lookup.redis_client import redis_key
from spark_jobs.steps.lookup.topic import _EMPTIED, _NO_CHANGE, change_of
from spark_jobs.steps.lookup.values import Unsuited, make_converter
from tests.support.clock import ManualClock


def test_columns_have_types_and_may_have_names() -> None:
    assert parse_columns(
        "name string AS customer, price DECIMAL(10, 2),`a b` int as `c d`, address.city string AS city"
    ) == [
        LookupColumn("name", "string", "customer"),
        LookupColumn("price", "decimal(10,2)", "price"),
        LookupColumn("a b", "int", "c d"),
        LookupColumn("address.city", "string", "city"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name", "`name` is not `<column> <type> [AS <name>]`"),
        ("name string customer", "is not `<column> <type>"),
        ("name text", "`text` is no type of a looked-up column"),
        ("price decimal(50,2)", "is no type"),
        ("a string, b string AS A", "two columns are called a"),
        ("", "`` is not"),
    ],
)
def test_columns_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("[", r"\[")):
        parse_columns(text)


def test_keys() -> None:
    assert parse_on(["customer_id = id", "region", "`a b`=c"]) == [
        ("customer_id", "id"),
        ("region", "region"),
        ("a b", "c"),
    ]
    with pytest.raises(ValueError, match="one name for both"):
        parse_on(["a = b = c"])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("string", True, "true"),
        ("string", b"caf\xc3\xa9", "café"),
        ("string", {"a": [1, None]}, '{"a":[1,null]}'),
        ("string", Decimal("1.50"), "1.50"),
        ("string", {2, 1}, "[1,2]"),
        ("string", SortedSet(["b", "a"]), '["a","b"]'),
        ("string", OrderedMap([("k", {UUID(int=1)})]), '{"k":["00000000-0000-0000-0000-000000000001"]}'),
        ("int", "7", 7),
        ("int", Decimal("7.0"), 7),
        ("bigint", b"9000000000", 9_000_000_000),
        ("tinyint", True, 1),
        ("decimal(5,2)", 1, Decimal("1.00")),
        ("decimal(5,2)", "999.99", Decimal("999.99")),
        ("boolean", 0, False),
        ("boolean", b"true", True),
        ("double", "1.5", 1.5),
        ("date", "2026-11-23", date(2026, 11, 23)),
        ("date", 1, date(1970, 1, 2)),
        ("date", datetime(2026, 11, 23, 5, tzinfo=UTC), date(2026, 11, 23)),
        ("timestamp", "2026-11-23T05:00:00+02:00", datetime(2026, 11, 23, 3, tzinfo=UTC)),
        ("timestamp", datetime(2026, 11, 23, 5), datetime(2026, 11, 23, 5, tzinfo=UTC)),  # noqa: DTZ001 - as drivers give it
        (
            "timestamp",
            datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            datetime(2025, 12, 31, 23, tzinfo=UTC),
        ),
        ("binary", "a", b"a"),
        ("binary", memoryview(b"a"), b"a"),
        ("int", None, None),
    ],
)
def test_values_become_the_declared_type(kind: str, value: Any, expected: Any) -> None:
    result = make_converter(kind)(value)
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.5),
        ("int", "1.5"),
        ("tinyint", 128),
        ("int", "x"),
        ("decimal(5,2)", "1.001"),
        ("decimal(5,2)", 1000),
        ("decimal(5,2)", "NaN"),
        ("boolean", "maybe"),
        ("date", "tomorrow"),
        ("timestamp", 1_700_000_000_000),
        ("double", {}),
        ("string", b"\xff"),
    ],
)
def test_values_that_would_change_are_refused(kind: str, value: Any) -> None:
    with pytest.raises(Unsuited, match="is no"):
        make_converter(kind)(value)


def test_the_cache_is_bounded_in_size_and_age() -> None:
    clock = ManualClock()
    cache = LookupCache(2, 10, 1, clock.monotonic)
    cache.put(("a",), (1,))
    cache.put(("b",), None)
    assert cache.split([("a",), ("b",), ("c",)]) == ({("a",): (1,), ("b",): None}, [("c",)])
    clock.advance(1)
    assert cache.split([("b",)]) == ({}, [("b",)])
    cache.put(("b",), (2,))
    cache.split([("a",)])
    cache.put(("c",), (3,))
    assert len(cache) == 2
    assert cache.split([("a",), ("b",), ("c",)]) == ({("a",): (1,), ("c",): (3,)}, [("b",)])
    clock.advance(9)
    assert cache.split([("a",), ("c",)]) == ({("c",): (3,)}, [("a",)])


def test_a_cache_of_no_rows_and_misses_of_no_age_keep_nothing() -> None:
    clock = ManualClock()
    for cache in (LookupCache(0, 10, 10, clock.monotonic), LookupCache(5, 10, 0, clock.monotonic)):
        cache.put(("a",), None)
        assert len(cache) == 0


def test_fields_of_documents() -> None:
    document = {"a": {"b": 1, "c.d": 2}, "a.b": 3, "n": None}
    assert [field_of(document, path) for path in ("a.b", "a.c.d", "a", "n", "x", "n.x")] == [
        3,
        2,
        {"b": 1, "c.d": 2},
        None,
        None,
        None,
    ]


def spec(**more: Any) -> Spec:
    defaults = {
        "step": "s",
        "system": "postgresql",
        "on": ("id",),
        "columns": (LookupColumn("name", "string", "name"),),
    }
    return Spec(**{**defaults, "login": LookupAccess("db:5432", "u", "s3cret"), **more})


def test_queries_quote_names() -> None:
    quote = lambda name: f'"{name}"'  # noqa: E731 - as a dialect does
    assert sql_client.build_query(spec(table="crm.a%b"), 2, quote) == (
        'SELECT "id", "name" FROM "crm"."a%%b" WHERE "id" IN (%s, %s)'
    )
    assert sql_client.build_query(spec(table="t", on=("a", "b")), 2, quote) == (
        'SELECT "a", "b", "name" FROM "t" WHERE ("a", "b") IN ((%s, %s), (%s, %s))'
    )
    assert (
        cql_client.build_query(spec(table="k.t", on=("a", "b")))
        == 'SELECT "name" FROM "k"."t" WHERE "a" = ? AND "b" = ?'
    )


def test_keys_of_redis() -> None:
    assert redis_key("c:${region}:${id}", ("id", "region"), (7, "eu")) == "c:eu:7"


def test_a_lookup_as_text_holds_no_secret() -> None:
    assert "s3cret" not in repr(spec())


@pytest.mark.parametrize(
    ("value", "form", "expected"),
    [
        (b'{"id":1}', "plain", {"id": 1}),
        (b'{"schema":null,"payload":{"id":1}}', "plain", {"id": 1}),
        (b'{"schema":{},"payload":{"op":"u","before":null,"after":{"id":1}}}', "debezium", {"id": 1}),
        (b'{"op":"d","before":{"id":1},"after":null}', "debezium", None),
        (b'{"op":"m","message":{}}', "debezium", _NO_CHANGE),
        (b'{"op":"t","before":null,"after":null}', "debezium", _EMPTIED),
        (b'{"id":1}', "debezium", ""),
        (b"null", "plain", None),
    ],
)
def test_rows_of_a_topic(value: bytes, form: str, expected: Any) -> None:
    assert change_of(value, form) == (expected, None)
