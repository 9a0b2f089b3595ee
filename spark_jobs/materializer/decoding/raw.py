"""Messages of the form ``partition-update-raw``: Cassandra's own bytes of an update in a thin envelope, read as the others are.

The schema's parameters hold the table's definition, so the bytes are decoded by it and put into the classes of
``schema``: whatever reads a decoded partition update reads this one too. Values come as ``connectors.cql.values`` has
them and need no readers.
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from connectors.errors import Skippable
from connectors.formats.partition_update import UpdateLayout
from connectors.formats.partition_update_raw import form_of
from spark_jobs.materializer.decoding.avro import compile_envelope
from spark_jobs.materializer.decoding.schema import (
    ComplexDeletion,
    DecodedDeletion,
    DecodedSource,
    Liveness,
    UpdateStamp,
    UpdateVersion,
    read_version,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.formats.partition_update import Cell, ClusteringBound, PartitionUpdate, RangeDeletion, UpdateRow
    from connectors.formats.partition_update import CellStamp as FormStamp
    from connectors.formats.partition_update import UpdateDeletion as FormDeletion
    from connectors.formats.partition_update_raw import RawForm
    from connectors.schema import Schema
    from spark_jobs.materializer.decoding.schema import ColumnPart

#: Errors that decoders raise at malformed bytes, in addition to ``Skippable``.
_FAILURES: Final = (IndexError, struct.error, UnicodeDecodeError, ValueError, OverflowError, TypeError, KeyError)
#: A row that was inserted and has the row's own stamp; it is never modified.
_INSERTED: Final = Liveness()


class _Raw(msgspec.Struct, gc=False):
    """A message in JSON."""

    source: DecodedSource
    update: bytes


def read_raw(schema: Schema, ident: str, schema_text: str) -> tuple[UpdateVersion, Callable[[bytes, int], Any]]:
    """The version of a table that a schema of this form tells, and what reads its Avro messages.

    Args:
        schema: of the messages.
        ident: the text in their ``source.schema``.
        schema_text: the schema as Avro's text.

    Returns:
        The version, whose ``decode_json`` reads messages of this form; and the function (message, position of the value in it)
        -> an object of ``version.update``. Both raise ``Skippable`` for bytes that are not what the definition says.

    Raises:
        Skippable: the Avro schema is not that of such messages.
        Fatal: the form is newer than this version, the definition can't be read, or the table has counters.
    """
    form = form_of(schema.parameter)
    table_version = _plain_version(
        read_version(UpdateLayout(source=form.source, columns=form.definition.columns, position={}).schema, ident)
    )
    reader = _RawReader(table_version, form, str(schema.name))
    envelope = compile_envelope(schema_text)

    def read(data: bytes, position: int) -> Any:
        snapshot, read_time, (start, end) = envelope(data, position)
        return reader.read(data, start, end, DecodedSource(ident, snapshot, read_time))

    decode = msgspec.json.Decoder(_Raw).decode

    def read_json(data: bytes) -> Any:
        update = decode(data)
        if update.source.schema != ident:
            raise ValueError(f"the message is of the definition {update.source.schema}, not {ident}")
        return reader.read(update.update, 0, len(update.update), update.source)

    return msgspec.structs.replace(table_version, decode_json=read_json), read


def _plain_version(version: UpdateVersion) -> UpdateVersion:
    """``version`` for values that need no readers."""
    return msgspec.structs.replace(
        version,
        key_readers=[None] * len(version.key),
        clustering_readers=[None] * len(version.clustering),
        static=_plain_part(version.static),
        regular=_plain_part(version.regular),
    )


def _plain_part(part: ColumnPart) -> ColumnPart:
    count = len(part.columns)
    return msgspec.structs.replace(
        part,
        readers=[None] * count,
        element_readers=[{} for _ in range(count)],
        udt_fields=[
            list(column.type.field_names) if column.type is not None and column.type.is_multicell else []
            for column in part.columns
        ],
    )


class _RawReader:
    """Decodes the bytes of updates of one definition."""

    def __init__(self, version: UpdateVersion, form: RawForm, name: str) -> None:
        self._version = version
        self._name = name
        from connectors.cql.mutations.compiled import CompiledDecoder  # other inputs do without it

        self._source = form.source
        self._table_id = UUID(form.definition.table_id).bytes
        self._decoder = decoder = CompiledDecoder(form.definition, form.version)
        self._plain = decoder.plain
        self._static = _Columns(version.static)
        self._regular = _Columns(version.regular)

    def read(self, data: bytes, start: int, end: int, source: DecodedSource) -> Any:
        """Decode the update in ``data[start:end]``; raises ``Skippable`` if it is not one."""
        try:
            if data[start : start + 16] != self._table_id:
                raise ValueError("it is of another table")
            plain_update = self._plain(data, start)
            if plain_update is None:
                update, stop = self._decoder.full(data, start, self._source)
                merged_update = self._decode_whole_update(update, source)
            else:
                merged_update, stop = self._decode_simple_update(plain_update, source), plain_update[3]
        except _FAILURES as error:
            raise Skippable(
                f"The bytes of a raw partition update do not match the definition in their schema {self._name}: "
                f"{error!r}. They were damaged, or written with another schema than the message says."
            ) from None
        if stop != end:
            raise Skippable(
                f"A raw partition update of the schema {self._name} ends at byte {stop - start} of {end - start}: "
                "it was damaged, or written with another schema than the message says."
            )
        return merged_update

    def _decode_simple_update(self, plain_update: tuple[Any, ...], source: DecodedSource) -> Any:
        """An update as ``Decoder.plain`` gives it: every row has one stamp, and simple columns only."""
        key, _, rows, _ = plain_update
        version = self._version
        if len(rows) == 1 and not rows[0][0]:  # what nearly all are
            _, clustering, inserted, time, _, expires, names, values = rows[0]
            cells, deleted = self._regular.plain(names, values)
            return version.update(
                source,
                key,
                time,
                None,
                expires,
                None,
                None,
                [
                    version.regular.row(
                        clustering, _INSERTED if inserted else None, None, None, cells, deleted, None, None
                    )
                ],
                None,
            )
        newest = max([raw_row[3] for raw_row in rows], default=0)
        static = None
        changed_rows: list[Any] = []
        for is_static, clustering, inserted, time, _, expires, names, values in rows:
            stamp = None if time == newest and expires is None else UpdateStamp(time, None, expires)
            cells, deleted = (self._static if is_static else self._regular).plain(names, values)
            if is_static:
                static = version.static.row((), None, None, stamp, cells, deleted, None, None)
            else:
                changed_rows.append(
                    version.regular.row(
                        clustering, _INSERTED if inserted else None, None, stamp, cells, deleted, None, None
                    )
                )
        return version.update(source, key, newest, None, None, None, static, changed_rows or None, None)

    def _decode_whole_update(self, update: PartitionUpdate, source: DecodedSource) -> Any:
        """Any update."""
        version = self._version
        return version.update(
            source,
            update.key,
            update.write_time,
            None,
            None,
            _to_deletion(update.deletion),
            None if update.static is None else self._static.row(update.static, update.write_time),
            [self._regular.row(part, update.write_time) for part in update.rows] or None,
            [self._decode_range(part) for part in update.ranges] or None,
        )

    def _decode_range(self, deletion: RangeDeletion) -> Any:
        return self._version.range(
            self._decode_bound(deletion.start), self._decode_bound(deletion.end), *deletion.deletion
        )

    def _decode_bound(self, bound: ClusteringBound) -> Any:
        return self._version.bound(self._version.bound_prefix(*bound.prefix), bound.inclusive)


class _Columns:
    """Makes rows of one part (static, regular) of the columns."""

    def __init__(self, part: ColumnPart) -> None:
        self._part = part
        self._names = tuple(column.name for column in part.columns)
        self._positions = {name: index for index, name in enumerate(self._names)}
        #: Names of the columns that an update has -> what makes the tuple of all cells from their values.
        self._shapes: dict[tuple[str, ...], Callable[[list[Any]], Any]] = {}

    def plain(self, names: tuple[str, ...], values: list[Any]) -> tuple[Any, list[str] | None]:
        """The tuple of all cells of simple columns, and the names of those that are tombstones."""
        deleted = [name for name, value in zip(names, values, strict=True) if value is None] if None in values else None
        if names == self._names:
            return tuple(values), deleted
        shape = self._shapes.get(names)
        if shape is None:
            shape = self._find_shape(names)
        return shape(values), deleted

    def _find_shape(self, names: tuple[str, ...]) -> Callable[[list[Any]], Any]:
        if not names:
            return _decode_nothing
        # What an update does not have is taken from behind its values, where there is None.
        indexes = [names.index(column) if column in names else len(names) for column in self._names]
        get = itemgetter(*indexes, 0)  # with one index alone it would not give a tuple

        def make_cells(values: list[Any]) -> Any:
            return get([*values, None])[:-1]

        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        self._shapes[names] = make_cells
        return make_cells

    def row(self, row: UpdateRow, write_time: int) -> Any:
        """A row of a whole update."""
        row_stamp = (
            row.liveness
            or next((part.stamp for part in row.cells if part.value is not None), None)
            or (row.cells[0].stamp if row.cells else None)
        )
        time, expires = (write_time, None) if row_stamp is None else (row_stamp.write_time, row_stamp.expires)
        cells, deleted, stamps = self._split_mixed_cells(row.cells, time, expires)
        return self._part.row(
            row.clustering,
            None if row.liveness is None else _INSERTED,
            _to_deletion(row.deletion),
            UpdateStamp(time, None, expires),
            cells,
            deleted,
            stamps,
            [ComplexDeletion(name, *part) for name, part in row.complex_deletions] or None,
        )

    def _split_mixed_cells(
        self, cells: Sequence[Cell], time: int, expires: int | None
    ) -> tuple[Any, list[str] | None, dict[str, UpdateStamp] | None]:
        """Cells of any kind, in a row with a stamp: the tuple of all cells, tombstones, stamps that differ."""
        if not cells:
            return None, None, None
        part, positions = self._part, self._positions
        values: list[Any] = [None] * len(part.columns)
        deleted: list[str] = []
        stamps: dict[str, UpdateStamp] = {}
        for cell in cells:
            index = positions[cell.column]
            cell_class = part.cell_types[index]
            stamp = _own_stamp(cell, time, expires)
            if cell_class is None:
                if cell.value is None:
                    deleted.append(cell.column)
                else:
                    values[index] = cell.value
                if stamp is not None:
                    stamps[part.columns[index].field] = stamp
            elif cell_class.__name__ == "Element":
                if values[index] is None:
                    values[index] = []
                values[index].append(cell_class(cell.path, cell.value, stamp))
            else:
                fields = values[index]
                if fields is None:
                    fields = values[index] = cell_class({}, [], {})
                if cell.value is None:
                    fields.deleted.append(cell.path)
                else:
                    fields.fields[cell.path] = cell.value
                if stamp is not None:
                    fields.stamps[cell.path] = stamp
        return tuple(values), deleted or None, stamps or None


#: A table has few shapes of updates; one whose writers use any set of columns must not fill the memory.
_MOST_SHAPES: Final = 10_000


def _decode_nothing(values: Any) -> None:
    del values


def _own_stamp(cell: Cell, time: int, expires: int | None) -> UpdateStamp | None:
    """The cell's stamp, where it is not its row's; of a tombstone only the time counts."""
    stamp: FormStamp = cell.stamp
    if stamp.write_time == time and (stamp.expires == expires or cell.value is None):
        return None
    return UpdateStamp(stamp.write_time, None, None if cell.value is None else stamp.expires)


def _to_deletion(deletion: FormDeletion | None) -> DecodedDeletion | None:
    return None if deletion is None else DecodedDeletion(*deletion)
