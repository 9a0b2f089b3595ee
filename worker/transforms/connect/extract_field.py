"""ExtractField: one field instead of the whole key or value.

Source: org.apache.kafka.connect.transforms.ExtractField of Kafka 4.1 (KIP-821 for nested fields).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from connectors.errors import Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType
from connectors.wire import Fixed
from worker.transforms.base import (
    REPLACE_NULL_KEY,
    RecordFunction,
    Side,
    Transform,
    ValueFunction,
    by_schema,
    is_struct,
    not_a_map,
    not_a_struct,
)
from worker.transforms.field_path import SYNTAX_KEY, field_at, map_value, parse_path
from worker.transforms.rewriting import Member, SymbolicMember, SymbolicStruct, copy_member

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from connectors.schema import Field, Schema
    from worker.transforms.rewriting import SymbolicRecord

_PURPOSE = "field extraction"


class ExtractField(Transform):
    """Replaces the key or the value by one of its fields."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.ExtractField",)
    sided: ClassVar[bool] = True
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(name="field", type=ConfigType.STRING, doc="The field to take.", example="id"),
            SYNTAX_KEY,
            REPLACE_NULL_KEY,
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._steps = parse_path(config["field"], config["field.syntax.version"])

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``: a field of the key; of a value that is no struct each record has to be there."""
        key = record.key
        if self.side is not Side.KEY or not isinstance(key, SymbolicStruct) or len(self._steps) != 1:
            return None
        field = key.schema.field(self._steps[0])
        if field is None:
            return None
        node = key.struct.members[field.name]
        if self.config["replace.null.with.default"]:
            node = copy_member(node, field.schema, replace_null=True)
        return replace(record, key=SymbolicMember(field.schema, node)) if isinstance(node, Member | Fixed) else None

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        return by_schema(self.side, self._for_schema, skip_null=False)

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, ValueFunction]:
        if schema is None:
            return None, self._make_schemaless()
        if not is_struct(schema):
            return schema, _make_refusal(schema)
        field = field_at(schema, self._steps)
        if field is None:
            return schema, self._refuse_unknown()
        return field.schema, self._make_taker(field)

    def _make_taker(self, field: Field) -> ValueFunction:
        default = field.schema.default if self.config["replace.null.with.default"] else None
        path, last = self._steps[:-1], self._steps[-1]
        if not path:

            def take_own(value: Any, record: SourceRecord) -> Any:
                del record
                if value is None:
                    return None
                member = value.get(last)
                return default if member is None else member

            return take_own

        def take(value: Any, record: SourceRecord) -> Any:
            del record
            for step in path:
                if value is None:
                    return None
                value = value.get(step)
            if value is None:
                return None
            member = value.get(last)
            return default if member is None else member

        return take

    def _refuse_unknown(self) -> ValueFunction:
        message = f"Unknown field: {self.config['field']}"

        def refuse(value: Any, record: SourceRecord) -> Any:
            del value, record
            raise Skippable(message)

        return refuse

    def _make_schemaless(self) -> ValueFunction:
        steps = self._steps
        single = steps[0] if len(steps) == 1 else None

        def take(value: Any, record: SourceRecord) -> Any:
            del record
            if value is None:
                return None
            if not isinstance(value, dict):
                raise not_a_map(value, _PURPOSE)
            return value.get(single) if single is not None else map_value(value, steps)

        return take


def _make_refusal(schema: Schema) -> ValueFunction:
    def refuse(value: Any, record: SourceRecord) -> Any:
        del record
        if value is not None:
            raise not_a_struct(value, schema, _PURPOSE)
        raise Skippable("Cannot look up fields on non-struct type")

    return refuse
