"""The options of a connector that come from its transforms and predicates, and their problems.

Names, groups, order and messages are those of Kafka Connect 4.1's ``validate`` answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from connectors.errors import ConfigInvalid
from connectors.options import ConfigKey, ConfigProblem, ConfigType, Importance, Validator, Width, invalid
from worker.transforms.java.versions import in_range, not_found, range_problem
from worker.transforms.registry import (
    NotAPredicate,
    NotATransform,
    predicate_types,
    resolve_predicate,
    resolve_transform,
    transform_types,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.transforms.registry import PredicateType, TransformType

TRANSFORMS: Final = "transforms"
PREDICATES: Final = "predicates"

_IMPORTANCE: Final = tuple(Importance)


class KnownPlugins(Protocol):
    """All plugins there are, those that this process does not have included."""

    def versions(self, kind: str, name: str) -> Sequence[str]:
        """The versions of a transform or predicate, the latest last."""

    def class_names(self, kind: str) -> Sequence[str]:
        """Names of all transforms or predicates."""


def read_aliases(raw: Mapping[str, str], name: str) -> list[str]:
    """The items of ``transforms`` or ``predicates``, each once, in order."""
    alias_list = (raw.get(name) or "").strip()
    return list(dict.fromkeys(item.strip() for item in alias_list.split(","))) if alias_list else []


def _validate_unique(name: str, value: Sequence[str] | None) -> str | None:
    if value is not None and len(set(value)) < len(value):
        return invalid(name, value, "Duplicate alias provided.")
    return None


#: The two options that every connector has; the worker puts them among its common ones.
PIPELINE_KEYS: Final = (
    ConfigKey(
        name=TRANSFORMS,
        type=ConfigType.LIST,
        default=[],
        validator=_validate_unique,
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
        validator=_validate_unique,
        importance=Importance.LOW,
        group="Predicates",
        order=13,
        width=Width.LONG,
        display_name="Predicates",
        example="isTombstone",
        doc="Aliases for the predicates used by transformations.",
    ),
)


class _PluginPart(NamedTuple):
    """The kind of plugin that aliases name: transforms or predicates.

    Attributes:
        option: the option that lists them.
        noun: the word for one in messages and ``KnownPlugins``.
        resolve: finds the class that a name means, in the requested version.
        types: all classes that this process has.
    """

    option: str
    noun: str
    resolve: Callable[[str, str | None], TransformType | PredicateType]
    types: Callable[[], Sequence[TransformType | PredicateType]]


_TRANSFORM: Final = _PluginPart(TRANSFORMS, "transformation", resolve_transform, transform_types)
_PREDICATE: Final = _PluginPart(PREDICATES, "predicate", resolve_predicate, predicate_types)


def _type_key(
    part: _PluginPart, alias: str, group: str, validator: Validator, plugins: KnownPlugins | None
) -> ConfigKey:
    def names() -> Sequence[str]:
        return (
            [plugin_type.class_name for plugin_type in part.types()]
            if plugins is None
            else plugins.class_names(part.noun)
        )

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


def _version_complaint(plugin: tuple[str, str] | None, version: str | None, versions: Sequence[str]) -> str | None:
    """Return the complaint about a ``plugin.version`` for a class and its version, if any; ``versions`` are all that exist."""
    if plugin is None:
        return range_problem(version)
    return None if in_range(version, plugin[1]) else not_found(plugin[0], version, versions)


def _version_key(
    part: _PluginPart, alias: str, group: str, default: str | None, versions: Sequence[str], misversioned: str | None
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


def _list_versions(plugins: KnownPlugins | None, noun: str, plugin: tuple[str, str] | None) -> Sequence[str]:
    if plugin is None:
        return []
    return (plugins.versions(noun, plugin[0]) if plugins is not None else ()) or [plugin[1]]


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


def _embed_keys(keys: Sequence[ConfigKey], prefix: str, group: str) -> list[ConfigKey]:
    """``keys`` under ``prefix``, in Kafka's order: required ones, then by importance and name.

    Validators are called with the name without the prefix, as Kafka does, so that the messages are equal.
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
            validator=None if key.validator is None else _name_validator(key.validator, key.name),
        )
        for number, key in enumerate(in_order, start=2)
    ]


def _name_validator(validator: Validator, name: str) -> Validator:
    return lambda _name, value: validator(name, value)


