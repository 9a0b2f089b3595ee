"""The MongoDB sink without a server: values, names of documents, statements, errors of single documents."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import bson
import pytest
from bson.decimal128 import Decimal128
from pymongo.errors import AutoReconnect, OperationFailure
from pyspark.sql.types import StringType

from compose.local.security.certificates import Authority
from connectors.errors import ConfigInvalid, Fatal, Retriable
from spark_jobs.contract import Column, JobContext, TableSchema
from spark_jobs.sinks.mongodb.client import MongoClient
from spark_jobs.sinks.mongodb.config import CONFIG_DEF, MongoSettings, check_options, parse_settings
from spark_jobs.sinks.mongodb.documents import (
    collection_name,
    database_name,
    encoder_of,
    id_of,
    make_exact,
    make_hashable,
)
from spark_jobs.sinks.mongodb.requests import DELETE, INSERT, UPDATE, MongoEntry, Requests, without_upsert
from spark_jobs.sinks.mongodb.server import connect_mongodb, translate_errors
from spark_jobs.sinks.mongodb.sink import MongoSink
from spark_jobs.sinks.shared.model import RowTable, SinkRow
from spark_jobs.sinks.shared.templates import Unfilled

if TYPE_CHECKING:
    from pathlib import Path

TIME = datetime(2026, 1, 2, tzinfo=UTC)
BASE = {"sink.mongodb.url": "mongodb://a:1,b:2/?replicaSet=rs0", "sink.mongodb.database": "shop"}
LONG = Decimal("1234567890123456789012345678901234567.5")


def chosen(**options: str) -> MongoSettings:
    named = {f"sink.mongodb.{name.replace('_', '.')}": text for name, text in options.items()}
    return parse_settings(CONFIG_DEF.parse({**BASE, **named}))


def row(op: str = "u", **values: Any) -> SinkRow:
    return SinkRow({"id": 1, "region": "eu", "name": "a"} | values, 7, TIME, op, "uid", "topic", 2, 9, 0)


def client(columns: tuple[str, ...] = ("id", "region", "name"), **options: str) -> Any:
    return MongoClient(chosen(**options), RowTable("shop.orders", columns, ("id",)))


def document_of(value: Any, **options: str) -> Any:
    return bson.decode(encoder_of(chosen(**options))({"v": value}))["v"]


def test_values() -> None:
    assert document_of([Decimal("1.50"), LONG]) == [Decimal128("1.50"), str(LONG)]
    assert document_of(Decimal("1.50"), decimals="string") == "1.50"
    assert document_of(date(2026, 1, 2)) == TIME.replace(tzinfo=None)
    assert document_of([b"x", None, True, 1.5]) == [b"x", None, True, 1.5]
    assert document_of({1: {date(2026, 1, 2): [{None: "x"}]}}) == {"1": {"2026-01-02": [{"None": "x"}]}}


def test_documents_that_are_refused() -> None:
    with pytest.raises(Unfilled, match="can't be BSON"):
        document_of({"nul\0": 1})
    with pytest.raises(Unfilled, match="takes 16 MiB"):
        document_of("x" * (16 << 20))


def test_values_of_keys_stay_apart() -> None:
    assert make_exact(datetime(2026, 1, 2, 3, 4, 5, 678000, UTC), decimals=True).microsecond == 678000
    assert make_exact(datetime(2026, 1, 2, 3, 4, 5, 678001, UTC), decimals=True) == "2026-01-02T03:04:05.678001+00:00"
    micros = [datetime(2026, 1, 2, 3, 4, 5, number, UTC) for number in (1, 2)]
    first, second = (make_exact({"at": [moment]}, decimals=True) for moment in micros)
    assert first != second
    assert bson.decode(bson.encode(first)) == first
    local = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - no zone
    assert make_exact(local, decimals=True) == local.replace(tzinfo=UTC)  # as it is read back
    assert make_exact({1: {"d": Decimal("1.50"), "day": date(2026, 1, 2)}}, decimals=True) == {
        "1": {"d": Decimal128("1.50"), "day": TIME}
    }
    assert make_exact([float("nan")], decimals=True) == ["nan"]
    with pytest.raises(Unfilled, match=r"the name \$a, and MongoDB takes no name with a dollar"):
        make_exact({"a": [{"$a": 1}]}, decimals=True)
    assert make_hashable({"a": Decimal128("1.0"), "b": [1]}) == make_hashable({"a": Decimal128("1.00"), "b": [1]})
    assert make_hashable({"a": 1, "b": 2}) != make_hashable({"b": 2, "a": 1})


def test_names_of_documents() -> None:
    def name(keys: tuple[str, ...] = ("id",), entry: SinkRow | None = None, **options: str) -> Any:
        return id_of(chosen(**options), RowTable("shop.orders", ("id", "region"), keys))(entry or row())

    assert name() == 1
    assert name(id_document="true") == {"id": 1}
    assert list(name(("region", "id")).items()) == [("region", "eu"), ("id", 1)]
    assert name(id="${table}/${key}") == "orders/1"
    assert name(mode="insert") == "shop.orders/topic-2-9-0"
    with pytest.raises(Unfilled, match="the column region is null"):
        name(("region", "id"), row(region=None))


def test_names_of_databases_and_collections() -> None:
    assert database_name("my shop.eu$") == "my_shop_eu_"
    assert collection_name("a.b$c") == "a.b_c"
    assert collection_name("system.users") == "_system.users"
    assert len(collection_name("é" * 200).encode()) <= 255 - 63 - 1 - len("_ums_deletes")


def test_statements() -> None:
    fields = {"id": 1, "region": "eu", "name": "a", "ums_id_": 7, "ums_ts_": TIME, "ums_op_": "u"}
    older = {"_id": 1, "ums_id_": {"$not": {"$gt": 7}}}
    assert client()._replaced(MongoEntry(row(), 1)) == {"q": older, "u": {"_id": 1, **fields}, "upsert": True}
    soft = client(delete_mode="soft")._replaced(MongoEntry(row("d", name=None), 1))
    kept = {"id": 1, "region": "eu", "ums_id_": 7, "ums_ts_": TIME, "ums_op_": "d", "ums_active_": 0}
    assert soft == {"q": older, "u": {"$set": kept}, "upsert": True}
    dotted = client(("id", "a.b"), delete_mode="soft")._replaced(MongoEntry(row("d"), 1))
    assert dotted["u"]["_id"] == 1
    content = bson.encode({"q": older, "u": {"$set": {"x": Decimal128("1")}}, "upsert": True})
    assert bson.decode(without_upsert(content)) == {**bson.decode(content), "upsert": False}


class Database:
    """In place of a database: notes commands, and gives the answers that it was given."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, int]] = []

    def command(self, kind: str, collection: str, **parts: Any) -> dict[str, Any]:
        assert collection
        assert parts["ordered"] is False
        assert parts["writeConcern"] == {"w": "majority"}
        (items,) = (value for value in parts.values() if isinstance(value, list))
        self.sent.append((kind, len(items)))
        return self.answers.pop(0)


