"""Snapshots of a real Cassandra, as a task takes them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from connectors.cassandra.snapshot.model import CassandraSnapshotSettings
from connectors.cassandra.snapshot.reader import CapturedTables, CassandraSnapshotReader
from connectors.snapshot.requests import SnapshotRequest
from tests.support.eventually import patience

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.api import Position
    from connectors.formats.partition_update import PartitionUpdate
    from tests.integration.cassandra.log_world import World

DEADLINE_S = 40.0


class Metrics:
    """Counts."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        del labels
        self.values[name] = value

    def add(self, name: str, value: float = 1, labels: Mapping[str, str] | None = None) -> None:
        del labels
        self.values[name] = self.values.get(name, 0) + value


class Task:
    """The snapshots of one task: what was sent, and what is saved, as Kafka would keep it."""

    def __init__(
        self,
        world: World,
        *,
        shard: tuple[int, int] = (0, 1),
        saved: list[tuple[Position, Position]] | None = None,
        **settings: Any,
    ) -> None:
        self.saved: dict[str, tuple[Position, Position]] = {}
        self.metrics = Metrics()
        self.updates: list[PartitionUpdate] = []
        self.bad: list[str] = []
        settings = {"prefix": "shop", "consistency": "ONE", "settle_s": 0.05, **settings}
        self.reader = CassandraSnapshotReader(
            CassandraSnapshotSettings(**settings),
            world.session,
            CapturedTables(world.catalog.tables, world.catalog.refresh),
            shard,
            saved or [],
            self.metrics,
            logging.LoggerAdapter(logging.getLogger("test")),
        )

    def request(self, *tables: str, name: str = "r", **more: Any) -> None:
        self.reader.set_requests([SnapshotRequest(id=name, tables=list(tables), **more)])

    def save(self, offsets: list[tuple[Position, Position]]) -> None:
        for partition, offset in offsets:
            assert offset is not None
            self.saved[repr(partition)] = partition, offset

    async def run(self, chunks: int = 1 << 30) -> None:
        """Run until all requested snapshots are over, or ``chunks`` chunks were sent."""
        self.reader.start()
        try:
            async with patience(DEADLINE_S):
                while chunks and not self.over():
                    await self.reader.wait()
                    while chunks and (chunk := self.reader.ready()) is not None:
                        chunks -= 1
                        self.updates += chunk.updates
                        self.bad += chunk.bad
                        self.save(self.reader.done(chunk))
                    self.save(self.reader.changes())
                self.save(self.reader.changes())
        finally:
            await self.reader.close()

    def over(self) -> bool:
        return all(
            snapshot["state"] in ("completed", "failed", "cancelled", "paused") for snapshot in self.reader.progress()
        )

    @property
    def offsets(self) -> list[tuple[Position, Position]]:
        return list(self.saved.values())
