"""Versions, deletes, families and row keys in a real HBase; tables that do not fit; TLS; a server that is killed."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import IntegerType, StringType

from compose.local.targets.hbase import HBase
from connectors.errors import Fatal, Retriable
from spark_jobs.contract import Column, SchemaRefused, TableSchema
from spark_jobs.sinks.hbase.client import HBaseClient
from spark_jobs.sinks.hbase.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.hbase.sink import HBaseSink
from spark_jobs.sinks.shared.model import RowTable, SinkRow
from spark_jobs.testing.batches import BatchFeed, change
from spark_jobs.testing.kit import key_column, make_sink, parse_config
from tests.integration.spark_jobs.hbase.conftest import Reader
from tests.support.eventually import eventually
from tests.support.tls_door import tls_door
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from connectors.options import Config
    from spark_jobs.contract import Sink
    from spark_jobs.testing.batches import Change

COLUMNS = (
    key_column("id", IntegerType()),
    key_column("region", StringType()),
    Column("name", StringType()),
    Column("city", StringType()),
)
OFFSET = 10_000_000_000


class Rig:
    """A sink, and a table of the test's own."""

    def __init__(self, address: str, spark: SparkSession, options: dict[str, str]) -> None:
        self.spark = spark
        self.table = TableSchema(f"shop.t{secrets.token_hex(4)}", COLUMNS)
        self.feed = BatchFeed(f"topic-{secrets.token_hex(4)}")
        self.sink: Sink = make_sink(
            parse_config(
                {
                    "name": "hbase",
                    "kafka.bootstrap.servers": "127.0.0.1:1",
                    "source.topics": self.feed.topic,
                    "source.format": "plain",
                    "sink.type": "hbase",
                    "sink.hbase.address": address,
                    "sink.hbase.timeout.ms": "60000",
                    "sink.hbase.retry.backoff.ms": "10",
                    **{f"sink.hbase.{name}": value for name, value in options.items()},
                }
            ),
            spark,
        )

    @property
    def name(self) -> str:
        return self.table.namespace

    def write(self, *changes: Change) -> int:
        return self.sink.write(self.feed.next([(self.table, changes)]).frames(self.spark))


@pytest.fixture
def rig(hbase: HBase, spark: SparkSession) -> Callable[..., Rig]:
    return lambda address=hbase.address, **options: Rig(
        address, spark, {name.replace("_", "."): value for name, value in options.items()}
    )


def options_of(address: str, **options: str) -> Config:
    named = {f"sink.hbase.{name.replace('_', '.')}": value for name, value in options.items()}
    return CONFIG_DEF.parse({"sink.hbase.address": address, "sink.hbase.timeout.ms": "20000", **named})


def test_versions_are_order_numbers_and_the_last_three_stay(rig: Callable[..., Rig], reader: Reader) -> None:
    rows = rig(column_families="city=place")
    for order, name in ((-5, "a"), (20, "c"), (10, "b"), (40, "e"), (30, "d")):
        rows.write(change("u", order, id=1, region="e:u", name=name, city="Rome"))
    cells = reader.cells(rows.name, versions=10)["1:e%3Au"]
    assert cells["cf:name"] == [(OFFSET + 40, b"e"), (OFFSET + 30, b"d"), (OFFSET + 20, b"c")]
    assert [version for version, _ in cells["place:city"]] == [OFFSET + 40, OFFSET + 30, OFFSET + 20]
    assert cells["cf:ums_id_"][0] == (OFFSET + 40, b"40")
    # A null hides the values that are not newer, also those that come later; a delete hides the row.
    rows.write(change("u", 50, id=1, region="e:u", name="f"))
    rows.write(change("u", 45, id=1, region="e:u", name="late", city="Oslo"))
    assert "place:city" not in reader.cells(rows.name)["1:e%3Au"]
    rows.write(change("d", 60, id=1, region="e:u"))
    rows.write(change("u", 55, id=1, region="e:u", name="late", city="Oslo"))
    assert reader.cells(rows.name) == {}
    rows.write(change("i", 61, id=1, region="e:u", name="g", city="Bonn"))
    assert reader.cells(rows.name)["1:e%3Au"]["cf:name"] == [(OFFSET + 61, b"g")]


@pytest.mark.slow
def test_deletes_are_kept_where_the_sink_creates_the_family(rig: Callable[..., Rig], reader: Reader) -> None:
    kept, dropped = rig(versions="5"), rig(keep_deletes="false")
    for rows in (kept, dropped):
        rows.write(change("i", 1, id=1, region="eu"))
    family = reader.family(kept.name, "cf")
    assert (family.versions, family.configuration) == (5, {"hbase.hstore.time.to.purge.deletes": str((1 << 63) - 1)})
    assert not reader.family(dropped.name, "cf").configuration


