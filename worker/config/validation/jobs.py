"""Checking the configuration of a connector that moves data itself: a Spark job."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from connectors.options import ConfigDef
from worker.config.job_config import JOB_CONFIG, foreign_complaints, job_form, job_properties, translation_problems
from worker.config.validation.checks import ask_own_check, check_leader_options, check_version
from worker.config.validation.forms import describe_options
from worker.config.validation.options import VERSION, add_complaint, evaluate_options, offer_versions
from worker.config.validation.references import add_warnings, hide_names, hide_resolved, list_aliases
from worker.rest.checks import CLASS_OPTION
from worker.secrets.providers import has_references

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.job_api import JobConnector
    from connectors.options import ConfigProblem, ConfigValue
    from worker.plugins.registry import LoadedPlugin, PluginRegistry


async def validate_job(
    registry: PluginRegistry,
    selected: LoadedPlugin,
    config: Mapping[str, str],
    actual: Mapping[str, str],
    worker_properties: Mapping[str, str],
    deadline_s: float,
) -> dict[str, Any]:
    """``answers.validate_config`` for such a connector: see there.

    Args:
        registry: the plugins.
        selected: the connector class.
        config: the configuration as it was written.
        actual: the same, resolved.
        worker_properties: the worker's properties.
        deadline_s: how long the connector's own check may take, in seconds.
    """
    connector: type[JobConnector] = selected.cls
    written = actual
    actual, translation = job_form(connector, written, worker_properties)
    # Which options there are may depend on parts that have to be imported first: not on the event loop.
    own_definition = job_definition = await asyncio.to_thread(connector.definition, actual)
    versions = registry.versions(selected.kind, selected.class_name)
    common = ConfigDef(
        [offer_versions(key, versions) if key.name == VERSION else key for key in JOB_CONFIG.keys.values()]
    )
    values = evaluate_options(registry, common, actual)
    values |= evaluate_options(registry, own_definition, actual)
    noted: list[ConfigProblem] = []
    if translation is not None:
        own_definition = ConfigDef(list({**connector.config_def.keys, **job_definition.keys}.values()))
        values = evaluate_options(registry, connector.config_def, written) | values
    for problem in translation_problems(translation):
        if problem.warning:
            noted.append(problem)
        else:
            add_complaint(values, problem.name, problem.message)
    check_version(registry, selected, actual, values)
    check_leader_options(config, values)
    for problem in foreign_complaints(actual):
        add_complaint(values, problem.name, problem.message)
    await ask_own_check(
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
    entries = describe_options(values, keys)
    # What was made of a reference is shown as the reference, too.
    shown = {option: config[origin] for option, origin in origins.items() if has_references(config.get(origin))}
    config_shown, properties = {**config, **shown}, {**written, **actual}
    hide_resolved(entries, config_shown, properties, list_aliases(keys.values()))
    hide_names(entries, groups, config_shown, properties)
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
            add_complaint(values, origin, f"{message} ({origin} becomes {name})")
