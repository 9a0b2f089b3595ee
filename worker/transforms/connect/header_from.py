"""HeaderFrom: copy or move fields of the key or the value into headers.

Source: org.apache.kafka.connect.transforms.HeaderFrom of Kafka 4.1 (KIP-145). A field that a struct doesn't have is an error
with its name, where Connect's is a null pointer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from connectors.api import Header
from connectors.errors import ConfigInvalid, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, one_of
from worker.transforms.base import (
    REPLACE_NULL_KEY,
    RecordFunction,
    SchemaCache,
    Side,
    Transform,
    copy_record,
    is_struct,
    non_empty_list,
    not_a_map,
    not_a_struct,
    null_refused,
    struct_copier,
    with_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord
    from connectors.schema import Field, Schema

    _Split = Callable[[Any], tuple[Any, tuple[Header, ...]]]


class HeaderFrom(Transform):
    """Makes headers of fields."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.HeaderFrom",)
    sided: ClassVar[bool] = True
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="fields",
                type=ConfigType.LIST,
                validator=non_empty_list,
                importance=Importance.HIGH,
                doc="Fields whose values become headers.",
                example="tenant,trace",
            ),
            ConfigKey(
                name="headers",
                type=ConfigType.LIST,
                validator=non_empty_list,
                importance=Importance.HIGH,
                doc="The headers' names, in the order of fields.",
                example="tenant-id,trace-id",
            ),
            ConfigKey(
                name="operation",
                type=ConfigType.STRING,
                validator=one_of("move", "copy"),
                importance=Importance.HIGH,
                doc="Whether the fields are moved or copied.",
                example="move",
            ),
            REPLACE_NULL_KEY,
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._fields: list[str] = config["fields"]
        self._headers: list[str] = config["headers"]
        self._move = config["operation"] == "move"
        self._purpose = f"header {config['operation']}"
        if len(self._fields) != len(self._headers):
            raise ConfigInvalid("'fields' config must have the same number of elements as 'headers' config.")

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        cache: SchemaCache[tuple[Schema | None, _Split]] = SchemaCache(self._for_schema)
        find, add = cache.by_id.get, cache.add
        last: object = cache
        new_schema: Schema | None
        split: _Split

        def from_value(record: SourceRecord) -> SourceRecord:
            nonlocal last, new_schema, split
            schema = record.value_schema
            if schema is not last:
                _, (new_schema, split) = find(id(schema)) or add(schema)
                last = schema
            remaining, headers = split(record.value)
            result = copy_record(record)
            result.value, result.value_schema = remaining, new_schema
            result.headers = record.headers + headers
            return result

        def from_key(record: SourceRecord) -> SourceRecord:
            nonlocal last, new_schema, split
            schema = record.key_schema
            if schema is not last:
                _, (new_schema, split) = find(id(schema)) or add(schema)
                last = schema
            remaining, headers = split(record.key)
            result = copy_record(record)
            result.key, result.key_schema = remaining, new_schema
            result.headers = record.headers + headers
            return result

        return from_value if self.side is Side.VALUE else from_key

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, _Split]:
        if schema is None:
            return None, self._make_schemaless
        if not is_struct(schema):
            return schema, self._make_refusal(schema)
        headers_: list[tuple[str, Field]] = []
        for name, header in zip(self._fields, self._headers, strict=True):
            field = schema.field(name)
            if field is None:
                return schema, self._make_refusal(schema, f"Unknown field: {name}")
            headers_.append((header, field))
        replace_null = self.config["replace.null.with.default"]
        defaults = [field.schema.default if replace_null else None for _, field in headers_]
        parts = [
            (header, field.name, field.schema, field, default)
            for (header, field), default in zip(headers_, defaults, strict=True)
        ]
        purpose, move = self._purpose, self._move
        gone = set(self._fields)
        kept = with_fields(schema, [field for field in schema.fields if field.name not in gone]) if move else schema
        copy = struct_copier(kept, replace_null=replace_null)
        dropped = tuple(dict.fromkeys(self._fields)) if move else ()

        def split(value: Any) -> tuple[Any, tuple[Header, ...]]:
            if value is None:
                raise not_a_struct(value, schema, purpose)
            headers = []
            get = value.get
            for header, name, kind, field, default in parts:
                member = get(name)
                if member is None:
                    member = default
                    if member is None and not kind.optional:
                        raise null_refused(field)
                headers.append(Header(header, member, kind))
            if not move:
                return value, tuple(headers)
            remaining = copy(value)
            for name in dropped:
                if name in remaining:
                    del remaining[name]
            return remaining, tuple(headers)

        return kept, split

    def _make_refusal(self, schema: Schema, message: str = "") -> _Split:
        def refuse(value: Any) -> tuple[Any, tuple[Header, ...]]:
            if value is None or not message:
                raise not_a_struct(value, schema, self._purpose)
            raise Skippable(message)

        return refuse

    def _make_schemaless(self, value: Any) -> tuple[Any, tuple[Header, ...]]:
        if not isinstance(value, dict):
            raise not_a_map(value, self._purpose)
        headers = tuple(
            [Header(header, value.get(name)) for name, header in zip(self._fields, self._headers, strict=True)]
        )
        if not self._move:
            return value, headers
        gone = self._fields
        return {name: item for name, item in value.items() if name not in gone}, headers
