"""Rows of small batches in Arrow: the newest of each key, and those of some keys. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

_AT = "at__"


def select_newest(rows: pa.Table, key: Sequence[str], by: Sequence[str]) -> pa.Table:
    """Of the rows with the same key the one that is the largest by some columns, compared in turn."""
    if rows.num_rows < 2:
        return rows
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in by])
    keys = rows.select(list(key)).take(order).append_column(_AT, order)
    last = keys.group_by(list(key), use_threads=False).aggregate([(_AT, "last")])
    return rows.take(last.column(f"{_AT}_last"))


def drop_matches(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose key none of ``others`` has."""
    return _join_rows(rows, others, key, "left anti")


def keep_matches(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose key one of ``others`` has."""
    return _join_rows(rows, others, key, "left semi")


def _join_rows(rows: pa.Table, others: pa.Table, key: Sequence[str], kind: str) -> pa.Table:
    if not rows.num_rows or not others.num_rows:
        return rows if kind == "left anti" else rows.slice(0, 0)
    # The keys alone: Arrow does not join tables that have arrays or structs in other columns.
    keys = rows.select(list(key)).append_column(_AT, pa.array(range(rows.num_rows), pa.int64()))
    matches = keys.join(others.select(list(key)), list(key), join_type=kind)
    return rows.take(matches.column(_AT))


def conform_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of ``schema``; those that they lack are null."""
    columns = [
        rows.column(column.name).cast(column.type)
        if column.name in rows.column_names
        else pa.nulls(rows.num_rows, column.type)
        for column in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def concat_tables(*tables: pa.Table) -> pa.Table:
    """The rows of tables with the same columns, in any order, after each other."""
    first, *others = tables
    return pa.concat_tables([first, *(table.select(first.column_names).cast(first.schema) for table in others)])
