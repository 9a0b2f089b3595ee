"""CPU of each type of step, in microseconds per row: ``./millrace bench steps``.

The rows are changes of a table of eight columns, as a source gives them, and are in memory: no Kafka, no decoding, no sink. A
step gets all of them in one batch and its output is computed and dropped. A line says what the batch cost above one without a
step: driver, JVM and Python workers together, the median of some batches. Each step has been warmed up by two batches before.

Every batch brings rows of new keys, five minutes later than the one before: a step with a state meets no replay. What the
state holds at the end is in the line, as a stateful step costs by its state as well as by its rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t

from spark_jobs.config.job_files import build_job
from spark_jobs.contract import Column, TableChanges, TableSchema
from spark_jobs.spark.session import build_session
from spark_jobs.steps.flow import StepFlow, empty_changes
from spark_jobs.steps.options import build_functions, build_steps
from tests.bench._common import environment
from tests.bench.lookup import Handler
from tests.bench.views import changes
from tests.support.job_process import cpu_by_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

_KEY: Final = Column("id", t.LongType(), nullable=False, key=True)
_ORDERS: Final = TableSchema(
    "shop.orders",
    (
        _KEY,
        Column("customer", t.LongType()),
        Column("item", t.StringType()),
        Column("note", t.StringType()),
        Column("price", t.DecimalType(12, 2)),
        Column("weight", t.DoubleType()),
        Column("placed", t.TimestampType()),
        Column("paid", t.BooleanType()),
    ),
)
_PAYMENTS: Final = TableSchema("shop.payments", (_KEY, Column("amount", t.LongType())))
_FUNCTION: Final = """
import pyarrow as pa
import pyarrow.compute as pc


class Scores:
    def __init__(self):
        pass

    def __call__(self, rows):
        return {"score": pc.multiply(rows["weight"], 2.0), "label": pa.array(["large"] * rows.num_rows)}
"""


def steps_of(address: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The options of a step of each type; ``address`` answers lookups."""
    function = folder / "scores.py"
    function.write_text(_FUNCTION)
    return {
        "filter": {"type": "filter", "condition": "price > 10 AND paid IS NOT NULL"},
        "select": {"type": "select", "columns": "id, upper(item) AS item, price * 2 AS twice, weight, paid"},
        "sql": {"type": "sql", "sql": "SELECT id, concat(item, note) AS text, CAST(price AS double) AS p FROM orders"},
        "mask": {"type": "mask", "rules": "note", "note.columns": "shop.orders.note", "note.type": "hash"},
        "route": {"type": "route", "to": "${database}.${table}_all"},
        "union": {"type": "union", "output": "shop.all", "table.column": "origin"},
        "deduplicate": {"type": "deduplicate", "keep": "last"},
        "lookup, cached": {
            "type": "lookup",
            "url": f"http://{address}/names",
            "on": "customer = id",
            "columns": "name string, city string, discount decimal(5,2)",
        },
        "python": {
            "type": "python",
            "python.file": str(function),
            "python.function": "Scores",
            "columns": "score double, label string",
        },
        "join": {"type": "join", "left": "shop.orders", "right": "shop.payments", "on": "id", "range.ms": 300_000},
        "window": {
            "type": "window",
            "table": "shop.orders",
            "window": "tumbling",
            "size.ms": 3_600_000,
            "group": "customer",
            "aggregates": "count(*) AS orders, sum(price) AS total",
        },
    }


#: When the first batch was, and how much later each one is.
_BEGIN_US: Final = 1_780_000_000_000_000
_BETWEEN_US: Final = 300_000_000
#: Types of steps that read both tables.
_WITH_PAYMENTS: Final = ("union", "join")


def orders(spark: SparkSession, rows: int) -> DataFrame:
    """Inserts into the table; a thousand customers."""
    return spark.range(rows).select(
        "id",
        f.expr("id * 7919 % 1000").alias("customer"),
        f.expr("concat('item ', id % 500)").alias("item"),
        f.expr("repeat('n', 40)").alias("note"),
        f.expr("CAST(id % 100000 / 100 AS decimal(12, 2))").alias("price"),
        f.expr("id / 7").alias("weight"),
        f.timestamp_micros(f.expr("1780000000000000 + id")).alias("placed"),
        f.expr("id % 3 = 0").alias("paid"),
    )


