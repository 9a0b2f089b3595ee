"""Records from rows: one builder per structure of a table and output form."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import Header, Position
    from connectors.mysql.events.contract import MySqlEventSettings, MySqlTableEvents, PendingRows
    from connectors.mysql.events.transactions import Transactions
    from connectors.mysql.schema.columns import ColumnLayout


def make_builder(
    layout: ColumnLayout,
    version: int,
    settings: MySqlEventSettings,
    partition: Position,
    *,
    transactions: Transactions | None = None,
    held_rows: PendingRows | None = None,
    headers: tuple[Header, ...] = (),
    now_ns: Callable[[], int] | None = None,
) -> MySqlTableEvents:
    """The builder of a table's records in the form that ``settings.output_format`` asks for.

    It compiles code (about a millisecond): make one per structure of a table, never per event.

    Args:
        layout: what ``connectors.mysql.schema.columns.make_layout`` says of the table; the decoder gets its ``plans``.
        version: the number of the structure (``connectors.mysql.schema.versions``); part of a UMS namespace.
        settings: see ``MySqlEventSettings``.
        partition: the source partition of the records.
        transactions: counts events for the ``transaction`` field; None: the field is null.
        held_rows: what ``make_holder`` gave, one for all tables of the task; None: a UMS message has rows of one event only.
        headers: put on every record (``connectors.mysql.events.headers``).
        now_ns: the clock for the time of processing, ns since 1970.
    """
    # Each form is imported where it is asked for.
    if settings.output_format == "ums":
        from connectors.mysql.events.ums import UmsEvents, UmsRows

        return UmsEvents(layout, version, settings, partition, held_rows if isinstance(held_rows, UmsRows) else None)
    from connectors.mysql.events.debezium import MySqlDebeziumEvents

    return MySqlDebeziumEvents(layout, settings, partition, transactions, headers, now_ns)


def make_holder(settings: MySqlEventSettings) -> PendingRows | None:
    """Return the collector of a task's rows between two batches; None for a form that holds nothing back."""
    if settings.output_format == "ums":
        from connectors.mysql.events.ums import UmsRows

        return UmsRows()
    return None