def entries(count: int, size: int = 1) -> list[MongoEntry]:
    content = bson.encode({"q": {}, "u": {"x": "x" * size}, "upsert": True})
    return [MongoEntry(row(id=number), number, content) for number in range(count)]


def requests(database: Database) -> Requests:
    return Requests(chosen(), database, {"w": "majority"})


def test_errors_of_single_documents() -> None:
    errors = [
        {"index": 0, "code": 11000, "errmsg": "E11000 index: _id_", "keyPattern": {"_id": 1}},
        {"index": 1, "code": 121, "errmsg": "Document failed validation"},
        {"index": 3, "code": 112, "errmsg": "WriteConflict"},
        {"index": 4, "code": 11000, "errmsg": "E11000 index: name_1", "keyPattern": {"name": 1}},
        {"index": 5, "code": 11000, "errmsg": "E11000"},
    ]
    database = Database({"n": 1, "writeErrors": errors}, {"n": 1})
    work, rows = requests(database), entries(6)
    assert work.send(UPDATE, "orders", rows) == [rows[2], rows[0], rows[5]]
    # Of the two whose document was there one was older after all.
    assert database.sent == [(UPDATE, 6), (UPDATE, 2)]
    assert (work.done.rows, work.done.stale, work.done.requests) == (2, 1, 2)
    assert (work.left, work.reason) == ([rows[3].row], "MongoDB a:1,b:2: WriteConflict")
    assert [(refused.values["id"], text) for refused, text in work.refused] == [
        (1, "MongoDB a:1,b:2: Document failed validation"),
        (4, "MongoDB a:1,b:2: E11000 index: name_1"),
    ]


