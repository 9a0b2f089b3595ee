"""Checking a connector's configuration: the answers of ``.../config/validate`` and ``GET .../config``, as Kafka Connect's.

What goes in is the configuration as the user wrote it; references to config providers are shown as they are, and secrets never.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from connectors.api import SourceConnector
from connectors.errors import ConfigInvalid
from connectors.options import MASK, ConfigDef, ConfigType, ConfigValue, given_value, invalid, java_string
from offsets.creation import group_keys
from worker.config.job_config import JOB_CONFIG, foreign_complaints, job_form, job_properties, translation_problems
from worker.config.source_config import SOURCE_CONFIG
from worker.config.validation_references import add_warnings, hide_names, hide_resolved, list_aliases
from worker.converters.base import Converter
from worker.kafka.client_properties import client_overrides
from worker.rest.checks import CLASS_OPTION, missing_type
from worker.secrets.masking import mask_patterns
from worker.secrets.providers import has_references, only_references
from worker.transforms.java.versions import range_problem
from worker.transforms.options import transform_config_keys, transform_problems
from worker.transforms.registry import resolve_predicate, resolve_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from connectors.job_api import JobConnector
    from connectors.options import Config, ConfigKey, ConfigProblem
    from worker.plugins.registry import LoadedPlugin, PluginRegistry

_CONVERTERS: Final = (
    ("header.converter", "header_converter", "HeaderConverter"),
    ("key.converter", "converter", "Converter"),
    ("value.converter", "converter", "Converter"),
)

_log = logging.getLogger("worker.validation")


# Answers.


def plugin_config(registry: PluginRegistry, plugin: str, version: str | None = None) -> list[dict[str, Any]]:
    """The body of ``GET /connector-plugins/{plugin}/config``: the plugin's own options, then the common ones.

    Raises:
        LookupError: there is no such plugin (404).
        ConfigInvalid: it is not of this version, or of a kind that has no options (400).
    """
    try:
        selected, definition = registry.plugin_for(plugin, version)
    except LookupError:
        raise LookupError(f"Unknown plugin {plugin}.") from None
    complaint = registry.check_version(selected, version)
    if complaint is not None:
        raise ConfigInvalid(complaint)
    keys = dict(definition.keys)
    latest = (registry.versions(selected.kind, selected.class_name) or [selected.version])[-1]
    runtime = {"source": SOURCE_CONFIG, "sink": JOB_CONFIG}.get(selected.kind)
    if runtime is not None:
        for key in runtime.keys.values():
            keys.setdefault(key.name, replace(key, default=latest) if key.name == "connector.plugin.version" else key)
    return [definition_info(key) for key in keys.values()]


async def validate_config(
    registry: PluginRegistry,
    config: Mapping[str, str],
    plugin: str | None,
    worker_properties: Mapping[str, str],
    *,
    resolved: Mapping[str, str] | None = None,
    deadline_s: float = 25.0,
) -> dict[str, Any]:
    """The body of ``PUT /connector-plugins/{plugin}/config/validate``.

    Args:
        registry: the plugins.
        config: the configuration as it was written.
        plugin: the class named in the URL; ``connector.class`` is used where it is None.
        worker_properties: the worker's properties: defaults of converters, the override policy, exactly once.
        resolved: the configuration with references resolved; checked in place of ``config``, and never shown.
        deadline_s: how long the connector's own check may take, in seconds.

    Raises:
        ConfigInvalid: no connector class, an unknown one, or a version of it that is no range (400).
    """
    actual = dict(config if resolved is None else resolved)
    name = actual.get(CLASS_OPTION, plugin)
    if name is None:
        raise ConfigInvalid(missing_type(config))
    selected = _select_plugin(registry, name, config, actual)
    if selected.kind == "sink":
        return await _validate_job(registry, selected, config, actual, worker_properties, deadline_s)
    connector: type[SourceConnector] = selected.cls
    common = common_definition(registry, selected, actual, worker_properties)
    own_definition = connector.config_def
    values = _evaluate_options(registry, common, actual)
    values |= _evaluate_options(registry, own_definition, actual)
    _check_versions(registry, selected, actual, values)
    for problem in transform_problems(actual):
        _add_complaint(values, problem.name, problem.message)
    if resolved is not None:
        _check_references({**common.keys, **own_definition.keys}.values(), actual, values)
    noted: list[ConfigProblem] = []
    await _ask_connector(connector, own_definition, actual, values, worker_properties, deadline_s, noted)
    keys = {**common.keys, **own_definition.keys}
    groups = list(dict.fromkeys([*common.groups, *own_definition.groups]))
    entries = [
        {"definition": None, "value": value_info(value, None)} for value in values.values() if value.name not in keys
    ]
    entries += [
        {"definition": definition_info(key), "value": value_info(values[key.name], key)} for key in keys.values()
    ]
    errors = sum(len(value.errors) for value in values.values())
    for key, prefix, value in await asyncio.to_thread(client_overrides, actual, worker_properties):
        entries.append(
            {"definition": None if key is None else definition_info(key, prefix), "value": value_info(value, key)}
        )
        groups += [key.group] if key is not None and key.group is not None and key.group not in groups else []
        errors += bool(value.errors)
    aliases = list_aliases(keys.values())
    for option, kind, _ in _CONVERTERS:
        added, more_groups, wrong = await _converter_entries(registry, option, kind, actual, values, aliases)
        entries += added
        groups += [group for group in more_groups if group not in groups]
        errors += wrong
    hide_resolved(entries, config, actual, aliases)
    hide_names(entries, groups, config, actual)
    name = config.get(CLASS_OPTION, name)
    body = {"name": name, "error_count": errors, "groups": groups, "configs": entries}
    return add_warnings(body, noted, config, actual)


def _select_plugin(
    registry: PluginRegistry, name: str, config: Mapping[str, str], actual: Mapping[str, str]
) -> LoadedPlugin:
    """Return the connector class of a configuration; a reference stays one in the error's message.

    Args:
        registry: the plugins.
        name: of the class.
        config: the configuration as it was written.
        actual: the same, resolved.
    """
    version_range = actual.get("connector.plugin.version", "latest")
    unreadable = range_problem(version_range)
    if unreadable is not None:
        # A reference stays one, also where it stands for no range.
        written = config.get("connector.plugin.version", version_range)
        raise ConfigInvalid(unreadable if written == version_range else f"{unreadable.partition(': ')[0]}: {written}")
    try:
        return registry.connector_plugin(name, actual.get("connector.plugin.version"))
    except ConfigInvalid as error:
        written = config.get(CLASS_OPTION, name)
        if written == name:
            raise
        # A reference stays one, also where it stands for no class.
        raise ConfigInvalid(str(error).replace(name, written)) from None


async def _validate_job(
    registry: PluginRegistry,
    selected: LoadedPlugin,
    config: Mapping[str, str],
    actual: Mapping[str, str],
    worker_properties: Mapping[str, str],
    deadline_s: float,
) -> dict[str, Any]:
    """``validate_config`` for a connector that moves data itself: see there."""
    connector: type[JobConnector] = selected.cls
    written = actual
    actual, translation = job_form(connector, written, worker_properties)
    # Which options there are may depend on parts that have to be imported first: not on the event loop.
    own_definition = job_definition = await asyncio.to_thread(connector.definition, actual)
    versions = registry.versions(selected.kind, selected.class_name)
    common = ConfigDef(
        [
            replace(key, default=versions[-1], recommender=_recommender(versions))
            if key.name == "connector.plugin.version"
            else key
            for key in JOB_CONFIG.keys.values()
        ]
    )
    values = _evaluate_options(registry, common, actual)
    values |= _evaluate_options(registry, own_definition, actual)
    noted: list[ConfigProblem] = []
    if translation is not None:
        own_definition = ConfigDef(list({**connector.config_def.keys, **job_definition.keys}.values()))
        values = _evaluate_options(registry, connector.config_def, written) | values
    for problem in translation_problems(translation):
        if problem.warning:
            noted.append(problem)
        else:
            _add_complaint(values, problem.name, problem.message)
    complaint = registry.check_version(selected, actual.get("connector.plugin.version"))
    if complaint is not None:
        _add_complaint(values, CLASS_OPTION, complaint)
        _add_complaint(values, "connector.plugin.version", complaint)
    for problem in foreign_complaints(actual):
        _add_complaint(values, problem.name, problem.message)
    await _ask_own_check(
        connector,
        connector.validate(job_properties(job_definition.canonical(actual), job_definition)),
        values,
        deadline_s,
        noted,
    )
    origins = {} if translation is None else translation.origins
    _return_to_origins(values, origins)
    keys = {**common.keys, **own_definition.keys}
    groups = list(dict.fromkeys([*common.groups, *own_definition.groups]))
    entries = [
        {"definition": None, "value": value_info(value, None)} for value in values.values() if value.name not in keys
    ]
    entries += [
        {"definition": definition_info(key), "value": value_info(values[key.name], key)} for key in keys.values()
    ]
    # What was made of a reference is shown as the reference, too.
    shown = {option: config[origin] for option, origin in origins.items() if has_references(config.get(origin))}
    hide_resolved(entries, {**config, **shown}, {**written, **actual}, list_aliases(keys.values()))
    hide_names(entries, groups, {**config, **shown}, {**written, **actual})
    errors = sum(len(value.errors) for value in values.values())
    name = config.get(CLASS_OPTION, selected.class_name)
    body = {"name": name, "error_count": errors, "groups": groups, "configs": entries}
    return add_warnings(body, noted, config, written)


def _return_to_origins(values: dict[str, ConfigValue], origins: Mapping[str, str]) -> None:
    """Put complaints about options that were made of others to those, which the user has written."""
    for name, origin in origins.items():
        value = values.get(name)
        if value is None or not value.errors or name == origin:
            continue
        errors, value.errors = value.errors, []
        for message in errors:
            _add_complaint(values, origin, f"{message} ({origin} becomes {name})")


def common_definition(
    registry: PluginRegistry, connector: LoadedPlugin, config: Mapping[str, str], worker_properties: Mapping[str, str]
) -> ConfigDef:
    """The options that every source connector has, as they are for this one.

    The connector and the worker give defaults and recommended values, the configuration adds the options of its transforms,
    predicates and topic creation groups.
    """
    versions = registry.versions(connector.kind, connector.class_name)
    keys: list[ConfigKey] = []
    for key in SOURCE_CONFIG.keys.values():
        if key.name == "connector.plugin.version":
            keys.append(replace(key, default=versions[-1], recommender=_recommender(versions)))
            continue
        option = key.name.removesuffix(".plugin.version")
        kind = next((kind for name, kind, _ in _CONVERTERS if name == option), None)
        if kind is None:
            keys.append(key)
            continue
        default = worker_properties.get(option) or (
            "org.apache.kafka.connect.storage.SimpleHeaderConverter" if option == "header.converter" else None
        )
        if key.name == option:
            shown = _canonical_name(registry, kind, default) if default else None
            keys.append(replace(key, default=shown, recommender=_recommender(registry.class_names(kind))))
        else:
            named = config.get(option, default or "")
            class_versions = registry.versions(kind, named)
            visible = bool(class_versions) or _any_class(registry, named) is not None
            # The one in use, which is the latest that can be in one process with the connector.
            used = registry.find(kind, named) if class_versions and key.name not in config else None
            keys.append(
                replace(
                    key,
                    default=used.version if used is not None else class_versions[-1] if class_versions else None,
                    recommender=_recommender(class_versions, visible=visible),
                )
            )
    keys += transform_config_keys(config, registry)
    if worker_properties.get("topic.creation.enable", "true").strip().lower() != "false":
        keys += group_keys(config)
    return ConfigDef(keys)


def definition_info(key: ConfigKey, prefix: str = "") -> dict[str, Any]:
    """An option's declaration in Connect's form."""
    return {
        "name": prefix + key.name,
        "type": str(key.type),
        "required": key.required,
        "default_value": None if key.required else text_of(key.default, key.type),
        "importance": str(key.importance),
        "documentation": key.doc,
        "group": key.group,
        "width": str(key.width),
        "display_name": key.display_name or key.name,
        "dependents": list(key.dependents),
        "order": key.order,
    }


def value_info(value: ConfigValue, key: ConfigKey | None) -> dict[str, Any]:
    """An option's value in Connect's form."""
    kind = ConfigType.STRING if key is None else key.type
    item = ConfigType.STRING if kind is ConfigType.LIST else kind
    value_text = text_of(value.value, kind)
    return {
        "name": value.name,
        "value": None if value_text is None else mask_patterns(value_text),
        "recommended_values": [text_of(choice, item) for choice in value.recommended],
        "errors": [mask_patterns(error) for error in value.errors],
        "visible": value.visible,
    }


def text_of(value: Any, kind: ConfigType) -> str | None:
    """A parsed value as text: lists joined by commas, secrets hidden."""
    if value is None:
        return None
    if kind is ConfigType.PASSWORD:
        return MASK
    if isinstance(value, list | tuple):
        return ",".join(java_string(item) for item in value)
    return java_string(value)


# Parts.


def _evaluate_options(
    registry: PluginRegistry, definition: ConfigDef, raw: Mapping[str, str]
) -> dict[str, ConfigValue]:
    """Every option's value with its complaints, as Kafka's ``ConfigDef.validate`` gives them.

    A value that can't be parsed is null, and its validator is asked all the same: ``tasks.max=abc`` is two errors.
    """
    raw = definition.canonical(raw)
    result: dict[str, ConfigValue] = {}
    for key in definition.keys.values():
        value, errors = given_value(key, raw)
        complaint = None if key.validator is None else key.validator(key.name, value)
        if complaint is not None:
            errors.append(complaint)
        if key.type is ConfigType.CLASS and value is not None:
            value = _class_value(registry, key.name, value, errors)
        recommended, visible = ((), True) if key.recommender is None else key.recommender(key.name, raw)
        result[key.name] = ConfigValue(key.name, value, errors, list(recommended), visible)
    return result


def _class_value(registry: PluginRegistry, option: str, value: str, errors: list[str]) -> str | None:
    """Return the canonical name of the class that ``value`` means; null, with a complaint, if it does not exist."""
    for converter, kind, interface in _CONVERTERS:
        if option == converter:
            canonical_name = _canonical_name(registry, kind, value)
            if canonical_name is not None:
                return canonical_name
            other_class = _any_class(registry, value)
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
        other_class = _any_class(registry, value)
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


def _canonical_name(registry: PluginRegistry, kind: str, value: str) -> str | None:
    try:
        plugin = registry.find(kind, value)
    except ConfigInvalid:
        return None
    return None if plugin is None else plugin.class_name


def _any_class(registry: PluginRegistry, value: str) -> str | None:
    """The canonical name of a plugin of any kind."""
    try:
        return registry.plugin_for(value)[0].class_name
    except (LookupError, ConfigInvalid):
        return None


def _check_versions(
    registry: PluginRegistry, connector: LoadedPlugin, config: Mapping[str, str], values: dict[str, ConfigValue]
) -> None:
    """KIP-891: complaints stand at the class and at its version; those about a converter's range itself at the version only."""
    complaint = registry.check_version(connector, config.get("connector.plugin.version"))
    if complaint is not None:
        _add_complaint(values, CLASS_OPTION, complaint)
        _add_complaint(values, "connector.plugin.version", complaint)
    for option, kind, _ in _CONVERTERS:
        version_range = config.get(f"{option}.plugin.version")
        unreadable = range_problem(version_range)
        if unreadable is not None:
            _add_complaint(values, f"{option}.plugin.version", unreadable)
            continue
        if option not in config or values[option].errors:
            continue
        plugin = registry.find(kind, config[option], version_range)
        complaint = None if plugin is None else registry.check_version(plugin, version_range)
        if complaint is not None:
            _add_complaint(values, option, complaint)
            _add_complaint(values, f"{option}.plugin.version", complaint)


