"""What a target must hold after changes, and how that differs from what it holds. Pure."""

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
            {**{name: each.values.get(name) for name in names}, "ums_id_": each.number, "ums_op_": each.op}
            for each in changes
        ]
    newest: dict[Any, Change] = {}
    for each in changes:
        if each.op == "b":
            continue
        key = tuple(comparable(each.values.get(column.name)) for column in schema.key)
        if key not in newest or not supports.ordering or newest[key].number <= each.number:
            newest[key] = each
    return [{name: each.values.get(name) for name in names} for each in newest.values() if each.op != "d"]


def compare(
    schema: TableSchema,
    supports: Supports,
    expected: Sequence[Row],
    actual: Sequence[Row],
    stored: Callable[[Column, Any], Any],
    *,
    repeats: bool = False,
) -> str:
    """What is wrong with ``actual``, in lines; empty if nothing is.

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
    wanted = [
        {
            name: stored(columns[name], row[name]) if name in columns and row[name] is not None else row[name]
            for name in names
        }
        for row in expected
    ]
    found = [{name: row.get(name) for name in names} for row in actual]
    identity = [column.name for column in schema.key] if supports.upsert else names
    problems = _missing_and_unexpected(wanted, found, names, repeats=repeats)
    if not problems:
        return ""
    return "\n".join(
        [
            *_differences(wanted, found, identity, names),
            *problems,
            f"expected {len(wanted)} rows, the target has {len(found)}",
        ]
    )


def _missing_and_unexpected(
    wanted: Sequence[Row], found: Sequence[Row], names: Sequence[str], *, repeats: bool
) -> list[str]:
    have, want = Counter(_key(row, names) for row in found), Counter(_key(row, names) for row in wanted)
    if repeats:
        have = Counter(dict.fromkeys(have, 1))
        want = Counter(dict.fromkeys(want, 1))
    by_key = {_key(row, names): row for row in (*wanted, *found)}
    return [
        *_listed("expected, and not there", want - have, by_key),
        *_listed("there, and not expected", have - want, by_key),
    ]


def _listed(title: str, counted: Counter[Any], by_key: Mapping[Any, Row]) -> list[str]:
    lines = [
        f"{title}{f' ({count} times)' if count > 1 else ''}: {shown(by_key[key])}"
        for key, count in list(counted.items())[:_MOST_SHOWN]
    ]
    return lines + ([f"{title}: {len(counted) - _MOST_SHOWN} more"] if len(counted) > _MOST_SHOWN else [])


def _differences(
    wanted: Sequence[Row], found: Sequence[Row], identity: Sequence[str], names: Sequence[str]
) -> list[str]:
    """Column by column, of rows that are there under their key."""
    there = {_key(row, identity): row for row in found}
    lines = []
    for row in wanted:
        other = there.get(_key(row, identity), row)
        for name in names:
            if comparable(row[name]) != comparable(other[name]):
                key = ", ".join(f"{each}={row[each]!r}" for each in identity)
                lines.append(f"{cut(key)}: column {name} is {cut(repr(other[name]))}, expected {cut(repr(row[name]))}")
    return lines[:_MOST_SHOWN]


def _key(row: Row, names: Sequence[str]) -> Any:
    return tuple(comparable(row[name]) for name in names)


def comparable(value: Any) -> Any:
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
            return tuple(sorted(((str(key), comparable(each)) for key, each in value.items()), key=repr))
        case list() | tuple():
            return tuple(comparable(each) for each in value)
    return value


def shown(row: Row) -> str:
    """A row for people."""
    return "{" + ", ".join(f"{name}: {cut(repr(value))}" for name, value in row.items()) + "}"


def cut(text: str) -> str:
    """``text``, at most some 160 characters of it."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"
