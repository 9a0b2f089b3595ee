"""Shards of a logical table: what ``sink.shards`` means for names, columns and keys. Pure.

A shard is a pair of numbers: the database partition and the table partition. A table that is not sharded is the shard (0, 0).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as t

from connectors.errors import Fatal, Skippable
from connectors.formats.ums import Namespace
from spark_jobs.config.keys import REFUSE, SEPARATE, SHARDS
from spark_jobs.contract import Column, TableSchema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

#: Names of the two numbers: in Debezium's ``source``, and as columns of targets.
NUMBERS: Final = ("database_partition", "table_partition")
#: Names in Debezium's ``source`` that a sharded table has instead of ``db`` and ``table``, which name the shard.
LOGICAL: Final = ("logical_db", "logical_table")
WHOLE: Final = (0, 0)
_LARGEST: Final = (1 << 63) - 1

Shard = tuple[int, int]


def shard_of(source: Any) -> Shard:
    """The shard that Debezium's ``source`` names (a dict, or an object with ``NUMBERS`` as attributes).

    Raises:
        Skippable: a value is not a number.
    """
    database_part, two = (
        source.get(name) if isinstance(source, dict) else getattr(source, name, None) for name in NUMBERS
    )
    if not all(number is None or type(number) is int for number in (database_part, two)):
        raise Skippable(
            f"The event's source has the shard {database_part!r}, {two!r}; {' and '.join(NUMBERS)} must be whole numbers."
        )
    return database_part or 0, two or 0


def logical_name(source: Any) -> str | None:
    """``<database>.<table>`` of the logical table that Debezium's ``source`` names; None for a table that is not sharded."""
    database, table = (
        source.get(name) if isinstance(source, dict) else getattr(source, name, None) for name in LOGICAL
    )
    return (f"{database}.{table}" if database else str(table)) if table else None


def ums_shard(namespace: str) -> Shard:
    """The shard that a UMS namespace names.

    Raises:
        Skippable: its last two parts are no whole numbers.
    """
    parts = namespace.split(".")[5:]
    if not all(part.isascii() and part.isdigit() and int(part) <= _LARGEST for part in parts):
        raise Skippable(
            f"The namespace {namespace} ends with {'.'.join(parts)}, which are no whole numbers: with "
            f"{SHARDS}={SEPARATE} they become columns."
        )
    return int(parts[0]), int(parts[1])


def logical_namespace(namespace: str) -> str:
    """A UMS namespace with both numbers 0: the name of the logical table."""
    return Namespace.parse(namespace)._replace(database_partition="0", table_partition="0").text


def row_keys(names: Sequence[str], row: Collection[str]) -> tuple[str, ...]:
    """The fields of a sharded table's record key that are columns: connectors may add one that names the shard."""
    return tuple(name for name in names if name in row)


def check_one(table: str, known_shard: Any, new_shards: Iterable[Any], where: str = "") -> Any:
    """The one shard of a table.

    Args:
        table: its name, for messages.
        known_shard: the shard that was seen first; None for a new table.
        new_shards: shards that were seen now, at least one.
        where: a record's position, for messages.

    Raises:
        Fatal: there is a second one.
    """
    shards = sorted({*new_shards} | ({known_shard} if known_shard is not None else set()))
    if len(shards) > 1:
        first = shards[0] if known_shard is None else known_shard
        raise Fatal(second_shard(table, first, next(shard for shard in shards if shard != first)) + where)
    return shards[0]


def second_shard(table: str, first: Any, second: Any) -> str:
    """Explain what to do about a second shard, for people."""
    return (
        f"Table {table} has several shards: database and table partition {first[0]}.{first[1]}, and now "
        f"{second[0]}.{second[1]}. Rows of two shards with one key would overwrite each other. Set {SHARDS}={SEPARATE} to "
        f"make both numbers part of the key (in a job with another name if this one has written rows already), or "
        f"{SHARDS}=merge if a key is the same row in all shards."
    )


def column_taken(table: str, name: str) -> str:
    """Explain what to do about a column with the name of a number, for people."""
    return (
        f"Table {table} has a column {name}, which is the name of a column that {SHARDS}={SEPARATE} adds. Rename it in the "
        "connector (transform ReplaceField), or use another value."
    )


def with_numbers(schema: TableSchema) -> TableSchema:
    """``schema`` with the two numbers as its first columns, and first in its key if it has one.

    Raises:
        Fatal: the table has a column of such a name.
    """
    reserved_names = [column.name for column in schema.columns if column.name.lower() in NUMBERS]
    if reserved_names:
        raise Fatal(column_taken(schema.namespace, reserved_names[0]))
    is_key = bool(schema.key)
    added = tuple(Column(name, t.LongType(), nullable=False, key=is_key) for name in NUMBERS)
    return replace(schema, columns=(*added, *schema.columns), sharded=True)


def check_mode(kept: Any, mode: str, tables: Collection[str], folder: str) -> None:
    """Refuse a change of ``sink.shards`` that changes the keys of tables that the job has written.

    Args:
        kept: what the job's earlier runs had; None if they knew no such option.
        mode: the option's value.
        tables: that the job has written.
        folder: where that is kept, for messages.

    Raises:
        Fatal: it does.
    """
    if tables and (kept == SEPARATE) != (mode == SEPARATE):
        raise Fatal(
            f"{SHARDS} was {kept or REFUSE} and is {mode} now: the keys of the tables that the job has written "
            f"({min(tables)} ...) would change. Set it back, or start a job with another name and new targets. "
            f"(Tables are kept in {folder}.)"
        )
