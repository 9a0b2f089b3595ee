"""Log rows of changes to one partition at one moment, as Scylla writes them. Pure.

Order inside one `cdc$time`: preimages (static row first, then rows in the table's order), the changes, postimages. Changes come
as static row, rows in the table's order, ranges, partition; where cells of one moment have different times to live, or a row is
both deleted and written, Scylla splits the change and orders it by kind instead.
"""

import copy
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from compose.local.scylla.cells.codec import join_cells, join_fields, sort_key
from compose.local.scylla.schema import EmulatedColumn, EmulatedTable
from compose.local.scylla.writes import (
    Change,
    EmulatedPartition,
    EmulatedRowChange,
    Key,
    MulticellWrite,
    PartitionChange,
    RangeChange,
    RowState,
    list_order,
)
from connectors.cql.types import CqlType

PREIMAGE, UPDATE, INSERT, ROW_DELETE, PARTITION_DELETE, POSTIMAGE = 0, 1, 2, 3, 4, 9
_TRUE = b"\x01"
LogRow = dict[str, bytes]


def merge_changes(changes: Iterable[Change]) -> list[Change]:
    """Changes of one moment with those to the same row and time to live put together, as a partition's mutation has them.

    Where two write the same cell a null wins, else the greater value, as the servers decide.
    """
    rows: dict[tuple[Key | None, int | None, bool], EmulatedRowChange] = {}
    others: list[Change] = []
    for change in changes:
        if not isinstance(change, EmulatedRowChange):
            if change not in others:
                others.append(change)
            continue
        earlier = rows.setdefault((change.key, change.ttl, change.delete), change)
        if earlier is change:
            continue
        earlier.insert |= change.insert
        for name, cell in change.cells.items():
            earlier.cells[name] = _stronger_cell(earlier.cells[name], cell) if name in earlier.cells else cell
    return [*rows.values(), *others]


def _stronger_cell(first: Any, second: Any) -> Any:
    if not isinstance(first, MulticellWrite) or not isinstance(second, MulticellWrite):
        return None if first is None or second is None else max(first, second)
    both = MulticellWrite(first.cleared or second.cleared, dict(first.added), first.removed | second.removed)
    for at, cell in second.added.items():
        both.added[at] = max(both.added.get(at, cell), cell)
    for at in both.removed:
        both.added.pop(at, None)
    return both


def log_rows(
    table: EmulatedTable, partition: Key, changes: Sequence[Change], state: EmulatedPartition
) -> tuple[list[LogRow], EmulatedPartition]:
    """Log rows of the changes, and the partition as it is after them.

    The rows have all but `cdc$stream_id` and `cdc$time`.

    Args:
        table: The table.
        partition: Cells of its partition key.
        changes: What is done, already `merged`.
        state: The partition before; needed of the rows that are changed when the table has images.
    """
    after = apply_changes(table, state, changes)
    touched = [change for change in changes if isinstance(change, EmulatedRowChange)]
    static = [change for change in touched if change.key is None]
    keys = table.order({change.key for change in touched if change.key is not None})
    whole = any(isinstance(change, PartitionChange) for change in changes)
    if whole and not table.clustering:
        keys = [()]  # the partition is one row
    rows: list[LogRow] = []
    base = {column.name: cell for column, cell in zip(table.partition_key, partition, strict=True)}
    if table.preimage != "false":
        if static and state.static:
            rows.append(_image_row(table, base, None, state.static, PREIMAGE, _affected_columns(table, static)))
        for key in keys:
            before = state.rows.get(key)
            if before is not None:
                preimage_columns = (
                    None if whole else _affected_columns(table, [change for change in touched if change.key == key])
                )
                rows.append(_image_row(table, base, key, before, PREIMAGE, preimage_columns))
    for change in _in_order(table, changes):
        rows += _delta_rows(table, base, change)
    if table.postimage:
        if static and after.static:
            rows.append(_image_row(table, base, None, after.static, POSTIMAGE, None))
        rows += [
            _image_row(table, base, key, row, POSTIMAGE, None)
            for key in keys
            if (row := after.rows.get(key)) is not None
        ]
    for number, row in enumerate(rows):
        row["cdc$batch_seq_no"] = struct.pack(">i", number)
    if rows:
        rows[-1]["cdc$end_of_batch"] = _TRUE
    return rows, after


def _affected_columns(table: EmulatedTable, changes: Sequence[EmulatedRowChange]) -> set[str] | None:
    """Columns that a preimage has; None for all."""
    if table.preimage == "full" or any(change.delete for change in changes):
        return None
    return {name for change in changes for name in change.cells}


def _in_order(table: EmulatedTable, changes: Sequence[Change]) -> list[Change]:
    rows = [change for change in changes if isinstance(change, EmulatedRowChange)]
    written = [change for change in rows if not change.delete]
    apart = len({change.ttl for change in written}) > 1 or len({change.key for change in rows}) < len(rows)
    positions = {
        key: position for position, key in enumerate(table.order({row.key for row in rows if row.key is not None}))
    }

    def rank_change(change: Change) -> tuple[int, int, int]:
        if isinstance(change, EmulatedRowChange):
            at = -1 if change.key is None else positions[change.key]
            if change.key is None:
                return 0, change.ttl or 0, 0
            if not apart:
                return 1, at, 0
            return (3 if change.delete else 1 if change.insert else 2), change.ttl or 0, at
        return (4, 0, 0) if isinstance(change, RangeChange) else (5, 0, 0)

    return sorted(changes, key=rank_change)


def _start_row(table: EmulatedTable, base: LogRow, key: Sequence[bytes] | None, operation: int) -> LogRow:
    row = dict(base)
    for column, cell in zip(table.clustering, key or (), strict=False):
        row[column.name] = cell
    row["cdc$operation"] = bytes((operation,))
    return row


