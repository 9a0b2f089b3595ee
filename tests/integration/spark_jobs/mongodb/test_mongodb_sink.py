"""The MongoDB sink beyond the kit: names, documents of others, races, refused rows, rights, TLS, a killed server."""

from __future__ import annotations

import secrets
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pymongo
import pytest
from bson.decimal128 import Decimal128
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from compose.local.targets.mongodb import MongoDb
from connectors.errors import Fatal, Retriable
from spark_jobs.contract import Column, TableSchema
from spark_jobs.sinks.mongodb.client import MongoClient
from spark_jobs.sinks.mongodb.config import parse_settings
from spark_jobs.sinks.mongodb.documents import guards_of
from spark_jobs.sinks.shared.model import RowTable, SinkRow
from spark_jobs.testing.batches import BatchFeed, change
from spark_jobs.testing.kit import key_column, make_sink, parse_config
from tests.support.tls_door import tls_door

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from spark_jobs.contract import Sink
    from spark_jobs.testing.batches import Change
    from tests.integration.spark_jobs.mongodb.conftest import Server

COLUMNS = (
    key_column("id", IntegerType()),
    Column("region", StringType()),
    Column("name", StringType()),
    Column("price", DecimalType(10, 2)),
)
DATABASE = "shop"
WEEK_S = 7 * 24 * 3600


class Rig:
    """A sink over a MongoDB, and a table of the test's own."""

    def __init__(self, address: str, login: dict[str, str], client: Any, spark: SparkSession, **options: str) -> None:
        self.spark = spark
        self.name = f"t{secrets.token_hex(4)}"
        self.table = TableSchema(f"{DATABASE}.{self.name}", COLUMNS)
        self.feed = BatchFeed(f"topic-{secrets.token_hex(4)}")
        self.database = client[DATABASE]
        self.collection = self.database[self.name]
        properties = {
            "name": "mongodb",
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "source.topics": self.feed.topic,
            "source.format": "plain",
            "sink.type": "mongodb",
            "sink.mongodb.url": f"mongodb://{address}/?directConnection=true",
            "sink.mongodb.database": "${database}",
            "sink.mongodb.retry.backoff.ms": "10",
            "sink.mongodb.timeout.ms": "5000",
            **login,
            **{f"sink.mongodb.{name}": value for name, value in options.items()},
        }
        self.sink: Sink = make_sink(parse_config(properties), spark)

    def write(self, *changes: Change) -> int:
        return self.sink.write(self.feed.next([(self.table, changes)]).frames(self.spark))

    def document(self, name: Any) -> dict[str, Any]:
        """A document without what the sink adds."""
        document = self.collection.find_one({"_id": name}) or {}
        return {key: value for key, value in document.items() if not key.startswith(("ums_ts", "ums_op", "_id"))}

    @property
    def complaints(self) -> list[str]:
        return type(self.sink).check(self.sink.context.config)


@pytest.fixture
def rig(mongodb: Server, spark: SparkSession) -> Callable[..., Rig]:
    def make(address: str = f"{mongodb.host}:{mongodb.port}", **options: str) -> Rig:
        return Rig(address, mongodb.login, mongodb.client, spark, **options)

    return make


def test_documents_and_their_names(rig: Callable[..., Rig]) -> None:
    plain = rig()
    assert not plain.complaints
    plain.write(change("i", 5, id=1, region="eu", name="a", price=Decimal("1.50")))
    assert plain.document(1) == {"id": 1, "region": "eu", "name": "a", "price": Decimal128("1.50"), "ums_id_": 5}
    pair = rig(**{"key.columns": "region,id"})
    pair.write(change("i", 5, id=1, region="eu", name="a"), change("i", 6, id=1, region="us", name="b"))
    assert pair.document({"region": "us", "id": 1})["name"] == "b"
    named = rig(id="${table}/${key}", decimals="string")
    named.write(change("i", 5, id=1, price=Decimal("1.50")))
    assert named.document(f"{named.name}/1")["price"] == "1.50"
    document = rig(**{"id.document": "true"})
    document.write(change("i", 5, id=1, name="a"))
    assert document.document({"id": 1})["name"] == "a"


def test_times_in_keys_stay_apart(rig: Callable[..., Rig]) -> None:
    times = rig(**{"key.columns": "at"})
    times.table = TableSchema(times.table.namespace, (*COLUMNS, Column("at", TimestampType())))
    first, second = (datetime.fromisoformat(f"2026-01-01T00:00:01.00000{number}+00:00") for number in (1, 2))
    times.write(change("i", 1, id=1, at=first), change("i", 2, id=2, at=second))
    assert times.collection.count_documents({}) == 2


