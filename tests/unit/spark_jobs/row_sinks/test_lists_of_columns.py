"""Columns as lists: the values that ``to_pylist`` gives."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_jobs.sinks.redis.columns import texts_of
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


def test_times_beyond_pythons_years_are_text() -> None:
    numbers = [0, None, 400_000_000_000_000_000, -90_000_000_000_000_000, 9_223_372_036_825_200_000]
    written = ["14645-06-30T15:06:40.000000", "-0882-01-06T08:00:00.000000", "294247-01-10T04:00:25.200000"]
    local = pa.chunked_array([pa.array(numbers, pa.timestamp("us"))])
    assert list_of(local) == [datetime(1970, 1, 1), None, *written]  # noqa: DTZ001 - no zone
    instants = pa.chunked_array([pa.array(numbers, pa.timestamp("us", "UTC"))])
    assert list_of(instants) == [datetime(1970, 1, 1, tzinfo=UTC), None, *(f"{text}+00:00" for text in written)]
    assert texts_of(instants)[2:] == [f"{text}+00:00" for text in written]
    days = pa.chunked_array([pa.array([1, None, 8_000_000, -800_000, 2**31 - 1], pa.date32())])
    assert list_of(days) == [date(1970, 1, 2), None, "23873-04-04", "-0221-09-04", "5881580-07-11"]


def test_a_value_with_parts_has_text_for_all_its_times_where_one_is_beyond() -> None:
    kind = pa.map_(pa.string(), pa.struct([("day", pa.date32()), ("n", pa.int32())]))
    values = [[("a", {"day": 1, "n": 1})], [("a", {"day": 1, "n": 1}), ("b", {"day": 8_000_000, "n": 2})]]
    assert list_of(pa.chunked_array([pa.array(values, kind)])) == [
        {"a": {"day": date(1970, 1, 2), "n": 1}},
        {"a": {"day": "1970-01-02", "n": 1}, "b": {"day": "23873-04-04", "n": 2}},
    ]


def test_keys_of_maps_that_have_parts_are_json() -> None:
    inner = pa.map_(pa.list_(pa.int32()), pa.string())
    kind = pa.map_(pa.struct([("a", pa.int32()), ("b", pa.binary())]), pa.list_(inner))
    value = [({"a": 1, "b": b"\xff"}, [[([1, 2], "x")], None])]
    column = pa.chunked_array([pa.array([value, None, []], kind)])
    assert list_of(column) == [{'{"a":1,"b":"/w=="}': [{"[1,2]": "x"}, None]}, None, {}]
