"""Delta Lake as the table format: appends that are in exactly once, and what is known of a table.

Each append is one Delta commit. Its ``userMetadata`` holds our progress (offsets per source, a counter, the key), and the
counter is also its ``txnVersion`` under ``txnAppId``, so that of two drivers that append the same Delta accepts one. Spark's
batch id is not used for that: it starts from 0 again when a checkpoint is lost, and Delta would then drop new rows silently.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from connectors.errors import Fatal
from spark_jobs.history import formats
from spark_jobs.history.known_rows import demand_known_rows, is_known
from spark_jobs.history.log import Offsets, find_known_offsets, is_complete
from spark_jobs.history.schema import follow_changes
from spark_jobs.history.storage import open_storage
from spark_jobs.history.writing import Appended
from spark_jobs.spark.frames import get_column, union_frames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.contract import TableChanges
    from spark_jobs.history.writing import Writing

#: A copy of the progress next to the table: Delta forgets commits after its log retention. Names with ``_`` survive VACUUM.
_SIDE: Final = "_millrace/progress.json"


class DeltaProgress(msgspec.Struct):
    """The progress of our appends to a Delta table.

    Attributes:
        counter: appends so far.
        version: Delta's version of the last one that is known here; -1 for none.
        nonce: unique per append.
        offsets: source -> topic -> partition -> the offset after the last one that is in.
        keys: the primary key's columns.
        namespaces: all that were written.
    """

    counter: int = 0
    version: int = -1
    nonce: str = ""
    offsets: dict[str, Offsets] = {}
    keys: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


def quote_path(path: str) -> str:
    """A Delta table's address in SQL."""
    return "delta.`" + path.replace("`", "``") + "`"


