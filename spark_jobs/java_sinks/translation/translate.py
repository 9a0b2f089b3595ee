"""From the configuration of a Java sink connector to the properties of a job. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.job_api import Translation
from connectors.options import ConfigProblem
from spark_jobs.config.keys import FRAME, STEPS
from spark_jobs.java_sinks.translation.converters import translate_converters
from spark_jobs.java_sinks.translation.model import FLAT, JavaOption, TranslatedJob, TranslationRequest
from spark_jobs.java_sinks.translation.transforms import translate_transforms
from worker.config.job_config import JOB_CONFIG, tasks_note
from worker.kafka.clients import SECURITY_PREFIXES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.java_sinks.translation.model import JavaSink

_CLASS: Final = "connector.class"
#: Options of a job that may stand in the configuration as they are, and then count.
_OWN_PREFIXES: Final = ("source.", "sink.", "transform.", "kafka.", "spark.", "mask.", "schema.changes.")
_CONSUMER: Final = "consumer.override."
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
#: Options of every sink connector of Kafka Connect.
COMMON: Final = (
    JavaOption(name="topics", doc="The topics to read.", to=("source.topics",), copied=True),
    JavaOption(name="topics.regex", doc="A pattern of the topics to read.", to=("source.topics.pattern",), copied=True),
    JavaOption(
        name="key.converter",
        doc="How keys are read.",
        to=("source.key.encoding", "source.schema.registry.*"),
    ),
    JavaOption(
        name="value.converter",
        doc="How values are read.",
        to=("source.format", "source.value.encoding", "source.schema.registry.*"),
    ),
    JavaOption(name="header.converter", doc="How headers are read.", without="a job reads no headers"),
    JavaOption(name="transforms", doc="What happens to records before they are written.", to=(STEPS,)),
    JavaOption(name="predicates", doc="Which records a transform changes.", to=("source.tombstones",)),
    JavaOption(
        name="errors.tolerance",
        doc="What becomes of records that can't be written.",
        default="none",
        to=("errors.tolerance",),
        copied=True,
    ),
    JavaOption(name=_DEAD_LETTERS, doc="The topic for them.", to=(_DEAD_LETTERS,)),
    JavaOption(
        name="errors.deadletterqueue.topic.replication.factor",
        doc="For that topic, if it has to be created.",
        default="3",
        to=("errors.deadletterqueue.topic.replication.factor",),
    ),
    JavaOption(
        name="errors.deadletterqueue.context.headers.enable",
        doc="Whether records in that topic say where they were and what is wrong.",
        default="false",
        to=("errors.deadletterqueue.context.headers.enable",),
    ),
    JavaOption(
        name="errors.retry.timeout",
        doc="How long a failed conversion is repeated.",
        default="0",
        without="a job repeats what may pass for errors.retry.timeout.ms, without a limit by default",
    ),
    JavaOption(
        name="errors.log.enable",
        doc="Whether errors are logged.",
        default="false",
        without="a job logs how many records it puts aside, and the reason of the first ones",
    ),
    JavaOption(
        name="errors.log.include.messages",
        doc="Whether the log has the records.",
        default="false",
        without="a job logs where a record is, not what it holds",
    ),
)
_BY_NAME: Final = {option.name: option for option in COMMON}
#: ``consumer.override.<name>`` -> what it becomes.
_CONSUMER_OPTIONS: Final = {
    "auto.offset.reset": "source.starting.offsets",
    "isolation.level": "source.isolation.level",
}
_GROUP: Final = "group.id"


def group_of(config: Mapping[str, str]) -> str:
    """The consumer group of a Java sink connector."""
    return config.get(f"{_CONSUMER}{_GROUP}", "").strip() or f"connect-{config.get('name', '')}"


def translate_sink(sink: JavaSink, config: Mapping[str, str], converters: Mapping[str, str]) -> Translation:
    """The job that a Java sink's configuration means.

    Args:
        sink: the Java sink.
        config: its configuration, references resolved.
        converters: the worker's converters with their options, for those that the configuration does not name.
    """
    present = {name: value for name, value in config.items() if value is not None}
    job_options = {name: value for name, value in present.items() if is_option_of_job(name)}
    written = sink.config_def.canonical({name: value for name, value in present.items() if name not in job_options})
    for side in ("key.converter", "value.converter"):
        if not written.get(side, "").strip():
            written |= {name: value for name, value in converters.items() if name.startswith(side)}
    request = TranslationRequest(
        sink, {**written, **job_options}, job_options.get("source.format", "").strip() or sink.form
    )
    answer = TranslatedJob()
    for name, value in written.items():
        if name in JOB_CONFIG.keys and name not in _BY_NAME:
            answer.put(name, value)
    answer.put("sink.type", sink.sink_type, _CLASS)
    _translate_common(request, answer)
    translate_transforms(request, answer)
    translate_converters(request, answer)
    if request.drops_tombstones and request.form == FLAT:
        answer.put("source.tombstones", "ignore", "transforms")
    _translate_options(request, answer)
    sink.translate(request, answer)
    _note_unknown(request, job_options, answer)
    steps = ",".join(name for name in (*answer.steps, job_options.get(STEPS, "")) if name)
    answer.properties |= job_options | ({STEPS: steps} if steps else {})
    origins = {option: origin for option, origin in answer.origins.items() if option not in job_options}
    return Translation(answer.properties, origins, tuple(dict.fromkeys(answer.problems)))


def is_option_of_job(name: str) -> bool:
    """Whether a property is the job's own, and no option of a sink connector."""
    if name in JOB_CONFIG.keys or name in _BY_NAME:
        return False
    return name in FRAME.keys or name.startswith(_OWN_PREFIXES)


