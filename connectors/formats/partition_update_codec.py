"""Partition updates as values of their schema, and back: any mutation, from any source. Compiled once per schema.

Connectors whose mutations have one write time and few shapes (Scylla) build the values themselves, faster.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from connectors.errors import Skippable
from connectors.formats.cql_schema import make_reader, make_renamer
from connectors.formats.names import column_name, field_name
from connectors.formats.partition_update import (
    CONSTANTS,
    ELEMENT,
    FORM,
    UDT_FIELDS,
    Cell,
    CellStamp,
    ClusteringBound,
    PartitionUpdate,
    RangeDeletion,
    UpdateDeletion,
    UpdateRow,
    UpdateSource,
)
from connectors.schema import Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connectors.formats.partition_update import ColumnLike, UpdateLayout
    from connectors.schema import Schema

    Change = Callable[[Any], Any] | None


# Writing


def make_encoder(layout: UpdateLayout) -> Callable[[PartitionUpdate], dict[str, Any]]:
    """The function that turns a partition update into a value of ``layout.schema``.

    The stamp that most cells have is written once, and so is one that most cells of a row have.
    """
    columns = {column.name: _ColumnWriter(column) for column in (*layout.static, *layout.regular)}
    key = [(field_name(column.name), make_renamer(column.type)) for column in layout.key]
    clustering = [(field_name(column.name), make_renamer(column.type)) for column in layout.clustering]

    def row(update_row: UpdateRow, shared: CellStamp, *, static: bool) -> dict[str, Any]:
        common = _most_common(_iterate_stamps((update_row,)), None)
        row_stamp = shared if common is None or common == shared else common
        value: dict[str, Any] = {"stamp": _stamp_value(row_stamp) if row_stamp != shared else None}
        if not static:
            value["deletion"] = _deletion_value(update_row.deletion)
            value["liveness"] = (
                None
                if update_row.liveness is None
                else {"stamp": None if update_row.liveness == row_stamp else _stamp_value(update_row.liveness)}
            )
            if clustering:
                value["clustering"] = _name_values(clustering, update_row.clustering)
        return value | _cells_value(update_row, row_stamp, columns)

    def encode(update: PartitionUpdate) -> dict[str, Any]:
        everything = (*update.rows, *((update.static,) if update.static else ()))
        shared = _most_common(_iterate_stamps(everything), update.write_time) or CellStamp(update.write_time)
        value: dict[str, Any] = {
            "source": {
                "schema": layout.source.schema,
                "snapshot": update.source.snapshot,
                "read_time": update.source.read_time,
                "position": update.source.position,
            },
            "key": _name_values(key, update.key),
            "write_time": shared.write_time,
            "ttl": shared.ttl,
            "expires": shared.expires,
            "deletion": _deletion_value(update.deletion),
            "rows": [row(item, shared, static=False) for item in update.rows] or None,
        }
        if layout.static:
            value["static"] = None if update.static is None else row(update.static, shared, static=True)
        if clustering:
            value["ranges"] = [
                {
                    "start": _bound_value(item.start, clustering),
                    "end": _bound_value(item.end, clustering),
                    **item.deletion._asdict(),
                }
                for item in update.ranges
            ] or None
        return value

    return encode


class _ColumnWriter:
    """How one column's cells are written."""

    def __init__(self, column: ColumnLike) -> None:
        self.field = field_name(column.name)
        kind = column.type
        self.shape = kind.name if kind.is_multicell else ""
        self.change = make_renamer(kind.arguments[-1] if self.shape in {"list", "map"} else kind)
        self.path = make_renamer(kind.arguments[0]) if self.shape in {"set", "map"} else None
        self.fields = (
            {
                name: (field_name(name), make_renamer(member))
                for name, member in zip(kind.field_names, kind.arguments, strict=True)
            }
            if self.shape == "udt"
            else {}
        )


