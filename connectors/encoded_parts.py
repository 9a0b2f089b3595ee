"""Gathers encoded records (``connectors.wire``) in order with the other records of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.wire import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import SourceRecord
    from connectors.wire import RowWriter

    Remake = Callable[[], list[SourceRecord]]


class _TopicPart:
    """Records of one topic that come one after the other."""

    __slots__ = ("after", "keys", "remakes", "timestamps", "values", "writer")

    def __init__(self, writer: RowWriter, after: int) -> None:
        self.writer = writer
        self.after = after
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.remakes: list[Remake] = []
        self.timestamps: list[int | None] = []


class EncodedParts:
    """Holds what is encoded of the batch that is under way. Not thread-safe.

    Attributes:
        count: records gathered.
        last_timestamp: of the record that was gathered last, ms since 1970; None: it has none, or nothing is gathered.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last_timestamp: int | None = None
        self._parts: list[_TopicPart] = []
        #: The part of each topic that takes more, and with how many other records before it.
        self._open: dict[str, _TopicPart] = {}
        self._after = 0

    def add(
        self,
        writer: RowWriter,
        after: int,
        keys: list[bytes] | None,
        values: list[bytes | None],
        remake: Remake,
        timestamps: list[int | None] | None = None,
    ) -> None:
        """Take encoded records.

        Args:
            writer: of their table.
            after: how many other records of the batch come before them.
            keys: of each record; None: all are null.
            values: of each record, at least one.
            remake: makes the same records the general way.
            timestamps: of each record; None: none has one. All records of a writer have one, or none has.
        """
        if after != self._after:
            self._open.clear()
            self._after = after
        part = self._open.get(writer.topic)
        if part is None or part.writer is not writer:
            part = self._open[writer.topic] = _TopicPart(writer, after)
            self._parts.append(part)
        if keys is not None:
            part.keys += keys
        if timestamps is not None:
            part.timestamps += timestamps
        part.values += values
        part.remakes.append(remake)
        self.count += len(values)
        self.last_timestamp = timestamps[-1] if timestamps else None

    def collect(self) -> tuple[EncodedBatch, ...]:
        """All parts, for ``Batch.encoded``; nothing is gathered any more."""
        parts, self._parts = self._parts, []
        self._open.clear()
        self._after = self.count = 0
        self.last_timestamp = None
        return tuple(
            EncodedBatch(
                part.writer,
                part.after,
                part.keys or None,
                part.values,
                lambda remakes=part.remakes: _remake_records(remakes),  # type: ignore[misc]
                part.timestamps or None,
            )
            for part in parts
        )


def _remake_records(remakes: Sequence[Remake]) -> list[SourceRecord]:
    return [record for remake in remakes for record in remake()]
