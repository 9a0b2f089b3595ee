"""Reads the structure of tables from ``information_schema``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Fatal
from connectors.mysql.model import MySqlColumn, MySqlTable, TableName
from connectors.mysql.schema import type_codes
from connectors.mysql.schema.table_map import column_from_catalog
from connectors.mysql.source.connection import query_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from aiomysql.connection import Connection

#: Names per statement: the server looks each of them up.
_BATCH: Final = 200
#: Seconds that a table may be altered for while its structure is asked for.
_LOCK_WAIT_S: Final = 10
#: What ``column_from_catalog`` gets, by these names.
COLUMNS: Final = (
    "TABLE_SCHEMA",
    "TABLE_NAME",
    "COLUMN_NAME",
    "ORDINAL_POSITION",
    "COLUMN_DEFAULT",
    "IS_NULLABLE",
    "DATA_TYPE",
    "CHARACTER_MAXIMUM_LENGTH",
    "CHARACTER_OCTET_LENGTH",
    "NUMERIC_PRECISION",
    "NUMERIC_SCALE",
    "DATETIME_PRECISION",
    "CHARACTER_SET_NAME",
    "COLLATION_NAME",
    "COLUMN_TYPE",
    "COLUMN_KEY",
    "EXTRA",
    "COLUMN_COMMENT",
)
_TABLES: Final = "TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')"
#: The end of a row's time in a system-versioned table (MariaDB) that declares no period: it belongs to each unique index.
HIDDEN_END: Final = "row_end"
#: The columns behind all others of such a table: rows have them, and the catalog does not.
_HIDDEN_COLUMNS: Final = tuple(
    MySqlColumn(
        name=name,
        type=type_codes.TIMESTAMP2,
        meta=6,
        nullable=False,
        visible=False,
        declared="timestamp(6)",
        extra="STORED GENERATED, INVISIBLE",
    )
    for name in ("row_start", HIDDEN_END)
)


async def table_names(connection: Connection, databases: Collection[str] | None = None) -> list[TableName]:
    """The tables (no views) that the account can see, by name.

    Args:
        connection: to the server.
        databases: only of these, or None: of all.

    Raises:
        Retriable: the connection is lost.
    """
    if databases is not None and not databases:
        return []
    where = "" if databases is None else f" AND TABLE_SCHEMA IN ({_make_placeholders(len(databases))})"
    names: dict[TableName, None] = {}
    # MariaDB's catalog lacks a table for a moment of an ALTER: what one list lacks the other one has.
    for _ in range(2 if "mariadb" in connection.server_version.lower() else 1):
        rows = await query_rows(
            connection,
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES "  # noqa: S608 - marks only
            f"WHERE {_TABLES}{where} ORDER BY TABLE_SCHEMA, TABLE_NAME",
            None if databases is None else tuple(databases),
        )
        names |= dict.fromkeys(TableName(_to_string(database), _to_string(table)) for database, table in rows)
    return list(names)


async def captured_tables(
    connection: Connection, is_captured: Callable[[TableName], bool], database: Callable[[str], bool] | None = None
) -> list[TableName]:
    """The tables that ``is_captured`` says yes to; ``database`` spares asking for those of others.

    Raises:
        Retriable: the connection is lost.
    """
    databases: list[str] | None = None
    if database is not None:
        rows = await query_rows(connection, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        databases = [name for name in (_to_string(row[0]) for row in rows) if database(name)]
    return [name for name in await table_names(connection, databases) if is_captured(name)]


async def read_definitions(connection: Connection, names: Iterable[TableName]) -> dict[TableName, MySqlTable]:
    """The structures of the named tables; those that are not there, or not visible, are left out.

    Raises:
        Retriable: the connection is lost.
        Fatal: a column is of a type that is not known; the message names it.
    """
    names = list(names)
    tables = await _query_definitions(connection, names)
    lacking = [name for name in names if name.possible and name not in tables]
    if lacking:
        # MariaDB's catalog lacks a table, or its indexes, for a moment of an ALTER: only a query of the table waits for that.
        await query_rows(connection, f"SET SESSION lock_wait_timeout = {_LOCK_WAIT_S}")
        await query_rows(connection, "START TRANSACTION")
        try:
            present = [name for name in lacking if await hold_table(connection, name)]
            tables |= await _query_definitions(connection, present)
        finally:
            await query_rows(connection, "ROLLBACK")
    return tables


async def hold_table(connection: Connection, name: TableName) -> bool:
    """Keep a table from being altered until the open transaction ends; False: it is not there, or not visible.

    Raises:
        Retriable: it is being altered for long, or the connection is lost.
    """
    try:
        await query_rows(connection, f"SELECT 1 FROM {quote_name(name)} LIMIT 0")  # noqa: S608 - a quoted name
    except (ConfigInvalid, Fatal):
        return False
    return True


async def _query_definitions(connection: Connection, names: Sequence[TableName]) -> dict[TableName, MySqlTable]:
    """See ``read_definitions``; a table that is being altered may be left out."""
    collations: dict[str, int] | None = None
    tables: dict[TableName, MySqlTable] = {}
    for batch in _batch_names(names):
        rows = await _query_columns(connection, batch)
        if not rows:
            continue
        if collations is None:
            collations = await _query_collations(connection)
        keys = await _query_keys(connection, batch)
        ends = await _query_row_ends(connection, batch)
        columns: dict[TableName, list[Any]] = {}
        keyed: set[TableName] = set()
        for row in rows:
            values = dict(zip(COLUMNS, row, strict=True))
            values["COLLATION_ID"] = (
                collations.get(_to_string(values["COLLATION_NAME"])) if values["COLLATION_NAME"] else None
            )
            name = TableName(_to_string(values["TABLE_SCHEMA"]), _to_string(values["TABLE_NAME"]))
            if _to_string(values["COLUMN_KEY"]) == "PRI":
                keyed.add(name)
            try:
                columns.setdefault(name, []).append(column_from_catalog(values))
            except Fatal as error:
                raise Fatal(f"{name}: {error}") from error
        for name, members in columns.items():
            key, primary = keys.get(name, ((), True))
            if (name in keyed and name not in keys) or not {column.name for column in members}.issuperset(key):
                continue  # altered between the two queries
            if ends.get(name) == HIDDEN_END and HIDDEN_END not in [column.name for column in members]:
                members.extend(_HIDDEN_COLUMNS)
                key = (*key, HIDDEN_END) if key else ()
            tables[name] = MySqlTable(name=name, columns=tuple(members), key=key, completed=True, primary=primary)
    return tables


async def read_estimates(connection: Connection, names: Iterable[TableName]) -> dict[TableName, int]:
    """How many rows the server thinks that tables have; those it has no estimate for are left out.

    Raises:
        Retriable: the connection is lost.
    """
    row_counts: dict[TableName, int] = {}
    for batch in _batch_names(names):
        rows = await query_rows(
            connection,
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES "  # noqa: S608
            f"WHERE {_name_condition(len(batch))}",
            _flatten_names(batch),
        )
        row_counts |= {
            TableName(_to_string(row[0]), _to_string(row[1])): int(row[2]) for row in rows if row[2] is not None
        }
    return row_counts


async def read_row_ends(connection: Connection, names: Iterable[TableName]) -> dict[TableName, str]:
    """Of system-versioned tables (MariaDB), the column that says when a row ended.

    Raises:
        Retriable: the connection is lost.
    """
    ends: dict[TableName, str] = {}
    for batch in _batch_names(names):
        ends |= await _query_row_ends(connection, batch)
    return ends


async def _query_columns(connection: Connection, batch: Sequence[TableName]) -> list[tuple[Any, ...]]:
    return await query_rows(
        connection,
        f"SELECT {', '.join(COLUMNS)} FROM information_schema.COLUMNS WHERE "  # noqa: S608 - constants
        f"{_name_condition(len(batch))} ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION",
        _flatten_names(batch),
    )


async def _query_row_ends(connection: Connection, batch: Sequence[TableName]) -> dict[TableName, str]:
    """The system-versioned tables with the column that says when a row ended: declared, or ``HIDDEN_END`` (MariaDB)."""
    if "mariadb" not in connection.server_version.lower():
        return {}
    condition, names = _name_condition(len(batch)), _flatten_names(batch)
    versioned = await query_rows(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES "  # noqa: S608 - marks only
        f"WHERE TABLE_TYPE = 'SYSTEM VERSIONED' AND {condition}",
        names,
    )
    if not versioned:
        return {}
    declared = await query_rows(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS "  # noqa: S608 - marks only
        f"WHERE GENERATION_EXPRESSION = 'ROW END' AND {condition}",
        names,
    )
    hidden = [(database, table, HIDDEN_END) for database, table in versioned]
    return {
        TableName(_to_string(database), _to_string(table)): _to_string(column)
        for database, table, column in [*hidden, *declared]
    }


async def _query_collations(connection: Connection) -> dict[str, int]:
    try:  # MariaDB from 10.10 on: names in COLLATIONS lack the character set
        rows = await query_rows(
            connection, "SELECT FULL_COLLATION_NAME, ID FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
        )
    except Fatal:
        rows = await query_rows(connection, "SELECT COLLATION_NAME, ID FROM information_schema.COLLATIONS")
    return {_to_string(name): int(number) for name, number in rows if number is not None}


async def _query_keys(
    connection: Connection, batch: Sequence[TableName]
) -> dict[TableName, tuple[tuple[str, ...], bool]]:
    """The columns of each table's primary key, else of its first unique index over whole columns without NULL; which it is."""
    rows = await query_rows(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE "  # noqa: S608 - marks only
        f"FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND {_name_condition(len(batch))} "
        "ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX",
        _flatten_names(batch),
    )
    indexes: dict[TableName, dict[str, list[tuple[Any, ...]]]] = {}
    for database, table, index, *part in rows:
        indexes.setdefault(TableName(_to_string(database), _to_string(table)), {}).setdefault(
            _to_string(index), []
        ).append(tuple(part))
    table_keys: dict[TableName, tuple[tuple[str, ...], bool]] = {}
    for name, members in indexes.items():
        primary = members.get("PRIMARY")
        usable = (
            {"PRIMARY": primary}
            if primary is not None
            else {
                index: parts
                for index, parts in members.items()
                if all(
                    column is not None and whole is None and _to_string(nullable) != "YES"
                    for column, whole, nullable in parts
                )
            }
        )
        index = next(iter(usable), None) if len(usable) < 2 else await _first_index(connection, name, usable)
        if index is not None:
            table_keys[name] = tuple(_to_string(column) for column, _, _ in usable[index] or ()), primary is not None
    return table_keys


