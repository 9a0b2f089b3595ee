"""JsonConverter: JSON with or without the schema next to each value, byte for byte as Kafka 4.1's writes it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from connectors.errors import Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, one_of
from connectors.schema import DECIMAL, Schema
from worker.converters.base import TYPE_OPTION, Converter, Encode, EncoderCache, HeaderConverter
from worker.converters.json_form.compile import compile_encoder
from worker.converters.json_form.read import Read, make_reader, parse_json, read_schema, to_schemaless
from worker.converters.json_form.rows import JsonRowForm
from worker.converters.json_form.text import JsonSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.wire import Encoding

_DECIMAL_NAME: Final = DECIMAL.encode()

_GROUP_SCHEMAS: Final = "Schemas"
_GROUP_SERIALIZATION: Final = "Serialization"

JSON_OPTIONS: Final = ConfigDef(
    [
        TYPE_OPTION,
        ConfigKey(
            name="schemas.enable",
            type=ConfigType.BOOLEAN,
            doc='Write the schema into each key or value, as {"schema": ..., "payload": ...}. Messages become several '
            "times larger, and whatever reads them needs nothing else to know their types.",
            default=True,
            importance=Importance.HIGH,
            group=_GROUP_SCHEMAS,
        ),
        ConfigKey(
            name="schemas.cache.size",
            type=ConfigType.INT,
            doc="How many schemas the converter keeps compiled; at least one.",
            default=1000,
            unit="schemas",
            importance=Importance.HIGH,
            group=_GROUP_SCHEMAS,
        ),
        ConfigKey(
            name="decimal.format",
            type=ConfigType.STRING,
            doc="How decimals are written: BASE64 (the unscaled number's bytes, exact for every reader that knows the scale) "
            "or NUMERIC (a JSON number; readers that parse numbers as doubles lose digits).",
            default="BASE64",
            validator=one_of("NUMERIC", "BASE64", ignore_case=True),
            importance=Importance.LOW,
            group=_GROUP_SERIALIZATION,
            example="NUMERIC",
        ),
        ConfigKey(
            name="replace.null.with.default",
            type=ConfigType.BOOLEAN,
            doc="Write a field's default where its value is null. With false, null stays null.",
            default=True,
            importance=Importance.LOW,
            group=_GROUP_SERIALIZATION,
        ),
    ]
)


class _JsonEnvelope(msgspec.Struct, forbid_unknown_fields=True):
    """A message with its schema; both parts are left unparsed."""

    schema: msgspec.Raw
    payload: msgspec.Raw


_split_envelope: Final = msgspec.json.Decoder(_JsonEnvelope).decode


class JsonConverter(Converter, HeaderConverter):
    """``org.apache.kafka.connect.json.JsonConverter``."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.json.JsonConverter",)
    config_def: ClassVar[ConfigDef] = JSON_OPTIONS

    def __init__(self, config: Mapping[str, str], *, is_key: bool = False) -> None:
        del is_key  # keys and values are written alike
        parsed = JSON_OPTIONS.parse(config)
        self._envelope: bool = parsed["schemas.enable"]
        self._settings = JsonSettings(
            numeric_decimals=str(parsed["decimal.format"]).upper() == "NUMERIC",
            replace_null=parsed["replace.null.with.default"],
        )
        self._size: int = max(1, parsed["schemas.cache.size"])  # Kafka Connect takes any number
        self._encoders = EncoderCache(self._size)
        self._schemaless = self._compile_encoder(None)
        self._readers: OrderedDict[bytes, tuple[Schema | None, Read]] = OrderedDict()

    def _compile_encoder(self, schema: Schema | None) -> Encode:
        return compile_encoder(schema, self._settings, envelope=self._envelope)

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        """The function that writes values of ``schema``; the topic makes no difference."""
        del topic
        if schema is None:
            return self._schemaless
        return self._encoders.get("", schema) or self._encoders.put("", schema, self._compile_encoder(schema))

    def row_form(self, topic: str, encoding: Encoding, stem: str) -> JsonRowForm | None:
        """Rows as JSON; None where a struct's names need escapes, or a subclass writes something else."""
        del topic
        if type(self) is not JsonConverter:
            return None
        try:
            return JsonRowForm(encoding, self._settings, stem, envelope=self._envelope)
        except ValueError:
            return None

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The schema and value in ``data``; (None, None) for a tombstone."""
        del topic
        if data is None or (not data and not self._envelope):
            return None, None
        if not self._envelope:
            return None, to_schemaless(parse_json(data))
        try:
            envelope = _split_envelope(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            parse_json(data)  # says so if it is no JSON at all
            raise Skippable(
                'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain '
                "additional fields. If you are trying to deserialize plain JSON data, set schemas.enable=false in "
                "your converter configuration."
            ) from None
        description = bytes(envelope.schema)
        schema, read = self._find_reader(description)
        return schema, read(parse_json(bytes(envelope.payload), exact=_DECIMAL_NAME in description))

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """A header's value, written as any other value."""
        del key
        return self.encoder(topic, schema)(value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """A header's value, read as any other value."""
        del key
        return self.to_connect(topic, data)

    def _find_reader(self, description: bytes) -> tuple[Schema | None, Read]:
        """The schema in the text ``description``, and what reads its values; looked up by the text itself."""
        entry = self._readers.get(description)
        if entry is None:
            parsed = parse_json(description, exact=_DECIMAL_NAME in description)
            schema = read_schema(parsed, replace_null=self._settings.replace_null)
            entry = (schema, make_reader(schema, replace_null=self._settings.replace_null))
            if len(self._readers) >= self._size:
                self._readers.popitem(last=False)
            self._readers[description] = entry
        return entry
