"""Cost of a lookup per row, in microseconds: ``./millrace bench lookup [--spark]``.

A small HTTP server in this process answers the keys of a request together. The first pass fills the cache; the passes after it
find every key there. With ``--spark`` the rows go through Spark as in a job, once with a lookup and once with a task that
passes them on as they are: the difference is what the step adds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.steps.lookup.model import LookupAccess, LookupColumn, Spec
from spark_jobs.steps.lookup.store import LookupStore
from spark_jobs.steps.lookup.task import LookupTask
from tests.bench._common import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_BATCH: Final = 10_000
_COLUMNS: Final = (
    LookupColumn("name", "string", "name"),
    LookupColumn("city", "string", "city"),
    LookupColumn("discount", "decimal(5,2)", "discount"),
)


class Handler(BaseHTTPRequestHandler):
    """Answers a JSON array of keys with a row for each."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        keys = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rows = [{**key, "name": f"name {key['id']}", "city": "somewhere", "discount": "1.50"} for key in keys]
        body = json.dumps(rows).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def rows_of(count: int, keys: int) -> pa.Table:
    """Inserts with that many distinct keys of the lookup."""
    numbers = pa.array(range(count), pa.int64())
    columns = {
        "c0": numbers,
        "c1": pa.array([number * 7919 % keys for number in range(count)], pa.int64()),
        "c2": pa.array([f"order {number}" for number in range(count)], pa.string()),
    }
    system = {name: pa.nulls(count, pa.string()) for name in SYSTEM_COLUMNS}
    system |= {"ums_id_": numbers, "ums_op_": pa.array(["i"] * count, pa.string())}
    return pa.table(columns | system)


def measured(call: Callable[[], Any], rows: int, times: int) -> str:
    """Microseconds per row: the median and the worst of some passes."""
    costs = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        costs.append((time.perf_counter() - begin) * 1e6 / rows)
    return f"{statistics.median(costs):6.2f} µs/row (worst {max(costs):.2f})"


def in_process(spec: Spec, count: int, keys: int, times: int) -> None:
    """The task alone: Arrow in, Arrow out."""
    store = LookupStore(spec)
    task = LookupTask(spec, "shop.orders", (1,), 3, 1)
    batches = rows_of(count, keys).combine_chunks().to_batches(_BATCH)

    def run() -> None:
        for batch in batches:
            task.answer(batch, store.values)

    print(f"task, {keys:>6} keys, first pass  {measured(run, count, 1)}, {store.counts.requests} requests")
    print(f"task, {keys:>6} keys, from cache  {measured(run, count, times)}")
    store.close()


def through_spark(spec: Spec, count: int, keys: int, times: int) -> None:
    """Whole tasks of Spark, written nowhere."""
    from pyspark.sql import types as t

    from spark_jobs.spark.session import build_session

    spark = build_session("bench-lookup", master="local[2]", conf={"spark.driver.memory": "1g"})
    frame = spark.createDataFrame(rows_of(count, keys)).repartition(2).persist()
    frame.count()
    added = [t.StructField("c3", t.StringType()), t.StructField("c4", t.StringType())]
    added.append(t.StructField("c5", t.DecimalType(5, 2)))
    fields = frame.schema.fields
    looked_up = frame.mapInArrow(
        LookupTask(spec, "shop.orders", (1,), 3, 1), t.StructType([*fields[:3], *added, *fields[3:]])
    )

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    for name, chosen in {"passed on": frame.mapInArrow(passed, frame.schema), "looked up": looked_up}.items():
        write = chosen.write.format("noop").mode("overwrite").save
        write()
        print(f"Spark, {keys:>5} keys, {name}    {measured(write, count, times)}")
    spark.stop()


def main(argv: Sequence[str]) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--spark", action="store_true", help="through Spark, too")
    chosen = parser.parse_args(argv)
    print(environment())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    spec = Spec("names", "http", ("id",), _COLUMNS, LookupAccess(address), url=f"http://{address}/names")
    for keys in (100, 50_000):
        in_process(spec, chosen.rows, keys, chosen.times)
    if chosen.spark:
        through_spark(spec, chosen.rows, 50_000, chosen.times)
    server.shutdown()
    return 0
