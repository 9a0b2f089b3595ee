"""EnforceRecordSize: long strings and bytes of a row are cut until the event is about as small as it has to be.

Source: io.debezium.transforms.EnforceRecordSize of Debezium 3.6, which is the first that has it. Three differences: a string is
never cut inside a character, a Decimal is left alone (Debezium fails on it), and so is a key that is not a struct.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, Validator, at_least, invalid
from connectors.schema import DECIMAL, Schema, Type
from worker.transforms.base import RecordFunction, SchemaCache, Side, Transform, copy_record
from worker.transforms.debezium.events import or_default
from worker.transforms.java.hashes import unscaled_and_scale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

    from connectors.api import SourceRecord

    _Sizer = Callable[[Any], int]

# What an object of Java takes, as Debezium estimates it.
_ENTRY: Final = 100
_STRUCT: Final = 56
_STRING: Final = 56
_BYTES: Final = 24
_ARRAY: Final = 64
_MAP: Final = 88
_PRIMITIVE: Final = 24
_REFERENCE: Final = 8
_TIMESTAMP: Final = 8


class _Long(NamedTuple):
    """A field that can be cut: its name, its size in UTF-16 units or bytes, and the value."""

    name: str
    size: int
    value: str | bytes


def _validate_above(low: float) -> Validator:
    def check(name: str, value: Any) -> str | None:
        return None if value is not None and value > low else invalid(name, value, "Must be a positive number")

    return check


class EnforceRecordSize(Transform):
    """Cuts what is too long."""

    version: ClassVar[str] = "3.6.1.Final"
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.EnforceRecordSize",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="max.bytes",
                type=ConfigType.INT,
                importance=Importance.HIGH,
                display_name="Maximum record size",
                validator=at_least(1),
                unit="bytes",
                example="1000000",
                doc="The size that records should not exceed. It is compared with an estimate of the record's size in a JVM "
                "(24 bytes for a number, 56 and the UTF-8 for a string ...), not with the bytes a converter writes.",
            ),
            ConfigKey(
                name="compression.ratio",
                type=ConfigType.DOUBLE,
                default=1.0,
                importance=Importance.MEDIUM,
                display_name="Compression ratio",
                validator=_validate_above(0),
                doc="What the estimate is multiplied by: 0.5 if records take half of it where they go.",
            ),
            ConfigKey(
                name="min.field.size",
                type=ConfigType.INT,
                default=25_000,
                importance=Importance.MEDIUM,
                display_name="Minimum field size",
                validator=at_least(0),
                unit="bytes",
                doc="Fields that are not longer than this are never cut.",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._most: int = config["max.bytes"]
        self._ratio: float = config["compression.ratio"]
        self._least: int = config["min.field.size"]

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        sizers: SchemaCache[_Sizer | None] = SchemaCache(_make_sizer)
        find, add = sizers.by_id.get, sizers.add
        ratio, limit = self._ratio, self._most

        def apply(record: SourceRecord) -> SourceRecord:
            schema = record.value_schema
            if record.value is None or schema is None:
                return record
            of_value = (find(id(schema)) or add(schema))[1]
            if of_value is None:
                return record
            key_schema = record.key_schema
            of_key = (find(id(key_schema)) or add(key_schema))[1]
            size = (
                _TIMESTAMP
                + _encoded_size(record.topic)
                + of_value(record.value)
                + (0 if of_key is None else of_key(record.key))
            )
            size += _ENTRY * (len(record.source_partition) + len(record.source_offset) + len(record.headers))
            excess = math.ceil(size * ratio) - limit
            return self._cut_fields(record, schema, excess) if excess > 0 else record

        return apply

    def _cut_fields(self, record: SourceRecord, schema: Schema, excess: int) -> SourceRecord:
        images = []
        for name in ("before", "after"):
            field = schema.field(name)
            row = None if field is None else or_default(record.value.get(name), field.schema)
            if field is not None and isinstance(row, dict) and field.schema.type is Type.STRUCT:
                images.append((name, row, self._long_fields(row, field.schema)))
        total = sum(long_field.size for _, _, fields in images for long_field in fields)
        if not total:
            return record
        value = dict(record.value)
        for name, row, fields in images:
            size = sum(long_field.size for long_field in fields)
            if size:
                value[name] = row | _shorten_fields(fields, size, math.ceil(size / total * excess))
        result = copy_record(record)
        result.value = value
        return result

    def _long_fields(self, row: dict[str, Any], schema: Schema) -> list[_Long]:
        long_fields = []
        for field in schema.fields:
            value = or_default(row.get(field.name), field.schema)
            if value is None or field.schema.name == DECIMAL or field.schema.type not in (Type.STRING, Type.BYTES):
                continue
            size = _count_units(value) if isinstance(value, str) else len(value)
            if size > self._least:
                long_fields.append(_Long(field.name, size, value))
        return long_fields


def _shorten_fields(fields: Sequence[_Long], total: int, excess: int) -> dict[str, str | bytes]:
    """The fields after each has lost its share of the excess."""
    result: dict[str, str | bytes] = {}
    for name, size, value in fields:
        left = max(0, size - math.ceil(size / total * excess))
        result[name] = _take_prefix(value, left) if isinstance(value, str) else value[:left]
    return result


def _count_units(string: str) -> int:
    """How many UTF-16 units, which is what Java counts."""
    return len(string) if string.isascii() else len(string.encode("utf-16-le", "surrogatepass")) // 2


def _take_prefix(string: str, units: int) -> str:
    """Return the first UTF-16 units of a string; one less where the last would be half a character."""
    if string.isascii():
        return string[:units]
    return string.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "ignore")


def _make_sizer(schema: Schema | None) -> _Sizer | None:
    """Return a function that estimates the size of structs of a schema; None for other schemas, which don't count."""
    return _size_of(schema) if schema is not None and schema.type is Type.STRUCT else None


