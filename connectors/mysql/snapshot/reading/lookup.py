"""Looks up a table's structure, order and extent before it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java
from connectors.mysql.position import shards
from connectors.mysql.schema.catalog import HIDDEN_END
from connectors.mysql.snapshot.reading import keys, split
from connectors.mysql.snapshot.reading.keys import KeyColumn, quote_name
from connectors.mysql.snapshot.reading.rows import PacketRows
from connectors.mysql.snapshot.work import SnapshotLayout
from connectors.mysql.source.connection import query_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.mysql.model import MySqlTable, Shard, TableName
    from connectors.mysql.snapshot.model import Key, SnapshotRowDecoder
    from connectors.snapshot.requests import SnapshotRequest

_TRANSACTIONAL: Final = frozenset({"innodb", "rocksdb", "tokudb", "xtradb"})
_SHAPE: Final = (
    "SELECT COLUMN_NAME, DATA_TYPE, CHARACTER_SET_NAME, COLUMN_TYPE, COLLATION_NAME, IS_NULLABLE, COLUMN_KEY, "
    "EXTRA, COLUMN_DEFAULT FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s "
    "ORDER BY ORDINAL_POSITION"
)
_EXPLAIN_ROWS: Final = {10: 8, 12: 9}

Shape = tuple[tuple[Any, ...], ...]


class Extent(NamedTuple):
    """The server's estimates of a table's size.

    Attributes:
        rows: rows; None: unknown.
        row_bytes: of one, about; 0: unknown.
        transactional: whether the engine keeps to read views.
    """

    rows: int | None
    row_bytes: int
    transactional: bool


def format_source(name: TableName) -> str:
    """The table as SQL writes it."""
    return f"{quote_name(name.database)}.{quote_name(name.table)}"


def select_origin(request: SnapshotRequest, name: TableName) -> str:
    """Return the table, or the request's own SELECT, for the FROM clause."""
    select = _text_of(request.selects, name)
    return f"({select.rstrip().rstrip(';')}) AS {quote_name(name.table)}" if select else format_source(name)


def find_condition(request: SnapshotRequest, name: TableName) -> str:
    """The request's condition for a table, or ""."""
    return _text_of(request.conditions, name)


def _text_of(texts_by_table: Mapping[str, str], name: TableName) -> str:
    full = str(name)
    if full in texts_by_table:
        return texts_by_table[full]
    for expression, table_text in texts_by_table.items():
        try:
            if compile_java(f"(?i){expression}").fullmatch(full) is not None:
                return table_text
        except ConfigInvalid:
            continue  # the request was checked when it came; a name with odd characters is no expression
    return ""


async def read_shape(connection: Any, name: TableName) -> Shape:
    """All that tells one structure of a table from another; () if there is no such table.

    Raises:
        Retriable: the connection is lost.
    """
    if not name.possible:  # the server fails queries with such names (error 1267)
        return ()
    return tuple(tuple(row) for row in await query_rows(connection, _SHAPE, (name.database, name.table)))


async def read_extent(connection: Any, name: TableName) -> Extent:
    """The server's estimates.

    Raises:
        Retriable: the connection is lost.
    """
    rows = await query_rows(
        connection,
        "SELECT TABLE_ROWS, AVG_ROW_LENGTH, ENGINE FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (name.database, name.table),
    )
    if not rows:
        return Extent(None, 0, transactional=True)
    count, size, engine = rows[0]
    return Extent(None if count is None else int(count), int(size or 0), str(engine or "").lower() in _TRANSACTIONAL)


async def read_estimates(connection: Any, names: list[TableName]) -> dict[tuple[str, str], int]:
    """Estimated rows of many tables, by database and table.

    Raises:
        Retriable: the connection is lost.
    """
    row_counts: dict[tuple[str, str], int] = {}
    for database in sorted({name.database for name in names if name.possible}):
        rows = await query_rows(
            connection,
            "SELECT TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s",
            (database,),
        )
        row_counts.update({(database, str(table)): int(count) for table, count in rows if count is not None})
    return row_counts


