"""Writes batches into the tables of a lake, on the driver: makes and evolves tables, runs tasks, commits, upkeep."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from connectors.backoff import Backoff
from connectors.errors import Fatal, Retriable
from spark_jobs.contract import SchemaRefused
from spark_jobs.metrics import JobMetric
from spark_jobs.namespaces import find_identity
from spark_jobs.sinks.lake.model import Commit, Conflict, LakePosition, LakeTable
from spark_jobs.sinks.lake.task import (
    OUTCOME_DDL,
    CompactTask,
    InsertTask,
    LakeOutcome,
    LakePart,
    UpsertTask,
    by_bucket,
)
from spark_jobs.spark.worker_memory import frozen_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame

    from spark_jobs.contract import Batch, JobContext, TableChanges
    from spark_jobs.sinks.lake.model import Lake, LakeTableDefinition
    from spark_jobs.sinks.lake.options import LakeSettings

_PAUSE_S: Final = 0.1
_COUNTS: Final = (
    ("rows", "rows", "Rows that commits of this run put into tables."),
    ("stale", "rows", "Rows left out because the table has newer ones of their keys."),
    ("bytes", "bytes", "Size of the files that these commits added."),
    ("commits", "", "Commits of this run, one per table and batch."),
    ("replays", "", "Batches that were in a table already and were left out in this run."),
    ("conflicts", "", "Commits that were repeated because another program had changed the table."),
    ("compactions", "", "Merged files that compaction made in this run (mode insert)."),
    ("deleted", "files", "Replaced files that were deleted in this run."),
)


def declare_metrics(kind: str) -> tuple[JobMetric, ...]:
    """Declarations of a sink's metrics. Pure."""
    return tuple(JobMetric(f"{kind}_{name}_total", "counter", unit, description) for name, unit, description in _COUNTS)


@dataclass(slots=True)
class LakeGroup:
    """The changes of a batch that go into one table: its name, and what it is to look like."""

    name: str
    changes: list[TableChanges] = field(default_factory=list)