def _size_of(schema: Schema) -> _Sizer:
    match schema.type:
        case Type.STRING:
            return lambda value: 0 if value is None else _STRING + _encoded_size(value)
        case Type.BYTES:
            size: _Sizer = _decimal_size if schema.name == DECIMAL else len
            return lambda value: 0 if value is None else _BYTES + size(value)
        case Type.STRUCT:
            return _struct_size(schema)
        case Type.ARRAY if schema.value_schema is not None:
            of = _size_of(schema.value_schema)
            return lambda value: 0 if value is None else _ARRAY + _REFERENCE * len(value) + sum(map(of, value))
        case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
            keys, values = _size_of(schema.key_schema), _size_of(schema.value_schema)
            return lambda value: (
                0
                if value is None
                else (_MAP + 2 * _REFERENCE * len(value) + sum(map(keys, value)) + sum(map(values, value.values())))
            )
    return _primitive_size


def _primitive_size(_value: Any) -> int:
    return _PRIMITIVE


def _struct_size(schema: Schema) -> _Sizer:
    string_names = [field.name for field in schema.fields if field.schema.type is Type.STRING]
    sizes = [(field.name, _size_of(field.schema)) for field in schema.fields if field.schema.type is not Type.STRING]
    others = [(name, size) for name, size in sizes if size is not _primitive_size]
    fixed = _STRUCT + _REFERENCE * len(schema.fields) + _PRIMITIVE * (len(sizes) - len(others))

    def size_of_struct(value: Any) -> int:
        if value is None:
            return 0
        total = fixed
        get = value.get
        for name in string_names:
            string = get(name)
            if string is not None:
                total += _STRING + (len(string) if string.isascii() else _encoded_size(string))
        for name, size in others:
            total += size(get(name))
        return total

    return size_of_struct


def _encoded_size(string: str) -> int:
    return len(string) if string.isascii() else len(string.encode("utf-8", "replace"))


def _decimal_size(number: Decimal) -> int:
    """Bytes of the unscaled number in two's complement."""
    unscaled, _ = unscaled_and_scale(number)
    return (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
