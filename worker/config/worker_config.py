"""The worker's properties: checks, and the values that follow from them.

``worker_keys.WORKER_CONFIG`` is the declaration; ``parse_worker`` checks a property file against it, maps Java class names
through the alias tables of the parts they belong to, and collects a warning for every property that has no effect here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.options import Config, invalid
from worker.config.worker_keys import IGNORED, PASS_THROUGH, STANDALONE, WORKER_CONFIG
from worker.converters.base import find_converter
from worker.host.tracing import is_installed as tracing_installed
from worker.kafka import clients as kafka_clients
from worker.plugins.environments import scan_folders
from worker.rest.settings import RestSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEARTBEAT: Final = "heartbeat.interval.ms"
_SESSION: Final = "session.timeout.ms"
_JAVAS_SESSION_MS: Final = "10000"


def is_known(name: str) -> bool:
    """Whether the worker, or a part it passes properties on to, knows the property."""
    return (
        name in WORKER_CONFIG.keys
        or name in IGNORED
        or name.startswith(PASS_THROUGH)
        or any(name in key.aliases for key in WORKER_CONFIG.keys.values())
    )


def parse_worker(properties: Mapping[str, str]) -> tuple[Config, list[str]]:
    """The parsed worker configuration and a warning for each property that has no effect.

    Raises:
        ConfigInvalid: with every complaint, each naming its property.
    """
    if STANDALONE in properties:
        raise ConfigInvalid(
            f"{STANDALONE} is a property of Kafka Connect's standalone mode, which keeps offsets in a file. Millrace keeps "
            "them in Kafka, also for a single worker: remove it and set group.id, config.storage.topic, "
            "offset.storage.topic and status.storage.topic (with *.storage.replication.factor=1 on a single broker), then "
            "run: millrace worker WORKER.properties CONNECTOR.properties"
        )
    properties = _with_javas_session(properties)
    problems = [message for value in WORKER_CONFIG.values(properties).values() for message in value.errors]
    if not problems:
        problems = _cross_checks(WORKER_CONFIG.parse(properties))
        try:
            RestSettings.from_properties(properties)
        except ConfigInvalid as error:
            problems.append(str(error))
    if problems:
        raise ConfigInvalid("\n".join(problems))
    warnings = [f"The property {name} is ignored: {IGNORED[name]}." for name in properties if name in IGNORED]
    warnings += [
        f"The property {name} is not known to Millrace and is ignored." for name in properties if not is_known(name)
    ]
    return WORKER_CONFIG.parse(properties), warnings


def _with_javas_session(properties: Mapping[str, str]) -> Mapping[str, str]:
    """The properties with Kafka Connect's ``session.timeout.ms`` where a file relies on it.

    A file that names Kafka Connect's default of ``heartbeat.interval.ms`` and no session would not fit to the default here.
    """
    interval = properties.get(_HEARTBEAT, "").strip()
    if _SESSION in properties or not interval.isdecimal() or int(interval) * 3 <= WORKER_CONFIG.keys[_SESSION].default:
        return properties
    return {**properties, _SESSION: _JAVAS_SESSION_MS}


def _cross_checks(config: Config) -> list[str]:
    problems: list[str] = []
    if config[_HEARTBEAT] * 3 > config[_SESSION]:
        problems.append(
            invalid(_HEARTBEAT, config[_HEARTBEAT], f"Value must be at most a third of {_SESSION} ({config[_SESSION]})")
        )
    topics: dict[str, str] = {}
    for topic_option in ("config.storage.topic", "offset.storage.topic", "status.storage.topic"):
        if config[topic_option] in topics:
            problems.append(
                invalid(
                    topic_option,
                    config[topic_option],
                    f"It is also {topics[config[topic_option]]}; each needs a topic of its own",
                )
            )
        topics[config[topic_option]] = topic_option
    if config[kafka_clients.POLICY].strip() not in kafka_clients.POLICIES:
        problems.append(kafka_clients.unknown_policy(config[kafka_clients.POLICY]))
    if config["otel.traces.endpoint"] and not tracing_installed():
        problems.append(
            invalid(
                "otel.traces.endpoint",
                config["otel.traces.endpoint"],
                "It needs OpenTelemetry's packages: pip install 'millrace[tracing]'",
            )
        )
    problems.extend(
        invalid("metrics.families", name, "Name families are A, B, C and D")
        for name in config["metrics.families"]
        if name not in {"A", "B", "C", "D"}
    )
    problems.extend(
        invalid("node.labels", label, "A label must be name=value")
        for label in config["node.labels"]
        if "=" not in label
    )
    problems.extend(_converter_problems(config))
    return problems


def _converter_problems(config: Config) -> list[str]:
    problems: dict[str, str] = {}
    for name in ("key.converter", "value.converter", "header.converter"):
        try:
            find_converter(config[name], name, headers=name == "header.converter")
        except ConfigInvalid as error:
            problems[name] = str(error)
    if problems and config["plugin.path"]:
        # Only the code of a converter in an environment knows its names: tasks report an unknown name.
        offered = {
            group
            for environment in scan_folders(config["plugin.path"], {}).environments.values()
            for group, _, _ in environment.entries
        }
        for name in list(problems):
            if (
                "millrace.header_converters" if name == "header.converter" else "millrace.converters"
            ) in offered or any(":" in item and "/" not in item for item in config["plugin.path"]):
                del problems[name]
    return list(problems.values())


def placement_topic(config: Config) -> str:
    """Name of the placement topic."""
    name: str = config["placement.storage.topic"]
    return name or f"{config['config.storage.topic']}-placement"


def parse_labels(config: Config) -> dict[str, str]:
    """``node.labels`` as a mapping."""
    return {name.strip(): value.strip() for name, _, value in (item.partition("=") for item in config["node.labels"])}


def process_count(config: Config, override: int | None) -> int:
    """How many task hosts to start."""
    if override is not None:
        return override
    configured: int | None = config["processes"]
    return len(os.sched_getaffinity(0)) if configured is None else configured


def exactly_once(config: Config) -> bool:
    """Whether ``exactly.once.source.support`` is ``enabled``."""
    return str(config["exactly.once.source.support"]).lower() == "enabled"
