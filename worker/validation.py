"""Checking a connector's configuration: the answers of ``.../config/validate`` and ``GET .../config``, as Kafka Connect's.

What goes in is the configuration as the user wrote it; references to config providers are shown as they are, and secrets never.
"""
from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from connectors.api import JobConnector, SourceConnector
from connectors.errors import ConfigInvalid
from connectors.options import MASK, ConfigDef, ConfigType, ConfigValue, invalid, java_string, parse_value
from offsets.creation import group_keys
from worker.job_config import JOB_CONFIG, foreign, job_properties, worker_kafka
from worker.kafka_clients import client_arguments, overrides
from worker.rest.checks import CLASS_OPTION, missing_type
from worker.source_config import SOURCE_CONFIG
from worker.transforms.options import transform_config_keys, transform_problems
from worker.transforms.registry import resolve_predicate, resolve_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from connectors.options import Config, ConfigKey, ConfigProblem
    from worker.plugins import Plugin, PluginRegistry

_POLICY: Final = "connector.client.config.override.policy"
_CLIENTS: Final = (("producer.override.", "producer"), ("admin.override.", "admin"), ("consumer.override.", "consumer"))
_CONVERTERS: Final = (("header.converter", "header_converter", "HeaderConverter"), ("key.converter", "converter", "Converter"),
                      ("value.converter", "converter", "Converter"))

_log = logging.getLogger("worker.validation")


# Answers.


def plugin_config(registry: PluginRegistry, plugin: str, version: str | None = None) -> list[dict[str, Any]]:
    """The body of ``GET /connector-plugins/{plugin}/config``: the plugin's own options, then the common ones.

    Raises:
        LookupError: there is no such plugin (404).
        ConfigInvalid: it is not of this version, or of a kind that has no options (400).
    """
    try:
        found, definition = registry.plugin_for(plugin)
    except LookupError:
        raise LookupError(f"Unknown plugin {plugin}.") from None
    complaint = registry.check_version(found, version)
    if complaint is not None:
        raise ConfigInvalid(complaint)
    keys = dict(definition.keys)
    runtime = {"source": SOURCE_CONFIG, "sink": JOB_CONFIG}.get(found.kind)
    if runtime is not None:
        for key in runtime.keys.values():
            keys.setdefault(key.name, replace(key, default=found.version) if key.name == "connector.plugin.version" else key)
    return [definition_info(key) for key in keys.values()]


async def validate(registry: PluginRegistry, config: Mapping[str, str], plugin: str | None,
                   worker_properties: Mapping[str, str], *, resolved: Mapping[str, str] | None = None,
                   deadline_s: float = 25.0) -> dict[str, Any]:
    """The body of ``PUT /connector-plugins/{plugin}/config/validate``.

    Args:
        registry: the plugins.
        config: the configuration as it was written.
        plugin: the class named in the URL; ``connector.class`` is used where it is None.
        worker_properties: the worker's properties: defaults of converters, the override policy, exactly once.
        resolved: the configuration with references resolved; checked in place of ``config``, and never shown.
        deadline_s: how long the connector's own check may take, in seconds.

    Raises:
        ConfigInvalid: no connector class, or an unknown one (400).
    """
    actual = dict(config if resolved is None else resolved)
    name = actual.get(CLASS_OPTION, plugin)
    if name is None:
        raise ConfigInvalid(missing_type(config))
    found = registry.connector_plugin(name)
    if found.kind == "sink":
        return await _validate_job(registry, found, config, actual, worker_properties, deadline_s)
    connector: type[SourceConnector] = found.cls
    common = common_definition(registry, found, actual, worker_properties)
    own = connector.config_def
    values = _evaluate(registry, common, actual)
    values |= _evaluate(registry, own, actual)
    _check_versions(registry, found, actual, values)
    for problem in transform_problems(actual):
        _complain(values, problem.name, problem.message)
    noted: list[ConfigProblem] = []
    await _ask_connector(connector, own, actual, values, worker_properties, deadline_s, noted)
    keys = {**common.keys, **own.keys}
    groups = list(dict.fromkeys([*common.groups, *own.groups]))
    entries = [{"definition": None, "value": value_info(value, None)} for value in values.values() if value.name not in keys]
    entries += [{"definition": definition_info(key), "value": value_info(values[key.name], key)} for key in keys.values()]
    errors = sum(len(value.errors) for value in values.values())
    for prefix, kind in _CLIENTS:
        for value in _client_values(actual, prefix, kind, worker_properties):
            entries.append({"definition": None, "value": value_info(value, None)})
            errors += bool(value.errors)
    for option, kind, _ in _CONVERTERS:
        added, more_groups, wrong = _converter_entries(registry, option, kind, actual, values)
        entries += added
        groups += [group for group in more_groups if group not in groups]
        errors += wrong
    _hide_resolved(entries, config, actual)
    body = {"name": config.get(CLASS_OPTION, name), "error_count": errors, "groups": groups, "configs": entries}
    # Kafka Connect has no such member: it is there only where there is something to say.
    return {**body, "warnings": [{"name": each.name, "message": each.message} for each in noted]} if noted else body


