"""The conformance kit on MongoDB, or its stand-in: a document per row, and a document per change."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.sinks.mongodb.client import bson_of
from spark_jobs.testing import Gate, SinkTarget, Supports, Unsupported, cases, check_sink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema
    from tests.integration.spark_jobs.mongodb.conftest import Server

pytestmark = pytest.mark.slow
DATABASE = "kit"
_STAND_IN = "the stand-in (FerretDB) has no Decimal128"


class MongoTarget(SinkTarget):
    """A MongoDB behind a gate."""

    sink_type = "mongodb"
    unsupported_types: Mapping[str, str] = {}

    def __init__(self, server: Server, gate: Gate, mode: str = "upsert") -> None:
        self.server = server
        self.gate: Gate = gate
        self.mode = mode

    def options(self) -> Mapping[str, str]:
        login = {"sink.mongodb.user": self.server.user, "sink.mongodb.password": self.server.password}
        query = f"?{self.server.query}&directConnection=true" if self.server.query else "?directConnection=true"
        return {
            "sink.mongodb.url": f"mongodb://127.0.0.1:{self.gate.port}/{query}",
            "sink.mongodb.database": DATABASE,
            "sink.mongodb.collection": "${namespace}",
            "sink.mongodb.mode": self.mode,
            "sink.mongodb.timeout.ms": "5000",
            "sink.mongodb.batch.rows": "100",
            "sink.mongodb.retries": "1",
            "sink.mongodb.retry.backoff.ms": "20",
            **(login if self.server.user else {}),
        }

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        return list(self.server.client[DATABASE][schema.namespace].find({}))

    def stored(self, column: Column, value: Any) -> Any:
        match value:
            case datetime():  # BSON's times have milliseconds
                return value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=UTC)
            case Decimal():
                return bson_of(value)
        return bson_of(value) if column.type.typeName() == "date" else value

    def wrong_login(self) -> Mapping[str, str]:
        if not self.server.user:
            raise Unsupported("the stand-in has no logins")
        return {"sink.mongodb.password": "not-the-secret"}


@pytest.fixture
def gate(mongodb: Server) -> Iterator[Gate]:
    with Gate(mongodb.host, mongodb.port) as proxy:
        yield proxy


@pytest.mark.proves("into mongodb", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", cases())
def test_conformance_of_upserts(case: str, mongodb: Server, gate: Gate, spark: SparkSession, bootstrap: str) -> None:
    target = MongoTarget(mongodb, gate)
    if not mongodb.user:
        target.unsupported_types = {"decimal": _STAND_IN}
    check_sink(target, spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.proves("into mongodb insert", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", ["replay", "many_rows", "killed_at_every_step", "connection_breaks_at_every_step"])
def test_conformance_of_inserts(case: str, mongodb: Server, gate: Gate, spark: SparkSession) -> None:
    target = MongoTarget(mongodb, gate, "insert")
    target.supports = Supports(upsert=False, ordering=False, remembers_deletes=False)
    check_sink(target, spark=spark, only=case)
