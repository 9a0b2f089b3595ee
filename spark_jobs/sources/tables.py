"""The tables that a job has seen: one schema per table that covers every version of its rows, kept next to the checkpoint.

A column is never forgotten: rows that lack it have null. So a table's schema only grows while a job lives, also over restarts,
and a sink sees a change of schema as a new column or a wider type and as nothing else.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StringType

from connectors.errors import Fatal
from spark_jobs.contract import NUMBER, Column, TableSchema
from spark_jobs.sources.types import find_wider_type, keeps_text, type_from_json, type_json, wider_inferred
from spark_jobs.spark.gateway import hadoop_configuration, jvm_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_FORM_VERSION: Final = 1
_KEPT: Final = 3


def merge_schema(
    known_schema: TableSchema | None,
    namespace: str,
    columns: Sequence[Column],
    where: str,
    *,
    guessed: bool = False,
    to_string: bool = False,
) -> TableSchema:
    """The schema that covers ``known_schema`` and rows with ``columns``.

    Args:
        known_schema: what was there; None for a new table.
        namespace: the table's (for UMS the newest version's).
        columns: key columns first.
        where: names the place for messages (the file in which schemas are kept).
        guessed: whether types were inferred from data: then they may widen up to text.
        to_string: whether a column that is not in the key becomes a string where no other type holds old and new values.

    Raises:
        Fatal: the key or a type changed so that no schema covers both; the message says what to do.
    """
    if known_schema is None:
        return TableSchema(namespace, tuple(columns))
    old_key, new_key = [column.name for column in known_schema.key], [column.name for column in columns if column.key]
    if old_key != new_key:
        raise Fatal(
            f"Table {namespace}: its key was ({', '.join(old_key)}) and is ({', '.join(new_key)}) now. Rows before "
            "and after can't be distinguished by one key: finish with the old table, then start a job with another name "
            f"for the new one. {where}"
        )
    result = {column.name: column for column in known_schema.columns}
    for column in columns:
        old = result.get(column.name)
        if old is None:
            result[column.name] = column
            continue
        both = wider_inferred(old.type, column.type) if guessed else find_wider_type(old.type, column.type)
        if both is None and column.meaning == NUMBER and keeps_text(old.type, column.type):
            both = old.type  # what earlier versions made of decimals whose scale varies
        if both is None and to_string and not column.key:
            both = StringType()
            column = replace(column, length=None, meaning="")  # noqa: PLW2901 - as text
        if both is None:
            raise Fatal(
                f"Table {namespace}, column {column.name}: its type was {old.type.simpleString()} and is "
                f"{column.type.simpleString()} now; no type holds both without loss. Change it back at the source, "
                "give the new column another name (transform ReplaceField), let the sink handle it "
                f"(sink.schema.incompatible.type=lenient), or migrate the target and start a job with another name. {where}"
            )
        length = max(old.length, column.length) if old.length is not None and column.length is not None else None
        nullable = old.nullable or column.nullable
        result[column.name] = replace(old, type=both, nullable=nullable, length=length, meaning=column.meaning)
    fresh = TableSchema(namespace, tuple(result.values()))
    return known_schema if fresh == known_schema else fresh


def make_nullable(schema: TableSchema, columns: Iterable[Column]) -> TableSchema:
    """``schema`` with columns that these rows don't have made nullable."""
    names = {column.name for column in columns}
    changed = tuple(
        column if column.name in names or column.nullable else replace(column, nullable=True)
        for column in schema.columns
    )
    return schema if changed == schema.columns else TableSchema(schema.namespace, changed)


def find_absent_columns(schema: TableSchema, columns: Iterable[Column]) -> frozenset[str]:
    """The columns of ``schema`` that are not among ``columns``."""
    return frozenset(column.name for column in schema.columns) - {column.name for column in columns}


def restore_table(tables: dict[str, TableSchema], before: Mapping[str, TableSchema], name: str) -> None:
    """Make the table ``name`` of ``tables`` what it was in ``before``."""
    if name in before:
        tables[name] = before[name]
    else:
        tables.pop(name, None)


