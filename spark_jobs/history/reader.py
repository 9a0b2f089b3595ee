"""Reading history: one version of a table, the table as of a time, its zipper table; as DataFrames and as SQL views.

Every DataFrame here is bound to one version of the log when it is made: what is written, rolled or compacted afterwards changes
nothing in it, for as long as the retention keeps replaced files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from spark_jobs.history.log import LOG, HistoryLog, HistoryState
from spark_jobs.history.storage import Storage, open_storage
from spark_jobs.spark.frames import get_column, quote_name, union_frames
from spark_jobs.spark.gateway import jvm_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_jobs.history.log import File

_DELTA_LOG: Final = "_delta_log"
#: How deep below a sink's path tables are looked for.
_DEPTH: Final = 4

VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
IS_CURRENT: Final = "is_current"


@dataclass(frozen=True, slots=True)
class HistoryTableEntry:
    """A table below a sink's path.

    Attributes:
        path: full address of its directory.
        name: the directory relative to the path that was searched; the last part where the path is the table itself.
        delta: whether it is a Delta table.
        namespaces: what was written to it.
        keys: its primary key.
    """

    path: str
    name: str
    delta: bool
    namespaces: tuple[str, ...]
    keys: tuple[str, ...]


def table_directories(spark: SparkSession | None, path: str) -> list[str]:
    """The directories of tables at (empty name) or below ``path``, relative to it. Blocks: lists directories."""
    storage = open_storage(spark, path)
    directories: list[str] = []

    def visit(where: str, depth: int) -> None:
        names = storage.directories(where)
        if LOG in names or _DELTA_LOG in names:
            directories.append(where)
        elif depth:
            for name in names:
                if not name.startswith(("_", ".")) and "=" not in name:
                    visit(f"{where}/{name}" if where else name, depth - 1)

    visit("", _DEPTH)
    return sorted(directories)


def find_tables(spark: SparkSession | None, path: str) -> list[HistoryTableEntry]:
    """The tables at or below ``path``, by name. Blocks: lists directories and reads logs."""
    storage = open_storage(spark, path)
    return [_describe_table(spark, path, where, storage) for where in table_directories(spark, path)]


def _describe_table(spark: SparkSession | None, path: str, where: str, root: Storage) -> HistoryTableEntry:
    address = root.uri(where)
    delta = _DELTA_LOG in root.directories(where)
    name = where or path.rstrip("/").rpartition("/")[2]
    if delta and spark is not None:
        from spark_jobs.history.delta import read_progress

        recorded = read_progress(spark, address)
        return HistoryTableEntry(address, name, True, tuple(recorded.namespaces), tuple(recorded.keys))
    state = HistoryState() if delta else HistoryLog(open_storage(spark, address)).load()
    return HistoryTableEntry(address, name, delta, tuple(state.namespaces), tuple(state.keys))


def one_table(spark: SparkSession | None, path: str, table: str | None = None) -> HistoryTableEntry:
    """The table at ``path``, or the one below it that ``table`` names: its directory, its namespace, or a pattern with ``*``.

    Raises:
        ConfigInvalid: no table matches, or several do; the message lists the tables.
    """
    tables = find_tables(spark, path)
    if not tables:
        raise ConfigInvalid(f"{path}: there are no tables there")
    chosen = (
        tables
        if table is None
        else [
            candidate
            for candidate in tables
            if candidate.name == table
            or any(_matches_name(name, table) for name in (candidate.name, *candidate.namespaces))
        ]
    )
    if len(chosen) == 1:
        return chosen[0]
    there = ", ".join(candidate.name for candidate in tables)
    request = (
        f"no table {table!r}"
        if table is not None and not chosen
        else f"{len(chosen)} tables match {table!r}"
        if table is not None
        else f"{len(tables)} tables, so --table is needed"
    )
    raise ConfigInvalid(f"{path}: {request}; there are: {there}")


def _matches_name(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def rows_of(spark: SparkSession, storage: Storage, state: HistoryState, files: Iterable[File]) -> DataFrame:
    """The rows of ``files`` in the table's newest schema; lazy."""
    from spark_jobs.history import formats
    from spark_jobs.history.schema import from_json

    schema = from_json(state.schemas[-1])
    by_form: dict[tuple[str, int], list[str]] = defaultdict(list)
    for file in sorted(files, key=lambda candidate: candidate.path):
        by_form[file.format, file.schema].append(storage.uri(file.path))
    frames = [
        formats.conform_frame(formats.load_rows(spark, paths, kind, from_json(state.schemas[index])), schema)
        for (kind, index), paths in sorted(by_form.items())
    ]
    return union_frames(frames) if frames else spark.createDataFrame([], schema)


