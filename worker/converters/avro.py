"""AvroConverter: Confluent's wire format (a zero byte, the schema's id in four bytes, Avro's binary form)."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

import fastavro

from connectors.errors import Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.fit import make_check
from worker.converters.avro_form.read import avro_reader, without_logical_types
from worker.converters.avro_form.rows import AvroRowForm
from worker.converters.avro_form.schema import AvroSettings, avro_text, full_name
from worker.converters.avro_form.shape import make_shaper
from worker.converters.registry.client import AVRO
from worker.converters.registry.differences import Shapes, avro_shapes
from worker.converters.registry.options import REGISTRY_OPTIONS, cache_option, parse_options
from worker.converters.registry.registered import RegistryConverter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config
    from connectors.schema import Schema
    from connectors.wire import Encoding
    from worker.converters.avro_form.fields import Fields
    from worker.converters.base import Encode
    from worker.converters.registry.registered import Format, Read

_MAPPING: Final = "Mapping"
AVRO_OPTIONS: Final = ConfigDef(
    [
        *REGISTRY_OPTIONS,
        ConfigKey(
            name="enhanced.avro.schema.support",
            type=ConfigType.BOOLEAN,
            default=False,
            group=_MAPPING,
            doc="Keep Avro enums as enums, and the packages in the names of union branches.",
        ),
        ConfigKey(
            name="connect.meta.data",
            type=ConfigType.BOOLEAN,
            default=True,
            group=_MAPPING,
            doc="Put what Avro has no place for (names, versions, parameters of Connect schemas) into the Avro schema.",
        ),
        ConfigKey(
            name="scrub.invalid.names",
            type=ConfigType.BOOLEAN,
            default=False,
            group=_MAPPING,
            doc="Replace characters that Avro does not allow in names, instead of refusing the schema.",
        ),
        cache_option(_MAPPING),
    ]
)


class AvroConverter(RegistryConverter):
    """``io.confluent.connect.avro.AvroConverter``."""

    aliases: ClassVar[tuple[str, ...]] = (
        "io.confluent.connect.avro.AvroConverter",
        "io.apicurio.registry.utils.converter.AvroConverter",
    )
    config_def: ClassVar[ConfigDef] = AVRO_OPTIONS
    null_needs_schema: ClassVar[bool] = False
    describes_schemaless: ClassVar[bool] = True

    def __init__(self, config: Mapping[str, str], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._settings = _read_settings(parse_options(self.config_def, config, no_effect=self.no_effect))

    @staticmethod
    def _form(parsed: Config) -> Format:
        return _AvroFormat(_read_settings(parsed))

    def read_only(self, fields: Fields) -> None:
        """Leave all else out where a record has these fields; for schemas that are not read yet."""
        self._schemas.make_reader = _AvroFormat(self._settings, fields).reader

    def row_form(self, topic: str, encoding: Encoding, stem: str) -> AvroRowForm | None:
        """Rows in Avro's binary form; None where records are written with another schema, or by a subclass."""
        head = self._schemas.head(topic, encoding.schema)
        if head is None or type(self) is not AvroConverter:
            return None
        return AvroRowForm(encoding, self._settings, head, stem)


def _read_settings(parsed: Config) -> AvroSettings:
    return AvroSettings(
        metadata=parsed["connect.meta.data"],
        enhanced=parsed["enhanced.avro.schema.support"],
        scrub=parsed["scrub.invalid.names"],
    )


class _AvroFormat:
    """Avro for ``RegisteredSchemas``."""

    type = AVRO
    label = "AvroConverter"

    def __init__(self, settings: AvroSettings, fields: Fields | None = None) -> None:
        self._settings = settings
        self._fields = fields

    def text(self, schema: Schema | None) -> str:
        return avro_text(schema, self._settings)

    def record_name(self, schema: Schema) -> str:
        return full_name(schema, self._settings)

    def encoder(self, schema: Schema | None, head: bytes) -> Encode:
        return compile_avro(schema, self._settings, head)

    def encoder_of(self, schema: Schema | None, head: bytes, schema_text: str, imports: Mapping[str, str]) -> Encode:
        parsed, named = _parse_avro(schema_text, imports)
        shape, check = make_shaper(schema, self._settings), make_check(parsed, named)
        schema_id = int.from_bytes(head[1:], "big")

        def encode_with_other(value: Any) -> bytes | None:
            if value is None:
                return None
            out = io.BytesIO(head)
            out.seek(len(head))
            try:
                shaped = shape(value)
                if check is not None:
                    check(shaped)
                fastavro.schemaless_writer(out, parsed, shaped)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                raise Skippable(
                    f"Cannot write the record with the schema of id {schema_id}: {error!r}. Register a schema that "
                    "its values match."
                ) from None
            return out.getvalue()

        return encode_with_other

    def reader(self, schema_text: str, imports: Mapping[str, str]) -> Read:
        if imports:
            raise Skippable(
                f"The Avro schema refers to others ({', '.join(imports)}), which this converter does not read. "
                "Register it with its types written out."
            )
        read = avro_reader(schema_text, self._settings, self._fields)
        return lambda data: (read.schema, read.decode(data))

    def shapes(self, schema_text: str) -> Shapes:
        return avro_shapes(_load_json(schema_text))

    def same(self, left: str, right: str) -> bool:
        return bool(_load_json(left) == _load_json(right))


def _parse_avro(schema_text: str, imports: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    """The schema as fastavro parses it, and all types with a name, by it."""
    named: dict[str, Any] = {}
    try:
        for part in reversed(list(imports.values())):
            fastavro.parse_schema(without_logical_types(json.loads(part)), named_schemas=named)
        return fastavro.parse_schema(without_logical_types(json.loads(schema_text)), named_schemas=named), named
    except (
        ValueError,
        KeyError,
        TypeError,
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
    ) as error:
        raise Skippable(f"The registry's schema can't be read as Avro: {error}. Correct it in the registry.") from None


def _load_json(schema_text: str) -> Any:
    try:
        return json.loads(schema_text)
    except ValueError as error:
        raise Skippable(f"The registry's schema can't be read as Avro: {error}. Correct it in the registry.") from None
