"""The runtime's options of a connector that moves data itself (a sink in Kafka Connect's terms), and those that it can't have.

They are those of a source connector as far as they make sense without records passing through the worker.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from connectors.api import LABELS_KEY, NODE_KEY, TOGETHER_KEY
from connectors.errors import ConfigInvalid
from connectors.options import ConfigDef, ConfigProblem
from worker.config.source_config import SOURCE_CONFIG
from worker.kafka import clients as kafka_clients

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.job_api import JobConnector, Translation

#: Properties of the worker that a connector's configuration may leave out.
_CONVERTERS: Final = ("key.converter", "value.converter")
_NAMES: Final = (
    "name",
    "connector.class",
    "connector.plugin.version",
    "tasks.max",
    "config.action.reload",
    "errors.retry.timeout",
    "errors.retry.delay.max.ms",
    "errors.restart.policy",
    "errors.restart.max.attempts",
    "errors.restart.delay.ms",
    "errors.restart.max.delay.ms",
    "errors.restart.reset.ms",
    NODE_KEY,
    LABELS_KEY,
)
_DOCS: Final[Mapping[str, str]] = {
    "tasks.max": "A job is one task for each of its sinks, whatever this says: its own cluster, or its local "
    "threads, share the work.",
    "errors.retry.timeout": "How long a job that ended with a passing fault is started again. Not set or -1: forever. When it "
    "has passed the task fails.",
    "errors.retry.delay.max.ms": "Longest pause between two such starts; pauses grow exponentially up to it, with jitter.",
}

#: What the runtime reads of such a connector's configuration; it is not handed on to the job.
JOB_CONFIG: Final = ConfigDef(
    [replace(SOURCE_CONFIG.keys[name], doc=_DOCS.get(name, SOURCE_CONFIG.keys[name].doc)) for name in _NAMES]
)

#: Properties of a source connector that would have no effect: prefix -> why, and what does it instead.
_FOREIGN: Final[Mapping[str, str]] = {
    "key.converter": "no converter of the worker sees its records: say how keys are encoded by its own options",
    "value.converter": "no converter of the worker sees its records: say how values are encoded by its own options",
    "header.converter": "no converter of the worker sees its records",
    "transforms": "no transform of the worker sees its records: transform in the source connector, or by its own options",
    "predicates": "no transform of the worker sees its records",
    "topic.creation.": "the worker makes no topics for it",
    "exactly.once.support": "the worker's exactly once support is for sources: what it guarantees is its own option",
    "transaction.boundary": "the worker's exactly once support is for sources: what it guarantees is its own option",
    "offsets.storage.topic": "the worker keeps no offsets for it",
    "producer.override.": "the worker opens no producer for it: set its own Kafka options",
    "consumer.override.": "the worker opens no consumer for it: set its own Kafka options",
    "admin.override.": "the worker opens no Kafka client for it: set its own Kafka options",
}


def foreign_complaints(config: Mapping[str, str]) -> list[ConfigProblem]:
    """A complaint for each property that would silently have no effect. Pure."""
    problems = []
    for name in config:
        reason = next((reason for prefix, reason in _FOREIGN.items() if _is_under(name, prefix)), None)
        if reason is not None:
            problems.append(
                ConfigProblem(
                    name,
                    f"Configuration {name} does not apply to this connector, which moves data itself: {reason}. Remove it",
                )
            )
    return problems


def _is_under(name: str, prefix: str) -> bool:
    return name.startswith(prefix) if prefix.endswith(".") else name == prefix or name.startswith(f"{prefix}.")


def job_properties(config: Mapping[str, str], declared: ConfigDef) -> dict[str, str]:
    """Return the job's own properties in a connector's configuration: no runtime options, except those it declares itself."""
    return {
        name: value
        for name, value in config.items()
        if name in declared.keys
        or (
            name not in JOB_CONFIG.keys
            and name not in ("task.class", TOGETHER_KEY)
            and not any(_is_under(name, prefix) for prefix in _FOREIGN)
        )
    }


def job_form(
    connector: type[JobConnector], config: Mapping[str, str], worker: Mapping[str, str]
) -> tuple[dict[str, str], Translation | None]:
    """A configuration in the job's own options, with what follows from where it runs; and how it was translated, if it was.

    Args:
        connector: its connector.
        config: as the user wrote it, references resolved.
        worker: the worker's properties, resolved.
    """
    converters = {name: value for name, value in worker.items() if name.startswith(_CONVERTERS)}
    translation = connector.translated(config, converters)
    properties = config if translation is None else translation.properties
    return connector.completed(properties, worker_kafka(worker)), translation


def runnable_properties(
    connector: type[JobConnector], config: Mapping[str, str], worker: Mapping[str, str]
) -> dict[str, str]:
    """The properties of ``job_form``, for a job that is to run.

    Raises:
        ConfigInvalid: the configuration says what can't be translated; the message has every complaint.
    """
    properties, translation = job_form(connector, config, worker)
    demand_translated(translation)
    return properties


def demand_translated(translation: Translation | None) -> None:
    """Refuse a configuration that could not be translated.

    Raises:
        ConfigInvalid: it could not; the message has every complaint.
    """
    refused = [problem.message for problem in translation_problems(translation) if not problem.warning]
    if refused:
        raise ConfigInvalid("\n".join(refused))


def translation_problems(translation: Translation | None) -> list[ConfigProblem]:
    """The complaints of a translation, each with the name of its option in the message."""
    if translation is None:
        return []
    return [
        problem if problem.name in problem.message else replace(problem, message=f"{problem.name}: {problem.message}")
        for problem in translation.problems
    ]


def worker_kafka(worker: Mapping[str, str]) -> dict[str, str]:
    """How the worker reaches Kafka, for ``JobConnector.completed``: addresses and security, with the Java client's names."""
    return {
        name: value
        for name, value in kafka_clients.inherited_properties(worker, "consumer.").items()
        if name == "bootstrap.servers" or name.startswith(kafka_clients.SECURITY_PREFIXES)
    }


def tasks_note(config: Mapping[str, str]) -> list[str]:
    """Return a note about a ``tasks.max`` that has no effect. Pure."""
    tasks_max = config.get("tasks.max", "1").strip()
    return (
        []
        if tasks_max in {"", "1"}
        else [
            f"tasks.max={tasks_max} has no effect: a job is one task for each of its sinks, and shares its work out itself"
        ]
    )
