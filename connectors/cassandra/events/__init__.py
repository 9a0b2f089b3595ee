"""Records from mutations of Cassandra's commit log: one object per table definition and output form."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connectors.cassandra.events.contract import CassandraEventSettings, CassandraTableEvents
    from connectors.cassandra.events.debezium import CassandraDebeziumEvents
    from connectors.cassandra.events.partition_update import PartitionUpdateEvents
    from connectors.cassandra.events.raw import RawEvents
    from connectors.cql.mutations.definition import CqlTableDefinition


def build_events(table: CqlTableDefinition, version: int, settings: CassandraEventSettings) -> CassandraTableEvents:
    """Return the object that makes a table's records in the form that ``settings.output_format`` asks for, masked.

    It compiles code (a few milliseconds): make one per definition and version of the log's format, never per mutation.

    Args:
        table: the definition; its counters are not allowed.
        version: of the log's format (7, 8 or 9). A snapshot in the raw form is written in it.
        settings: see ``CassandraEventSettings``.

    Raises:
        Fatal: the table has counters, whose changes can't be merged; the message names them.
        ConfigInvalid: a mask rule names a column that can't be masked in this form.
    """
    events = _plain_events(table, version, settings)
    if not any(settings.masks.rule_of(f"{table}.{column.name}") for column in table.columns):
        return events
    from connectors.cassandra.events.masked import MaskedEvents

    return MaskedEvents(events, settings.masks)


def _plain_events(
    table: CqlTableDefinition, version: int, settings: CassandraEventSettings
) -> CassandraDebeziumEvents | PartitionUpdateEvents | RawEvents:
    # Each form is imported where it is asked for.
    if settings.output_format == "partition-update-raw":
        from connectors.cassandra.events.raw import RawEvents

        return RawEvents(table, version, settings)
    if settings.output_format == "partition-update":
        from connectors.cassandra.events.partition_update import PartitionUpdateEvents

        return PartitionUpdateEvents(table, version, settings)
    from connectors.cassandra.events.debezium import CassandraDebeziumEvents

    return CassandraDebeziumEvents(table, version, settings)
