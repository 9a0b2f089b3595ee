"""Tables of the Cassandra sink: their names, the statements that create, change and write them, whether they fit. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_jobs.sinks.cassandra.types import SYSTEM, can_hold, type_of
from spark_jobs.sinks.jdbc.config import INSERT
from spark_jobs.sinks.shared.writing import key_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from spark_jobs.contract import TableSchema
    from spark_jobs.sinks.cassandra.config import CassandraSinkSettings

_LONGEST_NAME: Final = 48
_NO_LETTER: Final = re.compile(r"[^A-Za-z0-9_]")
#: What tells two changes of a key apart in a table of changes.
_CHANGE: Final = ("ums_id_", "ums_op_", "ums_uid_")


@dataclass(frozen=True, slots=True)
class CassandraTable:
    """A table as the cluster has it.

    Attributes:
        types: of its columns, by name.
        partition, clustering: the columns of its key, in order.
        statics: columns that a partition has once.
    """

    types: Mapping[str, str]
    partition: tuple[str, ...]
    clustering: tuple[str, ...]
    statics: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[str, ...]:
        """All columns of the key, in order."""
        return (*self.partition, *self.clustering)


@dataclass(frozen=True, slots=True)
class CassandraSinkTarget:
    """How a source table is written; picklable.

    Attributes:
        keyspace, table: the names.
        columns: names of the source's columns and their types in the table.
        kinds: names of their types in Spark, in the same order.
        key: the columns of the key, in the table's order; those of a change among them.
        partition: how many of them make the partition.
        system: the columns that follow those of the source in a row.
        lacking: columns that some of the rows have no value for: their nulls are left out.
    """

    keyspace: str
    table: str
    columns: tuple[tuple[str, str], ...]
    kinds: tuple[str, ...]
    key: tuple[str, ...]
    partition: int
    system: tuple[str, ...]
    lacking: frozenset[str] = frozenset()

    @property
    def full(self) -> str:
        """The name for statements."""
        return f"{quote_name(self.keyspace)}.{quote_name(self.table)}"

    def insert(self, *, ttl: bool) -> str:
        """The statement that writes a row: columns, ``system``, the write time, the seconds it lives."""
        names = [quote_name(name) for name in (*(name for name, _ in self.columns), *self.system)]
        placeholders = ", ".join("?" * len(names))
        lives = " AND TTL ?" if ttl else ""
        return f"INSERT INTO {self.full} ({', '.join(names)}) VALUES ({placeholders}) USING TIMESTAMP ?{lives}"  # noqa: S608 - quoted

    def delete(self) -> str:
        """The statement that deletes a row: the write time, then the key."""
        where = " AND ".join(f"{quote_name(name)} = ?" for name in self.key)
        return f"DELETE FROM {self.full} USING TIMESTAMP ? WHERE {where}"  # noqa: S608 - quoted


def quote_name(name: str) -> str:
    """A name for statements; its letters keep their case."""
    return '"' + name.replace('"', '""') + '"'


def usable_name(name: str) -> str:
    """A name that a keyspace or a table can have: with a hash of the whole name where it had to be changed."""
    usable = _NO_LETTER.sub("_", name)
    if usable == name and len(name) <= _LONGEST_NAME:
        return name
    suffix = "_" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return usable[: _LONGEST_NAME - len(suffix)] + suffix


def names_of(settings: CassandraSinkSettings, namespace: str) -> tuple[str, str]:
    """The keyspace and the table of a source table."""
    return (
        usable_name(settings.keyspace.of_table(namespace)),
        usable_name(settings.table.of_table(namespace)),
    )


def name_refusal(settings: CassandraSinkSettings, schema: TableSchema) -> str:
    """Why a source table's names can't be used, and what to do; empty where they can."""
    if not names_of(settings, schema.namespace)[0]:
        return (
            f"the name {schema.namespace} has no part for the keyspace: name it in sink.cassandra.keyspace, which is "
            f"{settings.keyspace.text}"
        )
    present = {column.name for column in schema.columns}
    collisions = [name for name in _list_system_columns(settings) if name in present]
    if collisions:
        return f"table {schema.namespace} has a column {collisions[0]}, a name that the sink needs; rename it in a step"
    if settings.ttl_column and settings.ttl_column not in present:
        return f"table {schema.namespace} has no column {settings.ttl_column}, which sink.cassandra.ttl.column names"
    key = key_of(schema, settings.rows)
    others = [name for name in settings.partition_columns if name not in key]
    if others:
        return (
            f"table {schema.namespace}: sink.cassandra.partition.columns names {', '.join(others)}, which is not in the key "
            f"({', '.join(key)}); name all columns of the key in sink.cassandra.key.columns"
        )
    return ""


def _list_system_columns(settings: CassandraSinkSettings) -> tuple[str, ...]:
    if settings.rows.mode == INSERT:
        return ("ums_id_", "ums_ts_", "ums_op_", "ums_uid_")
    return ("ums_id_", "ums_ts_", "ums_op_", *(("ums_active_",) if settings.soft else ()))


def key_columns(settings: CassandraSinkSettings, schema: TableSchema) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of the partition, and the clustering columns, of a table that is created."""
    key = key_of(schema, settings.rows)
    partition = settings.partition_columns or key
    clustering = tuple(name for name in key if name not in partition)
    if settings.rows.mode != INSERT:
        return partition, clustering
    partition = partition or ("ums_uid_",)
    return partition, (*clustering, *(name for name in _CHANGE if name not in partition))


