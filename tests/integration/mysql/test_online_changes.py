"""Tools that change a table online, by the statements that they send, while it is written to and a snapshot reads it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import LIMIT, Source, contents, same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connectors.api import SourceRecord
    from tests.conftest import HasMariaDb

ROWS = 400
ALTER = "DROP COLUMN b, ADD COLUMN b BIGINT DEFAULT 7 FIRST, ADD COLUMN c VARCHAR(9) DEFAULT 'new'"


@pytest.fixture
def source(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(server, f"online_{unique('x')[-8:]}")
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
        f"INSERT INTO t SELECT seq, seq, seq FROM {source.name}.seq_1_to_{ROWS}",
    )
    yield source
    source.sql(f"DROP DATABASE {source.name}")
    source.link.close()


def write(execute: Callable[[str], Any], first: int, count: int) -> None:
    """Change, add and remove rows, also outside of what the tool has copied."""
    for number in range(first, first + count):
        execute(f"UPDATE t SET a = a + 1000 WHERE id = {number % ROWS + 1}")
        execute(f"INSERT INTO t (id, a) VALUES ({ROWS + number}, {number})")
        execute(f"DELETE FROM t WHERE id = {(number * 7) % ROWS + 1}")


def change_by_triggers(source: Source) -> None:
    """As pt-online-schema-change does it."""
    execute = source.sql
    execute("CREATE TABLE _t_new LIKE t", f"ALTER TABLE _t_new {ALTER}")
    execute("CREATE TRIGGER pt_del AFTER DELETE ON t FOR EACH ROW DELETE IGNORE FROM _t_new WHERE _t_new.id <=> OLD.id")
    for event in ("update", "insert"):
        execute(
            f"CREATE TRIGGER pt_{event[:3]} AFTER {event} ON t FOR EACH ROW "
            "REPLACE INTO _t_new (id, a) VALUES (NEW.id, NEW.a)"
        )
    for low in range(1, ROWS, 50):
        execute(
            "INSERT LOW_PRIORITY IGNORE INTO _t_new (id, a) SELECT id, a FROM t FORCE INDEX (PRIMARY) "
            f"WHERE id BETWEEN {low} AND {low + 49} LOCK IN SHARE MODE"
        )
        write(execute, low, 5)
    execute("INSERT LOW_PRIORITY IGNORE INTO _t_new (id, a) SELECT id, a FROM t LOCK IN SHARE MODE")
    execute("RENAME TABLE t TO _t_old, _t_new TO t", "DROP TABLE IF EXISTS _t_old")
    execute("DROP TRIGGER IF EXISTS pt_del", "DROP TRIGGER IF EXISTS pt_upd", "DROP TRIGGER IF EXISTS pt_ins")


def change_by_events(source: Source) -> None:
    """As gh-ost does it, which applies what it reads in the binlog; the cut-over is a lock and a rename that waits for it."""
    execute = source.sql
    execute("CREATE TABLE _t_ghc (id BIGINT AUTO_INCREMENT PRIMARY KEY, hint VARCHAR(64) UNIQUE, value VARCHAR(4096))")
    execute("CREATE /* gh-ost */ TABLE _t_gho LIKE t", f"ALTER /* gh-ost */ TABLE _t_gho {ALTER}")

    def both(statement: str) -> None:
        execute(statement)
        execute(statement.replace(" t ", " _t_gho ", 1).replace("INSERT", "REPLACE", 1))

    for low in range(1, ROWS, 50):
        execute(
            "INSERT /* gh-ost */ IGNORE INTO _t_gho (id, a) (SELECT id, a FROM t FORCE INDEX (PRIMARY) "
            f"WHERE id BETWEEN {low} AND {low + 49} LOCK IN SHARE MODE)"
        )
        execute(
            f"INSERT INTO _t_ghc (hint, value) VALUES ('copy', '{low}') ON DUPLICATE KEY UPDATE value = VALUES(value)"
        )
        write(both, low, 5)
    execute("INSERT /* gh-ost */ IGNORE INTO _t_gho (id, a) (SELECT id, a FROM t LOCK IN SHARE MODE)")
    execute("CREATE TABLE _t_del (id INT AUTO_INCREMENT PRIMARY KEY) COMMENT 'ghost-cut-over-sentry'")
    execute("LOCK /* gh-ost */ TABLES t WRITE, _t_del WRITE")
    with closing(source.connection()) as link, link.cursor() as cursor:
        cursor.execute(f"USE {source.name}")
        rename = threading.Thread(
            target=cursor.execute, args=("RENAME /* gh-ost */ TABLE t TO _t_del, _t_gho TO t",), daemon=True
        )
        rename.start()
        with closing(source.connection()) as watcher, watcher.cursor() as seen:
            waiting = 0
            while not waiting:
                waiting = seen.execute(
                    "SELECT 1 FROM information_schema.processlist WHERE state LIKE '%metadata lock%' "
                    "AND info LIKE 'RENAME%'"
                )
        execute("DROP TABLE IF EXISTS _t_del", "UNLOCK TABLES")
        rename.join(LIMIT)
    execute("DROP TABLE _t_del", "DROP TABLE _t_ghc")


@pytest.mark.parametrize("captured", ["t", ".*"])
@pytest.mark.parametrize("change", [change_by_triggers, change_by_events])
async def test_the_topic_has_the_rows_of_the_changed_table(
    source: Source, change: Callable[[Source], None], captured: str
) -> None:
    tables = rf"{source.name}\.({captured}|the_end)"
    config = source.config(
        snapshot__mode="initial", snapshot__chunk__rows="20", max__batch__size="20", table__include__list=tables
    )
    records: list[SourceRecord] = []
    async with Run(MySqlConnector, config) as run:
        changing = asyncio.create_task(asyncio.to_thread(change, source))
        while not changing.done():
            batch = await run.take(0.5)
            records += batch[1].records if batch is not None else []
        await changing
        source.sql("INSERT INTO t (id, a) VALUES (0, 0)", f"UPDATE t SET c = 'z' WHERE id = {ROWS}")
        records += await source.rest(run)
        # A table of the tool that was renamed may have another snapshot, which finds it gone.
        while "completed" not in [
            offset["state"] for partition, offset in run.offsets.items() if partition.get("snapshot") == "initial"
        ]:
            batch = await run.take(LIMIT)
            assert batch is not None, run.log.text()
            records += batch[1].records
        assert not [line for level, line in run.log.lines if level >= 40], run.log.text()
    rows: dict[int, Any] = {}
    for record in records:
        if record.topic == f"p.{source.name}.t" and record.value is not None:
            rows.pop(record.key["id"], None)
            if record.value["after"] is not None:
                rows[record.key["id"]] = record.value["after"]
    # Rows that neither the stream nor the snapshot has met since the swap have the columns of before it.
    there = contents(source, "t", "id", "a")
    assert same([{"id": row["id"], "a": row["a"]} for row in rows.values()], there)
    assert rows[0] == {"b": 7, "id": 0, "a": 0, "c": "new"}
