"""One table of history: appends that are in exactly once. Upkeep (rolling, compaction, vacuum) is in ``upkeep``."""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from msgspec.structs import replace
from pyspark.sql import functions as f

from connectors.errors import Fatal, Fenced, Retriable
from spark_jobs.history import formats
from spark_jobs.history.known_rows import demand_known_rows, is_known
from spark_jobs.history.log import (
    BATCH_PREFIX,
    SMALL,
    STAGING,
    File,
    HistoryEntry,
    HistoryLog,
    find_known_offsets,
    is_complete,
)
from spark_jobs.history.reader import prune_files, rows_of
from spark_jobs.history.schema import follow_changes, from_json, to_json
from spark_jobs.history.writing import Appended, HistoryWriter
from spark_jobs.spark.frames import union_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.contract import TableChanges
    from spark_jobs.history.log import HistoryState
    from spark_jobs.history.storage import FileStatus, Storage
    from spark_jobs.history.writing import Writing

_LOG: Final = logging.getLogger(__name__)
#: Files in the making that nothing refers to are deleted when they are this old (ms); writers give up at half of it.
ORPHAN_AGE: Final = 60 * 60_000
#: Files of a batch below this together (bytes) are counted by one task, without a shuffle.
_ONE_TASK: Final = 16 * 1024 * 1024


def now_ms() -> int:
    """The time, ms since 1970."""
    return time.time_ns() // 1_000_000


