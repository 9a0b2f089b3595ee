"""Records from mutations of Cassandra's commit log: one object per table definition and output form."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connectors.cassandra.events.contract import EventSettings, TableEvents
    from connectors.cql.mutations.definition import TableDefinition


def builder(table: TableDefinition, version: int, settings: EventSettings) -> TableEvents:
    """What makes the records of a table in the form that ``settings.output_format`` asks for.

    It compiles code (a few milliseconds): make one per definition and version of the log's format, never per mutation.

    Args:
        table: the definition; its counters are not allowed.
        version: of the log's format (7, 8 or 9). A backfill in the raw form is written in it.
        settings: see ``EventSettings``.

    Raises:
        Fatal: the table has counters, whose changes can't be merged; the message names them.
    """
    # Each form is imported where it is asked for.
    if settings.output_format == "partition-update-raw":
        from connectors.cassandra.events.raw import RawEvents

        return RawEvents(table, version, settings)
    if settings.output_format == "partition-update":
        from connectors.cassandra.events.partition_update import PartitionUpdateEvents

        return PartitionUpdateEvents(table, version, settings)
    from connectors.cassandra.events.debezium import DebeziumEvents

    return DebeziumEvents(table, version, settings)
