"""UMS messages without rows: heartbeats, the end of a table's structure, and the end of a table's snapshot.

The Kafka key is ``<protocol>.<namespace>``, as in DBus. It would name another partition than the key of the rows does, and then
a heartbeat could be read before rows that it speaks for. So each message goes to the partition of the rows that it is about:
behind them, since one writer fills a partition in order.

A task speaks for its own rows only. With several tasks the key ends with ``...INDEX/COUNT``, and ``protocol.part`` says the
same: the promise for the whole table is the one that all COUNT parts have given.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.api import SameAs, SourceRecord
from connectors.formats import ums
from connectors.mysql import shards
from connectors.mysql.events.ums import address
from connectors.schema import STRING

if TYPE_CHECKING:
    from connectors.api import Position
    from connectors.mysql.events.contract import EventSettings
    from connectors.mysql.model import Shard, TableName


class UmsSignals:
    """Makes the messages of one task. Pure."""

    def __init__(self, settings: EventSettings, partition: Position, shard: Shard) -> None:
        self._settings = settings
        self._partition = partition
        self._part = shards.text(shard) if shard.count > 1 else ""
        self._schema = ums.MASKED_MESSAGE if settings.masks else ums.MESSAGE

    def heartbeat(self, name: TableName, version: int, time_us: int, offset: Position) -> SourceRecord:
        """The promise that every change of the table committed before ``time_us`` (µs since 1970) was sent by this task."""
        return self._record(ums.INCREMENT_HEARTBEAT, ums.INCREMENT, name, version, time_us, offset, 0)

    def ended(self, name: TableName, version: int, time_us: int, offset: Position) -> SourceRecord:
        """No more changes of this structure come from this task: the table was changed, renamed or dropped."""
        return self._record(ums.INCREMENT_TERMINATION, ums.INCREMENT, name, version, time_us, offset, 0)

    def read(self, name: TableName, version: int, time_us: int, offset: Position, batch: int) -> SourceRecord:
        """All rows of the table's snapshot ``batch`` that are this task's were sent."""
        return self._record(ums.BATCH_TERMINATION, ums.pull_protocol(batch), name, version, time_us, offset, batch)

    def _record(self, protocol: str, rows: str, name: TableName, version: int, time_us: int, offset: Position,
                batch: int) -> SourceRecord:
        topic, namespace = address(self._settings, name, version)
        value = ums.signal(protocol, namespace, time_us, batch=batch, part=self._part, masked=bool(self._settings.masks))
        return SourceRecord(self._partition, offset, topic, value, self._schema,
                            ums.kafka_key(protocol, namespace, self._part), STRING, SameAs(ums.kafka_key(rows, namespace)))
