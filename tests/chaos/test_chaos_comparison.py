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
    found: list[ReadRecord] = []
    for partition, count in enumerate(LOAD.counts):
        for number in range(count):
            key, value = record(LOAD.seed, partition, number)
            found.append(ReadRecord(0, len(found), key.encode(), json.dumps(value).encode(), ()))
    return found


def without_the_fifth(found: list[ReadRecord]) -> None:
    del found[5]


def swapped(found: list[ReadRecord]) -> None:
    found[3], found[4] = found[4], found[3]


def changed(found: list[ReadRecord]) -> None:
    found[3] = found[3]._replace(value=(found[3].value or b"").replace(b"Item_", b"Item-"))


def other_key(found: list[ReadRecord]) -> None:
    found[3] = found[3]._replace(key=b"0-4")


def one_too_many(found: list[ReadRecord]) -> None:
    key, value = record(LOAD.seed, 0, 10)
    found.append(found[-1]._replace(key=key.encode(), value=json.dumps(value).encode()))


def key_elsewhere(found: list[ReadRecord]) -> None:
    found.append(found[0]._replace(partition=1))


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
    found = arrived()
    spoil(found)
    with pytest.raises(AssertionError, match=message):
        compare(found, LOAD, exactly_once=False)


def test_repetition() -> None:
    """Records that are sent again are allowed with at least once, and only there."""
    found = arrived()
    found[10:10] = found[7:10]
    assert compare(found, LOAD, exactly_once=False) == 3
    with pytest.raises(AssertionError, match="3 records are there more than once"):
        compare(found, LOAD, exactly_once=True)
