"""Keys and columns of tables as options give them: ``source.key.columns`` and ``source.table.columns``. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from spark_jobs.config.keys import STEPS
from spark_jobs.contract import Column, TableSchema
from spark_jobs.inputs.files.options import split_columns
from spark_jobs.sources.records.inference import declared_columns, find_declared_type
from spark_jobs.steps.lookup.values import is_type, spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import DataType

    from connectors.options import Config

KEYS: Final = "source.key.columns"
COLUMNS: Final = "source.table.columns"
_COLUMN: Final = re.compile(
    r"(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>\w+))\s*:?\s+(?P<type>[A-Za-z]+)\s*(?P<size>\([\d, ]+\))?"
    r"(?:\s+(?i:not null|comment '.*'))*\Z"
)
#: Names of types that have more than one.
_ALIASES: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "varchar": "string",
    "char": "string",
}
#: Types whose size is a length.
_LENGTHS: Final = ("varchar", "char")


def declared_keys(config: Config) -> dict[str, tuple[str, ...]]:
    """Table -> the columns of its key; under the empty name those of all other tables."""
    keys = {"": tuple(config[KEYS])} if config.get(KEYS) else {}
    for name, column_list in config.raw.items():
        if name.startswith(f"{KEYS}."):
            keys[name.removeprefix(f"{KEYS}.")] = tuple(
                column.strip() for column in column_list.split(",") if column.strip()
            )
    return keys


def declared_types(config: Config) -> dict[str, Mapping[str, DataType]]:
    """Table -> its columns and their types; under the empty name those of all other tables. Needs a Spark session.

    Raises:
        ConfigInvalid: an option has no list of columns.
    """
    types: dict[str, Mapping[str, DataType]] = {}
    if config.get(COLUMNS):
        types[""] = declared_columns(config[COLUMNS])
    for name, column_list in config.raw.items():
        if name.startswith(f"{COLUMNS}."):
            types[name.removeprefix(f"{COLUMNS}.")] = declared_columns(column_list)
    return types


def declared_tables(config: Config) -> list[TableSchema]:
    """The tables that a sink gets, as far as options alone say what is in them: rows of plain JSON, and no steps.

    Other columns may come with the records, and columns of arrays, maps and structs are left out: Spark's own parser of types
    would need a JVM.
    """
    if config.get("source.format") != "plain" or config.get(STEPS):
        return []
    types = {
        name.removeprefix(COLUMNS).removeprefix("."): simple_columns(column_list)
        for name, column_list in config.raw.items()
        if name == COLUMNS or name.startswith(f"{COLUMNS}.")
    }
    keys = declared_keys(config)
    tables = []
    for name in dict.fromkeys([*(config.get("source.topics") or ()), *types]):
        columns, key = types.get(name, types.get("")), keys.get(name, keys.get("", ()))
        if name and columns:
            ordered = [
                Column(column, kind, nullable=column not in key, key=column in key) for column, kind in columns.items()
            ]
            ordered.sort(key=lambda column: key.index(column.name) if column.key else len(key))
            tables.append(TableSchema(name, tuple(ordered)))
    return tables


def simple_columns(column_list: str) -> dict[str, DataType]:
    """The columns in a list of columns with types as in SQL, as a job has them; only those of simple types."""
    columns = {}
    for part in split_columns(column_list):
        match = _COLUMN.match(part)
        if match is None:
            continue
        kind = match["type"].lower()
        kind = _ALIASES.get(kind, kind) + (match["size"] or "").replace(" ", "") * (kind not in _LENGTHS)
        kind = "decimal(10,0)" if kind == "decimal" else kind
        if is_type(kind):
            name = match["quoted"].replace("``", "`") if match["quoted"] else match["plain"]
            columns[name] = find_declared_type(spark_type(kind), name)
    return columns
