"""The kit on a sink that is right, and on the same one broken in one way each: exactly the right cases fail."""

from __future__ import annotations

import json
import sqlite3
import unittest
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.testing import SinkTarget, Supports, cases, check_sink
from tests.integration.spark_jobs.testing.broken_sinks import TABLE, _text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema


class LiteTarget(SinkTarget):
    sink_type = "tests.integration.spark_jobs.testing.broken_sinks:LiteSink"
    supports = Supports(transactions=True)

    def __init__(self, path: Path, fault: str = "") -> None:
        self.path = path / "rows.sqlite"
        self.fault = fault

    def options(self) -> Mapping[str, str]:
        return {"sink.lite.path": str(self.path), "sink.lite.fault": self.fault}

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute(TABLE)
            rows = connection.execute("SELECT value FROM rows WHERE name = ? AND alive", (schema.namespace,)).fetchall()
        return [json.loads(value) for (value,) in rows]

    def stored(self, column: Column, value: Any) -> Any:
        return (
            value
            if column.type.typeName() in ("array", "map", "struct")
            else json.loads(json.dumps(value, default=_text))
        )

    def folder(self) -> Path:
        return self.path.parent


#: Quick ones: the rest needs a server or starts a JVM.
QUICK = [name for name in cases() if not name.startswith(("server", "killed", "connection", "poison", "refused"))]


def test_a_sink_that_is_right_passes(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = check_sink(LiteTarget(tmp_path), spark=spark, only=[*QUICK, "server_down", "refused_login"])
    assert report.of("passed") == QUICK
    assert report.of("skipped") == ["server_down", "refused_login"]
    printed = capsys.readouterr().out
    assert "skipped  server_down (" in printed
    assert "the target has no gate" in printed


@pytest.mark.parametrize(
    ("fault", "case", "complaint"),
    [
        ("ignores order", "older_after_newer", "id=1: column name is 'old', expected 'new'"),
        ("loses a batch on replay", "replay", "the same sink wrote the batch again"),
        ("ignores deletes", "delete", "there, and not expected: {id: 1, name: 'a2', amount: 1.5}"),
        ("forgets deletes", "older_after_delete", "there, and not expected: {id: 1, name: 'a'"),
        ("leaves nulls out", "nulls_and_absent_columns", "id=1: column amount is 1.0, expected None"),
        ("cuts long values", "large_values", "id=1: column text is '0123456789abcd"),
        ("refuses reserved words", "reserved_words", 'actual Fatal: near "select": syntax error'),
    ],
)
def test_a_fault_is_found_by_its_case(
    spark: SparkSession, tmp_path: Path, fault: str, case: str, complaint: str
) -> None:
    with pytest.raises(AssertionError) as raised:
        check_sink(LiteTarget(tmp_path, fault), spark=spark, only=["several_tables_and_empty_batches", case])
    text = str(raised.value)
    assert text.startswith(f"1 of 2 cases failed\n{case}: broken rule: ")
    assert complaint in text


def test_what_a_sink_can_not_do_is_skipped_and_a_waiver_must_be_needed(spark: SparkSession, tmp_path: Path) -> None:
    target = LiteTarget(tmp_path)
    target.supports = Supports(ordering=False)
    with pytest.raises(unittest.SkipTest, match="the sink does not support ordering"):
        check_sink(target, spark=spark, only="older_after_newer")
    waived = LiteTarget(tmp_path, "ignores deletes")
    waived.waivers = {"delete": "it keeps all rows"}
    assert check_sink(waived, spark=spark, only="delete").of("waived") == ["delete"]
    waived.waivers = {"replay": "it was lost once"}
    with pytest.raises(AssertionError, match="remove the waiver"):
        check_sink(waived, spark=spark, only="replay")
    with pytest.raises(ValueError, match="no such cases: reply"):
        check_sink(waived, spark=spark, only="reply")
