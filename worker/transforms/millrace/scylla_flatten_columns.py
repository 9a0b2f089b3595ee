"""ScyllaFlattenColumns: the columns in ``before`` and ``after`` of an event without their cells, all else as it is.

Source: com.scylladb.cdc.debezium.connector.transforms.ScyllaFlattenColumns of the Java connector 2.0. Whatever struct has
``value`` as its only field is taken for a cell, whatever its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.options import ConfigDef
from connectors.schema import Field, Schema
from worker.transforms.base import RecordFunction, SchemaCache, Transform, copy_record, is_struct, with_fields
from worker.transforms.rewriting import Struct, SymbolicStruct, open_cell

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from worker.transforms.rewriting import Node, SymbolicRecord

_IMAGES: Final = ("before", "after")
_VALUE: Final = "value"

#: The new schema, and how values get there.
_Plan = tuple[Schema, Callable[[dict[str, Any]], dict[str, Any]]]


class ScyllaFlattenColumns(Transform):
    """Replaces cells by what they hold; null and unset columns become one."""

    version: ClassVar[str] = "2.0.4"
    aliases: ClassVar[tuple[str, ...]] = ("com.scylladb.cdc.debezium.connector.transforms.ScyllaFlattenColumns",)
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``."""
        schema, struct = record.value
        plan = _plan(schema)
        if plan is None:
            return record
        members: dict[str, Node] = dict(struct.members)
        for field in schema.fields:
            image = members[field.name]
            if field.name in _IMAGES and isinstance(image, Struct):
                columns: dict[str, Node] = dict(image.members)
                for column in field.schema.fields:
                    if _is_wrapped(column.schema):
                        columns[column.name] = open_cell(columns[column.name], _VALUE)
                members[field.name] = image._replace(members=columns)
        return replace(record, value=SymbolicStruct(plan[0], struct._replace(members=members)))

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        plans: SchemaCache[_Plan | None] = SchemaCache(_plan)
        find, add = plans.by_id.get, plans.add

        def apply(record: SourceRecord) -> SourceRecord:
            value = record.value
            if value is None:
                return record
            schema = record.value_schema
            plan = (find(id(schema)) or add(schema))[1]
            if plan is None:
                return record
            result = copy_record(record)
            result.value_schema = plan[0]
            result.value = plan[1](value)
            return result

        return apply


def _is_wrapped(schema: Schema) -> bool:
    return is_struct(schema) and len(schema.fields) == 1 and schema.fields[0].name == _VALUE


def _plan(schema: Schema | None) -> _Plan | None:
    if schema is None or not is_struct(schema):
        return None
    images = [
        (field.name, [member.name for member in field.schema.fields if _is_wrapped(member.schema)])
        for field in schema.fields
        if field.name in _IMAGES and is_struct(field.schema)
    ]
    new = with_fields(
        schema,
        [
            Field(
                field.name, _flat(field.schema) if field.name in _IMAGES and is_struct(field.schema) else field.schema
            )
            for field in schema.fields
        ],
    )

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        result = dict(value)
        for name, cells in images:
            image = value.get(name)
            if image is not None:
                flat = dict(image)
                for cell in cells:
                    cell_value = image.get(cell)
                    if cell_value is not None:
                        flat[cell] = cell_value.get(_VALUE)
                result[name] = flat
        return result

    return new, convert


def _flat(schema: Schema) -> Schema:
    """An image's schema without cells; it stays optional if it was, and has no default."""
    fields = [
        Field(member.name, member.schema.fields[0].schema if _is_wrapped(member.schema) else member.schema)
        for member in schema.fields
    ]
    return replace(with_fields(schema, fields), optional=schema.optional)
