"""The conformance kit over HTTP: rows in arrays with an outcome per record, and changes one by one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.testing import Gate, SinkTarget, Supports, cases, check_sink
from tests.support.json_rows import stored_in_json
from tests.support.kit_cases import kit_cases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema
    from tests.integration.spark_jobs.http.conftest import Service

#: Seconds each: for slow runs.
SLOW = ("poison_record", "server_silent", "connection_breaks_at_every_step")


class HttpTarget(SinkTarget):
    """The service behind a gate. Of upserts the reader keeps the newest by order number, as a receiver would."""

    sink_type = "http"

    def __init__(self, service: Service, gate: Gate, way: str = "items", **options: str) -> None:
        self.service = service
        self.gate: Gate = gate
        self._options = {"sink.http.url": f"http://127.0.0.1:{gate.port}/{way}/${{namespace}}", **options}

    def options(self) -> Mapping[str, str]:
        return {
            "sink.http.user": "user",
            "sink.http.password": "secret",
            "sink.http.timeout.ms": "2000",
            "sink.http.retries": "1",
            "sink.http.retry.backoff.ms": "20",
            "sink.http.outcome.path": "items",
            **self._options,
        }

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        records = self.service.records(schema.namespace)
        if not self.supports.upsert:
            return records
        newest: dict[str, dict[str, Any]] = {}
        for record in records:
            key = json.dumps([record[column.name] for column in schema.key])
            if key not in newest or newest[key]["ums_id_"] <= record["ums_id_"]:
                newest[key] = record
        return [record for record in newest.values() if record["ums_op_"] != "d"]

    def stored(self, column: Column, value: Any) -> Any:
        return stored_in_json(column, value)

    def wrong_login(self) -> Mapping[str, str]:
        return {"sink.http.password": "not-the-secret"}

    def refused_row(self) -> Mapping[str, Any]:
        return {"name": "refused"}


@pytest.fixture
def gate(service: Service) -> Iterator[Gate]:
    with Gate("127.0.0.1", service.port) as proxy:
        yield proxy


@pytest.mark.proves("into http", "at-least-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases(cases(), SLOW))
def test_conformance_of_upserts(case: str, service: Service, gate: Gate, spark: SparkSession, bootstrap: str) -> None:
    target = HttpTarget(service, gate, **{"sink.http.mode": "upsert"})
    check_sink(target, spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize(
    "case", kit_cases(["replay", "delete", "many_rows", "connection_breaks_at_every_step", "poison_record"], SLOW)
)
def test_conformance_of_single_records(
    case: str, service: Service, gate: Gate, spark: SparkSession, bootstrap: str
) -> None:
    target = HttpTarget(service, gate, "plain", **{"sink.http.format": "record", "sink.http.outcome.path": ""})
    target.supports = Supports(upsert=False, ordering=False, remembers_deletes=False)
    check_sink(target, spark=spark, bootstrap=bootstrap, only=case)
