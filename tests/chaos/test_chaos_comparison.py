"""The comparison that all chaos tests rely on can fail."""

import json
from collections.abc import Callable

import pytest

from connectors.datagen.generator import record
from tests.chaos.delivery import Load, compare
from worker.kafka.whole_topics import ReadRecord

LOAD = Load("c", "t", records=20)


def arrived() -> list[ReadRecord]:
    """Everything that ``LOAD`` gives, in one partition, in order."""
    records: list[ReadRecord] = []
    for partition, count in enumerate(LOAD.counts):
        for number in range(count):
            key, value = record(LOAD.seed, partition, number)
            records.append(ReadRecord(0, len(records), key.encode(), json.dumps(value).encode(), ()))
    return records


def without_the_fifth(records: list[ReadRecord]) -> None:
    del records[5]


def swapped(records: list[ReadRecord]) -> None:
    records[3], records[4] = records[4], records[3]


def changed(records: list[ReadRecord]) -> None:
    records[3] = records[3]._replace(value=(records[3].value or b"").replace(b"Item_", b"Item-"))


def other_key(records: list[ReadRecord]) -> None:
    records[3] = records[3]._replace(key=b"0-4")


def one_too_many(records: list[ReadRecord]) -> None:
    key, value = record(LOAD.seed, 0, 10)
    records.append(records[-1]._replace(key=key.encode(), value=json.dumps(value).encode()))


def key_elsewhere(records: list[ReadRecord]) -> None:
    records.append(records[0]._replace(partition=1))


def test_all_there() -> None:
    for exactly_once in (False, True):
        assert compare(arrived(), LOAD, exactly_once=exactly_once) == 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_the_fifth, "lost 1 of 10 records: 5"),
        (swapped, "order of the source"),
        (changed, "other content"),
        (other_key, "has the key"),
        (one_too_many, "nobody gave: 10"),
        (key_elsewhere, "another partition"),
    ],
)
def test_differences(spoil: Callable[[list[ReadRecord]], None], message: str) -> None:
    records = arrived()
    spoil(records)
    with pytest.raises(AssertionError, match=message):
        compare(records, LOAD, exactly_once=False)


def test_repetition() -> None:
    """Records that are sent again are allowed with at least once, and only there."""
    records = arrived()
    records[10:10] = records[7:10]
    assert compare(records, LOAD, exactly_once=False) == 3
    with pytest.raises(AssertionError, match="3 records are there more than once"):
        compare(records, LOAD, exactly_once=True)
