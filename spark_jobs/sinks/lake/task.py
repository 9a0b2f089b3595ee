"""Tasks of a lake sink: they write Parquet files, and say which files the commit adds and removes.

Nothing that a task writes counts before the driver's commit names it, so that a task may be run twice or killed at any time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.errors import Fatal
from spark_jobs.sinks.jdbc.rows import POSITION, select_newest
from spark_jobs.sinks.lake.files import (
    Files,
    conform_rows,
    match_rows,
    may_hold,
    open_file,
    read_keys,
    read_rows,
    storage_errors,
)
from spark_jobs.sinks.lake.model import BUCKET, WRITTEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spark_jobs.sinks.lake.model import DataFile, FileTarget

#: Columns of a task's report, a row for each bucket, as Spark's schema text and as Arrow's.
OUTCOME_DDL: Final = (
    "added array<binary>, removed array<string>, side_added array<binary>, side_removed array<string>, rows long, stale long, "
    "bytes long"
)
OUTCOME: Final = pa.schema(
    [
        ("added", pa.list_(pa.binary())),
        ("removed", pa.list_(pa.string())),
        ("side_added", pa.list_(pa.binary())),
        ("side_removed", pa.list_(pa.string())),
        ("rows", pa.int64()),
        ("stale", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
#: Rows of a bucket that are collected before they are reduced to the newest of each key.
_REDUCE_ROWS: Final = 400_000
_ORDER: Final = "ums_id_"


@dataclass(slots=True)
class LakeOutcome:
    """The result of a task, or of all: files for the commit, rows written, rows left out as older, bytes."""

    added: list[bytes] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    side_added: list[bytes] = field(default_factory=list)
    side_removed: list[str] = field(default_factory=list)
    rows: int = 0
    stale: int = 0
    bytes: int = 0

    def batch(self) -> pa.RecordBatch:
        """As Arrow."""
        return pa.RecordBatch.from_pylist([{name: getattr(self, name) for name in OUTCOME.names}], schema=OUTCOME)


@dataclass(frozen=True, slots=True)
class LakePart:
    """A table as a task writes it; picklable.

    Attributes:
        address: where it is, for messages.
        target: reads and writes its files.
        files: those that count, by bucket.
        file_bytes, compact_files, compression: the options of these names.
    """

    address: str
    target: FileTarget
    files: Mapping[int, Sequence[DataFile]]
    file_bytes: int
    compact_files: int
    compression: str

    def writer(self, bucket: int) -> Files:
        """Writes new files of a bucket."""
        return Files(self.target, bucket, self.file_bytes, self.compression)

    def small(self, bucket: int) -> set[str]:
        """Files of a bucket that are to be merged with whatever is written next."""
        small = {file.path for file in self.files.get(bucket, ()) if file.size < self.file_bytes // 2}
        return small if len(small) + 1 >= self.compact_files else set()


@dataclass(slots=True)
class InsertTask:
    """Appends rows as they come: the function of ``mapInArrow``.

    Attributes:
        part: the table.
        columns: names of the leading columns of the rows.
        unpack: gives the rows where the input has them packed (``contract.Packed``).
    """

    part: LakePart
    columns: tuple[str, ...]
    unpack: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task."""
        with storage_errors(self.part.address):
            files = self.part.writer(0)
            for batch in batches if self.unpack is None else self.unpack(batches):
                rows = _name_columns(batch, self.columns)
                files.add(conform_rows(self.part.target.schema, rows))
            files.close()
        if files.rows:
            yield LakeOutcome(added=files.added, rows=files.rows, bytes=files.bytes).batch()


