"""The files sink: each batch's changes into the history of their tables, exactly once; rolling, compaction and expiry between.

pyspark is imported with the first table, so that options can be checked without it.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING, ClassVar, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.contract import Batch, JobContext, Sink, TableChanges, TableSchema
from spark_jobs.history.layout import PARTS
from spark_jobs.history.rolling import small_files
from spark_jobs.metrics import JobMetric
from spark_jobs.sinks.files import config as options
from spark_jobs.spark.causes import WorkerCrashed, cause_of

if TYPE_CHECKING:
    from connectors.options import Config, ConfigDef
    from spark_jobs.history.delta import DeltaProgress
    from spark_jobs.history.hive import HiveTable
    from spark_jobs.history.table import HistoryDirectory
    from spark_jobs.history.upkeep import UpkeepResult
    from spark_jobs.history.writing import Appended, HistoryWriter

#: The time in seconds in which ``idle`` may start further units of work; a started one is finished.
_IDLE_S: Final = 1.0
#: The interval between two searches for files and log entries that are no longer needed, per table, in ms.
_VACUUM_MS: Final = 60_000
#: Delta: appends after which a table's files are merged.
_DELTA_APPENDS: Final = 50

#: Columns that name a row's shard.
NUMBERS: Final = PARTS[5:]

METRICS: Final = (
    JobMetric("files_written_total", "counter", "files", "Data files that batches of this run wrote."),
    JobMetric("files_bytes_total", "counter", "bytes", "Size of these files."),
    JobMetric("files_commits_total", "counter", "", "Commits of batches into tables' logs in this run, one per table."),
    JobMetric(
        "files_replays_total", "counter", "", "Commits that were in the log already and were left out in this run."
    ),
    JobMetric("files_compactions_total", "counter", "", "Merged files that rolling and compaction made in this run."),
    JobMetric("files_compacted_bytes_total", "counter", "bytes", "Size of these files."),
    JobMetric("files_deleted_total", "counter", "files", "Replaced files that were deleted in this run."),
    JobMetric("files_small", "gauge", "files", "Files of single batches that are still to be merged."),
    JobMetric("files_tables", "gauge", "", "Tables that this run knows."),
)


class FilesSink(Sink):
    """Writes the history of tables. See docs/jobs/files.md."""

    config_def: ClassVar[ConfigDef] = options.CONFIG
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    not_read_back: ClassVar[str] = "the history keeps every change as a row: there is no row of a key to compare"
    metrics: ClassVar[tuple[JobMetric, ...]] = METRICS

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._config = context.config
        self._root = str(self._config[options.PATH]).rstrip("/")
        self._writing = options.writing_of(self._config)
        self._rolling = options.rolling_of(self._config)
        self._delta = self._writing.format == "delta"
        self._tables: dict[str, tuple[HistoryDirectory, HistoryWriter]] = {}
        #: Tables found at the start that no batch has touched yet.
        self._untouched: deque[str] = deque()
        #: Tables in the order in which they are looked after.
        self._turn: deque[str] = deque()
        self._vacuumed: dict[str, float] = {}
        self._listed: dict[str, tuple[int, float]] = {}
        self._appends: dict[str, int] = defaultdict(int)
        self._database = str(self._config[options.HIVE_DATABASE])
        self._registered: dict[str, HiveTable] = {}
        #: What this run last put into its Delta tables.
        self._progress: dict[str, DeltaProgress] = {}

    @classmethod
    def jars(cls, config: Config) -> tuple[str, ...]:
        """See ``Sink``."""
        return ("delta",) if config[options.FORMAT] == "delta" else ()

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """See ``Sink``."""
        return [*options.find_problems(config), *options.hive_problems(config)]

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """See ``Sink``."""
        return [
            f"writes {config[options.FORMAT]} files below {config[options.PATH]}, by {config[options.PARTITION_BY]}",
            f"listing readers see rows: {config[options.LISTING]}",
        ]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """See ``Sink``: a local path has to be writable."""
        path = str(config[options.PATH])
        local = path.removeprefix("file://") if path.startswith("file:") else path
        if "://" in local or not local.startswith("/"):
            return []
        while not os.path.exists(local):  # noqa: PTH110 - plain strings, as Hadoop takes them
            local = os.path.dirname(local)  # noqa: PTH120
        if os.path.isdir(local) and os.access(local, os.W_OK | os.X_OK):  # noqa: PTH112
            return []
        return [f"{options.PATH}: {local} is not a directory that can be written"]

    def open(self) -> None:
        """See ``Sink``: finds the tables that are there."""
        for metric in METRICS:
            self.context.metrics.setdefault(metric.name, 0)
        if self._database and not self.context.spark.catalog.databaseExists(self._database):
            raise Fatal(
                f"{options.HIVE_DATABASE}: Hive has no database {self._database}; run: CREATE DATABASE {self._database}"
            )
        if not self._delta:
            from spark_jobs.history.reader import table_directories

            self._untouched.extend(table_directories(self.context.spark, self._root))

    def refusal(self, schema: TableSchema) -> str:
        """See ``Sink``."""
        from pyspark.sql.types import StructField, StructType

        from spark_jobs.history.schema import name_problem

        columns = StructType([StructField(column.name, column.type) for column in schema.columns])
        problem = name_problem(schema.namespace, self._writing.format, columns)
        if problem or not self._database:
            return problem
        from spark_jobs.history.hive import type_problem

        return type_problem(schema.namespace, columns)

    def write(self, batch: Batch) -> int:
        """See ``Sink``."""
        groups: dict[str, list[TableChanges]] = defaultdict(list)
        layout = self._writing.layout
        for changes in batch.changes():
            parts = divide_by_shard(changes) if layout.by_shard and changes.schema.sharded else [(None, changes)]
            for shard, part in parts:
                groups[layout.directory(changes.schema.namespace, shard)].append(part)
        written = 0
        for name, group in sorted(groups.items()):
            try:
                done = self._append_delta(name, group, batch) if self._delta else self._append_files(name, group, batch)
            except Exception as error:
                raise _explain_error(error, f"{self._root}/{name}") from error
            written += done.rows
            self._count_append(name, done)
        # Once for all tables: it looks at the files of each.
        self._set_gauges()
        return written

    def _append_files(self, name: str, group: list[TableChanges], batch: Batch) -> Appended:
        table, writer = self._open_table(name)
        return table.append(
            group,
            batch.ranges,
            writer=writer,
            writing=self._writing,
            batch=batch.id,
            source=self._config[options.SOURCE_ID],
        )

    def _append_delta(self, name: str, group: list[TableChanges], batch: Batch) -> Appended:
        from spark_jobs.history import delta

        progress = self._progress.get(name)
        if progress is None:
            progress = delta.read_progress(self.context.spark, f"{self._root}/{name}")
        done, self._progress[name] = delta.append_changes(
            self.context.spark,
            f"{self._root}/{name}",
            group,
            batch.ranges,
            job=self.context.name,
            writing=self._writing,
            source=self._config[options.SOURCE_ID],
            progress_before=progress,
        )
        return done

    def _count_append(self, name: str, done: Appended) -> None:
        self._add_metric("files_replays_total", int(done.replayed))
        self._add_metric("files_commits_total", int(bool(done.files)))
        self._add_metric("files_written_total", done.files)
        self._add_metric("files_bytes_total", done.bytes)
        self._appends[name] += bool(done.files)

    def _add_metric(self, name: str, value: float) -> None:
        self.context.metrics[name] = self.context.metrics.get(name, 0) + value

    def _set_gauges(self) -> None:
        self.context.metrics["files_tables"] = len(self._appends.keys() | self._tables.keys()) + len(self._untouched)
        self.context.metrics["files_small"] = sum(
            file.small for table, _ in self._tables.values() for file in table.log.state(refresh=False).files.values()
        )

    def _open_table(self, name: str) -> tuple[HistoryDirectory, HistoryWriter]:
        if name not in self._tables:
            from spark_jobs.history.storage import HadoopStorage
            from spark_jobs.history.table import HistoryDirectory

            table = HistoryDirectory(
                self.context.spark,
                HadoopStorage(self.context.spark, f"{self._root}/{name}"),
                interval=self._config[options.CHECKPOINT_INTERVAL],
            )
            self._tables[name] = table, table.open(self.context.name)
            self._turn.append(name)
        return self._tables[name]

    def idle(self) -> None:
        """See ``Sink``: one table after the other, for about a second."""
        until = time.monotonic() + _IDLE_S
        if self._delta:
            self._idle_delta()
            return
        if self._untouched:
            self._open_table(self._untouched.popleft())
        for _ in range(len(self._turn)):
            if time.monotonic() >= until:
                break
            name = self._turn[0]
            self._turn.rotate(-1)
            self._look_after(name, until)
        self._set_gauges()

    def _look_after(self, name: str, until: float) -> None:
        """Upkeep of one table; what is due when the time is up waits for the next turn."""
        from spark_jobs.history import upkeep

        table, writer = self._tables[name]
        try:
            for done in upkeep.run_upkeep(
                table, self._rolling, writer, kind=self._writing.format, compression=self._writing.compression
            ):
                self._count_upkeep(done)
                if time.monotonic() >= until:
                    break
            self._manifest(name)
            self._register_table(name)
            if (time.monotonic() - self._vacuumed.get(name, 0)) * 1000 >= min(
                _VACUUM_MS, max(self._rolling.retention, 1000)
            ):
                self._vacuumed[name] = time.monotonic()
                self._count_upkeep(upkeep.vacuum_files(table, self._rolling.retention, writer))
        except Exception as error:
            raise _explain_error(error, f"{self._root}/{name}") from error

    def _count_upkeep(self, done: UpkeepResult) -> None:
        self._add_metric("files_compactions_total", done.outputs)
        self._add_metric("files_compacted_bytes_total", done.bytes)
        self._add_metric("files_deleted_total", done.deleted)

    def _manifest(self, name: str) -> None:
        from spark_jobs.history import upkeep

        every = self._config[options.MANIFEST_INTERVAL]
        table, _ = self._tables[name]
        version, at = self._listed.get(name, (-1, 0.0))
        newest = table.log.state(refresh=False).version
        if every >= 0 and newest != version and (time.monotonic() - at) * 1000 >= every:
            upkeep.write_manifest(table)
            self._listed[name] = newest, time.monotonic()

    def _register_table(self, name: str) -> None:
        if not self._database:
            return
        from spark_jobs.history.hive import HiveTable, table_name

        table, _ = self._tables[name]
        if name not in self._registered:
            self._registered[name] = HiveTable(
                self.context.spark,
                self._database,
                table_name(name),
                table.storage.root,
                self._writing.format,
                tuple(level.name for level in self._writing.layout.levels),
            )
        self._registered[name].follow(table.log.state(refresh=False))

    def _idle_delta(self) -> None:
        from spark_jobs.history import delta

        for name, appends in self._appends.items():
            if appends >= _DELTA_APPENDS:
                removed, added = delta.optimize_table(self.context.spark, f"{self._root}/{name}")
                self.context.log.info("%s: %d files merged into %d", name, removed, added)
                self._add_metric("files_compactions_total", added)
                self._appends[name] = 0
                break

    def close(self) -> None:
        """See ``Sink``: rolls what is left where the job will not come back to it."""
        roll_mode = self._config[options.ROLL_ON_CLOSE]
        if (
            self._delta
            or roll_mode == "never"
            or (roll_mode == "auto" and self._config.raw.get("trigger.mode") != "available-now")
        ):
            return
        from spark_jobs.history import upkeep

        for name, (table, writer) in self._tables.items():
            try:
                for bucket in small_files(table.guard(writer)):
                    self._count_upkeep(
                        upkeep.roll_bucket(
                            table,
                            bucket,
                            self._rolling.size,
                            writer,
                            kind=self._writing.format,
                            compression=self._writing.compression,
                        )
                    )
                self._manifest(name)
                self._register_table(name)
            except Exception as error:  # noqa: BLE001 - the rows are in; the next run or `millrace job compact` rolls them
                self.context.log.warning("%s: small files were not merged at the end: %s", name, error)


def divide_by_shard(changes: TableChanges) -> list[tuple[tuple[int, int] | None, TableChanges]]:
    """The changes of each shard of a table; runs a Spark job that looks which shards there are."""
    from pyspark.sql import functions as f

    first_name, second_name = NUMBERS
    pairs = sorted(
        (row[first_name], row[second_name])
        for row in changes.frame.select(first_name, second_name).distinct().collect()
    )
    return [
        (
            pair,
            TableChanges(
                changes.schema, changes.frame.where((f.col(first_name) == pair[0]) & (f.col(second_name) == pair[1]))
            ),
        )
        for pair in pairs
    ]


def _explain_error(error: Exception, where: str) -> Exception:
    """``error`` as the frame wants it: passing faults of the file system as ``Retriable``, with the place."""
    if isinstance(cause_of(error), WorkerCrashed):
        return error  # the frame counts these
    java = getattr(error, "java_exception", None)
    depth = 0
    while java is not None and depth < 20:  # causes of causes: Spark wraps what its tasks met
        kind = str(java.getClass().getName())
        if kind.endswith(("AccessControlException", "AccessDeniedException")):
            return Fatal(f"{where}: no right to write there: {java.getMessage()}")
        if kind.startswith("java.net.") or kind in _PASSING:
            return Retriable(f"{where}: {kind}: {java.getMessage()}")
        java = java.getCause()
        depth += 1
    return error


#: Transient faults of a file system, in addition to all of ``java.net``.
_PASSING: Final = frozenset(
    {
        "java.io.IOException",
        "java.io.EOFException",
        "java.io.InterruptedIOException",
        "org.apache.hadoop.ipc.RemoteException",
        "org.apache.hadoop.ipc.StandbyException",
        "org.apache.hadoop.ipc.RetriableException",
        "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
        "org.apache.hadoop.fs.s3a.AWSServiceThrottledException",
    }
)
