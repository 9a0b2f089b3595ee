"""A real MariaDB's changes on their way: the connector in this process, Kafka, a job's source, the JDBC sink, PostgreSQL."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pymysql

from connectors.mysql.connector import MySqlConnector
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from spark_jobs.sources.debezium import DebeziumSource
from spark_jobs.sources.ums import UmsSource
from tests.integration.spark_jobs.sources.test_sources_live import Bench
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from compose.local.mariadb import MariaDb
    from connectors.api import SourceRecord
    from spark_jobs.contract import TableChanges
    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

PATIENCE = 30.0
#: A table whose changes say how far the stream has come.
MARKER_TABLE = "zz_mark"


class Pipeline:
    """Databases of its own on a server, one connector over them whose form may change, and a sink.

    Args:
        server: the source.
        spark, bootstrap: of the job.
        databases: their names, each gets a prefix of the test's own.
        options: of the connector.
    """

    def __init__(
        self,
        server: MariaDb,
        spark: SparkSession,
        bootstrap: str,
        databases: Sequence[str],
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.prefix = f"p{secrets.token_hex(4)}"
        self.databases = [f"{self.prefix}_{name}" for name in databases]
        self._spark, self._bootstrap = spark, bootstrap
        self._offsets = SavedOffsets()
        self._marker_number = 0
        self._server = pymysql.connect(
            host="127.0.0.1", port=int(server.port or 0), user=server.user, password=server.password, autocommit=True
        )
        for name in self.databases:
            self.sql(f"CREATE DATABASE {name}")
        self.sql(f"CREATE TABLE {self.databases[0]}.{MARKER_TABLE} (id INT PRIMARY KEY)")
        self.config = {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "topic.prefix": self.prefix,
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
            "database.include.list": ",".join(self.databases),
            "include.schema.changes": "false",
            "poll.interval.ms": "20",
            "ums.heartbeat.interval.ms": "0",
            **(options or {}),
        }

    def close(self) -> None:
        """Drop what was made on the source."""
        for name in self.databases:
            self.sql(f"DROP DATABASE IF EXISTS {name}")
        self._server.close()

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on the source; the rows of the last one."""
        with self._server.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    async def capture(self, form: str, *statements: str) -> list[SourceRecord]:
        """Run statements and return the connector's records in this form; the connector resumes where it was stopped."""
        async with Run(MySqlConnector, {**self.config, "output.format": form}, offsets=self._offsets) as run:
            self.sql(*statements)
            self._marker_number += 1
            self.sql(f"INSERT INTO {self.databases[0]}.{MARKER_TABLE} VALUES ({self._marker_number})")
            records: list[SourceRecord] = []
            while not any(_is_marker(record, self._marker_number) for record in records):
                batch = await run.take(PATIENCE)
                assert batch is not None, f"the changes did not come; log:\n{run.log.text()}"
                records += batch[1].records
        rows = "payload" if form == "ums" else "op"  # other records: heartbeats, versions of tables
        return [record for record in records if record.value is not None and rows in record.value]

    def changes(self, form: str, records: Sequence[SourceRecord], **options: str) -> list[TableChanges]:
        """Read the records with a job's source, by way of a Kafka topic of their own."""
        bench = Bench(self._spark, self._bootstrap, f"{self.prefix}-{secrets.token_hex(3)}")
        keys, values = (
            JsonConverter({"schemas.enable": str(form == "debezium").lower()}, is_key=key) for key in (True, False)
        )
        bench.send(
            [
                (
                    keys.from_connect("", record.key_schema, record.key),
                    values.from_connect("", record.value_schema, record.value),
                )
                for record in records
            ]
        )
        if form == "ums":
            return bench.changes(bench.source(UmsSource, **{"source.key.columns": "id", **options}))
        return bench.changes(bench.source(DebeziumSource, **options))


def sink(rig: Callable[..., Rig], database: Database, spark: SparkSession, pipeline: Pipeline, **options: str) -> Rig:
    """A JDBC sink whose tables are called ``<prefix>_<table>``."""
    return rig(database, spark, **{"sink.jdbc.table": f"{pipeline.prefix}_${{table}}", **options})


def _is_marker(record: SourceRecord, number: int) -> bool:
    value = record.value or {}
    if "payload" in value:
        return MARKER_TABLE in value["schema"]["namespace"] and any(
            row["tuple"][-1] == str(number) for row in value["payload"]
        )
    after = value.get("after")
    return value.get("source", {}).get("table") == MARKER_TABLE and after is not None and after["id"] == number