def _check_references(keys: Iterable[ConfigKey], resolved: Mapping[str, str], values: dict[str, ConfigValue]) -> None:
    """Refuse a secret that is still a reference: its own text, which others may guess, would be taken for the secret."""
    for key in keys:
        resolved_value = resolved.get(key.name)
        if key.secret and resolved_value and only_references(resolved_value):
            _add_complaint(
                values,
                key.name,
                f"{resolved_value} in the option {key.name} has no value: check the provider's name "
                "(config.providers), the path and the key",
            )


async def _ask_connector(
    connector: type[SourceConnector],
    definition: ConfigDef,
    raw: Mapping[str, str],
    values: dict[str, ConfigValue],
    worker_properties: Mapping[str, str],
    deadline_s: float,
    noted: list[ConfigProblem],
) -> None:
    """Ask the connector what only it knows: its own checks, exactly once, transaction boundaries. Warnings go to ``noted``."""
    own_errors = any(values[name].errors for name in definition.keys)
    config = None if own_errors else definition.parse(raw)
    if config is not None:
        await _ask_own_check(connector, connector.validate(config), values, deadline_s, noted)
    _check_exactly_once(connector, config, values, worker_properties)


async def _ask_own_check(
    connector: type[SourceConnector | JobConnector],
    check: Coroutine[Any, Any, list[ConfigProblem]],
    values: dict[str, ConfigValue],
    deadline_s: float,
    noted: list[ConfigProblem] | None = None,
) -> None:
    """The complaints of the connector's own ``check``, or one about the check; warnings go to ``noted``."""
    try:
        async with asyncio.timeout(deadline_s):
            for problem in await check:
                if problem.warning:
                    _log.warning("%s: %s", connector.__name__, problem.message)
                    if noted is not None:
                        noted.append(problem)
                    continue
                _add_complaint(values, problem.name or CLASS_OPTION, problem.message)
    except TimeoutError:
        _add_complaint(
            values,
            CLASS_OPTION,
            f"The connector's own check took longer than {deadline_s:g} s: is the source it reads "
            "from reachable from this worker?"
            if issubclass(connector, SourceConnector)
            else f"The connector's own check took longer than {deadline_s:g} s: are the systems it reads from and writes to "
            "reachable from this worker?",
        )
    except ConfigInvalid as error:
        _add_complaint(values, CLASS_OPTION, str(error))
    except Exception as error:  # noqa: BLE001 - foreign code may fail in any way; the user gets an answer all the same
        _log.error("The check of %s failed", connector.__qualname__, exc_info=error)
        _add_complaint(values, CLASS_OPTION, f"The connector's own check failed with {type(error).__name__}: {error}")