@dataclass(slots=True)
class LakeWriter:
    """Writes the batches of a sink.

    Args:
        context: of the job.
        settings: the options.
        lake: finds and makes tables.
        kind: for metrics: the sink's name.
        name_of: a source table's namespace -> the name of its table.
        side_name: the name of a table -> that of its side table.
    """

    context: JobContext
    settings: LakeSettings
    lake: Lake
    kind: str
    name_of: Callable[[str], str]
    side_name: Callable[[str], str]
    _tables: dict[str, LakeTable] = field(default_factory=dict)
    _owners: dict[str, str] = field(default_factory=dict)
    #: Tables with new files since they were looked at for small ones, the oldest first.
    _grown: dict[str, None] = field(default_factory=dict)
    _expired_at: float = field(default_factory=time.monotonic)

    def write(self, batch: Batch) -> int:
        """Write a batch; rows written. Blocks.

        Raises:
            Fatal, Retriable, SchemaRefused: see ``contract.Sink.write``.
        """
        groups: dict[str, LakeGroup] = {}
        for changes in batch.changes():
            name = self.name_of(changes.schema.namespace)
            self._check_owner(name, changes.schema.namespace)
            groups.setdefault(name, LakeGroup(name)).changes.append(changes)
        return sum(self._write_group(group, batch) for _, group in sorted(groups.items()))

    def _check_owner(self, name: str, namespace: str) -> None:
        owner = self._owners.setdefault(name, find_identity(namespace))
        if owner != find_identity(namespace) and not self.settings.shared:
            raise Fatal(
                f"the source tables {owner} and {find_identity(namespace)} would both be written to {name}: name more parts in "
                f"{self.settings.prefix}table (${{database}}_${{table}}), or set {self.settings.prefix}table.shared=true "
                "if their keys differ"
            )

    def _write_group(self, group: LakeGroup, batch: Batch) -> int:
        retries = self.settings.commit_retries
        pauses = Backoff(_PAUSE_S, math.inf, low=0.0)
        for attempt in range(retries + 1):
            try:
                return self._try_write(group, batch)
            except Conflict as error:
                self._add_counts(conflicts=1)
                self._tables.pop(group.name, None)
                if attempt == retries:
                    raise Retriable(
                        f"table {group.name}: other programs changed it during each of {retries + 1} commits: {error}"
                    ) from error
                time.sleep(pauses.next_s())
        raise AssertionError("unreachable")

    def _try_write(self, group: LakeGroup, batch: Batch) -> int:
        from spark_jobs.history.log import find_known_offsets, is_complete

        table = self._prepare_table(group.name, self._group_definition(group))
        position = table.position(self.context.name, list(batch.ranges))
        written = find_known_offsets(batch.ranges, position.offsets)
        if is_complete(batch.ranges, written) and (not self.settings.upsert or _is_last(batch, position)):
            self.context.log.info("batch %d: its rows are in table %s already", batch.id, group.name)
            self._add_counts(replays=1)
            return 0
        outcome = self._run_tasks(table, group, {} if self.settings.upsert else written)
        if outcome.added or outcome.removed:
            self._commit_outcome(table, outcome, self._compute_position(position, batch), position)
            self._grown[group.name] = None
        self._add_counts(rows=outcome.rows, stale=outcome.stale, bytes=outcome.bytes, commits=1)
        return outcome.rows

    def _group_definition(self, group: LakeGroup) -> LakeTableDefinition:
        """The definition that holds all changes of the group."""
        from spark_jobs.sinks.lake.rows import grow_columns, make_definition

        first, *others = [
            (part.schema.namespace, make_definition(self.settings, part.schema)) for part in group.changes
        ]
        asked = first[1]
        for namespace, namespace_columns in others:
            asked = replace(asked, columns=grow_columns(group.name, namespace, asked, namespace_columns))
        return asked

    def _prepare_table(self, name: str, asked: LakeTableDefinition) -> LakeTable:
        """The table, made or changed so that it can hold the rows."""
        from spark_jobs.sinks.lake.rows import describe_difference, grow_columns

        namespace = self._owners.get(name, name)
        table = self._tables.get(name)
        if table is not None:
            table.refresh()
        else:
            table = self.lake.find(name)
        if table is None:
            if not self.settings.auto_create:
                raise Fatal(f"table {name} does not exist, and {self.settings.prefix}auto.create is off: create it")
            table = self.lake.create(name, asked)
            self.context.log.info("table %s is created at %s", name, table.address)
        else:
            problem = describe_difference(table.definition, asked)
            if problem:
                message = f"table {namespace} can't be written to {table.address}: {problem}. Write to another table"
                raise SchemaRefused(f"{message} ({self.settings.prefix}table), or drop that one", namespace)
        columns = grow_columns(table.address, namespace, table.definition, asked)
        if columns != table.definition.columns:
            if not self.settings.auto_evolve:
                message = f"table {table.address} needs the columns {columns.simpleString()}"
                raise SchemaRefused(f"{message}, and {self.settings.prefix}auto.evolve is off: change it", namespace)
            try:
                table.evolve(columns)
            except Fatal as error:
                raise SchemaRefused(f"table {namespace}: {error}", namespace) from error
            self.context.log.info("table %s has the columns %s", name, columns.simpleString())
        self._tables[name] = table
        return table

    def _open_side_table(self, name: str, table: LakeTable) -> LakeTable | None:
        if not self.settings.remembers_deletes:
            return None
        from spark_jobs.sinks.lake.rows import side_definition

        return self._prepare_table(self.side_name(name), side_definition(table.definition))

    def _run_tasks(self, table: LakeTable, group: LakeGroup, written: dict[tuple[str, int], int]) -> LakeOutcome:
        """Run the tasks; their outcome. The side table is committed here, before the table itself."""
        from spark_jobs.sinks.lake.rows import frame_of, names_of, own_columns, packed_rows

        tasks = self.context.spark.sparkContext.defaultParallelism
        part = self._make_table_part(table)
        packed = None if self.settings.upsert or written else packed_rows(group.changes, table.definition)
        if packed is not None:
            names = tuple(column.name for column in group.changes[0].schema.columns)
            return self._collect_outcome(packed.frame.coalesce(tasks), InsertTask(part, names, packed.unpack))
        frame = frame_of(group.changes, table.definition, written, tasks)
        columns = names_of(own_columns(table.definition))
        if not self.settings.upsert:
            return self._collect_outcome(frame, InsertTask(part, columns))
        side = self._open_side_table(group.name, table)
        now_us = time.time_ns() // 1000
        outcome = self._collect_outcome(
            frame,
            UpsertTask(
                part,
                columns,
                table.definition.key,
                None if side is None else self._make_table_part(side),
                now_us,
                now_us - self.settings.delete_retention_ms * 1000,
            ),
        )
        if side is not None and (outcome.side_added or outcome.side_removed):
            # A delete has to be remembered before its row is gone. Written again after a crash, it is the same.
            side.commit(Commit(outcome.side_added, outcome.side_removed, None, self.context.name))
        return outcome

    def _make_table_part(self, table: LakeTable) -> LakePart:
        chosen = self.settings
        files = by_bucket(table.files()) if table.definition.buckets else {}
        compression = chosen.compression
        return LakePart(table.address, table.target(), files, chosen.file_bytes, chosen.compact_files, compression)

    def _collect_outcome(self, frame: DataFrame, task: InsertTask | UpsertTask | CompactTask) -> LakeOutcome:
        return sum_outcomes(
            LakeOutcome(**row.asDict())
            for row in frame.mapInArrow(frozen_after(self.kind, task), OUTCOME_DDL).collect()
        )

    def _commit_outcome(
        self, table: LakeTable, outcome: LakeOutcome, after: LakePosition, before: LakePosition
    ) -> None:
        change = Commit(outcome.added, outcome.removed, after, self.context.name)
        for attempt in range(self.settings.commit_retries + 1):
            try:
                table.commit(change)
            except Conflict:
                if self.settings.upsert or attempt == self.settings.commit_retries:
                    raise
                # Appended files are right whatever another program has done, but not if it was this job's other driver.
                table.refresh()
                partitions = [(topic, int(number)) for topic, parts in after.offsets.items() for number in parts]
                if table.position(self.context.name, partitions) != before:
                    raise
                self._add_counts(conflicts=1)
            else:
                return

    def _compute_position(self, position: LakePosition, batch: Batch) -> LakePosition:
        """The position once a batch is in. With upsert a job that reads again from an earlier offset moves it back."""
        offsets = {topic: dict(parts) for topic, parts in position.offsets.items()}
        for (topic, partition), (_, after) in batch.ranges.items():
            mine = offsets.setdefault(topic, {})
            mine[str(partition)] = after if self.settings.upsert else max(mine.get(str(partition), 0), after)
        return LakePosition(batch.id, offsets)

    def _add_counts(self, **counts: int) -> None:
        for name, count in counts.items():
            key = f"{self.kind}_{name}_total"
            self.context.metrics[key] = self.context.metrics.get(key, 0.0) + count

    def idle(self) -> None:
        """Merge small files of a table and forget old versions, now and then. Blocks."""
        if not self.settings.upsert:
            # Only these: a list of all files of a table is read from its log or its manifests.
            for name in list(self._grown):
                table = self._tables.get(name)
                if table is not None and self._compact_files(table):
                    break
                del self._grown[name]
        interval = self.settings.expire_interval_ms
        if interval < 0 or (time.monotonic() - self._expired_at) * 1000 < interval:
            return
        self._expired_at = time.monotonic()
        for table in list(self._tables.values()):
            table.refresh()
            try:
                deleted = table.expire(self.settings.retention_ms)
            except Conflict:
                continue  # the next turn does it
            self._add_counts(deleted=deleted)

    def _compact_files(self, table: LakeTable) -> bool:
        groups = small_groups(
            [(file.path, file.size) for file in table.files()], self.settings.file_bytes, self.settings.compact_files
        )
        if not groups:
            return False
        spark = self.context.spark
        frame = spark.createDataFrame([(group,) for group in groups], "paths array<string>").repartition(len(groups))
        outcome = self._collect_outcome(frame, CompactTask(self._make_table_part(table)))
        try:
            table.commit(Commit(outcome.added, outcome.removed, None, self.context.name))
        except Conflict:
            self._add_counts(conflicts=1)
            table.refresh()
            return True
        self.context.log.info("%s: %d files merged into %d", table.address, len(outcome.removed), len(outcome.added))
        self._add_counts(compactions=len(outcome.added))
        return True


