"""Offset ranges from the checkpoint's files, and what is said of records that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from spark_jobs.kafka import ranges
from spark_jobs.kafka.ranges import ExistingTopic
from spark_jobs.spark.checkpoint import LocalFolder

if TYPE_CHECKING:
    from pathlib import Path

LOG = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'
_WHERE = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3))


def test_ranges_of_batches(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.write("sources/0/0", '\0v1\n{"a":{"0":5,"1":0}}')
    folder.write("offsets/0", LOG + '{"a":{"0":9,"1":0}}')
    folder.write("offsets/1", LOG + '{"a":{"0":9,"1":4,"2":7}}')
    folder.write("offsets/.2.crc", "x")
    assert ranges.last_batch(folder) == 1
    assert ranges.last_batch(folder, "commits") is None
    assert ranges.start_of(folder, 0) == {("a", 0): 5, ("a", 1): 0}
    first = ranges.compute_ranges(ranges.start_of(folder, 0), ranges.read_position(folder, 0) or {}, {})
    assert first == {("a", 0): (5, 9)}
    # A partition that is new begins at its earliest offset; one without new records is not in the batch.
    second = ranges.compute_ranges(ranges.start_of(folder, 1), ranges.read_position(folder, 1) or {}, {("a", 2): 3})
    assert second == {("a", 1): (0, 4), ("a", 2): (3, 7)}
    assert ranges.read_position(folder, 7) is None
    assert ranges.start_of(LocalFolder(tmp_path / "none"), 0) == {}


@given(st.dictionaries(_WHERE, st.integers(0, 50)), st.dictionaries(_WHERE, st.integers(0, 50)))
def test_ranges_neither_overlap_nor_leave_out(
    start: dict[tuple[str, int], int], more: dict[tuple[str, int], int]
) -> None:
    """Cut at any position, two batches cover what one batch would."""
    middle = {where: start.get(where, 0) + more.get(where, 0) for where in start | more}
    end = {where: offset + 3 for where, offset in middle.items()}
    whole = ranges.compute_ranges(start, end, {})
    parts = [ranges.compute_ranges(start, middle, {}), ranges.compute_ranges(middle, end, {})]
    covered = {
        where: sorted(offset for part in parts if where in part for offset in range(*part[where])) for where in whole
    }
    assert covered == {where: list(range(*bounds)) for where, bounds in whole.items()}


@pytest.mark.parametrize(
    "text", ["", "v9", "garbage\nx\ny", 'v1\n{}\n{"file": "/x"}', "v1\n{}\n[1]", "v1\n{}\nnonsense"]
)
def test_foreign_checkpoints_are_refused(text: str) -> None:
    with pytest.raises(Fatal, match="checkpoint"):
        ranges.parse_log(text)


NOW = {"t": ExistingTopic("new", {0: 10, 1: 0}, {0: 20, 1: 5})}


@pytest.mark.parametrize(
    ("positions", "topic_ids", "said"),
    [
        ({("t", 0): 10, ("t", 1): 5}, {"t": "new"}, []),
        ({("t", 0): 10}, {}, []),
        ({("t", 0): 3}, {"t": "new"}, ["t-0: offsets 3 to 9 are gone", "what exists begins at 10 and ends before 20"]),
        ({("t", 1): 8}, {}, ["t-1: the job stood at offset 8, but the partition ends at 5"]),
        (
            {("t", 0): 15, ("t", 1): 2},
            {"t": "old"},
            [
                "topic t was deleted and recreated (its id was old and is new)",
                "partition 0 offset 15, partition 1 offset 2",
                "0: 10 to 20, 1: 0 to 5",
            ],
        ),
        ({("u", 0): 4}, {}, ["topic u is gone: the records from partition 0 offset 4 on"]),
        ({("t", 2): 4}, {}, ["t-2: the partition is gone, the topic has 2"]),
    ],
)
def test_losses(positions: dict[tuple[str, int], int], topic_ids: dict[str, str], said: list[str]) -> None:
    losses = ranges.find_losses(positions, NOW, topic_ids)
    assert len(losses) == bool(said)
    assert all(part in losses[0] for part in said)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_a_loss_is_reported_exactly_when_records_are_missing(position: int, first: int, length: int) -> None:
    existing = {"t": ExistingTopic("", {0: first}, {0: first + length})}
    readable = first <= position <= first + length
    assert bool(ranges.find_losses({("t", 0): position}, existing, {})) is not readable


def test_the_message_says_what_to_do() -> None:
    text = ranges.loss_message(["one", "two"], "/check", limit=1)
    for part in ("one", "and 1 more", "Nothing was skipped", "source.fail.on.data.loss=false", "/check", "retention"):
        assert part in text


def test_a_start_at_the_offsets_of_a_group_names_every_partition() -> None:
    existing = {"a": ExistingTopic("", {0: 0, 1: 3}, {0: 9, 1: 9}), "b": ExistingTopic("", {0: 0}, {0: 2})}
    text = ranges.starting_text(existing, {("a", 1): 7}, latest=False)
    assert ranges.parse_offsets(text) == {("a", 0): -2, ("a", 1): 7, ("b", 0): -2}
    text = ranges.starting_text(existing, {("a", 1): 7}, latest=True)
    assert ranges.parse_offsets(text) == {("a", 0): -1, ("a", 1): 7, ("b", 0): -1}
