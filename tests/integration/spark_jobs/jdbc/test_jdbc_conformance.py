"""The conformance kit on PostgreSQL and MariaDB."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.testing import Gate, SinkTarget, Supports, Unsupported, cases, check_sink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema
    from tests.integration.spark_jobs.jdbc.conftest import Database


class JdbcTarget(SinkTarget):
    """A database behind a gate."""

    sink_type = "jdbc"
    supports = Supports()

    def __init__(self, db: Database, gate: Gate, **options: str) -> None:
        self.db = db
        self.gate: Gate = gate
        self._options = options
        if db.name == "mariadb":
            self.waivers = {"emoji_names": "MariaDB's names have letters of Unicode's first 65536 only"}

    def options(self) -> Mapping[str, str]:
        port = str(self.db.login.address.hosts[0][1])
        return {
            "sink.jdbc.url": self.db.url.replace(f":{port}/", f":{self.gate.port}/"),
            "sink.jdbc.user": self.db.login.user,
            "sink.jdbc.password": self.db.login.password,
            "sink.jdbc.retries": "1",
            "sink.jdbc.retry.backoff.ms": "20",
            "sink.jdbc.connect.timeout.ms": "2000",
            "sink.jdbc.statement.timeout.ms": "2000",
            **self._options,
        }

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        name = schema.namespace.rpartition(".")[2]
        present = [
            row[0]
            for row in self.db.query(
                "SELECT column_name FROM information_schema.columns WHERE table_name = %s", (name,)
            )
        ]
        if not present:
            return []
        columns = [column.name for column in schema.columns if column.name in present] + ["ums_id_", "ums_op_"]
        floats = {column.name for column in schema.columns if column.type.typeName() == "float"}
        # MariaDB shows six digits of a float.
        quoted = ", ".join(
            f"{name} + 0e0" if each in floats else name
            for each in columns
            for name in [self.db.quote(each).replace("%", "%%")]
        )
        alive = " WHERE ums_active_ = 1" if self.supports.upsert else ""
        found = self.db.query(f"SELECT {quoted} FROM {self.db.quote(name)}{alive}", ())
        nested = {column.name for column in schema.columns if column.type.typeName() in ("array", "map", "struct")}
        return [
            {
                each: json.loads(value) if each in nested and isinstance(value, str) else value
                for each, value in zip(columns, row, strict=True)
            }
            for row in found
        ]

    def stored(self, column: Column, value: Any) -> Any:
        """MariaDB's datetime has no zone: the sink writes UTC."""
        return (
            value.replace(tzinfo=None) if column.type.typeName() == "timestamp" and self.db.name == "mariadb" else value
        )

    def wrong_login(self) -> Mapping[str, str]:
        return {"sink.jdbc.password": "not-the-secret"}

    def refused_row(self) -> Mapping[str, Any]:
        if self.db.name == "mariadb":
            raise Unsupported("MariaDB takes every value that JSON can have")
        return {"name": "nul \0 byte"}


@pytest.fixture
def gate(db: Database) -> Iterator[Gate]:
    with Gate(*db.login.address.hosts[0]) as made:
        yield made


@pytest.mark.parametrize("case", cases())
def test_conformance_of_upserts(case: str, db: Database, gate: Gate, spark: SparkSession, bootstrap: str) -> None:
    check_sink(JdbcTarget(db, gate), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize(
    "case", ["replay", "delete", "many_rows", "connection_breaks_at_every_step", "killed_at_every_step"]
)
def test_conformance_of_inserts(case: str, postgresql: Database, spark: SparkSession) -> None:
    with Gate(*postgresql.login.address.hosts[0]) as gate:
        target = JdbcTarget(postgresql, gate, **{"sink.jdbc.mode": "insert"})
        target.supports = Supports(upsert=False, ordering=False, remembers_deletes=False)
        check_sink(target, spark=spark, only=case)
