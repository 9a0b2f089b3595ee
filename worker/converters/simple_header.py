"""SimpleHeaderConverter: header values as readable text, and back by guessing the type from the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Skippable
from connectors.options import ConfigDef
from connectors.schema import OPTIONAL_STRING, Schema
from worker.converters.base import HeaderConverter
from worker.converters.values import parse_text, to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

SIMPLE_HEADER_OPTIONS: Final = ConfigDef()


class SimpleHeaderConverter(HeaderConverter):
    """``org.apache.kafka.connect.storage.SimpleHeaderConverter``."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.storage.SimpleHeaderConverter", "Simple")
    config_def: ClassVar[ConfigDef] = SIMPLE_HEADER_OPTIONS

    def __init__(self, config: Mapping[str, str], *, is_key: bool = False) -> None:
        del is_key
        SIMPLE_HEADER_OPTIONS.parse(config)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """The text of the header's value; None for null."""
        del topic
        if value is None:
            return None
        try:
            return to_text(schema, value).encode("utf-8", "replace")
        except (ValueError, OverflowError, RecursionError) as error:
            raise Skippable(f"Cannot convert the header {key}: {error}.") from None

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The value that the text spells."""
        del topic, key
        if data is None:
            return None, None
        try:
            header_text = data.decode()
        except UnicodeDecodeError:
            return OPTIONAL_STRING, data.decode(errors="replace")
        return parse_text(header_text)
