"""The conformance kit on Cassandra: rows by key out of the write-ahead log, without it, and a row for each change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from cassandra.util import Date, Time

from spark_jobs.sinks.cassandra.tables import usable_name
from spark_jobs.testing import Gate, SinkTarget, Supports, cases, check_sink
from tests.support.kit_cases import kit_cases

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.cassandra import CassandraNode
    from spark_jobs.contract import Column, TableSchema

#: Seconds each: for slow runs.
SLOW = (
    *("killed_at_every_step", "connection_breaks_at_every_step", "poison_record", "server_silent", "server_down"),
    *("delete", "delete_of_an_unknown_key", "delete_then_insert_in_one_batch", "older_after_newer", "absent_column"),
    *("several_tables_and_empty_batches", "emoji_names", "server_slow", "many_rows", "declarations", "large_values"),
)


class CassandraTarget(SinkTarget):
    """A Cassandra behind a gate."""

    sink_type = "cassandra"
    supports = Supports(widening=False)

    def __init__(self, client: Any, keyspace: str, gate: Gate, folder: Path, **options: str) -> None:
        self.client = client
        self.keyspace = keyspace
        self.gate: Gate = gate
        self.folder_of_job = folder
        self.more = options

    def options(self) -> Mapping[str, str]:
        return {
            "sink.cassandra.hosts": f"127.0.0.1:{self.gate.port}",
            "sink.cassandra.keyspace": self.keyspace,
            "sink.cassandra.consistency": "ONE",
            "sink.cassandra.timeout.ms": "3000",
            "sink.cassandra.retries": "1",
            "sink.cassandra.retry.backoff.ms": "20",
            "checkpoint.location": str(self.folder_of_job / "checkpoint"),
            **self.more,
        }

    def table(self, schema: TableSchema) -> str:
        """The name of a table."""
        return self.more.get("sink.cassandra.table") or usable_name(
            schema.namespace.partition(".")[2] or schema.namespace
        )

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        table = self.table(schema)
        there = self.client.execute(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s",
            (self.keyspace, table),
        )
        if not list(there):
            return []
        kinds = {column.name: column.type.typeName() for column in schema.columns}
        rows = self.client.execute(f'SELECT * FROM {self.keyspace}."{table}"')  # noqa: S608 - of the test
        return [{name: _read(value, kinds.get(name, "")) for name, value in row.items()} for row in rows]

    def stored(self, column: Column, value: Any) -> Any:
        del column
        if isinstance(value, datetime):
            return value.replace(microsecond=value.microsecond // 1000 * 1000)  # the type has milliseconds
        return value

    def refused_row(self) -> Mapping[str, Any]:
        """The table is there before the job, and takes ASCII only."""
        table = self.more["sink.cassandra.table"]
        self.client.execute(f"CREATE TABLE {self.keyspace}.{table} (id bigint PRIMARY KEY, name ascii, amount double)")
        return {"name": "é"}


def _read(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if isinstance(value, Date):
        return value.date()
    if isinstance(value, Time):
        return value.nanosecond_time
    if kind in ("array", "map", "struct"):
        return json.loads(value)
    return value.replace(tzinfo=UTC) if kind == "timestamp" else value


#: Writes a batch again after a later one, which a checkpoint and its log never do.
WITHOUT_LOG = "older_after_delete"
#: Needs a server with logins.
LOGIN = "refused_login"
#: The cases that run without the log also when only quick ones run.
QUICK_WITHOUT_LOG = (WITHOUT_LOG, "replay")


@pytest.mark.proves("into cassandra", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases([name for name in cases() if name not in (WITHOUT_LOG, LOGIN)], SLOW))
def test_conformance_out_of_the_log(
    case: str, client: Any, keyspace: str, gate: Gate, spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    # The case of the refused row has one table, made by ``refused_row``.
    options = {"sink.cassandra.table": "ascii_only"} if case == "poison_record" else {}
    target = CassandraTarget(client, keyspace, gate, tmp_path, **options)
    check_sink(target, spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize(
    "case",
    kit_cases([name for name in cases() if name != LOGIN], [name for name in cases() if name not in QUICK_WITHOUT_LOG]),
)
def test_conformance_without_the_log(
    case: str, client: Any, keyspace: str, gate: Gate, spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    options = {"sink.cassandra.table": "ascii_without_log"} if case == "poison_record" else {}
    target = CassandraTarget(client, keyspace, gate, tmp_path, guarantee="at-least-once", **options)
    check_sink(target, spark=spark, bootstrap=bootstrap, only=case)


class LoginTarget(CassandraTarget):
    """A Cassandra with logins, of which the kit uses wrong ones."""

    def options(self) -> Mapping[str, str]:
        return {**super().options(), "sink.cassandra.user": "cassandra", "sink.cassandra.password": "cassandra-right"}

    def wrong_login(self) -> Mapping[str, str]:
        return {"sink.cassandra.password": "n0t-the-secret"}


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_conformance_of_logins(guarantee: str, logins: CassandraNode, spark: SparkSession, tmp_path: Path) -> None:
    with Gate(logins.host, logins.port or 0) as gate:
        target = LoginTarget(None, "shop", gate, tmp_path, guarantee=guarantee)
        check_sink(target, spark=spark, only=LOGIN)
