"""Creates ClickHouse's tables and alters their columns, on the driver."""

# ruff: noqa: S608 - names and strings in the statements are quoted
from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import orjson

from connectors.errors import Fatal, Retriable
from spark_jobs.contract import SchemaRefused
from spark_jobs.sinks.clickhouse.answers import code_of, error_of
from spark_jobs.sinks.clickhouse.columns import (
    NESTED,
    ClickHouseColumn,
    can_hold,
    columns_of,
    engine_of,
    engine_problem,
    join_types,
    quote_name,
    quote_string,
    strip_type,
)
from spark_jobs.sinks.clickhouse.config import PREFIX
from spark_jobs.sinks.shared.writing import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from spark_jobs.contract import TableSchema
    from spark_jobs.sinks.clickhouse.config import ClickHouseSettings
    from spark_jobs.sinks.shared.http_requests import HttpRequests

#: Blocks of rows that a table remembers, so that a repeated one is left out. A replicated table has a window of its own.
_WINDOW = 1000


def fit_table(settings: ClickHouseSettings, schema: TableSchema) -> dict[str, str]:
    """Create the table of a source table, or add and enlarge its columns. Blocks.

    Returns:
        The types of those columns that are not as the sink would make them.

    Raises:
        Retriable: the server is unavailable.
        Fatal: it refuses the login.
        SchemaRefused: the table has another engine, key or type, or can't be altered.
    """
    keys = key_of(schema, settings.rows)
    columns = columns_of(schema, keys, settings)
    name = settings.table.of_table(schema.namespace)
    target = f"{quote_name(settings.database)}.{quote_name(name)}"
    where = f"database = {quote_string(settings.database)} AND"
    requests = settings.requests()
    try:
        engines = _query_rows(
            requests, f"SELECT engine_full FROM system.tables WHERE {where} name = {quote_string(name)}"
        )
        if not engines:
            definitions = ", ".join(f"{quote_name(column)} {kind}" for column, kind in columns.items())
            chosen = f"SETTINGS non_replicated_deduplication_window = {_WINDOW}"
            if not settings.append and any(columns[key].startswith(NESTED) for key in keys):
                chosen += ", allow_nullable_key = 1"  # elements and members may be null
            statement = (
                f"CREATE TABLE IF NOT EXISTS {target} ({definitions}) ENGINE = {engine_of(settings, keys)} {chosen}"
            )
            _alter_table(requests, statement, schema, name)
            engines = _query_rows(
                requests, f"SELECT engine_full FROM system.tables WHERE {where} name = {quote_string(name)}"
            )
        columns_there = _query_rows(
            requests,
            "SELECT name, type, is_in_sorting_key, if(default_kind IN ('MATERIALIZED', 'ALIAS'), default_kind, '') AS computed "
            f"FROM system.columns WHERE {where} table = {quote_string(name)}",
        )
        present = {
            row["name"]: ClickHouseColumn(row["type"], bool(row["is_in_sorting_key"]), row["computed"])
            for row in columns_there
        }
        problem = engine_problem(settings, keys, engines[0]["engine_full"], present) if engines else ""
        if problem:
            raise SchemaRefused(
                f"table {schema.namespace}: the table {name} exists, and {problem}. Name another one in {PREFIX}table, create "
                f"it again, or set {'guarantee=at-least-once' if settings.append else f'{PREFIX}mode=insert'}",
                schema.namespace,
            )
        statements = _find_changes(columns, present, schema, name)
        if statements:
            _alter_table(requests, f"ALTER TABLE {target} {', '.join(statements)}", schema, name)
        there = {column.name: present[column.name].type for column in schema.columns if column.name in present}
        joined = {column: join_types(columns[column], kind) for column, kind in there.items()}
        return {column: kind for column, kind in joined.items() if strip_type(kind) != strip_type(columns[column])}
    finally:
        requests.close()


def _find_changes(
    columns: Mapping[str, str], present: Mapping[str, ClickHouseColumn], schema: TableSchema, name: str
) -> Sequence[str]:
    """The parts of ALTER TABLE that the columns need.

    Raises:
        SchemaRefused: a column has a type that does not fit.
    """
    statements = []
    wrong = []
    for column, kind in columns.items():
        there = present.get(column)
        if there is None:
            statements.append(f"ADD COLUMN IF NOT EXISTS {quote_name(column)} {kind}")
        elif there.computed:
            wrong.append(f"{column} is computed there ({there.computed}), and takes no values")
        elif not can_hold(kind, wider := join_types(kind, there.type)):
            wrong.append(f"{column} is {there.type} there, and its values need {kind}")
        elif wider != there.type:
            if there.in_key:
                wrong.append(f"{column} is {there.type} there and in the sorting key, and its values need {kind}")
            else:
                statements.append(f"MODIFY COLUMN {quote_name(column)} {wider}")
    if wrong:
        raise SchemaRefused(
            f"table {schema.namespace}: the table {name} has columns that do not fit: {'; '.join(wrong)}. Alter the table, or "
            f"name another one in {PREFIX}table",
            schema.namespace,
        )
    return statements


def _query_rows(requests: HttpRequests, statement: str) -> list[dict[str, Any]]:
    answer = requests.exchange("POST", f"/?{urlencode({'default_format': 'JSONEachRow'})}", statement.encode())
    if code_of(answer):
        raise error_of(answer, requests.where)
    return [orjson.loads(line) for line in answer.content.splitlines()]


def _alter_table(requests: HttpRequests, statement: str, schema: TableSchema, name: str) -> None:
    answer = requests.exchange("POST", "/", statement.encode())
    if not code_of(answer):
        return
    error = error_of(answer, requests.where)
    if isinstance(error, Retriable):
        raise error
    raise SchemaRefused(f"table {schema.namespace}: the table {name} can't be made to fit: {error}", schema.namespace)


def check_database(requests: HttpRequests, settings: ClickHouseSettings) -> None:
    """Ask whether the database is there. Blocks.

    Raises:
        Retriable: the server is unavailable.
        Fatal: it refuses the login, or has no such database.
    """
    if not _query_rows(requests, f"SELECT name FROM system.databases WHERE name = {quote_string(settings.database)}"):
        raise Fatal(f"{requests.where} has no database {settings.database}: create it, or correct {PREFIX}database")
