"""The partitions to which transactions write their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offsets.aiokafka_internals import add_partitions_to_transaction

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer


class OffsetPartitions:
    """The partitions of offsets in the open transaction, and those of the one before until they are added to this one.

    The same task nearly always writes its offsets to the same partitions. They are added to a transaction together with its
    first partition of records: Kafka gets one request to add partitions a transaction, not two, and the commit waits for one
    answer less. A partition that is not written to gets a marker only.
    """

    __slots__ = ("_current", "_last")

    def __init__(self) -> None:
        self._current: set[tuple[str, int]] = set()
        self._last: set[tuple[str, int]] = set()

    def begin_transaction(self) -> None:
        """Start with the partitions of the transaction before."""
        self._last, self._current = self._current, set()

    def add(self, topic: str, partition: int) -> None:
        """Note that offsets are written to a partition."""
        self._current.add((topic, partition))

    def join(self, client: AIOKafkaProducer) -> None:
        """Add the last transaction's partitions to the open one; only the first call has an effect."""
        if self._last:
            add_partitions_to_transaction(client, self._last)
            self._last = set()
