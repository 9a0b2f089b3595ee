"""``millrace bench jdbc``: rows/s and CPU per row of the JDBC sink into PostgreSQL and MariaDB, from one job on two cores.

The whole sink is measured: a Spark frame of 1,000,000 changes of 500,000 keys (made by Spark, cached as a local file) through
projection, Arrow, reduction to the newest per key, load and merge, commit. Then the same batch again (a replay, all of it older
or equal), and a batch of updates. In the same run, over fewer rows: an upsert by executemany from the same tasks (what a sink
without staging does), and Spark's own JDBC writer where a driver is at hand (``--jdbc-jar``); it can only append.

CPU is that of this process with the JVM and the Python workers; the database's own is shown next to it.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compose.local.mariadb import MariaDb
from compose.local.postgres import Postgres
from connectors.options import ConfigDef, ConfigKey, ConfigType
from spark_jobs.contract import Batch, Column, JobContext, TableChanges, TableSchema
from spark_jobs.sinks.jdbc.config import CONFIG_DEF, Login
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.sink import JdbcSink
from spark_jobs.spark.session import build_session
from tests.bench._common import cpu_seconds, environment
from tests.support.settings import jdbc_login
from worker.fetch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TARGET = 50_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement."""

    label: str
    rows: int
    seconds: float
    cpu: float
    server_cpu: float

    def line(self) -> str:
        """As text."""
        us_per_row = 1e6 / self.rows
        return (
            f"  {self.label:<44} {self.rows:>9,} rows {self.seconds:7.2f} s {self.rows / self.seconds:>10,.0f} rows/s   "
            f"CPU {self.cpu * us_per_row:6.1f} us/row + server {self.server_cpu * us_per_row:5.1f}"
        )


def measure(label: str, rows: int, server: int, run: Callable[[], object]) -> Measured:
    """Run once, with the clock and the CPU of both sides."""

    def spent() -> tuple[float, float]:
        # The server is a child of this process; its own children, one per connection, end with their connections.
        return cpu_seconds(os.getpid()) - cpu_seconds(server), cpu_seconds(server) + _ended_children(server)

    (ours, theirs), began = spent(), time.perf_counter()
    run()
    seconds = time.perf_counter() - began
    ours_after, theirs_after = spent()
    return Measured(label, rows, seconds, ours_after - ours, theirs_after - theirs)


