"""The schema of a partition update, read: its columns, and a class per struct for msgspec to decode messages into.

Both encodings give the same objects: JSON is decoded into the classes directly, Avro by a function made for the writer's schema
(``avro``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from connectors.cql.types import CqlType, freeze_type, parse_type
from connectors.errors import Fatal, Skippable
from connectors.formats.cql_schema import CQL_TYPE, make_reader
from connectors.formats.names import column_name
from connectors.formats.partition_update import ELEMENT, FORM, FORM_VERSION, ORDER, UDT_FIELDS
from connectors.schema import Schema, Type
from spark_jobs.materializer.engine.model import StateColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.schema import Field


class UpdateStamp(msgspec.Struct, gc=False):
    """See ``connectors.formats.partition_update.CellStamp``."""

    write_time: int
    ttl: int | None = None
    expires: int | None = None


class DecodedDeletion(msgspec.Struct, gc=False):
    """See ``connectors.formats.partition_update.UpdateDeletion``."""

    write_time: int
    local_deletion_time: int


class Liveness(msgspec.Struct, gc=False):
    """A row was inserted; no stamp: the row's."""

    stamp: UpdateStamp | None = None


class ComplexDeletion(msgspec.Struct, gc=False):
    """A multicell column was overwritten or cleared."""

    column: str
    write_time: int
    local_deletion_time: int


class DecodedSource(msgspec.Struct, gc=False):
    """The part of a message's source that the engine needs; ``read_time``: when its connector read it, ms since 1970."""

    schema: str = ""
    snapshot: bool = False
    read_time: int | None = None


class ColumnPart(msgspec.Struct):
    """One of the two parts (static, regular) of the columns.

    Attributes:
        columns: in the order of the message's cells.
        readers: per column what makes a decoded value one of ``connectors.cql.values``; None where it is one already.
        element_readers: per column, of multicell ones the readers of ``path`` and ``value``, or of a UDT's fields by name.
        udt_fields: per column, of non-frozen UDTs the names of their fields in messages.
        row: the class of a row; all have the same attributes.
        cell_types: per column the class of one element or of the fields, None of simple columns.
    """

    columns: list[StateColumn]
    readers: list[Callable[[Any], Any] | None]
    element_readers: list[dict[str, Callable[[Any], Any] | None]]
    udt_fields: list[list[str]]
    row: type[Any]
    cell_types: list[type[Any] | None]


class UpdateVersion(msgspec.Struct):
    """One version of a table's definition, as a partition update's schema tells it.

    Attributes:
        schema: of the message.
        ident: the text by which messages name it (``source.schema``).
        constants: connector, cluster, keyspace, table, table_id, schema_version.
        key: columns of the partition key.
        clustering: columns of the clustering key.
        key_readers, clustering_readers: as ``ColumnPart.readers``.
        static, regular: the other columns.
        update, range, bound, bound_prefix: the classes of a message, a deleted range, one of its bounds, the values in it.
        decode_json: bytes to such an object.
    """

    schema: Schema
    ident: str
    constants: dict[str, str]
    key: list[StateColumn]
    clustering: list[StateColumn]
    key_readers: list[Callable[[Any], Any] | None]
    clustering_readers: list[Callable[[Any], Any] | None]
    static: ColumnPart
    regular: ColumnPart
    update: type[Any]
    bound: type[Any]
    range: type[Any]
    bound_prefix: type[Any]
    decode_json: Callable[[bytes], Any]


def read_version(schema: Schema, ident: str) -> UpdateVersion:
    """The version that ``schema`` tells.

    Args:
        schema: of a partition update's value.
        ident: the text in ``source.schema`` of its messages.

    Raises:
        Skippable: it is not the schema of a partition update.
        Fatal: the table has counters, or the form is newer than this version.
    """
    key, rows = schema.field("key"), schema.field("rows")
    if schema.parameter("form") not in {None, FORM} or key is None or rows is None or rows.schema.value_schema is None:
        raise Skippable(
            f"{schema.name or 'The schema'} is not the schema of a partition update. Set the materializer's input "
            "format to what the topic has."
        )
    if (version := schema.parameter("form.version") or FORM_VERSION) != FORM_VERSION:
        raise Fatal(
            f"Messages of {schema.name} are partition updates of version {version}; this materializer reads version "
            f"{FORM_VERSION}. Use a newer one."
        )
    row = rows.schema.value_schema
    clustering, static = row.field("clustering"), schema.field("static")
    constants = {
        name: schema.parameter(name) or ""
        for name in ("connector", "cluster", "keyspace", "table", "table_id", "schema_version")
    }
    keys = key.schema.fields
    clusterings = None if clustering is None else clustering.schema.fields
    clustering_class = Any if clusterings is None else _make_key_struct("Clustering", clusterings)
    regular_part = _read_part(row, "regular", clustering_class)
    static_part = _read_part(static.schema if static is not None else None, "static", Any)
    prefix = (
        Any
        if clusterings is None
        else _make_struct(
            "Prefix", [(field.name, _to_plain_type(field.schema) | None) for field in clusterings], optional=True
        )
    )
    bound = msgspec.defstruct("Bound", [("prefix", prefix), ("inclusive", bool)], gc=False)
    range_ = msgspec.defstruct(
        "Range", [("start", bound), ("end", bound), ("write_time", int), ("local_deletion_time", int)], gc=False
    )
    update = _make_update(_make_key_struct("Key", keys), static_part.row, regular_part.row, range_)
    return UpdateVersion(
        schema=schema,
        ident=ident,
        constants=constants,
        key=[_make_column(field.name, field.schema, "partition_key") for field in keys],
        clustering=[_make_column(field.name, field.schema, "clustering") for field in clusterings or ()],
        key_readers=[value_reader(field.schema) for field in keys],
        clustering_readers=[value_reader(field.schema) for field in clusterings or ()],
        static=static_part,
        regular=regular_part,
        update=update,
        bound=bound,
        range=range_,
        bound_prefix=prefix,
        decode_json=_json_decoder(update),
    )


