"""InsertField: fields from a record's topic, partition, timestamp, or a fixed value.

Source: org.apache.kafka.connect.transforms.InsertField of Kafka 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from connectors import schema as types
from connectors.errors import ConfigInvalid, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, invalid
from connectors.schema import Field, Schema
from connectors.wire import Fixed
from worker.transforms.base import (
    RecordFunction,
    Side,
    Transform,
    ValueFunction,
    by_schema,
    is_struct,
    not_a_map,
    struct_copier,
    struct_only,
    with_fields,
)
from worker.transforms.rewriting import SymbolicStruct, change_side, copy_members

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from worker.transforms.rewriting import SymbolicRecord

_PURPOSE = "field insertion"
_SUFFIXES = "End the name with ! to make the field required, or with ? to keep it optional (the default)."


@dataclass(frozen=True, slots=True)
class _InsertTarget:
    """The name of an inserted field and whether it may be null."""

    name: str
    optional: bool

    @classmethod
    def parse(cls, spec: str | None) -> _InsertTarget | None:
        if spec is None:
            return None
        if spec.endswith("?"):
            return cls(spec[:-1], optional=True)
        if spec.endswith("!"):
            return cls(spec[:-1], optional=False)
        return cls(spec, optional=True)

    def field(self, optional: Schema, required: Schema) -> Field:
        return Field(self.name, optional if self.optional else required)


class InsertField(Transform):
    """Adds fields to the key or the value."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.InsertField",)
    sided: ClassVar[bool] = True
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="topic.field",
                type=ConfigType.STRING,
                default=None,
                doc=f"Name of the field for the record's topic. {_SUFFIXES}",
                example="topic",
            ),
            ConfigKey(
                name="partition.field",
                type=ConfigType.STRING,
                default=None,
                doc=f"Name of the field for the Kafka partition, if the source chose one. {_SUFFIXES}",
                example="partition",
            ),
            ConfigKey(
                name="offset.field",
                type=ConfigType.STRING,
                default=None,
                doc=f"Name of the field for the Kafka offset. Only a sink knows it: each record of a source fails. {_SUFFIXES}",
            ),
            ConfigKey(
                name="timestamp.field",
                type=ConfigType.STRING,
                default=None,
                doc=f"Name of the field for the record's timestamp. {_SUFFIXES}",
                example="ts",
            ),
            ConfigKey(
                name="static.field",
                type=ConfigType.STRING,
                default=None,
                doc=f"Name of a field with a fixed value. {_SUFFIXES}",
                example="site",
            ),
            ConfigKey(
                name="static.value",
                type=ConfigType.STRING,
                default=None,
                doc="The value of static.field, which it is required with.",
                example="eu-1",
            ),
            ConfigKey(
                name="replace.null.with.default",
                type=ConfigType.BOOLEAN,
                default=True,
                doc="Whether a field that is null gets its schema's default, if it has one.",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._topic = _InsertTarget.parse(config["topic.field"])
        self._partition = _InsertTarget.parse(config["partition.field"])
        self._offset = _InsertTarget.parse(config["offset.field"])
        self._timestamp = _InsertTarget.parse(config["timestamp.field"])
        self._static = _InsertTarget.parse(config["static.field"])
        if not any((self._topic, self._partition, self._offset, self._timestamp, self._static)):
            raise ConfigInvalid(
                "No field insertion configured: set one of topic.field, partition.field, timestamp.field or "
                "static.field"
            )
        if self._static is not None and config["static.value"] is None:
            raise ConfigInvalid(
                invalid("static.value", None, f"No value specified for static field: {self._static.name}")
            )

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``: where the fields are of the topic or fixed."""
        if self._partition is not None or self._offset is not None or self._timestamp is not None:
            return None
        fixed: dict[str, Fixed] = {}
        if self._topic is not None:
            fixed[self._topic.name] = Fixed(record.topic)
        if self._static is not None:
            fixed[self._static.name] = Fixed(self.config["static.value"])

        def insert(symbol: SymbolicStruct) -> SymbolicStruct:
            members = copy_members(symbol, replace_null=self.config["replace.null.with.default"])
            struct = symbol.struct._replace(members=members | fixed)
            return SymbolicStruct(self._new_schema(symbol.schema), struct)

        return change_side(record, self.side, insert, skip_null=True)

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        return by_schema(self.side, self._for_schema, skip_null=True)

    def _new_schema(self, schema: Schema) -> Schema:
        added = []
        if self._topic is not None:
            added.append(self._topic.field(types.OPTIONAL_STRING, types.STRING))
        if self._partition is not None:
            added.append(self._partition.field(types.OPTIONAL_INT32, types.INT32))
        if self._offset is not None:
            added.append(self._offset.field(types.OPTIONAL_INT64, types.INT64))
        if self._timestamp is not None:
            added.append(self._timestamp.field(types.timestamp(optional=True), types.timestamp()))
        if self._static is not None:
            added.append(self._static.field(types.OPTIONAL_STRING, types.STRING))
        return with_fields(schema, [*schema.fields, *added])

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, ValueFunction]:
        if schema is None:
            return None, self._make_schemaless()
        if not is_struct(schema):
            return schema, struct_only(schema, _PURPOSE)
        new_schema = self._new_schema(schema)
        copy = struct_copier(schema, replace_null=self.config["replace.null.with.default"])
        insert = self._make_inserter()

        def convert(value: Any, record: SourceRecord) -> Any:
            result = copy(value)
            insert(result, record)
            return result

        return new_schema, convert

    def _make_schemaless(self) -> ValueFunction:
        insert = self._make_inserter()

        def convert(value: Any, record: SourceRecord) -> Any:
            if not isinstance(value, dict):
                raise not_a_map(value, _PURPOSE)
            result = dict(value)
            insert(result, record)
            return result

        return convert

    def _make_inserter(self) -> Any:
        """A function that puts this record's values into a fresh dict; a null partition or timestamp stays absent."""
        if self._offset is not None:

            def refuse(result: dict[str, Any], record: SourceRecord) -> None:
                del result, record
                raise Skippable(
                    f"Only SinkRecord supported for [{_PURPOSE}], found: "
                    "org.apache.kafka.connect.source.SourceRecord; offset.field can't be used with a source"
                )

            return refuse
        topic = self._topic.name if self._topic is not None else None
        partition = self._partition.name if self._partition is not None else None
        timestamp = self._timestamp.name if self._timestamp is not None else None
        fixed = self._static.name if self._static is not None else None
        static_value = self.config["static.value"]

        def insert(result: dict[str, Any], record: SourceRecord) -> None:
            if topic is not None:
                result[topic] = record.topic
            if partition is not None:
                number = record.partition
                if isinstance(number, int):
                    result[partition] = number
            if timestamp is not None:
                number = record.timestamp
                if number is not None:
                    result[timestamp] = number
            if fixed is not None:
                result[fixed] = static_value

        return insert
