"""The conformance kit on OpenSearch: a document per row, and a document per change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.sinks.opensearch.mapping import index_name
from spark_jobs.testing import Gate, SinkTarget, Supports, cases, check_sink
from tests.integration.spark_jobs.opensearch.conftest import PASSWORD, USER
from tests.support.json_rows import stored_in_json
from tests.support.kit_cases import kit_cases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema
    from tests.integration.spark_jobs.opensearch.conftest import Reader

#: Seconds each: for slow runs.
SLOW = ("killed_at_every_step", "poison_record", "server_silent", "connection_breaks_at_every_step")


class OpenSearchTarget(SinkTarget):
    """An OpenSearch behind a gate and a door that asks for a login."""

    sink_type = "opensearch"

    def __init__(self, reader: Reader, gate: Gate, mode: str = "upsert") -> None:
        self.reader = reader
        self.gate: Gate = gate
        self.mode = mode

    def options(self) -> Mapping[str, str]:
        return {
            "sink.opensearch.url": f"http://127.0.0.1:{self.gate.port}",
            "sink.opensearch.user": USER,
            "sink.opensearch.password": PASSWORD,
            "sink.opensearch.mode": self.mode,
            "sink.opensearch.timeout.ms": "3000",
            "sink.opensearch.retries": "1",
            "sink.opensearch.retry.backoff.ms": "20",
        }

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        return list(self.reader.documents(index_name(schema.namespace)).values())

    def stored(self, column: Column, value: Any) -> Any:
        return stored_in_json(column, value)

    def wrong_login(self) -> Mapping[str, str]:
        return {"sink.opensearch.password": "not-the-secret"}

    def refused_row(self) -> Mapping[str, Any]:
        return {"amount": float("inf")}


@pytest.fixture
def gate(door: int) -> Iterator[Gate]:
    with Gate("127.0.0.1", door) as proxy:
        yield proxy


@pytest.mark.proves("into opensearch", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases(cases(), SLOW))
def test_conformance_of_upserts(case: str, reader: Reader, gate: Gate, spark: SparkSession, bootstrap: str) -> None:
    check_sink(OpenSearchTarget(reader, gate), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.proves("into opensearch insert", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases(["replay", "killed_at_every_step", "many_rows"], [*SLOW, "many_rows"]))
def test_conformance_of_inserts(case: str, reader: Reader, gate: Gate, spark: SparkSession) -> None:
    target = OpenSearchTarget(reader, gate, "insert")
    target.supports = Supports(upsert=False, ordering=False, remembers_deletes=False)
    check_sink(target, spark=spark, only=case)
