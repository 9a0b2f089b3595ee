"""Heartbeats in the topics of tables: records without key and value, which a header tells from everything else. Pure.

Consumers that know nothing of them see a record without a value, as after a delete, and without a key, so that there is nothing
to delete. UMS topics have UMS heartbeats instead (``connectors.formats.ums_signals``).

The header's text is the promise: the time (µs since 1970, of the source's clock) up to which every change was sent, and where
several tasks have rows of a table, a space and ``INDEX/COUNT``: the task speaks for its own rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.api import EVERY_PARTITION, Header, SourceRecord
from connectors.schema import STRING

if TYPE_CHECKING:
    from connectors.api import Position

HEADER: Final = "__millrace.heartbeat"


def make_table_heartbeat(topic: str, time_us: int, at: tuple[Position, Position], part: str = "") -> SourceRecord:
    """The promise that the changes of the tables of a topic were sent up to a time.

    Args:
        topic: the tables'; a copy goes to each of its partitions, behind what came before.
        time_us: µs since 1970.
        at: source partition and offset.
        part: ``INDEX/COUNT`` of the task among those that have rows; "": there is only one.
    """
    text = f"{time_us} {part}" if part else str(time_us)
    return SourceRecord(*at, topic, partition=EVERY_PARTITION, headers=(Header(HEADER, text, STRING),))
