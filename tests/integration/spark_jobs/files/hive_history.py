"""Writes a history that is registered in an embedded Hive metastore: ``python -m ... FOLDER FORMAT``; prints JSON of each step.

A session's catalog can't be changed, so this is a process of its own.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DecimalType, IntegerType, LongType, StringType, StructField, StructType, TimestampNTZType

from connectors.errors import Fatal
from connectors.options import Config
from spark_jobs.contract import Column, JobContext, TableSchema
from spark_jobs.sinks.files.config import CONFIG
from spark_jobs.sinks.files.sink import FilesSink
from spark_jobs.spark.session import build_session
from tests.support.history_model import Change, Shape, batch
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NESTED = StructType([StructField("zip code", StringType())])
BEFORE = Shape("shop.Orders", "id", {"id": LongType(), "Amount €": IntegerType(), "state": StringType()})
AFTER = Shape(
    "shop.Orders", "id", {**BEFORE.columns, "Amount €": DecimalType(12, 2), "address": NESTED, "state": StringType()}
)


def sink_of(spark: SparkSession, folder: Path, kind: str) -> FilesSink:
    """A new run of the job."""
    raw = {
        "sink.files.path": str(folder / "history"),
        "sink.files.format": kind,
        "sink.files.partition.by": "namespace/date/by={column:state}",
        "sink.files.rolling.inactivity.ms": "0",
        "sink.files.compact.files": "2",
        "sink.files.retention.ms": "0",
        "sink.files.hive.database": "lake",
        "spark.sql.catalogImplementation": "hive",
    }
    of_sink = {name: value for name, value in raw.items() if name.startswith("sink.")}
    config = Config(dict(CONFIG.parse(of_sink)), raw)
    assert FilesSink.validate(config) == []
    return FilesSink(JobContext("hive", config, spark, logging.LoggerAdapter(logging.getLogger("hive"), {})))


def failure(step: Any) -> str:
    """The text of the ``Fatal`` that a step ends with."""
    try:
        step()
    except Fatal as error:
        return str(error)
    raise AssertionError("expected Fatal")


def main() -> None:
    """Print what Hive has after each step."""
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    spark = build_session(
        "hive",
        master="local[2]",
        conf={
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": " ".join([*FAST_START, f"-Dderby.stream.error.file={folder}/derby.log"]),
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        },
    )
    seen: dict[str, Any] = {"no_database": failure(lambda: sink_of(spark, folder, kind).open())}
    spark.sql("CREATE DATABASE lake")
    sink = sink_of(spark, folder, kind)
    sink.open()

    def look(columns: str) -> list[list[Any]]:
        rows = spark.sql(f"SELECT {columns} FROM lake.shop_orders ORDER BY id").collect()  # noqa: S608 - the test's own
        return [[value if isinstance(value, int | None) else str(value) for value in row] for row in rows]

    def partitions() -> list[str]:
        return [row[0] for row in spark.sql("SHOW PARTITIONS lake.shop_orders").collect()]

    first = [Change(n, {"Amount €": n, "state": f"it's {n % 2}/x"}, "i", n, n, n) for n in range(4)]
    sink.write(batch(spark, 0, [(BEFORE, first)]))
    for _ in range(3):
        sink.idle()
    seen["first"], seen["partitions"] = look("id, `Amount €`, `by`"), partitions()
    restarted = sink_of(spark, folder, kind)  # after a crash: the table is there
    restarted.open()
    more = [
        Change(
            n,
            {"Amount €": None, "state": None if n == 5 else "it's 0/x", "address": {"zip code": f"z{n}"}},
            "i",
            n,
            n,
            n,
        )
        for n in range(4, 6)
    ]
    restarted.write(batch(spark, 1, [(AFTER, more)]))
    for _ in range(6):
        restarted.idle()
    seen["second"], seen["partitions_later"] = look("id, `Amount €`, address.`zip code`"), partitions()
    seen["type"] = dict(spark.table("lake.shop_orders").dtypes)["Amount €"]
    spark.sql(f"CREATE EXTERNAL TABLE lake.shop_other (id bigint) STORED AS PARQUET LOCATION '{folder}/elsewhere'")
    restarted.write(batch(spark, 2, [(Shape("shop.other", "id", BEFORE.columns), first)]))

    def settle() -> None:
        for _ in range(6):
            restarted.idle()

    seen["elsewhere"] = failure(settle)
    seen["refused"] = restarted.refusal(TableSchema("shop.t", (Column("at", TimestampNTZType()),)))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
