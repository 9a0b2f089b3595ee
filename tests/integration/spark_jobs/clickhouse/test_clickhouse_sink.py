"""The ClickHouse sink: tables that exist, widening, values that a constraint refuses, soft deletes, deduplication."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from compose.local.targets.clickhouse import ClickHouse
from connectors.errors import Fatal, Retriable
from spark_jobs.contract import Column, SchemaRefused, TableSchema
from spark_jobs.testing.batches import BatchFeed, change
from spark_jobs.testing.kit import key_column, make_sink, parse_config
from tests.integration.spark_jobs.clickhouse.conftest import Server
from tests.support.packed_rows import pack_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from spark_jobs.contract import Sink
    from spark_jobs.testing.batches import BatchData, Change

COLUMNS = (key_column("id", IntegerType()), Column("name", StringType()), Column("count", IntegerType()))


class Rig:
    """A sink over a server, and a table of the test's own."""

    def __init__(self, server: Server, spark: SparkSession, options: dict[str, str]) -> None:
        self.server = server
        self.spark = spark
        self.name = f"t{secrets.token_hex(4)}"
        self.table = TableSchema(f"shop.{self.name}", COLUMNS)
        self.feed = BatchFeed(f"topic-{secrets.token_hex(4)}")
        login = {"sink.clickhouse.user": server.user, "sink.clickhouse.password": server.password}
        self.properties = {
            "name": "analytics",
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "source.topics": self.feed.topic,
            "source.format": "plain",
            "sink.type": "clickhouse",
            "sink.clickhouse.url": f"http://{server.host}:{server.port}",
            "sink.clickhouse.retries": "0",
            **(login if server.user else {}),
            **{f"sink.clickhouse.{name}": value for name, value in options.items()},
        }
        self.sink: Sink = make_sink(parse_config(self.properties), spark)

    def batch(self, *changes: Change) -> BatchData:
        return self.feed.next([(self.table, changes)])

    def write(self, *changes: Change) -> int:
        return self.sink.write(self.batch(*changes).frames(self.spark))

    def rows(self, columns: str = "*", last: str = "FINAL ORDER BY id") -> list[dict[str, Any]]:
        return self.server.rows(f"SELECT {columns} FROM {self.name} {last}")  # noqa: S608 - own names


@pytest.fixture
def rig(clickhouse: Server, spark: SparkSession) -> Callable[..., Rig]:
    def make(server: Server = clickhouse, **options: str) -> Rig:
        return Rig(server, spark, {name.replace("_", "."): value for name, value in options.items()})

    return make


def test_soft_deletes(rig: Callable[..., Rig]) -> None:
    soft = rig(delete_mode="soft")
    soft.write(change("i", 1, id=1, name="a"), change("i", 2, id=2, name="b"))
    soft.write(change("d", 3, id=1, name="a"))
    assert soft.rows("id, ums_active_, ums_op_") == [
        {"id": 1, "ums_active_": 0, "ums_op_": "d"},
        {"id": 2, "ums_active_": 1, "ums_op_": "i"},
    ]


def test_repeated_requests_are_stored_once(rig: Callable[..., Rig]) -> None:
    history = rig(mode="insert")
    data = history.batch(*(change("i", n, id=n, name="a") for n in range(100)))
    for _ in range(3):
        history.sink.write(data.frames(history.spark))
    assert history.rows("count() AS rows", "") == [{"rows": 100}]


def test_tables_that_steps_make_of_one_record_share_a_table(rig: Callable[..., Rig]) -> None:
    history = rig(mode="insert")
    history.sink = rig(mode="insert", table=history.name).sink
    data = history.batch(change("i", 1, id=1, name="a"))
    data.tables.append((TableSchema("shop.other", COLUMNS), data.tables[0][1]))
    for _ in range(2):
        history.sink.write(data.frames(history.spark))
    assert history.rows("count() AS rows", "FINAL") == [{"rows": 2}]


def test_a_value_that_a_constraint_refuses(rig: Callable[..., Rig]) -> None:
    analytics = rig()
    analytics.write(change("i", 1, id=1, name="a"))
    analytics.server.run(f"ALTER TABLE {analytics.name} ADD CONSTRAINT c CHECK name <> 'bad'")
    changes = [change("i", 10 + n, id=n, name="bad" if n == 7 else "good") for n in range(20)]
    with pytest.raises(Fatal, match=r"with id=7 is refused: ClickHouse .*VIOLATED_CONSTRAINT"):
        analytics.write(*changes)
    ids = {row["id"] for row in analytics.rows("id")}
    assert 7 not in ids
    assert len(ids) >= 9  # all rows of the other task, and of its own what had been written