async def _validate_job(registry: PluginRegistry, found: Plugin, config: Mapping[str, str], actual: Mapping[str, str],
                        worker_properties: Mapping[str, str], deadline_s: float) -> dict[str, Any]:
    """``validate`` for a connector that moves data itself: see there."""
    connector: type[JobConnector] = found.cls
    actual = connector.completed(actual, worker_kafka(worker_properties))
    # Which options there are may depend on parts that have to be imported first: not on the event loop.
    own = await asyncio.to_thread(connector.definition, actual)
    common = ConfigDef([replace(key, default=found.version, recommender=_recommend([found.version]))
                        if key.name == "connector.plugin.version" else key for key in JOB_CONFIG.keys.values()])
    values = _evaluate(registry, common, actual)
    values |= _evaluate(registry, own, actual)
    complaint = registry.check_version(found, actual.get("connector.plugin.version"))
    if complaint is not None:
        _complain(values, CLASS_OPTION, complaint)
        _complain(values, "connector.plugin.version", complaint)
    for problem in foreign(actual):
        _complain(values, problem.name, problem.message)
    await _ask(connector, connector.validate(job_properties(own.canonical(actual), own)), values, deadline_s)
    keys = {**common.keys, **own.keys}
    groups = list(dict.fromkeys([*common.groups, *own.groups]))
    entries = [{"definition": None, "value": value_info(value, None)} for value in values.values() if value.name not in keys]
    entries += [{"definition": definition_info(key), "value": value_info(values[key.name], key)} for key in keys.values()]
    _hide_resolved(entries, config, actual)
    errors = sum(len(value.errors) for value in values.values())
    return {"name": config.get(CLASS_OPTION, found.class_name), "error_count": errors, "groups": groups, "configs": entries}


def common_definition(registry: PluginRegistry, connector: Plugin, config: Mapping[str, str],
                      worker_properties: Mapping[str, str]) -> ConfigDef:
    """The options that every source connector has, as they are for this one.

    The connector and the worker give defaults and recommended values, the configuration adds the options of its transforms,
    predicates and topic creation groups.
    """
    versions = _recommend([connector.version])
    keys: list[ConfigKey] = []
    for key in SOURCE_CONFIG.keys.values():
        if key.name == "connector.plugin.version":
            keys.append(replace(key, default=connector.version, recommender=versions))
            continue
        option = key.name.removesuffix(".plugin.version")
        kind = next((kind for name, kind, _ in _CONVERTERS if name == option), None)
        if kind is None:
            keys.append(key)
            continue
        default = worker_properties.get(option) or (
            "org.apache.kafka.connect.storage.SimpleHeaderConverter" if option == "header.converter" else None)
        if key.name == option:
            shown = _canonical(registry, kind, default) if default else None
            known = sorted(item.class_name for item in registry.plugins(kind))
            keys.append(replace(key, default=shown, recommender=_recommend(known)))
        else:
            named = config.get(option, default or "")
            found = registry.versions(kind, named)
            visible = bool(found) or _any_class(registry, named) is not None
            keys.append(replace(key, default=found[0] if found else None, recommender=_recommend(found, visible=visible)))
    keys += transform_config_keys(config)
    if worker_properties.get("topic.creation.enable", "true").strip().lower() != "false":
        keys += group_keys(config)
    return ConfigDef(keys)


def definition_info(key: ConfigKey, prefix: str = "") -> dict[str, Any]:
    """An option's declaration in Connect's form."""
    return {
        "name": prefix + key.name, "type": str(key.type), "required": key.required,
        "default_value": None if key.required else text_of(key.default, key.type), "importance": str(key.importance),
        "documentation": key.doc, "group": key.group, "width": str(key.width), "display_name": key.display_name or key.name,
        "dependents": list(key.dependents), "order": key.order,
    }


def value_info(value: ConfigValue, key: ConfigKey | None) -> dict[str, Any]:
    """An option's value in Connect's form."""
    kind = ConfigType.STRING if key is None else key.type
    item = ConfigType.STRING if kind is ConfigType.LIST else kind
    return {"name": value.name, "value": text_of(value.value, kind),
            "recommended_values": [text_of(each, item) for each in value.recommended], "errors": value.errors,
            "visible": value.visible}


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


