"""The ranges by which several connections divide a table without a key."""

from __future__ import annotations

import datetime as dt
import sqlite3
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from connectors.mysql.config import validators
from connectors.mysql.model import TableName
from connectors.mysql.snapshot.reading import split
from connectors.mysql.snapshot.reading.split import SplitColumn

TABLE = TableName("shop", "visits")
SHAPE = (
    ("Id", "BIGINT", None, "bigint(20) unsigned", None, "YES", "MUL", "", None),
    ("name", "varchar", "utf8mb4", "varchar(20)", "utf8mb4_bin", "YES", "", "", None),
    ("at", "datetime", None, "datetime(6)", None, "YES", "", "", None),
)
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MOMENTS = st.datetimes(dt.datetime.fromisoformat("1000-01-01"))


def matching(values: list[Any], wheres: tuple[str, ...]) -> list[list[int]]:
    """Return for each value the numbers of the ranges that contain it, according to a database."""
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE t (n INTEGER, v)")
        database.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(values)))
        matches: list[list[int]] = [[] for _ in values]
        for number, where in enumerate(wheres):
            for (row,) in database.execute(f"SELECT n FROM t WHERE {where}"):
                matches[row].append(number)
    return matches


@given(st.lists(INTEGERS, min_size=2), st.lists(st.none() | INTEGERS), st.integers(2, 40))
def test_each_whole_number_and_null_is_in_exactly_one_range(
    values: list[int], later: list[int | None], count: int
) -> None:
    wheres = split.make_conditions("v", split.divide_range("bigint", str(min(values)), str(max(values)), count))
    assert len(wheres) <= count
    assert bool(wheres) == (min(values) < max(values))
    # Rows that came after the extent was asked for are covered too.
    assert not wheres or all(len(numbers) == 1 for numbers in matching([*values, *later, None], wheres))


@given(st.lists(FLOATS, min_size=2), st.lists(st.none() | FLOATS), st.integers(2, 40))
def test_each_floating_point_number_is_in_exactly_one_range(
    values: list[float], later: list[float | None], count: int
) -> None:
    wheres = split.make_conditions("v", split.divide_range("double", repr(min(values)), repr(max(values)), count))
    assert not wheres or all(len(numbers) == 1 for numbers in matching([*values, *later, None], wheres))


@given(st.lists(MOMENTS, min_size=2), st.lists(st.none() | st.datetimes()), st.integers(2, 40))
def test_each_time_is_in_exactly_one_range(
    values: list[dt.datetime], later: list[dt.datetime | None], count: int
) -> None:
    wheres = split.make_conditions("v", split.divide_range("datetime", str(min(values)), str(max(values)), count))
    strings = [None if value is None else str(value) for value in [*values, *later, None]]
    assert not wheres or all(len(numbers) == 1 for numbers in matching(strings, wheres))


@given(
    st.decimals(places=4, allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20),
    st.decimals(places=4, allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20),
    st.integers(2, 40),
)
def test_bounds_of_decimals_are_exact_ascending_and_inside(first: Decimal, second: Decimal, count: int) -> None:
    low, high = sorted((first, second))
    bounds = [Decimal(text) for text in split.divide_range("decimal", f"{low:f}", f"{high:f}", count)]
    assert all(a < b for a, b in pairwise([low, *bounds]))
    assert not bounds or bounds[-1] <= high
    assert bool(bounds) == (low < high)


@given(st.dates(dt.date(1000, 1, 1)), st.dates(dt.date(1000, 1, 1)), st.integers(2, 40))
def test_bounds_of_dates_are_ascending_and_inside(first: dt.date, second: dt.date, count: int) -> None:
    low, high = sorted((first, second))
    bounds = [dt.date.fromisoformat(text.strip("'")) for text in split.divide_range("date", str(low), str(high), count)]
    assert all(a < b for a, b in pairwise([low, *bounds]))
    assert not bounds or bounds[-1] <= high


def test_bounds_are_written_so_that_the_server_reads_them_as_the_columns_type() -> None:
    assert split.divide_range("bigint", "0", str((1 << 64) - 1), 2) == ("9223372036854775808",)
    assert split.divide_range("bigint", "-9223372036854775808", "18446744073709551615", 2) == ("4611686018427387904",)
    assert split.divide_range("tinyint", "0", "1", 8) == ("1",), "a flag has two ranges"
    assert split.divide_range("decimal", "-1.00", "1.50", 2) == ("0.25",)
    assert split.divide_range("decimal", "-2.00", "1.50", 2) == ("-0.25",)
    assert split.divide_range("double", "-1.7976931348623157e308", "1.7976931348623157e308", 2) == ("0.0e0",)
    assert split.divide_range("date", "2020-00-00", "2020-01-03", 2) == ("'2020-01-02'",)
    assert split.divide_range("datetime", "2020-01-01 00:00:00.5", "2020-01-01 00:00:01.5", 2) == (
        "'2020-01-01 00:00:01'",
    )
    assert split.divide_range("int", "7", "7", 8) == ()


def test_an_index_makes_more_ranges_and_a_table_without_values_none() -> None:
    assert len(SplitColumn("v", "int", indexed=False).ranges("1", "1000", 3)) == 3
    assert len(SplitColumn("v", "int", indexed=True).ranges("1", "1000", 3)) == 12
    assert SplitColumn("v", "int", indexed=True).ranges(None, None, 3) == ()
    assert SplitColumn("v", "int", indexed=True).ranges("1", "1000", 1) == ()


def test_the_column_is_chosen_by_regular_expressions() -> None:
    option = r"other\..*:x; SHOP\.vis.*:id;shop.visits:name"
    assert split.chosen_column(option, TABLE) == "id"
    assert split.chosen_column(option, TableName("shop", "orders")) is None
    assert split.split_column(TABLE, "ID", SHAPE) == SplitColumn("Id", "bigint", indexed=True)
    assert split.split_column(TABLE, "at", SHAPE) == SplitColumn("at", "datetime", indexed=False)
    assert "no column idd; name one of Id, name, at" in str(split.split_column(TABLE, "idd", SHAPE))
    assert "is of the type varchar, which can't be divided" in str(split.split_column(TABLE, "name", SHAPE))
    with pytest.raises(ConfigInvalid, match="not of the form"):
        split.chosen_column("shop.visits", TABLE)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, None),
        (r"shop\.visits:id;db.t:c", None),
        ("shop.visits", "invalid format"),
        ("", "Must not be empty"),
        ("shop.visits:a,b", "names several columns"),
        ("shop.(:a", "shop.("),
    ],
)
def test_the_option_is_validated(value: str | None, words: str | None) -> None:
    complaint = validators.split_columns("snapshot.split.columns", value)
    assert complaint is None if words is None else complaint is not None and words in complaint
