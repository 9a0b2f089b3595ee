"""Time of a batch of a view: ``./millrace bench views [--facts N] [--dimensions N]``.

The view joins facts to a dimension. Timed are the first load, one changed fact, and one changed dimension row, whose facts the
view gives again; each with the commit of the state, and without a source and a sink.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from statistics import median
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t

from spark_jobs.contract import Column, TableChanges, TableSchema
from spark_jobs.spark.session import build_session
from spark_jobs.steps.contract import StepContext
from spark_jobs.steps.flow import StepFlow, empty_changes
from spark_jobs.steps.view.step import ViewStep
from tests.bench._common import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

_KEY: Final = Column("id", t.LongType(), nullable=False, key=True)
_FACTS: Final = TableSchema("shop.facts", (_KEY, Column("dimension", t.LongType()), Column("amount", t.LongType())))
_DIMENSIONS: Final = TableSchema("shop.dimensions", (_KEY, Column("region", t.StringType())))
#: Batches of each kind that get a line of their own.
_SHOWN: Final = 3
_SQL: Final = "SELECT x.id, x.amount, d.region FROM facts x LEFT JOIN dimensions d ON x.dimension = d.id"


def changes(rows: DataFrame, table: TableSchema, op: str, order: int) -> TableChanges:
    """Changes of a table, all of one operation and order number."""
    system = {
        "ums_id_": f.lit(order).cast("bigint"),
        "ums_ts_": f.timestamp_micros(f.lit(1_780_000_000_000_000 + order)),
        "ums_op_": f.lit(op),
        "ums_uid_": f.expr(f"concat('{order}-', id)"),
        "kafka_topic_": f.lit("t"),
        "kafka_partition_": f.lit(0),
        "kafka_offset_": f.col("id"),
    }
    return TableChanges(table, rows.select("*", *(column.alias(name) for name, column in system.items())))


def facts(spark: SparkSession, first: int, count: int, dimensions: int, amount: int) -> DataFrame:
    """Facts with consecutive numbers."""
    rows = spark.range(first, first + count)
    return rows.select(
        "id", f.expr(f"id * 7919 % {dimensions}").alias("dimension"), f.lit(amount).cast("bigint").alias("amount")
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each batch; returns the exit code."""
    parser = argparse.ArgumentParser(prog="millrace bench views", description=__doc__)
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--dimensions", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3, help="batches with one change of each kind")
    options = parser.parse_args(argv)
    print(environment())
    spark = build_session("bench-views", extra_jars=("delta",), conf={"spark.driver.memory": "3g"})
    spark.sparkContext.setLogLevel("ERROR")
    parsed = ViewStep.config_def.parse({"sql": _SQL, "key": "id"})
    step = ViewStep(StepContext("v", {name: parsed[name] for name in ViewStep.config_def.keys}, {}))
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        flow = StepFlow([step], (), folder)

        def run(name: str, number: int, tables: list[TableChanges]) -> None:
            began = time.perf_counter()
            (output,) = flow.apply(tables, spark, lambda: empty_changes(spark, [_FACTS, _DIMENSIONS]), number)
            count = output.frame.count()
            flow.commit()
            flow.end_batch()
            times.setdefault(name, []).append(time.perf_counter() - began)
            if len(times[name]) <= _SHOWN:
                print(f"{name}: {count} changes of the view in {times[name][-1]:.2f} s", flush=True)

        regions = spark.range(options.dimensions).selectExpr("id", "concat('r', id % 100) AS region")
        every = facts(spark, 0, options.facts, options.dimensions, 1)
        run("first load", 1, [changes(every, _FACTS, "i", 1), changes(regions, _DIMENSIONS, "i", 1)])
        for repeat in range(options.repeats):
            number = 2 + 2 * repeat
            run("one fact", number, [changes(facts(spark, repeat, 1, options.dimensions, 2), _FACTS, "u", number)])
            row = spark.range(repeat, repeat + 1).select("id", f.lit(f"new {repeat}").alias("region"))
            run("one dimension row", number + 1, [changes(row, _DIMENSIONS, "u", number + 1)])
    spark.stop()
    for name, listed in times.items():
        print(f"{name}: {len(listed)} batches, median {median(listed):.2f} s, slowest {max(listed):.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
