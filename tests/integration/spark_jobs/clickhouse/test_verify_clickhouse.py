"""``millrace verify`` of a flow into ClickHouse: rows that the sink has written, with what the topic says."""

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

    from tests.integration.spark_jobs.clickhouse.conftest import Server


@pytest.fixture
def flow(
    clickhouse: Server, spark: SparkSession, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., VerifiedFlow]:
    def make(**options: str) -> VerifiedFlow:
        properties = {
            "sink.type": "clickhouse",
            "sink.clickhouse.url": f"http://{clickhouse.host}:{clickhouse.port}",
            "sink.clickhouse.user": clickhouse.user,
            "sink.clickhouse.password": clickhouse.password,
            "sink.clickhouse.table": "${table}",
            **{f"sink.clickhouse.{name.replace('_', '.')}": value for name, value in options.items()},
        }
        return VerifiedFlow(spark, bootstrap, tmp_path, capsys, properties)

    return make


@pytest.mark.parametrize("deletes", ["real", "soft"])
def test_rows_are_compared_with_the_topic(flow: Callable[..., VerifiedFlow], deletes: str) -> None:
    rows = flow(delete_mode=deletes)
    check_rows_are_compared(rows, f"default.{rows.table.namespace.partition('.')[2]}")


def test_more_rows_than_a_part_has(flow: Callable[..., VerifiedFlow]) -> None:
    check_parts_are_read(flow())


def test_further_types_are_compared(flow: Callable[..., VerifiedFlow]) -> None:
    check_further_types(flow())


def test_servers_that_can_not_be_read(flow: Callable[..., VerifiedFlow]) -> None:
    rows = flow()
    rows.send(("c", 1, "one"))
    # There is no table yet: all of it is missing.
    assert rows.verify()[1]["missing"] == 1
    assert "sink.clickhouse.mode=insert keeps every change" in rows.refusal(**{"sink.clickhouse.mode": "insert"})
    assert "Correct sink.clickhouse.user and" in rows.refusal(**{"sink.clickhouse.password": "another"})
    assert "does not answer" in rows.refusal(**{"sink.clickhouse.url": "http://127.0.0.1:1"})
