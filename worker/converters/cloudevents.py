"""CloudEventsConverter: change events in Debezium's form as CloudEvents 1.0, in JSON or Avro.

Follows ``io.debezium.converters.CloudEventsConverter`` of Debezium 3.5: ids, types and attribute names are its own, and so is
that records which are no change events (heartbeats, transaction markers) become null. Source of the format: the CloudEvents
specification 1.0.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from connectors.errors import ConfigInvalid, Fatal, Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigProblem, ConfigType, Importance, one_of
from connectors.schema import BYTES, STRING, Field, Schema, Type
from worker.converters.avro import AVRO_OPTIONS, AvroConverter
from worker.converters.base import TYPE_OPTION, Converter, Encode, EncoderCache, HeaderEncode
from worker.converters.json import JSON_OPTIONS, JsonConverter
from worker.converters.registry.client import split_user_info
from worker.converters.registry.options import RegistryOptionInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.options import Config

    _Headers = Sequence[tuple[str, bytes | None]]

_JSON, _AVRO = "json", "avro"
_ENVELOPE: Final = ".Envelope"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OPTIONAL: Final = {kind: Schema(kind, optional=True) for kind in (Type.BOOLEAN, Type.INT32, Type.STRING)}
_REQUIRED: Final = {kind: Schema(kind) for kind in (Type.BOOLEAN, Type.INT32, Type.STRING)}
#: Types of source fields -> the type of the extension attribute: CloudEvents has no 64-bit numbers.
_ATTRIBUTES: Final = {
    Type.BOOLEAN: Type.BOOLEAN,
    Type.INT8: Type.INT32,
    Type.INT16: Type.INT32,
    Type.INT32: Type.INT32,
    Type.STRING: Type.STRING,
    Type.INT64: Type.STRING,
}
_TRANSACTION: Final = (("id", Type.STRING), ("total_order", Type.INT64), ("data_collection_order", Type.INT64))
#: Where an event's id comes from; what an unknown connector lacks is left out.
_ID_FIELDS: Final = {
    "mysql": ("name", "file", "pos"),
    "mariadb": ("name", "file", "pos"),
    "cassandra": ("name", "file", "pos", "keyspace", "table"),
    "scylla": ("name", "keyspace_name", "table_name", "ts_us"),
}
#: Of whose envelope only these fields are the event's data; of others all.
_DATA_FIELDS: Final = {"mysql": ("before", "after")}
_CONNECTOR_NAME: Final = re.compile(r"io\.debezium\.connector\.([a-z0-9]+)\.")
_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9]")
_FIELDS_WITH_SOURCE: Final = ("id", "type", "traceparent", "dataSchemaName")
_KEPT: Final = 1000
#: Attribute, field of source, whether it is a long, its default.
_Members = tuple[tuple[str, str, bool, Any], ...]


def _choice_key(name: str, doc: str, *allowed: str, default: str) -> ConfigKey:
    return ConfigKey(
        name=name, type=ConfigType.STRING, default=default, doc=doc, validator=one_of(*allowed, ignore_case=True)
    )


CLOUDEVENTS_OPTIONS: Final = ConfigDef(
    [
        TYPE_OPTION,
        _choice_key("serializer.type", "How the event is written.", _JSON, _AVRO, default=_JSON),
        _choice_key(
            "data.serializer.type",
            "How the event's data is written; avro for Avro events.",
            _JSON,
            _AVRO,
            default=_JSON,
        ),
        ConfigKey(
            name="extension.attributes.enable",
            type=ConfigType.BOOLEAN,
            default=True,
            doc="Give the event an attribute iodebezium... for the operation and for each field of source and transaction.",
        ),
        ConfigKey(
            name="opentelemetry.tracing.attributes.enable",
            type=ConfigType.BOOLEAN,
            default=False,
            doc="Give the event the attribute traceparent, from the header of that name.",
        ),
        ConfigKey(
            name="schema.cloudevents.name",
            type=ConfigType.STRING,
            default=None,
            importance=Importance.LOW,
            doc="Name of the event's Avro schema; SERVER.DATABASE.CloudEvents.Envelope if not set.",
        ),
        _choice_key(
            "schema.name.adjustment.mode",
            "avro puts underscores for what Avro does not allow in that name; none does not.",
            "none",
            "avro",
            default="avro",
        ),
        ConfigKey(
            name="schema.data.name.source.header.enable",
            type=ConfigType.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Take the name of the data's schema from the header dataSchemaName, if metadata.source says so.",
        ),
        ConfigKey(
            name="metadata.source",
            type=ConfigType.LIST,
            default=["value", "id:generate", "type:generate", "traceparent:header", "dataSchemaName:generate"],
            doc="Where source, operation and transaction come from: value (the envelope) or header (headers of these names, "
            "in JSON with schema, as the transform HeaderFrom puts them there); and for id, type, traceparent and "
            "dataSchemaName: generate or header.",
            example="header,id:header,type:header",
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class _Origin:
    """``metadata.source``: whether each comes from headers."""

    everything: bool
    id: bool
    type: bool
    traceparent: bool
    data_schema_name: bool

    @property
    def any(self) -> bool:
        return self.everything or self.id or self.type or self.traceparent or self.data_schema_name


class _Writers(NamedTuple):
    """The writers of one schema's Avro events: kept here, since ``AvroConverter`` may have dropped them when they are needed.

    Attributes:
        of: the schema of the records; while it is held here, no other object can get its id.
        connector: whose events these are.
        data: writes their data.
        event: writes the event around it; None where that is JSON.
    """

    of: Schema
    connector: str
    data: Encode
    event: Encode | None


def _parse_origin(items: Sequence[str], *, tracing: bool, named: bool) -> _Origin:
    """Raises ``ConfigInvalid`` for what Debezium refuses too."""
    first = items[0] if items else ""
    if first not in ("value", "header"):
        raise RegistryOptionInvalid(
            "metadata.source",
            f"Invalid value {first} for configuration metadata.source: it begins with value or header",
        )
    chosen = dict.fromkeys(_FIELDS_WITH_SOURCE, first == "header")
    for item in items[1:]:
        name, _, source = item.partition(":")
        if name not in chosen or source not in ("header", "generate"):
            raise RegistryOptionInvalid(
                "metadata.source",
                f"Invalid value {item} for configuration metadata.source: write id, type, "
                "traceparent or dataSchemaName, a colon, and header or generate",
            )
        chosen[name] = source == "header"
    return _Origin(
        first == "header",
        chosen["id"],
        chosen["type"],
        chosen["traceparent"] and tracing,
        chosen["dataSchemaName"] and named,
    )


def _hide_login(url: str) -> str:
    """A registry's address as events may show it: all who read the topic see it."""
    plain, login = split_user_info(url)
    return url.strip() if login is None else plain