@dataclass(slots=True)
class UpsertTask:
    """Merges rows into the files of their buckets; its input is sorted by bucket.

    Attributes:
        part: the table.
        columns: names of the leading columns of the input; the bucket and the position in Kafka follow.
        keys: which of them are the key.
        side: the table that remembers deletes; None where deleted rows stay.
        now_us: the time of the batch, which is put into the side table.
        forget_us: deletes that were written earlier need not be kept.
    """

    part: LakePart
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    side: LakePart | None
    now_us: int
    forget_us: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task."""
        with storage_errors(self.part.address):
            for bucket, rows in self._split_buckets(batches):
                yield self._merge_bucket(
                    bucket, select_newest(rows, self.keys).drop_columns([BUCKET, *POSITION])
                ).batch()

    def _split_buckets(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
        tables: list[pa.Table] = []
        current, count = -1, 0
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = _name_columns(batch, self.columns)
            numbers = rows.column(BUCKET).to_numpy()
            starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()]
            for start, stop in zip(starts, [*starts[1:], rows.num_rows], strict=True):
                bucket = int(numbers[start])
                if tables and bucket != current:
                    yield current, pa.concat_tables(tables)
                    tables, count = [], 0
                current = bucket
                tables.append(rows.slice(start, stop - start))
                count += stop - start
                if count >= _REDUCE_ROWS:
                    tables = [select_newest(pa.concat_tables(tables), self.keys)]
                    count = 0  # of rows that came since
        if tables:
            yield current, pa.concat_tables(tables)

    def _merge_bucket(self, bucket: int, rows: pa.Table) -> LakeOutcome:
        outcome = LakeOutcome()
        empty = [name for name in self.keys if self.part.target.by_id and rows.column(name).null_count]
        if empty:
            # Readers of Iceberg fail at a null in an identifier field.
            raise Fatal(
                f"table {self.part.address}: a row has no value in the column {empty[0]} of the key ({', '.join(self.keys)}). "
                "Leave such rows out by a step (filter), or give them a value (coalesce in a step of type sql)"
            )
        deleted = pc.equal(rows.column("ums_op_"), "d")
        if self.side is not None:
            recent = self._is_remembered(self.side, bucket, rows)
            outcome.stale += rows.num_rows - int(np.count_nonzero(recent))
            rows, deleted = rows.filter(pa.array(recent)), deleted.filter(pa.array(recent))
            self._remember_deletes(self.side, bucket, rows.filter(deleted), outcome)
        hidden = deleted.to_numpy().astype(bool) if self.side is not None else np.zeros(rows.num_rows, dtype=bool)
        merged = merge_rows(self.part, bucket, _in_bucket(self.part.target, rows, bucket), self.keys, hidden)
        outcome.added, outcome.removed = merged.added, merged.removed
        outcome.rows += merged.rows
        outcome.stale += merged.stale
        outcome.bytes += merged.bytes
        return outcome

    def _is_remembered(self, side: LakePart, bucket: int, rows: pa.Table) -> Any:
        """Whether each row is not older than a delete that is remembered."""
        keep = np.ones(rows.num_rows, dtype=bool)
        orders = rows.column(_ORDER).to_numpy()
        for file in side.files.get(bucket, ()):
            with open_file(side.target, file.path) as parquet:
                deletes = read_keys(side.target, parquet, [*self.keys, _ORDER])
            there, here = match_rows(deletes, _cast_rows(rows, side.target, self.keys), self.keys)
            keep[here[deletes.column(_ORDER).to_numpy()[there] > orders[here]]] = False
        return keep

    def _remember_deletes(self, side: LakePart, bucket: int, deletes: pa.Table, outcome: LakeOutcome) -> None:
        if not deletes.num_rows:
            return
        time = pa.array(np.full(deletes.num_rows, self.now_us), pa.timestamp("us", "UTC"))
        rows = deletes.select([*self.keys, _ORDER]).append_column(WRITTEN, time)
        hidden = np.zeros(rows.num_rows, dtype=bool)
        merged = merge_rows(
            side, bucket, _in_bucket(side.target, rows, bucket), self.keys, hidden, forget_us=self.forget_us
        )
        outcome.side_added, outcome.side_removed = merged.added, merged.removed
        outcome.bytes += merged.bytes


@dataclass(slots=True)
class CompactTask:
    """Copies groups of files into fewer ones; its input has a column of lists of paths."""

    part: LakePart

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy each group of the task."""
        with storage_errors(self.part.address):
            for batch in batches:
                for paths in batch.column(0).to_pylist():
                    files = self.part.writer(0)
                    for path in paths:
                        with open_file(self.part.target, path) as parquet:
                            for rows in read_rows(self.part.target, parquet):
                                files.add(rows)
                    files.close()
                    yield LakeOutcome(added=files.added, removed=paths, rows=files.rows, bytes=files.bytes).batch()


