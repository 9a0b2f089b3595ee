"""Updates with the image before them: what both images make of the change, and batches cut anywhere."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from spark_jobs.steps.image_pairs import FAILS, PASSES, UNKNOWN, UNUSABLE, decide_batch, make_pairing_task

Row = tuple[str, int, int, str | None]  # operation, key, state, value


def rows_of(rows: list[Row]) -> pa.RecordBatch:
    """Two columns, the state, the system columns; an image before an update has the order number of the update."""
    numbers = [number + (op == "b") for number, (op, *_) in enumerate(rows)]
    arrays: dict[str, Any] = {
        "c0": pa.array([row[1] for row in rows], pa.int64()),
        "c1": pa.array([row[3] for row in rows], pa.string()),
        "millrace_state_": pa.array([row[2] for row in rows], pa.int32()),
        "ums_id_": pa.array(numbers, pa.int64()),
        "ums_ts_": pa.array(numbers, pa.timestamp("us", "UTC")),
        "ums_op_": pa.array([row[0] for row in rows], pa.string()),
        "ums_uid_": pa.array([f"{number}{op}" for number, (op, *_) in enumerate(rows)], pa.string()),
        "kafka_topic_": pa.array(["t"] * len(rows), pa.string()),
        "kafka_partition_": pa.array([0] * len(rows), pa.int32()),
        "kafka_offset_": pa.array(range(len(rows)), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(arrays)


def decided(rows: list[Row], *, movable: bool = False) -> list[tuple[str, int, str | None, int, str]]:
    result = decide_batch(rows_of(rows), 2, 1, movable=movable)
    assert "millrace_state_" not in result.schema.names
    return [(row["ums_op_"], row["c0"], row["c1"], row["ums_id_"], row["ums_uid_"]) for row in result.to_pylist()]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (PASSES, PASSES, [("b", 1, "old", 1, "0b"), ("u", 1, "new", 1, "1u")]),
        (PASSES, FAILS, [("d", 1, "old", 1, "1u")]),
        (FAILS, PASSES, [("i", 1, "new", 1, "1u")]),
        (FAILS, FAILS, []),
        (UNKNOWN, PASSES, [("u", 1, "new", 1, "1u")]),
        (UNKNOWN, FAILS, [("d", 1, "new", 1, "1u")]),
        (UNUSABLE, PASSES, [("u", 1, "new", 1, "1u")]),
        (UNUSABLE, FAILS, [("d", 1, "new", 1, "1u")]),
        (PASSES, UNUSABLE, []),
    ],
)
def test_both_images_decide(before: int, after: int, expected: list[Any]) -> None:
    assert decided([("b", 1, before, "old"), ("u", 1, after, "new")]) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (PASSES, PASSES, ["d1", "i2"]),
        (PASSES, FAILS, ["d1"]),
        (FAILS, PASSES, ["i2"]),
        (FAILS, FAILS, []),
        (UNKNOWN, PASSES, ["d1", "i2"]),
        (PASSES, UNUSABLE, ["d1"]),
        (UNUSABLE, PASSES, ["i2"]),
    ],
)
def test_an_update_that_changes_the_key_moves_the_row(before: int, after: int, expected: list[str]) -> None:
    rows: list[Row] = [("b", 1, before, "old"), ("u", 2, after, "new")]
    assert [f"{op}{key}" for op, key, *_ in decided(rows, movable=True)] == expected


def test_rows_without_an_image_before() -> None:
    rows: list[Row] = [
        ("i", 1, PASSES, "a"),
        ("i", 2, FAILS, "b"),
        ("u", 3, PASSES, "c"),
        ("u", 4, FAILS, None),
        ("d", 5, PASSES, None),
        ("d", 6, UNKNOWN, None),
        ("d", 7, FAILS, None),
        ("b", 8, PASSES, None),
        ("d", 9, UNUSABLE, None),
        ("b", 10, FAILS, None),
    ]
    assert [(op, key) for op, key, *_ in decided(rows)] == [
        ("i", 1),
        ("u", 3),
        ("d", 4),
        ("d", 5),
        ("d", 6),
        ("b", 8),
    ]


def test_a_movable_key_needs_the_image() -> None:
    with pytest.raises(Fatal, match=r"the update at t-0 offset 1 comes without the row before it"):
        decided([("i", 1, PASSES, "a"), ("u", 1, PASSES, "b")], movable=True)


@given(
    st.lists(
        st.tuples(st.sampled_from("iudbb"), st.integers(1, 3), st.integers(0, 3), st.sampled_from(["x", None])),
        max_size=30,
    ),
    st.data(),
)
def test_batches_may_be_cut_anywhere(rows: list[Row], data: st.DataObject) -> None:
    whole = rows_of(rows)
    cuts = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=5))})
    parts = [whole.slice(start, end - start) for start, end in itertools.pairwise(cuts)]
    expected = decide_batch(whole, 2, 1).to_pylist()
    assert [row for part in make_pairing_task(2, 1, movable=False)(iter(parts)) for row in part.to_pylist()] == expected
