"""Positions of consumer groups, read with confluent-kafka."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer, TopicPartition

#: Between two questions while a group's coordinator moves.
_PAUSE_S: Final = 0.1


def read_committed(consumer: Consumer, partitions: Sequence[TopicPartition], timeout_s: float) -> list[Any]:
    """Read the offsets that the consumer's group has committed of ``partitions``, in order. Blocks, ``timeout_s`` at most.

    The group's coordinator answers that it is not the one, or not ready, while its topic is made (the first group of a
    cluster), while it moves to another broker and while it reads its log. Confluent's client hands this on at once for such a
    read, unlike Java's, which asks again; so does this.

    Raises:
        KafkaException: Kafka does not answer in time, or refuses; also if one partition alone is refused.
    """
    from confluent_kafka import KafkaError, KafkaException

    passing = {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        # Transactions of the group that are about to end, KIP-447.
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
    deadline = time.monotonic() + timeout_s
    while True:
        positions: list[Any] = []
        try:
            positions = consumer.committed(list(partitions), max(0.001, deadline - time.monotonic()))
            refused = next((position.error for position in positions if position.error is not None), None)
        except KafkaException as error:
            refused = error.args[0]
        if refused is None:
            return positions
        if refused.code() not in passing or time.monotonic() + _PAUSE_S >= deadline:
            raise KafkaException(refused)
        time.sleep(_PAUSE_S)