PARTS = StructType(
    [StructField("at", TimestampType()), StructField("price", DecimalType(10, 2)), StructField("day", DateType())]
)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (
            PARTS,
            [
                {"at": datetime(2026, 1, 1, 0, 0, 0, 1, UTC), "price": Decimal("1.50"), "day": date(2026, 1, 1)},
                {"at": datetime(2026, 1, 1, 0, 0, 0, 2, UTC), "price": Decimal("1.50"), "day": None},
                {"at": None, "price": None, "day": None},
            ],
        ),
        (ArrayType(StringType()), [["a", "b"], ["a,b"], []]),
        (MapType(IntegerType(), DecimalType(10, 2)), [{1: Decimal("1.50")}, {2: None}, {}]),
        (TimestampNTZType(), [datetime(2026, 1, day) for day in (1, 2, 3)]),  # noqa: DTZ001 - no zone
    ],
    ids=["struct", "array", "map", "local time"],
)
def test_keys_with_parts(rig: Callable[..., Rig], kind: DataType, keys: list[Any]) -> None:
    rows = rig(**{"key.columns": "key"})
    rows.table = TableSchema(rows.table.namespace, (*COLUMNS, Column("key", kind)))
    rows.write(*(change("i", number, id=number, key=key) for number, key in enumerate(keys)))
    assert rows.collection.count_documents({}) == 3
    assert all(not isinstance(document["_id"], list) for document in rows.collection.find({}))  # MongoDB refuses it
    rows.write(change("u", 20, id=20, key=keys[0]), change("d", 21, key=keys[1]))
    rows.write(change("u", 15, id=15, key=keys[1]), change("u", 16, id=16, key=keys[0]))  # late
    assert sorted(document["id"] for document in rows.collection.find({})) == [2, 20]


def test_documents_of_other_programs_are_older(rig: Callable[..., Rig]) -> None:
    rows = rig()
    rows.collection.insert_many([{"_id": 1, "name": "foreign", "note": 1}, {"_id": 2, "name": "foreign"}])
    rows.write(change("u", 5, id=1, name="new"), change("d", 6, id=2))
    assert rows.document(1)["name"] == "new"
    assert "note" not in rows.document(1)
    assert rows.collection.count_documents({}) == 1


def test_deletes_are_remembered_for_a_time(rig: Callable[..., Rig]) -> None:
    rows = rig()
    rows.write(change("i", 5, id=1, name="a"), change("d", 6, id=1), change("d", 7, id=2))
    assert rows.write(change("u", 4, id=1, name="late"), change("u", 8, id=2, name="new")) == 1
    assert rows.document(2)["name"] == "new"
    assert rows.collection.count_documents({}) == 1
    guards = rows.database[guards_of(rows.name)]
    assert {guard["_id"]: guard["ums_id_"] for guard in guards.find()} == {1: 6, 2: 7}
    assert guards.index_information()["ums_expiry"]["expireAfterSeconds"] == WEEK_S
    # Another time is taken over.
    shorter = rig(**{"delete.retention.ms": "60000", "collection": rows.name})
    shorter.write(change("i", 9, id=3))
    assert guards.index_information()["ums_expiry"]["expireAfterSeconds"] == 60
    metrics = rows.sink.context.metrics
    assert metrics["mongodb_stale_total"] == 1


def test_a_writer_that_lost_a_race_with_a_delete(rig: Callable[..., Rig]) -> None:
    rows = rig()
    rows.write(change("i", 1, id=1, name="a"))
    table = RowTable(rows.table.namespace, ("id", "name"), ("id",))
    late = MongoClient(parse_settings(rows.sink.context.config), table)
    orders = late._orders

    def deleted_meanwhile(entries: Any) -> Any:
        """A newer delete comes between the look at the guards and the write."""
        late._orders = orders  # type: ignore[method-assign]
        newest = orders(entries)
        rows.write(change("d", 9, id=1))
        return newest

    late._orders = deleted_meanwhile  # type: ignore[method-assign]
    row = SinkRow({"id": 1, "name": "late"}, 5, datetime.fromisoformat("2026-01-01T00:00:00Z"), "u", "", "t", 0, 5, 0)
    late.write([row], lambda _: None)
    late.close()
    assert rows.collection.count_documents({}) == 0


def test_soft_deletes(rig: Callable[..., Rig]) -> None:
    soft = rig(**{"delete.mode": "soft"})
    soft.write(change("i", 1, id=1, name="a"))
    soft.write(change("d", 2, id=1), change("d", 3, id=7), change("i", 4, id=8, name="b"))
    assert soft.document(1) == {"id": 1, "region": None, "name": "a", "price": None, "ums_id_": 2, "ums_active_": 0}
    assert (soft.document(7)["ums_active_"], soft.document(8)["ums_active_"]) == (0, 1)
    soft.write(change("u", 1, id=7, name="late"))
    assert "name" not in soft.document(7)


