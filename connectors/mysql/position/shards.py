"""Assigns rows to tasks. Pure functions.

A number is taken as 64 bits without sign, so that SQL's ``>>`` and Python give the same result and a snapshot can ask the
server for its own rows only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from connectors.mysql.model import BLOCK, Shard

if TYPE_CHECKING:
    from connectors.mysql.model import MySqlTable, TableName

#: Type codes of TINY, SHORT, LONG, LONGLONG, INT24.
_INTEGERS: Final = frozenset({1, 2, 3, 8, 9})
_BITS: Final = (1 << 64) - 1
_SHIFT: Final = BLOCK.bit_length() - 1


def split_column(table: MySqlTable) -> str | None:
    """The key column by whose blocks the table's rows are divided, or None: the table belongs to one shard."""
    if not table.key:
        return None
    column = table.column(table.key[0])
    return column.name if column is not None and column.type in _INTEGERS else None


def shard_of_number(number: int, count: int) -> int:
    """The shard that owns the rows with this number in the first key column."""
    return ((number & _BITS) >> _SHIFT) % count


def shard_of_table(name: TableName, count: int) -> int:
    """The shard that owns a table that is not divided."""
    return crc32(f"{name.database}.{name.table}".encode()) % count


def sql_filter(table: MySqlTable, shard: Shard) -> str | None:
    """The condition for the rows that the shard owns: "" for all of them, None for none."""
    if shard.count == 1:
        return ""
    column = split_column(table)
    if column is None:
        return "" if shard_of_table(table.name, shard.count) == shard.index else None
    quoted = "`" + column.replace("`", "``") + "`"
    return f"MOD({quoted} >> {_SHIFT}, {shard.count}) = {shard.index}"


def format_shard(shard: Shard) -> str:
    """As a task configuration and a source partition write it."""
    return f"{shard.index}/{shard.count}"


def parse_shard(value: str) -> Shard:
    """See ``format_shard``.

    Raises:
        ValueError: it is no shard.
    """
    index, _, count = value.partition("/")
    shard = Shard(int(index), int(count))
    if not 0 <= shard.index < shard.count:
        raise ValueError(f"{value!r} is no shard: the form is INDEX/COUNT, counted from 0")
    return shard
