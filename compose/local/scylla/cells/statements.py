"""CQL for the base table, and for the additional table of lists' cells. Pure."""

# ruff: noqa: S608  # the names in statements are those of tests and of this module

from collections.abc import Mapping, Sequence
from typing import Any

from compose.local.scylla.cells.codec import encode_cell, join_cells
from compose.local.scylla.schema import EmulatedColumn, EmulatedTable
from compose.local.scylla.wire import WireStatement
from compose.local.scylla.writes import (
    Append,
    Change,
    Delete,
    DeleteRange,
    EmulatedRowChange,
    Insert,
    Key,
    MulticellWrite,
    Operation,
    Prepend,
    RangeChange,
    Remove,
    SetAt,
    Update,
    Write,
)
from connectors.cql.types import CqlType

_INT, _BIGINT = CqlType("int"), CqlType("bigint")


def quote_name(identifier: str) -> str:
    """An identifier in quotes."""
    return '"' + identifier.replace('"', '""') + '"'


def base_statement(table: EmulatedTable, write: Write, timestamp_us: int | None) -> WireStatement:
    """The write as a user would send it; without a timestamp the server gives one (conditional writes must have none)."""
    using: list[str] = []
    times: list[Any] = []
    if timestamp_us is not None:
        using.append("TIMESTAMP ?")
        times.append(encode_cell(_BIGINT, timestamp_us))
    if isinstance(write, Insert | Update) and write.ttl is not None:
        using.append("TTL ?")
        times.append(encode_cell(_INT, write.ttl))
    clause = f" USING {' AND '.join(using)}" if using else ""
    if isinstance(write, Insert):
        cells = [encode_cell(table.by_name[column].type, value) for column, value in write.values.items()]
        markers = ", ".join("?" * len(cells))
        condition = " IF NOT EXISTS" if write.condition else ""
        names = ", ".join(map(quote_name, write.values))
        return WireStatement(
            f"INSERT INTO {table.full} ({names}) VALUES ({markers}){condition}{clause}", [*cells, *times]
        )
    where, key = _build_where(table, write.key)
    if isinstance(write, DeleteRange):
        column = next(key_column for key_column in table.clustering if key_column.name not in write.key)
        for bound, sign in (
            (write.lower, ">=" if write.lower_inclusive else ">"),
            (write.upper, "<=" if write.upper_inclusive else "<"),
        ):
            if bound is not None:
                where += f" AND {quote_name(column.name)} {sign} ?"
                key.append(encode_cell(column.type, bound))
        return WireStatement(f"DELETE FROM {table.full}{clause} WHERE {where}", [*times, *key])
    condition, expected = _build_condition(table, write.condition)
    if isinstance(write, Delete):
        columns = ", ".join(map(quote_name, write.columns))
        return WireStatement(
            f"DELETE {columns} FROM {table.full}{clause} WHERE {where}{condition}", [*times, *key, *expected]
        )
    parts: list[str] = []
    cells = []
    for column_name, value in write.set.items():
        column = table.by_name[column_name]
        for operation in value if isinstance(value, list) and value and isinstance(value[0], Operation) else [value]:
            part, new_cells = _build_assignment(column, operation)
            parts.append(part)
            cells += new_cells
    cql = f"UPDATE {table.full}{clause} SET {', '.join(parts)} WHERE {where}{condition}"
    return WireStatement(cql, [*times, *cells, *key, *expected])


def _build_where(table: EmulatedTable, key: Mapping[str, Any]) -> tuple[str, list[Any]]:
    columns = [column for column in (*table.partition_key, *table.clustering) if column.name in key]
    return (
        " AND ".join(f"{quote_name(column.name)} = ?" for column in columns),
        [encode_cell(column.type, key[column.name]) for column in columns],
    )


def _build_condition(table: EmulatedTable, condition: Any) -> tuple[str, list[Any]]:
    if condition is None:
        return "", []
    if condition == "exists":
        return " IF EXISTS", []
    cql = " AND ".join(f"{quote_name(column)} = ?" for column in condition)
    return f" IF {cql}", [encode_cell(table.by_name[column].type, value) for column, value in condition.items()]


