"""Heartbeats in the topics of tables, of a task whose events are not UMS: see ``connectors.formats.table_heartbeats``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.formats.table_heartbeats import make_table_heartbeat
from connectors.scylla.events.names import topic_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.api import Position, SourceRecord
    from connectors.scylla.model import TableId, TableVersion


class ScyllaTableHeartbeats:
    """Makes the heartbeats of one task.

    Args:
        prefix: ``topic.prefix``.
        parts: ``INDEX/COUNT`` of the task among those that have groups of a table, by ``keyspace.table``; none: it has all.
    """

    def __init__(self, prefix: str, parts: Mapping[str, str]) -> None:
        self._prefix = prefix
        self._parts = parts
        #: Up to when the changes of each table were promised last, ms since 1970.
        self._said: dict[TableId, int] = {}

    def promise(self, version: TableVersion, time_ms: int, at: tuple[Position, Position]) -> list[SourceRecord]:
        """Say that all changes of a table written before a time were sent; [] if that was said before."""
        if time_ms <= self._said.get(version.id, 0):
            return []
        self._said[version.id] = time_ms
        part = self._parts.get(str(version.id), "")
        return [make_table_heartbeat(topic_name(self._prefix, version.id), time_ms * 1000, at, part)]
