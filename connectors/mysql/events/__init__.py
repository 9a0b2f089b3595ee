"""Records from rows: one builder per structure of a table and output form."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import Header, Position
    from connectors.mysql.columns import Layout
    from connectors.mysql.events.contract import EventSettings, Held, TableEvents
    from connectors.mysql.events.transactions import Transactions


def builder(
    layout: Layout,
    version: int,
    settings: EventSettings,
    partition: Position,
    *,
    transactions: Transactions | None = None,
    held: Held | None = None,
    headers: tuple[Header, ...] = (),
    now_ns: Callable[[], int] | None = None,
) -> TableEvents:
    """The builder of a table's records in the form that ``settings.output_format`` asks for.

    It compiles code (about a millisecond): make one per structure of a table, never per event.

    Args:
        layout: what ``connectors.mysql.columns.layout`` says of the table; its ``plans`` are those the decoder gets.
        version: the number of the structure (``connectors.mysql.versions``); part of a UMS namespace.
        settings: see ``EventSettings``.
        partition: the source partition of the records.
        transactions: counts events for the ``transaction`` field; None: the field is null.
        held: what ``holder`` gave, one for all tables of the task; None: a UMS message has rows of one event only.
        headers: put on every record (``connectors.mysql.events.headers``).
        now_ns: the clock for the time of processing, ns since 1970.
    """
    # Each form is imported where it is asked for.
    if settings.output_format == "ums":
        from connectors.mysql.events.ums import UmsEvents, UmsRows

        return UmsEvents(layout, version, settings, partition, held if isinstance(held, UmsRows) else None)
    from connectors.mysql.events.debezium import DebeziumEvents

    return DebeziumEvents(layout, settings, partition, transactions, headers, now_ns)


def holder(settings: EventSettings) -> Held | None:
    """What gathers the rows of a task's tables between two batches; None for a form that holds nothing back."""
    if settings.output_format == "ums":
        from connectors.mysql.events.ums import UmsRows

        return UmsRows()
    return None
