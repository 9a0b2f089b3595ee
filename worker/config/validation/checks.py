"""Checks of a connector's options together: versions of plugins, references, and what only the connector itself knows."""

from __future__ import annotations

import asyncio
import difflib
import logging
from typing import TYPE_CHECKING, Any, Final

from connectors.api import LABELS_KEY, NODE_KEY, SourceConnector
from connectors.errors import ConfigInvalid
from connectors.options import ConfigProblem
from worker.config.validation.options import CONVERTERS, VERSION, add_complaint
from worker.control.state.verifications import VERIFY_KEYS
from worker.rest.checks import CLASS_OPTION
from worker.secrets.masking import find_bare_references
from worker.secrets.providers import has_references, only_references
from worker.transforms.java.versions import range_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping

    from connectors.job_api import JobConnector
    from connectors.options import Config, ConfigDef, ConfigKey, ConfigValue
    from worker.plugins.registry import LoadedPlugin, PluginRegistry

#: How much a name has in common with that of an option that it is a slip of: 1 would be all.
_ALIKE: Final = 0.85

_log = logging.getLogger("worker.validation")


def check_version(
    registry: PluginRegistry,
    plugin: LoadedPlugin,
    config: Mapping[str, str],
    values: dict[str, ConfigValue],
    option: str = CLASS_OPTION,
    version_option: str = VERSION,
) -> None:
    """Complain of a version that a plugin does not have: at its class and at its version, as KIP-891 says.

    Args:
        registry: the plugins.
        plugin: the plugin.
        config: the configuration, resolved.
        values: the options' values.
        option: the option with its class.
        version_option: the option with its version.
    """
    complaint = registry.check_version(plugin, config.get(version_option))
    if complaint is not None:
        add_complaint(values, option, complaint)
        add_complaint(values, version_option, complaint)


def check_converter_versions(
    registry: PluginRegistry, config: Mapping[str, str], values: dict[str, ConfigValue]
) -> None:
    """``check_version`` for converters; a complaint about a range itself is at the version only."""
    for option, kind, _ in CONVERTERS:
        version_option = f"{option}.plugin.version"
        version_range = config.get(version_option)
        unreadable = range_problem(version_range)
        if unreadable is not None:
            add_complaint(values, version_option, unreadable)
        elif option in config and not values[option].errors:
            plugin = registry.find(kind, config[option], version_range)
            if plugin is not None:
                check_version(registry, plugin, config, values, option, version_option)


def check_references(keys: Iterable[ConfigKey], resolved: Mapping[str, str], values: dict[str, ConfigValue]) -> None:
    """Refuse a secret that is still a reference: its own text, which others may guess, would be taken for the secret."""
    for key in keys:
        resolved_value = resolved.get(key.name)
        if key.secret and resolved_value and only_references(resolved_value):
            add_complaint(values, key.name, _describe_reference(key.name, resolved_value))


def check_leader_options(config: Mapping[str, str], values: dict[str, ConfigValue]) -> None:
    """Refuse references in options that the leader reads itself; ``config`` is as it was written."""
    tasks = {NODE_KEY: "places tasks", LABELS_KEY: "places tasks"}
    for name, action in {**tasks, **{key.name: "plans verifications" for key in VERIFY_KEYS}}.items():
        if has_references(config.get(name)):
            message = (
                f"{name} can't be a reference to a config provider: the leader {action} by the configuration as it is written. "
                "Write the value"
            )
            add_complaint(values, name, message)


def check_client_references(resolved: Mapping[str, str], values: Iterable[ConfigValue]) -> None:
    """``check_references`` for properties of clients, which may hold a secret between other text, such as a login."""
    references = dict(find_bare_references(resolved, ()))
    for value in values:
        if value.name in references:
            value.errors.append(_describe_reference(value.name, references[value.name]))


def _describe_reference(name: str, reference: str) -> str:
    return (
        f"{reference} in the option {name} has no value: check the provider's name (config.providers), the path and "
        "the key"
    )


def find_mistyped_options(names: Iterable[str], options: Collection[str]) -> list[ConfigProblem]:
    """A warning for each of ``names`` that is no option but looks like one.

    Others are left alone, as in Kafka Connect: a connector may read what it does not declare.
    """
    families = tuple(f"{option}." for option in options)
    problems = []
    for name in names:
        if name in options or name.startswith(families):
            continue
        near = difflib.get_close_matches(name, options, n=1, cutoff=_ALIKE)
        if near:
            message = f"{name} is no option of this connector and has no effect; did you mean {near[0]}?"
            _log.warning("%s", message)
            problems.append(ConfigProblem(name, message, warning=True))
    return problems


async def ask_connector(
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
        await ask_own_check(connector, connector.validate(config), values, deadline_s, noted)
    _check_exactly_once(connector, config, values, worker_properties)


async def ask_own_check(
    connector: type[SourceConnector | JobConnector],
    check: Coroutine[Any, Any, list[ConfigProblem]],
    values: dict[str, ConfigValue],
    deadline_s: float,
    noted: list[ConfigProblem],
) -> None:
    """The complaints of the connector's own ``check``, or one about the check; warnings go to ``noted``."""
    try:
        async with asyncio.timeout(deadline_s):
            for problem in await check:
                if problem.warning:
                    _log.warning("%s: %s", connector.__name__, problem.message)
                    noted.append(problem)
                else:
                    add_complaint(values, problem.name or CLASS_OPTION, problem.message)
    except TimeoutError:
        systems = (
            "is the source it reads from"
            if issubclass(connector, SourceConnector)
            else "are the systems it reads from and writes to"
        )
        add_complaint(
            values,
            CLASS_OPTION,
            f"The connector's own check took longer than {deadline_s:g} s: {systems} reachable from this worker?",
        )
    except ConfigInvalid as error:
        add_complaint(values, CLASS_OPTION, str(error))
    except Exception as error:  # noqa: BLE001 - foreign code may fail in any way; the user gets an answer all the same
        _log.error("The check of %s failed", connector.__qualname__, exc_info=error)
        add_complaint(values, CLASS_OPTION, f"The connector's own check failed with {type(error).__name__}: {error}")


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