def _check_exactly_once(
    connector: type[SourceConnector],
    config: Config | None,
    values: dict[str, ConfigValue],
    worker_properties: Mapping[str, str],
) -> None:
    """Run KIP-618's preflight checks, with Kafka Connect's messages."""
    support = values["exactly.once.support"]
    if not support.errors and str(support.value).strip().lower() == "required":
        if worker_properties.get("exactly.once.source.support", "disabled").strip().lower() != "enabled":
            support.errors.append("This worker does not have exactly-once source support enabled.")
        if config is not None and not _ask_safely(support, lambda: connector.exactly_once_support(config)):
            support.errors.append(
                "The connector does not support exactly-once semantics with the provided configuration."
            )
    boundary = values["transaction.boundary"]
    if (
        not boundary.errors
        and str(boundary.value).strip().lower() == "connector"
        and config is not None
        and not _ask_safely(boundary, lambda: connector.can_define_transaction_boundaries(config))
    ):
        boundary.errors.append(
            "The connector does not support connector-defined transaction boundaries with the given "
            "configuration. Please reconfigure it to use a different transaction boundary definition."
        )


def _ask_safely(value: ConfigValue, question: Callable[[], bool]) -> bool:
    """The answer, or True with a complaint if the connector failed to give one."""
    try:
        return question()
    except Exception as error:  # noqa: BLE001 - foreign code may fail in any way; the user gets an answer all the same
        value.errors.append(f"An unexpected error occurred during validation: {error or type(error).__name__}")
        return True


