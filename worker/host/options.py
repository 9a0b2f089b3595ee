"""Options that the task host reads: the worker's own, and those that every source connector has.

They are declared here and nowhere else; the worker's property file, validation and the reference take them from here.
"""

from __future__ import annotations

from typing import Final

from connectors.options import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    between,
    invalid,
    one_of,
    unless_null,
)
from connectors.topic_names import topic_name, topic_name_or_empty

_TASKS: Final = "Task hosts"
_ERRORS: Final = "Error Handling"
_RESTART: Final = "Automatic restart"
_EOS: Final = "Exactly Once Support"
_OFFSETS: Final = "Offsets Topic"
_METRICS: Final = "Logs and metrics"
_FAST_PATH: Final = "Fast path"


def _web_address(name: str, value: object) -> str | None:
    address = str(value)
    if not address or address.startswith(("http://", "https://")):
        return None
    return invalid(name, address, "It must be empty, or an address that begins with http:// or https://")


#: Options of the worker.
WORKER_KEYS: Final = (
    ConfigKey(
        name="task.max.outstanding.records",
        type=ConfigType.INT,
        default=20_000,
        unit="rows",
        validator=at_least(1),
        importance=Importance.LOW,
        group=_TASKS,
        doc="How many records of one task may wait for Kafka's acknowledgement before the task is not polled any more. "
        "Memory and what is read again after a crash grow with it.",
    ),
    ConfigKey(
        name="task.max.outstanding.bytes",
        type=ConfigType.LONG,
        default=32 * 1024 * 1024,
        unit="bytes",
        validator=at_least(1),
        importance=Importance.LOW,
        group=_TASKS,
        doc="How many bytes of one task's records, before compression, may wait for Kafka's acknowledgement before the task is "
        "not polled any more. A producer's buffer.memory, if set, is used instead.",
    ),
    ConfigKey(
        name="task.producer.stall.ms",
        type=ConfigType.LONG,
        default=60_000,
        unit="ms",
        validator=at_least(1000),
        importance=Importance.LOW,
        group=_TASKS,
        doc="A producer that got no acknowledgement for this long though records wait is given up; a new one sends them "
        "again. Records may then be in Kafka twice, never not at all (exactly once: never twice either).",
    ),
    ConfigKey(
        name="otel.traces.endpoint",
        type=ConfigType.STRING,
        default="",
        importance=Importance.LOW,
        group=_METRICS,
        validator=_web_address,
        example="http://127.0.0.1:4318/v1/traces",
        doc="Where OpenTelemetry traces of batches go: an OTLP receiver over HTTP, with its path. Empty: nothing is "
        "traced. Needs the packages of the extra tracing; headers and certificates come from the standard "
        "environment variables OTEL_EXPORTER_OTLP_*.",
    ),
    ConfigKey(
        name="otel.traces.sample.ratio",
        type=ConfigType.DOUBLE,
        default=0.01,
        validator=between(0, 1),
        importance=Importance.LOW,
        group=_METRICS,
        doc="Share of the batches that are traced.",
    ),
    ConfigKey(
        name="otel.traces.headers",
        type=ConfigType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        group=_METRICS,
        doc="Whether records of traced batches get the header traceparent, so that consumers' spans can follow theirs.",
    ),
    ConfigKey(
        name="otel.service.name",
        type=ConfigType.STRING,
        default="millrace",
        importance=Importance.LOW,
        group=_METRICS,
        doc="The service's name in traces.",
    ),
    ConfigKey(
        name="metrics.tables.max",
        type=ConfigType.INT,
        default=100,
        validator=at_least(1),
        importance=Importance.LOW,
        group=_METRICS,
        doc="Tables (or topics) of a task that have series of their own, of each metric with a value per table. Further "
        "ones share one series, other; millrace_task_series_folded_total counts what goes there.",
    ),
)