def to_json(tables: Mapping[str, TableSchema], extra: Mapping[str, Any]) -> str:
    """Return the saved form of the tables; ``extra`` is a source's own."""
    return json.dumps(
        {
            "version": _FORM_VERSION,
            "extra": dict(extra),
            "tables": {
                name: {
                    "namespace": schema.namespace,
                    "columns": [
                        {
                            "name": column.name,
                            "type": type_json(column.type),
                            "nullable": column.nullable,
                            "key": column.key,
                            "length": column.length,
                            "meaning": column.meaning,
                        }
                        for column in schema.columns
                    ],
                }
                for name, schema in tables.items()
            },
        },
        indent=1,
    )


def from_json(tables_json: str) -> tuple[dict[str, TableSchema], dict[str, Any]]:
    """The tables and the source's own data that ``to_json`` wrote.

    Raises:
        ValueError: it is no such text.
    """
    data = json.loads(tables_json)
    if not isinstance(data, dict) or data.get("version") != _FORM_VERSION:
        raise ValueError(
            f"form version {data.get('version') if isinstance(data, dict) else '?'}, this release reads {_FORM_VERSION}"
        )
    tables = {
        name: TableSchema(
            table["namespace"],
            tuple(
                Column(
                    column["name"],
                    _read_type(column["type"]),
                    column["nullable"],
                    column["key"],
                    column["length"],
                    column.get("meaning", ""),  # earlier versions did not write it
                )
                for column in table["columns"]
            ),
        )
        for name, table in data["tables"].items()
    }
    return tables, data["extra"]


def _read_type(data: Any) -> DataType:
    return type_from_json(data)


class SchemaFiles:
    """Keeps the text in ``<checkpoint>/schemas/<number>.json`` on any file system that Hadoop knows; blocks.

    The newest number counts; a file is written under another name first, so a crash leaves none half written.
    """

    def __init__(self, spark: SparkSession, checkpoint: str | None) -> None:
        self._spark = spark
        self.folder = f"{checkpoint.rstrip('/')}/schemas" if checkpoint else ""
        self._number = -1

    def load(self) -> str | None:
        """The newest text, or None; None also without a checkpoint.

        Raises:
            Fatal: the folder can't be read.
        """
        if not self.folder:
            return None
        system, folder = self._open_file_system()
        try:
            if not system.exists(folder):
                return None
            numbers = self._list_file_numbers(system, folder)
            if not numbers:
                return None
            self._number = max(numbers)
            stream = system.open(self._make_hadoop_path(f"{self.folder}/{self._number}.json"))
            try:
                return str(self._get_jvm().org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except self._list_java_errors() as error:
            raise Fatal(f"The schemas of the job's tables can't be read from {self.folder}: {error}") from error

    def save(self, tables_json: str) -> None:
        """Keep ``tables_json`` as the newest.

        Raises:
            Fatal: it can't be written.
        """
        if not self.folder:
            return
        system, folder = self._open_file_system()
        try:
            system.mkdirs(folder)
            number = self._number + 1
            part = self._make_hadoop_path(f"{self.folder}/.{number}.part")
            stream = system.create(part, True)
            try:
                stream.write(bytearray(tables_json, "utf-8"))
            finally:
                stream.close()
            if not system.rename(part, self._make_hadoop_path(f"{self.folder}/{number}.json")):
                raise Fatal(
                    f"The schemas of the job's tables can't be written: {self.folder}/{number}.json is there "
                    "already. Is the job running twice?"
                )
            self._number = number
            for old in self._list_file_numbers(system, folder):
                if old <= number - _KEPT:
                    system.delete(self._make_hadoop_path(f"{self.folder}/{old}.json"), False)
        except self._list_java_errors() as error:
            raise Fatal(f"The schemas of the job's tables can't be written to {self.folder}: {error}") from error

    def _list_file_numbers(self, system: Any, folder: Any) -> list[int]:
        names = [status.getPath().getName() for status in system.listStatus(folder)]
        return [int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit()]

    def _open_file_system(self) -> tuple[Any, Any]:
        folder = self._make_hadoop_path(self.folder)
        return folder.getFileSystem(hadoop_configuration(self._spark)), folder

    def _make_hadoop_path(self, path: str) -> Any:
        return self._get_jvm().org.apache.hadoop.fs.Path(path)

    def _get_jvm(self) -> Any:
        return jvm_of(self._spark)

    @staticmethod
    def _list_java_errors() -> tuple[type[Exception], ...]:
        from py4j.protocol import Py4JError

        return (Py4JError,)
