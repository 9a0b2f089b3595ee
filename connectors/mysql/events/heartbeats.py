"""Heartbeat records: Debezium's, which move the offset on where nothing is captured, and those in the topics of tables."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from connectors import schema as connect
from connectors.api import Position, SourceRecord
from connectors.formats.table_heartbeats import make_table_heartbeat
from connectors.mysql.events.names import schema_name
from connectors.mysql.position import shards
from connectors.mysql.schema.topics import MySqlTopics
from connectors.mysql.stream import logical
from connectors.schema import struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from connectors.mysql.events.contract import MySqlEventSettings
    from connectors.mysql.model import Shard, TableName


class MySqlHeartbeats:
    """Makes the records of one task.

    Attributes:
        topic: where they go.
    """

    def __init__(
        self,
        settings: MySqlEventSettings,
        partition: Position,
        shard: Shard,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Make the schemas."""
        self._topics = MySqlTopics(settings.topics)
        self.topic = self._topics.heartbeat
        self._logical = logical.parse_mapping(settings.logical)
        self._part = shards.format_shard(shard) if shard.count > 1 else ""
        common = "io.debezium.connector.common"
        self._partition = partition
        self._key = {"serverName": settings.topics.prefix}
        self._key_schema = struct(
            schema_name(f"{common}.ServerNameKey", settings.schema_names), {"serverName": connect.STRING}, version=1
        )
        self._value_schema = struct(
            schema_name(f"{common}.Heartbeat", settings.schema_names), {"ts_ms": connect.INT64}, version=1
        )
        self._now_ns = now_ns

    def record(self, offset: Position) -> SourceRecord:
        """A heartbeat at this offset."""
        return SourceRecord(
            self._partition,
            offset,
            self.topic,
            {"ts_ms": self._now_ns() // 1_000_000},
            self._value_schema,
            self._key,
            self._key_schema,
            0,
        )

    def of_tables(self, names: Iterable[TableName], time_us: int, offset: Position) -> list[SourceRecord]:
        """The promise that this task has sent all changes of tables that were committed before ``time_us``, in each topic."""
        topics = dict.fromkeys(self._topics.table(self._logical.of(name).name) for name in names)
        at = (self._partition, offset)
        return [make_table_heartbeat(topic, time_us, at, self._part) for topic in topics]