def _make_key_struct(name: str, fields: Sequence[Field]) -> type[Any]:
    return _make_struct(name, [(field.name, _to_plain_type(field.schema)) for field in fields])


def _make_update(key: type[Any], static: type[Any], row: type[Any], range_: type[Any]) -> type[Any]:
    """The class of a message, of the classes of its parts."""
    return msgspec.defstruct(
        "Update",
        [
            ("source", DecodedSource),
            ("key", key),
            ("write_time", int),
            ("ttl", int | None, None),
            ("expires", int | None, None),
            ("deletion", DecodedDeletion | None, None),
            ("static", static | None, None),
            ("rows", list[row] | None, None),  # type: ignore[valid-type]
            ("ranges", list[range_] | None, None),  # type: ignore[valid-type]
        ],
        gc=False,
    )


def _json_decoder(update: type[Any]) -> Callable[[bytes], Any]:
    strict, lax = msgspec.json.Decoder(update).decode, msgspec.json.Decoder(update, strict=False).decode

    def decode(data: bytes) -> Any:
        try:
            return strict(data)
        except msgspec.ValidationError:
            return lax(data)  # NaN and the infinities are strings

    return decode


def _make_struct(name: str, members: list[tuple[str, Any]], *, optional: bool = False) -> type[Any]:
    """A class with the fields ``members``, called f0, f1 ... so that any name will do."""
    fields: list[Any] = [
        (f"f{index}", kind, None) if optional else (f"f{index}", kind) for index, (_, kind) in enumerate(members)
    ]
    return msgspec.defstruct(
        name, fields, rename={f"f{index}": field for index, (field, _) in enumerate(members)}, gc=False
    )


def _optional_cells(cell_type: Any, schema: Schema) -> Any:
    if find_cell_shape(schema) == "elements":
        return list[cell_type] | None
    return (cell_type or _to_plain_type(schema)) | None


def _read_part(row: Schema | None, kind: Any, clustering: Any) -> ColumnPart:
    cells = row.field("cells") if row is not None else None
    fields = cells.schema.fields if cells is not None else ()
    columns = [_make_column(field.name, field.schema, kind) for field in fields]
    cell_types = [_cell_type(field.schema) for field in fields]
    cells_class = _make_struct(
        "Cells",
        [
            (
                field.name,
                _optional_cells(cell_type, field.schema),
            )
            for field, cell_type in zip(fields, cell_types, strict=True)
        ],
        optional=True,
    )
    row_class = msgspec.defstruct(
        "Row",
        [
            ("clustering", clustering, ()) if clustering is Any else ("clustering", clustering),
            ("liveness", Liveness | None, None),
            ("deletion", DecodedDeletion | None, None),
            ("stamp", UpdateStamp | None, None),
            ("cells", cells_class | None, None),
            ("deleted", list[str] | None, None),
            ("stamps", dict[str, UpdateStamp | None] | None, None),
            ("complex_deletions", list[ComplexDeletion] | None, None),
        ],
        gc=False,
    )
    return ColumnPart(
        columns,
        [None if find_cell_shape(field.schema) else value_reader(field.schema) for field in fields],
        [_element_readers(field.schema) for field in fields],
        [_udt_fields(field.schema) for field in fields],
        row_class,
        cell_types,
    )


def _udt_fields(schema: Schema) -> list[str]:
    fields = schema.field("fields") if find_cell_shape(schema) == "fields" else None
    return [field.name for field in fields.schema.fields] if fields is not None else []


