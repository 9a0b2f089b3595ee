"""Lookups in the files of a step's state give the rows that a scan gives, whatever the values are."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_jobs.steps.state.files import Layers, StateFiles, create_table

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema(
    [
        pa.field("batch_", pa.int64()),
        pa.field("k", pa.int32()),
        pa.field("v", pa.string()),
        pa.field("order_", pa.int64()),
    ]
)
STRINGS = ["a", "it's", 'a "b"', "\\", "\\'", "--", "%_", "", " a", "A", "ä", "a\nb", "a\x00b", "🙂", None]


def table(*rows: tuple[int, int, str | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def listed(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


@pytest.fixture
def files(tmp_path: Path) -> StateFiles:
    create_table(str(tmp_path), table(*((1, number, value, 1) for number, value in enumerate(STRINGS))), {})
    return StateFiles(str(tmp_path), "batch_")


@pytest.mark.parametrize("values", [[value] for value in STRINGS] + [STRINGS[:4], ["a", None, "none"], ["none"], []])
@pytest.mark.parametrize("padding", [0, 2000])
def test_a_value_finds_its_rows(files: StateFiles, values: list[str | None], padding: int) -> None:
    asked = pa.array([*values, *(f"p{number}" for number in range(padding))], pa.string())
    expected = [(1, number, value, 1) for number, value in enumerate(STRINGS) if value in values]
    assert listed(files.rows({"v": asked}, (0, 9), 100)) == sorted(expected, key=repr)


def test_values_of_several_columns_must_all_match(files: StateFiles) -> None:
    keys, values = pa.array([0, 1, 2], pa.int32()), pa.array(["a", "A"], pa.string())
    assert listed(files.rows({"k": keys, "v": values}, (0, 9), 100)) == [(1, 0, "a", 1)]


def test_no_more_rows_than_asked_for_and_one(files: StateFiles) -> None:
    keys = pa.array(range(len(STRINGS)), pa.int32())
    assert files.rows({"k": keys}, (0, 9), 3).num_rows == 4
    assert files.rows({"k": pa.concat_arrays([keys, pa.array(range(100, 3000), pa.int32())])}, (0, 9), 3).num_rows == 4


def test_rows_of_other_batches_are_not_seen(files: StateFiles) -> None:
    files.append(table((2, 0, "b", 2), (3, 0, "c", 3)))
    key = {"k": pa.array([0], pa.int32())}
    assert listed(files.rows(key, (1, 3), 9)) == [(1, 0, "a", 1), (2, 0, "b", 2)]
    assert listed(files.rows(key, (2, 4), 9)) == [(2, 0, "b", 2), (3, 0, "c", 3)]
    files.discard(3)
    assert listed(files.rows(key, (0, 9), 9)) == [(1, 0, "a", 1), (2, 0, "b", 2)]


def test_folding_keeps_the_newest_row_of_each_key_and_the_base(files: StateFiles) -> None:
    source = Random(1)
    newest: dict[int, tuple[int, int, str, int]] = {}
    for batch in range(2, 12):
        row = (batch, source.randint(0, 4), f"in {batch}", source.randint(1, 9))
        files.append(table(row))
        newest[row[1]] = max(newest.get(row[1], row), row, key=lambda entry: (entry[3], entry[0]))
    assert files.layers() == Layers(1, 11, len(STRINGS), 10, 10)
    files.fold(["k"], ("order_", "batch_"), 12)
    layers = files.layers()
    assert layers is not None
    assert (layers.first, layers.base, layers.recent, layers.files) == (1, len(STRINGS), len(newest), 1)
    assert listed(files.rows({}, (2, 12), 99)) == sorted(newest.values(), key=repr)
    files.clean()
    assert files.rows({}, (1, 2), 99).num_rows == len(STRINGS)


def test_new_columns_are_added(files: StateFiles) -> None:
    files.append(table((2, 90, "x", 2)).append_column("more", pa.array([7], pa.int64())))
    rows = files.rows({"k": pa.array([0, 90], pa.int32())}, (0, 9), 9)
    assert [row["more"] for row in sorted(rows.to_pylist(), key=lambda row: row["k"])] == [None, 7]