async def _first_index(connection: Connection, name: TableName, usable: Collection[str]) -> str | None:
    """The one of these indexes that the server lists first, which is not the first one by name."""
    for row in await query_rows(connection, f"SHOW INDEX FROM {quote_name(name)}"):
        if _to_string(row[2]) in usable:
            return _to_string(row[2])
    return None


def quote_name(name: TableName) -> str:
    """The name as SQL has it."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name)


def _batch_names(names: Iterable[TableName]) -> Iterator[list[TableName]]:
    """The names in groups, each of one database: servers look up what is named so, and read all tables otherwise.

    Names that no table can have are left out: the server fails queries with them (error 1267). MariaDB looks up only the first
    name of a list whose names are all equal for the catalog's collation, so no two of a group differ in case or accents alone.
    """
    groups: dict[tuple[str, str | int], list[TableName]] = {}
    alike: Counter[tuple[str, str]] = Counter()
    for name in dict.fromkeys(name for name in names if name.possible):
        folded = name.database, name.table.lower()
        # Which letters beyond ASCII are equal is the collation's own affair: such a name has a group of its own.
        group_key = alike[folded] if name.table.isascii() else name.table
        groups.setdefault((name.database, group_key), []).append(name)
        alike[folded] += 1
    for group in groups.values():
        for start in range(0, len(group), _BATCH):
            yield group[start : start + _BATCH]


def _make_placeholders(count: int) -> str:
    return ", ".join(["%s"] * count)


def _name_condition(count: int) -> str:
    return (
        "TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        if count == 1
        else f"TABLE_SCHEMA = %s AND TABLE_NAME IN ({_make_placeholders(count)})"
    )


def _flatten_names(batch: Sequence[TableName]) -> tuple[str, ...]:
    return (batch[0].database, *(name.table for name in batch))


def _to_string(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
