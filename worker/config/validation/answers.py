"""The bodies of ``.../config/validate`` and of ``GET .../config`` that REST answers with, as Kafka Connect has them.

What goes in is the configuration as the user wrote it; references to config providers are shown as they are, and secrets never.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connectors.errors import ConfigInvalid
from connectors.options import ConfigDef
from offsets.creation import group_keys
from worker.config.job_config import JOB_CONFIG
from worker.config.source_config import SOURCE_CONFIG
from worker.config.validation.checks import (
    ask_connector,
    check_client_references,
    check_converter_versions,
    check_leader_options,
    check_references,
    check_version,
    find_mistyped_options,
)
from worker.config.validation.converters import describe_converter
from worker.config.validation.forms import definition_info, describe_option, describe_options
from worker.config.validation.jobs import validate_job
from worker.config.validation.options import (
    CONVERTERS,
    VERSION,
    add_complaint,
    evaluate_options,
    find_any_class,
    find_class,
    offer_versions,
    recommend,
)
from worker.config.validation.references import add_warnings, hide_names, hide_resolved, list_aliases
from worker.kafka.client_properties import client_overrides
from worker.rest.checks import CLASS_OPTION, missing_type
from worker.transforms.java.versions import range_problem
from worker.transforms.options import transform_config_keys, transform_problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.api import SourceConnector
    from connectors.options import ConfigKey, ConfigProblem
    from worker.plugins.registry import LoadedPlugin, PluginRegistry


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
            keys.setdefault(key.name, replace(key, default=latest) if key.name == VERSION else key)
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
        return await validate_job(registry, selected, config, actual, worker_properties, deadline_s)
    connector: type[SourceConnector] = selected.cls
    common = common_definition(registry, selected, actual, worker_properties)
    own_definition = connector.config_def
    values = evaluate_options(registry, common, actual)
    values |= evaluate_options(registry, own_definition, actual)
    check_version(registry, selected, actual, values)
    check_converter_versions(registry, actual, values)
    for problem in transform_problems(actual):
        add_complaint(values, problem.name, problem.message)
    if resolved is not None:
        check_references({**common.keys, **own_definition.keys}.values(), actual, values)
    check_leader_options(config, values)
    noted: list[ConfigProblem] = []
    await ask_connector(connector, own_definition, actual, values, worker_properties, deadline_s, noted)
    keys = {**common.keys, **own_definition.keys}
    groups = list(dict.fromkeys([*common.groups, *own_definition.groups]))
    entries = describe_options(values, keys)
    errors = sum(len(value.errors) for value in values.values())
    overrides = await asyncio.to_thread(client_overrides, actual, worker_properties)
    if resolved is not None:
        check_client_references(actual, [value for _, _, value in overrides])
    for key, prefix, value in overrides:
        entries.append(describe_option(value, key, prefix))
        groups += [key.group] if key is not None and key.group is not None and key.group not in groups else []
        errors += bool(value.errors)
    aliases = list_aliases(keys.values())
    for option, kind, _ in CONVERTERS:
        added, more_groups, wrong = await describe_converter(
            registry, option, kind, actual, values, aliases, resolved=resolved is not None
        )
        entries += added
        groups += [group for group in more_groups if group not in groups]
        errors += wrong
    doubtful = [name for name in actual if all(name != problem.name for problem in noted)]
    noted += find_mistyped_options(doubtful, {*aliases, *(entry["value"]["name"] for entry in entries)})
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
    version_range = actual.get(VERSION, "latest")
    unreadable = range_problem(version_range)
    if unreadable is not None:
        # A reference stays one, also where it stands for no range.
        written = config.get(VERSION, version_range)
        raise ConfigInvalid(unreadable if written == version_range else f"{unreadable.partition(': ')[0]}: {written}")
    try:
        return registry.connector_plugin(name, actual.get(VERSION))
    except ConfigInvalid as error:
        written = config.get(CLASS_OPTION, name)
        if written == name:
            raise
        # A reference stays one, also where it stands for no class.
        raise ConfigInvalid(str(error).replace(name, written)) from None


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
        if key.name == VERSION:
            keys.append(offer_versions(key, versions))
            continue
        option = key.name.removesuffix(".plugin.version")
        kind = next((kind for name, kind, _ in CONVERTERS if name == option), None)
        if kind is None:
            keys.append(key)
            continue
        default = worker_properties.get(option) or (
            "org.apache.kafka.connect.storage.SimpleHeaderConverter" if option == "header.converter" else None
        )
        if key.name == option:
            shown = find_class(registry, kind, default) if default else None
            keys.append(replace(key, default=shown, recommender=recommend(registry.class_names(kind))))
        else:
            named = config.get(option, default or "")
            class_versions = registry.versions(kind, named)
            visible = bool(class_versions) or find_any_class(registry, named) is not None
            # The one in use, which is the latest that can be in one process with the connector.
            used = registry.find(kind, named) if class_versions and key.name not in config else None
            keys.append(
                replace(
                    key,
                    default=used.version if used is not None else class_versions[-1] if class_versions else None,
                    recommender=recommend(class_versions, visible=visible),
                )
            )
    keys += transform_config_keys(config, registry)
    if worker_properties.get("topic.creation.enable", "true").strip().lower() != "false":
        keys += group_keys(config)
    return ConfigDef(keys)
