"""Lookups over Arrow batches: distinct keys, policies for misses, images before updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.steps.failures import REASON, RowFailure
from spark_jobs.steps.lookup.model import LookupAccess, LookupColumn, Spec
from spark_jobs.steps.lookup.task import LookupTask, key_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = {(1, "x"): ("one", 10), (2, "x"): ("two", 20), (2, "y"): ("other", None)}
SPEC = Spec(
    step="s",
    system="postgresql",
    on=("id", "part"),
    columns=(LookupColumn("name", "string", "name"), LookupColumn("n", "int", "n")),
    login=LookupAccess("db"),
)


def rows_of(changes: Sequence[tuple[str, int, int | None, str | None]]) -> pa.RecordBatch:
    """Rows with a key, two columns that are looked up, and the system columns."""
    columns = {
        "c0": pa.array([key for _, key, _, _ in changes], pa.int32()),
        "c1": pa.array([number for _, _, number, _ in changes], pa.int32()),
        "c2": pa.array([part for _, _, _, part in changes], pa.string()),
        "ums_id_": pa.array(range(len(changes)), pa.int64()),
        "ums_ts_": pa.nulls(len(changes), pa.timestamp("us", "UTC")),
        "ums_op_": pa.array([op for op, _, _, _ in changes], pa.string()),
    }
    columns |= {name: pa.nulls(len(changes), pa.string()) for name in SYSTEM_COLUMNS if name not in columns}
    return pa.RecordBatch.from_pydict(columns)


def task(miss: str = "null", *, guarded: bool = False, key: int = 1, **more: Any) -> LookupTask:
    fields = {name: getattr(SPEC, name) for name in SPEC.__dataclass_fields__} | {"miss": miss} | more
    return LookupTask(Spec(**fields), "shop.orders", (1, 2), 3, key, guarded=guarded)


def answered(chosen: LookupTask, changes: Sequence[tuple[str, int, int | None, str | None]]) -> list[tuple[Any, ...]]:
    result = chosen.answer(rows_of(changes), lambda keys: [NAMES.get(key) for key in keys])
    names = ["ums_op_", "c0", "c1", "c3", "c4", *([REASON] if chosen.guarded else [])]
    return list(zip(*(result.column(result.schema.get_field_index(name)).to_pylist() for name in names), strict=True))


def test_values_stand_beside_their_rows() -> None:
    assert answered(
        task(), [("i", 1, 1, "x"), ("u", 2, 2, "y"), ("i", 3, 9, "x"), ("i", 4, None, "x"), ("i", 5, 1, "x")]
    ) == [
        ("i", 1, 1, "one", 10),
        ("u", 2, 2, "other", None),
        ("i", 3, 9, None, None),
        ("i", 4, None, None, None),
        ("i", 5, 1, "one", 10),
    ]


def test_deletes_and_images_before_updates_are_not_looked_up() -> None:
    asked: list[Any] = []

    def look_up(keys: Sequence[tuple[Any, ...]]) -> list[Any]:
        asked.extend(keys)
        return [NAMES.get(key) for key in keys]

    changes = [("d", 1, 1, "x"), ("b", 2, 2, "x"), ("u", 2, 2, "y")]
    result = task().answer(rows_of(changes), look_up)
    assert asked == [(2, "y")]
    assert result.column(3).to_pylist() == [None, None, "other"]


def test_a_miss_drops_inserts_and_makes_deletes_of_updates() -> None:
    changes = [
        ("i", 1, 9, "x"),
        ("u", 2, 9, "x"),
        ("d", 3, 9, "x"),
        ("b", 4, 1, "x"),
        ("u", 4, 9, "x"),
        ("i", 5, 1, "x"),
    ]
    assert answered(task("drop"), changes) == [
        ("d", 2, None, None, None),
        ("d", 3, 9, None, None),
        ("d", 4, None, None, None),
        ("i", 5, 1, "one", 10),
    ]
    assert answered(task("drop", key=0), changes) == [("d", 3, 9, None, None), ("i", 5, 1, "one", 10)]


def test_bad_rows_fail_the_batch_or_get_a_reason() -> None:
    changes = [("i", 1, 1, "x"), ("b", 2, 1, "x"), ("u", 2, 9, "x"), ("i", 3, None, "x"), ("d", 4, 9, "x")]
    reason = "postgresql db has no row for id=9, part=x"
    with pytest.raises(RowFailure, match=reason):
        answered(task("dead-letter"), changes)
    assert [row[-1] for row in answered(task("dead-letter", guarded=True), changes)] == [
        None,
        reason,
        reason,
        None,
        None,
    ]
    assert [row[-1] for row in answered(task("drop", guarded=True), changes)] == [None, None, None]
    assert [row[-1] for row in answered(task(guarded=True), changes)] == [None] * 5


def test_what_follows_when_waiting_was_in_vain() -> None:
    changes = [("i", 1, 9, "x")]
    assert answered(task("retry", miss_then="null"), changes) == [("i", 1, 9, None, None)]
    assert answered(task("retry", miss_then="drop"), changes) == []
    with pytest.raises(RowFailure):
        answered(task("retry"), changes)


def test_a_batch_without_rows() -> None:
    assert answered(task("drop"), []) == []


KEYS = st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "a", "b"]), st.booleans()))


@given(KEYS)
def test_distinct_keys_and_their_rows(rows: list[tuple[int | None, str | None, bool]]) -> None:
    columns = [pa.array([row[0] for row in rows], pa.int32()), pa.array([row[1] for row in rows], pa.string())]
    codes, keys = key_codes(columns, pa.array([row[2] for row in rows], pa.bool_()))
    expected = [(row[0], row[1]) if row[2] and None not in row[:2] else None for row in rows]
    assert [None if code is None else keys[code] for code in codes.to_pylist()] == expected
    assert sorted(keys) == sorted({key for key in expected if key is not None})