PARTS = StructType([StructField("a", IntegerType()), StructField("l", ArrayType(StringType()))])


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (PARTS, [{"a": 1, "l": ["x"]}, {"a": None, "l": ["x"]}, {"a": 1, "l": [None]}]),
        (ArrayType(StringType()), [["a", "b"], ["a,b"], []]),
        (MapType(StringType(), IntegerType()), [{"a": 1}, {"a": None}, {}]),
    ],
    ids=["struct", "array", "map"],
)
def test_keys_with_parts(rig: Callable[..., Rig], kind: DataType, keys: list[Any]) -> None:
    analytics = rig()
    analytics.table = TableSchema(analytics.table.namespace, (key_column("k", kind), Column("id", IntegerType())))
    analytics.write(*(change("i", number, k=key, id=number) for number, key in enumerate(keys)))
    assert analytics.rows("id") == [{"id": number} for number in range(3)]
    analytics.write(change("u", 20, k=keys[0], id=20), change("d", 21, k=keys[1]))
    analytics.write(change("u", 15, k=keys[1], id=15), change("u", 16, k=keys[0], id=16))  # late
    assert analytics.rows("id") == [{"id": 2}, {"id": 20}]
    if kind == PARTS:
        with pytest.raises(Fatal, match="of its key has a null array, map or struct in it"):
            analytics.write(change("i", 30, k={"a": 1, "l": None}, id=30))


def test_tables_that_exist(rig: Callable[..., Rig]) -> None:
    other = rig()
    other.server.run(f"CREATE TABLE {other.name} (id Int32, name String) ENGINE = MergeTree ORDER BY id")
    with pytest.raises(SchemaRefused, match=r"its engine is MergeTree, and upserts need ReplacingMergeTree\(ums_id_"):
        other.write(change("i", 1, id=1, name="a"))
    wrong = rig()
    columns = "id Int32, name Array(String), ums_id_ Int64, ums_deleted_ UInt8"
    engine = "ReplacingMergeTree(ums_id_, ums_deleted_) ORDER BY id"
    wrong.server.run(f"CREATE TABLE {wrong.name} ({columns}) ENGINE = {engine}")
    with pytest.raises(SchemaRefused, match=r"name is Array\(String\) there, and its values need Nullable\(String\)"):
        wrong.write(change("i", 1, id=1, name="a"))
    fitting = rig()
    columns = "id Int32, name LowCardinality(String), ums_id_ Int64, ums_deleted_ UInt8"
    fitting.server.run(f"CREATE TABLE {fitting.name} ({columns}) ENGINE = {engine}")
    with pytest.raises(Fatal, match=r"with id=2 is refused: ClickHouse .*CANNOT_INSERT_NULL"):
        fitting.write(change("i", 1, id=1, name="a"), change("i", 2, id=2))
    fitting.write(change("i", 3, id=3, name="c", count=5))
    assert {row["id"]: row["count"] for row in fitting.rows("id, count")}[3] == 5


def test_values_without_nulls(rig: Callable[..., Rig]) -> None:
    analytics = rig()
    table = TableSchema(
        analytics.table.namespace,
        (
            key_column("id", LongType()),
            Column("tags", ArrayType(IntegerType())),
            Column("more", MapType(StringType(), StringType())),
            Column("place", StructType([StructField("city", StringType()), StructField("zip code", StringType())])),
        ),
    )
    changes = [
        change("i", 1, id=1, tags=[1, None], more={"a": "b", "c": None}, place={"city": "x", "zip code": None}),
        change("i", 2, id=2),
    ]
    analytics.sink.write(analytics.feed.next([(table, changes)]).frames(analytics.spark))
    assert analytics.rows("id, tags, more, place") == [
        {"id": 1, "tags": [1, None], "more": {"a": "b", "c": None}, "place": {"city": "x", "zip code": None}},
        {"id": 2, "tags": [], "more": {}, "place": {"city": None, "zip code": None}},
    ]


