"""The order number of a change, from a binlog position or a ``source`` block."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.formats import order_number
from connectors.formats.order_number import LAST_FILE, binlog_number, source_number

SIZES = st.integers(1, 1 << 33)


def test_the_layout_is_the_one_of_dbus() -> None:
    assert binlog_number("mysql-bin.000103", 12_345_678) == int("000103000012345678")
    assert binlog_number("a.b.000103", 12_345_678, 5) == 103000012345683


@given(
    st.integers(1, LAST_FILE - 1),
    st.integers(4, 1 << 38),
    st.lists(st.tuples(SIZES, st.integers(1, 1 << 20)), min_size=1),
)
def test_numbers_of_a_later_event_are_larger(file: int, pos: int, events: list[tuple[int, int]]) -> None:
    """Also where an event has more rows than bytes; a snapshot's row is below what begins at the place of its read view."""
    name, last = f"bin.{file:06d}", 0
    for size, rows in events:
        numbers = [binlog_number(name, pos, order_number.row_number(row, size)) for row in (0, rows // 2, rows - 1)]
        assert last < numbers[0] <= numbers[1] <= numbers[2]
        if rows <= size:
            assert numbers[2] - numbers[0] == rows - 1
        last, pos = numbers[2], pos + size
    assert last < binlog_number(f"bin.{file + 1:06d}", 4)


@given(st.integers(0, LAST_FILE), st.integers(0, 10**12 - 1))
def test_every_number_fits_64_bits_and_can_be_read_back(file: int, pos: int) -> None:
    number = binlog_number(f"bin.{file:06d}", pos)
    assert number < 1 << 63
    assert divmod(number, 10**12) == (file, pos)


@pytest.mark.parametrize(
    ("file", "pos", "row", "complaint"),
    [
        (f"bin.{LAST_FILE + 1}", 4, 0, "number up to 9223371"),
        ("bin.x", 4, 0, "as in mysql-bin.000103"),
        ("", 4, 0, "must end"),
        ("000103", 4, 0, "with a point"),
        ("bin.²", 4, 0, "number"),
        ("bin.000001", 10**12, 0, "from 0 to"),
        ("bin.000001", 10**12 - 1, 1, "row 1"),
        ("bin.000001", -1, 0, "position must be"),
    ],
)
def test_a_number_that_cannot_be_is_an_error(file: str, pos: int, row: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        binlog_number(file, pos, row)


BLOCKS: list[tuple[dict[str, Any], int | None]] = [
    ({"connector": "mysql", "file": "bin.000002", "pos": 500, "row": 3, "ts_us": 1, "ums_id": None}, 2_000_000_000_503),
    ({"connector": "mariadb", "file": "bin.000002", "pos": 500, "row": None}, 2_000_000_000_500),
    ({"file": "bin.000002", "pos": 500}, 2_000_000_000_500),
    ({"connector": "mysql", "file": "", "pos": 0, "row": 0}, None),
    ({"connector": "mysql", "file": "bin.000002", "pos": 500, "ums_id": 77}, 77),
    ({"connector": "postgresql", "lsn": 24_023_128, "ts_ms": 5}, 24_023_128),
    ({"connector": "postgresql", "lsn": None, "ts_ms": 5}, None),
    ({"connector": "scylla", "ts_us": 1_700_000_000_000_001, "ts_ms": 1_700_000_000_000}, 1_700_000_000_000_001),
    ({"connector": "cassandra", "ts_us": 9, "file": "CommitLog-7-1790000000.log", "pos": 3}, 9),
    ({"connector": "cassandra", "ts_us": None, "ts_ns": -1, "ts_ms": 4}, -1),
    ({"connector": "cassandra", "ts_ms": 4}, 4000),
    ({"connector": "scylla"}, None),
    ({"connector": "oracle", "scn": "5"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("source", "expected"), BLOCKS)
def test_a_source_block_says_the_number(source: dict[str, Any], expected: int | None) -> None:
    assert source_number(source) == expected
