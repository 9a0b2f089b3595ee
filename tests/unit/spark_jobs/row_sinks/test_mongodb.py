"""The MongoDB sink without a server: values, names of documents, requests, errors of single documents."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from pymongo import InsertOne, ReplaceOne, UpdateOne
from pymongo.errors import AutoReconnect, BulkWriteError, DocumentTooLarge, OperationFailure

from connectors.errors import ConfigInvalid, Fatal, Retriable
from spark_jobs.sinks.mongodb.client import MongoClient, _Bulk, bson_of, connect, faults
from spark_jobs.sinks.mongodb.config import CONFIG_DEF, Settings, complaints, settings
from spark_jobs.sinks.shared.model import Row, RowTable, Written
from spark_jobs.sinks.shared.templates import Unfilled

TIME = datetime(2026, 1, 2, tzinfo=UTC)
BASE = {"sink.mongodb.url": "mongodb://a:1,b:2/?replicaSet=rs0", "sink.mongodb.database": "shop"}


def chosen(**options: str) -> Settings:
    named = {f"sink.mongodb.{name.replace('_', '.')}": text for name, text in options.items()}
    return settings(CONFIG_DEF.parse({**BASE, **named}))


def row(op: str = "u", **values: Any) -> Row:
    return Row({"id": 1, "region": "eu", "name": "a"} | values, 7, TIME, op, "uid", "topic", 2, 9, 0)


def client(keys: tuple[str, ...] = ("id",), columns: tuple[str, ...] = ("id", "region", "name"), **options: str) -> Any:
    return MongoClient(chosen(**options), RowTable("shop.orders", columns, keys))


def test_values() -> None:
    long = Decimal("1234567890123456789012345678901234567.5")
    assert bson_of({"a": [Decimal("1.50"), long, date(2026, 1, 2), b"x", None]}) == {
        "a": [Decimal128("1.50"), str(long), TIME, b"x", None]
    }


def test_names_of_documents() -> None:
    assert client()._id_of(row()) == 1
    pair = client(("region", "id"))._id_of(row())
    assert list(pair.items()) == [("region", "eu"), ("id", 1)]
    assert hash(pair) == hash(client(("region", "id"))._id_of(row()))
    assert client(id="${table}/${key}")._id_of(row()) == "orders/1"
    assert client(mode="insert")._id_of(row()) == "topic-2-9-0"
    with pytest.raises(Unfilled, match="the column region is null"):
        client(("region", "id"))._id_of(row(region=None))


def test_requests() -> None:
    fields = {"id": 1, "region": "eu", "name": "a", "ums_id_": 7, "ums_ts_": TIME, "ums_op_": "u"}
    older = {"_id": 1, "ums_id_": {"$lte": 7}}
    assert client()._request(1, row()) == ReplaceOne(older, {"_id": 1, **fields}, upsert=True)
    soft = client(delete_mode="soft")._request(1, row("d", name=None))
    kept = {"id": 1, "region": "eu", "ums_id_": 7, "ums_ts_": TIME, "ums_op_": "d", "ums_active_": 0}
    assert soft == UpdateOne(older, {"$set": kept}, upsert=True)
    dotted = client(columns=("id", "a.b"), delete_mode="soft")._request(1, row("d"))
    assert isinstance(dotted, ReplaceOne)
    assert isinstance(client(mode="insert")._request("x", row("b")), InsertOne)


class Collection:
    """In place of a collection: refuses requests with errors."""

    def __init__(self, *errors: dict[str, Any], largest: int = 100, whole: bool = False) -> None:
        self.whole = whole
        self.errors = list(errors)
        self.largest = largest

    def bulk_write(self, requests: list[Any], *, ordered: bool) -> None:
        assert not ordered
        if len(requests) > self.largest:
            raise DocumentTooLarge("too large")
        if self.whole:
            raise OperationFailure("E11000", 11000)
        if self.errors:
            raise BulkWriteError({"writeErrors": self.errors})


def test_errors_of_single_documents() -> None:
    refused: list[tuple[Row, str]] = []
    done = Written()
    bulk = _Bulk(chosen(), done, refused)
    rows = [row(id=number) for number in range(4)]
    errors = [
        {"index": 0, "code": 11000, "errmsg": "E11000"},
        {"index": 1, "code": 121, "errmsg": "Document failed validation"},
        {"index": 3, "code": 112, "errmsg": "WriteConflict"},
    ]
    bulk.run(Collection(*errors), [(None, entry) for entry in rows])
    assert (done.rows, done.stale, bulk.left, bulk.reason) == (1, 1, [rows[3]], "MongoDB a:1,b:2: WriteConflict")
    assert refused == [(rows[1], "MongoDB a:1,b:2: Document failed validation")]
    with pytest.raises(Fatal, match="the right to write to shop"):
        bulk.run(Collection({"index": 0, "code": 13, "errmsg": "not authorized"}), [(None, rows[0])])


def test_requests_that_are_too_large_are_cut() -> None:
    refused: list[tuple[Row, str]] = []
    done = Written()
    _Bulk(chosen(), done, refused).run(Collection(largest=1), [(None, row(id=number)) for number in range(3)])
    assert (done.rows, done.requests, refused) == (3, 5, [])
    _Bulk(chosen(), done, refused).run(Collection(largest=0), [(None, row())])
    assert [reason for _, reason in refused] == ["its document is larger than 16 MiB"]


def test_a_server_that_says_of_a_request_that_documents_exist() -> None:
    done = Written()
    bulk = _Bulk(chosen(), done, [])
    bulk.run(Collection(whole=True), [(None, row(id=number)) for number in range(2)])
    assert (done.rows, done.stale, bulk.refused) == (0, 2, [])


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (OperationFailure("no", 18, {"errmsg": "Authentication failed."}), Fatal, r"sink\.mongodb\.password"),
        (OperationFailure("stepped down", 189), Retriable, "stepped down"),
        (OperationFailure("bad command", 59), Fatal, "bad command"),
        (AutoReconnect("connection closed"), Retriable, "does not answer: connection closed"),
    ],
)
def test_errors_of_the_driver(error: Exception, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text), faults(chosen()):
        raise error


def test_options() -> None:
    config = CONFIG_DEF.parse({**BASE, "sink.mongodb.ssl.cert": "/a.pem", "sink.mongodb.ssl.key": "/b.pem"})
    assert [text.partition(":")[0] for text in complaints(config)] == ["sink.mongodb.ssl.key"]
    secured = connect(chosen(user="me", password="secret", ssl_mode="verify-full", timeout_ms="1500"))
    try:
        assert secured.options.pool_options.connect_timeout == 1.5
        assert secured.write_concern.document == {"w": "majority"}
    finally:
        secured.close()


def test_a_url_with_a_login_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigInvalid, match="without a login") as refused:
        CONFIG_DEF.parse({**BASE, "sink.mongodb.url": "mongodb://me:hidden@a/"})
    assert "hidden" not in str(refused.value)
