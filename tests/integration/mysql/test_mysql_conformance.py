"""The conformance kit on the MySQL connector, on a server of the module's own: the stream alone, and tables and stream."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, ClassVar

import pymysql
import pytest

from compose.local.mariadb import MariaDb
from connectors.mysql.connector import MySqlConnector
from connectors.mysql.model import BLOCK
from connectors.testing import WAIVERS, Harness, connector_conformance, snapshot_conformance
from worker.fetch.errors import Unavailable
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from connectors.api import SourceRecord

USER = "kit"
PASSWORD = "open-sesame-4711"
RIGHTS = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR, SLAVE MONITOR, SHOW DATABASES"


def run(server: MariaDb, *statements: str) -> None:
    with (
        closing(
            pymysql.connect(
                host="127.0.0.1", port=server.port or 0, user=server.user, password=server.password, autocommit=True
            )
        ) as connection,
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)


class Stream(Harness):
    """A table in a database of its own; each key is in another block of keys than the one before."""

    #: Set by the fixture.
    server: ClassVar[MariaDb]
    timeout = 30.0
    flood = 20_000

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.database = f"kit{secrets.token_hex(5)}"
        self.written = 0

    async def start(self) -> None:
        # The binlog is reset: a connector without a saved position reads it from its start.
        await self.sql(
            "RESET MASTER",
            f"CREATE DATABASE {self.database}",
            f"CREATE TABLE {self.table} (id BIGINT PRIMARY KEY, v VARCHAR(200), at TIME NOT NULL DEFAULT '12:00:00')",
        )

    async def stop(self) -> None:
        await self.sql(f"DROP DATABASE {self.database}")

    async def sql(self, *statements: str) -> None:
        await asyncio.to_thread(run, self.server, *statements)

    @property
    def table(self) -> str:
        return f"{self.database}.t"

    def config(self) -> Mapping[str, str]:
        return {
            "connector.class": "mysql",
            "topic.prefix": "kit",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.include.list": self.database,
            "snapshot.mode": "never",
            "include.schema.changes": "false",
            "poll.interval.ms": "20",
            "max.batch.size": "500",
            "time.precision.mode": "connect",
        }

    async def add(self, count: int) -> None:
        first, self.written = self.written + 1, self.written + count
        await self.sql(
            f"INSERT INTO {self.table} (id, v) SELECT seq * {BLOCK}, CONCAT(seq, REPEAT('x', 90)) "
            f"FROM {self.database}.seq_{first}_to_{self.written}"
        )

    async def poison(self) -> None:
        """Write a time that the mode can't represent, where null is not allowed either."""
        self.written += 1
        await self.sql(f"INSERT INTO {self.table} (id, at) VALUES ({self.written * BLOCK}, '30:00:00')")

    async def change_schema(self) -> None:
        await self.sql(f"ALTER TABLE {self.table} ADD w INT DEFAULT 7")

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        await asyncio.to_thread(self.server.stop)
        yield
        await asyncio.to_thread(self.server.start)

    def identity(self, record: SourceRecord) -> str:
        """The envelope tells when it was made."""
        value = {name: member for name, member in record.value.items() if name not in {"ts_ms", "ts_us", "ts_ns"}}
        return repr((record.source_partition, record.source_offset, record.topic, record.key, value))

    def wrong_config(self) -> Mapping[str, str]:
        return {**self.config(), "database.user": "nobody"}


class Tables(Stream):
    """Two tasks, which read the table first, with an exact place between that and the stream."""

    max_tasks = 2
    flood = 14_000

    def config(self) -> Mapping[str, str]:
        return {**super().config(), "snapshot.mode": "initial", "snapshot.chunk.rows": "1000"}

    def identity(self, record: SourceRecord) -> str:
        """Rows of the table have no position of their own."""
        return repr((record.topic, record.key, record.value["op"], record.value["after"]))

    def sequence(self, record: SourceRecord) -> str:
        """Each task has an order of its own, and sends rows of the table next to the stream."""
        return repr((record.source_partition, record.value["op"] == "r"))


class OnRequest(Stream):
    """Snapshots in chunks of a few rows, by two tasks."""

    max_tasks = 2

    def config(self) -> Mapping[str, str]:
        return {**super().config(), "snapshot.mode": "no_data", "snapshot.chunk.rows": "5"}

    def table_pattern(self) -> str:
        return self.table.replace(".", r"\.")

    def snapshot_row(self, record: SourceRecord) -> str | None:
        value = record.value or {}
        return repr(record.key) if value.get("op") == "r" else None


@pytest.fixture(scope="module", autouse=True)
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    server = MariaDb(tmp_path_factory.mktemp("mariadb-kit"), port=None, durable=False, say=say)
    try:
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        Stream.server = server
        run(server, f"CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'", f"GRANT {RIGHTS} ON *.* TO {USER}@'%'")
        yield


_CHUNK = (
    "a chunk of a table is one batch: a restart amid it, which exactly-once delivery rules out, gives all of it again"
)

TestStream = connector_conformance(MySqlConnector, harness=Stream, waivers=WAIVERS.get("mysql"))
TestTables = connector_conformance(
    MySqlConnector,
    harness=Tables,
    waivers={
        "resumes_from_every_offset": _CHUNK,
        "a_crash_repeats_only_what_was_not_committed": _CHUNK,
        **WAIVERS.get("mysql", {}),
    },
)
TestSnapshots = snapshot_conformance(MySqlConnector, harness=OnRequest)
