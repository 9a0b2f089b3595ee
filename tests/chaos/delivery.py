"""A load whose every record is known beforehand, and the comparison of what arrived with it, row by row."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from connectors.datagen.generator import identify, record, share_records
from worker.kafka.whole_topics import ReadRecord, read_topic


@dataclass(frozen=True, slots=True)
class Load:
    """A datagen connector of two source partitions, each read by a task of its own.

    Attributes:
        name: the connector's.
        topic: where it writes.
        records: how many, over all source partitions.
        rate: how many a second each task gives.
        partitions: source partitions.
        tasks: tasks to divide them among.
        seed: of the generator.
        replication: replicas of the topic.
        options: further properties of the connector.
    """

    name: str
    topic: str
    records: int = 4000
    rate: int = 500
    partitions: int = 2
    tasks: int = 2
    seed: int = 7
    replication: int = 1
    options: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, str]:
        """The connector's configuration; the topic gets two partitions."""
        return {
            "connector.class": "connectors.datagen.connector.DatagenConnector",
            "tasks.max": str(self.tasks),
            "topic": self.topic,
            "records": str(self.records),
            "rate": str(self.rate),
            "partitions": str(self.partitions),
            "seed": str(self.seed),
            "topic.creation.default.partitions": "2",
            "topic.creation.default.replication.factor": str(self.replication),
            **self.options,
        }

    @property
    def counts(self) -> list[int]:
        """Records of each source partition."""
        return [share_records(self.records, self.partitions, number) for number in range(self.partitions)]


def verify(bootstrap: str, load: Load, *, exactly_once: bool) -> int:
    """Compare the topic with the source; returns how many records are there more than once.

    Nothing is lost, nothing is changed, each key is in one partition, and in each partition the records of a source partition
    first appear in the source's order. With exactly once nothing that readers of committed records see is there twice, so
    that this is the order of all records.

    Raises:
        AssertionError: with the first differences.
    """
    return compare(read_topic(bootstrap, load.topic, committed=exactly_once), load, exactly_once=exactly_once)


def compare(arrivals: Sequence[ReadRecord], load: Load, *, exactly_once: bool) -> int:
    """Do what ``verify`` does, for records that were read already; each partition's in order."""
    times: list[dict[int, int]] = [defaultdict(int) for _ in load.counts]
    last: dict[tuple[int, int], int] = defaultdict(lambda: -1)
    homes: dict[bytes | None, int] = {}
    for arrival in arrivals:
        assert arrival.value is not None, f"an empty record at {arrival.partition}@{arrival.offset}"
        value = json.loads(arrival.value)
        partition, number = identify(value)
        where = f"record {number} of source partition {partition}, at {arrival.partition}@{arrival.offset}"
        key, expected = record(load.seed, partition, number)
        assert value == expected, f"{where} has other content: {value} instead of {expected}"
        assert arrival.key == key.encode(), f"{where} has the key {arrival.key!r} instead of {key!r}"
        assert homes.setdefault(arrival.key, arrival.partition) == arrival.partition, (
            f"{where}: its key was in another partition before"
        )
        if not times[partition][number]:
            before = last[arrival.partition, partition]
            assert number > before, f"{where} first appears behind {before}: the order of the source is broken"
            last[arrival.partition, partition] = number
        times[partition][number] += 1
    for partition, count in enumerate(load.counts):
        lost = sorted(set(range(count)) - times[partition].keys())
        assert not lost, f"source partition {partition} lost {len(lost)} of {count} records: {_ranges(lost)}"
        invented = sorted(times[partition].keys() - set(range(count)))
        assert not invented, f"source partition {partition} has records that nobody gave: {_ranges(invented)}"
    twice = {
        (partition, number): count
        for partition, seen in enumerate(times)
        for number, count in seen.items()
        if count > 1
    }
    assert not (exactly_once and twice), f"{len(twice)} records are there more than once: {sorted(twice.items())[:10]}"
    return len(twice)


def _ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers as ``0-4, 7``; the first ten ranges."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:10])
    return text + (" ..." if len(ranges) > 10 else "")
