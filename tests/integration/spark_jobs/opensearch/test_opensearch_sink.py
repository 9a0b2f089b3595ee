"""The OpenSearch sink on a real server: mappings, soft deletes, several nodes, TLS, indices of other programs, kills."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType

from compose.local.ports import free_port
from compose.local.targets.opensearch import OpenSearch
from connectors.errors import Fatal, Retriable
from spark_jobs.contract import Column, SchemaRefused, TableSchema
from spark_jobs.testing.batches import BatchFeed, change
from spark_jobs.testing.kit import key_column, make_sink, parse_config
from tests.integration.spark_jobs.opensearch.conftest import Reader
from tests.support.tls_door import tls_door
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Sink
    from spark_jobs.testing.batches import BatchData, Change

COLUMNS = (
    key_column("id", IntegerType()),
    Column("name", StringType()),
    Column("amount", DoubleType()),
    Column("count", LongType()),
)


class Rig:
    """A sink over a server, and a table of the test's own."""

    def __init__(self, url: str, spark: SparkSession, options: dict[str, str]) -> None:
        self.spark = spark
        self.table = TableSchema(f"shop.t{secrets.token_hex(4)}", COLUMNS)
        self.feed = BatchFeed(f"topic-{secrets.token_hex(4)}")
        self.properties = {
            "name": "search",
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "source.topics": self.feed.topic,
            "source.format": "plain",
            "sink.type": "opensearch",
            "sink.opensearch.url": url,
            "sink.opensearch.retries": "0",
            "sink.opensearch.timeout.ms": "10000",
            **{f"sink.opensearch.{name}": value for name, value in options.items()},
        }
        self.sink: Sink = make_sink(parse_config(self.properties), spark)

    def batch(self, *changes: Change) -> BatchData:
        return self.feed.next([(self.table, changes)])

    def write(self, *changes: Change) -> int:
        return self.sink.write(self.batch(*changes).frames(self.spark))


@pytest.fixture
def rig(opensearch: OpenSearch, spark: SparkSession) -> Callable[..., Rig]:
    def make(url: str = opensearch.url, **options: str) -> Rig:
        return Rig(url, spark, {name.replace("_", "."): value for name, value in options.items()})

    return make


def test_mappings_and_versions(rig: Callable[..., Rig], reader: Reader) -> None:
    # The first node does not run: the second one is used.
    search = rig(f"http://127.0.0.1:{free_port(None)},{rig().properties['sink.opensearch.url']}")
    index = search.table.namespace
    search.write(change("i", 5, id=1, name="a", amount=1.5, count=2), change("i", 6, id=2, name="b"))
    fields = reader.fields(index)
    assert {name: field["type"] for name, field in fields.items()} == {
        "id": "long", "name": "text", "amount": "double", "count": "long", "ums_id_": "long", "ums_ts_": "date",
        "ums_op_": "keyword",
    }  # fmt: skip
    search.write(change("u", 4, id=1, name="late"), change("d", 7, id=2))
    assert reader.documents(index)["1"]["name"] == "a"
    assert reader.ask("GET", f"/{index}/_doc/1")["_version"] == 5
    assert reader.ask("GET", f"/{index}/_settings")[index]["settings"]["index"]["gc_deletes"] == "3600000ms"
    metrics = search.sink.context.metrics
    assert (metrics["opensearch_written_total"], metrics["opensearch_stale_total"]) == (3, 1)


def test_soft_deletes_and_one_index_for_all_tables(rig: Callable[..., Rig], reader: Reader) -> None:
    index = f"all-{secrets.token_hex(4)}"
    soft = rig(index=index, delete_mode="soft")
    soft.write(change("i", 1, id=1, name="a"))
    soft.write(change("d", 2, id=1, name="a"))
    (name, document), *_ = reader.documents(index).items()
    assert name == f"{soft.table.namespace}:1"
    assert (document["ums_active_"], document["ums_op_"], document["name"]) == (0, "d", "a")


def test_an_index_with_another_mapping(rig: Callable[..., Rig], reader: Reader) -> None:
    search = rig()
    properties = {"amount": {"type": "object"}, "count": {"type": "boolean"}, "name": {"type": "keyword"}}
    reader.ask("PUT", f"/{search.table.namespace}", {"mappings": {"properties": properties}})
    with pytest.raises(SchemaRefused) as refused:
        search.write(change("i", 1, id=1, name="a"))
    assert "amount is object there, and its values need double; count is boolean there" in str(refused.value)
    assert reader.documents(search.table.namespace) == {}