def _build_assignment(column: EmulatedColumn, value: Any) -> tuple[str, list[Any]]:
    quoted, kind = quote_name(column.name), column.type
    if isinstance(value, Append):
        return f"{quoted} = {quoted} + ?", [encode_cell(kind, value.value)]
    if isinstance(value, Prepend):
        return f"{quoted} = ? + {quoted}", [encode_cell(kind, value.value)]
    if isinstance(value, Remove):
        whole = CqlType("list" if kind.name == "list" else "set", (kind.arguments[0],))
        return f"{quoted} = {quoted} - ?", [encode_cell(whole, value.value)]
    if isinstance(value, SetAt):
        if kind.name == "udt":
            field_number = kind.field_names.index(value.at)
            return f"{quoted}.{quote_name(value.at)} = ?", [encode_cell(kind.arguments[field_number], value.value)]
        at = _INT if kind.name == "list" else kind.arguments[0]
        return f"{quoted}[?] = ?", [encode_cell(at, value.at), encode_cell(kind.arguments[-1], value.value)]
    return f"{quoted} = ?", [encode_cell(kind, value)]


def shadow_statements(
    table: EmulatedTable, partition: Key, changes: Sequence[Change], timestamp_us: int
) -> list[WireStatement]:
    """Return the statements that keep the table of lists' cells in step with the base table."""
    time = encode_cell(_BIGINT, timestamp_us)
    statements: list[WireStatement] = []
    for change in changes:
        if isinstance(change, EmulatedRowChange) and not change.delete:
            statements += _shadow_cells(table, partition, change, time)
            continue
        if isinstance(change, RangeChange):
            where, cells = _build_range(table, partition, change)
        else:
            where, cells = _build_key(table, partition, change.key if isinstance(change, EmulatedRowChange) else ())
        statements.append(WireStatement(f"DELETE FROM {table.shadow} USING TIMESTAMP ? WHERE {where}", [time, *cells]))
    return statements


def _build_range(table: EmulatedTable, partition: Key, change: RangeChange) -> tuple[str, list[bytes]]:
    """The columns that both bounds name are equal but for the last of the longer one."""
    start, end = change.start, change.end
    if start == end:
        return _build_key(table, partition, start)
    shared = max(len(start), len(end)) - 1
    where, cells = _build_key(table, partition, start[:shared])
    column = table.clustering[shared]
    for bound, inclusive, low in ((start, change.start_inclusive, True), (end, change.end_inclusive, False)):
        if len(bound) > shared:
            sign = (">" if low != column.descending else "<") + ("=" if inclusive else "")
            where += f" AND {quote_name(column.name)} {sign} ?"
            cells.append(bound[shared])
    return where, cells


def _build_key(table: EmulatedTable, partition: Key, key: Key | None) -> tuple[str, list[bytes]]:
    columns = [*table.partition_key, *table.clustering[: len(key or ())]]
    return " AND ".join(f"{quote_name(column.name)} = ?" for column in columns), [*partition, *(key or ())]


def _shadow_cells(
    table: EmulatedTable, partition: Key, change: EmulatedRowChange, time: bytes | None
) -> list[WireStatement]:
    where, key = _build_key(table, partition, change.key)
    using, times = "TIMESTAMP ?", [time]
    if change.ttl:
        using, times = f"{using} AND TTL ?", [time, encode_cell(_INT, change.ttl)]
    statements: list[WireStatement] = []
    for column in table.lists:
        cell = change.cells.get(column.name)
        if not isinstance(cell, MulticellWrite):
            continue
        quoted = quote_name(column.name)
        added = join_cells([part for pair in cell.added.items() for part in pair], 2)
        start = f"UPDATE {table.shadow} USING {using} SET {quoted}"
        if cell.cleared:
            statements.append(
                WireStatement(f"{start} = ? WHERE {where}", [*times, added if cell.added else None, *key])
            )
        elif cell.added:
            statements.append(WireStatement(f"{start} = {quoted} + ? WHERE {where}", [*times, added, *key]))
        if cell.removed:
            removed = join_cells(sorted(cell.removed))
            statements.append(WireStatement(f"{start} = {quoted} - ? WHERE {where}", [*times, removed, *key]))
    return statements
