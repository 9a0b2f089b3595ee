"""The form of requests: templates, idempotency keys, deletes, tokens, rates, answers that ask to wait."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import IntegerType, StringType

from connectors.errors import Fatal
from spark_jobs.contract import Column, TableSchema
from spark_jobs.testing.batches import BatchFeed, change
from spark_jobs.testing.kit import key_column, make_sink, parse_config
from tests.support.tls_door import tls_door

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.testing.batches import Change
    from tests.integration.spark_jobs.http.conftest import Service

COLUMNS = (key_column("id", IntegerType()), Column("name", StringType()))


class Rig:
    """A sink over the service, and a table of the test's own."""

    def __init__(self, service: Service, spark: SparkSession, way: str, query: str, options: dict[str, str]) -> None:
        self.service = service
        self.spark = spark
        self.table = TableSchema(f"shop.t{secrets.token_hex(4)}", COLUMNS)
        self.feed = BatchFeed(f"topic-{secrets.token_hex(4)}")
        login = {} if "oauth.url" in options else {"user": "user", "password": "secret"}
        self.config = parse_config(
            {
                "name": "http",
                "kafka.bootstrap.servers": "127.0.0.1:1",
                "source.topics": self.feed.topic,
                "source.format": "plain",
                "sink.type": "http",
                "sink.http.url": f"http://127.0.0.1:{service.port}/{way}/{self.table.namespace}{query}",
                "sink.http.connections": "1",
                "sink.http.retry.backoff.ms": "10",
                **{f"sink.http.{name}": value for name, value in (login | options).items()},
            }
        )
        self.sink = make_sink(self.config, spark)

    def write(self, *changes: Change) -> int:
        return self.sink.write(self.feed.next([(self.table, changes)]).frames(self.spark))

    @property
    def records(self) -> list[dict[str, Any]]:
        return self.service.records(self.table.namespace)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.service.requests(self.table.namespace)


@pytest.fixture
def rig(service: Service, spark: SparkSession) -> Callable[..., Rig]:
    def make(way: str = "plain", query: str = "", **options: str) -> Rig:
        return Rig(service, spark, way, query, {name.replace("_", "."): value for name, value in options.items()})

    return make


def test_one_record_per_request(rig: Callable[..., Rig]) -> None:
    header = {"header.X-Table": "${database}/${table}"}
    single = rig(query="?id=${key}&name=${column:name}", format="record", delete_method="DELETE", **header)
    single.write(change("i", 1, id=1, name="a b&c"), change("u", 2, id=1, name="b"), change("d", 3, id=1, name="b"))
    database, _, table = single.table.namespace.partition(".")
    assert [(seen["method"], seen["path"].partition("?")[2]) for seen in single.requests] == [
        ("POST", "id=1&name=a%20b%26c"),
        ("POST", "id=1&name=b"),
        ("DELETE", "id=1&name=b"),
    ]
    assert {seen["headers"]["X-Table"] for seen in single.requests} == {f"{database}/{table}"}
    keys = [seen["headers"]["Idempotency-Key"] for seen in single.requests]
    part = keys[0].rpartition("/")[2].split("-")[-3]
    assert keys == [f"{single.table.namespace}/{single.feed.topic}-{part}-{offset}-0" for offset in range(3)]
    metrics = single.sink.context.metrics
    assert (metrics["http_requests_total"], metrics["http_written_total"]) == (3, 3)


def test_lines_with_a_body_of_the_users(rig: Callable[..., Rig]) -> None:
    lines = rig(format="ndjson", body='{"key": ${key}, "of": ${table}, "new": ${column:name}, "id": ${id}}')
    lines.write(change("i", 1, id=1, name='a\n"b'), change("i", 2, id=1))
    table = lines.table.namespace.partition(".")[2]
    first, second = lines.records
    assert (first["key"], first["of"], first["new"], second["new"]) == ("1", table, 'a\n"b', None)
    assert first["id"] != second["id"]
    (seen,) = lines.requests
    assert seen["headers"]["Content-Type"] == "application/x-ndjson"


def test_a_replayed_batch_has_the_same_key(rig: Callable[..., Rig]) -> None:
    batches = rig(batch_rows="3")
    data = batches.feed.next([(batches.table, [change("i", n, id=n % 2, name=str(n)) for n in range(10)])])
    for _ in range(2):
        batches.sink.write(data.frames(batches.spark))
    keys = [seen["headers"]["Idempotency-Key"] for seen in batches.requests]
    assert len(keys) == 8
    assert keys[:4] == keys[4:]
    assert len(set(keys)) == 4


def test_a_bad_row_of_a_batch_is_found(rig: Callable[..., Rig]) -> None:
    whole = rig()
    rows = [change("i", n, id=1, name="refused" if n == 5 else str(n)) for n in range(9)]
    with pytest.raises(Fatal, match=r"offset 5 with id=1 is refused: .* answers 422: a name is refused\. Correct it"):
        whole.write(*rows)
    assert [record["name"] for record in whole.records] == ["0", "1", "2", "3", "4", "6", "7", "8"]


def test_an_answer_asks_to_wait(rig: Callable[..., Rig]) -> None:
    busy = rig("busy", retries="4")
    begin = time.monotonic()
    assert busy.write(change("i", 1, id=1, name="a")) == 1
    assert time.monotonic() - begin >= 1  # Retry-After: 1
    assert [record["name"] for record in busy.records] == ["a"]
    assert busy.sink.context.metrics["http_retries_total"] == 1


def test_tokens_are_fetched_and_renewed(rig: Callable[..., Rig], service: Service) -> None:
    options = {
        "oauth_url": f"http://127.0.0.1:{service.port}/token",
        "oauth_client_id": "user",
        "oauth_client_secret": "secret",
    }
    logged_in = rig(format="record", requests="1", **options)
    logged_in.write(*(change("i", n, id=n, name="a") for n in range(10)))  # a token is good for three requests
    assert len(logged_in.records) == 10
    wrong = rig(**{**options, "oauth_client_secret": "wrong"})
    with pytest.raises(Fatal, match=r"gives no token .*Check sink\.http\.oauth\.client\.id"):
        wrong.write(change("i", 1, id=1))
    (complaint,) = type(wrong.sink).check(wrong.config)
    assert complaint.startswith("sink.http.oauth.client.id: ")


def test_the_rate_is_kept(rig: Callable[..., Rig]) -> None:
    slow = rig(rate_records="50", batch_rows="5")
    begin = time.monotonic()
    slow.write(*(change("i", n, id=n, name="a") for n in range(40)))
    assert time.monotonic() - begin >= 0.7  # the last of 40 records at 50 in a second
    assert len(slow.records) == 40


def test_tls_is_verified(rig: Callable[..., Rig], service: Service, tmp_path: Path) -> None:
    with tls_door(service.port, tmp_path) as (port, authority):
        url = f"https://127.0.0.1:{port}/plain/${{namespace}}"
        trusting = rig(**{"url": url, "ssl.root.cert": str(authority)})
        assert not type(trusting.sink).check(trusting.config)
        assert trusting.write(change("i", 1, id=1, name="a")) == 1
        stranger = rig(url=url)
        (complaint,) = type(stranger.sink).check(stranger.config)
        assert complaint.startswith("sink.http.ssl.root.cert: ")


def test_options_that_do_not_go_together(rig: Callable[..., Rig]) -> None:
    with pytest.raises(AssertionError) as refused:
        rig(token="secret", delete_method="DELETE", status_stale="409,422")
    for name in ("sink.http.token: a request has one", "sink.http.delete.method: a request with", "422 is in two of"):
        assert name in str(refused.value)
