"""AvroConverter: Confluent's wire format (a zero byte, the schema's id in four bytes, Avro's binary form)."""
from __future__ import annotations

import io
import json
import ssl
import struct
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar, Final

import fastavro

from connectors.errors import ConfigInvalid, Fatal, Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, Password, at_least, one_of
from connectors.schema import Schema, Type
from worker.converters.avro_compile import compile_avro
from worker.converters.avro_read import AvroReader, avro_reader, without_logical_types
from worker.converters.avro_schema import AvroSettings, avro_text, full_name
from worker.converters.avro_shape import missing_fields, shaper
from worker.converters.base import TYPE_OPTION, Converter, Encode, SchemaCache
from worker.converters.registry import RegistrySettings, SchemaRegistryClient, split_user_info

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config

_HEAD: Final = struct.Struct(">bI")
_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_REGISTRY: Final = "Schema registry"
_MAPPING: Final = "Mapping"


def _strategy(name: str, what: str) -> ConfigKey:
    return ConfigKey(
        name=name, type=ConfigType.CLASS, default=_PACKAGE + _STRATEGIES[0], importance=Importance.MEDIUM, group=_REGISTRY,
        validator=one_of(*_STRATEGIES, *(_PACKAGE + each for each in _STRATEGIES)),
        doc=f"Under which subject the schemas of {what} are registered: TopicNameStrategy (TOPIC-key or TOPIC-value), "
            "RecordNameStrategy (the record's full name) or TopicRecordNameStrategy (both).")


AVRO_OPTIONS: Final = ConfigDef([
    TYPE_OPTION,
    ConfigKey(name="schema.registry.url", type=ConfigType.LIST, importance=Importance.HIGH, group=_REGISTRY,
              doc="Addresses of the schema registry; the next is tried when one does not answer.",
              example="http://registry-1:8081,http://registry-2:8081"),
    ConfigKey(name="auto.register.schemas", type=ConfigType.BOOLEAN, default=True, group=_REGISTRY,
              doc="Register a schema that the subject does not have. With false it must be there already."),
    ConfigKey(name="use.latest.version", type=ConfigType.BOOLEAN, default=False, group=_REGISTRY,
              doc="With auto.register.schemas=false: write with the subject's newest schema instead of the record's own."),
    ConfigKey(name="latest.compatibility.strict", type=ConfigType.BOOLEAN, default=True, group=_REGISTRY,
              doc="With use.latest.version=true: refuse records with fields that the newest schema lacks, instead of dropping "
                  "these fields."),
    ConfigKey(name="normalize.schemas", type=ConfigType.BOOLEAN, default=False, group=_REGISTRY,
              doc="Ask the registry to compare schemas in their normal form."),
    _strategy("key.subject.name.strategy", "keys"),
    _strategy("value.subject.name.strategy", "values"),
    ConfigKey(name="basic.auth.credentials.source", type=ConfigType.STRING, default="URL", group=_REGISTRY,
              validator=one_of("URL", "USER_INFO"),
              doc="Where the name and password for the registry are: in schema.registry.url, or in basic.auth.user.info."),
    ConfigKey(name="basic.auth.user.info", type=ConfigType.PASSWORD, default=None, group=_REGISTRY, example="name:password",
              aliases=("schema.registry.basic.auth.user.info",),
              doc="Name and password for the registry, with basic.auth.credentials.source=USER_INFO."),
    ConfigKey(name="bearer.auth.credentials.source", type=ConfigType.STRING, default="STATIC_TOKEN", group=_REGISTRY,
              validator=one_of("STATIC_TOKEN"), doc="Where the bearer token for the registry is."),
    ConfigKey(name="bearer.auth.token", type=ConfigType.PASSWORD, default=None, group=_REGISTRY,
              doc="A bearer token for the registry."),
    ConfigKey(name="schema.registry.ssl.truststore.location", type=ConfigType.STRING, default=None, group=_REGISTRY,
              doc="A PEM file with the certificates to trust for https addresses; the system's if not set."),
    ConfigKey(name="schema.registry.ssl.keystore.location", type=ConfigType.STRING, default=None, group=_REGISTRY,
              doc="A PEM file with this client's certificate and private key."),
    ConfigKey(name="schema.registry.ssl.key.password", type=ConfigType.PASSWORD, default=None, group=_REGISTRY,
              doc="The password of the private key."),
    ConfigKey(name="schema.registry.http.read.timeout.ms", type=ConfigType.INT, default=30_000, validator=at_least(1),
              unit="ms", group=_REGISTRY, importance=Importance.LOW, doc="How long one request to the registry may take."),
    ConfigKey(name="max.retries", type=ConfigType.INT, default=3, validator=at_least(0), group=_REGISTRY,
              importance=Importance.LOW,
              doc="How often all addresses are tried again before the task's own retries take over."),
    ConfigKey(name="retries.wait.ms", type=ConfigType.INT, default=100, validator=at_least(0), unit="ms", group=_REGISTRY,
              importance=Importance.LOW, doc="The pause before the first retry; doubled for each later one."),
    ConfigKey(name="retries.max.wait.ms", type=ConfigType.INT, default=5_000, validator=at_least(0), unit="ms", group=_REGISTRY,
              importance=Importance.LOW, doc="The longest pause between retries."),
    ConfigKey(name="enhanced.avro.schema.support", type=ConfigType.BOOLEAN, default=False, group=_MAPPING,
              doc="Keep Avro enums as enums, and the packages in the names of union branches."),
    ConfigKey(name="connect.meta.data", type=ConfigType.BOOLEAN, default=True, group=_MAPPING,
              doc="Put what Avro has no place for (names, versions, parameters of Connect schemas) into the Avro schema."),
    ConfigKey(name="scrub.invalid.names", type=ConfigType.BOOLEAN, default=False, group=_MAPPING,
              doc="Replace characters that Avro does not allow in names, instead of refusing the schema."),
    ConfigKey(name="schemas.cache.config", type=ConfigType.INT, default=1000, validator=at_least(1), unit="schemas",
              group=_MAPPING, importance=Importance.LOW, aliases=("schemas.cache.size",),
              doc="How many schemas the converter keeps compiled."),
])


