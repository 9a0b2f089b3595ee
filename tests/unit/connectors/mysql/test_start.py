"""Where tasks begin when the number of tasks changes: nothing is left out, and nothing comes twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from connectors.mysql.model import BinlogPosition, Shard
from connectors.mysql.position import positions, start

PREFIX = "p"
Saved = dict[str, tuple[dict[str, Any], dict[str, Any]]]


def key(partition: dict[str, Any]) -> str:
    return str(sorted(partition.items()))


def save(saved: Saved, shard: Shard, place: BinlogPosition, begun: start.Start, rows: int = 0) -> None:
    offset = {
        **positions.to_offset(place),
        start.LAYOUT: begun.layout,
        start.DONE: start.done_text(begun.done),
        "event": rows,
        start.ORIGIN: begun.origin or "new:b.000001:4:0:0",
    }
    partition = start.stream_partition(PREFIX, shard)
    saved[key(partition)] = (partition, offset)


def test_debezium_s_place_is_taken_over_and_then_ours_counts() -> None:
    theirs = {"file": "b.000002", "pos": 400, "event": 3, "row": 1, "ts_sec": 5, "server_id": 1}
    saved: Saved = {"": ({"server": PREFIX}, theirs)}
    begun = start.start_of(PREFIX, Shard(), saved.values())
    assert begun.position == BinlogPosition(file="b.000002", pos=400, event=3, row=1, ts_sec=5, server_id=1)
    assert (begun.resume.rows, begun.done) == (1, ())
    for index in range(2):
        begun = start.start_of(PREFIX, Shard(index, 2), saved.values())
        assert begun.position is not None
        assert begun.position.pos == 400
        save(saved, Shard(index, 2), BinlogPosition(file="b.000002", pos=900 + index), begun)
    for index in range(2):
        again = start.start_of(PREFIX, Shard(index, 2), saved.values())
        assert again.position is not None
        assert again.position.pos == 900 + index


def test_an_operator_s_place_counts_as_the_newest() -> None:
    saved: Saved = {}
    for index in range(2):
        begun = start.start_of(PREFIX, Shard(index, 2), saved.values())
        save(saved, Shard(index, 2), BinlogPosition(file="b.000009", pos=900 + index), begun)
    saved["altered"] = ({"server": PREFIX}, {"file": "b.000001", "pos": 4})
    for index in range(2):
        begun = start.start_of(PREFIX, Shard(index, 2), saved.values())
        assert begun.position == BinlogPosition(file="b.000001", pos=4)
        assert begun.done == ()


def test_an_offset_that_is_none_says_how_to_mend_it() -> None:
    with pytest.raises(ConfigInvalid, match="PATCH /connectors/NAME/offsets"):
        start.start_of(PREFIX, Shard(), [({"server": PREFIX}, {"file": "b.000001", "pos": "x"})])


def owner(row: int, count: int) -> int:
    return row * 7 // 3 % count


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=12)


@given(st.lists(st.tuples(st.integers(1, 4), STEPS), max_size=6))
def test_each_row_comes_once_whatever_the_number_of_tasks_becomes(
    phases: list[tuple[int, list[tuple[int, int]]]],
) -> None:
    """Rows 0..59 are in transactions of five. In each phase other tasks continue, each for the phase's number of rows."""
    total, size = 60, 5
    saved: Saved = {}
    delivered: list[int] = []

    def advance(shard: Shard, steps: int) -> None:
        begun = start.start_of(PREFIX, shard, saved.values())
        first = 0 if begun.position is None else (begun.position.pos - 4) // 10 * size + begun.position.event
        for row in range(first, min(total, first + steps)):
            spot = start.RowPosition(1, 4 + row // size * 10, row % size, 0)
            former = [each for each in begun.done if owner(row, each.shard.count) == each.shard.index]
            if owner(row, shard.count) == shard.index and not any(spot < each.position for each in former):
                delivered.append(row)
            after = row + 1
            save(saved, shard, BinlogPosition(file="b.000001", pos=4 + after // size * 10), begun, after % size)

    for count, steps in phases:
        for index in range(count):  # a new layout is saved by all of its tasks before it ends
            advance(Shard(index, count), 1)
        for index, amount in steps:
            if index < count:
                advance(Shard(index, count), amount)
    for _ in range(2):
        for index in range(3):
            advance(Shard(index, 3), total)
    assert sorted(delivered) == list(range(total))