@pytest.mark.slow
def test_a_delete_is_remembered_through_a_major_compaction(spark: SparkSession, tmp_path: Path) -> None:
    # All files of a family are compacted as soon as there are two.
    eager = {
        "hbase.hstore.compaction.min": "2",
        "hbase.server.thread.wakefrequency": "500",
        "hbase.server.compactchecker.interval.multiplier": "1",
        "hbase.hfile.compaction.discharger.interval": "500",
    }
    with HBase(tmp_path, port=None, jvm_options=FAST_START, settings=eager) as server:
        reader = Reader(server.address)
        kept, dropped = (Rig(server.address, spark, {"keep.deletes": keep}) for keep in ("true", "false"))
        for rows in (kept, dropped):
            for order, op in ((10, "i"), (30, "d")):
                rows.write(change(op, order, id=1, region="eu"), change("i", order, id=2, region="eu"))
                for request in ("disableTable", "enableTable"):  # writes what is in memory to a file
                    reader.connection.ask(request, reader.name(rows.name))
            eventually(partial(are_compacted, tmp_path, rows.name), "the files are one", every=0.2)
            rows.write(change("u", 20, id=1, region="eu"))
        stored = {name: list(reader.cells(name)) for name in (kept.name, dropped.name)}
        reader.connection.close()
    assert stored == {kept.name: ["2:eu"], dropped.name: ["1:eu", "2:eu"]}


def are_compacted(folder: Path, table: str) -> bool:
    """Whether the only family of a table has one file."""
    files = folder.glob(f"data/data/default/{table}/*/cf/*")
    return sum(path.is_file() and path.suffix == "" for path in files) == 1


@pytest.mark.slow
def test_a_soft_delete_keeps_the_row(rig: Callable[..., Rig], reader: Reader) -> None:
    rows = rig(delete_mode="soft")
    rows.write(change("i", 1, id=1, region="eu", name="a"), change("i", 2, id=2, region="eu", name="b"))
    rows.write(change("d", 3, id=1, region="eu"))
    stored = reader.cells(rows.name)
    assert stored["1:eu"]["cf:name"] == [(OFFSET + 1, b"a")]
    assert [stored[key]["cf:ums_active_"][0][1] for key in ("1:eu", "2:eu")] == [b"0", b"1"]


@pytest.mark.slow
def test_row_keys(rig: Callable[..., Rig], reader: Reader) -> None:
    row = change("i", 1, id=12, region="eu", name="a")
    for options, key in (
        ({"row.key.form": "reversed"}, "ue:21"),
        ({"row.key.form": "hashed"}, "9f5ce665_12:eu"),
        ({"row.key": "${column:region}_${column:id}"}, "eu_12"),
    ):
        rows = rig(**options)
        rows.write(row)
        assert list(reader.cells(rows.name)) == [key]
    assert "is not in the row's key" in rig(row_key="${key}-${column:name}").sink.refusal(rows.table)


@pytest.mark.slow
def test_each_change_is_a_row(rig: Callable[..., Rig], reader: Reader) -> None:
    rows = rig(mode="insert")
    rows.write(change("i", 1, id=1, region="eu", name="a"), change("d", 2, id=1, region="eu"))
    first, second = sorted(reader.cells(rows.name).items())
    assert first[0].startswith("1:eu:0000000010000000001:i:")
    assert second[1]["cf:ums_op_"][0][1] == b"d"


@pytest.mark.slow
def test_rows_that_can_not_be_written_are_named(rig: Callable[..., Rig]) -> None:
    with pytest.raises(Fatal, match=r"its order number -10000000001 with sink.hbase.version.offset"):
        rig().write(change("i", -OFFSET - 1, id=1, region="eu"))
    with pytest.raises(Fatal, match=r"id=2, .*its row key has 40002 bytes; HBase takes 1 to 32767"):
        rig().write(change("i", 1, id=1, region="eu"), change("i", 2, id=2, region="x" * 40_000))
    with pytest.raises(Fatal, match=r"id=2, .*HBase refuses it.* hbase.client.keyvalue.maxsize"):
        rig().write(change("i", 1, id=1, region="eu"), change("i", 2, id=2, region="eu", name="x" * (11 << 20)))


