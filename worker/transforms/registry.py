"""The available transforms and predicates, and how a name in a configuration finds one."""

from __future__ import annotations

import logging
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.entry_points import list_entries, own_entries
from connectors.errors import ConfigInvalid
from worker.transforms.base import Predicate, Side, Transform
from worker.transforms.java.versions import in_range, version_key

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("worker.plugins")

#: Groups of entry points: the name is what a configuration may call it.
TRANSFORM_ENTRY_POINTS: Final = "millrace.transforms"
PREDICATE_ENTRY_POINTS: Final = "millrace.predicates"


class TransformType(NamedTuple):
    """The transform that a ``transforms.X.type`` names."""

    kind: type[Transform]
    side: Side
    class_name: str


class PredicateType(NamedTuple):
    """The predicate that a ``predicates.X.type`` names."""

    kind: type[Predicate]
    class_name: str


class NotATransform(ConfigInvalid):
    """The name is that of a predicate."""


class NotAPredicate(ConfigInvalid):
    """The name is that of a transform."""


def _canonical_name(kind: type[Transform | Predicate]) -> str:
    return kind.aliases[0] if kind.aliases else f"{kind.__module__}.{kind.__qualname__}"


def _all_names(short: str, kind: type[Transform | Predicate]) -> set[str]:
    return {short, *kind.aliases, f"{kind.__module__}.{kind.__qualname__}", f"{kind.__module__}:{kind.__qualname__}"}


def _declared_kinds(group: str) -> tuple[tuple[str, type], ...]:
    """Return the declared plugins that can be imported, Millrace's own first; read once for each ``sys.path``."""
    return _load_kinds(group, tuple(sys.path))


@lru_cache(maxsize=8)
def _load_kinds(group: str, path: tuple[str, ...]) -> tuple[tuple[str, type], ...]:
    del path
    kinds = []
    for entry in list_entries(group):
        try:
            kind = entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: the plugin registry reports it as a failure
            _log.debug("The plugin %s can't be used: %r", entry.value, error)
            continue
        if isinstance(kind, type):
            kinds.append((entry.name, kind))
    return tuple(kinds)


def builtin_stages() -> dict[str, type[Transform | Predicate]]:
    """Millrace's own transforms and predicates by their short names. Blocks for some milliseconds the first time."""
    return {
        name: entry.load()
        for group in (TRANSFORM_ENTRY_POINTS, PREDICATE_ENTRY_POINTS)
        for name, entry in own_entries(group).items()
    }


def declared_transforms() -> Iterator[tuple[str, type[Transform]]]:
    """Every transform class with its short name, the built-in ones first. Blocks for some milliseconds the first time."""
    yield from ((name, kind) for name, kind in _declared_kinds(TRANSFORM_ENTRY_POINTS) if issubclass(kind, Transform))


def declared_predicates() -> Iterator[tuple[str, type[Predicate]]]:
    """Every predicate class with its short name, the built-in ones first. Blocks for some milliseconds the first time."""
    yield from ((name, kind) for name, kind in _declared_kinds(PREDICATE_ENTRY_POINTS) if issubclass(kind, Predicate))


def _rank_kind(kind: type[Transform | Predicate], version: str | None) -> tuple[bool, object]:
    """Of several classes that a name means the first of the highest rank is taken: the latest version that is wanted."""
    return in_range(version, kind.version), version_key(kind.version)


def _list_variants(kind: type[Transform]) -> list[TransformType]:
    name = _canonical_name(kind)
    if not kind.sided:
        return [TransformType(kind, Side.VALUE, name)]
    return [TransformType(kind, side, f"{name}${side}") for side in Side]


def transform_types() -> list[TransformType]:
    """Every transform there is, each side of a sided one, by class name. Blocks for some milliseconds."""
    return sorted(
        (variant for _, kind in declared_transforms() for variant in _list_variants(kind)),
        key=lambda transform_type: transform_type.class_name,
    )


def predicate_types() -> list[PredicateType]:
    """Every predicate there is, by class name. Blocks for some milliseconds."""
    return sorted(
        (PredicateType(kind, _canonical_name(kind)) for _, kind in declared_predicates()),
        key=lambda predicate_type: predicate_type.class_name,
    )


def resolve_transform(name: str, version: str | None = None) -> TransformType:
    """Return the transform that ``name`` means: a Java class name, a short name, or an entry point's.

    Args:
        name: the value of ``transforms.X.type``.
        version: ``transforms.X.plugin.version``, for where there are several versions; it is not checked here.

    Raises:
        NotATransform: it is a predicate.
        ConfigInvalid: it does not exist, or its Key or Value must be chosen.
    """
    outer, separator, suffix = name.rpartition("$")
    matches: list[TransformType] = []
    for short, kind in declared_transforms():
        names = _all_names(short, kind)
        if not kind.sided and name in names:
            matches.append(TransformType(kind, Side.VALUE, _canonical_name(kind)))
        elif kind.sided and separator and outer in names and suffix in tuple(Side):
            matches.append(TransformType(kind, Side(suffix), f"{_canonical_name(kind)}${suffix}"))
        elif kind.sided and name in names:
            choices = ", ".join(variant.class_name for variant in _list_variants(kind))
            raise ConfigInvalid(f"This class is abstract and cannot be created. Did you mean {choices}?")
    if matches:
        return max(matches, key=lambda variant: _rank_kind(variant.kind, version))
    if any(name in _all_names(short, kind) for short, kind in declared_predicates()):
        raise NotATransform(f"Class class {name} does not implement the Transformation interface")
    available = ", ".join(variant.class_name for variant in transform_types())
    raise ConfigInvalid(f"Class {name} could not be found. Available transformations: {available}")


def resolve_predicate(name: str, version: str | None = None) -> PredicateType:
    """Return the predicate that ``name`` means: a Java class name, a short name, or an entry point's.

    Args:
        name: the value of ``predicates.X.type``.
        version: ``predicates.X.plugin.version``, for where there are several versions; it is not checked here.

    Raises:
        NotAPredicate: it is a transform.
        ConfigInvalid: it does not exist.
    """
    matches = [
        PredicateType(kind, _canonical_name(kind))
        for short, kind in declared_predicates()
        if name in _all_names(short, kind)
    ]
    if matches:
        return max(matches, key=lambda candidate: _rank_kind(candidate.kind, version))
    if any(
        name.rpartition("$")[0] in _all_names(short, kind) or name in _all_names(short, kind)
        for short, kind in declared_transforms()
    ):
        raise NotAPredicate(f"Class class {name} does not implement the Predicate interface")
    available = ", ".join(candidate.class_name for candidate in predicate_types())
    raise ConfigInvalid(f"Class {name} could not be found. Available predicates: {available}")
