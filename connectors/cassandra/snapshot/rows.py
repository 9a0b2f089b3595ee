"""From rows of a SELECT to partition updates. Pure; ``SNAPSHOT.md`` says why it is as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from connectors.cassandra.events.contract import CONNECTOR
from connectors.cassandra.snapshot.statement import KEY, NOW, TOKEN, build_select
from connectors.cql.values import BadCell
from connectors.formats import timeuuid
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    PartitionUpdate,
    UpdateDeletion,
    UpdateRow,
    UpdateSource,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.cassandra.snapshot.statement import ColumnCells
    from connectors.cql.mutations.definition import CqlTableDefinition

#: The write time of what has one that can't be read, and that nothing must lose against: anything wins over it.
UNKNOWN_US: Final = 0
#: Write times before 2005 are no moments: the writers count something else.
_MOMENTS_US: Final = 1_104_537_600_000_000
#: The names of list elements that were read begin here, in 2010: those of elements that are put in front are made to be before,
#: those that are appended after it.
_NAMES_US: Final = 1_262_304_000_000_000
#: The last eight bytes of such a name; no node makes them.
_NAMES_LOW: Final = 0x8000_4D69_6C6C_7261
#: Rows of an update at most.
MOST_ROWS: Final = 500


class ReadMoment(NamedTuple):
    """When a page was read.

    Attributes:
        settled_us: writes before this moment are in the page, by the server's clock in µs; with some distance.
        read_ms: when it came, by this machine's clock, ms.
        default_ttl: ``default_time_to_live`` of the table in s, 0: none.
    """

    settled_us: int
    read_ms: int
    default_ttl: int = 0


class DecodedPage(NamedTuple):
    """A decoded page of rows; ``bad`` says what could not be decoded."""

    updates: list[PartitionUpdate]
    bad: tuple[str, ...]


class SnapshotRowReader:
    """Reads the rows of one definition of a table.

    Args:
        prefix: the cluster's name in events.
        table: the definition.
        elements: see ``statement.select``.
    """

    def __init__(self, prefix: str, table: CqlTableDefinition, *, elements: bool) -> None:
        self.table = table
        self.select = build_select(table, elements=elements)
        self._source = UpdateSource(
            connector=CONNECTOR,
            cluster=prefix,
            keyspace=table.keyspace,
            table=table.table,
            table_id=table.table_id,
            schema_version=table.version,
            snapshot=True,
        )
        self._key_end = KEY + len(table.key)
        self._clustering_end = self._key_end + len(table.clustering)
        self._static = tuple(column for column in self.select.columns if column.column.kind == "static")
        self._regular = tuple(column for column in self.select.columns if column.column.kind == "regular")

    def read(self, rows: Sequence[tuple[Any, ...]], moment: ReadMoment) -> DecodedPage:
        """The partition updates of a page's rows, in their order."""
        source = msgspec.structs.replace(self._source, read_time=moment.read_ms)
        updates: list[PartitionUpdate] = []
        bad: list[str] = []
        key: tuple[Any, ...] | None = None
        token: int | None = None
        pending: list[UpdateRow] = []
        static: UpdateRow | None = None

        def flush() -> None:
            if key is not None and (pending or static is not None):
                updates.append(_make_update(source, key, static, tuple(pending), moment))

        for raw in rows:
            if BadCell in map(type, raw):
                bad.append(self._describe_bad_row(raw))
                continue
            now = raw[KEY : self._key_end]
            # Keys that are equal here may be two partitions: 0.0 and -0.0.
            if now != key or raw[TOKEN] != token:
                flush()
                key, token, pending = now, raw[TOKEN], []
                static = self._read_row(None, self._static, raw, moment) if self._static else None
                if static is not None and not static.cells and not static.complex_deletions:
                    static = None
            elif len(pending) >= MOST_ROWS:
                flush()
                pending, static = [], None
            clustering = raw[self._key_end : self._clustering_end]
            row = self._read_row(clustering, self._regular, raw, moment)
            # A partition that has a static row only comes as a row without a clustering key. One with cells has empty values.
            if clustering and all(value is None for value in clustering) and not row.cells:
                continue
            pending.append(row)
        flush()
        return DecodedPage(updates, tuple(bad))

    def last_token(self, rows: Sequence[tuple[Any, ...]]) -> int | None:
        """The token of the last row."""
        return rows[-1][TOKEN] if rows else None

    @staticmethod
    def server_ms(rows: Sequence[tuple[Any, ...]]) -> int | None:
        """The server's clock when it made the first row, ms."""
        return rows[0][NOW] if rows else None

    def _read_row(
        self,
        clustering: tuple[Any, ...] | None,
        columns: Sequence[ColumnCells],
        raw: tuple[Any, ...],
        moment: ReadMoment,
    ) -> UpdateRow:
        """The row of these columns; without clustering values (None) it is the static row, which is never inserted."""
        now_s = raw[NOW] // 1000
        cells: list[Cell] = []
        lists: list[tuple[ColumnCells, Any, Any, Any]] = []
        untimed: list[tuple[ColumnCells, Any]] = []
        for cell_columns in columns:
            column, index, time = cell_columns
            value = raw[index]
            kind = column.type
            if kind.is_multicell:
                if time is None:
                    untimed.append((cell_columns, value))
                elif kind.name == "list":
                    lists.append((cell_columns, value, raw[time], raw[time + 1]))
                elif value is not None:
                    _add_elements(column.name, kind.name, value, raw[time], raw[time + 1], now_s, cells)
                continue
            written = None if time is None else raw[time]
            if time is not None and written is not None:
                # A None with a time is an empty value of a type that shows none; the log gives it as a tombstone as well.
                ttl = None if value is None else raw[time + 1]
                cells.append(Cell(column.name, None, value, _make_stamp(written, ttl, now_s)))
        deletions: list[tuple[str, UpdateDeletion]] = []
        newest_us = max((cell.stamp.write_time for cell in cells), default=None)
        for cell_columns, value, times, ttls in lists:
            _add_list(cell_columns.column.name, value, times, ttls, newest_us, moment, now_s, cells, deletions)
        for cell_columns, value in untimed:
            _add_untimed(cell_columns, value, newest_us, moment, now_s, cells, deletions)
        liveness = None if clustering is None else _row_liveness(cells, moment, now_s)
        return UpdateRow(clustering or (), liveness, None, tuple(cells), tuple(deletions))

    def _describe_bad_row(self, raw: tuple[Any, ...]) -> str:
        names = [column.name for column in (*self.table.key, *self.table.clustering)]
        key = ", ".join(f"{name}={value!r}" for name, value in zip(names, raw[KEY:], strict=False))
        column_names = {column.value: column.column.name for column in self.select.columns}
        wrong = [
            f"{column_names.get(index, names[index - KEY] if KEY <= index < KEY + len(names) else index)}: {cell.error}"
            for index, cell in enumerate(raw)
            if isinstance(cell, BadCell)
        ]
        return f"the row {key} of {self.table} can't be decoded: {'; '.join(wrong)}"