def _cells_value(row: UpdateRow, row_stamp: CellStamp, columns: Mapping[str, _ColumnWriter]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    deleted: list[str] = []
    stamps: dict[str, Any] = {}
    for cell in row.cells:
        column = columns[cell.column]
        differs = cell.stamp != row_stamp if cell.value is not None else cell.stamp.write_time != row_stamp.write_time
        stamp = _stamp_value(cell.stamp) if differs else None
        if column.shape == "udt":
            inner = values.setdefault(column.field, {"fields": {}, "deleted": None, "stamps": None})
            field, change = column.fields[cell.path]
            if cell.value is None:
                inner["deleted"] = [*(inner["deleted"] or ()), cell.path]
            else:
                inner["fields"][field] = cell.value if change is None else change(cell.value)
            if stamp is not None:
                inner["stamps"] = {**(inner["stamps"] or {}), field: stamp}
        elif column.shape:
            value = cell.value if column.change is None or column.shape == "set" else column.change(cell.value)
            path = cell.path if column.path is None else column.path(cell.path)
            values.setdefault(column.field, []).append({"path": path, "value": value, "stamp": stamp})
        else:
            if cell.value is None:
                deleted.append(cell.column)
            else:
                values[column.field] = cell.value if column.change is None else column.change(cell.value)
            if stamp is not None:
                stamps[column.field] = stamp
    result: dict[str, Any] = {}
    if values:
        result["cells"] = values
    if deleted:
        result["deleted"] = deleted
    if stamps:
        result["stamps"] = stamps
    if row.complex_deletions:
        result["complex_deletions"] = [
            {"column": name, **deletion._asdict()} for name, deletion in row.complex_deletions
        ]
    return result


def _iterate_stamps(rows: Iterable[UpdateRow]) -> Iterable[CellStamp]:
    for row in rows:
        if row.liveness is not None:
            yield row.liveness
        for cell in row.cells:
            yield cell.stamp


def _most_common(stamps: Iterable[CellStamp], write_time: int | None) -> CellStamp | None:
    counted = Counter(stamp for stamp in stamps if write_time is None or stamp.write_time == write_time)
    return counted.most_common(1)[0][0] if counted else None


def _name_values(fields: Sequence[tuple[str, Change]], values: Sequence[Any]) -> dict[str, Any]:
    return {
        field: value if change is None else change(value)
        for (field, change), value in zip(fields, values, strict=False)
    }


def _stamp_value(stamp: CellStamp) -> dict[str, Any]:
    return stamp._asdict()


def _deletion_value(deletion: UpdateDeletion | None) -> dict[str, Any] | None:
    return None if deletion is None else deletion._asdict()


def _bound_value(bound: ClusteringBound, clustering: Sequence[tuple[str, Change]]) -> dict[str, Any]:
    return {"prefix": _name_values(clustering, bound.prefix), "inclusive": bound.inclusive}


# Reading


def decode_update(value: Mapping[str, Any], schema: Schema) -> PartitionUpdate:
    """The partition update in a value of ``schema``: what a converter of the worker gave back, or the object in a JSON message.

    Args:
        value: the message; from JSON without schemas too (Base64 for bytes, text for NaN).
        schema: the schema with which it was written.

    Raises:
        Skippable: it is no partition update.
    """
    try:
        return _update_reader(schema).read(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Skippable(
            f"The message does not have the form of a partition update of {schema.name}: {error!r}. Read it with "
            "the schema with which it was written."
        ) from None


@lru_cache(maxsize=1000)
def _update_reader(schema: Schema) -> _UpdateReader:
    return _UpdateReader(schema)


class _Column(NamedTuple):
    """How one column's cells are read: its shape is ``""``, ``elements`` or ``fields``."""

    field: str
    name: str
    shape: str
    value: Change
    path: Change
    members: tuple[_Column, ...]


class _UpdateReader:
    """Reads values of one schema."""

    def __init__(self, schema: Schema) -> None:
        key, rows = schema.field("key"), schema.field("rows")
        if (
            schema.parameter("form") not in {None, FORM}
            or key is None
            or rows is None
            or (rows.schema.value_schema is None)
        ):
            raise ValueError(f"{schema.name} is not the schema of a partition update")
        row = rows.schema.value_schema
        self.constants = {name: schema.parameter(name) or "" for name in CONSTANTS}
        source = schema.field("source")
        position = source.schema.field("position") if source else None
        self.position = _member_readers(position.schema) if position else []
        self.key = _member_readers(key.schema)
        clustering = row.field("clustering")
        self.clustering = _member_readers(clustering.schema) if clustering else []
        static = schema.field("static")
        self.static = _read_columns(static.schema) if static else []
        self.regular = _read_columns(row)

    def read(self, value: Mapping[str, Any]) -> PartitionUpdate:
        write_time = value["write_time"]
        shared = CellStamp(write_time, value.get("ttl"), value.get("expires"))
        static = value.get("static")
        return PartitionUpdate(
            source=self._read_source(value["source"]),
            key=_read_values(self.key, value["key"]),
            write_time=write_time,
            deletion=_read_deletion(value.get("deletion")),
            static=None if static is None else self._read_row(static, shared, self.static),
            rows=tuple(self._read_row(item, shared, self.regular) for item in value.get("rows") or ()),
            ranges=tuple(self._read_range(item) for item in value.get("ranges") or ()),
        )

    def _read_source(self, value: Mapping[str, Any]) -> UpdateSource:
        position = value.get("position")
        return UpdateSource(
            **self.constants,
            snapshot=value["snapshot"],
            read_time=value.get("read_time"),
            position=None
            if position is None
            else dict(zip((name for name, _ in self.position), _read_values(self.position, position), strict=True)),
        )

    def _read_row(self, row: Mapping[str, Any], shared: CellStamp, columns: list[_Column]) -> UpdateRow:
        row_stamp = _read_stamp(row.get("stamp"), shared)
        liveness = row.get("liveness")
        clustering = row.get("clustering")
        return UpdateRow(
            clustering=() if clustering is None else _read_values(self.clustering, clustering),
            liveness=None if liveness is None else _read_stamp(liveness.get("stamp"), row_stamp),
            deletion=_read_deletion(row.get("deletion")),
            cells=tuple(_read_cells(row, row_stamp, columns)),
            complex_deletions=tuple(
                (deletion["column"], UpdateDeletion(deletion["write_time"], deletion["local_deletion_time"]))
                for deletion in row.get("complex_deletions") or ()
            ),
        )

    def _read_range(self, value: Mapping[str, Any]) -> RangeDeletion:
        return RangeDeletion(
            self._read_bound(value["start"]),
            self._read_bound(value["end"]),
            UpdateDeletion(value["write_time"], value["local_deletion_time"]),
        )

    def _read_bound(self, value: Mapping[str, Any]) -> ClusteringBound:
        values = _read_values(self.clustering, value["prefix"])
        length = next((index for index, member in enumerate(values) if member is None), len(values))
        return ClusteringBound(values[:length], value["inclusive"])


def _member_readers(schema: Schema) -> list[tuple[str, Change]]:
    return [(field.name, make_reader(field.schema)) for field in schema.fields]


def _read_columns(row: Schema) -> list[_Column]:
    cells = row.field("cells")
    return [_read_column(field.name, field.schema) for field in cells.schema.fields] if cells else []


def _read_column(field: str, schema: Schema) -> _Column:
    name = column_name(field)
    inner = schema.value_schema
    if schema.type is Type.ARRAY and inner is not None and (inner.name or "").endswith(f".{ELEMENT}"):
        parts = {member.name: make_reader(member.schema) for member in inner.fields}
        return _Column(field, name, "elements", parts["value"], parts["path"], ())
    if schema.type is Type.STRUCT and (schema.name or "").endswith(f".{UDT_FIELDS}"):
        fields = schema.field("fields")
        members = (
            tuple(
                _Column(member.name, column_name(member.name), "", make_reader(member.schema), None, ())
                for member in fields.schema.fields
            )
            if fields
            else ()
        )
        return _Column(field, name, "fields", None, None, members)
    return _Column(field, name, "", make_reader(schema), None, ())


def _read_cells(row: Mapping[str, Any], row_stamp: CellStamp, columns: Iterable[_Column]) -> Iterable[Cell]:
    values: Mapping[str, Any] = row.get("cells") or {}
    deleted = row.get("deleted") or ()
    stamps: Mapping[str, Any] = row.get("stamps") or {}
    for column in columns:
        value = values.get(column.field)
        if not column.shape:
            cell = _read_simple(column, value, deleted, stamps, row_stamp)
            if cell is not None:
                yield Cell(column.name, None, *cell)
        elif value is None:
            continue
        elif column.shape == "elements":
            for entry in value:
                stamp = _read_stamp(entry.get("stamp"), row_stamp)
                item = entry.get("value")
                if item is None:
                    stamp = CellStamp(stamp.write_time)
                elif column.value is not None:
                    item = column.value(item)
                yield Cell(
                    column.name, entry["path"] if column.path is None else column.path(entry["path"]), item, stamp
                )
        else:
            deleted_fields, field_stamps = value.get("deleted") or (), value.get("stamps") or {}
            for field in column.members:
                cell = _read_simple(field, value["fields"].get(field.field), deleted_fields, field_stamps, row_stamp)
                if cell is not None:
                    yield Cell(column.name, field.name, *cell)


def _read_simple(
    column: _Column, value: Any, deleted: Sequence[str], stamps: Mapping[str, Any], row_stamp: CellStamp
) -> tuple[Any, CellStamp] | None:
    if value is None:
        if column.name not in deleted:
            return None
        return None, CellStamp(_read_stamp(stamps.get(column.field), row_stamp).write_time)
    return (value if column.value is None else column.value(value)), _read_stamp(stamps.get(column.field), row_stamp)


def _read_stamp(value: Mapping[str, Any] | None, otherwise: CellStamp) -> CellStamp:
    return otherwise if value is None else CellStamp(value["write_time"], value.get("ttl"), value.get("expires"))


def _read_deletion(value: Mapping[str, Any] | None) -> UpdateDeletion | None:
    return None if value is None else UpdateDeletion(value["write_time"], value["local_deletion_time"])


def _read_values(fields: Sequence[tuple[str, Change]], value: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(value.get(field) if change is None else change(value.get(field)) for field, change in fields)
