"""The heartbeat writer against a real MariaDB: it creates its table, continues after faults, and reports missing rights."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

import aiomysql
import pytest

from connectors.mysql.source.connection import connect_first
from connectors.mysql.stream.heartbeat import HeartbeatSettings, HeartbeatWriter, parse, setup_text
from connectors.mysql.stream.latency import WRITE_SECONDS, HeartbeatLatency
from connectors.options import Password
from tests.support.eventually import eventually_async
from tests.support.settings import mysql_connection, mysql_heartbeat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.conftest import HasMariaDb

LOG = logging.LoggerAdapter(logging.getLogger(__name__), {})


class Admin:
    """An administrator of the server, in a database of the test's own."""

    def __init__(self, server: HasMariaDb, connection: Any) -> None:
        self.server = server
        self.connection = connection
        self.database = f"beats_{secrets.token_hex(4)}"
        self.table = f"{self.database}.heartbeat"

    async def run(self, statement: str) -> list[dict[str, Any]]:
        """All rows of a statement; ``TABLE_NAME`` stands for the heartbeat table."""
        async with self.connection.cursor(aiomysql.DictCursor) as cursor:
            await cursor.execute(statement.replace("TABLE_NAME", self.table))
            return list(await cursor.fetchall())

    async def user(self, rights: str) -> str:
        """A user with these rights in the database, which need not exist yet; named like it."""
        await self.run(f"CREATE USER '{self.database}'@'%' IDENTIFIED BY '{self.server.password}'")
        if rights:
            await self.run(f"GRANT {rights} ON `{self.database}`.* TO '{self.database}'@'%'")
        return self.database

    def writer(
        self, settings: HeartbeatSettings, user: str, latency: HeartbeatLatency | None = None
    ) -> HeartbeatWriter:
        to = mysql_connection(
            host="127.0.0.1", port=self.server.port or 0, user=user, password=Password(self.server.password)
        )
        return HeartbeatWriter(lambda: connect_first(to), settings, LOG, latency)


@pytest.fixture
async def admin(mariadb: HasMariaDb) -> AsyncIterator[Admin]:
    connection = await aiomysql.connect(
        host="127.0.0.1", port=mariadb.port, user=mariadb.user, password=mariadb.password, autocommit=True
    )
    admin = Admin(mariadb, connection)
    yield admin
    await admin.run(f"DROP USER IF EXISTS '{admin.database}'@'%'")
    await admin.run(f"DROP DATABASE IF EXISTS `{admin.database}`")
    connection.close()


async def test_it_makes_its_table_and_goes_on_after_faults(admin: Admin, caplog: pytest.LogCaptureFixture) -> None:
    latency = HeartbeatLatency()
    user = await admin.user("CREATE, SELECT, INSERT, UPDATE, DELETE")
    action = "DELETE FROM TABLE_NAME WHERE source = 'other'".replace("TABLE_NAME", admin.table)
    writer = admin.writer(
        mysql_heartbeat(interval_s=0.02, timeout_s=0.3, table=admin.table, source="shöp" * 60, action_query=action),
        user,
        latency,
    )
    with caplog.at_level(logging.INFO):
        writer.start()
        await eventually_async(lambda: writer.written >= 2, "two heartbeats are written")
        (row,) = await admin.run("SELECT * FROM TABLE_NAME")
        beat = parse(row)
        assert (beat.source, len(beat.source)) == (writer.source, 190)
        await admin.run("INSERT INTO TABLE_NAME VALUES ('other', 1)")
        written = writer.written
        await eventually_async(lambda: writer.written > written + 1, "more heartbeats are written")
        (row,) = await admin.run("SELECT * FROM TABLE_NAME")
        assert parse(row).sent_us > beat.sent_us
        assert WRITE_SECONDS in latency.numbers()

        # Its connection is killed: the next heartbeat makes another one.
        await admin.run(f"KILL USER '{user}'@'%'")
        await eventually_async(lambda: "No heartbeat is written" in caplog.text, "the log says so")
        written = writer.written
        await eventually_async(lambda: writer.written > written, "a heartbeat is written again")

        # A lock holds it up: each attempt times out, and it continues when the lock is gone.
        await admin.run("LOCK TABLES TABLE_NAME WRITE")
        await eventually_async(lambda: "within 0.3 s" in writer.problem, "the deadline is a problem")
        assert latency.problem == writer.problem
        await admin.run("UNLOCK TABLES")
        written = writer.written
        await eventually_async(lambda: writer.written > written and not writer.problem, "the problem is over")
        await writer.close()
    created = [record for record in caplog.records if "was created" in record.getMessage()]
    assert len(created) == 1


async def test_it_says_what_it_lacks_and_goes_on_when_it_has_it(admin: Admin) -> None:
    user = await admin.user("")
    settings = mysql_heartbeat(interval_s=0.02, table=admin.table, source="shop", user=user)
    writer = admin.writer(settings, user)
    writer.start()
    await eventually_async(lambda: writer.problem, "there is a problem")
    fixes = setup_text(settings)
    assert fixes in writer.problem
    for statement in fixes.split("; "):
        await admin.run(statement)
    await eventually_async(lambda: writer.written > 1, "heartbeats are written")
    await writer.close()
    assert writer.problem == ""
