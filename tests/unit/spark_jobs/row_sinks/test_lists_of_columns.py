"""Columns as lists: the values that ``to_pylist`` gives."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_jobs.sinks.shared.task import list_of

TIMES = [datetime(2026, 5, 28, 20, 26, 40, 1, tzinfo=UTC), None, datetime(1, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TIMES, pa.timestamp("us", "UTC")),
        pa.array([None if time is None else time.replace(tzinfo=None) for time in TIMES], pa.timestamp("us")),
        pa.array(TIMES, pa.timestamp("us", "Europe/Berlin")),
        pa.array([Decimal("0.0000001"), None, Decimal("-12.5000000")], pa.decimal128(20, 7)),
        *(pa.array([1, None, 3], kind) for kind in (pa.int8(), pa.int64(), pa.float32(), pa.float64())),
        *(pa.array([1, -2, 3], kind) for kind in (pa.int8(), pa.int64(), pa.float32(), pa.float64())),
        pa.array([2**63 - 1, -(2**63)]),
        pa.array([True, False]),
        pa.array([True, None]),
        pa.array(["a", None, ""]),
        pa.array(["a", "\ud7ff\U0001f600"], pa.large_string()),
        pa.array([b"\x00", None]),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.array([], pa.timestamp("us", "UTC")),
    ],
    ids=lambda column: str(column.type),
)
def test_values_and_their_types_are_those_of_arrow(column: pa.Array) -> None:
    chunks = pa.chunked_array([column, column.slice(0, 1)], column.type)
    values = list_of(chunks)
    expected = chunks.to_pylist(maps_as_pydicts="lossy")
    assert values == expected  # an instant with a time zone never equals one without
    assert [type(value) for value in values] == [type(value) for value in expected]


def test_an_instant_beyond_pythons_years_is_an_error() -> None:
    with pytest.raises((ValueError, OverflowError)):
        list_of(pa.chunked_array([pa.array([2**62], pa.timestamp("us", "UTC"))]))
