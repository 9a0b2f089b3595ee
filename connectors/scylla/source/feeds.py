"""A table's log rows on their way to event builders: what is selected, and which definition each row belongs to."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.types import RAW, CqlType, raw_timeuuids, timed_list
from connectors.scylla.config.names import quote_name
from connectors.scylla.model import TIME
from connectors.scylla.schema.log_table import META_COLUMNS, log_name
from connectors.scylla.source.refitting import AnotherTypeError, refit_values
from connectors.scylla.source.windows import ticks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connectors.scylla.events.contract import EventBuilder
    from connectors.scylla.events.fast_rows import FastFeed
    from connectors.scylla.model import LogRow, TableId, TableVersion

    #: ``TableVersion.definition``.
    Definition = tuple[str, int, str]

_META: Final = len(META_COLUMNS)


#: How the first members of a log row are decoded: stream and time stay bytes.
_META_TYPES: Final = (RAW, RAW, CqlType("int"), CqlType("tinyint"), CqlType("bigint"), CqlType("boolean"))


def select_text(version: TableVersion, columns: tuple[str, ...], *, single: bool, keys_only: bool = False) -> str:
    """The query for a time range of streams of a log.

    Its parameters are the stream (``single``) or a list of them, and two timeuuids.
    """
    names = (*META_COLUMNS, *columns) if not keys_only else META_COLUMNS[:3]
    table = f"{quote_name(version.id.keyspace)}.{quote_name(log_name(version.id))}"
    return (
        f'SELECT {", ".join(map(quote_name, names))} FROM {table} WHERE "cdc$stream_id" {"=" if single else "IN"} ? '  # noqa: S608 - names are quoted
        'AND "cdc$time" >= ? AND "cdc$time" <= ?'
    )


def decoded_types(version: TableVersion, columns: tuple[str, ...]) -> tuple[CqlType, ...]:
    """How the cells of a log row are decoded: the first members, then ``columns``.

    A multicell list is logged as a map by time uuid and decoded as pairs in its order; what was deleted of it as raw uuids.
    """
    lists = {
        column.name: column.type
        for column in version.columns
        if column.type.is_multicell and column.type.name == "list"
    }
    kinds = dict(version.log_columns)
    for name, kind in lists.items():
        kinds[name] = timed_list(kind.arguments[0])
        kinds[f"cdc$deleted_elements_{name}"] = raw_timeuuids()
    return (*_META_TYPES, *(kinds[name] for name in columns))


def make_adapter(
    selected: TableVersion, columns: tuple[str, ...], target: TableVersion
) -> Callable[[LogRow], LogRow] | None:
    """Turns rows selected with one definition into rows of another; None if they are the same.

    ``columns`` are the log columns of ``selected`` that were there.

    A column that was not selected, or has another type there, is null: its cells are not in the log any more. A type that was
    altered is the same type, with other fields.
    """
    names = tuple(name for name, _ in target.log_columns)
    kinds = dict(zip(columns, decoded_types(selected, columns)[_META:], strict=True))
    indexes = {name: index for index, name in enumerate(columns, _META)}
    missing = _META + len(columns)
    picked_indexes: list[int] = []
    changes: list[tuple[int, Callable[[Any], Any]]] = []
    for index, (name, kind) in enumerate(zip(names, decoded_types(target, names)[_META:], strict=True), _META):
        try:
            change = refit_values(kinds[name], kind)
        except (KeyError, AnotherTypeError):
            picked_indexes.append(missing)
            continue
        picked_indexes.append(indexes[name])
        if change is not None:
            changes.append((index, change))
    if columns == names and missing not in picked_indexes and not changes:
        return None
    pick = itemgetter(*range(_META), *picked_indexes)

    def adapt(row: LogRow) -> LogRow:
        adapted_row: LogRow = pick((*row, None))
        if not changes:
            return adapted_row
        cells = list(adapted_row)
        for index, change in changes:
            cells[index] = change(cells[index])
        return tuple(cells)

    return adapt


class TableFeed:
    """One table for all lanes of a task: its definitions, their builders, its queries.

    Args:
        table: the table.
        versions: its definitions, oldest first.
        make_builder: compiles the builder of a definition; called once for each.
        log_columns: names of the columns that the log table has now; empty: not known, all are taken to be there.

    Attributes:
        fast: what encodes rows without records, by ``TableVersion.definition``; the task agrees on it with the runtime.
    """

    def __init__(
        self,
        table: TableId,
        versions: tuple[TableVersion, ...],
        make_builder: Callable[[TableVersion], EventBuilder],
        log_columns: frozenset[str] = frozenset(),
    ) -> None:
        self.table = table
        self.fast: dict[Definition, FastFeed] = {}
        self._make = make_builder
        self._builders: dict[Definition, EventBuilder] = {}
        self._adapters: dict[tuple[str, tuple[str, ...], str], Callable[[LogRow], LogRow] | None] = {}
        self._queries: dict[tuple[str, bool, bool], str] = {}
        self._types: dict[str, tuple[CqlType, ...]] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self._there: frozenset[str] = frozenset()
        self._versions: tuple[TableVersion, ...] = ()
        #: Goes up with each change of what is selected.
        self.epoch = 0
        self.update(versions, log_columns)

    def update(self, versions: tuple[TableVersion, ...], log_columns: frozenset[str] = frozenset()) -> bool:
        """Take new definitions; returns whether anything changed."""
        if not versions:
            raise ValueError(f"{self.table}: no definition")
        if versions == self._versions and log_columns == self._there:
            return False
        self.epoch += 1
        self._there = log_columns
        self._queries.clear()
        self._types.clear()
        self._columns.clear()
        self._adapters.clear()
        self._versions = versions
        self._since = [version.since_us * 10 for version in versions]
        return True

    @property
    def newest(self) -> TableVersion:
        """The definition in force: what queries select."""
        return self._versions[-1]

    def text(self, version: TableVersion, *, single: bool, keys_only: bool = False) -> str:
        """See ``select_text``."""
        key = (version.version, single, keys_only)
        cql = self._queries.get(key)
        if cql is None:
            cql = self._queries[key] = select_text(
                version, self.selected_columns(version), single=single, keys_only=keys_only
            )
        return cql

    def types(self, version: TableVersion) -> tuple[CqlType, ...]:
        """How to decode what ``text`` selects."""
        types = self._types.get(version.version)
        if types is None:
            types = self._types[version.version] = decoded_types(version, self.selected_columns(version))
        return types

    def selected_columns(self, version: TableVersion) -> tuple[str, ...]:
        """The log columns that ``text`` selects; fewer once some were dropped."""
        columns = self._columns.get(version.version)
        if columns is None:
            columns = tuple(name for name, _ in version.log_columns if not self._there or name in self._there)
            self._columns[version.version] = columns
        return columns

    def builder(self, version: TableVersion) -> EventBuilder:
        """The builder of a definition."""
        builder = self._builders.get(version.definition)
        if builder is None:
            builder = self._builders[version.definition] = self._make(version)
        return builder

    def builders(self) -> Iterator[EventBuilder]:
        """Those that were made."""
        return iter(list(self._builders.values()))

    def _version_index(self, time: bytes) -> int:
        ticks = ticks_of(time)
        for index in range(len(self._since) - 1, 0, -1):
            if ticks >= self._since[index]:
                return index
        return 0

    def version_in_force(self, time_us: int) -> TableVersion:
        """The newest definition that is not younger than a time, µs since 1970."""
        return next((version for version in reversed(self._versions) if version.since_us <= time_us), self._versions[0])

    def parts(
        self, selected: TableVersion, columns: tuple[str, ...], rows: list[LogRow]
    ) -> list[tuple[TableVersion, list[LogRow]]]:
        """Rows of one stream cut where the definition changed, each in the form of its own definition.

        Args:
            selected: what they were selected with.
            columns: the log columns that were selected: the log may have lost some since.
            rows: at least one, in log order.
        """
        versions = self._versions
        if len(versions) == 1:
            first = last = 0
        else:
            first, last = self._version_index(rows[0][TIME]), self._version_index(rows[-1][TIME])
        parts: list[tuple[TableVersion, list[LogRow]]] = []
        while first < last:
            stop = self._first_at(rows, first + 1)
            if stop:
                parts.append((versions[first], rows[:stop]))
                rows = rows[stop:]
            first = self._version_index(rows[0][TIME])
        parts.append((versions[first], rows))
        return [(version, self._adapt_rows(selected, columns, version, part)) for version, part in parts]

    def _first_at(self, rows: list[LogRow], index: int) -> int:
        since = self._since[index]
        low, high = 0, len(rows)
        while low < high:
            middle = (low + high) // 2
            if ticks_of(rows[middle][TIME]) < since:
                low = middle + 1
            else:
                high = middle
        return low

    def _adapt_rows(
        self, selected: TableVersion, columns: tuple[str, ...], target: TableVersion, rows: list[LogRow]
    ) -> list[LogRow]:
        key = (selected.version, columns, target.version)
        if key not in self._adapters:
            self._adapters[key] = make_adapter(selected, columns, target)
        adapt = self._adapters[key]
        return rows if adapt is None else [adapt(row) for row in rows]