def _delta_rows(table: EmulatedTable, base: LogRow, change: Change) -> list[LogRow]:
    if isinstance(change, PartitionChange):
        return [_start_row(table, base, None, PARTITION_DELETE)]
    if isinstance(change, RangeChange):
        return [
            _start_row(table, base, change.start, 5 if change.start_inclusive else 6),
            _start_row(table, base, change.end, 7 if change.end_inclusive else 8),
        ]
    if change.delete:
        return [_start_row(table, base, change.key, ROW_DELETE)]
    row = _start_row(table, base, change.key, INSERT if change.insert else UPDATE)
    if change.ttl:
        row["cdc$ttl"] = struct.pack(">q", change.ttl)
    if table.options.get("delta") == "keys":
        return [row]
    for name, cell in change.cells.items():
        if isinstance(cell, MulticellWrite):
            column = table.by_name[name]
            if cell.cleared:
                row[f"cdc$deleted_{name}"] = _TRUE
            if cell.added:
                row[name] = log_cell(column, cell.added)
            if cell.removed:
                row[f"cdc$deleted_elements_{name}"] = join_cells(_sort_cells(_deleted_kind(column.type), cell.removed))
        elif cell is None:
            row[f"cdc$deleted_{name}"] = _TRUE
        else:
            row[name] = cell
    return [row]


def _image_row(
    table: EmulatedTable, base: LogRow, key: Key | None, state: RowState, operation: int, image_columns: set[str] | None
) -> LogRow:
    row = _start_row(table, base, key, operation)
    for name, value in state.items():
        if image_columns is None or name in image_columns:
            row[name] = log_cell(table.by_name[name], value) if isinstance(value, dict) else value
    return row


def log_cell(column: EmulatedColumn, elements: dict[bytes, bytes]) -> bytes:
    """The cell that the log has of a multicell column with these elements."""
    kind = column.type
    if kind.name == "udt":
        return join_fields(elements.get(struct.pack(">h", index)) for index in range(len(kind.arguments)))
    if kind.name == "list":
        return join_cells([part for path in sorted(elements, key=list_order) for part in (path, elements[path])], 2)
    paths = _sort_cells(kind.arguments[0], elements)
    if kind.name == "set":
        return join_cells(paths)
    return join_cells([part for path in paths for part in (path, elements[path])], 2)


def _deleted_kind(kind: CqlType) -> CqlType:
    return {"list": CqlType("timeuuid"), "udt": CqlType("smallint")}.get(kind.name) or kind.arguments[0]


def _sort_cells(kind: CqlType, cells: Iterable[bytes]) -> list[bytes]:
    return sorted(cells, key=sort_key(kind))


def apply_changes(table: EmulatedTable, state: EmulatedPartition, changes: Sequence[Change]) -> EmulatedPartition:
    """The partition after the changes, as far as it was known before; deletions first, as all have one timestamp.

    Like Scylla's postimages it takes the changes for the newest, whatever their timestamp.
    """
    after = EmulatedPartition(copy.deepcopy(state.static), copy.deepcopy(state.rows))
    for change in changes:
        if isinstance(change, PartitionChange):
            after.static.clear()
            after.rows = dict.fromkeys(after.rows)
        elif isinstance(change, RangeChange):
            for key in after.rows:
                if _is_within(table, key, change):
                    after.rows[key] = None
        elif change.delete and change.key is not None:
            after.rows[change.key] = None
    # A deletion beats what is written with the same timestamp.
    gone = [change for change in changes if not isinstance(change, EmulatedRowChange) or change.delete]
    for change in changes:
        if not isinstance(change, EmulatedRowChange) or change.delete or _is_hidden(table, change, gone):
            continue
        row = after.static if change.key is None else after.rows.get(change.key)
        if row is None:
            if not change.insert and all(_is_nothing(cell) for cell in change.cells.values()):
                continue
            row = {}
        _write_cells(row, change)
        if change.key is not None:
            after.rows[change.key] = row
    return after


def _is_hidden(table: EmulatedTable, change: EmulatedRowChange, gone: Sequence[Change]) -> bool:
    for deletion in gone:
        if isinstance(deletion, PartitionChange) or (
            isinstance(deletion, EmulatedRowChange) and deletion.key == change.key
        ):
            return True
        if isinstance(deletion, RangeChange) and change.key is not None and _is_within(table, change.key, deletion):
            return True
    return False


def _is_nothing(cell: bytes | MulticellWrite | None) -> bool:
    return cell is None or (isinstance(cell, MulticellWrite) and not cell.added)


def _write_cells(row: RowState, change: EmulatedRowChange) -> None:
    for name, cell in change.cells.items():
        if isinstance(cell, MulticellWrite):
            elements = {} if cell.cleared else row.get(name, {})
            elements = {at: part for at, part in elements.items() if at not in cell.removed} | cell.added
            if elements:
                row[name] = elements
            else:
                row.pop(name, None)
        elif cell is None:
            row.pop(name, None)
        else:
            row[name] = cell


def _is_within(table: EmulatedTable, key: Key, change: RangeChange) -> bool:
    def compared(bound: Key) -> int:
        for column, cell, limit in zip(table.clustering, key, bound, strict=False):
            order = sort_key(column.type)
            if cell != limit:
                return (-1 if order(cell) < order(limit) else 1) * (-1 if column.descending else 1)
        return 0

    low, high = compared(change.start), compared(change.end)
    return (low > 0 or (low == 0 and change.start_inclusive)) and (high < 0 or (high == 0 and change.end_inclusive))
