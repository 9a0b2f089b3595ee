"""System-versioned tables (MariaDB): a snapshot and the stream have the same columns and the same key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import Source, read_snapshot, rows_by_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import HasMariaDb

#: Two times of a row that the table declares, or hides.
DECLARED = (
    "b TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, "
    "PERIOD FOR SYSTEM_TIME (b, e), "
)
CHANGES = (
    "UPDATE t SET v = 9 WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
    "INSERT INTO t (id, v) VALUES (4, 4)",
    "REPLACE INTO t (id, v) VALUES (3, 30)",
)


@pytest.fixture(params=["FULL", "NO_LOG"])
def source(request: pytest.FixtureRequest, mariadb: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(mariadb, f"versioned_{unique('x')[-8:]}")
    source.sql(f"SET GLOBAL binlog_row_metadata = {request.param}")
    yield source
    source.sql("SET GLOBAL binlog_row_metadata = FULL", f"DROP DATABASE {source.name}")
    source.link.close()


@pytest.mark.parametrize("index", ["PRIMARY KEY", "UNIQUE KEY"])
@pytest.mark.parametrize("period", ["", DECLARED])
async def test_a_topic_has_each_version_of_a_row_once(source: Source, index: str, period: str) -> None:
    source.sql(
        f"CREATE TABLE t (id INT NOT NULL, v INT, {period}{index} (id)) WITH SYSTEM VERSIONING",
        "INSERT INTO t (id, v) VALUES (1, 1), (2, 2), (3, 3)",
    )
    async with Run(MySqlConnector, source.config(snapshot__mode="initial")) as run:
        records = await read_snapshot(run)
        source.sql(*CHANGES)
        records += await source.rest(run)
        records = [record for record in records if record.topic.endswith(".t")]
    assert len({str(record.key_schema) for record in records}) == 1
    assert len({str(record.value_schema) for record in records}) == 1
    rows = rows_by_key(records, "t")
    start, end = ("b", "e") if period else ("row_start", "row_end")
    assert sorted((row["id"], row["v"], _text_of(row[start]), _text_of(row[end])) for row in rows.values()) == sorted(
        source.sql(
            "SET time_zone = '+00:00'",
            f"SELECT id, v, CAST({start} AS CHAR), CAST({end} AS CHAR) FROM t FOR SYSTEM_TIME ALL",
        )
    )


def _text_of(time: str) -> str:
    return time.replace("T", " ").removesuffix("Z")


async def test_a_table_without_a_key_has_its_hidden_columns_in_snapshots(source: Source) -> None:
    source.sql("CREATE TABLE t (v INT) WITH SYSTEM VERSIONING", "INSERT INTO t VALUES (1), (2)")
    async with Run(MySqlConnector, source.config(snapshot__mode="initial")) as run:
        records = await read_snapshot(run)
        source.sql("DELETE FROM t WHERE v = 1")
        records += await source.rest(run)
    read = [record.value["after"] for record in records if record.value["op"] == "r"]
    deleted = [record.value["before"] for record in records if record.value["op"] == "u"]
    assert deleted == [row for row in read if row["v"] == 1]
