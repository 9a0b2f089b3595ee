"""Choice of the files to merge, and of the time to do it: decisions only, no I/O.

Terms: a *bucket* is one partition directory. *Small* files hold one batch each and are out of sight; *rolling* merges a
bucket's small files into finished ones. *Compaction* merges finished files that are still below the target size.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.source_options.start_times import latest_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spark_jobs.history.log import File, HistoryState


@dataclass(frozen=True, slots=True)
class Rolling:
    """When small files are merged; times in ms, sizes in bytes.

    Attributes:
        size: a bucket's small files are rolled when they reach this together; also the size that merging aims at.
        age: ... when the oldest of them is this old.
        inactivity: ... when the newest of them is this old.
        files: ... when there are this many of them.
        compact_files: finished files of a bucket below half of ``size`` are merged when there are this many; 0 = never.
        compact_at: ... or all of them, at this time of day; empty = at any time.
        compact_zone: time zone of ``compact_at``.
        retention: how long a replaced file stays for readers of an older version.
    """

    size: int = 128 * 1024 * 1024
    age: int = 15 * 60_000
    inactivity: int = 2 * 60_000
    files: int = 200
    compact_files: int = 16
    compact_at: str = ""
    compact_zone: str = ""
    retention: int = 60 * 60_000


def small_files(state: HistoryState) -> dict[str, list[File]]:
    """Files of single batches by bucket: those out of sight."""
    return _by_bucket(file for file in state.files.values() if file.small and not _is_claimed(state, file.path))


def finished_files(state: HistoryState) -> dict[str, list[File]]:
    """The others by bucket."""
    return _by_bucket(file for file in state.files.values() if not file.small and not _is_claimed(state, file.path))


def _is_claimed(state: HistoryState, path: str) -> bool:
    return any(path in plan.remove for plan in state.prepared.values())


def _by_bucket(files: Iterable[File]) -> dict[str, list[File]]:
    files_by_bucket: dict[str, list[File]] = defaultdict(list)
    for file in files:
        files_by_bucket[file.bucket].append(file)
    return {
        bucket: sorted(bucket_files, key=lambda file: (file.added, file.path))
        for bucket, bucket_files in sorted(files_by_bucket.items())
    }


def find_due_reason(files: Iterable[File], rolling: Rolling, now: int) -> str | None:
    """Why these small files of one bucket are to be rolled now: size, age, inactivity, files; None: not yet."""
    listed = list(files)
    if not listed:
        return None
    if sum(file.bytes for file in listed) >= rolling.size:
        return "size"
    if len(listed) >= rolling.files:
        return "files"
    if now - min(file.added for file in listed) >= rolling.age:
        return "age"
    if now - max(file.added for file in listed) >= rolling.inactivity:
        return "inactivity"
    return None


def group_files(files: Iterable[File], target: int, *, least: int = 1) -> list[list[File]]:
    """``files`` in order of age, cut into groups that become one file each.

    A group ends before it would pass ``target`` bytes (one larger file is a group alone); groups of fewer than ``least`` files
    are left out.
    """
    file_groups: list[list[File]] = []
    size = 0
    for file in sorted(files, key=lambda candidate: (candidate.added, candidate.path)):
        if not file_groups or size + file.bytes > target:
            file_groups.append([])
            size = 0
        file_groups[-1].append(file)
        size += file.bytes
    return [group for group in file_groups if len(group) >= least]


def compact_before(rolling: Rolling, now: int) -> int | None:
    """The time before which files must have been written to be merged now, ms since 1970; None: any time.

    With a time of day it is the last one: what came before it is due since then, and stays due where no job ran.
    """
    return latest_ms(rolling.compact_at, rolling.compact_zone, now) if rolling.compact_at else None


def find_compactable(
    files: Iterable[File], target: int, *, least: int = 2, before: int | None = None
) -> list[list[File]]:
    """Finished files of one bucket that are worth merging: those below half of ``target``, in groups of at least two.

    Fewer than ``least`` candidates are left alone, and files that were written at the time ``before`` or later.
    """
    candidates = [file for file in files if file.bytes * 2 < target and (before is None or file.added < before)]
    return group_files(candidates, target, least=2) if len(candidates) >= max(least, 2) else []


def find_expired(removed: Mapping[str, int], retention: int, now: int) -> list[str]:
    """Removed files that no reader needs any more."""
    return sorted(path for path, when in removed.items() if now - when >= retention)


def find_presentable(state: HistoryState, retention: int, now: int) -> list[File]:
    """Merged files whose inputs no reader of ours needs any more: they may take the inputs' place in sight."""
    return [
        file
        for file in state.files.values()
        if file.merged
        and not _is_claimed(state, file.path)
        and all(now - state.removed.get(path, 0) >= retention for path in file.replaces)
    ]
