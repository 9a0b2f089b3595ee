"""``millrace verify`` of a flow into HBase: rows that the sink has written, with what the topic says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.verified_target import (
    VerifiedFlow,
    check_further_types,
    check_parts_are_read,
    check_rows_are_compared,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.targets.hbase import HBase
    from tests.integration.spark_jobs.hbase.conftest import Reader


@pytest.fixture
def flow(
    hbase: HBase,
    reader: Reader,
    spark: SparkSession,
    bootstrap: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., VerifiedFlow]:
    del reader  # it makes the first table

    def make(**options: str) -> VerifiedFlow:
        properties = {
            "sink.type": "hbase",
            "sink.hbase.address": hbase.address,
            "sink.hbase.timeout.ms": "60000",
            **{f"sink.hbase.{name.replace('_', '.')}": value for name, value in options.items()},
        }
        return VerifiedFlow(spark, bootstrap, tmp_path, capsys, properties)

    return make


@pytest.mark.parametrize("deletes", ["real", "soft"])
def test_rows_are_compared_with_the_topic(flow: Callable[..., VerifiedFlow], deletes: str) -> None:
    rows = flow(delete_mode=deletes, column_families="name=other")
    check_rows_are_compared(rows, rows.table.namespace)


def test_more_rows_than_a_page_has(flow: Callable[..., VerifiedFlow]) -> None:
    check_parts_are_read(flow())


def test_further_types_are_compared(flow: Callable[..., VerifiedFlow]) -> None:
    check_further_types(flow())


def test_tables_that_can_not_be_read(flow: Callable[..., VerifiedFlow]) -> None:
    rows = flow()
    rows.send(("c", 1, "one"))
    # There is no table yet: all of it is missing.
    assert rows.verify()[1]["missing"] == 1
    assert "sink.hbase.mode=insert keeps every change" in rows.refusal(**{"sink.hbase.mode": "insert"})
    assert "HBase does not know which" in rows.refusal(**{"sink.hbase.values": "binary"})
    assert "127.0.0.1:1" in rows.refusal(**{"sink.hbase.address": "127.0.0.1:1"})