def _make_update(
    source: UpdateSource,
    key: tuple[Any, ...],
    static: UpdateRow | None,
    rows: tuple[UpdateRow, ...],
    moment: ReadMoment,
) -> PartitionUpdate:
    newest = max(
        (cell.stamp.write_time for row in (rows if static is None else (static, *rows)) for cell in row.cells),
        default=None,
    )
    return PartitionUpdate(
        source=source, key=key, static=static, rows=rows, write_time=moment.read_ms * 1000 if newest is None else newest
    )


def _make_stamp(written: int, ttl: int | None, now_s: int) -> CellStamp:
    return CellStamp(written) if ttl is None else CellStamp(written, ttl, now_s + ttl)


def _default_stamp(written: int, moment: ReadMoment, now_s: int) -> CellStamp:
    """Of what has a TTL that can't be read: the table's default begins now at the latest."""
    return _make_stamp(written, moment.default_ttl or None, now_s)


def _row_liveness(cells: Sequence[Cell], moment: ReadMoment, now_s: int) -> CellStamp:
    """Of a row: it may have been inserted, and nothing tells when, or with which TTL."""
    living = [cell.stamp for cell in cells if cell.value is not None]
    if not living:
        return _default_stamp(UNKNOWN_US, moment, now_s)
    if any(stamp.expires is None for stamp in living):
        return CellStamp(UNKNOWN_US)
    last = max(living, key=lambda stamp: stamp.expires or 0)
    return CellStamp(UNKNOWN_US, last.ttl, last.expires)


