"""The rows of the tables that a small batch needs, found by lookups in the state instead of by reading it. No Spark.

From the rows that changed, lookups lead along the joins up to the rows of the base table that join them, and from these down
to all rows that they join, in the state before the batch. More rows than necessary do no harm: what the view makes of them
is the same before and after the batch. What must not happen is that a base row, or a group, is there with a part of its rows
only, and differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from spark_jobs.steps import arrow_rows
from spark_jobs.steps.state.tables import ORDER
from spark_jobs.steps.view.query import direct_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spark_jobs.steps.view.query import ViewQuery

#: Column: whether the row was deleted.
GONE: Final = "gone_"
#: The most changed rows of a table that are a small batch.
MOST_CHANGED: Final = 20_000
#: The most rows of all tables that a small batch may need.
MOST_LOADED: Final = 200_000
_COMPARED: Final = (t.IntegralType, t.BooleanType, t.DecimalType, t.BinaryType, t.DateType, t.TimestampType)


class SmallBatchTooLarge(Exception):
    """The batch needs more rows than fit into a small one, or rows that only Spark finds."""


@dataclass(frozen=True, slots=True)
class Links:
    """By which columns rows of a query's tables are looked up.

    Attributes:
        joins: for each table but the base table: the earlier table, and equal columns: its, and the table's own.
        group: a table, and those of its columns by which rows are grouped, among others; None without GROUP BY.
    """

    joins: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    group: tuple[int, tuple[int, ...]] | None


@dataclass(frozen=True, slots=True)
class SmallTable:
    """One table that the view reads, in a small batch.

    Attributes:
        name: of its table in the state.
        names: the names of its columns in the state, by position.
        key: the names of its key columns in the state.
        fields: the columns of the state.
        old: rows before the batch of keys that changed.
        changed: the newest row of each key that changed, also of a deleted one.
    """

    name: str
    names: Mapping[int, str]
    key: tuple[str, ...]
    fields: t.StructType
    old: pa.Table
    changed: pa.Table

    @property
    def new(self) -> pa.Table:
        """The rows after the batch of keys that changed."""
        return select_existing(self.changed)


def find_links(query: ViewQuery) -> Links | None:
    """The columns for lookups; None if there is an expression where one is needed. Pure."""
    kinds = [[column.type for column in source.schema.columns] for source in query.sources]
    joins = []
    for number, source in enumerate(query.sources):
        if any(not _is_compared(column.type) for column in source.schema.key):
            return None
        pairs = [(direct_column(left), direct_column(right)) for left, right in source.pairs]
        matches = [
            (left[1], right[1])
            for left, right in pairs
            if left is not None
            and right is not None
            and _are_compared(kinds[left[0]][left[1]], kinds[number][right[1]])
        ]
        if number and not matches:
            return None
        joins += [(source.parent, tuple(matches))] if number else []
    if not query.grouped:
        return Links(tuple(joins), None)
    groups = [
        column
        for column in map(direct_column, query.group)
        if column is not None and not query.sources[column[0]].left and _is_compared(kinds[column[0]][column[1]])
    ]
    if not groups:
        return None
    nearest = min(number for number, _ in groups)  # to the base table
    return Links(tuple(joins), (nearest, tuple(position for number, position in groups if number == nearest)))


def select_existing(rows: pa.Table) -> pa.Table:
    """The rows that are not deleted."""
    return rows.filter(pc.invert(rows.column(GONE)))


def select_newer(rows: pa.Table, stored: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose order number is not smaller than that of the stored row of their key: of equal ones the later counts."""
    orders = dict(zip(_list_row_keys(stored, key), stored.column(ORDER).to_pylist(), strict=True))
    mask = [
        at not in orders or order >= orders[at]
        for at, order in zip(_list_row_keys(rows, key), rows.column(ORDER).to_pylist(), strict=True)
    ]
    return rows.filter(pa.array(mask, pa.bool_()))


