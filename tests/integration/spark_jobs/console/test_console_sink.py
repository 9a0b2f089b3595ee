"""The console sink's output of batches."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types

from connectors.errors import Fatal
from connectors.formats.masks.masking import parse_rules
from spark_jobs.config.keys import FRAME
from spark_jobs.contract import Batch, Column, JobContext, TableChanges, TableSchema
from spark_jobs.rows.masked_frames import mask_changes
from spark_jobs.sinks.console.sink import ConsoleSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sink(spark: SparkSession, **options: str) -> ConsoleSink:
    """A console sink with these options."""
    raw = {
        "name": "shown",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "source.topics": "t",
        "source.format": "plain",
        "sink.type": "console",
        **options,
    }
    config = FRAME.extended(list(ConsoleSink.config_def.keys.values())).parse(raw)
    return ConsoleSink(JobContext("shown", config, spark, logging.LoggerAdapter(logging.getLogger("test"), {})))


def batch(spark: SparkSession, rows: list[tuple[Any, ...]]) -> Batch:
    """A batch of one table with the columns id and note, and Kafka's records next to it."""
    frame = spark.createDataFrame(rows, "id bigint, note string")
    raw = spark.createDataFrame(
        [("t", 0, number, b"key", b"value %d" % number) for number in range(len(rows))],
        "topic string, partition int, offset bigint, key binary, value binary",
    )
    schema = TableSchema(
        "shop.notes", (Column("id", types.LongType(), nullable=False, key=True), Column("note", types.StringType()))
    )
    return Batch(
        3,
        raw.selectExpr("*", "timestamp_millis(0) AS timestamp"),
        {("t", 0): (0, len(rows))},
        lambda: [TableChanges(schema, frame)],
    )


def test_times_are_in_utc_whatever_the_zone_of_the_machine(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One time is in the hour that New York has twice, one in no year of Python's."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        frame = spark.sql(
            "SELECT timestamp '2026-11-01 06:30:00 UTC' AS at, array(timestamp '1969-12-31 23:59:59 UTC') AS more, "
            "date '+10000-01-01' AS day"
        )
        columns = tuple(Column(name, frame.schema[name].dataType) for name in frame.columns)
        tables = [TableChanges(TableSchema("shop.times", columns), frame)]
        assert sink(spark).write(Batch(1, frame, {}, lambda: tables)) == 1
    finally:
        monkeypatch.undo()
        time.tzset()
    assert capsys.readouterr().out.splitlines()[-1].split("  ") == [
        "2026-11-01 06:30:00",
        "['1969-12-31 23:59:59']",
        "+10000-01-01",
    ]


def test_tables_lines_and_records(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    changes = batch(spark, [(1, "one"), (2, "a\nsecond line"), (3, None)])
    assert sink(spark, **{"sink.console.rows": "2", "sink.console.truncate": "9"}).write(changes) == 3
    assert capsys.readouterr().out.splitlines() == [
        "batch 3, shop.notes: 3 rows, the first 2",
        "id  note",
        "--  ---------",
        "1   one",
        "2   a\\nsecon…",
    ]
    assert sink(spark, **{"sink.console.format": "json"}).write(changes) == 3
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == [1, 2, 3]
    assert {line["table_"] for line in lines} == {"shop.notes"}
    assert sink(spark, **{"sink.console.content": "records", "sink.console.format": "json"}).write(changes) == 3
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(record["key"], record["value"], record["offset"]) for record in records] == [
        ("key", f"value {number}", number) for number in range(3)
    ]


def test_a_batch_without_changes_says_so(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    empty = batch(spark, [])
    assert sink(spark).write(Batch(empty.id, empty.raw, {}, list)) == 0
    assert capsys.readouterr().out == "batch 3: no changes\n"


@pytest.mark.parametrize(
    "options", [{"type": "md5"}, {"type": "hash", "salt.field": "id"}, {"type": "default", "nulls": "mask"}]
)
def test_masked_columns_are_masked_before_the_sink(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], options: dict[str, str]
) -> None:
    plain = batch(spark, [(1, "planted"), (2, None)])
    masks = parse_rules(
        {
            "mask.rules": "m",
            "mask.m.columns": r"shop\.notes\.(note)",
            **{f"mask.m.{name}": value for name, value in options.items()},
        },
        debezium=False,
    )
    masked = Batch(plain.id, plain.raw, plain.ranges, lambda: mask_changes(plain.changes(), masks))
    assert sink(spark, **{"sink.console.format": "json"}).write(masked) == 2
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == [1, 2]
    notes = {line["id"]: line.get("note") for line in lines}
    salt = "1" if "salt.field" in options else ""
    algorithm = {"md5": "md5", "hash": "sha256"}.get(options["type"], "")
    hashed = hashlib.new(algorithm, f"{salt}planted".encode(), usedforsecurity=False).hexdigest() if algorithm else ""
    assert notes[1] == hashed
    assert notes[2] == ("" if options.get("nulls") == "mask" else None)


def test_a_rule_that_a_column_can_not_have_ends_the_batch(spark: SparkSession) -> None:
    plain = batch(spark, [(1, "planted")])
    masks = parse_rules(
        {"mask.rules": "m", "mask.m.columns": r"shop\.notes\.id", "mask.m.type": "default"}, debezium=False
    )
    with pytest.raises(Fatal, match="one key"):
        mask_changes(plain.changes(), masks)
