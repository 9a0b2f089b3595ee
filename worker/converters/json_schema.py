"""JsonSchemaConverter: Confluent's wire format (a zero byte, the schema's id in four bytes, JSON), with a JSON Schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import ConfigInvalid, Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, one_of
from worker.converters.json_form.compile import compile_encoder
from worker.converters.json_form.read import parse_json
from worker.converters.json_form.schema_read import json_schema_reader, load_schema
from worker.converters.json_form.schema_text import JsonSchemaSettings, json_schema_text
from worker.converters.json_form.text import JsonSettings
from worker.converters.registry.differences import Shapes, json_shapes
from worker.converters.registry.options import REGISTRY_OPTIONS, cache_option
from worker.converters.registry.registered import HEAD_SIZE, RegistryConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.options import Config
    from connectors.schema import Schema
    from worker.converters.base import Encode
    from worker.converters.registry.registered import Format, Read

_MAPPING: Final = "Mapping"
JSON_SCHEMA_OPTIONS: Final = ConfigDef(
    [
        *REGISTRY_OPTIONS,
        ConfigKey(
            name="decimal.format",
            type=ConfigType.STRING,
            default="BASE64",
            importance=Importance.LOW,
            group=_MAPPING,
            validator=one_of("BASE64", "NUMERIC", ignore_case=True),
            example="NUMERIC",
            doc="How decimals are written: BASE64 (the unscaled number's bytes) or NUMERIC (a JSON number; readers that "
            "parse numbers as doubles lose digits).",
        ),
        ConfigKey(
            name="object.additional.properties",
            type=ConfigType.BOOLEAN,
            default=True,
            group=_MAPPING,
            doc="Let the schemas of structs allow properties that they do not name. With false, a registry that checks "
            "compatibility refuses new fields.",
        ),
        ConfigKey(
            name="use.optional.for.nonrequired",
            type=ConfigType.BOOLEAN,
            default=False,
            group=_MAPPING,
            doc="Reading: fields that a schema does not list as required are optional.",
        ),
        ConfigKey(
            name="ignore.default.for.nullables",
            type=ConfigType.BOOLEAN,
            default=False,
            group=_MAPPING,
            doc="Write null where a field is null, instead of the field's default.",
        ),
        ConfigKey(
            name="flatten.singleton.unions",
            type=ConfigType.BOOLEAN,
            default=True,
            group=_MAPPING,
            doc="Reading: a choice of one schema is that schema.",
        ),
        ConfigKey(
            name="json.fail.invalid.schema",
            type=ConfigType.BOOLEAN,
            default=False,
            group=_MAPPING,
            doc="Check each message against the schema it is written with, and refuse what does not match. Useful with "
            "use.latest.version and use.schema.id; costs as much again as writing the message. Needs the package "
            "jsonschema-rs.",
        ),
        cache_option(_MAPPING),
    ]
)
_NO_EFFECT: Final = frozenset(
    {
        "generalized.sum.type.support",
        "ignore.modern.dialects",
        "preserve.additional.properties",
        "json.fail.unknown.properties",
        "json.oneof.for.nullables",
        "json.write.dates.iso8601",
        "json.schema.spec.version",
        "json.key.type",
        "json.value.type",
        "json.default.property.inclusion",
        "json.schema.scan.packages",
        "json.envelope.detection.enabled",
    }
)


class JsonSchemaConverter(RegistryConverter):
    """``io.confluent.connect.json.JsonSchemaConverter``."""

    aliases: ClassVar[tuple[str, ...]] = ("io.confluent.connect.json.JsonSchemaConverter",)
    config_def: ClassVar[ConfigDef] = JSON_SCHEMA_OPTIONS
    no_effect: ClassVar[frozenset[str]] = _NO_EFFECT

    @staticmethod
    def _form(parsed: Config) -> Format:
        values = JsonSettings(
            numeric_decimals=str(parsed["decimal.format"]).upper() == "NUMERIC",
            replace_null=not parsed["ignore.default.for.nullables"],
            entries=True,
        )
        settings = JsonSchemaSettings(
            values,
            additional=parsed["object.additional.properties"],
            optional=parsed["use.optional.for.nonrequired"],
            flatten=parsed["flatten.singleton.unions"],
        )
        return _JsonSchemaFormat(settings, validate=parsed["json.fail.invalid.schema"])


class _JsonSchemaFormat:
    """JSON Schema for ``RegisteredSchemas``."""

    type = "JSON"
    label = "JsonSchemaConverter"

    def __init__(self, settings: JsonSchemaSettings, *, validate: bool) -> None:
        self._settings = settings
        self._validate = validate
        if validate:
            _make_validator("{}")

    def text(self, schema: Schema | None) -> str:
        if schema is None:
            raise Skippable("JsonSchemaConverter needs a schema for each value.")
        return json_schema_text(schema, self._settings)

    def record_name(self, schema: Schema) -> str:
        if schema.name is None:
            raise Skippable(
                "The record's schema has no name, which the subject's name is made of. Use TopicNameStrategy, or "
                "name the schema in a transform (SetSchemaMetadata)."
            )
        return schema.name

    def encoder(self, schema: Schema | None, head: bytes) -> Encode:
        return self.encoder_of(schema, head, self.text(schema) if self._validate else "", {})

    def encoder_of(self, schema: Schema | None, head: bytes, schema_text: str, imports: Mapping[str, str]) -> Encode:
        plain = compile_encoder(schema, self._settings.values, envelope=False, head=head)
        if not self._validate:
            return plain
        if imports:
            raise Skippable(
                "json.fail.invalid.schema=true does not work with a schema that refers to others: "
                f"{', '.join(imports)}. Set it to false, or register the schema with its parts written out."
            )
        complaint = _make_validator(schema_text)
        schema_id = int.from_bytes(head[1:], "big")

        def encode_checked(value: Any) -> bytes | None:
            data = plain(value)
            if data is not None and (wrong := complaint(parse_json(data[HEAD_SIZE:]))):
                raise Skippable(
                    f"The value does not match the JSON Schema of id {schema_id}: {wrong}. Correct it at its "
                    "source, or register a schema that it matches."
                )
            return data

        return encode_checked

    def reader(self, schema_text: str, imports: Mapping[str, str]) -> Read:
        return json_schema_reader(schema_text, imports, self._settings)

    def shapes(self, schema_text: str) -> Shapes:
        return json_shapes(load_schema(schema_text))

    def same(self, left: str, right: str) -> bool:
        return bool(load_schema(left) == load_schema(right))


def _make_validator(schema_text: str) -> Callable[[Any], str]:
    """A function that says what is wrong with a parsed message; empty if nothing is. The value itself stays out of it."""
    try:
        import jsonschema_rs
    except ImportError:
        raise ConfigInvalid(
            "json.fail.invalid.schema=true needs the package jsonschema-rs: pip install jsonschema-rs"
        ) from None
    try:
        compiled = jsonschema_rs.Draft7Validator(json.loads(schema_text))
    except ValueError as error:
        raise Skippable(
            f"The JSON Schema can't be used to check values: {error}. Correct it in the registry."
        ) from None

    def complaint(value: Any) -> str:
        for error in compiled.iter_errors(value):
            path = ".".join(map(str, error.instance_path)) or "the value"
            return f"field {path} breaks {'/'.join(map(str, error.schema_path))}"
        return ""

    return complaint
