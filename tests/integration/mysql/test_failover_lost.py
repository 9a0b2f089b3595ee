"""Two real servers: the source is lost with transactions that its replica never got, and that the stream has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compose.local.databases.server_pair import execute_sql
from connectors.errors import Retriable
from connectors.mysql.config.settings import CONFIG, connection_settings, stream_settings
from connectors.mysql.connector import MySqlConnector
from connectors.mysql.run.opening import RunSource
from connectors.mysql.source.binlog import PurgedError
from connectors.testing.contexts import LogCapture, SavedOffsets, make_logger
from connectors.testing.driver import Run
from tests.integration.mysql.dialect import is_mysql
from tests.integration.mysql.test_failover import PATIENCE, Change, Source, config, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.databases.server_pair import SqlServer
    from compose.local.mariadb import MariaDb


@pytest.fixture(params=["mariadb_pair", pytest.param("mysql_pair", marks=pytest.mark.slow)])
def pair(request: pytest.FixtureRequest) -> Any:
    """Two servers of MariaDB, and of MySQL in the slow suite."""
    return request.getfixturevalue(request.param)


async def test_commits_that_only_the_lost_server_had(pair: Any, unique: Callable[[str], str]) -> None:
    """Leaves the pair with the first server away: the only test of the file."""
    name = unique("lost").replace("-", "_")
    first, second = pair.primary, pair.replica
    source = Source(first, name)
    source.transaction(1)
    pair.caught_up(second, first)
    saved, seen = SavedOffsets(), list[Change]()
    properties = config(pair, name)
    async with Run(MySqlConnector, properties, offsets=saved) as run:
        assert await run.take(PATIENCE) is not None
        execute_sql(second, "STOP REPLICA IO_THREAD")
        execute_sql(first, *(f"INSERT INTO {name}.a VALUES ({key}, 1)" for key in (900, 901)))
        await read(run, seen, 2)
        first.kill()
        execute_sql(second, "STOP REPLICA")
        pair.promote(second)
        execute_sql(second, f"INSERT INTO {name}.a VALUES (1000, 1)")
        if is_mysql(second):
            await read(run, seen, 3)
            assert "lacks transactions that the stream has read" in run.log.text()
    if is_mysql(second):
        await continue_with_empty_transactions(second, properties, saved, seen)
    else:
        await begin_again(second, properties, saved, seen)
    assert seen[:2] == [("c", "a", 900, 1), ("c", "a", 901, 1)]
    execute_sql(second, f"DROP DATABASE {name}")


async def continue_with_empty_transactions(
    server: SqlServer, properties: dict[str, str], saved: SavedOffsets, seen: list[Change]
) -> None:
    (read_gtids,) = (offset["gtids"] for _, offset in saved.items() if offset.get("gtids"))
    ((lost,),) = execute_sql(server, f"SELECT GTID_SUBTRACT('{read_gtids}', @@global.gtid_executed)")
    uuid, _, numbers = lost.partition(":")
    begin, _, end = numbers.partition("-")
    assert int(end) - int(begin) == 1
    with pytest.raises(PurgedError, match=f"it lacks {lost}"):
        async with Run(MySqlConnector, properties, offsets=saved) as run:
            await read(run, seen, 4)
    for number in (begin, end):
        execute_sql(server, f"SET gtid_next = '{uuid}:{number}'", "BEGIN", "COMMIT", "SET gtid_next = 'AUTOMATIC'")
    async with Run(MySqlConnector, properties, offsets=saved) as run:
        execute_sql(server, f"INSERT INTO {properties['database.include.list']}.a VALUES (1001, 1)")
        await read(run, seen, 4)
    assert seen[2:] == [("c", "a", 1000, 1), ("c", "a", 1001, 1)]


async def begin_again(server: MariaDb, properties: dict[str, str], saved: SavedOffsets, seen: list[Change]) -> None:
    config = CONFIG.parse(properties)
    source = RunSource(connection_settings(config), stream_settings(config), make_logger("lost", LogCapture()))
    try:
        with pytest.raises(
            Retriable, match=rf"(?s)unavailable .*{server.address} answers: .*out of database\.hostname"
        ):
            await source.open(list(saved.items()))
    finally:
        await source.close()
    alone = {**properties, "database.hostname": server.address, "snapshot.mode": "when_needed"}
    async with Run(MySqlConnector, alone, offsets=saved) as run:
        await read(run, seen, 5)
    assert sorted(seen[2:]) == [("r", "a", 3, -3), ("r", "a", 4, 4), ("r", "a", 1000, 1)]
