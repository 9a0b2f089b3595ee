"""Upkeep of a table: rolling, compaction, putting merged files in sight, vacuum. Readers of the log never notice any of it.

No file is ever moved or deleted while a version of the log that readers may use refers to it. Small files lie out of sight,
so rolling changes nothing that a listing reader saw before: the finished file appears by one rename. Where files in sight are
merged, the result first counts for readers of the log only (out of sight, under ``_merged``); when no reader needs the inputs
any more, a copy of it takes their place. That is the one moment at which listing readers can see rows twice.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from connectors.errors import Fatal
from spark_jobs.history import formats, rolling
from spark_jobs.history.log import MANIFEST, MERGED, SMALL, STAGING, File, HistoryEntry
from spark_jobs.history.reader import rows_of
from spark_jobs.history.schema import from_json
from spark_jobs.history.table import ORPHAN_AGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spark_jobs.history.log import HistoryState
    from spark_jobs.history.rolling import Rolling
    from spark_jobs.history.table import HistoryDirectory
    from spark_jobs.history.writing import HistoryWriter


@dataclass(slots=True)
class UpkeepResult:
    """The result of upkeep: number of files merged (inputs), created (outputs), made visible, deleted."""

    inputs: int = 0
    outputs: int = 0
    bytes: int = 0
    shown: int = 0
    deleted: int = 0

    def add(self, other_result: UpkeepResult) -> None:
        """Count ``other_result`` in."""
        self.inputs += other_result.inputs
        self.outputs += other_result.outputs
        self.bytes += other_result.bytes
        self.shown += other_result.shown
        self.deleted += other_result.deleted


def run_upkeep(
    table: HistoryDirectory, plan: Rolling, writer: HistoryWriter, *, kind: str, compression: str | None
) -> Iterator[UpkeepResult]:
    """Do the work that is due now, one step at a time (the caller stops when its time is up). Each step blocks, runs a job."""
    table.finish_all(writer)
    for bucket, files in rolling.small_files(table.log.state(refresh=False)).items():
        if rolling.find_due_reason(files, plan, table.clock()):
            yield roll_bucket(table, bucket, plan.size, writer, kind=kind, compression=compression)
    if plan.compact_files or plan.compact_at:
        least = 2 if plan.compact_at else plan.compact_files
        before = rolling.compact_before(plan, table.clock())
        yield from compact_bucket_files(
            table, plan.size, writer, kind=kind, compression=compression, least=least, before=before
        )
    yield show_merged(table, plan.retention, writer)


def roll_bucket(
    table: HistoryDirectory, bucket: str, target: int, writer: HistoryWriter, *, kind: str, compression: str | None
) -> UpkeepResult:
    """Merge the small files of one bucket into files of about ``target`` bytes."""
    done = UpkeepResult()
    files = rolling.small_files(table.guard(writer)).get(bucket, [])
    for group in rolling.group_files(files, target):
        done.add(_merge_files(table, group, writer, kind, compression))
    return done


def compact_bucket_files(
    table: HistoryDirectory,
    target: int,
    writer: HistoryWriter,
    *,
    kind: str,
    compression: str | None,
    least: int = 2,
    before: int | None = None,
) -> Iterator[UpkeepResult]:
    """Merge finished files below half of ``target`` bytes, group by group, in buckets that have ``least`` of them.

    With ``before`` only those that were written before it (ms since 1970).
    """
    for files in rolling.finished_files(table.guard(writer)).values():
        for group in rolling.find_compactable(files, target, least=least, before=before):
            yield _merge_files(table, group, writer, kind, compression)


def _merge_files(
    table: HistoryDirectory, group: Sequence[File], writer: HistoryWriter, kind: str, compression: str | None
) -> UpkeepResult:
    """One file from many: committed, unless another process merged one of them meanwhile."""
    started = table.clock()
    state = table.log.state(refresh=False)
    paths = tuple(file.path for file in group)
    out_of_sight = all(path.startswith(SMALL + "/") for path in paths)
    bucket = group[0].bucket
    attempt = f"{writer.prefix}{'roll' if out_of_sight else 'compact'}.{uuid.uuid4().hex[:12]}"
    where = f"{STAGING if out_of_sight else MERGED}/{attempt}"
    index = len(state.schemas) - 1
    schema = from_json(state.schemas[index])
    rows = rows_of(table.spark, table.storage, state, group).coalesce(1)
    below = f"{where}/{bucket}" if bucket else where
    formats.write_frame(rows, table.storage.uri(below), kind, compression=compression)
    files = table.describe(where, schema, index, kind, min(file.added for file in group))
    if sum(file.rows for file in files) != sum(file.rows for file in group):
        table.storage.delete(where, recursive=True)
        raise Fatal(
            f"{table.storage.root}: merging {len(group)} files of {sum(file.rows for file in group)} rows gave "
            f"{sum(file.rows for file in files)} rows; nothing was changed. Are files of {bucket or 'it'} damaged?"
        )
    if out_of_sight:
        moves = tuple((file.path, _visible_path(file)) for file in files)
        entry = HistoryEntry(
            "roll",
            table.clock(),
            moves=moves,
            remove=paths,
            add=tuple(replace(file, path=path, replaces=()) for file, (_, path) in zip(files, moves, strict=True)),
        )
    else:
        replaces = tuple(sorted({path for file in group for path in _list_visible_files(file)}))
        entry = HistoryEntry(
            "compact", table.clock(), remove=paths, add=tuple(replace(file, replaces=replaces) for file in files)
        )
    committed = table.commit(entry, writer, _are_files_present(paths), started)
    if not committed:
        table.storage.delete(where, recursive=True)
        return UpkeepResult()
    return UpkeepResult(len(group), len(files), sum(file.bytes for file in files))


def _are_files_present(paths: Sequence[str]) -> Callable[[HistoryState], bool]:
    return lambda state: (
        all(path in state.files for path in paths)
        and not any(path in plan.remove for plan in state.prepared.values() for path in paths)
    )


def _list_visible_files(file: File) -> tuple[str, ...]:
    """Files in sight, now or after a crash while ``file`` was brought into sight, that hold rows of ``file``."""
    if file.visible:
        return (file.path,)
    return (*file.replaces, _visible_path(file)) if file.merged else ()


def _visible_path(file: File) -> str:
    name = file.path.rpartition("/")[2]
    return f"{file.bucket}/{name}" if file.bucket else name


def show_merged(table: HistoryDirectory, retention: int, writer: HistoryWriter) -> UpkeepResult:
    """Put merged files in sight whose inputs no reader of the log needs any more, and delete these inputs.

    Safe to repeat after a crash and at the same time as another process: each step does nothing where it is already done.
    """
    done = UpkeepResult()
    for file in rolling.find_presentable(table.guard(writer), retention, table.clock()):
        target = _visible_path(file)
        if not table.storage.exists(target):
            staged = f"{STAGING}/{writer.prefix}show.{uuid.uuid4().hex[:12]}"
            name = target.rpartition("/")[2]
            table.storage.copy(file.path, f"{staged}/{name}")
            table.storage.rename(f"{staged}/{name}", target)
            table.storage.delete(staged, recursive=True)
        for path in file.replaces:
            table.storage.delete(path)
        entry = HistoryEntry(
            "show",
            table.clock(),
            job=writer.job,
            epoch=writer.epoch,
            add=(replace(file, path=target, replaces=()),),
            remove=(file.path,),
            forget=file.replaces,
        )
        while file.path in table.log.state(refresh=False).files:
            if table.log.commit(entry) is not None:
                done.shown += 1
                done.deleted += len(file.replaces)
                break
            table.guard(writer)
    return done


def vacuum_files(table: HistoryDirectory, retention: int, writer: HistoryWriter) -> UpkeepResult:
    """Delete files that were replaced more than ``retention`` ms ago, what crashes left behind, and old log entries."""
    state = table.guard(writer)
    kept = {path for file in state.files.values() for path in file.replaces}
    gone = [path for path in rolling.find_expired(state.removed, retention, table.clock()) if path not in kept]
    for path in gone:
        table.storage.delete(path)
        parent = path.rpartition("/")[0]
        while parent.startswith("_") and "/" in parent and table.storage.delete(parent):
            parent = parent.rpartition("/")[0]
    if gone:
        entry = HistoryEntry("vacuum", table.clock(), job=writer.job, epoch=writer.epoch, forget=tuple(gone))
        while table.log.commit(entry) is None:
            table.guard(writer)
    table.sweep("", ORPHAN_AGE)
    table.log.trim(table.clock() - retention)
    return UpkeepResult(deleted=len(gone))


def write_manifest(table: HistoryDirectory) -> int:
    """Write the addresses of all current files, one per line, to ``_manifest/files.txt``; how many."""
    files = table.log.state(refresh=False).files
    manifest = "".join(f"{table.storage.uri(path)}\n" for path in sorted(files))
    table.storage.replace(f"{MANIFEST}/files.txt", manifest.encode())
    return len(files)
