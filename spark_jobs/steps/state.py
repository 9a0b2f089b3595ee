"""The state that a step keeps from batch to batch: Delta tables and a few values, in the job's checkpoint.

A batch sees the state as it was before the batch, however often the batch is repeated: every row has the number of the
batch that wrote it, and a batch reads only rows of smaller numbers. So a crash at any moment does no harm. Before the
sink has written, the state is untouched. After the rows of a batch were appended, but before Spark's commit of the
batch, the same batch comes again: it does not see these rows, and removes them before it appends its own.

An append costs what the batch brings. The newest row of a key counts; every ``UPKEEP_EVERY`` batches what has come
since is folded into one file, or, once it is a quarter of the table, the whole table is written again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.checkpoint import open_folder, spark_path
from spark_jobs.steps.delta_log import read_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.checkpoint import Folder

#: Column: the batch that wrote the row; ``_BASE`` for rows that were folded into the whole.
BATCH: Final = "batch_"
#: Column of tables with a key: the order number of the change that made the row.
ORDER: Final = "order_"
_BASE: Final = -1
#: Folder in the checkpoint; a folder for each step, and in it one for each table.
FOLDER: Final = "steps"
_VALUES: Final = "values"
#: Batches between two looks at whether a table is worth to be folded.
UPKEEP_EVERY: Final = 50
#: The part of a table that must be new for the whole to be written again.
_WORTH: Final = 0.25
#: Readers of the state are in this driver and end with their batch: old files may go soon.
_PROPERTIES: Final = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


@dataclass(slots=True)
class _Staged:
    rows: DataFrame
    files: int


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
        folder = self._folder(spark)
        names = folder.list(self._name())
        self._tables = {name for name in names if name != _VALUES and folder.list(self._name(f"{name}/_delta_log"))}
        for name in sorted(self._tables):
            if self._read(name).where(f"{BATCH} >= {batch}").limit(1).collect():
                spark.sql(f"DELETE FROM {self._quoted(name)} WHERE {BATCH} >= {batch}").collect()  # noqa: S608 - names of ours
        earlier = [number for number in self._numbers(folder) if number < batch]
        text = folder.read(self._name(f"{_VALUES}/{earlier[-1]}.json")) if earlier else None
        self._values = json.loads(text) if text else {}

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
        spark = self._session()
        if name not in self._tables:
            return spark.createDataFrame([], fields)
        self._follow(name, fields)
        due = self._batch % UPKEEP_EVERY == 0 or name in self._large
        if due and self._kept_up.get(name) != self._batch:
            self._upkeep(name, fields, key, keep)
            self._kept_up[name] = self._batch
            self._large.discard(name)
        rows = self._newest(self._conformed(name, fields), key)
        return (rows.where(keep) if keep else rows).drop(BATCH)

    def append(self, name: str, rows: DataFrame, files: int = 1) -> None:
        """Add rows at the end of the batch (``commit``); replaces what was given for this table before in the batch.

        Args:
            name: of the table.
            rows: with the columns that ``read`` is given; of a key one row.
            files: into how many files, at most.
        """
        self._staged[name] = _Staged(rows, files)

    def keep_values(self, values: dict[str, Any]) -> None:
        """Keep values (JSON) at the end of the batch, instead of those before."""
        self._new_values = values

    def commit(self) -> None:
        """Write what the batch has given, after the sink has written the batch. Blocks: runs Spark jobs."""
        if not self.checkpoint:
            return
        from pyspark.sql import functions as f

        for name, staged in list(self._staged.items()):
            writer = (
                staged.rows.withColumn(BATCH, f.lit(self._batch).cast("bigint")).coalesce(max(1, staged.files)).write
            )
            writer = writer.format("delta").mode("append").option("mergeSchema", "true")
            if name not in self._tables:
                writer = writer.options(**_PROPERTIES)
            writer.save(self._path(name))
            self._tables.add(name)
            if staged.files > 1:
                self._large.add(name)
            del self._staged[name]  # a commit that is repeated after an error does not write it again
        if self._new_values is not None and self._new_values != self._values:
            folder = self._folder(self._session())
            folder.write(self._name(f"{_VALUES}/{self._batch}.json"), json.dumps(self._new_values))
            for old in [number for number in self._numbers(folder) if number < self._batch][:-1]:
                folder.delete(self._name(f"{_VALUES}/{old}.json"))  # the last one stays: this batch may come again
            self._values = self._new_values
        self._clean = self._batch + 1
        self._new_values = None

    def _numbers(self, folder: Folder) -> list[int]:
        """The batches that kept values, in order."""
        return sorted(int(name[:-5]) for name in folder.list(self._name(_VALUES)) if name[:-5].isdigit())

    # Tables.

    def _newest(self, rows: DataFrame, key: Sequence[str]) -> DataFrame:
        """Of each key the newest row."""
        from pyspark.sql import functions as f

        if not key:
            return rows
        others = [name for name in rows.columns if name not in key]
        recent = (
            rows.where(f"{BATCH} <> {_BASE}")
            .groupBy(*key)
            .agg(f.max_by(f.struct(*others), f.struct(ORDER, BATCH)).alias("newest_"))
            .select(*key, "newest_.*")
            .select(*rows.columns)
            .localCheckpoint(eager=True)  # used twice; a plan that contains it twice doubles with every further use
        )
        base = rows.where(f"{BATCH} = {_BASE}")
        return base.join(recent.select(*key), list(key), "left_anti").select(*rows.columns).unionAll(recent)

    def _conformed(self, name: str, fields: StructType) -> DataFrame:
        """The rows of earlier batches with the columns ``fields`` and ``batch_``."""
        from pyspark.sql import functions as f

        table = self._read(name)
        there = set(table.columns)
        columns = [
            (f.col(column.name) if column.name in there else f.lit(None).cast(column.dataType)).alias(column.name)
            for column in fields
        ]
        return table.where(f"{BATCH} < {self._batch}").select(*columns, BATCH)

    def _follow(self, name: str, fields: StructType) -> None:
        """Write the table again where a column has another type now."""
        from pyspark.sql import functions as f

        table = self._read(name)
        types = {column.name: column.dataType for column in fields}
        if all(types.get(column.name, column.dataType) == column.dataType for column in table.schema):
            return
        columns = [f.col(column.name).cast(types.get(column.name, column.dataType)) for column in table.schema]
        cast = table.select(*columns)
        cast.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(self._path(name))

    def _upkeep(self, name: str, fields: StructType, key: Sequence[str], keep: str) -> None:
        """Fold the rows of the last batches. All of them are final: the batch that begins comes after them."""
        from pyspark.sql import functions as f

        rows = self._conformed(name, fields)
        recent, base = rows.where(f"{BATCH} <> {_BASE}"), rows.where(f"{BATCH} = {_BASE}")
        count = recent.count()
        if count and count >= _WORTH * base.count():
            whole = self._newest(rows, key)
            whole = (whole.where(keep) if keep else whole).withColumn(BATCH, f.lit(_BASE).cast("bigint"))
            whole.write.format("delta").mode("overwrite").save(self._path(name))
        elif count:
            folded = self._newest(recent, key).coalesce(1).write.format("delta").mode("overwrite")
            folded.option("replaceWhere", f"{BATCH} <> {_BASE}").save(self._path(name))
        quiet = self._session().newSession()
        # VACUUM lists folders in as many tasks: 10,000 by default.
        quiet.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
        quiet.sql(f"VACUUM {self._quoted(name)}").collect()

    def _read(self, name: str) -> DataFrame:
        return self._session().read.format("delta").load(self._path(name))

    # Places.

    def _session(self) -> SparkSession:
        if self._spark is None:
            raise ValueError("the state of a step is read before its batch begins")
        return self._spark

    def _folder(self, spark: SparkSession) -> Folder:
        return open_folder(self.checkpoint, spark)

    def _name(self, name: str = "") -> str:
        return f"{FOLDER}/{self.step}/{name}" if name else f"{FOLDER}/{self.step}"

    def _path(self, name: str) -> str:
        return f"{spark_path(self.checkpoint)}/{self._name(name)}"

    def _quoted(self, name: str) -> str:
        return "delta.`" + self._path(name).replace("`", "``") + "`"

    def count_bytes(self) -> int:
        """The size of the tables' files."""
        return (
            sum(read_facts(self._session(), self._path(name)).bytes for name in self._tables) if self.checkpoint else 0
        )

    def count_rows(self) -> int:
        """The rows of the tables as they are stored, older versions of rows included. Blocks: runs Spark jobs."""
        return sum(self._read(name).count() for name in self._tables) if self.checkpoint else 0
