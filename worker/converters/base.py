"""The contract between the task runner and converters, and what all converters share.

The runner's side, per topic and schema: ``await converter.prepare(topic, schema)`` once, then
``encode = converter.encoder(topic, schema)`` whenever the topic or the schema object changes, then ``encode(value)`` for
each record. Only ``prepare``, ``prepare_data`` and ``close`` may wait for I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.entry_points import is_own, list_entries
from connectors.errors import ConfigInvalid, Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.metadata import EntryPoint

    from connectors.options import ConfigProblem
    from connectors.schema import Schema
    from connectors.wire import Encoding, RowForm

#: Turns one value of the schema it was compiled for into the bytes for Kafka; None is a null key or a tombstone.
Encode = Callable[[Any], bytes | None]

#: The same for a converter that also looks at the record's converted headers.
HeaderEncode = Callable[[Any, "Sequence[tuple[str, bytes | None]]"], bytes | None]

#: Says what a converter is used for; Connect sets it itself, it is here so that configurations which name it are accepted.
TYPE_OPTION: Final = ConfigKey(
    name="converter.type",
    type=ConfigType.STRING,
    default="value",
    validator=one_of("key", "value", "header"),
    importance=Importance.LOW,
    doc="What the converter is used for. Set by the worker; a value given here has no effect.",
)

#: Entry point group in which other packages offer converters; an entry's name is its alias.
ENTRY_POINTS: Final = "millrace.converters"
HEADER_ENTRY_POINTS: Final = "millrace.header_converters"


class Converter(ABC):
    """Turns keys or values into bytes and back. One instance serves one task and is used on its event loop only.

    Every method that converts raises ``Skippable`` for a record that can't be converted: the path in the record, the type it
    has and the type its schema asks for are in the message.
    """

    #: Other names that mean it, the canonical one first: its Java name where it has one.
    aliases: ClassVar[tuple[str, ...]] = ()
    #: The options it takes, without the ``key.converter.`` or ``value.converter.`` before them.
    config_def: ClassVar[ConfigDef]
    #: False: a null without a schema is a null key or a tombstone. ``prepare`` must not be called where there are only such
    #: nulls, since it would register a schema for them.
    null_needs_schema: ClassVar[bool] = True

    @abstractmethod
    def __init__(self, config: Mapping[str, str], *, is_key: bool) -> None:
        """Configure it.

        Args:
            config: its own properties, without prefix; others are ignored.
            is_key: whether it converts keys.

        Raises:
            ConfigInvalid: an option's value is not allowed.
        """

    @classmethod
    def config_problems(cls, config: Mapping[str, str]) -> Sequence[ConfigProblem]:
        """Return problems beyond the declarations of single options: unknown options, and options that contradict each other.

        Called when a configuration is checked, in a thread: it may read files, but asks no other system.

        Args:
            config: its own properties, without prefix.

        Returns:
            Complaints, under names without prefix; options whose own declarations complain are left to these.
        """
        del config
        return ()

    async def prepare(self, topic: str, schema: Schema | None) -> None:
        """Do the I/O that ``encoder`` needs for this pair; cheap when there is nothing to do.

        Raises:
            Retriable: a service it needs is unavailable.
            Skippable: the schema was refused: its records can't be converted.
            Fatal: the service refuses this client.
        """
        del topic, schema

    @abstractmethod
    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        """The function that encodes values of ``schema`` for ``topic``; compiled once, then looked up. Does not block."""

    def header_encoder(self, topic: str, schema: Schema | None) -> HeaderEncode | None:
        """Return the function that replaces ``encoder``'s where the record's headers matter; None where they don't."""
        del topic, schema
        return None

    def row_form(self, topic: str, encoding: Encoding, stem: str) -> RowForm | None:
        """How rows of ``encoding`` become the bytes that ``encoder``'s function makes of records; None: there is no such way.

        Args:
            topic: the topic; ``prepare`` was called for it and the schema.
            encoding: the schema and how often its members change.
            stem: begins all names of the form.
        """
        del topic, encoding, stem
        return None

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Encode one value. Does not block."""
        return self.encoder(topic, schema)(value)

    async def refusals(self, topic: str, schema: Schema | None) -> list[str]:
        """Why ``prepare`` would refuse this pair, without registering anything; [] if it would not, as far as that is known.

        Raises:
            Retriable: a service it needs does not answer.
            Fatal: the service refuses this client.
        """
        del topic, schema
        return []

    async def prepare_data(self, topic: str, data: bytes | None) -> None:
        """Do the I/O that ``to_connect`` needs for these bytes; raises as ``prepare`` does."""
        del topic, data

    @abstractmethod
    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """Decode one value. Does not block."""

    async def close(self) -> None:
        """Release connections."""


class HeaderConverter(ABC):
    """Turns header values into bytes and back; raises as ``Converter`` does. Never needs I/O."""

    aliases: ClassVar[tuple[str, ...]] = ()
    config_def: ClassVar[ConfigDef]

    @abstractmethod
    def __init__(self, config: Mapping[str, str], *, is_key: bool = False) -> None:
        """Configure it as a ``Converter``; ``is_key`` has no meaning."""

    @abstractmethod
    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Encode the value of the header ``key``."""

    @abstractmethod
    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """Decode the value of the header ``key``."""


