"""``millrace verify`` of system-versioned tables (MariaDB): the topic has former rows, which the table does not show."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import LIMIT, read_snapshot
from tests.integration.mysql.test_versioned_tables import CHANGES, DECLARED
from tests.integration.mysql.verify_world import VerifyWorld
from worker.transforms.pipeline import build_pipeline
from worker.verify import rows as verify_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connectors.api import SourceRecord

COUNTS = {"t": (3, 3), "keyless": (1, 1), "emptied": (0, 0)}


@pytest.fixture
def world(mariadb: Any, kafka: Any, tmp_path: Path) -> Iterator[VerifyWorld]:
    world = VerifyWorld(mariadb, kafka, tmp_path)
    try:
        yield world
    finally:
        world.close()


async def capture(world: VerifyWorld, **config: str) -> list[SourceRecord]:
    """All that the connector sends: of rows from before, and of the changes."""
    raw = {**world.config, "snapshot.mode": "initial", **config}
    pipeline = build_pipeline(raw)
    async with Run(MySqlConnector, raw) as run:
        records = await read_snapshot(run)
        for statement in (
            *CHANGES,
            "UPDATE keyless SET v = 2",
            "UPDATE keyless SET v = 1",
            "DELETE FROM emptied",
            "INSERT INTO the_end VALUES (1)",
        ):
            world.sql(statement)
        while not any(map(is_end, records)):
            batch = await run.take(LIMIT)
            assert batch is not None, run.log.text()
            records += batch[1].records
    return [sent for record in records if (sent := pipeline.apply(record)) is not None]


def is_end(record: SourceRecord) -> bool:
    value = record.value or {}
    kind = value.get("op") or value.get("protocol", {}).get("type")
    return record.topic.endswith("the_end") and kind in {"c", "data_increment_data"}


@pytest.mark.parametrize(
    ("period", "config"),
    [
        ("", {}),
        (DECLARED, {}),
        (DECLARED, {"output.format": "ums"}),
        ("", {"transforms": "u", "transforms.u.type": "ExtractNewRecordState"}),
    ],
)
def test_former_rows_are_no_difference(
    world: VerifyWorld,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    period: str,
    config: dict[str, str],
) -> None:
    for table in ("t", "pair", "loose"):
        world.sql(f"DROP TABLE {table}")
    for statement in (
        f"CREATE TABLE t (id INT NOT NULL, v INT, {period}PRIMARY KEY (id)) WITH SYSTEM VERSIONING",
        "INSERT INTO t (id, v) VALUES (1, 1), (2, 2), (3, 3)",
        "CREATE TABLE keyless (v INT) WITH SYSTEM VERSIONING",
        "INSERT INTO keyless VALUES (1)",
        "CREATE TABLE emptied (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        "INSERT INTO emptied VALUES (1)",
        "CREATE TABLE the_end (id INT PRIMARY KEY)",
    ):
        world.sql(statement)
    asyncio.run(world.send(asyncio.run(capture(world, **config))))
    # Plain rows of a table without a key don't say which row they replace.
    counts = {name: count for name, count in COUNTS.items() if name != "keyless" or "transforms" not in config}
    chosen = rf".*\.({'|'.join(counts)})"
    for many in (verify_rows.MANY_ROWS, 0):
        monkeypatch.setattr(verify_rows, "MANY_ROWS", many)
        code, tables, error = world.verify(capsys, "--tables", chosen, **config)
        assert (code, error) == (0, ""), f"{error} {tables}"
        assert {name: (table["rows"]["source"], table["rows"]["topic"]) for name, table in tables.items()} == counts
    world.sql("SET SESSION sql_log_bin = 0")
    world.sql("UPDATE t SET v = 5 WHERE id = 1")
    world.sql("DELETE FROM t WHERE id = 4")
    code, tables, _ = world.verify(capsys, "--tables", r".*\.t", **config)
    assert (code, tables["t"]["different"], tables["t"]["extra"], tables["t"]["missing"]) == (1, 1, 1, 0)
