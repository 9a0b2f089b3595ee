"""Which transforms and predicates there are, and how a name in a configuration finds one."""
from __future__ import annotations

from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.errors import ConfigInvalid
from worker.transforms.base import Predicate, Side, Transform
from worker.transforms.event_router import EventRouter
from worker.transforms.extract_new_record_state import ExtractNewRecordState
from worker.transforms.filter import Filter
from worker.transforms.insert_field import InsertField
from worker.transforms.mask_columns import MaskColumns
from worker.transforms.mask_field import MaskField
from worker.transforms.predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from worker.transforms.regex_router import RegexRouter
from worker.transforms.replace_field import ReplaceField
from worker.transforms.scylla_extract_new_record_state import ScyllaExtractNewRecordState
from worker.transforms.scylla_flatten_columns import ScyllaFlattenColumns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Groups of entry points where other packages declare theirs: the name is what a configuration may call it.
TRANSFORM_ENTRY_POINTS: Final = "millrace.transforms"
PREDICATE_ENTRY_POINTS: Final = "millrace.predicates"

#: The built-in transforms by their short names.
TRANSFORMS: Final[Mapping[str, type[Transform]]] = MappingProxyType({
    kind.__name__: kind for kind in (EventRouter, ExtractNewRecordState, Filter, InsertField, MaskColumns, MaskField,
                                     RegexRouter, ReplaceField, ScyllaExtractNewRecordState, ScyllaFlattenColumns)})
#: The built-in predicates by their short names.
PREDICATES: Final[Mapping[str, type[Predicate]]] = MappingProxyType({
    kind.__name__: kind for kind in (HasHeaderKey, RecordIsTombstone, TopicNameMatches)})


class TransformType(NamedTuple):
    """What a ``transforms.X.type`` stands for."""

    kind: type[Transform]
    side: Side
    class_name: str


class PredicateType(NamedTuple):
    """What a ``predicates.X.type`` stands for."""

    kind: type[Predicate]
    class_name: str


class NotATransform(ConfigInvalid):
    """The name is that of a predicate."""


class NotAPredicate(ConfigInvalid):
    """The name is that of a transform."""


def _canonical(kind: type[Transform | Predicate]) -> str:
    return kind.aliases[0] if kind.aliases else f"{kind.__module__}.{kind.__qualname__}"


def _names(short: str, kind: type[Transform | Predicate]) -> set[str]:
    return {short, *kind.aliases, f"{kind.__module__}.{kind.__qualname__}", f"{kind.__module__}:{kind.__qualname__}"}


def _declared(group: str) -> Iterator[tuple[str, type]]:
    """What installed packages declare; reads package metadata (blocks for some milliseconds) and imports the packages."""
    for entry in entry_points(group=group):
        kind = entry.load()
        if isinstance(kind, type):
            yield entry.name, kind


def _all_transforms() -> Iterator[tuple[str, type[Transform]]]:
    yield from TRANSFORMS.items()
    yield from ((name, kind) for name, kind in _declared(TRANSFORM_ENTRY_POINTS) if issubclass(kind, Transform))


def _all_predicates() -> Iterator[tuple[str, type[Predicate]]]:
    yield from PREDICATES.items()
    yield from ((name, kind) for name, kind in _declared(PREDICATE_ENTRY_POINTS) if issubclass(kind, Predicate))


def _variants(kind: type[Transform]) -> list[TransformType]:
    name = _canonical(kind)
    if not kind.sided:
        return [TransformType(kind, Side.VALUE, name)]
    return [TransformType(kind, side, f"{name}${side}") for side in Side]


def transform_types() -> list[TransformType]:
    """Every transform there is, each side of a sided one, by class name. Blocks for some milliseconds."""
    return sorted((found for _, kind in _all_transforms() for found in _variants(kind)), key=lambda found: found.class_name)


def predicate_types() -> list[PredicateType]:
    """Every predicate there is, by class name. Blocks for some milliseconds."""
    return sorted((PredicateType(kind, _canonical(kind)) for _, kind in _all_predicates()), key=lambda found: found.class_name)


def resolve_transform(name: str) -> TransformType:
    """The transform that ``name`` means: a Java class name, a short name, or an entry point's.

    Built-in ones are found without blocking.

    Raises:
        NotATransform: it is a predicate.
        ConfigInvalid: there is none, or its Key or Value must be chosen.
    """
    outer, separator, suffix = name.rpartition("$")
    for short, kind in _all_transforms():
        names = _names(short, kind)
        if not kind.sided and name in names:
            return TransformType(kind, Side.VALUE, _canonical(kind))
        if kind.sided and separator and outer in names and suffix in tuple(Side):
            return TransformType(kind, Side(suffix), f"{_canonical(kind)}${suffix}")
        if kind.sided and name in names:
            choices = ", ".join(found.class_name for found in _variants(kind))
            raise ConfigInvalid(f"This class is abstract and cannot be created. Did you mean {choices}?")
    if any(name in _names(short, kind) for short, kind in _all_predicates()):
        raise NotATransform(f"Class class {name} does not implement the Transformation interface")
    available = ", ".join(found.class_name for found in transform_types())
    raise ConfigInvalid(f"Class {name} could not be found. Available transformations: {available}")


def resolve_predicate(name: str) -> PredicateType:
    """The predicate that ``name`` means: a Java class name, a short name, or an entry point's.

    Built-in ones are found without blocking.

    Raises:
        NotAPredicate: it is a transform.
        ConfigInvalid: there is none.
    """
    for short, kind in _all_predicates():
        if name in _names(short, kind):
            return PredicateType(kind, _canonical(kind))
    if any(name.rpartition("$")[0] in _names(short, kind) or name in _names(short, kind) for short, kind in _all_transforms()):
        raise NotAPredicate(f"Class class {name} does not implement the Predicate interface")
    available = ", ".join(found.class_name for found in predicate_types())
    raise ConfigInvalid(f"Class {name} could not be found. Available predicates: {available}")