def wanted_types(settings: CassandraSinkSettings, schema: TableSchema) -> dict[str, str]:
    """The columns of a table that is created, with their types."""
    return {
        **{column.name: type_of(column) for column in schema.columns},
        **{name: SYSTEM[name] for name in _list_system_columns(settings)},
    }


def create_keyspace(keyspace: str, replication: str) -> str:
    """The statement that creates a keyspace.

    Args:
        keyspace: its name.
        replication: ``sink.cassandra.replication``.
    """
    pairs = [part.split(":") for part in replication.split(",")] if ":" in replication else []
    options = ", ".join(f"'{centre}': {copies}" for centre, copies in pairs) or f"'replication_factor': {replication}"
    return (
        f"CREATE KEYSPACE IF NOT EXISTS {quote_name(keyspace)} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', {options}}}"
    )


def create_table(settings: CassandraSinkSettings, schema: TableSchema) -> str:
    """The statement that creates a table."""
    keyspace, table = names_of(settings, schema.namespace)
    partition, clustering = key_columns(settings, schema)
    columns = [f"{quote_name(name)} {kind}" for name, kind in wanted_types(settings, schema).items()]
    inner = ", ".join(quote_name(name) for name in partition)
    key = ", ".join([f"({inner})", *(quote_name(name) for name in clustering)])
    return (
        f"CREATE TABLE IF NOT EXISTS {quote_name(keyspace)}.{quote_name(table)} ({', '.join(columns)}, PRIMARY KEY ({key})) "
        f"WITH gc_grace_seconds = {settings.retention_s}"
    )


def add_columns(settings: CassandraSinkSettings, schema: TableSchema, present: CassandraTable) -> list[str]:
    """The statements that add the columns that a table lacks."""
    keyspace, table = names_of(settings, schema.namespace)
    return [
        f"ALTER TABLE {quote_name(keyspace)}.{quote_name(table)} ADD {quote_name(name)} {kind}"
        for name, kind in wanted_types(settings, schema).items()
        if name not in present.types
    ]


def find_misfits(settings: CassandraSinkSettings, schema: TableSchema, present: CassandraTable) -> list[str]:
    """Why an existing table can't take the rows, and what to do; empty where it can once the missing columns are added."""
    problems = table_problems(present)
    partition, clustering = key_columns(settings, schema)
    if not settings.rows.key_columns and not key_of(schema, settings.rows) and settings.rows.mode != INSERT:
        return problems
    problems += key_problems(present, (*partition, *clustering), settings.partition_columns)
    problems += column_problems(schema, present)
    for name, kind in wanted_types(settings, schema).items():
        if name in SYSTEM and present.types.get(name, kind) != kind:
            problems.append(f"column {name} has the type {present.types[name]}; it must be {kind}")
    return problems


def column_problems(schema: TableSchema, present: CassandraTable) -> list[str]:
    """The columns of a table that don't take the values of the source's, each with the types and what to do."""
    problems = []
    for column in schema.columns:
        kind = present.types.get(column.name)
        if kind is not None and not can_hold(kind, column):
            problems.append(
                f"column {column.name} has the type {kind}, which does not hold {type_of(column)}; Cassandra can't change "
                "the type of a column: convert the values in a step (type sql, CAST), or write to another table "
                "(sink.cassandra.table)"
            )
        if column.name in present.statics:
            problems.append(f"column {column.name} is static, which rows are not; leave it out by a step")
    return problems


def table_problems(present: CassandraTable) -> list[str]:
    """Why no rows can be written into a table."""
    counters = [name for name, kind in present.types.items() if kind == "counter"]
    if not counters:
        return []
    problem = (
        f"column {counters[0]} is a counter: counters can only be added to, and an addition that is repeated after a crash "
        "counts twice; write to a table with a bigint"
    )
    return [problem]


def key_problems(present: CassandraTable, key: Collection[str], partition: Sequence[str]) -> list[str]:
    """The problems of the key of an existing table.

    Args:
        present: the table.
        key: the columns that must make its key.
        partition: those that must make its partition; empty: any.
    """
    if set(present.key) != set(key):
        problem = (
            f"its primary key is ({', '.join(present.key)}), and that of the rows ({', '.join(key)}); set "
            "sink.cassandra.key.columns to the columns of the table's key, or write to another table"
        )
        return [problem]
    if partition and tuple(partition) != present.partition:
        problem = (
            f"its partition key is ({', '.join(present.partition)}), and sink.cassandra.partition.columns is "
            f"{','.join(partition)}; leave the option empty, or write to another table"
        )
        return [problem]
    return []


def target_of(
    settings: CassandraSinkSettings, schema: TableSchema, present: CassandraTable, lacking: frozenset[str]
) -> CassandraSinkTarget:
    """How a table's rows are written.

    Args:
        settings: the options.
        schema: the source table.
        present: the table, with all columns.
        lacking: see ``CassandraSinkTarget``.
    """
    keyspace, table = names_of(settings, schema.namespace)
    return CassandraSinkTarget(
        keyspace,
        table,
        tuple((column.name, present.types[column.name]) for column in schema.columns),
        tuple(column.type.typeName() for column in schema.columns),
        present.key,
        len(present.partition),
        _list_system_columns(settings),
        lacking,
    )
