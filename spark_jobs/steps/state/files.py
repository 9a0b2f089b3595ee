"""The files of one table of a step's state, read and written without Spark: what a small batch needs of a large table.

The table is a Delta table like any other, which Spark reads and writes, too; see ``state.py`` for what its rows are. A lookup
reads the files, row groups and pages that may hold its rows: few for keys, by which the files are sorted, and one whole
column for others.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError, DeltaProtocolError

from connectors.errors import Retriable
from spark_jobs.steps import arrow_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: The most values of a column that are written into a query; more are compared by a scan of the whole column.
_MOST_LISTED: Final = 1000


@dataclass(frozen=True, slots=True)
class Layers:
    """The two parts of a table: the rows of its first batch number, of which a key has one, and those that came later.

    Attributes:
        first: the smallest batch number.
        last: the largest one.
        base: how many rows have the smallest one.
        recent: how many have others.
        files: in how many files those are.
    """

    first: int
    last: int
    base: int
    recent: int
    files: int


class StateFiles:
    """The files of one table. All calls block.

    Args:
        path: the folder.
        batch_column: the column with the number of the batch that wrote the row.
    """

    def __init__(self, path: str, batch_column: str) -> None:
        self._path = path
        self._batch = batch_column
        with _translate_errors(path):
            self._table = DeltaTable(path)
        self._layers: tuple[int, Layers | None] | None = None

    def refresh(self) -> None:
        """Take note of what others (Spark) have written."""
        with _translate_errors(self._path):
            self._table.update_incremental()

    def schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema(self._table.schema().to_arrow())

    def layers(self) -> Layers | None:
        """Its layers by the statistics of its files; None if it has files without statistics."""
        version = self._table.version()
        if self._layers is None or self._layers[0] != version:
            with _translate_errors(self._path):
                files = pa.table(self._table.get_add_actions(flatten=True))
            self._layers = version, _layers_of(files, self._batch)
        return self._layers[1]

    def rows(self, columns: Mapping[str, pa.Array], batches: tuple[int, int], max_rows: int) -> pa.Table:
        """Rows with these values, and at most one more than ``max_rows``.

        Args:
            columns: the values of each column; null among them means rows without a value.
            batches: the first number of a batch whose rows count, and the one before which they end.
            max_rows: see above.
        """
        with _translate_errors(self._path):
            if all(_is_listed(values) for values in columns.values()):
                conditions = [f'"{self._batch}" >= {batches[0]}', f'"{self._batch}" < {batches[1]}']
                conditions += [_build_in_condition(name, values) for name, values in columns.items()]
                sql = f"SELECT * FROM state WHERE {' AND '.join(conditions)} LIMIT {max_rows + 1}"  # noqa: S608 - escaped
                result = pa.table(QueryBuilder().register("state", self._table).execute(sql).read_all())
                return arrow_rows.conform_rows(result, self.schema())  # it has view types, of which Arrow can do less
            where: Any = (pc.field(self._batch) >= batches[0]) & (pc.field(self._batch) < batches[1])
            for name, values in columns.items():
                match = pc.field(name).isin(values.drop_null())
                where &= (match | pc.field(name).is_null()) if values.null_count else match
            return self._table.to_pyarrow_dataset().scanner(filter=where).head(max_rows + 1)

    def append(self, rows: pa.Table) -> None:
        """Add rows; columns that the table lacks become columns of it."""
        schema = self.schema()
        names = [column.name for column in schema]
        new = [column for column in rows.schema if column.name not in names]
        whole = arrow_rows.conform_rows(rows, pa.schema([*(column.with_nullable(True) for column in schema), *new]))
        with _translate_errors(self._path):
            write_deltalake(self._table, whole, mode="append", schema_mode="merge" if new else None)
            self._table.update_incremental()

    def fold(self, key: Sequence[str], by: Sequence[str], before: int) -> None:
        """Write the rows of all batches but the first one into one file, of each key the newest."""
        layers = self.layers()
        if layers is None:
            return
        recent = self.rows({}, (layers.first + 1, before), layers.recent)
        if key:
            recent = arrow_rows.select_newest(recent, key, by).sort_by([(name, "ascending") for name in key])
        with _translate_errors(self._path):
            later = f"{self._batch} > {layers.first}"
            write_deltalake(self._table, recent, mode="overwrite", predicate=later)
            self._table.update_incremental()

    def discard(self, batch: int) -> None:
        """Remove the rows of a batch and of those after it."""
        layers = self.layers()
        if layers is not None and layers.last >= batch:
            with _translate_errors(self._path):
                self._table.delete(f"{self._batch} >= {batch}")
                self._table.update_incremental()

    def clean(self) -> None:
        """Remove files that the table no longer has, if they are old."""
        with _translate_errors(self._path):
            self._table.vacuum(retention_hours=1, enforce_retention_duration=False, dry_run=False, full=True)


def create_table(path: str, rows: pa.Table, properties: Mapping[str, str]) -> None:
    """Make a table of these rows. Blocks."""
    nullable = pa.schema([column.with_nullable(True) for column in rows.schema])
    with _translate_errors(path):
        write_deltalake(path, rows.cast(nullable), mode="append", configuration=dict(properties))


def _layers_of(files: pa.Table, batch: str) -> Layers | None:
    needed = ("num_records", f"min.{batch}", f"max.{batch}")
    if not files.num_rows:
        return Layers(-1, -1, 0, 0, 0)
    if any(name not in files.column_names or files.column(name).null_count for name in needed):
        return None
    counts, low, high = (files.column(name).to_pylist() for name in needed)
    first = min(low)
    base = [count for count, largest in zip(counts, high, strict=True) if largest == first]
    return Layers(first, max(high), sum(base), sum(counts) - sum(base), len(counts) - len(base))


def _is_listed(values: pa.Array) -> bool:
    kind = values.type
    is_plain = pa.types.is_integer(kind) or pa.types.is_string(kind)
    return is_plain and len(values) <= _MOST_LISTED


def _build_in_condition(name: str, values: pa.Array) -> str:
    listed = values.drop_null().to_pylist()
    literals = [str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'" for value in listed]
    parts = [f'"{name}" IN ({", ".join(literals)})'] if literals else []
    parts += [f'"{name}" IS NULL'] if values.null_count else []
    return f"({' OR '.join(parts)})" if parts else "false"


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except DeltaProtocolError:
        raise
    except (DeltaError, OSError) as error:
        raise Retriable(f"the state of a step in {path} can't be read or written: {error}") from error
