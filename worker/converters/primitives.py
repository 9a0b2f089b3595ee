"""Kafka's converters of single numbers and booleans: the same big-endian bytes as its serializers write.

Source: ``org.apache.kafka.connect.converters`` and ``org.apache.kafka.common.serialization`` of Kafka 4.1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Skippable
from connectors.options import ConfigDef
from connectors.schema import (
    DATE,
    OPTIONAL_BOOLEAN,
    OPTIONAL_FLOAT32,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT16,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    TIME,
    TIMESTAMP,
    Schema,
    Type,
)
from worker.converters.base import TYPE_OPTION, Converter, Encode, HeaderConverter, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

PRIMITIVE_OPTIONS: Final = ConfigDef([TYPE_OPTION])
#: Values of these are ``java.util.Date`` in Java, which its number converters refuse.
_TEMPORAL: Final = frozenset({DATE, TIME, TIMESTAMP})


class _Primitive(Converter, HeaderConverter):
    """One fixed-size type; the subclasses only name it."""

    config_def: ClassVar[ConfigDef] = PRIMITIVE_OPTIONS
    _schema: ClassVar[Schema]
    _format: ClassVar[struct.Struct]
    _java: ClassVar[str]

    def __init__(self, config: Mapping[str, str], *, is_key: bool = False) -> None:
        del is_key
        PRIMITIVE_OPTIONS.parse(config)

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        """The function that packs values.

        Raises:
            Skippable: the schema is of another type: as in Java a number is not widened or narrowed.
        """
        del topic
        kind, name = self._schema.type, type(self).__name__
        if schema is not None and (schema.type is not kind or schema.name in _TEMPORAL):
            of = schema.name or schema.type.name
            if kind is Type.BOOLEAN:
                raise Skippable(f"Invalid schema type for {name}: {of}. Use another converter.")
            raise Skippable(
                f"Failed to serialize to {self._java} (was {of}). Use the converter of that type, or cast the "
                "value in a transform."
            )
        pack = self._format.pack
        expected_type: type = {Type.BOOLEAN: bool, Type.FLOAT32: float, Type.FLOAT64: float}.get(kind, int)
        java = self._java
        boolean = kind is Type.BOOLEAN

        def encode_number(value: Any) -> bytes | None:
            if value is None:
                return None
            if type(value) is not expected_type:
                if boolean:
                    raise Skippable(
                        f"{name} is not compatible with objects of type {type_name(value)}. Use another converter."
                    )
                raise Skippable(
                    f"Failed to serialize to {java} (was {type_name(value)}). Use the converter of that type, or "
                    "cast the value in a transform."
                )
            try:
                return pack(value)
            except (struct.error, OverflowError):
                raise Skippable(
                    f"Failed to serialize to {java}: the number does not fit into it. Use the converter of a wider "
                    "type."
                ) from None

        return encode_number

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The value, with the optional schema of its type."""
        del topic
        if data is None:
            return self._schema, None
        if len(data) != self._format.size:
            raise Skippable(
                f"Failed to deserialize {self._java}: size of data received by "
                f"{self._java.capitalize()}Deserializer is not {self._format.size} but {len(data)}. "
                "Set the converter to the one that wrote the topic."
            )
        if self._schema.type is Type.BOOLEAN and data[0] > 1:
            raise Skippable(
                f"Failed to deserialize boolean: unexpected byte received by BooleanDeserializer: {data[0]}."
            )
        return self._schema, self._format.unpack(data)[0]

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """A header's value, written as any other value."""
        del key
        return self.encoder(topic, schema)(value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """A header's value, read as any other value."""
        del key
        return self.to_connect(topic, data)


class ShortConverter(_Primitive):
    """``org.apache.kafka.connect.converters.ShortConverter``: two bytes."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.converters.ShortConverter",)

    _schema, _format, _java = OPTIONAL_INT16, struct.Struct(">h"), "short"


class IntegerConverter(_Primitive):
    """``org.apache.kafka.connect.converters.IntegerConverter``: four bytes."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.converters.IntegerConverter",)

    _schema, _format, _java = OPTIONAL_INT32, struct.Struct(">i"), "integer"


class LongConverter(_Primitive):
    """``org.apache.kafka.connect.converters.LongConverter``: eight bytes."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.converters.LongConverter",)

    _schema, _format, _java = OPTIONAL_INT64, struct.Struct(">q"), "long"


class FloatConverter(_Primitive):
    """``org.apache.kafka.connect.converters.FloatConverter``: IEEE 754 in four bytes."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.converters.FloatConverter",)

    _schema, _format, _java = OPTIONAL_FLOAT32, struct.Struct(">f"), "float"


class DoubleConverter(_Primitive):
    """``org.apache.kafka.connect.converters.DoubleConverter``: IEEE 754 in eight bytes."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.converters.DoubleConverter",)

    _schema, _format, _java = OPTIONAL_FLOAT64, struct.Struct(">d"), "double"


class BooleanConverter(_Primitive):
    """``org.apache.kafka.connect.converters.BooleanConverter``: one byte, 0 or 1."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.converters.BooleanConverter",)

    _schema, _format, _java = OPTIONAL_BOOLEAN, struct.Struct(">?"), "boolean"
