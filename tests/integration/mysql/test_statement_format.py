"""Sessions that write statements into the binlog in place of rows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from connectors.errors import Fatal
from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import LIMIT, Source
from tests.integration.mysql.dialect import is_mysql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import HasMariaDb


@pytest.fixture
def source(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(server, f"format_{unique('x')[-8:]}")
    if is_mysql(server):
        source.sql("SET GLOBAL log_bin_trust_function_creators = 1")
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1)",
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN UPDATE t SET v = v + 1; RETURN 1; END",
    )
    yield source
    source.sql(f"DROP DATABASE {source.name}")
    source.link.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET v = 9",
        "SELECT f()",
        "DO f()",
        "SET @a = f()",
        "",
    ],
)
async def test_a_statement_that_changes_rows_stops_the_stream(source: Source, statement: str) -> None:
    """The binlog does not tell which rows: to pass it over would lose them in silence."""
    if not statement:  # what only the one server or the other has
        mysql = is_mysql(source.server)
        statement = f"{'WITH x AS (SELECT 1 AS a)' if mysql else 'ANALYZE'} UPDATE t SET v = 9"
    async with Run(MySqlConnector, source.config()) as run:
        assert await run.take(LIMIT) is not None
        source.sql("SET SESSION binlog_format = STATEMENT", statement, "SET SESSION binlog_format = ROW")
        with pytest.raises(Fatal, match="has changed rows that are not in the binlog"):
            await asyncio.wait_for(source.rest(run), LIMIT)
