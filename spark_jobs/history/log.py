"""The log of a table: which files count, what is in them, which source offsets they hold. docs/jobs/files.md gives its form.

Version n is ``_log/<n>.json``, made atomically and never changed; the state of a table is the fold of its entries, and
``_log/<n>.checkpoint.json`` is the state after entry n, so that older entries may go. Writers are optimistic: who finds the
next version taken reads it and decides again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.history.storage import Storage

LOG: Final = "_log"
#: Files of single batches, each under ``_small/<attempt>/<bucket>/``: rows count as soon as the log names their file.
SMALL: Final = "_small"
#: Merged files whose inputs foreign readers still see; they move into sight when no reader of ours needs the inputs.
MERGED: Final = "_merged"
#: Files in the making, which nothing refers to but an open ``prepare``.
STAGING: Final = "_staging"
#: Lists of all current files, for engines that can read a list.
MANIFEST: Final = "_manifest"
#: Names of files of single batches that were put in sight at once.
BATCH_PREFIX: Final = "batch-"
#: Form of entries; readers refuse a later one.
FORM: Final = 1

_NAME: Final = re.compile(r"(\d{20})(\.checkpoint)?\.json\Z")

#: topic -> partition -> offset
Offsets = dict[str, dict[str, int]]


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """One data file.

    Attributes:
        path: relative to the table's directory.
        bucket: its partition directory (``ums_date_=2026-11-21``), empty where the table has none.
        format: parquet, json, csv, avro.
        schema: index into ``HistoryState.schemas``: what the file was written with.
        rows, bytes: its size.
        min_ts, max_ts: smallest and largest ``ums_ts_`` in µs since 1970; None where every row lacks it.
        min_id, max_id: the same of ``ums_id_``.
        added: when it was committed, ms since 1970; of a merged file: of its oldest input.
        replaces: files in sight that this one stands for but that foreign readers still see.
    """

    path: str
    bucket: str
    format: str
    schema: int
    rows: int
    bytes: int
    min_ts: int | None = None
    max_ts: int | None = None
    min_id: int | None = None
    max_id: int | None = None
    added: int = 0
    replaces: tuple[str, ...] = ()

    @property
    def small(self) -> bool:
        """Whether it is a file of one batch, in or out of sight."""
        return self.path.startswith(SMALL + "/") or self.path.rpartition("/")[2].startswith(BATCH_PREFIX)

    @property
    def merged(self) -> bool:
        """Whether it waits to take the place of files in sight."""
        return self.path.startswith(MERGED + "/")

    @property
    def visible(self) -> bool:
        """Whether a reader who lists the directory sees it."""
        return not self.path.startswith("_")


class HistoryEntry(msgspec.Struct, omit_defaults=True):
    """One commit.

    Attributes:
        operation: open (a job takes the table), append, roll, compact, show (a merged file comes into sight), vacuum,
            prepare (what will be committed once its files are in place), abort (a prepare that can't be).
        job, epoch: who; the epoch is new with each run of a job. Entries of an older run are refused.
        batch, source, ranges: of an append: Spark's batch id, whose offsets these are, topic -> partition -> [first, next).
        namespaces: tables seen in an append.
        add, remove: the files.
        fields, keys: the table's schema from here on (Spark's JSON form), where it changed.
        forget: removed files that are deleted now.
        moves: of a prepare: (from, to).
        closes: the prepare (its version) that this entry completes or ends.
    """

    operation: str
    time: int
    form: int = FORM
    version: int = -1
    job: str = ""
    epoch: str = ""
    batch: int | None = None
    source: str = ""
    ranges: dict[str, dict[str, tuple[int, int]]] = {}
    namespaces: tuple[str, ...] = ()
    add: tuple[File, ...] = ()
    remove: tuple[str, ...] = ()
    fields: dict[str, Any] | None = None
    keys: tuple[str, ...] | None = None
    forget: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    closes: int | None = None
    plan: HistoryEntry | None = None


class HistoryState(msgspec.Struct):
    """A table after some version.

    Attributes:
        version: of the last entry; -1 for a table without any.
        time: of the last entry.
        schemas: every schema that files were written with; the last one is the table's.
        keys: names of the primary key's columns.
        files: current files by path.
        removed: files that no longer count but still lie there for readers of older versions: path -> when removed, ms.
        offsets: source -> topic -> partition -> the offset after the last one that is in.
        epochs: job -> its newest run.
        namespaces: all that were ever written.
        prepared: open prepares: version (as text) -> what will be committed, with its moves.
    """

    version: int = -1
    time: int = 0
    form: int = FORM
    schemas: list[dict[str, Any]] = []
    keys: tuple[str, ...] = ()
    files: dict[str, File] = {}
    removed: dict[str, int] = {}
    offsets: dict[str, Offsets] = {}
    epochs: dict[str, str] = {}
    namespaces: list[str] = []
    prepared: dict[str, HistoryEntry] = {}

    @property
    def rows(self) -> int:
        """Rows in the table."""
        return sum(file.rows for file in self.files.values())


def apply_entry(state: HistoryState, entry: HistoryEntry) -> None:
    """Fold one entry into ``state``. Pure but for ``state``.

    Raises:
        Fatal: the entry does not follow, removes a file that is not there, or is of a later form.
    """
    if entry.form > FORM:
        raise Fatal(f"the table's log is of form {entry.form}, this reader knows {FORM}: use the release that wrote it")
    if entry.version != state.version + 1:
        raise Fatal(f"log entry {entry.version} does not follow version {state.version}")
    missing = [path for path in entry.remove if path not in state.files]
    if missing:
        raise Fatal(f"log entry {entry.version} removes files that are not in the table: {missing[:3]}")
    state.version, state.time = entry.version, max(state.time, entry.time)
    if entry.fields is not None:
        state.schemas.append(entry.fields)
    if entry.keys is not None:
        state.keys = entry.keys
    for path in entry.remove:
        del state.files[path]
        state.removed[path] = entry.time
    for file in entry.add:
        state.files[file.path] = file
        state.removed.pop(file.path, None)
    for path in entry.forget:
        state.removed.pop(path, None)
    for topic, partitions in entry.ranges.items() if entry.operation != "prepare" else ():
        partition_offsets = state.offsets.setdefault(entry.source, {}).setdefault(topic, {})
        for partition, (_, after) in partitions.items():
            partition_offsets[partition] = max(partition_offsets.get(partition, 0), after)
    if entry.operation == "open":
        state.epochs[entry.job] = entry.epoch
    state.namespaces += [namespace for namespace in entry.namespaces if namespace not in state.namespaces]
    if entry.operation == "prepare" and entry.plan is not None:
        state.prepared[str(entry.version)] = entry.plan
    if entry.closes is not None:
        state.prepared.pop(str(entry.closes), None)


def _entry_name(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def _checkpoint_name(version: int) -> str:
    return f"{LOG}/{version:020d}.checkpoint.json"


class HistoryLog:
    """The log of one table. Not for several threads. Every call blocks on the file system.

    Args:
        storage: of the table's directory.
        interval: entries between two checkpoints.
    """

    def __init__(self, storage: Storage, *, interval: int = 50) -> None:
        self._storage = storage
        self._interval = interval
        self._state: HistoryState | None = None

    def exists(self) -> bool:
        """Whether the table has a log."""
        return bool(self._storage.names(LOG))

    def load(self, version: int | None = None) -> HistoryState:
        """Read the state after ``version`` (default: the newest) from the log; an empty state where there is no log.

        Raises:
            Fatal: that version does not exist or is trimmed.
        """
        for last in (False, False, True):
            state = self._load_state(version)
            if state is not None:
                return state
            if last:  # a checkpoint that was listed may be trimmed before it is read; a newer one is there then
                break
        raise Fatal(
            f"{self._storage.uri(LOG)}: version {version if version is not None else 'newest'} of the table can't be "
            "read: it never was, or it is older than the retention"
        )

    def _load_state(self, version: int | None) -> HistoryState | None:
        entries: set[int] = set()
        checkpoints: set[int] = set()
        for status in self._storage.names(LOG):
            match = _NAME.fullmatch(status.name.rpartition("/")[2])
            if match is not None:
                (checkpoints if match[2] else entries).add(int(match[1]))
        usable = [number for number in checkpoints if version is None or number <= version]
        state = HistoryState()
        if usable:
            data = self._storage.read(_checkpoint_name(max(usable)))
            if data is None:
                return None
            state = decode_state(data)
        while (version is None or state.version < version) and self._read_next_entry(state):
            pass
        if version is not None and state.version != version:
            return None
        if not usable and entries and state.version < 0:
            return None
        return state

    def _read_next_entry(self, state: HistoryState) -> bool:
        data = self._storage.read(_entry_name(state.version + 1))
        if data is None:
            return False
        apply_entry(state, decode_entry(data, state.version + 1))
        return True

    def state(self, *, refresh: bool = True) -> HistoryState:
        """The newest state; with ``refresh`` false the last one seen, where there is one.

        The same object again: don't change it.
        """
        if self._state is None:
            self._state = self.load()
        elif refresh:
            before = self._state.version
            while self._read_next_entry(self._state):
                pass
            # Nothing new: either true, or the next entries were trimmed while this one was not looked at.
            if self._state.version == before and (before < 0 or not self._storage.exists(_entry_name(before))):
                self._state = self.load()
        return self._state

    def commit(self, entry: HistoryEntry) -> int | None:
        """Append ``entry`` after the last state seen; its version, or None where that version is taken (state is refreshed).

        Raises:
            Fatal: the entry contradicts the state.
        """
        state = self.state(refresh=False)
        entry.version = state.version + 1
        # Checked before it is written: a log with a wrong entry could not be read by anybody.
        trial = msgspec.json.decode(msgspec.json.encode(state), type=HistoryState) if entry.remove else None
        if trial is not None:
            apply_entry(trial, entry)
        if not self._storage.put_if_absent(_entry_name(entry.version), msgspec.json.encode(entry)):
            self.state()
            return None
        apply_entry(state, entry)
        if (entry.version + 1) % self._interval == 0:
            self._storage.replace(_checkpoint_name(entry.version), msgspec.json.encode(state))
        return entry.version

    def trim(self, before: int) -> int:
        """Delete entries and checkpoints that no reader needs who began after ``before`` (ms since 1970); how many.

        The newest checkpoint not younger than ``before`` stays, with all that follows it.
        """
        kept = -1
        listed = self._storage.names(LOG)
        versions = [
            (int(match[1]), bool(match[2]), status)
            for status in listed
            if (match := _NAME.fullmatch(status.name.rpartition("/")[2])) is not None
        ]
        for version, checkpoint, status in versions:
            if checkpoint and status.modified <= before:
                kept = max(kept, version)
        count = 0
        for version, checkpoint, status in sorted(versions, key=lambda entry: entry[:2]):
            if version < kept or (version == kept and not checkpoint and version != self.state(refresh=False).version):
                count += self._storage.delete(status.name)
        for status in listed:  # parts of writers that died
            if status.name.rpartition("/")[2].startswith(".") and status.modified <= before:
                self._storage.delete(status.name)
        return count


def decode_entry(data: bytes, version: int) -> HistoryEntry:
    """An entry's file.

    Raises:
        Fatal: it can't be read.
    """
    try:
        return msgspec.json.decode(data, type=HistoryEntry)
    except msgspec.DecodeError as error:
        raise Fatal(
            f"log entry {version} is damaged ({error}): restore {_entry_name(version)} from a backup"
        ) from error


def decode_state(data: bytes) -> HistoryState:
    """A checkpoint's file.

    Raises:
        Fatal: it can't be read or is of a later form.
    """
    try:
        state = msgspec.json.decode(data, type=HistoryState)
    except msgspec.DecodeError as error:
        raise Fatal(
            f"a checkpoint of the log is damaged ({error}): delete it if the entries before it are there"
        ) from error
    if state.form > FORM:
        raise Fatal(f"the table's log is of form {state.form}, this reader knows {FORM}: use the release that wrote it")
    return state


def find_known_offsets(
    ranges: Mapping[tuple[str, int], tuple[int, int]], offsets: Offsets
) -> dict[tuple[str, int], int]:
    """Find the part of a batch's ranges that is in the table: (topic, partition) -> the offset after its last one. Pure."""
    offsets_after: dict[tuple[str, int], int] = {}
    for (topic, partition), (first, after) in ranges.items():
        known_after = offsets.get(topic, {}).get(str(partition), 0)
        if known_after > first and after > first:
            offsets_after[topic, partition] = min(known_after, after)
    return offsets_after


def is_complete(ranges: Mapping[tuple[str, int], tuple[int, int]], done: Mapping[tuple[str, int], int]) -> bool:
    """Whether all of ``ranges`` is in (``done`` as ``find_known_offsets`` gives it). Pure."""
    return all(after <= first or done.get(where, first) >= after for where, (first, after) in ranges.items())
