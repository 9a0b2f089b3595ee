"""Records of UMS messages without rows: heartbeats, and the ends of a table's structure and of its snapshot. Pure.

The Kafka key is ``<protocol>.<namespace>``, as in DBus. It would name another partition than the keys of the rows do, and then
a heartbeat could be read before rows that it speaks for. So each message goes to the partition of the rows that it is about,
or to every partition where these rows have many keys: behind them, since one writer fills a partition in order.

A task speaks for its own rows only. Where several tasks have rows of a table, the key ends with ``...INDEX/COUNT``, and
``protocol.part`` says the same: the promise for the whole table is the one that all COUNT parts have given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from connectors.api import EVERY_PARTITION, SameAs, SourceRecord
from connectors.formats import ums
from connectors.schema import STRING

if TYPE_CHECKING:
    from connectors.api import Position


class Speaker(NamedTuple):
    """The task that makes the messages.

    Attributes:
        part: ``INDEX/COUNT`` among the tasks that have rows of the table; "": there is only one task.
        masked: whether masks are on: messages have the schema that says what is masked.
    """

    part: str
    masked: bool

    def record(
        self,
        protocol: str,
        topic: str,
        namespace: str,
        time_us: int,
        at: tuple[Position, Position],
        *,
        behind: str = "",
        batch: int = 0,
    ) -> SourceRecord:
        """The record of a message.

        Args:
            protocol: ``protocol.type``.
            topic: the rows' topic.
            namespace: what it is about.
            time_us: its time, µs since 1970.
            at: source partition and offset.
            behind: protocol of the rows whose key chooses the partition; "": it goes to every partition.
            batch: id of the snapshot.
        """
        value = ums.make_signal(protocol, namespace, time_us, batch=batch, part=self.part, masked=self.masked)
        return SourceRecord(
            *at,
            topic,
            value,
            ums.MASKED_MESSAGE if self.masked else ums.MESSAGE,
            ums.kafka_key(protocol, namespace, self.part),
            STRING,
            SameAs(ums.kafka_key(behind, namespace)) if behind else EVERY_PARTITION,
        )
