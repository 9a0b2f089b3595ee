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


def save(saved: Saved, shard: Shard, position: BinlogPosition, task_start: start.Start, rows: int = 0) -> None:
    offset = {
        **positions.to_offset(position),
        start.LAYOUT: task_start.layout,
        start.DONE: start.done_text(task_start.done),
        "event": rows,
        start.ORIGIN: task_start.origin or "new:b.000001:4:0:0",
    }
    partition = start.stream_partition(PREFIX, shard)
    saved[key(partition)] = (partition, offset)


def test_debezium_s_position_is_taken_over_and_then_ours_counts() -> None:
    theirs = {"file": "b.000002", "pos": 400, "event": 3, "row": 1, "ts_sec": 5, "server_id": 1}
    saved: Saved = {"": ({"server": PREFIX}, theirs)}
    task_start = start.start_of(PREFIX, Shard(), saved.values())
    assert task_start.position == BinlogPosition(file="b.000002", pos=400, event=3, row=1, ts_sec=5, server_id=1)
    assert (task_start.resume.rows, task_start.done) == (1, ())
    for index in range(2):
        task_start = start.start_of(PREFIX, Shard(index, 2), saved.values())
        assert task_start.position is not None
        assert task_start.position.pos == 400
        save(saved, Shard(index, 2), BinlogPosition(file="b.000002", pos=900 + index), task_start)
    for index in range(2):
        restarted = start.start_of(PREFIX, Shard(index, 2), saved.values())
        assert restarted.position is not None
        assert restarted.position.pos == 900 + index


def test_an_operator_s_position_counts_as_the_newest() -> None:
    saved: Saved = {}
    for index in range(2):
        task_start = start.start_of(PREFIX, Shard(index, 2), saved.values())
        save(saved, Shard(index, 2), BinlogPosition(file="b.000009", pos=900 + index), task_start)
    saved["altered"] = ({"server": PREFIX}, {"file": "b.000001", "pos": 4})
    for index in range(2):
        task_start = start.start_of(PREFIX, Shard(index, 2), saved.values())
        assert task_start.position == BinlogPosition(file="b.000001", pos=4)
        assert task_start.done == ()


def test_an_invalid_offset_says_how_to_fix_it() -> None:
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
        task_start = start.start_of(PREFIX, shard, saved.values())
        first = (
            0 if task_start.position is None else (task_start.position.pos - 4) // 10 * size + task_start.position.event
        )
        for row in range(first, min(total, first + steps)):
            row_position = start.RowPosition(1, 4 + row // size * 10, row % size, 0)
            former = [
                done_shard
                for done_shard in task_start.done
                if owner(row, done_shard.shard.count) == done_shard.shard.index
            ]
            if owner(row, shard.count) == shard.index and not any(
                row_position < done_shard.position for done_shard in former
            ):
                delivered.append(row)
            after = row + 1
            save(saved, shard, BinlogPosition(file="b.000001", pos=4 + after // size * 10), task_start, after % size)

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
