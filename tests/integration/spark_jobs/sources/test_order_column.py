"""The order number of Avro records, an expression of the JVM, is the one of the function that all others use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql import types as t

from connectors.formats.order_number import LAST_FILE, MEMBERS, source_number
from spark_jobs.sources.avro.frame import order_column
from tests.unit.connectors.formats.test_order_number import BLOCKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS: dict[str, Any] = {"connector": t.StringType(), "file": t.StringType(), "row": t.IntegerType()}
OFFSET = 4711
ODD_SOURCES: list[dict[str, Any]] = [
    {"connector": "mysql", "file": file, "pos": pos, "row": row}
    for file, pos, row in (
        ("bin.000009", 4_294_967_300, 5000),
        (f"bin.{LAST_FILE}", 10**12 - 1, 0),
        (f"bin.{LAST_FILE + 1}", 4, 0),
        ("bin.99999999999999999999", 4, 0),
        ("binlog", 4, 0),
        ("bin.x", 4, 0),
        ("bin.000001\n", 4, 0),
        ("bin.000001", 10**12, 0),
        ("bin.000001", 10**12 - 1, 1),
        ("bin.000001", -1, 0),
        ("bin.000001", None, 0),
    )
]


def expected(source: dict[str, Any]) -> int | None:
    try:
        number = source_number(source)
    except ValueError:
        return None
    return OFFSET if number is None else number


def test_the_expression_gives_what_the_function_gives(spark: SparkSession) -> None:
    blocks = [source for source, _ in BLOCKS] + ODD_SOURCES
    for members in (
        frozenset(MEMBERS),
        frozenset(MEMBERS) - {"connector", "ums_id", "row", "lsn"},
        frozenset({"ts_ms"}),
    ):
        names = sorted(members)
        rows = [tuple(source.get(name) for name in names) for source in blocks]
        kind = t.StructType(
            [
                t.StructField(
                    "source", t.StructType([t.StructField(name, KINDS.get(name, t.LongType())) for name in names])
                )
            ]
        )
        frame = spark.createDataFrame([(row,) for row in rows], kind).withColumn("offset", f.lit(OFFSET).cast("long"))
        numbers = [row[0] for row in frame.select(order_column(f.col("source"), members)).collect()]
        assert numbers == [expected({name: source.get(name) for name in names}) for source in blocks]
