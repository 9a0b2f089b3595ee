"""Serialized partition updates, read by plain code: everything that a mutation can say.

``compiled`` is the fast path for what most mutations say; all others come here. What the bytes mean is in
``connectors/cassandra/TYPES.md``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from connectors.cql.encoding import split_partition_key
from connectors.cql.mutations.cells import NewerField, cell_readers, log_width, value_decoder
from connectors.cql.mutations.cursor import LIVE_FROM, DamagedBytes, UpdateCursor
from connectors.cql.mutations.head import HAS_STATIC_ROW, IS_EMPTY, update_head
from connectors.errors import Skippable
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    ClusteringBound,
    PartitionUpdate,
    RangeDeletion,
    UpdateDeletion,
    UpdateRow,
    UpdateSource,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.cql.mutations.cells import CellReader, Decode
    from connectors.cql.mutations.definition import CqlTableDefinition

# Flags of an update (see ``head`` for the first two), of a row or marker, of a cell.
HAS_PARTITION_DELETION: Final = 4
HAS_ROW_ESTIMATE: Final = 16
END_OF_PARTITION: Final = 1
IS_MARKER: Final = 2
HAS_TIMESTAMP: Final = 4
HAS_TTL: Final = 8
HAS_DELETION: Final = 16
HAS_ALL_COLUMNS: Final = 32
HAS_COMPLEX_DELETION: Final = 64
HAS_EXTENSION: Final = 128
EXTENSION_STATIC: Final = 1
IS_DELETED: Final = 1
IS_EXPIRING: Final = 2
HAS_EMPTY_VALUE: Final = 4
USE_ROW_TIMESTAMP: Final = 8
USE_ROW_TTL: Final = 16
# Kinds of bounds in markers.
EXCLUSIVE_END: Final = 0
INCLUSIVE_START: Final = 1
EXCLUSIVE_END_INCLUSIVE_START: Final = 2
INCLUSIVE_END_EXCLUSIVE_START: Final = 5
INCLUSIVE_END: Final = 6
EXCLUSIVE_START: Final = 7
#: From this number of columns on a row's missing ones are a list of indexes and no longer bits.
MANY_COLUMNS: Final = 64
#: Clustering values that share one header.
CLUSTERING_BATCH: Final = 32


class UnknownColumn(Skippable):
    """A mutation names a column, or a field of a UDT, that the definition does not have: read a newer one and retry.

    Attributes:
        column: its name, or that of the UDT's column.
    """

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


class Damaged(Skippable):
    """Bytes are no partition update of the table as it is defined."""


def read_update(
    data: bytes, pos: int, table: CqlTableDefinition, version: int, source: UpdateSource
) -> tuple[PartitionUpdate, int]:
    """The partition update at ``pos`` and where it ends. To read several of one table keep a ``UpdateReader``.

    Raises:
        UnknownColumn, Damaged: see there.
    """
    return UpdateReader(table, version).read(data, pos, source)


def skip_update(data: bytes, pos: int, table: CqlTableDefinition, version: int) -> int:
    """Where the partition update at ``pos`` ends; tables with counters can be skipped too.

    Raises:
        UnknownColumn, Damaged: see there.
    """
    return _make_skipper(table, version).read(data, pos, _NOWHERE)[1]


@lru_cache(maxsize=1000)
def _make_skipper(table: CqlTableDefinition, version: int) -> UpdateReader:
    return UpdateReader(table, version, values=False)


_NOWHERE: Final = UpdateSource(connector="", cluster="", keyspace="", table="")


class UpdateReader:
    """Reads partition updates of one table, as it is defined at one time; keeps no state between them."""

    def __init__(self, table: CqlTableDefinition, version: int, *, values: bool = True) -> None:
        """Prepare.

        Args:
            table: its definition; a newer one than the mutation's is right, an older one may lack columns.
            version: of the log's format.
            values: whether values are wanted; else they are meaningless.
        """
        self.table = table
        self.version = version
        self._id = UUID(table.table_id).bytes
        self._values = values
        self._key = [value_decoder(column.type) for column in table.key]
        self._clustering = [
            (log_width(column.type), value_decoder(column.type) if values else bytes) for column in table.clustering
        ]
        self._columns = cell_readers(table, values=values)

    def read(self, data: bytes, pos: int, source: UpdateSource) -> tuple[PartitionUpdate, int]:
        """The partition update at ``pos`` and where it ends.

        Cells that a later DROP of their column hides are left out.

        Raises:
            UnknownColumn: the definition is older than the mutation.
            Damaged: the bytes are none of this table.
            Skippable: the table has counters.
        """
        if data[pos : pos + 16] != self._id:
            raise Damaged(
                f"At byte {pos} there should be a partition update of {self.table} (table id {self.table.table_id}), "
                f"but the table id there is {data[pos : pos + 16].hex()}: decode it with that table's definition."
            )
        if self._values and self.table.has_counters:
            raise Skippable(
                f"{self.table} has counters, whose changes can't be decoded or merged: leave the table out "
                f"(ALTER TABLE {self.table} WITH cdc = false, or table.exclude.list)"
            )
        try:
            return self._read_update(data, pos, source)
        except NewerField as error:
            column = error.args[1] if len(error.args) > 1 else "key"
            raise self._unknown_column(
                pos, column, f"a value of column {column} has more fields than its user-defined type"
            ) from None
        except (DamagedBytes, IndexError, ValueError, struct.error) as error:
            raise Damaged(
                f"The partition update of {self.table} at byte {pos} of {len(data)} can't be decoded: {error}. Either"
                " its bytes are damaged, or the table's definition is not the one it was written with."
            ) from None

    def _unknown_column(self, pos: int, column: str, reason: str) -> UnknownColumn:
        return UnknownColumn(
            f"The partition update of {self.table} at byte {pos} is newer than the definition "
            f"{self.table.version} at hand: {reason}. Read the table's definition again.",
            column,
        )

    def _read_update(self, data: bytes, pos: int, source: UpdateSource) -> tuple[PartitionUpdate, int]:
        _, start, end, _ = update_head(data, pos, self.version)
        cursor = UpdateCursor(data, end, wide=self.version > UpdateCursor.LAST_SIGNED_VERSION)
        key = self._read_key(data[start:end])
        flags = cursor.byte()
        if flags & IS_EMPTY:
            return PartitionUpdate(source=source, key=key, write_time=0), cursor.pos
        cursor.read_bases()
        static_columns = self._read_columns(cursor, pos) if flags & HAS_STATIC_ROW else []
        columns = self._read_columns(cursor, pos)
        deletion = _read_deletion(cursor) if flags & HAS_PARTITION_DELETION else None
        static = None
        if flags & HAS_STATIC_ROW:
            static_flags = cursor.byte()
            if not static_flags & HAS_EXTENSION or not cursor.byte() & EXTENSION_STATIC:
                raise DamagedBytes(f"no static row at byte {cursor.pos}")
            static = self._read_cells(cursor, static_flags, (), static_columns)
        if flags & HAS_ROW_ESTIMATE:
            cursor.unsigned()
        rows, ranges = self._read_unfiltereds(cursor, columns)
        return PartitionUpdate(
            source=source,
            key=key,
            write_time=_newest_time(deletion, static, rows, ranges, default=cursor.least_write_time),
            deletion=deletion,
            static=static,
            rows=tuple(rows),
            ranges=tuple(ranges),
        ), cursor.pos

    def _read_key(self, data: bytes) -> tuple[Any, ...]:
        parts = split_partition_key(data, len(self._key))
        return tuple([decode(part) for decode, part in zip(self._key, parts, strict=True)]) if self._values else ()

    def _read_columns(self, cursor: UpdateCursor, pos: int) -> list[CellReader]:
        result = []
        for _ in range(cursor.unsigned()):
            name = cursor.take(cursor.unsigned())
            column = self._columns.get(name)
            if column is None:
                column_name = name.decode(errors="replace")
                raise self._unknown_column(pos, column_name, f"there is a column {column_name} in it")
            result.append(column)
        return result

    def _read_unfiltereds(
        self, cursor: UpdateCursor, columns: list[CellReader]
    ) -> tuple[list[UpdateRow], list[RangeDeletion]]:
        rows: list[UpdateRow] = []
        ranges: list[RangeDeletion] = []
        opened: tuple[ClusteringBound, UpdateDeletion] | None = None
        while True:
            flags = cursor.byte()
            if flags & END_OF_PARTITION:
                break
            if flags & IS_MARKER:
                opened = self._read_marker(cursor, opened, ranges)
                continue
            if flags & HAS_EXTENSION:
                cursor.byte()
            rows.append(self._read_cells(cursor, flags, self._read_prefix(cursor, len(self._clustering)), columns))
        if opened is not None:
            raise DamagedBytes("the deletion of a range has no end")
        return rows, ranges

    def _read_marker(
        self, cursor: UpdateCursor, opened: tuple[ClusteringBound, UpdateDeletion] | None, ranges: list[RangeDeletion]
    ) -> tuple[ClusteringBound, UpdateDeletion] | None:
        kind = cursor.byte()
        count = int.from_bytes(cursor.take(2), "big")
        if count > len(self._clustering):
            raise DamagedBytes(f"a bound of {count} clustering values where the table has {len(self._clustering)}")
        prefix = self._read_prefix(cursor, count)
        deletion = _read_deletion(cursor)
        inclusive_end = kind in {INCLUSIVE_END, INCLUSIVE_END_EXCLUSIVE_START}
        if kind in {INCLUSIVE_START, EXCLUSIVE_START}:
            if opened is not None:
                raise DamagedBytes("the deletion of a range begins inside of another")
            return ClusteringBound(prefix, kind == INCLUSIVE_START or not prefix), deletion
        if kind not in {EXCLUSIVE_END, INCLUSIVE_END, EXCLUSIVE_END_INCLUSIVE_START, INCLUSIVE_END_EXCLUSIVE_START}:
            raise DamagedBytes(f"a bound of the unknown kind {kind}")
        if opened is None:
            raise DamagedBytes("the deletion of a range ends that has not started")
        ranges.append(RangeDeletion(opened[0], ClusteringBound(prefix, inclusive_end or not prefix), opened[1]))
        if kind in {EXCLUSIVE_END, INCLUSIVE_END}:
            return None
        return ClusteringBound(prefix, kind == EXCLUSIVE_END_INCLUSIVE_START), _read_deletion(cursor)

    def _read_prefix(self, cursor: UpdateCursor, count: int) -> tuple[Any, ...]:
        values: list[Any] = []
        header = 0
        for index in range(count):
            if not index % CLUSTERING_BATCH:
                header = cursor.unsigned()
            width, decode = self._clustering[index]
            state = header & 3
            header >>= 2
            if state:
                # Zero bytes, or (only in tables of the time before CQL) null.
                values.append(decode(b"") if state == 1 else None)
            else:
                values.append(decode(cursor.take(cursor.unsigned() if width is None else width)))
        return tuple(values)

    def _read_cells(
        self, cursor: UpdateCursor, flags: int, clustering: tuple[Any, ...], columns: list[CellReader]
    ) -> UpdateRow:
        liveness = None
        if flags & HAS_TIMESTAMP:
            written = cursor.timestamp()
            if flags & HAS_TTL:
                ttl = cursor.ttl()
                liveness = CellStamp(written, ttl, cursor.local_time())
            else:
                liveness = CellStamp(written)
        deletion = _read_deletion(cursor) if flags & HAS_DELETION else None
        cells: list[Cell] = []
        complex_deletions: list[tuple[str, UpdateDeletion]] = []
        for column in columns if flags & HAS_ALL_COLUMNS else _present_columns(cursor, columns):
            if not column.shape:
                self._read_cell(cursor, column, liveness, cells)
                continue
            if flags & HAS_COMPLEX_DELETION:
                complex_deletion = _read_deletion(cursor)
                if complex_deletion.write_time != LIVE_FROM and _is_shown(column, complex_deletion.write_time):
                    complex_deletions.append((column.name, complex_deletion))
            for _ in range(cursor.unsigned()):
                self._read_cell(cursor, column, liveness, cells)
        return UpdateRow(clustering, liveness, deletion, tuple(cells), tuple(complex_deletions))

    @staticmethod
    def _read_cell(cursor: UpdateCursor, column: CellReader, liveness: CellStamp | None, cells: list[Cell]) -> None:
        flags = cursor.byte()
        if flags & (USE_ROW_TIMESTAMP | USE_ROW_TTL) and liveness is None:
            raise DamagedBytes("a cell has the time of a row that has none")
        written = liveness.write_time if liveness is not None and flags & USE_ROW_TIMESTAMP else cursor.timestamp()
        ttl = expires = None
        if flags & USE_ROW_TTL and liveness is not None:
            _, ttl, expires = liveness
        else:
            if flags & (IS_DELETED | IS_EXPIRING):
                expires = cursor.local_time()
            if flags & IS_EXPIRING:
                ttl = cursor.ttl()
        name = cursor.take(cursor.unsigned()) if column.shape else b""
        data = (
            b"" if flags & HAS_EMPTY_VALUE else cursor.take(cursor.unsigned() if column.width is None else column.width)
        )
        if not _is_shown(column, written):
            return
        path, decode = _decode_path(column, name) if column.shape else (None, column.decode)
        value = None if flags & IS_DELETED else _decode_value(column, decode, data)
        cells.append(
            Cell(column.name, path, value, CellStamp(written) if value is None else CellStamp(written, ttl, expires))
        )


def _decode_path(column: CellReader, name: bytes) -> tuple[Any, Decode]:
    """An element's name, and how its value is decoded."""
    if column.shape != "udt":
        return _decode_value(column, column.path, name), column.decode
    index = int.from_bytes(name, "big")
    if len(name) != 2:
        raise DamagedBytes(f"a field of {column.name} is named by {len(name)} bytes, not 2")
    if index >= len(column.fields):
        raise NewerField("", column.name)
    return column.fields[index]


