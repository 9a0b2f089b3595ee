"""The parts of a run that make records: tables, versions, transactions, changes of the schema."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.mysql import events
from connectors.mysql.config.filters import MySqlTableFilter
from connectors.mysql.config.settings import event_settings, value_options
from connectors.mysql.events.contract import EventContext
from connectors.mysql.events.headers import context_headers
from connectors.mysql.events.schema_changes import SchemaChanges
from connectors.mysql.events.transactions import Transactions
from connectors.mysql.events.ums_signals import MySqlUmsSignals
from connectors.mysql.position import start
from connectors.mysql.schema.tables import StreamTables, TableSelection
from connectors.mysql.schema.versions import VersionBook

if TYPE_CHECKING:
    from connectors.api import TaskContext
    from connectors.mysql.model import StreamSettings
    from connectors.mysql.run.opening import OpenedSource
    from connectors.mysql.source.server import SourceServer


@dataclass(frozen=True)
class RunRecords:
    """How a run makes records of its tables.

    Attributes:
        context: what the records have in common.
        table_filter: knows the tables that become events.
        versions: numbers the structures of tables.
        tables: the tables that the stream meets.
        schema_changes: makes records of statements that change tables, or None.
    """

    context: EventContext
    table_filter: MySqlTableFilter
    versions: VersionBook
    tables: StreamTables
    schema_changes: SchemaChanges | None


def make_records(
    context: TaskContext, settings: StreamSettings, opened: OpenedSource, server: SourceServer, *, apart: bool
) -> RunRecords:
    """Make the parts, as the options and the saved offsets say.

    Args:
        context: of the task.
        settings: of the stream.
        opened: the source.
        server: answers questions.
        apart: whether batches end between transactions.
    """
    flavor = opened.info.flavor
    form = event_settings(context.config, flavor)
    partition = start.stream_partition(settings.prefix, settings.shard)
    transactions = Transactions(form, partition) if form.transactions else None
    if transactions is not None:
        own_offsets = [offset for own_partition, offset in opened.offsets if own_partition == partition]
        transactions.load(own_offsets[-1] if own_offsets else {})
    event_context = EventContext(
        settings=form,
        partition=partition,
        transactions=transactions,
        held_rows=events.make_holder(form),
        headers=context_headers(form, context.task, str(uuid.uuid4())),
        signals=MySqlUmsSignals(form, partition, settings.shard) if form.output_format == "ums" else None,
    )
    special = {}
    if settings.signal_table is not None:
        special[opened.info.stored_name(settings.signal_table)] = "signal"
    if settings.heartbeat_table is not None:
        special[opened.info.stored_name(settings.heartbeat_table)] = "heartbeat"
    first = settings.shard.index == 0
    table_filter = MySqlTableFilter(form)
    versions = VersionBook(settings.prefix, settings.version_topic, opened.offsets, owner=lambda _name: first)
    tables = StreamTables(
        TableSelection(table_filter, special, settings.shard),
        event_context,
        value_options(context.config, flavor),
        versions,
        server.definitions,
        context.log,
        lenient=settings.inconsistent != "fail",
        wire=None if apart else context.wire,  # rows that are bytes can't be held back
    )
    schema_changes = SchemaChanges(form, partition, event_context.headers) if form.schema_changes and first else None
    return RunRecords(event_context, table_filter, versions, tables, schema_changes)
