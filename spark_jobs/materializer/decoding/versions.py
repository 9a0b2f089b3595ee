"""From messages to versions of a table: which schema a message was written with, and what decodes it. Compiled once per schema.

The registry is asked once per schema id; everything else here is pure.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from connectors.errors import ConfigInvalid, Fatal, Skippable
from connectors.formats.partition_update import UpdateSource
from connectors.formats.partition_update_raw import is_raw
from spark_jobs.materializer.decoding.avro import compile_reader
from spark_jobs.materializer.decoding.raw import read_raw
from spark_jobs.materializer.decoding.schema import UpdateVersion, read_version
from worker.converters.avro import AVRO_OPTIONS
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.json_form.read import parse_json, read_schema
from worker.converters.registry.client import SchemaRegistryClient
from worker.converters.registry.options import registry_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.schema import Schema
    from spark_jobs.materializer.engine.model import MergeOptions

AVRO: Final = AvroSettings()
#: Zero byte and schema id before an Avro message.
HEAD: Final = 5
_KEPT: Final = 1000


class SchemaIds(Protocol):
    """The calls of a schema registry that the engine needs; both block."""

    def text(self, schema_id: int) -> str:
        """A schema's text; raises as ``SchemaRegistryClient.text``."""

    def register(self, subject: str, text: str) -> int:
        """A schema's id; raises as ``SchemaRegistryClient.register``."""

    def close(self) -> None:
        """Close the connections."""


class RegistryClient:
    """The worker's registry client, for code that blocks: it runs on an event loop of its own.

    Args:
        properties: of AvroConverter.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._client = SchemaRegistryClient(registry_settings(AVRO_OPTIONS.parse(dict(properties))))
        self._loop = asyncio.new_event_loop()

    def text(self, schema_id: int) -> str:
        """See ``SchemaIds``."""
        return self._loop.run_until_complete(self._client.text(schema_id))

    def register(self, subject: str, text: str) -> int:
        """See ``SchemaIds``."""
        return self._loop.run_until_complete(self._client.register(subject, text))

    def close(self) -> None:
        """See ``SchemaIds``."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._client.close())
            self._loop.close()


def schema_id(data: bytes) -> int:
    """The id before an Avro message.

    Raises:
        Skippable: the message has no id.
    """
    if len(data) < HEAD or data[0] != 0:
        raise Skippable(
            "Unknown magic byte: the message was not written in the schema registry's wire format. Set "
            "source.value.encoding to what the topic has."
        )
    return int.from_bytes(data[1:HEAD], "big")


class WriterSchema(msgspec.Struct):
    """One writer's schema of partition updates.

    Attributes:
        version: what it tells.
        order: its id in the registry; None without one.
        text: the schema as Avro's text, for the catalog.
        read: message and position of the value in it -> ``version.update``.
        raw: whether messages hold the bytes of the source (``raw``).
    """

    version: UpdateVersion
    order: int | None
    text: str
    read: Callable[[bytes, int], Any]
    raw: bool = False


class _SchemaEnvelope(msgspec.Struct):
    schema: msgspec.Raw
    payload: msgspec.Raw


class _NamedSchema(msgspec.Struct):
    schema: str


class _OfSource(msgspec.Struct):
    source: _NamedSchema
    update: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_split: Final = msgspec.json.Decoder(_SchemaEnvelope).decode
_source: Final = msgspec.json.Decoder(_OfSource).decode