def _ended_children(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def schema() -> TableSchema:
    """Eight columns: a key, strings, numbers, a time, a flag."""
    from pyspark.sql import types as t

    return TableSchema(
        "shop.orders",
        (
            Column("id", t.LongType(), nullable=False, key=True),
            Column("customer", t.LongType()),
            Column("item", t.StringType()),
            Column("note", t.StringType()),
            Column("price", t.DecimalType(12, 2)),
            Column("weight", t.DoubleType()),
            Column("placed", t.TimestampType()),
            Column("paid", t.BooleanType()),
        ),
    )


def changes(spark: SparkSession, rows: int, keys: int, first: int, parts: int) -> DataFrame:
    """``rows`` changes of ``keys`` keys, all changes of a key in one part."""
    return spark.range(0, rows, 1, parts).selectExpr(
        f"((id * 7919) % {keys // parts}) * {parts} + spark_partition_id() AS id",
        "id % 10007 AS customer",
        "concat('item ', id % 500) AS item",
        "repeat(chr(97 + cast(id % 26 AS int)), 40) AS note",
        "cast((id % 100000) / 100 AS decimal(12,2)) AS price",
        "id / 7D AS weight",
        "timestamp_micros(1780000000000000 + id * 1000) AS placed",
        "id % 3 = 0 AS paid",
        f"id + {first} AS ums_id_",
        "timestamp_micros(1780000000000000 + id * 1000) AS ums_ts_",
        "CASE WHEN id % 20 = 0 THEN 'd' ELSE 'u' END AS ums_op_",
        "cast(id AS string) AS ums_uid_",
        "'orders' AS kafka_topic_",
        "spark_partition_id() AS kafka_partition_",
        "id AS kafka_offset_",
    )


def sink(spark: SparkSession, url: str, user: str, password: str, **options: str) -> JdbcSink:
    """A sink as a job would have it."""
    frame = [
        ConfigKey(name="guarantee", type=ConfigType.STRING, doc="-", default=None),
        ConfigKey(name="errors.tolerance", type=ConfigType.STRING, doc="-", default="none"),
    ]
    config = ConfigDef([*frame, *CONFIG_DEF.keys.values()]).parse(
        {"sink.jdbc.url": url, "sink.jdbc.user": user, "sink.jdbc.password": password, **options}
    )
    return JdbcSink(JobContext("bench", config, spark, logging.LoggerAdapter(logging.getLogger("bench"))))


@dataclass(frozen=True, slots=True)
class ExecuteMany:
    """The peer: one upsert statement per row by the driver's executemany, 5,000 rows a transaction."""

    login: Login
    statement: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write; gives nothing back."""
        connection = load_dialect(self.login.address.dialect).connect(self.login)
        with connection.cursor() as cursor:
            for batch in batches:
                rows = [tuple(row.values()) for row in batch.to_pylist()]
                for start in range(0, len(rows), 5000):
                    cursor.executemany(self.statement, rows[start : start + 5000])
                    connection.commit()
        connection.close()
        yield from ()


def peer(kind: str, login: Login, table: str, columns: Sequence[str]) -> ExecuteMany:
    """The statement that does the same row by row."""
    quote = load_dialect(kind).quote
    names = ", ".join(map(quote, columns))
    placeholders = ", ".join(["%s"] * len(columns))
    others = [quote(name) for name in columns[1:]]
    if kind == "postgresql":
        text = (
            f"INSERT INTO {table} AS t ({names}) VALUES ({placeholders}) ON CONFLICT (id) DO UPDATE SET "  # noqa: S608 - own names
            + ", ".join(f"{name} = excluded.{name}" for name in others)
            + " WHERE t.ums_id_ < excluded.ums_id_"
        )
    else:
        newer = f"{table}.ums_id_ < VALUES(ums_id_)"
        ordered = [name for name in others if name != "`ums_id_`"] + ["`ums_id_`"]
        text = (
            f"INSERT INTO {table} ({names}) VALUES ({placeholders}) ON DUPLICATE KEY UPDATE "  # noqa: S608 - own names
            + ", ".join(f"{name} = IF({newer}, VALUES({name}), {name})" for name in ordered)
        )
    return ExecuteMany(login, text)


def run_server(
    spark: SparkSession, kind: str, server: Postgres | MariaDb, rows: int, folder: Path, jar: str | None
) -> list[Measured]:
    """All measurements against one server."""
    measurements: list[Measured] = []
    keys = rows // 2
    files = [str(folder / f"changes-{number}") for number in range(2)]
    for number, file in enumerate(files):
        if not Path(file).exists():
            changes(spark, rows, keys, number * rows, 4).write.parquet(file)
    frames = [spark.read.parquet(file) for file in files]
    table = schema()

    def write(target: JdbcSink, number: int) -> Callable[[], object]:
        return lambda: target.write(Batch(number, frames[number], {}, lambda: (TableChanges(table, frames[number]),)))

    for label, options in (
        ("upsert, soft deletes", {}),
        ("upsert, real deletes", {"sink.jdbc.delete.mode": "real"}),
        ("split", {"sink.jdbc.mode": "split"}),
        ("insert, exactly once", {"sink.jdbc.mode": "insert"}),
    ):
        name = label.split(",")[0] + ("_real" if "real" in label else "")
        target = sink(
            spark, server.url, server.user, server.password, **{"sink.jdbc.table": f"${{table}}_{name}", **options}
        )
        measurements.append(measure(f"{label}: into an empty table", rows, server.pid, write(target, 0)))
        print(measurements[-1].line(), flush=True)
        if label == "upsert, soft deletes":
            for content, number in (("the same again", 0), ("updates of all rows", 1)):
                measurements.append(measure(f"{label}: {content}", rows, server.pid, write(target, number)))
                print(measurements[-1].line(), flush=True)
        target.close()
    fewer_rows = rows // 10
    part = frames[0].limit(fewer_rows).coalesce(2).cache()
    part.count()
    login = jdbc_login(server.url, server.user, server.password)
    columns = [*(column.name for column in table.columns), "ums_id_", "ums_ts_", "ums_op_"]
    chosen = part.selectExpr(*columns, "cast(ums_op_ <> 'd' AS int) AS ums_active_")
    quote = load_dialect(kind).quote
    with_peer = sink(spark, server.url, server.user, server.password, **{"sink.jdbc.table": "peer"})
    with_peer.write(Batch(9, part, {}, lambda: (TableChanges(table, part.limit(0)),)))
    with_peer.close()
    task = peer(kind, login, quote("peer"), [*columns, "ums_active_"])
    measurements.append(
        measure(
            "for comparison: executemany upsert",
            fewer_rows,
            server.pid,
            lambda: chosen.mapInArrow(task, "x int").count(),
        )
    )
    print(measurements[-1].line(), flush=True)
    if jar:
        options = {
            "url": server.url,
            "user": server.user,
            "password": server.password,
            "dbtable": "spark_append",
            "batchsize": "5000",
            "numPartitions": "2",
            "reWriteBatchedInserts": "true",
        }
        measurements.append(
            measure(
                "for comparison: Spark's JDBC writer (append only)",
                fewer_rows,
                server.pid,
                lambda: chosen.write.format("jdbc").options(**options).mode("append").save(),
            )
        )
        print(measurements[-1].line(), flush=True)
    return measurements


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(prog="millrace bench jdbc", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--databases", default="postgresql,mariadb")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--jdbc-jar", help="a JDBC driver, to compare with Spark's own writer")
    options = parser.parse_args(arguments)
    print(
        f"JDBC sink, {options.rows:,} changes of {options.rows // 2:,} keys, 8 columns, 5 % deletes; local[{options.cores}]; "
        f"{environment()}"
    )
    conf: dict[str, Any] = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": str(options.cores)}
    if options.jdbc_jar:
        conf["spark.driver.extraClassPath"] = options.jdbc_jar
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-jdbc-")))
        spark = build_session("bench-jdbc", master=f"local[{options.cores}]", conf=conf)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        for kind in options.databases.split(","):
            server: Postgres | MariaDb = (
                Postgres(folder / kind, port=None) if kind == "postgresql" else MariaDb(folder / kind, port=None)
            )
            try:
                _ = server.service
            except Unavailable as reason:
                print(f"{kind}: {reason}")
                continue
            stack.enter_context(server)
            print(f"{kind}, commits wait for the disk:")
            measurements = run_server(spark, kind, server, options.rows, folder, options.jdbc_jar)
            first = measurements[0]
            speed = first.rows / first.seconds
            if kind == "postgresql":
                verdict = "reached" if speed >= TARGET else f"NOT reached: the limit here is {speed:,.0f}"
                print(f"  target {TARGET:,} rows/s into PostgreSQL through the whole sink: {verdict}")
            slow = next(measurement for measurement in measurements if "executemany" in measurement.label)
            print(f"  {speed / (slow.rows / slow.seconds):.1f} times executemany's rows/s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
