"""The statement that reads a range of a table, and the types of its columns. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.cql.types import CqlType, freeze_type, quote_name

if TYPE_CHECKING:
    from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition

BIGINT: Final = CqlType("bigint")
INT: Final = CqlType("int")
TIMESTAMP: Final = CqlType("timestamp")
_TIMES: Final = freeze_type(CqlType("list", (BIGINT,)))
_TTLS: Final = freeze_type(CqlType("list", (INT,)))
#: Places of the token of the partition and of the server's clock in a row; the key follows.
TOKEN: Final = 0
NOW: Final = 1
KEY: Final = 2


class ColumnCells(NamedTuple):
    """The positions of a column's cells in a row.

    Attributes:
        column: the column.
        value: position of its value.
        time: position of its write time, followed by its TTL: lists by element in a multicell column; None: they can't be read.
    """

    column: CqlColumn
    value: int
    time: int | None


class TableSelect(NamedTuple):
    """How a table is read.

    Attributes:
        text: the statement; its parameters are the tokens after which, and up to and with which rows are read.
        types: of the columns of its result.
        columns: all but the key columns, which stand from ``KEY`` on in order: partition key, clustering key.
    """

    text: str
    types: tuple[CqlType, ...]
    columns: tuple[ColumnCells, ...]


def build_select(table: CqlTableDefinition, *, elements: bool) -> TableSelect:
    """How to read a table.

    Args:
        table: its definition.
        elements: whether the servers tell write time and TTL of each element of a multicell column (5.0 and later).
    """
    keys = (*table.key, *table.clustering)
    token = f"token({', '.join(quote_name(key_column.name) for key_column in table.key)})"
    # A cast: functions that do the same have other names in other versions.
    parts = [token, "CAST(now() AS timestamp)", *(quote_name(key_column.name) for key_column in keys)]
    types = [BIGINT, TIMESTAMP, *(key_column.type for key_column in keys)]
    columns = []
    for column in (*table.static, *table.regular):
        name, value = quote_name(column.name), len(parts)
        multicell = column.type.is_multicell
        parts.append(name)
        types.append(column.type)
        if multicell and not elements:
            columns.append(ColumnCells(column, value, None))
            continue
        parts += [f"writetime({name})", f"ttl({name})"]
        types += [_TIMES, _TTLS] if multicell else [BIGINT, INT]
        columns.append(ColumnCells(column, value, value + 1))
    name = f"{quote_name(table.keyspace)}.{quote_name(table.table)}"
    cql = f"SELECT {', '.join(parts)} FROM {name} WHERE {token} > ? AND {token} <= ?"  # noqa: S608 - names are quoted
    return TableSelect(cql, tuple(types), tuple(columns))