def _avro_config(parsed: Config) -> dict[str, str]:
    return {name: option_value for name, option_value in parsed.prefixed("avro.").items() if name != "converter.type"}


class CloudEventsConverter(Converter):
    """``io.debezium.converters.CloudEventsConverter``. Only ``prepare`` does I/O, where Avro is used."""

    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.converters.CloudEventsConverter",)
    config_def: ClassVar[ConfigDef] = CLOUDEVENTS_OPTIONS

    def __init__(self, config: Mapping[str, str], *, is_key: bool) -> None:
        parsed = CLOUDEVENTS_OPTIONS.parse(config)
        self._avro_event = parsed["serializer.type"].lower() == _AVRO
        self._avro_data = parsed["data.serializer.type"].lower() == _AVRO
        if self._avro_event and not self._avro_data:
            raise RegistryOptionInvalid(
                "data.serializer.type",
                "Cannot use 'application/json' data content type within Avro events: set data.serializer.type=avro",
            )
        self._tracing: bool = parsed["opentelemetry.tracing.attributes.enable"]
        self._extensions: bool = parsed["extension.attributes.enable"]
        self._name: str | None = parsed["schema.cloudevents.name"] or None
        self._adjust = parsed["schema.name.adjustment.mode"].lower() == "avro"
        self._origin = _parse_origin(
            parsed["metadata.source"], tracing=self._tracing, named=parsed["schema.data.name.source.header.enable"]
        )
        if self._avro_data and (self._origin.everything or self._origin.data_schema_name):
            raise RegistryOptionInvalid(
                "metadata.source",
                "metadata.source: with Avro the schemas must be known before the records, "
                "so source and dataSchemaName can't come from headers. Set data.serializer.type=json, or "
                "metadata.source=value",
            )
        json_config = parsed.prefixed("json.")
        self._with_schema = not self._avro_data and json_config.get("schemas.enable", "true").strip().lower() == "true"
        self._events = JsonConverter({**json_config, "schemas.enable": "false"}, is_key=is_key)
        self._data = JsonConverter(json_config, is_key=is_key)
        self._headers = JsonConverter({"schemas.enable": "true"})
        self._avro: AvroConverter | None = None
        self._registry = ""
        if self._avro_data:
            avro_config = _avro_config(parsed)
            if "schema.registry.url" not in avro_config:
                raise RegistryOptionInvalid(
                    "avro.schema.registry.url",
                    "Need URL(s) for schema registry instances for CloudEvents "
                    "when using Apache Avro: set avro.schema.registry.url",
                )
            self._avro = AvroConverter(avro_config, is_key=False)
            self._registry = ",".join(map(_hide_login, avro_config["schema.registry.url"].split(",")))
        self._makers: dict[tuple[str, int, str, int, str], _Maker] = {}
        self._encoders = EncoderCache(_KEPT)
        self._writers: dict[tuple[str, int], _Writers] = {}

    @classmethod
    def config_problems(cls, config: Mapping[str, str]) -> Sequence[ConfigProblem]:
        """See ``Converter.config_problems``; the registry is not asked."""
        try:
            parsed = CLOUDEVENTS_OPTIONS.parse(config)
        except ConfigInvalid:
            return ()
        parts: list[tuple[str, ConfigDef, Mapping[str, str]]] = [("json.", JSON_OPTIONS, parsed.prefixed("json."))]
        problems: list[ConfigProblem] = []
        if parsed["data.serializer.type"].lower() == _AVRO and "avro.schema.registry.url" in config:
            avro = _avro_config(parsed)
            parts.append(("avro.", AVRO_OPTIONS, avro))
            problems = [
                ConfigProblem(f"avro.{problem.name}", problem.message)
                for problem in AvroConverter.config_problems(avro)
            ]
        problems += [
            ConfigProblem(prefix + name, error)
            for prefix, definition, raw in parts
            for name, value in definition.values(raw).items()
            for error in value.errors
        ]
        if not problems:
            try:
                cls(config, is_key=False)
            except RegistryOptionInvalid as error:
                problems.append(ConfigProblem(error.option, str(error)))
        return problems

    async def prepare(self, topic: str, schema: Schema | None) -> None:
        """With Avro, find or register the schemas of the event and of its data."""
        avro = self._avro
        if avro is None or schema is None or (topic, id(schema)) in self._writers or not self._is_event(schema):
            return
        maker = self._find_maker(topic, schema, _source_schema(schema), _connector_of(schema), None)
        await avro.prepare(maker.data_topic, maker.data_schema)
        data = avro.encoder(maker.data_topic, maker.data_schema)
        event: Encode | None = None
        if self._avro_event:
            await avro.prepare(topic, maker.schema)
            event = avro.encoder(topic, maker.schema)
        if len(self._writers) >= _KEPT:
            self._writers.clear()
        self._writers[topic, id(schema)] = _Writers(schema, maker.connector, data, event)

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        """The function that writes change events of ``schema``; null for others, as in Debezium."""
        encode = self._encoders.get(topic, schema)
        if encode is not None:
            return encode
        if schema is None or not self._is_event(schema):
            return self._encoders.put(topic, schema, lambda _: None)
        writers = self._writers.get((topic, id(schema)))
        return self._encoders.put(topic, schema, lambda value: self._encode_event(topic, schema, value, (), writers))

    def header_encoder(self, topic: str, schema: Schema | None) -> HeaderEncode | None:
        """As ``encoder``, where ``metadata.source`` names headers."""
        if not self._origin.any:
            return None
        if schema is None:
            return lambda _value, _headers: None
        writers = self._writers.get((topic, id(schema)))
        return lambda value, headers: self._encode_event(topic, schema, value, headers, writers)

    async def prepare_data(self, topic: str, data: bytes | None) -> None:
        """With Avro events, read the event's schema. Avro data inside is left as bytes."""
        if self._avro_event and self._avro is not None:
            await self._avro.prepare_data(topic, data)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """Return the event; its JSON data without the schema next to it, Avro data as bytes.

        Raises:
            Skippable: it is not a CloudEvent.
        """
        if data is None:
            return None, None
        if self._avro_event and self._avro is not None:
            schema, event = self._avro.to_connect(topic, data)
        else:
            schema, event = self._events.to_connect(topic, data)
        if not isinstance(event, dict) or not {"id", "source", "specversion", "type"} <= event.keys():
            raise Skippable(
                "A deserialized record's value is not a CloudEvent: it lacks id, source, specversion or type. Set "
                "the converter to the one that wrote the topic."
            )
        content = event.get("data")
        if self._with_schema and isinstance(content, dict) and content.keys() == {"schema", "payload"}:
            event = {**event, "data": content["payload"]}
        return schema, event

    async def close(self) -> None:
        """Close the connections to the registry."""
        if self._avro is not None:
            await self._avro.close()

    def _is_event(self, schema: Schema) -> bool:
        if schema.type is not Type.STRUCT:
            return False
        return self._origin.everything or (
            (schema.name or "").endswith(_ENVELOPE) and schema.field("source") is not None
        )

    def _encode_event(
        self, topic: str, schema: Schema, value: Any, headers: _Headers, writers: _Writers | None
    ) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise Skippable(f"CloudEventsConverter writes structs, and the value is a {type(value).__name__}.")
        if self._origin.everything:
            source_schema, source = self._read_header(headers, "source", needed=False)
            operation = self._read_header(headers, "op", needed=False)[1]
            if source is None or operation is None or source_schema is None:
                return None
            transaction = self._read_header(headers, "transaction", needed=False)[1]
        elif not self._is_event(schema):
            return None
        else:
            source, source_schema = value.get("source"), _source_schema(schema)
            operation, transaction = value.get("op"), value.get("transaction")
        if not isinstance(source, dict) or not isinstance(source.get("connector"), str):
            raise Skippable(
                "Cannot make a CloudEvent: source.connector is missing. CloudEventsConverter writes the change "
                "events of Debezium's form: set the connector's output format to it."
            )
        named = self._read_header(headers, "dataSchemaName")[1] if self._origin.data_schema_name else None
        maker = self._find_maker(topic, schema, source_schema, source["connector"], named)
        event = maker.event(
            source, operation, transaction, None if self._origin.id else _event_id(maker.connector, source)
        )
        for attribute, from_header in (("id", self._origin.id), ("type", self._origin.type)):
            if from_header:
                event[attribute] = self._read_header(headers, attribute)[1]
        if self._tracing:
            event["traceparent"] = self._read_traceparent(headers)
        return self._write_event(topic, maker, event, value, writers)

    def _read_traceparent(self, headers: _Headers) -> Any:
        if not self._origin.traceparent:
            raise Skippable(
                "traceparent can only be taken from a header: set metadata.source to value,traceparent:header"
            )
        return self._read_header(headers, "traceparent")[1]

    def _write_event(
        self, topic: str, maker: _Maker, event: dict[str, Any], value: dict[str, Any], writers: _Writers | None
    ) -> bytes | None:
        data = {name: value.get(name) for name in maker.data_names}
        if self._avro is not None:
            if writers is None or writers.connector != maker.connector:
                raise Fatal(
                    f"CloudEventsConverter was not prepared for events of the connector {maker.connector} in topic "
                    f"{topic}: its schemas must be called io.debezium.connector.{maker.connector}..."
                )
            content = writers.data(data)
            if content is None:
                return None
            event["data"] = content
            event["dataschema"] = f"{self._registry}/schemas/ids/{int.from_bytes(content[1:5], 'big')}"
            if writers.event is not None:
                return writers.event(event)
            return self._events.encoder(topic, maker.schema)(event)
        if not self._with_schema:
            event["data"] = data
            return self._events.encoder(topic, maker.schema)(event)
        # The data has its schema next to it, the event itself has no schema: its empty data is replaced.
        written = self._events.encoder(topic, maker.schema)({**event, "data": {}})
        content = self._data.encoder(topic, maker.data_schema)(data)
        return None if written is None or content is None else written[:-3] + content + b"}"

    def _read_header(self, headers: _Headers, name: str, *, needed: bool = True) -> tuple[Schema | None, Any]:
        for key, data in reversed(headers):
            if key == name:
                return self._headers.to_connect("", data)
        if needed:
            raise Skippable(
                f"Header `{name}` was not provided. Put it there with a transform, or let metadata.source generate it."
            )
        return None, None

    def _find_maker(self, topic: str, schema: Schema, source: Schema, connector: str, named: str | None) -> _Maker:
        key = (topic, id(schema), connector, id(source), named or "")
        cached = self._makers.get(key)
        if cached is not None and cached.of is schema and cached.source is source:
            return cached
        if len(self._makers) >= _KEPT:
            self._makers.clear()
        event_schema, members, transaction = self._event_schema(schema, source)
        names = () if self._origin.everything else _DATA_FIELDS.get(connector, ())
        data_schema = Schema(
            Type.STRUCT,
            name=named or f"io.debezium.connector.{connector}.Data",
            fields=tuple(member for member in schema.fields if not names or member.name in names),
        )
        content = BYTES if self._avro_data else Schema(Type.STRUCT) if self._with_schema else data_schema
        full = Schema(Type.STRUCT, name=event_schema.name or "", fields=(*event_schema.fields, Field("data", content)))
        maker = self._makers[key] = _Maker(
            schema,
            source,
            connector,
            full,
            data_schema,
            tuple(member.name for member in data_schema.fields),
            f"{topic}-data" if self._avro_event else topic,
            members,
            transaction,
            "application/avro" if self._avro_data else "application/json",
        )
        return maker

    def _event_schema(self, schema: Schema, source: Schema) -> tuple[Schema, _Members, tuple[tuple[str, str], ...]]:
        """The event's schema but for its data, where source's fields go, and where those of the transaction go."""
        fields = [Field(name, STRING) for name in ("id", "source", "specversion", "type", "time", "datacontenttype")]
        if self._avro_data:
            fields.append(Field("dataschema", STRING))
        if self._tracing:
            fields.append(Field("traceparent", STRING))
        members: list[tuple[str, str, bool, Any]] = []
        transaction: list[tuple[str, str]] = []
        if self._extensions:
            fields.append(Field(extension_name("op"), STRING))
            for member in source.fields:
                kind = _ATTRIBUTES.get(member.schema.type)
                if kind is None:
                    raise Skippable(
                        f"Source field of type {member.schema.type.name} cannot be converted into CloudEvents "
                        f"extension attribute: source.{member.name}. Set extension.attributes.enable=false."
                    )
                fields.append(
                    Field(extension_name(member.name), (_OPTIONAL if member.schema.optional else _REQUIRED)[kind])
                )
                members.append(
                    (extension_name(member.name), member.name, member.schema.type is Type.INT64, member.schema.default)
                )
            for name, _ in _TRANSACTION:
                fields.append(Field(extension_name(f"tx{name}"), _OPTIONAL[Type.STRING]))
                transaction.append((extension_name(f"tx{name}"), name))
        return (
            Schema(Type.STRUCT, name=self._event_name(schema), fields=tuple(fields)),
            tuple(members),
            tuple(transaction),
        )

    def _event_name(self, schema: Schema) -> str:
        # Debezium takes server and database from the record; the envelope is named after them, and after its table.
        name_parts = _CONNECTOR_NAME.sub("", (schema.name or "").removesuffix(_ENVELOPE)).rpartition(".")[0]
        name = self._name or f"{name_parts or 'millrace'}.CloudEvents.Envelope"
        return re.sub(r"[^A-Za-z0-9_.]", "_", name) if self._adjust else name


