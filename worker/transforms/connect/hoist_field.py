"""HoistField: wrap the key or the value into a struct, or a map, of one field.

Source: org.apache.kafka.connect.transforms.HoistField of Kafka 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from connectors.errors import Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType
from connectors.schema import Field, Schema, Type
from worker.transforms.base import RecordFunction, Transform, ValueFunction, by_schema, null_refused, refusing
from worker.transforms.rewriting import Struct, SymbolicStruct, change_side

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from worker.transforms.rewriting import SymbolicRecord


class HoistField(Transform):
    """Wraps the key or the value."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.HoistField",)
    sided: ClassVar[bool] = True
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(name="field", type=ConfigType.STRING, doc="Name of the one field.", example="line"),
        ]
    )

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``."""
        return change_side(record, self.side, self._rewritten, skip_null=False) if self.config["field"] else None

    def _rewritten(self, symbol: SymbolicStruct) -> SymbolicStruct:
        name = self.config["field"]
        return SymbolicStruct(Schema(Type.STRUCT, fields=(Field(name, symbol.schema),)), Struct({name: symbol.struct}))

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        return by_schema(self.side, self._for_schema, skip_null=False)

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, ValueFunction]:
        name = self.config["field"]

        def wrap(value: Any, record: SourceRecord) -> Any:
            del record
            return {name: value}

        if schema is None:
            return None, wrap
        if not name:
            return schema, refusing(Skippable("fieldName cannot be null."))
        field = Field(name, schema)

        def wrap_required(value: Any, record: SourceRecord) -> Any:
            del record
            if value is None:
                raise null_refused(field)
            return {name: value}

        return Schema(Type.STRUCT, fields=(field,)), wrap if schema.optional else wrap_required
