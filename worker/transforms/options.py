"""The options of a connector that come from its transforms and predicates, and what is wrong with them.

Names, groups, order and texts are those of Kafka Connect 4.1's ``validate`` answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from connectors.errors import ConfigInvalid
from connectors.options import ConfigKey, ConfigProblem, ConfigType, Importance, Validator, Width, invalid
from worker.transforms.registry import (
    NotAPredicate,
    NotATransform,
    predicate_types,
    resolve_predicate,
    resolve_transform,
    transform_types,
)
from worker.transforms.versions import in_range, not_found, range_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.transforms.registry import PredicateType, TransformType

TRANSFORMS: Final = "transforms"
PREDICATES: Final = "predicates"

_IMPORTANCE: Final = tuple(Importance)


class Known(Protocol):
    """All plugins there are, those that this process does not have included."""

    def versions(self, kind: str, name: str) -> Sequence[str]:
        """The versions of a transform or predicate, the latest last."""

    def class_names(self, kind: str) -> Sequence[str]:
        """Names of all transforms or predicates."""


def aliases(raw: Mapping[str, str], name: str) -> list[str]:
    """The items of ``transforms`` or ``predicates``, each once, in order."""
    text = (raw.get(name) or "").strip()
    return list(dict.fromkeys(item.strip() for item in text.split(","))) if text else []


def _unique(name: str, value: Sequence[str] | None) -> str | None:
    if value is not None and len(set(value)) < len(value):
        return invalid(name, value, "Duplicate alias provided.")
    return None


#: The two options that every connector has; the worker puts them among its common ones.
PIPELINE_KEYS: Final = (
    ConfigKey(
        name=TRANSFORMS,
        type=ConfigType.LIST,
        default=[],
        validator=_unique,
        importance=Importance.LOW,
        group="Transforms",
        order=12,
        width=Width.LONG,
        display_name="Transforms",
        example="unwrap,route",
        doc="Aliases for the transformations to be applied to records.",
    ),
    ConfigKey(
        name=PREDICATES,
        type=ConfigType.LIST,
        default=[],
        validator=_unique,
        importance=Importance.LOW,
        group="Predicates",
        order=13,
        width=Width.LONG,
        display_name="Predicates",
        example="isTombstone",
        doc="Aliases for the predicates used by transformations.",
    ),
)


class _Part(NamedTuple):
    """What aliases stand for.

    Attributes:
        option: the option that lists them.
        noun: what texts and ``Known`` call one.
        resolve: finds the class that a name means, in the version that is wanted.
        types: all classes that this process has.
    """

    option: str
    noun: str
    resolve: Callable[[str, str | None], TransformType | PredicateType]
    types: Callable[[], Sequence[TransformType | PredicateType]]


_TRANSFORM: Final = _Part(TRANSFORMS, "transformation", resolve_transform, transform_types)
_PREDICATE: Final = _Part(PREDICATES, "predicate", resolve_predicate, predicate_types)


def _type_key(part: _Part, alias: str, group: str, validator: Validator, known: Known | None) -> ConfigKey:
    def names() -> Sequence[str]:
        return [each.class_name for each in part.types()] if known is None else known.class_names(part.noun)

    return ConfigKey(
        name=f"{part.option}.{alias}.type",
        type=ConfigType.CLASS,
        doc=f"Class for the '{alias}' {part.noun}.",
        importance=Importance.HIGH,
        group=group,
        order=0,
        width=Width.LONG,
        display_name=f"{part.noun.capitalize()} type for {alias}",
        validator=validator,
        recommender=lambda _name, _raw: (names(), True),
    )


def _version_complaint(found: tuple[str, str] | None, wanted: str | None, versions: Sequence[str]) -> str | None:
    """What is wrong with a ``plugin.version`` for a class and its version, if anything; ``versions`` are all there are."""
    if found is None:
        return range_problem(wanted)
    return None if in_range(wanted, found[1]) else not_found(found[0], wanted, versions)


def _version_key(
    part: _Part, alias: str, group: str, default: str | None, versions: Sequence[str], misversioned: str | None
) -> ConfigKey:
    return ConfigKey(
        name=f"{part.option}.{alias}.plugin.version",
        type=ConfigType.STRING,
        default=default,
        validator=lambda _name, _value: misversioned,
        doc=f"Version of the '{alias}' {part.noun}.",
        importance=Importance.HIGH,
        group=group,
        order=1,
        width=Width.LONG,
        display_name=f"{part.noun.capitalize()} version for {alias}",
        recommender=lambda _name, _raw: (versions, True),
    )


def _versions(known: Known | None, noun: str, found: tuple[str, str] | None) -> Sequence[str]:
    if found is None:
        return []
    return (known.versions(noun, found[0]) if known is not None else ()) or [found[1]]


def _stage_keys() -> list[ConfigKey]:
    return [
        ConfigKey(
            name="predicate",
            type=ConfigType.STRING,
            default=None,
            doc="The alias of a predicate used to determine whether to apply this transformation.",
        ),
        ConfigKey(
            name="negate",
            type=ConfigType.BOOLEAN,
            default=False,
            doc="Whether the configured predicate should be negated.",
        ),
    ]


def _embedded(keys: Sequence[ConfigKey], prefix: str, group: str) -> list[ConfigKey]:
    """``keys`` under ``prefix``, in Kafka's order: required ones, then by importance and name.

    Validators are called with the name without the prefix, as Kafka does, so that the texts are equal.
    """
    in_order = sorted(keys, key=lambda key: (not key.required, _IMPORTANCE.index(key.importance), key.name))
    return [
        replace(
            key,
            name=prefix + key.name,
            group=group,
            order=number,
            display_name=key.display_name or key.name,
            aliases=tuple(prefix + alias for alias in key.aliases),
            validator=None if key.validator is None else _named(key.validator, key.name),
        )
        for number, key in enumerate(in_order, start=2)
    ]


def _named(validator: Validator, name: str) -> Validator:
    return lambda _name, value: validator(name, value)


def _part_keys(part: _Part, raw: Mapping[str, str], alias: str, known: Known | None) -> list[ConfigKey]:
    """The options of one transform or predicate."""
    prefix, group = f"{part.option}.{alias}.", f"{part.option.capitalize()}: {alias}"
    found: tuple[str, str] | None = None
    own: list[ConfigKey] = []
    wanted = raw.get(f"{prefix}plugin.version")
    try:
        resolved = part.resolve(raw.get(f"{prefix}type", "").strip(), wanted)
    except ConfigInvalid:
        pass  # the type's own check says so
    else:
        found, own = (resolved.class_name, resolved.kind.version), list(resolved.kind.config_def.keys.values())
    versions = _versions(known, part.noun, found)
    misversioned = _version_complaint(found, wanted, versions) if f"{prefix}type" in raw else None
    negates_nothing = part is _TRANSFORM and f"{prefix}negate" in raw and f"{prefix}predicate" not in raw

    def check(name: str, value: str | None) -> str | None:
        if negates_nothing:
            return (
                f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate "
                "to be negated."
            )
        return _type_complaint(name, value, part.resolve, wanted) or (misversioned if found is not None else None)

    # Unless one is asked for, the latest is used that fits the others; where one is, the default is just the latest.
    default = None if found is None else found[1] if wanted is None else versions[-1]
    keys = [
        _type_key(part, alias, group, check, known),
        _version_key(part, alias, group, default, versions, misversioned),
    ]
    if found is None or misversioned is not None:
        return keys
    if part is _TRANSFORM:
        own = _stage_keys() + [key for key in own if key.name not in ("predicate", "negate")]
    return keys + _embedded(own, prefix, group)


def _type_complaint(name: str, value: str | None, resolve: Any, wanted: str | None) -> str | None:
    """What is wrong with a class: it isn't there, its version can't be read, or it is none that can be used, in this order."""
    complaint = _complaint(name, value, resolve)
    missing = complaint is not None and "could not be found." in complaint
    return complaint if missing or value is None else range_problem(wanted) or complaint


def _complaint(name: str, value: str | None, resolve: Any) -> str | None:
    if value is None:
        return None
    try:
        resolve(value.strip())
    except (NotATransform, NotAPredicate) as error:
        return str(error)
    except ConfigInvalid as error:
        text = str(error)
        return invalid(name, value, text) if text.startswith("Class ") else text
    return None


def transform_config_keys(raw: Mapping[str, str], known: Known | None = None) -> list[ConfigKey]:
    """The options that a connector's ``transforms`` and ``predicates`` add to its own.

    Args:
        raw: the connector's configuration. May block for some milliseconds if it names a class that is not built in.
        known: what to recommend; by default what this process has.
    """
    return [
        key
        for part in (_TRANSFORM, _PREDICATE)
        for alias in aliases(raw, part.option)
        for key in _part_keys(part, raw, alias, known)
    ]


def stage_properties(raw: Mapping[str, str], prefix: str) -> dict[str, str]:
    """A transform's or predicate's own properties, without the prefix and without those of its place in the chain."""
    own = {name[len(prefix) :]: value for name, value in raw.items() if name.startswith(prefix)}
    for name in ("type", "plugin.version", *(("predicate", "negate") if prefix.startswith(f"{TRANSFORMS}.") else ())):
        own.pop(name, None)
    return own


def transform_problems(raw: Mapping[str, str]) -> list[ConfigProblem]:
    """What single options can't tell: unknown predicates, and combinations that a transform refuses.

    Kafka Connect finds these only when a task starts. Options with complaints of their own are left to those.
    """
    problems: list[ConfigProblem] = []
    declared = aliases(raw, PREDICATES)
    for alias in aliases(raw, TRANSFORMS):
        prefix = f"{TRANSFORMS}.{alias}."
        predicate = raw.get(f"{prefix}predicate")
        if predicate is not None and predicate.strip() not in declared:
            known = ", ".join(declared) or "none"
            problems.append(
                ConfigProblem(
                    f"{prefix}predicate",
                    invalid(
                        f"{prefix}predicate",
                        predicate,
                        f"Unknown predicate '{predicate.strip()}'; predicates declares: {known}",
                    ),
                )
            )
        try:
            kind, side, _ = resolve_transform(raw.get(f"{prefix}type", "").strip(), raw.get(f"{prefix}plugin.version"))
            config = kind.config_def.parse(stage_properties(raw, prefix))
        except ConfigInvalid:
            continue
        try:
            kind(config, side).compile()
        except ConfigInvalid as error:
            problems.append(ConfigProblem(f"{prefix}type", str(error)))
    return problems
