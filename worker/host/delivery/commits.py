"""The offsets that may be committed: for each source partition, those of the acknowledged prefix.

The unit of acknowledgement is what one poll gave for one source partition; a slow Kafka partition therefore holds back only
the source partitions whose records wait for it. Nothing is kept per record.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from connectors.api import Position

#: What was last committed or is to be: (source partition, source offset or None to delete).
Committable = tuple["Position", "Position | None"]


class CommitUnit:
    """One poll's share of the work: acknowledged when everything that was held for it is released.

    Args:
        positions: (key, partition, offset) of each source partition it moves, its last offset only.
        timestamp: of its last record, milliseconds since the epoch; None if unknown.
        receipt: the batch's, for the task.
    """

    __slots__ = ("done", "holders", "positions", "receipt", "timestamp")

    def __init__(
        self,
        positions: Sequence[tuple[object, Position, Position | None]] = (),
        timestamp: int | None = None,
        receipt: Any = None,
    ) -> None:
        self.positions = positions
        self.timestamp = timestamp
        self.receipt = receipt
        #: Chunks that hold records of it, and one for its maker until all of its records are in a chunk.
        self.holders = 1
        self.done: Callable[[CommitUnit], None] | None = None

    def release(self) -> None:
        """One holder is finished; calls ``done`` when it was the last."""
        self.holders -= 1
        if self.holders == 0 and self.done is not None:
            self.done(self)


def position_key(partition: Position) -> object:
    """A hashable value that is equal for equal source partitions."""
    if len(partition) == 1:
        (item,) = partition.items()
        if isinstance(item[1], str):
            return item
    return json.dumps(partition, sort_keys=True, separators=(",", ":"), default=str)


class Ledger:
    """The units of one task in order, and the offsets that follow from their acknowledgements.

    Adding and acknowledging cost O(source partitions in the unit).

    Args:
        acknowledged: called with each unit when it is acknowledged, in any order.
    """

    def __init__(self, acknowledged: Callable[[CommitUnit], None] | None = None) -> None:
        self._notify = acknowledged
        self._queues: dict[object, deque[tuple[CommitUnit, Position, Position | None]]] = {}
        self._ready: dict[object, Committable] = {}
        self._retry: dict[object, Committable] = {}
        self.open = 0

    def add(self, unit: CommitUnit) -> None:
        """Append ``unit``; its maker must ``release`` it once all of its records are handed over."""
        unit.done = self._acknowledge_unit
        self.open += 1
        for key, partition, offset in unit.positions:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = deque()
            queue.append((unit, partition, offset))

    def _acknowledge_unit(self, unit: CommitUnit) -> None:
        self.open -= 1
        for key, _, _ in unit.positions:
            queue = self._queues.get(key)
            if queue and len(queue) > 1 and queue[-1][0] is unit and queue[-2][0].holders == 0:
                # Polls that give positions alone come without end, also while Kafka is unavailable: the last one says it all.
                del queue[-2]
            while queue and queue[0][0].holders == 0:
                _, partition, offset = queue.popleft()
                self._ready[key] = (partition, offset)
            if queue is not None and not queue:
                del self._queues[key]
        if self._notify is not None:
            self._notify(unit)

    def take(self) -> list[Committable]:
        """Return the offsets to commit now that were not yet taken (or were given back): each source partition once."""
        committable = {**self._retry, **self._ready}
        self._retry, self._ready = {}, {}
        return list(committable.values())

    def give_back(self, offsets: Iterable[Committable]) -> None:
        """Offsets whose commit failed: they are taken again, unless newer ones have become ready since."""
        for partition, offset in offsets:
            self._retry[position_key(partition)] = (partition, offset)
