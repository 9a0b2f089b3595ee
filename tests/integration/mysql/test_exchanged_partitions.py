"""`ALTER TABLE ... EXCHANGE PARTITION`: the binlog has no rows of it, so a snapshot has to have all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import LIMIT, Source, read_snapshot
from tests.support.eventually import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connectors.api import SourceRecord
    from tests.conftest import HasMariaDb


@pytest.fixture
def source(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(server, f"exchange_{unique('x')[-8:]}")
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE parts (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN MAXVALUE)",
        "CREATE TABLE other (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO parts VALUES (1, 100), (3, 300)",
    )
    yield source
    source.sql(f"DROP DATABASE {source.name}")
    source.link.close()


async def test_a_snapshot_has_all_rows_although_the_stream_has_not_come_to_the_statement(source: Source) -> None:
    config = source.config(
        snapshot__mode="initial", signal__data__collection=f"{source.name}.orders", max__batch__size="1"
    )
    async with Run(MySqlConnector, config) as run:
        records = await read_snapshot(run)
        source.sql(
            f"INSERT INTO orders VALUES ('one', 'execute-snapshot', '{{\"data-collections\": [\"{source.name}.t\"]}}')",
            *["INSERT INTO other (v) VALUES (1)"] * 20,
            "UPDATE t SET v = 10 WHERE id = 1",
            "ALTER TABLE parts EXCHANGE PARTITION p WITH TABLE t",
        )
        while len(snapshot_states(run)) < 2:
            records += await take_batch(run)
        # The task stays where it is until the next batch is taken, and its snapshot reads.
        views = count_closed_views(source)
        async with patience(LIMIT):
            while count_closed_views(source) == views:
                await asyncio.sleep(0.01)
        while snapshot_states(run) != ["completed", "completed"]:
            records += await take_batch(run)
    rows = {record.key["id"]: record.value["after"]["v"] for record in records if record.topic.endswith(".t")}
    assert rows == {1: 100, 2: 2, 3: 300}  # nothing tells that 2 is gone
    assert dict(source.sql("SELECT id, v FROM t")) == {1: 100, 3: 300}


def snapshot_states(run: Run) -> list[str]:
    return [str(offset["state"]) for partition, offset in run.offsets.items() if "snapshot" in partition]


def count_closed_views(source: Source) -> int:
    """A snapshot ends each of its views with a ROLLBACK."""
    ((_, count),) = source.sql("SHOW GLOBAL STATUS LIKE 'Com_rollback'")
    return int(count)


async def take_batch(run: Run) -> list[SourceRecord]:
    batch = await run.take(LIMIT)
    assert batch is not None, run.log.text()
    return [record for record in batch[1].records if record.value is not None]