class SmallBatch:
    """Finds the rows that a batch needs.

    Args:
        query: the SELECT.
        links: its columns for lookups.
        tables: of each table of FROM, in order.
        lookup: gives rows of a table before the batch by the values of columns; may raise ``SmallBatchTooLarge``.
    """

    def __init__(
        self,
        query: ViewQuery,
        links: Links,
        tables: Sequence[SmallTable],
        lookup: Callable[[SmallTable, Mapping[str, pa.Array]], pa.Table],
    ) -> None:
        self._query = query
        self._links = links
        self._tables = tables
        self._lookup = lookup
        self._loaded = [table.old for table in tables]
        self._asked: dict[tuple[int, tuple[str, ...]], list[Mapping[str, set[Any]]]] = {}

    def rows(self) -> list[tuple[pa.Table, pa.Table]]:
        """The rows of each table before and after the batch, with the columns of its state.

        Raises:
            TooLarge: there are too many.
        """
        for number in range(len(self._tables) - 1, 0, -1):
            self._load_parents(number)
        if self._links.group is not None:
            number, positions = self._links.group
            self._load_children(number)
            names = [self._tables[number].names[position] for position in positions]
            self._load_rows(number, {name: self._read_column_values(number, name) for name in names})
            while number:
                self._load_parents(number)
                number = self._links.joins[number - 1][0]
        self._load_children(len(self._tables) - 1)
        result = []
        for table, loaded in zip(self._tables, self._loaded, strict=True):
            before = arrow_rows.select_newest(loaded, table.key, (ORDER,))
            after = arrow_rows.drop_matches(before, table.changed, table.key)
            result.append((before, arrow_rows.concat_tables(after, table.new)))
        return result

    def _load_parents(self, number: int) -> None:
        """Load the rows of the earlier table that join rows of this one."""
        parent, pairs = self._links.joins[number - 1]
        columns, names = self._tables[number].names, self._tables[parent].names
        self._load_rows(
            parent, {names[left]: self._read_column_values(number, columns[right]) - {None} for left, right in pairs}
        )

    def _load_children(self, last: int) -> None:
        """Load what rows of earlier tables join, up to a table."""
        for number in range(1, last + 1):
            parent, pairs = self._links.joins[number - 1]
            columns, names = self._tables[number].names, self._tables[parent].names
            self._load_rows(
                number,
                {columns[right]: self._read_column_values(parent, names[left]) - {None} for left, right in pairs},
            )

    def _read_column_values(self, number: int, name: str) -> set[Any]:
        """The values of a column in the rows of a table that are loaded or new."""
        columns = [self._loaded[number].column(name), self._tables[number].new.column(name)]
        return {value for column in columns for value in pc.unique(column).to_pylist()}

    def _load_rows(self, number: int, columns: Mapping[str, set[Any]]) -> None:
        """Load the rows of a table with these values."""
        asked = self._asked.setdefault((number, tuple(columns)), [])
        if any(all(columns[name] <= earlier[name] for name in columns) for earlier in asked):
            return
        asked.append(columns)
        schema = self._loaded[number].schema
        arrays = {name: _make_typed_array(values, schema.field(name).type) for name, values in columns.items()}
        if not all(len(array) for array in arrays.values()):
            return
        rows = select_existing(self._lookup(self._tables[number], arrays))
        self._loaded[number] = arrow_rows.concat_tables(self._loaded[number], rows)
        if sum(loaded.num_rows for loaded in self._loaded) > MOST_LOADED:
            raise SmallBatchTooLarge


def _list_row_keys(rows: pa.Table, key: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in key), strict=True))


def _make_typed_array(values: set[Any], kind: pa.DataType) -> pa.Array:
    """The values that a column of this type may have: the others, of a wider type, equal none of it."""
    if pa.types.is_integer(kind):
        end = 1 << (kind.bit_width - 1)
        values = {value for value in values if value is None or -end <= value < end}
    return pa.array(list(values), kind)


def _is_compared(kind: t.DataType) -> bool:
    return isinstance(kind, _COMPARED) or kind == t.StringType()


def _are_compared(kind: t.DataType, other_kind: t.DataType) -> bool:
    if isinstance(kind, t.IntegralType) and isinstance(other_kind, t.IntegralType):
        return True
    return kind == other_kind and _is_compared(kind)
