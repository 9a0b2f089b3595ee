"""The state that the handlers of a stream's events share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.mysql.position.delivered import DeliveredRows
from connectors.mysql.stream.output import StreamOutput
from connectors.mysql.stream.snapshot_link import SnapshotLink

if TYPE_CHECKING:
    import logging

    from connectors.mysql.events.contract import PendingRows
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.position.start import ConnectionStart
    from connectors.mysql.stream.counters import StreamCounters


@dataclass(frozen=True)
class StreamState:
    """Where the stream of one connection is, and what it has given.

    Attributes:
        cursor: where it is.
        output: what it has made and no batch has taken.
        delivered: which of its rows were delivered before.
        snapshot: the snapshot of the same tables.
        counters: its numbers.
    """

    cursor: BinlogCursor
    output: StreamOutput
    delivered: DeliveredRows
    snapshot: SnapshotLink
    counters: StreamCounters


def make_state(
    cursor: BinlogCursor,
    begin: ConnectionStart,
    held_rows: PendingRows | None,
    counters: StreamCounters,
    log: logging.LoggerAdapter[logging.Logger],
) -> StreamState:
    """The state before the first event."""
    output = StreamOutput(cursor, held_rows, counters)
    return StreamState(cursor, output, DeliveredRows(cursor, begin, log), SnapshotLink(cursor, output), counters)
