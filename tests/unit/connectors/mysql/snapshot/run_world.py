"""The snapshots of a run, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from connectors.mysql.config.settings import CONFIG, stream_settings
from connectors.mysql.model import MYSQL, Shard, StreamSettings, TableName
from connectors.mysql.position.start import start_of
from connectors.mysql.schema.known_tables import KnownTables
from connectors.mysql.snapshot.model import SnapshotSettings
from connectors.mysql.snapshot.tables import SnapshotAccess, SnapshotTables, StreamPosition
from connectors.mysql.snapshots import RunSnapshots
from connectors.mysql.source.server import SourceServer
from connectors.testing.contexts import LogCapture, make_logger
from tests.support.settings import mysql_connection
from tests.unit.connectors.mysql.synthetic import FILE, PARTITION, reader

if TYPE_CHECKING:
    from connectors.api import TaskMetrics
    from connectors.mysql.schema.tables import StreamTables


def settings(**options: str) -> StreamSettings:
    """The settings of a stream with these options; dots are written as underscores."""
    properties = {name.replace("_", "."): value for name, value in options.items()}
    required = {"topic.prefix": "p", "database.hostname": "db.example.com", "database.user": "millrace"}
    return stream_settings(CONFIG.parse({**required, **properties}))


async def no_connection() -> Any:
    raise AssertionError("nothing is read")


def run_snapshots() -> RunSnapshots:
    """Those of a run that captures the tables of the database ``shop``."""
    start = start_of("p", Shard(), [(PARTITION, {"file": FILE, "pos": 4})])

    def captured(name: TableName) -> bool:
        return name.database == "shop"

    return RunSnapshots(
        settings=settings(),
        source=SnapshotAccess(
            SnapshotSettings(),
            no_connection,
            SnapshotTables(SourceServer(mysql_connection()), cast("StreamTables", None), captured),
            StreamPosition(reader().cursor, MYSQL, by_gtid=False),
        ),
        offsets=(),
        initial=True,
        known_tables=KnownTables("p", Shard(), start.layout, (), captured),
        signals=None,
        metrics=cast("TaskMetrics", None),
        log=make_logger("snapshots", LogCapture()),
    )
