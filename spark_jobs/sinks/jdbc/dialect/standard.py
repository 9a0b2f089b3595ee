"""Statements that several databases have in common. Pure."""

# ruff: noqa: S608 - names in the statements are quoted by the dialect, values are parameters or escaped
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_jobs.sinks.jdbc.config import Login
    from spark_jobs.sinks.jdbc.model import NeededColumn


def create_table(
    quote: Callable[[str], str], table: str, columns: tuple[NeededColumn, ...], key: tuple[str, ...]
) -> str:
    """The statement that makes a table where it is missing; see ``model.Dialect.create``."""
    lines = [f"{quote(column.name)} {column.type}{'' if column.nullable else ' NOT NULL'}" for column in columns]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    return f"CREATE TABLE IF NOT EXISTS {table} (\n  " + ",\n  ".join(lines) + "\n)"


def insert_on_conflict(
    quote: Callable[[str], str],
    into: str,
    source: str,
    columns: tuple[str, ...],
    keys: tuple[str, ...],
    *,
    newer: bool,
) -> str:
    """Insert or update by ``ON CONFLICT``; see ``model.Dialect.merge``."""
    quoted = ", ".join(map(quote, columns))
    chosen = ", ".join(f"s.{quote(name)}" for name in columns)
    others = [quote(name) for name in columns if name not in keys]
    key = ", ".join(map(quote, keys))
    # SQLite would read ON as a part of FROM, were there no WHERE; true may be the name of a column.
    insert_sql = f"INSERT INTO {into} AS t ({quoted}) SELECT {chosen} FROM {source} WHERE 1 = 1 ON CONFLICT ({key})"
    if not others:
        return f"{insert_sql} DO NOTHING"
    insert_sql += " DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others)
    version = quote("ums_id_")
    return f"{insert_sql} WHERE t.{version} IS NULL OR t.{version} <= excluded.{version}" if newer else insert_sql


def add_primary_key(quote: Callable[[str], str], table: str, keys: tuple[str, ...]) -> str:
    """The statement that makes the key of a table that is there; see ``model.Dialect.add_key``."""
    return f"ALTER TABLE {table} ADD PRIMARY KEY ({', '.join(map(quote, keys))})"


def missing_user(login: Login) -> list[str]:
    """The complaint about a login without a user."""
    return [] if login.user else [f"sink.jdbc.user: is not set, and {login.address.text} needs a login"]
