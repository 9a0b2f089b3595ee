"""The heartbeats that one task meets among the records that it reads, for the driver. Without Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.formats.table_heartbeats import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

#: Of a frame of raw records: the text of heartbeats, null for other records (``heartbeats.heartbeat_text``).
COLUMN: Final = "heartbeat"
#: The text of a heartbeat's header; header converters may put more around it.
TEXT: Final = r"\d{10,18}(?: \d+/\d+)?"
_FIND: Final = re.compile(TEXT)


class MetHeartbeat(msgspec.Struct, frozen=True):
    """The newest heartbeat of a part of the source in a Kafka partition. Times are in µs since 1970.

    Attributes:
        topic: of the record.
        partition: of the topic.
        part: ``INDEX/COUNT`` of the task that speaks, or empty.
        sent_us: up to when changes were sent, by the source's clock.
        kafka_us: when the record came to Kafka.
        table: of which it speaks; empty: of the topic's.
    """

    topic: str
    partition: int
    part: str
    sent_us: int
    kafka_us: int
    table: str = ""


class MetHeartbeats:
    """Collects those of one task. Not thread-safe."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int, str, str], MetHeartbeat] = {}

    def note(self, beat: MetHeartbeat) -> None:
        """A heartbeat is among the records."""
        key = (beat.topic, beat.partition, beat.part, beat.table)
        newest = self._newest.get(key)
        if newest is None or newest.sent_us < beat.sent_us:
            self._newest[key] = beat

    def note_record(
        self, topic: str, partition: int, headers: Iterable[tuple[str, bytes | None]], timestamp_ms: int
    ) -> None:
        """A record without a value is among the records; most are none, but come after a delete."""
        for name, value in headers:
            if name == HEADER and (match := _FIND.search((value or b"").decode("utf-8", "replace"))):
                self._note_text(topic, partition, match[0], timestamp_ms * 1000)

    def note_batch(self, batch: pa.RecordBatch, milliseconds: pa.Array) -> None:
        """Note those of a batch with ``COLUMN``, whose records have these times; costs a look at the column if it has none."""
        heartbeats = batch.column(COLUMN)
        if heartbeats.null_count == len(heartbeats):
            return
        is_beat = heartbeats.is_valid()
        columns = [batch.column("topic"), batch.column("partition"), heartbeats, milliseconds]
        for row in zip(*(column.filter(is_beat).to_pylist() for column in columns), strict=True):
            topic, partition, text, time_ms = row
            self._note_text(topic, partition, text, time_ms * 1000)

    def _note_text(self, topic: str, partition: int, text: str, kafka_us: int) -> None:
        sent, _, part = text.partition(" ")
        self.note(MetHeartbeat(topic, partition, part, int(sent), kafka_us))

    def take(self) -> list[MetHeartbeat]:
        """Return those that were noted since the last call."""
        beats, self._newest = list(self._newest.values()), {}
        return beats
