"""UMS messages without rows of a task: see ``connectors.formats.ums_signals``.

Rows of a table have as many Kafka keys as there are streams, so what is said of changes goes to every partition. Rows of a
snapshot have one key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.formats import ums
from connectors.formats.ums_signals import Speaker
from connectors.scylla.events.ums import table_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.api import Position, SourceRecord
    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.model import TableId, TableVersion


class ScyllaUmsSignals:
    """Makes the messages of one task.

    Args:
        settings: of the events.
        parts: ``INDEX/COUNT`` of the task among those that have groups of a table, by ``keyspace.table``; none: it has all.
    """

    def __init__(self, settings: ScyllaEventSettings, parts: Mapping[str, str]) -> None:
        self._settings = settings
        self._parts = parts
        #: The definition that was spoken of last, by table, and up to when its changes were promised (ms since 1970).
        self._last: dict[TableId, tuple[TableVersion, int]] = {}

    def promise(self, version: TableVersion, time_ms: int, at: tuple[Position, Position]) -> list[SourceRecord]:
        """Say that all changes written before a time were sent; [] if that was said before.

        Args:
            version: the definition in force at that time.
            time_ms: milliseconds since 1970.
            at: source partition and offset of the records.
        """
        table = version.id
        before, said_ms = self._last.get(table, (version, 0))
        if time_ms <= said_ms:
            return []
        self._last[table] = version, time_ms
        records = []
        if table_address(self._settings, before) != table_address(self._settings, version):
            # Nothing of the older definition comes any more.
            records.append(self._make_record(ums.INCREMENT_TERMINATION, before, version.since_us, at))
        records.append(self._make_record(ums.INCREMENT_HEARTBEAT, version, time_ms * 1000, at))
        return records

    def read(self, version: TableVersion, time_ms: int, at: tuple[Position, Position]) -> SourceRecord:
        """All rows of the table's snapshot that are this task's were sent."""
        return self._make_record(ums.BATCH_TERMINATION, version, time_ms * 1000, at, ums.INITIAL)

    def _make_record(
        self, protocol: str, version: TableVersion, time_us: int, at: tuple[Position, Position], behind: str = ""
    ) -> SourceRecord:
        topic, namespace = table_address(self._settings, version)
        speaker = Speaker(self._parts.get(str(version.id), ""), bool(self._settings.masks))
        return speaker.record(protocol, topic, namespace, time_us, at, behind=behind)


def parts_of(shares: list[set[TableId]]) -> list[dict[str, str]]:
    """``parts`` of each task.

    Args:
        shares: the tables of which each task has groups.
    """
    parts: list[dict[str, str]] = [{} for _ in shares]
    for table in set().union(*shares):
        having = [number for number, tables in enumerate(shares) if table in tables]
        for index, number in enumerate(having if len(having) > 1 else ()):
            parts[number][str(table)] = f"{index}/{len(having)}"
    return parts