def test_an_insert_that_was_there_is_left_out() -> None:
    database = Database({"n": 1, "writeErrors": [{"index": 0, "code": 11000, "keyPattern": {"_id": 1}}]})
    work = requests(database)
    work.send(INSERT, "orders", entries(2))
    assert (work.done.rows, work.done.stale, database.sent) == (1, 1, [(INSERT, 2)])


def test_errors_of_all_documents() -> None:
    with pytest.raises(Fatal, match="the role readWrite"):
        requests(Database({"writeErrors": [{"index": 0, "code": 13, "errmsg": "no"}]})).send(DELETE, "x", entries(1))
    with pytest.raises(Retriable, match="waiting for replication"):
        requests(Database({"writeConcernError": {"code": 64, "errmsg": "waiting for replication"}})).send(
            DELETE, "x", entries(1)
        )


def test_long_requests_are_cut() -> None:
    database = Database({"n": 2}, {"n": 1})
    work = requests(database)
    work.send(UPDATE, "orders", entries(3, 15 << 20))
    assert (work.done.rows, database.sent) == (3, [(UPDATE, 2), (UPDATE, 1)])


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (OperationFailure("no", 18, {"errmsg": "Authentication failed."}), Fatal, r"sink\.mongodb\.password"),
        (OperationFailure("stepped down", 189), Retriable, "stepped down"),
        (OperationFailure("not authorized", 13), Fatal, "the role readWrite"),
        (OperationFailure("bad command", 59), Fatal, "bad command"),
        (AutoReconnect("connection closed"), Retriable, "does not answer: connection closed"),
    ],
)
def test_errors_of_the_driver(error: Exception, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text), translate_errors(chosen()):
        raise error


def test_options_of_the_driver(tmp_path: Path) -> None:
    authority = Authority.make()
    trusted = authority.write_pem(tmp_path / "authority.pem")
    issued = authority.issue("job")
    both = issued.write_pem(tmp_path / "both.pem")
    key = tmp_path / "key.pem"
    key.write_text(issued.key_pem(), encoding="utf-8")
    certificate = tmp_path / "certificate.pem"
    certificate.write_text(issued.chain_pem, encoding="utf-8")
    for files in ((both, both), (certificate, key)):
        secured = connect_mongodb(
            chosen(
                user="me",
                password="secret",
                ssl_mode="verify-full",
                timeout_ms="1500",
                ssl_root_cert=str(trusted),
                ssl_cert=str(files[0]),
                ssl_key=str(files[1]),
            )
        )
        try:
            assert secured.options.pool_options.connect_timeout == 1.5
            assert secured.options.pool_options._ssl_context is not None
            assert secured.write_concern.document == {"w": "majority", "wtimeout": 1500}
        finally:
            secured.close()
    with pytest.raises(ConfigInvalid, match="absent"):
        connect_mongodb(chosen(ssl_mode="verify-full", ssl_root_cert=str(tmp_path / "absent")))


def test_options_that_do_not_go_together() -> None:
    config = CONFIG_DEF.parse({**BASE, "sink.mongodb.ssl.cert": "/a.pem", "sink.mongodb.id": "${table}"})
    assert [text.partition(":")[0] for text in check_options(config)] == ["sink.mongodb.ssl.cert", "sink.mongodb.id"]


def test_a_url_with_a_login_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigInvalid, match="without a login") as refused:
        CONFIG_DEF.parse({**BASE, "sink.mongodb.url": "mongodb://me:hidden@a/"})
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (("id", "_id"), {}, "sink.mongodb.key.columns=_id"),
        (("id", "_id"), {"sink.mongodb.mode": "insert"}, "rename it by a step"),
        (("id", "_id"), {"sink.mongodb.key.columns": "_id"}, ""),
        (("id",), {"sink.mongodb.id": "${column:name}"}, "has no column name"),
        (("id",), {"sink.mongodb.key.columns": "name"}, "has no column name"),
        (("id",), {"sink.mongodb.id": "${table}:${key}"}, ""),
    ],
)
def test_tables_that_are_refused(columns: tuple[str, ...], options: dict[str, str], text: str) -> None:
    schema = TableSchema("shop.orders", tuple(Column(name, StringType(), key=name == "id") for name in columns))
    nothing: Any = None
    context = JobContext("job", CONFIG_DEF.parse({**BASE, **options}), nothing, nothing)
    refusal = MongoSink(context).refusal(schema)
    assert text in refusal
    assert bool(refusal) == bool(text)