@pytest.mark.slow
def test_a_refused_row_hides_no_value(reader: Reader, hbase: HBase) -> None:
    table = f"t{secrets.token_hex(4)}"
    reader.create(table, "cf", attributes={"hbase.server.keyvalue.maxsize": "1000"})
    chosen = parse_settings(options_of(hbase.address, table=table))
    rows = RowTable(f"shop.{table}", tuple(column.name for column in COLUMNS), ("id", "region"))
    client = HBaseClient(chosen, table, {column.name: column.type.typeName() for column in COLUMNS}, rows)
    refused: list[tuple[SinkRow, str]] = []
    for order, name, city in ((1, "a", "Rome"), (2, "x" * 2000, None)):
        values = {"id": 1, "region": "eu", "name": name, "city": city}
        instant = datetime(2026, 1, 1, tzinfo=UTC)
        client.write([SinkRow(values, order, instant, "u", "", "topic", 0, order, 0)], refused.extend)
    client.close()
    ((row, reason),) = refused
    assert row.order == 2
    assert "exceeds limit of 1000 bytes" in reason
    assert reader.cells(table)["1:eu"]["cf:city"] == [(OFFSET + 1, b"Rome")]


@pytest.mark.slow
def test_tables_that_do_not_fit_are_refused(rig: Callable[..., Rig], reader: Reader, hbase: HBase) -> None:
    table = f"t{secrets.token_hex(4)}"
    reader.create(table, "old")
    named = {"table": table, "auto_create": "false"}
    (family,) = HBaseSink.check(options_of(hbase.address, **named))
    assert family.startswith(f"sink.hbase.table: the table {table} lacks the column family cf; it has old")
    with pytest.raises(SchemaRefused, match="lacks the column family cf"):
        rig(**named).write(change("i", 1, id=1, region="eu"))
    rig(table=table).write(change("i", 1, id=1, region="eu", name="a"))
    assert reader.cells(table)["1:eu"]["cf:name"] == [(OFFSET + 1, b"a")]
    mortal = f"t{secrets.token_hex(4)}"
    reader.create(mortal, "cf", ttl_s=86_400)
    (ttl,) = HBaseSink.check(options_of(hbase.address, table=mortal))
    assert f"the table {mortal} has a TTL on the family cf" in ttl
    with pytest.raises(Fatal, match="Create the namespace that"):
        rig(table="nowhere:${table}").write(change("i", 1, id=1, region="eu"))


@pytest.mark.slow
def test_check_says_that_no_server_is_there(hbase: HBase) -> None:
    assert HBaseSink.check(options_of(hbase.address)) == []
    (away,) = HBaseSink.check(options_of("127.0.0.1:1", timeout_ms="2000"))
    assert away.startswith("sink.hbase.address: HBase's Thrift server 127.0.0.1:1: ")


@pytest.mark.slow
def test_tls(rig: Callable[..., Rig], hbase: HBase, reader: Reader, tmp_path: Path) -> None:
    with tls_door(hbase.port or 0, tmp_path) as (port, authority):
        trusted: dict[str, Any] = {"ssl.mode": "verify-full", "ssl.root.cert": str(authority)}
        rows = rig(f"localhost:{port}", **trusted)
        rows.write(change("i", 1, id=1, region="eu", name="a"))
        assert reader.cells(rows.name)["1:eu"]["cf:name"] == [(OFFSET + 1, b"a")]
        (complaint,) = HBaseSink.check(options_of(f"localhost:{port}", ssl_mode="verify-full"))
        assert complaint.startswith("sink.hbase.ssl.root.cert: ")


@pytest.mark.slow
@pytest.mark.proves("into hbase", "exactly-once", killed=["server"])
def test_a_server_that_is_killed_keeps_what_it_confirmed(spark: SparkSession, tmp_path: Path) -> None:
    with HBase(tmp_path, port=None, jvm_options=FAST_START) as server:
        rows = Rig(server.address, spark, {"timeout.ms": "20000", "retries": "0"})
        rows.write(*(change("i", number + 1, id=number, region="eu", name=f"a{number}") for number in range(500)))
        update = [change("u", 1000 + number, id=number, region="eu", name=f"b{number}") for number in range(250)]
        batch = rows.feed.next([(rows.table, update)]).frames(spark)
        server.kill()
        server.master.kill()
        with pytest.raises(Retriable):
            rows.sink.write(batch)
        server.start()
        rows.sink.write(batch)
        asks = Reader(server.address)
        try:
            stored = asks.cells(rows.name)
        finally:
            asks.connection.close()
    assert {key: cells["cf:name"] for key, cells in stored.items()} == {
        f"{number}:eu": [(OFFSET + 1000 + number, f"b{number}".encode())]
        if number < 250
        else [(OFFSET + number + 1, f"a{number}".encode())]
        for number in range(500)
    }