def current_files(path: str, *, spark: SparkSession | None = None, version: int | None = None) -> list[str]:
    """Full addresses of the files of one version of the table at ``path``. Without a session: plain Python, local paths."""
    storage = open_storage(spark, path)
    return [storage.uri(name) for name in sorted(HistoryLog(storage).load(version).files)]


def read(
    spark: SparkSession,
    path: str,
    table: str | None = None,
    *,
    version: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """The history of a table: every change, with its UMS columns. Lazy, bound to one version.

    Args:
        spark: the session.
        path: the table's directory, or the sink's path with ``table``.
        table: see ``one_table``.
        version: of the log (default the newest); back to the retention.
        since: only rows with ``since <= ums_ts_``; files without such rows are not opened.
        until: only rows with ``ums_ts_ < until``; the same.

    Raises:
        ConfigInvalid: no such table.
        Fatal: no such version.
    """
    return _read_changes(
        spark,
        one_table(spark, path, table),
        version=version,
        low=_to_micros(since),
        high=None if until is None else (_to_micros(until) or 0) - 1,
        high_id=None,
    )


def _read_changes(
    spark: SparkSession,
    table: HistoryTableEntry,
    *,
    version: int | None = None,
    low: int | None = None,
    high: int | None = None,
    low_id: int | None = None,
    high_id: int | None = None,
) -> DataFrame:
    from pyspark.sql import functions as f

    if table.delta:
        reader = spark.read.format("delta")
        whole = (reader if version is None else reader.option("versionAsOf", version)).load(table.path)
        from spark_jobs.history.delta import own_columns

        whole = whole.select(*own_columns(spark, table.path, whole))
    else:
        storage = open_storage(spark, table.path)
        state = HistoryLog(storage).load(version)
        if not state.schemas:
            raise ConfigInvalid(f"{table.path}: the table has no rows yet")
        whole = rows_of(
            spark, storage, state, prune_files(state.files.values(), low=low, high=high, low_id=low_id, high_id=high_id)
        )
    if low is not None:
        whole = whole.where(f.col("ums_ts_") >= f.timestamp_micros(f.lit(low)))
    if high is not None:
        whole = whole.where(f.col("ums_ts_") <= f.timestamp_micros(f.lit(high)))
    if low_id is not None:
        whole = whole.where(f.col("ums_id_") >= low_id)
    return whole if high_id is None else whole.where(f.col("ums_id_") <= high_id)


def read_range(
    spark: SparkSession,
    table: HistoryTableEntry,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    low_id: int | None = None,
    high_id: int | None = None,
) -> DataFrame:
    """The changes of a table with ``since <= ums_ts_ < until`` and ``low_id <= ums_id_ <= high_id``, newest version. Lazy.

    Files without such rows are not opened. None: no bound.
    """
    low, high = time_bounds(since, until)
    return _read_changes(spark, table, low=low, high=high, low_id=low_id, high_id=high_id)


def time_bounds(since: datetime | None, until: datetime | None) -> tuple[int | None, int | None]:
    """``since <= t < until`` as the smallest and the largest µs since 1970. Pure."""
    return _to_micros(since), None if until is None else (_to_micros(until) or 0) - 1


def prune_files(
    files: Iterable[File],
    *,
    low: int | None = None,
    high: int | None = None,
    low_id: int | None = None,
    high_id: int | None = None,
) -> list[File]:
    """The files that can hold rows with ``low <= ums_ts_ <= high`` (µs) and ``low_id <= ums_id_ <= high_id``. Pure."""

    def can(file: File) -> bool:
        if (low is not None or high is not None) and file.min_ts is None:
            return False
        return not (
            (low is not None and (file.max_ts or 0) < low)
            or (high is not None and (file.min_ts or 0) > high)
            or (low_id is not None and file.max_id is not None and file.max_id < low_id)
            or (high_id is not None and (file.min_id is None or file.min_id > high_id))
        )

    return [file for file in files if can(file)]


def _to_micros(when: datetime | None) -> int | None:
    if when is None:
        return None
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def parse_at(point_text: str) -> datetime | int:
    """A point of ``--at``: an ``ums_id_`` (digits) or a time (ISO 8601; without an offset it is UTC; a date is its start).

    Raises:
        ConfigInvalid: it is neither.
    """
    if re.fullmatch(r"-?\d+", point_text.strip()):
        return int(point_text)
    try:
        when = datetime.fromisoformat(point_text.strip())
    except ValueError as error:
        raise ConfigInvalid(
            f"{point_text!r} is neither a time like 2026-11-21T10:00:00Z nor an ums_id_ (digits)"
        ) from error
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def _key_columns(table: HistoryTableEntry, key: Sequence[str] | None) -> list[str]:
    key_names = list(key or table.keys)
    if not key_names:
        raise ConfigInvalid(
            f"{table.name}: the source gave no primary key: say with key=[...] (--key a,b) which columns tell "
            "rows apart"
        )
    return key_names


def snapshot(
    spark: SparkSession,
    path: str,
    table: str | None = None,
    *,
    at: datetime | int | None = None,
    key: Sequence[str] | None = None,
    version: int | None = None,
) -> DataFrame:
    """The table as it was: per key the row with the largest ``ums_id_`` among those up to ``at``, without deleted ones. Lazy.

    Args:
        spark: the session.
        path: see ``read``.
        table: see ``one_table``.
        at: a time: rows with ``ums_ts_ <= at`` count; a number: rows with ``ums_id_ <= at``; None: all.
        key: columns instead of the source's primary key.
        version: of the log.

    Raises:
        ConfigInvalid: no such table, or no key is known.
    """
    history_table = one_table(spark, path, table)
    rows = _read_changes(
        spark,
        history_table,
        version=version,
        high=_to_micros(at) if isinstance(at, datetime) else None,
        high_id=at if isinstance(at, int) else None,
    )
    return select_newest(rows, _key_columns(history_table, key))


def select_newest(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Of the changes ``rows`` per key the newest, without keys whose newest change is a delete; lazy.

    Before images (``b``) don't count. Of rows with one ``ums_id_`` (a source that repeats itself) the one read last counts,
    of those of one message the one with the largest ``ums_uid_``.
    """
    from pyspark.sql import functions as f

    whole = f.struct(*[get_column(name) for name in rows.columns])
    by_key = rows.where(f.col("ums_op_") != "b").groupBy(
        *[get_column(name).alias(f"key_{index}_") for index, name in enumerate(key)]
    )
    return (
        by_key.agg(f.max_by(whole, _order_column()).alias("row_"))
        .where(f.col("row_.ums_op_") != "d")
        .select(*[f.col("row_").getField(name).alias(name) for name in rows.columns])
    )


def _order_column() -> Column:
    from pyspark.sql import functions as f

    return f.struct("ums_id_", "kafka_offset_", "ums_uid_")


def zipper(
    spark: SparkSession,
    path: str,
    table: str | None = None,
    *,
    key: Sequence[str] | None = None,
    version: int | None = None,
) -> DataFrame:
    """Every version that a row ever had, with the time it was valid: ``valid_from <= T < valid_to`` (null: still). Lazy.

    The rows valid at T are exactly those of ``snapshot(at=T)``. ``is_current`` tells the newest, not deleted versions. A
    version that was overtaken at once (same ``ums_ts_``, or a clock that went back) has an empty interval. Deletes end the
    version before them and have no row of their own.
    """
    history_table = one_table(spark, path, table)
    return make_zipper(_read_changes(spark, history_table, version=version), _key_columns(history_table, key))


def make_zipper(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The zipper table of the changes ``rows``; lazy. See ``zipper``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    keys = [get_column(name) for name in key]
    # Rows that repeat one change (same ums_id_): the one read last stands for all.
    repeated = Window.partitionBy(*keys, "ums_id_").orderBy(f.col("kafka_offset_").desc(), f.col("ums_uid_").desc())
    later = Window.partitionBy(*keys).orderBy("ums_id_").rowsBetween(1, Window.unboundedFollowing)
    once = rows.where(f.col("ums_op_") != "b").withColumn("repeat_", f.row_number().over(repeated)).where("repeat_ = 1")
    # A later change counts from its own ums_ts_ on, so the first of the later ones ends this version.
    ended = once.withColumn("end_", f.min("ums_ts_").over(later)).withColumn("more_", f.count(f.lit(1)).over(later))
    return ended.where(f.col("ums_op_") != "d").select(
        *[get_column(name) for name in rows.columns],
        f.col("ums_ts_").alias(VALID_FROM),
        f.when(f.col("more_") > 0, f.greatest("end_", "ums_ts_")).alias(VALID_TO),
        (f.col("more_") == 0).alias(IS_CURRENT),
    )


def register(
    spark: SparkSession, path: str, *, tables: Sequence[str] | None = None, key: Sequence[str] | None = None
) -> list[str]:
    """Make SQL views of the tables below ``path``; their names. Bound to the newest version: call again to see newer rows.

    Per table: ``<table>_history`` (all changes), ``<table>_current``, ``<table>_zipper`` and the table function
    ``<table>_at(time)``: ``SELECT * FROM orders_at(TIMESTAMP '2026-11-21 10:00:00')``. ``<table>`` is the table's own name in
    lower case, other characters as ``_``; the whole namespace where two tables share it. Tables without a key have the first.
    """
    history_tables = (
        find_tables(spark, path) if tables is None else [one_table(spark, path, table_name) for table_name in tables]
    )
    registered: list[str] = []
    for table_name, name in zip(
        history_tables,
        view_names([_shorten_name(table) for table in history_tables], [table.name for table in history_tables]),
        strict=True,
    ):
        rows = _read_changes(spark, table_name)
        rows.createOrReplaceTempView(f"{name}_history")
        registered.append(f"{name}_history")
        keys = list(key or table_name.keys)
        if not keys:
            continue
        select_newest(rows, keys).createOrReplaceTempView(f"{name}_current")
        make_zipper(rows, keys).createOrReplaceTempView(f"{name}_zipper")
        spark.sql(_at_function(spark, name, rows))
        registered += [f"{name}_current", f"{name}_zipper", f"{name}_at"]
    return registered


def _at_function(spark: SparkSession, name: str, rows: DataFrame) -> str:
    columns = ", ".join(map(quote_name, rows.columns))
    # Of Python's and Java's string forms of a type only this one quotes the members of structs.
    sql_type = jvm_of(spark).org.apache.spark.sql.types.DataType.fromJson
    types = ", ".join(
        f"{quote_name(field.name)} {sql_type(field.dataType.json()).sql()}" for field in rows.schema.fields
    )
    return (
        f"CREATE OR REPLACE TEMPORARY FUNCTION {name}_at(at TIMESTAMP) RETURNS TABLE ({types}) RETURN "  # noqa: S608
        f"SELECT {columns} FROM {name}_zipper WHERE {VALID_FROM} <= {name}_at.at "
        f"AND ({VALID_TO} IS NULL OR {name}_at.at < {VALID_TO})"
    )


def _shorten_name(table: HistoryTableEntry) -> str:
    from spark_jobs.history.layout import name_parts

    return name_parts(table.namespaces[-1])["table"] if table.namespaces else table.name.rpartition("/")[2]


def view_names(short: Sequence[str], full: Sequence[str]) -> list[str]:
    """SQL names of tables: ``short`` ones where they differ, else from ``full``. Pure."""

    def plain(table_name: str) -> str:
        name = re.sub(r"[^a-z0-9_]", "_", table_name.lower())
        return name if name[:1].isalpha() else f"t_{name}"

    names = [plain(table_name) for table_name in short]
    return [name if names.count(name) == 1 else plain(whole) for name, whole in zip(names, full, strict=True)]


def describe_files(spark: SparkSession, table: HistoryTableEntry) -> dict[str, Any]:
    """Describe a table for a command: files, rows, bytes, small files, offsets."""
    state = HistoryLog(open_storage(spark, table.path)).load()
    return {
        "table": table.name,
        "version": state.version,
        "files": len(state.files),
        "rows": state.rows,
        "bytes": sum(file.bytes for file in state.files.values()),
        "small_files": sum(file.small for file in state.files.values()),
        "offsets": state.offsets,
    }