def is_table(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table at ``path``. Blocks."""
    return bool(open_storage(spark, path).names("_delta_log"))


def read_progress(spark: SparkSession, path: str) -> DeltaProgress:
    """Read the progress in the table at ``path``: from its newest commit of ours. Blocks."""
    if not is_table(spark, path):
        return DeltaProgress()
    side = open_storage(spark, path).read(_SIDE)
    recorded = DeltaProgress() if side is None else msgspec.json.decode(side, type=DeltaProgress)
    newer, _ = _find_newest_commit(spark, path, recorded.version)
    return recorded if newer is None else newer


def _find_newest_commit(spark: SparkSession, path: str, after: int) -> tuple[DeltaProgress | None, dict[str, str]]:
    """Our newest commit above version ``after`` with its figures; None if no such commit exists."""
    rows = (
        spark.sql(f"DESCRIBE HISTORY {quote_path(path)}")
        .where((f.col("version") > after) & f.col("userMetadata").startswith('{"millrace":'))
        .orderBy(f.col("version").desc())
        .select("version", "userMetadata", "operationMetrics")
        .limit(1)
        .collect()
    )
    for row in rows:
        commit_progress = msgspec.convert(msgspec.json.decode(row["userMetadata"])["millrace"], type=DeltaProgress)
        commit_progress.version = row["version"]
        return commit_progress, row["operationMetrics"] or {}
    return None, {}


def own_columns(spark: SparkSession, path: str, rows: DataFrame) -> list[Column]:
    """The columns of the table but those that only make its directories."""
    levels = spark.sql(f"DESCRIBE DETAIL {quote_path(path)}").collect()[0]["partitionColumns"]
    return [get_column(name) for name in rows.columns if name not in levels]


def append_changes(
    spark: SparkSession,
    path: str,
    changes: Sequence[TableChanges],
    ranges: Mapping[tuple[str, int], tuple[int, int]],
    *,
    job: str,
    writing: Writing,
    source: str = "",
    progress_before: DeltaProgress,
) -> tuple[Appended, DeltaProgress]:
    """Append the changes of one batch; what is in already of its ranges is left out. Blocks: runs jobs.

    Args:
        spark: the session.
        path: of the table.
        changes: of one table.
        ranges: of the whole batch.
        job: its name; part of ``txnAppId``.
        writing: how.
        source: whose offsets these are.
        progress_before: what the table holds, as ``read_progress`` or the last append gave it; a stale one is found out by
            Delta.

    Raises:
        Fatal: the table's schema can't take the rows, or known offsets bring rows that the table does not have.
    """
    while True:
        behind_ = find_known_offsets(ranges, progress_before.offsets.get(source, {}))
        if behind_ and writing.check:
            _demand_known_rows(spark, path, changes, behind_)
        if is_complete(ranges, behind_):
            return Appended(replayed=True), progress_before
        rows = _select_new_rows(spark, path, changes, behind_)
        buckets = writing.layout.bucket_columns(
            f.current_timestamp() if writing.by_processing_time else f.col("ums_ts_")
        )
        for name, expression in buckets:
            rows = rows.withColumn(name, expression)
        records = sum(after - first for first, after in ranges.values())
        rows = rows.coalesce(writing.tasks(records))
        done = _compute_progress(progress_before, changes, ranges, source)
        _write_rows(rows, path, [name for name, _ in buckets], done, job, writing)
        there, metrics = _find_newest_commit(spark, path, progress_before.version)
        if there is not None and there.nonce == done.nonce:
            open_storage(spark, path).replace(_SIDE, msgspec.json.encode(there))
            return Appended(
                rows=int(metrics.get("numOutputRows", 0)),
                files=int(metrics.get("numFiles", 0)),
                bytes=int(metrics.get("numOutputBytes", 0)),
            ), there
        # Another driver appended under the same counter: Delta took one of the two; look again what is in.
        progress_before = read_progress(spark, path)


def _compute_progress(
    progress_before: DeltaProgress,
    changes: Sequence[TableChanges],
    ranges: Mapping[tuple[str, int], tuple[int, int]],
    source: str,
) -> DeltaProgress:
    offsets = msgspec.convert(msgspec.to_builtins(progress_before.offsets), type=dict[str, Offsets])
    for (topic, partition), (_, after) in ranges.items():
        mine = offsets.setdefault(source, {}).setdefault(topic, {})
        mine[str(partition)] = max(mine.get(str(partition), 0), after)
    keys = [
        tuple(column.name for column in table_changes.schema.key)
        for table_changes in changes
        if table_changes.schema.key
    ]
    return DeltaProgress(
        progress_before.counter + 1,
        -1,
        uuid.uuid4().hex,
        offsets,
        keys[-1] if keys else progress_before.keys,
        tuple(
            dict.fromkeys((*progress_before.namespaces, *(table_changes.schema.namespace for table_changes in changes)))
        ),
    )


def _write_rows(
    rows: DataFrame, path: str, levels: Sequence[str], done: DeltaProgress, job: str, writing: Writing
) -> None:
    writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
    if levels:
        writer = writer.partitionBy(*levels)
    if writing.compression:
        writer = writer.option("compression", writing.compression)
    try:
        writer.option("txnAppId", f"millrace:{job}").option("txnVersion", done.counter).option(
            "userMetadata", msgspec.json.encode({"millrace": done}).decode()
        ).save(path)
    except AnalysisException as error:
        raise Fatal(f"Delta table {path}: {error}") from error


def _select_new_rows(
    spark: SparkSession, path: str, changes: Sequence[TableChanges], known_offsets: Mapping[tuple[str, int], int]
) -> DataFrame:
    levels: list[str] = []
    schema: StructType | None = None
    if is_table(spark, path):
        levels = spark.sql(f"DESCRIBE DETAIL {quote_path(path)}").collect()[0]["partitionColumns"]
        table = spark.read.format("delta").load(path)
        schema = table.drop(*levels).schema
    before = schema
    for table_changes in changes:
        schema = follow_changes(table_changes, schema, path)
    if schema is None:
        raise ValueError("no changes")
    if before is not None and any(schema[field.name].dataType != field.dataType for field in before.fields):
        # Only when it is needed: older readers refuse a table that has it.
        spark.sql(f"ALTER TABLE {quote_path(path)} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    return union_frames(
        [
            formats.conform_frame(
                table_changes.frame.where(~is_known(known_offsets)) if known_offsets else table_changes.frame, schema
            )
            for table_changes in changes
        ]
    )


def _demand_known_rows(
    spark: SparkSession, path: str, changes: Sequence[TableChanges], known_offsets: Mapping[tuple[str, int], int]
) -> None:
    table = spark.read.format("delta").load(path)

    def between(low: int | None, high: int | None) -> DataFrame:
        if low is None or high is None:
            return table
        return table.where(
            (f.col("ums_ts_") >= f.timestamp_micros(f.lit(low))) & (f.col("ums_ts_") <= f.timestamp_micros(f.lit(high)))
        )

    demand_known_rows(path, [table_changes.frame for table_changes in changes], known_offsets, between)


def optimize_table(spark: SparkSession, path: str) -> tuple[int, int]:
    """``OPTIMIZE``: files removed and added. Blocks. Readers keep their version until ``VACUUM`` (Delta keeps 7 days)."""
    metrics = spark.sql(f"OPTIMIZE {quote_path(path)}").collect()[0]["metrics"]
    return int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"])


def vacuum_table(spark: SparkSession, path: str) -> None:
    """``VACUUM`` with the table's own retention (7 days unless its properties say otherwise). Blocks."""
    spark.sql(f"VACUUM {quote_path(path)}")