def sum_outcomes(outcomes: Iterable[LakeOutcome]) -> LakeOutcome:
    """Outcomes of tasks as one. Pure."""
    result = LakeOutcome()
    for outcome in outcomes:
        result.added += outcome.added
        result.removed += outcome.removed
        result.side_added += outcome.side_added
        result.side_removed += outcome.side_removed
        result.rows += outcome.rows
        result.stale += outcome.stale
        result.bytes += outcome.bytes
    return result


def small_groups(files: Sequence[tuple[str, int]], limit: int, count: int) -> list[list[str]]:
    """Paths of small files that are to be merged with each other, in groups of about ``limit`` bytes; empty if they are few.

    Pure.

    Args:
        files: paths and sizes in bytes.
        limit: how large a merged file may become, about. Files below half of it are small.
        count: how many small ones there have to be.
    """
    small = [file for file in files if file[1] < limit // 2]
    if len(small) < count:
        return []
    groups: list[list[str]] = []
    size = limit
    for path, length in small:
        if size + length > limit:
            groups.append([])
            size = 0
        groups[-1].append(path)
        size += length
    return [group for group in groups if len(group) > 1]


def _is_last(batch: Batch, position: LakePosition) -> bool:
    """Whether the last commit was of this very batch. Pure."""
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), (_, after) in batch.ranges.items():
        ends[topic][str(partition)] = after
    return position.batch == batch.id and position.offsets == ends