def _add_elements(name: str, kind: str, value: Any, times: Any, ttls: Any, now_s: int, cells: list[Cell]) -> None:
    """Cells of a set, a map or a UDT, whose elements have times and names."""
    for index, (path, item) in enumerate(_element_pairs(kind, value)):
        written = times[index]
        if written is not None:
            cells.append(Cell(name, path, item, _make_stamp(written, ttls[index] if ttls is not None else None, now_s)))


def _element_pairs(kind: str, value: Any) -> list[tuple[Any, Any]]:
    """Names and values of a multicell value's elements, as cells have them."""
    if kind == "set":
        return [(item, True) for item in value]
    if kind == "map":
        return [(item["key"], item["value"]) for item in value]
    if kind == "udt":
        return list(value.items())
    return [(element_name(index), item) for index, item in enumerate(value)]


def element_name(index: int) -> str:
    """The name that an element of a list gets, whose own can't be read."""
    return timeuuid.format_uuid(timeuuid.make_uuid(_NAMES_US + index, _NAMES_LOW))


def _add_list(
    name: str,
    value: Any,
    times: Any,
    ttls: Any,
    newest_us: int | None,
    moment: ReadMoment,
    now_s: int,
    cells: list[Cell],
    deletions: list[tuple[str, UpdateDeletion]],
) -> None:
    """Cells of a list, whose elements have times and no names: it is overwritten as of a moment, or left alone."""
    newest = max((write_time for write_time in times or () if write_time is not None), default=None)
    if newest is None and (newest_us is None or newest_us < _MOMENTS_US):
        return
    until = newest if newest is not None and newest < _MOMENTS_US else moment.settled_us - 2
    ahead_us = moment.read_ms * 1000 + 3_600_000_000
    deletions.append((name, UpdateDeletion(until, max(0, until) // 1_000_000)))
    for index, item in enumerate(value or ()):
        written = times[index]
        ttl = ttls[index] if ttls is not None else None
        if written <= until:
            cells.append(Cell(name, element_name(index), item, _make_stamp(until + 1, ttl, now_s)))
        elif written > ahead_us:
            # From the future: the log need not have it.
            cells.append(Cell(name, element_name(index), item, _make_stamp(written, ttl, now_s)))


def _add_untimed(
    column: ColumnCells,
    value: Any,
    newest_us: int | None,
    moment: ReadMoment,
    now_s: int,
    cells: list[Cell],
    deletions: list[tuple[str, UpdateDeletion]],
) -> None:
    """Cells of a multicell column of which the server tells no times."""
    name, kind = column.column.name, column.column.type.name
    written = UNKNOWN_US
    if kind == "list" and (newest_us is None or newest_us >= _MOMENTS_US):
        until = moment.settled_us - 2
        written = until + 1
        deletions.append((name, UpdateDeletion(until, until // 1_000_000)))
    for path, item in _element_pairs(kind, value) if value is not None else ():
        if item is not None:
            cells.append(Cell(name, path, item, _default_stamp(written, moment, now_s)))
