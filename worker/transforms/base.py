"""The contract of transforms and predicates, and what those that work on one side of a record share.

A transform is declared by a class and compiled once per task: ``compile`` returns a function that takes a record and gives
the changed one, the same one, or None to drop it. A record that comes in is never changed, and neither are its values: they
may be shared with other records. Only the parts that differ are copied (``copy_record``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

from connectors.api import SourceRecord
from connectors.errors import Skippable
from connectors.options import ConfigKey, ConfigType, invalid
from connectors.schema import Field, Schema, Type
from worker.transforms.java.conversions import class_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.options import Config, ConfigDef
    from worker.transforms.rewriting import SymbolicRecord

#: A compiled transform: returns the record to continue with, or None to drop it.
RecordFunction = Callable[[SourceRecord], SourceRecord | None]
#: A compiled predicate.
RecordTest = Callable[[SourceRecord], bool]
#: The new value of one side of a record; it must leave the old one alone.
ValueFunction = Callable[[Any, SourceRecord], Any]
#: What a transform does for one schema: the schema that results, and how values get there.
SideBuilder = Callable[[Schema | None], tuple[Schema | None, ValueFunction]]

#: Schemas one compiled transform keeps at a time; beyond it the oldest is compiled again when it comes back.
SCHEMA_CACHE_SIZE: Final = 1024

#: A shallow copy of a record, which may then be changed; much faster than a constructor call.
copy_record: Final = cast("Callable[[SourceRecord], SourceRecord]", SourceRecord.__copy__)  # type: ignore[attr-defined]

#: An option of many of Kafka Connect's transforms.
REPLACE_NULL_KEY: Final = ConfigKey(
    name="replace.null.with.default",
    type=ConfigType.BOOLEAN,
    default=True,
    doc="Whether a field that is null gets its schema's default, if it has one.",
)

T = TypeVar("T")
K = TypeVar("K")


class Side(StrEnum):
    """The part of a record that a transform works on; the value is the suffix of the Java class."""

    KEY = "Key"
    VALUE = "Value"


class Transform(ABC):
    """One configured transformation. One instance per task and place in the chain.

    The constructor gets the parsed options and raises ``ConfigInvalid`` for what single options can't tell.
    """

    #: Version of the behaviour, as ``GET /connector-plugins`` shows it and ``plugin.version`` asks for it.
    version: ClassVar[str]
    #: All options, without ``predicate`` and ``negate``, which every transform has.
    config_def: ClassVar[ConfigDef]
    #: Values of ``transforms.X.type`` that mean this class; the first is its canonical name.
    #: A sided transform names its outer class here: ``$Key`` and ``$Value`` are understood for each.
    aliases: ClassVar[tuple[str, ...]] = ()
    #: Whether it comes in a ``$Key`` and a ``$Value`` variant.
    sided: ClassVar[bool] = False

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        self.config = config
        self.side = side

    @abstractmethod
    def compile(self) -> RecordFunction:
        """The function that is called for each record. It must not block."""

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """Apply the function to all records of a table; None: each one has to be there for that.

        Raises:
            Exception: the same: for the general path to report, or something that can't be done so.
        """
        del record
        return None


class Predicate(ABC):
    """One configured condition on records."""

    version: ClassVar[str]
    config_def: ClassVar[ConfigDef]
    #: Values of ``predicates.X.type`` that mean this class; the first is its canonical name.
    aliases: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def compile(self) -> RecordTest:
        """The function that is called for each record. It must not block."""


def remember(cache: dict[K, T], key: K, value: T, limit: int = SCHEMA_CACHE_SIZE) -> None:
    """Put a new entry into a cache; the oldest goes if there are as many as ``limit``."""
    if len(cache) >= limit:
        del cache[next(iter(cache))]
    cache[key] = value


@dataclass(slots=True)
class SchemaCache(Generic[T]):
    """Objects that were built for a schema, found by the schema's identity, else by its content.

    Equal schemas give the same product, so that a source which makes a new schema object per record still yields one
    schema object downstream. ``by_id`` is public so that a caller on the hot path can look there without a call.
    """

    build: Callable[[Schema | None], T]
    limit: int
    by_id: dict[int, tuple[Schema | None, T]]
    by_content: dict[Schema | None, T]

    def __init__(self, build: Callable[[Schema | None], T], limit: int = SCHEMA_CACHE_SIZE) -> None:
        self.build = build
        self.limit = limit
        self.by_id = {}
        self.by_content = {}

    def add(self, schema: Schema | None) -> tuple[Schema | None, T]:
        """The entry for a schema object that is not in ``by_id``: (that object, what was built).

        The entry holds the schema, so an id in ``by_id`` can't come to mean another object.
        """
        if schema in self.by_content:
            product = self.by_content[schema]
        else:
            product = self.build(schema)
            if len(self.by_content) >= self.limit:
                del self.by_content[next(iter(self.by_content))]
            self.by_content[schema] = product
        if len(self.by_id) >= self.limit:
            del self.by_id[next(iter(self.by_id))]
        entry = (schema, product)
        self.by_id[id(schema)] = entry
        return entry

    def get(self, schema: Schema | None) -> T:
        """Return the object that belongs to ``schema``, built now if necessary."""
        entry = self.by_id.get(id(schema))
        return (entry or self.add(schema))[1]


def by_schema(side: Side, build: SideBuilder, *, skip_null: bool) -> RecordFunction:
    """A record function that changes one side by what ``build`` gives for its schema.

    Args:
        side: the part of the record that is changed.
        build: called once per schema.
        skip_null: whether records with a null on that side pass unchanged.
    """
    cache: SchemaCache[tuple[Schema | None, ValueFunction]] = SchemaCache(build)
    find = cache.by_id.get
    add = cache.add
    # What was found last: most records have the schema of the one before.
    last: object = cache
    new_schema: Schema | None
    convert: ValueFunction

    def change_value(record: SourceRecord) -> SourceRecord:
        nonlocal last, new_schema, convert
        value = record.value
        if value is None and skip_null:
            return record
        schema = record.value_schema
        if schema is not last:
            _, (new_schema, convert) = find(id(schema)) or add(schema)
            last = schema
        result = copy_record(record)
        result.value = convert(value, record)
        result.value_schema = new_schema
        return result

    def change_key(record: SourceRecord) -> SourceRecord:
        nonlocal last, new_schema, convert
        key = record.key
        if key is None and skip_null:
            return record
        schema = record.key_schema
        if schema is not last:
            _, (new_schema, convert) = find(id(schema)) or add(schema)
            last = schema
        result = copy_record(record)
        result.key = convert(key, record)
        result.key_schema = new_schema
        return result

    return change_value if side is Side.VALUE else change_key


def non_empty_list(name: str, value: Sequence[str] | None) -> str | None:
    """Validator: a list of at least one item."""
    return None if value else invalid(name, value, "Empty list")


def not_a_map(value: Any, purpose: str) -> Skippable:
    """Connect's complaint about a schemaless value that is no map."""
    return Skippable(f"Only Map objects supported in absence of schema for [{purpose}], found: {class_name(value)}")


