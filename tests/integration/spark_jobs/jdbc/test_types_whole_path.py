"""A MariaDB table with columns of many types, by the connector and Kafka (JSON and Avro) into PostgreSQL and Parquet."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from spark_jobs.contract import Batch
from spark_jobs.sources.debezium import DebeziumSource
from tests.integration.spark_jobs.files.conftest import Sinks
from tests.integration.spark_jobs.jdbc.mysql_pipeline import Pipeline, sink
from tests.integration.spark_jobs.sources.test_sources_live import Bench
from worker.converters.avro import AvroConverter
from worker.converters.json import JsonConverter
from worker.verify.messages import VerificationRequest
from worker.verify.targets import TargetVerification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.mariadb import MariaDb
    from compose.local.registry import SchemaRegistry
    from connectors.api import SourceRecord
    from connectors.verify.rows import TableReport
    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

#: Column, its type at the source, in PostgreSQL, and a value as the source's SQL has it.
COLUMNS = [
    ("id", "UUID PRIMARY KEY", "uuid", "'50554d6e-29bb-11e5-b345-feff819cdc9f'"),
    ("price", "DECIMAL(20,4)", "numeric", "-1234567890123456.7890"),
    ("big", "DECIMAL(38,10)", "numeric", "1234567890123456789012345678.0000000001"),
    ("at", "TIME(6)", "time without time zone", "'23:59:59.999999'"),
    ("whole", "TIME", "time without time zone", "'00:00:01'"),
    ("made", "DATETIME(6)", "timestamp without time zone", "'2026-03-29 02:30:00.123456'"),
    ("ms", "DATETIME(3)", "timestamp without time zone", "'1969-12-31 23:59:59.999'"),
    ("seen", "TIMESTAMP(6) NULL", "timestamp with time zone", "'2026-11-23 13:00:00.000001'"),
    ("day", "DATE", "date", "'2024-02-29'"),
    ("yr", "YEAR", "integer", "2155"),
    ("flags", "BIT(9)", "bytea", "b'100000010'"),
    ("kind", "ENUM('a','b')", "text", "'b'"),
    ("kinds", "SET('x','y')", "text", "'x,y'"),
    ("doc", "JSON", "text", """'{"a": [1, null]}'"""),
    ("raw", "VARBINARY(10)", "bytea", "x'00ff0a5c'"),
    ("num", "BIGINT", "bigint", "-9223372036854775808"),
    ("dbl", "DOUBLE", "double precision", "0.1"),
    ("txt", "TEXT", "text", "'tab\\t \\\\ ü 😀'"),
    ("yes", "BOOLEAN", "smallint", "1"),
]
NAMES = [name for name, *_ in COLUMNS]


@pytest.fixture
def pipeline(mariadb: MariaDb, spark: SparkSession, bootstrap: str) -> Iterator[Pipeline]:
    pipeline = Pipeline(mariadb, spark, bootstrap, ["shop"])
    try:
        yield pipeline
    finally:
        pipeline.close()


async def encoded(
    records: Sequence[SourceRecord], topic: str, registry: str
) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values in Avro with a registry, or in JSON with schemas."""
    converters: list[Any] = [
        AvroConverter({"schema.registry.url": registry}, is_key=key)
        if registry
        else JsonConverter({"schemas.enable": "true"}, is_key=key)
        for key in (True, False)
    ]
    keys, values = converters
    result = []
    for record in records:
        await keys.prepare(topic, record.key_schema)
        await values.prepare(topic, record.value_schema)
        result.append(
            (
                keys.from_connect(topic, record.key_schema, record.key),
                values.from_connect(topic, record.value_schema, record.value),
            )
        )
    for converter in converters:
        await converter.close()
    return result


