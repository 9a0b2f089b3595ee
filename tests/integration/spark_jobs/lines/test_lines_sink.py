"""The sink of lines: values as they are, in order, on the disk; once each, whenever the job is killed."""

from __future__ import annotations

import logging
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import IntegerType, StringType

from connectors.errors import Fatal
from spark_jobs.config.job_files import check_job
from spark_jobs.contract import Batch, Column, JobContext, TableSchema
from spark_jobs.sinks.lines.sink import LinesSink
from spark_jobs.testing.batches import BatchFeed, Change
from spark_jobs.testing.child import Child
from spark_jobs.testing.kit import key_column
from spark_jobs.write_ahead_log import FOLDER
from tests.integration.spark_jobs.lines.killed_lines import KILL_AT
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def properties(path: Path, **options: str) -> dict[str, str]:
    return {
        "name": "lines",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "source.topics": "t",
        "source.format": "plain",
        "sink.type": "lines",
        "sink.lines.path": str(path),
        "checkpoint.location": str(path.parent / "checkpoint"),
        **options,
    }


def sink(spark: SparkSession, path: Path, **options: str) -> LinesSink:
    config, problems = check_job(properties(path, **options))
    assert config is not None, problems
    return LinesSink(JobContext("lines", config, spark, logging.LoggerAdapter(logging.getLogger("test"), {})))


def batch(spark: SparkSession) -> Batch:
    records = [("t", 0, 1, b"second"), ("t", 0, 0, "first \u00fc".encode()), ("t", 0, 2, None)]
    raw = spark.createDataFrame(records, "topic string, partition int, offset bigint, value binary").coalesce(1)
    return Batch(0, raw, {("t", 0): (0, 3)}, list)


def test_values_are_appended_in_order_and_once_with_a_repeated_batch(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "values.txt"
    path.write_text("there\n")
    lines = ["first \u00fc", "second", "null"]
    assert sink(spark, path).write(batch(spark)) == 3
    assert path.read_text("utf-8").splitlines() == ["there", *lines]
    assert sink(spark, path).write(batch(spark)) == 0
    assert path.read_text("utf-8").splitlines() == ["there", *lines]
    assert [entry.name for entry in (tmp_path / "checkpoint" / FOLDER).iterdir()] == ["committed.json"]
    with pytest.raises(Fatal, match="of another checkpoint"):
        sink(spark, path).write(replace(batch(spark), ranges={("t", 0): (0, 4)}))


def test_at_least_once_needs_no_log_and_appends_a_repeated_batch(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "values.txt"
    for _ in range(2):
        assert sink(spark, path, guarantee="at-least-once").write(batch(spark)) == 3
    assert path.read_text("utf-8").splitlines() == ["first \u00fc", "second", "null"] * 2
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.proves("into lines", "exactly-once", killed=["driver"])
@pytest.mark.parametrize(
    "kill_at",
    [
        "byte 70001",
        "point sent",
        *(
            pytest.param(step, marks=pytest.mark.slow)
            for step in ("point logged", "point sealed", "byte 70000", "point committed")
        ),
    ],
)
def test_a_killed_job_loses_no_line_and_writes_none_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: str
) -> None:
    path = tmp_path / "values.txt"
    earlier = b"x" * 60_000 + b"\n"
    path.write_bytes(earlier)
    feed = BatchFeed("t")
    table = TableSchema("d.t", (key_column("id", IntegerType()), Column("name", StringType())))
    changes = [Change("i", number, {"id": number, "name": f"row {number}"}) for number in range(500)]
    data = feed.next([(table, changes)])
    rows = sorted(data.frames(spark).raw.collect(), key=lambda row: (row.partition, row.offset))
    monkeypatch.setenv(KILL_AT, kill_at)
    options = properties(path) | {"sink.type": "tests.integration.spark_jobs.lines.killed_lines:KilledLines"}
    with Child(options, spark) as child:
        child.wait_ready()
        child.write(data)
        eventually(lambda: not child.alive(), "the job is killed", 120)
        assert child.killed_by() == (signal.SIGXFSZ if kill_at.startswith("byte") else signal.SIGKILL)
    if kill_at.startswith("byte"):
        assert path.stat().st_size == int(kill_at.partition(" ")[2])
    sink(spark, path).write(data.frames(spark))
    assert path.read_bytes() == earlier + b"".join(bytes(row.value) + b"\n" for row in rows)


def test_a_file_that_another_program_has_changed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "values.txt"
    writer = sink(spark, path)

    def append(name: str) -> None:
        if name == "sealed":
            path.write_text("theirs\n")

    writer.points = append
    for _ in range(2):  # The section is sealed at the second attempt.
        with pytest.raises(Fatal, match="another program has changed"):
            writer.write(batch(spark))
    assert path.read_text("utf-8") == "theirs\n"


def test_a_folder_that_is_missing_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "values.txt"
    writer = sink(spark, path, **{"checkpoint.location": str(tmp_path / "checkpoint")})
    assert "does not exist" in LinesSink.check(writer.context.config)[0]
    with pytest.raises(Fatal, match="create its folder"):
        writer.write(batch(spark))


def test_steps_are_refused() -> None:
    _, problems = check_job(
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
