"""Debezium's heartbeat records, which move the offset on where nothing is captured."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from connectors import schema as connect
from connectors.api import Position, SourceRecord
from connectors.mysql.events.names import schema_name
from connectors.mysql.schema.topics import MySqlTopics
from connectors.schema import struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.mysql.events.contract import MySqlEventSettings


class MySqlHeartbeats:
    """Makes the records of one task.

    Attributes:
        topic: where they go.
    """

    def __init__(
        self, settings: MySqlEventSettings, partition: Position, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """Make the schemas."""
        self.topic = MySqlTopics(settings.topics).heartbeat
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
