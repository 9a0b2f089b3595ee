"""ByteArrayConverter: bytes as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Skippable
from connectors.options import ConfigDef
from connectors.schema import OPTIONAL_BYTES, Schema, Type
from worker.converters.base import TYPE_OPTION, Converter, Encode, HeaderConverter, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTE_ARRAY_OPTIONS: Final = ConfigDef([TYPE_OPTION])


def _as_bytes(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise Skippable(
        f"ByteArrayConverter is not compatible with objects of type {type_name(value)}. "
        "Use another converter, or make the connector yield bytes."
    )


class ByteArrayConverter(Converter, HeaderConverter):
    """``org.apache.kafka.connect.converters.ByteArrayConverter``."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.converters.ByteArrayConverter",)
    config_def: ClassVar[ConfigDef] = BYTE_ARRAY_OPTIONS

    def __init__(self, config: Mapping[str, str], *, is_key: bool = False) -> None:
        del is_key
        BYTE_ARRAY_OPTIONS.parse(config)

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        """The function that passes bytes on.

        Raises:
            Skippable: the schema is not one of bytes.
        """
        del topic
        if schema is not None and schema.type is not Type.BYTES:
            raise Skippable(
                f"Invalid schema type for ByteArrayConverter: {schema.type.name}. "
                "Use another converter, or make the connector yield bytes."
            )
        return _as_bytes

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The bytes, with the schema of optional bytes."""
        del topic
        return OPTIONAL_BYTES, data

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """A header's bytes."""
        del key
        return self.encoder(topic, schema)(value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """A header's bytes."""
        del key
        return self.to_connect(topic, data)
