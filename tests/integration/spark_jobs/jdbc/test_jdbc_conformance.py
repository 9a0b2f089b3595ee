"""The conformance kit on every database."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.testing import Gate, SinkTarget, Supports, Unsupported, cases, check_sink
from tests.integration.spark_jobs.jdbc.conftest import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from _pytest.mark import ParameterSet
    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema
    from tests.integration.spark_jobs.jdbc.conftest import Database


class JdbcTarget(SinkTarget):
    """A database behind a gate, or a file."""

    sink_type = "jdbc"
    supports = Supports()

    def __init__(self, db: Database, gate: Gate | None, **options: str) -> None:
        self.db = db
        self.gate = gate
        self._options = options
        if db.name in ("mariadb", "mysql"):
            self.waivers = {"emoji_names": "MariaDB's and MySQL's names have letters of Unicode's first 65536 only"}

    def options(self) -> Mapping[str, str]:
        options = self.db.options
        if self.gate is not None:
            port = str(self.db.login.address.hosts[0][1])
            options["sink.jdbc.url"] = self.db.url.replace(f":{port}/", f":{self.gate.port}/")
        return {
            **options,
            "sink.jdbc.retries": "1",
            "sink.jdbc.retry.backoff.ms": "20",
            "sink.jdbc.connect.timeout.ms": "2000",
            "sink.jdbc.statement.timeout.ms": "2000",
            **self._options,
        }

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        name = schema.namespace.rpartition(".")[2]
        present = self.db.columns(name)
        if not present:
            return []
        columns = [column.name for column in schema.columns if column.name in present] + ["ums_id_", "ums_op_"]
        floats = {column.name for column in schema.columns if column.type.typeName() == "float"}
        # MariaDB and MySQL show six digits of a float.
        quoted = ", ".join(
            f"{name} + 0e0" if column in floats else name for column in columns for name in [self.db.quote(column)]
        )
        alive = " WHERE ums_active_ = 1" if self.supports.upsert else ""
        rows = self.db.query(f"SELECT {quoted} FROM {self.db.quote(name)}{alive}")
        nested = {column.name for column in schema.columns if column.type.typeName() in ("array", "map", "struct")}
        return [
            {
                column: json.loads(value) if column in nested and isinstance(value, str) else value
                for column, value in zip(columns, row, strict=True)
            }
            for row in rows
        ]

    def stored(self, column: Column, value: Any) -> Any:
        """A datetime has no zone: the sink writes UTC. SQLite has text for times, and for numbers of more than 15 digits."""
        kind = column.type.typeName()
        if kind == "timestamp" and self.db.name != "postgresql":
            value = value.replace(tzinfo=None)
        if self.db.name == "sqlite" and kind in ("date", "timestamp", "timestamp_ntz", "decimal"):
            return plain(value, column)
        return value

    def wrong_login(self) -> Mapping[str, str]:
        if self.db.name == "sqlite":
            raise Unsupported("the target has no wrong_login: a file has no logins")
        return {"sink.jdbc.password": "not-the-secret"}

    def refused_row(self) -> Mapping[str, Any]:
        if self.db.name in ("mariadb", "mysql"):
            raise Unsupported("the target has no refused_row: it takes every value that JSON can have")
        return {"amount": float("nan")} if self.db.name == "sqlite" else {"name": "nul \0 byte"}

    def folder(self) -> Path:
        if self.db.name == "sqlite":
            return Path(self.db.login.address.database).parent
        return super().folder()

    def outage(self) -> AbstractContextManager[None]:
        return self._locked() if self.db.name == "sqlite" else super().outage()

    def silence(self) -> AbstractContextManager[None]:
        return self._locked() if self.db.name == "sqlite" else super().silence()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Another program writes the file, and does not end."""
        with closing(sqlite3.connect(self.db.login.address.database, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield


def plain(value: Any, column: Column) -> str:
    """Text of a date, a time, or a number with all its digits."""
    if isinstance(value, Decimal):
        return f"{value:.{column.type.scale}f}"  # type: ignore[attr-defined]
    return value.isoformat(" ", "microseconds") if isinstance(value, datetime) else str(value)


@pytest.fixture
def gate(db: Database) -> Iterator[Gate | None]:
    if not db.login.address.hosts:
        yield None
        return
    with Gate(*db.login.address.hosts[0]) as gate:
        yield gate


def each_case_on_each_database() -> list[ParameterSet]:
    """Slow: MySQL's, and kills of a job that writes to SQLite, each of which starts a JVM."""
    sets = []
    for case in cases():
        for name in FIXTURES:
            slow = name == "mysql" or (name, case) == ("sqlite", "killed_at_every_step")
            sets.append(pytest.param(name, case, marks=[pytest.mark.slow] if slow else [], id=f"{name}-{case}"))
    return sets


@pytest.mark.parametrize(("db", "case"), each_case_on_each_database(), indirect=["db"])
def test_conformance_of_upserts(
    case: str, db: Database, gate: Gate | None, spark: SparkSession, bootstrap: str
) -> None:
    # MariaDB's client waits 12 s for an answer, and again at each retry.
    options = {"sink.jdbc.retries": "0"} if case == "server_silent" else {}
    check_sink(JdbcTarget(db, gate, **options), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize(
    "case", ["replay", "delete", "many_rows", "connection_breaks_at_every_step", "killed_at_every_step"]
)
def test_conformance_of_inserts(case: str, postgresql: Database, spark: SparkSession) -> None:
    with Gate(*postgresql.login.address.hosts[0]) as gate:
        target = JdbcTarget(postgresql, gate, **{"sink.jdbc.mode": "insert"})
        target.supports = Supports(upsert=False, ordering=False, remembers_deletes=False)
        check_sink(target, spark=spark, only=case)