def key_order(table: MySqlTable, decoder: SnapshotRowDecoder, surrogate: str, columns: Shape) -> tuple[KeyColumn, ...]:
    """The columns by which a table is read; () for a table without a key.

    Raises:
        ConfigInvalid: the surrogate key can't be used.
    """
    if not table.key or not decoder.key:
        return ()
    columns_by_name = {str(row[0]).lower(): row for row in columns}
    names = list(table.key)
    if surrogate:
        row = columns_by_name.get(surrogate.lower())
        if row is None:
            raise ConfigInvalid(f"{table.name} has no column {surrogate}, which the request names as surrogate key")
        if str(row[5]).upper() == "YES":
            raise ConfigInvalid(
                f"{table.name}: the surrogate key {surrogate} may be NULL, so rows can't be read in its order; "
                "name another column or none"
            )
        # With the key behind it no two rows are equal.
        names = [str(row[0]), *(name for name in names if name.lower() != surrogate.lower())]
    key_columns = []
    for name in names:
        row = columns_by_name.get(name.lower())
        if row is None and name == HIDDEN_END:
            continue  # equal in all present rows, which alone are read
        if row is None:
            return ()
        key_columns.append(KeyColumn(str(row[0]), str(row[1]).lower(), str(row[2] or "")))
    return tuple(key_columns)


async def read_layout(
    connection: Any,
    request: SnapshotRequest,
    shard: Shard,
    table: MySqlTable,
    decoder: SnapshotRowDecoder,
    columns: Shape,
) -> SnapshotLayout:
    """The extent of a table.

    Raises:
        Retriable: the connection is lost.
        Fatal: the server refuses, for instance the request's condition.
        pymysql.MySQLError: as the two, from the driver.
        ConfigInvalid: the surrogate key can't be used.
    """
    sized = await read_extent(connection, table.name)
    ordered = key_order(table, decoder, request.surrogate_key, columns)
    total = sized.rows
    where = find_condition(request, table.name)
    if where or _text_of(request.selects, table.name):
        sql = f"EXPLAIN SELECT 1 FROM {select_origin(request, table.name)}"  # noqa: S608 - the operator's own condition
        total = await _explain_rows(connection, sql + (f" WHERE ({where})" if where else ""), total)
    if total is not None and shard.count > 1 and shards.split_column(table) is not None:
        total = -(-total // shard.count)
    low: int | None = None
    high: Key | None = None
    if ordered:
        high = await read_edge(connection, table.name, ordered, down=True)
        if high is not None and ordered[0].integer:
            first = await read_edge(connection, table.name, ordered)
            low = int((first or high)[0])
    return SnapshotLayout(table, decoder, ordered, low, high, total, sized.row_bytes)


async def plan_ranges(
    connection: Any, request: SnapshotRequest, table: TableName, columns: Shape, option: str, connections: int
) -> tuple[tuple[str, ...], str]:
    """How several connections divide a table without a key: SQL conditions, or () and why not ("": not requested).

    Args:
        connection: for the query of the least and the largest value.
        request: may name a statement for the table.
        table: its name.
        columns: of the table.
        option: ``snapshot.split.columns``.
        connections: how many there are.

    Raises:
        Retriable: the connection is lost.
        ConfigInvalid: the option can't be parsed.
    """
    name = split.chosen_column(option, table)
    if name is None or connections < 2:
        return (), ""
    column = split.split_column(table, name, columns)
    if isinstance(column, str):
        return (), column
    if _text_of(request.selects, table):
        return (), f"{table} is read by a statement of its own, whose rows can be others each time it runs"
    ((low, high),) = await query_rows(connection, column.extent_sql(format_source(table)))
    return column.ranges(low, high, connections), ""


def empty_layout(table: MySqlTable, decoder: SnapshotRowDecoder) -> SnapshotLayout:
    """The layout of a table of which the task owns no row."""
    return SnapshotLayout(table, decoder, (), None, None, 0)


async def read_edge(
    connection: Any, name: TableName, columns: tuple[KeyColumn, ...], *, down: bool = False
) -> Key | None:
    """The least key of a table, or the largest; None: it has no rows."""
    names = ", ".join(column.select for column in columns)
    sql = f"SELECT {names} FROM {format_source(name)} ORDER BY {keys.order_list(columns, down=down)} LIMIT 1"  # noqa: S608 - quoted names
    rows = await PacketRows(connection).all(sql)
    return keys.read_trailing(rows[0], 0, columns) if rows else None


async def _explain_rows(connection: Any, sql: str, max_rows: int | None) -> int | None:
    """The server's estimate of a query's rows."""
    rows = await query_rows(connection, sql)
    if not rows or len(rows[0]) not in _EXPLAIN_ROWS:
        return max_rows
    at = _EXPLAIN_ROWS[len(rows[0])]
    count = rows[0][at]
    if count is None:
        return max_rows
    estimate = int(count)
    if at == 9 and rows[0][10] is not None:
        estimate = int(estimate * float(rows[0][10]) / 100)
    return estimate if max_rows is None else min(estimate, max_rows)
