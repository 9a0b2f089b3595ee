"""Parquet files of a lake table, in tasks: written with a bounded size, read back as the table's columns are now."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.jdbc.rows import spell_nested

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spark_jobs.sinks.lake.model import FileTarget

#: Rows and bytes (in memory) of a row group, about.
_GROUP_ROWS: Final = 131_072
_GROUP_BYTES: Final = 32 << 20
#: Rows that are read from a file at a time.
_READ_ROWS: Final = 32_768
_FIELD_ID: Final = b"PARQUET:field_id"


@dataclass(slots=True)
class Files:
    """Writes rows of one bucket into files of bounded size.

    Attributes:
        target: of the table.
        bucket: of the rows.
        limit: bytes of a file, about.
        compression: Parquet's name of it.
        added: what the commit has to know of each file that is complete.
        rows: rows in these files.
        bytes: their size.
    """

    target: FileTarget
    bucket: int
    limit: int
    compression: str
    added: list[bytes] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    _parts: list[pa.Table] = field(default_factory=list)
    _path: str = ""
    _stream: Any = None
    _writer: Any = None
    _metadata: list[Any] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Write rows, which have the columns of the target. May block."""
        for start in range(0, rows.num_rows, _GROUP_ROWS):
            self._parts.append(rows.slice(start, _GROUP_ROWS))
            if (
                sum(part.num_rows for part in self._parts) >= _GROUP_ROWS
                or sum(part.nbytes for part in self._parts) >= _GROUP_BYTES
            ):
                self._write_group()

    def close(self) -> None:
        """Complete the last file. Blocks."""
        self._write_group()
        self._finish_file()

    def _write_group(self) -> None:
        if not self._parts:
            return
        if self._writer is None:
            self._path, self._stream = self.target.create(self.bucket)
            self._metadata = []
            self._writer = pq.ParquetWriter(
                self._stream,
                self.target.schema,
                compression=self.compression,
                store_decimal_as_integer=True,
                metadata_collector=self._metadata,
            )
        group = pa.concat_tables(self._parts)
        self._parts = []
        self.rows += group.num_rows
        self._writer.write_table(group, row_group_size=group.num_rows)
        if self._stream.tell() >= self.limit:
            self._finish_file()

    def _finish_file(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        self.bytes += size
        self.added.append(self.target.describe(self._path, self.bucket, size, self._metadata[0]))
        self._writer = self._stream = None


@contextlib.contextmanager
def open_file(target: FileTarget, path: str) -> Iterator[pq.ParquetFile]:
    """A file of the table. Blocks."""
    with target.read(path) as stream, pq.ParquetFile(stream) as file:
        yield file


def read_rows(target: FileTarget, file: pq.ParquetFile) -> Iterator[pa.Table]:
    """The rows of a file, in order, with the columns of the target: missing ones are null, narrower types are widened."""
    for batch in file.iter_batches(batch_size=_READ_ROWS):
        yield conform_rows(target.schema, pa.Table.from_batches([batch]), by_id=target.by_id)


def conform_rows(schema: pa.Schema, rows: pa.Table, *, by_id: bool = False) -> pa.Table:
    """Rows with the columns of a schema, in its types: missing ones are null. Pure.

    Args:
        schema: the columns.
        rows: the rows.
        by_id: whether columns are the same if their field ids are, not their names.
    """
    present = _map_column_names(rows.schema, by_id=by_id)
    columns = []
    for column in schema:
        name = present.get(_find_identity(column, by_id=by_id))
        if name is None:
            columns.append(pa.nulls(rows.num_rows, column.type))
        else:
            values = rows.column(name)
            columns.append(values if values.type == column.type else values.cast(column.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _find_identity(column: pa.Field, *, by_id: bool) -> Any:
    return (column.metadata or {}).get(_FIELD_ID) if by_id else column.name


def _map_column_names(schema: pa.Schema, *, by_id: bool) -> dict[Any, str]:
    """Names of columns in a schema, by what makes them the same as those of another one."""
    return {_find_identity(column, by_id=by_id): column.name for column in schema}


def read_keys(target: FileTarget, file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
    """Some top-level columns of a file, in the types of the target. Blocks."""
    names = _map_column_names(file.schema_arrow, by_id=target.by_id)
    fields = [target.schema.field(name) for name in columns]
    in_file = [names[_find_identity(column, by_id=target.by_id)] for column in fields]
    rows = file.read(columns=in_file).select(in_file)
    return pa.table({column.name: rows.column(number).cast(column.type) for number, column in enumerate(fields)})


def may_hold(file: pq.ParquetFile, name: str, low: Any, high: Any) -> bool:
    """Whether a value from ``low`` to ``high`` may be in a column of a file, as far as its statistics say. Pure."""
    metadata = file.metadata
    numbers = [number for number in range(metadata.num_columns) if metadata.schema.column(number).path == name]
    if len(numbers) != 1:
        return True
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(numbers[0]).statistics
        if statistics is None or not statistics.has_min_max:
            return True
        try:
            if statistics.min <= high and statistics.max >= low:
                return True
        except TypeError:
            return True
    return False


def match_rows(left: pa.Table, right: pa.Table, keys: Sequence[str]) -> tuple[Any, Any]:
    """Numbers of rows of both tables with equal keys, pair by pair, as arrays of numpy. Keys of ``right`` are unique. Pure."""
    left, right = spell_nested(left, keys), spell_nested(right, keys)
    if len(keys) == 1:
        match = pc.index_in(left.column(keys[0]), value_set=right.column(keys[0]).combine_chunks())
        match = match.combine_chunks() if isinstance(match, pa.ChunkedArray) else match
        here = np.flatnonzero(match.is_valid().to_numpy(zero_copy_only=False))
        return here, match.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    names = [f"k{number}" for number in range(len(keys))]
    # A join finds no nulls. So values are joined by their numbers; null has one, too.
    values = [pc.unique(right.column(key)) for key in keys]

    def numbered(table: pa.Table, number: str) -> pa.Table:
        columns = [pc.index_in(table.column(key), value_set=of_key) for key, of_key in zip(keys, values, strict=True)]
        rows = pa.array(np.arange(table.num_rows, dtype=np.int64))
        return pa.table({**dict(zip(names, columns, strict=True)), number: rows})

    joined = numbered(left, "left").join(numbered(right, "right"), keys=names, join_type="inner")
    return joined.column("left").to_numpy(), joined.column("right").to_numpy()


@contextlib.contextmanager
def storage_errors(address: str) -> Iterator[None]:
    """Errors of files as ours.

    Raises:
        Fatal: there is no right to write.
        Retriable: anything else, which may pass (a missing file, too: the table is looked at again then).
    """
    try:
        yield
    except PermissionError as error:
        raise Fatal(f"{address}: no right to write there: {error}") from error
    except OSError as error:
        raise Retriable(f"{address}: {error}") from error


@contextlib.contextmanager
def raise_explained(explain: Callable[[Exception, str], Exception], address: str) -> Iterator[None]:
    """Raise errors as ``explain`` returns them for the address."""
    try:
        yield
    except Exception as error:
        explained = explain(error, address)
        if explained is error:
            raise
        raise explained from error
