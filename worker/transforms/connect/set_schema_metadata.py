"""SetSchemaMetadata: another name or version for the schema of the key or the value.

Source: org.apache.kafka.connect.transforms.SetSchemaMetadata of Kafka 4.1, which can name the schemas of structs only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from connectors.errors import ConfigInvalid, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance
from worker.transforms.base import (
    REPLACE_NULL_KEY,
    RecordFunction,
    Side,
    Transform,
    ValueFunction,
    by_schema,
    is_struct,
    refusing,
    struct_copier,
)
from worker.transforms.rewriting import SymbolicStruct, change_side, copy_members

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from connectors.schema import Schema
    from worker.transforms.rewriting import SymbolicRecord


class SetSchemaMetadata(Transform):
    """Names the schema of the key or the value."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.SetSchemaMetadata",)
    sided: ClassVar[bool] = True
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="schema.name",
                type=ConfigType.STRING,
                default=None,
                importance=Importance.HIGH,
                doc="The schema's new name.",
                example="inventory.User",
            ),
            ConfigKey(
                name="schema.version",
                type=ConfigType.INT,
                default=None,
                importance=Importance.HIGH,
                doc="The schema's new version.",
                example="2",
            ),
            REPLACE_NULL_KEY,
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._name: str | None = config["schema.name"]
        self._version: int | None = config["schema.version"]
        if self._name is None and self._version is None:
            raise ConfigInvalid("Neither schema name nor version configured: set schema.name or schema.version")

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``."""
        return change_side(record, self.side, self._rewritten, skip_null=True)

    def _rewritten(self, symbol: SymbolicStruct) -> SymbolicStruct:
        members = copy_members(symbol, replace_null=self.config["replace.null.with.default"])
        return SymbolicStruct(self._changed(symbol.schema), symbol.struct._replace(members=members))

    def _changed(self, schema: Schema) -> Schema:
        return replace(
            schema,
            name=schema.name if self._name is None else self._name,
            version=schema.version if self._version is None else self._version,
        )

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        return by_schema(self.side, self._for_schema, skip_null=False)

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, ValueFunction]:
        if schema is None:
            return None, _null_only
        if not is_struct(schema):
            return schema, refusing(Skippable("Cannot list fields on non-struct type"))
        changed = self._changed(schema)
        copy = struct_copier(schema, replace_null=self.config["replace.null.with.default"])
        if copy is dict:
            return changed, _same  # nothing to fill in or to check

        def convert(value: Any, record: SourceRecord) -> Any:
            del record
            return None if value is None else copy(value)

        return changed, convert


def _same(value: Any, record: SourceRecord) -> Any:
    del record
    return value


def _null_only(value: Any, record: SourceRecord) -> Any:
    del record
    if value is not None:
        raise Skippable("Schema required for [updating schema metadata]")