class AvroConverter(Converter):
    """``io.confluent.connect.avro.AvroConverter``. ``prepare`` asks the registry; nothing else does I/O."""

    config_def: ClassVar[ConfigDef] = AVRO_OPTIONS

    def __init__(self, config: Mapping[str, str], *, is_key: bool) -> None:
        parsed = AVRO_OPTIONS.parse(config)
        self._is_key = is_key
        self._strategy = str(parsed[f"{'key' if is_key else 'value'}.subject.name.strategy"]).removeprefix(_PACKAGE)
        self._register: bool = parsed["auto.register.schemas"]
        self._use_latest: bool = parsed["use.latest.version"] and not self._register
        self._strict: bool = parsed["latest.compatibility.strict"]
        self._normalize: bool = parsed["normalize.schemas"]
        self._settings = AvroSettings(metadata=parsed["connect.meta.data"], enhanced=parsed["enhanced.avro.schema.support"],
                                      scrub=parsed["scrub.invalid.names"])
        self._size: int = parsed["schemas.cache.config"]
        self._encoders = SchemaCache(self._size)
        self._readers: OrderedDict[int, AvroReader] = OrderedDict()
        self._registry = SchemaRegistryClient(registry_settings(parsed))

    async def prepare(self, topic: str, schema: Schema | None) -> None:
        """Find or register the schema for the topic; asks the registry once per subject and schema."""
        if self._encoders.get(topic, schema) is not None:
            return
        text = avro_text(schema, self._settings)
        subject = self._subject(topic, schema)
        if self._use_latest:
            schema_id, latest = await self._registry.latest(subject)
            if json.loads(latest) != json.loads(text):
                self._encoders.put(topic, schema, self._latest_encoder(schema, schema_id, text, latest))
                return
        elif self._register:
            schema_id = await self._registry.register(subject, text, normalize=self._normalize)
        else:
            schema_id = await self._registry.find(subject, text, normalize=self._normalize)
        self._encoders.put(topic, schema, compile_avro(schema, self._settings, _HEAD.pack(0, schema_id)))

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        """The encoder that ``prepare`` made for this pair.

        Raises:
            Fatal: ``prepare`` was not awaited for it.
        """
        made = self._encoders.get(topic, schema)
        if made is None:
            raise Fatal(f"AvroConverter was not prepared for topic {topic}: await prepare(topic, schema) before encoder.")
        return made

    async def prepare_data(self, topic: str, data: bytes | None) -> None:
        """Read the schema that ``data`` names, if it is not known."""
        del topic
        if data is None:
            return
        schema_id = _schema_id(data)
        if schema_id in self._readers:
            return
        reader = avro_reader(await self._registry.text(schema_id), self._settings)
        if len(self._readers) >= self._size:
            self._readers.popitem(last=False)
        self._readers[schema_id] = reader

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The schema and value in ``data``; ``prepare_data`` must have been awaited for it.

        Raises:
            Fatal: it was not.
        """
        if data is None:
            return None, None
        reader = self._readers.get(_schema_id(data))
        if reader is None:
            raise Fatal(f"AvroConverter was not prepared for a message of topic {topic}: await prepare_data before to_connect.")
        return reader.schema, reader.decode(data[_HEAD.size:])

    async def close(self) -> None:
        """Close the connections to the registry."""
        await self._registry.close()

    def _subject(self, topic: str, schema: Schema | None) -> str:
        if self._strategy == "TopicNameStrategy":
            return f"{topic}-{'key' if self._is_key else 'value'}"
        if schema is None or schema.type is not Type.STRUCT:
            raise Skippable(f"{self._strategy} needs records: the {'key' if self._is_key else 'value'} of topic {topic} is "
                            f"{'schemaless' if schema is None else schema.type}. Use TopicNameStrategy.")
        name = full_name(schema, self._settings)
        return name if self._strategy == "RecordNameStrategy" else f"{topic}-{name}"

    def _latest_encoder(self, schema: Schema | None, schema_id: int, text: str, latest: str) -> Encode:
        lacking = missing_fields(json.loads(text), json.loads(latest))
        if lacking and self._strict:
            raise Skippable(f"The newest schema (id {schema_id}) lacks fields of the records: {', '.join(lacking)}. Register a "
                            "schema with them, or set latest.compatibility.strict=false to drop them.")
        try:
            parsed = fastavro.parse_schema(without_logical_types(json.loads(latest)))
        except (ValueError, KeyError, TypeError) as error:
            raise Skippable(f"The newest schema (id {schema_id}) can't be read as Avro: {error}") from None
        head = _HEAD.pack(0, schema_id)
        shape = shaper(schema, self._settings)

        def encode_as_latest(value: Any) -> bytes | None:
            if value is None:
                return None
            out = io.BytesIO(head)
            out.seek(len(head))
            try:
                fastavro.schemaless_writer(out, parsed, shape(value))
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                raise Skippable(f"Cannot write the record with the newest schema (id {schema_id}): {error!r}") from None
            return out.getvalue()

        return encode_as_latest


def _schema_id(data: bytes) -> int:
    if len(data) < _HEAD.size or data[0] != 0:
        raise Skippable("Unknown magic byte: the message was not written in the schema registry's wire format. Set the "
                        "converter to the one that wrote the topic.")
    return int.from_bytes(data[1:5], "big")


def registry_settings(parsed: Config) -> RegistrySettings:
    """How the converter's options say that the registry is reached; raises ``ConfigInvalid``."""
    pairs = [split_user_info(url) for url in parsed["schema.registry.url"]]
    if not pairs:
        raise ConfigInvalid('Missing required configuration "schema.registry.url" which has no default value.')
    user = next((user for _, user in pairs if user is not None), None)
    if parsed["basic.auth.credentials.source"] == "USER_INFO":
        name, colon, password = _secret(parsed["basic.auth.user.info"]).partition(":")
        if not colon:
            raise ConfigInvalid("Invalid value [hidden] for configuration basic.auth.user.info: write it as name:password")
        user = (name, password)
    token = _secret(parsed["bearer.auth.token"])
    return RegistrySettings(
        urls=tuple(url for url, _ in pairs), user=None if token else user, token=token or None, tls=_tls(parsed),
        timeout_s=parsed["schema.registry.http.read.timeout.ms"] / 1000, attempts=parsed["max.retries"] + 1,
        backoff_s=parsed["retries.wait.ms"] / 1000, backoff_max_s=parsed["retries.max.wait.ms"] / 1000)


def _secret(value: Password | None) -> str:
    return value.value if value is not None else ""


def _tls(parsed: Config) -> ssl.SSLContext | None:
    trusted, own = parsed["schema.registry.ssl.truststore.location"], parsed["schema.registry.ssl.keystore.location"]
    if trusted is None and own is None:
        return None
    try:
        context = ssl.create_default_context(cafile=trusted)
        if own is not None:
            context.load_cert_chain(own, password=_secret(parsed["schema.registry.ssl.key.password"]) or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid("The certificates in schema.registry.ssl.truststore.location or .keystore.location can't be read "
                            f"as PEM: {error}. Convert a Java keystore with keytool and openssl.") from None
    return context
