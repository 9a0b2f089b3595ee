"""Which transforms and predicates there are, and how a name in a configuration finds one."""

from __future__ import annotations

import logging
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.entry_points import entries, own_entries
from connectors.errors import ConfigInvalid
from worker.transforms.base import Predicate, Side, Transform
from worker.transforms.versions import in_range, version_key

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("worker.plugins")

#: Groups of entry points: the name is what a configuration may call it.
TRANSFORM_ENTRY_POINTS: Final = "millrace.transforms"
PREDICATE_ENTRY_POINTS: Final = "millrace.predicates"


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


def _declared(group: str) -> tuple[tuple[str, type], ...]:
    """What packages declare and can be imported, Millrace's own first; read once for each ``sys.path``."""
    return _loaded(group, tuple(sys.path))


@lru_cache(maxsize=8)
def _loaded(group: str, path: tuple[str, ...]) -> tuple[tuple[str, type], ...]:
    del path
    found = []
    for entry in entries(group):
        try:
            kind = entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: the plugin registry reports it as a failure
            _log.debug("The plugin %s can't be used: %r", entry.value, error)
            continue
        if isinstance(kind, type):
            found.append((entry.name, kind))
    return tuple(found)


def builtin_stages() -> dict[str, type[Transform | Predicate]]:
    """Millrace's own transforms and predicates by their short names. Blocks for some milliseconds the first time."""
    return {
        name: entry.load()
        for group in (TRANSFORM_ENTRY_POINTS, PREDICATE_ENTRY_POINTS)
        for name, entry in own_entries(group).items()
    }


def declared_transforms() -> Iterator[tuple[str, type[Transform]]]:
    """Every transform class with its short name, the built-in ones first. Blocks for some milliseconds the first time."""
    yield from ((name, kind) for name, kind in _declared(TRANSFORM_ENTRY_POINTS) if issubclass(kind, Transform))


def declared_predicates() -> Iterator[tuple[str, type[Predicate]]]:
    """Every predicate class with its short name, the built-in ones first. Blocks for some milliseconds the first time."""
    yield from ((name, kind) for name, kind in _declared(PREDICATE_ENTRY_POINTS) if issubclass(kind, Predicate))


def _rank(kind: type[Transform | Predicate], wanted: str | None) -> tuple[bool, object]:
    """Of several classes that a name means the first of the highest rank is taken: the latest version that is wanted."""
    return in_range(wanted, kind.version), version_key(kind.version)


def _variants(kind: type[Transform]) -> list[TransformType]:
    name = _canonical(kind)
    if not kind.sided:
        return [TransformType(kind, Side.VALUE, name)]
    return [TransformType(kind, side, f"{name}${side}") for side in Side]


def transform_types() -> list[TransformType]:
    """Every transform there is, each side of a sided one, by class name. Blocks for some milliseconds."""
    return sorted(
        (found for _, kind in declared_transforms() for found in _variants(kind)), key=lambda found: found.class_name
    )


def predicate_types() -> list[PredicateType]:
    """Every predicate there is, by class name. Blocks for some milliseconds."""
    return sorted(
        (PredicateType(kind, _canonical(kind)) for _, kind in declared_predicates()), key=lambda found: found.class_name
    )


def resolve_transform(name: str, wanted: str | None = None) -> TransformType:
    """The transform that ``name`` means: a Java class name, a short name, or an entry point's.

    Args:
        name: what ``transforms.X.type`` says.
        wanted: ``transforms.X.plugin.version``, for where there are several versions; it is not checked here.

    Raises:
        NotATransform: it is a predicate.
        ConfigInvalid: there is none, or its Key or Value must be chosen.
    """
    outer, separator, suffix = name.rpartition("$")
    matches: list[TransformType] = []
    for short, kind in declared_transforms():
        names = _names(short, kind)
        if not kind.sided and name in names:
            matches.append(TransformType(kind, Side.VALUE, _canonical(kind)))
        elif kind.sided and separator and outer in names and suffix in tuple(Side):
            matches.append(TransformType(kind, Side(suffix), f"{_canonical(kind)}${suffix}"))
        elif kind.sided and name in names:
            choices = ", ".join(found.class_name for found in _variants(kind))
            raise ConfigInvalid(f"This class is abstract and cannot be created. Did you mean {choices}?")
    if matches:
        return max(matches, key=lambda found: _rank(found.kind, wanted))
    if any(name in _names(short, kind) for short, kind in declared_predicates()):
        raise NotATransform(f"Class class {name} does not implement the Transformation interface")
    available = ", ".join(found.class_name for found in transform_types())
    raise ConfigInvalid(f"Class {name} could not be found. Available transformations: {available}")


def resolve_predicate(name: str, wanted: str | None = None) -> PredicateType:
    """The predicate that ``name`` means: a Java class name, a short name, or an entry point's.

    Args:
        name: what ``predicates.X.type`` says.
        wanted: ``predicates.X.plugin.version``, for where there are several versions; it is not checked here.

    Raises:
        NotAPredicate: it is a transform.
        ConfigInvalid: there is none.
    """
    matches = [
        PredicateType(kind, _canonical(kind)) for short, kind in declared_predicates() if name in _names(short, kind)
    ]
    if matches:
        return max(matches, key=lambda found: _rank(found.kind, wanted))
    if any(
        name.rpartition("$")[0] in _names(short, kind) or name in _names(short, kind)
        for short, kind in declared_transforms()
    ):
        raise NotAPredicate(f"Class class {name} does not implement the Predicate interface")
    available = ", ".join(found.class_name for found in predicate_types())
    raise ConfigInvalid(f"Class {name} could not be found. Available predicates: {available}")