def create_converter(
    class_name: str,
    config: Mapping[str, str],
    is_key: bool,  # noqa: FBT001 - Connect's own order
    *,
    property_name: str | None = None,
) -> Converter:
    """The configured key or value converter.

    Args:
        class_name: a Java class name, its last part (``JsonConverter``, ``Json``) or the name of an entry point.
        config: its properties without the ``key.converter.`` or ``value.converter.`` before them.
        is_key: whether it is for keys.
        property_name: the property that named it, for messages; by default ``key.converter`` or ``value.converter``.

    Raises:
        ConfigInvalid: there is no such converter, or an option is wrong.
    """
    name = property_name or ("key.converter" if is_key else "value.converter")
    entry = find_converter(class_name, name, headers=False)
    try:
        converter: Converter = entry.load()({**config, "converter.type": "key" if is_key else "value"}, is_key=is_key)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{name} {class_name}: {error}") from None
    return converter


def create_header_converter(
    class_name: str, config: Mapping[str, str], *, property_name: str = "header.converter"
) -> HeaderConverter:
    """The configured header converter; arguments and errors as in ``create_converter``."""
    entry = find_converter(class_name, property_name, headers=True)
    try:
        header_converter: HeaderConverter = entry.load()({**config, "converter.type": "header"}, is_key=False)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{property_name} {class_name}: {error}") from None
    return header_converter


def find_converter(class_name: str, property_name: str, *, headers: bool) -> EntryPoint:
    """The converter that ``class_name`` names; errors as ``create_converter``. Imports converters only to find a Java name.

    Args:
        class_name: see ``create_converter``; upper and lower case are the same.
        property_name: the property that named it, for messages.
        headers: whether it must convert headers, not keys and values.
    """
    candidates = list_entries(ENTRY_POINTS)
    if headers:  # another package's converter need not say twice that it converts both
        candidates = [*list_entries(HEADER_ENTRY_POINTS), *(entry for entry in candidates if not is_own(entry))]
    name = class_name.strip().lower()
    match = next((entry for entry in candidates if name in _short_names(entry)), None) or next(
        (entry for entry in candidates if name in map(str.lower, _class_aliases(entry))), None
    )
    if match is not None:
        return match
    available = ", ".join(next(iter(_class_aliases(entry)), entry.value.partition(":")[2]) for entry in candidates)
    raise ConfigInvalid(
        f"Invalid value {class_name} for configuration {property_name}: there is no such converter here. "
        f"Available: {available}. A converter of your own is found when its package declares an entry point in "
        f"the group {ENTRY_POINTS}."
    )


def _short_names(entry: EntryPoint) -> frozenset[str]:
    """The names that need no import, in lower case: as in Connect, a class's last part, also without ``Converter``."""
    names = (entry.name, entry.value.partition(":")[2])
    return frozenset(
        name.lower() for name in (*names, *(name.removesuffix("Converter") for name in names), entry.value)
    )


def _class_aliases(entry: EntryPoint) -> tuple[str, ...]:
    """The names that its class declares; none if it can't be imported, which the plugin registry reports."""
    try:
        return tuple(getattr(entry.load(), "aliases", ()))
    except Exception:  # noqa: BLE001 - foreign code
        return ()


class EncoderCache:
    """Bounded cache of encoders by topic and schema: by identity of the schema object first, then by its content.

    Args:
        size: how many to keep; the least recently used goes first.
    """

    __slots__ = ("_by_content", "_by_identity", "_size")

    def __init__(self, size: int) -> None:
        self._size = max(1, size)
        # The entry also holds the schema: as long as it does, no other object can get its id.
        self._by_identity: dict[tuple[str, int], tuple[Schema | None, Encode]] = {}
        self._by_content: OrderedDict[tuple[str, Schema | None], Encode] = OrderedDict()

    def get(self, topic: str, schema: Schema | None) -> Encode | None:
        """The encoder for the pair, or None."""
        entry = self._by_identity.get((topic, id(schema)))
        if entry is not None:
            return entry[1]
        encoder = self._by_content.get((topic, schema))
        if encoder is not None:
            self._by_content.move_to_end((topic, schema))
            self._remember_encoder(topic, schema, encoder)
        return encoder

    def put(self, topic: str, schema: Schema | None, encoder: Encode) -> Encode:
        """Keep ``encoder`` for the pair and return it."""
        if len(self._by_content) >= self._size:
            self._by_content.popitem(last=False)
        self._by_content[topic, schema] = encoder
        self._remember_encoder(topic, schema, encoder)
        return encoder

    def _remember_encoder(self, topic: str, schema: Schema | None, encoder: Encode) -> None:
        if len(self._by_identity) >= self._size:
            self._by_identity.clear()  # refilled from the other map at the cost of one comparison each
        self._by_identity[topic, id(schema)] = (schema, encoder)


def type_name(value: object) -> str:
    """How messages name a value's Python type."""
    return "null" if value is None else type(value).__name__


def bad_value(path: str, expected: str, value: object) -> Skippable:
    """The error for a value of the wrong type. The value itself stays out of it: it may be a secret."""
    return Skippable(
        f"Cannot convert {path or 'the value'}: its schema says {expected}, but it is {type_name(value)}. "
        "Make the connector or the transform that built it yield what the schema says."
    )


def out_of_range(path: str, expected: str) -> Skippable:
    """The error for a number that its schema's type can't hold."""
    return Skippable(
        f"Cannot convert {path or 'the value'}: the number does not fit into {expected}. "
        "Give the field a wider type, or correct the value at its source."
    )


def missing_value(path: str, expected: str) -> Skippable:
    """The error for null where the schema allows none."""
    return Skippable(
        f"Conversion error: null value for {path or 'a value'}, which is required ({expected}) and has no default "
        "value. Make its schema optional, or fill it in."
    )


def member_path(path: str, name: str) -> str:
    """The path of a field inside the struct at ``path``."""
    return f"{path}.{name}" if path else name
