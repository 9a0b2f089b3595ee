"""The expected content of a target after changes, and its difference from the actual content. Pure."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spark_jobs.contract import Column, TableSchema
    from spark_jobs.testing.batches import Change
    from spark_jobs.testing.target import Supports

_MOST_SHOWN: Final = 10
_LONGEST: Final = 160

Row = dict[str, Any]


class RuleBroken(AssertionError):
    """A sink does not keep to the contract; the text names the rule and shows what was expected and what came out."""


def expected_rows(changes: Sequence[Change], schema: TableSchema, supports: Supports) -> list[Row]:
    """The rows that the changes leave behind.

    Args:
        changes: in the order in which they were written first.
        schema: the table; its columns are those of the rows.
        supports: with ``upsert`` one row per key, else one per change (with ``ums_id_`` and ``ums_op_``).
    """
    names = [column.name for column in schema.columns]
    if not supports.upsert:
        return [
            {
                **{name: row_change.values.get(name) for name in names},
                "ums_id_": row_change.number,
                "ums_op_": row_change.op,
            }
            for row_change in changes
        ]
    newest: dict[Any, Change] = {}
    for row_change in changes:
        if row_change.op == "b":
            continue
        key = tuple(make_comparable(row_change.values.get(column.name)) for column in schema.key)
        if key not in newest or not supports.ordering or newest[key].number <= row_change.number:
            newest[key] = row_change
    return [
        {name: row_change.values.get(name) for name in names} for row_change in newest.values() if row_change.op != "d"
    ]


def compare_rows(
    schema: TableSchema,
    supports: Supports,
    expected: Sequence[Row],
    actual: Sequence[Row],
    stored: Callable[[Column, Any], Any],
    *,
    repeats: bool = False,
) -> str:
    """Describe the differences of ``actual`` from what is expected, in lines; empty if it is right.

    Args:
        schema: the table.
        supports: as for ``expected_rows``.
        expected: from ``expected_rows``.
        actual: the target's rows; columns beyond those compared are not looked at.
        stored: what reading back gives for a value of a column (``SinkTarget.stored``).
        repeats: whether a row may stand there more than once (at least once).
    """
    system = () if supports.upsert else ("ums_id_", "ums_op_")
    names = [*(column.name for column in schema.columns), *system]
    columns = {column.name: column for column in schema.columns}
    expected_rows_of_names = [
        {
            name: stored(columns[name], row[name]) if name in columns and row[name] is not None else row[name]
            for name in names
        }
        for row in expected
    ]
    actual_rows = [{name: row.get(name) for name in names} for row in actual]
    identity = [column.name for column in schema.key] if supports.upsert else names
    problems = _missing_and_unexpected(expected_rows_of_names, actual_rows, names, repeats=repeats)
    if not problems:
        return ""
    return "\n".join(
        [
            *_compare_columns(expected_rows_of_names, actual_rows, identity, names),
            *problems,
            f"expected {len(expected_rows_of_names)} rows, the target has {len(actual_rows)}",
        ]
    )


def _missing_and_unexpected(
    expected: Sequence[Row], actual_rows: Sequence[Row], names: Sequence[str], *, repeats: bool
) -> list[str]:
    actual_counts, want = (
        Counter(_make_row_key(row, names) for row in actual_rows),
        Counter(_make_row_key(row, names) for row in expected),
    )
    if repeats:
        actual_counts = Counter(dict.fromkeys(actual_counts, 1))
        want = Counter(dict.fromkeys(want, 1))
    by_key = {_make_row_key(row, names): row for row in (*expected, *actual_rows)}
    return [
        *_list_rows("expected, and not there", want - actual_counts, by_key),
        *_list_rows("there, and not expected", actual_counts - want, by_key),
    ]


def _list_rows(title: str, counted: Counter[Any], by_key: Mapping[Any, Row]) -> list[str]:
    lines = [
        f"{title}{f' ({count} times)' if count > 1 else ''}: {format_row(by_key[key])}"
        for key, count in list(counted.items())[:_MOST_SHOWN]
    ]
    return lines + ([f"{title}: {len(counted) - _MOST_SHOWN} more"] if len(counted) > _MOST_SHOWN else [])


def _compare_columns(
    expected: Sequence[Row], actual_rows: Sequence[Row], identity: Sequence[str], names: Sequence[str]
) -> list[str]:
    """Column by column, of rows that are there under their key."""
    there = {_make_row_key(row, identity): row for row in actual_rows}
    lines = []
    for row in expected:
        actual_row = there.get(_make_row_key(row, identity), row)
        for name in names:
            if make_comparable(row[name]) != make_comparable(actual_row[name]):
                key = ", ".join(f"{column_name}={row[column_name]!r}" for column_name in identity)
                lines.append(
                    f"{shorten_text(key)}: column {name} is {shorten_text(repr(actual_row[name]))}, expected "
                    f"{shorten_text(repr(row[name]))}"
                )
    return lines[:_MOST_SHOWN]


def _make_row_key(row: Row, names: Sequence[str]) -> Any:
    return tuple(make_comparable(row[name]) for name in names)


def make_comparable(value: Any) -> Any:
    """A value in a hashable form in which equal values are equal, whatever a client library makes of them."""
    match value:
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case float() if math.isnan(value):
            return "NaN"
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case Decimal():
            return Fraction(value)  # exact, and equal for equal numbers of different scales
        case dict():
            return tuple(sorted(((str(key), make_comparable(item)) for key, item in value.items()), key=repr))
        case list() | tuple():
            return tuple(make_comparable(item) for item in value)
    return value


def format_row(row: Row) -> str:
    """A row for people."""
    return "{" + ", ".join(f"{name}: {shorten_text(repr(value))}" for name, value in row.items()) + "}"


def shorten_text(row_text: str) -> str:
    """``row_text``, at most some 160 characters of it."""
    return row_text if len(row_text) <= _LONGEST else f"{row_text[:_LONGEST]}... ({len(row_text)} characters)"
