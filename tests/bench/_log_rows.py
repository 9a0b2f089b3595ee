"""Rows of a Scylla log and mutations of a Cassandra log, as plain values: no server, and always the same. Pure."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.cql.mutations.definition import CqlColumn, make_definition
from connectors.cql.mutations.encode import write_mutation, write_update
from connectors.cql.types import parse_type
from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateRow, UpdateSource
from connectors.scylla.model import INSERT

if TYPE_CHECKING:
    from connectors.cql.mutations.definition import CqlTableDefinition

#: Name, type, kind and position of each column.
Columns = tuple[tuple[str, str, str, int], ...]
SCYLLA_COLUMNS: Final[Columns] = (
    ("pk", "bigint", "partition_key", 0),
    ("ck", "int", "clustering", 0),
    ("flag", "boolean", "regular", -1),
    ("n", "bigint", "regular", -1),
    ("v", "text", "regular", -1),
)
CASSANDRA_COLUMNS: Final[Columns] = (
    ("pk", "bigint", "partition_key", 0),
    ("ck", "int", "clustering", 0),
    ("name", "text", "regular", -1),
    ("amount", "bigint", "regular", -1),
    ("price", "double", "regular", -1),
    ("active", "boolean", "regular", -1),
    ("note", "text", "regular", -1),
    ("seen", "timestamp", "regular", -1),
)
TABLE_ID: Final = "0a0a0a0a-0000-11ee-8000-00000000000a"
#: Of the format of Cassandra's log.
LOG_VERSION: Final = 7
_START_US: Final = 1_790_000_000_000_000
#: The same in the ticks of a time uuid.
_START_TICKS: Final = 0x01B21DD213814000 + _START_US * 10


class Log(NamedTuple):
    """Mutations of a Cassandra log one behind the other, and of each: first byte, end, and position in the log."""

    data: bytes
    entries: list[tuple[int, int, int]]


def scylla_rows(count: int) -> list[tuple[Any, ...]]:
    """Inserts, as ``connectors.scylla.model.LogRow``."""
    rows = []
    for number in range(count):
        ticks = _START_TICKS + number * 10
        fields = (ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0xFFF | 0x1000, 0x80, 1, number)
        value = f"{number:060}"
        cells = (number, number % 7, bool(number & 1), None, number * 3, None, value, None)
        rows.append((b"s" * 16, uuid.UUID(fields=fields).bytes, 0, INSERT, None, True, *cells))
    return rows


def cassandra_table(columns: Columns = CASSANDRA_COLUMNS) -> CqlTableDefinition:
    """The definition of the mutations' table."""
    return make_definition(
        "bench",
        "t",
        TABLE_ID,
        [CqlColumn(name, parse_type(kind), part, position) for name, kind, part, position in columns],  # type: ignore[arg-type]
        cdc=True,
    )


def cassandra_log(count: int) -> Log:
    """Inserts of one row each."""
    table = cassandra_table()
    source = UpdateSource(connector="", cluster="", keyspace="", table="")
    mutations: list[bytes] = []
    entries: list[tuple[int, int, int]] = []
    end = 0
    for number in range(count):
        stamp = CellStamp(_START_US + number)
        row = UpdateRow(clustering=(number % 7,), liveness=stamp, cells=_cells(number, stamp))
        update = PartitionUpdate(source=source, key=(number,), write_time=stamp.write_time, rows=(row,))
        mutations.append(write_mutation([write_update(update, table, LOG_VERSION)], LOG_VERSION))
        begin, end = end, end + len(mutations[-1])
        entries.append((begin, end, 100 + end))
    return Log(b"".join(mutations), entries)


def _cells(number: int, stamp: CellStamp) -> tuple[Cell, ...]:
    values = {
        "active": bool(number & 1),
        "amount": number * 3,
        "name": f"{number:030}",
        "note": f"{number:060}",
        "price": number / 7 + 1,
        "seen": 1_790_000_000_000 + number,
    }
    return tuple(Cell(name, None, value, stamp) for name, value in values.items())