@dataclass(frozen=True, slots=True)
class _Maker:
    """The parts that are the same for all events of one schema.

    Attributes:
        of: the schema of the records.
        source: the schema of ``source``.
        connector: the connector's name.
        schema: the event's schema.
        data_schema: the schema of its data.
        data_names: the fields of the record that are the data.
        data_topic: under which topic Avro data is registered.
        members: attribute, field of source, whether it is a long, its default.
        transaction: attribute, field of transaction.
        content_type: of the data.
    """

    of: Schema
    source: Schema
    connector: str
    schema: Schema
    data_schema: Schema
    data_names: tuple[str, ...]
    data_topic: str
    members: _Members
    transaction: tuple[tuple[str, str], ...]
    content_type: str

    def event(self, source: dict[str, Any], operation: Any, transaction: Any, identity: str | None) -> dict[str, Any]:
        """The event without its data; ``identity`` is its id, None if a header gives it."""
        event: dict[str, Any] = {
            "id": identity,
            "source": f"/debezium/{self.connector}/{source.get('name')}",
            "specversion": "1.0",
            "type": f"io.debezium.connector.{self.connector}.DataChangeEvent",
            "time": _format_time(source.get("ts_ms")),
            "datacontenttype": self.content_type,
        }
        if self.members:
            event[_OPERATION] = operation
            for attribute, name, is_long, default in self.members:
                item = source.get(name)
                item = default if item is None else item
                event[attribute] = str(item) if is_long and item is not None else item
            if isinstance(transaction, dict):
                for attribute, name in self.transaction:
                    item = transaction.get(name)
                    event[attribute] = None if item is None else str(item)
        return event


