"""ValueToKey: a key from fields of the value.

Source: org.apache.kafka.connect.transforms.ValueToKey of Kafka 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from connectors.errors import Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance
from connectors.schema import Field, Schema, Type
from worker.transforms.base import (
    REPLACE_NULL_KEY,
    RecordFunction,
    SchemaCache,
    Transform,
    copy_record,
    is_struct,
    non_empty_list,
    not_a_map,
    not_a_struct,
    null_refused,
    with_fields,
)
from worker.transforms.generated import TakenField, struct_taker

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord

_PURPOSE = "copying fields from value to key"
_KEY = Schema(Type.STRUCT)


class ValueToKey(Transform):
    """Replaces the key by fields of the value."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.ValueToKey",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="fields",
                type=ConfigType.LIST,
                validator=non_empty_list,
                importance=Importance.HIGH,
                doc="Fields of the value that make the key, in order.",
                example="id",
            ),
            REPLACE_NULL_KEY,
        ]
    )

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        cache: SchemaCache[tuple[Schema | None, Callable[[Any], Any]]] = SchemaCache(self._for_schema)
        find, add = cache.by_id.get, cache.add
        last: object = cache
        key_schema: Schema | None
        take: Callable[[Any], Any]

        def apply(record: SourceRecord) -> SourceRecord:
            nonlocal last, key_schema, take
            schema = record.value_schema
            if schema is not last:
                _, (key_schema, take) = find(id(schema)) or add(schema)
                last = schema
            key = take(record.value)
            result = copy_record(record)
            result.key, result.key_schema = key, key_schema
            return result

        return apply

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, Callable[[Any], Any]]:
        names = list(self.config["fields"])
        if schema is None:
            return None, _take_schemaless(names)
        if not is_struct(schema):
            return None, _make_refusal(schema)
        fields = []
        for name in names:
            field = schema.field(name)
            if field is None:
                return None, _refuse_unknown(schema, name)
            fields.append(field)
        return with_fields(_KEY, fields), self._make_taker(schema, fields)

    def _make_taker(self, schema: Schema, fields: list[Field]) -> Callable[[Any], Any]:
        replace_null = self.config["replace.null.with.default"]
        defaults = {field.name: field.schema.default for field in fields} if replace_null else {}
        parts = [(field.name, field, defaults.get(field.name)) for field in fields]

        def slow(value: Any) -> Any:
            if value is None:
                raise not_a_struct(value, schema, _PURPOSE)
            key = {}
            for name, field, default in parts:
                field_value = value.get(name)
                if field_value is None:
                    field_value = default
                    if field_value is None and not field.schema.optional:
                        raise null_refused(field)
                key[name] = field_value
            return key

        return struct_taker(
            [
                TakenField(field.name, (field.name,), default, required=not field.schema.optional)
                for field, default in ((field, defaults.get(field.name)) for field in fields)
            ],
            slow,
        )


def _take_schemaless(names: list[str]) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if not isinstance(value, dict):
            raise not_a_map(value, _PURPOSE)
        return {name: value.get(name) for name in names}

    return take


def _make_refusal(schema: Schema) -> Callable[[Any], Any]:
    def refuse(value: Any) -> Any:
        raise not_a_struct(value, schema, _PURPOSE)

    return refuse


def _refuse_unknown(schema: Schema, name: str) -> Callable[[Any], Any]:
    def refuse(value: Any) -> Any:
        if value is None:
            raise not_a_struct(value, schema, _PURPOSE)
        raise Skippable(f"Field does not exist: {name}")

    return refuse