def merge_rows(
    part: LakePart, bucket: int, rows: pa.Table, keys: Sequence[str], hidden: Any, *, forget_us: int = 0
) -> LakeOutcome:
    """Merge rows into the files of a bucket: files that hold a key which changes are copied without its old row. Blocks.

    Args:
        part: the table.
        bucket: of the rows.
        rows: with the columns of the target, one per key.
        keys: names of the key's columns.
        hidden: which rows replace that of their key and are not written themselves (deletes).
        forget_us: rows of files that are copied are left out if their ``written_at_`` is earlier.
    """
    orders = rows.column(_ORDER).to_numpy()
    write = np.ones(rows.num_rows, dtype=bool)
    first = rows.column(keys[0])
    # The statistics of a file say nothing of nulls, nor of structs and arrays as a whole.
    bounded = not (part.target.by_id or first.null_count or pa.types.is_nested(first.type))
    bounds = pc.min_max(first).as_py() if bounded and rows.num_rows else {"min": None, "max": None}
    small = part.small(bucket)
    copies: dict[str, Any] = {}
    for file in part.files.get(bucket, ()):
        with open_file(part.target, file.path) as parquet:
            if bounded and not may_hold(parquet, keys[0], bounds["min"], bounds["max"]):
                if file.path in small:
                    copies[file.path] = None
                continue
            present = read_keys(part.target, parquet, [*keys, _ORDER])
        there, here = match_rows(present, rows, keys)
        older = present.column(_ORDER).to_numpy()[there] <= orders[here]
        write[here[~older]] = False
        if older.any() or file.path in small:
            keep = np.ones(present.num_rows, dtype=bool)
            keep[there[older]] = False
            copies[file.path] = keep
    written = write & ~hidden
    outcome = LakeOutcome(stale=int(np.count_nonzero(~write)))
    if not written.any() and not copies:
        return outcome
    files = part.writer(bucket)
    for path, keep in copies.items():
        _copy_file(part.target, path, keep, forget_us, files)
    files.add(rows.filter(pa.array(written)))
    files.close()
    outcome.added, outcome.removed, outcome.bytes = files.added, list(copies), files.bytes
    outcome.rows = int(np.count_nonzero(write))
    return outcome


def _copy_file(target: FileTarget, path: str, keep: Any, forget_us: int, files: Files) -> None:
    with open_file(target, path) as parquet:
        start = 0
        for rows in read_rows(target, parquet):
            kept = rows if keep is None else rows.filter(pa.array(keep[start : start + rows.num_rows]))
            start += rows.num_rows
            if forget_us:
                kept = kept.filter(pc.greater_equal(kept.column(WRITTEN).cast(pa.int64()), forget_us))
            if kept.num_rows:
                files.add(kept)


def _name_columns(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Table:
    """Rows under the table's names: Spark knows their columns by numbers."""
    return pa.Table.from_batches([batch.rename_columns([*columns, *batch.schema.names[len(columns) :]])])


def _cast_rows(rows: pa.Table, target: FileTarget, names: Sequence[str]) -> pa.Table:
    return pa.table({name: rows.column(name).cast(target.schema.field(name).type) for name in names})


def _in_bucket(target: FileTarget, rows: pa.Table, bucket: int) -> pa.Table:
    if BUCKET in target.schema.names:
        rows = rows.append_column(BUCKET, pa.array(np.full(rows.num_rows, bucket, dtype=np.int32)))
    return conform_rows(target.schema, rows)


def by_bucket(files: Sequence[DataFile]) -> dict[int, list[DataFile]]:
    """Files by bucket. Pure."""
    buckets: dict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        buckets[file.bucket].append(file)
    return dict(buckets)