def test_rows_that_the_server_refuses_do_not_stop_their_neighbours(rig: Callable[..., Rig]) -> None:
    rows = rig()
    rows.database.create_collection(rows.name, validator={"name": {"$ne": "refused"}})
    with pytest.raises(Fatal, match=r"with id=1 is refused: MongoDB .*failed validation"):
        rows.write(change("i", 1, id=1, name="refused"), change("i", 2, id=2, name="b"))
    assert rows.document(2)["name"] == "b"
    unique = rig()
    unique.collection.create_index("name", unique=True)
    unique.write(change("i", 1, id=1, name="a"))
    with pytest.raises(Fatal, match=r"with id=2 is refused: MongoDB .*E11000"):
        unique.write(change("i", 2, id=2, name="a"))


def test_two_tables_are_not_one_collection(rig: Callable[..., Rig]) -> None:
    rows = rig(collection="all")
    rows.write(change("i", 1, id=1))
    rows.table = TableSchema(f"{DATABASE}.other", COLUMNS)
    with pytest.raises(Fatal, match=r"would both be written to shop\.all"):
        rows.write(change("i", 1, id=1))


def test_tables_that_steps_make_of_one_record_share_a_collection(rig: Callable[..., Rig]) -> None:
    rows = rig(collection="all", mode="insert")
    data = rows.feed.next([(rows.table, [change("i", 1, id=1)])])
    data.tables.append((TableSchema(f"{DATABASE}.other", COLUMNS), data.tables[0][1]))
    for _ in range(2):
        rows.sink.write(data.frames(rows.spark))
    assert rows.database["all"].count_documents({"_id": {"$regex": rows.feed.topic}}) == 2


def test_a_login_without_rights(mongodb: Server, rig: Callable[..., Rig]) -> None:
    name = f"reader{secrets.token_hex(4)}"
    mongodb.client.admin.command("createUser", name, pwd="p", roles=[{"role": "read", "db": DATABASE}])
    reader = rig(user=name, password="p")
    assert not reader.complaints
    with pytest.raises(Fatal, match="the role readWrite"):
        reader.write(change("i", 1, id=1))
    mongodb.client.admin.command("dropUser", name)


def test_tls_is_verified(rig: Callable[..., Rig], mongodb: Server, tmp_path: Path) -> None:
    with tls_door(mongodb.port, tmp_path) as (port, authority):
        trusting = rig(f"localhost:{port}", **{"ssl.mode": "verify-full", "ssl.root.cert": str(authority)})
        assert not trusting.complaints
        assert trusting.write(change("i", 1, id=1)) == 1
        stranger = rig(f"localhost:{port}", **{"ssl.mode": "verify-full", "timeout.ms": "2000"})
        (complaint,) = stranger.complaints
        assert complaint.startswith("sink.mongodb.ssl.root.cert: ")


def test_a_wrong_address_is_said(rig: Callable[..., Rig]) -> None:
    away = rig("127.0.0.1:1", **{"timeout.ms": "500", "retries": "0"})
    (complaint,) = away.complaints
    assert complaint.startswith("sink.mongodb.url: MongoDB 127.0.0.1:1 does not answer: ")
    with pytest.raises(Retriable):
        away.write(change("i", 1, id=1))


@pytest.mark.proves("into mongodb", "exactly-once", killed=["server"])
def test_a_server_that_is_killed(tmp_path: Path, spark: SparkSession) -> None:
    with MongoDb(tmp_path) as server:
        client: Any = pymongo.MongoClient("127.0.0.1", server.port or 0, directConnection=True)
        rows = Rig(f"127.0.0.1:{server.port}", {}, client, spark, retries="0")
        first = rows.feed.next([(rows.table, [change("i", n, id=n, name=str(n)) for n in range(20)])])
        rows.sink.write(first.frames(spark))
        later = [change("u", 100 + n, id=n, name="new") for n in range(10)]
        later += [change("d", 200 + n, id=n) for n in range(10, 15)]
        second = rows.feed.next([(rows.table, later)])
        server.service.kill()
        with pytest.raises(Retriable):
            rows.sink.write(second.frames(spark))
        server.service.start()
        for batch in (second, first, second):
            rows.sink.write(batch.frames(spark))
        expected = dict.fromkeys(range(10), "new") | {n: str(n) for n in range(15, 20)}
        assert {row["_id"]: row["name"] for row in rows.collection.find()} == expected
        client.close()