def _evaluate(registry: PluginRegistry, definition: ConfigDef, raw: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Every option's value with its complaints, as Kafka's ``ConfigDef.validate`` gives them.

    A value that can't be parsed is null, and its validator is asked all the same: ``tasks.max=abc`` is two errors.
    """
    raw = definition.canonical(raw)
    result: dict[str, ConfigValue] = {}
    for key in definition.keys.values():
        errors: list[str] = []
        value: Any = None
        if key.name in raw:
            try:
                value = parse_value(key, raw[key.name])
            except ConfigInvalid as error:
                errors.append(str(error))
        elif key.required:
            errors.append(f'Missing required configuration "{key.name}" which has no default value.')
        else:
            value = key.default
        complaint = None if key.validator is None else key.validator(key.name, value)
        if complaint is not None:
            errors.append(complaint)
        if key.type is ConfigType.CLASS and value is not None:
            value = _class_value(registry, key.name, value, errors)
        recommended, visible = ((), True) if key.recommender is None else key.recommender(key.name, raw)
        result[key.name] = ConfigValue(key.name, value, errors, list(recommended), visible)
    return result


def _class_value(registry: PluginRegistry, option: str, value: str, errors: list[str]) -> str | None:
    """The canonical name of the class that ``value`` means; null, with a complaint, if there is none."""
    for converter, kind, interface in _CONVERTERS:
        if option == converter:
            found = _canonical(registry, kind, value)
            if found is not None:
                return found
            other = _any_class(registry, value)
            errors.append(f"Class class {other} does not implement the {interface} interface" if other is not None
                          else invalid(option, value, f"Class {value} could not be found."))
            return other
    resolve: Callable[[str], Any]
    if option.startswith("transforms.") and option.endswith(".type"):
        resolve = resolve_transform
    elif option.startswith("predicates.") and option.endswith(".type"):
        resolve = resolve_predicate
    else:
        return value
    try:
        name: str = resolve(value).class_name
    except ConfigInvalid:
        return _any_class(registry, value)  # the option's validator has said what is wrong
    return name


def _canonical(registry: PluginRegistry, kind: str, value: str) -> str | None:
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


def _check_versions(registry: PluginRegistry, connector: Plugin, config: Mapping[str, str],
                    values: dict[str, ConfigValue]) -> None:
    """KIP-891: complaints stand at the class and at its version."""
    complaint = registry.check_version(connector, config.get("connector.plugin.version"))
    if complaint is not None:
        _complain(values, CLASS_OPTION, complaint)
        _complain(values, "connector.plugin.version", complaint)
    for option, kind, _ in _CONVERTERS:
        if option not in config or values[option].errors:
            continue
        plugin = registry.find(kind, config[option])
        complaint = None if plugin is None else registry.check_version(plugin, config.get(f"{option}.plugin.version"))
        if complaint is not None:
            _complain(values, option, complaint)
            _complain(values, f"{option}.plugin.version", complaint)


async def _ask_connector(connector: type[SourceConnector], definition: ConfigDef, raw: Mapping[str, str],
                         values: dict[str, ConfigValue], worker_properties: Mapping[str, str], deadline_s: float,
                         noted: list[ConfigProblem]) -> None:
    """Ask the connector what only it knows: its own checks, exactly once, transaction boundaries. Warnings go to ``noted``."""
    own_errors = any(values[name].errors for name in definition.keys)
    config = None if own_errors else definition.parse(raw)
    if config is not None:
        await _ask(connector, connector.validate(config), values, deadline_s, noted)
    _check_exactly_once(connector, config, values, worker_properties)


async def _ask(connector: type[SourceConnector | JobConnector], check: Coroutine[Any, Any, list[ConfigProblem]],
               values: dict[str, ConfigValue], deadline_s: float, noted: list[ConfigProblem] | None = None) -> None:
    """The complaints of the connector's own ``check``, or one about the check; warnings go to ``noted``."""
    try:
        async with asyncio.timeout(deadline_s):
            for problem in await check:
                if problem.warning:
                    _log.warning("%s: %s", connector.__name__, problem.message)
                    if noted is not None:
                        noted.append(problem)
                    continue
                _complain(values, problem.name or CLASS_OPTION, problem.message)
    except TimeoutError:
        _complain(values, CLASS_OPTION, f"The connector's own check took longer than {deadline_s:g} s: is the source it reads "
                                        "from reachable from this worker?" if issubclass(connector, SourceConnector) else
                  f"The connector's own check took longer than {deadline_s:g} s: are the systems it reads from and writes to "
                  "reachable from this worker?")
    except ConfigInvalid as error:
        _complain(values, CLASS_OPTION, str(error))
    except Exception as error:  # noqa: BLE001 - foreign code may fail in any way; the user gets an answer all the same
        _log.error("The check of %s failed", connector.__qualname__, exc_info=error)
        _complain(values, CLASS_OPTION, f"The connector's own check failed with {type(error).__name__}: {error}")


def _check_exactly_once(connector: type[SourceConnector], config: Config | None, values: dict[str, ConfigValue],
                        worker_properties: Mapping[str, str]) -> None:
    """KIP-618's preflight checks, with Kafka Connect's texts."""
    support = values["exactly.once.support"]
    if not support.errors and str(support.value).strip().lower() == "required":
        if worker_properties.get("exactly.once.source.support", "disabled").strip().lower() != "enabled":
            support.errors.append("This worker does not have exactly-once source support enabled.")
        if config is not None and not _asked(support, lambda: connector.exactly_once_support(config)):
            support.errors.append("The connector does not support exactly-once semantics with the provided configuration.")
    boundary = values["transaction.boundary"]
    if (not boundary.errors and str(boundary.value).strip().lower() == "connector" and config is not None
            and not _asked(boundary, lambda: connector.can_define_transaction_boundaries(config))):
        boundary.errors.append("The connector does not support connector-defined transaction boundaries with the given "
                               "configuration. Please reconfigure it to use a different transaction boundary definition.")


def _asked(value: ConfigValue, question: Callable[[], bool]) -> bool:
    """The answer, or True with a complaint if the connector failed to give one."""
    try:
        return question()
    except Exception as error:  # noqa: BLE001 - foreign code may fail in any way; the user gets an answer all the same
        value.errors.append(f"An unexpected error occurred during validation: {error or type(error).__name__}")
        return True


def _client_values(config: Mapping[str, str], prefix: str, kind: str,
                   worker_properties: Mapping[str, str]) -> Iterable[ConfigValue]:
    """A connector's own client properties: what the worker's policy allows, and whether the client understands them."""
    policy = worker_properties.get(_POLICY, "All")
    for name, text in config.items():
        if not name.startswith(prefix):
            continue
        errors: list[str] = []
        try:
            overrides({name: text}, prefix, policy)
            client_arguments({name.removeprefix(prefix): text}, kind)
        except ConfigInvalid as error:
            errors.append(str(error))
        shown = MASK if any(word in name for word in ("password", "jaas", "secret", ".key")) else text
        yield ConfigValue(name, shown, errors, [], visible=True)


def _converter_entries(registry: PluginRegistry, option: str, kind: str, config: Mapping[str, str],
                       values: Mapping[str, ConfigValue]) -> tuple[list[dict[str, Any]], list[str], int]:
    """Options of a converter that the connector names itself: entries, their groups, and how many are wrong."""
    if option not in config or values[option].errors:
        return [], [], 0
    plugin = registry.find(kind, config[option])
    if plugin is None:
        return [], [], 0
    definition: ConfigDef = plugin.cls.config_def  # type: ignore[attr-defined]
    prefix = f"{option}."
    given = {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}
    given.setdefault("converter.type", option.partition(".")[0])
    entries: list[dict[str, Any]] = []
    wrong = 0
    for name, value in _evaluate(registry, definition, given).items():
        key = definition.keys[name]
        value.name = prefix + name
        wrong += bool(value.errors)
        entries.append({"definition": definition_info(key, prefix), "value": value_info(value, key)})
    return entries, definition.groups, wrong


def _complain(values: dict[str, ConfigValue], name: str, message: str) -> None:
    value = values.get(name)
    if value is None:
        value = values[name] = ConfigValue(name, None, [], [], visible=True)
    if message not in value.errors:
        value.errors.append(message)


def _recommend(items: Sequence[str], *, visible: bool = True) -> Callable[[str, Mapping[str, str]], tuple[Sequence[Any], bool]]:
    return lambda name, raw: (items, visible)  # noqa: ARG005 - a recommender's signature


def _hide_resolved(entries: Iterable[dict[str, Any]], config: Mapping[str, str], actual: Mapping[str, str]) -> None:
    """Show references instead of what config providers gave for them, in values and in complaints."""
    changed = {name: text for name, text in config.items() if actual.get(name, text) != text}
    if not changed:
        return
    for entry in entries:
        value = entry["value"]
        if value["name"] in changed and value["value"] is not None:
            value["value"] = changed[value["name"]]
        for name, text in changed.items():
            if actual[name]:
                value["errors"] = [error.replace(actual[name], text) for error in value["errors"]]