def extension_name(name: str) -> str:
    """The extension attribute of a field: what is no letter or digit is left out."""
    return "iodebezium" + _NOT_NAME.sub("", name)


_OPERATION: Final = extension_name("op")


def _event_id(connector: str, source: dict[str, Any]) -> str:
    fields = _ID_FIELDS.get(connector)
    if fields is None:
        id_fields = ", ".join(_ID_FIELDS)
        raise Skippable(
            f'No usable CloudEvents converters for connector type "{connector}": known are {id_fields}. '
            "Put an id into a header and set metadata.source=value,id:header."
        )
    return ";".join(f"{name}:{'null' if source.get(name) is None else source[name]}" for name in fields)


def _format_time(millis: Any) -> str:
    if not isinstance(millis, int):
        raise Skippable("Cannot make a CloudEvent: source.ts_ms is missing.")
    try:
        return f"{_EPOCH + timedelta(milliseconds=millis - millis % 1000):%Y-%m-%dT%H:%M:%S}.{millis % 1000:03d}Z"
    except OverflowError:
        raise Skippable(f"Cannot make a CloudEvent: source.ts_ms ({millis}) is beyond the year 9999.") from None


def _source_schema(schema: Schema) -> Schema:
    member = schema.field("source")
    return member.schema if member is not None else Schema(Type.STRUCT)


def _connector_of(schema: Schema) -> str:
    """The connector, as the names of its schemas tell: before the first record it can't be asked."""
    for name in (_source_schema(schema).name or "", schema.name or ""):
        match = _CONNECTOR_NAME.match(name)
        if match is not None:
            return match[1]
    return "scylla"