def _decode_value(column: CellReader, decode: Decode, data: bytes) -> Any:
    try:
        return decode(data)
    except NewerField:
        raise NewerField("", column.name) from None
    except (ValueError, struct.error) as error:
        raise DamagedBytes(f"column {column.name}: {error}") from None


def _is_shown(column: CellReader, write_time: int) -> bool:
    return column.hidden_to is None or write_time > column.hidden_to


def _read_deletion(cursor: UpdateCursor) -> UpdateDeletion:
    return UpdateDeletion(cursor.timestamp(), cursor.local_time())


def _present_columns(cursor: UpdateCursor, columns: Sequence[CellReader]) -> Sequence[CellReader]:
    """The columns that a row has cells of."""
    encoded = cursor.unsigned()
    if not encoded:
        return columns
    count = len(columns)
    if count < MANY_COLUMNS:
        return [column for index, column in enumerate(columns) if not encoded >> index & 1]
    # The shorter list of indexes is written: of those that are there, or of the missing ones.
    present = count - encoded
    if present < 0:
        raise DamagedBytes(f"{encoded} of {count} columns are missing")
    if present < count // 2:
        return [columns[cursor.unsigned()] for _ in range(present)]
    missing = {cursor.unsigned() for _ in range(encoded)}
    return [column for index, column in enumerate(columns) if index not in missing]


def _newest_time(
    deletion: UpdateDeletion | None,
    static: UpdateRow | None,
    rows: Sequence[UpdateRow],
    ranges: Sequence[RangeDeletion],
    *,
    default: int,
) -> int:
    """The newest write time in an update; ``default`` if it has no write times."""
    times = [item.deletion.write_time for item in ranges]
    if deletion is not None:
        times.append(deletion.write_time)
    for row in rows if static is None else (static, *rows):
        if row.liveness is not None:
            times.append(row.liveness.write_time)
        if row.deletion is not None:
            times.append(row.deletion.write_time)
        times += [item.write_time for _, item in row.complex_deletions]
        times += [item.stamp.write_time for item in row.cells]
    return max(times, default=default)
