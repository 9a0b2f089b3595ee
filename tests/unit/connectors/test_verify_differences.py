"""Rows that differ, made so small that they can be shown."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from connectors.verify.differences import (
    MOST_COLUMNS,
    MOST_LETTERS,
    RowDifference,
    cut,
    differing_common_columns,
    row_difference,
)
from connectors.verify.values import differing_values


def test_of_a_row_on_both_sides_the_columns_that_differ_are_shown() -> None:
    difference = row_difference("different", "{}", {"id": 1, "a": "x", "b": 2}, {"id": 1, "a": "y", "c": None})
    assert difference == RowDifference("different", "{}", {"a": '"x"', "b": "2"}, {"a": '"y"'})


def test_columns_of_one_structure_alone_are_left_out_where_rows_are_compared_on_common_ones() -> None:
    difference = row_difference(
        "different", "{}", {"id": 1, "a": 1, "new": 2}, {"id": 1, "a": "1", "old": 3}, differing_common_columns
    )
    assert difference == RowDifference("different", "{}", {"a": "1"}, {"a": '"1"'})


def test_a_row_of_one_side_is_shown_with_all_columns() -> None:
    row = {"id": 1, "a": None}
    shown = {"id": "1", "a": "null"}
    assert row_difference("missing", "{}", row, None) == RowDifference("missing", "{}", shown, None)
    assert row_difference("extra", "{}", None, row) == RowDifference("extra", "{}", None, shown)


def test_a_row_with_many_columns_is_cut() -> None:
    row = {f"c{number}": number for number in range(MOST_COLUMNS + 3)}
    difference = row_difference("missing", "{}", row, None)
    assert len(difference.source or {}) == MOST_COLUMNS
    assert difference.columns_left_out == 3


def test_values_of_a_target_have_a_text() -> None:
    message = {"AT": 0, "price": "1.5", "same": 1, "absent": 2}
    target = {"at": dt.date(1970, 1, 2), "price": Decimal("1.25"), "same": 1}
    left, right = differing_values(message, target)
    assert row_difference("different", "{}", left, right) == RowDifference(
        "different", "{}", {"AT": "0", "price": '"1.5"'}, {"AT": '"1970-01-02"', "price": '"1.25"'}
    )


def test_long_values_are_shown_where_they_begin_to_differ() -> None:
    equal = "a" * 5_000
    first, second = cut(f"{equal}b{equal}", f"{equal}c")
    assert first is not None
    assert first.startswith("…aaa")
    assert first.endswith("a…")
    assert "b" in first
    assert len(first) == MOST_LETTERS + 2
    assert second == f"…{'a' * 20}c"
    assert cut("a" * (MOST_LETTERS + 1), None) == ("a" * MOST_LETTERS + "…", None)
    assert cut("short", "shorter") == ("short", "shorter")
