"""``millrace bench history``: the log of the files sink next to that of Delta: the cost of a small batch, and what readers see.

The same batches go into both formats by the same sink, in turns, and each is looked after as in a job (``idle`` after each
batch). Then small files are merged, and a reader that only lists the directory (pyarrow) counts the rows: Hive, Trino or DuckDB
on an external table do the same. Both hold every row once; only their own readers see that of Delta.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.dataset

from spark_jobs.contract import Batch, TableChanges, TableSchema
from spark_jobs.spark.session import build_session
from tests.bench._common import environment
from tests.bench.jdbc import changes, schema
from tests.bench.sinks import Entry, open_sink
from tests.support.job_process import cpu_by_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from spark_jobs.contract import Sink

_TABLE = "shop.orders"
_FORMATS = ("parquet", "delta")


class Commit(NamedTuple):
    """The cost of one batch, in seconds."""

    seconds: float
    cpu: float


def write_batch(sink: Sink, frame: DataFrame, number: int, rows: int) -> Commit:
    """Write a batch, and let the sink look after its tables; blocks."""
    ranges = {("orders", 0): (number * rows, (number + 1) * rows)}
    table = TableChanges(TableSchema(_TABLE, schema().columns), frame)
    cpu, began = sum(cpu_by_kind(os.getpid(), ()).values()), time.perf_counter()
    sink.write(Batch(number, frame, ranges, lambda: (table,)))
    took = time.perf_counter() - began
    sink.idle()
    return Commit(took, sum(cpu_by_kind(os.getpid(), ()).values()) - cpu)


def listed_rows(folder: Path) -> int:
    """The rows of all Parquet files that a listing of the table's directory shows."""
    return int(pyarrow.dataset.dataset(folder / _TABLE, format="parquet").count_rows())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(prog="millrace bench history", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--batches", type=int, default=60, help="how many; Delta's files are merged after 50")
    parser.add_argument("--rows", type=int, default=1_000, help="rows of each batch")
    options = parser.parse_args(arguments)
    print(f"{options.batches} batches of {options.rows:,} rows, local disk; {environment()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="millrace-history-") as name:
        folder = Path(name)
        spark = build_session(
            "bench-history",
            master="local[2]",
            conf={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"},
            extra_jars=("delta",),
        )
        try:
            spark.sparkContext.setLogLevel("ERROR")
            sinks = {
                kind: open_sink(
                    spark,
                    Entry(kind, "files", 0, lambda _: None),  # type: ignore[arg-type, return-value]  # no server
                    {
                        "sink.files.path": str(folder / kind),
                        "sink.files.format": kind,
                        "sink.files.rolling.on.close": "always",
                    },
                    folder / f"{kind}-checkpoint",
                )
                for kind in _FORMATS
            }
            costs: dict[str, list[Commit]] = {kind: [] for kind in _FORMATS}
            for number in range(options.batches):
                frame = changes(spark, options.rows, options.rows, number * options.rows, 1).persist()
                frame.count()
                for kind, sink in sinks.items():
                    costs[kind].append(write_batch(sink, frame, number, options.rows))
                frame.unpersist()
            for sink in sinks.values():
                sink.close()
        finally:
            spark.stop()
        written = options.batches * options.rows
        for kind in _FORMATS:
            commits = costs[kind][5:]  # the first ones warm the JVM up
            print(
                f"{kind:8} a batch {statistics.median(commit.seconds for commit in commits) * 1000:6.0f} ms "
                f"(slowest {max(commit.seconds for commit in commits) * 1000:.0f}), with upkeep "
                f"{statistics.median(commit.cpu for commit in commits) * 1000:6.0f} ms of CPU; "
                f"{written:,} rows written, a listing shows {listed_rows(folder / kind):,}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
