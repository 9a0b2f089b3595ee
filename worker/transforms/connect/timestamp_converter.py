"""TimestampConverter: timestamps as text, numbers, or Connect's Date, Time and Timestamp, and between those.

Source: org.apache.kafka.connect.transforms.TimestampConverter of Kafka 4.1; see ``date_format`` for patterns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors import schema as types
from connectors.errors import ConfigInvalid, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, one_of
from connectors.schema import DATE, TIME, TIMESTAMP, Field, Schema, Type
from worker.transforms.base import (
    REPLACE_NULL_KEY,
    RecordFunction,
    Side,
    Transform,
    ValueFunction,
    by_schema,
    is_struct,
    not_a_map,
    refusing,
    struct_copier,
    struct_only,
    with_fields,
)
from worker.transforms.java.conversions import class_name
from worker.transforms.java.date_format import JavaDateFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord

    _Number = Callable[[Any], Any]

_PURPOSE: Final = "converting timestamp formats"
_DAY_MS: Final = 86_400_000
_LONG_MAX: Final = (1 << 63) - 1
#: Units per second.
_PRECISIONS: Final = {"seconds": 1, "milliseconds": 1000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_LOGICAL: Final = {TIMESTAMP: "Timestamp", DATE: "Date", TIME: "Time"}


def _clamp_long(value: int) -> int:
    """A number held within a long, as Java's unit conversions do."""
    return max(-_LONG_MAX - 1, min(_LONG_MAX, value))


def _divide_down(value: int, divisor: int) -> int:
    """Division that cuts towards zero."""
    return value // divisor if value >= 0 else -(-value // divisor)


def _keep_value(value: Any) -> Any:
    return value


