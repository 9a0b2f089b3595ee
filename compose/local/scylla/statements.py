"""CQL for the base table, and for the table of lists' cells beside it. Pure."""

# ruff: noqa: S608  # the names in statements are those of tests and of this module

from collections.abc import Mapping, Sequence
from typing import Any

from compose.local.scylla.codec import encode, join
from compose.local.scylla.schema import Column, Table
from compose.local.scylla.wire import Statement
from compose.local.scylla.writes import (
    Append,
    Cells,
    Change,
    Delete,
    DeleteRange,
    Insert,
    Key,
    Operation,
    Prepend,
    RangeChange,
    Remove,
    RowChange,
    SetAt,
    Update,
    Write,
)
from connectors.cql.types import CqlType

_INT, _BIGINT = CqlType("int"), CqlType("bigint")


def name(text: str) -> str:
    """An identifier in quotes."""
    return '"' + text.replace('"', '""') + '"'


def base_statement(table: Table, write: Write, timestamp_us: int | None) -> Statement:
    """The write as a user would send it; without a timestamp the server gives one (conditional writes must have none)."""
    using: list[str] = []
    times: list[Any] = []
    if timestamp_us is not None:
        using.append("TIMESTAMP ?")
        times.append(encode(_BIGINT, timestamp_us))
    if isinstance(write, Insert | Update) and write.ttl is not None:
        using.append("TTL ?")
        times.append(encode(_INT, write.ttl))
    clause = f" USING {' AND '.join(using)}" if using else ""
    if isinstance(write, Insert):
        cells = [encode(table.by_name[column].type, value) for column, value in write.values.items()]
        markers = ", ".join("?" * len(cells))
        condition = " IF NOT EXISTS" if write.condition else ""
        names = ", ".join(map(name, write.values))
        return Statement(f"INSERT INTO {table.full} ({names}) VALUES ({markers}){condition}{clause}", [*cells, *times])
    where, key = _where(table, write.key)
    if isinstance(write, DeleteRange):
        column = next(each for each in table.clustering if each.name not in write.key)
        for bound, sign in (
            (write.lower, ">=" if write.lower_inclusive else ">"),
            (write.upper, "<=" if write.upper_inclusive else "<"),
        ):
            if bound is not None:
                where += f" AND {name(column.name)} {sign} ?"
                key.append(encode(column.type, bound))
        return Statement(f"DELETE FROM {table.full}{clause} WHERE {where}", [*times, *key])
    condition, expected = _condition(table, write.condition)
    if isinstance(write, Delete):
        columns = ", ".join(map(name, write.columns))
        return Statement(
            f"DELETE {columns} FROM {table.full}{clause} WHERE {where}{condition}", [*times, *key, *expected]
        )
    parts: list[str] = []
    cells = []
    for column_name, value in write.set.items():
        column = table.by_name[column_name]
        for operation in value if isinstance(value, list) and value and isinstance(value[0], Operation) else [value]:
            part, more = _assignment(column, operation)
            parts.append(part)
            cells += more
    text = f"UPDATE {table.full}{clause} SET {', '.join(parts)} WHERE {where}{condition}"
    return Statement(text, [*times, *cells, *key, *expected])


def _where(table: Table, key: Mapping[str, Any]) -> tuple[str, list[Any]]:
    columns = [each for each in (*table.partition_key, *table.clustering) if each.name in key]
    return (
        " AND ".join(f"{name(each.name)} = ?" for each in columns),
        [encode(each.type, key[each.name]) for each in columns],
    )


def _condition(table: Table, condition: Any) -> tuple[str, list[Any]]:
    if condition is None:
        return "", []
    if condition == "exists":
        return " IF EXISTS", []
    text = " AND ".join(f"{name(column)} = ?" for column in condition)
    return f" IF {text}", [encode(table.by_name[column].type, value) for column, value in condition.items()]


def _assignment(column: Column, value: Any) -> tuple[str, list[Any]]:
    quoted, kind = name(column.name), column.type
    if isinstance(value, Append):
        return f"{quoted} = {quoted} + ?", [encode(kind, value.value)]
    if isinstance(value, Prepend):
        return f"{quoted} = ? + {quoted}", [encode(kind, value.value)]
    if isinstance(value, Remove):
        whole = CqlType("list" if kind.name == "list" else "set", (kind.arguments[0],))
        return f"{quoted} = {quoted} - ?", [encode(whole, value.value)]
    if isinstance(value, SetAt):
        if kind.name == "udt":
            place = kind.field_names.index(value.at)
            return f"{quoted}.{name(value.at)} = ?", [encode(kind.arguments[place], value.value)]
        at = _INT if kind.name == "list" else kind.arguments[0]
        return f"{quoted}[?] = ?", [encode(at, value.at), encode(kind.arguments[-1], value.value)]
    return f"{quoted} = ?", [encode(kind, value)]


def shadow_statements(table: Table, partition: Key, changes: Sequence[Change], timestamp_us: int) -> list[Statement]:
    """What keeps the table of lists' cells in step with the base table."""
    time = encode(_BIGINT, timestamp_us)
    found: list[Statement] = []
    for change in changes:
        if isinstance(change, RowChange) and not change.delete:
            found += _shadow_cells(table, partition, change, time)
            continue
        where, cells = _key(table, partition, change.key if isinstance(change, RowChange) else ())
        if isinstance(change, RangeChange):
            for bound, low, inclusive in (
                (change.start, True, change.start_inclusive),
                (change.end, False, change.end_inclusive),
            ):
                more, key = _bound(table, bound, inclusive=inclusive, low=low)
                where += more
                cells += key
        found.append(Statement(f"DELETE FROM {table.shadow} USING TIMESTAMP ? WHERE {where}", [time, *cells]))
    return found


def _bound(table: Table, bound: Key, *, inclusive: bool, low: bool) -> tuple[str, list[bytes]]:
    if not bound:
        return "", []
    columns = table.clustering[: len(bound)]
    # Columns before the last are the same in both bounds, so that their order does not matter.
    low = low != columns[-1].descending
    sign = (">" if low else "<") + ("=" if inclusive else "")
    names = ", ".join(name(each.name) for each in columns)
    return f" AND ({names}) {sign} ({', '.join('?' * len(bound))})", list(bound)


def _key(table: Table, partition: Key, key: Key | None) -> tuple[str, list[bytes]]:
    columns = [*table.partition_key, *table.clustering[: len(key or ())]]
    return " AND ".join(f"{name(each.name)} = ?" for each in columns), [*partition, *(key or ())]


def _shadow_cells(table: Table, partition: Key, change: RowChange, time: bytes | None) -> list[Statement]:
    where, key = _key(table, partition, change.key)
    using, times = "TIMESTAMP ?", [time]
    if change.ttl:
        using, times = f"{using} AND TTL ?", [time, encode(_INT, change.ttl)]
    found: list[Statement] = []
    for column in table.lists:
        cell = change.cells.get(column.name)
        if not isinstance(cell, Cells):
            continue
        quoted = name(column.name)
        added = join([part for pair in cell.added.items() for part in pair], 2)
        start = f"UPDATE {table.shadow} USING {using} SET {quoted}"
        if cell.cleared:
            found.append(Statement(f"{start} = ? WHERE {where}", [*times, added if cell.added else None, *key]))
        elif cell.added:
            found.append(Statement(f"{start} = {quoted} + ? WHERE {where}", [*times, added, *key]))
        if cell.removed:
            removed = join(sorted(cell.removed))
            found.append(Statement(f"{start} = {quoted} - ? WHERE {where}", [*times, removed, *key]))
    return found