#: Options of every source connector, in addition to ``name``, ``connector.class``, ``tasks.max``, converters and transforms.
CONNECTOR_KEYS: Final = (
    ConfigKey(
        name="errors.retry.timeout",
        type=ConfigType.LONG,
        default=None,
        unit="ms",
        group=_ERRORS,
        doc="How long an operation that failed with a passing fault is retried. Not set or -1: forever, and the "
        "task stays RUNNING. When it has passed the task fails: an outage is never counted as a bad record.",
    ),
    ConfigKey(
        name="errors.retry.delay.max.ms",
        type=ConfigType.LONG,
        default=60_000,
        unit="ms",
        validator=unless_null(at_least(1)),
        group=_ERRORS,
        doc="Longest pause between two tries; pauses grow exponentially up to it, with jitter.",
    ),
    ConfigKey(
        name="errors.tolerance",
        type=ConfigType.STRING,
        default="none",
        validator=one_of("none", "all"),
        group=_ERRORS,
        doc="none: the first bad record fails the task. all: bad records are skipped, logged and written to the dead "
        "letter topic as the other errors.* options say.",
    ),
    ConfigKey(
        name="errors.log.enable",
        type=ConfigType.BOOLEAN,
        default=False,
        group=_ERRORS,
        doc="Whether each bad record is logged, with its stage and its position in the source.",
    ),
    ConfigKey(
        name="errors.log.include.messages",
        type=ConfigType.BOOLEAN,
        default=False,
        group=_ERRORS,
        doc="Whether the log shows the record itself. Records may hold personal data or secrets.",
    ),
    ConfigKey(
        name="errors.deadletterqueue.topic.name",
        type=ConfigType.STRING,
        default="",
        group=_ERRORS,
        validator=topic_name_or_empty,
        doc="Topic for bad records; empty for none. Needs errors.tolerance=all. Offsets never pass a bad record whose "
        "dead letter is not written.",
        example="my-connector-dead-letters",
    ),
    ConfigKey(
        name="errors.deadletterqueue.topic.replication.factor",
        type=ConfigType.SHORT,
        default=3,
        group=_ERRORS,
        doc="Replication factor of that topic if it has to be created.",
    ),
    ConfigKey(
        name="errors.deadletterqueue.context.headers.enable",
        type=ConfigType.BOOLEAN,
        default=True,
        group=_ERRORS,
        doc="Whether dead letters carry headers (__connect.errors.*) with stage, exception and source position. Kafka "
        "Connect's default is false, but a dead letter without them tells nothing.",
    ),
    ConfigKey(
        name="fast.path",
        type=ConfigType.STRING,
        default="auto",
        validator=one_of("auto", "off", "verify", ignore_case=True),
        importance=Importance.LOW,
        group=_FAST_PATH,
        doc="How rows become records for Kafka. auto: the connector writes rows straight to bytes where it can, and where no "
        "transform needs records; the bytes are the same. off: never. verify: it does both, compares each record, and "
        "fails the task at the first difference, with the topic, the position and the bytes; costs more than off.",
        example="verify",
    ),
    ConfigKey(
        name="errors.restart.policy",
        type=ConfigType.STRING,
        default="none",
        validator=one_of("none", "always"),
        group=_RESTART,
        doc="always: a failed task is started again automatically; its state is RESTARTING until then.",
    ),
    ConfigKey(
        name="errors.restart.max.attempts",
        type=ConfigType.INT,
        default=-1,
        validator=at_least(-1),
        group=_RESTART,
        doc="How often in a row, -1 without limit; then the task stays FAILED.",
    ),
    ConfigKey(
        name="errors.restart.delay.ms",
        type=ConfigType.LONG,
        default=10_000,
        unit="ms",
        validator=at_least(0),
        group=_RESTART,
        doc="Pause before the first restart; it doubles with each further one.",
    ),
    ConfigKey(
        name="errors.restart.max.delay.ms",
        type=ConfigType.LONG,
        default=300_000,
        unit="ms",
        validator=at_least(0),
        group=_RESTART,
        doc="Longest pause before a restart.",
    ),
    ConfigKey(
        name="errors.restart.reset.ms",
        type=ConfigType.LONG,
        default=300_000,
        unit="ms",
        validator=at_least(0),
        group=_RESTART,
        doc="A task that ran this long without failing has its attempts and its pause forgotten.",
    ),
    ConfigKey(
        name="exactly.once.support",
        type=ConfigType.STRING,
        default="requested",
        validator=one_of("requested", "required", ignore_case=True),
        group=_EOS,
        doc="required: the connector does not start unless it guarantees exactly once with this configuration and the "
        "worker supports it. requested: it starts either way.",
    ),
    ConfigKey(
        name="transaction.boundary",
        type=ConfigType.STRING,
        default="poll",
        validator=one_of("poll", "interval", "connector", ignore_case=True),
        group=_EOS,
        doc="With exactly once, when transactions end: with each batch that the task gives (about 30 ms each), after "
        "transaction.boundary.interval.ms, or where the connector says.",
    ),
    ConfigKey(
        name="transaction.boundary.interval.ms",
        type=ConfigType.LONG,
        default=None,
        unit="ms",
        group=_EOS,
        doc="With transaction.boundary=interval, how long a transaction lasts; the worker's offset.flush.interval.ms if "
        "not set. Consumers with read_committed see records only when it ends.",
    ),
    ConfigKey(
        name="offsets.storage.topic",
        type=ConfigType.STRING,
        default=None,
        group=_OFFSETS,
        validator=topic_name,
        doc="A topic of its own for this connector's offsets; they are written to the worker's topic too.",
    ),
)

CONNECTOR: Final = ConfigDef(CONNECTOR_KEYS)
WORKER: Final = ConfigDef(WORKER_KEYS)
