"""Registers tables of history in a Hive metastore: external tables over their directories, with a partition per bucket.

The session must have the metastore as its catalog (``spark.sql.catalogImplementation=hive``). A registered table shows what
a listing of its directory shows: finished files.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql.types import ArrayType, MapType, StructType

from connectors.errors import Fatal
from spark_jobs.history.schema import from_json
from spark_jobs.spark.gateway import java_session, jvm_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from spark_jobs.history.log import HistoryState

#: Formats whose files a table of Hive can have.
FORMATS: Final = ("parquet", "orc")
#: Spark's types that Hive lacks, as ``DataType.typeName()``.
_UNKNOWN: Final = frozenset(
    ("timestamp_ntz", "variant", "day-time interval", "year-month interval", "interval", "void")
)
#: Hive reads types of structs as text, in which these end a name.
_NESTED_NAME: Final = re.compile(r"[^,:<>`]+")
#: Partitions that one statement adds.
_PARTITIONS_AT_ONCE: Final = 100


def table_name(directory: str) -> str:
    """The name in Hive of the table in a directory: small letters, digits and ``_``. Pure."""
    return re.sub("[^a-z0-9_]", "_", directory.lower())


def type_problem(table: str, schema: StructType) -> str:
    """Why Hive can't have a table with these columns, and what to do; empty where it can. Pure."""
    for column in schema.fields:
        for kind in _types_in(column.dataType):
            if kind.typeName() in _UNKNOWN:
                return (
                    f"table {table} has a column {column.name} of type {kind.simpleString()}, which Hive does not know: drop "
                    "or cast it (a step of the job), or leave out sink.files.hive.database"
                )
            names = kind.names if isinstance(kind, StructType) else []
            wrong = [name for name in names if not _NESTED_NAME.fullmatch(name)]
            if wrong:
                return (
                    f"table {table} has a column {column.name} with a field {wrong[0]!r}, a name that Hive can't hold: rename "
                    "it in the source, or leave out sink.files.hive.database"
                )
    return ""


def _types_in(kind: DataType) -> Iterator[DataType]:
    yield kind
    if isinstance(kind, StructType):
        for column in kind.fields:
            yield from _types_in(column.dataType)
    elif isinstance(kind, ArrayType):
        yield from _types_in(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _types_in(kind.keyType)
        yield from _types_in(kind.valueType)


@dataclass(slots=True)
class HiveTable:
    """One table in the metastore. Used by one thread.

    Attributes:
        spark: a session with the metastore.
        database: the database there.
        name: the table's name there.
        location: the address of its directory.
        kind: the format of its files.
        levels: names of the partition levels.
    """

    spark: SparkSession
    database: str
    name: str
    location: str
    kind: str
    levels: tuple[str, ...]
    _columns: str = ""
    _partitions: set[str] = field(default_factory=set)
    _version: int = -1

    @property
    def quoted(self) -> str:
        """Its full name for statements."""
        return f"{_quote_name(self.database)}.{_quote_name(self.name)}"

    def follow(self, state: HistoryState) -> int:
        """Make the table, give it the newest columns, and add partitions for buckets in sight. Blocks.

        Returns:
            How many partitions were added.

        Raises:
            Fatal: Hive has a table of that name elsewhere, or the files have several formats.
        """
        if state.version == self._version or not state.schemas:
            return 0
        in_sight = [file for file in state.files.values() if file.visible]
        others = sorted({file.format for file in in_sight} - {self.kind})
        if others:
            raise Fatal(
                f"{self.location} has files of {', '.join(others)} and {self.kind}, and a table of Hive has one format: run "
                "`millrace job compact`, or leave out sink.files.hive.database"
            )
        self._follow_columns(from_json(state.schemas[-1]))
        added = sorted({file.bucket for file in in_sight if file.bucket} - self._partitions)
        for start in range(0, len(added), _PARTITIONS_AT_ONCE):
            part = added[start : start + _PARTITIONS_AT_ONCE]
            clauses = " ".join(
                f"PARTITION ({_format_partition(bucket)}) LOCATION {_quote_string(self._make_bucket_address(bucket))}"
                for bucket in part
            )
            self.spark.sql(f"ALTER TABLE {self.quoted} ADD IF NOT EXISTS {clauses}")
            self._partitions.update(part)
        self._version = state.version
        return len(added)

    def _follow_columns(self, schema: StructType) -> None:
        columns = schema.simpleString()
        if columns == self._columns:
            return
        jvm: Any = jvm_of(self.spark)
        types = jvm.org.apache.spark.sql.types.DataType
        java_schema = types.fromJson(schema.json())
        partitions = ", ".join(f"{_quote_name(name)} string" for name in self.levels)
        self.spark.sql(
            f"CREATE EXTERNAL TABLE IF NOT EXISTS {self.quoted} ({java_schema.toDDL()})"
            + (f" PARTITIONED BY ({partitions})" if partitions else "")
            + f" STORED AS {self.kind.upper()} LOCATION {_quote_string(self.location)}"
        )
        java: Any = java_session(self.spark)
        catalog = java.sharedState().externalCatalog().unwrapped()
        present = catalog.getTable(self.database, self.name)
        location = str(present.location().toString())
        if _plain_address(location) != _plain_address(self.location):
            raise Fatal(
                f"Hive has a table {self.database}.{self.name} at {location}, and the sink's is at {self.location}: drop that "
                "one, or choose another sink.files.hive.database"
            )
        before = from_json(_format_schema(present.dataSchema()))
        # The metastore takes columns at their places only: new ones go to the end.
        later = StructType(
            [schema[name] if name in schema.names else before[name] for name in before.names]
            + [column for column in schema.fields if column.name not in before.names]
        )
        if later.simpleString() != before.simpleString():
            java_schema = types.fromJson(later.json())
            catalog.alterTableDataSchema(self.database, self.name, java_schema)
            self.spark.catalog.refreshTable(self.quoted)
        self._columns = columns

    def _make_bucket_address(self, bucket: str) -> str:
        return f"{self.location}/{bucket}"


def _format_schema(schema: Any) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(schema.json())
    return fields


def _plain_address(address: str) -> str:
    return re.sub("^file:/+", "/", address).rstrip("/")


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quote_string(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _format_partition(bucket: str) -> str:
    """The partition of a bucket (``name=value/name=value``), as statements name it."""
    pairs: Iterable[tuple[str, str, str]] = (level.partition("=") for level in bucket.split("/"))
    return ", ".join(f"{_quote_name(name)}={_quote_string(unquote(value))}" for name, _, value in pairs)