def _element_readers(schema: Schema) -> dict[str, Callable[[Any], Any] | None]:
    """The readers of one element's parts, or of a UDT's fields. JSON's fields come undecoded: blobs and floats need one too."""
    kind = find_cell_shape(schema)
    if kind == "elements" and schema.value_schema is not None:
        return {field.name: value_reader(field.schema) for field in schema.value_schema.fields}
    fields = schema.field("fields") if kind == "fields" else None
    return (
        {column_name(field.name): make_reader(field.schema) for field in fields.schema.fields}
        if fields is not None
        else {}
    )


def find_cell_shape(schema: Schema) -> str:
    """How the cells of a column are laid out: ``""`` (one value), ``elements`` or ``fields``."""
    inner = schema.value_schema
    if schema.type is Type.ARRAY and inner is not None and (inner.name or "").endswith(f".{ELEMENT}"):
        return "elements"
    return "fields" if schema.type is Type.STRUCT and (schema.name or "").endswith(f".{UDT_FIELDS}") else ""


def _cell_type(schema: Schema) -> type[Any] | None:
    kind = find_cell_shape(schema)
    if kind == "elements" and schema.value_schema is not None:
        parts = {field.name: field.schema for field in schema.value_schema.fields}
        return msgspec.defstruct(
            "Element",
            [
                ("path", _to_plain_type(parts["path"])),
                ("value", _to_plain_type(parts["value"]) | None, None),
                ("stamp", UpdateStamp | None, None),
            ],
            gc=False,
        )
    if kind == "fields":
        return msgspec.defstruct(
            "Fields",
            [
                ("fields", dict[str, Any] | None, None),
                ("deleted", list[str] | None, None),
                ("stamps", dict[str, UpdateStamp | None] | None, None),
            ],
            gc=False,
        )
    return None


def _to_plain_type(schema: Schema) -> Any:
    """The type to decode a value as; what JSON says in another form is read by ``value_reader`` afterwards."""
    match schema.type:
        case Type.STRING:
            return str
        case Type.BYTES:
            return bytes
        case Type.BOOLEAN:
            return bool
        case Type.FLOAT32 | Type.FLOAT64:
            return float
        case Type.ARRAY | Type.STRUCT | Type.MAP:
            return Any
    return int


def value_reader(schema: Schema) -> Callable[[Any], Any] | None:
    """Return the function that converts a decoded value to one of ``connectors.cql.values``; None where it is one already."""
    return make_reader(schema) if schema.type in {Type.ARRAY, Type.STRUCT} else None


def _make_column(field: str, schema: Schema, kind: Any) -> StateColumn:
    return StateColumn(column_name(field), field, kind, cql_type(schema), None, schema.parameter(ORDER) == "DESC")


def cql_type(schema: Schema) -> CqlType:
    """The CQL type of a column; the fields of UDTs are read from the structs in its schema.

    Raises:
        Skippable: the schema has no parameter ``cql.type``.
        Fatal: a type is not understood, or is a counter.
    """
    type_text = schema.parameter(CQL_TYPE)
    if type_text is None:
        raise Skippable(
            f"The schema {schema.name or schema.type} has no parameter {CQL_TYPE}: a partition update's columns "
            "have one (in Avro in connect.parameters; the converter's connect.meta.data must not be off)."
        )
    kind = _fill_udts(parse_type(type_text, lambda name: CqlType("udt", udt_name=name)), schema)
    if kind.name == "counter":
        raise Fatal("Counters can't be merged: leave their table out.")
    return kind


def _fill_udts(kind: CqlType, schema: Schema | None) -> CqlType:
    """``kind`` with the fields of its UDTs from ``schema``."""
    if schema is None or (kind.name != "udt" and not kind.arguments):
        return kind
    inner = schema.value_schema
    whole = find_cell_shape(schema)
    if kind.name == "udt":
        members = schema
        if whole == "fields" and (fields_field := schema.field("fields")) is not None:
            members = fields_field.schema
        arguments = tuple(cql_type(field.schema) for field in members.fields)
        names = tuple(column_name(field.name) for field in members.fields)
        return replace(kind, arguments=tuple(map(freeze_type, arguments)), field_names=names)
    if kind.name == "tuple":
        parts = [field.schema for field in schema.fields]
    elif kind.name == "map" or whole == "elements":
        fields = {field.name: field.schema for field in inner.fields} if inner is not None else {}
        parts = {
            "map": [fields.get("path") or fields.get("key"), fields.get("value")],
            "set": [fields.get("path")],
            "list": [fields.get("value")],
        }[kind.name]  # type: ignore[assignment]
    else:
        parts = [inner]  # type: ignore[list-item]
    return replace(
        kind, arguments=tuple(_fill_udts(field, part) for field, part in zip(kind.arguments, parts, strict=True))
    )
