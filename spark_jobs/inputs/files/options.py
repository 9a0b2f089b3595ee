"""The options of ``source.type=files``. Imports no Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, at_least, non_empty, one_of

if TYPE_CHECKING:
    from connectors.options import Config

CSV, JSON, TEXT, AVRO, PARQUET, ORC = "csv", "json", "text", "avro", "parquet", "orc"
FORMATS: Final = (CSV, JSON, AVRO, PARQUET, ORC, TEXT)
INSERT: Final = "insert"
UPDATE: Final = "update"
#: Options of Spark's reader of the format.
READER: Final = "source.files.options."
_GROUP: Final = "Files"
_COLUMN: Final = re.compile(
    r"(?:`(?:[^`]|``)+`|\w+)\s*:?\s+(?P<type>[A-Za-z_]+)\s*(?:[(<].*[)>])?(?:\s+(?i:not null|comment '.*'))*\Z"
)
_TYPES: Final = (
    "tinyint",
    "byte",
    "smallint",
    "short",
    "int",
    "integer",
    "bigint",
    "long",
    "float",
    "real",
    "double",
    "decimal",
    "dec",
    "numeric",
    "boolean",
    "string",
    "varchar",
    "char",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "timestamp_ltz",
    "array",
    "map",
    "struct",
    "variant",
)
#: Options of Spark's readers that the frame sets: another value would lose rows or their numbers.
_RESERVED: Final = (
    "header",
    "mode",
    "columnNameOfCorruptRecord",
    "enforceSchema",
    "inferSchema",
    "wholetext",
    "path",
    "recursiveFileLookup",
)

PATH: Final = "source.files.path"
FORMAT: Final = "source.files.format"
NAMESPACE: Final = "source.files.namespace"
OPERATION: Final = "source.files.operation"
GLOB: Final = "source.files.glob"
RECURSIVE: Final = "source.files.recursive"
MOST: Final = "source.files.max.per.trigger"
HEADER: Final = "source.files.csv.header"
POSITION_COLUMNS: Final = "source.files.position.columns"

FILE_KEYS: Final = (
    ConfigKey(
        name=PATH,
        type=ConfigType.STRING,
        importance=Importance.HIGH,
        group=_GROUP,
        validator=non_empty,
        example="s3a://drop/orders",
        doc="The folder whose files are read, or one file: a local path or an address of Hadoop's (`s3a://`, `hdfs://`); `*`, "
        "`?`, `[ab]` and `{a,b}` stand for several. Files must be complete when they appear here and never change: write "
        "them elsewhere and rename them. Names that begin with `_` or `.` are left out.",
    ),
    ConfigKey(
        name=FORMAT,
        type=ConfigType.STRING,
        importance=Importance.HIGH,
        group=_GROUP,
        validator=one_of(*FORMATS),
        example=CSV,
        doc="What the files are: `csv`, `json` (an object per line), `avro`, `parquet`, `orc`, or `text` (each line is a row "
        "with the column `value`).",
    ),
    ConfigKey(
        name=NAMESPACE,
        type=ConfigType.STRING,
        importance=Importance.HIGH,
        group=_GROUP,
        validator=non_empty,
        example="drop.orders",
        doc="The name of the table that the rows make, as steps and sinks see it: `<database>.<table>`, or UMS's seven parts.",
    ),
    ConfigKey(
        name=OPERATION,
        type=ConfigType.STRING,
        default=INSERT,
        group=_GROUP,
        validator=one_of(INSERT, UPDATE),
        doc="What a row is that does not say it itself (`source.op.field`): `insert`, or `update` of the row with its key "
        "(`source.key.columns`).",
    ),
    ConfigKey(
        name=GLOB,
        type=ConfigType.STRING,
        default=None,
        group=_GROUP,
        example="*.csv.gz",
        doc="Only files whose names match are read (`*`, `?`, `[ab]`, `{a,b}`).",
    ),
    ConfigKey(
        name=RECURSIVE,
        type=ConfigType.BOOLEAN,
        default=True,
        group=_GROUP,
        doc="Whether folders within the folder are read too. Their names are no columns, also not `date=2026-11-23`.",
    ),
    ConfigKey(
        name=MOST,
        type=ConfigType.INT,
        default=100,
        unit="files",
        group=_GROUP,
        validator=at_least(1),
        doc="The most files that one batch reads. It bounds how much a crash makes it read again; a file is never cut.",
    ),
    ConfigKey(
        name=HEADER,
        type=ConfigType.BOOLEAN,
        default=True,
        group=_GROUP,
        doc="Whether the first line of a file of CSV names its columns; files may name others, or in another order. `false`: "
        "they are those of `source.table.columns`, in order, or `c0`, `c1` ...",
    ),
    ConfigKey(
        name=POSITION_COLUMNS,
        type=ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        doc="Whether rows get the columns `file_path_` and `file_row_` (from 1), which can be their key where the rows have "
        "none. Not for `json`.",
    ),
)


def check_options(config: Config) -> list[str]:
    """Complaints about options that don't go together, each as ``<option>: <text>``."""
    problems = []
    kind = config[FORMAT]
    if config[OPERATION] == UPDATE and not _has_keys(config):
        problems.append(f"{OPERATION}: {UPDATE} needs the key of a row; set source.key.columns")
    if config[POSITION_COLUMNS] and kind == JSON:
        problems.append(
            f"{POSITION_COLUMNS}: can't be used with {FORMAT}=json; name a key in the rows by source.key.columns"
        )
    if config.get("source.format") not in (None, "plain") and kind != JSON:
        problems.append(
            f"source.format: {config['source.format']} can be read from {FORMAT}=json only; rows of {kind} are plain: "
            "leave it out"
        )
    problems += [
        f"{READER}{name}: can't be set: the job needs a value of its own"
        for name in config.prefixed(READER)
        if name in _RESERVED
    ]
    if config.get("source.starting.offsets") == "latest":
        problems.append("source.starting.offsets: latest can't be used with files: every file is read; leave it out")
    return problems


def check_columns(column_list: str) -> str:
    """Describe a mistake in a list of columns with types as in SQL, or return an empty text. Pure: Spark needs a JVM for it."""
    for column in split_columns(column_list):
        match = _COLUMN.match(column)
        if match is None:
            return f"{column!r} is no column with a type as in SQL (example: price decimal(10,2))"
        if match["type"].lower() not in _TYPES:
            return f"{column!r}: {match['type']} is no type of SQL; known are {', '.join(_TYPES)}"
    return ""


def split_columns(column_list: str) -> list[str]:
    """The parts of a list between commas that are not within brackets. Pure."""
    parts, depth = [""], 0
    for letter in column_list:
        depth += (letter in "(<") - (letter in ")>")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _has_keys(config: Config) -> bool:
    return bool(config.get("source.key.columns")) or any(name.startswith("source.key.columns.") for name in config.raw)


def make_definition(*others: ConfigKey) -> ConfigDef:
    """The options of files with those of the forms of their rows."""
    return ConfigDef([*FILE_KEYS, *others])
