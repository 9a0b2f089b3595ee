"""The state that a step keeps from batch to batch: Delta tables and a few values, in the job's checkpoint.

A batch sees the state as it was before the batch, however often the batch is repeated: every row has the number of the
batch that wrote it, and a batch reads only rows of smaller numbers. So a crash at any moment does no harm. Before the
sink has written, the state is untouched. After the rows of a batch were appended, but before Spark's commit of the
batch, the same batch comes again: it does not see these rows, and removes them before it appends its own.

On disk: ``<checkpoint>/steps/<step>/<table>/`` is a Delta table with the columns that the step gave and ``batch_`` before
them; ``<checkpoint>/steps/<step>/values/<batch>.json`` holds the values as of the end of that batch, the newest two of them.

An append costs what the batch brings. The newest row of a key counts. The rows of the smallest batch number in the table are
its base: of a key there is one. Every ``UPKEEP_EVERY`` files what has come since is folded into one file, or, once it is a
quarter of the base, the whole table is written again as a base with the number -1. Files are sorted by key.

Spark reads and writes tables as a whole. Where the checkpoint is on this machine, a step may also look up rows by the values
of columns and append some, without a Spark job (``files.py``): a small batch then takes milliseconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.spark.checkpoint import local_path, open_folder, spark_path
from spark_jobs.steps.state.delta_log import read_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.spark.checkpoint import Folder
    from spark_jobs.steps.state.files import StateFiles

#: Column: the batch that wrote the row; ``_BASE`` for rows that were folded into the whole.
BATCH: Final = "batch_"
#: Column of tables with a key: the order number of the change that made the row.
ORDER: Final = "order_"
_BASE: Final = -1
#: Folder in the checkpoint; a folder for each step, and in it one for each table.
FOLDER: Final = "steps"
_VALUES: Final = "values"
#: After that many files of recent rows these are folded; without statistics of files, at every batch with a multiple of it.
UPKEEP_EVERY: Final = 50
#: The part of a table that must be new for the whole to be written again.
_WORTH: Final = 0.25
#: The most rows that are folded without Spark.
_MOST_FOLDED: Final = 500_000
#: Rows of a file that Spark writes, so that files without the rows of a lookup are not opened.
_ROWS_PER_FILE: Final = 250_000
#: Readers of the state are in this driver and end with their batch: old files may go soon.
_PROPERTIES: Final = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


@dataclass(slots=True)
class _Staged:
    rows: DataFrame | pa.Table
    files: int
    key: Sequence[str]


@dataclass(slots=True)
class StepState:
    """The state of one step in one run of a job; used by one thread at a time.

    Attributes:
        checkpoint: of the job; empty: nothing is kept (a preview), and every batch sees an empty state.
        step: the name of the step.
    """

    checkpoint: str
    step: str
    _spark: SparkSession | None = None
    _batch: int = -1
    #: The number after the last batch whose rows this run has appended: nothing can be left over from it on.
    _clean: int = -1
    _values: dict[str, Any] = field(default_factory=dict)
    _staged: dict[str, _Staged] = field(default_factory=dict)
    _new_values: dict[str, Any] | None = None
    _tables: set[str] = field(default_factory=set)
    _opened: dict[str, StateFiles] = field(default_factory=dict)
    #: The batch in which each table was last looked at by the upkeep.
    _kept_up: dict[str, int] = field(default_factory=dict)
    #: Tables whose last append was large, so that every batch would sort it out again.
    _large: set[str] = field(default_factory=set)

    def begin(self, spark: SparkSession, batch: int) -> None:
        """Prepare for the steps of a batch, also of one that is repeated. Blocks: may run Spark jobs.

        Args:
            spark: the session, with the jars of Delta.
            batch: its number; -1 in a preview.
        """
        self._spark, self._batch = spark, batch
        self._staged, self._new_values = {}, None
        if not self.checkpoint or batch == self._clean:
            return
        folder = self._open_folder(spark)
        names = folder.list(self._make_relative_path())
        self._tables = {
            name for name in names if name != _VALUES and folder.list(self._make_relative_path(f"{name}/_delta_log"))
        }
        self._opened = {}
        for name in sorted(self._tables):
            files = self._open_files(name)
            if files is not None and files.layers() is not None:
                files.discard(batch)
            elif self._read_table(name).where(f"{BATCH} >= {batch}").limit(1).collect():
                spark.sql(f"DELETE FROM {self._quote_path(name)} WHERE {BATCH} >= {batch}").collect()  # noqa: S608 - names of ours
        earlier = [number for number in self._list_batches(folder) if number < batch]
        values_json = folder.read(self._make_relative_path(f"{_VALUES}/{earlier[-1]}.json")) if earlier else None
        self._values = json.loads(values_json) if values_json else {}

    @property
    def values(self) -> dict[str, Any]:
        """The values as of the end of the batch before (JSON); empty for none."""
        return dict(self._values)

    def read(self, name: str, fields: StructType, key: Sequence[str] = (), keep: str = "") -> DataFrame:
        """The rows of a table as of the end of the batch before; lazy, but for upkeep. No rows if there is no table yet.

        Args:
            name: of the table.
            fields: its columns; with a key ``order_`` (bigint) among them. Columns that are stored with another type are cast.
            key: of the rows with the same key only the one with the largest ``order_`` (then of the latest batch) is given;
                no key: every row is.
            keep: SQL condition; rows for which it does not hold are not given, and removed in time. What it refuses once it
                must refuse in later batches too.
        """
        spark = self._get_session()
        if name not in self._tables:
            return spark.createDataFrame([], fields)
        self._follow_types(name, fields)
        self._keep_up(name, fields, key, keep)
        rows = self._conform_rows(name, fields)
        newest = self._select_newest(rows, key, self._find_first_batch(name)) if key else rows
        return (newest.where(keep) if keep else newest).drop(BATCH)

    def has_lookups(self) -> bool:
        """Whether ``lookup`` may be called: there is a state, and this process reaches its files."""
        return bool(self.checkpoint) and local_path(self.checkpoint) is not None

    def lookup(
        self,
        name: str,
        fields: StructType,
        key: Sequence[str],
        columns: Mapping[str, pa.Array],
        max_rows: int,
        keep: str = "",
    ) -> pa.Table | None:
        """Rows of a table as of the end of the batch before, by the values of columns, without a Spark job but for upkeep.

        Blocks. ``keep`` is for upkeep alone: rows that it refuses may be given.

        Args:
            name: of the table.
            fields: its columns, ``order_`` among them.
            key: its key columns; of a key the newest row is given.
            columns: the values of each column; null among them means rows without a value. A row whose newest version has
                other values may be given, too.
            max_rows: the most rows.
            keep: see ``read``.

        Returns:
            None if there are more rows, or if only Spark can tell: the table must be read by ``read`` in this batch.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        from spark_jobs.steps import arrow_rows

        schema = to_arrow_schema(fields, timezone="UTC")
        if name not in self._tables:
            return schema.empty_table()
        files = self._open_files(name)
        if files is None or not _are_plain(fields) or _has_other_types(files.schema(), schema):
            return None
        self._keep_up(name, fields, key, keep)
        layers = files.layers()
        if layers is None:
            return None
        rows = files.rows(columns, (layers.first, self._batch), max_rows)
        if rows.num_rows > max_rows:
            return None
        if layers.recent and set(columns) != set(key):  # a newer version of a row may have other values
            keys = {column: rows.column(column).combine_chunks() for column in key}
            newer = files.rows(keys, (layers.first + 1, self._batch), max_rows)
            if newer.num_rows > max_rows:
                return None
            rows = arrow_rows.concat_tables(rows, newer)
        with_batch = schema.append(_batch_field())
        return arrow_rows.select_newest(arrow_rows.conform_rows(rows, with_batch), key, (ORDER, BATCH)).drop_columns(
            [BATCH]
        )

    def append(self, name: str, rows: DataFrame | pa.Table, files: int = 1, key: Sequence[str] = ()) -> None:
        """Add rows at the end of the batch (``commit``); replaces what was given for this table before in the batch.

        Args:
            name: of the table.
            rows: with the columns that ``read`` is given; of a key one row. In Arrow after a ``lookup``.
            files: into how many files, at most; each may be divided.
            key: columns by which they are sorted.
        """
        self._staged[name] = _Staged(rows, files, key)

    def keep_values(self, values: dict[str, Any]) -> None:
        """Keep values (JSON) at the end of the batch, instead of those before."""
        self._new_values = values

    def commit(self) -> None:
        """Write what the batch has given, after the sink has written the batch. Blocks: runs Spark jobs."""
        if not self.checkpoint:
            return
        for name, staged in list(self._staged.items()):
            self._write_table(name, staged)
            self._tables.add(name)
            del self._staged[name]  # a commit that is repeated after an error does not write it again
        if self._new_values is not None and self._new_values != self._values:
            folder = self._open_folder(self._get_session())
            folder.write(self._make_relative_path(f"{_VALUES}/{self._batch}.json"), json.dumps(self._new_values))
            for old in [number for number in self._list_batches(folder) if number < self._batch][:-1]:
                folder.delete(
                    self._make_relative_path(f"{_VALUES}/{old}.json")
                )  # the last one stays: this batch may come again
            self._values = self._new_values
        self._clean = self._batch + 1
        self._new_values = None

    def _list_batches(self, folder: Folder) -> list[int]:
        """The batches that kept values, in order."""
        return sorted(int(name[:-5]) for name in folder.list(self._make_relative_path(_VALUES)) if name[:-5].isdigit())

    # Tables.

    def _write_table(self, name: str, staged: _Staged) -> None:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as f

        rows = staged.rows
        if not isinstance(rows, DataFrame):
            import pyarrow as pa

            from spark_jobs.steps.state.files import create_table

            numbers = pa.array([self._batch] * rows.num_rows, pa.int64())
            rows = rows.add_column(0, _batch_field(), numbers)
            files = self._open_files(name) if name in self._tables else None
            if files is None:
                create_table(str(local_path(self._make_table_path(name))), rows, _PROPERTIES)
            else:
                files.append(rows)
            return
        rows = rows.select(f.lit(self._batch).cast("bigint").alias(BATCH), "*").coalesce(max(1, staged.files))
        if staged.key:
            rows = rows.sortWithinPartitions(*staged.key)
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        writer = writer.option("maxRecordsPerFile", _ROWS_PER_FILE)
        if name not in self._tables:
            writer = writer.options(**_PROPERTIES)
        elif staged.files > 1:
            self._large.add(name)
        writer.save(self._make_table_path(name))

    def _open_files(self, name: str) -> StateFiles | None:
        """The files of a table that there is; None if this process does not reach them."""
        if not self.has_lookups():
            return None
        from deltalake.exceptions import DeltaProtocolError

        from spark_jobs.steps.state.files import StateFiles

        files = self._opened.get(name)
        if files is not None:
            files.refresh()
            return files
        try:
            return self._opened.setdefault(name, StateFiles(str(local_path(self._make_table_path(name))), BATCH))
        except DeltaProtocolError:
            return None  # features of Delta that only Spark reads

    def _find_first_batch(self, name: str) -> int:
        """The smallest batch number in a table: of its rows."""
        from pyspark.sql import functions as f

        files = self._open_files(name)
        layers = None if files is None else files.layers()
        if layers is not None:
            return layers.first
        return int(self._read_table(name).agg(f.coalesce(f.min(BATCH), f.lit(_BASE))).collect()[0][0])

    def _select_newest(self, rows: DataFrame, key: Sequence[str], first: int) -> DataFrame:
        """Of each key the row with the largest order number, then of the latest batch."""
        from pyspark.sql import functions as f

        others = f.struct(*(name for name in rows.columns if name not in key))
        recent = (
            rows.where(f"{BATCH} > {first}")
            .groupBy(*key)
            .agg(f.max_by(others, f.struct(ORDER, BATCH)).alias("recent_"))
        )
        base = rows.where(f"{BATCH} = {first}").select(*key, others.alias("base_"))
        newest = f.expr(f"CASE WHEN base_ IS NULL OR recent_.{ORDER} >= base_.{ORDER} THEN recent_ ELSE base_ END")
        pairs = base.join(recent, list(key), "full_outer").select(*key, newest.alias("newest_"))
        return pairs.select(*key, "newest_.*").select(*rows.columns)

    def _conform_rows(self, name: str, fields: StructType) -> DataFrame:
        """The rows of earlier batches with the columns ``fields`` and ``batch_``."""
        from pyspark.sql import functions as f

        table = self._read_table(name)
        there = set(table.columns)
        columns = [
            (f.col(column.name) if column.name in there else f.lit(None).cast(column.dataType)).alias(column.name)
            for column in fields
        ]
        return table.where(f"{BATCH} < {self._batch}").select(*columns, BATCH)

    def _follow_types(self, name: str, fields: StructType) -> None:
        """Write the table again where a column has another type now."""
        from pyspark.sql import functions as f

        table = self._read_table(name)
        types = {column.name: column.dataType for column in fields}
        if all(types.get(column.name, column.dataType) == column.dataType for column in table.schema):
            return
        columns = [f.col(column.name).cast(types.get(column.name, column.dataType)) for column in table.schema]
        cast = table.select(*columns)
        cast.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self._make_table_path(name))

    def _keep_up(self, name: str, fields: StructType, key: Sequence[str], keep: str) -> None:
        """Fold the rows of the last batches, if it is time. All of them are final: the batch that begins comes after them."""
        if self._kept_up.get(name) == self._batch:
            return
        self._kept_up[name] = self._batch
        files = self._open_files(name)
        layers = None if files is None else files.layers()
        age = self._batch % UPKEEP_EVERY if layers is None else UPKEEP_EVERY - layers.files
        if age > 0 and name not in self._large:
            return
        first = self._find_first_batch(name)
        if layers is None:
            numbers = self._conform_rows(name, fields).groupBy(BATCH).count().collect()
            base = sum(row["count"] for row in numbers if row[BATCH] == first)
            recent = sum(row["count"] for row in numbers) - base
        else:
            base, recent = layers.base, layers.recent
        if recent and recent >= _WORTH * base:
            self._rewrite_table(name, fields, key, keep, first)
        elif recent and files is not None and recent <= _MOST_FOLDED and _are_plain(fields):
            files.fold(key, (ORDER, BATCH), self._batch)
        elif recent:
            rows = self._conform_rows(name, fields).where(f"{BATCH} > {first}")
            folded = self._select_newest(rows, key, first) if key else rows
            writer = folded.coalesce(1).write.format("delta").mode("overwrite")
            writer.option("replaceWhere", f"{BATCH} > {first}").save(self._make_table_path(name))
        self._vacuum_table(name)
        self._large.discard(name)

    def _rewrite_table(self, name: str, fields: StructType, key: Sequence[str], keep: str, first: int) -> None:
        """Write the whole table again, as a base."""
        from pyspark.sql import functions as f

        rows = self._conform_rows(name, fields)
        whole = self._select_newest(rows, key, first) if key else rows
        whole = whole.where(keep) if keep else whole
        whole = whole.select(f.lit(_BASE).cast("bigint").alias(BATCH), *(column.name for column in fields))
        if key:
            whole = whole.repartitionByRange(*key).sortWithinPartitions(*key)
        writer = whole.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.option("maxRecordsPerFile", _ROWS_PER_FILE).save(self._make_table_path(name))

    def _vacuum_table(self, name: str) -> None:
        files = self._open_files(name)
        if files is not None:
            files.clean()
            return
        quiet = self._get_session().newSession()
        # VACUUM lists folders in as many tasks: 10,000 by default.
        quiet.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
        quiet.sql(f"VACUUM {self._quote_path(name)}").collect()

    def _read_table(self, name: str) -> DataFrame:
        return self._get_session().read.format("delta").load(self._make_table_path(name))

    # Places.

    def _get_session(self) -> SparkSession:
        if self._spark is None:
            raise ValueError("the state of a step is read before its batch begins")
        return self._spark

    def _open_folder(self, spark: SparkSession) -> Folder:
        return open_folder(self.checkpoint, spark)

    def _make_relative_path(self, name: str = "") -> str:
        return f"{FOLDER}/{self.step}/{name}" if name else f"{FOLDER}/{self.step}"

    def _make_table_path(self, name: str) -> str:
        return f"{spark_path(self.checkpoint)}/{self._make_relative_path(name)}"

    def _quote_path(self, name: str) -> str:
        return "delta.`" + self._make_table_path(name).replace("`", "``") + "`"

    def count_bytes(self) -> int:
        """The size of the tables' files."""
        return (
            sum(read_facts(self._get_session(), self._make_table_path(name)).bytes for name in self._tables)
            if self.checkpoint
            else 0
        )

    def count_rows(self) -> int:
        """The rows of the tables as they are stored, older versions of rows included. Blocks: runs Spark jobs."""
        return sum(self._read_table(name).count() for name in self._tables) if self.checkpoint else 0


def _batch_field() -> pa.Field:
    import pyarrow as pa

    return pa.field(BATCH, pa.int64())


def _are_plain(fields: StructType) -> bool:
    """Whether the columns have types that Spark and Arrow store alike."""
    from pyspark.sql import types as t

    plain = (t.BooleanType, t.IntegralType, t.FractionalType, t.BinaryType, t.DateType, t.TimestampType)
    return all(isinstance(column.dataType, plain) or column.dataType == t.StringType() for column in fields)


def _has_other_types(table: pa.Schema, schema: pa.Schema) -> bool:
    """Whether a column of the table has another type in ``schema``."""
    types = {column.name: column.type for column in table}
    return any(types.get(column.name, column.type) != column.type for column in schema)
