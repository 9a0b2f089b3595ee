"""The reader of snapshots over a table in memory."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING, Any

from connectors.cassandra.connector import CassandraConnector
from connectors.cassandra.snapshot.model import CassandraSnapshotSettings
from connectors.cassandra.snapshot.reader import CapturedTables, CassandraSnapshotReader
from connectors.cql.cluster.session import ResultPage
from connectors.cql.mutations.definition import CqlColumn, make_definition
from connectors.cql.types import parse_type
from connectors.snapshot.requests import SnapshotRequest
from connectors.testing.contexts import RecordedMetrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.formats.partition_update import CellStamp

NOW_MS = 1_790_000_000_000
TABLE = make_definition(
    "ks", "t", str(uuid.UUID(int=1)), [CqlColumn("k", parse_type("int"), "partition_key", 0)], cdc=True
)


class MemorySession:
    """Answers for a cluster with one table, which has one row.

    Attributes:
        ttl: ``default_time_to_live`` of the table.
    """

    def __init__(self) -> None:
        self.ttl = 0

    async def query(self, cql: str, parameters: Sequence[Any] = (), **_: Any) -> list[dict[str, Any]]:
        if "default_time_to_live" in cql:
            assert parameters == ("ks", "t")
            return [{"default_time_to_live": self.ttl}]
        node = {
            "release_version": "5.0.2",
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "tokens": ["5"],
        }
        return [node] if "system.local" in cql else []

    async def page(self, cql: str, parameters: tuple[int, int], **_: Any) -> ResultPage:
        assert "FROM ks.t" in cql
        after, upto = parameters
        return ResultPage((), [(7, NOW_MS, 1)] if after < 7 <= upto else [], None)


async def read_all(reader: CassandraSnapshotReader, name: str) -> list[CellStamp | None]:
    """Liveness of the rows that a snapshot of the table sends."""
    stamps: list[CellStamp | None] = []
    reader.set_requests([SnapshotRequest(id=name, tables=[".*"])])
    async with asyncio.timeout(20):
        while reader.progress()[0]["state"] != "completed":
            await reader.wait()
            while (chunk := reader.ready()) is not None:
                stamps += [row.liveness for update in chunk.updates for row in update.rows]
                reader.done(chunk)
            reader.changes()
    return stamps


async def test_each_snapshot_asks_for_the_default_ttl_as_it_is_then() -> None:
    session = MemorySession()

    async def refresh() -> None:
        pass

    reader = CassandraSnapshotReader(
        CassandraSnapshotSettings(prefix="p"),
        session,  # type: ignore[arg-type]
        CapturedTables(lambda _: [TABLE], refresh),
        (0, 1),
        [],
        RecordedMetrics(CassandraConnector.metrics),
        logging.LoggerAdapter(logging.getLogger("test")),
    )
    reader.start()
    try:
        session.ttl = 60
        (stamp,) = await read_all(reader, "first")
        assert stamp is not None
        assert (stamp.ttl, stamp.expires) == (60, NOW_MS // 1000 + 60)
        # ALTER TABLE ... WITH default_time_to_live = 0 leaves the columns as they are.
        session.ttl = 0
        (stamp,) = await read_all(reader, "second")
        assert stamp is not None
        assert stamp.ttl is None
    finally:
        await reader.close()
