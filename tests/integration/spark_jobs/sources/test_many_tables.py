"""Records of very many tables in one batch: which kind a record is of is asked in one expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from spark_jobs.sources.avro import rows as avro_rows
from spark_jobs.sources.records import single_pass
from spark_jobs.sources.records.reader import PAYLOAD, SCHEMA
from spark_jobs.sources.records.single_pass import RecordKind
from spark_jobs.spark.frames import choose_last

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("avro", [False, True])
def test_as_many_kinds_as_the_single_pass_takes(spark: SparkSession, avro: bool) -> None:
    count = single_pass._MOST_KINDS
    head = b"" if avro else SCHEMA
    end = b"" if avro else PAYLOAD
    kinds = [
        RecordKind(f"topic{number}", f"table{number}", head + number.to_bytes(5, "big") + end, None)
        for number in range(count)
    ]
    build = avro_rows.build_kind_columns if avro else single_pass._build_kind_columns
    number, body, key = build(kinds, several=True)
    records = [(kind.topic, b"key", kind.value + b"row") for kind in kinds]
    frame = spark.createDataFrame([*records, ("another", b"key", b"value")], "topic string, key binary, value binary")
    rows = frame.select(number.alias("number"), body.alias("body"), key.alias("key")).collect()
    assert [row["number"] for row in rows] == [*range(count), -1]
    assert {bytes(row["body"]) for row in rows[:-1]} == ({kind.value + b"row" for kind in kinds} if avro else {b"row"})
    assert {row["key"] for row in rows} == {None}


def test_the_last_case_that_holds_is_taken(spark: SparkSession) -> None:
    chosen = choose_last([(f.col("id") > 0, f.lit("a")), (f.col("id") > 1, f.lit("b"))], f.lit("none"))
    assert [row[0] for row in spark.range(3).select(chosen).collect()] == ["none", "a", "b"]
    assert spark.range(1).select(choose_last([], f.lit("none"))).collect()[0][0] == "none"
