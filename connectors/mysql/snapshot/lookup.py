"""What has to be known about a table before it is read: structure, order, extent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java
from connectors.mysql import shards
from connectors.mysql.connection import query
from connectors.mysql.snapshot import keys, split
from connectors.mysql.snapshot.keys import KeyColumn, quoted
from connectors.mysql.snapshot.rows import Rows
from connectors.mysql.snapshot.work import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.mysql.model import Shard, Table, TableName
    from connectors.mysql.snapshot.model import Key, RowDecoder
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
    """What the server estimates.

    Attributes:
        rows: rows; None: unknown.
        row_bytes: of one, about; 0: unknown.
        transactional: whether the engine keeps to read views.
    """

    rows: int | None
    row_bytes: int
    transactional: bool


def source(name: TableName) -> str:
    """The table as SQL writes it."""
    return f"{quoted(name.database)}.{quoted(name.table)}"


def origin(request: SnapshotRequest, name: TableName) -> str:
    """What the rows are selected from."""
    select = _of(request.selects, name)
    return f"({select.rstrip().rstrip(';')}) AS {quoted(name.table)}" if select else source(name)


def condition(request: SnapshotRequest, name: TableName) -> str:
    """The request's condition for a table, or ""."""
    return _of(request.conditions, name)


def _of(texts: Mapping[str, str], name: TableName) -> str:
    full = str(name)
    if full in texts:
        return texts[full]
    for expression, text in texts.items():
        try:
            if compile_java(f"(?i){expression}").fullmatch(full) is not None:
                return text
        except ConfigInvalid:
            continue  # the request was checked when it came; a name with odd characters is no expression
    return ""


async def shape(connection: Any, name: TableName) -> Shape:
    """All that tells one structure of a table from another; () if there is no such table.

    Raises:
        Retriable: the connection is lost.
    """
    if not name.possible:  # the server fails queries with such names (error 1267)
        return ()
    return tuple(tuple(row) for row in await query(connection, _SHAPE, (name.database, name.table)))


async def extent(connection: Any, name: TableName) -> Extent:
    """The server's estimates.

    Raises:
        Retriable: the connection is lost.
    """
    rows = await query(
        connection,
        "SELECT TABLE_ROWS, AVG_ROW_LENGTH, ENGINE FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (name.database, name.table),
    )
    if not rows:
        return Extent(None, 0, transactional=True)
    count, size, engine = rows[0]
    return Extent(None if count is None else int(count), int(size or 0), str(engine or "").lower() in _TRANSACTIONAL)


async def estimates(connection: Any, names: list[TableName]) -> dict[tuple[str, str], int]:
    """Estimated rows of many tables, by database and table.

    Raises:
        Retriable: the connection is lost.
    """
    found: dict[tuple[str, str], int] = {}
    for database in sorted({name.database for name in names if name.possible}):
        rows = await query(
            connection,
            "SELECT TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s",
            (database,),
        )
        found.update({(database, str(table)): int(count) for table, count in rows if count is not None})
    return found


def order(table: Table, decoder: RowDecoder, surrogate: str, columns: Shape) -> tuple[KeyColumn, ...]:
    """The columns by which a table is read; () for a table without a key.

    Raises:
        ConfigInvalid: the surrogate key can't be used.
    """
    if not table.key or not decoder.key:
        return ()
    known = {str(row[0]).lower(): row for row in columns}
    names = list(table.key)
    if surrogate:
        row = known.get(surrogate.lower())
        if row is None:
            raise ConfigInvalid(f"{table.name} has no column {surrogate}, which the request names as surrogate key")
        if str(row[5]).upper() == "YES":
            raise ConfigInvalid(
                f"{table.name}: the surrogate key {surrogate} may be NULL, so rows can't be read in its order; "
                "name another column or none"
            )
        # With the key behind it no two rows are equal.
        names = [str(row[0]), *(name for name in names if name.lower() != surrogate.lower())]
    found = []
    for name in names:
        row = known.get(name.lower())
        if row is None:
            return ()
        found.append(KeyColumn(str(row[0]), str(row[1]).lower(), str(row[2] or "")))
    return tuple(found)


async def layout(
    connection: Any, request: SnapshotRequest, shard: Shard, table: Table, decoder: RowDecoder, columns: Shape
) -> Layout:
    """The extent of a table.

    Raises:
        Retriable: the connection is lost.
        Fatal: the server refuses, for instance the request's condition.
        pymysql.MySQLError: as the two, from the driver.
        ConfigInvalid: the surrogate key can't be used.
    """
    sized = await extent(connection, table.name)
    ordered = order(table, decoder, request.surrogate_key, columns)
    total = sized.rows
    where = condition(request, table.name)
    if where or _of(request.selects, table.name):
        sql = f"EXPLAIN SELECT 1 FROM {origin(request, table.name)}"  # noqa: S608 - the operator's own condition
        total = await _explained(connection, sql + (f" WHERE ({where})" if where else ""), total)
    if total is not None and shard.count > 1 and shards.split_column(table) is not None:
        total = -(-total // shard.count)
    low: int | None = None
    high: Key | None = None
    if ordered:
        high = await edge(connection, table.name, ordered, down=True)
        if high is not None and ordered[0].integer:
            first = await edge(connection, table.name, ordered)
            low = int((first or high)[0])
    return Layout(table, decoder, ordered, low, high, total, sized.row_bytes)


async def ranges(
    connection: Any, request: SnapshotRequest, table: TableName, columns: Shape, option: str, connections: int
) -> tuple[tuple[str, ...], str]:
    """How several connections divide a table without a key: SQL conditions, or () and why not ("": nobody asked for it).

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
    if _of(request.selects, table):
        return (), f"{table} is read by a statement of its own, whose rows can be others each time it runs"
    ((low, high),) = await query(connection, column.extent_sql(source(table)))
    return column.ranges(low, high, connections), ""


def nothing(table: Table, decoder: RowDecoder) -> Layout:
    """The layout of a table of which the task owns no row."""
    return Layout(table, decoder, (), None, None, 0)


async def edge(connection: Any, name: TableName, columns: tuple[KeyColumn, ...], *, down: bool = False) -> Key | None:
    """The least key of a table, or the largest; None: it has no rows."""
    names = ", ".join(column.select for column in columns)
    sql = f"SELECT {names} FROM {source(name)} ORDER BY {keys.order(columns, down=down)} LIMIT 1"  # noqa: S608 - quoted names
    rows = await Rows(connection).all(sql)
    return keys.trailing(rows[0], 0, columns) if rows else None


async def _explained(connection: Any, sql: str, most: int | None) -> int | None:
    """The server's estimate of a query's rows."""
    rows = await query(connection, sql)
    if not rows or len(rows[0]) not in _EXPLAIN_ROWS:
        return most
    at = _EXPLAIN_ROWS[len(rows[0])]
    count = rows[0][at]
    if count is None:
        return most
    found = int(count)
    if at == 9 and rows[0][10] is not None:
        found = int(found * float(rows[0][10]) / 100)
    return found if most is None else min(found, most)
