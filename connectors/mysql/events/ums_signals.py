"""UMS messages without rows of a task: see ``connectors.formats.ums_signals``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.formats import ums
from connectors.formats.ums_signals import Speaker
from connectors.mysql.events.ums import table_address
from connectors.mysql.position import shards

if TYPE_CHECKING:
    from connectors.api import Position, SourceRecord
    from connectors.mysql.events.contract import MySqlEventSettings
    from connectors.mysql.model import Shard, TableName


class MySqlUmsSignals:
    """Makes the messages of one task. Pure."""

    def __init__(self, settings: MySqlEventSettings, partition: Position, shard: Shard) -> None:
        self._settings = settings
        self._partition = partition
        self._speaker = Speaker(shards.format_shard(shard) if shard.count > 1 else "", bool(settings.masks))

    def heartbeat(self, name: TableName, version: int, time_us: int, offset: Position) -> SourceRecord:
        """The promise that every change of the table committed before ``time_us`` (µs since 1970) was sent by this task."""
        return self._make_record(ums.INCREMENT_HEARTBEAT, ums.INCREMENT, name, version, time_us, offset, 0)

    def ended(self, name: TableName, version: int, time_us: int, offset: Position) -> SourceRecord:
        """No more changes of this structure come from this task: the table was changed, renamed or dropped."""
        return self._make_record(ums.INCREMENT_TERMINATION, ums.INCREMENT, name, version, time_us, offset, 0)

    def read(self, name: TableName, version: int, time_us: int, offset: Position, batch: int) -> SourceRecord:
        """All rows of the table's snapshot ``batch`` that are this task's were sent."""
        return self._make_record(
            ums.BATCH_TERMINATION, ums.snapshot_protocol(batch), name, version, time_us, offset, batch
        )

    def _make_record(
        self, protocol: str, rows: str, name: TableName, version: int, time_us: int, offset: Position, batch: int
    ) -> SourceRecord:
        topic, namespace = table_address(self._settings, name, version)
        return self._speaker.record(
            protocol, topic, namespace, time_us, (self._partition, offset), behind=rows, batch=batch
        )
