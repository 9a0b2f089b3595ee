"""HeaderToValue: headers become fields of the value.

Source: io.debezium.transforms.HeaderToValue of Debezium 3.5. Two differences. The new schema follows the headers that a record
has: Debezium keeps the first that it worked out for a value's schema, and then fails on records with other headers. And a
nested name is taken for the path that it is: Debezium also descends into fields whose name ends like a part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from connectors.errors import ConfigInvalid, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance
from connectors.schema import Field, Schema, Type
from worker.transforms.base import RecordFunction, Side, Transform, copy_record, remember, with_fields
from worker.transforms.debezium.events import (
    DEBEZIUM_VERSION,
    or_default,
    plain_items,
    require_struct,
    validate_enumerated,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import SourceRecord

_NESTED = (Type.STRUCT, Type.ARRAY, Type.MAP)


class _Level(NamedTuple):
    """The fields that are added to one struct.

    Attributes:
        new_fields: their names and their indexes among the headers.
        below: the additions to fields that are structs themselves.
    """

    new_fields: list[tuple[str, int]]
    below: dict[str, _Level]


class HeaderToValue(Transform):
    """Copies or moves headers into the value."""

    version: ClassVar[str] = DEBEZIUM_VERSION
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.HeaderToValue",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="headers",
                type=ConfigType.LIST,
                importance=Importance.HIGH,
                display_name="Header names list",
                validator=plain_items,
                doc="The headers that become fields.",
                example="event_timestamp,key_id",
            ),
            ConfigKey(
                name="fields",
                type=ConfigType.LIST,
                importance=Importance.HIGH,
                display_name="Field names list",
                validator=plain_items,
                doc="The fields, one for each header, in the same order. With dots between the parts "
                "a field is put into a struct that is there already.",
                example="timestamp,source.id",
            ),
            ConfigKey(
                name="operation",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                validator=validate_enumerated("move", "copy"),
                display_name="Operation: mover or copy",
                doc="move (the headers are removed) or copy (they stay).",
                example="copy",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        headers, fields = config["headers"], config["fields"]
        if len(headers) != len(fields):
            raise ConfigInvalid(
                f"'fields' config must have the same number of elements as 'headers' config: there are "
                f"{len(fields)} and {len(headers)}"
            )
        self._fields = dict(
            reversed(list(zip(headers, fields, strict=True)))
        )  # of a header named twice, the first counts
        self._moves = config["operation"].strip().lower() == "move"
        self._levels: dict[tuple[str, ...], _Level] = {}
        self._schemas: dict[tuple[Schema, tuple[tuple[str, Schema | None], ...]], Schema] = {}

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        fields = self._fields

        def apply(record: SourceRecord) -> SourceRecord:
            value = record.value
            if value is None:
                return record
            schema = record.value_schema
            value = require_struct(value, schema, "Header field insertion")
            matches = [header for header in record.headers if header.key in fields]
            if not matches or schema is None:
                return record
            names = tuple(fields[header.key] for header in matches)
            level = self._find_level(names)
            result = copy_record(record)
            result.value_schema = self._extend_schema(schema, names, [header.schema for header in matches], level)
            result.value = _fill_value(value, schema, level, [header.value for header in matches])
            if self._moves:
                result.headers = tuple(header for header in record.headers if header.key not in fields)
            return result

        return apply

    def _find_level(self, names: tuple[str, ...]) -> _Level:
        level_ = self._levels.get(names)
        if level_ is None:
            level_ = _Level([], {})
            for index, name in enumerate(names):
                level = level_
                *path, last = name.split(".")
                for part in path:
                    level = level.below.setdefault(part, _Level([], {}))
                level.new_fields.append((last, index))
            remember(self._levels, names, level_)
        return level_

    def _extend_schema(
        self, schema: Schema, names: tuple[str, ...], kinds: Sequence[Schema | None], level: _Level
    ) -> Schema:
        cache_key = schema, tuple(zip(names, kinds, strict=True))
        extended = self._schemas.get(cache_key)
        if extended is None:
            _check_paths(schema, names)
            extended = _extend_level(schema, level, kinds)
            remember(self._schemas, cache_key, extended)
        return extended


def _check_paths(schema: Schema, names: Sequence[str]) -> None:
    """Refuse names that lead through something that is no struct.

    Raises:
        Skippable: with the part that is wrong.
    """
    for name in names:
        current = schema
        for part in name.split(".")[:-1]:
            field = current.field(part)
            if field is None:
                raise Skippable(f"Field '{part}' does not exist in the schema. Cannot add nested field '{name}'.")
            if field.schema.type not in _NESTED:
                raise Skippable(f"Field '{part}' is a primitive type, not a struct. Cannot add nested field '{name}'.")
            if field.schema.type is not Type.STRUCT:
                raise Skippable(f"Field '{part}' is no struct. Cannot add nested field '{name}'.")
            current = field.schema


def _extend_level(schema: Schema, level: _Level, kinds: Sequence[Schema | None]) -> Schema:
    fields = [
        Field(field.name, _extend_level(field.schema, level.below[field.name], kinds))
        if field.name in level.below
        else field
        for field in schema.fields
    ]
    for name, index in level.new_fields:
        kind = kinds[index]
        if kind is None:
            raise Skippable(f"fieldSchema for field {name} cannot be null.")
        fields.append(Field(name, kind))
    return with_fields(schema, fields)


def _fill_value(value: Mapping[str, Any], schema: Schema, level: _Level, values: Sequence[Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for field in schema.fields:
        member = or_default(value.get(field.name), field.schema)
        below = level.below.get(field.name)
        result[field.name] = (
            member if below is None or member is None else _fill_value(member, field.schema, below, values)
        )
    for name, index in level.new_fields:
        result[name] = values[index]
    return result
