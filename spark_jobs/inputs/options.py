"""Checks of the options of a job's input together. Pure; imports no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigProblem
from spark_jobs.config.keys import AVAILABLE_NOW, FILES, HISTORY, KAFKA, MATERIALIZE, SINKS_MAX_LAG, SOURCE_TYPE, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Options of topics, which other inputs don't have.
_OF_TOPICS: Final = ("source.topics", "source.topics.pattern", "source.min.partitions")


def check_input_options(values: Mapping[str, Any]) -> list[ConfigProblem]:
    """Complaints about options of the input that don't go together.

    Args:
        values: the options of the frame, parsed.
    """
    kind = values[SOURCE_TYPE]
    problems = _check_topics(values) if kind == KAFKA else _no_topics(values)
    needs = _needs_kafka(values)
    if needs and not values["kafka.bootstrap.servers"]:
        problems.append(_make_problem("kafka.bootstrap.servers", f"Missing required configuration: {needs}"))
    return problems


def _check_topics(values: Mapping[str, Any]) -> list[ConfigProblem]:
    problems = []
    topics, pattern = values["source.topics"], values["source.topics.pattern"]
    if not topics and not pattern:
        problems.append(
            _make_problem(
                "source.topics", "Missing required configuration: give source.topics or source.topics.pattern"
            )
        )
    if topics and pattern:
        problems.append(
            _make_problem("source.topics.pattern", "source.topics and source.topics.pattern are both given; remove one")
        )
    if not values["source.format"]:
        problems.append(
            _make_problem(
                "source.format",
                'Missing required configuration "source.format" which has no default value: debezium, ums, '
                "partition-update or plain.",
            )
        )
    if values[TABLES] and values["transform.type"] == MATERIALIZE:
        problems.append(
            _make_problem(
                TABLES, f"{TABLES} can't be used with transform.type={MATERIALIZE}, whose topics have one table each"
            )
        )
    if values[TABLES] and values["source.format"] == "partition-update":
        problems.append(
            _make_problem(
                TABLES, f"{TABLES} can't be used with source.format=partition-update: choose by source.topics"
            )
        )
    if values[TABLES] and "records" in (values.get("sink.kafka.content"), values.get("sink.console.content")):
        problems.append(
            _make_problem(
                TABLES,
                f"{TABLES} can't be used where records are passed on as they are: set sink.kafka.content=rows "
                "(sink.console.content=rows)",
            )
        )
    return problems


def _no_topics(values: Mapping[str, Any]) -> list[ConfigProblem]:
    kind = values[SOURCE_TYPE]
    problems = [
        _make_problem(name, f"{name} can't be used with {SOURCE_TYPE}={kind}; remove it")
        for name in _OF_TOPICS
        if values[name]
    ]
    if values["transform.type"] == MATERIALIZE:
        problems.append(
            _make_problem(
                "transform.type",
                f"transform.type={MATERIALIZE} reads topics only: its state is kept per Kafka partition; remove "
                f"{SOURCE_TYPE}={kind}, or write the rows to a topic by another job first",
            )
        )
    if kind == HISTORY and values["trigger.mode"] != AVAILABLE_NOW:
        problems.append(
            _make_problem(
                "trigger.mode",
                f"{SOURCE_TYPE}={HISTORY} reads a history once, up to its end at the start, and stops: set "
                f"trigger.mode={AVAILABLE_NOW}",
            )
        )
    if kind == FILES and values[TABLES]:
        problems.append(
            _make_problem(TABLES, f"{TABLES} can't be used with {SOURCE_TYPE}={FILES}: the files are one table")
        )
    if kind == HISTORY and values["source.format"]:
        problems.append(
            _make_problem(
                "source.format", f"source.format can't be used with {SOURCE_TYPE}={HISTORY}: a history has one form"
            )
        )
    if kind == FILES and values["source.format"] == "partition-update":
        problems.append(
            _make_problem("source.format", "source.format=partition-update can't be read from files; use plain")
        )
    if values["source.value.encoding"] == "avro":
        problems.append(
            _make_problem(
                "source.value.encoding",
                "source.value.encoding=avro is for records of Kafka; for files of Avro set source.files.format=avro",
            )
        )
    return problems


def lag_complaints(configs: Iterable[Mapping[str, Any]], max_lag: int | None) -> list[ConfigProblem]:
    """Complaints about a limit between sinks whose source has no offsets that can be compared.

    Args:
        configs: the parsed configuration of each sink's job.
        max_lag: ``sinks.max.lag.records``; negative: no limit.
    """
    kinds = sorted({config[SOURCE_TYPE] for config in configs} - {KAFKA})
    if not kinds or max_lag is None or max_lag < 0:
        return []
    problem = f"{SINKS_MAX_LAG} can't be used with {SOURCE_TYPE}={kinds[0]}: it counts records of topics; remove it"
    return [_make_problem(SINKS_MAX_LAG, problem)]


def input_lines(config: Mapping[str, Any]) -> list[str]:
    """Describe an input without topics, for ``millrace job plan``."""
    if config[SOURCE_TYPE] == FILES:
        form = config["source.files.format"]
        form = f"{config['source.format']} in {form}" if config["source.format"] else form
        return [f"reads files ({form}) from {config['source.files.path']} as table {config['source.files.namespace']}"]
    since = f" from {config['source.history.since']}" if config["source.history.since"] else ""
    until = f" to {config['source.history.until']}" if config["source.history.until"] else ""
    return [f"reads the history in {config['source.history.path']}{since}{until}"]


def most_per_batch(config: Mapping[str, Any]) -> str:
    """How much a batch reads, for ``millrace job plan``."""
    if config[SOURCE_TYPE] == FILES:
        return f"at most {config['source.files.max.per.trigger']} files"
    about = "at most" if config[SOURCE_TYPE] == KAFKA else "about"
    return f"{about} {config['source.max.offsets.per.trigger']} records"


def _needs_kafka(values: Mapping[str, Any]) -> str:
    """Why the job needs Kafka; empty: it needs none."""
    if values[SOURCE_TYPE] == KAFKA:
        return f"{SOURCE_TYPE}={KAFKA} reads topics"
    if values["sink.type"] == "kafka":
        return "sink.type=kafka writes topics"
    if values["errors.deadletterqueue.topic.name"]:
        return "errors.deadletterqueue.topic.name is a topic"
    return ""


def _make_problem(name: str, problem: str) -> ConfigProblem:
    return ConfigProblem(name, problem)
