"""The options of a connector that come from its transforms and predicates, and what is wrong with them.

Names, groups, order and texts are those of Kafka Connect 4.1's ``validate`` answers.
"""
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

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
from worker.transforms.versions import version_matches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.options import ConfigDef

TRANSFORMS: Final = "transforms"
PREDICATES: Final = "predicates"

_IMPORTANCE: Final = tuple(Importance)


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
    ConfigKey(name=TRANSFORMS, type=ConfigType.LIST, default=[], validator=_unique, importance=Importance.LOW,
              group="Transforms", order=12, width=Width.LONG, display_name="Transforms", example="unwrap,route",
              doc="Aliases for the transformations to be applied to records."),
    ConfigKey(name=PREDICATES, type=ConfigType.LIST, default=[], validator=_unique, importance=Importance.LOW,
              group="Predicates", order=13, width=Width.LONG, display_name="Predicates", example="isTombstone",
              doc="Aliases for the predicates used by transformations."),
)


def _type_key(kind: str, noun: str, alias: str, prefix: str, group: str, validator: Validator, known: Any) -> ConfigKey:
    return ConfigKey(name=f"{prefix}type", type=ConfigType.CLASS, doc=f"Class for the '{alias}' {noun}.",
                     importance=Importance.HIGH, group=group, order=0, width=Width.LONG,
                     display_name=f"{kind} type for {alias}", validator=validator,
                     recommender=lambda _name, _raw: ([found.class_name for found in known()], True))


def _version_complaint(found: tuple[str, str] | None, wanted: str | None) -> str | None:
    """What is wrong with a ``plugin.version`` for a class and its version, if anything."""
    if found is None or wanted is None:
        return None
    try:
        if version_matches(wanted, found[1]):
            return None
    except ConfigInvalid as error:
        return str(error)
    return f"Plugin {found[0]} not found that matches the version range {wanted}, available versions: [{found[1]}]"


def _version_key(kind: str, noun: str, alias: str, prefix: str, group: str, found: tuple[str, str] | None) -> ConfigKey:
    version = found[1] if found is not None else None
    return ConfigKey(name=f"{prefix}plugin.version", type=ConfigType.STRING, default=version,
                     validator=lambda _name, value: _version_complaint(found, value), doc=f"Version of the '{alias}' {noun}.",
                     importance=Importance.HIGH, group=group, order=1, width=Width.LONG,
                     display_name=f"{kind} version for {alias}",
                     recommender=lambda _name, _raw: ([version] if version is not None else [], True))


def _stage_keys() -> list[ConfigKey]:
    return [
        ConfigKey(name="predicate", type=ConfigType.STRING, default=None,
                  doc="The alias of a predicate used to determine whether to apply this transformation."),
        ConfigKey(name="negate", type=ConfigType.BOOLEAN, default=False,
                  doc="Whether the configured predicate should be negated."),
    ]


def _embedded(keys: Sequence[ConfigKey], prefix: str, group: str) -> list[ConfigKey]:
    """``keys`` under ``prefix``, in Kafka's order: required ones, then by importance and name.

    Validators are called with the name without the prefix, as Kafka does, so that the texts are equal.
    """
    in_order = sorted(keys, key=lambda key: (not key.required, _IMPORTANCE.index(key.importance), key.name))
    return [replace(key, name=prefix + key.name, group=group, order=number, display_name=key.display_name or key.name,
                    aliases=tuple(prefix + alias for alias in key.aliases),
                    validator=None if key.validator is None else _named(key.validator, key.name))
            for number, key in enumerate(in_order, start=2)]


def _named(validator: Validator, name: str) -> Validator:
    return lambda _name, value: validator(name, value)


def _transform_keys(raw: Mapping[str, str], alias: str) -> list[ConfigKey]:
    prefix, group = f"{TRANSFORMS}.{alias}.", f"Transforms: {alias}"
    found: tuple[str, str] | None = None
    definition: ConfigDef | None = None
    try:
        kind, _, class_name = resolve_transform(raw.get(f"{prefix}type", "").strip())
    except ConfigInvalid:
        pass  # the type's own check says so
    else:
        found, definition = (class_name, kind.version), kind.config_def
    misversioned = _version_complaint(found, raw.get(f"{prefix}plugin.version"))

    def check(name: str, value: str | None) -> str | None:
        if f"{prefix}negate" in raw and f"{prefix}predicate" not in raw:
            return (f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate "
                    "to be negated.")
        return _complaint(name, value, resolve_transform) or misversioned
    keys = [_type_key("Transformation", "transformation", alias, prefix, group, check, transform_types),
            _version_key("Transformation", "transformation", alias, prefix, group, found)]
    if definition is None or misversioned is not None:
        return keys
    own = [key for key in definition.keys.values() if key.name not in ("predicate", "negate")]
    return keys + _embedded(_stage_keys() + own, prefix, group)


def _predicate_keys(raw: Mapping[str, str], alias: str) -> list[ConfigKey]:
    prefix, group = f"{PREDICATES}.{alias}.", f"Predicates: {alias}"
    found: tuple[str, str] | None = None
    definition: ConfigDef | None = None
    try:
        kind, class_name = resolve_predicate(raw.get(f"{prefix}type", "").strip())
    except ConfigInvalid:
        pass  # the type's own check says so
    else:
        found, definition = (class_name, kind.version), kind.config_def
    misversioned = _version_complaint(found, raw.get(f"{prefix}plugin.version"))

    def check(name: str, value: str | None) -> str | None:
        return _complaint(name, value, resolve_predicate) or misversioned
    keys = [_type_key("Predicate", "predicate", alias, prefix, group, check, predicate_types),
            _version_key("Predicate", "predicate", alias, prefix, group, found)]
    if definition is None or misversioned is not None:
        return keys
    return keys + _embedded(list(definition.keys.values()), prefix, group)


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


def transform_config_keys(raw: Mapping[str, str]) -> list[ConfigKey]:
    """The options that a connector's ``transforms`` and ``predicates`` add to its own.

    Args:
        raw: the connector's configuration. May block for some milliseconds if it names a class that is not built in.
    """
    return [key for alias in aliases(raw, TRANSFORMS) for key in _transform_keys(raw, alias)] + [
        key for alias in aliases(raw, PREDICATES) for key in _predicate_keys(raw, alias)]


def stage_properties(raw: Mapping[str, str], prefix: str) -> dict[str, str]:
    """A transform's or predicate's own properties, without the prefix and without those of its place in the chain."""
    own = {name[len(prefix):]: value for name, value in raw.items() if name.startswith(prefix)}
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
            problems.append(ConfigProblem(f"{prefix}predicate", invalid(
                f"{prefix}predicate", predicate, f"Unknown predicate '{predicate.strip()}'; predicates declares: {known}")))
        try:
            kind, side, _ = resolve_transform(raw.get(f"{prefix}type", "").strip())
            config = kind.config_def.parse(stage_properties(raw, prefix))
        except ConfigInvalid:
            continue
        try:
            kind(config, side).compile()
        except ConfigInvalid as error:
            problems.append(ConfigProblem(f"{prefix}type", str(error)))
    return problems
