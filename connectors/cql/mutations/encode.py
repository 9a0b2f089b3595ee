"""Partition updates as the bytes that commit logs have: the inverse of ``reference``, for what is read from tables."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from connectors.cql.encoding import NotEncodable, encode_partition_key, make_encoder, unsigned_vint
from connectors.cql.mutations.cells import log_width
from connectors.cql.mutations.cursor import LIVE_FROM, UpdateCursor
from connectors.cql.mutations.head import (
    HAS_STATIC_ROW,
    IS_EMPTY,
    LOCAL_EPOCH,
    TIMESTAMP_EPOCH,
    VERSION_WITH_EPOCHS,
)
from connectors.cql.mutations.reference import (
    CLUSTERING_BATCH,
    END_OF_PARTITION,
    EXCLUSIVE_END,
    EXCLUSIVE_START,
    EXTENSION_STATIC,
    HAS_ALL_COLUMNS,
    HAS_COMPLEX_DELETION,
    HAS_DELETION,
    HAS_EMPTY_VALUE,
    HAS_EXTENSION,
    HAS_PARTITION_DELETION,
    HAS_ROW_ESTIMATE,
    HAS_TIMESTAMP,
    HAS_TTL,
    INCLUSIVE_END,
    INCLUSIVE_START,
    IS_DELETED,
    IS_EXPIRING,
    IS_MARKER,
    MANY_COLUMNS,
    USE_ROW_TIMESTAMP,
    USE_ROW_TTL,
)
from connectors.cql.types import CqlType
from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition
    from connectors.formats.partition_update import (
        Cell,
        CellStamp,
        ClusteringBound,
        PartitionUpdate,
        UpdateDeletion,
        UpdateRow,
    )

_WORD: Final = (1 << 64) - 1
_INT: Final = (1 << 32) - 1
_MAX_SIGNED: Final = (1 << 31) - 1
_MICROS: Final = 1_000_000
_LIST_PATH: Final = CqlType("timeuuid")


def write_update(update: PartitionUpdate, table: CqlTableDefinition, version: int) -> bytes:
    """A partition update as a mutation has it; ``reference.read_update`` gives an equal one back.

    Two things are not in a partition update: when a tombstone was made by the server's clock (its write time is taken), and the
    order of rows and ranges (they are written as they come, rows first; Cassandra itself would want clustering order).

    Args:
        update: its rows have columns of ``table`` only.
        table: the definition.
        version: of the log's format to write.

    Raises:
        Fatal: a column is not in the definition, or a value not of its column's type.
    """
    try:
        return UpdateWriter(table, version).write(update)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, struct.error) as error:
        raise Fatal(
            f"A partition update of {table} can't be written with the definition {table.version}: {error!r}. Was it "
            "read with another definition?"
        ) from None


def write_mutation(updates: Sequence[bytes], version: int) -> bytes:
    """A mutation of several updates, which are of one partition key in one keyspace."""
    flags = b"\x00" if version >= VERSION_WITH_EPOCHS else b""
    return flags + unsigned_vint(len(updates)) + b"".join(updates)


class UpdateWriter:
    """Writes partition updates of one table; to write many keep it."""

    def __init__(self, table: CqlTableDefinition, version: int) -> None:
        self._table = table
        self._version = version
        self._columns = {column.name: column for column in (*table.static, *table.regular)}

    def write(self, update: PartitionUpdate) -> bytes:
        """See ``write_update``; raises what the encoders of values do."""
        table = self._table
        key = encode_partition_key([member.type for member in table.key], update.key)
        parts = [UUID(table.table_id).bytes]
        if self._version >= VERSION_WITH_EPOCHS:
            parts.append(b"\x00")
        parts += (unsigned_vint(len(key)), key)
        if not (update.rows or update.ranges or update.static is not None or update.deletion is not None):
            return b"".join((*parts, bytes([IS_EMPTY])))
        body = _Body(update, wide=self._version > UpdateCursor.LAST_SIGNED_VERSION)
        flags = HAS_ROW_ESTIMATE
        static = [] if update.static is None else self._written_columns((update.static,))
        columns = self._written_columns(update.rows)
        if update.static is not None:
            flags |= HAS_STATIC_ROW
        if update.deletion is not None:
            flags |= HAS_PARTITION_DELETION
        parts += (bytes([flags]), body.bases)
        if update.static is not None:
            parts.append(_encode_names(static))
        parts.append(_encode_names(columns))
        if update.deletion is not None:
            parts.append(body.deletion(update.deletion))
        if update.static is not None:
            parts += body.row(update.static, static, None)
        parts.append(unsigned_vint(len(update.rows)))
        for row in update.rows:
            parts += body.row(row, columns, self._table.clustering)
        for member in update.ranges:
            parts += self._encode_marker(member.start, INCLUSIVE_START if member.start.inclusive else EXCLUSIVE_START)
            parts.append(body.deletion(member.deletion))
            parts += self._encode_marker(member.end, INCLUSIVE_END if member.end.inclusive else EXCLUSIVE_END)
            parts.append(body.deletion(member.deletion))
        parts.append(bytes([END_OF_PARTITION]))
        return b"".join(parts)

    def _written_columns(self, rows: Iterable[UpdateRow]) -> list[CqlColumn]:
        """The columns that rows have something of, in the order of a mutation: of one cell first, then by name."""
        names = {cell.column for row in rows for cell in row.cells}
        names |= {name for row in rows for name, _ in row.complex_deletions}
        return sorted(
            (self._columns[name] for name in names), key=lambda column: (column.type.is_multicell, column.name.encode())
        )

    def _encode_marker(self, bound: ClusteringBound, kind: int) -> Iterator[bytes]:
        yield bytes([IS_MARKER, kind])
        yield len(bound.prefix).to_bytes(2, "big")
        yield from _encode_clustering(bound.prefix, self._table.clustering)


class _Body:
    """Writes what is relative to the least times of one update."""

    def __init__(self, update: PartitionUpdate, *, wide: bool) -> None:
        self._last = _INT if wide else _MAX_SIGNED
        stamps = list(_all_stamps(update))
        deletions = list(_all_deletions(update))
        local = [stamp.expires for stamp in stamps if stamp.expires is not None]
        local += [stamp.local_deletion_time for stamp in deletions]
        local += [
            self._creation_time(cell.stamp) for row in _all_rows(update) for cell in row.cells if cell.value is None
        ]
        self._timestamp = min(
            [*(stamp.write_time for stamp in stamps), *(stamp.write_time for stamp in deletions)],
            default=TIMESTAMP_EPOCH,
        )
        self._local = min(local, default=LOCAL_EPOCH)
        self._ttl = min((stamp.ttl for stamp in stamps if stamp.ttl is not None), default=0)
        self.bases = (
            unsigned_vint(self._timestamp - TIMESTAMP_EPOCH & _WORD)
            + unsigned_vint(self._local - LOCAL_EPOCH & _WORD)
            + unsigned_vint(self._ttl)
        )

    def _creation_time(self, stamp: CellStamp) -> int:
        return min(max(stamp.write_time // _MICROS, 0), self._last - 1)

    def _encode_write_time(self, write_time: int) -> bytes:
        return unsigned_vint(write_time - self._timestamp & _WORD)

    def _local_time(self, seconds: int) -> bytes:
        return unsigned_vint(seconds - self._local & _WORD)

    def _encode_ttl(self, ttl: int) -> bytes:
        return unsigned_vint(ttl - self._ttl & _WORD)

    def deletion(self, deletion: UpdateDeletion) -> bytes:
        return self._encode_write_time(deletion.write_time) + self._local_time(deletion.local_deletion_time)

    def row(
        self, row: UpdateRow, columns: Sequence[CqlColumn], clustering: Sequence[CqlColumn] | None
    ) -> Iterator[bytes]:
        """A row; the static one for ``clustering`` None."""
        cells: dict[str, list[Cell]] = {}
        for cell in row.cells:
            cells.setdefault(cell.column, []).append(cell)
        deleted = dict(row.complex_deletions)
        present = [row_column for row_column in columns if row_column.name in cells or row_column.name in deleted]
        stamp = row.liveness
        flags = HAS_EXTENSION if clustering is None else 0
        flags |= HAS_ALL_COLUMNS if len(present) == len(columns) else 0
        flags |= HAS_COMPLEX_DELETION if deleted else 0
        flags |= HAS_DELETION if row.deletion is not None else 0
        if stamp is not None:
            flags |= HAS_TIMESTAMP | (HAS_TTL if stamp.ttl is not None else 0)
        yield bytes([flags])
        if clustering is None:
            yield bytes([EXTENSION_STATIC])
        else:
            yield from _encode_clustering(row.clustering, clustering)
        if stamp is not None:
            yield self._encode_write_time(stamp.write_time)
            if stamp.ttl is not None:
                yield self._encode_ttl(stamp.ttl) + self._local_time(stamp.expires or 0)
        if row.deletion is not None:
            yield self.deletion(row.deletion)
        if not flags & HAS_ALL_COLUMNS:
            yield from _encode_subset(columns, present)
        for column in present:
            if not column.type.is_multicell:
                (cell,) = cells[column.name]
                yield from self._encode_cell(cell, stamp, log_width(column.type), make_encoder(column.type), None)
                continue
            if flags & HAS_COMPLEX_DELETION:
                yield self._complex_deletion(deleted.get(column.name))
            elements = cells.get(column.name, ())
            yield unsigned_vint(len(elements))
            for cell in elements:
                path, encode = _encode_element(column.type, cell)
                yield from self._encode_cell(cell, stamp, None, encode, path)

    def _complex_deletion(self, deletion: UpdateDeletion | None) -> bytes:
        if deletion is not None:
            return self.deletion(deletion)
        return self._encode_write_time(LIVE_FROM) + self._local_time(self._last)

    def _encode_cell(
        self, cell: Cell, row: CellStamp | None, width: int | None, encode: Callable[[Any], bytes], path: bytes | None
    ) -> Iterator[bytes]:
        stamp = cell.stamp
        deleted = cell.value is None
        data = b"" if deleted else encode(cell.value)
        expires = not deleted and stamp.ttl is not None
        like_row = row is not None and stamp.write_time == row.write_time
        lives_like_row = expires and row is not None and (stamp.ttl, stamp.expires) == (row.ttl, row.expires)
        yield bytes(
            [
                (IS_DELETED if deleted else 0)
                | (IS_EXPIRING if expires else 0)
                | (0 if data else HAS_EMPTY_VALUE)
                | (USE_ROW_TIMESTAMP if like_row else 0)
                | (USE_ROW_TTL if lives_like_row else 0)
            ]
        )
        if not like_row:
            yield self._encode_write_time(stamp.write_time)
        if deleted:
            yield self._local_time(self._creation_time(stamp))
        elif expires and not lives_like_row:
            yield self._local_time(stamp.expires or 0) + self._encode_ttl(stamp.ttl or 0)
        if path is not None:
            yield unsigned_vint(len(path)) + path
        if data:
            yield data if width is not None else unsigned_vint(len(data)) + data


def _all_rows(update: PartitionUpdate) -> Iterator[UpdateRow]:
    if update.static is not None:
        yield update.static
    yield from update.rows


def _all_stamps(update: PartitionUpdate) -> Iterator[CellStamp]:
    for row in _all_rows(update):
        if row.liveness is not None:
            yield row.liveness
        for cell in row.cells:
            yield cell.stamp


def _all_deletions(update: PartitionUpdate) -> Iterator[UpdateDeletion]:
    if update.deletion is not None:
        yield update.deletion
    for row in _all_rows(update):
        if row.deletion is not None:
            yield row.deletion
        for _, deletion in row.complex_deletions:
            yield deletion
    for range_deletion in update.ranges:
        yield range_deletion.deletion


def _encode_names(columns: Sequence[CqlColumn]) -> bytes:
    names = [column.name.encode() for column in columns]
    return unsigned_vint(len(names)) + b"".join([unsigned_vint(len(name)) + name for name in names])


def _encode_subset(columns: Sequence[CqlColumn], present: Sequence[CqlColumn]) -> Iterator[bytes]:
    """Encode which of ``columns`` are present: bits of the missing ones, or of many columns the shorter list of indexes."""
    there = {column.name for column in present}
    missing = [index for index, column in enumerate(columns) if column.name not in there]
    if len(columns) < MANY_COLUMNS:
        yield unsigned_vint(sum(1 << index for index in missing))
        return
    yield unsigned_vint(len(missing))
    if len(present) < len(columns) // 2:
        missing = [index for index, column in enumerate(columns) if column.name in there]
    for index in missing:
        yield unsigned_vint(index)


def _encode_clustering(values: Sequence[Any], columns: Sequence[CqlColumn]) -> Iterator[bytes]:
    for start in range(0, len(values), CLUSTERING_BATCH):
        header = 0
        parts = []
        for index, value in enumerate(values[start : start + CLUSTERING_BATCH]):
            kind = columns[start + index].type
            data = b"" if value is None else make_encoder(kind)(value)
            if not data:
                # A None is an empty value (of a type that shows none): null clustering values are older than CQL.
                header |= 1 << 2 * index
            else:
                parts.append(data if log_width(kind) is not None else unsigned_vint(len(data)) + data)
        yield unsigned_vint(header)
        yield from parts


@lru_cache(maxsize=10_000)
def _element_encoders(kind: CqlType) -> tuple[Callable[[Any], bytes], Callable[[Any], bytes]]:
    """How names and values of elements are written; of a UDT unused."""
    if kind.name == "set":
        return make_encoder(kind.arguments[0]), lambda _: b""
    return make_encoder(_LIST_PATH if kind.name == "list" else kind.arguments[0]), make_encoder(kind.arguments[-1])


def _encode_element(kind: CqlType, cell: Cell) -> tuple[bytes, Callable[[Any], bytes]]:
    """The bytes of an element's name, and how its value is written."""
    if kind.name == "udt":
        if cell.path not in kind.field_names:
            raise NotEncodable(f"{cell.column} has no field {cell.path!r}")
        index = kind.field_names.index(cell.path)
        return index.to_bytes(2, "big"), make_encoder(kind.arguments[index])
    path, value = _element_encoders(kind)
    return path(cell.path), value