def test_columns_grow_before_values_would_be_cut(rig: Callable[..., Rig]) -> None:
    """ClickHouse itself cuts what a column has no room for, without an error."""
    analytics = rig()
    old = {
        "price": (DecimalType(38, 2), Decimal("123456789012345678901234567890123456.78")),
        "ratio": (IntegerType(), 7),
        "count": (IntegerType(), 7),
        "day": (DateType(), date(1969, 12, 31)),
        "sizes": (ArrayType(IntegerType()), [7, None]),
        "place": (StructType([StructField("x", IntegerType())]), {"x": 7}),
    }
    new = {
        "price": (DecimalType(38, 4), Decimal("1.2345")),
        "ratio": (DoubleType(), 1.5),
        "count": (DecimalType(38, 2), Decimal("7.25")),
        "day": (TimestampType(), datetime(1969, 12, 31, 5, 6, 7, tzinfo=UTC)),
        "sizes": (ArrayType(LongType()), [1 << 40]),
        "place": (
            StructType([StructField("x", LongType()), StructField("new", StringType())]),
            {"x": 1 << 40, "new": "y"},
        ),
    }
    for number, columns in enumerate((old, new)):
        values = [Column(name, kind) for name, (kind, _) in columns.items()]
        table = TableSchema(analytics.table.namespace, (key_column("id", IntegerType()), *values))
        row = {name: value for name, (_, value) in columns.items()}
        data = analytics.feed.next([(table, [change("i", number, id=number, **row)])])
        assert analytics.sink.write(data.frames(analytics.spark)) == 1
    assert analytics.rows("id, toString(price) AS price, ratio, count, toString(day) AS day, sizes, place") == [
        {
            "id": 0,
            "price": "123456789012345678901234567890123456.78",
            "ratio": 7,
            "count": 7,
            "day": "1969-12-31 00:00:00.000000",
            "sizes": [7, None],
            "place": {"x": 7, "new": None},
        },
        {
            "id": 1,
            "price": "1.2345",
            "ratio": 1.5,
            "count": 7.25,
            "day": "1969-12-31 05:06:07.000000",
            "sizes": [1 << 40],
            "place": {"x": 1 << 40, "new": "y"},
        },
    ]


def test_what_validation_says(rig: Callable[..., Rig]) -> None:
    absent = rig(database="nowhere")
    (complaint,) = absent.sink.check(absent.sink.context.config)
    assert complaint.startswith("sink.clickhouse.database: ")
    assert "has no database nowhere" in complaint
    keyless = TableSchema("shop.k", (Column("name", StringType()),))
    assert "has no primary key" in absent.sink.refusal(keyless)


@pytest.mark.slow
@pytest.mark.proves("into clickhouse", "exactly-once", killed=["server"])
def test_a_server_that_is_killed(rig: Callable[..., Rig], tmp_path: Path) -> None:
    with ClickHouse(tmp_path) as process:
        analytics = rig(Server("127.0.0.1", process.port or 0, "", ""))
        first = analytics.batch(*(change("i", n, id=n, name="a") for n in range(100)))
        analytics.sink.write(first.frames(analytics.spark))
        second = analytics.batch(
            *(change("u", 200 + n, id=n, name="b") for n in range(50)),
            *(change("d", 300 + n, id=50 + n) for n in range(50)),
        )
        process.service.kill()
        with pytest.raises(Retriable):
            analytics.sink.write(second.frames(analytics.spark))
        process.service.start()
        for data in (second, first, second):
            analytics.sink.write(data.frames(analytics.spark))
        assert analytics.rows("id, name") == [{"id": n, "name": "b"} for n in range(50)]


def test_rows_that_come_as_record_batches_are_written_as_those_of_spark(rig: Callable[..., Rig]) -> None:
    here = rig(connections="1")

    def write(*changes: Change) -> int:
        batch = here.batch(*changes).frames(here.spark)
        packed = [
            # Without rows of Spark's, they can only come out of the record batches.
            replace(part, packed=pack_rows(part.frame, part.schema), frame=part.frame.limit(0))
            for part in batch.changes()
        ]
        return here.sink.write(replace(batch, changes=lambda: packed))

    assert write(*(change("i", 10 + number, id=number, name="a", count=number) for number in range(4))) == 4
    late = change("u", 9, id=3, name="late", count=0)
    written = write(
        change("b", 20, id=1, name="a", count=1),
        change("u", 20, id=1, name="b", count=None),
        change("d", 21, id=2),
        late,
    )
    assert written == 3  # the engine leaves the late one out, when it is read
    assert here.rows("id, name, count", "FINAL WHERE ums_deleted_ = 0 ORDER BY id") == [
        {"id": 0, "name": "a", "count": 0},
        {"id": 1, "name": "b", "count": None},
        {"id": 3, "name": "a", "count": 3},
    ]