def not_a_struct(value: Any, schema: Schema | None, purpose: str) -> Skippable:
    """Connect's complaint about a value that is no struct."""
    return Skippable(f"Only Struct objects supported for [{purpose}], found: {class_name(value, schema)}")


def struct_only(schema: Schema, purpose: str) -> ValueFunction:
    """Return a function for a schema that is not a STRUCT: it refuses all values."""

    def refuse(value: Any, record: SourceRecord) -> Any:
        del record
        raise not_a_struct(value, schema, purpose)

    return refuse


def refusing(error: Skippable) -> ValueFunction:
    """Return a function for values that can't be changed: it refuses them with the message of ``error``."""
    message = str(error)

    def refuse(value: Any, record: SourceRecord) -> Any:
        del value, record
        raise Skippable(message)

    return refuse


def is_struct(schema: Schema) -> bool:
    """Whether values of ``schema`` have fields."""
    return schema.type is Type.STRUCT


def null_refused(field: Field) -> Skippable:
    """Connect's complaint about a null in a field that is not optional."""
    return Skippable(
        f'Invalid value: null used for required field: "{field.name}", schema type: {field.schema.type.name}'
    )


def struct_copier(schema: Schema, *, replace_null: bool) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that copies a struct's fields as Connect's ``replace.null.with.default`` asks.

    Args:
        schema: the struct's schema.
        replace_null: put a field's default where it is null; else a null in a required field that has a default is an error,
            as in Connect. (A null in a required field without default is left to the converter, which refuses it.)
    """
    with_default = [field for field in schema.fields if field.schema.default is not None]
    if not replace_null:
        with_default = [field for field in with_default if not field.schema.optional]
    if not with_default:
        return dict
    if replace_null:
        defaults = [(field.name, field.schema.default) for field in with_default]

        def fill(value: dict[str, Any]) -> dict[str, Any]:
            result = dict(value)
            for name, default in defaults:
                if result.get(name) is None:
                    result[name] = default
            return result

        return fill
    required = [(field.name, field) for field in with_default]

    def check(value: dict[str, Any]) -> dict[str, Any]:
        for name, field in required:
            if value.get(name) is None:
                raise null_refused(field)
        return dict(value)

    return check


def with_fields(schema: Schema, fields: Sequence[Field]) -> Schema:
    """A struct schema with the name, version, doc and parameters of ``schema`` and the given fields.

    As in Connect the result is required and has no default, whatever ``schema`` was.

    Raises:
        Skippable: two fields have the same name.
    """
    names: set[str] = set()
    for field in fields:
        if field.name in names:
            raise Skippable(f"Cannot create field because of field name duplication {field.name}")
        names.add(field.name)
    return replace(schema, optional=False, default=None, fields=tuple(fields))