def _part_keys(part: _PluginPart, raw: Mapping[str, str], alias: str, plugins: KnownPlugins | None) -> list[ConfigKey]:
    """The options of one transform or predicate."""
    prefix, group = f"{part.option}.{alias}.", f"{part.option.capitalize()}: {alias}"
    plugin: tuple[str, str] | None = None
    own_keys: list[ConfigKey] = []
    version = raw.get(f"{prefix}plugin.version")
    try:
        resolved = part.resolve(raw.get(f"{prefix}type", "").strip(), version)
    except ConfigInvalid:
        pass  # the type's own check says so
    else:
        plugin, own_keys = (resolved.class_name, resolved.kind.version), list(resolved.kind.config_def.keys.values())
    versions = _list_versions(plugins, part.noun, plugin)
    misversioned = _version_complaint(plugin, version, versions) if f"{prefix}type" in raw else None
    negates_nothing = part is _TRANSFORM and f"{prefix}negate" in raw and f"{prefix}predicate" not in raw

    def check(name: str, value: str | None) -> str | None:
        if negates_nothing:
            return (
                f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate "
                "to be negated."
            )
        return _type_complaint(name, value, part.resolve, version) or (misversioned if plugin is not None else None)

    # Unless one is asked for, the latest is used that fits the others; where one is, the default is just the latest.
    default = None if plugin is None else plugin[1] if version is None else versions[-1]
    keys = [
        _type_key(part, alias, group, check, plugins),
        _version_key(part, alias, group, default, versions, misversioned),
    ]
    if plugin is None or misversioned is not None:
        return keys
    if part is _TRANSFORM:
        own_keys = _stage_keys() + [key for key in own_keys if key.name not in ("predicate", "negate")]
    return keys + _embed_keys(own_keys, prefix, group)


def _type_complaint(name: str, value: str | None, resolve: Any, version: str | None) -> str | None:
    """Return the complaint about a class: it is missing, its version can't be read, or it can't be used, in this order."""
    complaint = _find_complaint(name, value, resolve)
    missing = complaint is not None and "could not be found." in complaint
    return complaint if missing or value is None else range_problem(version) or complaint


def _find_complaint(name: str, value: str | None, resolve: Any) -> str | None:
    if value is None:
        return None
    try:
        resolve(value.strip())
    except (NotATransform, NotAPredicate) as error:
        return str(error)
    except ConfigInvalid as error:
        message = str(error)
        return invalid(name, value, message) if message.startswith("Class ") else message
    return None


def transform_config_keys(raw: Mapping[str, str], plugins: KnownPlugins | None = None) -> list[ConfigKey]:
    """The options that a connector's ``transforms`` and ``predicates`` add to its own.

    Args:
        raw: the connector's configuration. May block for some milliseconds if it names a class that is not built in.
        plugins: what to recommend; by default what this process has.
    """
    return [
        key
        for part in (_TRANSFORM, _PREDICATE)
        for alias in read_aliases(raw, part.option)
        for key in _part_keys(part, raw, alias, plugins)
    ]


def stage_properties(raw: Mapping[str, str], prefix: str) -> dict[str, str]:
    """A transform's or predicate's own properties, without the prefix and without those of its place in the chain."""
    options = {name[len(prefix) :]: value for name, value in raw.items() if name.startswith(prefix)}
    for name in ("type", "plugin.version", *(("predicate", "negate") if prefix.startswith(f"{TRANSFORMS}.") else ())):
        options.pop(name, None)
    return options


def transform_problems(raw: Mapping[str, str]) -> list[ConfigProblem]:
    """Return problems beyond single options: unknown predicates, and combinations that a transform refuses.

    Kafka Connect finds these only when a task starts. Options with complaints of their own are left to those.
    """
    problems: list[ConfigProblem] = []
    declared = read_aliases(raw, PREDICATES)
    for alias in read_aliases(raw, TRANSFORMS):
        prefix = f"{TRANSFORMS}.{alias}."
        predicate = raw.get(f"{prefix}predicate")
        if predicate is not None and predicate.strip() not in declared:
            declared_names = ", ".join(declared) or "none"
            problems.append(
                ConfigProblem(
                    f"{prefix}predicate",
                    invalid(
                        f"{prefix}predicate",
                        predicate,
                        f"Unknown predicate '{predicate.strip()}'; predicates declares: {declared_names}",
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
