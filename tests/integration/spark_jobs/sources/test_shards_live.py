"""Shards of one logical table over real Kafka, registry and Spark: the same rows in every encoding, the same refusal."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Fatal
from connectors.schema import INT64, OPTIONAL_STRING, STRING, struct
from spark_jobs.sources.debezium import DebeziumSource
from spark_jobs.sources.ums import UmsSource
from spark_jobs.spark.causes import cause_of
from tests.integration.spark_jobs.sources.test_sources_live import Bench, rows
from tests.unit.spark_jobs.test_shards import event, ums_message
from worker.converters.avro import AvroConverter
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.registry import SchemaRegistry

# One of the longest files: other tests go the same ways in every run.
pytestmark = pytest.mark.slow

#: The database partition, the table partition, the key and a value: keys are equal over shards.
ROWS = [(1, 2, 1, "a"), (1, 3, 1, "b"), (0, 0, 2, "c"), (2, 3, 1, "d")]
ROW = struct("p.shop.orders.Value", {"id": INT64, "v": OPTIONAL_STRING}, optional=True)
SOURCE = struct(
    "p.Source",
    {
        "db": STRING,
        "table": STRING,
        "ums_id": INT64,
        "logical_db": STRING,
        "logical_table": STRING,
        "database_partition": INT64,
        "table_partition": INT64,
    },
)
ENVELOPE = struct("p.shop.orders.Envelope", {"before": ROW, "after": ROW, "source": SOURCE, "op": STRING})
KEY = struct("p.shop.orders.Key", {"id": INT64, "__dbz__physicalTableIdentifier": STRING})
OPTIONS: dict[str, dict[str, str]] = {"ums": {"source.key.columns": "id"}}
FORMS = ["ums", "json", "enveloped", "avro"]


@pytest.fixture(scope="module")
def bench(spark: SparkSession, bootstrap: str, registry: SchemaRegistry) -> Callable[[str], Bench]:
    run = secrets.token_hex(4)
    return lambda name: Bench(spark, bootstrap, f"shards-{name}-{run}", registry.url)


async def send(to: Bench, form: str, rows: Sequence[tuple[int, int, int, str]]) -> None:
    """Write one record per row."""
    if form == "ums":
        to.send([(b"k", ums_message(database, table, [(number, text)])) for database, table, number, text in rows])
        return
    converters: list[Any] = [
        AvroConverter({"schema.registry.url": to.registry}, is_key=is_key)
        if form == "avro"
        else JsonConverter({"schemas.enable": str(form == "enveloped").lower()}, is_key=is_key)
        for is_key in (True, False)
    ]
    keys, values = converters
    await keys.prepare(to.topic, KEY)
    await values.prepare(to.topic, ENVELOPE)
    to.send(
        [
            (
                keys.from_connect(
                    to.topic, KEY, {"id": number, "__dbz__physicalTableIdentifier": f"shop_{database}.orders_{table}"}
                ),
                values.from_connect(to.topic, ENVELOPE, event(database, table, {"id": number, "v": text}, op=op)),
            )
            for (database, table, number, text), op in zip(rows, "cud" * len(rows), strict=False)
        ]
    )
    await keys.close()
    await values.close()


def source(to: Bench, form: str, checkpoint: Path, shards: str) -> Any:
    return to.source(
        UmsSource if form == "ums" else DebeziumSource,
        "avro" if form == "avro" else "json",
        **{"checkpoint.location": str(checkpoint), "sink.shards": shards, **OPTIONS.get(form, {})},
    )


@pytest.mark.parametrize("form", FORMS)
def test_each_value_of_the_option(bench: Callable[[str], Bench], tmp_path: Path, form: str) -> None:
    to = bench(form)
    asyncio.run(send(to, form, ROWS))
    name = "mysql.i.shop.orders.3.0.0" if form == "ums" else "shop.orders"
    (separate,) = to.changes(source(to, form, tmp_path / "separate", "separate"))
    assert (separate.schema.namespace, [column.name for column in separate.schema.key]) == (
        name,
        ["database_partition", "table_partition", "id"],
    )
    assert [(row["database_partition"], row["table_partition"], row["id"], row["v"]) for row in rows(separate)] == ROWS
    (merged,) = to.changes(source(to, form, tmp_path / "merge", "merge"))
    assert (merged.schema.namespace, [column.name for column in merged.schema.columns]) == (name, ["id", "v"])
    assert [(row["id"], row["v"]) for row in rows(merged)] == [row[2:] for row in ROWS]
    with pytest.raises(Fatal, match=r"another name"):
        to.changes(source(to, form, tmp_path / "merge", "separate"))

    # One shard, whatever its numbers, is as it always was; another one is refused, also after a restart.
    (single,) = to.changes(source(to, form, tmp_path / "refuse", "refuse"), 0, 1)
    assert [(row["id"], row["v"]) for row in rows(single)] == [(1, "a")]
    restarted = source(to, form, tmp_path / "refuse", "refuse")
    for run in (restarted, source(to, form, tmp_path / "new", "refuse")):
        with pytest.raises(Exception, match=r"several shards: .*1\.2.*sink\.shards=separate") as refused:  # noqa: PT012
            for changes in to.changes(run, 1 if run is restarted else 0):
                changes.frame.collect()
        assert isinstance(cause_of(refused.value), Fatal)
    asyncio.run(send(to, form, [(1, 2, 3, "e")]))
    (later,) = to.changes(source(to, form, tmp_path / "refuse", "refuse"), len(ROWS))
    assert [(row["id"], json.dumps(row["v"])) for row in rows(later)] == [(3, '"e"')]
