"""The conformance kit on MongoDB, or its stand-in: a document per row, and a document per change."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from bson.decimal128 import Decimal128

from spark_jobs.sinks.mongodb.documents import collection_name
from spark_jobs.testing import Gate, SinkTarget, Supports, cases, check_sink
from tests.support.kit_cases import kit_cases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema
    from tests.integration.spark_jobs.mongodb.conftest import Server

DATABASE = "kit"
#: Seconds each: for slow runs.
SLOW = (
    *("killed_at_every_step", "poison_record", "connection_breaks_at_every_step", "many_rows", "large_values"),
    *("server_down", "server_slow", "server_silent", "several_tables_and_empty_batches", "type_widening"),
)


class MongoTarget(SinkTarget):
    """A MongoDB behind a gate."""

    sink_type = "mongodb"

    def __init__(self, server: Server, gate: Gate, **more: str) -> None:
        self.server = server
        self.gate: Gate = gate
        self.more = {f"sink.mongodb.{name.replace('_', '.')}": text for name, text in more.items()}

    def options(self) -> Mapping[str, str]:
        return {
            "sink.mongodb.url": f"mongodb://127.0.0.1:{self.gate.port}/?directConnection=true&authSource=admin",
            **self.server.login,
            "sink.mongodb.database": DATABASE,
            "sink.mongodb.collection": "${namespace}",
            "sink.mongodb.timeout.ms": "5000",
            "sink.mongodb.retries": "1",
            "sink.mongodb.retry.backoff.ms": "20",
            **self.more,
        }

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        name = self.more.get("sink.mongodb.collection", schema.namespace)
        documents = list(self.server.client[DATABASE][collection_name(name)].find({}))
        decimals = {column.name for column in schema.columns if column.type.typeName() == "decimal"}
        return [
            {column: _read(value, decimal=column in decimals) for column, value in row.items()}
            for row in documents
            if row.get("ums_active_") != 0
        ]

    def stored(self, column: Column, value: Any) -> Any:
        del column
        match value:
            case datetime():  # BSON's times have milliseconds
                return value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=UTC)
            case date():
                return datetime(value.year, value.month, value.day, tzinfo=UTC)
        return value

    def wrong_login(self) -> Mapping[str, str]:
        return {"sink.mongodb.password": "not-the-secret"}

    def refused_row(self) -> Mapping[str, Any]:
        """The collection is there before the job, and validates documents."""
        name = self.more["sink.mongodb.collection"]
        self.server.client[DATABASE].create_collection(name, validator={"name": {"$ne": "refused"}})
        return {"name": "refused"}


def _read(value: Any, *, decimal: bool) -> Any:
    """A value as Python has it; decimals may be text."""
    if isinstance(value, Decimal128):
        return value.to_decimal()
    return Decimal(value) if decimal and isinstance(value, str) else value


@pytest.fixture
def gate(mongodb: Server) -> Iterator[Gate]:
    with Gate(mongodb.host, mongodb.port) as proxy:
        yield proxy


@pytest.mark.proves("into mongodb", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases(cases(), SLOW))
def test_conformance_of_upserts(case: str, mongodb: Server, gate: Gate, spark: SparkSession, bootstrap: str) -> None:
    # The case of the refused row has one collection, made by ``refused_row``.
    options = {"collection": "validated"} if case == "poison_record" else {}
    check_sink(MongoTarget(mongodb, gate, **options), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize(
    "case", ["older_after_delete", "delete", "delete_of_an_unknown_key", "nulls_and_absent_columns"]
)
def test_conformance_of_soft_deletes(case: str, mongodb: Server, gate: Gate, spark: SparkSession) -> None:
    check_sink(MongoTarget(mongodb, gate, delete_mode="soft"), spark=spark, only=case)


@pytest.mark.parametrize("case", ["every_type"])
def test_conformance_of_decimals_as_text(case: str, mongodb: Server, gate: Gate, spark: SparkSession) -> None:
    check_sink(MongoTarget(mongodb, gate, decimals="string", id="${key}"), spark=spark, only=case)


@pytest.mark.proves("into mongodb insert", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize(
    "case",
    kit_cases(
        ["replay", "delete", "every_type", "many_rows", "connection_breaks_at_every_step", "killed_at_every_step"], SLOW
    ),
)
def test_conformance_of_inserts(case: str, mongodb: Server, gate: Gate, spark: SparkSession) -> None:
    target = MongoTarget(mongodb, gate, mode="insert")
    target.supports = Supports(upsert=False, ordering=False, remembers_deletes=False)
    check_sink(target, spark=spark, only=case)
