"""The values of options with their complaints, as Kafka's ``ConfigDef.validate`` gives them; classes by way of the plugins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from connectors.options import ConfigType, ConfigValue, given_value, invalid
from worker.transforms.registry import resolve_predicate, resolve_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.options import ConfigDef, ConfigKey
    from worker.plugins.registry import PluginRegistry

#: The version of the connector class that a configuration asks for.
VERSION: Final = "connector.plugin.version"
#: Options that name converters: the kind of plugin, and Kafka Connect's interface.
CONVERTERS: Final = (
    ("header.converter", "header_converter", "HeaderConverter"),
    ("key.converter", "converter", "Converter"),
    ("value.converter", "converter", "Converter"),
)


def evaluate_options(registry: PluginRegistry, definition: ConfigDef, raw: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Every option's value with its complaints, as Kafka's ``ConfigDef.validate`` gives them.

    A value that can't be parsed is null, and its validator is asked all the same: ``tasks.max=abc`` is two errors.
    """
    raw = definition.canonical(raw)
    result: dict[str, ConfigValue] = {}
    for key in definition.keys.values():
        value, errors = given_value(key, raw)
        try:
            complaint = None if key.validator is None else key.validator(key.name, value)
        except (TypeError, AttributeError):
            if not errors:
                raise
            complaint = None  # it does not expect null: one complaint is enough
        if complaint is not None:
            errors.append(complaint)
        if key.type is ConfigType.CLASS and value is not None:
            value = _class_value(registry, key.name, value, errors)
        recommended, visible = ((), True) if key.recommender is None else key.recommender(key.name, raw)
        result[key.name] = ConfigValue(key.name, value, errors, list(recommended), visible)
    return result


def _class_value(registry: PluginRegistry, option: str, value: str, errors: list[str]) -> str | None:
    """Return the canonical name of the class that ``value`` means; null, with a complaint, if it does not exist."""
    for converter, kind, interface in CONVERTERS:
        if option == converter:
            canonical_name = find_class(registry, kind, value)
            if canonical_name is not None:
                return canonical_name
            other_class = find_any_class(registry, value)
            errors.append(
                f"Class class {other_class} does not implement the {interface} interface"
                if other_class is not None
                else invalid(option, value, f"Class {value} could not be found.")
            )
            return other_class
    resolve: Callable[[str], Any]
    if option.startswith("transforms.") and option.endswith(".type"):
        resolve, interface = resolve_transform, "Transformation"
    elif option.startswith("predicates.") and option.endswith(".type"):
        resolve, interface = resolve_predicate, "Predicate"
    else:
        return value
    try:
        name: str = resolve(value).class_name
    except ConfigInvalid as error:
        # The option's validator has said what is wrong, but knows no plugins of other kinds.
        other_class = find_any_class(registry, value)
        if other_class is None and not _is_abstract(value):
            if not any("could not be found." in complaint for complaint in errors):
                errors.insert(0, invalid(option, value, str(error)))  # the validator had something else to say
            return None
        if other_class is None:
            return value
        errors[:] = [
            f"Class class {other_class} does not implement the {interface} interface"
            if "could not be found." in error
            else error
            for error in errors
        ]
        return other_class
    return name


def _is_abstract(name: str) -> bool:
    """Whether it is the full name of a transform whose ``$Key`` or ``$Value`` has to be chosen."""
    try:
        return resolve_transform(f"{name}$Value").class_name == f"{name}$Value"
    except ConfigInvalid:
        return False


def find_class(registry: PluginRegistry, kind: str, value: str) -> str | None:
    """The full name of a plugin of a kind; None where it does not exist."""
    try:
        plugin = registry.find(kind, value)
    except ConfigInvalid:
        return None
    return None if plugin is None else plugin.class_name


def find_any_class(registry: PluginRegistry, value: str) -> str | None:
    """The full name of a plugin of any kind; None where it does not exist."""
    try:
        return registry.plugin_for(value)[0].class_name
    except (LookupError, ConfigInvalid):
        return None


def add_complaint(values: dict[str, ConfigValue], name: str, message: str) -> None:
    """Add a complaint to an option, once; the option need not exist."""
    value = values.get(name)
    if value is None:
        value = values[name] = ConfigValue(name, None, [], [], visible=True)
    if message not in value.errors:
        value.errors.append(message)


def offer_versions(key: ConfigKey, versions: Sequence[str]) -> ConfigKey:
    """The option with the version of a class: the latest is the default. Pure."""
    return replace(key, default=versions[-1], recommender=recommend(versions))


def recommend(
    items: Sequence[str], *, visible: bool = True
) -> Callable[[str, Mapping[str, str]], tuple[Sequence[Any], bool]]:
    """The recommender of an option whose recommended values are the same for all configurations."""
    return lambda name, raw: (items, visible)  # noqa: ARG005 - a recommender's signature