def split_envelope(data: bytes) -> tuple[bytes, bytes] | None:
    """Schema and payload of a JSON message that has both; None of others."""
    try:
        envelope = _split(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return bytes(envelope.schema), bytes(envelope.payload)


class Writers:
    """The writers' schemas of partition updates that a process has met; shared by its engines.

    Args:
        options: say where schemas come from.
        registry: the registry, made when it is first needed.
    """

    def __init__(self, options: MergeOptions, registry: Callable[[], SchemaIds]) -> None:
        self._registry = registry
        self._by_id: dict[int, WriterSchema] = {}
        self._by_text: dict[bytes | str, WriterSchema] = {}
        self._by_ident: dict[tuple[str, bool], WriterSchema] = {}
        self._schema_texts = options.input_schemas

    def by_id(self, number: int) -> WriterSchema:
        """The schema with an id of the registry.

        Raises:
            Skippable: the id is unknown, or the schema is not that of a partition update.
            Retriable: the registry is unavailable.
            Fatal: it refuses this client, or the table has counters.
        """
        writer = self._by_id.get(number)
        if writer is None:
            writer = writer_of_avro(self._registry().text(number), number)
            _keep_writer(self._by_id, number, writer)
        return writer

    def by_description(self, description: bytes) -> WriterSchema:
        """The schema in Connect's JSON form that a message contains; raises as ``by_id``."""
        writer = self._by_text.get(description)
        if writer is None:
            schema = read_schema(parse_json(description), replace_null=False)
            if schema is None:
                raise Skippable("The message has no schema next to its payload (it is null).")
            writer = writer_of(schema, None, avro_text(schema, AVRO))
            _keep_writer(self._by_text, description, writer)
        return writer

    def by_text(self, schema_text: str) -> WriterSchema:
        """The schema that a catalog holds; raises as ``by_id``."""
        writer = self._by_text.get(schema_text)
        if writer is None:
            writer = writer_of_avro(schema_text, None)
            _keep_writer(self._by_text, schema_text, writer)
        return writer

    def by_ident(self, data: bytes) -> WriterSchema:
        """The schema of a JSON message without one, among those that the options give; raises as ``by_id``."""
        if not self._by_ident:
            for schema_text in self._schema_texts:
                writer = writer_of_text(schema_text)
                self._by_ident[writer.version.ident, writer.raw] = writer
        try:
            message = _source(data)
            ident, raw = message.source.schema, message.update is not msgspec.UNSET
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Skippable(
                f"This is no partition update in JSON: {error}. Check source.format and source.value.encoding "
                "against what the topic has."
            ) from None
        match = self._by_ident.get((ident, raw))
        if match is None:
            known_idents = ", ".join(name + " raw" * of_raw for name, of_raw in self._by_ident) or "none"
            raise Skippable(
                f"The message was written with the definition {ident}{' raw' * raw} of its table, whose schema is "
                f"not known (known: {known_idents}). Give it in materializer.input.schemas, write messages with their "
                "schema (schemas.enable=true), or use Avro with a registry."
            )
        return match


def _keep_writer(kept: dict[Any, WriterSchema], key: Any, writer: WriterSchema) -> None:
    if len(kept) >= _KEPT:
        kept.pop(next(iter(kept)))
    kept[key] = writer


def writer_of_avro(schema_json: str, number: int | None) -> WriterSchema:
    """The writer's schema in Avro's text; raises as ``Writers.by_id``."""
    schema = avro_reader(schema_json, AVRO).schema
    if schema is None:
        raise Skippable("The schema is that of schemaless data, not of a partition update.")
    return writer_of(schema, number, schema_json)


def writer_of(schema: Schema, number: int | None, schema_text: str) -> WriterSchema:
    """The writer's schema as Connect has it; raises as ``Writers.by_id``."""
    table, version = schema.parameter("table_id"), schema.parameter("schema_version")
    if table is not None and version is not None:
        ident = UpdateSource(
            connector="", cluster="", keyspace="", table="", table_id=table, schema_version=version
        ).schema
    else:
        ident = schema.name or schema_text
    if is_raw(schema):
        of_raw, read = read_raw(schema, ident, schema_text)
        return WriterSchema(of_raw, number, schema_text, read, raw=True)
    table_version = read_version(schema, ident)
    return WriterSchema(table_version, number, schema_text, compile_reader(schema_text, table_version))


def writer_of_text(schema_text: str) -> WriterSchema:
    """The schema in a file: Avro, or Connect's JSON form.

    Raises:
        ConfigInvalid: it is neither.
    """
    try:
        parsed = parse_json(schema_text.encode())
        if isinstance(parsed, dict) and parsed.get("type") == "struct":
            schema = read_schema(parsed, replace_null=False)
            if schema is not None:
                return writer_of(schema, None, avro_text(schema, AVRO))
        return writer_of_avro(schema_text, None)
    except (Skippable, Fatal) as error:
        raise ConfigInvalid(
            f"Invalid value {schema_text[:60]}... for configuration materializer.input.schemas: {error}"
        ) from None
