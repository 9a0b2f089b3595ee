"""Code that converters with a schema registry share: subjects, finding and registering schemas, and errors that name the field.

A ``Format`` knows one schema language; ``RegisteredSchemas`` does the rest. Only it talks to the registry. A converter of one
language is a ``RegistryConverter`` that names its options and makes its ``Format``.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from connectors.errors import Fatal, Skippable
from connectors.schema import Type
from worker.converters.base import Converter, Encode, EncoderCache
from worker.converters.registry.client import Registered, RegistryRefusal, SchemaRegistryClient
from worker.converters.registry.differences import find_differences, find_lacking
from worker.converters.registry.options import STRATEGY_PACKAGE, option_problems, parse_options, registry_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.options import Config, ConfigProblem
    from connectors.schema import Schema
    from worker.converters.registry.differences import Shapes

#: Magic byte and schema id.
HEAD_SIZE: Final = 5
#: How long the registry is not asked again about a schema that it has refused.
_REFUSED_S: Final = 10.0
_REFUSALS_KEPT: Final = 1000
_MAX_REFERENCES: Final = 200


#: Makes the Connect schema and value from the bytes behind the schema's id.
Read = Callable[[bytes], "tuple[Schema | None, Any]"]


class Format(Protocol):
    """One schema language. Every method raises ``Skippable`` for what it can't express or read; none does I/O.

    Methods that take the text of a schema may take long and are called in a thread.
    """

    @property
    def type(self) -> str:
        """The registry's name of the language."""

    @property
    def label(self) -> str:
        """The converter's name, for messages."""

    def text(self, schema: Schema | None) -> str:
        """The text to register."""

    def record_name(self, schema: Schema) -> str:
        """The full name of a struct, for subjects."""

    def encoder(self, schema: Schema | None, head: bytes) -> Encode:
        """The function that writes values behind ``head``."""

    def encoder_of(self, schema: Schema | None, head: bytes, schema_text: str, imports: Mapping[str, str]) -> Encode:
        """The function that writes values of ``schema`` with another schema, whose text this is."""

    def reader(self, schema_text: str, imports: Mapping[str, str]) -> Read:
        """Return the function that reads messages written with the schema."""

    def shapes(self, schema_text: str) -> Shapes:
        """The fields of a schema."""

    def same(self, left: str, right: str) -> bool:
        """Say whether two schemas are the same, by their text."""