class TimestampConverter(Transform):
    """Converts a timestamp, or a field with one."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.TimestampConverter",)
    sided: ClassVar[bool] = True
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="field",
                type=ConfigType.STRING,
                default="",
                importance=Importance.HIGH,
                example="created_at",
                doc="The field to convert; empty if the whole key or value is a timestamp.",
            ),
            ConfigKey(
                name="target.type",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                example="Timestamp",
                validator=one_of("string", "unix", "Date", "Time", "Timestamp"),
                doc="What it becomes: a string (string), a number since 1970 (unix), or one of Connect's logical types.",
            ),
            ConfigKey(
                name="format",
                type=ConfigType.STRING,
                default="",
                example="yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
                doc="The pattern of strings, as java.text.SimpleDateFormat takes it; in UTC and English. Needed where strings "
                "are written or read.",
            ),
            ConfigKey(
                name="unix.precision",
                type=ConfigType.STRING,
                default="milliseconds",
                importance=Importance.LOW,
                validator=one_of("nanoseconds", "microseconds", "milliseconds", "seconds"),
                example="seconds",
                doc="The unit of numbers, written or read. What is finer than a millisecond is lost on the way.",
            ),
            REPLACE_NULL_KEY,
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._field: str = config["field"]
        self._target: str = config["target.type"]
        self._per_second = _PRECISIONS[config["unix.precision"]]
        pattern: str = config["format"]
        if self._target == "string" and not pattern.strip():
            raise ConfigInvalid(
                "TimestampConverter requires format option to be specified when using string timestamps"
            )
        self._format = self._compile_format(pattern) if pattern.strip() else None

    def _compile_format(self, pattern: str) -> JavaDateFormat:
        try:
            date_format = JavaDateFormat(pattern)
        except ConfigInvalid as error:
            raise ConfigInvalid(
                "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps: "
                f"{pattern}: {error}"
            ) from error
        if date_format.unreadable and self._target != "string":
            raise ConfigInvalid(
                f"the pattern {pattern} can't be used to read strings: {date_format.unreadable} asks for rules of "
                "weeks, which depend on the machine's locale in Java"
            )
        return date_format

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        return by_schema(self.side, self._for_schema, skip_null=False)

    def _for_schema(self, schema: Schema | None) -> tuple[Schema | None, ValueFunction]:
        if schema is None:
            return None, self._make_schemaless() if self._field else self._whole(self._by_value())
        if not self._field:
            try:
                convert = self._make_converter(_timestamp_kind(schema))
            except Skippable as error:
                return schema, refusing(error)
            return self._extend_schema(optional=schema.optional), self._whole(convert)
        if not is_struct(schema):
            return schema, struct_only(schema, _PURPOSE)
        return self._for_struct(schema)

    def _extend_schema(self, *, optional: bool) -> Schema:
        if self._target == "string":
            return types.OPTIONAL_STRING if optional else types.STRING
        if self._target == "unix":
            return types.OPTIONAL_INT64 if optional else types.INT64
        make = {"Date": types.date, "Time": types.time, "Timestamp": types.timestamp}[self._target]
        return make(optional=optional)

    def _for_struct(self, schema: Schema) -> tuple[Schema, ValueFunction]:
        name = self._field
        fields = [
            Field(name, self._extend_schema(optional=field.schema.optional)) if field.name == name else field
            for field in schema.fields
        ]
        copy = struct_copier(schema, replace_null=self.config["replace.null.with.default"])
        convert: _Number | None = None
        old = schema.field(name)
        changed = replace(with_fields(schema, fields), optional=schema.optional)
        if old is not None:
            try:
                convert = self._make_converter(_timestamp_kind(old.schema))
            except Skippable as error:
                refuse = refusing(error)
                return changed, lambda value, record: None if value is None else refuse(value, record)

        def convert_struct(value: Any, record: SourceRecord) -> Any:
            del record
            if value is None:
                return None
            result = copy(value)
            if convert is not None:
                field_value = result.get(name)
                if field_value is not None:
                    result[name] = convert(field_value)
            return result

        if schema.default is not None:
            changed = replace(changed, default=convert_struct(schema.default, None))  # type: ignore[arg-type]  # it is not used
        return changed, convert_struct

    def _whole(self, convert: _Number) -> ValueFunction:
        def convert_whole(value: Any, record: SourceRecord) -> Any:
            del record
            return None if value is None else convert(value)

        return convert_whole

    def _make_schemaless(self) -> ValueFunction:
        name, convert = self._field, self._by_value()

        def convert_map(value: Any, record: SourceRecord) -> Any:
            del record
            if value is None:
                return None
            if not isinstance(value, dict):
                raise not_a_map(value, _PURPOSE)
            result = dict(value)
            field_value = value.get(name)
            result[name] = None if field_value is None else convert(field_value)
            return result

        return convert_map

    def _by_value(self) -> _Number:
        """Return the conversion of schemaless values: a number is unix time, a string is read by the pattern."""
        from_text, from_number = self._make_converter("string"), self._make_converter("unix")
        logical = self._target in _LOGICAL.values()

        def convert(value: Any) -> Any:
            kind = type(value)
            if kind is not str and kind is not int:
                raise Skippable(f"TimestampConverter does not support class {class_name(value)} objects as timestamps")
            result = from_text(value) if kind is str else from_number(value)
            if logical:
                raise Skippable("Java class class java.util.Date does not have corresponding schema type.")
            return result

        return convert

    def _make_converter(self, kind: str) -> _Number:
        """The function from one kind of timestamp to the target."""
        read, write = self._make_reader(kind), self._make_writer()
        if read is _keep_value:
            return write
        if write is _keep_value:
            return read
        return lambda value: write(read(value))

    def _make_reader(self, kind: str) -> _Number:
        """From a kind of timestamp to milliseconds since the epoch."""
        if kind == "string":
            if self._format is None:

                def refuse(value: Any) -> Any:
                    del value
                    raise Skippable(
                        "TimestampConverter requires format option to be specified when using string timestamps"
                    )

                return refuse
            return self._format.parse
        if kind == "Date":
            return lambda value: value * _DAY_MS
        if kind != "unix" or self._per_second == 1000:
            return _keep_value
        if self._per_second == 1:
            return lambda value: _clamp_long(value * 1000)
        divisor = self._per_second // 1000
        return lambda value: _divide_down(value, divisor)

    def _make_writer(self) -> _Number:
        """From milliseconds since the epoch to the target."""
        if self._target == "string":
            assert self._format is not None  # noqa: S101 - checked by the constructor
            return self._format.format
        if self._target == "Date":
            return lambda millis: millis // _DAY_MS
        if self._target == "Time":
            return lambda millis: millis % _DAY_MS
        if self._target == "Timestamp" or self._per_second == 1000:
            return _keep_value
        if self._per_second == 1:
            return lambda millis: _divide_down(millis, 1000)
        factor = self._per_second // 1000
        return lambda millis: _clamp_long(millis * factor)


def _timestamp_kind(schema: Schema) -> str:
    """Return the kind of timestamp that values of a schema are.

    Raises:
        Skippable: they are not timestamps.
    """
    logical = _LOGICAL.get(schema.name or "")
    if logical is not None:
        return logical
    if schema.type is Type.STRING:
        return "string"
    if schema.type is Type.INT64:
        return "unix"
    shown = f"{schema.name}:{schema.type.name}" if schema.name else schema.type.name
    raise Skippable(f"Schema Schema{{{shown}}} does not correspond to a known timestamp type format")
