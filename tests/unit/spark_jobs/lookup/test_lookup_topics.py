"""The table of a topic, fed by records without a broker."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka
import pytest

from spark_jobs.steps.lookup.model import LookupAccess, LookupColumn, Spec
from spark_jobs.steps.lookup.topic import DEBEZIUM, TopicTable

if TYPE_CHECKING:
    from collections.abc import Sequence


class Record(NamedTuple):
    """A record as a consumer gives it."""

    where: int
    at: int
    data: bytes
    name: bytes | None
    sent_ms: int

    def error(self) -> None:
        """None: it is a record."""

    def partition(self) -> int:
        """Its partition."""
        return self.where

    def offset(self) -> int:
        """Its offset."""
        return self.at

    def key(self) -> bytes | None:
        """Its key."""
        return self.name

    def value(self) -> bytes:
        """Its value."""
        return self.data

    def timestamp(self) -> tuple[int, int]:
        """The type and the time, ms."""
        return 1, self.sent_ms


class MemoryConsumer:
    """A consumer of records in the order in which they were given."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = deque(records)

    def incremental_assign(self, partitions: Any) -> None:
        """See ``Consumer``."""

    def poll(self, timeout: float) -> Record | None:
        """See ``Consumer``."""
        del timeout
        return self._records.popleft() if self._records else None

    def consume(self, count: int, timeout: float) -> list[Record]:
        """See ``Consumer``."""
        del count, timeout
        return []


def look_up(monkeypatch: pytest.MonkeyPatch, records: Sequence[Record], ids: Sequence[int]) -> list[Any]:
    """The names that a table of these records has for ``ids``."""
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda _client: MemoryConsumer(records))
    columns = (LookupColumn("name", "string", "name"),)
    table = TopicTable(
        Spec("city", "topic", ("id",), columns, LookupAccess(""), topic="cities", form=DEBEZIUM, rows_max=100)
    )
    ends: dict[int, int] = {}
    for record in records:
        ends[record.where] = max(ends.get(record.where, 0), record.at + 1)
    table.read_to(ends)
    return [None if row is None else row[0] for row in table.values([(number,) for number in ids])]


def event(where: int, at: int, op: str, pos: int, number: int = 0, *, numbered: bool = True) -> Record:
    """An event about the row ``number``; ``pos``: of the binlog, or (not ``numbered``) the time."""
    source = {"file": "b.000001", "pos": pos} if numbered else {}
    after = {"id": number, "name": f"n{number}"} if op in "cru" else None
    data = json.dumps({"op": op, "before": None, "after": after, "source": source}).encode()
    return Record(where, at, data, str(number).encode() if number else None, pos)


@pytest.mark.parametrize("numbered", [True, False], ids=["order numbers", "times"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_truncate_takes_the_rows_before_it_away_and_none_after_it(
    monkeypatch: pytest.MonkeyPatch, first: int, numbered: bool
) -> None:
    """Whichever partition is read first: the TRUNCATE is in one of them only."""
    parts = [
        [
            event(0, 0, "c", 10, 1, numbered=numbered),
            event(0, 1, "t", 20, numbered=numbered),
            event(0, 2, "c", 30, 3, numbered=numbered),
        ],
        [event(1, 0, "c", 15, 2, numbered=numbered), event(1, 1, "c", 25, 4, numbered=numbered)],
    ]
    records = [*parts[first], *parts[1 - first]]
    assert look_up(monkeypatch, records, [1, 2, 3, 4]) == [None, None, "n3", "n4"]
