"""The heartbeats of a run: rows that it writes into the source, and records that it sends where nothing is captured."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from connectors.mysql.events.heartbeats import MySqlHeartbeats

if TYPE_CHECKING:
    from connectors.api import Position, SourceRecord
    from connectors.mysql.model import Shard
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.position.promises import HeartbeatPromises
    from connectors.mysql.run.records import RunRecords
    from connectors.mysql.snapshots import RunSnapshots
    from connectors.mysql.stream.heartbeat import HeartbeatWriter


class RunHeartbeats:
    """Sends heartbeats at their intervals.

    Args:
        interval_s: seconds between two records of the heartbeat topic; 0 for none.
        records: how records are made.
        writer: writes rows into the source, or None.
        promises: knows up to when everything was sent, for heartbeats in the tables' topics; or None.
        shard: what the task owns.
    """

    def __init__(
        self,
        interval_s: float,
        records: RunRecords,
        writer: HeartbeatWriter | None,
        promises: HeartbeatPromises | None,
        shard: Shard,
    ) -> None:
        self._interval_s = interval_s
        self._maker = MySqlHeartbeats(records.context.settings, records.context.partition, shard)
        self._signals = records.context.signals
        self._versions = records.versions
        self._writer = writer
        self._promises = promises
        self._sent = 0.0

    def start(self) -> None:
        """Begin. Does not block."""
        self._sent = time.monotonic()
        if self._writer is not None:
            self._writer.start()
        if self._promises is not None:
            self._promises.start()

    async def close(self) -> None:
        """Stop; may be repeated."""
        for part in (self._writer, self._promises):
            if part is not None:
                await part.close()

    def is_due(self, now: float) -> bool:
        """Whether a record of the heartbeat topic is due at ``now`` (monotonic); it counts as sent then."""
        if not self._interval_s or now - self._sent < self._interval_s:
            return False
        self._sent = now
        return True

    def make_record(self, offset: Position) -> SourceRecord:
        """The record of the heartbeat topic at an offset."""
        return self._maker.record(offset)

    def make_table_records(self, cursor: BinlogCursor, snapshots: RunSnapshots) -> list[SourceRecord]:
        """Return heartbeats in the tables' topics, where there are any to be sent."""
        if self._promises is None or (time_us := self._promises.due(snapshots.reached)) is None:
            return []
        offset = cursor.now()
        if self._signals is None:
            return self._maker.of_tables(snapshots.streamed(), time_us, offset)
        return [
            self._signals.heartbeat(name, self._versions.current(name), time_us, offset)
            for name in snapshots.streamed()
        ]
