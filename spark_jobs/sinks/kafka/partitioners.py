"""Partitioners of a user's own for the Kafka sink: entry points of the group ``millrace.partitioners``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from connectors.entry_points import list_entries
from connectors.errors import Fatal

GROUP: Final = "millrace.partitioners"
#: Those of the sink.
BUILT_IN: Final = ("source", "key", "round-robin")
#: ``(key, value, topic, number of partitions)`` -> the partition, from 0.
Partitioner = Callable[[bytes | None, bytes | None, str, int], int]


def list_partitioners() -> list[str]:
    """The names of the installed ones. Blocks for some ms."""
    return sorted(entry.name for entry in list_entries(GROUP))


def load_partitioner(name: str) -> Partitioner:
    """The function of an entry point. Blocks while it is imported.

    Raises:
        Fatal: no installed package has this name, or it can't be imported.
    """
    for entry in list_entries(GROUP):
        if entry.name == name:
            try:
                partitioner: Partitioner = entry.load()
            except Exception as error:
                raise Fatal(f"sink.kafka.partitioner: {name} ({entry.value}) can't be imported: {error}") from error
            return partitioner
    raise Fatal(
        f"sink.kafka.partitioner: no installed package has an entry point {name} in the group {GROUP}; there are "
        f"{', '.join([*BUILT_IN, *list_partitioners()])}"
    )


def check_partition(name: str, partition: Any, topic: str, partitions: int) -> int:
    """The result of a partitioner. Pure.

    Raises:
        Fatal: it is no partition of the topic.
    """
    if type(partition) is not int or not 0 <= partition < partitions:
        raise Fatal(
            f"sink.kafka.partitioner: {name} gave {partition!r} for a record of topic {topic}, which has the partitions 0 "
            f"to {partitions - 1}. Correct the partitioner."
        )
    return partition
