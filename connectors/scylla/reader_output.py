"""Records and positions that the making side has made and no batch has taken yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.api import Batch
from connectors.encoded_parts import EncodedParts
from connectors.scylla import positions

if TYPE_CHECKING:
    from connectors.api import BadRecord, Position, SourceRecord
    from connectors.scylla.hooks import SnapshotHook
    from connectors.scylla.source.lanes import GroupState


class ReaderOutput:
    """Gathers a batch. Not thread-safe.

    Args:
        max_batch: records of a batch.

    Attributes:
        records: the records.
        bad: rows that can't be decoded.
        encoded: rows that are bytes already.
        moved: positions to save that no record carries: by group, partition and offset.
        total: records of all batches so far.
    """

    def __init__(self, max_batch: int) -> None:
        self.records: list[SourceRecord] = []
        self.bad: list[BadRecord] = []
        self.encoded = EncodedParts()
        self.moved: dict[str, tuple[Position, Position]] = {}
        self.total = 0
        self._max_batch = max_batch
        #: By group: the furthest offset of the records and bad ones that ``note_progress`` has seen last.
        self._reached: dict[str, Position] = {}

    @property
    def pending(self) -> bool:
        """Whether there is anything for a batch."""
        return bool(self.records or self.encoded.count or self.moved or self.bad)

    def room(self) -> int:
        """How many records a batch may still take; below one: it has its size."""
        return self._max_batch - len(self.records) - self.encoded.count - len(self.bad)

    def is_full(self) -> bool:
        """Whether a batch has its size."""
        return self.room() <= 0

    def make_batch(self) -> Batch:
        """A batch of everything that is there."""
        self.total += len(self.records) + self.encoded.count
        batch = Batch(self.records, tuple(self.bad), tuple(self.moved.values()), encoded=self.encoded.collect())
        self.records, self.bad, self.moved = [], [], {}
        return batch

    def take_snapshot(self, hook: SnapshotHook) -> bool:
        """Take what a snapshot has, as far as there is room; return whether it has more."""
        offsets: list[tuple[Position, Position | None]] = []
        room = self._max_batch - len(self.records) - self.encoded.count
        has_more = hook.take(room, self.records, self.bad, offsets)
        for partition, offset in offsets:
            self.moved[repr(partition)] = (partition, offset)  # type: ignore[assignment]
        return has_more

    def save_position(self, state: GroupState) -> None:
        """Let the next batch save the position of a group."""
        self.moved[state.name] = (state.partition, positions.source_offset(state.position()))

    def note_progress(self, state: GroupState, records: int, bad: int) -> None:
        """Note the position of ``state`` if one of its streams has added to the first ``records`` records and ``bad`` bad ones.

        A record carries its position. A bad record does not, and the end of its window may not be saved for long: so that a
        restart passes it, its position goes with the batch that it is in. Its offset is as complete as a record's. A range
        delete without its end is given up late: what was delivered behind its start is not to be repeated.
        """
        name, has_records = state.name, len(self.records) > records
        if has_records:
            self.moved.pop(name, None)
            self._reached[name] = self.records[-1].source_offset
        if len(self.bad) > bad:
            # In no order with the records that came with it: builders look for bad cells first.
            furthest = max((bad_record.source_offset for bad_record in self.bad[bad:]), key=positions.place_in_stream)
            reached = self._reached.get(name)
            if reached is None or _is_behind(reached, furthest):
                reached = self._reached[name] = furthest
            elif has_records:
                return
            self.moved[name] = (state.partition, reached)


def _is_behind(offset: Position, other: Position) -> bool:
    """Whether ``offset`` is of another stream than ``other``, or of an earlier change of the same one."""
    return offset[positions.OFFSET_STREAM] != other[positions.OFFSET_STREAM] or (
        positions.place_in_stream(offset) < positions.place_in_stream(other)
    )