class HistoryDirectory:
    """One table's directory. Used by one thread; other processes may work on the same table.

    Args:
        spark: the session.
        storage: of the table's directory.
        clock: ms since 1970.
    """

    def __init__(
        self, spark: SparkSession, storage: Storage, *, interval: int = 50, clock: Callable[[], int] = now_ms
    ) -> None:
        self.spark = spark
        self.storage = storage
        self.clock = clock
        self.log = HistoryLog(storage, interval=interval)

    # Commits

    def open(self, job: str) -> HistoryWriter:
        """Take the table for a new run of ``job``: earlier runs can't commit any more; what they left behind is removed.

        What an earlier run decided and did not finish is finished.
        """
        writer = HistoryWriter(job, uuid.uuid4().hex)
        while self.log.commit(HistoryEntry("open", self.clock(), job=job, epoch=writer.epoch)) is None:
            pass
        self.finish_all(writer)
        self.sweep(writer.prefix, 0)
        return writer

    def guard(self, writer: HistoryWriter) -> HistoryState:
        """The newest state.

        Raises:
            Fenced: a newer run of the writer's job has the table.
        """
        state = self.log.state()
        if writer.job and state.epochs.get(writer.job) != writer.epoch:
            raise Fenced(
                f"{self.storage.root}: another run of job {writer.job} has taken the table: two drivers of one job "
                "run; stop one of them"
            )
        return state

    def finish_all(self, writer: HistoryWriter) -> None:
        """Complete what was prepared and not finished, by whomever."""
        for version in sorted(self.guard(writer).prepared, key=int):
            self.finish(int(version), writer)

    def finish(self, version: int, writer: HistoryWriter) -> bool:
        """Put the files of prepare ``version`` in their places and commit; False where that was not possible or not needed.

        Safe to run again and by several at a time: each step does nothing where it is done.
        """
        plan = self.log.state().prepared.get(str(version))
        if plan is None:
            return False
        complete = True
        for source, target in plan.moves:
            if not self.storage.rename(source, target) and not self.storage.exists(target):
                complete = False
        while str(version) in self.guard(writer).prepared:
            entry = HistoryEntry("abort", self.clock(), closes=version)
            if complete:
                entry = HistoryEntry(
                    plan.operation,
                    self.clock(),
                    job=plan.job,
                    epoch=plan.epoch,
                    batch=plan.batch,
                    source=plan.source,
                    ranges=plan.ranges,
                    namespaces=plan.namespaces,
                    add=plan.add,
                    remove=plan.remove,
                    fields=plan.fields,
                    keys=plan.keys,
                    closes=version,
                )
            if self.log.commit(entry) is not None:
                break
        for attempt in {source.split("/")[1] for source, _ in plan.moves}:
            self.storage.delete(f"{STAGING}/{attempt}", recursive=True)
        return complete

    def commit(
        self, entry: HistoryEntry, writer: HistoryWriter, still: Callable[[HistoryState], bool], started: int
    ) -> bool:
        """Commit ``entry`` as long as ``still`` holds for the newest state; with moves, by prepare and finish.

        Raises:
            Fenced: another run has the table.
            Retriable: the writing took so long that its files may count as left behind.
        """
        if self.clock() - started > ORPHAN_AGE // 2:
            raise Retriable(
                f"{self.storage.root}: writing took longer than {ORPHAN_AGE // 120_000} minutes; smaller batches "
                "(source.max.offsets.per.trigger) or a smaller sink.files.rolling.size.bytes take less"
            )
        entry.job, entry.epoch = writer.job, writer.epoch
        logged = (
            entry
            if not entry.moves
            else HistoryEntry("prepare", entry.time, job=writer.job, epoch=writer.epoch, plan=entry)
        )
        while True:
            version = self.log.commit(logged)
            if version is not None:
                break
            if not still(self.guard(writer)):
                return False
        return self.finish(version, writer) if entry.moves else True

    # Appending

    def append(
        self,
        changes: Sequence[TableChanges],
        ranges: Mapping[tuple[str, int], tuple[int, int]],
        *,
        writer: HistoryWriter,
        writing: Writing,
        batch: int,
        source: str = "",
    ) -> Appended:
        """Write the changes of one batch; what the log already has of its ranges is left out. Blocks: runs jobs.

        Raises:
            Fatal: the schema can't take the rows, or known offsets bring rows that the table does not have.
            Fenced, Retriable: as ``commit``.
        """
        while True:
            done = self._append_changes(changes, ranges, writer, writing, batch, source)
            if done is not None:
                return done

    def _append_changes(
        self,
        changes: Sequence[TableChanges],
        ranges: Mapping[tuple[str, int], tuple[int, int]],
        writer: HistoryWriter,
        writing: Writing,
        batch: int,
        source: str,
    ) -> Appended | None:
        started = self.clock()
        self.finish_all(writer)
        state = self.log.state(refresh=False)
        known_rows = find_known_offsets(ranges, state.offsets.get(source, {}))
        frames = [table_changes.frame for table_changes in changes]
        if known_rows:
            if writing.check:
                self._demand_known_rows(frames, known_rows, state)
            if is_complete(ranges, known_rows):
                return Appended(replayed=True)
            frames = [frame.where(~is_known(known_rows)) for frame in frames]
        schema, keys = self.schema_with(changes, state)
        before = len(state.schemas)
        index = before - 1 if state.schemas and to_json(schema) == state.schemas[-1] else before
        rows = (
            frames[0]
            if len(frames) == 1 and frames[0].schema == schema
            else union_frames([formats.conform_frame(frame, schema) for frame in frames])
        )
        attempt = f"{writer.prefix}{batch}.{uuid.uuid4().hex[:12]}"
        where = f"{STAGING if writing.immediate else SMALL}/{attempt}"
        records = sum(after - first for first, after in ranges.values())
        rows = rows.coalesce(writing.tasks(records))
        self._write_rows(rows, where, writing)
        files = self.describe(where, schema, index, writing.format, started)
        if not files:
            self.storage.delete(where, recursive=True)
            return Appended()
        moves: list[tuple[str, str]] = []
        if writing.immediate:
            moves = [(file.path, _in_sight(file, attempt)) for file in files]
            files = [replace(file, path=target) for file, (_, target) in zip(files, moves, strict=True)]
        by_topic: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        for (topic, partition), offsets in ranges.items():
            by_topic[topic][str(partition)] = offsets
        entry = HistoryEntry(
            "append",
            self.clock(),
            batch=batch,
            source=source,
            ranges=dict(by_topic),
            add=tuple(files),
            namespaces=tuple(table_changes.schema.namespace for table_changes in changes),
            moves=tuple(moves),
            fields=to_json(schema) if index == before else None,
            keys=keys if keys != state.keys else None,
        )
        if not self.commit(
            entry,
            writer,
            lambda new: (
                len(new.schemas) == before
                and not new.prepared
                and find_known_offsets(ranges, new.offsets.get(source, {})) == known_rows
            ),
            started,
        ):
            self.storage.delete(where, recursive=True)
            return None
        return Appended(sum(file.rows for file in files), len(files), sum(file.bytes for file in files))

    def schema_with(self, changes: Iterable[TableChanges], state: HistoryState) -> tuple[StructType, tuple[str, ...]]:
        """Schema and key of the table when ``changes`` are in it."""
        schema = from_json(state.schemas[-1]) if state.schemas else None
        keys = state.keys
        for table_changes in changes:
            schema = follow_changes(table_changes, schema, self.storage.root)
            keys = tuple(column.name for column in table_changes.schema.key) or keys
        if schema is None:
            raise ValueError("no changes")
        return schema, keys

    def _write_rows(self, rows: DataFrame, where: str, writing: Writing) -> None:
        time_column = f.timestamp_millis(f.lit(self.clock())) if writing.by_processing_time else f.col("ums_ts_")
        buckets = writing.layout.bucket_columns(time_column)
        for name, expression in buckets:
            if name.lower() in (column_name.lower() for column_name in rows.columns):
                raise Fatal(
                    f"{self.storage.root}: the table has a column {name} itself: name the level of "
                    "sink.files.partition.by otherwise"
                )
            rows = rows.withColumn(name, expression)
        formats.write_frame(
            rows,
            self.storage.uri(where),
            writing.format,
            partitions=[name for name, _ in buckets],
            compression=writing.compression,
        )

    def describe(self, where: str, schema: StructType, index: int, kind: str, added: int) -> list[File]:
        """The files below ``where`` as the log names them, their rows counted by reading them; empty ones are left out."""
        listed = {status.name: status for status in self.storage.walk(where) if _is_data(status)}
        if not listed:
            return []
        loaded = formats.load_rows(
            self.spark,
            [self.storage.uri(name) for name in listed],
            kind,
            schema,
            only=("ums_ts_", "ums_id_"),
            file="file_",
        )
        if sum(status.size for status in listed.values()) < _ONE_TASK:
            loaded = loaded.coalesce(1)
        file_stats: dict[str, tuple[Any, ...]] = {}
        for row in (
            loaded.groupBy("file_")
            .agg(
                f.count(f.lit(1)),
                f.min(f.unix_micros("ums_ts_")),
                f.max(f.unix_micros("ums_ts_")),
                f.min("ums_id_"),
                f.max("ums_id_"),
            )
            .collect()
        ):
            name = unquote(row[0])
            file_stats[where + name[name.rindex(f"/{where}/") + len(where) + 1 :]] = tuple(row[1:])
        lost = file_stats.keys() - listed.keys()
        if lost:
            raise Fatal(f"{self.storage.root}: files {sorted(lost)[:3]} were read but not listed")
        return [
            File(
                name,
                name[len(where) + 1 :].rpartition("/")[0],
                kind,
                index,
                rows=stats[0],
                bytes=listed[name].size,
                min_ts=stats[1],
                max_ts=stats[2],
                min_id=stats[3],
                max_id=stats[4],
                added=added,
            )
            for name, stats in sorted(file_stats.items())
        ]

    def _demand_known_rows(
        self, frames: Sequence[DataFrame], known_rows: Mapping[tuple[str, int], int], state: HistoryState
    ) -> None:
        demand_known_rows(
            self.storage.root,
            frames,
            known_rows,
            lambda low, high: rows_of(
                self.spark, self.storage, state, prune_files(state.files.values(), low=low, high=high)
            ),
        )

    # What was left behind

    def sweep(self, prefix: str, age: int) -> int:
        """Delete directories in the making that begin with ``prefix``, that nothing refers to, and that are ``age`` ms old."""
        state = self.log.state()
        used = {path.split("/")[1] for path in (*state.files, *state.removed) if path.startswith("_")}
        used |= {source.split("/")[1] for plan in state.prepared.values() for source, _ in plan.moves}
        count = 0
        for parent in ("_small", "_merged", "_staging"):
            for name in self.storage.directories(parent):
                if not name.startswith(prefix) or name in used:
                    continue
                if age and any(
                    self.clock() - status.modified < age for status in self.storage.walk(f"{parent}/{name}")
                ):
                    continue
                count += self.storage.delete(f"{parent}/{name}", recursive=True)
        if count:
            _LOG.info("%s: removed %d directories that a crash left behind", self.storage.root, count)
        return count


def _is_data(status: FileStatus) -> bool:
    return not status.name.rpartition("/")[2].startswith(("_", "."))


def _in_sight(file: File, attempt: str) -> str:
    name = f"{BATCH_PREFIX}{attempt}-{file.path.rpartition('/')[2]}"
    return f"{file.bucket}/{name}" if file.bucket else name
