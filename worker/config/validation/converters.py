"""The options of converters that a connector names itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from worker.config.validation.checks import check_client_references
from worker.config.validation.forms import describe_option
from worker.config.validation.options import add_complaint, evaluate_options
from worker.config.validation.references import list_aliases
from worker.converters.base import Converter
from worker.transforms.java.versions import range_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import ConfigDef, ConfigValue
    from worker.plugins.registry import PluginRegistry


async def describe_converter(
    registry: PluginRegistry,
    option: str,
    kind: str,
    config: Mapping[str, str],
    values: Mapping[str, ConfigValue],
    aliases: dict[str, str],
    *,
    resolved: bool,
) -> tuple[list[dict[str, Any]], list[str], int]:
    """Options of a converter that the connector names itself: entries, their groups, and how many are wrong.

    Their other names go to ``aliases``. With ``resolved`` there are no references in ``config`` but those to providers that
    do not exist.
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
    own_values = evaluate_options(registry, definition, converter_properties)
    if issubclass(plugin.cls, Converter):
        # What a converter says beyond single options may need a look into files: not on the event loop.
        for problem in await asyncio.to_thread(plugin.cls.config_problems, converter_properties):
            add_complaint(own_values, problem.name, f"{option}: {problem.message}")
    for name, value in own_values.items():
        value.name = prefix + name
    if resolved:
        check_client_references(config, own_values.values())
    entries: list[dict[str, Any]] = []
    wrong = 0
    for name, value in own_values.items():
        key = definition.keys.get(name)
        wrong += bool(value.errors)
        # The value of an option that does not exist is not shown: it may be a secret under a misspelt name.
        entries.append(describe_option(value, key, prefix))
    return entries, definition.groups, wrong