def build_flow(name: str, options: Mapping[str, Any], checkpoint: Path) -> StepFlow:
    """A flow with one step, as a job with this configuration has it."""
    job = build_job(
        {
            "name": "steps",
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "source.topics": "t",
            "source.format": "debezium",
            "sink.type": "console",
            "transform.steps": name,
            **{f"transform.step.{name}.{option}": str(value) for option, value in options.items()},
        }
    )
    return StepFlow(build_steps(job.config), build_functions(job.config), str(checkpoint))


def batch_of(table: TableSchema, rows: DataFrame, number: int, shift: int) -> TableChanges:
    """The changes of a batch: the rows with new keys, at a later time.

    Args:
        table: whose changes they are.
        rows: kept in memory.
        number: of the batch.
        shift: how many keys a batch has at most.
    """
    shifted = changes(rows.withColumn("id", f.col("id") + number * shift), table, "i", number + 1)
    time_of_batch = f.timestamp_micros(f.lit(_BEGIN_US + number * _BETWEEN_US))
    return replace(shifted, frame=shifted.frame.withColumn("ums_ts_", time_of_batch))


class Costs:
    """The CPU that a batch takes in this process, its JVM and its Python workers."""

    def __init__(self, spark: SparkSession, rows: int, times: int) -> None:
        self.spark, self.rows, self.times = spark, rows, times

    def of_batch(self, flow: StepFlow, frames: Mapping[TableSchema, DataFrame], number: int) -> dict[str, float]:
        """CPU seconds by kind of process."""
        tables = [batch_of(table, rows, number, self.rows) for table, rows in frames.items()]
        before = cpu_by_kind(os.getpid())
        for output in flow.apply(tables, self.spark, lambda: empty_changes(self.spark, list(frames)), number):
            output.frame.write.format("noop").mode("overwrite").save()
        if flow.stateful:
            flow.commit()
        flow.end_batch()
        after = cpu_by_kind(os.getpid())
        return {kind: after[kind] - before[kind] for kind in after}

    def of_flow(self, flow: StepFlow, frames: Mapping[TableSchema, DataFrame]) -> dict[str, float]:
        """Microseconds per row of ``shop.orders`` by kind of process, the median of the batches after the first two."""
        batches = [self.of_batch(flow, frames, number) for number in range(self.times + 2)][2:]
        return {kind: statistics.median(batch[kind] for batch in batches) / self.rows * 1e6 for kind in batches[0]}


def main(argv: Sequence[str]) -> int:
    """Print a line for each type of step; two minutes."""
    parser = argparse.ArgumentParser(prog="millrace bench steps", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=3, help="batches that are measured")
    parser.add_argument("--only", nargs="+", default=[], metavar="STEP", help="some of the steps")
    options = parser.parse_args(argv)
    print(environment())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    spark = build_session(
        "bench-steps", master=f"local[{os.cpu_count()}]", extra_jars=("delta",), conf={"spark.driver.memory": "2g"}
    )
    spark.sparkContext.setLogLevel("ERROR")
    count = spark.sparkContext.defaultParallelism
    rows = orders(spark, options.rows).repartition(count).persist()
    paid = spark.range(options.rows // 2).select("id", (f.col("id") % 100).alias("amount")).repartition(count).persist()
    alone, both = {_ORDERS: rows}, {_ORDERS: rows, _PAYMENTS: paid}
    costs = Costs(spark, options.rows, options.times)
    print(f"{options.rows:,} rows in {count} parts, 8 columns; us CPU/row (driver, jvm, python)", flush=True)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        plain = {len(frames): costs.of_flow(StepFlow([]), frames) for frames in (alone, both)}
        print(f"{'without a step':20} {sum(plain[1].values()):6.2f}", flush=True)
        for title, step in steps_of(f"127.0.0.1:{server.server_port}", folder).items():
            if options.only and title not in options.only:
                continue
            frames = both if step["type"] in _WITH_PAYMENTS else alone
            began = time.monotonic()
            flow = build_flow("s", step, folder / title)
            spent = costs.of_flow(flow, frames)
            added = {kind: spent[kind] - plain[len(frames)][kind] for kind in spent}
            parts = ", ".join(f"{kind} {value:.2f}" for kind, value in added.items())
            numbers = [number for of_step in flow.measure_steps().values() for number in of_step.items()]
            state = "".join(f", {name} {value:,.0f}" for name, value in numbers if name.startswith("state_"))
            print(
                f"{title:20} {sum(added.values()):6.2f} ({parts}); {time.monotonic() - began:.0f} s{state}", flush=True
            )
            flow.close()
    spark.stop()
    server.shutdown()
    return 0


if __name__ == "__main__":
    import sys

    raise SystemExit(main(sys.argv[1:]))
