"""Heartbeats in the topics of the captured tables (``connectors.formats.table_heartbeats``), of the task of one node's log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from connectors.api import Batch
from connectors.cassandra.events.contract import topic_name
from connectors.cassandra.model import LogPosition
from connectors.formats.table_heartbeats import make_table_heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from connectors.api import Position
    from connectors.cassandra.config.settings import TaskSettings
    from connectors.cql.mutations.definition import CqlTableDefinition

#: Where nothing was read yet: the log from its oldest segment on, since ids of segments are times.
_OLDEST: Final = LogPosition(1)


class CassandraHeartbeats:
    """Makes the heartbeats of one task. Not thread-safe; does not block.

    A heartbeat speaks for one node's log: what the node had acknowledged by its time was sent. A node acknowledges a change
    before it can be read, so the time is earlier than that of reading, by ``sync_s``.

    Args:
        settings: of the task.
        partition: the source partition of the log's positions.
        part: ``INDEX/COUNT`` of the node among those whose logs are read; "": it is the only one.

    Attributes:
        sync_s: how long after it was acknowledged a change may become readable; None: not known, so nothing is promised.
    """

    def __init__(self, settings: TaskSettings, partition: Position, part: str) -> None:
        self.sync_s: float | None = None
        self._settings = settings
        self._partition = partition
        self._part = part
        self._sent_at: float | None = None
        #: The time of the last heartbeats, ms since 1970.
        self._said_ms = 0

    def is_due(self) -> bool:
        """Whether the interval since the last heartbeats is over."""
        return self._sent_at is None or time.monotonic() - self._sent_at >= self._settings.heartbeat_s

    def make_batch(
        self, list_tables: Callable[[], Iterable[CqlTableDefinition]], complete_ms: int, position: LogPosition
    ) -> Batch | None:
        """The heartbeats of tables; None where nothing new can be promised.

        Args:
            list_tables: gives those that are captured now.
            complete_ms: when the log held nothing that was not read, ms since 1970; 0: never yet. All of it was yielded.
            position: up to where.
        """
        if self.sync_s is None or not complete_ms or position.done:
            return None
        time_ms = complete_ms - round(self.sync_s * 1000)
        if time_ms <= self._said_ms:
            return None
        self._sent_at, self._said_ms = time.monotonic(), time_ms
        at = (self._partition, (position if position.segment else _OLDEST).offset())
        topics = dict.fromkeys(
            topic_name(self._settings.prefix, table.keyspace, table.table) for table in list_tables()
        )
        return Batch([make_table_heartbeat(topic, time_ms * 1000, at, self._part) for topic in topics])