async def test_types_arrive_as_such_in_postgresql_and_parquet(
    pipeline: Pipeline,
    rig: Callable[..., Rig],
    postgresql: Database,
    spark: SparkSession,
    bootstrap: str,
    registry: SchemaRegistry,
    tmp_path: Path,
) -> None:
    table = f"{pipeline.databases[0]}.things"
    pipeline.sql(
        "SET time_zone = '+00:00'",
        f"CREATE TABLE {table} ({', '.join(f'`{n}` {t}' for n, t, *_ in COLUMNS)}) CHARACTER SET utf8mb4",
    )
    records = await pipeline.capture(
        "debezium",
        f"INSERT INTO {table} VALUES ({', '.join(value for *_, value in COLUMNS)})",
        f"INSERT INTO {table} (id) VALUES ('ffffffff-ffff-ffff-ffff-ffffffffffff')",
    )
    records = [record for record in records if record.value["source"]["table"] == "things"]
    listed = ", ".join(f"`{name}`" for name in NAMES)
    expected = [from_source(row) for row in pipeline.sql(f"SELECT {listed} FROM {table} ORDER BY id")]
    assert len(expected) == len(records) == 2
    for encoding, url in (("enveloped", ""), ("avro", registry.url)):
        bench = Bench(spark, bootstrap, f"{pipeline.prefix}-{encoding}", url)
        bench.send(await encoded(records, bench.topic, url))
        source = bench.source(DebeziumSource, encoding)
        first = await asyncio.to_thread(bench.changes, source)
        second = await asyncio.to_thread(bench.changes, source)
        # The second batch shows nothing new: its rows go to the sink in Arrow.
        assert [table.packed is not None for table in (*first, *second)] == [False, True]
        for name, tables in (
            (f"{pipeline.prefix}_{encoding}", first),
            (f"{pipeline.prefix}_{encoding}_second", second),
        ):
            options = {"sink.jdbc.table": name, "sink.jdbc.repartition": "never"}
            into = sink(rig, postgresql, spark, pipeline, **options)
            assert into.sink.write(into.batch(*tables)) == 2
            listed = ", ".join(f'"{column}"' for column in NAMES)
            rows = postgresql.query(f"SELECT {listed} FROM {name} ORDER BY id")
            assert differences(map(from_postgresql, rows), expected) == [], name
            types = dict(
                postgresql.query(
                    "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s", (name,)
                )
            )
            assert {column: types[column] for column in NAMES} == {column: kind for column, _, kind, _ in COLUMNS}
            report = await verify_table(bench.topic, bootstrap, postgresql, name, url)
            assert report.equal, report
        files = Sinks(spark, tmp_path / encoding)
        assert files.make().write(Batch(0, None, {(bench.topic, 0): (0, 2)}, lambda first=first: first)) == 2  # type: ignore[arg-type, misc]
        read = [row for file in files.path.rglob("*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
        assert differences(map(from_parquet, sorted(read, key=lambda row: row["id"])), expected) == [], encoding


async def verify_table(topic: str, bootstrap: str, database: Database, table: str, registry: str) -> TableReport:
    """The comparison of a topic with the table that a flow has written."""
    encoding = "avro" if registry else "json"
    flow = {
        "source.topics": topic,
        "source.format": "debezium",
        "source.value.encoding": encoding,
        "source.key.encoding": encoding,
        **({"source.schema.registry.url": registry} if registry else {}),
        "sink.type": "jdbc",
        "sink.jdbc.table": table,
        **database.options,
    }
    request = VerificationRequest(lambda _: True, settle_s=0.1)
    (report,) = await TargetVerification(flow, {"bootstrap.servers": bootstrap}, request).run()
    return report


def differences(rows: Iterable[dict[str, Any]], expected: list[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    """Columns whose values differ, with both values."""
    return [
        (name, row[name], other[name])
        for row, other in zip(rows, expected, strict=True)
        for name in NAMES
        if row[name] != other[name]
    ]


def from_source(row: tuple[Any, ...]) -> dict[str, Any]:
    """A row as PyMySQL reads it; bits are big-endian, a moment has no zone and is in UTC."""
    value = dict(zip(NAMES, row, strict=True))
    if value["price"] is not None:
        value |= {"flags": int.from_bytes(value["flags"], "big"), "seen": value["seen"].replace(tzinfo=UTC)}
    return value


def from_postgresql(row: tuple[Any, ...]) -> dict[str, Any]:
    value = dict(zip(NAMES, row, strict=True))
    value["id"] = str(value["id"])
    if value["price"] is not None:
        times = {
            name: datetime.combine(value["day"], value[name]) - datetime.combine(value["day"], datetime.min.time())
            for name in ("at", "whole")
        }
        value |= {"flags": int.from_bytes(value["flags"], "little"), **times}
    return value


def from_parquet(row: dict[str, Any]) -> dict[str, Any]:
    """Times of the day are nanoseconds; all timestamps are moments in UTC, also those that had no zone in the source."""
    value = {name: row[name] for name in NAMES}
    if value["price"] is not None:
        assert isinstance(value["price"], Decimal)
        times = {name: timedelta(microseconds=value[name] // 1000) for name in ("at", "whole")}
        stamps = {name: stamp for name, stamp in value.items() if isinstance(stamp, datetime)}
        assert {str(stamp.tzinfo) for stamp in stamps.values()} == {"UTC"}
        local = {name: stamp.replace(tzinfo=None) for name, stamp in stamps.items() if name != "seen"}
        value |= {"flags": int.from_bytes(value["flags"], "little"), **times, **local}
    return value
