"""A run's snapshots and the statements of the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from connectors.mysql.config.settings import CONFIG, stream_settings
from connectors.mysql.model import MYSQL, Shard, TableName
from connectors.mysql.position.start import start_of
from connectors.mysql.schema.known_tables import KnownTables
from connectors.mysql.snapshot.model import SnapshotSettings
from connectors.mysql.snapshot.tables import SnapshotAccess, SnapshotTables, StreamPosition
from connectors.mysql.snapshots import RunSnapshots
from connectors.mysql.source.statements import classify_statement
from connectors.testing.contexts import LogCapture, make_logger
from tests.unit.connectors.mysql.synthetic import FILE, PARTITION, reader

if TYPE_CHECKING:
    from connectors.api import TaskMetrics
    from connectors.mysql.schema.tables import StreamTables
    from connectors.mysql.snapshot.reader import MySqlSnapshotReader
    from connectors.mysql.source.server import SourceServer

SETTINGS = stream_settings(
    CONFIG.parse({"topic.prefix": "p", "database.hostname": "db.example.com", "database.user": "millrace"})
)


class Recorder:
    """Stands for the reader, and notes of what it is told that it has to read again."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def altered(self, name: TableName | None) -> None:
        self.calls.append(name)

    def database_altered(self, database: str) -> None:
        self.calls.append(database)


async def no_connection() -> Any:
    raise AssertionError("nothing is read")


def run_snapshots() -> RunSnapshots:
    start = start_of("p", Shard(), [(PARTITION, {"file": FILE, "pos": 4})])

    def captured(name: TableName) -> bool:
        return name.database == "shop"

    return RunSnapshots(
        settings=SETTINGS,
        source=SnapshotAccess(
            SnapshotSettings(),
            no_connection,
            SnapshotTables(cast("SourceServer", None), cast("StreamTables", None), captured),
            StreamPosition(reader().cursor, MYSQL, by_gtid=False),
        ),
        offsets=(),
        initial=True,
        known_tables=KnownTables("p", Shard(), start.layout, (), captured),
        signals=None,
        metrics=cast("TaskMetrics", None),
        log=make_logger("snapshots", LogCapture()),
    )


async def test_a_statement_about_a_database_concerns_its_tables_only() -> None:
    for sql, expected in (
        ("CREATE DATABASE tenant_17", []),
        ("CREATE DATABASE IF NOT EXISTS shop", []),
        ("ALTER DATABASE tenant_17 CHARACTER SET utf8mb4", ["tenant_17"]),
        ("DROP DATABASE tenant_17", ["tenant_17"]),
        ("DROP TABLE t", [TableName("shop", "t")]),
        ("CREATE TABLE tenant_17.t (id INT)", [TableName("tenant_17", "t")]),
    ):
        snapshots, recorder = run_snapshots(), Recorder()
        snapshots.reader = cast("MySqlSnapshotReader", recorder)
        await snapshots.altered(classify_statement(sql, "shop"))
        assert recorder.calls == expected, sql