def _translate_common(request: TranslationRequest, answer: TranslatedJob) -> None:
    """Topics, the consumer group, dead letters."""
    config = request.config
    for option in COMMON:
        value = request.text(option.name)
        if option.copied and value:
            answer.put(option.to[0], value, option.name)
        elif option.without and value and value.lower() != option.default:
            answer.note(option.name, f"{option.name} has no effect: {option.without}")
    for note in tasks_note(config):
        answer.note("tasks.max", note)
    if request.has(_DEAD_LETTERS):
        _translate_dead_letters(request, answer)
    group = group_of(config)
    answer.put("kafka.group.id", group, f"{_CONSUMER}{_GROUP}")
    answer.put("source.starting.group", group, f"{_CONSUMER}{_GROUP}")
    for name, value in config.items():
        if name.startswith(_CONSUMER):
            _translate_consumer(name, value, answer)
        elif name.startswith(("producer.override.", "admin.override.")):
            answer.note(name, f"{name} has no effect: the job's Kafka clients all have the options kafka.*")


def _translate_dead_letters(request: TranslationRequest, answer: TranslatedJob) -> None:
    if request.text("errors.tolerance").lower() != "all":
        answer.note(
            _DEAD_LETTERS, f"{_DEAD_LETTERS} has no effect with errors.tolerance=none: the job stops at such a record"
        )
        return
    answer.put(_DEAD_LETTERS, request.text(_DEAD_LETTERS), _DEAD_LETTERS)
    headers = "errors.deadletterqueue.context.headers.enable"
    answer.put(headers, request.text(headers) or "false", headers)
    factor = "errors.deadletterqueue.topic.replication.factor"
    if request.has(factor):
        answer.put(factor, request.text(factor), factor)


def _translate_consumer(name: str, value: str, answer: TranslatedJob) -> None:
    option = name.removeprefix(_CONSUMER)
    if option == _GROUP:
        return
    if option in _CONSUMER_OPTIONS:
        answer.put(_CONSUMER_OPTIONS[option], value, name)
    elif option == "bootstrap.servers" or option.startswith(SECURITY_PREFIXES):
        answer.put(f"kafka.{option}", value, name)
    else:
        answer.note(
            name,
            f"{name} has no effect: Spark reads Kafka, and source.max.offsets.per.trigger bounds a batch; the job's Kafka "
            f"clients take it as kafka.{option}",
        )


def _translate_options(request: TranslationRequest, answer: TranslatedJob) -> None:
    """The options of the sink that need no thought."""
    for option in request.sink.options:
        if not request.has(option.name):
            continue
        value = request.text(option.name)
        usual = value.lower() in {option.default.lower(), *option.same}
        if option.copied:
            answer.put(option.to[0], value, option.name)
        elif option.values is not None:
            _translate_value(option, value, answer)
        elif option.without and not usual:
            answer.note(option.name, f"{option.name} has no effect: {option.without}")
        elif option.refused and not usual:
            answer.refuse(option.name, f"{option.name}={value} can't be translated: {option.refused}")


def _translate_value(option: JavaOption, value: str, answer: TranslatedJob) -> None:
    values = option.values or {}
    translated = values.get(value.lower())
    if translated is None:
        answer.refuse(
            option.name, f"Invalid value {value} for configuration {option.name}: must be one of {', '.join(values)}"
        )
    else:
        answer.put(option.to[0], translated, option.name)


def _note_unknown(request: TranslationRequest, job_options: Mapping[str, str], answer: TranslatedJob) -> None:
    """Name what is no option of Java's sink either."""
    nested = ("key.converter.", "value.converter.", "header.converter.", "transforms.", "predicates.")
    overrides = (_CONSUMER, "producer.override.", "admin.override.")
    for name in request.config:
        if name in job_options or name in JOB_CONFIG.keys or name in _BY_NAME or name in request.sink.by_name:
            continue
        if name.startswith((*nested, *overrides)) or name in ("task.class", "topics.regex"):
            continue
        reason = next(
            (explanation for prefix, explanation in request.sink.prefixes.items() if name.startswith(prefix)),
            f"{request.sink.title} has no such option, and a job has none",
        )
        if not reason:
            continue  # the sink has looked at it
        answer.problems.append(ConfigProblem(name, f"{name} has no effect: {reason}", warning=True))