def test_an_index_that_is_deleted_meanwhile(rig: Callable[..., Rig], reader: Reader) -> None:
    search = rig()
    search.write(change("i", 1, id=1, name="a"))
    reader.ask("DELETE", f"/{search.table.namespace}")
    reader.ask("PUT", "/_cluster/settings", {"persistent": {"action.auto_create_index": "false"}})
    try:
        data = search.batch(change("i", 2, id=2, name="b"))
        with pytest.raises(Retriable, match="index_not_found_exception"):
            search.sink.write(data.frames(search.spark))
        search.sink.write(data.frames(search.spark))
    finally:
        reader.ask("PUT", "/_cluster/settings", {"persistent": {"action.auto_create_index": None}})
    assert list(reader.documents(search.table.namespace)) == ["2"]
    assert reader.fields(search.table.namespace)["name"]["type"] == "text"


def test_a_bad_document_does_not_stop_its_neighbours(rig: Callable[..., Rig], reader: Reader) -> None:
    search = rig()
    with pytest.raises(
        Fatal, match=r"offset \d+ with id=1 is refused: OpenSearch .*mapper_parsing_exception.*Infinity"
    ):
        search.write(change("i", 1, id=1, amount=float("inf")), change("i", 2, id=2, amount=1.0))
    assert list(reader.documents(search.table.namespace)) == ["2"]


def test_tables_that_would_share_an_index(rig: Callable[..., Rig]) -> None:
    search = rig(index="${table}")
    search.write(change("i", 1, id=1))
    twin = TableSchema(search.table.namespace.replace("shop.", "store."), COLUMNS)
    data = search.feed.next([(twin, [change("i", 2, id=1)])])
    with pytest.raises(Fatal, match=r"would both be written to .* in sink\.opensearch\.index or sink\.opensearch\.id"):
        search.sink.write(data.frames(search.spark))


def test_tables_that_steps_make_of_one_record_share_an_index(rig: Callable[..., Rig], reader: Reader) -> None:
    name = f"all-{secrets.token_hex(4)}"
    search = rig(index=name, mode="insert")
    data = search.feed.next([(search.table, [change("i", 1, id=1)])])
    data.tables.append((TableSchema("shop.other", COLUMNS), data.tables[0][1]))
    for _ in range(2):
        search.sink.write(data.frames(search.spark))
    assert len(reader.documents(name)) == 2


def test_refusals(rig: Callable[..., Rig]) -> None:
    search = rig()
    assert not search.sink.refusal(search.table)
    keyless = TableSchema("shop.k", (Column("_id", StringType()), Column("name", StringType())))
    assert "has no primary key" in search.sink.refusal(keyless)
    assert "the column _id, a name that OpenSearch has" in rig(key_columns="name").sink.refusal(keyless)
    assert "names the column name, which is not in the row's key" in rig(id="${column:name}").sink.refusal(search.table)
    assert "has no column town" in rig(key_columns="town").sink.refusal(search.table)


def test_tls(rig: Callable[..., Rig], opensearch: OpenSearch, reader: Reader, tmp_path: Path) -> None:
    with tls_door(opensearch.port or 0, tmp_path) as (port, authority):
        url = f"https://localhost:{port}"
        refused = rig(url)
        (complaint,) = refused.sink.check(refused.sink.context.config)
        assert complaint.startswith("sink.opensearch.ssl.root.cert: ")
        trusting = rig(url, **{"ssl.root.cert": str(authority)})
        assert trusting.sink.check(trusting.sink.context.config) == []
        trusting.write(change("i", 1, id=1, name="a"))
        assert list(reader.documents(trusting.table.namespace)) == ["1"]


@pytest.mark.slow
@pytest.mark.proves("into opensearch", "exactly-once", killed=["server"])
def test_a_server_that_is_killed(rig: Callable[..., Rig], tmp_path: Path) -> None:
    with OpenSearch(tmp_path, port=None, jvm_options=FAST_START) as server:
        search = rig(server.url, batch_rows="10")
        first = search.batch(*(change("i", n, id=n, name="a") for n in range(100)))
        search.sink.write(first.frames(search.spark))
        second = search.batch(
            *(change("u", 200 + n, id=n, name="b") for n in range(50)),
            *(change("d", 300 + n, id=50 + n) for n in range(50)),
        )
        server.service.kill()
        with pytest.raises(Retriable):
            search.sink.write(second.frames(search.spark))
        server.service.start()
        for data in (second, first, second):
            search.sink.write(data.frames(search.spark))
        documents: dict[str, Any] = Reader(server.url).documents(search.table.namespace)
        assert {name: document["name"] for name, document in documents.items()} == {str(n): "b" for n in range(50)}
