"""The worker's properties, each declared once: Kafka Connect's ``DistributedConfig`` and a few of ours.

``WORKER_CONFIG`` is the declaration; ``parse_worker`` checks a property file against it, maps Java class names through the
alias tables of the parts they belong to, and collects a warning for every property that has no effect here.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.options import (
    Config,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    invalid,
    non_empty,
    one_of,
)
from worker import kafka_clients
from worker.converters.base import find_converter
from worker.host.options import WORKER_KEYS
from worker.host.tracing import installed as tracing_installed
from worker.plugins.environments import scan
from worker.rest.settings import REST_KEYS, RestSettings
from worker.secrets.rotation import OPTIONS as PROVIDER_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_B, _S, _I, _L, _LIST, _CLASS, _PW = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.CLASS,
    ConfigType.PASSWORD,
)
_HIGH, _LOW = Importance.HIGH, Importance.LOW

_CLUSTER: Final = "Cluster"
_TOPICS: Final = "Internal topics"
_REST: Final = "REST"
_CONVERT: Final = "Converters and plugins"
_OFFSETS: Final = "Offsets and exactly once"
_HOSTS: Final = "Task hosts"
_LOGS: Final = "Logs and metrics"
_SECURITY: Final = "Security of Kafka clients"


def _hosts(name: str, value: int | None) -> str | None:
    return None if value is None or value > 0 else invalid(name, value, "Value must be at least 1")


#: Prefixes under which properties are passed on to the part they name.
PASS_THROUGH: Final = (
    "producer.",
    "consumer.",
    "admin.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "config.providers.",
    "config.storage.",
    "offset.storage.",
    "status.storage.",
    "sasl.",
    "ssl.",
    "security.",
    "listeners.https.",
    "admin.listeners.https.",
    "rest.",
    "metrics.context.",
    "node.labels.",
)

#: Kafka Connect's properties without an effect here, each with what is so instead.
IGNORED: Final[Mapping[str, str]] = {
    "metric.reporters": "JVM reporters can't run here; scrape GET /metrics",
    "auto.include.jmx.reporter": "there is no JMX; scrape GET /metrics",
    "metrics.num.samples": "metrics are counters and the scraper makes the windows",
    "metrics.sample.window.ms": "metrics are counters and the scraper makes the windows",
    "connect.protocol": "membership uses a protocol of its own, moves nothing needlessly and is always authenticated",
    "worker.sync.timeout.ms": "a worker that lags reads on while its tasks run",
    "worker.unsync.backoff.ms": "a worker that lags reads on while its tasks run",
    "plugin.discovery": "plugins are Python entry points and are always found by them",
    "task.shutdown.graceful.timeout": "the property is task.shutdown.graceful.timeout.ms",
    "internal.key.converter": "internal records are always schemaless JSON",
    "internal.value.converter": "internal records are always schemaless JSON",
    "internal.key.converter.schemas.enable": "internal records are always schemaless JSON",
    "internal.value.converter.schemas.enable": "internal records are always schemaless JSON",
    "client.dns.lookup": "all addresses of a name are tried in turn",
    "receive.buffer.bytes": "the operating system sizes socket buffers",
    "send.buffer.bytes": "the operating system sizes socket buffers",
    "reconnect.backoff.ms": "retry.backoff.ms is used for reconnects too",
    "reconnect.backoff.max.ms": "retry.backoff.ms is used for reconnects too",
    "retry.backoff.max.ms": "retry.backoff.ms is used without growth",
    "socket.connection.setup.timeout.ms": "request.timeout.ms bounds it",
    "socket.connection.setup.timeout.max.ms": "request.timeout.ms bounds it",
    "metadata.recovery.strategy": "clients always bootstrap again",
    "metadata.recovery.rebootstrap.trigger.ms": "clients always bootstrap again",
}

#: Properties that only a standalone worker of Kafka Connect has.
_STANDALONE: Final = "offset.storage.file.filename"


def _partitions(name: str, value: Any) -> str | None:
    if value == 0 or value < -1:
        return invalid(name, value, "Number of partitions must be positive, or -1 to use the broker's default")
    return None


def _replication(name: str, value: Any) -> str | None:
    if value == 0 or value < -1:
        return invalid(name, value, "Replication factor must be positive, or -1 to use the broker's default")
    return None


def _processes(name: str, value: Any) -> str | None:
    return invalid(name, value, "Value must be at least 0") if value is not None and value < 0 else None


def _topic(which: str, partitions: int | None, what: str) -> list[ConfigKey]:
    keys = [
        ConfigKey(
            name=f"{which}.storage.topic",
            type=_S,
            validator=non_empty,
            importance=_HIGH,
            group=_TOPICS,
            doc=f"The compacted topic that holds {what}. It is created if it does not exist; workers of one cluster "
            "share it.",
            example="connect-status" if which == "status" else f"connect-{which}s",
        ),
        ConfigKey(
            name=f"{which}.storage.replication.factor",
            type=ConfigType.SHORT,
            default=3,
            validator=_replication,
            importance=_LOW,
            group=_TOPICS,
            doc="Replication factor used when that topic is created; -1 takes the broker's default.",
        ),
    ]
    if partitions is not None:
        keys.append(
            ConfigKey(
                name=f"{which}.storage.partitions",
                type=_I,
                default=partitions,
                validator=_partitions,
                importance=_LOW,
                group=_TOPICS,
                doc="Partitions used when that topic is created; -1 takes the broker's default.",
            )
        )
    return keys


WORKER_CONFIG: Final = ConfigDef(
    [
        # Cluster
        ConfigKey(
            name="bootstrap.servers",
            type=_LIST,
            default=["localhost:9092"],
            importance=_HIGH,
            group=_CLUSTER,
            doc="Kafka brokers to begin with, as host:port, separated by commas.",
            example="kafka1:9092,kafka2:9092",
        ),
        ConfigKey(
            name="group.id",
            type=_S,
            validator=non_empty,
            importance=_HIGH,
            group=_CLUSTER,
            doc="Name of the cluster; workers with the same name, topics and Kafka form one. Not the name of a consumer "
            "group that is in use.",
            example="connect-cluster",
        ),
        ConfigKey(
            name="client.id",
            type=_S,
            default="",
            importance=_LOW,
            group=_CLUSTER,
            doc="Name that this worker's Kafka clients show to the brokers.",
        ),
        ConfigKey(
            name="group.takeover.wait.ms",
            type=_I,
            default=60_000,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_CLUSTER,
            doc="How long a worker that starts waits while members of another program hold its group: those of a "
            "killed Kafka Connect worker stay in it until their session ends. Then it gives up.",
        ),
        ConfigKey(
            name="session.timeout.ms",
            type=_I,
            default=6000,
            unit="ms",
            validator=at_least(1000),
            importance=_HIGH,
            group=_CLUSTER,
            doc="A worker that Kafka has not heard of for this long is lost: its tasks run elsewhere. A worker that has "
            "not heard of Kafka for two thirds of it stops its own tasks. Kafka Connect's default is 10000; the "
            "brokers' group.min.session.timeout.ms (6000 by default) bounds it.",
        ),
        ConfigKey(
            name="heartbeat.interval.ms",
            type=_I,
            default=1500,
            unit="ms",
            validator=at_least(100),
            importance=_HIGH,
            group=_CLUSTER,
            doc="Time between heartbeats; at most a quarter of session.timeout.ms. Kafka Connect's default is 3000.",
        ),
        ConfigKey(
            name="rebalance.timeout.ms",
            type=_I,
            default=60000,
            unit="ms",
            validator=at_least(0),
            importance=_HIGH,
            group=_CLUSTER,
            doc="Accepted for Kafka Connect's property files. Members do not stop tasks to rebalance, so a rebalance never "
            "waits longer than session.timeout.ms.",
        ),
        ConfigKey(
            name="scheduled.rebalance.max.delay.ms",
            type=_I,
            default=300000,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_CLUSTER,
            doc="Accepted for Kafka Connect's property files. A lost worker's tasks move at once, and come back without "
            "moving others when it returns, so there is nothing to wait for.",
        ),
        ConfigKey(
            name="metadata.max.age.ms",
            type=_L,
            default=300000,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_CLUSTER,
            doc="Metadata of topics is read again after this time.",
        ),
        ConfigKey(
            name="request.timeout.ms",
            type=_I,
            default=40000,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_CLUSTER,
            doc="A request to a broker that is not answered in this time has failed.",
        ),
        ConfigKey(
            name="retry.backoff.ms",
            type=_L,
            default=100,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_CLUSTER,
            doc="Pause before a failed request is tried again.",
        ),
        ConfigKey(
            name="connections.max.idle.ms",
            type=_L,
            default=540000,
            unit="ms",
            importance=_LOW,
            group=_CLUSTER,
            doc="Idle connections are closed after this time.",
        ),
        ConfigKey(
            name="node.labels",
            type=_LIST,
            default=[],
            group=_CLUSTER,
            doc="Labels of this worker, as name=value; a connector or task with millrace.node or millrace.labels runs only "
            "on workers that match.",
            example="zone=a,disk=ssd",
        ),
        ConfigKey(
            name="kafka.start.timeout.ms",
            type=_I,
            default=60000,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_CLUSTER,
            doc="At start, how long to wait for a broker that answers before giving up with an error.",
        ),
        # Internal topics
        *_topic("config", None, "connector and task configurations"),
        *_topic("offset", 25, "source offsets"),
        *_topic("status", 5, "states of connectors and tasks"),
        ConfigKey(
            name="placement.storage.topic",
            type=_S,
            default="",
            group=_TOPICS,
            doc="The compacted topic that holds which worker runs what; empty means <config.storage.topic>-placement. Its "
            "replication factor is config.storage.replication.factor.",
        ),
        # REST
        *(replace(key, group=_REST) for key in REST_KEYS),
        ConfigKey(
            name="inter.worker.signature.algorithm",
            type=_S,
            default="HmacSHA256",
            importance=_LOW,
            group=_REST,
            validator=one_of("HmacSHA1", "HmacSHA256", "HmacSHA384", "HmacSHA512"),
            doc="How requests between workers are signed.",
        ),
        ConfigKey(
            name="inter.worker.verification.algorithms",
            type=_LIST,
            default=["HmacSHA256"],
            importance=_LOW,
            group=_REST,
            doc="Which signatures of other workers are accepted.",
        ),
        ConfigKey(
            name="inter.worker.key.generation.algorithm",
            type=_S,
            default="HmacSHA256",
            importance=_LOW,
            group=_REST,
            validator=one_of("HmacSHA1", "HmacSHA256", "HmacSHA384", "HmacSHA512"),
            doc="Algorithm the session key is made for.",
        ),
        ConfigKey(
            name="inter.worker.key.size",
            type=_I,
            default=None,
            unit="bits",
            importance=_LOW,
            group=_REST,
            doc="Size of the session key; by default that of the algorithm.",
        ),
        ConfigKey(
            name="inter.worker.key.ttl.ms",
            type=_I,
            default=3600000,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_REST,
            doc="How long the leader keeps one session key.",
        ),
        # Converters and plugins
        ConfigKey(
            name="key.converter",
            type=_CLASS,
            importance=_HIGH,
            group=_CONVERT,
            doc="Converter of record keys; a connector may have its own. Java class names are accepted.",
            example="org.apache.kafka.connect.json.JsonConverter",
        ),
        ConfigKey(
            name="value.converter",
            type=_CLASS,
            importance=_HIGH,
            group=_CONVERT,
            doc="Converter of record values; a connector may have its own.",
            example="org.apache.kafka.connect.json.JsonConverter",
        ),
        ConfigKey(
            name="header.converter",
            type=_CLASS,
            default="org.apache.kafka.connect.storage.SimpleHeaderConverter",
            importance=_LOW,
            group=_CONVERT,
            doc="Converter of header values.",
        ),
        ConfigKey(
            name="plugin.path",
            type=_LIST,
            default=[],
            importance=_LOW,
            group=_CONVERT,
            doc="Folders with plugins in environments of their own (docs/plugins.md): each folder with installed packages in "
            "it, virtual environment, wheel or zip file. Folders that only hold jars do no harm.",
            example="/opt/millrace/plugins",
        ),
        ConfigKey(
            name="plugin.scan.interval.ms",
            type=_L,
            default=10000,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_CONVERT,
            doc="How often the folders of plugin.path are looked at for new, changed and removed plugins; 0: only at the "
            "start and by PUT /admin/plugins/refresh.",
        ),
        ConfigKey(
            name="plugin.environment.hosts.max",
            type=_I,
            default=None,
            unit="processes",
            validator=_hosts,
            importance=_LOW,
            group=_CONVERT,
            doc="How many task hosts there may be for plugins in environments of their own, beside the main ones; by default "
            "twice as many as those, at least 4.",
        ),
        ConfigKey(
            name="plugin.environment.host.idle.ms",
            type=_L,
            default=60000,
            unit="ms",
            validator=at_least(100),
            importance=_LOW,
            group=_CONVERT,
            doc="After so long without use such a task host ends.",
        ),
        ConfigKey(
            name="config.providers",
            type=_LIST,
            default=[],
            importance=_LOW,
            group=_CONVERT,
            doc="Names of config providers; config.providers.NAME.class and config.providers.NAME.param.* set them up.",
            example="file",
        ),
        *PROVIDER_OPTIONS.keys.values(),
        ConfigKey(
            name=kafka_clients.POLICY,
            type=_S,
            default="All",
            importance=_LOW,
            group=_CONVERT,
            doc="Which client properties a connector may override: All, None, Allowlist (those named by "
            f"{kafka_clients.ALLOWLIST}) or Principal (security.protocol, sasl.mechanism and sasl.jaas.config; "
            "deprecated in Kafka Connect); Java class names are accepted.",
        ),
        ConfigKey(
            name=kafka_clients.ALLOWLIST,
            type=_LIST,
            default=[],
            importance=_LOW,
            group=_CONVERT,
            doc="With the policy Allowlist: names of client properties that connectors may override, without "
            "producer.override. and the like before them.",
            example="sasl.jaas.config,sasl.mechanism,security.protocol",
        ),
        ConfigKey(
            name="topic.creation.enable",
            type=_B,
            default=True,
            importance=_LOW,
            group=_CONVERT,
            doc="Whether connectors with topic.creation.* properties may create their topics.",
        ),
        # Offsets and exactly once
        ConfigKey(
            name="offset.flush.interval.ms",
            type=_L,
            default=60000,
            unit="ms",
            validator=at_least(1),
            importance=_LOW,
            group=_OFFSETS,
            doc="How often tasks save their offsets.",
        ),
        ConfigKey(
            name="offset.flush.timeout.ms",
            type=_L,
            default=5000,
            unit="ms",
            validator=at_least(1),
            importance=_LOW,
            group=_OFFSETS,
            doc="How long saving them may take before it counts as failed.",
        ),
        ConfigKey(
            name="exactly.once.source.support",
            type=_S,
            default="disabled",
            importance=_HIGH,
            group=_OFFSETS,
            validator=one_of("disabled", "preparing", "enabled", ignore_case=True),
            doc="Whether source records and offsets are written in transactions. A running cluster goes from disabled to "
            "enabled through preparing.",
        ),
        ConfigKey(
            name="transaction.timeout.ms",
            type=_I,
            default=10000,
            unit="ms",
            validator=at_least(1000),
            importance=_LOW,
            group=_OFFSETS,
            doc="Timeout of the leader's transactions on the config topic; bounds how long a leader that died in the "
            "middle of one can hold readers up.",
        ),
        # Task hosts
        ConfigKey(
            name="processes",
            type=_I,
            default=None,
            validator=_processes,
            group=_HOSTS,
            doc="Task host processes; by default one per core, 0 runs tasks in the control process (for a debugger). "
            "The command line's --processes goes before it.",
        ),
        ConfigKey(
            name="task.host.stuck.ms",
            type=_I,
            default=10000,
            unit="ms",
            validator=at_least(100),
            group=_HOSTS,
            doc="A task host whose event loop has not answered for this long is dumped into the log, killed and replaced.",
        ),
        ConfigKey(
            name="task.host.restart.backoff.ms",
            type=_I,
            default=500,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_HOSTS,
            doc="Pause before a task whose host died starts again; doubles with each further time.",
        ),
        ConfigKey(
            name="task.host.restart.backoff.max.ms",
            type=_I,
            default=60000,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_HOSTS,
            doc="The longest such pause.",
        ),
        ConfigKey(
            name="task.host.crash.limit",
            type=_I,
            default=5,
            validator=at_least(1),
            importance=_LOW,
            group=_HOSTS,
            doc="A task that was on the CPU or alone in so many hosts that died within ten minutes fails, until it is "
            "restarted by hand.",
        ),
        ConfigKey(
            name="task.shutdown.graceful.timeout.ms",
            type=_L,
            default=5000,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_HOSTS,
            doc="How long a task may take to stop; then it is abandoned. Each task has this time, all stop at once.",
        ),
        ConfigKey(
            name="validate.timeout.ms",
            type=_I,
            default=30000,
            unit="ms",
            validator=at_least(100),
            importance=_LOW,
            group=_HOSTS,
            doc="How long a connector may take to validate a configuration before REST answers an error.",
        ),
        ConfigKey(
            name="drain.timeout.ms",
            type=_I,
            default=20000,
            unit="ms",
            validator=at_least(0),
            importance=_LOW,
            group=_HOSTS,
            doc="How long a worker that is told to stop waits until others have taken over its tasks.",
        ),
        *WORKER_KEYS,
        # Logs and metrics
        ConfigKey(
            name="log.format",
            type=_S,
            default="text",
            validator=one_of("text", "json"),
            importance=_LOW,
            group=_LOGS,
            doc="Form of log lines.",
        ),
        ConfigKey(
            name="log.level",
            type=_S,
            default="INFO",
            importance=_LOW,
            group=_LOGS,
            validator=one_of("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF", ignore_case=True),
            doc="Level of the root logger at start; PUT /admin/loggers changes levels at run time.",
        ),
        ConfigKey(
            name="metrics.families",
            type=_LIST,
            default=["A", "D"],
            importance=_LOW,
            group=_LOGS,
            doc="Name families of the Prometheus exposition: A (Strimzi's dashboards), B (Confluent's and Aiven's), C "
            "(Strimzi's metrics reporter), D (Debezium's). docs/metrics.md says which dashboard needs which.",
            example="A,B,D",
        ),
        ConfigKey(
            name="metrics.jvm.names",
            type=_B,
            default=True,
            importance=_LOW,
            group=_LOGS,
            doc="Whether memory, threads and garbage collection of the worker's Python processes are also shown under the "
            "names that dashboards ask a JVM for (jvm_memory_used_bytes ...).",
        ),
        ConfigKey(
            name="metrics.clients.max",
            type=_I,
            default=100,
            validator=at_least(1),
            importance=_LOW,
            group=_LOGS,
            doc="Kafka clients of a kind (producer, consumer, admin) with series of their own; further ones share the "
            "series other. Each source task has a producer.",
        ),
        ConfigKey(
            name="metrics.recording.level",
            type=_S,
            default="INFO",
            validator=one_of("INFO", "DEBUG", "TRACE"),
            importance=_LOW,
            group=_LOGS,
            doc="Accepted for Kafka Connect's property files; everything is recorded.",
        ),
        # Security
        ConfigKey(
            name="security.protocol",
            type=_S,
            default="PLAINTEXT",
            group=_SECURITY,
            validator=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", ignore_case=True),
            doc="How to talk to brokers. The sasl.* and ssl.* properties of the Java clients set it up; stores are PEM or "
            "PKCS12.",
        ),
    ]
)


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
    if _STANDALONE in properties:
        raise ConfigInvalid(
            f"{_STANDALONE} is a property of Kafka Connect's standalone mode, which keeps offsets in a file. Millrace keeps "
            "them in Kafka, also for a single worker: remove it and set group.id, config.storage.topic, "
            "offset.storage.topic and status.storage.topic (with *.storage.replication.factor=1 on a single broker), then "
            "run: millrace worker WORKER.properties CONNECTOR.properties"
        )
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


def _cross_checks(config: Config) -> list[str]:
    problems: list[str] = []
    if config["heartbeat.interval.ms"] * 3 > config["session.timeout.ms"]:
        problems.append(
            invalid(
                "heartbeat.interval.ms",
                config["heartbeat.interval.ms"],
                f"Value must be at most a third of session.timeout.ms ({config['session.timeout.ms']})",
            )
        )
    topics: dict[str, str] = {}
    for which in ("config.storage.topic", "offset.storage.topic", "status.storage.topic"):
        if config[which] in topics:
            problems.append(
                invalid(which, config[which], f"It is also {topics[config[which]]}; each needs a topic of its own")
            )
        topics[config[which]] = which
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
        # Which names a converter in an environment has, only its code says: tasks tell if it is none of those.
        offered = {
            group
            for environment in scan(config["plugin.path"], {}).environments.values()
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


def labels(config: Config) -> dict[str, str]:
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