class RegisteredSchemas:
    """The registry side of one converter of one task.

    Args:
        form: the schema language.
        parsed: the converter's options.
        is_key: whether it converts keys.

    Attributes:
        make_reader: ``Format.reader``.

    Raises:
        ConfigInvalid: the registry can't be reached with these options.
    """

    def __init__(self, form: Format, parsed: Config, *, is_key: bool) -> None:
        self._form = form
        self.make_reader = form.reader
        self._part = "key" if is_key else "value"
        self._strategy = str(parsed[f"{self._part}.subject.name.strategy"]).removeprefix(STRATEGY_PACKAGE)
        self._register: bool = parsed["auto.register.schemas"]
        self._use_id: int = -1 if self._register else parsed["use.schema.id"]
        self._use_latest: bool = parsed["use.latest.version"] and not self._register
        self._strict: bool = parsed["id.compatibility.strict" if self._use_id >= 0 else "latest.compatibility.strict"]
        self._normalize: bool = parsed["normalize.schemas"]
        self._size: int = parsed["schemas.cache.config"]
        self._encoders = EncoderCache(self._size)
        #: The bytes before messages that are written with their own schema.
        self._heads: OrderedDict[tuple[str, Schema | None], bytes] = OrderedDict()
        self._readers: OrderedDict[int, Read] = OrderedDict()
        # By content: a source may make a new schema object for each record.
        self._refused: OrderedDict[tuple[str, Schema | None], tuple[float, str]] = OrderedDict()
        self._registry = SchemaRegistryClient(registry_settings(parsed))

    async def prepare(self, topic: str, schema: Schema | None) -> None:
        """See ``Converter.prepare``. Asks the registry once per subject and schema; about a refused one after a while again."""
        if self._encoders.get(topic, schema) is not None:
            return
        refused = self._refused.get((topic, schema))
        if refused is not None and time.monotonic() < refused[0]:
            raise Skippable(refused[1])
        try:
            prepared = await self._prepare_schema(topic, schema)
        except Skippable as error:
            if len(self._refused) >= _REFUSALS_KEPT:
                self._refused.popitem(last=False)
            self._refused[topic, schema] = time.monotonic() + _REFUSED_S, str(error)
            raise
        self._encoders.put(topic, schema, prepared)

    async def refusals(self, topic: str, schema: Schema | None) -> list[str]:
        """See ``Converter.refusals``."""
        if not self._register:  # nothing is registered by asking
            try:
                await self._prepare_schema(topic, schema)
            except Skippable as error:
                return [str(error)]
            return []
        schema_text, subject = self._form.text(schema), self.subject(topic, schema)
        try:
            reasons = await self._registry.complaints(subject, schema_text, self._form.type)
        except RegistryRefusal as refusal:
            return [f"The schema registry finds the schema of {subject} invalid: {refusal.reason}"]
        except Skippable:
            return []  # the subject is new, or the registry can't compare
        if not reasons:
            return []
        return [f"The schema registry would refuse the schema of {subject}: {'; '.join(reasons[:5])}"]

    async def _prepare_schema(self, topic: str, schema: Schema | None) -> Encode:
        form = self._form
        schema_text = form.text(schema)
        subject = self.subject(topic, schema)
        if self._use_id >= 0 or self._use_latest:
            registered = await (
                self._registry.schema(self._use_id) if self._use_id >= 0 else self._registry.newest(subject)
            )
            self._check_type(registered)
            head = head_of(registered.id)
            if form.same(registered.text, schema_text):
                return self._make_encoder(topic, schema, head)
            ours, theirs = await asyncio.to_thread(lambda: (form.shapes(schema_text), form.shapes(registered.text)))
            if self._strict and (missing := find_lacking(ours, theirs)):
                origin, option = (
                    ("schema", "id.compatibility.strict")
                    if self._use_id >= 0
                    else ("newest schema", "latest.compatibility.strict")
                )
                raise Skippable(
                    f"The {origin} (id {registered.id}) of subject {subject} lacks fields of the records: "
                    f"{', '.join(missing)}. Register a schema with them, or set {option}=false to drop them."
                )
            return await asyncio.to_thread(
                form.encoder_of, schema, head, registered.text, await self._load_imports(registered)
            )
        ask = self._registry.register if self._register else self._registry.find
        try:
            schema_id = await ask(subject, schema_text, form.type, normalize=self._normalize)
        except RegistryRefusal as refusal:
            raise Skippable(await self._describe_refusal(subject, schema_text, refusal)) from None
        return self._make_encoder(topic, schema, head_of(schema_id))

    def _make_encoder(self, topic: str, schema: Schema | None, head: bytes) -> Encode:
        if len(self._heads) >= self._size:
            self._heads.popitem(last=False)
        self._heads[topic, schema] = head
        return self._form.encoder(schema, head)

    def head(self, topic: str, schema: Schema | None) -> bytes | None:
        """The bytes before messages of a prepared pair; None where another schema than the records' own is used."""
        return self._heads.get((topic, schema))

    async def _describe_refusal(self, subject: str, schema_text: str, refusal: RegistryRefusal) -> str:
        """The message about a refused schema: what the registry says, and which fields differ from the newest one."""
        said = f"{refusal.reason} (HTTP {refusal.status} from {refusal.url})"
        parts = [f"The schema registry refuses the schema of {subject}: {said}."]
        try:
            latest = await self._registry.newest(subject)
        except Fatal:  # what counts is that the schema is refused
            parts.append("This client may not read the subject's earlier schemas, so the difference is not known.")
            return " ".join(parts)
        except Skippable:
            parts.append(
                "The subject has no earlier schema: the registry finds this one invalid. Correct the names or types "
                "in a transform, or set a validity rule of the registry."
            )
            return " ".join(parts)
        try:
            reasons = await self._registry.reasons(subject, schema_text, self._form.type)
        except (Skippable, Fatal):
            reasons = []
        if reasons:
            parts.append("The registry's reasons: " + "; ".join(reasons[:5]) + ".")
        newest = f"the newest schema (id {latest.id}{f', version {latest.version}' if latest.version else ''})"
        if latest.type != self._form.type:
            parts.append(
                f"{newest[0].upper()}{newest[1:]} is {latest.type}, this one is {self._form.type}: give them "
                "different subjects, or use the converter that wrote the topic."
            )
            return " ".join(parts)
        try:
            shapes = self._form.shapes
            changes = await asyncio.to_thread(lambda: find_differences(shapes(schema_text), shapes(latest.text)))
        except Skippable:
            changes = []
        parts.append(f"Compared with {newest}: {'; '.join(changes) if changes else 'no field differs'}.")
        parts.append(
            "Undo the change at the source or in a transform, give new fields a default (make them optional), or "
            "change the subject's compatibility level."
        )
        return " ".join(parts)

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        """The encoder that ``prepare`` made for this pair.

        Raises:
            Fatal: ``prepare`` was not awaited for it.
        """
        encode = self._encoders.get(topic, schema)
        if encode is None:
            raise Fatal(
                f"{self._form.label} was not prepared for topic {topic}: await prepare(topic, schema) before encoder."
            )
        return encode

    async def prepare_data(self, data: bytes | None) -> None:
        """Read the schema that ``data`` names, with all it imports, if it is not known."""
        if data is None:
            return
        schema_id = id_of(data)
        if schema_id in self._readers:
            return
        registered = await self._registry.schema(schema_id)
        self._check_type(registered)
        # Parsing a schema takes long enough to delay other tasks.
        read = await asyncio.to_thread(self.make_reader, registered.text, await self._load_imports(registered))
        if len(self._readers) >= self._size:
            self._readers.popitem(last=False)
        self._readers[schema_id] = read

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The schema and value in ``data``; ``prepare_data`` must have been awaited for it.

        Raises:
            Fatal: it was not.
        """
        if data is None:
            return None, None
        read = self._readers.get(id_of(data))
        if read is None:
            raise Fatal(
                f"{self._form.label} was not prepared for a message of topic {topic}: await prepare_data before "
                "to_connect."
            )
        return read(data[HEAD_SIZE:])

    async def close(self) -> None:
        """Close the connections to the registry."""
        await self._registry.close()

    def subject(self, topic: str, schema: Schema | None) -> str:
        """The subject for the records of a topic.

        Raises:
            Skippable: the strategy needs a struct's name and it has no name.
        """
        if self._strategy == "TopicNameStrategy":
            return f"{topic}-{self._part}"
        if schema is None or schema.type is not Type.STRUCT:
            raise Skippable(
                f"{self._strategy} needs records: the {self._part} of topic {topic} is "
                f"{'schemaless' if schema is None else schema.type}. Use TopicNameStrategy."
            )
        name = self._form.record_name(schema)
        return name if self._strategy == "RecordNameStrategy" else f"{topic}-{name}"

    def _check_type(self, registered: Registered) -> None:
        if registered.type != self._form.type:
            raise Skippable(
                f"The schema with id {registered.id} is {registered.type}, not {self._form.type}. Use the converter that "
                "wrote the topic."
            )

    async def _load_imports(self, registered: Registered) -> dict[str, str]:
        """Return the text of each schema that a schema refers to, by the names it imports them under."""
        schema_texts: dict[str, str] = {}
        waiting = list(registered.references)
        while waiting:
            name, subject, version = waiting.pop()
            if name in schema_texts:
                continue
            if len(schema_texts) >= _MAX_REFERENCES:
                raise Skippable(f"The schema with id {registered.id} refers to more than {_MAX_REFERENCES} others.")
            part = await self._registry.version(subject, version)
            schema_texts[name] = part.text
            waiting += part.references
        return schema_texts


class RegistryConverter(Converter):
    """A converter whose schemas are in a registry. ``prepare`` and ``prepare_data`` ask the registry; nothing else does I/O."""

    #: Options of the Java converter that are accepted and change nothing here.
    no_effect: ClassVar[frozenset[str]] = frozenset()
    #: Whether values without a schema are written with one in the registry; else they can only be null: tombstones.
    describes_schemaless: ClassVar[bool] = False

    def __init__(self, config: Mapping[str, str], *, is_key: bool) -> None:
        parsed = parse_options(self.config_def, config, no_effect=self.no_effect)
        self._schemas = RegisteredSchemas(self._form(parsed), parsed, is_key=is_key)

    @staticmethod
    @abstractmethod
    def _form(parsed: Config) -> Format:
        """The schema language, as the options want it."""

    @classmethod
    def config_problems(cls, config: Mapping[str, str]) -> Sequence[ConfigProblem]:
        """See ``Converter.config_problems``. Reads key stores; the registry is not asked."""
        return option_problems(cls.config_def, config, no_effect=cls.no_effect)

    async def prepare(self, topic: str, schema: Schema | None) -> None:
        """Find or register the schema for the topic; asks the registry once per subject and schema."""
        if schema is not None or self.describes_schemaless:
            await self._schemas.prepare(topic, schema)

    async def refusals(self, topic: str, schema: Schema | None) -> list[str]:
        """The refusals of the registry; registers nothing."""
        if schema is None and not self.describes_schemaless:
            return []
        return await self._schemas.refusals(topic, schema)

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        """The encoder that ``prepare`` made for this pair.

        Raises:
            Fatal: ``prepare`` was not awaited for it.
        """
        if schema is None and not self.describes_schemaless:
            return _only_null(type(self).__name__)
        return self._schemas.encoder(topic, schema)

    async def prepare_data(self, topic: str, data: bytes | None) -> None:
        """Read the schema that ``data`` names, if it is not known."""
        del topic
        await self._schemas.prepare_data(data)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The schema and value in ``data``; ``prepare_data`` must have been awaited for it.

        Raises:
            Fatal: it was not.
        """
        return self._schemas.to_connect(topic, data)

    async def close(self) -> None:
        """Close the connections to the registry."""
        await self._schemas.close()


def _only_null(label: str) -> Encode:
    """An encoder for records without a schema: null is a tombstone, anything else can't be described."""

    def encode_null(value: Any) -> bytes | None:
        if value is None:
            return None
        raise Skippable(
            f"{label} needs a schema for each value, and the record has none. Use a connector or transform that "
            "gives one, or JsonConverter with schemas.enable=false."
        )

    return encode_null


def head_of(schema_id: int) -> bytes:
    """The five bytes before each message."""
    return b"\x00" + schema_id.to_bytes(4, "big")


def id_of(data: bytes) -> int:
    """The schema's id in a message.

    Raises:
        Skippable: it does not begin with the magic byte and an id.
    """
    if len(data) < HEAD_SIZE or data[0] != 0:
        raise Skippable(
            "Unknown magic byte: the message was not written in the schema registry's wire format. Set the "
            "converter to the one that wrote the topic."
        )
    return int.from_bytes(data[1:HEAD_SIZE], "big")
