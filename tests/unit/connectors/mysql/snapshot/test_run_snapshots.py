"""A run's snapshots and the statements of the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from connectors.mysql.model import TableName
from connectors.mysql.source.statements import classify_statement
from tests.unit.connectors.mysql.snapshot.run_world import run_snapshots

if TYPE_CHECKING:
    from connectors.mysql.snapshot.reader import MySqlSnapshotReader


class Recorder:
    """Stands for the reader, and notes what it has to read again."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def altered(self, name: TableName | None) -> None:
        self.calls.append(name)

    def database_altered(self, database: str) -> None:
        self.calls.append(database)


async def test_a_statement_about_a_database_concerns_its_tables_only() -> None:
    for sql, database, expected in (
        ("CREATE DATABASE tenant_17", "tenant_17", []),
        ("CREATE DATABASE IF NOT EXISTS shop", "shop", []),
        ("ALTER DATABASE CHARACTER SET utf8mb4", "shop", []),  # for tables that are created later
        ("DROP DATABASE tenant_17", "tenant_17", ["tenant_17"]),
        ("DROP TABLE t", "shop", [TableName("shop", "t")]),
        ("CREATE TABLE tenant_17.t (id INT)", "shop", [TableName("tenant_17", "t")]),
    ):
        snapshots, recorder = run_snapshots(), Recorder()
        snapshots.reader = cast("MySqlSnapshotReader", recorder)
        await snapshots.altered(classify_statement(sql, database))
        assert recorder.calls == expected, sql
