"""ScyllaExtractNewRecordState: ExtractNewRecordState, and the columns of Scylla's legacy format without their cells.

Source: com.scylladb.cdc.debezium.connector.transforms.ScyllaExtractNewRecordState of the Java connector 2.0, over Debezium's
transform of 3.5. A cell is a struct named ``....Cell`` with one field, ``value``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.options import Config, ConfigDef, ConfigKey, ConfigType
from connectors.schema import Field, Schema, Type
from worker.transforms.base import RecordFunction, SchemaCache, Side, Transform, copy_record, is_struct, with_fields
from worker.transforms.debezium.extract_new_record_state import ExtractNewRecordState
from worker.transforms.rewriting import Struct, SymbolicStruct, open_cell

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from worker.transforms.rewriting import Node, SymbolicRecord

_FORMAT: Final = "cdc.output.format"
_VALUE: Final = "value"
_COMPOSITE: Final = (Type.ARRAY, Type.MAP, Type.STRUCT)

#: The new schema, and how values get there.
_Plan = tuple[Schema, Callable[[dict[str, Any]], dict[str, Any]]]


class ScyllaExtractNewRecordState(Transform):
    """Unwraps change events of Scylla, and their cells."""

    version: ClassVar[str] = "2.0.4"
    aliases: ClassVar[tuple[str, ...]] = ("com.scylladb.cdc.debezium.connector.transforms.ScyllaExtractNewRecordState",)
    config_def: ClassVar[ConfigDef] = ExtractNewRecordState.config_def.extended(
        [
            ConfigKey(
                name=_FORMAT,
                type=ConfigType.STRING,
                default="legacy",
                display_name="Format of the events",
                doc='legacy (the default): cells {"value": ...} are replaced by what they hold; unset and null become one. '
                "advanced: rows are left as they are.",
                example="advanced",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._inner = ExtractNewRecordState(config, side)
        self._legacy = config[_FORMAT].strip().lower() != "advanced"

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``."""
        extracted = self._inner.rewrite(record)
        if extracted is None or not self._legacy:
            return extracted
        schema, struct = extracted.value
        plan = _plan(schema)
        if plan is None:
            return extracted
        members: dict[str, Node] = dict(struct.members)
        for field in schema.fields:
            if is_cell(field.schema):
                members[field.name] = open_cell(members[field.name], _VALUE)
        return replace(extracted, value=SymbolicStruct(plan[0], Struct(members)))

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        extract = self._inner.compile()
        if not self._legacy:
            return extract
        plans: SchemaCache[_Plan | None] = SchemaCache(_plan)
        find, add = plans.by_id.get, plans.add

        def apply(record: SourceRecord) -> SourceRecord | None:
            extracted = extract(record)
            if extracted is None or extracted.value is None:
                return extracted
            schema = extracted.value_schema
            plan = (find(id(schema)) or add(schema))[1]
            if plan is None:
                return extracted
            result = extracted if extracted is not record else copy_record(extracted)
            result.value_schema = plan[0]
            result.value = plan[1](extracted.value)
            return result

        return apply


def is_cell(schema: Schema) -> bool:
    """Whether it is the struct that the legacy format wraps a column's value in."""
    return (
        schema.type is Type.STRUCT
        and schema.name is not None
        and schema.name.endswith(".Cell")
        and len(schema.fields) == 1
        and schema.fields[0].name == _VALUE
    )


def _plan(schema: Schema | None) -> _Plan | None:
    if schema is None or not is_struct(schema):
        return None
    cells = [field.name for field in schema.fields if is_cell(field.schema)]
    new = with_fields(schema, [Field(field.name, _inside(field.schema)) for field in schema.fields])

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        result = dict(value)
        for name in cells:
            cell = value.get(name)
            if cell is not None:
                result[name] = cell.get(_VALUE)
        return result

    return new, convert


def _inside(schema: Schema) -> Schema:
    """The schema of what a cell holds, optional as long as it is a primitive; other schemas as they are."""
    if not is_cell(schema):
        return schema
    inner = schema.fields[0].schema
    return inner if inner.optional or inner.type in _COMPOSITE else replace(inner, optional=True, version=None)
