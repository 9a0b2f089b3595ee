"""The decoder of one table's mutations: generated code for simple rows, plain code for all else."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from connectors.cql.mutations.cells import cell_readers, log_width, value_decoder
from connectors.cql.mutations.compiled_source import NotPlain, PlainColumn, key_reader, rows_reader
from connectors.cql.mutations.head import (
    HAS_STATIC_ROW,
    LOCAL_EPOCH,
    TIMESTAMP_EPOCH,
    VERSION_WITH_EPOCHS,
    add_delta,
)
from connectors.cql.mutations.reference import HAS_ROW_ESTIMATE, UpdateReader
from connectors.cql.types import RAW
from connectors.cql.values import read_unsigned_vint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connectors.cql.mutations.cells import CellReader
    from connectors.cql.mutations.compiled_source import ReadRows
    from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition
    from connectors.formats.partition_update import PartitionUpdate, UpdateSource

#: A row of a plain update: whether it is the static row; clustering values; whether the row itself was inserted; write time
#: (µs), TTL (s) and expiry (s since 1970) of everything in it; names of the written columns; their values, None for tombstones.
PlainRow = tuple[bool, tuple[Any, ...], bool, int, int | None, int | None, tuple[str, ...], list[Any]]
#: Values of the partition key, its bytes, rows, where the update ends.
PlainUpdate = tuple[tuple[Any, ...], bytes, list[PlainRow], int]

#: Lists of columns get code of their own once they have come so often, as long as not too many have.
_SIGHTINGS: Final = 3
_COMPILED: Final = 256
_SEEN: Final = 1000
#: The least timestamp nearly always has seven bytes, the first with six leading ones: 2015 plus 2 to 17 years.
_SIX_MORE: Final = 0x7E
_SIX_MORE_BITS: Final = (1 << 49) - 1
_ONE_BYTE: Final = 0x80
#: Times of expiry after this one wrap in some versions.
_LAST_LOCAL: Final = (1 << 31) - 1
#: Before all write times.
_NEVER: Final = -1 << 64
_unpack_word = struct.Struct(">Q").unpack_from

_PLAIN_FLAGS: Final = (HAS_ROW_ESTIMATE, HAS_ROW_ESTIMATE | HAS_STATIC_ROW)


class CompiledDecoder:
    """Decodes partition updates of one table as it is defined at one time, in one version of the log's format.

    To be used by one thread at a time.
    """

    def __init__(self, table: CqlTableDefinition, version: int) -> None:
        """Prepare.

        Args:
            table: its definition; a newer one than the mutation's is right.
            version: of the log's format.
        """
        self.table = table
        self.version = version
        self._reader = UpdateReader(table, version)
        self._id = UUID(table.table_id).bytes
        self._with_epoch = version >= VERSION_WITH_EPOCHS
        self._key = key_reader([_key_column(column) for column in table.key])
        self._clustering = [_key_column(column) for column in table.clustering]
        self._readers = {} if table.has_counters else cell_readers(table)
        self._types = {column.name: column.type for column in (*table.static, *table.regular)}
        self._shapes: dict[tuple[int, bytes], tuple[int, bytes, ReadRows, int]] = {}
        self._seen: dict[tuple[int, bytes], int] = {}
        # Of the update before: its flags and list of columns, what reads the rows, the write time up to which cells are hidden.
        self._last: tuple[int, bytes, ReadRows, int] = (-1, b"", _reject_plain, 0)

    def plain(self, data: bytes, pos: int) -> PlainUpdate | None:
        """The partition update at ``pos`` (where its table id begins), if it is a simple one.

        Simple are rows, also the static one, whose cells have one stamp; without deletions but tombstones of simple columns,
        and without multicell columns. Rows with the same columns usually have the same object for their names: where ``is``
        says no, compare them.

        Returns:
            None if it is not simple, not known to be (the first few updates of a shape), or damaged: ask ``full``.
        """
        try:
            if not data.startswith(self._id, pos):
                return None
            p = pos + 16
            if self._with_epoch:
                _, p = read_unsigned_vint(data, p)
            size = data[p]
            p += 1
            if size >= _ONE_BYTE:
                size, p = read_unsigned_vint(data, p - 1)
            end = p + size
            flags = data[end]
            if flags not in _PLAIN_FLAGS:
                return None
            key = data[p:end]
            values = self._key(data, p, end)
            p = end + 1
            (word,) = _unpack_word(data, p)
            if word >> 57 == _SIX_MORE:
                written = (word >> 8 & _SIX_MORE_BITS) + TIMESTAMP_EPOCH
                p += 7
            else:
                delta, p = read_unsigned_vint(data, p)
                written = add_delta(delta, TIMESTAMP_EPOCH)
            local = data[p]
            p += 1
            if local >= _ONE_BYTE:
                local, p = read_unsigned_vint(data, p - 1)
                if local + LOCAL_EPOCH > _LAST_LOCAL:
                    return None
            ttl = data[p]
            p += 1
            if ttl >= _ONE_BYTE:
                ttl, p = read_unsigned_vint(data, p - 1)
            last_flags, block, rows, hidden_to = self._last
            # A list of columns says itself where it ends: what begins with it is it.
            if flags != last_flags or not data.startswith(block, p):
                reader = self._find_shape(data, p, flags)
                if reader is None:
                    return None
                self._last = reader
                _, block, rows, hidden_to = reader
            if written <= hidden_to:
                return None
            found_rows, p = rows(data, p + len(block), written, local + LOCAL_EPOCH, ttl)
        except (NotPlain, IndexError, ValueError, struct.error):
            return None
        return values, key, found_rows, p

    def full(self, data: bytes, pos: int, source: UpdateSource) -> tuple[PartitionUpdate, int]:
        """Any partition update, and where it ends; see ``UpdateReader.read`` for the errors."""
        return self._reader.read(data, pos, source)

    def _find_shape(self, data: bytes, p: int, flags: int) -> tuple[int, bytes, ReadRows, int] | None:
        """The reader of updates with the column list at ``p``; None: the list is too rare so far, or has unknown columns."""
        start = p
        lists: list[list[bytes]] = []
        for _ in range(2 if flags & HAS_STATIC_ROW else 1):
            count, p = read_unsigned_vint(data, p)
            names: list[bytes] = []
            for _ in range(count):
                size, p = read_unsigned_vint(data, p)
                names.append(data[p : p + size])
                p += size
            lists.append(names)
        shape = flags, data[start:p]
        entry = self._shapes.get(shape)
        if entry is not None:
            return entry
        seen_count = self._seen.get(shape, 0) + 1
        if len(self._seen) >= _SEEN:
            self._seen.clear()
        self._seen[shape] = seen_count
        if (
            seen_count < _SIGHTINGS
            or len(self._shapes) >= _COMPILED
            or any(name not in self._readers for names in lists for name in names)
        ):
            return None
        columns = [[self._readers[name] for name in names] for names in lists]
        hidden_to = max(
            (column_name.hidden_to for group in columns for column_name in group if column_name.hidden_to is not None),
            default=_NEVER,
        )
        plain = [self._plain_columns(group) for group in columns]
        entry = *shape, rows_reader(plain[0] if len(plain) > 1 else None, plain[-1], self._clustering), hidden_to
        self._shapes[shape] = entry
        return entry

    def _plain_columns(self, readers: Iterable[CellReader]) -> list[PlainColumn]:
        # A column that is gone has no type any more; its updates are not plain.
        return [
            PlainColumn(reader.name, self._types.get(reader.name, RAW), reader.width, reader.decode, bool(reader.shape))
            for reader in readers
        ]


def _reject_plain(*arguments: Any) -> Any:
    del arguments
    raise NotPlain


def _key_column(column: CqlColumn) -> PlainColumn:
    return PlainColumn(column.name, column.type, log_width(column.type), value_decoder(column.type))
