"""StringConverter: whatever ``toString`` gives, in one encoding."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, invalid
from connectors.schema import OPTIONAL_STRING, Schema
from worker.converters.base import TYPE_OPTION, Converter, Encode, EncoderCache, HeaderConverter
from worker.converters.javatext import java_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def _known_encoding(name: str, value: Any) -> str | None:
    try:
        codecs.lookup(value)
    except LookupError:
        return invalid(name, value, "there is no such encoding")
    return None


STRING_OPTIONS: Final = ConfigDef(
    [
        TYPE_OPTION,
        ConfigKey(
            name="converter.encoding",
            type=ConfigType.STRING,
            doc="The encoding of the text.",
            default="UTF-8",
            validator=_known_encoding,
            importance=Importance.HIGH,
            example="ISO-8859-1",
        ),
    ]
)
_SCHEMAS_KEPT: Final = 1000


class StringConverter(Converter, HeaderConverter):
    """``org.apache.kafka.connect.storage.StringConverter``.

    Characters that the encoding lacks become question marks, as in Java.
    """

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.storage.StringConverter",)
    config_def: ClassVar[ConfigDef] = STRING_OPTIONS

    def __init__(self, config: Mapping[str, str], *, is_key: bool = False) -> None:
        del is_key
        name: str = codecs.lookup(STRING_OPTIONS.parse(config)["converter.encoding"]).name
        # Java marks the byte order of UTF-16 and chooses big-endian; Python would choose the machine's.
        self._byte_order_mark, self._encoding = (codecs.BOM_UTF16_BE, "utf-16-be") if name == "utf-16" else (b"", name)
        self._reading = name
        self._encoders = EncoderCache(_SCHEMAS_KEPT)
        self._schemaless = self._compile_encoder(None)

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        """The function that writes values; the schema matters to structs and floats only."""
        del topic
        if schema is None:
            return self._schemaless
        return self._encoders.get("", schema) or self._encoders.put("", schema, self._compile_encoder(schema))

    def _compile_encoder(self, schema: Schema | None) -> Encode:
        encoding, byte_order_mark = self._encoding, self._byte_order_mark

        def encode_text(value: Any) -> bytes | None:
            string: str
            if value is None:
                return None
            if type(value) is str:
                string = value
            else:
                try:
                    string = java_text(value, schema)
                except (ValueError, OverflowError, RecursionError) as error:
                    raise Skippable(f"Cannot convert a {type(value).__name__} to a string: {error}.") from None
            try:
                return (
                    byte_order_mark + string.encode(encoding) if byte_order_mark and string else string.encode(encoding)
                )
            except UnicodeEncodeError:
                # Two halves of a surrogate pair are one character in Java; what is left alone becomes a question mark.
                joined = string.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
                return byte_order_mark + joined.encode(encoding, "replace")

        return encode_text

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The text, with the schema of optional strings."""
        del topic
        return OPTIONAL_STRING, None if data is None else data.decode(self._reading, "replace")

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """A header's value, written as any other value."""
        del key
        return self.encoder(topic, schema)(value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """A header's value, read as any other value."""
        del key
        return self.to_connect(topic, data)
