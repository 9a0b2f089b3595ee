"""The conformance kit on ClickHouse: the newest row of each key, and a history of all changes."""

# ruff: noqa: S608 - names and strings in the statements are quoted
from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.sinks.clickhouse.columns import quote_name, quote_string
from spark_jobs.sinks.shared.templates import Template
from spark_jobs.testing import Gate, SinkTarget, Supports, cases, check_sink
from tests.support.kit_cases import kit_cases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema
    from tests.integration.spark_jobs.clickhouse.conftest import Server

#: Seconds each: for slow runs.
SLOW = ("killed_at_every_step", "poison_record", "server_silent", "connection_breaks_at_every_step")
_NEVER_NULL = "it can't be null in ClickHouse: test_values_without_nulls has it"


class ClickHouseTarget(SinkTarget):
    """A ClickHouse behind a gate."""

    sink_type = "clickhouse"
    unsupported_types = dict.fromkeys(("array", "map", "struct"), _NEVER_NULL)

    def __init__(self, server: Server, gate: Gate, mode: str = "upsert") -> None:
        self.server = server
        self.gate: Gate = gate
        self.mode = mode

    def options(self) -> Mapping[str, str]:
        return {
            "sink.clickhouse.url": f"http://127.0.0.1:{self.gate.port}",
            "sink.clickhouse.user": self.server.user,
            "sink.clickhouse.password": self.server.password,
            "sink.clickhouse.table": "${namespace}",
            "sink.clickhouse.mode": self.mode,
            "sink.clickhouse.timeout.ms": "10000",
            "sink.clickhouse.retries": "1",
            "sink.clickhouse.retry.backoff.ms": "20",
        }

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        name = Template("${namespace}").of_table(schema.namespace)
        kinds = {
            row["name"]: row["type"]
            for row in self.server.rows(f"SELECT name, type FROM system.columns WHERE table = {quote_string(name)}")
        }
        if not kinds:
            return []
        binary = {column.name for column in schema.columns if column.type.typeName() == "binary"}
        # Strings of the engine are bytes, which Arrow would take for text.
        selected = [
            f"hex({quote_name(name)}) AS {quote_name(name)}" if name in binary else quote_name(name) for name in kinds
        ]
        rows = self.server.rows(f"SELECT {', '.join(selected)} FROM {quote_name(name)} FINAL")
        for row in rows:
            for column in binary & row.keys():
                row[column] = None if row[column] is None else bytes.fromhex(row[column])
        return rows

    def stored(self, column: Column, value: Any) -> Any:
        return value.replace(tzinfo=UTC) if column.type.typeName() == "timestamp_ntz" else value

    def wrong_login(self) -> Mapping[str, str]:
        return {"sink.clickhouse.password": "not-the-secret"}


@pytest.fixture
def gate(clickhouse: Server) -> Iterator[Gate]:
    with Gate(clickhouse.host, clickhouse.port) as proxy:
        yield proxy


@pytest.mark.proves("into clickhouse", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases(cases(), SLOW))
def test_conformance_of_upserts(case: str, clickhouse: Server, gate: Gate, spark: SparkSession, bootstrap: str) -> None:
    check_sink(ClickHouseTarget(clickhouse, gate), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.proves("into clickhouse insert", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize(
    "case", kit_cases(["replay", "many_rows", "killed_at_every_step", "connection_breaks_at_every_step"], SLOW)
)
def test_conformance_of_inserts(case: str, clickhouse: Server, gate: Gate, spark: SparkSession) -> None:
    target = ClickHouseTarget(clickhouse, gate, "insert")
    target.supports = Supports(upsert=False, ordering=False, remembers_deletes=False)
    check_sink(target, spark=spark, only=case)
