"""A Scylla table's UUIDs, decimals and times, by the connector and Kafka (JSON and Avro) into PostgreSQL."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import asyncio
import time
import uuid
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.scylla.client import Emulation
from compose.local.scylla.writes import Insert
from spark_jobs.sources.debezium import DebeziumSource
from tests.integration.scylla.test_reader_live import Rig as Reader
from tests.integration.spark_jobs.jdbc.test_types_whole_path import encoded
from tests.integration.spark_jobs.sources.test_sources_live import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from compose.local.registry import SchemaRegistry
    from compose.local.scylla.emulation import ScyllaEmulation
    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

pytestmark = pytest.mark.slow
TYPES = {
    "pk": "uuid",
    "ck": "timeuuid",
    "price": "decimal",
    "whole": "varint",
    "at": "time",
    "seen": "timestamp",
    "day": "date",
    "txt": "text",
}
VALUES: dict[str, Any] = {
    "pk": uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f"),
    "ck": uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f"),
    "price": Decimal("-12345.678900"),
    "whole": -(10**37),
    "at": 49_559_123_456_789,
    "seen": datetime(2026, 3, 29, 2, 30, 0, 123000, UTC),
    "day": date(2024, 2, 29),
    "txt": "ü",
}
EXPECTED = {**VALUES, "at": time_of_day(13, 45, 59, 123456)}
NAMED = {"decimal_handling_mode": "precise", "varint_handling_mode": "precise", "scylla_logical_types": "named"}
KINDS = {
    "pk": "uuid",
    "ck": "uuid",
    "price": "numeric",
    "whole": "numeric",
    "at": "time without time zone",
    "seen": "timestamp with time zone",
    "day": "date",
    "txt": "text",
}
PLAIN_KINDS = {**KINDS, "pk": "text", "ck": "text", "price": "text", "whole": "text", "at": "bigint"}


async def test_types_arrive_as_such_where_the_options_name_them(
    scylla_node: ScyllaEmulation,
    rig: Callable[..., Rig],
    postgresql: Database,
    table: str,
    spark: SparkSession,
    bootstrap: str,
    registry: SchemaRegistry,
) -> None:
    client = Emulation(scylla_node.address)
    keyspace = f"k{table}"
    full = f"{keyspace}.things"
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    await asyncio.to_thread(client.create_keyspace, keyspace, tablets=False, initial_tablets=4)
    await asyncio.to_thread(
        client.create_table,
        f"CREATE TABLE {full} ({columns}, PRIMARY KEY (pk, ck)) WITH "
        "cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}",
    )
    await asyncio.to_thread(client.new_generation, 4, 2, start_ms=int(time.time() * 1000) - 60_000)
    await asyncio.to_thread(client.apply, Insert(full, VALUES))
    await asyncio.to_thread(
        client.apply, Insert(full, {**dict.fromkeys(VALUES), "pk": uuid.UUID(int=0), "ck": VALUES["ck"]})
    )
    for name, options, kinds in (("named", NAMED, KINDS), ("plain", {}, PLAIN_KINDS)):
        reader = Reader(
            scylla_node.address,
            full,
            scylla_initial_lookback_ms="50000",
            cdc_output_format="advanced",
            cdc_include_before="full",
            cdc_include_after="full",
            **options,
        )
        (task,) = await reader.tasks()
        records = await reader.take(task, lambda got: len(got) >= 2)
        for encoding, url in (("enveloped", ""), ("avro", registry.url)):
            bench = Bench(spark, bootstrap, f"{table}-{name}-{encoding}", url)
            bench.send(await encoded(records, bench.topic, url))
            target = f"{table}_{name}_{encoding}"
            into = rig(postgresql, spark, **{"sink.jdbc.table": target})
            changes = await asyncio.to_thread(bench.changes, bench.source(DebeziumSource, encoding))
            assert into.sink.write(into.batch(*changes)) == 2
            column_types = dict(
                postgresql.query(
                    "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s", (target,)
                )
            )
            assert {column: column_types[column] for column in kinds} == kinds
            if name == "named":
                empty, row = postgresql.query(f"SELECT {', '.join(TYPES)} FROM {target} ORDER BY pk")
                assert dict(zip(TYPES, row, strict=True)) == EXPECTED, encoding
                assert empty == (uuid.UUID(int=0), VALUES["ck"], *[None] * 6), encoding
    client.close()
