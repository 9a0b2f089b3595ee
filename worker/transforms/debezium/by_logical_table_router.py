"""ByLogicalTableRouter: the events of several tables, such as shards, go to one topic.

Source: io.debezium.transforms.ByLogicalTableRouter of Debezium 3.5. Two differences: the names of new schemas follow the topic
of each record (Debezium keeps the name of the first topic that it met for a schema), and an envelope without ``before`` is
taken by its ``after`` (Debezium fails on it).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import ConfigInvalid, Skippable
from connectors.mysql.events.names import schema_name
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, Width, at_least, non_empty
from connectors.schema import STRING, Field, Schema
from connectors.wire import Fixed
from worker.transforms.base import (
    RecordFunction,
    SchemaCache,
    Side,
    Transform,
    copy_record,
    is_struct,
    not_a_struct,
    remember,
    struct_copier,
)
from worker.transforms.debezium.events import (
    DEBEZIUM_VERSION,
    adjustment_key,
    is_envelope,
    parse_adjustment,
    require_struct,
)
from worker.transforms.java.regex import compile_java, java_expression, java_replacement
from worker.transforms.rewriting import Struct, SymbolicMember, SymbolicStruct, copy_members

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord
    from worker.transforms.rewriting import Node, SymbolicRecord

_PURPOSE: Final = "Updating schema"
_IMAGES: Final = ("before", "after")


def _config_key(name: str, doc: str, display: str, **more: Any) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=more.pop("type", ConfigType.STRING),
        doc=doc,
        importance=Importance.LOW,
        width=more.pop("width", Width.LONG),
        display_name=display,
        **more,
    )


class ByLogicalTableRouter(Transform):
    """Routes by a regular expression, and keeps keys apart that come from different tables."""

    version: ClassVar[str] = DEBEZIUM_VERSION
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.ByLogicalTableRouter",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            _config_key(
                "topic.regex",
                "A regular expression in Java's syntax. Records whose topic it doesn't match as a whole stay as "
                "they are.",
                "Topic regex",
                validator=java_expression,
                example=r"(.*)_shard\d+\.(.*)",
            ),
            _config_key(
                "topic.replacement",
                "The new topic: $1 is the first group, ${name} a named one. Where it comes out empty the "
                "record stays as it is.",
                "Topic replacement",
                validator=non_empty,
                example="$1.$2",
            ),
            _config_key(
                "key.enforce.uniqueness",
                "Whether the key gets a field with the table that the record comes from.",
                "Add source topic name into key",
                type=ConfigType.BOOLEAN,
                default=True,
                width=Width.SHORT,
            ),
            _config_key(
                "key.field.regex",
                "A regular expression for the topic from which that field's value is made. Without it, and for "
                "topics that it doesn't match, the value is the old topic.",
                "Key field regex",
                default=None,
                validator=java_expression,
            ),
            _config_key(
                "key.field.name",
                "The name of the field that key.enforce.uniqueness adds.",
                "Key field name",
                default="__dbz__physicalTableIdentifier",
            ),
            _config_key(
                "key.field.replacement",
                "The value of the field that key.enforce.uniqueness adds; needed with key.field.regex.",
                "Key field replacement",
                default=None,
            ),
            adjustment_key("schema.name.adjustment.mode", "the names of the new schemas", "Schema Name Adjustment"),
            _config_key(
                "logical.table.cache.size",
                "How many schemas and how many topics are kept in memory.",
                "Logical table cache size",
                type=ConfigType.INT,
                default=16,
                validator=at_least(1),
                unit="entries",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._route = _make_replacer(config["topic.regex"], config["topic.replacement"])
        expression = (config["key.field.regex"] or "").strip()
        replacement = config["key.field.replacement"]
        if expression and not (replacement or "").strip():
            raise ConfigInvalid("key.field.replacement must be non-empty if key.field.regex is set.")
        self._identify = _make_replacer(config["key.field.regex"], replacement) if expression else None
        self._key_field: str | None = config["key.field.name"] if config["key.enforce.uniqueness"] else None
        self._mode = parse_adjustment(config["schema.name.adjustment.mode"])
        self._copiers: SchemaCache[Callable[[dict[str, Any]], dict[str, Any]]] = SchemaCache(_row_copier)
        self._limit: int = config["logical.table.cache.size"]
        self._targets: dict[str, tuple[str | None, str]] = {}
        self._keys: dict[tuple[Schema, str], Schema] = {}
        self._envelopes: dict[tuple[Schema, str], Schema] = {}

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``."""
        topic, table = self._target(record.topic)
        if not topic:
            return record
        key, value = record.key, record.value
        if isinstance(key, SymbolicMember):
            return None
        if key is not None:
            members: dict[str, Node] = copy_members(key, replace_null=True)
            if self._key_field is not None:
                members[self._key_field] = Fixed(table)
            key = SymbolicStruct(self._key_schema(key.schema, topic), key.struct._replace(members=members))
        if is_envelope(value.schema):
            members = copy_members(value, replace_null=True)
            for field in value.schema.fields:
                image = members[field.name]
                if field.name in _IMAGES and isinstance(image, Struct):
                    copied = copy_members(SymbolicStruct(field.schema, image), replace_null=True)
                    members[field.name] = image._replace(members=copied)
            value = SymbolicStruct(self._find_envelope(value.schema, topic), value.struct._replace(members=members))
        return replace(record, topic=topic, key=key, value=value)

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        targets = self._targets
        copiers: SchemaCache[Callable[[dict[str, Any]], dict[str, Any]]] = SchemaCache(_make_copier)

        def apply(record: SourceRecord) -> SourceRecord:
            topic, table = targets.get(record.topic) or self._target(record.topic)
            if not topic:
                return record
            result = copy_record(record)
            result.topic = topic
            if record.key is None:
                result.key_schema = None
            else:
                self._set_key(result, topic, table)
            schema = record.value_schema
            if record.value is not None and schema is not None and is_envelope(schema):
                result.value_schema = self._find_envelope(schema, topic)
                result.value = copiers.get(schema)(record.value)
            return result

        return apply

    def _target(self, topic: str) -> tuple[str | None, str]:
        """The new topic, None if it stays; and what the key's new field holds."""
        identifier = self._identify(topic) if self._identify is not None else None
        target = self._route(topic), topic if identifier is None else identifier
        remember(self._targets, topic, target, self._limit)
        return target

    def _set_key(self, result: SourceRecord, topic: str, table: str) -> None:
        schema = result.key_schema
        old = require_struct(result.key, schema, _PURPOSE)
        assert schema is not None  # noqa: S101 - require_struct refuses it
        key = self._copiers.get(schema)(old)
        if self._key_field is not None:
            key[self._key_field] = table
        result.key = key
        result.key_schema = self._key_schema(schema, topic)

    def _key_schema(self, schema: Schema, topic: str) -> Schema:
        cache_key = schema, topic
        key_schema = self._keys.get(cache_key)
        if key_schema is None:
            fields = schema.fields
            if self._key_field is not None:
                if schema.field(self._key_field) is not None:
                    raise Skippable(f"Cannot create field because of field name duplication {self._key_field}")
                fields = (*fields, Field(self._key_field, STRING))
            key_schema = replace(schema, name=schema_name(f"{topic}.Key", self._mode), default=None, fields=fields)
            remember(self._keys, cache_key, key_schema, self._limit)
        return key_schema

    def _find_envelope(self, schema: Schema, topic: str) -> Schema:
        cache_key = schema, topic
        envelope = self._envelopes.get(cache_key)
        if envelope is None:
            image = next((field.schema for field in map(schema.field, _IMAGES) if field is not None), None)
            if image is None:
                raise Skippable(f"the event {schema.name} has neither before nor after")
            row = replace(image, name=schema_name(f"{topic}.Value", self._mode), default=None)
            fields = tuple(Field(field.name, row) if field.name in _IMAGES else field for field in schema.fields)
            envelope = replace(schema, name=schema_name(f"{topic}.Envelope", self._mode), default=None, fields=fields)
            remember(self._envelopes, cache_key, envelope, self._limit)
        return envelope


def _make_replacer(expression: str, replacement: str) -> Callable[[str], str | None]:
    """Return a function from a topic to its new name; it returns None where the expression doesn't match the whole topic."""
    pattern = compile_java(expression)
    template = java_replacement(replacement, pattern)
    return lambda topic: pattern.sub(template, topic, count=1) if pattern.fullmatch(topic) else None


def _row_copier(schema: Schema | None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return dict if schema is None else struct_copier(schema, replace_null=True)


def _make_copier(schema: Schema | None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that copies an event, with defaults in the place of nulls, as Debezium's copying leaves it.

    Raises:
        Skippable: its rows are no structs.
    """
    assert schema is not None  # noqa: S101 - envelopes have schemas
    copy = _row_copier(schema)
    images = []
    for name in _IMAGES:
        field = schema.field(name)
        if field is not None:
            if not is_struct(field.schema):
                raise not_a_struct("", field.schema, _PURPOSE)
            images.append((name, _row_copier(field.schema)))

    def convert(event: dict[str, Any]) -> dict[str, Any]:
        result = copy(event)
        for name, copy_row in images:
            row = result.get(name)
            if row is not None:
                result[name] = copy_row(row)
        return result

    return convert
