"""Reads what is in a partition before it is written: for images, conditions and operations on lists."""

# ruff: noqa: S608  # the names in statements are those of tests

from collections.abc import Sequence

from compose.local.scylla.cells.codec import encode_cell, split_cells
from compose.local.scylla.cells.statements import quote_name
from compose.local.scylla.schema import EmulatedTable
from compose.local.scylla.wire import WireConnection
from compose.local.scylla.writes import (
    EmulatedPartition,
    Insert,
    Key,
    RowState,
    Write,
    key_cells,
    touched_keys,
    udt_elements,
)


def read_state(
    connection: WireConnection, table: EmulatedTable, partition: Key, writes: Sequence[Write], state: EmulatedPartition
) -> None:
    """Read what the writes need to know of the partition into `state`."""
    conditional = any(getattr(write, "condition", None) is not None for write in writes)
    images = table.enabled and (table.preimage != "false" or table.postimage)
    if not (conditional or images or table.lists):
        return
    keys = {key for write in writes for key in touched_keys(table, write)}
    if conditional:
        for write in writes:
            key_values = write.values if isinstance(write, Insert) else write.key
            if all(column.name in key_values for column in table.clustering):
                keys.add(key_cells(table.clustering, key_values, table=write.table))
    statics = [column for column in table.columns if column.kind == "static"]
    if statics and (conditional or None in keys):
        state.static.update(read_row(connection, table, partition, None) or {})
    for key in keys:
        if key is not None and key not in state.rows:
            state.rows[key] = read_row(connection, table, partition, key)


def read_row(connection: WireConnection, table: EmulatedTable, partition: Key, key: Key | None) -> RowState | None:
    """Read the content of a row (`key` None: the static row); None if the row does not exist. Blocks."""
    kind = "static" if key is None else "regular"
    columns = [table_column for table_column in table.columns if table_column.kind == kind]
    where = " AND ".join(
        f"{quote_name(table_column.name)} = ?"
        for table_column in (*table.partition_key, *table.clustering[: len(key or ())])
    )
    selected = [*table.partition_key, *columns]

    def select(source: str, names: Sequence[str]) -> dict[str, bytes | None] | None:
        distinct = "DISTINCT " if key is None else ""
        cql = f"SELECT {distinct}{', '.join(map(quote_name, names))} FROM {source} WHERE {where}"
        rows = connection.execute(cql, [*partition, *(key or ())])
        return rows[0] if rows else None

    row = select(table.full, [table_column.name for table_column in selected])
    if row is None:
        return None
    state: RowState = {}
    lists = [table_column for table_column in columns if table_column in table.lists]
    keys = [table_column.name for table_column in table.partition_key]
    cells = (
        select(table.shadow, [*keys, *(table_column.name for table_column in lists)])
        if lists and table.options
        else None
    )
    for column in columns:
        cell = (cells or {}).get(column.name) if column in lists else row[column.name]
        if cell is None:
            continue
        if not column.type.is_multicell:
            state[column.name] = cell
        elif column.type.name == "udt":
            state[column.name] = udt_elements(cell)
        elif column.type.name == "set":
            state[column.name] = dict.fromkeys(split_cells(cell), b"")
        else:
            parts = split_cells(cell, 2)
            state[column.name] = dict(zip(parts[::2], parts[1::2], strict=True))
    return state


def is_condition_met(table: EmulatedTable, state: EmulatedPartition, write: Write) -> bool:
    """Whether the write's condition is met by a partition that was read for it. Pure."""
    condition = getattr(write, "condition", None)
    if condition is None:
        return True
    key_values = write.values if isinstance(write, Insert) else write.key
    whole = all(key_column.name in key_values for key_column in table.clustering)
    row = state.rows.get(key_cells(table.clustering, key_values, table=write.table)) if whole else state.static or None
    if condition == "not exists":
        return row is None
    if condition == "exists":
        return row is not None
    for column, value in condition.items():
        source = state.static if table.by_name[column].kind == "static" else row or {}
        if source.get(column) != encode_cell(table.by_name[column].type, value):
            return False
    return True
