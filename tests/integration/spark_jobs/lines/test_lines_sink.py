"""The sink of lines: values as they are, in order, on the disk; at least once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from connectors.errors import Fatal
from spark_jobs.config import check
from spark_jobs.contract import Batch, JobContext
from spark_jobs.sinks.lines.sink import LinesSink

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def sink(spark: SparkSession, path: Path) -> LinesSink:
    config, problems = check(
        {
            "name": "lines",
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "source.topics": "t",
            "source.format": "plain",
            "sink.type": "lines",
            "sink.lines.path": str(path),
        }
    )
    assert config is not None, problems
    return LinesSink(JobContext("lines", config, spark, logging.LoggerAdapter(logging.getLogger("test"), {})))


def batch(spark: SparkSession) -> Batch:
    records = [("t", 0, 1, b"second"), ("t", 0, 0, "first \u00fc".encode()), ("t", 0, 2, None)]
    raw = spark.createDataFrame(records, "topic string, partition int, offset bigint, value binary").coalesce(1)
    return Batch(0, raw, {("t", 0): (0, 3)}, list)


def test_values_are_appended_in_order_and_again_with_a_repeated_batch(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "values.txt"
    path.write_text("there\n")
    lines = ["first \u00fc", "second", "null"]
    assert sink(spark, path).write(batch(spark)) == 3
    assert path.read_text("utf-8").splitlines() == ["there", *lines]
    assert sink(spark, path).write(batch(spark)) == 3
    assert path.read_text("utf-8").splitlines() == ["there", *lines, *lines]


def test_a_folder_that_is_missing_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "values.txt"
    writer = sink(spark, path)
    assert "does not exist" in LinesSink.check(writer.context.config)[0]
    with pytest.raises(Fatal, match="create its folder"):
        writer.write(batch(spark))


def test_steps_are_refused() -> None:
    _, problems = check(
        {
            "name": "lines",
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "source.topics": "t",
            "source.format": "plain",
            "sink.type": "lines",
            "sink.lines.path": "/tmp/lines",
            "transform.steps": "few",
            "transform.step.few.type": "filter",
            "transform.step.few.condition": "id > 0",
        }
    )
    assert [problem.name for problem in problems] == ["transform.steps"]