async def _converter_entries(
    registry: PluginRegistry,
    option: str,
    kind: str,
    config: Mapping[str, str],
    values: Mapping[str, ConfigValue],
    aliases: dict[str, str],
) -> tuple[list[dict[str, Any]], list[str], int]:
    """Options of a converter that the connector names itself: entries, their groups, and how many are wrong.

    Their other names go to ``aliases``.
    """
    if (
        option not in config
        or values[option].errors
        or range_problem(config.get(f"{option}.plugin.version")) is not None
    ):
        return [], [], 0
    plugin = registry.find(kind, config[option], config.get(f"{option}.plugin.version"))
    if plugin is None:
        return [], [], 0
    definition: ConfigDef = plugin.cls.config_def  # type: ignore[attr-defined]
    prefix = f"{option}."
    aliases.update(list_aliases(definition.keys.values(), prefix))
    converter_properties = {
        name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)
    }
    converter_properties.setdefault("converter.type", option.partition(".")[0])
    own_values = _evaluate_options(registry, definition, converter_properties)
    if issubclass(plugin.cls, Converter):
        # What a converter says beyond single options may need a look into files: not on the event loop.
        for problem in await asyncio.to_thread(plugin.cls.config_problems, converter_properties):
            _add_complaint(own_values, problem.name, f"{option}: {problem.message}")
    entries: list[dict[str, Any]] = []
    wrong = 0
    for name, value in own_values.items():
        key = definition.keys.get(name)
        value.name = prefix + name
        wrong += bool(value.errors)
        # The value of an option that does not exist is not shown: it may be a secret under a misspelt name.
        entries.append(
            {"definition": None if key is None else definition_info(key, prefix), "value": value_info(value, key)}
        )
    return entries, definition.groups, wrong


def _add_complaint(values: dict[str, ConfigValue], name: str, message: str) -> None:
    value = values.get(name)
    if value is None:
        value = values[name] = ConfigValue(name, None, [], [], visible=True)
    if message not in value.errors:
        value.errors.append(message)


def _recommender(
    items: Sequence[str], *, visible: bool = True
) -> Callable[[str, Mapping[str, str]], tuple[Sequence[Any], bool]]:
    return lambda name, raw: (items, visible)  # noqa: ARG005 - a recommender's signature
